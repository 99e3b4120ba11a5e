package forwarder

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

func (r *rig) deleteTopic(topic string) {
	r.t.Helper()
	if _, err := r.client.Admin().DeleteTopics(r.t.Context(), topic); err != nil {
		r.t.Fatal(err)
	}
}

// A partition that waits for an operator goes on when he decides, in the process
// that runs.
func TestADecisionIsTakenWithoutARestart(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		for p := range partitions {
			r.produceTo(int32(p), 10)
		}
		r.client.DeleteRecords("orders.retry.10s", map[int32]int64{0: 3})
		r.client.DeleteRecords("orders.retry.10s", map[int32]int64{1: 3})
		f, _ := r.start()
		r.await(time.Minute, "orders", 20)
		time.Sleep(time.Minute)
		wantIssue(t, f, issue.OffsetMissing, true)

		decide := func(partition int32, d decision) {
			if err := writeDecision(t.Context(), r.client.Admin(), "redrive-forwarder", "orders.retry.10s", partition, d); err != nil {
				t.Fatal(err)
			}
		}
		decide(0, decision{at: 3, was: 5}) // It was made for another state.
		time.Sleep(time.Minute)
		if n := sum(r.client.EndOffsets("orders")); n != 20 {
			t.Errorf("%d records on the origin, want 20: a decision for another state was taken", n)
		}
		decide(0, decision{at: 3, was: -1})
		decide(1, decision{at: 8, was: -1})
		if got := r.await(time.Minute, "orders", 29); len(got) != 29 {
			t.Errorf("%d records on the origin, want 29", len(got))
		}
		r.committedAll("orders.retry.10s")
		wantIssue(t, f, issue.OffsetMissing, false)
		open, err := fetchDecisions(t.Context(), r.client.Admin(), "redrive-forwarder")
		if err != nil || len(open) != 0 {
			t.Errorf("decisions that were taken still stand: %v, %v", open, err)
		}
	})
}

// Retention overtakes a partition that is paused because it holds all it may:
// there is nothing to decide about what is gone.
func TestALossToRetentionIsCountedAndTheRestComesBack(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10m", Delay: 10 * time.Minute}}, func(t *testing.T, r *rig) {
		f, _ := r.start(func(o *Options) { o.MaxHeldBytesPerPartition = 16 << 10 })
		time.Sleep(time.Minute)
		value := randomBytes(1 << 10)
		const n = 2000
		r.produce("orders.retry.10m", n, func(_ int, rec *kgo.Record) {
			rec.Key, rec.Value = []byte("one partition"), value
		})
		time.Sleep(time.Minute)
		var partition int32
		for p, end := range r.client.EndOffsets("orders.retry.10m") {
			if end == n {
				partition = p
			}
		}
		if s := topicStatus(f, "orders.retry.10m"); s.Paused != 1 || s.HeldRecords > n/2 {
			t.Fatalf("the partition is not paused early: %+v", s)
		}
		r.client.DeleteRecords("orders.retry.10m", map[int32]int64{partition: n - 100})
		time.Sleep(12 * time.Minute)
		wantIssue(t, f, issue.LostToRetention, true)
		time.Sleep(12 * time.Minute)
		r.committedAll("orders.retry.10m")
		back := sum(r.client.EndOffsets("orders"))
		lost := f.routes["orders.retry.10m"].lost
		if back+lost != n || back < 100 || lost == 0 {
			t.Errorf("%d records came back and %d are counted as lost, of %d", back, lost, n)
		}
		wantIssue(t, f, issue.OffsetOutOfRange, false)
	})
}

// What cannot be written while the origin is away waits. (A topic that is read
// cannot be deleted here: the fake broker never forgets it in a fetch session.)
func TestAnOriginThatIsMadeAgainTakesWhatWaited(t *testing.T) {
	for _, topic := range []string{"orders"} {
		t.Run(topic, func(t *testing.T) {
			simulate(t, []tiers.Tier{{Name: "10m", Delay: 10 * time.Minute}}, func(t *testing.T, r *rig) {
				f, _ := r.start()
				r.produce("orders.retry", 50, nil)
				r.await(time.Minute, "orders.retry.10m", 50)
				time.Sleep(10 * time.Second)
				before := sum(r.client.EndOffsets("orders"))
				r.deleteTopic(topic)
				time.Sleep(20 * time.Second)
				r.client.CreateTopic(topic, partitions, nil)
				time.Sleep(2 * time.Minute)
				wantIssue(t, f, issue.TopicRecreated, true)
				r.produce("orders.retry", 50, nil)
				got := r.await(time.Hour, "orders", int(before)+100)
				if len(got) != 100 {
					t.Errorf("%d records on the origin, want 100", len(got))
				}
				early := 0
				for _, rec := range got {
					if rec.Timestamp.Sub(got[0].Timestamp) < 0 {
						early++
					}
				}
				if early > 0 {
					t.Errorf("%d records out of time", early)
				}
				r.committedAll("orders.retry", "orders.retry.10m")
			})
		})
	}
}

// A tier that was taken out of the file, and an inbox that was renamed, still
// hold records.
func TestTopicsThatWereTakenOutDrain(t *testing.T) {
	simulate(t, defaultLadder(), func(t *testing.T, r *rig) {
		full := r.opts.Topics[0]
		_, stop := r.start()
		r.produce("orders.retry", 10, func(_ int, rec *kgo.Record) { rec.Headers = []kgo.RecordHeader{attempt(0)} })
		r.produce("orders.retry", 20, func(_ int, rec *kgo.Record) { rec.Headers = []kgo.RecordHeader{attempt(1)} })
		r.produce("orders.retry", 30, func(_ int, rec *kgo.Record) { rec.Headers = []kgo.RecordHeader{attempt(2)} })
		r.await(time.Minute, "orders.retry.10m", 30)
		began := time.Now()
		stop()

		// The ladder is one other tier now, and the inbox has another name.
		r.client.CreateTopic("orders.again", partitions, nil)
		r.client.CreateTopic("orders.retry.5s", partitions, nil)
		policy, err := tiers.New(tiers.Options{
			Origin: "orders", Inbox: "orders.again", DeadLetters: "orders.dlt",
			Tiers: []tiers.Tier{{Name: "5s", Topic: "orders.retry.5s", Delay: 5 * time.Second}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.produce("orders.retry", 5, nil) // A consumer that does not know yet.
		r.opts.Topics = []Topic{{Policy: policy}}
		f, stop := r.start()
		time.Sleep(5 * time.Second)
		wantIssue(t, f, issue.RetiredTopic, true)
		got := r.await(time.Hour, "orders", 65)
		for _, rec := range got {
			least := map[string]time.Duration{"1": 0, "2": 55 * time.Second, "3": 595 * time.Second}
			v, _ := header(rec, envelope.HeaderAttempt)
			if waited := rec.Timestamp.Sub(began); waited < least[v] {
				t.Errorf("a record of attempt %s came after %v", v, waited)
			}
		}
		r.committedAll("orders.retry", "orders.retry.10s", "orders.retry.1m", "orders.retry.10m")
		wantIssue(t, f, issue.RetiredTopic, false)
		stop()

		// Nothing is left that belongs to no entry.
		r.opts.Topics = []Topic{full}
		r.produce("orders.again", 5, nil)
		r.start()
		r.await(time.Hour, "orders", 70)
	})
}

// A record of a retired topic that belongs to no entry of the file waits for
// somebody to put the entry back.
func TestARetiredRecordOfNobodyWaits(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10m", Delay: 10 * time.Minute}}, func(t *testing.T, r *rig) {
		full := r.opts.Topics
		_, stop := r.start()
		r.produce("orders.retry", 10, nil)
		r.await(time.Minute, "orders.retry.10m", 10)
		stop()
		for _, topic := range []string{"payments", "payments.retry", "payments.retry.10m", "payments.dlt"} {
			r.client.CreateTopic(topic, partitions, nil)
		}
		policy, err := tiers.New(tiers.Options{
			Origin: "payments", Inbox: "payments.retry", DeadLetters: "payments.dlt",
			Tiers: []tiers.Tier{{Name: "10m", Topic: "payments.retry.10m", Delay: 10 * time.Minute}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.opts.Topics = []Topic{{Policy: policy}}
		f, stop := r.start()
		r.produce("payments.retry", 10, nil)
		r.await(time.Hour, "payments", 10)
		wantIssue(t, f, issue.RetiredTopic, true)
		stop()
		if n := sum(r.client.EndOffsets("payments.dlt")) + sum(r.client.EndOffsets("orders")); n != 0 {
			t.Errorf("%d records went somewhere", n)
		}
		r.opts.Topics = append(full, r.opts.Topics...)
		r.start()
		r.await(time.Hour, "orders", 10)
	})
}

func TestTheClockOfTheBrokersCounts(t *testing.T) {
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var k skew
	same := clockSample{sent: base, acked: base.Add(4 * time.Millisecond)}
	k.observe(same, base.Add(2*time.Millisecond))
	if k.ahead != 0 || k.behind != 0 {
		t.Errorf("clocks that agree: ahead %v, behind %v", k.ahead, k.behind)
	}
	k.observe(same, base.Add(-10*time.Minute))
	if k.ahead != 10*time.Minute-time.Millisecond {
		t.Errorf("ahead by ten minutes: %v", k.ahead)
	}
	for range skewSamples {
		k.observe(same, base.Add(time.Hour))
	}
	if k.ahead != 0 || k.behind != time.Hour-4*time.Millisecond {
		t.Errorf("behind by an hour: ahead %v, behind %v", k.ahead, k.behind)
	}
	l := &loop{now: base, skew: skew{ahead: time.Minute}}
	if !l.clock().Equal(base.Add(-time.Minute)) {
		t.Errorf("records are due by %v", l.clock())
	}
}
