package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// effect changes the letters that a filter selects.
type effect func(ctx context.Context, filter deadletter.Filter, actor, reason string) (int64, error)

// DiscardLetters answers POST /discards.
func (o *operations) DiscardLetters(w http.ResponseWriter, r *http.Request) {
	o.changeLetters(w, r, only(deadletter.Dead), o.ledger.Discard)
}

// UndiscardLetters answers POST /undiscards.
func (o *operations) UndiscardLetters(w http.ResponseWriter, r *http.Request) {
	o.changeLetters(w, r, only(deadletter.Discarded), o.ledger.Undiscard)
}

// PurgeLetters answers POST /purges.
func (o *operations) PurgeLetters(w http.ResponseWriter, r *http.Request) {
	o.changeLetters(w, r, purgeable, o.ledger.Purge)
}

// only narrows a filter to the one state that a change begins from. It reports false if the filter leaves that state out.
func only(state deadletter.State) func(*deadletter.Filter) (bool, error) {
	return func(filter *deadletter.Filter) (bool, error) {
		if len(filter.States) > 0 && !slices.Contains(filter.States, state) {
			return false, nil
		}
		filter.States = []deadletter.State{state}
		return true, nil
	}
}

// purgeable asks for states by name, so that nobody purges what is not replayed without having said so. Claimed letters stay.
func purgeable(filter *deadletter.Filter) (bool, error) {
	if len(filter.States) == 0 {
		p := newProblem(codeBadParameter, "a purge must name the states it takes")
		p.parameter, p.allowed = "filter.state", slices.DeleteFunc(states(), func(s string) bool { return s == string(deadletter.Claimed) })
		return false, p
	}
	filter.States = slices.DeleteFunc(slices.Clone(filter.States), func(s deadletter.State) bool { return s == deadletter.Claimed })
	return len(filter.States) > 0, nil
}

// changeLetters counts, compares with what the caller expects, and changes. The count that is answered is that of the
// change, which letters that came in between may have moved.
func (o *operations) changeLetters(w http.ResponseWriter, r *http.Request, prepare func(*deadletter.Filter) (bool, error), apply effect) {
	var body ChangeRequest
	if err := o.decode(r, &body, false); err != nil {
		o.fail(w, r, err)
		return
	}
	if err := checkReason(body.Reason); err != nil {
		o.fail(w, r, err)
		return
	}
	filter, err := body.Filter.selection()
	if err != nil {
		o.fail(w, r, err)
		return
	}
	if err := checkSelection(&filter, value(body.All)); err != nil {
		o.fail(w, r, err)
		return
	}
	if body.Expect != nil && *body.Expect < 1 {
		o.fail(w, r, badParameter("expect", "expect must be at least 1"))
		return
	}
	some, err := prepare(&filter)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	var count int64
	if some = some && callerOf(r).narrow(&filter); some {
		if count, err = o.ledger.Count(r.Context(), filter); err != nil {
			o.fail(w, r, err)
			return
		}
	}
	if value(body.DryRun) {
		o.answer(w, r, http.StatusOK, ChangeResult{Count: count, DryRun: true})
		return
	}
	if err := o.checkCount(count, body.Expect); err != nil {
		o.fail(w, r, err)
		return
	}
	if count > 0 {
		if count, err = apply(r.Context(), filter, callerOf(r).name, body.Reason); err != nil {
			o.fail(w, r, err)
			return
		}
	}
	o.answer(w, r, http.StatusOK, ChangeResult{Count: count})
}

// checkCount refuses a change of another number of letters than the caller saw, or of many without having seen how many.
func (o *operations) checkCount(count int64, expect *int64) error {
	var p *problem
	switch {
	case expect != nil && *expect != count:
		p = newProblem(codeCountChanged, "%d letters are selected now, and %d were expected", count, *expect)
	case expect == nil && o.bulkLimit > 0 && count > o.bulkLimit:
		p = newProblem(codeCountNeeded, "%d letters are selected; above %d the request must say how many it expects", count, o.bulkLimit)
	default:
		return nil
	}
	p.parameter, p.count = "expect", &count
	return p
}
