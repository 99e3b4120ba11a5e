package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/forwarder"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fakeEngine is a forwarder in a state that a test chooses.
type fakeEngine struct {
	options forwarder.Options
	status  forwarder.Status
	stuck   chan struct{} // if not nil, Status blocks until it is closed
	asked   atomic.Int32
	drain   time.Duration // how long Run goes on when its context has ended
	fail    chan error    // what comes from it ends Run
	ended   atomic.Bool
	paced   map[string]forwarder.Pace // by the last Control
}

func (f *fakeEngine) Status() forwarder.Status {
	f.asked.Add(1)
	if f.stuck != nil {
		<-f.stuck
	}
	return f.status
}

func (f *fakeEngine) Run(ctx context.Context) error {
	defer f.ended.Store(true)
	select {
	case err := <-f.fail:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-f.fail:
		return err
	case <-time.After(f.drain):
		return nil
	}
}

func (f *fakeEngine) Control(paces map[string]forwarder.Pace) { f.paced = paces }

func running(e engine) *state {
	s := &state{}
	s.run(e)
	return s
}

// watching are the probes of a process about which nothing else is known.
func watching(s *state, ping func(context.Context) error) *probes {
	return &probes{state: s, notices: &notices{}, ping: ping}
}

func answering(context.Context) error { return nil }

func silent(context.Context) error { return errors.New("dial tcp:\n connection refused") }

func get(t *testing.T, p *probes, target string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	for _, h := range header {
		r.Header.Set("Accept", h)
	}
	w := httptest.NewRecorder()
	adminHandler(p, prometheus.NewRegistry(), false).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func troubled() *fakeEngine {
	return &fakeEngine{status: forwarder.Status{
		Running:  true,
		Joined:   true,
		Assigned: 8,
		Topics: []forwarder.TopicStatus{
			{Topic: "orders.retry", Assigned: 4},
			{
				Topic: "orders.retry.10s", Assigned: 4, Paused: 1, Frozen: 2, HeldRecords: 7, HeldBytes: 700, Overdue: 3, InFlight: 1,
				InFlightAge: 1500 * time.Millisecond, NextDue: time.Date(2026, 1, 5, 4, 0, 0, 0, time.FixedZone("", 3600)),
			},
		},
		Troubles: []issue.Trouble{
			{Issue: issue.Paused, Topic: "orders.retry", Partition: -1, Detail: "paused by the file"},
			{Issue: issue.GroupUnstable, Partition: -1, Detail: "refused"},
			{Issue: issue.PartitionFrozen, Topic: "orders.retry.10s", Partition: 0, Detail: "write to orders:\nmissing\n"},
			{Issue: issue.PartitionFrozen, Topic: "orders.retry.10s", Partition: 3, Detail: "write to orders: missing"},
		},
	}}
}

// meaning is what stands below the lines of a code.
func meaning(code issue.Code) string {
	entry := issue.Of(code)
	return "    " + entry.Means + "\n    remedy: " + entry.Remedy + "\n"
}

func TestReadyListsEveryIssueAndStaysReady(t *testing.T) {
	p := watching(running(troubled()), answering)
	code, text := get(t, p, "/readyz?verbose")
	if code != http.StatusOK {
		t.Errorf("code %d: an issue of one partition is no reason to be replaced", code)
	}
	wantText(t, text, `[+]brokers ok
[+]loop ok
[-]group-unstable: refused
`+meaning(issue.GroupUnstable)+`[-]partition-frozen: orders.retry.10s/0: write to orders: missing
[-]partition-frozen: orders.retry.10s/3: write to orders: missing
`+meaning(issue.PartitionFrozen)+`[i]paused: orders.retry: paused by the file
`+meaning(issue.Paused)+`orders.retry: partitions 4, held 0, overdue 0, in flight 0
orders.retry.10s: partitions 4, held 7, overdue 3, in flight 1, paused 1, frozen 2, next due 2026-01-05T03:00:00.000Z
readyz check passed
`)
	if code, text := get(t, p, "/readyz"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("without verbose: %d %q", code, text)
	}
}

func TestReadyAsJSONByFormatAndByAccept(t *testing.T) {
	p := watching(running(troubled()), answering)
	_, byFormat := get(t, p, "/readyz?format=json")
	_, byAccept := get(t, p, "/readyz", "application/json")
	wantText(t, byAccept, byFormat)
	var got map[string]any
	if err := json.Unmarshal([]byte(byFormat), &got); err != nil {
		t.Fatal(err)
	}
	frozen := got["issues"].([]any)[1].(map[string]any)
	entry := issue.Of(issue.PartitionFrozen)
	topics := got["topics"].([]any)
	second := topics[1].(map[string]any)
	if got["ok"] != true || frozen["code"] != "partition-frozen" || frozen["partition"] != 0.0 || frozen["detail"] != "write to orders: missing" ||
		frozen["severity"] != "error" || frozen["means"] != entry.Means || frozen["remedy"] != entry.Remedy ||
		second["inFlightAgeSeconds"] != 1.5 || second["nextDue"] != "2026-01-05T03:00:00Z" {
		t.Errorf("got %s", byFormat)
	}
	if _, has := topics[0].(map[string]any)["nextDue"]; has {
		t.Error("a topic where nothing waits has a next due time")
	}
}

func TestReadyIs503OnlyWithoutABrokerALoopOrTheGroup(t *testing.T) {
	starting, checking := &state{}, &state{}
	starting.starting("waiting for a broker", errors.New("refused"))
	checking.starting("checking the topics", nil)
	stopping := running(troubled())
	stopping.enter(phaseStopping)
	reloading := running(troubled())
	reloading.reload()
	for _, test := range []struct {
		name  string
		state *state
		ping  func(context.Context) error
		code  int
		want  string // the first two lines
	}{
		{"all well", running(&fakeEngine{status: forwarder.Status{Running: true, Joined: true}}), answering, 200, "[+]brokers ok\n[+]loop ok\n"},
		{"no partition assigned", running(&fakeEngine{status: forwarder.Status{Running: true, Joined: true}}), answering, 200, "[+]brokers ok\n[+]loop ok\n"},
		{"no broker answers", running(troubled()), silent, 503, "[-]brokers: no broker answers: dial tcp: connection refused\n[+]loop ok\n"},
		{"the loop did not start yet", running(&fakeEngine{}), answering, 503, "[+]brokers ok\n[-]loop: starting: learning about the topics\n"},
		{"the group is not joined yet", running(&fakeEngine{status: forwarder.Status{Running: true}}), answering, 503, "[+]brokers ok\n[-]loop: starting: joining the group\n"},
		{"waiting for a broker", starting, answering, 503, "[-]brokers: no broker answers: refused\n[-]loop: starting: waiting for a broker\n"},
		{"checking the topics", checking, answering, 503, "[+]brokers ok\n[-]loop: starting: checking the topics\n"},
		{"between two forwarders", reloading, answering, 503, "[+]brokers ok\n[-]loop: reloading: draining, to go on with other topics\n"},
		{"stopping", stopping, answering, 503, "[+]brokers ok\n[-]loop: stopping\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, text := get(t, watching(test.state, test.ping), "/readyz?verbose")
			if code != test.code {
				t.Errorf("code %d, want %d", code, test.code)
			}
			wantText(t, text[:min(len(text), len(test.want))], test.want)
			// Not being ready is told in full without asking for it.
			if short, body := get(t, watching(test.state, test.ping), "/readyz"); short == 503 {
				wantText(t, body, text)
			}
			if live, _ := get(t, watching(test.state, test.ping), "/livez"); live != 200 {
				t.Errorf("livez %d: a restart would not help", live)
			}
		})
	}
}

// A loop that is stuck is the one thing that a restart cures.
func TestLiveFailsWhileTheLoopIsStuckWhateverKafkaDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &fakeEngine{status: forwarder.Status{Running: true, Joined: true}, stuck: make(chan struct{})}
		p := watching(running(stuck), answering)
		began := time.Now()
		for range 3 {
			if code, text := get(t, p, "/livez"); code != 503 || text != "[-]loop: no answer for 1.5s\nlivez check failed\n" {
				t.Errorf("stuck: %d %q", code, text)
			}
		}
		if took := time.Since(began); took != 3*loopTimeout {
			t.Errorf("three probes took %v", took)
		}
		if code, _ := get(t, p, "/readyz"); code != 503 {
			t.Errorf("readyz of a stuck loop is %d", code)
		}
		if n := stuck.asked.Load(); n != 1 {
			t.Errorf("the stuck loop was asked %d times: probes pile up", n)
		}
		close(stuck.stuck)
		synctest.Wait()
		if code, text := get(t, p, "/livez"); code != 200 || text != "ok\n" {
			t.Errorf("after that: %d %q", code, text)
		}
	})
}

func TestEndpointsTakeOnlyReads(t *testing.T) {
	handler := adminHandler(watching(running(troubled()), answering), prometheus.NewRegistry(), false)
	for _, target := range []string{"/livez", "/readyz", "/metrics"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", target, w.Code)
		}
	}
}

// A probe that waits for a forwarder which was replaced must not speak for the new
// one.
func TestAStuckForwarderDoesNotSpeakForTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &fakeEngine{stuck: make(chan struct{})}
		s := running(stuck)
		p := watching(s, answering)
		if code, _ := get(t, p, "/livez"); code != 503 {
			t.Errorf("stuck: %d", code)
		}
		s.run(&fakeEngine{status: forwarder.Status{Running: true, Joined: true}})
		if code, text := get(t, p, "/livez"); code != 200 {
			t.Errorf("the next one: %d %s", code, text)
		}
		close(stuck.stuck)
	})
}

func TestTheProfilerIsServedOnlyWhereItIsAskedFor(t *testing.T) {
	for _, profiler := range []bool{false, true} {
		handler := adminHandler(watching(running(troubled()), answering), prometheus.NewRegistry(), profiler)
		for _, target := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
			if served := w.Code == http.StatusOK; served != profiler {
				t.Errorf("profiler %v: %s: %d", profiler, target, w.Code)
			}
		}
	}
}

func TestOnlyAddressesOfThisMachineAreOnLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:9400": true, "127.8.0.1:1": true, "[::1]:9400": true, "[::ffff:127.0.0.1]:1": true,
		"[::]:9400": false, "0.0.0.0:9400": false, "10.0.0.7:9400": false, "[fe80::1%eth0]:1": false, "nonsense": false,
	} {
		if got := onLoopback(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
