package ledgertest

import (
	"github.com/google/go-cmp/cmp"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

func outcomeRules() []rule {
	return []rule{
		{"a letter with a copy is replayed", (*rig).outcomeCopy},
		{"a letter with an error is dead again and its item has failed", (*rig).outcomeError},
		{"a letter whose bytes are gone is expired", (*rig).outcomeExpired},
		{"a claim that is given back leaves the letter dead and the item open", (*rig).outcomeBack},
		{"a claim that is given back with a reason skips the item", (*rig).outcomeSkip},
		{"an outcome under a stale fence is left out and returned", (*rig).outcomeFenced},
		{"an outcome is counted once", (*rig).outcomeTwice},
		{"outcomes need no lease of the job", (*rig).outcomeLate},
		{"failed items stop their keys", (*rig).stoppedKeys},
	}
}

// counters are done, failed, skipped and left.
func (r *rig) counters(job string, want ...int64) {
	r.t.Helper()
	j := r.current(job)
	r.same("done, failed, skipped, left", []int64{j.Done, j.Failed, j.Skipped, j.Left()}, want)
}

func (r *rig) outcomeCopy() {
	letters := r.index(letter(0), letter(1))
	job := r.leased(spec(), letters...)
	claimed := r.granted(job, letters[0])[0]
	r.finish(sent(claimed, 500))
	got := r.get(letters[0].ID)
	want := deadletter.Target{Topic: "orders", Partition: 1, Offset: 500}
	if got.State != deadletter.Replayed || got.Copy != want || got.Claim.Fence != claimed.Granted.Fence || got.Claim.Job != job.ID || got.Claim.ReplayCount != 1 {
		r.t.Errorf("the letter is %+v", got)
	}
	item := r.item(job.ID, letters[0].ID)
	if item.State != deadletter.ItemDone || item.Copy != want || item.ReplayCount != 1 || item.Error != "" || item.At.IsZero() {
		r.t.Errorf("the item is %+v", item)
	}
	r.counters(job.ID, 1, 0, 0, 1)
	// The first record of a partition is a copy as well.
	r.finish(sent(r.granted(job, letters[1])[0], 0))
	r.states(letters, deadletter.Replayed, deadletter.Replayed)
}

func (r *rig) outcomeError() {
	letters := r.index(letter(0), letter(1), letter(2))
	job := r.leased(spec(), letters...)
	claimed := r.granted(job, letters...)
	r.finish(failed(claimed[1], "too large"))
	r.finish(failed(claimed[0], "the topic is gone"))
	r.states(letters, deadletter.Dead, deadletter.Dead, deadletter.Claimed)
	item := r.item(job.ID, letters[1].ID)
	if item.State != deadletter.ItemFailed || item.Error != "too large" || item.Copy.Offset != -1 {
		r.t.Errorf("the item is %+v", item)
	}
	r.counters(job.ID, 0, 2, 0, 1)
	r.same("first error", r.current(job.ID).FirstError, "too large")
	if got := r.get(letters[1].ID); got.Claim.Fence != (idempotency.Fence{}) && got.Copy.Offset != -1 {
		r.t.Errorf("the letter is %+v", got)
	}
	r.granted(r.leased(spec(), letters[0]), letters[0])
	second := r.index(letter(3), letter(4))
	job = r.leased(spec(), second...)
	claimed = r.granted(job, second...)
	r.finish(failed(claimed[0], "one"), failed(claimed[1], "two"))
	r.same("first error of two that are written together", r.current(job.ID).FirstError, "one")
}

func (r *rig) outcomeExpired() {
	letters := r.index(letter(0), letter(1))
	job := r.leased(spec(), letters...)
	claimed := r.granted(job, letters...)
	r.finish(
		without(claimed[0], func(o *deadletter.Outcome) { o.Error, o.Expired = "retention took it", true }),
		without(claimed[1], func(o *deadletter.Outcome) { o.Skip, o.Expired = "retention took it", true }),
	)
	r.states(letters, deadletter.Expired, deadletter.Expired)
	r.counters(job.ID, 0, 1, 1, 0)
}

func (r *rig) outcomeBack() {
	l := r.index(letter(0))[0]
	job := r.leased(spec(), l)
	r.finish(without(r.granted(job, l)[0]))
	r.states([]deadletter.Letter{l}, deadletter.Dead)
	r.same("the item", r.item(job.ID, l.ID).State, deadletter.ItemOpen)
	r.counters(job.ID, 0, 0, 0, 1)
	again := r.granted(job, l)[0]
	if again.Before != nil {
		r.t.Errorf("a claim that was given back is taken over: %+v", again.Before)
	}
	r.same("the replay count", again.Granted.ReplayCount, 1)
	r.finish(sent(again, 500))
}

func (r *rig) outcomeSkip() {
	l := r.index(letter(0))[0]
	job := r.leased(spec(), l)
	r.finish(without(r.granted(job, l)[0], func(o *deadletter.Outcome) { o.Skip = "an earlier one failed" }))
	r.states([]deadletter.Letter{l}, deadletter.Dead)
	item := r.item(job.ID, l.ID)
	if item.State != deadletter.ItemSkipped || item.Error != "an earlier one failed" {
		r.t.Errorf("the item is %+v", item)
	}
	r.counters(job.ID, 0, 0, 1, 0)
}

func (r *rig) outcomeFenced() {
	letters := r.index(letter(0), letter(1), letter(2))
	job := r.leased(spec(), letters...)
	claimed := r.granted(job, letters...)
	stale := []deadletter.Outcome{sent(claimed[0], 500), sent(claimed[1], 501)}
	stale[0].Claim.Fence.N += 1000
	stale[1].Claim.Fence.Epoch++
	fenced, err := r.ledger.Finish(r.ctx(), []deadletter.Outcome{stale[0], sent(claimed[2], 502), stale[1]})
	r.no(err)
	r.same("outcomes fenced", fenced, stale)
	r.states(letters, deadletter.Claimed, deadletter.Claimed, deadletter.Replayed)
	r.counters(job.ID, 1, 0, 0, 2)
}

func (r *rig) outcomeTwice() {
	l := r.index(letter(0))[0]
	job := r.leased(spec(), l)
	outcome := sent(r.granted(job, l)[0], 500)
	r.finish(outcome)
	for _, again := range []deadletter.Outcome{outcome, {Claim: outcome.Claim, Seq: outcome.Seq, Copy: deadletter.Target{Offset: -1}, Error: "no"}} {
		fenced, err := r.ledger.Finish(r.ctx(), []deadletter.Outcome{again})
		r.no(err)
		r.same("outcomes fenced", len(fenced), 1)
	}
	r.counters(job.ID, 1, 0, 0, 0)
	r.states([]deadletter.Letter{l}, deadletter.Replayed)
	m := r.index(letter(1))[0]
	second := r.leased(spec(), m)
	outcome = sent(r.granted(second, m)[0], 501)
	fenced, err := r.ledger.Finish(r.ctx(), []deadletter.Outcome{outcome, outcome})
	r.no(err)
	if len(fenced) > 1 {
		r.t.Errorf("both of two equal outcomes are fenced")
	}
	r.counters(second.ID, 1, 0, 0, 0)
}

func (r *rig) outcomeLate() {
	letters := r.index(letter(0), letter(1))
	first := r.leased(spec(), letters...)
	claimed := r.granted(first, letters...)
	second := r.takeOver(first, "runner-2")
	// Nobody has taken the letters over yet, so the first runner may say what became of them.
	r.finish(sent(claimed[0], 500))
	r.counters(second.ID, 1, 0, 0, 1)
	r.control(second.ID, deadletter.CancelJob)
	r.finish(sent(claimed[1], 501))
	r.counters(second.ID, 2, 0, 0, 0)
	r.same("state of the job", r.current(second.ID).State, deadletter.JobCancelled)
}

func (r *rig) stoppedKeys() {
	a, b := keyed([]byte("a")), keyed([]byte("b"))
	letters := r.index(letter(0, a), letter(1, a), letter(2, b), letter(3, a, from("cash", 0, 5)), letter(4, keyed(nil)), letter(5, keyed([]byte{})),
		letter(6, keyed([]byte("c"))))
	job := r.leased(spec(), letters...)
	none, err := r.ledger.StoppedKeys(r.ctx(), job.ID)
	r.no(err)
	r.same("keys stopped at first", len(none), 0)
	claimed := r.granted(job, letters...)
	for i, c := range claimed {
		switch i {
		case 2:
			r.finish(sent(c, 500))
		case 6:
			r.finish(without(c, func(o *deadletter.Outcome) { o.Skip = "not now" }))
		default:
			r.finish(failed(c, "too large"))
		}
	}
	got, err := r.ledger.StoppedKeys(r.ctx(), job.ID)
	r.no(err)
	seen := map[string]int{}
	for _, k := range got {
		if k.Key == nil {
			r.t.Errorf("a record without a key stops %+v", k)
		}
		seen[k.Origin+"/"+string(k.Key)] = 1
	}
	if diff := cmp.Diff(map[string]int{"orders/a": 1, "cash/a": 1, "orders/": 1}, seen); diff != "" {
		r.t.Errorf("keys stopped (-want +got):\n%s", diff)
	}
}
