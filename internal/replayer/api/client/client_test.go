package client_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlite"
	"github.com/kafka-redrive/redrive/internal/replayer/api"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replayer refuses all jobs, and has one payload.
type replayer struct{ value []byte }

func (r *replayer) Plan(_ context.Context, request replay.Request) (replay.Plan, error) {
	return replay.Plan{Version: 1, CreatedAt: time.Now(), IDs: request.Filter.IDs, UpTo: 1}, nil
}

func (r *replayer) Submit(context.Context, replay.Request) (deadletter.Job, bool, error) {
	return deadletter.Job{}, false, &replay.Refusal{Code: replay.CodeReplayed, Letter: 1, Detail: "job x has replayed it"}
}

func (r *replayer) Payload(context.Context, deadletter.Letter) (deadletter.Payload, error) {
	return deadletter.Payload{Value: r.value}, nil
}

func (r *replayer) Read(_ context.Context, letters []deadletter.Letter) ([]replay.Read, error) {
	read := make([]replay.Read, len(letters))
	for i := range read {
		read[i].Payload.Value = r.value
	}
	return read, nil
}

// radar knows of nothing that expires.
type radar struct{ api.Radar }

func (radar) Within() time.Duration { return time.Hour }
func (radar) Topics() []string      { return nil }

const secret = "rdr_secret"

var deadAt = time.Date(2026, 3, 4, 5, 6, 7, 8_000_000, time.UTC)

// start serves the API on a ledger with three letters, and returns a client of it.
func start(t *testing.T) (*client.ClientWithResponses, *replayer) {
	t.Helper()
	ledger, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	batch := deadletter.Batch{TopicID: deadletter.TopicID{1}, Topic: "orders.dlt", Next: 3}
	for i := range int64(3) {
		batch.Letters = append(batch.Letters, deadletter.Letter{
			Place:     deadletter.Place{TopicID: batch.TopicID, Topic: batch.Topic, Offset: i},
			MessageID: []string{"orders/1/2", "a&b=c,d+e f%", "\u00e4;\u00f6"}[i], Key: [][]byte{nil, {}, {0xff, '+', '/'}}[i], Origin: "orders",
			Reason: "poison", ErrorType: "T", ErrorText: "e", Fingerprint: "f", DeadAt: deadAt.Add(time.Duration(i) * time.Hour),
			Copy: deadletter.Target{Offset: -1},
		})
	}
	if _, err := ledger.Next(t.Context(), batch.TopicID, batch.Topic, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Index(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	r := &replayer{value: []byte{0, 0xff}}
	server, err := api.New(t.Context(), api.Options{
		Address: "127.0.0.1:0", Ledger: ledger, Replayer: r, Radar: radar{}, Logger: testkit.Logger(t),
		Tokens: []api.Token{{Name: "ada", Role: api.RoleOperator, SHA256: sha256.Sum256([]byte(secret))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := errors.Join(server.Stop(), <-served, ledger.Close()); err != nil {
			t.Error(err)
		}
	})
	return newClient(t, "http://"+server.Address(), secret, transport), r
}

func newClient(t *testing.T, url, token string, transport http.RoundTripper) *client.ClientWithResponses {
	t.Helper()
	c, err := client.New(client.Options{URL: url, Token: token, UserAgent: "test/1", HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFiltersArriveAsTheyWereMeant(t *testing.T) {
	c, _ := start(t)
	for name, p := range map[string]struct {
		params client.ListLettersParams
		want   int
	}{
		"nothing":              {client.ListLettersParams{}, 3},
		"several ids":          {client.ListLettersParams{ID: []int64{1, 3}}, 2},
		"text with separators": {client.ListLettersParams{MessageID: []string{"a&b=c,d+e f%", "\u00e4;\u00f6"}}, 2},
		"bytes":                {client.ListLettersParams{KeyBase64: new("/ysv")}, 1},
		"an empty key":         {client.ListLettersParams{Key: new("")}, 1},
		"no key":               {client.ListLettersParams{NoKey: new(true)}, 1},
		"times":                {client.ListLettersParams{From: new(deadAt.Add(time.Hour)), To: new(deadAt.Add(2 * time.Hour))}, 1},
		"a zero":               {client.ListLettersParams{Offset: new(int64(0))}, 1},
		"states":               {client.ListLettersParams{State: []client.State{client.StateDead, client.StateExpired}}, 3},
	} {
		got, err := c.ListLettersWithResponse(t.Context(), &p.params)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n := len(got.JSON200.Letters); n != p.want {
			t.Errorf("%s: %d letters, want %d", name, n, p.want)
		}
	}
}

func TestAProblemIsAnErrorThatSaysWhatIsWrong(t *testing.T) {
	c, _ := start(t)
	problem := func(err error) *client.Error {
		t.Helper()
		var failure *client.Error
		if !errors.As(err, &failure) {
			t.Fatalf("error %v of type %T", err, err)
		}
		return failure
	}
	_, err := c.ListLettersWithResponse(t.Context(), &client.ListLettersParams{State: []client.State{"deda"}})
	if p := problem(err); p.Problem.Code != "bad_parameter" || !strings.Contains(err.Error(), `did you mean "dead"?`) {
		t.Errorf("%v", err)
	}
	_, err = c.GetLetterWithResponse(t.Context(), 99)
	if p := problem(err); p.Problem.Code != "unknown" || p.Problem.Status != http.StatusNotFound {
		t.Errorf("%+v", p)
	}
	_, err = c.PurgeLettersWithResponse(t.Context(), client.ChangeRequest{Filter: client.Filter{State: []client.State{client.StateDead}}, Reason: "r"})
	if p := problem(err); p.Problem.Code != "forbidden" {
		t.Errorf("%+v", p)
	}
	_, err = c.CreateJobWithResponse(t.Context(), &client.CreateJobParams{IdempotencyKey: new("k")}, client.ReplayRequest{
		Filter: &client.Filter{ID: []int64{1}}, Reason: new("r"),
	})
	if p := problem(err); p.Problem.Code != "already_replayed" || *p.Problem.Letter != 1 || p.Problem.Status != http.StatusConflict {
		t.Errorf("%+v", p)
	}
	// A selection that is empty by accident is not everything.
	_, err = c.DiscardLettersWithResponse(t.Context(), client.ChangeRequest{Filter: client.Filter{ID: []int64{}}, Reason: "r"})
	if p := problem(err); p.Problem.Code != "filter_empty" {
		t.Errorf("%+v", p)
	}
}

func TestAPlanGoesBackAsItCame(t *testing.T) {
	c, _ := start(t)
	plan, err := c.CreatePlanWithResponse(t.Context(), client.ReplayRequest{Filter: &client.Filter{ID: []int64{1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CreateJobWithResponse(t.Context(), nil, client.ReplayRequest{Plan: plan.JSON200, Reason: new("r")})
	var failure *client.Error
	if !errors.As(err, &failure) || failure.Problem.Code != "already_replayed" {
		t.Errorf("the replayer was not reached: %v", err)
	}
}

func TestStreamsAreRead(t *testing.T) {
	c, r := start(t)
	export, err := c.ExportLetters(t.Context(), &client.ExportLettersParams{Payload: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = export.Body.Close() }()
	lines := 0
	for s := bufio.NewScanner(export.Body); s.Scan(); lines++ {
		var letter client.Letter
		if err := json.Unmarshal(s.Bytes(), &letter); err != nil || letter.Payload.Value.Base64 != "AP8=" {
			t.Errorf("%v: %s", err, s.Bytes())
		}
	}
	if lines != 3 {
		t.Errorf("%d lines", lines)
	}
	get := func() (int, string) {
		answer, err := c.GetValue(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	if code, body := get(); code != http.StatusOK || body != "\x00\xff" {
		t.Errorf("%d %q", code, body)
	}
	r.value = nil
	if code, body := get(); code != http.StatusNoContent || body != "" {
		t.Errorf("%d %q", code, body)
	}
}

func TestWhatIsNoReplayerIsToldApart(t *testing.T) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for name, serve := range map[string]http.HandlerFunc{
		"a page of HTML": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>sign in") },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
		},
		"a proxy": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad gateway", http.StatusBadGateway) },
		"a problem that is none": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusTeapot)
		},
	} {
		server := httptest.NewServer(serve)
		_, err := newClient(t, server.URL, "t", transport).GetStatsWithResponse(t.Context())
		var failure *client.Error
		if !errors.As(err, &failure) || failure.Problem.Code != "" || !strings.Contains(err.Error(), server.URL) {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
	server := httptest.NewServer(nil)
	server.Close()
	_, err := newClient(t, server.URL, "hidden", transport).ListLettersWithResponse(t.Context(), &client.ListLettersParams{Key: new("private")})
	if err == nil || !strings.Contains(err.Error(), server.URL) || strings.Contains(err.Error(), "private") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("a server that is not there: %v", err)
	}
}

func TestRetryAfterAndTheTokenAreCarried(t *testing.T) {
	var got http.Header
	var path string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, path = r.Header, r.URL.Path
		w.Header().Set("Retry-After", "5")
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"ledger_unavailable","title":"t","status":503,"detail":"down","type":"x"}`)
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	_, err := newClient(t, server.URL+"/behind/a/proxy/", "rdr_t", transport).GetStatsWithResponse(t.Context())
	var failure *client.Error
	if !errors.As(err, &failure) || failure.RetryAfter != 5*time.Second || err.Error() != "down" {
		t.Errorf("%v", err)
	}
	if got.Get("Authorization") != "Bearer rdr_t" || got.Get("User-Agent") != "test/1" || path != "/behind/a/proxy/api/v1/stats" {
		t.Errorf("headers %v, path %s", got, path)
	}
}

func TestAURLOrTokenThatCanNotBeIsRefused(t *testing.T) {
	for _, o := range []client.Options{
		{URL: ""},
		{URL: "127.0.0.1:9402"},
		{URL: "ftp://host"},
		{URL: "http://"},
		{URL: "http://user:hidden@host"},
		{URL: "http://host?x=y"},
		{URL: "http://host", Token: "a\nb"},
		{URL: "http://host", Token: "\u00e4"},
		{URL: "http://us\ner:hidden@host"},
	} {
		if _, err := client.New(o); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v", o.URL, err)
		}
	}
}
