package app

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/replayer/api"
	"github.com/kafka-redrive/redrive/internal/replayer/expiry"
	"github.com/kafka-redrive/redrive/internal/replayer/index"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
)

func load(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topics.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const replayerFile = `kafka: {brokers: [b1:9092]}
ledger: {keepPayload: true}
replayer:
  group: g
  instanceId: i
  sessionTimeout: 40s
  shutdownTimeout: 9s
  lease: 31s
  inFlight: 11
  batch: 12
  rateLimit: 13
  defaultRate: 14
  bulkLimit: 15
  expiry: {within: 5h}
  labelHeader: schema
  api: {tokens: [{name: alice, role: admin, sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}], maxBody: 2MiB}
topics:
  - origin: orders
    group: billing
    tiers: [{delay: 10s, jitter: 1s}, 1m]
    returnTo: orders.billing
    partitioner: crc32
    replayTo: [repaired]
    replyTo: [answers]
`

func TestEverySettingOfTheReplayerReachesItsOption(t *testing.T) {
	o := Options{Config: load(t, replayerFile)}.withDefaults()
	l := newLedger(prometheus.NewRegistry())
	ignored := []cmp.Option{cmpopts.IgnoreUnexported(replay.Options{}), cmpopts.IgnoreFields(index.Options{}, "Kafka", "Ledger", "Logger"), cmpopts.IgnoreFields(replay.Options{}, "Kafka", "Ledger", "Logger")}
	wantIndex := index.Options{
		Group: "g", InstanceID: "i", SessionTimeout: 40 * time.Second, ShutdownTimeout: 9 * time.Second, KeepPayload: true, LabelHeader: "schema",
		Topics: []index.Topic{{DeadLetters: "orders.dlt", Origin: "orders", ReturnTo: "orders.billing", Group: "billing", Ladder: 71 * time.Second}},
	}
	gotIndex := indexOptions(o, l, nil)
	if diff := cmp.Diff(wantIndex, gotIndex, ignored...); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
	}
	wantReplay := replay.Options{
		Owner: "me", Group: "g", InstanceID: "i-triggers", SessionTimeout: 40 * time.Second, Lease: 31 * time.Second, InFlight: 11, Batch: 12, RateLimit: 13, DefaultRate: 14, BulkLimit: 15, ShutdownTimeout: 9 * time.Second,
		Topics: []replay.Topic{{
			DeadLetters: "orders.dlt", Origin: "orders", ReturnTo: "orders.billing", Trigger: "orders.dlt.replay", Group: "billing",
			Partitioner: kafka.CRC32, ReplayTo: []string{"repaired"}, ReplyTo: []string{"answers"},
		}},
	}
	if diff := cmp.Diff(wantReplay, replayOptions(o, "me", l, nil), ignored...); diff != "" {
		t.Errorf("replay (-want +got):\n%s", diff)
	}
	wantRadar := expiry.Options{
		Group: "redrive-forwarder", Within: 5 * time.Hour,
		Topics: []expiry.Topic{{DeadLetters: "orders.dlt", Waiting: []expiry.Room{
			{Topic: "orders.retry"}, {Topic: "orders.retry.10s", Wait: 11 * time.Second}, {Topic: "orders.retry.1m", Wait: time.Minute},
		}}},
	}
	if diff := cmp.Diff(wantRadar, radarOptions(o, nil, l, nil), cmpopts.IgnoreFields(expiry.Options{}, "Client", "Ledger", "Logger")); diff != "" {
		t.Errorf("radar (-want +got):\n%s", diff)
	}
	tokens, err := tokensOf(o.Config)
	if err != nil || len(tokens) != 1 || tokens[0].Name != "alice" || tokens[0].Role != api.Role("admin") || tokens[0].SHA256[0] != 0x9f || tokens[0].SHA256[31] != 0x08 {
		t.Errorf("tokens: %+v, %v", tokens, err)
	}
	served := apiOptions(o, tokens, l, nil, nil)
	if served.MaxBody != 2<<20 || served.BulkLimit != 15 || served.Address != "127.0.0.1:9402" || !cmp.Equal(served.Topics, []string{"orders.dlt"}) {
		t.Errorf("api: %+v", served)
	}
	preflight := replayerPreflight(o.Config)
	if !preflight.Replayer || preflight.Group != "g" || !cmp.Equal(preflight.Ladders[0].ReplayTo, []string{"repaired"}) {
		t.Errorf("preflight: %+v", preflight)
	}
	if id := replayerKafka(o).ClientID; id != "redrive-dlt-replayer" {
		t.Errorf("client id %s", id)
	}
	o.Config.Kafka.ClientID = "mine"
	if id := replayerKafka(o).ClientID; id != "mine" {
		t.Errorf("client id %s", id)
	}
}

func TestAReplayerTakesTokensAndTheLevelAndTellsWhatNeedsARestart(t *testing.T) {
	current := load(t, replayerFile)
	next := func(old, text string) *config.Config {
		changed := strings.Replace(replayerFile, old, text, 1)
		if changed == replayerFile {
			t.Fatalf("nothing is changed: %s", old)
		}
		return load(t, changed)
	}
	for _, test := range []struct {
		name    string
		next    *config.Config
		restart []string
	}{
		{"nothing", load(t, replayerFile), nil},
		{"level", next("topics:", "logging: {level: debug}\ntopics:"), nil},
		{"token", next("name: alice", "name: bob"), nil},
		{"of the forwarder", next("partitioner: crc32", "partitioner: crc32\n    paused: true\n    maxAttempts: 9"), nil},
		{"forwarder", next("topics:", "forwarder: {maxUncommitted: 5}\ntopics:"), nil},
		{"several", next("batch: 12", "batch: 13\n  admin: {pprof: true}"), []string{"replayer.batch", "replayer.admin.pprof"}},
		{"ledger", next("keepPayload: true", "keepPayload: false"), []string{"ledger.keepPayload"}},
		{"topics", next("replayTo: [repaired]", "replayTo: []"), []string{"topics"}},
		{"tiers", next("1m]", "2m]"), []string{"topics"}},
	} {
		merged, restart := inForceOfReplayer(current, test.next)
		if diff := cmp.Diff(test.restart, restart); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if merged.Logging.Level != test.next.Logging.Level || !cmp.Equal(merged.Replayer.API.Tokens, test.next.Replayer.API.Tokens) ||
			merged.Replayer.Batch != 12 || !merged.Ledger.KeepPayload || len(merged.Topics[0].ReplayTo) != 1 {
			t.Errorf("%s: in force is %+v", test.name, merged)
		}
	}
}

func TestAReplayerIsReadyWhileItsLedgerAnswers(t *testing.T) {
	broken := error(nil)
	state, l := &replayerState{}, newLedger(prometheus.NewRegistry())
	p := &replayerProbes{
		state: state, notices: &notices{}, ledger: l,
		index: func() index.Status {
			return index.Status{Running: true, Assigned: 3, Behind: 4, Troubles: []issue.Trouble{{Issue: issue.LedgerDown, Partition: -1, Detail: "again"}, {Issue: issue.IndexBehind, Topic: "orders.dlt", Partition: 1, Detail: "4 records"}}}
		},
		replay: func() replay.Status { return replay.Status{} },
		radar: func() []issue.Trouble {
			return []issue.Trouble{{Issue: issue.LettersExpiring, Topic: "orders.dlt", Partition: -1, Detail: "7 letters"}}
		},
		ping: func(context.Context) error { return broken },
	}
	expect := func(code int, texts ...string) {
		t.Helper()
		w := httptest.NewRecorder()
		adminHandler(p, prometheus.NewRegistry(), false).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz?verbose", nil))
		if w.Code != code {
			t.Errorf("status %d, want %d\n%s", w.Code, code, w.Body)
		}
		for _, text := range texts {
			if strings.Count(w.Body.String(), text) != 1 {
				t.Errorf("no %q, or not once, in\n%s", text, w.Body)
			}
		}
	}
	state.doing("opening the ledger")
	expect(503, "[-]process: starting: opening the ledger\n", "[-]ledger: the ledger is not opened yet\n")
	l.set(nil, errors.New("connection refused"))
	expect(503, "[-]ledger: connection refused\n", "]ledger-down: ")
	l.set(&stubborn{}, nil)
	state.running()
	broken = errors.New("no route")
	expect(200, "[+]ledger ok\n", "[-]no-broker: ", "[-]index-behind: orders.dlt/1: 4 records\n", "[-]letters-expiring: orders.dlt: 7 letters\n", "dead letters: partitions 3, behind 4\n")
	l.set(nil, errors.New("timeout"))
	expect(503, "[-]ledger: timeout\n", "[+]process ok\n")
	l.set(nil, nil)
	state.enter(phaseStopping)
	expect(503, "[-]process: stopping\n")
}

// An actor that ends by itself ends the process; one that is told to is quiet.
func TestAnActorIsToldToStopOrTellsWhyItDid(t *testing.T) {
	quiet := startActor(t.Context(), "quiet", func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err := quiet.stop(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	failed := startActor(t.Context(), "loop", func(context.Context) error { return errors.New("fenced") })
	if err := <-failed.ended; err == nil || err.Error() != "loop: fenced" {
		t.Errorf("failed: %v", err)
	}
	if err := failed.stop(); err != nil {
		t.Errorf("it is told twice: %v", err)
	}
	early := startActor(t.Context(), "loop", func(context.Context) error { return nil })
	if err := <-early.ended; err == nil {
		t.Error("an early end is no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	outlives := startActor(ctx, "loop", func(ctx context.Context) error { <-ctx.Done(); return nil })
	cancel()
	select {
	case err := <-outlives.ended:
		t.Errorf("it ends with the signal, and not in its turn: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := outlives.stop(); err != nil {
		t.Error(err)
	}
}
