package index

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

func (r *rig) awaitState(limit time.Duration, state deadletter.State, n int) {
	r.t.Helper()
	testkit.WaitFor(r.t, limit, fmt.Sprint(n, " letters ", state), func(context.Context) error {
		if have := r.ledger.inState(state); have != n {
			return fmt.Errorf("%d letters are", have)
		}
		return nil
	})
}

func TestLettersWhoseBytesRetentionTookExpire(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(400, nil)
		ix, _ := r.start()
		r.equal(time.Minute)
		time.Sleep(3 * sweepInterval)
		if n := r.ledger.inState(deadletter.Expired); n != 0 {
			t.Fatalf("%d letters have expired for nothing", n)
		}
		// Replayed, discarded and kept ones stay what they are.
		r.ledger.change(func(l *deadletter.Letter) {
			switch l.Place.Offset {
			case 0:
				l.State = deadletter.Replayed
			case 1:
				l.State = deadletter.Discarded
			case 2:
				l.Kept = true
			}
		})
		r.deleteBelow(40)
		r.awaitState(2*sweepInterval, deadletter.Expired, 4*(40-3))
		has(t, ix, sweepInterval, issue.LettersExpired)
		r.deleteBelow(60)
		r.awaitState(2*sweepInterval, deadletter.Expired, 4*(60-3))

		// One that was claimed meanwhile and is given back expires as well.
		r.ledger.change(func(l *deadletter.Letter) {
			if l.Place.Offset == 10 {
				l.State = deadletter.Dead
			}
		})
		r.awaitState(expireAgain+2*sweepInterval, deadletter.Expired, 4*(60-3))

		time.Sleep(lossShows + time.Minute)
		if s := ix.Status(); len(s.Troubles) > 0 {
			t.Errorf("%v", s.Troubles)
		}
	})
}

// What was fetched before retention took it may be written after the sweep has passed.
func TestLettersThatAreWrittenBelowTheStartOfTheLogExpire(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		hold := make(chan struct{})
		r.ledger.before = func(ctx context.Context, call string) error {
			if call == "index" {
				select {
				case <-hold:
				case <-ctx.Done():
				}
			}
			return ctx.Err()
		}
		r.produce(400, nil)
		r.start()
		time.Sleep(3 * time.Second)
		r.deleteBelow(100)
		time.Sleep(3 * sweepInterval)
		close(hold)
		r.awaitState(3*sweepInterval, deadletter.Expired, 400)
	})
}

func TestLettersOfATopicThatIsGoneExpireLateAndAreShown(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(400, nil)
		ix, _ := r.start()
		r.equal(time.Minute)
		time.Sleep(2 * sweepInterval)
		if _, err := r.client.Admin().DeleteTopics(t.Context(), letters); err != nil {
			t.Fatal(err)
		}
		has(t, ix, 2*time.Minute, issue.TopicMissing)
		time.Sleep(missingLasts - 2*time.Minute)
		if n := r.ledger.inState(deadletter.Expired); n != 0 {
			t.Fatalf("%d letters have expired already", n)
		}
		r.awaitState(5*time.Minute, deadletter.Expired, 400)
	})
}

// judgedPartition is the one whose letters are replayed, by its number in both topics.
const judgedPartition = 1

// replayed makes all letters of that partition replayed, with copies that lie in the origin at their own offsets.
func (r *rig) replayed() {
	r.ledger.change(func(l *deadletter.Letter) {
		if l.Place.Partition == judgedPartition && l.State == deadletter.Dead {
			l.State, l.StateAt = deadletter.Replayed, time.Now()
			l.Copy = deadletter.Target{Topic: "orders", Partition: judgedPartition, Offset: l.Place.Offset}
		}
	})
}

// commit has the group pass what lies below an offset of the origin.
func (r *rig) commit(offset int64) {
	r.t.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset("orders", judgedPartition, offset, -1)
	if err := r.client.Admin().CommitAllOffsets(r.t.Context(), "shipping", offsets); err != nil {
		r.t.Fatal(err)
	}
}

func TestReplayIsASuccessWhenTheGroupHasPassedItAndTheLadderIsOver(t *testing.T) {
	const ladder = 20 * time.Minute
	simulate(t, func(t *testing.T, r *rig) {
		r.opts.Topics[0].Group, r.opts.Topics[0].Ladder = "shipping", ladder
		r.produce(400, nil)
		r.start()
		r.equal(time.Minute)
		r.replayed()
		r.commit(30)

		// The ladder counts from when the group passed the copy.
		time.Sleep(ladder)
		r.commit(60)
		if n := r.ledger.inState(deadletter.Succeeded); n != 0 {
			t.Errorf("%d letters succeeded before the ladder was over", n)
		}
		time.Sleep(judgeSlack + 3*sweepInterval)
		if n := r.ledger.inState(deadletter.Succeeded); n != 30 {
			t.Errorf("%d letters succeeded of the 30 that were passed long enough ago", n)
		}
		time.Sleep(ladder)
		if n := r.ledger.inState(deadletter.Succeeded); n != 60 {
			t.Errorf("%d letters succeeded of the 60 that were passed", n)
		}
		// The rest was never passed.
		time.Sleep(3 * ladder)
		if n := r.ledger.inState(deadletter.Replayed); n != 40 {
			t.Errorf("%d letters wait of 40 that were not passed", n)
		}
	})
}

func TestReplayIsNoSuccessWhileTheIndexIsBehind(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.opts.Topics[0].Group, r.opts.Topics[0].Ladder = "shipping", time.Minute
		hold := make(chan struct{})
		var held atomic.Bool
		r.ledger.before = func(ctx context.Context, call string) error {
			if call == "index" && held.Load() {
				select {
				case <-hold:
				case <-ctx.Done():
				}
			}
			return ctx.Err()
		}
		r.produce(400, nil)
		r.start()
		r.equal(time.Minute)
		r.replayed()
		r.commit(100)
		held.Store(true)
		// These may be the letters come back.
		r.produce(400, nil)
		time.Sleep(30 * time.Minute)
		if n := r.ledger.inState(deadletter.Succeeded); n != 0 {
			t.Errorf("%d letters succeeded while nobody knew what came back", n)
		}
		close(hold)
		r.awaitState(10*time.Minute, deadletter.Succeeded, 100)
	})
}

func TestReplayForAGroupThatNobodyNamedStaysReplayed(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(400, nil)
		r.start()
		r.equal(time.Minute)
		r.replayed()
		r.commit(100)
		time.Sleep(time.Hour)
		if n := r.ledger.inState(deadletter.Replayed); n != 100 {
			t.Errorf("%d letters are replayed", n)
		}
	})
}

func TestMetricsTellWhatTheLedgerHolds(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		registry := prometheus.NewPedanticRegistry()
		r.produce(400, func(_ int, rec *kgo.Record) { rec.Timestamp = time.UnixMilli(1_700_000_000_000) })
		_, stop := r.start(func(o *Options) { o.Registerer = registry })
		r.equal(time.Minute)
		r.replayed()
		time.Sleep(2 * statsInterval)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				name := f.GetName()
				for _, l := range m.Label {
					name += " " + l.GetValue()
				}
				got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		for name, want := range map[string]float64{
			"redrive_dead_letters dead orders.dlt":                    300,
			"redrive_dead_letters replayed orders.dlt":                100,
			"redrive_dead_letters expired orders.dlt":                 0,
			"redrive_dead_letter_oldest_timestamp_seconds orders.dlt": 1_700_000_000,
			"redrive_letters_indexed_total orders.dlt":                400,
			"redrive_letters_lost_total orders.dlt":                   0,
			"redrive_letters_expired_total orders.dlt":                0,
			"redrive_index_behind_records orders.dlt":                 0,
			"redrive_index_assigned_partitions orders.dlt":            partitions,
			"redrive_index_rebalances_total assigned":                 1,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v, want %v", name, v, want)
			}
		}
		stop()
		if families, _ := registry.Gather(); len(families) > 0 {
			t.Errorf("%d metrics are left", len(families))
		}
	})
}
