package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
)

const aPlan = `"plan":{"version":1,"createdAt":"2026-03-04T05:06:07Z","upTo":5,"rate":7,"ids":[2,1]}`

func TestAJobIsAskedForAsTheBodySays(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		body string
		want replay.Request
	}{
		{
			`{"filter":{"id":[1,2]},"reason":"repaired","rate":0.5,"destination":"orders.other","expect":2,"outOfOrder":true}`,
			replay.Request{
				Filter:     deadletter.Filter{IDs: []int64{1, 2}},
				Spec:       deadletter.JobSpec{Actor: "alice", Source: "api", Reason: "repaired", Rate: 0.5, Destination: "orders.other"},
				OutOfOrder: true, Expect: 2,
			},
		},
		{
			`{"filter":{"noKey":true},"reason":"r","force":true,"edit":{"setHeaders":[{"name":"a","value":{"text":"x"}},{"name":"b","value":{"base64":"/w=="}},{"name":"c","value":{"null":true}},{"name":"d","value":{"base64":""}}],"value":{"text":"v"}}}`,
			replay.Request{
				Filter: deadletter.Filter{HasKey: true},
				Spec: deadletter.JobSpec{Actor: "alice", Source: "api", Reason: "r", Force: true, Edit: &deadletter.Edit{
					SetHeaders: []deadletter.Header{{Key: "a", Value: []byte("x")}, {Key: "b", Value: []byte{0xff}}, {Key: "c"}, {Key: "d", Value: []byte{}}},
					Value:      []byte("v"), HasValue: true,
				}},
			},
		},
		{
			`{"filter":{"id":[1]},"reason":"r","edit":{"value":{"null":true}}}`,
			replay.Request{
				Filter: deadletter.Filter{IDs: []int64{1}},
				Spec:   deadletter.JobSpec{Actor: "alice", Source: "api", Reason: "r", Edit: &deadletter.Edit{HasValue: true}},
			},
		},
		{
			`{"reason":"r",` + aPlan + `}`,
			replay.Request{
				Spec: deadletter.JobSpec{Actor: "alice", Source: "api", Reason: "r"},
				Plan: &replay.Plan{Version: 1, UpTo: 5, Rate: 7, IDs: []int64{2, 1}},
			},
		},
	} {
		r.fresh()
		a := r.call(t, http.MethodPost, "/jobs", alice, c.body)
		if a.StatusCode != http.StatusCreated || a.Header.Get("Location") != basePath+"/jobs/"+noJob {
			t.Fatalf("%s: %d at %q: %s", c.body, a.StatusCode, a.Header.Get("Location"), a.body)
		}
		got := r.replayer.request
		if got.Plan != nil {
			got.Plan.CreatedAt = c.want.Plan.CreatedAt
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(replay.Plan{})); diff != "" {
			t.Errorf("%s: want (-) got (+):\n%s", c.body, diff)
		}
	}
}

func TestABodyThatCanNotBeMeantIsRefused(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		path, body, code, parameter, nearest string
	}{
		{"/jobs", `{"filter":{"origni":["a"]},"reason":"r"}`, codeUnknownField, "origni", "origin"},
		{"/jobs", `{"fliter":{},"reason":"r"}`, codeUnknownField, "fliter", "filter"},
		{"/jobs", `{"filter":{"id":[1]}}`, codeReasonMissing, "reason", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"  "}`, codeReasonMissing, "reason", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"a\u0000b"}`, codeBadParameter, "reason", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"` + strings.Repeat("x", 1025) + `"}`, codeBadParameter, "reason", ""},
		{"/jobs", `{"reason":"r"}`, codeBadBody, "", ""},
		{"/jobs", `{"reason":"r","filter":{"id":[1]},` + aPlan + `}`, codeBadBody, "", ""},
		{"/jobs", `{"filter":{},"reason":"r"}`, codeFilterEmpty, "filter", ""},
		{"/jobs", `{"filter":{"state":["dead"],"upTo":5},"reason":"r"}`, codeFilterEmpty, "filter", ""},
		{"/jobs", `{"filter":{"id":[]},"reason":"r"}`, codeBadParameter, "id", ""},
		{"/jobs", `{"filter":{"messageId":[]},"reason":"r","all":true}`, codeBadParameter, "messageId", ""},
		{"/jobs", `{"filter":{"id":["1"]},"reason":"r"}`, codeBadBody, "filter.id", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","rate":0}`, codeBadParameter, "rate", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","rate":-1}`, codeBadParameter, "rate", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","rate":1e300}`, codeBadParameter, "rate", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","rate":1e999}`, codeBadBody, "rate", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","expect":0}`, codeBadParameter, "expect", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","destination":"../x"}`, codeBadParameter, "destination", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","edit":{}}`, codeBadParameter, "edit", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","edit":{"value":{}}}`, codeBadParameter, "edit.value", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","edit":{"value":{"text":"a","null":true}}}`, codeBadParameter, "edit.value", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","edit":{"value":{"base64":"%"}}}`, codeBadParameter, "edit.value.base64", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","edit":{"setHeaders":[{"name":"Redrive-Message-Id","value":{"text":"x"}}]}}`, codeBadParameter, "edit.setHeaders[0].name", ""},
		{"/jobs", `{"filter":{"id":[1]},"reason":"r","edit":{"setHeaders":[{"name":"","value":{"text":"x"}}]}}`, codeBadParameter, "edit.setHeaders[0].name", ""},
		{"/jobs", strings.Replace(`{"reason":"r",`+aPlan+`}`, "[2,1]", "[1,1]", 1), codeBadParameter, "plan.ids", ""},
		{"/jobs", strings.Replace(`{"reason":"r",`+aPlan+`}`, "[2,1]", "[0]", 1), codeBadParameter, "plan.ids", ""},
		{"/jobs", `{"reason":"r","destination":"else",` + aPlan + `}`, codeBadParameter, "plan", ""},
		{"/jobs", `{"reason":"r","force":true,` + aPlan + `}`, codeBadParameter, "plan", ""},
		{"/plans", `{` + aPlan + `}`, codeBadBody, "plan", ""},
		{"/plans", `null`, codeBadBody, "", ""},
		{"/plans", `[]`, codeBadBody, "", ""},
		{"/plans", `{`, codeBadBody, "", ""},
		{"/plans", `{}{}`, codeBadBody, "", ""},
		{"/plans", "{\"reason\":\"\xff\"}", codeBadBody, "", ""},
		{"/discards", `{"filter":{"id":[1]},"reason":""}`, codeReasonMissing, "reason", ""},
		{"/discards", `{"reason":"r"}`, codeFilterEmpty, "filter", ""},
		{"/purges", `{"filter":{"id":[1]},"reason":"r"}`, codeBadParameter, "filter.state", ""},
		{"/jobs/" + jobOfBob + "/rate", `{}`, codeBadParameter, "rate", ""},
		{"/jobs/" + jobOfBob + "/pause", `{"reason":"a\u0000"}`, codeBadParameter, "reason", ""},
	} {
		r.fresh()
		p := r.refused(t, http.MethodPost, c.path, alice, c.body, http.StatusBadRequest, c.code)
		if value(p.Parameter) != c.parameter || value(p.Nearest) != c.nearest {
			t.Errorf("%s %s: parameter %q, nearest %q; want %q, %q", c.path, c.body, value(p.Parameter), value(p.Nearest), c.parameter, c.nearest)
		}
		if len(r.replayer.jobs) > 0 || len(r.ledger.audit) != 2 || r.replayer.request.Spec.Actor != "" {
			t.Errorf("%s %s: it had an effect", c.path, c.body)
		}
	}
}

func TestABodyOfAnotherTypeOrTooLargeIsRefused(t *testing.T) {
	r := newRig(t)
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=\"", "multipart/form-data"} {
		req := request(t, http.MethodPost, "/discards", alice, `{"filter":{"id":[1]},"reason":"r"}`)
		req.Header.Set("Content-Type", kind)
		isProblem(t, r.do(t, req), http.StatusUnsupportedMediaType, codeBadContentType)
	}
	req := request(t, http.MethodPost, "/discards", alice, `{"filter":{"id":[1]},"reason":"r"}`)
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	if a := r.do(t, req); a.StatusCode != http.StatusOK {
		t.Errorf("with a charset: %d %s", a.StatusCode, a.body)
	}
	body := `{"reason":"` + strings.Repeat("x", 4096) + `"}`
	p := r.refused(t, http.MethodPost, "/discards", alice, body, http.StatusRequestEntityTooLarge, codeBodyTooLarge)
	if !strings.Contains(p.Detail, "4096") || !strings.Contains(p.Detail, "replayer.api.maxBody") {
		t.Errorf("it does not tell the limit: %s", p.Detail)
	}
	// Without a token nothing of it is read.
	r.refused(t, http.MethodPost, "/discards", "", body, http.StatusUnauthorized, codeUnauthenticated)
}

func TestARepeatedRequestGetsTheJobOfTheFirst(t *testing.T) {
	r := newRig(t)
	send := func(secret, key, body string) *answer {
		req := request(t, http.MethodPost, "/jobs", secret, body)
		req.Header.Set("Idempotency-Key", key)
		return r.do(t, req)
	}
	const body = `{"filter":{"id":[1]},"reason":"r"}`
	for _, want := range []int{http.StatusCreated, http.StatusOK, http.StatusOK} {
		if a := send(bob, "k 1", body); a.StatusCode != want {
			t.Errorf("status %d, want %d", a.StatusCode, want)
		}
	}
	if a := send(alice, "k 1", body); a.StatusCode != http.StatusCreated {
		t.Errorf("the key of another caller: %d", a.StatusCode)
	}
	if diff := cmp.Diff([]string{"api:alice:k 1", "api:bob:k 1"}, keysOf(r.replayer.jobs)); diff != "" {
		t.Error(diff)
	}
	isProblem(t, send(bob, "k 1", `{"filter":{"id":[1]},"reason":"another"}`), http.StatusConflict, codeKeyReused)
	for _, key := range []string{"", "a\tb", "\u00e4", strings.Repeat("x", 256)} {
		if p := isProblem(t, send(bob, key, body), http.StatusBadRequest, codeBadParameter); value(p.Parameter) != "Idempotency-Key" {
			t.Errorf("key %q: %+v", key, p)
		}
	}
}

func TestARefusalTellsWhyAndWhatWasDoneBefore(t *testing.T) {
	for code, want := range map[replay.Code]int{
		"already_replayed": 409, "claimed": 409, "expired": 409, "discarded": 409, "out_of_order": 409, "destination": 409,
		"pointer": 409, "count_changed": 409, "nothing_selected": 404, "unknown": 404, "invalid": 400,
	} {
		r := newRig(t)
		r.replayer.err = fmt.Errorf("submit: %w", &replay.Refusal{
			Code: code, Letter: 3, Detail: "job x has replayed it", History: []deadletter.Item{r.ledger.item(), {Letter: r.ledger.letters[3]}},
		})
		p := r.refused(t, http.MethodPost, "/jobs", dave, `{"filter":{"id":[3]},"reason":"r"}`, want, string(code))
		if value(p.Letter) != 3 || p.Detail != "job x has replayed it" || len(p.History) != 1 || p.History[0].Job != jobOfAlice {
			t.Errorf("%s: %+v", code, p)
		}
	}
}

func TestAChangeOfAnotherCountThanExpectedIsRefused(t *testing.T) {
	r := newRig(t)
	const many = `{"filter":{"topic":["orders.dlt","payments.dlt"]},"reason":"r"`
	p := r.refused(t, http.MethodPost, "/discards", bob, many+`}`, http.StatusConflict, codeCountNeeded)
	if value(p.Count) != 3 {
		t.Errorf("count %v", p.Count)
	}
	p = r.refused(t, http.MethodPost, "/discards", bob, many+`,"expect":4}`, http.StatusConflict, codeCountChanged)
	if value(p.Count) != 3 || len(r.ledger.audit) != 2 {
		t.Errorf("count %v, audit %v", p.Count, r.ledger.audit)
	}
	if got := into[ChangeResult](t, r.call(t, http.MethodPost, "/discards", bob, many+`,"dryRun":true}`)); got != (ChangeResult{Count: 3, DryRun: true}) || len(r.ledger.audit) != 2 {
		t.Errorf("dry run %+v, audit %v", got, r.ledger.audit)
	}
	if got := into[ChangeResult](t, r.call(t, http.MethodPost, "/discards", bob, many+`,"expect":3}`)); got != (ChangeResult{Count: 3}) {
		t.Errorf("result %+v", got)
	}
	last := r.ledger.audit[2]
	if last.Actor != "bob" || last.Reason != "r" || last.Count != 3 {
		t.Errorf("audit %+v", last)
	}
}

func TestAChangeTakesOnlyTheStatesItMay(t *testing.T) {
	for _, c := range []struct {
		path, states string
		want         []deadletter.State
		count        int64
	}{
		{"/discards", "", []deadletter.State{"dead"}, 3},
		{"/discards", `"state":["dead","replayed"],`, []deadletter.State{"dead"}, 3},
		{"/discards", `"state":["replayed"],`, nil, 0},
		{"/undiscards", "", []deadletter.State{"discarded"}, 1},
		{"/purges", `"state":["replayed","claimed"],`, []deadletter.State{"replayed"}, 1},
		{"/purges", `"state":["claimed"],`, nil, 0},
	} {
		r := newRig(t)
		got := into[ChangeResult](t, r.call(t, http.MethodPost, c.path, alice, `{"filter":{`+c.states+`"topic":["orders.dlt","payments.dlt"]},"reason":"r","expect":`+fmt.Sprint(max(c.count, 1))+`,"dryRun":`+fmt.Sprint(c.count == 0)+`}`))
		if diff := cmp.Diff(c.want, r.ledger.filter.States); diff != "" || got.Count != c.count {
			t.Errorf("%s %s: count %d, states %s", c.path, c.states, got.Count, diff)
		}
	}
}

func TestAJobIsControlledInTheNameOfTheCaller(t *testing.T) {
	r := newRig(t)
	for path, want := range map[string]deadletter.Change{
		"/pause":  {Action: "pause", Actor: "bob", Reason: "why"},
		"/resume": {Action: "resume", Actor: "bob", Reason: "why"},
		"/cancel": {Action: "cancel", Actor: "bob", Reason: "why"},
	} {
		r.call(t, http.MethodPost, "/jobs/"+jobOfBob+path, bob, `{"reason":"why"}`)
		if diff := cmp.Diff(want, r.ledger.change); diff != "" {
			t.Error(diff)
		}
	}
	r.call(t, http.MethodPost, "/jobs/"+strings.ToUpper(jobOfBob)+"/rate", bob, `{"rate":2.5}`)
	if diff := cmp.Diff(deadletter.Change{Action: "rate", Actor: "bob", Rate: 2.5}, r.ledger.change); diff != "" {
		t.Error(diff)
	}
	r.refused(t, http.MethodPost, "/jobs/"+jobOfAlice+"/pause", bob, "", http.StatusConflict, codeWrongState)
	r.refused(t, http.MethodPost, "/jobs/"+noJob+"/pause", bob, "", http.StatusNotFound, codeUnknown)
}

func TestAJobTellsItsPaceAndWhatIsLeft(t *testing.T) {
	j := newFakeLedger().jobs[0]
	j.Total, j.Done, j.Failed, j.Skipped = 100, 15, 3, 2
	got := jobOf(&j, j.StartedAt.Add(10e9))
	if got.PerSecond != 2 || got.Left != 80 || value(got.EtaSeconds) != 40 {
		t.Errorf("pace %v, left %d, eta %v", got.PerSecond, got.Left, got.EtaSeconds)
	}
	if got := jobOf(&j, j.StartedAt.Add(-1)); got.PerSecond != 0 || got.EtaSeconds != nil {
		t.Errorf("a clock that is behind: %v, %v", got.PerSecond, got.EtaSeconds)
	}
	j.State, j.EndedAt = deadletter.JobDone, j.StartedAt.Add(5e9)
	if got := jobOf(&j, j.StartedAt.Add(10e9)); got.PerSecond != 4 || got.EtaSeconds != nil {
		t.Errorf("ended: %v, %v", got.PerSecond, got.EtaSeconds)
	}
}

// sqlError is an error of Postgres as pgx has it.
type sqlError string

func (e sqlError) Error() string    { return "SQLSTATE " + string(e) }
func (e sqlError) SQLState() string { return string(e) }

func TestALedgerThatIsDownIsSaidAndRetried(t *testing.T) {
	refusedConn := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		err, ping error
		status    int
		code      string
	}{
		"it does not answer at all":       {errors.New("anything"), errors.New("down"), 503, codeLedgerUnavailable},
		"it answers again by now":         {fmt.Errorf("list letters: %w", refusedConn), nil, 503, codeLedgerUnavailable},
		"it took too long":                {context.DeadlineExceeded, nil, 503, codeLedgerUnavailable},
		"it is going down":                {sqlError("57P01"), nil, 503, codeLedgerUnavailable},
		"it is of a newer version":        {fmt.Errorf("open: %w", deadletter.ErrNewer), nil, 503, codeLedgerUnavailable},
		"it does not understand":          {sqlError("42601"), nil, 500, codeInternal},
		"what is asked for is not there":  {fmt.Errorf("letter 1: %w", deadletter.ErrUnknown), errors.New("down"), 404, codeUnknown},
		"the cursor is of another filter": {deadletter.ErrCursor, nil, 400, codeBadCursor},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.ledger.err, r.ledger.pingErr = c.err, c.ping
			for _, path := range []string{"/letters", "/count", "/groups", "/letters/1", "/history?messageId=m1", "/stats", "/progress", "/audit", "/jobs", "/export"} {
				a := r.call(t, http.MethodGet, path, alice, "")
				isProblem(t, a, c.status, c.code)
				if got := a.Header.Get("Retry-After"); (got != "") != (c.status == 503) {
					t.Errorf("%s: Retry-After %q", path, got)
				}
				if strings.Contains(string(a.body), "SQLSTATE") {
					t.Errorf("%s tells the inside: %s", path, a.body)
				}
			}
			a := r.call(t, http.MethodPost, "/discards", alice, `{"filter":{"id":[1]},"reason":"r"}`)
			isProblem(t, a, c.status, c.code)
		})
	}
}

func TestKafkaThatIsDownIsToldFromALedgerThatIs(t *testing.T) {
	for _, c := range []struct {
		err, ping error
		status    int
		code      string
	}{
		{fmt.Errorf("fetch: %w", context.DeadlineExceeded), nil, 503, codeKafkaUnavailable},
		{fmt.Errorf("fetch: %w", kerr.LeaderNotAvailable), nil, 503, codeKafkaUnavailable},
		{context.DeadlineExceeded, errors.New("down"), 503, codeLedgerUnavailable},
		{fmt.Errorf("fetch: %w", fetch.ErrGone), nil, 410, codeBytesGone},
		{replay.ErrChanged, nil, 410, codeBytesChanged},
		{errors.New("a fault of ours"), nil, 500, codeInternal},
	} {
		r := newRig(t)
		r.replayer.err, r.ledger.pingErr = c.err, c.ping
		r.refused(t, http.MethodGet, "/letters/1/payload", bob, "", c.status, c.code)
		r.refused(t, http.MethodGet, "/letters/1/value", bob, "", c.status, c.code)
		r.refused(t, http.MethodPost, "/plans", bob, `{"filter":{"id":[1]}}`, c.status, c.code)
		r.refused(t, http.MethodPost, "/jobs", bob, `{"filter":{"id":[1]},"reason":"r"}`, c.status, c.code)
	}
}

func TestAnExportHasEachLetterOnceAndItsBytesIfAskedFor(t *testing.T) {
	r := newRig(t)
	lines := func(path, secret string) []Letter {
		var out []Letter
		for line := range strings.Lines(string(r.call(t, http.MethodGet, path, secret, "").body)) {
			out = append(out, into[Letter](t, &answer{body: []byte(line)}))
		}
		return out
	}
	for i := len(r.ledger.letters); i < exportPage+7; i++ {
		l := r.ledger.letters[0]
		l.ID = int64(i + 1)
		r.ledger.letters = append(r.ledger.letters, l)
	}
	all := lines("/export", carol)
	if len(all) != exportPage+7 {
		t.Fatalf("%d lines", len(all))
	}
	for i, l := range all {
		if l.ID != int64(i+1) || l.Payload != nil {
			t.Fatalf("line %d is letter %d with payload %v", i, l.ID, l.Payload)
		}
	}
	with := lines("/export?payload=true&id=2", bob)
	if len(with) != 1 || with[0].Payload == nil || with[0].Payload.Value.Base64 != "eyJhIjpbMSwyXX0=" || len(with[0].Payload.Headers) != 4 {
		t.Errorf("with payload: %+v", with)
	}
	r.replayer.err = &fetch.GoneError{}
	if gone := lines("/export?payload=true&id=2", bob); gone[0].Payload != nil || value(gone[0].PayloadError) == "" {
		t.Errorf("of gone bytes: %+v", gone)
	}
	r.replayer.err = kerr.LeaderNotAvailable
	r.refused(t, http.MethodGet, "/export?payload=true", bob, "", 503, codeKafkaUnavailable)
}

// tornLedger fails from the second page on.
type tornLedger struct{ *fakeLedger }

func (l tornLedger) Letters(ctx context.Context, filter deadletter.Filter, page deadletter.Page) (deadletter.Letters, error) {
	if page.After != "" {
		return deadletter.Letters{}, errors.New("gone")
	}
	found, err := l.fakeLedger.Letters(ctx, filter, page)
	found.Next = "more"
	return found, err
}

func TestAnExportThatBreaksOffDoesNotLookWhole(t *testing.T) {
	r := newRig(t)
	r.handler.operations.ledger = tornLedger{r.ledger}
	server := httptest.NewServer(r.handler)
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+basePath+"/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+carol)
	a, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	n, err := readAll(a)
	if n == 0 || err == nil {
		t.Errorf("%d bytes, and the error is %v", n, err)
	}
	server.Client().CloseIdleConnections()
}

func TestRequestsAreCountedByRouteAndNotByAddress(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/letters/1", "/letters/2", "/letters/99", "/nowhere", "/letters/1/../2"} {
		r.call(t, http.MethodGet, path, carol, "")
	}
	const want = `
# HELP redrive_http_requests_total Requests answered, by route and status.
# TYPE redrive_http_requests_total counter
redrive_http_requests_total{code="200",route="GET /api/v1/letters/{letter}"} 2
redrive_http_requests_total{code="404",route="GET /api/v1/letters/{letter}"} 1
redrive_http_requests_total{code="404",route="other"} 2
`
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), "redrive_http_requests_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(r.handler.metrics.seconds); n != 2 {
		t.Errorf("%d series of durations", n)
	}
}

func TestAServerServesUntilItIsStopped(t *testing.T) {
	secret, sum := NewToken()
	s, err := New(t.Context(), Options{
		Address: "127.0.0.1:0", Ledger: newFakeLedger(), Replayer: newFakeReplayer(), Radar: &fakeRadar{}, Logger: newRig(t).handler.operations.log,
		Tokens: []Token{{Name: "x", Role: RoleViewer, SHA256: sum}},
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Address()+basePath+"/whoami", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	transport := &http.Transport{}
	a, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(a); err != nil || a.StatusCode != http.StatusOK {
		t.Errorf("status %d, %v", a.StatusCode, err)
	}
	_ = a.Body.Close()
	transport.CloseIdleConnections()
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if sum == sha256.Sum256(nil) {
		t.Error("the token is empty")
	}
}

func TestWhatIsMissingInOptionsIsNamed(t *testing.T) {
	full := Options{Address: "127.0.0.1:0", Ledger: newFakeLedger(), Replayer: newFakeReplayer(), Radar: &fakeRadar{}, Logger: newRig(t).handler.operations.log}
	for want, change := range map[string]func(*Options){
		"ledger":   func(o *Options) { o.Ledger = nil },
		"replayer": func(o *Options) { o.Replayer = nil },
		"radar":    func(o *Options) { o.Radar = nil },
		"logger":   func(o *Options) { o.Logger = nil },
		"limit":    func(o *Options) { o.MaxBody = -1 },
		"token":    func(o *Options) { o.Tokens = []Token{{}} },
		"address":  func(o *Options) { o.Address = "127.0.0.1:70000" },
	} {
		o := full
		change(&o)
		if s, err := New(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v", want, err)
			if s != nil {
				_ = s.Stop()
			}
		}
	}
}
