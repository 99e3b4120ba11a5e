package index

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlite"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// page reads all letters of a ledger.
func page(t *testing.T, ledger *sqlite.Ledger) []deadletter.Letter {
	t.Helper()
	found, err := ledger.Letters(t.Context(), deadletter.Filter{}, deadletter.Page{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return found.Letters
}

func TestIndexInARealLedgerGoesOnAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) {
		cluster := testkit.Virtual(t, kfake.NumBrokers(1))
		r := &rig{t: t, kafka: cluster, client: cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))}
		r.client.CreateTopic(letters, partitions, nil)
		for round := 1; round <= 3; round++ {
			r.produce(1000, nil)
			ledger, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			r.opts = Options{
				Kafka:  kafka.Options{Brokers: cluster.Brokers(), Dialer: cluster.Dial, Logger: testkit.Logger(t)},
				Topics: []Topic{{DeadLetters: letters, Origin: "orders"}}, Group: "redrive-dlt-replayer",
				Ledger: ledger, Logger: testkit.Logger(t),
			}
			_, stop := r.start()
			testkit.WaitFor(t, time.Minute, "the rows of a round", func(ctx context.Context) error {
				if n, err := ledger.Count(ctx, deadletter.Filter{}); err != nil || n != int64(1000*round) {
					return fmt.Errorf("%d rows: %w", n, err)
				}
				return nil
			})
			stop()
			rows := map[spot]deadletter.Letter{}
			for _, l := range page(t, ledger) {
				rows[spot{l.Place.Partition, l.Place.Offset}] = l
			}
			for _, rec := range r.client.ReadAll(letters, kgo.ReadCommitted()) {
				if l := rows[spot{rec.Partition, rec.Offset}]; l.Digest != deadletter.Digest(rec.Key, rec.Value, rec.Headers) {
					t.Errorf("the row of %d/%d is %+v", rec.Partition, rec.Offset, l)
				}
			}
			if err := ledger.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The fake cluster's fetch sessions never forget a topic that was deleted, and it has no identity of topics to go by in them.
func TestTopicThatWasMadeAgainIsAnotherOne(t *testing.T) {
	cluster := testkit.RealKafka(t, 1)
	client := cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	topic := testkit.UniqueName("orders.dlt")
	produce := func(word string, n int) {
		t.Helper()
		records := make([]*kgo.Record, n)
		for i := range records {
			records[i] = &kgo.Record{Topic: topic, Partition: int32(i % 2), Value: []byte(word + strconv.Itoa(i))}
		}
		client.Produce(records...)
	}
	client.CreateTopic(topic, 2, nil)
	ledger := newMemory()
	ix, err := New(Options{
		Kafka:  kafka.Options{Brokers: cluster.Brokers(), Logger: testkit.Logger(t)},
		Topics: []Topic{{DeadLetters: topic, Origin: "orders"}}, Group: testkit.UniqueName("replayer"),
		Ledger: ledger, Logger: testkit.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	ix.sweepEvery = 2 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ix.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	indexed := func(n int) {
		t.Helper()
		testkit.WaitFor(t, 90*time.Second, fmt.Sprint(n, " letters"), func(context.Context) error {
			have := 0
			ledger.mu.Lock()
			defer ledger.mu.Unlock()
			ledger.each(func(_ deadletter.TopicID, _ int32, p *memoryPartition) { have += len(p.letters) })
			if have != n {
				return fmt.Errorf("%d letters", have)
			}
			return nil
		})
	}
	state := func(state deadletter.State, n int) {
		t.Helper()
		testkit.WaitFor(t, 3*time.Minute, fmt.Sprint(n, " letters ", state), func(context.Context) error {
			have := 0
			ledger.change(func(l *deadletter.Letter) {
				if l.State == state {
					have++
				}
			})
			if have != n {
				return fmt.Errorf("%d letters are", have)
			}
			return nil
		})
	}
	produce("first", 200)
	indexed(200)

	// Retention takes the first ones.
	client.DeleteRecords(topic, map[int32]int64{0: 40})
	state(deadletter.Expired, 40)

	if _, err := client.Admin().DeleteTopics(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, time.Minute, "the new topic", func(ctx context.Context) error {
		_, err := client.Admin().CreateTopic(ctx, 2, 1, nil, topic)
		return err
	})
	// This client still knows the topic that is gone.
	client = cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produce("second", 100)
	indexed(300)
	has(t, ix, time.Minute, issue.TopicRecreated)
	state(deadletter.Expired, 200)
	state(deadletter.Dead, 100)
	for _, err := range ledger.broken() {
		t.Error(err)
	}
}
