package forwarder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/ordering"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// The states of a partition beside the issue codes offset-missing,
// offset-out-of-range and topic-missing.
const (
	// StateOK means that a forwarder reads on at the commit.
	StateOK = "ok"
	// StateNew means that there is no commit yet and that a forwarder begins at
	// the start of the partition.
	StateNew = "new"
)

// PartitionOffsets is where the group stands in one partition that is read.
type PartitionOffsets struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"` // -1: the topic is missing
	Start     int64  `json:"start"`     // the oldest offset in the topic
	Commit    int64  `json:"commit"`    // -1: none
	End       int64  `json:"end"`       // the offset of the next record
	// Lag is how many offsets a forwarder has before it; those that are finished
	// above the commit do not count.
	Lag int64 `json:"lag"`
	// Finished is how many offsets above the commit are finished.
	Finished int64 `json:"finished"`
	// State is StateOK, StateNew or an issue code.
	State string `json:"state"`
	// Detail says why the state needs a decision.
	Detail string `json:"detail,omitempty"`
	// Retired says that the topic was taken out of the configuration.
	Retired bool `json:"retired,omitempty"`

	done             ordering.Ranges
	originPartitions int32
}

// undecided reports whether a forwarder waits for an operator.
func (p *PartitionOffsets) undecided() bool {
	return p.State == string(issue.OffsetMissing) || p.State == string(issue.OffsetOutOfRange)
}

// from is the offset from which on records may wait. Where the commit says
// nothing that is the oldest one.
func (p *PartitionOffsets) from() int64 {
	if p.Commit < p.Start || p.Commit > p.End {
		return p.Start
	}
	return p.Commit
}

// finishedIn counts the finished offsets from from up to, but without, to.
func (p *PartitionOffsets) finishedIn(from, to int64) int64 {
	n := int64(0)
	for _, r := range p.done {
		n += max(0, min(to, r.To)-max(from, r.From))
	}
	return n
}

// String is the partition as people write it.
func (p *PartitionOffsets) String() string { return fmt.Sprint(p.Topic, "/", p.Partition) }

// Operator is the view of somebody who runs forwarders: it looks at what waits
// for the group, and sets its offsets, without being a member. It is safe for
// concurrent use.
type Operator struct {
	f *Forwarder // never run: it knows the routes and asks
}

// NewOperator returns an Operator of the group and the topics of opts, and of
// topics that were taken out of them and still hold records: it blocks until the
// brokers have told which those are. It asks by client, which the caller closes.
func NewOperator(ctx context.Context, client *kgo.Client, opts Options) (*Operator, error) {
	opts.Logger = slog.New(slog.DiscardHandler)
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Forwarder{
		opts: opts, log: opts.Logger, admin: kadm.NewClient(client),
		metrics: newMetrics(), counts: kafka.NewPartitions(client, nil),
	}
	if err := f.buildRoutes(); err != nil {
		return nil, err
	}
	f.findRetired(ctx)
	return &Operator{f}, nil
}

// Topics are the topics that the group reads, by name, with those that were
// taken out of the configuration.
func (o *Operator) Topics() []string { return slices.Sorted(maps.Keys(o.f.routes)) }

// Offsets says where the group stands in each partition of the topics, or of
// all that it reads. It changes nothing.
func (o *Operator) Offsets(ctx context.Context, topics ...string) ([]PartitionOffsets, error) {
	if len(topics) == 0 {
		topics = o.Topics()
	}
	f := o.f
	rows := []PartitionOffsets{}
	details, err := f.admin.ListTopics(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("describe the topics: %w", err)
	}
	var present []string
	for _, topic := range topics {
		switch err := details[topic].Err; {
		case err == nil && details.Has(topic):
			present = append(present, topic)
		case err == nil || errors.Is(err, kerr.UnknownTopicOrPartition):
			rows = append(rows, PartitionOffsets{
				Topic: topic, Partition: -1, Start: -1, Commit: -1, End: -1,
				State: string(issue.TopicMissing), Detail: "the topic does not exist",
			})
		default:
			return nil, fmt.Errorf("describe the topic %s: %w", topic, err)
		}
	}
	if len(present) > 0 {
		found, err := o.survey(ctx, present, details)
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	slices.SortFunc(rows, func(a, b PartitionOffsets) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return rows, nil
}

// survey is Offsets of topics that exist.
func (o *Operator) survey(ctx context.Context, topics []string, details kadm.TopicDetails) ([]PartitionOffsets, error) {
	f := o.f
	v := &survey{topics: details}
	var err error
	if v.commits, err = fetchCommits(ctx, f.admin, f.opts.Group); err != nil {
		return nil, fmt.Errorf("fetch the commits of group %s: %w", f.opts.Group, err)
	}
	if v.start, err = f.admin.ListStartOffsets(ctx, topics...); err != nil {
		return nil, fmt.Errorf("list the start offsets: %w", err)
	}
	if v.end, err = f.admin.ListEndOffsets(ctx, topics...); err != nil {
		return nil, fmt.Errorf("list the end offsets: %w", err)
	}
	var rows []PartitionOffsets
	for _, topic := range topics {
		for partition := range details[topic].Partitions {
			row, err := o.look(ctx, v, topic, partition)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// look judges one partition as a forwarder does that starts now.
func (o *Operator) look(ctx context.Context, v *survey, topic string, partition int32) (PartitionOffsets, error) {
	row := PartitionOffsets{Topic: topic, Partition: partition, Commit: -1, State: StateOK, Retired: o.f.routes[topic].route == nil}
	commit, ok := v.commits.Lookup(topic, partition)
	if ok && commit.Err != nil {
		return row, fmt.Errorf("fetch the commit of %s: %w", &row, commit.Err)
	}
	first, hasFirst := v.start.Lookup(topic, partition)
	last, hasLast := v.end.Lookup(topic, partition)
	if err := firstOf(first.Err, last.Err); err != nil || !hasFirst || !hasLast {
		return row, fmt.Errorf("list the offsets of %s: %w", &row, firstOf(err, errNoAnswer))
	}
	row.Start, row.End = first.Offset, last.Offset
	if ok && commit.At >= 0 {
		row.Commit = commit.At
		// Of other metadata a forwarder takes nothing either.
		row.originPartitions, row.done, _ = parseMetadata(commit.Metadata, commit.At)
	}
	switch {
	case row.Commit < 0 && row.Start == row.End:
		row.State = StateNew
	case row.Commit < 0:
		why, err := o.f.notNew(ctx, v, topic, partition, row.Start)
		if err != nil {
			return row, err
		}
		row.State, row.Detail = StateNew, why
		if why != "" {
			row.State = string(issue.OffsetMissing)
		}
	case row.Commit > row.End, row.Commit < row.Start && !row.done.Cover(row.Commit, row.Start):
		row.State = string(issue.OffsetOutOfRange)
		row.Detail = fmt.Sprintf("the commit stands at %d, the topic holds %d to %d", row.Commit, row.Start, row.End)
	}
	row.Finished = row.finishedIn(row.from(), row.End)
	row.Lag = row.End - row.from() - row.Finished
	return row, nil
}

// errNoAnswer is what the client leaves out of an answer that should be there.
var errNoAnswer = errors.New("no answer about this partition")

// Position is an offset in words that hold for every partition: the zero value
// is the earliest.
type Position struct {
	kind   positionKind
	offset int64
	time   time.Time
}

type positionKind uint8

const (
	earliest positionKind = iota
	latest
	atOffset
	atTime
)

// ParsePosition reads earliest, latest, an offset, or a time (RFC 3339), which
// stands for the first record that is not older.
func ParsePosition(text string) (Position, error) {
	switch text {
	case "earliest":
		return Position{kind: earliest}, nil
	case "latest":
		return Position{kind: latest}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return Position{kind: atOffset, offset: n}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return Position{kind: atTime, time: t}, nil
	}
	return Position{}, fmt.Errorf("%q: want earliest, latest, an offset, or a time such as 2026-01-31T10:00:00Z", text)
}

// OneOffset reports whether the position is a plain offset, which means another
// record in each partition.
func (p Position) OneOffset() bool { return p.kind == atOffset }

// in returns the offset of the position in each partition of a topic.
func (p Position) in(ctx context.Context, admin *kadm.Client, topic string) (func(*PartitionOffsets) (int64, error), error) {
	switch p.kind {
	case latest:
		return func(row *PartitionOffsets) (int64, error) { return row.End, nil }, nil
	case atOffset:
		return func(row *PartitionOffsets) (int64, error) {
			if p.offset < row.Start || p.offset > row.End {
				return 0, fmt.Errorf("offset %d is not in %s, which holds %d to %d", p.offset, row, row.Start, row.End)
			}
			return p.offset, nil
		}, nil
	case atTime:
		listed, err := admin.ListOffsetsAfterMilli(ctx, p.time.UnixMilli(), topic)
		if err != nil {
			return nil, fmt.Errorf("list the offsets of %s by time: %w", topic, err)
		}
		return func(row *PartitionOffsets) (int64, error) {
			o, ok := listed.Lookup(topic, row.Partition)
			if o.Err != nil || !ok {
				return 0, fmt.Errorf("list the offsets of %s by time: %w", row, firstOf(o.Err, errNoAnswer))
			}
			return min(max(o.Offset, row.Start), row.End), nil
		}, nil
	default:
		return func(row *PartitionOffsets) (int64, error) { return row.Start, nil }, nil
	}
}

// OffsetChange is one partition whose offset is set.
type OffsetChange struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	State     string `json:"state"` // before the change, see PartitionOffsets
	From      int64  `json:"from"`  // the commit before; -1: none
	To        int64  `json:"to"`
	// Skipped is how many offsets are passed that nobody may have forwarded.
	Skipped int64 `json:"skipped"`
	// Repeated is how many offsets come (again) that may have been forwarded.
	Repeated int64 `json:"repeated"`
	// Done says that the group stands there now.
	Done bool `json:"done"`
	// Error says why not.
	Error string `json:"error,omitempty"`

	row PartitionOffsets
	was int64 // the commit that the decision names
}

// ErrNothingToSet means that no partition waits for a decision and none was
// named.
var ErrNothingToSet = errors.New("no partition waits for a decision")

// PlanOffsets says what setting the offsets of a topic means. Without
// partitions it takes those that wait for a decision. It changes nothing.
func (o *Operator) PlanOffsets(ctx context.Context, topic string, partitions []int32, to Position) ([]OffsetChange, error) {
	rows, err := o.Offsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	target, err := to.in(ctx, o.f.admin, topic)
	if err != nil {
		return nil, err
	}
	var changes []OffsetChange
	for _, row := range rows {
		if row.Partition < 0 {
			return nil, fmt.Errorf("topic %s does not exist", topic)
		}
		if len(partitions) > 0 && !slices.Contains(partitions, row.Partition) || len(partitions) == 0 && !row.undecided() {
			continue
		}
		at, err := target(&row)
		if err != nil {
			return nil, err
		}
		changes = append(changes, row.change(at))
	}
	for _, p := range partitions {
		if !slices.ContainsFunc(rows, func(row PartitionOffsets) bool { return row.Partition == p }) {
			return nil, fmt.Errorf("topic %s has no partition %d", topic, p)
		}
	}
	if len(changes) == 0 {
		return nil, fmt.Errorf("topic %s: %w", topic, ErrNothingToSet)
	}
	return changes, nil
}

// change tells what it means to read on at the offset to.
func (p *PartitionOffsets) change(to int64) OffsetChange {
	c := OffsetChange{Topic: p.Topic, Partition: p.Partition, State: p.State, From: p.Commit, To: to, row: *p, was: p.Commit}
	from := p.from()
	if to > from {
		c.Skipped = to - from - p.finishedIn(from, to)
	}
	switch {
	case p.Commit < 0, p.Commit > p.End: // Nobody knows how far the group had come.
		c.Repeated = p.End - to
	case p.Commit > to:
		c.Repeated = p.Commit - to
	}
	return c
}

const (
	decisionPoll = 500 * time.Millisecond
	withdrawTime = 5 * time.Second
)

// SetOffsets carries out changes. In a group without members it commits. In one
// with members it leaves a decision for each partition and waits, patience at
// most, until a forwarder has taken it; a decision that was not taken is
// withdrawn before it returns, also when ctx ends. Meanwhile it calls waiting,
// from time to time, with the number of partitions that are left. The changes
// tell what became of each; the error says that not all are done.
func (o *Operator) SetOffsets(ctx context.Context, changes []OffsetChange, patience time.Duration, waiting func(left int)) error {
	members, err := o.commit(ctx, changes)
	if err != nil {
		return err
	}
	if members {
		if err := o.decide(ctx, changes, patience, waiting); err != nil {
			return err
		}
	}
	return summary(changes)
}

// summary is the error for changes that are not done.
func summary(changes []OffsetChange) error {
	var errs []error
	for i := range changes {
		if c := &changes[i]; !c.Done {
			errs = append(errs, fmt.Errorf("%s: %s", &c.row, c.Error))
		}
	}
	return errors.Join(errs...)
}

// commit sets the offsets from outside of the group. Kafka refuses that while
// the group has members, which it reports.
func (o *Operator) commit(ctx context.Context, changes []OffsetChange) (members bool, err error) {
	offsets := kadm.Offsets{}
	for i := range changes {
		at, metadata := changes[i].commit()
		changes[i].To = at
		offsets.Add(kadm.Offset{Topic: changes[i].Topic, Partition: changes[i].Partition, At: at, LeaderEpoch: -1, Metadata: metadata})
	}
	answers, err := o.f.admin.CommitOffsets(ctx, o.f.opts.Group, offsets)
	if err != nil {
		return false, fmt.Errorf("commit for group %s: %w", o.f.opts.Group, err)
	}
	for i := range changes {
		c := &changes[i]
		answer, ok := answers.Lookup(c.Topic, c.Partition)
		switch {
		case ok && answer.Err == nil:
			c.Done = true
		case isMemberError(answer.Err):
			members = true
		default:
			c.Error = fmt.Sprintf("commit for group %s: %v", o.f.opts.Group, firstOf(answer.Err, errNoAnswer))
		}
	}
	return members, nil
}

// isMemberError reports whether a commit from outside was refused because the
// group has members.
func isMemberError(err error) bool {
	for _, e := range []error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.StaleMemberEpoch} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// commit is the offset to commit for the change, with its metadata. What is
// finished above it stays so, unless the change goes back: then those records
// were asked for again.
func (c *OffsetChange) commit() (at int64, metadata string) {
	at = c.To
	var done ordering.Ranges
	if c.From >= 0 && c.From <= c.To {
		done = c.row.done.Above(at)
		for len(done) > 0 && done[0].From <= at {
			at, done = done[0].To, done[1:]
		}
	}
	prefix := metadataPrefix(c.row.originPartitions)
	text, _ := done.AppendText(nil, at, maxMetadata-len(prefix))
	return at, prefix + string(text)
}

// decide leaves decisions and waits until they are taken.
func (o *Operator) decide(ctx context.Context, changes []OffsetChange, patience time.Duration, waiting func(left int)) error {
	var open []*OffsetChange
	for i := range changes {
		switch c := &changes[i]; {
		case c.Done || c.Error != "":
		case !c.row.undecided():
			c.Error = "the group has running forwarders and nothing is wrong with this partition: they read on at their commit; stop all of them first to set it all the same"
		default:
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	err := o.await(ctx, open, patience, waiting)
	// What is withdrawn must be so also after an interrupt.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTime)
	defer cancel()
	for _, c := range open {
		if c.Done {
			continue
		}
		if c.Error == "" {
			c.Error = fmt.Sprintf("no forwarder took the decision within %v: the one that owns the partition is not blocked there, has records of it in memory that it forwards first, or does not answer; look at its /readyz?verbose, wait longer, or stop all forwarders and run this again", patience)
		}
		if err := voidDecision(end, o.f.admin, o.f.opts.Group, c.Topic, c.Partition); err != nil {
			c.Error += fmt.Sprintf("; the decision stands for an hour: %v", err)
		}
	}
	return err
}

// await leaves decisions until each is taken or patience ends. A broker that
// does not answer for a moment is asked again.
func (o *Operator) await(ctx context.Context, open []*OffsetChange, patience time.Duration, waiting func(left int)) error {
	for _, c := range open {
		if err := o.leave(ctx, c); err != nil {
			return err
		}
	}
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		left := 0
		err := o.settle(limit, open)
		for _, c := range open {
			if !c.Done {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		waiting(left)
		if !wait.For(limit, decisionPoll) {
			if ctx.Err() != nil {
				return fmt.Errorf("wait for a forwarder: %w", context.Cause(ctx))
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return nil
		}
	}
}

func (o *Operator) leave(ctx context.Context, c *OffsetChange) error {
	return writeDecision(ctx, o.f.admin, o.f.opts.Group, c.Topic, c.Partition, decision{at: c.To, was: c.was})
}

// settle looks at what became of the decisions.
func (o *Operator) settle(ctx context.Context, open []*OffsetChange) error {
	// Decisions first: a forwarder commits before it voids one.
	decisions, err := fetchDecisions(ctx, o.f.admin, o.f.opts.Group)
	if err != nil {
		return err
	}
	commits, err := fetchCommits(ctx, o.f.admin, o.f.opts.Group)
	if err != nil {
		return fmt.Errorf("fetch the commits of group %s: %w", o.f.opts.Group, err)
	}
	for _, c := range open {
		if c.Done {
			continue
		}
		at := int64(-1)
		if commit, ok := commits.Lookup(c.Topic, c.Partition); ok && commit.Err == nil {
			at = commit.At
		}
		_, stands := decisions[c.Topic][c.Partition]
		switch {
		case at == c.To, at != c.was && !stands:
			c.Done = true
		case at != c.was:
			// Held records of the partition go on while it is blocked, and the
			// commit with them: the decision is left again for the new state.
			c.was = at
			if err := o.leave(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// Describe says in one line what the change does.
func (c *OffsetChange) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): ", &c.row, c.State)
	if c.From < 0 {
		fmt.Fprintf(&b, "no commit, to offset %d of %d to %d", c.To, c.row.Start, c.row.End)
	} else {
		fmt.Fprintf(&b, "from offset %d to offset %d of %d to %d", c.From, c.To, c.row.Start, c.row.End)
	}
	if c.Skipped > 0 {
		fmt.Fprintf(&b, "; skips %d that may not have been forwarded", c.Skipped)
	}
	if c.Repeated > 0 {
		fmt.Fprintf(&b, "; up to %d may be forwarded a second time", c.Repeated)
	}
	return b.String()
}
