package api

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// need is the least role of each operation. It stands here once more, so that the document can not give rights away unseen.
func need(operation string) Role {
	switch operation {
	case "getPayload", "getValue", "createJob", "pauseJob", "resumeJob", "cancelJob", "rateJob", "discardLetters", "undiscardLetters", "rescueLetters":
		return RoleOperator
	case "exportLetters": // called asks for payloads, which a viewer may not see.
		return RoleOperator
	case "purgeLetters":
		return RoleAdmin
	case "getDocumentYaml", "getDocumentJson":
		return ""
	default:
		return RoleViewer
	}
}

func TestEachRoleMayDoWhatItNeedsAndNoMore(t *testing.T) {
	r := newRig(t)
	for id, c := range called() {
		t.Run(id, func(t *testing.T) {
			for secret, role := range map[string]Role{alice: RoleAdmin, bob: RoleOperator, carol: RoleViewer, "": "", "wrong": ""} {
				r.fresh()
				a := r.call(t, c.method, c.path, secret, c.body)
				switch {
				case need(id) == "" || role != "" && role.rank() >= need(id).rank():
					if a.StatusCode != c.status {
						t.Errorf("%s gets %d %s", role, a.StatusCode, a.body)
					}
				case role == "":
					isProblem(t, a, http.StatusUnauthorized, codeUnauthenticated)
					if !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
						t.Errorf("401 without WWW-Authenticate")
					}
				default:
					isProblem(t, a, http.StatusForbidden, codeForbidden)
				}
				if a.StatusCode >= 400 && len(r.ledger.audit) != 2 {
					t.Errorf("a refused request has an effect: %+v", r.ledger.audit)
				}
			}
		})
	}
}

func TestAnEditOrAForcedReplayNeedsAnAdmin(t *testing.T) {
	for _, body := range []string{
		`{"filter":{"id":[1]},"reason":"r","force":true}`,
		`{"filter":{"id":[1]},"reason":"r","edit":{"value":{"null":true}}}`,
		strings.Replace(`{"reason":"r",`+aPlan+`}`, `"ids"`, `"force":true,"ids"`, 1),
	} {
		r := newRig(t)
		r.refused(t, http.MethodPost, "/jobs", bob, body, http.StatusForbidden, codeForbidden)
		if a := r.call(t, http.MethodPost, "/jobs", alice, body); a.StatusCode != http.StatusCreated {
			t.Errorf("an admin gets %d %s", a.StatusCode, a.body)
		}
	}
}

func TestOnlyOneWellFormedTokenIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		headers []string
		want    string // of the metric; "" is taken
	}{
		"as it should be":  {[]string{"Bearer " + alice}, ""},
		"scheme in lower":  {[]string{"bearer " + alice}, ""},
		"another scheme":   {[]string{"Basic " + alice}, "malformed"},
		"no scheme":        {[]string{alice}, "malformed"},
		"two of them":      {[]string{"Bearer " + alice, "Bearer " + alice}, "malformed"},
		"empty":            {[]string{"Bearer "}, "wrong"},
		"a part of it":     {[]string{"Bearer " + alice[:5]}, "wrong"},
		"something behind": {[]string{"Bearer " + alice + "x"}, "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			req := request(t, http.MethodGet, "/whoami", "", "")
			req.Header["Authorization"] = c.headers
			a := r.do(t, req)
			if c.want == "" {
				if who := into[Identity](t, a); who.Name != "alice" || !who.Authenticated || who.Role != RoleAdmin {
					t.Errorf("taken for %+v", who)
				}
				return
			}
			isProblem(t, a, http.StatusUnauthorized, codeUnauthenticated)
			if strings.Contains(string(a.body), alice) {
				t.Error("the answer tells the token")
			}
			if got := testutil.ToFloat64(r.handler.metrics.refused.WithLabelValues(c.want)); got != 1 {
				t.Errorf("counted %v as %s", got, c.want)
			}
		})
	}
}

func TestLettersOfOtherTopicsDoNotExistForOneWhoIsNarrowed(t *testing.T) {
	r := newRig(t)
	ids := func(path string) []int64 {
		out := []int64{}
		for _, l := range into[LetterList](t, r.call(t, http.MethodGet, path, dave, "")).Letters {
			out = append(out, l.ID)
		}
		return out
	}
	for path, want := range map[string][]int64{
		"/letters":                    {1, 2, 3, 5},
		"/letters?topic=payments.dlt": {},
		"/letters?topic=payments.dlt&topic=orders.dlt&id=1": {1},
		"/letters?id=4": {},
	} {
		if diff := cmp.Diff(want, ids(path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	for _, path := range []string{"/letters/4", "/letters/4/payload", "/letters/4/value", "/letters/4/history", "/jobs/" + jobOfBob, "/jobs/" + jobOfAlice + "/items"} {
		r.refused(t, http.MethodGet, path, dave, "", http.StatusNotFound, codeUnknown)
	}
	if n := into[Count](t, r.call(t, http.MethodGet, "/count?topic=payments.dlt", dave, "")).Count; n != 0 {
		t.Errorf("counts %d letters of another topic", n)
	}
	if g := into[GroupList](t, r.call(t, http.MethodGet, "/groups?topic=payments.dlt", dave, "")).Groups; len(g) != 0 {
		t.Errorf("groups letters of another topic: %v", g)
	}
	if a := r.call(t, http.MethodGet, "/export?topic=payments.dlt", dave, ""); a.StatusCode != http.StatusOK || len(a.body) != 0 {
		t.Errorf("exports letters of another topic: %s", a.body)
	}
	// m1 has a letter in each topic.
	if h := into[History](t, r.call(t, http.MethodGet, "/history?messageId=m1", dave, "")); len(h.Entries) != 2 {
		t.Errorf("the history has %d entries, want 2", len(h.Entries))
	}
	if s := into[StatList](t, r.call(t, http.MethodGet, "/stats", dave, "")).Stats; len(s) != 1 || s[0].Topic != "orders.dlt" {
		t.Errorf("stats %v", s)
	}
	if p := into[ProgressList](t, r.call(t, http.MethodGet, "/progress", dave, "")).Partitions; len(p) != 1 || p[0].Topic != "orders.dlt" {
		t.Errorf("progress %v", p)
	}
	if v := into[Version](t, r.call(t, http.MethodGet, "/version", dave, "")); len(v.Topics) != 1 {
		t.Errorf("version tells topics %v", v.Topics)
	}
	if j := into[JobList](t, r.call(t, http.MethodGet, "/jobs", dave, "")).Jobs; len(j) != 0 {
		t.Errorf("jobs of others: %v", j)
	}
	if e := into[AuditList](t, r.call(t, http.MethodGet, "/audit", dave, "")).Entries; len(e) != 0 {
		t.Errorf("audit of others: %v", e)
	}
	r.ledger.jobs[0].Spec.Actor, r.ledger.audit[0].Actor = "dave", "dave"
	if j := into[JobList](t, r.call(t, http.MethodGet, "/jobs?limit=1", dave, "")).Jobs; len(j) != 1 {
		t.Errorf("its own job is not told: %v", j)
	}
	if e := into[AuditList](t, r.call(t, http.MethodGet, "/audit?limit=1", dave, "")).Entries; len(e) != 1 {
		t.Errorf("its own entry is not told: %v", e)
	}
	// The key of letter 3 has one older letter in this topic; the ledger counts two with those of others.
	if d := into[LetterDetail](t, r.call(t, http.MethodGet, "/letters/3", dave, "")); d.OlderCount != 1 || d.Oldest.ID != 1 {
		t.Errorf("older %d, first %v", d.OlderCount, d.Oldest)
	}
}

func TestEffectsOfOneWhoIsNarrowedStayInItsTopics(t *testing.T) {
	r := newRig(t)
	if n := into[ChangeResult](t, r.call(t, http.MethodPost, "/discards", dave, `{"filter":{"messageId":["m1"]},"reason":"r"}`)).Count; n != 1 {
		t.Errorf("%d letters discarded, want 1", n)
	}
	if got := r.ledger.letters[3].State; got != deadletter.Dead {
		t.Errorf("the letter of another topic is %s", got)
	}
	if n := into[ChangeResult](t, r.call(t, http.MethodPost, "/discards", dave, `{"filter":{"id":[4]},"reason":"r"}`)).Count; n != 0 {
		t.Errorf("%d letters of another topic discarded", n)
	}
	r.call(t, http.MethodPost, "/jobs", dave, `{"filter":{"messageId":["m1"]},"reason":"r"}`)
	if diff := cmp.Diff([]string{"orders.dlt"}, r.replayer.request.Filter.Topics); diff != "" {
		t.Errorf("the replayer is asked for topics %s", diff)
	}
	r.refused(t, http.MethodPost, "/jobs", dave, `{"filter":{"topic":["payments.dlt"]},"reason":"r"}`, http.StatusNotFound, codeNothingSelected)
	const plan = `{"version":1,"createdAt":"2026-03-04T05:06:07Z","upTo":5,"count":2,"excluded":[],"warnings":[],"destinations":{},"reasons":{},"origins":{},"rate":1,"ids":`
	r.refused(t, http.MethodPost, "/jobs", dave, `{"reason":"r","plan":`+plan+`[1,4]}}`, http.StatusNotFound, codeUnknown)
	if a := r.call(t, http.MethodPost, "/jobs", dave, `{"reason":"r","plan":`+plan+`[1,2]}}`); a.StatusCode != http.StatusCreated {
		t.Errorf("its own plan: %d %s", a.StatusCode, a.body)
	}
}

func TestWithoutTokensOnlyLoopbackNamesAreAnswered(t *testing.T) {
	for host, want := range map[string]int{
		"127.0.0.1:9402": 200, "localhost": 200, "LOCALHOST.:1": 200, "[::1]:9402": 200, "127.9.9.9": 200, "[::ffff:127.0.0.1]:1": 200,
		"evil.example:9402": 421, "127.0.0.1.evil.example": 421, "10.0.0.1": 421, "": 421, "localhost.evil.example": 421, "[::]:1": 421,
	} {
		r := newRig(t, open)
		req := request(t, http.MethodGet, "/whoami", "", "")
		req.Host = host
		a := r.do(t, req)
		if a.StatusCode != want {
			t.Errorf("host %q: status %d, want %d", host, a.StatusCode, want)
		}
		if want == 200 {
			if who := into[Identity](t, a); who.Name != "local" || who.Authenticated || who.Role != RoleAdmin {
				t.Errorf("host %q is taken for %+v", host, who)
			}
		}
	}
}

func TestAPageOfAnotherSiteCanNotChangeAnything(t *testing.T) {
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r := newRig(t, open)
		req := request(t, http.MethodPost, "/discards", "", `{"filter":{"id":[1]},"reason":"r"}`)
		req.Header.Set(name, value)
		isProblem(t, r.do(t, req), http.StatusForbidden, codeCrossOrigin)
		if len(r.ledger.audit) != 2 {
			t.Error("it had an effect")
		}
	}
}

func TestAServerBeyondLoopbackWithoutTokensIsRefused(t *testing.T) {
	options := func(address string, tokens ...Token) Options {
		return Options{Address: address, Ledger: newFakeLedger(), Replayer: newFakeReplayer(), Radar: &fakeRadar{}, Tokens: tokens, Logger: testkit.Logger(t)}
	}
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		if s, err := New(t.Context(), options(address)); err == nil {
			t.Errorf("%s: served as %s", address, s.Address())
		} else if !strings.Contains(err.Error(), "tokens") {
			t.Errorf("%s: %v", address, err)
		}
		s, err := New(t.Context(), options(address, allTokens()...))
		if err != nil {
			t.Errorf("%s with tokens: %v", address, err)
			continue
		}
		if err := s.SetTokens(nil); err == nil {
			t.Errorf("%s: its tokens can be taken away", address)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	s, err := New(t.Context(), options("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

func TestTokensAreReplacedAtOnceOrNotAtAll(t *testing.T) {
	s, err := New(t.Context(), Options{
		Address: "127.0.0.1:0", Ledger: newFakeLedger(), Replayer: newFakeReplayer(), Radar: &fakeRadar{}, Tokens: allTokens(), Logger: testkit.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()
	r := &rig{handler: s.handler, contract: theContract(t)}
	bad := map[string][]Token{
		"none at all":     {},
		"no name":         {token("", alice, RoleAdmin)},
		"the local name":  {token("local", alice, RoleAdmin)},
		"no such role":    {token("a", alice, "chief")},
		"no hash":         {{Name: "a", Role: RoleAdmin}},
		"hash of nothing": {token("a", "", RoleAdmin)},
		"two of a name":   {token("a", alice, RoleAdmin), token("a", bob, RoleAdmin)},
		"two of a hash":   {token("a", alice, RoleAdmin), token("b", alice, RoleViewer)},
		"unnamed topic":   {token("a", alice, RoleAdmin, "")},
	}
	for name, tokens := range bad {
		if err := s.SetTokens(tokens); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if a := r.call(t, http.MethodGet, "/whoami", alice, ""); a.StatusCode != http.StatusOK {
		t.Fatalf("the tokens before are gone: %d", a.StatusCode)
	}
	if err := s.SetTokens([]Token{token("erin", "erin-secret", RoleViewer)}); err != nil {
		t.Fatal(err)
	}
	r.refused(t, http.MethodGet, "/whoami", alice, "", http.StatusUnauthorized, codeUnauthenticated)
	if who := into[Identity](t, r.call(t, http.MethodGet, "/whoami", "erin-secret", "")); who.Name != "erin" {
		t.Errorf("taken for %+v", who)
	}
}

func TestANewTokenIsLongRandomAndMatchesItsHash(t *testing.T) {
	a, sum := NewToken()
	b, _ := NewToken()
	if a == b || len(a) != len(tokenPrefix)+43 || sha256.Sum256([]byte(a)) != sum {
		t.Errorf("tokens %q and %q", a, b)
	}
	r := newRig(t, func(o *Options) { o.Tokens = []Token{{Name: "x", Role: RoleViewer, SHA256: sum}} })
	if who := into[Identity](t, r.call(t, http.MethodGet, "/whoami", a, "")); who.Name != "x" {
		t.Errorf("taken for %+v", who)
	}
}
