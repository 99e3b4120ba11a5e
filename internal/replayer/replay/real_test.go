package replay

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/postgres"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// All of it once over real Kafka and real Postgres: what the fakes do not show is whether both agree with them.
func TestOnRealKafkaAndPostgresAllLettersAreReplayedInOrder(t *testing.T) {
	const all = 20_000
	k := testkit.RealKafka(t, 1)
	ledger := openPostgres(t)
	origin := testkit.UniqueName("orders")
	client := k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, topic := range []string{origin, origin + ".dlt"} {
		client.CreateTopic(topic, partitions, nil)
	}
	var records []*kgo.Record
	for _, l := range scattered(all, 500) {
		rec := l.record()
		rec.Topic = origin + ".dlt"
		for i := range rec.Headers {
			if string(rec.Headers[i].Value) == "orders" {
				rec.Headers[i].Value = []byte(origin)
			}
		}
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: "fill", Value: make([]byte, 500)})
		records = append(records, rec)
	}
	client.Produce(records...)

	opts := Options{
		Kafka:  kafka.Options{Brokers: k.Brokers()},
		Topics: []Topic{{DeadLetters: origin + ".dlt", Origin: origin}},
		Ledger: ledger, Lease: 2 * time.Second, Logger: testkit.Logger(t), poll: 50 * time.Millisecond,
	}
	r := &rig{t: t, client: client, ledger: ledger, opts: opts}
	r.indexReal(origin)

	passages, killed := 0, make(chan struct{})
	run := func(change func(*Options, *gate)) *process {
		o := opts
		g := &gate{Ledger: ledger, fails: map[string]int{}, dial: dialTCP}
		o.Ledger, o.Kafka.Dialer = g, g.connect
		change(&o, g)
		replayer, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- replayer.Run(ctx) }()
		p := &process{Replayer: replayer, t: t, gate: g, stop: func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run: %v", err)
			}
		}}
		t.Cleanup(cancel)
		return p
	}
	victim := run(func(o *Options, g *gate) {
		o.ShutdownTimeout = time.Second
		o.crash = func(at string) {
			if at != "after-ack" {
				return
			}
			if passages++; passages == 20 {
				g.kill()
				close(killed)
			}
		}
	})
	job := victim.submit(everything(func(q *Request) { q.Expect = all }))
	<-killed
	victim.stop()
	heir := run(func(*Options, *gate) {})
	testkit.WaitFor(t, time.Minute, "the job to be taken over", func(ctx context.Context) error {
		now, err := ledger.Job(ctx, job.ID)
		if err == nil && now.Done < all/4 {
			err = context.DeadlineExceeded
		}
		job = now
		return err
	})
	began, from := time.Now(), job.Done
	ended := r.awaitJob(2*time.Minute, job.ID)
	t.Logf("%.0f letters a second", float64(ended.Done-from)/time.Since(began).Seconds())
	heir.stop()
	if ended.Done != all {
		t.Errorf("done %d, failed %d, skipped %d: %s", ended.Done, ended.Failed, ended.Skipped, ended.FirstError)
	}
	count := r.wantMarksTrue(origin)
	copies := 0
	for _, n := range count {
		copies += n
	}
	if len(count) != all {
		t.Errorf("%d letters have a copy", len(count))
	}
	t.Logf("%d copies of %d letters", copies, all)
	r.wantOrder(origin)
}

// indexReal takes all letters of an origin into the ledger.
func (r *rig) indexReal(origin string) {
	r.t.Helper()
	topic := origin + ".dlt"
	details, err := r.client.Admin().ListTopics(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	id := deadletter.TopicID(details[topic].ID)
	byPartition := map[int32][]deadletter.Letter{}
	for _, rec := range r.client.ReadAll(topic, kgo.ReadCommitted()) {
		byPartition[rec.Partition] = append(byPartition[rec.Partition], deadletter.FromRecord(rec, id, origin, ""))
	}
	for p, letters := range byPartition {
		next, err := r.ledger.Next(r.t.Context(), id, topic, p, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		batch := deadletter.Batch{TopicID: id, Topic: topic, Partition: p, Expected: next, Next: letters[len(letters)-1].Place.Offset + 1, Letters: letters}
		if err := r.ledger.Index(r.t.Context(), batch); err != nil {
			r.t.Fatal(err)
		}
	}
}

func dialTCP(ctx context.Context, network, host string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, host)
}

func openPostgres(t *testing.T) deadletter.Ledger {
	t.Helper()
	options := postgres.Options{URL: testkit.RealPostgres(t)}
	if _, _, err := postgres.Migrate(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	ledger, err := postgres.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ledger.Close(); err != nil {
			t.Error(err)
		}
	})
	return ledger
}
