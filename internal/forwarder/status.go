package forwarder

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

// TopicStatus sums up the owned partitions of one topic that is read.
type TopicStatus struct {
	Topic       string        `json:"topic"`
	Assigned    int           `json:"assigned"`
	Paused      int           `json:"paused"`
	Frozen      int           `json:"frozen"`
	HeldBack    int           `json:"heldBack"` // by paused or rateLimit
	HeldRecords int           `json:"heldRecords"`
	HeldBytes   int64         `json:"heldBytes"`
	Overdue     int           `json:"overdue"`
	InFlight    int           `json:"inFlight"`
	InFlightAge time.Duration `json:"inFlightAge"`
	NextDue     time.Time     `json:"nextDue"` // zero: nothing waits
	// Expires is when retention may take the first of the held records that are
	// overdue, or due only after that; zero: there is none.
	Expires time.Time `json:"expires"`
}

// Status is the state of a Forwarder at one moment.
type Status struct {
	Topics   []TopicStatus   `json:"topics"` // every topic that is read, by name
	Troubles []issue.Trouble `json:"troubles"`
	// Assigned is the number of owned partitions.
	Assigned int `json:"assigned"`
	// ClockAhead is how far this machine's clock is at least ahead of a broker's;
	// negative if it is behind, zero if that was not measured.
	ClockAhead time.Duration `json:"clockAhead"`
	// Running says that the loop answered.
	Running bool `json:"running"`
	// Joined says that the group has taken this member in, once at least: with or
	// without partitions.
	Joined bool `json:"joined"`
}

// faults are errors that belong to no source.
type faults struct {
	group    fault
	fetch    map[string]map[int32]fault
	remade   map[string]time.Time // when topics were found deleted and made again
	reported map[string]time.Time

	// When the instance id was found in use, first and last.
	unreleasedSince, unreleasedAt time.Time
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

// isMember tells whether the group has ever taken this member in. Both protocols
// count its generations from one.
func (l *loop) isMember() bool {
	select {
	case <-l.f.joined:
	default:
		return false // There is no consumer yet.
	}
	if !l.member {
		_, generation := l.f.consumer.GroupMetadata()
		l.member = generation > 0
	}
	return l.member
}

func (l *loop) status() Status {
	status := Status{Running: true, Joined: l.isMember(), Assigned: l.assigned, ClockAhead: l.skew.ahead}
	if l.skew.ahead == 0 {
		status.ClockAhead = -l.skew.behind
	}
	add := func(code issue.Code, topic string, format string, args ...any) {
		status.Troubles = append(status.Troubles, issue.Trouble{Issue: code, Topic: topic, Partition: -1, Detail: fmt.Sprintf(format, args...)})
	}
	for topic, in := range l.f.routes {
		t := TopicStatus{Topic: topic}
		for _, s := range l.sources[topic] {
			s.addTo(l, &t)
			status.Troubles = append(status.Troubles, s.troubles(l)...)
		}
		if err := l.f.counts.Err(topic); isMissing(err) {
			add(issue.TopicMissing, topic, "%v", err)
		}
		if !in.lostAt.IsZero() && l.now.Sub(in.lostAt) < lossShows {
			add(issue.LostToRetention, topic, "%d records were removed before they were read, the last at %s", in.lost, in.lostAt.UTC().Format(time.RFC3339))
		}
		if !in.guardedAt.IsZero() && l.now.Sub(in.guardedAt) < lossShows {
			add(issue.LoopGuard, topic, "a record had failed too often over all replays and became a dead letter, the last at %s", in.guardedAt.UTC().Format(time.RFC3339))
		}
		if in.route == nil && t.HeldRecords > 0 {
			add(issue.RetiredTopic, topic, "the configuration does not name the topic; %d of its records wait in memory", t.HeldRecords)
		}
		status.Topics = append(status.Topics, t)
	}
	for s := range l.orphans {
		status.Troubles = append(status.Troubles, s.troubles(l)...)
	}
	for topic, when := range l.faults.remade {
		if l.now.Sub(when) < lossShows {
			add(issue.TopicRecreated, topic, "the topic was deleted and made again at %s; what nobody had read from it is gone", when.UTC().Format(time.RFC3339))
		}
	}
	for _, r := range l.f.ladders {
		switch {
		case r.pace.Paused:
			add(issue.Paused, r.origin.topic, "records that are due wait until paused is false")
		case l.now.Sub(r.pace.limitedAt) < shareInterval:
			add(issue.RateLimited, r.origin.topic, "records that are due wait for the limit of %g a second", r.pace.RateLimit)
		}
	}
	if g := l.faults.group; g.present(l.now) {
		add(orDenied(g.err, issue.GroupUnstable), "", "%v", g.err)
	}
	if l.commit.err != nil {
		add(orDenied(l.commit.err, issue.CommitRefused), "", "%v", l.commit.err)
	}
	if l.f.throttle.present(l.now) {
		add(issue.Throttled, "", "the brokers slow this client down, %.1f s so far", l.f.throttle.seconds())
	}
	switch {
	case l.skew.ahead > skewAlarm:
		add(issue.ClockSkew, "", "this machine's clock is ahead of a broker's by %s; records wait longer by that", l.skew.ahead.Round(time.Millisecond))
	case l.skew.behind > skewAlarm:
		add(issue.ClockSkew, "", "this machine's clock is behind a broker's by %s; records come late by that", l.skew.behind.Round(time.Millisecond))
	}
	slices.SortFunc(status.Topics, func(a, b TopicStatus) int { return cmp.Compare(a.Topic, b.Topic) })
	slices.SortFunc(status.Troubles, issue.Trouble.Compare)
	return status
}

func (s *source) addTo(l *loop, t *TopicStatus) {
	t.Assigned++
	if s.paused {
		t.Paused++
	}
	if s.blocked != "" || s.trouble() != nil {
		t.Frozen++
	}
	if !s.inlet.isInbox() && s.heldBack(l) {
		t.HeldBack++
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
	if at, ok := s.expires(l.now); ok && (t.Expires.IsZero() || at.Before(t.Expires)) {
		t.Expires = at
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

// lateAfter is how long a record may be overdue before that is an issue of its own.
const lateAfter = time.Minute

// trouble is why nothing moves, if that is so.
func (s *source) trouble() error {
	if s.fault != nil {
		return s.fault
	}
	return s.freeze.fault
}

func (s *source) troubles(l *loop) []issue.Trouble {
	var found []issue.Trouble
	add := func(code issue.Code, format string, args ...any) {
		found = append(found, issue.Trouble{Issue: code, Topic: s.inlet.topic, Partition: s.partition, Detail: fmt.Sprintf(format, args...)})
	}
	if s.blocked != "" {
		add(s.blocked, "%s", s.detail)
	}
	err := s.trouble()
	if err != nil {
		add(codeOf(err), "%v", err)
	}
	if oldest := s.oldestInFlight(); oldest != nil {
		if age := time.Duration(l.now.UnixNano() - oldest.sent); age > stalledAfter {
			code := issue.ProduceStalled
			if l.f.counts.InSync(oldest.to.topic, oldest.target.partition) < oldest.to.rules.Load().minInsync {
				code = issue.MinISR
			}
			add(code, "a record sent to %s/%d is not acknowledged for %s", oldest.to.topic, oldest.target.partition, age.Truncate(time.Second))
			l.f.counts.Kick()
		}
	}
	if len(s.aside) > 0 {
		add(issue.LetterTooLarge, "%d dead letters are too large for their topic; pointer letters stand for them, the first is offset %d", len(s.aside), s.aside[0].Offset())
	}
	if f := l.faults.fetch[s.inlet.topic][s.partition]; f.present(l.now) {
		add(fetchCode(f.err), "%v", f.err)
	}
	due, waits := s.order.NextDue()
	if late := l.clock().Sub(due); waits && late > lateAfter && err == nil && !s.heldBack(l) {
		add(issue.LatenessHigh, "a record is due for %s", late.Truncate(time.Second))
	}
	return found
}

// heldBack tells whether records wait because an operator wants so.
func (s *source) heldBack(l *loop) bool {
	r := s.inlet.route
	return r != nil && (r.pace.Paused || l.now.Sub(r.pace.limitedAt) < shareInterval)
}

// codeOf is the issue behind an error of a write.
func codeOf(err error) issue.Code {
	answer, isAnswer := errors.AsType[*kerr.Error](err)
	switch {
	case isMissing(err):
		return issue.TopicMissing
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return issue.ACLMissing
	case errors.Is(err, kerr.NotEnoughReplicas), errors.Is(err, kerr.NotEnoughReplicasAfterAppend):
		return issue.MinISR
	case tooLarge(err):
		return issue.MessageBytes
	case isAnswer && !answer.Retriable:
		return issue.ProduceRefused
	default:
		return issue.PartitionFrozen
	}
}

// fetchCode is the issue behind an error of a read.
func fetchCode(err error) issue.Code {
	if isMissing(err) {
		return issue.TopicMissing
	}
	return orDenied(err, issue.FetchFailed)
}

// orDenied is code, unless the error says that a right is missing.
func orDenied(err error, code issue.Code) issue.Code {
	if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.GroupAuthorizationFailed) {
		return issue.ACLMissing
	}
	return code
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
		l.fenced(err)
	case errors.Is(err, kerr.UnreleasedInstanceID) && l.unreleased():
		l.fenced(err)
	case errors.As(err, &session):
		l.faults.group = fault{err, l.now}
		l.report("group", "the group can not be joined, it is tried again", "err", err)
	case errors.Is(err, kerr.OffsetOutOfRange) && s != nil:
		l.outOfRange(s)
	case kerr.IsRetriable(err) && !isMissing(err):
		// A leader moves; the client looks for it.
	default:
		if isMissing(err) {
			l.f.counts.Kick()
		}
		if l.faults.fetch == nil {
			l.faults.fetch = map[string]map[int32]fault{}
		}
		if l.faults.fetch[topic] == nil {
			l.faults.fetch[topic] = map[int32]fault{}
		}
		l.faults.fetch[topic][partition] = fault{err, l.now}
		l.report(fmt.Sprint(topic, "/", partition), "a partition can not be read, it is tried again",
			"topic", topic, "partition", partition, "err", err)
		if s != nil {
			l.rest(s)
		}
	}
}

// fenced ends the process: another one has this member's instance id. Nothing is
// released any more.
func (l *loop) fenced(err error) {
	if l.fatalErr != nil {
		return
	}
	l.f.log.Error("this member is fenced: another process has its instance id",
		"instance_id", l.f.opts.InstanceID, "remedy", "give each process an instance id of its own", "err", err)
	l.releasing = false
	l.fail(fmt.Errorf("another process of group %s runs with the instance id %q, give each its own: %w", l.f.opts.Group, l.f.opts.InstanceID, err))
}

// unreleased notes that the instance id is in use, and tells whether that is so
// for longer than the session of a process that died with it.
func (l *loop) unreleased() bool {
	f := &l.faults
	if l.now.Sub(f.unreleasedAt) > 2*faultLasts {
		f.unreleasedSince = l.now
	}
	f.unreleasedAt = l.now
	return l.now.Sub(f.unreleasedSince) > l.f.opts.SessionTimeout+faultLasts
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
