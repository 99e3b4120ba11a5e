package forwarder

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/ordering"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

func (r *rig) find(q Query) *Found {
	r.t.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	found, err := r.operator().Find(r.t.Context(), q, func(Progress) {})
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

// put writes one record to partition 0.
func (r *rig) put(topic, key string, headers ...string) {
	r.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Brokers()...), kgo.Dialer(r.kafka.Dial), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	rec := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte("secret value")}
	for i := 0; i < len(headers); i += 2 {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	if err := client.ProduceSync(r.t.Context(), rec).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

func TestWhatWaitsIsFoundByIDAndByKey(t *testing.T) {
	simulate(t, defaultLadder(), func(t *testing.T, r *rig) {
		now := time.Now().UTC()
		due := now.Add(50 * time.Second)
		r.put("orders.retry.1m", "other")
		r.put("orders.retry.1m", "k", envelope.HeaderMessageID, "m-1", envelope.HeaderAttempt, "2", envelope.HeaderAvailableAt, string(stamp(due)),
			envelope.HeaderOriginalTopic, "orders", envelope.HeaderOriginalPartition, "3", envelope.HeaderOriginalOffset, "42")
		r.put("orders.retry", "k", envelope.HeaderOriginalTopic, "orders", envelope.HeaderOriginalPartition, "3", envelope.HeaderOriginalOffset, "43")
		r.put("orders.retry.10s", "k", envelope.HeaderReason, "poison")
		// A tier without any header, and one that asks for more than its tier holds.
		r.put("orders.retry.10s", "k")
		r.put("orders.retry.10s", "k", envelope.HeaderMessageID, "m-2", envelope.HeaderAvailableAt, string(stamp(now.Add(5*time.Minute))))

		waits := Waiting{Topic: "orders.retry.1m", Offset: 1, MessageID: "m-1", Attempt: 2, Until: due, Next: "orders", Original: Place{"orders", 3, 42}}
		all := []Waiting{
			{Topic: "orders.retry.10s", MessageID: "orders.retry.10s/0/0", Attempt: 1, Next: "orders.dlt", Reason: "poison", Original: Place{"orders", -1, -1}},
			{Topic: "orders.retry", MessageID: "orders/3/43", Attempt: 1, Until: now.Add(10 * time.Second), Next: "orders.retry.10s", Original: Place{"orders", 3, 43}},
			{Topic: "orders.retry.10s", Offset: 1, MessageID: "orders.retry.10s/0/1", Attempt: 1, Until: now.Add(10 * time.Second), Next: "orders", Original: Place{"orders", -1, -1}},
			waits,
			{Topic: "orders.retry.10s", Offset: 2, MessageID: "m-2", Attempt: 1, Until: now.Add(5 * time.Minute), Next: "orders.retry.10m", Original: Place{"orders", -1, -1}},
		}
		about := cmp.Comparer(func(a, b time.Time) bool { return a.Sub(b).Abs() < time.Second })
		if diff := cmp.Diff(all, r.find(Query{Key: []byte("k")}).Records, about); diff != "" {
			t.Errorf("by key (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]Waiting{waits}, r.find(Query{MessageID: "m-1"}).Records, about); diff != "" {
			t.Errorf("by id (-want +got):\n%s", diff)
		}
		// A record that nobody has named yet is found by the name it will get.
		if got := r.find(Query{MessageID: "orders/3/43"}).Records; len(got) != 1 || got[0].Topic != "orders.retry" {
			t.Errorf("by the position: %+v", got)
		}
		for _, q := range []Query{{MessageID: "m-3"}, {MessageID: "k"}, {Key: []byte("K")}, {Key: []byte{}}} {
			if found := r.find(q); len(found.Records) != 0 || !found.Complete || found.Read != 6 {
				t.Errorf("%+v: %+v", q, found)
			}
		}
	})
}

func TestAnEmptyKeyIsNotAMissingOne(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		r.put("orders.retry.10s", "")
		r.client.Produce(&kgo.Record{Topic: "orders.retry.10s", Value: []byte("no key")})
		if got := r.find(Query{Key: []byte{}}).Records; len(got) != 1 {
			t.Errorf("%d records, want 1", len(got))
		}
	})
}

func TestWhatIsFinishedIsNotFound(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		const topic = "orders.retry.10s"
		for range 20 {
			r.put(topic, "k")
		}
		r.commitAt(testGroup, 5, ordering.Ranges{{From: 7, To: 9}, {From: 12, To: 19}})
		var got []int64
		found := r.find(Query{Key: []byte("k")})
		for _, w := range found.Records {
			got = append(got, w.Offset)
		}
		if diff := cmp.Diff([]int64{5, 6, 9, 10, 11, 19}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if found.Read != 15 {
			t.Errorf("%d offsets read, want 15", found.Read)
		}
	})
}

// A forwarder that runs is not disturbed, and what it forwarded is gone.
func TestAForwardedRecordIsNotFoundAnyMore(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		r.start()
		r.produce("orders.retry", 50, func(i int, rec *kgo.Record) { rec.Key = []byte("k" + strconv.Itoa(i%5)) })
		time.Sleep(5 * time.Second)
		found := r.find(Query{Key: []byte("k3")})
		if len(found.Records) != 10 {
			t.Errorf("%d records found while they wait, want 10", len(found.Records))
		}
		for _, w := range found.Records {
			if w.Topic != "orders.retry.10s" || w.Next != "orders" || w.Attempt != 1 {
				t.Errorf("%+v", w)
			}
		}
		before := len(r.kafka.GroupInfo(testGroup).Members)
		r.await(time.Minute, "orders", 50)
		r.committedAll("orders.retry", "orders.retry.10s")
		if got := r.find(Query{Key: []byte("k3")}).Records; len(got) != 0 {
			t.Errorf("found after it was forwarded: %+v", got)
		}
		if after := len(r.kafka.GroupInfo(testGroup).Members); before != 1 || after != 1 {
			t.Errorf("%d and %d members", before, after)
		}
	})
}

func TestASearchOfAnUndecidedPartitionBeginsAtItsStartAndSaysSo(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		const topic = "orders.retry.10s"
		for range 10 {
			r.put(topic, "k")
		}
		r.commitAt(testGroup, 1000, nil)
		found := r.find(Query{Key: []byte("k")})
		if len(found.Records) != 10 || len(found.Undecided) != 1 || found.Undecided[0].State != "offset-out-of-range" {
			t.Errorf("%+v", found)
		}
	})
}

func TestTheLimitEndsASearch(t *testing.T) {
	simulate(t, defaultLadder(), func(t *testing.T, r *rig) {
		for range 10 {
			r.put("orders.retry.10s", "k")
			r.put("orders.retry.1m", "k")
		}
		for limit, complete := range map[int]bool{1: false, 19: false, 20: true, 21: true} {
			found := r.find(Query{Key: []byte("k"), Limit: limit})
			if len(found.Records) != min(limit, 20) || found.Complete && !complete {
				t.Errorf("limit %d: %d records, complete %v", limit, len(found.Records), found.Complete)
			}
		}
		if found := r.find(Query{Key: []byte("k"), Limit: 21}); !found.Complete {
			t.Error("a search below its limit is not complete")
		}
	})
}

func TestOnlyTheTopicsOfAnOriginAreSearched(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		for _, topic := range []string{"carts.retry", "carts.retry.10s"} {
			r.client.CreateTopic(topic, partitions, nil)
		}
		policy, err := tiers.New(tiers.Options{
			Origin: "carts", Inbox: "carts.retry", DeadLetters: "carts.dlt",
			Tiers: []tiers.Tier{{Name: "10s", Topic: "carts.retry.10s", Delay: 10 * time.Second}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.opts.Topics = append(r.opts.Topics, Topic{Policy: policy})
		for _, topic := range []string{"carts.retry", "carts.retry.10s", "orders.retry.10s"} {
			r.put(topic, "k")
		}
		for origin, want := range map[string]int{"": 3, "orders": 1, "carts": 2} {
			if got := r.find(Query{Key: []byte("k"), Origin: origin}).Records; len(got) != want {
				t.Errorf("origin %q: %d records, want %d", origin, len(got), want)
			}
		}
		if _, err := r.operator().Find(t.Context(), Query{Key: []byte("k"), Origin: "cart", Limit: 1}, func(Progress) {}); err == nil {
			t.Error("an origin that is not there is searched")
		}
	})
}

// Records that were rolled back, or are not decided, are not there; the search
// ends all the same.
func TestASearchSeesWhatAForwarderSees(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		const topic = "orders.retry.10s"
		transact := func(id string, end func(*kgo.Client) error) {
			t.Helper()
			client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Brokers()...), kgo.Dialer(r.kafka.Dial),
				kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			if err := client.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("k")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := end(client); err != nil {
				t.Fatal(err)
			}
		}
		transact("a", func(c *kgo.Client) error { return c.EndTransaction(t.Context(), kgo.TryAbort) })
		transact("b", func(c *kgo.Client) error { return c.EndTransaction(t.Context(), kgo.TryCommit) })
		found := r.find(Query{Key: []byte("k")})
		if len(found.Records) != 1 || found.Records[0].Offset != 2 || !found.Complete {
			t.Errorf("%+v", found)
		}
		transact("c", func(*kgo.Client) error { return nil })
		if found := r.find(Query{Key: []byte("k")}); len(found.Records) != 1 || !found.Complete {
			t.Errorf("beside an open transaction: %+v", found)
		}
	})
}

func TestASearchTellsHowFarItIsAndEndsWithItsContext(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		r.produce("orders.retry.10s", 5000, func(_ int, rec *kgo.Record) {
			rec.Value = make([]byte, 2000) // Not to be compressed.
			_, _ = rand.Read(rec.Value)
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var seen []Progress
		o := r.operator()
		if _, err := o.Find(ctx, Query{MessageID: "x", Limit: 1}, func(p Progress) { seen = append(seen, p) }); err != nil {
			t.Fatal(err)
		}
		if last := seen[len(seen)-1]; last != (Progress{Read: 5000, Total: 5000}) {
			t.Errorf("the last progress is %+v", last)
		}
		if len(seen) < 2 {
			t.Errorf("progress was told %d times", len(seen))
		}
		found, err := o.Find(ctx, Query{Key: []byte("k1"), Limit: 100}, func(Progress) { cancel() })
		if !errors.Is(err, context.Canceled) || found.Complete {
			t.Errorf("a search that was interrupted ended with %+v and %v", found, err)
		}
	})
}

// A record that was rolled back may be the last before a transaction that is
// open: nobody can be shown anything there, and the search does not wait for ever.
func TestASearchThatIsHeldUpTellsWhatItFound(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		const topic = "orders.retry.10s"
		r.put(topic, "k")
		begin := func(id string) *kgo.Client {
			t.Helper()
			client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Brokers()...), kgo.Dialer(r.kafka.Dial),
				kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			err = client.BeginTransaction()
			if err == nil {
				err = client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("k")}).FirstErr()
			}
			if err != nil {
				t.Fatal(err)
			}
			return client
		}
		first := begin("a")
		begin("b")
		if err := first.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
		found, err := r.operator().Find(t.Context(), Query{Key: []byte("k"), Limit: 10}, func(Progress) {})
		if err == nil || len(found.Records) != 1 || found.Complete {
			t.Errorf("%+v %v", found, err)
		}
	})
}

// Who took a tier out of the configuration looks for what is still in it.
func TestTopicsThatWereTakenOutAreSearchedAndListed(t *testing.T) {
	simulate(t, defaultLadder(), func(t *testing.T, r *rig) {
		due := time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond)
		_, stop := r.start()
		r.put("orders.retry.10m", "k", envelope.HeaderOriginalTopic, "orders", envelope.HeaderAvailableAt, string(stamp(due)))
		time.Sleep(10 * time.Second)
		stop()
		r.put("orders.retry.10m", "k", envelope.HeaderOriginalTopic, "carts")
		policy, err := tiers.New(tiers.Options{
			Origin: "orders", Inbox: "orders.retry", DeadLetters: "orders.dlt",
			Tiers: []tiers.Tier{{Name: "10s", Topic: "orders.retry.10s", Delay: 10 * time.Second}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.opts.Topics = []Topic{{Policy: policy}}
		if row := r.positions("orders.retry.10m", 0); !row.Retired || row.State != StateOK || row.Lag == 0 {
			t.Errorf("%+v", row)
		}
		want := []Waiting{
			{Topic: "orders.retry.10m", Offset: 0, MessageID: "orders.retry.10m/0/0", Attempt: 1, Until: due, Next: "orders", Original: Place{"orders", -1, -1}},
		}
		if diff := cmp.Diff(want, r.find(Query{Key: []byte("k"), Origin: "orders"}).Records); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		stranded := Waiting{Topic: "orders.retry.10m", Offset: 1, MessageID: "orders.retry.10m/0/1", Original: Place{"carts", -1, -1}}
		if diff := cmp.Diff(append([]Waiting{stranded}, want...), r.find(Query{Key: []byte("k")}).Records); diff != "" {
			t.Errorf("of all origins (-want +got):\n%s", diff)
		}
	})
}
