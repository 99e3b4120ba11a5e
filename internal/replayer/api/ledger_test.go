package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/postgres"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlite"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

var (
	_ Ledger   = deadletter.Ledger(nil)
	_ Replayer = (*replay.Replayer)(nil)
)

func openSQLite(t testing.TB) deadletter.Ledger {
	t.Helper()
	ledger, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	return ledger
}

func openPostgres(t testing.TB) deadletter.Ledger {
	t.Helper()
	options := postgres.Options{URL: testkit.RealPostgres(t)}
	if _, _, err := postgres.Migrate(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	ledger, err := postgres.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return ledger
}

// onEachLedger runs a test on both ledgers: they differ in what text, numbers and times they take.
func onEachLedger(t *testing.T, change func(*Options), test func(t *testing.T, r *rig)) {
	t.Helper()
	for name, open := range map[string]func(testing.TB) deadletter.Ledger{"sqlite": openSQLite, "postgres": openPostgres} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, change)
			withLedger(t, r, open(t))
			test(t, r)
		})
	}
}

// asIs changes nothing.
func asIs(*Options) {}

// withLedger gives the rig a real ledger with letters of two topics, and a replayer that only writes jobs down.
func withLedger(t testing.TB, r *rig, ledger deadletter.Ledger) {
	t.Helper()
	t.Cleanup(func() {
		if err := ledger.Close(); err != nil {
			t.Error(err)
		}
	})
	for n, topic := range []string{"orders.dlt", "payments.dlt"} {
		batch := deadletter.Batch{TopicID: deadletter.TopicID{byte(n + 1)}, Topic: topic, Next: 10}
		for i := range int64(10) {
			batch.Letters = append(batch.Letters, deadletter.Letter{
				Place:     deadletter.Place{TopicID: batch.TopicID, Topic: topic, Offset: i},
				MessageID: fmt.Sprintf("%s/%d", topic, i), Key: []byte{'k', byte(i % 3)}, Origin: strings.TrimSuffix(topic, ".dlt"),
				OriginPartition: int32(i % 2), OriginOffset: 100 - i, Reason: []envelope.Reason{"poison", "exhausted"}[i%2],
				ErrorType: "Timeout", ErrorText: fmt.Sprintf("50%% of %d", i), Fingerprint: "f", Attempt: int(i), DeadAt: deadAt.Add(time.Duration(i) * time.Hour),
				Copy: deadletter.Target{Offset: -1},
			})
		}
		if _, err := ledger.Next(t.Context(), batch.TopicID, topic, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := ledger.Index(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	r.handler.operations.ledger = ledger
	r.handler.operations.replayer = &writingReplayer{fakeReplayer: r.replayer, ledger: ledger}
}

// writingReplayer writes each job down as it is asked for.
type writingReplayer struct {
	*fakeReplayer
	ledger deadletter.Ledger
}

func (w *writingReplayer) Submit(ctx context.Context, request replay.Request) (deadletter.Job, bool, error) {
	filter := request.Filter
	if request.Plan != nil {
		filter = deadletter.Filter{IDs: request.Plan.IDs}
	}
	return w.ledger.CreateJob(ctx, request.Spec, filter)
}

func (r *rig) letters(t *testing.T, query string) (places []string) {
	t.Helper()
	for cursor := ""; ; {
		path := "/letters?limit=3&" + query
		if cursor != "" {
			path += "&cursor=" + url.QueryEscape(cursor)
		}
		list := into[LetterList](t, r.call(t, http.MethodGet, path, carol, ""))
		for _, l := range list.Letters {
			places = append(places, fmt.Sprintf("%.1s%d", l.Topic, l.Offset))
		}
		if cursor = list.Next; cursor == "" {
			return places
		}
	}
}

func TestPagesAndFiltersOnARealLedger(t *testing.T) {
	onEachLedger(t, asIs, func(t *testing.T, r *rig) {
		for query, want := range map[string]string{
			"topic=orders.dlt":                        "o9 o8 o7 o6 o5 o4 o3 o2 o1 o0",
			"topic=orders.dlt&order=oldest":           "o0 o1 o2 o3 o4 o5 o6 o7 o8 o9",
			"topic=orders.dlt&order=replay":           "o8 o6 o4 o2 o0 o9 o7 o5 o3 o1",
			"reason=poison&offset=4":                  "p4 o4",
			"keyBase64=awE&origin=payments":           "p7 p4 p1",
			"messageId=orders.dlt/3":                  "o3",
			"messageId=' OR 1=1 --":                   "",
			"errorText=50%25 OF 7":                    "p7 o7",
			"errorText=%25":                           "p9 o9 p8 o8 p7 o7 p6 o6 p5 o5 p4 o4 p3 o3 p2 o2 p1 o1 p0 o0",
			"minAttempt=8&maxAttempt=8":               "p8 o8",
			"origin=orders&from=2026-03-04T12:06:07Z": "o9 o8 o7",
			"upTo=2&order=oldest":                     "o0 o1",
			"state=expired":                           "",
		} {
			got := strings.Join(r.letters(t, strings.ReplaceAll(query, " ", "%20")), " ")
			if got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
		first := into[LetterList](t, r.call(t, http.MethodGet, "/letters?limit=1", carol, ""))
		r.refused(t, http.MethodGet, "/letters?limit=1&state=dead&cursor="+url.QueryEscape(first.Next), carol, "", http.StatusBadRequest, codeBadCursor)
		r.refused(t, http.MethodGet, "/letters/9999", carol, "", http.StatusNotFound, codeUnknown)
		groups := into[GroupList](t, r.call(t, http.MethodGet, "/groups?by=reason&topic=orders.dlt", carol, "")).Groups
		if len(groups) != 2 || groups[0].Count != 5 {
			t.Errorf("groups %+v", groups)
		}
		if stats := into[StatList](t, r.call(t, http.MethodGet, "/stats", dave, "")).Stats; len(stats) != 1 || stats[0].Count != 10 {
			t.Errorf("stats %+v", stats)
		}
		if n := len(into[ProgressList](t, r.call(t, http.MethodGet, "/progress", carol, "")).Partitions); n != 2 {
			t.Errorf("%d partitions", n)
		}
	})
}

func TestTheLifeOfAJobOnARealLedger(t *testing.T) {
	onEachLedger(t, asIs, func(t *testing.T, r *rig) {
		job := into[Job](t, r.call(t, http.MethodPost, "/jobs", bob, `{"filter":{"origin":["orders"]},"reason":"repaired"}`))
		if job.Total != 10 || job.Left != 10 || job.State != JobStateQueued || job.Actor != "bob" {
			t.Fatalf("job %+v", job)
		}
		var seqs []int64
		for cursor := "1"; cursor != ""; {
			list := into[ItemList](t, r.call(t, http.MethodGet, "/jobs/"+job.ID+"/items?limit=4&cursor="+cursor, carol, ""))
			for _, i := range list.Items {
				seqs = append(seqs, i.Seq)
			}
			cursor = list.Next
		}
		if diff := cmp.Diff([]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, seqs); diff != "" {
			t.Error(diff)
		}
		for _, c := range []struct {
			action, body string
			want         JobState
		}{
			{"pause", "", JobStatePaused}, {"resume", `{"reason":"go"}`, JobStateQueued}, {"rate", `{"rate":3}`, JobStateQueued}, {"cancel", "", JobStateCancelled},
		} {
			if got := into[Job](t, r.call(t, http.MethodPost, "/jobs/"+job.ID+"/"+c.action, bob, c.body)); got.State != c.want {
				t.Errorf("%s: %s", c.action, got.State)
			}
		}
		r.refused(t, http.MethodPost, "/jobs/"+job.ID+"/pause", bob, "", http.StatusConflict, codeWrongState)
		r.refused(t, http.MethodGet, "/jobs/"+noJob, bob, "", http.StatusNotFound, codeUnknown)
		if got := into[JobList](t, r.call(t, http.MethodGet, "/jobs", carol, "")).Jobs; len(got) != 1 || got[0].Rate != 3 {
			t.Errorf("jobs %+v", got)
		}
		if got := into[History](t, r.call(t, http.MethodGet, "/history?messageId=orders.dlt/3", carol, "")); len(got.Entries) != 1 || len(got.Entries[0].Replays) != 1 {
			t.Errorf("history %+v", got)
		}
		change := func(path, filter string, want int64) {
			t.Helper()
			if got := into[ChangeResult](t, r.call(t, http.MethodPost, path, alice, `{"filter":{`+filter+`},"reason":"r","expect":2}`)); got.Count != want {
				t.Errorf("%s: %d, want %d", path, got.Count, want)
			}
		}
		change("/discards", `"messageId":["orders.dlt/3","payments.dlt/3"]`, 2)
		change("/undiscards", `"messageId":["orders.dlt/3","payments.dlt/3"]`, 2)
		change("/purges", `"state":["dead"],"messageId":["payments.dlt/3","payments.dlt/4"]`, 2)
		var actions []string
		for _, e := range into[AuditList](t, r.call(t, http.MethodGet, "/audit", carol, "")).Entries {
			actions = append(actions, e.Action)
		}
		slices.Reverse(actions)
		if diff := cmp.Diff([]string{"replay", "pause", "resume", "rate", "cancel", "discard", "undiscard", "purge"}, actions); diff != "" {
			t.Error(diff)
		}
	})
}

func TestARepeatedEditIsKnownAgainByARealLedger(t *testing.T) {
	onEachLedger(t, asIs, func(t *testing.T, r *rig) {
		send := func(edit string) *answer {
			req := request(t, http.MethodPost, "/jobs", alice, `{"filter":{"id":[1]},"reason":"r","edit":`+edit+`}`)
			req.Header.Set("Idempotency-Key", "k")
			return r.do(t, req)
		}
		const edit = `{"setHeaders":[{"name":"a","value":{"null":true}},{"name":"b","value":{"text":""}}],"value":{"null":true}}`
		first := into[Job](t, send(edit))
		if second := send(edit); second.StatusCode != http.StatusOK || into[Job](t, second).ID != first.ID {
			t.Errorf("the same again: %d %s", second.StatusCode, second.body)
		}
		for _, other := range []string{`{"value":{"null":true}}`, strings.Replace(edit, `{"text":""}`, `{"null":true}`, 1), strings.Replace(edit, `"value":{"null":true}}`, `"value":{"text":""}}`, 1)} {
			if other == edit {
				t.Fatal("the edit is not another one")
			}
			isProblem(t, send(other), http.StatusConflict, codeKeyReused)
		}
	})
}

// hostile are what is tried in every place that takes text.
func hostile() []string {
	return []string{
		"", "'", "' OR 1=1 --", `"; DROP TABLE letters; --`, "%", "_", "\\", "$1", "?", ":a", "\x00", "a\x00b", "\xff\xfe", "\r\nSet-Cookie: a=b", "../../etc/passwd",
		"-1", "0", "1", "9223372036854775807", "9223372036854775808", "1e308", "NaN", "0x10", strings.Repeat("9", 400), strings.Repeat("a", 20000),
		"2026-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "0000-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01", "{}", "[]", "null", "true",
		"dead", "poison", jobOfBob, strings.ToUpper(jobOfBob), "MQ==", "eyJ2IjoxfQ", "\u202e", "\u017ftate", "\U0010ffff",
	}
}

// query sends a GET, and wants no failure. What can be a request line is the business of net/http; what it hands on is ours.
func (r *rig) query(t *testing.T, path string, pairs ...string) {
	t.Helper()
	query := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		query.Add(pairs[i], pairs[i+1])
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", nil)
	req.URL.Path, req.URL.RawQuery = basePath+path, query.Encode()
	req.Header.Set("Authorization", "Bearer "+alice)
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, req)
	neverFails(t, rec, "GET "+req.URL.String())
}

// post sends a body, and wants no failure.
func (r *rig) post(t *testing.T, path, body string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/", strings.NewReader(body))
	req.URL.Path = basePath + path
	req.Header.Set("Authorization", "Bearer "+alice)
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, req)
	neverFails(t, rec, "POST "+path+" "+body)
}

func TestNoTextInAnyParameterMakesTheServerFail(t *testing.T) {
	onEachLedger(t, quiet, func(t *testing.T, r *rig) {
		for pattern, op := range r.handler.operations.document.operations {
			method, path, _ := strings.Cut(pattern, " ")
			if method != http.MethodGet {
				continue
			}
			for _, text := range hostile() {
				at := strings.NewReplacer(basePath, "", "{letter}", text, "{job}", text).Replace(path)
				r.query(t, at)
				for _, name := range op.query {
					r.query(t, strings.NewReplacer(basePath, "", "{letter}", "1", "{job}", jobOfBob).Replace(path), name, text)
				}
			}
		}
	})
}

func TestNoDamagedCursorMakesTheServerFail(t *testing.T) {
	onEachLedger(t, quiet, func(t *testing.T, r *rig) {
		for _, order := range []deadletter.Order{deadletter.Newest, deadletter.Oldest, deadletter.ReplayOrder} {
			found, err := r.handler.operations.ledger.Letters(t.Context(), deadletter.Filter{}, deadletter.Page{Order: order, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			for cut := range len(found.Next) {
				r.query(t, "/letters", "cursor", found.Next[:cut]+"A"+found.Next[cut+1:], "order", string(order))
				r.query(t, "/letters", "cursor", found.Next[:cut]+"_", "order", string(order))
			}
		}
	})
}

func TestNoTextInAnyFieldMakesTheServerFail(t *testing.T) {
	onEachLedger(t, quiet, func(t *testing.T, r *rig) {
		for _, text := range hostile() {
			for _, body := range bodiesWith(text) {
				for _, path := range []string{"/discards", "/undiscards", "/purges", "/plans", "/jobs", "/jobs/" + jobOfBob + "/rate", "/jobs/" + text + "/pause"} {
					r.post(t, path, body)
				}
			}
		}
	})
}

// bodiesWith are bodies that have a text in every place that takes one.
func bodiesWith(text string) []string {
	quoted := fmt.Sprintf("%q", text)
	bodies := []string{
		text, `{"rate":` + text + `}`, `{"filter":{"id":[` + text + `]},"reason":"r"}`, `{"filter":{"id":[1]},"dryRun":true,"reason":` + quoted + `}`,
		`{"filter":{"id":[1]},"reason":"r","destination":` + quoted + `,"edit":{"setHeaders":[{"name":` + quoted + `,"value":{"text":` + quoted + `}}]}}`,
		`{"filter":{"id":[1]},"reason":"r","edit":{"value":{"base64":` + quoted + `}}}`,
		`{"reason":"r","plan":{"version":1,"createdAt":"2026-03-04T05:06:07Z","upTo":5,"rate":7,"ids":[1],"destination":` + quoted + `}}`,
	}
	for _, field := range []string{"messageId", "topic", "origin", "group", "reason", "errorType", "fingerprint", "label", "state"} {
		bodies = append(bodies, `{"filter":{"`+field+`":[`+quoted+`]},"dryRun":true,"reason":"r"}`, `{"filter":{"`+field+`":[`+quoted+`]},"reason":"r"}`)
	}
	for _, field := range []string{"key", "keyBase64", "errorText", "job", "from", "to"} {
		bodies = append(bodies, `{"filter":{"`+field+`":`+quoted+`},"reason":"r"}`)
	}
	return bodies
}

// FuzzQuery looks for a query that makes the server fail, whatever is in a parameter and whatever its name. It asks a real
// ledger, so that text which reaches SQL as such would show.
func FuzzQuery(f *testing.F) {
	r := newRig(f, quiet)
	withLedger(f, r, openSQLite(f))
	for _, name := range []string{"messageId", "errorText", "from", "keyBase64", "offset", "cursor"} {
		f.Add("/letters", name, "' OR 1=1 --", "order", "replay")
	}
	f.Add("/jobs/"+jobOfBob+"/items", "cursor", "1", "state", "open")
	f.Add("/letters/1/payload", "as", "hex", "maxBytes", "9")
	f.Fuzz(func(t *testing.T, path, name, text, second, other string) {
		r.query(t, path, name, text, second, other)
	})
}

// FuzzBody looks for a body that makes the server fail.
func FuzzBody(f *testing.F) {
	r := newRig(f, quiet)
	withLedger(f, r, openSQLite(f))
	for _, c := range called() {
		if c.method == http.MethodPost {
			f.Add(c.path, c.body)
		}
	}
	f.Add("/jobs", bodiesWith("x")[4])
	f.Fuzz(func(t *testing.T, path, body string) { r.post(t, path, body) })
}

// neverFails wants an answer that blames the request, if anything, and headers that nothing was written into.
func neverFails(t *testing.T, rec *httptest.ResponseRecorder, what string) {
	t.Helper()
	if rec.Code >= 500 {
		t.Errorf("%s: %d %s", what, rec.Code, rec.Body)
	}
	if kind := rec.Header().Get("Content-Type"); rec.Code >= 400 && kind != "application/problem+json" {
		t.Errorf("%s: %d as %q", what, rec.Code, kind)
	}
	for name, values := range rec.Header() {
		if name == "Set-Cookie" || strings.ContainsAny(strings.Join(values, ""), "\r\n") {
			t.Errorf("%s: header %s: %q", what, name, values)
		}
	}
}
