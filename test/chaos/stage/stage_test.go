package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// TestTheDigestIsThatOfTheLedger compares two descriptions of one layout.
func TestTheDigestIsThatOfTheLedger(t *testing.T) {
	for _, r := range []*kgo.Record{
		{},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("b")}, {Key: "", Value: nil}, {Key: "a", Value: []byte{}}}},
		{Value: []byte(strings.Repeat("x", 10_000))},
	} {
		if got, want := Digest(r), deadletter.Digest(r.Key, r.Value, r.Headers); got != want {
			t.Errorf("%+v: %x, the ledger has %x", r, got, want)
		}
	}
}

func TestAProcessThatKillsItselfIsToldFromOneThatFails(t *testing.T) {
	dir := t.TempDir()
	process := func(script string) *Process {
		p := &Process{Name: "a shell", Program: "/bin/sh", Args: []string{"-c", script}, Dir: dir, LogFile: filepath.Join(dir, "log")}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.End)
		return p
	}
	if died, err := process("kill -9 $$").AwaitSuicide(time.Minute, nil); !died || err != nil {
		t.Errorf("a process that killed itself: %v, %v", died, err)
	}
	if died, err := process("echo the reason; exit 3").AwaitSuicide(time.Minute, nil); died || err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("a process that failed: %v, %v", died, err)
	}
	p := process("sleep 600")
	if died, err := p.AwaitSuicide(10*time.Millisecond, nil); died || err != nil {
		t.Errorf("a process that lives: %v, %v", died, err)
	}
	if err := errors.Join(p.Alive(), p.Kill()); err != nil {
		t.Error(err)
	}
	if err := p.Alive(); err == nil {
		t.Error("a process that was killed is alive")
	}
}

// TestTheAPIAsksTheNextReplica has one that is gone, one that is ill and one that is well.
func TestTheAPIAsksTheNextReplica(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	problem := func(status int, code string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"status": %d, "code": %q, "detail": "so it is"}`, status, code)
		}))
		t.Cleanup(s.Close)
		return s
	}
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, `{"id": "%s %s %s", "state": %q}`, r.Method, r.URL.Path, r.Header.Get("Idempotency-Key"), body)
	}))
	t.Cleanup(well.Close)
	address := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

	api := NewAPI(address(gone), address(problem(503, "ledger_unavailable")), address(well))
	t.Cleanup(api.Close)
	job, err := api.CreateJob(t.Context(), "once", Replay{Filter: Filter{ID: []int64{7}}, Reason: "why", Rate: new(float64)})
	if err != nil {
		t.Fatal(err)
	}
	want := Job{ID: "POST /api/v1/jobs once", State: `{"filter":{"id":[7]},"reason":"why","rate":0}`}
	if diff := cmp.Diff(want, job); diff != "" {
		t.Errorf("the request (-want +got):\n%s", diff)
	}

	refusing := NewAPI(address(problem(409, "already_replayed")), address(well))
	t.Cleanup(refusing.Close)
	calls := 0
	err = refusing.Insist(t.Context(), time.Minute, func(ctx context.Context) error {
		calls++
		_, err := refusing.Job(ctx, "x")
		return err
	})
	var refused *Problem
	if !errors.As(err, &refused) || refused.Code != "already_replayed" || calls != 1 {
		t.Errorf("a refusal is %v after %d calls", err, calls)
	}
	nobody := NewAPI(address(gone))
	if err := nobody.Insist(t.Context(), 50*time.Millisecond, func(ctx context.Context) error {
		_, err := nobody.Job(ctx, "x")
		return err
	}); !errors.Is(err, errNobody) {
		t.Errorf("without a replica: %v", err)
	}
}

func TestAnExportThatBreaksOffIsAnError(t *testing.T) {
	for text, ok := range map[string]bool{
		"": true,
		`{"id": 1, "key": {"base64": ""}}` + "\n" + `{"id": 2}` + "\n": true,
		`{"id": 1}` + "\n" + `{"id": `:                                 false,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
		t.Cleanup(s.Close)
		api := NewAPI(strings.TrimPrefix(s.URL, "http://"))
		t.Cleanup(api.Close)
		err := api.Export(t.Context(), nil, func(l *Letter) error {
			if l.ID == 1 && ok && (l.Key == nil || l.Key.Base64 == nil) || l.ID == 2 && l.Key != nil {
				t.Errorf("the key of letter %d is %v", l.ID, l.Key)
			}
			return nil
		})
		if (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAReportNamesWhatMustBeNone(t *testing.T) {
	var r Report
	r.Add("letters", 7, "records")
	r.None("lost", 0, "records")
	r.None("doubled", 2, "records")
	if diff := cmp.Diff([]string{"doubled is 2 and must be 0"}, r.Violations); diff != "" || r.Figure("letters") != 7 || r.Figure("none") != 0 {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	var d Details
	for i := range maxDetails + 5 {
		d.Tell("many", "%d", i)
	}
	d.Tell("few", "one")
	lines := d.Lines()
	if d.Count("many") != maxDetails+5 || len(lines) != maxDetails+2 || lines[maxDetails] != "many: further ones are not listed" || lines[maxDetails+1] != "few: one" {
		t.Errorf("details %q", lines)
	}
	file := filepath.Join(t.TempDir(), "out", "figures.json")
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), `{"name":"letters","value":7,"unit":"records"}`) {
		t.Errorf("%s, %v", text, err)
	}
}
