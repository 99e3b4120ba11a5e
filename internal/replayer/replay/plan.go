package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
)

// Request is what somebody wants to be replayed.
type Request struct {
	Filter deadletter.Filter
	Spec   deadletter.JobSpec
	// OutOfOrder allows to replay named letters before older ones of their keys.
	OutOfOrder bool
	// Expect is the count of letters that the caller saw; 0 is none.
	Expect int64
	// Plan is executed as it is, instead of the filter. Nil: the filter counts.
	Plan *Plan
}

// Code says why something is not replayed.
type Code string

// The codes of refusals and exclusions.
const (
	CodeReplayed    Code = "already_replayed"
	CodeExpired     Code = "expired"
	CodeDiscarded   Code = "discarded"
	CodeClaimed     Code = "claimed"
	CodeOutOfOrder  Code = "out_of_order"
	CodeDestination Code = "destination"
	CodePointer     Code = "pointer"
	CodeCount       Code = "count_changed"
	// CodeCountNeeded is a request for so many letters that it must say how many it expects.
	CodeCountNeeded Code = "count_needed"
	CodeNothing     Code = "nothing_selected"
	CodeUnknown     Code = "unknown"
	// CodeInvalid is a request that can not be: it lacks something, or asks for what no request may.
	CodeInvalid Code = "invalid"
	// CodePartitions is a warning only: letters do not return to their old partition, because the count is another one.
	CodePartitions Code = "partitions_changed"
)

// Refusal is a request that was not taken.
type Refusal struct {
	Code Code
	// Letter is the letter that it is about; 0 is none.
	Letter int64
	Detail string
	// History is what jobs did with that letter, oldest first.
	History []deadletter.Item
}

// Error implements error.
func (r *Refusal) Error() string { return r.Detail }

// PlanVersion is the version of the form of a Plan.
const PlanVersion = 1

const (
	// maxExcluded is how many exclusions a Plan lists; ExcludedBy counts all of them.
	maxExcluded = 1000
	// sampleSize is how many letters a Plan shows.
	sampleSize = 10
	pageSize   = 10_000
)

// Plan says what a request would replay. It can be kept, read like code, and executed as it is.
type Plan struct {
	Version   int       `json:"version"`
	CreatedAt time.Time `json:"createdAt"`
	// UpTo is the highest letter that was looked at.
	UpTo int64 `json:"upTo"`
	// IDs are the letters, in the order in which they would be sent.
	IDs []int64 `json:"ids"`
	// Excluded are letters that were selected and would not be replayed, the first 1000 of them; ExcludedBy counts all.
	Excluded   []Exclusion    `json:"excluded"`
	ExcludedBy map[Code]int64 `json:"excludedBy"`
	Warnings   []Warning      `json:"warnings"`
	// Destinations, Reasons and Origins count the letters of IDs.
	Destinations map[string]int64 `json:"destinations"`
	Reasons      map[string]int64 `json:"reasons"`
	Origins      map[string]int64 `json:"origins"`
	// Rate is that of the job; 0 is no limit. Destination and Force are those of the request.
	Rate        float64 `json:"rate"`
	Destination string  `json:"destination,omitempty"`
	Force       bool    `json:"force,omitempty"`
	// Sample are some of the letters.
	Sample []deadletter.Letter `json:"sample"`

	states []deadletter.State // that letters of IDs may have had
}

// Exclusion is a letter that would not be replayed.
type Exclusion struct {
	Letter    int64  `json:"letter"`
	Place     string `json:"place"`
	MessageID string `json:"messageId"`
	Reason    Code   `json:"reason"`
	Detail    string `json:"detail"`
}

// Warning is what somebody should know before the plan is executed.
type Warning struct {
	Code   Code   `json:"code"`
	Topic  string `json:"topic,omitempty"`
	Letter int64  `json:"letter,omitempty"`
	Count  int64  `json:"count"`
	Detail string `json:"detail"`
}

// named tells whether a filter names its letters, rather than to describe them.
func named(f *deadletter.Filter) bool { return len(f.IDs) > 0 || len(f.MessageIDs) > 0 }

// Plan says what a request would replay and what not, and why. It changes nothing. The error is a *Refusal where the request can
// not be, or what the ledger or the brokers could not answer.
func (r *Replayer) Plan(ctx context.Context, req Request) (Plan, error) {
	if err := r.valid(&req); err != nil {
		return Plan{}, err
	}
	look := r.survey(ctx, &req.Filter)
	plan := Plan{
		Version: PlanVersion, CreatedAt: time.Now().UTC().Truncate(time.Millisecond), IDs: []int64{},
		Excluded: []Exclusion{}, ExcludedBy: map[Code]int64{}, Warnings: []Warning{},
		Destinations: map[string]int64{}, Reasons: map[string]int64{}, Origins: map[string]int64{},
		Rate: req.Spec.Rate, Destination: req.Spec.Destination, Force: req.Spec.Force, Sample: []deadletter.Letter{},
	}
	p := planner{r: r, ctx: ctx, req: &req, plan: &plan, look: look, moved: map[string]int64{}, ahead: map[lane]int64{}}
	if err := p.gather(); err != nil {
		return Plan{}, err
	}
	if err := p.exclude(); err != nil {
		return Plan{}, err
	}
	if look.err != nil {
		plan.Warnings = append(plan.Warnings, Warning{Code: CodeUnknown, Detail: "what is expired, and where letters go, was not looked at: " + look.err.Error()})
	}
	for topic, n := range p.moved {
		plan.Warnings = append(plan.Warnings, Warning{
			Code: CodePartitions, Topic: topic, Count: n,
			Detail: fmt.Sprintf("%d letters go to the partition of their key, not to that of their origin: %s has another partition count than it had", n, topic),
		})
	}
	slices.SortFunc(plan.Warnings, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Letter, b.Letter))
	})
	return plan, nil
}

// survey is what the cluster says of the dead letters' topics.
type survey struct {
	topics map[string]fetch.Topic
	starts map[fetch.Partition]int64
	err    error // why it is not complete: who runs the job looks again
}

// surveyLimit is how long a plan waits for the brokers. Without them it says so, since a job may wait for them.
const surveyLimit = 5 * time.Second

func (r *Replayer) survey(ctx context.Context, filter *deadletter.Filter) survey {
	ctx, cancel := context.WithTimeout(ctx, surveyLimit)
	defer cancel()
	var names []string
	for name := range r.topics {
		if len(filter.Topics) == 0 || slices.Contains(filter.Topics, name) {
			names = append(names, name)
		}
	}
	var s survey
	if s.topics, s.err = r.fetcher.Topics(ctx, names...); s.err != nil {
		return s
	}
	var partitions []fetch.Partition
	for name, t := range s.topics {
		for p := range t.Partitions {
			partitions = append(partitions, fetch.Partition{Topic: name, Partition: p})
		}
	}
	var errs [2]error
	s.starts, errs[0] = r.fetcher.Starts(ctx, partitions)
	errs[1] = r.counts.Refresh(ctx)
	s.err = errors.Join(errs[:]...)
	return s
}

// gone says why the bytes of a letter are not in its topic any more, "" if nothing speaks against it.
func (s *survey) gone(l *deadletter.Letter) string {
	t, none := s.topics[l.Place.Topic], deadletter.TopicID{}
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		return "the topic does not exist any more"
	case t.ID != none && l.Place.TopicID != none && t.ID != l.Place.TopicID:
		return "the topic was deleted and made again"
	case l.Place.Offset < s.starts[fetch.Partition{Topic: l.Place.Topic, Partition: l.Place.Partition}]:
		return "the record was removed from the topic by retention"
	}
	return ""
}

// planner makes one Plan.
type planner struct {
	r     *Replayer
	ctx   context.Context
	req   *Request
	plan  *Plan
	look  survey
	moved map[string]int64 // by destination: letters that its partition count moves
	ahead map[lane]int64   // how many letters of a key are in the plan
	taken []rank           // in the order of Plan.IDs
}

// rank is where a letter stands in deadletter.ReplayOrder.
type rank struct {
	unplaced       bool
	origin         string
	partition      int32
	offset, letter int64
}

func rankOf(l *deadletter.Letter) rank {
	if l.OriginPartition < 0 || l.OriginOffset < 0 {
		return rank{unplaced: true, letter: l.ID}
	}
	return rank{origin: l.Origin, partition: l.OriginPartition, offset: l.OriginOffset, letter: l.ID}
}

func (a rank) compare(b rank) int {
	if a.unplaced != b.unplaced {
		if b.unplaced {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.origin, b.origin), cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset), cmp.Compare(a.letter, b.letter))
}

// eligible are the states of letters that a job may claim. A claim that ran out long ago is nobody's.
func eligible(spec *deadletter.JobSpec) []deadletter.State {
	states := []deadletter.State{deadletter.Dead, deadletter.Claimed}
	if spec.Force {
		states = append(states, deadletter.Replayed, deadletter.Succeeded, deadletter.Returned, deadletter.Discarded)
	}
	return states
}

// split divides the states that a filter selects into those that may be replayed and the others.
func split(filter *deadletter.Filter, spec *deadletter.JobSpec) (may, others []deadletter.State) {
	states := filter.States
	if len(states) == 0 {
		states = deadletter.States()
	}
	for _, state := range states {
		if slices.Contains(eligible(spec), state) {
			may = append(may, state)
		} else {
			others = append(others, state)
		}
	}
	return may, others
}

// gather goes through what may be replayed.
func (p *planner) gather() error {
	filter := p.req.Filter
	filter.States, _ = split(&p.req.Filter, &p.req.Spec)
	p.plan.states = filter.States
	if len(filter.States) == 0 {
		return nil
	}
	// Letters that a filter describes are read in the order of an index, since ReplayOrder sorts all of them for each page. Named
	// ones are few, and each must come after the older ones of its key.
	page := deadletter.Page{Order: deadletter.Oldest, Limit: pageSize}
	if named(&filter) {
		page.Order = deadletter.ReplayOrder
	}
	defer p.sort()
	for {
		letters, err := p.r.ledger.Letters(p.ctx, filter, page)
		if err != nil {
			return err
		}
		for i := range letters.Letters {
			if err := p.consider(&letters.Letters[i]); err != nil {
				return err
			}
		}
		if page.After = letters.Next; page.After == "" {
			return nil
		}
	}
}

// sort puts the plan in the order in which it would be sent.
func (p *planner) sort() {
	slices.SortFunc(p.taken, rank.compare)
	for i := range p.taken {
		p.plan.IDs[i] = p.taken[i].letter
	}
}

// consider takes a letter into the plan, or excludes it.
func (p *planner) consider(l *deadletter.Letter) error {
	p.plan.UpTo = max(p.plan.UpTo, l.ID)
	if why := p.r.mayReplay(l, &p.req.Spec); why != nil {
		p.leaveOut(l, why.Code, why.Detail)
		return nil //nolint:nilerr // It is an answer about this letter, and the plan's answer is that it is left out.
	}
	if l.State == deadletter.Claimed && time.Since(l.Claim.Until) < 2*p.r.opts.Lease {
		p.leaveOut(l, CodeClaimed, fmt.Sprintf("job %s replays it just now", l.Claim.Job))
		return nil
	}
	if why := p.look.gone(l); why != "" && !l.Kept {
		p.leaveOut(l, CodeExpired, why)
		return nil
	}
	if err := p.older(l); err != nil {
		return err
	}
	to := p.r.destination(p.r.topics[l.Place.Topic], &p.req.Spec)
	count, known := p.r.counts.Count(to)
	if known && l.OriginPartitions > 0 && l.OriginPartitions != count {
		p.moved[to]++
	}
	p.plan.IDs, p.taken = append(p.plan.IDs, l.ID), append(p.taken, rankOf(l))
	p.plan.Destinations[to]++
	p.plan.Origins[l.Origin]++
	p.plan.Reasons[cmp.Or(string(l.Reason), "none")]++
	if len(p.plan.Sample) < sampleSize {
		p.plan.Sample = append(p.plan.Sample, *l)
	}
	return nil
}

// older warns of a named letter that would be replayed before an older one of its key.
func (p *planner) older(l *deadletter.Letter) error {
	at, ok := laneOf(l)
	if !ok || !named(&p.req.Filter) || p.req.OutOfOrder {
		return nil
	}
	if len(p.plan.IDs) >= p.r.opts.BulkLimit {
		return &Refusal{
			Code:   CodeOutOfOrder,
			Detail: fmt.Sprintf("for more than %d named letters it is not looked whether older ones of their keys are dead: select by a filter, or allow any order", p.r.opts.BulkLimit),
		}
	}
	first, count, err := p.r.ledger.Older(p.ctx, *l)
	if err != nil {
		return err
	}
	if first != nil && count > p.ahead[at] {
		p.plan.Warnings = append(p.plan.Warnings, Warning{
			Code: CodeOutOfOrder, Topic: l.Place.Topic, Letter: l.ID, Count: count,
			Detail: fmt.Sprintf("letter %d has %d older ones of its key that are not replayed, the first is %d at %s", l.ID, count-p.ahead[at], first.ID, first.Place),
		})
	}
	p.ahead[at]++
	return nil
}

// exclude lists what the filter selects and its state forbids.
func (p *planner) exclude() error {
	filter := p.req.Filter
	_, filter.States = split(&p.req.Filter, &p.req.Spec)
	if len(filter.States) == 0 {
		return nil
	}
	letters, err := p.r.ledger.Letters(p.ctx, filter, deadletter.Page{Order: deadletter.ReplayOrder, Limit: maxExcluded})
	if err != nil {
		return err
	}
	for i := range letters.Letters {
		l := &letters.Letters[i]
		code, detail := stateCode(l)
		p.leaveOut(l, code, detail)
	}
	if letters.Next == "" {
		return nil
	}
	for _, state := range filter.States {
		code, _ := stateCode(&deadletter.Letter{State: state})
		for _, l := range letters.Letters {
			if l.State == state {
				p.plan.ExcludedBy[code]--
			}
		}
		one := filter
		one.States = []deadletter.State{state}
		n, err := p.r.ledger.Count(p.ctx, one)
		if err != nil {
			return err
		}
		p.plan.ExcludedBy[code] += n
	}
	return nil
}

func (p *planner) leaveOut(l *deadletter.Letter, code Code, detail string) {
	p.plan.UpTo = max(p.plan.UpTo, l.ID)
	p.plan.ExcludedBy[code]++
	if len(p.plan.Excluded) < maxExcluded {
		p.plan.Excluded = append(p.plan.Excluded, Exclusion{Letter: l.ID, Place: l.Place.String(), MessageID: l.MessageID, Reason: code, Detail: detail})
	}
}

// stateCode says why the state of a letter forbids its replay.
func stateCode(l *deadletter.Letter) (Code, string) {
	switch l.State {
	case deadletter.Discarded:
		return CodeDiscarded, "an operator has discarded it"
	case deadletter.Expired:
		return CodeExpired, "its bytes are gone from the topic"
	case deadletter.Claimed:
		return CodeClaimed, fmt.Sprintf("job %s replays it just now", l.Claim.Job)
	case deadletter.Dead:
		return CodeUnknown, "it is dead"
	default:
		return CodeReplayed, fmt.Sprintf("job %s has replayed it to %s/%d/%d, and it is %s", l.Claim.Job, l.Copy.Topic, l.Copy.Partition, l.Copy.Offset, l.State)
	}
}
