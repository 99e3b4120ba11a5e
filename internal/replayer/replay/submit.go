package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

const (
	// maxReason and maxActor bound the texts of a request, maxEdit what it may add to each copy.
	maxReason, maxActor = 2048, 256
	maxEdit             = 1 << 20
)

// Submit takes a request: it plans it and writes down a job of exactly the letters of the plan, or of the one that the request
// brings. Created is false if the request was taken before; the job is that of then. The error is a *Refusal where the request
// is not taken, and the ledger has nothing of it then.
func (r *Replayer) Submit(ctx context.Context, req Request) (job deadletter.Job, created bool, err error) {
	job, created, err = r.submit(ctx, req)
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		r.metrics.refusals.WithLabelValues(string(refusal.Code)).Inc()
	case err != nil:
	case created:
		r.metrics.refusals.WithLabelValues("taken").Inc()
		r.spans.note(job.ID, trace.SpanContextFromContext(ctx))
		r.wake(r.wakeJobs)
	default:
		r.metrics.refusals.WithLabelValues("repeated").Inc()
	}
	return job, created, err
}

func (r *Replayer) submit(ctx context.Context, req Request) (deadletter.Job, bool, error) {
	if err := r.valid(&req); err != nil {
		return deadletter.Job{}, false, err
	}
	if req.Spec.Request != "" {
		// What it asked for is replayed by now, and would be refused.
		job, err := r.ledger.JobByRequest(ctx, req.Spec.Request)
		if !errors.Is(err, deadletter.ErrUnknown) {
			return job, false, err
		}
	}
	filter, count, err := r.frozen(ctx, &req)
	if err != nil {
		return deadletter.Job{}, false, err
	}
	if err := r.bulk(&req, count); err != nil {
		return deadletter.Job{}, false, err
	}
	return r.ledger.CreateJob(ctx, req.Spec, filter)
}

// frozen is a filter that selects just what is to be replayed, and how many letters that are.
func (r *Replayer) frozen(ctx context.Context, req *Request) (deadletter.Filter, int64, error) {
	if req.Plan != nil {
		return deadletter.Filter{IDs: req.Plan.IDs}, int64(len(req.Plan.IDs)), nil
	}
	plan, err := r.Plan(ctx, *req)
	if err != nil {
		return deadletter.Filter{}, 0, err
	}
	count := int64(len(plan.IDs))
	if count == 0 {
		return deadletter.Filter{}, 0, r.nothing(ctx, &plan, req)
	}
	for _, w := range plan.Warnings {
		if w.Code == CodeOutOfOrder {
			return deadletter.Filter{}, 0, r.refuse(ctx, CodeOutOfOrder, w.Letter, w.Detail)
		}
	}
	if count >= r.opts.byFilter && plan.UpTo > 0 && !excludedByLook(&plan) {
		filter := req.Filter
		filter.States, filter.UpTo = plan.states, plan.UpTo
		return filter, count, nil
	}
	return deadletter.Filter{IDs: plan.IDs}, count, nil
}

// excludedByLook tells whether letters of an eligible state are left out of a plan: a filter can not say which.
func excludedByLook(plan *Plan) bool {
	return plan.ExcludedBy[CodePointer]+plan.ExcludedBy[CodeDestination]+plan.ExcludedBy[CodeExpired]+plan.ExcludedBy[CodeClaimed] > 0
}

// nothing says why a plan is empty.
func (r *Replayer) nothing(ctx context.Context, plan *Plan, req *Request) error {
	if len(plan.Excluded) > 0 {
		first := plan.Excluded[0]
		detail := fmt.Sprintf("letter %d at %s is not replayed: %s", first.Letter, first.Place, first.Detail)
		if n := len(plan.Excluded); n > 1 {
			detail += fmt.Sprintf(" (the first of %d)", n)
		}
		return r.refuse(ctx, first.Reason, first.Letter, detail)
	}
	if named(&req.Filter) {
		return &Refusal{Code: CodeUnknown, Detail: "no letter of that name is in the ledger"}
	}
	return &Refusal{Code: CodeNothing, Detail: "the filter selects no letter"}
}

// refuse is a Refusal with the history of the letter.
func (r *Replayer) refuse(ctx context.Context, code Code, letter int64, detail string) error {
	history, err := r.ledger.History(ctx, letter)
	if err != nil {
		return err
	}
	return &Refusal{Code: code, Letter: letter, Detail: detail, History: history}
}

// bulk holds a request to the rules for many letters: no bulk without a count and a reason. The rate is set by then.
func (r *Replayer) bulk(req *Request, count int64) error {
	switch {
	case req.Expect > 0 && req.Expect != count:
		return &Refusal{Code: CodeCount, Detail: fmt.Sprintf("the request expects %d letters and selects %d", req.Expect, count)}
	case req.Expect == 0 && req.Plan == nil && count > int64(r.opts.BulkLimit) && req.Spec.Source != sourceTrigger:
		return &Refusal{Code: CodeCountNeeded, Detail: fmt.Sprintf("the request selects %d letters: above %d it must say how many it expects", count, r.opts.BulkLimit)}
	case count > 1 && strings.TrimSpace(req.Spec.Reason) == "":
		return &Refusal{Code: CodeInvalid, Detail: "a replay of more than one letter needs a reason"}
	case count > 1 && req.Spec.Edit != nil && req.Spec.Edit.HasValue:
		return &Refusal{Code: CodeInvalid, Detail: fmt.Sprintf("a value can be given to one letter, and the request selects %d", count)}
	}
	return nil
}

// valid checks what needs no look at the ledger, and fills in the rate.
func (r *Replayer) valid(req *Request) error {
	invalid := func(format string, args ...any) error {
		return &Refusal{Code: CodeInvalid, Detail: fmt.Sprintf(format, args...)}
	}
	spec := &req.Spec
	if req.Plan != nil {
		if err := takePlan(req); err != nil {
			return err
		}
	}
	switch {
	case spec.Actor == "":
		return invalid("a request needs an actor")
	case len(spec.Actor) > maxActor || len(spec.Reason) > maxReason:
		return invalid("the actor may have %d bytes and the reason %d", maxActor, maxReason)
	case spec.Rate < 0 || spec.Rate > 1e9:
		return invalid("a rate is from 0 to 1,000,000,000 letters a second")
	case req.Expect < 0:
		return invalid("the count that is expected can not be negative")
	}
	if spec.Rate == 0 && req.Plan == nil { // In a plan it means that there is no limit.
		spec.Rate = r.opts.DefaultRate
	}
	if to := spec.Destination; to != "" {
		known := false
		for i := range r.opts.Topics {
			known = known || r.allowed(&r.opts.Topics[i], to)
		}
		if !known {
			return &Refusal{Code: CodeDestination, Detail: fmt.Sprintf("no letters may go to %s: no replayTo lists it", to)}
		}
	}
	if spec.Reply != nil && !r.mayReply(spec.Reply.Topic) {
		return invalid("no replyTo lists %s", spec.Reply.Topic)
	}
	if spec.Edit == nil {
		return nil
	}
	size := len(spec.Edit.Value)
	for _, h := range spec.Edit.SetHeaders {
		size += len(h.Key) + len(h.Value)
		if strings.HasPrefix(strings.ToLower(h.Key), "redrive-") {
			return invalid("header %q is Redrive's own and can not be set", h.Key)
		}
	}
	if size > maxEdit {
		return invalid("an edit has at most %d bytes", maxEdit)
	}
	if len(spec.Edit.SetHeaders) == 0 && !spec.Edit.HasValue {
		return invalid("the edit changes nothing")
	}
	return nil
}

// takePlan makes the request that of its plan.
func takePlan(req *Request) error {
	plan := req.Plan
	switch {
	case plan.Version != PlanVersion:
		return &Refusal{Code: CodeInvalid, Detail: fmt.Sprintf("the plan is of version %d, and only %d is known", plan.Version, PlanVersion)}
	case len(plan.IDs) == 0:
		return &Refusal{Code: CodeNothing, Detail: "the plan has no letters"}
	case req.Spec.Destination != "" && req.Spec.Destination != plan.Destination:
		return &Refusal{Code: CodeInvalid, Detail: "a plan is executed as it is, with its own destination"}
	}
	for i, id := range plan.IDs {
		if id <= 0 {
			return &Refusal{Code: CodeInvalid, Detail: fmt.Sprintf("the plan names the letter %d at place %d", id, i)}
		}
	}
	req.Spec.Destination, req.Spec.Force = plan.Destination, plan.Force
	if req.Spec.Rate == 0 {
		req.Spec.Rate = plan.Rate
	}
	return nil
}

func (r *Replayer) mayReply(topic string) bool {
	for i := range r.opts.Topics {
		if slices.Contains(r.opts.Topics[i].ReplyTo, topic) {
			return true
		}
	}
	return false
}
