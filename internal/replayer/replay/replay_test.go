package replay

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// I13, and bug scenarios 22 (a replay starts with no attempt used up) and 40 (the count over all replays goes on).
func TestACopyIsTheLetterByteForByteAndBeginsANewRun(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		full := letter{dlt: 2, key: "k", value: "v", partition: 3, offset: 42, more: []kgo.RecordHeader{
			{Key: "dup", Value: nil}, {Key: "dup", Value: []byte{}}, {Key: "", Value: []byte{0, 0xff}},
		}}.record()
		bare := &kgo.Record{Topic: "orders.dlt", Partition: 1, Key: nil, Value: nil}
		empty := &kgo.Record{Topic: "orders.dlt", Partition: 0, Key: []byte{}, Value: []byte{}}
		letters := r.die(full, bare, empty)
		p := r.start()
		job := p.submit(everything())
		r.awaitJob(time.Minute, job.ID)
		byFrom := map[string]*kgo.Record{}
		for _, rec := range r.copies("orders") {
			byFrom[header(rec, envelope.HeaderReplayedFrom)] = rec
		}
		show := func(headers []kgo.RecordHeader) (out []string) {
			for _, h := range headers {
				if h.Value == nil {
					out = append(out, fmt.Sprintf("%q nil", h.Key))
				} else {
					out = append(out, fmt.Sprintf("%q %q", h.Key, h.Value))
				}
			}
			return out
		}
		got := byFrom[letters[2].Place.String()]
		want := []string{
			`"trace" "t-v"`, `"redrive-message-id" "orders/3/42"`, `"redrive-original-topic" "orders"`, `"redrive-original-partition" "3"`,
			`"redrive-original-offset" "42"`, `"redrive-original-partitions" "4"`, `"redrive-deliveries" "9"`, `"dup" nil`, `"dup" ""`, `"" "\x00\xff"`,
			fmt.Sprintf(`"redrive-replay-id" %q`, job.ID), `"redrive-replay-count" "1"`, `"redrive-replayed-from" "orders.dlt/2/0"`,
		}
		if diff := cmp.Diff(want, show(got.Headers)); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		if got.Partition != 3 || string(got.Key) != "k" || string(got.Value) != "v" {
			t.Errorf("partition %d, key %q, value %q", got.Partition, got.Key, got.Value)
		}
		for i, in := range []*kgo.Record{empty, bare} {
			got := byFrom[letters[i].Place.String()]
			if (got.Key == nil) != (in.Key == nil) || (got.Value == nil) != (in.Value == nil) || len(got.Key)+len(got.Value) > 0 {
				t.Errorf("letter %d: key %v, value %v", i, got.Key, got.Value)
			}
			// A letter without an id is named by its place, and belongs to the origin of its topic.
			if header(got, envelope.HeaderMessageID) != letters[i].Place.String() || header(got, envelope.HeaderOriginalTopic) != "orders" {
				t.Errorf("headers %v", show(got.Headers))
			}
		}
		for _, l := range r.letters(deadletter.Filter{}) {
			if l.State != deadletter.Replayed || l.Copy.Topic != "orders" || l.Claim.Job != job.ID {
				t.Errorf("letter %d is %s with the copy %v", l.ID, l.State, l.Copy)
			}
		}
	})
}

// Bug scenario 33: many ask for the same letter at once.
func TestFiftyRequestsForOneLetterProduceOneCopy(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(letter{key: "k", value: "v", offset: 1})
		replicas := []*process{r.start(), r.start(), r.start()}
		var all sync.WaitGroup
		var mu sync.Mutex
		jobs := map[string]bool{}
		for i := range 50 {
			all.Go(func() {
				req := one(letters[0].ID)
				if i%2 == 0 {
					req.Spec.Request = fmt.Sprintf("request-%d", i%10)
				}
				job, _, err := replicas[i%3].Submit(context.Background(), req)
				var refusal *Refusal
				if errors.As(err, &refusal) && (refusal.Code == CodeReplayed || refusal.Code == CodeClaimed) {
					return
				}
				if err != nil {
					t.Errorf("request %d: %v", i, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				jobs[job.ID] = true
			})
		}
		all.Wait()
		done, skipped := int64(0), int64(0)
		for id := range jobs {
			job := r.awaitJob(time.Minute, id)
			done, skipped = done+job.Done, skipped+job.Skipped
			if job.Skipped == 1 {
				items, err := r.ledger.Items(t.Context(), id, 1, 10)
				if err != nil || !strings.Contains(items[0].Error, "by job") {
					t.Errorf("the skipped item says %q, %v", items[0].Error, err)
				}
			}
		}
		if done != 1 || done+skipped != int64(len(jobs)) {
			t.Errorf("%d jobs: %d done, %d skipped", len(jobs), done, skipped)
		}
		if n := len(r.copies("orders")); n != 1 {
			t.Errorf("%d copies", n)
		}
	})
}

// I8, and bug scenarios 31 (a kill between ack and mark) and 35 (a restart in the middle).
func TestKilledAtAnyPointEveryLetterIsReplayedAndMarkedOnlyWithItsCopy(t *testing.T) {
	for _, point := range []string{"after-lease", "after-claim", "after-send", "after-send-late", "after-ack", "before-finish", "after-finish"} {
		for _, passage := range []int{1, 3} {
			if point == "after-lease" && passage > 1 {
				continue
			}
			t.Run(fmt.Sprint(point, "/", passage), func(t *testing.T) {
				simulate(t, func(t *testing.T, r *rig) {
					r.dieAll(scattered(60, 7)...)
					r.opts.Batch, r.opts.InFlight = 12, 5
					killed := make(chan struct{})
					victim := r.start(func(o *Options, g *gate) {
						var left atomic.Int64
						left.Store(int64(passage))
						o.crash = func(at string) {
							name, late := strings.CutSuffix(point, "-late")
							if at != name || left.Add(-1) != 0 {
								return
							}
							if late {
								time.Sleep(time.Second) // The broker has it, and the answer is on its way.
							}
							g.kill()
							close(killed)
						}
					})
					job := victim.submit(everything())
					<-killed
					victim.stop()
					second := r.start()
					ended := r.awaitJob(5*time.Minute, job.ID)
					second.stop()
					if ended.Done != 60 || ended.Failed+ended.Skipped != 0 {
						t.Errorf("done %d, failed %d, skipped %d", ended.Done, ended.Failed, ended.Skipped)
					}
					for from, n := range r.wantMarksTrue("orders") {
						if n > 1 {
							t.Errorf("%d copies of %s: all that were sent had arrived when the next one looked", n, from)
						}
					}
					if n := len(r.letters(deadletter.Filter{States: []deadletter.State{deadletter.Replayed}})); n != 60 {
						t.Errorf("%d letters are replayed", n)
					}
					r.wantOrder("orders")
				})
			})
		}
	}
}

// I9: a process that was stopped past its lease and goes on marks nothing, and sends no more than its client holds.
func TestAZombieMarksNothingAndSendsOnlyWhatItsClientHolds(t *testing.T) {
	for _, point := range []string{"after-claim", "after-send", "after-ack", "before-finish"} {
		t.Run(point, func(t *testing.T) {
			simulate(t, func(t *testing.T, r *rig) {
				const all, inFlight = 100, 8
				r.dieAll(scattered(all, 5)...)
				r.opts.InFlight, r.opts.Batch = inFlight, 20
				frozen, thaw := make(chan struct{}), make(chan struct{})
				var stopped atomic.Bool
				zombie := r.start(func(o *Options, g *gate) {
					o.crash = func(at string) {
						if at == point && stopped.CompareAndSwap(false, true) {
							g.set(errors.New("stopped")) // Nothing of the process runs.
							close(frozen)
							<-thaw
						}
					}
				})
				job := zombie.submit(everything())
				<-frozen
				heir := r.start()
				ended := r.awaitJob(5*time.Minute, job.ID)
				if ended.Done != all {
					t.Errorf("the heir has done %d", ended.Done)
				}
				before := r.letters(deadletter.Filter{})
				zombie.gate.set(nil)
				close(thaw)
				time.Sleep(time.Minute)
				zombie.stop()
				heir.stop()
				if diff := cmp.Diff(before, r.letters(deadletter.Filter{})); diff != "" {
					t.Errorf("the zombie changed letters:\n%s", diff)
				}
				if n := len(r.copies("orders")); n > all+inFlight {
					t.Errorf("%d copies of %d letters, with %d in flight", n, all, inFlight)
				}
				r.wantMarksTrue("orders")
				r.wantOrder("orders")
			})
		})
	}
}

// Bug scenario 32: the order in the dead letters is not that of the origin. Here also under produce errors and a takeover.
func TestKeysKeepTheirOrderAcrossPartitionsErrorsAndTakeovers(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(300, 9)...)
		r.opts.InFlight, r.opts.Batch = 16, 40
		n := 0
		r.onProduce("orders", func(int32, []byte) *kerr.Error {
			n++
			switch {
			case n%5 == 0:
				return kerr.UnknownServerError
			case n%7 == 0:
				return kerr.NotEnoughReplicas
			}
			return nil
		})
		passages := 0
		killed := make(chan struct{})
		victim := r.start(func(o *Options, g *gate) {
			o.crash = func(at string) {
				if at != "after-ack" {
					return
				}
				if passages++; passages == 9 {
					g.kill()
					close(killed)
				}
			}
		})
		job := victim.submit(everything())
		<-killed
		victim.stop()
		r.start()
		if ended := r.awaitJob(10*time.Minute, job.ID); ended.Done != 300 {
			t.Errorf("done %d, failed %d, skipped %d: %s", ended.Done, ended.Failed, ended.Skipped, ended.FirstError)
		}
		for from, n := range r.wantMarksTrue("orders") {
			if n > 1 {
				t.Errorf("%d copies of %s", n, from)
			}
		}
		r.wantOrder("orders")
	})
}

// I12: one record that is refused for good stops its key, and nothing else.
func TestARefusedRecordStopsItsKeyAndNoOther(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := scattered(40, 4)
		big := make([]byte, 5000)
		_, _ = rand.Read(big)
		var records []*kgo.Record
		for _, l := range letters {
			rec := l.record()
			if l.offset == 1009 { // Of key k1, its third letter.
				rec.Value = big
			}
			records = append(records, rec)
		}
		r.die(records...)
		r.onProduce("orders", func(_ int32, batch []byte) *kerr.Error {
			if bytes.Contains(batch, big[:64]) || len(batch) > 5000 {
				return kerr.InvalidRecord
			}
			return nil
		})
		p := r.start()
		job := p.submit(everything())
		ended := r.awaitJob(5*time.Minute, job.ID)
		if ended.Done != 32 || ended.Failed != 1 || ended.Skipped != 7 || !strings.Contains(ended.FirstError, "INVALID_RECORD") {
			t.Errorf("done %d, failed %d, skipped %d: %s", ended.Done, ended.Failed, ended.Skipped, ended.FirstError)
		}
		items, err := r.ledger.Items(t.Context(), job.ID, 1, 100, deadletter.ItemSkipped)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			if string(item.Letter.Key) != "k1" || item.Letter.OriginOffset < 1009 || item.Letter.State != deadletter.Dead || !strings.Contains(item.Error, "an earlier letter of its key failed") {
				t.Errorf("skipped: key %s, offset %d, %s: %s", item.Letter.Key, item.Letter.OriginOffset, item.Letter.State, item.Error)
			}
		}
		r.wantOrder("orders")
		if !slices.ContainsFunc(p.Status().Troubles, func(t issue.Trouble) bool { return t.Issue == issue.ReplayRefused && t.Topic == "orders" }) {
			t.Errorf("troubles %v", p.Status().Troubles)
		}
	})
}

// I12: an error that is not the record's own fails nothing.
func TestTransientErrorsAreWaitedForAndShown(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(40, 4)...)
		ends := time.Now().Add(2 * time.Minute)
		r.onProduce("orders", func(int32, []byte) *kerr.Error {
			if time.Now().Before(ends) {
				return kerr.TopicAuthorizationFailed
			}
			return nil
		})
		p := r.start()
		job := p.submit(everything())
		time.Sleep(time.Minute)
		if !slices.ContainsFunc(p.Status().Troubles, func(t issue.Trouble) bool { return t.Issue == issue.JobStalled && t.Topic == "orders" }) {
			t.Errorf("troubles %v", p.Status().Troubles)
		}
		ended := r.awaitJob(5*time.Minute, job.ID)
		if ended.Done != 40 || time.Now().Before(ends) {
			t.Errorf("done %d, failed %d, skipped %d", ended.Done, ended.Failed, ended.Skipped)
		}
		if n := len(r.copies("orders")); n != 40 {
			t.Errorf("%d copies", n)
		}
		if troubles := p.Status().Troubles; len(troubles) != 0 {
			t.Errorf("troubles that are over: %v", troubles)
		}
		r.wantOrder("orders")
	})
}

func TestALedgerThatIsDownIsWaitedForAndNothingIsSentTwice(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(60, 7)...)
		r.opts.Batch, r.opts.InFlight = 10, 5
		var once sync.Once
		p := r.start(func(o *Options, g *gate) {
			g.fails = map[string]int{"finish": 2}
			o.crash = func(at string) {
				if at == "before-finish" {
					once.Do(func() {
						g.set(errors.New("no database"))
						time.AfterFunc(10*time.Second, func() { g.set(nil) }) // Shorter than the lease.
					})
				}
			}
		})
		job := p.submit(everything())
		time.Sleep(5 * time.Second)
		if !slices.ContainsFunc(p.Status().Troubles, func(t issue.Trouble) bool { return t.Issue == issue.LedgerDown }) {
			t.Errorf("troubles %v", p.Status().Troubles)
		}
		if ended := r.awaitJob(5*time.Minute, job.ID); ended.Done != 60 {
			t.Errorf("done %d, failed %d, skipped %d", ended.Done, ended.Failed, ended.Skipped)
		}
		if n := len(r.copies("orders")); n != 60 {
			t.Errorf("%d copies", n)
		}
	})
}

// The letters are claimed, and the claimer does not know it: they must not be skipped, and not be waited for for ever.
func TestAClaimWhoseAnswerWasLostIsTakenOver(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(20, 3)...)
		p := r.start(func(_ *Options, g *gate) { g.fails = map[string]int{"claim": 1} })
		job := p.submit(everything())
		if ended := r.awaitJob(5*time.Minute, job.ID); ended.Done != 20 {
			t.Errorf("done %d, failed %d, skipped %d", ended.Done, ended.Failed, ended.Skipped)
		}
		if n := len(r.copies("orders")); n != 20 {
			t.Errorf("%d copies", n)
		}
	})
}

func TestAStopGivesBackWhatWasNotSentAndAnotherGoesOnAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(200, 5)...)
		p := r.start()
		job := p.submit(everything(func(q *Request) { q.Spec.Rate = 20 }))
		time.Sleep(3 * time.Second)
		p.stop()
		if claimed := r.letters(deadletter.Filter{States: []deadletter.State{deadletter.Claimed}}); len(claimed) > 0 {
			t.Errorf("%d letters are still claimed", len(claimed))
		}
		began := time.Now()
		r.start()
		if ended := r.awaitJob(time.Minute, job.ID); ended.Done != 200 {
			t.Errorf("done %d", ended.Done)
		}
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("it took %v: the lease was not given back", took)
		}
		for from, n := range r.wantMarksTrue("orders") {
			if n != 1 {
				t.Errorf("%d copies of %s", n, from)
			}
		}
	})
}

func TestPauseResumeCancelAndRateAreObeyed(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(400, 5)...)
		p := r.start()
		job := p.submit(everything(func(q *Request) { q.Spec.Rate = 10 }))
		control := func(action string, rate float64) {
			t.Helper()
			if _, err := r.ledger.ControlJob(t.Context(), job.ID, deadletter.Change{Action: action, Rate: rate, Actor: "ada", Reason: "test"}); err != nil {
				t.Fatal(err)
			}
		}
		sent := func() int { return len(r.copies("orders")) }
		time.Sleep(10 * time.Second)
		if n := sent(); n < 80 || n > 103 {
			t.Errorf("%d copies after 10 s at 10 a second", n)
		}
		control(deadletter.PauseJob, 0)
		time.Sleep(2 * time.Second)
		paused := sent()
		time.Sleep(time.Minute)
		if n := sent(); n != paused {
			t.Errorf("%d copies were sent while the job was paused", n-paused)
		}
		if claimed := r.letters(deadletter.Filter{States: []deadletter.State{deadletter.Claimed}}); len(claimed) > 0 {
			t.Errorf("%d letters are claimed for a paused job", len(claimed))
		}
		control(deadletter.ResumeJob, 0)
		control(deadletter.RateJob, 40)
		time.Sleep(5 * time.Second)
		if n := sent() - paused; n < 120 || n > 210 {
			t.Errorf("%d copies after 5 s at 40 a second", n)
		}
		control(deadletter.CancelJob, 0)
		time.Sleep(2 * time.Second)
		cancelled := sent()
		time.Sleep(time.Minute)
		if n := sent(); n != cancelled || n == 400 {
			t.Errorf("%d copies, %d when the job was cancelled", n, cancelled)
		}
		control(deadletter.ResumeJob, 0)
		if ended := r.awaitJob(time.Minute, job.ID); ended.Done != 400 {
			t.Errorf("done %d", ended.Done)
		}
		for from, n := range r.wantMarksTrue("orders") {
			if n != 1 {
				t.Errorf("%d copies of %s", n, from)
			}
		}
		r.wantOrder("orders")
	})
}

func TestTheRateOfTheProcessHoldsForAllJobs(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(scattered(300, 300)...)
		r.opts.RateLimit = 20
		p := r.start()
		for part := range 3 {
			var ids []int64
			for _, l := range letters[part*100 : part*100+100] {
				ids = append(ids, l.ID)
			}
			p.submit(everything(func(q *Request) { q.Filter.IDs = ids }))
		}
		time.Sleep(10 * time.Second)
		if n := len(r.copies("orders")); n < 150 || n > 205 {
			t.Errorf("%d copies after 10 s at 20 a second", n)
		}
	})
}

// Bug scenario 37: a replay for one group must not reach the other.
func TestLettersOfAGroupGoToItsReturnTopic(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(20, 5)...)
		r.opts.Topics = []Topic{{DeadLetters: "orders.dlt", Origin: "orders", ReturnTo: "orders.billing", Group: "billing"}}
		p := r.start()
		job := p.submit(everything())
		r.awaitJob(time.Minute, job.ID)
		if n, m := len(r.copies("orders.billing")), len(r.copies("orders")); n != 20 || m != 0 {
			t.Errorf("%d copies in the return topic, %d in the origin", n, m)
		}
		r.wantOrder("orders.billing")
	})
}

// Bug scenario 34: what arrives during the run is left out.
func TestWhatDiesDuringTheRunIsNotReplayed(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(100, 5)...)
		p := r.start()
		job := p.submit(everything(func(q *Request) { q.Spec.Rate, q.Expect = 20, 100 }))
		if job.Total != 100 {
			t.Errorf("the job has %d letters", job.Total)
		}
		time.Sleep(time.Second)
		late := r.dieAll(letter{key: "k1", value: "late", offset: 1})
		r.awaitJob(time.Minute, job.ID)
		if l := r.letter(late[0].ID); l.State != deadletter.Dead {
			t.Errorf("the late letter is %s", l.State)
		}
		if n := len(r.copies("orders")); n != 100 {
			t.Errorf("%d copies", n)
		}
	})
}

func TestAnEditedReplayIsAnotherMessageThatNamesItsParent(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(letter{key: "k", value: "v", offset: 7})
		p := r.start()
		job := p.submit(one(letters[0].ID, func(q *Request) {
			q.Spec.Edit = &deadletter.Edit{SetHeaders: []deadletter.Header{{Key: "trace", Value: []byte("new")}, {Key: "more", Value: nil}}, HasValue: true}
		}))
		r.awaitJob(time.Minute, job.ID)
		got := r.copies("orders")[0]
		id := header(got, envelope.HeaderMessageID)
		if got.Value != nil || header(got, "trace") != "new" || header(got, envelope.HeaderParentID) != "orders/0/7" || !strings.HasPrefix(id, "orders/0/7~") {
			t.Errorf("value %q, headers %v", got.Value, got.Headers)
		}
		if got.Headers[0].Key != "trace" {
			t.Errorf("the header moved: %v", got.Headers)
		}
	})
}

func TestBytesThatAreGoneOrChangedAreNotReplayed(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(
			letter{dlt: 0, key: "gone", value: "0", offset: 1}, letter{dlt: 0, key: "kept", value: "1", offset: 2},
			letter{dlt: 0, key: "gone", value: "2", offset: 3}, letter{dlt: 0, key: "well", value: "3", offset: 4},
		)
		kept := letters[1]
		rec := letter{dlt: 0, key: "kept", value: "1", offset: 2}.record()
		if _, err := r.ledger.Keep(t.Context(), map[int64]deadletter.Payload{kept.ID: deadletter.PayloadOf(rec)}, "ada", "test"); err != nil {
			t.Fatal(err)
		}
		// A letter whose row says other bytes than its place has.
		changed := deadletter.FromRecord(letter{key: "changed", value: "x", offset: 9}.record(), letters[0].Place.TopicID, "orders", "")
		changed.Place = letters[0].Place
		changed.Place.Partition, changed.Place.Offset = 1, 0
		r.client.Produce(letter{dlt: 1, key: "changed", value: "y", offset: 9}.record())
		if _, err := r.ledger.Next(t.Context(), changed.Place.TopicID, "orders.dlt", 1, 0); err != nil {
			t.Fatal(err)
		}
		if err := r.ledger.Index(t.Context(), deadletter.Batch{TopicID: changed.Place.TopicID, Topic: "orders.dlt", Partition: 1, Next: 1, Letters: []deadletter.Letter{changed}}); err != nil {
			t.Fatal(err)
		}

		p := r.start()
		plan, err := p.Plan(t.Context(), everything())
		if err != nil || len(plan.IDs) != 5 {
			t.Fatal(plan.IDs, err)
		}
		r.client.DeleteRecords("orders.dlt", map[int32]int64{0: 3}) // After the plan, and before it is executed.
		job := p.submit(everything(func(q *Request) { q.Plan = &plan }))
		ended := r.awaitJob(time.Minute, job.ID)
		if ended.Done != 2 || ended.Failed != 2 || ended.Skipped != 1 {
			t.Errorf("done %d, failed %d, skipped %d", ended.Done, ended.Failed, ended.Skipped)
		}
		want := map[string]deadletter.State{"0": deadletter.Expired, "1": deadletter.Replayed, "2": deadletter.Dead, "3": deadletter.Replayed}
		for i, l := range letters {
			if got := r.letter(l.ID).State; got != want[fmt.Sprint(i)] {
				t.Errorf("letter %d is %s", i, got)
			}
		}
		for _, rec := range r.copies("orders") {
			if strings.HasPrefix(string(rec.Key), "gone") || string(rec.Key) == "changed" {
				t.Errorf("a copy of %s", rec.Key)
			}
		}
		if !slices.ContainsFunc(p.Status().Troubles, func(t issue.Trouble) bool { return t.Issue == issue.LetterChanged }) {
			t.Errorf("troubles %v", p.Status().Troubles)
		}
		if _, err := p.Payload(t.Context(), r.letters(deadletter.Filter{Key: []byte("changed"), HasKey: true})[0]); !errors.Is(err, ErrChanged) {
			t.Errorf("payload of the changed letter: %v", err)
		}
		if got, err := p.Payload(t.Context(), r.letter(kept.ID)); err != nil || string(got.Value) != "1" {
			t.Errorf("payload of the kept letter: %q, %v", got.Value, err)
		}
		// From the topics, whatever the ledger has: the changed one, one that is gone, and one that is there.
		read, err := p.Read(t.Context(), []deadletter.Letter{r.letters(deadletter.Filter{Key: []byte("changed"), HasKey: true})[0], r.letter(letters[0].ID), r.letter(letters[3].ID)})
		if err != nil || !errors.Is(read[0].Err, ErrChanged) || !errors.Is(read[1].Err, fetch.ErrGone) || read[2].Err != nil || string(read[2].Payload.Value) != "3" {
			t.Errorf("read: %+v, %v", read, err)
		}
		// Dry run: what retention took is known before.
		again, err := p.Plan(t.Context(), one(letters[2].ID))
		if err != nil || len(again.IDs) != 0 || again.ExcludedBy[CodeExpired] != 1 {
			t.Errorf("plan %v, %v, %v", again.IDs, again.ExcludedBy, err)
		}
	})
}

func TestAForcedReplaySendsAgainAndCountsOn(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(letter{key: "k", value: "v", offset: 1})
		p := r.start()
		for i := range 3 {
			job := p.submit(one(letters[0].ID, func(q *Request) { q.Spec.Force = i > 0 }))
			r.awaitJob(time.Minute, job.ID)
		}
		var counts []string
		for _, rec := range r.copies("orders") {
			counts = append(counts, header(rec, envelope.HeaderReplayCount))
		}
		if !slices.Equal(counts, []string{"1", "2", "3"}) {
			t.Errorf("replay counts %v", counts)
		}
	})
}

// A missing destination holds up its job, and no other.
func TestAMissingTargetIsWaitedFor(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(letter{key: "a", value: "1", offset: 1}, letter{key: "b", value: "2", offset: 2})
		r.opts.Topics[0].ReplayTo = append(r.opts.Topics[0].ReplayTo, "later")
		p := r.start()
		waits := p.submit(one(letters[0].ID, func(q *Request) { q.Spec.Destination = "later" }))
		time.Sleep(10 * time.Second)
		flows := p.submit(one(letters[1].ID))
		r.awaitJob(time.Minute, flows.ID)
		if !slices.ContainsFunc(p.Status().Troubles, func(t issue.Trouble) bool { return t.Issue == issue.JobStalled && t.Topic == "later" }) {
			t.Errorf("troubles %v", p.Status().Troubles)
		}
		r.client.CreateTopic("later", 3, nil)
		r.awaitJob(2*time.Minute, waits.ID)
		if n := len(r.copies("later")); n != 1 {
			t.Errorf("%d copies", n)
		}
		testkit.WaitFor(t, time.Minute, "the trouble to be over", func(context.Context) error {
			if troubles := p.Status().Troubles; len(troubles) > 0 {
				return fmt.Errorf("troubles %v", troubles)
			}
			return nil
		})
	})
}
