package forwarder

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
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

func TestARecordComesBackWhenItsTierIsOver(t *testing.T) {
	simulate(t, defaultLadder(), func(t *testing.T, r *rig) {
		r.start()
		began := time.Now()
		r.produce("orders.retry", 1, nil)
		got := r.await(time.Hour, "orders", 1)[0]
		if wait := time.Since(began); wait < 10*time.Second || wait > 11*time.Second {
			t.Errorf("the record came back after %s, its tier is 10s", wait)
		}
		if string(got.Key) != "k0" || string(got.Value) != "v0" {
			t.Errorf("record changed: key %q value %q", got.Key, got.Value)
		}
		if v, n := header(got, envelope.HeaderAttempt); v != "1" || n != 1 {
			t.Errorf("attempt = %q, %d times", v, n)
		}
	})
}

// A record that always fails waits each tier's own delay, is delivered four
// times in all, keeps its id, and is a dead letter after that.
func TestEachHopWaitsItsOwnTierAndTheLadderEndsInTheDeadLetters(t *testing.T) {
	simulate(t, defaultLadder(), func(t *testing.T, r *rig) {
		seen := r.consume(everything)
		r.start()
		r.produce("orders", 1, nil)
		time.Sleep(11 * time.Minute)
		letter := r.await(2*time.Hour, "orders.dlt", 1)[0]

		deliveries := seen()["k0"]
		if len(deliveries) != 4 {
			t.Fatalf("%d deliveries, want 4", len(deliveries))
		}
		for i, delay := range []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute} {
			wait := deliveries[i+1].at.Sub(deliveries[i].at)
			if wait < delay || wait > delay+time.Second {
				t.Errorf("hop %d waited %s, its tier is %s", i+1, wait, delay)
			}
		}
		for i, d := range deliveries[1:] {
			if v, n := header(d.rec, envelope.HeaderAttempt); v != strconv.Itoa(i+1) || n != 1 {
				t.Errorf("delivery %d: attempt %q, %d times", i+2, v, n)
			}
			if v, n := header(d.rec, envelope.HeaderMessageID); v != "orders/"+strconv.Itoa(int(deliveries[0].rec.Partition))+"/0" || n != 1 {
				t.Errorf("delivery %d: message id %q, %d times", i+2, v, n)
			}
		}
		if v, _ := header(letter, envelope.HeaderReason); v != string(envelope.ReasonExhausted) {
			t.Errorf("reason %q, want exhausted", v)
		}
		if v, _ := header(letter, envelope.HeaderAttempt); v != "4" {
			t.Errorf("attempt of the letter %q, want 4", v)
		}
		if v, n := header(letter, envelope.HeaderErrorType); v != "test" || n != 1 {
			t.Errorf("error type %q, %d times", v, n)
		}
	})
}

func TestPoisonIsADeadLetterAtOnce(t *testing.T) {
	simulate(t, defaultLadder(), func(t *testing.T, r *rig) {
		r.start()
		for _, topic := range []string{"orders.retry", "orders.retry.10m"} {
			r.produce(topic, 1, func(_ int, rec *kgo.Record) {
				rec.Headers = []kgo.RecordHeader{{Key: envelope.HeaderReason, Value: []byte("poison")}}
			})
		}
		began := time.Now()
		for _, letter := range r.await(time.Hour, "orders.dlt", 2) {
			if v, _ := header(letter, envelope.HeaderReason); v != "poison" {
				t.Errorf("reason %q, want poison", v)
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the letters took %s", took)
		}
		if ends := r.client.EndOffsets("orders"); sum(ends) != 0 {
			t.Errorf("%d records on the origin", sum(ends))
		}
	})
}

func sum(ends map[int32]int64) (n int64) {
	for _, end := range ends {
		n += end
	}
	return n
}

// A wait far beyond session and rebalance timeouts: nobody is expelled and
// nothing is sent twice.
func TestATierLongerThanTheSessionRepeatsNothing(t *testing.T) {
	ladder := []tiers.Tier{{Name: "3h", Delay: 3 * time.Hour}}
	simulate(t, ladder, func(t *testing.T, r *rig) {
		f, _ := r.start()
		r.produce("orders.retry", 100, nil)
		time.Sleep(3 * time.Hour)
		r.await(time.Hour, "orders", 100)
		r.committedAll("orders.retry", "orders.retry.3h")
		if got := r.client.ReadAll("orders", kgo.ReadCommitted()); len(got) != 100 {
			t.Errorf("%d records on the origin, want 100", len(got))
		}
		if status := f.Status(); len(status.Troubles) != 0 {
			t.Errorf("troubles: %+v", status.Troubles)
		}
	})
}

// The member bounces while a record waits, so that its partition moves away
// and back with a pause in between.
func TestAPartitionThatMovesAwayAndBackStillForwards(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "1m", Delay: time.Minute}}, func(t *testing.T, r *rig) {
		small := func(o *Options) { o.MaxHeldBytesPerPartition = 2000 } // so that every partition is paused
		r.start(small)
		r.produce("orders.retry.1m", 200, nil)
		began := time.Now()
		time.Sleep(5 * time.Second)
		for range 3 {
			_, stop := r.start(small)
			time.Sleep(8 * time.Second)
			stop()
			time.Sleep(8 * time.Second)
		}
		got := r.await(10*time.Minute, "orders", 200)
		if late := time.Since(began) - time.Minute; late > 5*time.Second {
			t.Errorf("the last record came %s late", late)
		}
		if len(got) != 200 {
			t.Errorf("%d records on the origin, want 200: a rebalance sent some twice", len(got))
		}
	})
}

func TestARebalanceWithHeldRecordsLosesAndCommitsNothing(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "1h", Delay: time.Hour}}, func(t *testing.T, r *rig) {
		_, stop := r.start()
		r.produce("orders.retry.1h", 500, nil)
		time.Sleep(10 * time.Second)
		r.start()
		time.Sleep(time.Minute)
		stop()
		time.Sleep(time.Minute)
		for _, offsets := range r.client.CommittedOffsets("redrive-forwarder")["orders.retry.1h"] {
			if offsets.At != 0 {
				t.Errorf("partition %d: commit at %d, nothing was forwarded", offsets.Partition, offsets.At)
			}
		}
		time.Sleep(50 * time.Minute)
		if got := r.await(2*time.Hour, "orders", 500); len(got) != 500 {
			t.Errorf("%d records on the origin, want 500", len(got))
		}
	})
}

// More waits than the budget holds: partitions are paused and resumed, and
// what was fetched meanwhile is read again.
func TestAPausedPartitionLosesNothing(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "1m", Delay: time.Minute}}, func(t *testing.T, r *rig) {
		f, _ := r.start(func(o *Options) { o.MaxHeldBytesPerPartition = 20_000 })
		r.produce("orders.retry.1m", 2000, func(_ int, rec *kgo.Record) { rec.Value = make([]byte, 500) })
		time.Sleep(30 * time.Second)
		status := topicStatus(f, "orders.retry.1m")
		if status.Paused == 0 {
			t.Error("no partition is paused above its budget")
		}
		got := r.await(time.Hour, "orders", 2000)
		if len(got) != 2000 {
			t.Errorf("%d records on the origin, want 2000", len(got))
		}
		r.committedAll("orders.retry.1m")
		status = topicStatus(f, "orders.retry.1m")
		if status.HeldBytes != 0 || status.HeldRecords != 0 || status.Overdue != 0 || status.Paused != 0 {
			t.Errorf("after the drain: %+v", status)
		}
	})
}

func topicStatus(f *Forwarder, topic string) TopicStatus {
	for _, s := range f.Status().Topics {
		if s.Topic == topic {
			return s
		}
	}
	return TopicStatus{}
}

// Thousands due in one instant, and staggered ones after them: the wait of one
// is not the wait of the next.
func TestLatenessDoesNotGrowWithTheNumberOfRecords(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		seen := r.consume(func(*kgo.Record, int) bool { return false })
		r.start()
		time.Sleep(5 * time.Second)
		due := time.Now().Add(8 * time.Second).Truncate(time.Millisecond)
		r.produce("orders.retry.10s", 6000, func(i int, rec *kgo.Record) {
			at := due
			if i >= 5000 {
				at = due.Add(time.Duration(i-5000) * time.Millisecond)
			}
			rec.Headers = []kgo.RecordHeader{{Key: envelope.HeaderAvailableAt, Value: []byte(at.UTC().Format("2006-01-02T15:04:05.000Z07:00"))}}
		})
		testkit.WaitFor(t, time.Hour, "all deliveries", func(context.Context) error {
			if n := len(seen()); n < 6000 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		for key, d := range seen() {
			i, _ := strconv.Atoi(key[1:])
			at := due
			if i >= 5000 {
				at = due.Add(time.Duration(i-5000) * time.Millisecond)
			}
			if late := d[0].at.Sub(at); late < 0 || late > time.Second {
				t.Fatalf("record %d came %s after its due time", i, late)
			}
		}
	})
}

// Whatever the producers' partitioner is, a record returns to the partition it
// came from; only when the count has changed the configured partitioner decides.
func TestAKeyReturnsToThePartitionItsProducerUses(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		foreign := func(key []byte) int32 { // a partitioner that Redrive does not know
			h := fnv.New64()
			_, _ = h.Write(key)
			return int32(h.Sum64() % partitions)
		}
		seen := r.consume(func(_ *kgo.Record, nth int) bool { return nth == 1 })
		r.start()
		producer, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Brokers()...), kgo.Dialer(r.kafka.Dial),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		for i := range 100 {
			key := []byte("k" + strconv.Itoa(i))
			if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Key: key, Partition: foreign(key)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		r.await(time.Hour, "orders", 200)
		used := map[int32]bool{}
		for key, d := range seen() {
			for _, each := range d {
				used[each.rec.Partition] = true
				if each.rec.Partition != foreign([]byte(key)) {
					t.Errorf("key %s came back on partition %d", key, each.rec.Partition)
				}
			}
		}
		if len(used) != partitions {
			t.Errorf("%d partitions used, want %d", len(used), partitions)
		}
	})
}

func TestWithoutAPositionTheConfiguredPartitionerRoutes(t *testing.T) {
	for _, p := range []kafka.Partitioner{kafka.Murmur2, kafka.CRC32, kafka.FNV1a} {
		t.Run(string(p), func(t *testing.T) {
			simulate(t, []tiers.Tier{{Name: "1s", Delay: time.Second}}, func(t *testing.T, r *rig) {
				r.start(func(o *Options) { o.Topics[0].Partitioner = p })
				r.produce("orders.retry", 50, nil)
				for _, rec := range r.await(time.Hour, "orders", 50) {
					if want := int32(p.Partition(rec.Key, partitions)); rec.Partition != want {
						t.Errorf("key %s went to partition %d, %s says %d", rec.Key, rec.Partition, p, want)
					}
				}
			})
		})
	}
}

// The origin grows while a record waits: its old number no longer routes the
// key, so the partitioner does.
func TestAGrownOriginRoutesByThePartitioner(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10m", Delay: 10 * time.Minute}}, func(t *testing.T, r *rig) {
		r.start()
		r.produce("orders.retry", 40, func(i int, rec *kgo.Record) {
			rec.Headers = []kgo.RecordHeader{
				{Key: envelope.HeaderOriginalTopic, Value: []byte("orders")},
				{Key: envelope.HeaderOriginalPartition, Value: []byte("0")},
				{Key: envelope.HeaderOriginalOffset, Value: []byte(strconv.Itoa(i))},
			}
		})
		time.Sleep(time.Minute)
		if _, err := r.client.Admin().CreatePartitions(t.Context(), 8, "orders"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Minute)
		for _, rec := range r.await(time.Hour, "orders", 40) {
			if want := int32(kafka.Murmur2.Partition(rec.Key, partitions+8)); rec.Partition != want {
				t.Errorf("key %s went to partition %d, want %d", rec.Key, rec.Partition, want)
			}
		}
	})
}

func TestBytesSurviveEveryHop(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "1s", Delay: time.Second}, {Name: "2s", Delay: 2 * time.Second}}, func(t *testing.T, r *rig) {
		r.consume(everything)
		r.start()
		random := rand.New(rand.NewPCG(1, 2))
		blob := func() []byte {
			switch n := random.IntN(6); n {
			case 0:
				return nil
			case 1:
				return []byte{}
			default:
				b := make([]byte, random.IntN(60))
				for i := range b {
					b[i] = byte(random.Uint32())
				}
				return b
			}
		}
		const n = 1000
		sent := map[string]*kgo.Record{}
		r.produce("orders", n, func(i int, rec *kgo.Record) {
			rec.Key, rec.Value = blob(), blob()
			rec.Headers = []kgo.RecordHeader{{Key: "id", Value: []byte(strconv.Itoa(i))}}
			for range random.IntN(5) {
				rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: string(blob()), Value: blob()})
			}
			if random.IntN(4) == 0 {
				rec.Headers = append(rec.Headers, rec.Headers...)
			}
			sent[strconv.Itoa(i)] = &kgo.Record{Key: rec.Key, Value: rec.Value, Headers: slices.Clone(rec.Headers)}
		})
		for _, topic := range []string{"orders.dlt", "orders"} {
			for _, got := range r.await(time.Hour, topic, n) {
				id, _ := header(got, "id")
				if diff := fidelity(sent[id], got); diff != "" {
					t.Fatalf("%s: record %s: %s", topic, id, diff)
				}
			}
		}
	})
}

// fidelity says what of a record is not as it was, but for the own headers.
func fidelity(want, got *kgo.Record) string {
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	if !same(want.Key, got.Key) || !same(want.Value, got.Value) {
		return fmt.Sprintf("key %q value %q, want %q %q", got.Key, got.Value, want.Key, want.Value)
	}
	own := map[string]int{}
	var foreign []kgo.RecordHeader
	for _, h := range got.Headers {
		if len(h.Key) >= 8 && h.Key[:8] == "redrive-" {
			if own[h.Key]++; own[h.Key] > 1 {
				return "repeated " + h.Key
			}
			continue
		}
		foreign = append(foreign, h)
	}
	if !slices.EqualFunc(want.Headers, foreign, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && same(a.Value, b.Value) }) {
		return fmt.Sprintf("headers %q, want %q", foreign, want.Headers)
	}
	return ""
}

// The produce fails although the broker is there: the offset must not move,
// and nothing may become a dead letter.
func TestATransientProduceErrorIsWaitedFor(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.TopicAuthorizationFailed, kerr.UnknownServerError} {
		t.Run(code.Message, func(t *testing.T) {
			simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
				fault := r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: code, Count: -1})
				f, _ := r.start()
				r.produce("orders.retry.10s", 50, nil)
				time.Sleep(5 * time.Minute)
				for p, o := range r.client.CommittedOffsets("redrive-forwarder")["orders.retry.10s"] {
					if o.At != 0 {
						t.Errorf("partition %d: commit at %d while nothing can be written", p, o.At)
					}
				}
				status := topicStatus(f, "orders.retry.10s")
				if status.Frozen == 0 && status.InFlightAge < time.Minute {
					t.Errorf("nothing shows the fault: %+v", status)
				}
				if len(f.Status().Troubles) == 0 {
					t.Error("no trouble names the fault")
				}
				fault.Remove()
				got := r.await(10*time.Minute, "orders", 50)
				if len(got) != 50 {
					t.Errorf("%d records on the origin, want 50", len(got))
				}
				r.committedAll("orders.retry.10s")
				if n := sum(r.client.EndOffsets("orders.dlt")); n != 0 {
					t.Errorf("%d records became dead letters of a transient fault", n)
				}
				if troubles := f.Status().Troubles; len(troubles) != 0 {
					t.Errorf("troubles after the fault: %+v", troubles)
				}
			})
		})
	}
}

// One record that the origin refuses must not stop its neighbours, nor take
// them with it.
func TestARefusedRecordIsADeadLetterAndItsNeighboursAreNot(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		// The broker refuses every batch that holds the poison.
		r.kafka.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.kafka.KeepControl()
			produce := req.(*kmsg.ProduceRequest)
			for _, topic := range produce.Topics {
				for _, p := range topic.Partitions {
					if bytes.Contains(p.Records, []byte("POISON")) && r.isOrigin(topic) {
						return r.refuse(produce, kerr.InvalidRecord), nil, true
					}
				}
			}
			return nil, nil, false
		})
		f, _ := r.start()
		r.produce("orders.retry.10s", 300, func(i int, rec *kgo.Record) {
			rec.Key = []byte("one partition, as a broker refuses batches of one partition")
			if i%100 == 50 {
				rec.Value = []byte("POISON")
			}
		})
		letters := r.await(time.Hour, "orders.dlt", 3)
		got := r.await(time.Hour, "orders", 297)
		if len(letters) != 3 || len(got) != 297 {
			t.Errorf("%d letters and %d records, want 3 and 297", len(letters), len(got))
		}
		for _, letter := range letters {
			if string(letter.Value) != "POISON" {
				t.Errorf("a neighbour became a dead letter: %q", letter.Value)
			}
			if v, _ := header(letter, envelope.HeaderReason); v != string(envelope.ReasonUnroutable) {
				t.Errorf("reason %q", v)
			}
		}
		r.committedAll("orders.retry.10s")
		if troubles := f.Status().Troubles; len(troubles) != 0 {
			t.Errorf("troubles: %+v", troubles)
		}
	})
}

func TestEqualWaitsKeepTheirOrder(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		r.start()
		const n = 2000
		for i := range 4 {
			r.produce("orders.retry", n/4, func(j int, rec *kgo.Record) {
				rec.Key = []byte("one key")
				rec.Value = []byte(strconv.Itoa(i*n/4 + j))
			})
			time.Sleep(time.Second)
		}
		for i, rec := range r.await(time.Hour, "orders", n) {
			if string(rec.Value) != strconv.Itoa(i) {
				t.Fatalf("record %s of the key came as number %d", rec.Value, i)
			}
		}
	})
}
