package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestIndexEqualsTheDeadLetters(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(20_000, nil)
		ix, _ := r.start()
		r.equal(time.Minute)
		for i := range 30 {
			r.produce(i, nil)
			time.Sleep(70 * time.Millisecond)
		}
		r.equal(time.Minute)
		testkit.WaitFor(t, time.Minute, "nothing behind", func(context.Context) error {
			if s := ix.Status(); s.Behind != 0 || s.Assigned != partitions || !s.Running || len(s.Troubles) > 0 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	})
}

func TestLettersAreWrittenInLargeBatches(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(60_000, func(_ int, rec *kgo.Record) { rec.Partition = 1 })
		r.start()
		r.equal(time.Minute)
		if n := len(r.ledger.batches); n > 40 {
			t.Errorf("60,000 letters came in %d batches", n)
		}
	})
}

func TestPayloadsAreKeptIfAskedFor(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(100, func(i int, rec *kgo.Record) {
			if i%3 == 0 {
				rec.Value = nil
			}
		})
		r.start(func(o *Options) { o.KeepPayload = true })
		r.equal(time.Minute)
		for at, l := range r.ledger.rows() {
			p, ok := r.ledger.partitions[l.Place.TopicID][at.partition].payloads[at.offset]
			if !ok || !l.Kept || deadletter.Digest(p.Key, p.Value, p.Headers) != l.Digest {
				t.Errorf("the bytes of %v are not those of its record", at)
			}
		}
	})
}

func TestRestartGoesOnFromTheLedgerAndNotFromTheGroup(t *testing.T) {
	for _, group := range []int64{0, 7, 100_000} {
		t.Run(fmt.Sprint("the group stands at ", group), func(t *testing.T) {
			simulate(t, func(t *testing.T, r *rig) {
				r.produce(1000, nil)
				_, stop := r.start()
				r.equal(time.Minute)
				stop()
				offsets := kadm.Offsets{}
				for p := range int32(partitions) {
					offsets.AddOffset(letters, p, group, -1)
				}
				if err := r.client.Admin().CommitAllOffsets(t.Context(), r.opts.Group, offsets); err != nil {
					t.Fatal(err)
				}
				r.produce(1000, nil)
				var read atomic.Int64
				r.kafka.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
					r.kafka.KeepControl()
					for _, topic := range req.(*kmsg.FetchRequest).Topics {
						for _, p := range topic.Partitions {
							if p.FetchOffset < 250 {
								read.Add(1)
							}
						}
					}
					return nil, nil, false
				})
				_, stop = r.start()
				testkit.WaitFor(t, time.Minute, "2000 rows", func(context.Context) error {
					if n := r.ledger.count(); n != 2000 {
						return fmt.Errorf("%d rows", n)
					}
					return nil
				})
				stop()
				if n := read.Load(); n > 0 {
					t.Errorf("%d times it was read below where the ledger stands", n)
				}
				r.equal(time.Minute)
			})
		})
	}
}

func TestGroupIsToldHowFarTheIndexIs(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(1000, nil)
		_, stop := r.start()
		r.equal(time.Minute)
		time.Sleep(2 * commitInterval)
		check := func(n int64) {
			t.Helper()
			for p := range int32(partitions) {
				if o, _ := r.client.CommittedOffsets(r.opts.Group).Lookup(letters, p); o.At != n {
					t.Errorf("the commit of partition %d is %d", p, o.At)
				}
			}
		}
		check(250)
		r.produce(1000, nil)
		time.Sleep(time.Second)
		stop()
		check(500)
	})
}

// Two processes that both believe they own a partition are what a rebalance that went wrong leaves behind. Groups of their own give each
// of them all partitions; one is slower, so that their batches end in different places.
func TestTwoIndexersOnOnePartitionLeaveNoHoleAndNoDouble(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		random := rand.New(rand.NewPCG(1, 2))
		_, stop := r.start()
		r.produce(400, nil)
		r.equal(time.Minute)
		stop()
		// Both find that retention took something, and one must say so.
		r.produce(10_000, nil)
		r.deleteBelow(200)
		slow := func(seed uint64) func(*Options) {
			return func(o *Options) {
				o.Ledger = &delayed{memory: r.ledger, random: rand.New(rand.NewPCG(seed, 0))}
				o.Group += strconv.Itoa(int(seed))
			}
		}
		r.start(slow(1))
		time.Sleep(130 * time.Millisecond)
		r.start(slow(2))
		for range 100 {
			r.produce(random.IntN(500), nil)
			time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		}
		want := r.client.ReadAll(letters, kgo.ReadCommitted())
		testkit.WaitFor(t, 10*time.Minute, "all rows", func(context.Context) error {
			if n := r.ledger.count(); n != 400+len(want) {
				return fmt.Errorf("%d rows of %d", n, 400+len(want))
			}
			return nil
		})
		for _, err := range r.ledger.broken() {
			t.Error(err)
		}
		if n := r.ledger.lost(); n != partitions*100 {
			t.Errorf("%d offsets are lost", n)
		}
	})
}

// delayed is a way to a ledger that takes now this long and now that.
type delayed struct {
	*memory
	mu     sync.Mutex
	random *rand.Rand
}

func (d *delayed) Index(ctx context.Context, b deadletter.Batch) error {
	d.mu.Lock()
	wait := time.Duration(d.random.IntN(700)) * time.Millisecond
	d.mu.Unlock()
	time.Sleep(wait)
	return d.memory.Index(ctx, b)
}

func TestLedgerThatFailsAtAnyCallLosesNothing(t *testing.T) {
	for _, call := range []string{"next", "index", "progress", "stats", "any"} {
		for _, when := range []string{"before its effect", "after its effect"} {
			t.Run(call+" "+when, func(t *testing.T) {
				simulate(t, func(t *testing.T, r *rig) {
					random, faults := rand.New(rand.NewPCG(3, 4)), rand.New(rand.NewPCG(5, 6))
					var downUntil time.Time
					fault := func(_ context.Context, name string) error {
						r.ledger.mu.Lock()
						defer r.ledger.mu.Unlock()
						if call != "any" && call != name {
							return nil
						}
						if time.Now().After(downUntil) && faults.IntN(4) == 0 {
							downUntil = time.Now().Add(time.Duration(faults.IntN(3000)) * time.Millisecond)
						}
						if time.Now().Before(downUntil) {
							return errDown
						}
						return nil
					}
					if when == "before its effect" {
						r.ledger.before = fault
					} else {
						r.ledger.after = fault
					}
					for range 3 {
						_, stop := r.start()
						for range 10 {
							r.produce(random.IntN(2000), nil)
							time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
						}
						stop()
					}
					r.start()
					r.equal(10 * time.Minute)
				})
			})
		}
	}
}

func TestLedgerDownIsShownAndMemoryIsBounded(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		var down atomic.Bool
		r.ledger.before = func(context.Context, string) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		ix, _ := r.start()
		r.produce(100, nil)
		r.equal(time.Minute)

		down.Store(true)
		value := noise(100 << 10)
		for range 20 {
			r.produce(partitions*50, func(_ int, rec *kgo.Record) { rec.Value = value })
		}
		has(t, ix, time.Minute, issue.LedgerDown)
		has(t, ix, 10*time.Minute, issue.IndexBehind)
		ix.mu.Lock()
		held := ix.held
		ix.mu.Unlock()
		// 400 MB wait. What the client hands out in one poll comes on top of the limit.
		if held < 1<<20 || held > maxHeld+20<<20 {
			t.Errorf("%d bytes are held", held)
		}
		if n := ix.Status().Behind; n < 100 {
			t.Errorf("%d offsets are behind", n)
		}

		down.Store(false)
		r.equal(10 * time.Minute)
		testkit.WaitFor(t, time.Minute, "no trouble", func(context.Context) error {
			if s := ix.Status(); len(s.Troubles) > 0 || s.Behind > 0 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		ix.mu.Lock()
		defer ix.mu.Unlock()
		if ix.held != 0 {
			t.Errorf("%d bytes are held and nothing is", ix.held)
		}
	})
}

// noise does not become smaller by compression, which the limits of a fetch do not see through.
func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

func TestLedgerOfAnotherVersionIsSaid(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		var answer atomic.Pointer[error]
		set := func(err error) { answer.Store(&err) }
		set(fmt.Errorf("open: %w", deadletter.ErrNewer))
		r.ledger.before = func(context.Context, string) error { return *answer.Load() }
		r.produce(100, nil)
		ix, _ := r.start()
		has(t, ix, time.Minute, issue.LedgerNewer)
		set(deadletter.ErrOlder)
		has(t, ix, time.Minute, issue.LedgerOlder)
		set(nil)
		r.equal(time.Minute)
	})
}

func TestRevokeInTheMiddleOfABatchLosesAndDoublesNothing(t *testing.T) {
	for _, how := range []string{"slow", "hanging"} {
		t.Run(how, func(t *testing.T) {
			simulate(t, func(t *testing.T, r *rig) {
				r.ledger.before = func(ctx context.Context, call string) error {
					switch {
					case call != "index":
					case how == "slow":
						time.Sleep(700 * time.Millisecond)
					default:
						// The first calls never come back; what they did is not known.
						select {
						case <-ctx.Done():
							return ctx.Err()
						case <-time.After(30 * time.Second):
						}
					}
					return nil
				}
				r.produce(5000, nil)
				first, _ := r.start()
				time.Sleep(2 * time.Second)
				second, _ := r.start()
				began := time.Now()
				testkit.WaitFor(t, time.Minute, "both own partitions", func(context.Context) error {
					a, b := first.Status().Assigned, second.Status().Assigned
					if a != partitions/2 || b != partitions/2 {
						return fmt.Errorf("%d and %d", a, b)
					}
					return nil
				})
				if took := time.Since(began); took > 10*time.Second+6*time.Second {
					t.Errorf("the partitions moved after %v", took)
				}
				r.produce(5000, nil)
				r.equal(10 * time.Minute)
			})
		})
	}
}

func TestStopIsBounded(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.ledger.before = func(ctx context.Context, call string) error {
			if call == "index" {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		r.produce(5000, nil)
		_, stop := r.start(func(o *Options) { o.ShutdownTimeout = 4 * time.Second })
		time.Sleep(3 * time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 4*time.Second+100*time.Millisecond {
			t.Errorf("the stop took %v", took)
		}
		r.ledger.before = nil
		r.start()
		r.equal(time.Minute)
	})
}

func TestStopWritesWhatIsQueued(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		_, stop := r.start()
		time.Sleep(5 * time.Second)
		r.produce(100, nil)
		time.Sleep(linger / 4)
		stop()
		r.compare(r.client.ReadAll(letters, kgo.ReadCommitted()))
	})
}

func TestAbortedTransactionsAreNoLettersAndNoLag(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		ix, _ := r.start()
		producer := r.kafka.Client(t, kgo.TransactionalID("t"), kgo.RecordPartitioner(kgo.ManualPartitioner())).Kafka()
		for i := range 20 {
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for k := range 50 {
				producer.Produce(t.Context(), &kgo.Record{Topic: letters, Partition: int32(k % partitions), Value: []byte(strconv.Itoa(i))}, nil)
			}
			if err := producer.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := producer.EndTransaction(t.Context(), kgo.TransactionEndTry(i%2 == 0)); err != nil {
				t.Fatal(err)
			}
		}
		r.equal(time.Minute)
		testkit.WaitFor(t, time.Minute, "the ends of the log", func(context.Context) error {
			ends := r.client.EndOffsets(letters)
			for p, next := range r.ledger.next() {
				if next != ends[p] {
					return fmt.Errorf("partition %d stands at %d of %d", p, next, ends[p])
				}
			}
			return nil
		})
		if n := r.ledger.count(); n != 500 || r.ledger.lost() != 0 || ix.Status().Behind != 0 {
			t.Errorf("%d rows, %d lost, %d behind", n, r.ledger.lost(), ix.Status().Behind)
		}
	})
}

func TestHolesOfCompactionAreNoLoss(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		policy := "compact"
		if _, err := r.client.Admin().AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &policy}}, letters); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			r.produce(1000, func(i int, rec *kgo.Record) { rec.Key = []byte(strconv.Itoa(i % 60)) })
		}
		r.kafka.Compact()
		if n := len(r.client.ReadAll(letters, kgo.ReadCommitted())); n >= 5000 {
			t.Fatalf("nothing was compacted, %d records are left", n)
		}
		r.start()
		r.equal(time.Minute)
		if r.ledger.lost() != 0 {
			t.Errorf("%d offsets count as lost", r.ledger.lost())
		}
	})
}

func (r *rig) deleteBelow(offset int64) {
	r.t.Helper()
	below := map[int32]int64{}
	for p := range int32(partitions) {
		below[p] = offset
	}
	r.client.DeleteRecords(letters, below)
}

func TestWhatRetentionTookBeforeItWasIndexedIsCountedAndShown(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		// What lay in the topic before there was an index is not lost to it.
		r.produce(400, nil)
		r.deleteBelow(50)
		_, stop := r.start()
		r.equal(time.Minute)
		if r.ledger.lost() != 0 {
			t.Errorf("%d offsets count as lost", r.ledger.lost())
		}
		stop()

		// While nobody runs, also up to the end.
		r.produce(400, nil)
		r.deleteBelow(200)
		ix, _ := r.start()
		trouble := has(t, ix, time.Minute, issue.LostToRetention)
		if !strings.HasPrefix(trouble.Detail, "400 ") && r.ledger.lost() == 400 {
			t.Errorf("it says %q", trouble.Detail)
		}
		if n := r.ledger.lost(); n != 400 {
			t.Errorf("%d offsets are lost", n)
		}
		r.produce(400, nil)
		testkit.WaitFor(t, time.Minute, "the new letters", func(context.Context) error {
			if n := r.ledger.count(); n != 200+400 {
				return fmt.Errorf("%d rows", n)
			}
			return nil
		})
		time.Sleep(lossShows + time.Minute)
		if s := ix.Status(); len(s.Troubles) > 1 { // The letters that expired are shown as long.
			t.Errorf("%v", s.Troubles)
		}
	})
}

// A partition is paused and retention passes it: the client is told that its offset is out of range.
func TestRetentionThatPassesAPausedPartitionIsCounted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		var down atomic.Bool
		r.ledger.before = func(context.Context, string) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		ix, _ := r.start()
		r.produce(partitions, nil)
		r.equal(time.Minute)
		down.Store(true)
		value := noise(200 << 10)
		for range 20 {
			r.produce(partitions*20, func(_ int, rec *kgo.Record) { rec.Value = value })
		}
		time.Sleep(time.Minute)
		end := r.client.EndOffsets(letters)[0]
		r.deleteBelow(end)
		r.produce(partitions*10, nil)
		down.Store(false)
		has(t, ix, 10*time.Minute, issue.LostToRetention)
		testkit.WaitFor(t, time.Minute, "the end", func(context.Context) error {
			for p, next := range r.ledger.next() {
				if next != end+10 {
					return fmt.Errorf("partition %d stands at %d of %d", p, next, end+10)
				}
			}
			return nil
		})
		if n := int64(r.ledger.count()) + r.ledger.lost(); n != partitions*(end+10) {
			t.Errorf("%d rows and %d lost of %d", r.ledger.count(), r.ledger.lost(), partitions*(end+10))
		}
		for _, err := range r.ledger.broken() {
			t.Error(err)
		}
	})
}

func TestLedgerThatWasPutBackIsFilledAgain(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(4000, nil)
		r.start()
		r.equal(time.Minute)
		r.ledger.mu.Lock()
		r.ledger.each(func(_ deadletter.TopicID, _ int32, p *memoryPartition) {
			p.next = 300
			for offset := range p.letters {
				if offset >= 300 {
					delete(p.letters, offset)
				}
			}
		})
		r.ledger.mu.Unlock()
		r.produce(4000, nil)
		r.equal(time.Minute)
	})
}

func TestLogThatWasCutBelowTheLedgerWaitsAndIsShown(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(400, nil)
		_, stop := r.start()
		r.equal(time.Minute)
		stop()
		r.ledger.mu.Lock()
		r.ledger.each(func(_ deadletter.TopicID, n int32, p *memoryPartition) {
			if n == 2 {
				p.next = 150
			}
		})
		r.ledger.mu.Unlock()
		ix, _ := r.start()
		if trouble := has(t, ix, time.Minute, issue.OffsetOutOfRange); trouble.Partition != 2 {
			t.Errorf("%+v", trouble)
		}
		r.produce(400, nil)
		testkit.WaitFor(t, time.Minute, "the letters above", func(context.Context) error {
			if n := r.ledger.count(); n != 800-50 {
				return fmt.Errorf("%d rows", n)
			}
			return nil
		})
	})
}

func TestHostileRecordsAreLettersLikeOthers(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.produce(400, func(i int, rec *kgo.Record) {
			switch i % 4 {
			case 0:
				rec.Key, rec.Value, rec.Headers = nil, nil, nil
			case 1:
				rec.Headers = []kgo.RecordHeader{{Key: envelope.HeaderMessageID, Value: []byte("a\x00\xff")}, {Key: "\xff", Value: nil}}
			case 2:
				rec.Headers = []kgo.RecordHeader{{Key: envelope.HeaderErrorMessage, Value: []byte(strings.Repeat("\x00", 50_000))}}
			}
		})
		r.start()
		r.equal(time.Minute)
	})
}
