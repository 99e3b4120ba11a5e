package forwarder

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/kafka"
)

// Issue is a code from the closed list of what can be wrong.
type Issue string

// The issues of a running forwarder.
const (
	// IssueOffsetMissing means that the group has no commit on a partition that
	// is not new: it expired, or the group's name is mistyped.
	IssueOffsetMissing Issue = "offset-missing"
	// IssueOffsetOutOfRange means that the commit stands where the topic has no
	// records (any more).
	IssueOffsetOutOfRange Issue = "offset-out-of-range"
	// IssuePartitionFrozen means that a copy of a record is refused for a cause
	// that is not the record's; it is tried for ever.
	IssuePartitionFrozen Issue = "partition-frozen"
	// IssueProduceStalled means that a copy was sent and is not acknowledged: a
	// broker does not answer, or too few replicas are in sync.
	IssueProduceStalled Issue = "produce-stalled"
	// IssueFetchFailed means that a partition can not be read.
	IssueFetchFailed Issue = "fetch-failed"
	// IssueGroupUnstable means that the group can not be joined.
	IssueGroupUnstable Issue = "group-unstable"
	// IssueCommitRefused means that the last commit was not accepted.
	IssueCommitRefused Issue = "commit-refused"
)

// Trouble is one issue with its place.
type Trouble struct {
	Issue     Issue  `json:"issue"`
	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition"` // -1: not of one partition
	Detail    string `json:"detail"`
}

// TopicStatus sums up the owned partitions of one topic that is read.
type TopicStatus struct {
	Topic       string        `json:"topic"`
	Assigned    int           `json:"assigned"`
	Paused      int           `json:"paused"`
	Frozen      int           `json:"frozen"`
	HeldRecords int           `json:"heldRecords"`
	HeldBytes   int64         `json:"heldBytes"`
	Overdue     int           `json:"overdue"`
	InFlight    int           `json:"inFlight"`
	InFlightAge time.Duration `json:"inFlightAge"`
	NextDue     time.Time     `json:"nextDue"` // zero: nothing waits
}

// Status is the state of a Forwarder at one moment.
type Status struct {
	Topics   []TopicStatus `json:"topics"` // every topic that is read, by name
	Troubles []Trouble     `json:"troubles"`
	// Assigned is the number of owned partitions.
	Assigned int `json:"assigned"`
	// Running says that the loop answered.
	Running bool `json:"running"`
}

// faults are errors that belong to no source.
type faults struct {
	group    fault
	fetch    map[string]map[int32]fault
	reported map[string]time.Time
}

// fault is an error that came with a poll.
type fault struct {
	err error
	at  time.Time
}

// faultLasts is how long an error that came with a poll counts as present: it
// is repeated while it lasts, and nothing says that it is over.
const faultLasts = 30 * time.Second

func (f fault) present(now time.Time) bool { return f.err != nil && now.Sub(f.at) < faultLasts }

// Status takes a snapshot. It blocks for one turn of the loop at most and is
// safe for concurrent use.
func (f *Forwarder) Status() Status {
	status := Status{}
	f.loop.ask(func() { status = f.loop.status() })
	return status
}

func (l *loop) status() Status {
	status := Status{Running: true, Assigned: l.assigned}
	for topic := range l.f.routes {
		t := TopicStatus{Topic: topic}
		for _, s := range l.sources[topic] {
			s.addTo(l, &t)
			status.Troubles = append(status.Troubles, s.troubles(l)...)
		}
		status.Topics = append(status.Topics, t)
	}
	if g := l.faults.group; g.present(l.now) {
		status.Troubles = append(status.Troubles, Trouble{Issue: IssueGroupUnstable, Partition: -1, Detail: g.err.Error()})
	}
	if l.commit.err != nil {
		status.Troubles = append(status.Troubles, Trouble{Issue: IssueCommitRefused, Partition: -1, Detail: l.commit.err.Error()})
	}
	slices.SortFunc(status.Topics, func(a, b TopicStatus) int { return cmp.Compare(a.Topic, b.Topic) })
	slices.SortFunc(status.Troubles, func(a, b Trouble) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Issue, b.Issue))
	})
	return status
}

func (s *source) addTo(l *loop, t *TopicStatus) {
	t.Assigned++
	if s.paused {
		t.Paused++
	}
	if s.blocked != "" || s.fault != nil {
		t.Frozen++
	}
	t.HeldRecords += s.order.Waiting() + s.order.InFlight()
	t.HeldBytes += s.order.Bytes()
	t.Overdue += s.order.Overdue(l.now)
	t.InFlight += s.flying
	if oldest := s.oldestInFlight(); oldest != nil {
		t.InFlightAge = max(t.InFlightAge, time.Duration(l.now.UnixNano()-oldest.sent))
	}
	if due, ok := s.order.NextDue(); ok && (t.NextDue.IsZero() || due.Before(t.NextDue)) {
		t.NextDue = due
	}
}

// stalledAfter is how old an unacknowledged produce is when it is an issue. A
// broker's death holds one up for seconds.
const stalledAfter = 10 * time.Second

// oldestInFlight is the record that was sent first of those not acknowledged.
func (s *source) oldestInFlight() *record {
	if s.flying == 0 {
		return nil
	}
	var oldest *record
	s.order.EachInFlight(func(h *held) {
		if oldest == nil || h.Value.sent < oldest.sent {
			oldest = &h.Value
		}
	})
	return oldest
}

func (s *source) troubles(l *loop) []Trouble {
	var found []Trouble
	add := func(issue Issue, detail string) {
		found = append(found, Trouble{Issue: issue, Topic: s.inlet.topic, Partition: s.partition, Detail: detail})
	}
	if s.blocked != "" {
		add(s.blocked, s.detail)
	}
	if s.fault != nil {
		add(IssuePartitionFrozen, s.fault.Error())
	}
	if oldest := s.oldestInFlight(); oldest != nil {
		if age := time.Duration(l.now.UnixNano() - oldest.sent); age > stalledAfter {
			add(IssueProduceStalled, fmt.Sprintf("a record sent to %s/%d is not acknowledged for %s",
				oldest.to.topic, oldest.target.partition, age.Truncate(time.Second)))
		}
	}
	if f := l.faults.fetch[s.inlet.topic][s.partition]; f.present(l.now) {
		add(IssueFetchFailed, f.err.Error())
	}
	return found
}

// missing is the fault of a record whose topic is not there.
func (f *Forwarder) missing(topic string) error {
	if err := f.counts.Err(topic); err != nil {
		return fmt.Errorf("write to %s: %w", topic, err)
	}
	return fmt.Errorf("write to %s: the topic is not known", topic)
}

// fetchFailed takes an error that came with a poll. Some arrive with no
// partition of ours.
func (l *loop) fetchFailed(topic string, partition int32, s *source, err error) {
	var session *kgo.ErrGroupSession
	switch {
	case kafka.Classify(err) == kafka.Canceled:
	case kafka.Classify(err) == kafka.Fenced:
		l.f.log.Error("this member is fenced: another process has its instance id", "err", err)
		l.fail(fmt.Errorf("group %s: %w", l.f.opts.Group, err))
	case errors.As(err, &session):
		l.faults.group = fault{err, l.now}
		l.report("group", "the group can not be joined, it is tried again", "err", err)
	case errors.Is(err, kerr.OffsetOutOfRange) && s != nil:
		l.blockOutOfRange(s)
	default:
		if l.faults.fetch == nil {
			l.faults.fetch = map[string]map[int32]fault{}
		}
		if l.faults.fetch[topic] == nil {
			l.faults.fetch[topic] = map[int32]fault{}
		}
		l.faults.fetch[topic][partition] = fault{err, l.now}
		l.report(fmt.Sprint(topic, "/", partition), "a partition can not be read, it is tried again",
			"topic", topic, "partition", partition, "err", err)
	}
}

// report warns at most every half minute of one thing.
func (l *loop) report(what, message string, args ...any) {
	if l.faults.reported == nil {
		l.faults.reported = map[string]time.Time{}
	}
	if l.now.Sub(l.faults.reported[what]) < 30*time.Second {
		return
	}
	l.faults.reported[what] = l.now
	l.f.log.Warn(message, args...) //nolint:sloglint // The callers pass constants.
}

// blockOutOfRange stops reading a partition at once: the client would ask for
// the offset again thousands of times a second. What is held goes on.
func (l *loop) blockOutOfRange(s *source) {
	s.blocked = IssueOffsetOutOfRange
	s.detail = fmt.Sprintf("offset %d is not in the topic", s.order.Next())
	s.report(l.f)
	l.f.consumer.PauseFetchPartitions(partitionsOf([]*source{s}))
}

// noteLoss counts records that retention removed before they were read: the log
// begins above the offset that was to come next.
func (s *source) noteLoss(l *loop, p *kgo.FetchPartition) {
	if p.LogStartOffset > s.order.Next() && len(p.Records) > 0 && p.Records[0].Offset > s.order.Next() {
		lost := p.LogStartOffset - s.order.Next()
		s.inlet.stats.lost.Add(float64(lost))
		l.f.log.Error("retention removed records before they were read",
			"topic", s.inlet.topic, "partition", s.partition, "count", lost)
	}
	if len(p.Records) > 0 {
		delete(l.faults.fetch[s.inlet.topic], s.partition)
	}
}
