package index

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
)

// failedWith gives all records of a produce one error, and a time of death.
func failedWith(errorType string, at time.Time) func(int, *kgo.Record) {
	return func(_ int, rec *kgo.Record) {
		rec.Timestamp = at
		rec.Headers = []kgo.RecordHeader{{Key: envelope.HeaderErrorType, Value: []byte(errorType)}}
	}
}

func TestAnErrorGroupIsNewOnceAndTheLedgerIsAskedOnce(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		ix, stop := r.start()
		news := func(ix *Indexer) float64 { return testutil.ToFloat64(ix.topics[letters].newGroupsC) }
		want := func(ix *Indexer, n float64) {
			t.Helper()
			r.equal(time.Minute)
			time.Sleep(time.Second) // The counter comes after the row.
			if got := news(ix); got != n {
				t.Errorf("%v groups are new, want %v", got, n)
			}
		}
		if got := news(ix); got != 0 {
			t.Errorf("it begins at %v", got)
		}
		// One partition: writers of several that meet a group at once may each count it.
		one := func(errorType string) func(int, *kgo.Record) {
			return func(i int, rec *kgo.Record) {
				failedWith(errorType, time.Now())(i, rec)
				rec.Partition = 1
			}
		}
		r.produce(100, one("TimeoutError"))
		want(ix, 1)
		for range 20 {
			r.produce(100, one("TimeoutError"))
			r.equal(time.Minute)
		}
		want(ix, 1)
		r.produce(3, one("SchemaError"))
		want(ix, 2)
		if n := r.ledger.asked; n > 2 {
			t.Errorf("the ledger was asked %d times", n)
		}
		stop()
		// The ledger knows them.
		ix, _ = r.start()
		r.produce(5, one("SchemaError"))
		r.produce(5, one("TimeoutError"))
		want(ix, 0)
	})
}

func TestOldLettersAreNoNews(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(50, failedWith("TimeoutError", time.Now().Add(-newsAge-time.Hour)))
		ix, _ := r.start()
		r.equal(time.Minute)
		if got := testutil.ToFloat64(ix.topics[letters].newGroupsC); got != 0 || r.ledger.asked != 0 {
			t.Errorf("%v groups are new, the ledger was asked %d times", got, r.ledger.asked)
		}
	})
}

func TestErrorGroupsThatCanNotBeLookedUpHoldUpNothing(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.ledger.before = func(_ context.Context, call string) error {
			if call == "unseen" {
				return errDown
			}
			return nil
		}
		ix, _ := r.start()
		r.produce(100, failedWith("TimeoutError", time.Now()))
		r.equal(time.Minute)
		if got := testutil.ToFloat64(ix.topics[letters].newGroupsC); got != 0 {
			t.Errorf("%v groups are new", got)
		}
	})
}

func TestRememberedErrorGroupsAreBounded(t *testing.T) {
	var g groups
	b := &batch{}
	for i := range maxAsked + 10 {
		b.letters = append(b.letters, deadletter.Letter{Fingerprint: strconv.Itoa(i), DeadAt: time.Now()})
	}
	if n := len(g.unmet(b, time.Now())); n != maxAsked {
		t.Errorf("%d are asked about", n)
	}
	for i := range 3 * maxRemembered / 100 {
		var some []string
		for k := range 100 {
			some = append(some, fmt.Sprint(i, "/", k))
		}
		g.remember(some)
		if len(g.met) > maxRemembered {
			t.Fatalf("%d are remembered", len(g.met))
		}
		if _, ok := g.met[some[99]]; !ok {
			t.Fatal("the last one is forgotten")
		}
	}
}

// It runs for each letter that is indexed, beside a write that takes microseconds for each.
func BenchmarkUnmetOfALargeBatch(b *testing.B) {
	for name, kinds := range map[string]int{"one error": 1, "errors in turn": 50} {
		b.Run(name, func(b *testing.B) {
			var g groups
			batch := &batch{}
			for i := range maxLetters {
				batch.letters = append(batch.letters, deadletter.Letter{Fingerprint: fmt.Sprintf("%016x", i%kinds), DeadAt: time.Now()})
			}
			g.remember(g.unmet(batch, time.Now()))
			b.ReportAllocs()
			for b.Loop() {
				if len(g.unmet(batch, time.Now())) > 0 {
					b.Fatal("they are remembered")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*maxLetters), "ns/letter")
		})
	}
}
