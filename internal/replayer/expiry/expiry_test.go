package expiry

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlite"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// failing is a ledger that does not answer while it is told so.
type failing struct {
	deadletter.Ledger
	err error
}

func (f *failing) Count(ctx context.Context, filter deadletter.Filter) (int64, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Ledger.Count(ctx, filter)
}

// rig is a cluster with topics, and a ledger.
type rig struct {
	t      *testing.T
	client *testkit.Client
	ledger *failing
	radar  *Radar
	metric *prometheus.Registry
	ids    map[string]deadletter.TopicID
}

func newRig(t *testing.T) *rig {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	r := &rig{t: t, metric: prometheus.NewPedanticRegistry(), ids: map[string]deadletter.TopicID{}}
	if r.client, err = testkit.NewClient(cluster.ListenAddrs()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.Close)
	ledger, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ledger.Close() })
	r.ledger = &failing{Ledger: ledger}
	for _, topic := range []string{"orders.dlt", "cash.dlt", "orders.retry", "orders.retry.1h"} {
		r.create(topic, 24*time.Hour)
	}
	r.radar, err = New(Options{
		Client: r.client.Kafka(), Ledger: r.ledger, Group: "redrive", Within: time.Hour, Logger: testkit.Logger(t), Registerer: r.metric,
		Topics: []Topic{
			{DeadLetters: "orders.dlt", Waiting: []Room{{Topic: "orders.retry"}, {Topic: "orders.retry.1h", Wait: time.Hour}}},
			{DeadLetters: "cash.dlt"},
			{DeadLetters: "missing.dlt"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) create(topic string, keeps time.Duration) {
	r.t.Helper()
	ms := fmt.Sprint(keeps.Milliseconds())
	if err := r.client.CreateTopic(r.t.Context(), topic, 1, map[string]string{"retention.ms": ms}); err != nil {
		r.t.Fatal(err)
	}
	topics, err := r.client.Admin().ListTopics(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	r.ids[topic] = deadletter.TopicID(topics[topic].ID)
}

func (r *rig) keep(topic, ms string) {
	r.t.Helper()
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &ms}}
	if _, err := r.client.Admin().AlterTopicConfigs(r.t.Context(), set, topic); err != nil {
		r.t.Fatal(err)
	}
}

// index writes letters of these ages.
func (r *rig) index(topic string, id deadletter.TopicID, ages ...time.Duration) {
	r.t.Helper()
	batch := deadletter.Batch{TopicID: id, Topic: topic, Next: int64(len(ages))}
	for i, age := range ages {
		batch.Letters = append(batch.Letters, deadletter.Letter{
			Place: deadletter.Place{TopicID: id, Topic: topic, Offset: int64(i)}, MessageID: fmt.Sprint(topic, "/", i), Origin: "orders",
			Reason: "poison", DeadAt: time.Now().Add(-age), Copy: deadletter.Target{Offset: -1},
		})
	}
	if _, err := r.ledger.Next(r.t.Context(), id, topic, 0, 0); err != nil {
		r.t.Fatal(err)
	}
	if err := r.ledger.Index(r.t.Context(), batch); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) look() {
	r.t.Helper()
	if err := r.radar.look(r.t.Context(), time.Now()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) metrics(want string) {
	r.t.Helper()
	if err := testutil.GatherAndCompare(r.metric, strings.NewReader(want), "redrive_letters_expiring"); err != nil {
		r.t.Error(err)
	}
}

const head = "# HELP redrive_letters_expiring Letters, dead or claimed and not kept in the ledger, that retention may take within replayer.expiry.within; absent while that is not known.\n" +
	"# TYPE redrive_letters_expiring gauge\n"

func TestLettersAreCountedThatRetentionMayTakeWithinTheTime(t *testing.T) {
	r := newRig(t)
	r.look()
	r.metrics(head + "redrive_letters_expiring{topic=\"cash.dlt\"} 0\nredrive_letters_expiring{topic=\"orders.dlt\"} 0\n")
	if troubles := r.radar.Troubles(); len(troubles) > 0 {
		t.Errorf("troubles without a letter: %+v", troubles)
	}

	// One is gone by right, one goes in half an hour, one in two hours; one of another incarnation is not of this topic.
	r.index("orders.dlt", r.ids["orders.dlt"], 25*time.Hour, 23*time.Hour+30*time.Minute, 22*time.Hour)
	r.index("cash.dlt", r.ids["cash.dlt"], time.Minute)
	r.index("orders.dlt", deadletter.TopicID{9}, 23*time.Hour+30*time.Minute)
	r.look()
	r.metrics(head + "redrive_letters_expiring{topic=\"cash.dlt\"} 0\nredrive_letters_expiring{topic=\"orders.dlt\"} 2\n")
	troubles := r.radar.Troubles()
	if len(troubles) != 1 || troubles[0].Issue != issue.LettersExpiring || troubles[0].Topic != "orders.dlt" || !strings.HasPrefix(troubles[0].Detail, "retention may take 2 dead letters within 1h0m0s, the first from ") {
		t.Errorf("troubles: %+v", troubles)
	}
	families, err := r.metric.Gather()
	if err != nil {
		t.Fatal(err)
	}
	soonest := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "redrive_letter_expires_timestamp_seconds" {
			for _, m := range f.GetMetric() {
				soonest[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	for topic, in := range map[string]time.Duration{"orders.dlt": -time.Hour, "cash.dlt": 24*time.Hour - time.Minute} {
		if got, want := time.Unix(int64(soonest[topic]), 0), time.Now().Add(in); got.Sub(want).Abs() > time.Minute {
			t.Errorf("the first letter of %s stays until %s, want %s", topic, got, want)
		}
	}

	counts, err := r.radar.Count(t.Context(), []string{"cash.dlt", "missing.dlt", "orders.dlt", "unknown.dlt"}, 3*time.Hour)
	if err != nil || len(counts) != 3 || counts[0].Count != 0 || counts[1].Err == nil || counts[2].Count != 3 {
		t.Errorf("counted: %+v, %v", counts, err)
	}
	r.keep("orders.dlt", "-1")
	r.look()
	r.metrics(head + "redrive_letters_expiring{topic=\"cash.dlt\"} 0\nredrive_letters_expiring{topic=\"orders.dlt\"} 0\n")
	if cuts, err := r.radar.Cuts(t.Context(), r.radar.Topics(), time.Hour); err != nil || len(cuts) != 1 || cuts[0].Topic != "cash.dlt" {
		t.Errorf("cuts: %+v, %v", cuts, err)
	}
}

func TestCountsThatCanNotBeRenewedAreNotShown(t *testing.T) {
	r := newRig(t)
	r.index("orders.dlt", r.ids["orders.dlt"], 25*time.Hour)
	r.look()
	if len(r.radar.Troubles()) != 1 {
		t.Fatalf("troubles: %+v", r.radar.Troubles())
	}
	r.ledger.err = errors.New("the database is away")
	if err := r.radar.look(t.Context(), time.Now()); !errors.Is(err, r.ledger.err) {
		t.Errorf("looked: %v", err)
	}
	r.metrics("")
	if troubles := r.radar.Troubles(); len(troubles) > 0 {
		t.Errorf("troubles of before: %+v", troubles)
	}
}

func TestRecordsThatWaitAsTheyShouldAreNotTold(t *testing.T) {
	r := newRig(t)
	now := time.Now()
	ages := map[string][]time.Duration{
		"orders.retry":    {23 * time.Hour, 30 * time.Second},
		"orders.retry.1h": {3 * time.Hour, 30 * time.Minute},
	}
	for topic, all := range ages {
		for _, age := range all {
			if err := r.client.Produce(t.Context(), &kgo.Record{Topic: topic, Value: []byte("v"), Timestamp: now.Add(-age)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	told := func(within time.Duration) (topics []string) {
		t.Helper()
		found, unknown := r.radar.Waiting(t.Context(), []string{"orders.dlt"}, within)
		if len(unknown) > 0 {
			t.Fatal(unknown)
		}
		for _, w := range found {
			topics = append(topics, fmt.Sprintf("%s@%d-%d", w.Topic, w.From, w.To))
		}
		return topics
	}
	for _, c := range []struct {
		within time.Duration
		want   []string
	}{
		{30 * time.Minute, nil},
		{2 * time.Hour, []string{"orders.retry@0-1"}},
		// Those that are not due for long are waited for, however far one looks ahead.
		{20 * 24 * time.Hour, []string{"orders.retry@0-1", "orders.retry.1h@0-1"}},
	} {
		if diff := cmp.Diff(c.want, told(c.within)); diff != "" {
			t.Errorf("within %s (-want +got):\n%s", c.within, diff)
		}
	}
	r.keep("orders.retry.1h", fmt.Sprint((45 * time.Minute).Milliseconds()))
	if diff := cmp.Diff([]string{"orders.retry.1h@0-2"}, told(30*time.Minute)); diff != "" {
		t.Errorf("with a retention that is shorter than the wait (-want +got):\n%s", diff)
	}
	if found, _ := r.radar.Waiting(t.Context(), []string{"cash.dlt"}, 20*24*time.Hour); len(found) > 0 {
		t.Errorf("told of one who does not see the topic: %+v", found)
	}
	if !slices.Equal(r.radar.Topics(), []string{"cash.dlt", "missing.dlt", "orders.dlt"}) {
		t.Errorf("topics: %v", r.radar.Topics())
	}
}

func TestTheRadarLooksUntilItIsStopped(t *testing.T) {
	r := newRig(t)
	r.index("orders.dlt", r.ids["orders.dlt"], 25*time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.radar.Run(ctx)
	}()
	testkit.WaitFor(t, 20*time.Second, "the first look", func(context.Context) error {
		if len(r.radar.Troubles()) == 0 {
			return errors.New("no trouble yet")
		}
		return nil
	})
	stop()
	<-ended
}

func TestWhatIsMissingInOptionsIsNamed(t *testing.T) {
	for want, o := range map[string]Options{"client": {}, "ledger": {Client: &kgo.Client{}}, "topic": {Client: &kgo.Client{}, Ledger: &failing{}}} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without a %s: %v", want, err)
		}
	}
}
