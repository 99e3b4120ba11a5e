package forwarder

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

func own(name, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: name, Value: []byte(value)}
}

// limitBytes sets max.message.bytes of a topic.
func (r *rig) limitBytes(topic string, limit int) {
	r.t.Helper()
	value := strconv.Itoa(limit)
	changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}
	responses, err := r.client.Admin().AlterTopicConfigs(r.t.Context(), changes, topic)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, response := range responses {
		if response.Err != nil {
			r.t.Fatal(response.Err)
		}
	}
}

// noise is what no compressor makes smaller.
func noise(random *rand.Rand, n int) []byte {
	raw := make([]byte, n)
	for i := range raw {
		raw[i] = byte(random.Uint32())
	}
	return raw
}

// words is text that no compressor makes much smaller.
func words(random *rand.Rand, n int) string {
	return base64.StdEncoding.EncodeToString(noise(random, n))[:n]
}

// Our own texts make the copy too large for its topic: they go, the record stays, and nobody waits for it.
func TestTextsOfOursThatMakeACopyTooLargeAreLeftOut(t *testing.T) {
	for name, test := range map[string]struct {
		verdict string
		ends    string
	}{
		"in a tier":           {"", "orders"},
		"in the dead letters": {"poison", "orders.dlt"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
				random := rand.New(rand.NewPCG(1, 14))
				for _, topic := range []string{"orders.retry.10s", "orders.dlt"} {
					r.limitBytes(topic, 20_000)
				}
				r.start()
				began := time.Now()
				value := noise(random, 18_000)
				r.produce("orders.retry", 21, func(i int, rec *kgo.Record) {
					rec.Key = []byte("one partition")
					if i != 10 {
						return
					}
					rec.Value = value
					rec.Headers = []kgo.RecordHeader{
						own("trace", "kept"), own(envelope.HeaderErrorMessage, words(random, 30_000)), own(envelope.HeaderErrorType, words(random, 30_000)),
						own(envelope.HeaderConsumer, words(random, 30_000)), own(envelope.HeaderMessageID, "the large one"),
						own(envelope.HeaderAttempt, words(random, 2000)), own(envelope.HeaderRetryAfter, words(random, 2000)),
					}
					if test.verdict != "" {
						rec.Headers = append(rec.Headers, own(envelope.HeaderReason, test.verdict))
					}
				})
				want := map[string]int{"orders": 21}
				if test.verdict != "" {
					want = map[string]int{"orders": 20, "orders.dlt": 1}
				}
				found := false
				for topic, n := range want {
					got := r.await(time.Minute, topic, n)
					if len(got) != n {
						t.Errorf("%d records in %s, want %d", len(got), topic, n)
					}
					for _, rec := range got {
						id, _ := header(rec, envelope.HeaderMessageID)
						if id != "the large one" {
							continue
						}
						found = true
						if trace, _ := header(rec, "trace"); topic != test.ends || !bytes.Equal(rec.Value, value) || trace != "kept" {
							t.Errorf("in %s: %d bytes, trace %q", topic, len(rec.Value), trace)
						}
						if _, n := header(rec, envelope.HeaderErrorMessage); n != 0 {
							t.Error("the error message is still there")
						}
					}
				}
				if !found {
					t.Error("the large record is at no end")
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("it took %s", took)
				}
				r.committedAll("orders.retry", "orders.retry.10s")
			})
		})
	}
}

func TestAFatalVerdictIsADeadLetterFromTheInboxAndFromEveryTier(t *testing.T) {
	for name, ladder := range map[string][]tiers.Tier{"one tier": {{Name: "10m", Delay: 10 * time.Minute}}, "three tiers": defaultLadder()} {
		t.Run(name, func(t *testing.T) {
			simulate(t, ladder, func(t *testing.T, r *rig) {
				r.start()
				began := time.Now()
				verdicts := []kgo.RecordHeader{own(envelope.HeaderReason, "poison"), own(envelope.HeaderReason, "permanent"), own(envelope.HeaderAction, "dead")}
				topics := []string{"orders.retry"}
				for _, tier := range ladder {
					topics = append(topics, "orders.retry."+tier.Name)
				}
				for _, topic := range topics {
					r.produce(topic, len(verdicts), func(i int, rec *kgo.Record) {
						rec.Headers = []kgo.RecordHeader{verdicts[i], attempt(1), own(envelope.HeaderRetryAfter, "1h")}
					})
				}
				n := len(verdicts) * len(topics)
				reasons := ids(r.await(time.Minute, "orders.dlt", n), envelope.HeaderReason)
				if reasons["poison"] != len(topics) || reasons["permanent"] != 2*len(topics) {
					t.Errorf("reasons %v", reasons)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("the letters took %s", took)
				}
				if n := sum(r.client.EndOffsets("orders")); n != 0 {
					t.Errorf("%d records on the origin", n)
				}
				r.committedAll(topics...)
			})
		})
	}
}

// What a due time says that cannot be, counts for nothing: the record waits its tier's delay, is counted, and keeps nobody
// from being on time.
func TestAForgedDueTimeNeitherHoldsUpNorHurriesAnybody(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "1m", Delay: time.Minute}}, func(t *testing.T, r *rig) {
		reg := prometheus.NewPedanticRegistry()
		r.start(func(o *Options) { o.Registerer = reg })
		forged := []string{
			"9223372036854775807", "-9223372036854775808", "-1", "0", "", "\x00\x00\x00\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00\x01", "NaN",
			"\xff\xfe", "never", "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59-23:59", "10000-01-01T00:00:00Z", "2026-02-31T00:00:00.000Z", strings.Repeat("9", 100_000),
		}
		began := time.Now()
		for _, topic := range []string{"orders.retry", "orders.retry.1m"} {
			r.produce(topic, 2*len(forged), func(i int, rec *kgo.Record) {
				rec.Key = []byte("one partition")
				rec.Headers = []kgo.RecordHeader{own("n", fmt.Sprint(topic, i))}
				if i%2 == 1 {
					rec.Headers = append(rec.Headers, own(envelope.HeaderAvailableAt, forged[i/2]))
				}
			})
		}
		// In the past is not forged: it means now.
		r.produce("orders.retry.1m", 1, func(_ int, rec *kgo.Record) {
			rec.Headers = []kgo.RecordHeader{own("n", "past"), own(envelope.HeaderAvailableAt, "1970-01-01T00:00:00.000Z")}
		})
		if got := r.await(10*time.Second, "orders", 1); len(got) != 1 {
			t.Errorf("%d records came at once, want the one that is due", len(got))
		}
		n := 4*len(forged) + 1
		got := r.await(10*time.Minute, "orders", n)
		if len(ids(got, "n")) != n {
			t.Errorf("%d different records came back, want %d", len(ids(got, "n")), n)
		}
		for _, rec := range got {
			v, _ := header(rec, "n")
			wait := rec.Timestamp.Sub(began)
			if v != "past" && (wait < time.Minute || wait > time.Minute+2*time.Second) {
				t.Errorf("record %s waited %s, its tier is 1m", v, wait)
			}
		}
		r.committedAll("orders.retry", "orders.retry.1m")
		// Two of the values can be read, and are a wish beyond the limit in the inbox.
		if clamped := counted(t, reg, "redrive_records_clamped_total"); clamped != float64(2*len(forged)) {
			t.Errorf("%v records are counted as clamped, want %d", clamped, 2*len(forged))
		}
	})
}

// counted is the sum of a counter.
func counted(t *testing.T, reg prometheus.Gatherer, name string) (total float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				total += m.GetCounter().GetValue()
			}
		}
	}
	return total
}

// Members come and go in the wait of every tier: the attempt is what the header says, so that it never falls, and the
// dead letter comes after exactly so many deliveries.
func TestAttemptsSurviveMembersThatBounceInEveryWait(t *testing.T) {
	simulate(t, defaultLadder(), func(t *testing.T, r *rig) {
		const n = 20
		seen := r.consume(everything)
		r.start()
		time.Sleep(5 * time.Second)
		r.produce("orders", n, nil)
		for range 45 { // 12 minutes, the whole ladder.
			_, stop := r.start()
			time.Sleep(8 * time.Second)
			stop()
			time.Sleep(8 * time.Second)
		}
		letters := r.await(time.Hour, "orders.dlt", n)
		if len(letters) != n {
			t.Errorf("%d letters, want %d", len(letters), n)
		}
		for key, deliveries := range seen() {
			if len(deliveries) != 4 {
				t.Errorf("%s was delivered %d times, want 4", key, len(deliveries))
			}
			for i, d := range deliveries[1:] {
				if v, _ := header(d.rec, envelope.HeaderAttempt); v != strconv.Itoa(i+1) {
					t.Errorf("%s, delivery %d: attempt %q", key, i+2, v)
				}
			}
		}
		for _, letter := range letters {
			failed, _ := header(letter, envelope.HeaderAttempt)
			total, _ := header(letter, envelope.HeaderDeliveries)
			if reason, _ := header(letter, envelope.HeaderReason); failed != "4" || total != "4" || reason != "exhausted" {
				t.Errorf("%s: attempt %q, deliveries %q, reason %q", letter.Key, failed, total, reason)
			}
		}
	})
}

// A thousand lists of headers, with repeats, names and values that are no text, null and empty ones, through three tiers.
func TestAThousandHeaderListsAreTheSameBytesAfterThreeHops(t *testing.T) {
	ladder := []tiers.Tier{{Name: "1s", Delay: time.Second}, {Name: "2s", Delay: 2 * time.Second}, {Name: "3s", Delay: 3 * time.Second}}
	simulate(t, ladder, func(t *testing.T, r *rig) {
		const n = 1000
		random := rand.New(rand.NewPCG(5, 4))
		names := []string{"", "trace", "trace", "Trace", "\xff\xfe", "h\xc3(", "a\x00b", "redrive", "Redrive-Attempt", " redrive-attempt", "caf\u00e9", "__TypeId__"}
		r.consume(func(_ *kgo.Record, nth int) bool { return nth <= 3 })
		r.start()
		sent := map[string]*kgo.Record{}
		r.produce("orders", n, func(i int, rec *kgo.Record) {
			rec.Headers = []kgo.RecordHeader{own("id", strconv.Itoa(i))}
			for range random.IntN(12) {
				h := kgo.RecordHeader{Key: names[random.IntN(len(names))]}
				switch random.IntN(4) {
				case 0:
				case 1:
					h.Value = []byte{}
				default:
					h.Value = make([]byte, random.IntN(50))
					for j := range h.Value {
						h.Value[j] = byte(random.Uint32())
					}
				}
				rec.Headers = append(rec.Headers, h)
			}
			if random.IntN(3) == 0 {
				rec.Headers = append(rec.Headers, rec.Headers[1:]...)
			}
			sent[strconv.Itoa(i)] = &kgo.Record{Key: rec.Key, Value: rec.Value, Headers: slices.Clone(rec.Headers)}
		})
		got := r.await(time.Hour, "orders", 4*n)
		for id, copies := range ids(got, "id") {
			if copies != 4 {
				t.Errorf("record %s is on the origin %d times, want 4", id, copies)
			}
		}
		for _, rec := range got {
			id, _ := header(rec, "id")
			if diff := fidelity(sent[id], rec); diff != "" {
				t.Fatalf("record %s: %s", id, diff)
			}
		}
	})
}

// Keys of any bytes, and a record among every ten whose control headers make it unusable: that one is a dead letter, and
// all others are on time.
func TestAKeyThatIsNoTextAndABadRecordCostNobodyElse(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		random := rand.New(rand.NewPCG(5, 5))
		keys := [][]byte{nil, {}, {0xff}, {0xc3, 0x28}, {0}, []byte("\xed\xa0\x80"), bytes.Repeat([]byte{0xfe}, 5000)}
		for range 93 {
			key := make([]byte, random.IntN(20))
			for i := range key {
				key[i] = byte(random.Uint32())
			}
			keys = append(keys, key)
		}
		f, _ := r.start()
		began := time.Now()
		for _, topic := range []string{"orders.retry", "orders.retry.10s"} {
			r.produce(topic, len(keys), func(i int, rec *kgo.Record) {
				rec.Key = keys[i]
				rec.Headers = []kgo.RecordHeader{own("n", fmt.Sprint(topic, "#", i))}
				if i%10 == 9 && topic != "orders.retry" {
					rec.Headers = append(rec.Headers, own(envelope.HeaderOriginalTopic, "\xff\xfe"))
				}
			})
		}
		bad := len(keys) / 10
		letters := r.await(5*time.Second, "orders.dlt", bad)
		if reasons := ids(letters, envelope.HeaderReason); reasons["malformed"] != bad {
			t.Errorf("reasons %v", reasons)
		}
		got := r.await(time.Minute, "orders", 2*len(keys)-bad)
		if n := len(ids(append(got, letters...), "n")); n != 2*len(keys) || len(got)+len(letters) != n {
			t.Errorf("%d records at the ends, %d different ones, want %d", len(got)+len(letters), n, 2*len(keys))
		}
		for _, rec := range got {
			v, _ := header(rec, "n")
			i, _ := strconv.Atoi(v[strings.IndexByte(v, '#')+1:])
			if !bytes.Equal(rec.Key, keys[i]) || (rec.Key == nil) != (keys[i] == nil) {
				t.Errorf("record %s has the key %q, want %q", v, rec.Key, keys[i])
			}
			if wait := rec.Timestamp.Sub(began); wait < 10*time.Second || wait > 12*time.Second {
				t.Errorf("record %s waited %s", v, wait)
			}
		}
		r.committedAll("orders.retry", "orders.retry.10s")
		if troubles := f.Status().Troubles; len(troubles) != 0 {
			t.Errorf("troubles: %+v", troubles)
		}
	})
}

// guarded is the ladder of the rig with one tier and a low loop guard.
func guarded(t *testing.T, maxDeliveries int) func(*Options) {
	t.Helper()
	policy, err := tiers.New(tiers.Options{
		Origin: "orders", Inbox: "orders.retry", DeadLetters: "orders.dlt", MaxDeliveries: maxDeliveries,
		Tiers: []tiers.Tier{{Name: "1s", Topic: "orders.retry.1s", Delay: time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Topics = []Topic{{Policy: policy}} }
}

// Whoever sends every dead letter back at once, with the attempt set back, makes a loop: it ends.
func TestALoopOverReplaysEndsAtTheLoopGuard(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "1s", Delay: time.Second}}, func(t *testing.T, r *rig) {
		seen := r.consume(everything)
		r.start(guarded(t, 7))
		r.produce("orders", 1, nil)
		for replays := 1; ; replays++ {
			letters := r.await(time.Minute, "orders.dlt", replays)
			deliveries := func(letter *kgo.Record) string { v, _ := header(letter, envelope.HeaderDeliveries); return v }
			letter := slices.MaxFunc(letters, func(a, b *kgo.Record) int { return cmp.Compare(deliveries(a), deliveries(b)) })
			if total := deliveries(letter); total >= "7" {
				if reason, _ := header(letter, envelope.HeaderReason); total != "7" || reason != "exhausted" {
					t.Errorf("deliveries %s, reason %q", total, reason)
				}
				break
			}
			headers := slices.DeleteFunc(slices.Clone(letter.Headers), func(h kgo.RecordHeader) bool {
				return h.Key == envelope.HeaderAttempt || h.Key == envelope.HeaderReason
			})
			r.client.Produce(&kgo.Record{Topic: "orders", Key: letter.Key, Value: letter.Value, Headers: headers})
		}
		if n := len(seen()["k0"]); n != 7 {
			t.Errorf("%d deliveries, want 7", n)
		}
	})
}

// A count of deliveries at the cap, above it or beyond all bounds never comes back to the origin, wherever it is written.
func TestARecordAboveTheLoopGuardNeverReturns(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "1s", Delay: time.Second}}, func(t *testing.T, r *rig) {
		r.start(guarded(t, 20))
		counts := []string{"20", "21", "1000", "1000000000", "1000000001", "9223372036854775807", "99999999999999999999", strings.Repeat("9", 100_000)}
		topics := []string{"orders.retry", "orders.retry.1s"}
		for _, topic := range topics {
			r.produce(topic, len(counts), func(i int, rec *kgo.Record) {
				rec.Headers = []kgo.RecordHeader{own(envelope.HeaderDeliveries, counts[i]), attempt(0)}
			})
		}
		n := len(topics) * len(counts)
		if reasons := ids(r.await(time.Minute, "orders.dlt", n), envelope.HeaderReason); reasons["exhausted"] != n {
			t.Errorf("reasons %v, want %d exhausted", reasons, n)
		}
		r.committedAll(topics...)
		if n := sum(r.client.EndOffsets("orders")); n != 0 {
			t.Errorf("%d of them are on the origin", n)
		}
	})
}
