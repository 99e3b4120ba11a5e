package ledgertest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

func claimRules() []rule {
	return []rule{
		{"a dead letter is granted", (*rig).claimDead},
		{"a letter in another state is refused, which is said", (*rig).claimRefused},
		{"a forced job is granted what was replayed or discarded, and nothing else", (*rig).claimForced},
		{"a forced job is granted no letter twice", (*rig).claimTwice},
		{"a letter that is claimed is refused until its lease has run out", (*rig).claimHeld},
		{"a claim of the same job is taken over with its replay count", (*rig).takeOverSame},
		{"a claim of another job is taken over with the next replay count", (*rig).takeOverOther},
		{"replay counts rise with each replay of a message", (*rig).replayCounts},
		{"letters of one message claimed together have different replay counts", (*rig).replayCountsTogether},
		{"no two claims have the same fence", (*rig).fencesDiffer},
		{"of fifty claims of one letter at the same time one is granted", (*rig).fifty},
		{"claims are all or nothing under a fence, and may be none", (*rig).claimNone},
	}
}

func (r *rig) claimDead() {
	letters := r.index(letter(0), letter(1))
	job := r.leased(spec(), letters...)
	want := r.want(job.ID, letters[0].ID)
	claimed, err := r.ledger.Claim(r.ctx(), job.ID, job.Fence, []deadletter.Want{want})
	r.no(err)
	if len(claimed) != 1 || claimed[0].Granted == nil || claimed[0].Before != nil || claimed[0].Want != want {
		r.t.Fatalf("the outcome is %+v", claimed)
	}
	c := *claimed[0].Granted
	if c.Letter != letters[0].ID || c.Owner != "runner-1" || c.Job != job.ID || c.ReplayCount != 1 || c.Target != want.Target ||
		c.Fence == (idempotency.Fence{}) || !c.Until.Equal(job.Until) {
		r.t.Errorf("the claim is %+v, the job %+v", c, job)
	}
	epoch, err := r.ledger.Epoch(r.ctx())
	r.no(err)
	r.same("epoch of the fence", c.Fence.Epoch, epoch)
	got := r.get(letters[0].ID)
	r.same("state", got.State, deadletter.Claimed)
	r.same("claim of the letter", got.Claim, c)
	if got.StateAt.Before(letters[0].StateAt) || got.Copy.Offset != -1 {
		r.t.Errorf("the letter is %+v", got)
	}
	r.same("the item", r.item(job.ID, letters[0].ID).State, deadletter.ItemOpen)
	r.states(letters, deadletter.Claimed, deadletter.Dead)
}

// spread makes a letter of each state, but for claimed, and returns them by state.
func (r *rig) spread() map[deadletter.State]deadletter.Letter {
	r.t.Helper()
	letters := r.index(letter(0), letter(1), letter(2), letter(3), letter(4), letter(5, in("old.dlt", "old.dlt", 0)))
	job := r.replayed(letters[1], letters[2], letters[3])
	_, err := r.ledger.Succeed(r.ctx(), ids(letters[2:3]))
	r.no(err)
	r.index(letter(10, named(letters[3].MessageID), cameBack(job.ID, 1)))
	_, err = r.ledger.Discard(r.ctx(), of(letters[4]), "ada", "test data")
	r.no(err)
	_, err = r.ledger.ExpireTopics(r.ctx(), "old.dlt", deadletter.TopicID{})
	r.no(err)
	out := map[deadletter.State]deadletter.Letter{}
	for i, s := range []deadletter.State{deadletter.Dead, deadletter.Replayed, deadletter.Succeeded, deadletter.Returned, deadletter.Discarded, deadletter.Expired} {
		out[s] = r.get(letters[i].ID)
		r.same("state of the letter made for it", out[s].State, s)
	}
	return out
}

func (r *rig) claimRefused() {
	letters := r.spread()
	for state, l := range letters {
		if state == deadletter.Dead {
			continue
		}
		job := r.leased(spec(), l)
		claimed := r.claim(job, l)[0]
		if claimed.Granted != nil || claimed.Refused != state {
			r.t.Errorf("a letter that is %s: granted %v, refused as %q", state, claimed.Granted, claimed.Refused)
		}
		r.same("the letter after it was refused", r.get(l.ID), l)
	}
}

func (r *rig) claimForced() {
	letters := r.spread()
	for state, l := range letters {
		job := r.leased(spec(force), l)
		claimed := r.claim(job, l)[0]
		if granted := claimed.Granted != nil; granted != (state != deadletter.Expired) {
			r.t.Errorf("a letter that is %s: granted %t, refused as %q", state, granted, claimed.Refused)
		} else if granted {
			r.same("state", r.get(l.ID).State, deadletter.Claimed)
			if claimed.Before != nil {
				r.t.Errorf("a letter that is %s is taken over from %+v", state, claimed.Before)
			}
			r.finish(sent(claimed, 600))
			got := r.get(l.ID)
			if got.State != deadletter.Replayed || got.Copy.Offset != 600 || got.Claim.Job != job.ID {
				r.t.Errorf("the letter is %+v", got)
			}
		}
	}
}

func (r *rig) claimTwice() {
	l := r.index(letter(0))[0]
	job := r.leased(spec(force), l)
	r.replay(job, l)
	again := r.claim(job, l)[0]
	if again.Granted != nil || again.Refused != deadletter.Replayed {
		r.t.Errorf("an item that is done is granted again: %+v", again)
	}
	r.same("items done", r.current(job.ID).Done, int64(1))
}

func (r *rig) claimHeld() {
	l := r.index(letter(0))[0]
	first := r.leased(spec(), l)
	granted := r.granted(first, l)[0]
	second := r.leased(spec(force), l)
	held := r.claim(second, l)[0]
	if held.Granted != nil || held.Refused != deadletter.Claimed || !held.Until.Equal(granted.Granted.Until) {
		r.t.Errorf("a letter that is claimed: %+v", held)
	}
	// A repeated call of the holder changes nothing either.
	again := r.claim(first, l)[0]
	if again.Granted != nil || again.Refused != deadletter.Claimed {
		r.t.Errorf("its own holder claims it again: %+v", again)
	}
	r.finish(sent(granted, 500))
	late := r.claim(second, l)[0]
	if late.Granted == nil {
		r.t.Errorf("a forced job is refused, as it is %s", late.Refused)
	}
}

func (r *rig) takeOverSame() {
	l := r.index(letter(0, cameBack("long ago", 4)))[0]
	first := r.leased(spec(), l)
	before := r.granted(first, l)[0].Granted
	r.same("replay count", before.ReplayCount, 5)
	second := r.takeOver(first, "runner-2")
	want := r.want(second.ID, l.ID)
	want.Target = deadletter.Target{Topic: "orders", Partition: 2, Offset: 900}
	var claimed deadletter.ClaimResult
	r.await("the claim has run out", func() bool {
		got, err := r.ledger.Claim(r.ctx(), second.ID, second.Fence, []deadletter.Want{want})
		r.no(err)
		claimed = got[0]
		return claimed.Granted != nil
	})
	if claimed.Before == nil || claimed.Before.Fence != before.Fence || claimed.Before.Owner != "runner-1" || claimed.Before.Job != first.ID ||
		claimed.Before.Target != before.Target || claimed.Before.ReplayCount != before.ReplayCount || claimed.Before.Letter != l.ID {
		r.t.Errorf("the claim taken over is %+v, want %+v", claimed.Before, before)
	}
	after := claimed.Granted
	if after.ReplayCount != before.ReplayCount || after.Fence == before.Fence || after.Owner != "runner-2" || after.Target != want.Target {
		r.t.Errorf("the new claim is %+v", after)
	}
	r.same("claim of the letter", r.get(l.ID).Claim, *after)
	fenced, err := r.ledger.Finish(r.ctx(), []deadletter.Outcome{sent(deadletter.ClaimResult{Want: claimed.Want, Granted: before}, 700)})
	r.no(err)
	r.same("outcomes of the first holder that are fenced", len(fenced), 1)
	r.finish(sent(claimed, 901))
	r.same("the copy", r.get(l.ID).Copy, deadletter.Target{Topic: "orders", Partition: 2, Offset: 901})
	r.same("replay count of the item", r.item(second.ID, l.ID).ReplayCount, before.ReplayCount)
}

func (r *rig) takeOverOther() {
	l := r.index(letter(0))[0]
	first := r.leased(spec(), l)
	before := r.granted(first, l)[0].Granted
	r.control(first.ID, deadletter.CancelJob)
	second := r.leased(spec(), l)
	// A cancelled job renews nothing. Its claim ends when it would have without.
	if held := r.claim(second, l)[0]; held.Granted != nil {
		r.t.Fatal("a claim whose lease has not run out is taken over")
	}
	r.control(second.ID, deadletter.CancelJob)

	m := r.index(letter(1))[0]
	r.job(spec(), m)
	third := r.lease("runner-3", short)
	claimed, err := r.ledger.Claim(r.ctx(), third.ID, third.Fence, []deadletter.Want{r.want(third.ID, m.ID)})
	if errors.Is(err, deadletter.ErrFenced) {
		// The lease was too short for this ledger: it may refuse a claim that ends before it begins.
		_, err = r.ledger.RenewJob(r.ctx(), third.ID, third.Fence, long)
		r.no(err)
		claimed = r.granted(third, m)
		r.lapse(third)
	} else {
		r.no(err)
	}
	r.control(third.ID, deadletter.CancelJob)
	fourth := r.leased(spec(), m)
	var over deadletter.ClaimResult
	r.await("the claim has run out", func() bool {
		over = r.claim(fourth, m)[0]
		return over.Granted != nil
	})
	if over.Before == nil || over.Before.Job != third.ID || over.Before.Fence != claimed[0].Granted.Fence || over.Granted.Job != fourth.ID {
		r.t.Errorf("the claim taken over is %+v, the new one %+v", over.Before, over.Granted)
	}
	r.same("replay counts", []int{over.Before.ReplayCount, over.Granted.ReplayCount}, []int{1, 2})
	r.same("the first claim", r.get(l.ID).Claim.Fence, before.Fence)
}

func (r *rig) replayCounts() {
	l := r.index(letter(0))[0]
	for want := 1; want <= 3; want++ {
		job := r.leased(spec(), l)
		c := r.granted(job, l)[0]
		r.same("replay count", c.Granted.ReplayCount, want)
		r.finish(sent(c, int64(500+want)))
		r.end(job)
		r.same("replay count of the item", r.item(job.ID, l.ID).ReplayCount, want)
		// The copy fails and is dead again: a letter of its own.
		l = r.index(letter(int64(want), named(l.MessageID), cameBack(job.ID, want)))[0]
	}
	// The highest of any letter counts, also of one that lost its history and came as the first again.
	fresh := r.index(letter(20, named(l.MessageID)), letter(21, named(l.MessageID), cameBack("elsewhere", 41)))
	job := r.leased(spec(), fresh[0])
	r.same("replay count", r.granted(job, fresh[0])[0].Granted.ReplayCount, 42)
	forced := r.leased(spec(), fresh[1])
	r.same("replay count while another is claimed", r.granted(forced, fresh[1])[0].Granted.ReplayCount, 43)
}

func (r *rig) replayCountsTogether() {
	same := named("one message")
	letters := r.index(letter(0, same), letter(1, same), letter(2), letter(3, same))
	job := r.leased(spec(), letters...)
	counts := map[int]bool{}
	for i, c := range r.granted(job, letters...) {
		if i == 2 {
			r.same("replay count of another message", c.Granted.ReplayCount, 1)
			continue
		}
		counts[c.Granted.ReplayCount] = true
	}
	r.same("replay counts of the message", counts, map[int]bool{1: true, 2: true, 3: true})
}

func (r *rig) fencesDiffer() {
	letters := r.index(letter(0), letter(1), letter(2))
	seen := map[idempotency.Fence]bool{}
	leases := map[idempotency.Fence]bool{}
	job := r.leased(spec(), letters...)
	for i := range 5 {
		r.distinct(leases, job.Fence)
		claimed := r.granted(job, letters...)
		for _, c := range claimed {
			r.distinct(seen, c.Granted.Fence)
			r.finish(without(c)) // given back
		}
		job = r.takeOver(job, fmt.Sprint("runner-", i+2))
	}
	other := r.leased(spec(), letters...)
	r.distinct(leases, other.Fence)
	for _, c := range r.granted(other, letters...) {
		r.distinct(seen, c.Granted.Fence)
	}
}

func (r *rig) fifty() {
	const callers = 50
	l := r.index(letter(0))[0]
	jobs := make([]deadletter.Job, callers)
	for i := range jobs {
		r.job(spec(), l)
		jobs[i] = r.lease(fmt.Sprint("runner-", i), long)
	}
	claimed := make([][]deadletter.ClaimResult, callers)
	errs := make([]error, callers)
	start := make(chan struct{})
	var group sync.WaitGroup
	for i, job := range jobs {
		want := deadletter.Want{Seq: 1, Letter: l.ID, Target: deadletter.Target{Topic: "orders", Offset: 1}}
		group.Go(func() {
			<-start
			claimed[i], errs[i] = r.ledger.Claim(r.ctx(), job.ID, job.Fence, []deadletter.Want{want})
		})
	}
	close(start)
	group.Wait()
	r.no(errors.Join(errs...))
	granted := 0
	for _, c := range claimed {
		if c[0].Granted != nil {
			granted++
		} else if c[0].Refused != deadletter.Claimed {
			r.t.Errorf("refused as %q", c[0].Refused)
		}
	}
	r.same("claims granted", granted, 1)
}

func (r *rig) claimNone() {
	letters := r.index(letter(0), letter(1))
	job := r.leased(spec(), letters[0])
	claimed, err := r.ledger.Claim(r.ctx(), job.ID, job.Fence, nil)
	r.no(err)
	r.same("outcomes of no wants", len(claimed), 0)
	// A letter that is not in the job, under a seq that is another's or nobody's.
	for _, want := range []deadletter.Want{{Seq: 1, Letter: letters[1].ID}, {Seq: 2, Letter: letters[1].ID}, {Seq: 2, Letter: letters[0].ID}} {
		claimed, err := r.ledger.Claim(r.ctx(), job.ID, job.Fence, []deadletter.Want{want})
		if err == nil && claimed[0].Granted != nil {
			r.t.Errorf("a letter that is no item of the job is granted: %+v", claimed[0])
		}
	}
	r.states(letters, deadletter.Dead, deadletter.Dead)
	got, err := r.ledger.Finish(r.ctx(), nil)
	r.no(err)
	r.same("outcomes fenced of none", len(got), 0)
	r.same("until of the job", r.current(job.ID).Until.After(time.Now()), true)
}
