package ledgertest

import (
	"errors"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

func controlRules() []rule {
	return []rule{
		{"an operator's change is allowed in these states only", (*rig).controlStates},
		{"a change of a job is audited", (*rig).controlAudited},
		{"a job that is paused is not leased, and goes on after resume", (*rig).pauseResume},
		{"a job that is paused claims nothing", (*rig).pauseClaims},
		{"a job that is cancelled may be resumed", (*rig).cancelResume},
		{"a new rate is seen at the next renewal", (*rig).rate},
		{"an unknown change is refused", (*rig).unknownChange},
	}
}

// inState makes a job that is in that state.
func (r *rig) inState(state deadletter.JobState, l deadletter.Letter) deadletter.Job {
	r.t.Helper()
	switch state {
	case deadletter.JobQueued:
		return r.job(spec(), l)
	case deadletter.JobRunning:
		return r.leased(spec(), l)
	case deadletter.JobPaused:
		return r.control(r.job(spec(), l).ID, deadletter.PauseJob)
	case deadletter.JobCancelled:
		return r.control(r.job(spec(), l).ID, deadletter.CancelJob)
	default:
		return r.replayed(l)
	}
}

func (r *rig) controlStates() {
	const q, run, p, c, d = deadletter.JobQueued, deadletter.JobRunning, deadletter.JobPaused, deadletter.JobCancelled, deadletter.JobDone
	next := map[string]map[deadletter.JobState]deadletter.JobState{
		deadletter.PauseJob:  {q: p, run: p},
		deadletter.ResumeJob: {p: q, c: q},
		deadletter.CancelJob: {q: c, run: c, p: c},
		deadletter.RateJob:   {q: q, run: run, p: p},
	}
	offset := int64(0)
	for action, allowed := range next {
		for _, from := range []deadletter.JobState{q, run, p, c, d} {
			if action == deadletter.RateJob && from.Ended() {
				continue // Nothing is said about the rate of a job that sends nothing any more.
			}
			l := r.index(letter(offset))[0]
			offset++
			job := r.inState(from, l)
			r.same("state before", job.State, from)
			audit := len(r.audit())
			got, err := r.ledger.ControlJob(r.ctx(), job.ID, deadletter.Change{Action: action, Rate: 7, Actor: "ada", Reason: "as planned"})
			to, ok := allowed[from]
			if !ok {
				r.is(err, deadletter.ErrState)
				r.same("state after "+action+" was refused", r.current(job.ID).State, from)
				r.same("rows of the audit trail", len(r.audit()), audit)
			} else {
				r.no(err)
				r.same("state after "+action, got.State, to)
				r.same("state after "+action+", read again", r.current(job.ID).State, to)
				if got.EndedAt.IsZero() == to.Ended() {
					r.t.Errorf("a job that is %s ended at %s", to, got.EndedAt)
				}
			}
			if s := r.current(job.ID).State; !s.Ended() {
				r.control(job.ID, deadletter.CancelJob) // So that the next lease is of the next job.
			}
		}
	}
}

func (r *rig) controlAudited() {
	job := r.job(spec(), r.index(letter(0), letter(1))...)
	for _, action := range []string{deadletter.PauseJob, deadletter.RateJob, deadletter.ResumeJob, deadletter.CancelJob} {
		_, err := r.ledger.ControlJob(r.ctx(), job.ID, deadletter.Change{Action: action, Rate: 3, Actor: "ben", Reason: "because of " + action})
		r.no(err)
		e := r.audit()[0]
		if e.Action != action || e.Actor != "ben" || e.Reason != "because of "+action || e.Object != job.ID {
			r.t.Errorf("the audit row of %s is %+v", action, e)
		}
	}
}

func (r *rig) pauseResume() {
	letters := r.index(letter(0), letter(1))
	first := r.leased(spec(), letters...)
	claimed := r.granted(first, letters[0])
	r.control(first.ID, deadletter.PauseJob)
	got, err := r.ledger.RenewJob(r.ctx(), first.ID, first.Fence, long)
	r.no(err)
	r.same("state that the runner is told", got.State, deadletter.JobPaused)
	none, err := r.ledger.LeaseJob(r.ctx(), "runner-2", long)
	r.no(err)
	if none != nil {
		r.t.Fatalf("a paused job is leased: %+v", none)
	}
	// What was with the client of the first runner still counts.
	r.finish(sent(claimed[0], 500))
	r.control(first.ID, deadletter.ResumeJob)
	second := r.lease("runner-2", long)
	if second.ID != first.ID || second.Fence == first.Fence || second.Owner != "runner-2" || second.Done != 1 || second.Left() != 1 {
		r.t.Fatalf("the job resumed is %+v", second)
	}
	_, err = r.ledger.RenewJob(r.ctx(), first.ID, first.Fence, long)
	r.is(err, deadletter.ErrFenced)
	r.replay(second, letters[1])
	job := r.end(second)
	if !job.StartedAt.Equal(first.StartedAt) {
		r.t.Errorf("the job started at %s and, after it was resumed, at %s", first.StartedAt, job.StartedAt)
	}
}

func (r *rig) pauseClaims() {
	letters := r.index(letter(0), letter(1))
	job := r.leased(spec(), letters...)
	for _, action := range []string{deadletter.PauseJob, deadletter.CancelJob} {
		r.control(job.ID, action)
		_, err := r.ledger.Claim(r.ctx(), job.ID, job.Fence, []deadletter.Want{r.want(job.ID, letters[0].ID)})
		r.is(err, deadletter.ErrFenced)
		if _, err := r.ledger.EndJob(r.ctx(), job.ID, job.Fence); err == nil {
			r.t.Errorf("a job ends after %s", action)
		}
	}
	r.states(letters, deadletter.Dead, deadletter.Dead)
}

func (r *rig) cancelResume() {
	letters := r.index(letter(0), letter(1))
	job := r.leased(spec(), letters...)
	r.replay(job, letters[0])
	cancelled := r.control(job.ID, deadletter.CancelJob)
	if cancelled.EndedAt.IsZero() || cancelled.Left() != 1 {
		r.t.Errorf("the cancelled job is %+v", cancelled)
	}
	got, err := r.ledger.RenewJob(r.ctx(), job.ID, job.Fence, long)
	r.no(err)
	r.same("state that the runner is told", got.State, deadletter.JobCancelled)
	resumed := r.control(job.ID, deadletter.ResumeJob)
	if !resumed.EndedAt.IsZero() {
		r.t.Errorf("the resumed job ended at %s", resumed.EndedAt)
	}
	again := r.lease("runner-2", long)
	r.same("items left open", len(r.items(job.ID, deadletter.ItemOpen)), 1)
	r.replay(again, letters[1])
	r.same("items done", r.end(again).Done, int64(2))
}

func (r *rig) rate() {
	l := r.index(letter(0))[0]
	job := r.leased(spec(), l)
	r.same("rate before", job.Spec.Rate, 100.0)
	r.control(job.ID, deadletter.RateJob)
	got, err := r.ledger.RenewJob(r.ctx(), job.ID, job.Fence, long)
	r.no(err)
	r.same("rate after", got.Spec.Rate, 5.0)
	r.granted(job, l)
}

func (r *rig) unknownChange() {
	job := r.job(spec(), r.index(letter(0))...)
	_, err := r.ledger.ControlJob(r.ctx(), job.ID, deadletter.Change{Action: "explode", Actor: "ada"})
	if err == nil || errors.Is(err, deadletter.ErrUnknown) {
		r.t.Errorf("an unknown change is answered with %v", err)
	}
	r.same("state", r.current(job.ID).State, deadletter.JobQueued)
}
