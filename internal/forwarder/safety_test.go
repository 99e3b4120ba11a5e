package forwarder

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

func stamp(t time.Time) []byte { return []byte(t.UTC().Format("2006-01-02T15:04:05.000Z07:00")) }

// ids counts how often each value of a header stands in the records.
func ids(records []*kgo.Record, name string) map[string]int {
	n := map[string]int{}
	for _, rec := range records {
		v, _ := header(rec, name)
		n[v]++
	}
	return n
}

// Records of very different waits share a partition: those that wait long hold
// the watermark, and there are more gaps than a commit can name. They are moved
// to the tail with their due time unchanged; nothing comes twice or early, and
// a restart in between repeats nothing.
func TestARecordThatHoldsTheWatermarkIsMovedToTheTail(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10m", Delay: 10 * time.Minute}}, func(t *testing.T, r *rig) {
		const n = 12_000
		began := time.Now()
		due := func(i int) time.Time {
			if i%2 == 0 {
				return began.Add(9 * time.Minute)
			}
			return began.Add(5 * time.Second)
		}
		r.produce("orders.retry.10m", n, func(i int, rec *kgo.Record) {
			rec.Key = []byte("one partition")
			rec.Headers = []kgo.RecordHeader{
				{Key: "n", Value: []byte(strconv.Itoa(i))},
				{Key: envelope.HeaderAvailableAt, Value: stamp(due(i))},
			}
		})
		_, stop := r.start()
		r.await(time.Minute, "orders", n/2)
		time.Sleep(10 * time.Second)
		moved := int64(0)
		for _, o := range r.client.CommittedOffsets("redrive-forwarder")["orders.retry.10m"] {
			moved = max(moved, o.At)
		}
		if moved == 0 {
			t.Error("the watermark did not move past the records that wait")
		}
		stop()
		r.start()
		time.Sleep(8 * time.Minute)
		got := r.await(time.Hour, "orders", n)
		for v, times := range ids(got, "n") {
			if times != 1 {
				t.Fatalf("record %s is on the origin %d times", v, times)
			}
		}
		for _, rec := range got {
			v, _ := header(rec, "n")
			i, _ := strconv.Atoi(v)
			if early := due(i).Sub(rec.Timestamp); early > 0 {
				t.Fatalf("record %d came %s early", i, early)
			}
		}
		r.committedAll("orders.retry.10m")
	})
}

func TestTheSameDeliveryHandedOverTwiceIsForwardedOnce(t *testing.T) {
	simulate(t, defaultLadder(), func(t *testing.T, r *rig) {
		r.start()
		handOver := func(change func(rec *kgo.Record)) {
			r.produce("orders.retry", 1, func(_ int, rec *kgo.Record) {
				rec.Headers = []kgo.RecordHeader{
					{Key: "trace", Value: []byte("a")},
					{Key: envelope.HeaderOriginalTopic, Value: []byte("orders")},
					{Key: envelope.HeaderOriginalPartition, Value: []byte("1")},
					{Key: envelope.HeaderOriginalOffset, Value: []byte("7")},
					{Key: envelope.HeaderGroup, Value: []byte("billing")},
					{Key: envelope.HeaderErrorMessage, Value: []byte(fmt.Sprint(time.Now()))},
				}
				change(rec)
			})
			time.Sleep(time.Second)
		}
		handOver(func(*kgo.Record) {})
		handOver(func(*kgo.Record) {})                                                // the same again
		handOver(func(rec *kgo.Record) { rec.Headers[4].Value = []byte("shipping") }) // of another group
		handOver(func(rec *kgo.Record) { rec.Value = nil })                           // of other content
		handOver(func(rec *kgo.Record) { rec.Headers[0].Value = []byte("b") })        // of other headers
		handOver(func(rec *kgo.Record) { rec.Headers[3].Value = []byte("8") })        // of another record
		time.Sleep(time.Minute)
		if got := r.client.ReadAll("orders", kgo.ReadCommitted()); len(got) != 5 {
			t.Errorf("%d records on the origin, want 5", len(got))
		}
		r.committedAll("orders.retry", "orders.retry.10s")
	})
}

// A member whose commits are not accepted does not know whether it still owns
// its partitions.
func TestNothingIsReleasedWithoutAFreshLease(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "1m", Delay: time.Minute}}, func(t *testing.T, r *rig) {
		r.start()
		time.Sleep(10 * time.Second)
		fault := r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.RebalanceInProgress, Count: -1})
		r.produce("orders.retry.1m", 20, nil)
		time.Sleep(5 * time.Minute)
		if n := sum(r.client.EndOffsets("orders")); n != 0 {
			t.Errorf("%d records were released by a member that may be a zombie", n)
		}
		fault.Remove()
		if got := r.await(time.Minute, "orders", 20); len(got) != 20 {
			t.Errorf("%d records on the origin, want 20", len(got))
		}
	})
}

// Stopping and starting under load: what the stopped one had sent is committed.
func TestAGracefulStopRepeatsNothing(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "1s", Delay: time.Second}}, func(t *testing.T, r *rig) {
		const n = 5000
		for i := range 10 {
			_, stop := r.start()
			r.produce("orders.retry", n/10, func(j int, rec *kgo.Record) {
				rec.Headers = []kgo.RecordHeader{{Key: "n", Value: []byte(fmt.Sprint(i, "-", j))}}
			})
			time.Sleep(time.Duration(900+i*40) * time.Millisecond)
			stop()
		}
		r.start()
		got := r.await(time.Hour, "orders", n)
		r.committedAll("orders.retry", "orders.retry.1s")
		if len(got) != n {
			t.Errorf("%d records on the origin, want %d", len(got), n)
		}
	})
}

// Offsets are never reset by themselves: a partition whose commit is missing or
// not in the topic is left alone, the others flow.
func TestNoOffsetIsEverResetSilently(t *testing.T) {
	commit := func(r *rig, at int64) {
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: "orders.retry.10s", Partition: 0, At: at, LeaderEpoch: -1})
		if err := r.client.Admin().CommitAllOffsets(r.t.Context(), "redrive-forwarder", offsets); err != nil {
			r.t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		prepare func(r *rig)
		issue   issue.Code
	}{
		"the commit is missing and the topic is older": {func(r *rig) { r.trim(0, 3) }, issue.OffsetMissing},
		"the commit is below the log":                  {func(r *rig) { commit(r, 1); r.trim(0, 5) }, issue.OffsetOutOfRange},
		"the commit is above the log":                  {func(r *rig) { commit(r, 1000) }, issue.OffsetOutOfRange},
		"the commit is missing and another group has one": {func(r *rig) {
			offsets := kadm.Offsets{}
			offsets.Add(kadm.Offset{Topic: "orders.retry.10s", Partition: 0, At: 2, LeaderEpoch: -1})
			if err := r.client.Admin().CommitAllOffsets(r.t.Context(), "redrive-forwader", offsets); err != nil {
				r.t.Fatal(err)
			}
		}, issue.OffsetMissing},
		"the commit is missing and the records are older than commits are kept": {func(*rig) { time.Sleep(8 * 24 * time.Hour) }, issue.OffsetMissing},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
				for p := range partitions {
					r.produceTo(int32(p), 10)
				}
				test.prepare(r)
				f, _ := r.start()
				r.produceTo(1, 10)
				time.Sleep(time.Minute)
				var issues []issue.Code
				for _, trouble := range f.Status().Troubles {
					if trouble.Partition == 0 {
						issues = append(issues, trouble.Issue)
					}
				}
				if len(issues) != 1 || issues[0] != test.issue {
					t.Errorf("issues of the partition: %v, want %s", issues, test.issue)
				}
				var before kadm.Offset
				if o, ok := r.client.CommittedOffsets("redrive-forwarder").Lookup("orders.retry.10s", 0); ok {
					before = o
				}
				for _, rec := range r.client.ReadAll("orders", kgo.ReadCommitted()) {
					if v, _ := header(rec, "partition"); v == "0" {
						t.Fatal("a record of the partition was forwarded")
					}
				}
				time.Sleep(time.Minute)
				if o, ok := r.client.CommittedOffsets("redrive-forwarder").Lookup("orders.retry.10s", 0); ok && o.At != before.At {
					t.Errorf("the commit moved from %d to %d", before.At, o.At)
				}
			})
		})
	}
}

// The start position of a partition is committed at its first assignment, so
// that it does not look new, or forgotten, when all of its records wait.
func TestTheStartIsCommittedAtTheFirstAssignment(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10m", Delay: 10 * time.Minute}}, func(t *testing.T, r *rig) {
		r.produce("orders.retry.10m", 10, nil)
		r.start()
		time.Sleep(10 * time.Second)
		offsets := r.client.CommittedOffsets("redrive-forwarder")
		for _, topic := range []string{"orders.retry", "orders.retry.10m"} {
			for p := range int32(partitions) {
				if o, ok := offsets.Lookup(topic, p); !ok || o.At != 0 {
					t.Errorf("%s/%d: commit %+v, want 0", topic, p, o)
				}
			}
		}
	})
}

// What goes to a topic that is not there waits; everything else flows.
func TestAMissingOriginHoldsUpOnlyWhatGoesThere(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		for _, topic := range []string{"carts.retry", "carts.retry.10s", "carts.dlt"} {
			r.client.CreateTopic(topic, 2, nil)
		}
		policy, err := tiers.New(tiers.Options{
			Origin: "carts", Inbox: "carts.retry", DeadLetters: "carts.dlt",
			Tiers: []tiers.Tier{{Name: "10s", Topic: "carts.retry.10s", Delay: 10 * time.Second}},
		})
		if err != nil {
			t.Fatal(err)
		}
		f, _ := r.start(func(o *Options) { o.Topics = append(o.Topics, Topic{Policy: policy}) })
		r.produce("carts.retry", 10, nil)
		r.produce("orders.retry", 10, nil)
		r.await(time.Minute, "orders", 10)
		time.Sleep(time.Minute)
		found := false
		for _, trouble := range f.Status().Troubles {
			found = found || trouble.Issue == issue.TopicMissing && trouble.Topic == "carts.retry.10s"
		}
		if !found {
			t.Errorf("no trouble names the missing topic: %+v", f.Status().Troubles)
		}
		r.client.CreateTopic("carts", 3, nil)
		if got := r.await(time.Minute, "carts", 10); len(got) != 10 {
			t.Errorf("%d records, want 10", len(got))
		}
		if n := sum(r.client.EndOffsets("carts.dlt")); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}

func TestMetricsFollowTheFieldsRules(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		reg := prometheus.NewPedanticRegistry()
		r.start(func(o *Options) { o.Registerer = reg })
		r.produce("orders.retry", 10, nil)
		r.await(time.Hour, "orders", 10)
		time.Sleep(time.Second)
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v %v", problems, err)
		}
		want := map[string]float64{"redrive_records_forwarded_total": 10, "redrive_records_hopped_total": 10, "redrive_overdue_records": 0, "redrive_held_records": 0, "redrive_assigned_partitions": 8}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, family := range families {
			total := 0.0
			for _, m := range family.GetMetric() {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			seen[family.GetName()] = true
			if v, ok := want[family.GetName()]; ok && v != total {
				t.Errorf("%s = %v, want %v", family.GetName(), total, v)
			}
			if family.GetName() == "redrive_forward_lateness_seconds" {
				if n := family.GetMetric()[0].GetHistogram().GetSampleCount(); n != 10 {
					t.Errorf("lateness of %d records, want 10", n)
				}
			}
		}
		for name := range want {
			if !seen[name] {
				t.Errorf("%s is not exported", name)
			}
		}
	})
}

// A wish longer than the longest tier is granted by waits one after the other:
// the record is not released between them.
func TestAWishBeyondTheLongestTierIsNotEarly(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10m", Delay: 10 * time.Minute}}, func(t *testing.T, r *rig) {
		policy, err := tiers.New(tiers.Options{
			Origin: "orders", Inbox: "orders.retry", DeadLetters: "orders.dlt", MaxDelay: time.Hour,
			Tiers: []tiers.Tier{{Name: "10m", Topic: "orders.retry.10m", Delay: 10 * time.Minute}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.start(func(o *Options) { o.Topics = []Topic{{Policy: policy}} })
		began := time.Now()
		for _, wish := range []string{"15m", "35m"} {
			r.produce("orders.retry", 1, func(_ int, rec *kgo.Record) {
				rec.Headers = []kgo.RecordHeader{{Key: "wish", Value: []byte(wish)}, {Key: envelope.HeaderRetryAfter, Value: []byte(wish)}}
			})
		}
		time.Sleep(34 * time.Minute)
		for _, rec := range r.await(time.Hour, "orders", 2) {
			v, _ := header(rec, "wish")
			wish, _ := time.ParseDuration(v)
			if late := rec.Timestamp.Sub(began) - wish; late < 0 || late > 2*time.Second {
				t.Errorf("a wish of %s was granted %s late", wish, late)
			}
		}
	})
}

// What a client did not say of the origin stays unsaid.
func TestAnUnknownPositionStaysUnset(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "1s", Delay: time.Second}}, func(t *testing.T, r *rig) {
		r.start()
		r.produce("orders.retry", 1, nil)
		got := r.await(time.Hour, "orders", 1)[0]
		want := map[string]string{
			envelope.HeaderOriginalTopic:     "orders",
			envelope.HeaderOriginalPartition: "",
			envelope.HeaderOriginalOffset:    "",
			envelope.HeaderOriginalTimestamp: "",
			envelope.HeaderRejected:          "",
			envelope.HeaderAvailableAt:       "",
		}
		for name, value := range want {
			if v, _ := header(got, name); v != value {
				t.Errorf("%s = %q, want %q", name, v, value)
			}
		}
	})
}

// No broker answers for a while, shorter and longer than the session. The same
// process goes on when they are back.
func TestItGoesOnWhenTheBrokersAreBack(t *testing.T) {
	for _, gone := range []time.Duration{20 * time.Second, 10 * time.Minute} {
		t.Run(gone.String(), func(t *testing.T) {
			simulate(t, []tiers.Tier{{Name: "1m", Delay: time.Minute}}, func(t *testing.T, r *rig) {
				line := &lifeline{dial: r.kafka.Dial}
				f, _ := r.start(func(o *Options) { o.Kafka.Dialer = line.Dial })
				r.produce("orders.retry", 200, nil)
				time.Sleep(30 * time.Second)
				line.sever(true)
				time.Sleep(gone)
				line.sever(false)
				r.produce("orders.retry", 200, nil)
				began := time.Now()
				got := r.await(time.Hour, "orders", 400)
				if took := time.Since(began); took > 2*time.Minute {
					t.Errorf("it took %s until everything was forwarded", took)
				}
				if len(got) != 400 {
					t.Errorf("%d records on the origin, want 400", len(got))
				}
				r.committedAll("orders.retry", "orders.retry.1m")
				time.Sleep(time.Minute)
				if troubles := f.Status().Troubles; len(troubles) != 0 {
					t.Errorf("troubles: %+v", troubles)
				}
			})
		})
	}
}
