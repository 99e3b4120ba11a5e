package api

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
)

const (
	// minRate and maxRate bound a rate, in letters a second. Anything outside is a slip.
	minRate = 0.001
	maxRate = 1e9

	maxIdempotencyKey = 255
	maxSetHeaders     = 100
	maxHeaderName     = 1024

	// ownPrefix is of the headers that are Redrive's own. What they say of a copy is not for an edit to decide.
	ownPrefix = "redrive-"
)

// CreatePlan answers POST /plans.
func (o *operations) CreatePlan(w http.ResponseWriter, r *http.Request) {
	var body ReplayRequest
	if err := o.decode(r, &body, false); err != nil {
		o.fail(w, r, err)
		return
	}
	if body.Plan != nil {
		p := newProblem(codeBadBody, "a plan is made of a filter, and not of a plan")
		p.parameter = "plan"
		o.fail(w, r, p)
		return
	}
	request, err := o.request(r, &body)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	plan, err := o.replayer.Plan(r.Context(), request)
	if err != nil {
		o.fail(w, r, ofReplayer(err))
		return
	}
	o.answer(w, r, http.StatusOK, planOf(&plan))
}

// CreateJob answers POST /jobs.
func (o *operations) CreateJob(w http.ResponseWriter, r *http.Request, params CreateJobParams) {
	var body ReplayRequest
	if err := o.decode(r, &body, false); err != nil {
		o.fail(w, r, err)
		return
	}
	if err := checkReason(value(body.Reason)); err != nil {
		o.fail(w, r, err)
		return
	}
	c := callerOf(r)
	forced := value(body.Force) || body.Plan != nil && value(body.Plan.Force)
	if (forced || body.Edit != nil) && !c.may(RoleAdmin) {
		o.fail(w, r, forbidden(c, RoleAdmin, "a replay that edits or forces"))
		return
	}
	request, err := o.request(r, &body)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	if key := params.IdempotencyKey; key != nil {
		if *key == "" || len(*key) > maxIdempotencyKey || strings.ContainsFunc(*key, func(c rune) bool { return c < ' ' || c > '~' }) {
			o.fail(w, r, badParameter("Idempotency-Key", "Idempotency-Key must have 1 to %d printable ASCII characters", maxIdempotencyKey))
			return
		}
		// Two callers may choose the same key and mean two jobs.
		request.Spec.Request = "api:" + c.name + ":" + *key
	}
	job, created, err := o.replayer.Submit(r.Context(), request)
	if err != nil {
		o.fail(w, r, ofReplayer(err))
		return
	}
	if !created {
		if !sameRequest(&job.Spec, &request.Spec) {
			p := newProblem(codeKeyReused, "the key was used for job %s, which is not what this request asks for", job.ID)
			p.parameter = "Idempotency-Key"
			o.fail(w, r, p)
			return
		}
		o.answer(w, r, http.StatusOK, jobOf(&job, time.Now()))
		return
	}
	w.Header().Set("Location", basePath+"/jobs/"+job.ID)
	o.answer(w, r, http.StatusCreated, jobOf(&job, time.Now()))
}

// sameRequest tells whether two specs could be of one request. The rate of a job may have been changed since, and what was
// selected is not part of it.
func sameRequest(a, b *deadletter.JobSpec) bool {
	return a.Reason == b.Reason && a.Destination == b.Destination && a.Force == b.Force && sameEdit(a.Edit, b.Edit)
}

func sameEdit(a, b *deadletter.Edit) bool {
	if a == nil || b == nil {
		return a == b
	}
	same := func(x, y deadletter.Header) bool { return x.Key == y.Key && sameBytes(x.Value, y.Value) }
	return a.HasValue == b.HasValue && sameBytes(a.Value, b.Value) && slices.EqualFunc(a.SetHeaders, b.SetHeaders, same)
}

// sameBytes tells no bytes from empty ones.
func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// request is what is asked of the replayer.
func (o *operations) request(r *http.Request, body *ReplayRequest) (replay.Request, error) {
	c := callerOf(r)
	spec, err := specOf(body)
	if err != nil {
		return replay.Request{}, err
	}
	spec.Actor, spec.Source = c.name, "api"
	request := replay.Request{Spec: spec, OutOfOrder: value(body.OutOfOrder), Expect: value(body.Expect)}
	if request.Expect < 0 || body.Expect != nil && request.Expect == 0 {
		return request, badParameter("expect", "expect must be at least 1")
	}
	switch {
	case (body.Filter == nil) == (body.Plan == nil):
		return request, newProblem(codeBadBody, "either filter or plan must be given")
	case body.Plan != nil:
		request.Plan = planFrom(body.Plan)
		return request, o.checkPlan(r, &request)
	}
	if request.Filter, err = body.Filter.selection(); err != nil {
		return request, err
	}
	if err := checkSelection(&request.Filter, value(body.All)); err != nil {
		return request, err
	}
	if !c.narrow(&request.Filter) {
		return request, newProblem(codeNothingSelected, "no letter is selected")
	}
	return request, nil
}

// checkSelection refuses a filter that selects everything, unless that is what is meant.
func checkSelection(filter *deadletter.Filter, all bool) error {
	if selectsAll(filter) && !all {
		p := newProblem(codeFilterEmpty, "the filter leaves nothing out; say all: true if everything is meant")
		p.parameter = "filter"
		return p
	}
	return nil
}

// checkPlan refuses a plan with letters that do not exist for the caller, and takes over what the plan decides. All of it comes
// from outside.
func (o *operations) checkPlan(r *http.Request, request *replay.Request) error {
	plan, spec := request.Plan, &request.Spec
	switch {
	case plan.Destination != "" && !topicName.MatchString(plan.Destination):
		return badParameter("plan.destination", "plan.destination is not the name of a topic")
	case spec.Destination != "" && spec.Destination != plan.Destination, spec.Force && !plan.Force:
		return badParameter("plan", "a plan is executed as it is: destination and force are its own")
	case plan.Rate < 0 || plan.Rate > maxRate:
		return badParameter("plan.rate", "plan.rate must be between 0 and %.0f", maxRate)
	}
	spec.Destination, spec.Force = plan.Destination, plan.Force
	seen := make(map[int64]bool, len(plan.IDs))
	for _, id := range plan.IDs {
		if id < 1 || seen[id] {
			return badParameter("plan.ids", "plan.ids has %d twice, or it is no number of a letter", id)
		}
		seen[id] = true
	}
	switch {
	case len(plan.IDs) == 0:
		return newProblem(codeNothingSelected, "the plan selects no letter")
	case callerOf(r).seesAll():
		return nil
	}
	count, err := o.count(r, deadletter.Filter{IDs: plan.IDs})
	if err != nil {
		return err
	}
	if missing := int64(len(plan.IDs)) - count; missing != 0 {
		return newProblem(codeUnknown, "%d letters of the plan are not in the ledger", missing)
	}
	return nil
}

// specOf is what the body says about how to replay.
func specOf(body *ReplayRequest) (deadletter.JobSpec, error) {
	spec := deadletter.JobSpec{
		Reason: value(body.Reason), Rate: value(body.Rate), Destination: value(body.Destination), Force: value(body.Force),
	}
	if err := checkText("reason", spec.Reason, maxReason); err != nil {
		return spec, err
	}
	if body.Rate != nil {
		if err := checkRate(*body.Rate); err != nil {
			return spec, err
		}
	}
	if body.Destination != nil && !topicName.MatchString(*body.Destination) {
		return spec, badParameter("destination", "destination is not the name of a topic")
	}
	var err error
	spec.Edit, err = editOf(body.Edit)
	return spec, err
}

func checkRate(rate float64) error {
	if rate < minRate || rate > maxRate {
		return badParameter("rate", "rate must be between %v and %.0f letters a second", minRate, maxRate)
	}
	return nil
}

// editOf is nil where nothing is changed.
func editOf(body *Edit) (*deadletter.Edit, error) {
	if body == nil {
		return nil, nil
	}
	if len(body.SetHeaders) == 0 && body.Value == nil {
		return nil, badParameter("edit", "edit changes nothing")
	}
	if len(body.SetHeaders) > maxSetHeaders {
		return nil, badParameter("edit.setHeaders", "edit.setHeaders has more than %d headers", maxSetHeaders)
	}
	edit := &deadletter.Edit{}
	for i, h := range body.SetHeaders {
		field := "edit.setHeaders[" + strconv.Itoa(i) + "]"
		if h.Name == "" {
			return nil, badParameter(field+".name", "a header has a name")
		}
		if err := checkText(field+".name", h.Name, maxHeaderName); err != nil {
			return nil, err
		}
		if strings.HasPrefix(strings.ToLower(h.Name), ownPrefix) {
			return nil, badParameter(field+".name", "headers that begin with %s can not be set", ownPrefix)
		}
		content, err := newBytes(field+".value", &h.Value)
		if err != nil {
			return nil, err
		}
		edit.SetHeaders = append(edit.SetHeaders, deadletter.Header{Key: h.Name, Value: content})
	}
	if body.Value != nil {
		content, err := newBytes("edit.value", body.Value)
		if err != nil {
			return nil, err
		}
		edit.Value, edit.HasValue = content, true
	}
	return edit, nil
}

// newBytes are the bytes that were given: nil for none, which is not the same as empty ones.
func newBytes(field string, b *NewBytes) ([]byte, error) {
	null := value(b.Null)
	switch {
	case b.Text != nil && b.Base64 == nil && !null:
		return []byte(*b.Text), nil
	case b.Text == nil && b.Base64 != nil && !null:
		out, err := decodeBase64(field+".base64", *b.Base64)
		if err == nil && out == nil {
			out = []byte{}
		}
		return out, err
	case b.Text == nil && b.Base64 == nil && null:
		return nil, nil
	default:
		return nil, badParameter(field, "%s must have exactly one of text, base64 and null", field)
	}
}

// job is a job that the caller may see. Jobs have no topics: whoever is narrowed sees its own.
func (o *operations) job(r *http.Request, text string) (deadletter.Job, error) {
	id, err := jobID(text)
	if err != nil {
		return deadletter.Job{}, err
	}
	job, err := o.ledger.Job(r.Context(), id)
	if err != nil {
		return job, err
	}
	if c := callerOf(r); !c.seesAll() && job.Spec.Actor != c.name {
		return deadletter.Job{}, newProblem(codeUnknown, "there is no such job")
	}
	return job, nil
}

// GetJob answers GET /jobs/{job}.
func (o *operations) GetJob(w http.ResponseWriter, r *http.Request, id ParamJob) {
	job, err := o.job(r, id)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	o.answer(w, r, http.StatusOK, jobOf(&job, time.Now()))
}

// ListJobs answers GET /jobs.
func (o *operations) ListJobs(w http.ResponseWriter, r *http.Request, params ListJobsParams) {
	limit, err := limitOf(params.Limit)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	after := ""
	if params.Cursor != nil {
		if after, err = jobID(*params.Cursor); err != nil {
			o.fail(w, r, deadletter.ErrCursor)
			return
		}
	}
	c := callerOf(r)
	list := JobList{Jobs: []Job{}}
	now := time.Now()
	// As with the audit trail: a few pages are searched for one who is narrowed, and the next request goes on.
	for pages := 0; len(list.Jobs) == 0 && pages < 10; pages++ {
		jobs, err := o.ledger.Jobs(r.Context(), after, limit)
		if err != nil {
			o.fail(w, r, err)
			return
		}
		list.Next = ""
		if len(jobs) == limit {
			after = jobs[len(jobs)-1].ID
			list.Next = after
		}
		for i := range jobs {
			if c.seesAll() || jobs[i].Spec.Actor == c.name {
				list.Jobs = append(list.Jobs, jobOf(&jobs[i], now))
			}
		}
		if list.Next == "" {
			break
		}
	}
	o.answer(w, r, http.StatusOK, list)
}

// ListItems answers GET /jobs/{job}/items.
func (o *operations) ListItems(w http.ResponseWriter, r *http.Request, id ParamJob, params ListItemsParams) {
	limit, err := limitOf(params.Limit)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	from := int64(1)
	if params.Cursor != nil {
		if from, err = strconv.ParseInt(*params.Cursor, 10, 64); err != nil || from < 1 {
			o.fail(w, r, deadletter.ErrCursor)
			return
		}
	}
	var states []deadletter.ItemState
	for _, s := range params.State {
		if !s.Valid() {
			all := []string{string(ItemStateOpen), string(ItemStateDone), string(ItemStateFailed), string(ItemStateSkipped)}
			o.fail(w, r, notOneOf("state", string(s), all))
			return
		}
		states = append(states, deadletter.ItemState(s))
	}
	job, err := o.job(r, id)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	items, err := o.ledger.Items(r.Context(), job.ID, from, limit, states...)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	list := ItemList{Items: []Item{}}
	if len(items) == limit {
		list.Next = strconv.FormatInt(items[len(items)-1].Seq+1, 10)
	}
	for i := range items {
		if callerOf(r).sees(items[i].Letter.Place.Topic) {
			list.Items = append(list.Items, itemOf(&items[i]))
		}
	}
	o.answer(w, r, http.StatusOK, list)
}

// PauseJob answers POST /jobs/{job}/pause.
func (o *operations) PauseJob(w http.ResponseWriter, r *http.Request, id ParamJob) {
	o.control(w, r, id, deadletter.PauseJob)
}

// ResumeJob answers POST /jobs/{job}/resume.
func (o *operations) ResumeJob(w http.ResponseWriter, r *http.Request, id ParamJob) {
	o.control(w, r, id, deadletter.ResumeJob)
}

// CancelJob answers POST /jobs/{job}/cancel.
func (o *operations) CancelJob(w http.ResponseWriter, r *http.Request, id ParamJob) {
	o.control(w, r, id, deadletter.CancelJob)
}

func (o *operations) control(w http.ResponseWriter, r *http.Request, id, action string) {
	var body ControlRequest
	if err := o.decode(r, &body, true); err != nil {
		o.fail(w, r, err)
		return
	}
	o.change(w, r, id, deadletter.Change{Action: action, Reason: value(body.Reason)})
}

// RateJob answers POST /jobs/{job}/rate.
func (o *operations) RateJob(w http.ResponseWriter, r *http.Request, id ParamJob) {
	var body RateRequest
	if err := o.decode(r, &body, false); err != nil {
		o.fail(w, r, err)
		return
	}
	if err := checkRate(body.Rate); err != nil {
		o.fail(w, r, err)
		return
	}
	o.change(w, r, id, deadletter.Change{Action: deadletter.RateJob, Rate: body.Rate, Reason: value(body.Reason)})
}

func (o *operations) change(w http.ResponseWriter, r *http.Request, id string, change deadletter.Change) {
	if err := checkText("reason", change.Reason, maxReason); err != nil {
		o.fail(w, r, err)
		return
	}
	job, err := o.job(r, id)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	change.Actor = callerOf(r).name
	if job, err = o.ledger.ControlJob(r.Context(), job.ID, change); err != nil {
		o.fail(w, r, err)
		return
	}
	o.answer(w, r, http.StatusOK, jobOf(&job, time.Now()))
}
