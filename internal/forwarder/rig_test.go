package forwarder

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// rig is a fake cluster with the topics of one origin, in a bubble.
type rig struct {
	t      *testing.T
	kafka  *testkit.VirtualKafka
	client *testkit.TestClient
	opts   Options
}

const partitions = 4

// simulate runs story in a bubble of virtual time, on a cluster with the origin
// "orders" and its topics.
func simulate(t *testing.T, ladder []tiers.Tier, story func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := testkit.Virtual(t, kfake.NumBrokers(1))
		r := &rig{t: t, kafka: cluster, client: cluster.Client(t)}
		options := tiers.Options{Origin: "orders", Inbox: "orders.retry", DeadLetters: "orders.dlt"}
		for _, tier := range ladder {
			tier.Topic = "orders.retry." + tier.Name
			options.Tiers = append(options.Tiers, tier)
			r.client.CreateTopic(tier.Topic, partitions, nil)
		}
		for _, topic := range []string{"orders", "orders.retry", "orders.dlt"} {
			r.client.CreateTopic(topic, partitions, nil)
		}
		policy, err := tiers.New(options)
		if err != nil {
			t.Fatal(err)
		}
		r.opts = Options{
			Kafka:  kafka.Options{Brokers: cluster.Brokers(), Dialer: cluster.Dial, Logger: testkit.Logger(t)},
			Topics: []Topic{{Policy: policy}},
			Group:  "redrive-forwarder",
			Logger: testkit.Logger(t),
		}
		story(t, r)
	})
}

func defaultLadder() []tiers.Tier {
	return []tiers.Tier{
		{Name: "10s", Delay: 10 * time.Second},
		{Name: "1m", Delay: time.Minute},
		{Name: "10m", Delay: 10 * time.Minute},
	}
}

// start runs a forwarder until stop is called or the test ends.
func (r *rig) start(changes ...func(*Options)) (f *Forwarder, stop func()) {
	r.t.Helper()
	opts := r.opts
	for _, change := range changes {
		change(&opts)
	}
	f, err := New(opts)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
	}
	r.t.Cleanup(stop)
	return f, stop
}

func (r *rig) produce(topic string, n int, change func(i int, rec *kgo.Record)) {
	r.t.Helper()
	var records []*kgo.Record
	for i := range n {
		rec := &kgo.Record{Topic: topic, Key: []byte("k" + strconv.Itoa(i)), Value: []byte(fmt.Sprint("v", i))}
		if change != nil {
			change(i, rec)
		}
		records = append(records, rec)
	}
	r.client.Produce(records...)
}

// await waits, in virtual time, until topic holds n records.
func (r *rig) await(limit time.Duration, topic string, n int) []*kgo.Record {
	r.t.Helper()
	testkit.WaitFor(r.t, limit, fmt.Sprintf("%d records in %s", n, topic), func(context.Context) error {
		if have := sum(r.client.EndOffsets(topic)); have < int64(n) {
			return fmt.Errorf("%d records are there", have)
		}
		return nil
	})
	return r.client.ReadAll(topic, kgo.ReadCommitted())
}

func header(r *kgo.Record, name string) (string, int) {
	value, n := "", 0
	for _, h := range r.Headers {
		if h.Key == name {
			value = string(h.Value)
			n++
		}
	}
	return value, n
}

func attempt(n int) kgo.RecordHeader {
	return kgo.RecordHeader{Key: envelope.HeaderAttempt, Value: []byte(strconv.Itoa(n))}
}

// delivery is one record that a consumer of the origin was given.
type delivery struct {
	at  time.Time
	rec *kgo.Record
}

// consume runs a consumer of the origin that hands every record over to the
// inbox for which fails says so: the smallest correct client.
func (r *rig) consume(fails func(rec *kgo.Record, nth int) bool) func() map[string][]delivery {
	r.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Brokers()...), kgo.Dialer(r.kafka.Dial),
		kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		r.t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string][]delivery{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(rec *kgo.Record) {
				mu.Lock()
				key := string(rec.Key)
				seen[key] = append(seen[key], delivery{time.Now(), rec})
				nth := len(seen[key])
				mu.Unlock()
				if !fails(rec, nth) {
					return
				}
				headers := slices.Clone(rec.Headers)
				if _, n := header(rec, envelope.HeaderOriginalTopic); n == 0 {
					headers = append(headers,
						kgo.RecordHeader{Key: envelope.HeaderOriginalTopic, Value: []byte(rec.Topic)},
						kgo.RecordHeader{Key: envelope.HeaderOriginalPartition, Value: []byte(strconv.Itoa(int(rec.Partition)))},
						kgo.RecordHeader{Key: envelope.HeaderOriginalOffset, Value: []byte(strconv.FormatInt(rec.Offset, 10))})
				}
				headers = append(headers, kgo.RecordHeader{Key: envelope.HeaderErrorType, Value: []byte("test")})
				out := &kgo.Record{Topic: "orders.retry", Key: rec.Key, Value: rec.Value, Headers: headers}
				if err := client.ProduceSync(context.Background(), out).FirstErr(); err != nil {
					r.t.Errorf("hand over: %v", err)
				}
			})
		}
	}()
	r.t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
	})
	return func() map[string][]delivery {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}

func everything(*kgo.Record, int) bool { return true }

// committedAll waits until the group's commits are at the ends of the topics.
func (r *rig) committedAll(topics ...string) {
	r.t.Helper()
	testkit.WaitFor(r.t, time.Minute, "commits at the end of "+fmt.Sprint(topics), func(ctx context.Context) error {
		offsets := r.client.CommittedOffsets("redrive-forwarder")
		for _, topic := range topics {
			for p, end := range r.client.EndOffsets(topic) {
				if o, ok := offsets.Lookup(topic, p); !ok || o.At != end {
					return fmt.Errorf("%s/%d: commit %d, end %d", topic, p, o.At, end)
				}
			}
		}
		return nil
	})
}

func (r *rig) isOrigin(topic kmsg.ProduceRequestTopic) bool {
	return topic.Topic == "orders" || topic.TopicID == r.kafka.TopicInfo("orders").TopicID
}

// refuse answers every partition of a produce request with an error.
func (r *rig) refuse(req *kmsg.ProduceRequest, err *kerr.Error) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range req.Topics {
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = topic.Topic, topic.TopicID
		for _, partition := range topic.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = partition.Partition, err.Code
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// produceTo writes n records to one partition of the tier of 10 s, which they name in
// a header.
func (r *rig) produceTo(partition int32, n int) {
	r.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Brokers()...), kgo.Dialer(r.kafka.Dial),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	for i := range n {
		rec := &kgo.Record{Topic: "orders.retry.10s", Partition: partition, Key: []byte(strconv.Itoa(i)), Headers: []kgo.RecordHeader{
			{Key: "partition", Value: []byte(strconv.Itoa(int(partition)))},
		}}
		if err := client.ProduceSync(r.t.Context(), rec).FirstErr(); err != nil {
			r.t.Fatal(err)
		}
	}
}
