package ledgertest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

func leaseRules() []rule {
	return []rule{
		{"the oldest job is leased first", (*rig).leaseOldest},
		{"a job is leased by one", (*rig).leaseOnce},
		{"of runners that ask at the same time one has the job", (*rig).leaseParallel},
		{"a job whose lease has run out is taken over under another fence", (*rig).leaseExpires},
		{"a lease is renewed", (*rig).leaseRenewed},
		{"a renewal holds the claims as well, of this owner only", (*rig).renewClaims},
		{"a renewal does not hold claims of an earlier lease of the same owner", (*rig).renewOwn},
		{"a late renewal is accepted while nobody has taken over", (*rig).renewLate},
		{"a stale fence of a job has no effect", (*rig).staleJob},
		{"a job ends when no item is open", (*rig).endJob},
		{"a job that is left may be leased at once", (*rig).leave},
		{"open items are skipped with their reasons", (*rig).skip},
	}
}

func (r *rig) leaseOldest() {
	l := r.index(letter(0))[0]
	first, second := r.job(spec(), l), r.job(spec(), l)
	got := r.lease("runner-1", long)
	r.same("the first job leased", got.ID, first.ID)
	if got.State != deadletter.JobRunning || got.Owner != "runner-1" || got.StartedAt.IsZero() || !got.Until.After(got.StartedAt.Add(long/2)) || got.Total != 1 || got.Spec.Actor != "ada" {
		r.t.Errorf("it is %+v", got)
	}
	r.same("it, read again", r.current(first.ID), got)
	r.same("the second job leased", r.lease("runner-1", long).ID, second.ID)
}

func (r *rig) leaseOnce() {
	r.leased(spec(), r.index(letter(0))...)
	for _, owner := range []string{"runner-1", "runner-2"} {
		got, err := r.ledger.LeaseJob(r.ctx(), owner, long)
		r.no(err)
		if got != nil {
			r.t.Errorf("%s leases it as well: %+v", owner, got)
		}
	}
}

func (r *rig) leaseParallel() {
	const jobs, runners = 5, 20
	l := r.index(letter(0))[0]
	for range jobs {
		r.job(spec(), l)
	}
	leased := make([]*deadletter.Job, runners)
	errs := make([]error, runners)
	var group sync.WaitGroup
	for i := range runners {
		group.Go(func() { leased[i], errs[i] = r.ledger.LeaseJob(r.ctx(), fmt.Sprint("runner-", i), long) })
	}
	group.Wait()
	r.no(errors.Join(errs...))
	owners := map[string]string{}
	fences := map[idempotency.Fence]bool{}
	for i, job := range leased {
		if job == nil {
			continue
		}
		if owner, ok := owners[job.ID]; ok {
			r.t.Errorf("%s and runner-%d have the same job", owner, i)
		}
		owners[job.ID] = job.Owner
		r.distinct(fences, job.Fence)
	}
	if len(owners) == 0 {
		r.t.Error("nobody has a job")
	}
	// Who came while another took a job may have had none; nothing is left over for good.
	for range jobs - len(owners) {
		r.distinct(fences, r.lease("runner-late", long).Fence)
	}
}

func (r *rig) leaseExpires() {
	r.job(spec(), r.index(letter(0))...)
	first := r.lease("runner-1", short)
	fences := map[idempotency.Fence]bool{first.Fence: true}
	var second *deadletter.Job
	r.await("the lease of the job has run out", func() bool {
		var err error
		second, err = r.ledger.LeaseJob(r.ctx(), "runner-2", long)
		r.no(err)
		return second != nil
	})
	r.distinct(fences, second.Fence)
	if second.ID != first.ID || second.Owner != "runner-2" || second.State != deadletter.JobRunning || !second.StartedAt.Equal(first.StartedAt) {
		r.t.Errorf("the job taken over is %+v, it was %+v", second, first)
	}
}

func (r *rig) leaseRenewed() {
	r.job(spec(), r.index(letter(0))...)
	first := r.lease("runner-1", time.Minute)
	renewed, err := r.ledger.RenewJob(r.ctx(), first.ID, first.Fence, long)
	r.no(err)
	if renewed.State != deadletter.JobRunning || renewed.Fence != first.Fence || !renewed.Until.After(first.Until.Add(long/2)) {
		r.t.Errorf("the job renewed is %+v, it was %+v", renewed, first)
	}
}

func (r *rig) renewClaims() {
	letters := r.index(letter(0), letter(1))
	first := r.leased(spec(), letters...)
	r.granted(first, letters[0])
	second := r.takeOver(first, "runner-2")
	r.granted(second, letters[1])
	stale, held := r.get(letters[0].ID).Claim, r.get(letters[1].ID).Claim
	if !held.Until.Equal(second.Until) {
		r.t.Errorf("a claim ends at %s, the lease of its job at %s", held.Until, second.Until)
	}
	renewed, err := r.ledger.RenewJob(r.ctx(), second.ID, second.Fence, 2*long)
	r.no(err)
	if got := r.get(letters[1].ID).Claim; !got.Until.Equal(renewed.Until) || !got.Until.After(held.Until) {
		r.t.Errorf("the claim ends at %s, before the renewal at %s, and the lease at %s", got.Until, held.Until, renewed.Until)
	}
	if got := r.get(letters[0].ID).Claim; got != stale {
		r.t.Errorf("the claim of the first runner is %+v after a renewal of the second, it was %+v", got, stale)
	}
}

func (r *rig) renewOwn() {
	l := r.index(letter(0))[0]
	first := r.leased(spec(), l)
	claimed := r.granted(first, l)[0]
	again := r.takeOver(first, first.Owner)
	// The runner has lost its job and has it again, and knows nothing of its claim: if that were renewed it would wait for itself.
	_, err := r.ledger.RenewJob(r.ctx(), again.ID, again.Fence, long)
	r.no(err)
	var over deadletter.ClaimResult
	r.await("the claim has run out", func() bool {
		over = r.claim(again, l)[0]
		return over.Granted != nil
	})
	if over.Before == nil || over.Before.Fence != claimed.Granted.Fence {
		r.t.Errorf("the claim taken over is %+v", over.Before)
	}
}

func (r *rig) renewLate() {
	l := r.index(letter(0))[0]
	r.job(spec(), l)
	job := r.lease("runner-1", long)
	r.granted(job, l)
	r.lapse(job)
	r.await("the claim has run out", func() bool { return !r.get(l.ID).Claim.Until.After(time.Now()) })
	renewed, err := r.ledger.RenewJob(r.ctx(), job.ID, job.Fence, long)
	r.no(err)
	r.same("fence", renewed.Fence, job.Fence)
	r.same("the claim ends with the lease", r.get(l.ID).Claim.Until.Equal(renewed.Until), true)
}

func (r *rig) staleJob() {
	letters := r.index(letter(0), letter(1))
	first := r.leased(spec(), letters...)
	second := r.takeOver(first, "runner-2")
	for _, fence := range []idempotency.Fence{first.Fence, {}, {Epoch: second.Fence.Epoch + 1, N: second.Fence.N}, {Epoch: second.Fence.Epoch, N: second.Fence.N + 1}} {
		_, err := r.ledger.RenewJob(r.ctx(), first.ID, fence, long)
		r.is(err, deadletter.ErrFenced)
		_, err = r.ledger.Claim(r.ctx(), first.ID, fence, []deadletter.Want{r.want(first.ID, letters[0].ID)})
		r.is(err, deadletter.ErrFenced)
		r.is(r.ledger.Skip(r.ctx(), first.ID, fence, map[int64]string{1: "no"}), deadletter.ErrFenced)
		_, err = r.ledger.EndJob(r.ctx(), first.ID, fence)
		r.is(err, deadletter.ErrFenced)
		if err := r.ledger.LeaveJob(r.ctx(), first.ID, fence); err != nil {
			r.is(err, deadletter.ErrFenced)
		}
	}
	r.states(letters, deadletter.Dead, deadletter.Dead)
	r.same("the job", r.current(second.ID), second)
	r.same("items left open", len(r.items(second.ID, deadletter.ItemOpen)), 2)
}

func (r *rig) endJob() {
	letters := r.index(letter(0), letter(1), letter(2))
	job := r.leased(spec(), letters...)
	_, err := r.ledger.EndJob(r.ctx(), job.ID, job.Fence)
	r.is(err, deadletter.ErrState)
	claimed := r.granted(job, letters[:2]...)
	r.finish(sent(claimed[0], 500), failed(claimed[1], "too large"))
	_, err = r.ledger.EndJob(r.ctx(), job.ID, job.Fence)
	r.is(err, deadletter.ErrState)
	r.same("state", r.current(job.ID).State, deadletter.JobRunning)
	r.no(r.ledger.Skip(r.ctx(), job.ID, job.Fence, map[int64]string{r.item(job.ID, letters[2].ID).Seq: "an earlier one failed"}))
	ended := r.end(job)
	if ended.State != deadletter.JobDone || ended.EndedAt.IsZero() || ended.Done != 1 || ended.Failed != 1 || ended.Skipped != 1 || ended.FirstError != "too large" {
		r.t.Errorf("the ended job is %+v", ended)
	}
	r.same("it, read again", r.current(job.ID), ended)
	none, err := r.ledger.LeaseJob(r.ctx(), "runner-2", long)
	r.no(err)
	if none != nil {
		r.t.Errorf("an ended job is leased: %+v", none)
	}
}

func (r *rig) leave() {
	letters := r.index(letter(0), letter(1))
	first := r.leased(spec(), letters...)
	r.replay(first, letters[0])
	r.no(r.ledger.LeaveJob(r.ctx(), first.ID, first.Fence))
	left := r.current(first.ID)
	if left.State != deadletter.JobRunning || left.Done != 1 {
		r.t.Errorf("the job that was left is %+v", left)
	}
	second := r.lease("runner-2", long)
	r.same("the job leased", second.ID, first.ID)
	if second.Fence == first.Fence {
		r.t.Error("both have the same fence")
	}
	_, err := r.ledger.RenewJob(r.ctx(), first.ID, first.Fence, long)
	r.is(err, deadletter.ErrFenced)
	r.replay(second, letters[1])
	r.end(second)
}

func (r *rig) skip() {
	letters := r.index(letter(0), letter(1), letter(2))
	job := r.leased(spec(), letters...)
	r.replay(job, letters[0])
	r.no(r.ledger.Skip(r.ctx(), job.ID, job.Fence, map[int64]string{1: "late", 2: "an earlier one failed", 99: "not there"}))
	items := r.items(job.ID)
	got := []deadletter.ItemState{items[0].State, items[1].State, items[2].State}
	r.same("items", got, []deadletter.ItemState{deadletter.ItemDone, deadletter.ItemSkipped, deadletter.ItemOpen})
	r.same("error of the skipped one", items[1].Error, "an earlier one failed")
	now := r.current(job.ID)
	r.same("counters", []int64{now.Done, now.Failed, now.Skipped, now.Left()}, []int64{1, 0, 1, 1})
	r.states(letters, deadletter.Replayed, deadletter.Dead, deadletter.Dead)
	r.no(r.ledger.Skip(r.ctx(), job.ID, job.Fence, nil))
}
