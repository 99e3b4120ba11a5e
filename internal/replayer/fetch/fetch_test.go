package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type rig struct {
	t       *testing.T
	kafka   *testkit.VirtualKafka
	client  *testkit.TestClient
	fetcher *Fetcher
}

func simulate(t *testing.T, story func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := testkit.Virtual(t)
		r := &rig{t: t, kafka: cluster, client: cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))}
		var err error
		r.fetcher, err = New(Options{Kafka: kafka.Options{Brokers: cluster.Brokers(), Dialer: cluster.Dial}, Logger: testkit.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.fetcher.Close)
		story(t, r)
	})
}

func (r *rig) id(topic string) deadletter.TopicID {
	r.t.Helper()
	topics, err := r.fetcher.Topics(r.t.Context(), topic)
	if err != nil || topics[topic].Err != nil {
		r.t.Fatal(err, topics[topic].Err)
	}
	return topics[topic].ID
}

// fill writes n records to each partition and returns their places, partition by partition.
func (r *rig) fill(topic string, partitions int32, n int) []deadletter.Place {
	r.t.Helper()
	var places []deadletter.Place
	for p := range partitions {
		var records []*kgo.Record
		for i := range n {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Key: []byte("k" + strconv.Itoa(i)), Value: fmt.Appendf(nil, "%d/%d", p, i)})
		}
		r.client.Produce(records...)
		for _, rec := range records {
			places = append(places, deadletter.Place{TopicID: r.id(topic), Topic: topic, Partition: p, Offset: rec.Offset})
		}
	}
	return places
}

func (r *rig) fetch(places ...deadletter.Place) []Result {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	results, err := r.fetcher.Fetch(ctx, places)
	if err != nil {
		r.t.Fatal(err)
	}
	return results
}

func (r *rig) wantGone(result Result, why Why) {
	r.t.Helper()
	gone, ok := errors.AsType[*GoneError](result.Err)
	if !ok || gone.Why != why || !errors.Is(result.Err, ErrGone) {
		r.t.Errorf("error %v, want it gone: %s", result.Err, why)
	}
}

func TestRecordsComeByteForByteInTheOrderOfThePlaces(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.client.CreateTopic("orders.dlt", 2, nil)
		records := []*kgo.Record{
			{Topic: "orders.dlt", Partition: 1, Key: nil, Value: nil},
			{Topic: "orders.dlt", Partition: 1, Key: []byte{}, Value: []byte{}, Headers: []kgo.RecordHeader{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "", Value: []byte{0, 0xff}}}},
			{Topic: "orders.dlt", Partition: 0, Key: []byte{0xff, 0}, Value: bytes.Repeat([]byte("x"), 300_000)},
		}
		r.client.Produce(records...)
		var places []deadletter.Place
		for _, rec := range records {
			places = append(places, deadletter.Place{TopicID: r.id("orders.dlt"), Topic: "orders.dlt", Partition: rec.Partition, Offset: rec.Offset})
		}
		places = append(places, places[0]) // The same place twice is two results.
		for i, result := range r.fetch(places...) {
			want := records[i%len(records)]
			if result.Err != nil {
				t.Fatal(result.Err)
			}
			got := result.Payload
			if deadletter.Digest(got.Key, got.Value, got.Headers) != deadletter.Digest(want.Key, want.Value, want.Headers) {
				t.Errorf("place %d: the record is another one", i)
			}
			if (got.Key == nil) != (want.Key == nil) || (got.Value == nil) != (want.Value == nil) {
				t.Errorf("place %d: nil and empty are mixed up", i)
			}
			if result.Timestamp.UnixMilli() != want.Timestamp.UnixMilli() {
				t.Errorf("place %d: timestamp %v, want %v", i, result.Timestamp, want.Timestamp)
			}
		}
	})
}

// Letters in a row must not cost a request each: replay goes at the speed of this.
func TestLettersInARowComeWithFewRequests(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.client.CreateTopic("orders.dlt", 4, nil)
		places := r.fill("orders.dlt", 4, 500)
		requests := 0
		r.kafka.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			requests++
			r.kafka.KeepControl()
			return nil, nil, false
		})
		for batch := range 4 {
			for i, result := range r.fetch(places[batch*500 : (batch+1)*500]...) {
				if want := fmt.Sprintf("%d/%d", batch, i); result.Err != nil || string(result.Payload.Value) != want {
					t.Fatalf("%q, %v, want %q", result.Payload.Value, result.Err, want)
				}
			}
		}
		if requests > 8 {
			t.Errorf("%d requests for 4 batches of letters in a row", requests)
		}
	})
}

func TestPlacesFarApartAreSoughtAndNotReadThrough(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.client.CreateTopic("orders.dlt", 1, nil)
		var places []deadletter.Place
		for range 20 { // Each in a batch of its own.
			places = append(places, r.fill("orders.dlt", 1, 200)...)
		}
		read := 0
		r.kafka.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			read += int(req.(*kmsg.FetchRequest).Topics[0].Partitions[0].PartitionMaxBytes)
			r.kafka.KeepControl()
			return nil, nil, false
		})
		for i, result := range r.fetch(places[3990], places[10], places[2000]) {
			if want := []string{"0/190", "0/10", "0/0"}[i]; result.Err != nil || string(result.Payload.Value) != want {
				t.Errorf("%q, %v, want %q", result.Payload.Value, result.Err, want)
			}
		}
		if read > 3*(minRead+2048) {
			t.Errorf("%d bytes were asked for", read)
		}
	})
}

func TestWhatIsBelowTheLogStartIsGone(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.client.CreateTopic("orders.dlt", 1, nil)
		places := r.fill("orders.dlt", 1, 10)
		r.client.DeleteRecords("orders.dlt", map[int32]int64{0: 6})
		results := r.fetch(places...)
		for i, result := range results {
			if i < 6 {
				r.wantGone(result, BelowStart)
			} else if result.Err != nil || string(result.Payload.Value) != "0/"+strconv.Itoa(i) {
				t.Errorf("offset %d: %q, %v", i, result.Payload.Value, result.Err)
			}
		}
	})
}

func TestWhatIsAboveTheEndIsGoneOnlyAfterItWasSaidAgain(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.client.CreateTopic("orders.dlt", 1, nil)
		places := r.fill("orders.dlt", 1, 3)
		for _, offset := range []int64{3, 4000} {
			place := places[0]
			place.Offset = offset
			began := time.Now()
			results := r.fetch(place, places[1])
			r.wantGone(results[0], AboveEnd)
			if results[1].Err != nil {
				t.Error(results[1].Err)
			}
			if time.Since(began) < 2*doubtWait {
				t.Errorf("it was believed at once")
			}
		}
	})
}

// Bug scenario 46: what a producer rolled back is never replayed.
func TestRecordsOfAnAbortedTransactionAndMarkersAreHoles(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.client.CreateTopic("orders.dlt", 1, nil)
		producer, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Brokers()...), kgo.Dialer(r.kafka.Dial), kgo.TransactionalID("t"),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		for i, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders.dlt", Value: []byte(strconv.Itoa(i))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := producer.EndTransaction(t.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		id := r.id("orders.dlt")
		var places []deadletter.Place
		for offset := range int64(4) { // aborted, marker, committed, marker
			places = append(places, deadletter.Place{TopicID: id, Topic: "orders.dlt", Offset: offset})
		}
		results := r.fetch(places...)
		for _, i := range []int{0, 1, 3} {
			r.wantGone(results[i], Hole)
		}
		if results[2].Err != nil || string(results[2].Payload.Value) != "1" {
			t.Errorf("the committed record: %q, %v", results[2].Payload.Value, results[2].Err)
		}
	})
}

// The offsets of a topic that was made again name other records.
func TestATopicMadeAgainIsAnotherOne(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.client.CreateTopic("orders.dlt", 1, nil)
		places := r.fill("orders.dlt", 1, 3)
		r.fetch(places...) // Nothing is left to be served from what was read ahead.
		if _, err := r.client.Admin().DeleteTopics(t.Context(), "orders.dlt"); err != nil {
			t.Fatal(err)
		}
		r.wantGone(r.fetch(places[2])[0], TopicDeleted)
		r.client.CreateTopic("orders.dlt", 1, nil)
		r.client.Kafka().PurgeTopicsFromProducing("orders.dlt")
		again := r.fill("orders.dlt", 1, 3)
		r.wantGone(r.fetch(places[2])[0], TopicRecreated)
		if results := r.fetch(again[1]); results[0].Err != nil || string(results[0].Payload.Value) != "0/1" {
			t.Errorf("the new topic: %q, %v", results[0].Payload.Value, results[0].Err)
		}
	})
}

func TestBrokerTroubleIsWaitedForAndShown(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.client.CreateTopic("orders.dlt", 1, nil)
		places := r.fill("orders.dlt", 1, 3)
		ends := time.Now().Add(20 * time.Second)
		r.kafka.ControlKey(int16(kmsg.Fetch), func(raw kmsg.Request) (kmsg.Response, error, bool) {
			if !time.Now().Before(ends) {
				return nil, nil, false
			}
			r.kafka.KeepControl()
			req := raw.(*kmsg.FetchRequest)
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			for _, topic := range req.Topics {
				rt := kmsg.NewFetchResponseTopic()
				rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.ErrorCode = topic.Partitions[0].Partition, kerr.TopicAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, p)
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil, true
		})
		time.AfterFunc(10*time.Second, func() {
			if troubles := r.fetcher.Troubles(); len(troubles) != 1 || troubles[0].Topic != "orders.dlt" {
				t.Errorf("troubles %v", troubles)
			}
		})
		if results := r.fetch(places[1]); results[0].Err != nil || string(results[0].Payload.Value) != "0/1" {
			t.Errorf("%q, %v", results[0].Payload.Value, results[0].Err)
		}
		if troubles := r.fetcher.Troubles(); len(troubles) != 0 {
			t.Errorf("troubles that are over: %v", troubles)
		}

		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		cancel(enough)
		if _, err := r.fetcher.Fetch(ctx, places); !errors.Is(err, enough) && !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

func TestScanReadsFromOneOffsetToAnotherAlsoWhatIsNotCommitted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.client.CreateTopic("orders", 1, nil)
		r.fill("orders", 1, 1500)
		r.client.DeleteRecords("orders", map[int32]int64{0: 100})
		scan := func(from, to int64, until int64) (first, last int64, n int) {
			first, last = -1, -1
			err := r.fetcher.Scan(t.Context(), "orders", 0, from, to, func(rec *kgo.Record) bool {
				if first < 0 {
					first = rec.Offset
				}
				last = rec.Offset
				n++
				return rec.Offset != until
			})
			if err != nil {
				t.Fatal(err)
			}
			return first, last, n
		}
		for _, c := range []struct{ from, to, until, first, last, n int64 }{
			{700, 1400, -1, 700, 1399, 700},
			{0, 200, -1, 100, 199, 100},      // Retention removed the first ones.
			{1490, 5000, -1, 1490, 1499, 10}, // The log was cut.
			{700, 1400, 800, 700, 800, 101},  // Enough was seen.
			{1500, 1500, -1, -1, -1, 0},      // Nothing is to be read.
			{20_000, 30_000, -1, -1, -1, 0},  // Nothing is there.
		} {
			if first, last, n := scan(c.from, c.to, c.until); first != c.first || last != c.last || n != int(c.n) {
				t.Errorf("from %d to %d: %d to %d, %d records", c.from, c.to, first, last, n)
			}
		}
		err := r.fetcher.Scan(t.Context(), "nowhere", 0, 0, 10, func(*kgo.Record) bool { t.Error("a record"); return true })
		if err != nil {
			t.Error(err)
		}
	})
}

func TestStartsAndEndsAreThoseOfTheLog(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.client.CreateTopic("orders", 6, nil)
		r.fill("orders", 6, 7)
		r.client.DeleteRecords("orders", map[int32]int64{0: 2})
		var all []Partition
		for p := range int32(6) {
			all = append(all, Partition{"orders", p})
		}
		starts, err := r.fetcher.Starts(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		ends, err := r.fetcher.Ends(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			want := int64(0)
			if p.Partition == 0 {
				want = 2
			}
			if starts[p] != want || ends[p] != 7 {
				t.Errorf("%v: %d to %d", p, starts[p], ends[p])
			}
		}
		if _, err := r.fetcher.Ends(t.Context(), []Partition{{"nowhere", 0}}); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("a missing topic: %v", err)
		}
	})
}
