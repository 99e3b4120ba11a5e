package forwarder

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/ordering"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

type held = ordering.Held[record]

// record is one record of a source on its way.
type record struct {
	source  *source
	rec     *kgo.Record // as it was read; a copy of ours if it had to wait
	arrival int64       // Unix nanoseconds
	twin    identity    // its place in source.twins, if it has one

	// The following are set when the step is decided, at the release.
	to      *outlet
	target  *target
	wish    wish
	headers []kgo.RecordHeader
	reason  envelope.Reason // of a dead letter
	jumbo   bool            // the client found it too large: the broker is to judge
	seq     uint64          // order of release in the source
	size    int64
	sent    int64 // Unix nanoseconds
}

// wish is what decides the target partition, kept until the count is known.
type wish struct {
	original, partitions int32
}

func (r *record) arrivedAt() time.Time { return at(r.arrival) }

func at(unixNano int64) time.Time { return time.Unix(0, unixNano) }

// source is one assigned partition, from its assignment until it is revoked or
// lost. The loop owns it.
type source struct {
	inlet     *inlet
	topicID   kadm.TopicID
	partition int32
	order     *ordering.Partition[record]
	twins     map[identity]*held

	// originPartitions is the partition count of the origin that records of an
	// inbox take as theirs: the one of the last commit, so that a count that
	// grew while nobody ran does not move the keys of what was waiting.
	originPartitions int32

	blocked    Issue  // nothing is read until an operator decides; "" if not
	detail     string // of blocked
	fresh      bool   // without a commit so far
	undecided  bool   // blocked since its start: nothing may be committed for it
	paused     bool   // over its byte budget
	closing    bool   // nothing is released any more
	dropped    bool   // not ours any more
	runnable   bool   // on the loop's list
	stalled    bool   // on the loop's list of those who wait for a commit
	alarm      time.Time
	alarmIndex int

	flying int    // sent and not acknowledged
	moving int    // copies to the own tail under way
	seq    uint64 // of the next release

	// A produce error freezes the source: what failed is sent again one by one,
	// after everything in flight came back.
	failed  []*held // in order of release; failed[0] may be under way as probe
	probed  *held   // sent alone, so that its error is its own
	fault   error   // why nothing moves, for Status
	since   time.Time
	backoff time.Duration
	retryAt time.Time

	// window bounds uncommitted. It grows and shrinks with the pace, as that of
	// TCP does: what a crash sends again is what the pace needs, also in the
	// burst after a standstill. limited says that the source waited for it.
	window  int
	limited bool

	// Commit state, see commit.go.
	dirty   bool
	covered uint64
}

func newSource(in *inlet, partition int32, order *ordering.Partition[record]) *source {
	return &source{
		inlet: in, partition: partition, order: order,
		alarmIndex: -1, twins: map[identity]*held{},
	}
}

// budget is how many bytes the source may hold before it is paused. While all
// sources together are over theirs, each has an equal share, so that one long
// tier can not starve the others.
func (s *source) budget(l *loop) int64 {
	limit := s.inlet.route.maxHeld
	if l.heldSum > l.f.opts.MaxHeldBytes {
		limit = min(limit, l.f.opts.MaxHeldBytes/int64(max(1, l.assigned)))
	}
	return limit
}

func (s *source) overBudget(l *loop) bool { return s.order.Bytes() > s.budget(l) }

// uncommitted counts the records that a crash now would send again.
func (s *source) uncommitted() int {
	return s.order.InFlight() + int(s.order.Finished()-s.covered)
}

// take queues the records of one fetch.
func (s *source) take(l *loop, p *kgo.FetchPartition) {
	now := l.now.UnixNano()
	s.noteLoss(l, p)
	out := make([]kgo.RecordHeader, 0, s.headerRoom(p.Records))
	finished := s.order.Finished()
	for _, rec := range p.Records {
		if rec.Attrs.IsControl() {
			s.skip(rec.Offset)
			continue
		}
		arrival := now
		if rec.Timestamp.Unix() > 0 && rec.Timestamp.Before(l.now) {
			arrival = rec.Timestamp.UnixNano()
		}
		e := &l.env
		e.Parse(rec.Headers)
		r := record{source: s, rec: rec, arrival: arrival, size: sizeOf(rec)}
		step := s.inlet.decide(e, &r, now, l.random)
		s.inlet.stats.note(&step)
		if step.Due.After(l.now) {
			if s.isTwin(e, rec) {
				s.inlet.stats.twins.Inc()
				s.skip(rec.Offset)
				continue
			}
			r.rec = detach(rec)
			if h := s.order.Add(rec.Offset, step.Due, r.size, r); h != nil {
				l.heldSum += r.size
				s.rememberTwin(e, h)
			}
			continue
		}
		from := len(out)
		s.prepare(&r, e, step, &out)
		r.headers = out[from:len(out):len(out)]
		if h := s.order.Add(rec.Offset, step.Due, r.size, r); h != nil {
			l.heldSum += r.size
		}
	}
	if n := s.order.Finished() - finished; n > 0 {
		l.finished(s, int(n))
	}
}

// skip takes an offset as finished: a record that needs no copy.
func (s *source) skip(offset int64) {
	if h := s.order.Add(offset, time.Time{}, 0, record{}); h != nil {
		s.order.Finish(h)
	}
}

// headersAdded is how many headers of ours a copy has more than its record, as
// a rule, when it comes from an inbox. From a tier it has fewer.
const headersAdded = 6

// headerRoom is the number of headers that the copies of records may have.
func (s *source) headerRoom(records []*kgo.Record) int {
	n := 0
	for _, r := range records {
		n += len(r.Headers)
	}
	if s.inlet.tier == inbox {
		n += len(records) * headersAdded
	}
	return n
}

// prepare decides all but the partition: the topic and the headers to write.
func (s *source) prepare(r *record, e *envelope.Envelope, step tiers.Step, out *[]kgo.RecordHeader) {
	route := s.inlet.route
	kind := envelope.Return
	r.to = route.origin
	switch step.To {
	case tiers.ToOrigin:
	case tiers.ToTier:
		kind, r.to = envelope.Hop, route.tiers[step.Tier]
	case tiers.ToDeadLetters:
		kind, r.to, r.reason = envelope.Letter, route.deadLetters, step.Reason
	}
	s.identify(e, r.rec.Offset)
	r.wish = wish{e.OriginalPartition, e.OriginalPartitions}
	*out = e.Append(*out, r.rec.Headers, kind)
}

// prepareHeld is prepare for a record that has waited: it is read again, since
// the envelope was not kept. One that is not due yet, because it asked for more
// than its topic keeps records, goes on to the end of the topic; so does any if
// tail says so.
func (s *source) prepareHeld(l *loop, h *held, tail bool) {
	r := &h.Value
	e := &l.env
	e.Parse(r.rec.Headers)
	step := s.inlet.decide(e, r, l.now.UnixNano(), l.random)
	if tail || step.Due.After(l.now) {
		// The envelope has the due time as available-at already.
		step = tiers.Step{To: tiers.ToTier, Tier: s.inlet.tier}
	}
	s.prepare(r, e, step, &r.headers)
}

// prepareLetter makes h a dead letter, after its destination refused it.
func (s *source) prepareLetter(l *loop, h *held, cause error) {
	r := &h.Value
	e := &l.env
	e.Parse(r.rec.Headers)
	s.inlet.decide(e, r, l.now.UnixNano(), l.random) // The attempt counts all the same.
	reason := envelope.ReasonUnroutable
	if tooLarge(cause) {
		reason = envelope.ReasonTooLarge
	}
	e.SetReason(reason)
	e.SetError(kafka.Code(cause), "refused by "+r.to.topic+": "+cause.Error())
	r.headers, r.target = nil, nil
	s.prepare(r, e, tiers.Step{To: tiers.ToDeadLetters, Reason: reason}, &r.headers)
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// aim finds the target of a prepared record. It reports false while the topic
// is not there or not known.
func (s *source) aim(l *loop, r *record) bool {
	if r.target != nil {
		return true
	}
	count, known := l.f.counts.Count(r.to.topic)
	if !known {
		return false
	}
	p := s.inlet.route.partitionFor(r.wish, r.rec.Key, s.partition, count)
	r.target = r.to.target(p)
	return true
}

// pump releases what is due and has room, and sets the source's next alarm.
func (s *source) pump(l *loop) {
	if s.closing || !l.releasing {
		l.setAlarm(s, time.Time{})
		return
	}
	if len(s.failed) > 0 {
		s.probe(l)
		return
	}
	for {
		h := s.order.Ready(l.now)
		if h == nil {
			due, _ := s.order.NextDue() // The zero time if nothing is held.
			l.setAlarm(s, due)
			return
		}
		if !l.leaseFresh() {
			l.commit.force = true
			l.stall(s)
			return
		}
		if s.uncommitted() >= s.window {
			s.limited, l.commit.pressed = true, true
			l.stall(s)
			return
		}
		r := &h.Value
		if r.to == nil {
			s.prepareHeld(l, h, false)
		}
		if !s.aim(l, r) {
			s.fault = l.f.missing(r.to.topic)
			l.setAlarm(s, l.now.Add(time.Second))
			return
		}
		if r.target.full() {
			r.target.waiters = append(r.target.waiters, s)
			l.setAlarm(s, time.Time{})
			return
		}
		s.fault = nil
		s.release(l, h)
	}
}

// release sends a prepared and aimed record.
func (s *source) release(l *loop, h *held) {
	s.order.Release(h)
	s.forgetTwin(h)
	h.Value.seq = s.seq
	s.seq++
	s.send(l, h)
}

func (s *source) send(l *loop, h *held) {
	r := &h.Value
	r.target.records++
	r.target.bytes += r.size
	r.sent = l.now.UnixNano()
	s.flying++
	// A new record: the client writes its own marks into the one it is given.
	// The timestamp stays zero, which means now.
	producer := l.f.producer
	if r.jumbo {
		producer = l.f.jumbo
	}
	producer.TryProduce(context.Background(), &kgo.Record{
		Topic:     r.target.outlet.topic,
		Partition: r.target.partition,
		Key:       r.rec.Key,
		Value:     r.rec.Value,
		Headers:   r.headers,
	}, func(_ *kgo.Record, err error) { l.acked(h, err) })
}

// settle takes one acknowledgement.
func (s *source) settle(l *loop, h *held, err error) {
	r := &h.Value
	t := r.target
	t.records--
	t.bytes -= r.size
	s.flying--
	if len(t.waiters) > 0 && !t.full() {
		for _, w := range t.waiters {
			l.ready(w)
		}
		clear(t.waiters)
		t.waiters = t.waiters[:0]
	}
	if s.dropped {
		return
	}
	if err != nil {
		s.refused(l, h, err)
		return
	}
	s.inlet.stats.acked(h, l.now)
	if h == s.probed {
		s.thaw(l)
	}
	if r.to.topic == s.inlet.topic {
		s.moving = max(0, s.moving-1)
	}
	l.heldSum -= r.size
	s.order.Finish(h) // r is empty from here on.
	l.finished(s, 1)
	if s.paused && s.order.Bytes() <= s.budget(l)/2 {
		l.resume(s)
	}
	if s.order.Waiting() > 0 || len(s.failed) > 0 {
		l.ready(s)
	}
}

// refused takes a produce error. The first one freezes the source. An error of
// a record that was sent alone is its own: what can never be written becomes a
// dead letter, anything else is tried for ever.
func (s *source) refused(l *loop, h *held, err error) {
	s.inlet.stats.failed(h, err)
	class := kafka.Classify(err)
	if class == kafka.Canceled {
		return // The producer was closed: the outcome is unknown, the offset stays.
	}
	if len(s.failed) == 0 {
		s.since = l.now
		l.f.log.Warn("a partition is frozen after a produce error",
			"topic", s.inlet.topic, "partition", s.partition, "target", h.Value.to.topic, "err", err)
	}
	s.fault = err
	switch {
	case h != s.probed:
		s.failed = append(s.failed, h)
	case tooLarge(err) && !h.Value.jumbo:
		h.Value.jumbo = true
	case class == kafka.RecordRefused && h.Value.to != s.inlet.route.deadLetters:
		s.prepareLetter(l, h, err)
	default:
		s.backoff = min(max(minBackoff, 2*s.backoff), maxBackoff)
		s.retryAt = l.now.Add(s.backoff)
	}
	l.ready(s)
}

// probe sends the first of what failed, alone.
func (s *source) probe(l *loop) {
	switch {
	case s.flying > 0:
		l.setAlarm(s, time.Time{})
		return
	case l.now.Before(s.retryAt):
		l.setAlarm(s, s.retryAt)
		return
	case !l.leaseFresh():
		l.commit.force = true
		l.stall(s)
		return
	}
	slices.SortFunc(s.failed, func(a, b *held) int { return cmp.Compare(a.Value.seq, b.Value.seq) })
	s.probed = s.failed[0]
	s.probed.Value.target = nil // The partition count may have changed.
	if !s.aim(l, &s.probed.Value) {
		s.fault = l.f.missing(s.probed.Value.to.topic)
		s.retryAt = l.now.Add(time.Second)
		l.setAlarm(s, s.retryAt)
		return
	}
	l.setAlarm(s, time.Time{})
	s.send(l, s.probed)
}

// thaw goes on with the next of what failed after the probe was accepted.
func (s *source) thaw(l *loop) {
	s.probed, s.backoff, s.retryAt = nil, 0, time.Time{}
	s.failed[0] = nil
	s.failed = s.failed[1:]
	if len(s.failed) == 0 {
		s.failed, s.fault = nil, nil
		l.f.log.Info("a frozen partition moves again",
			"topic", s.inlet.topic, "partition", s.partition, "frozen_for", l.now.Sub(s.since))
	}
}

// moveBlockers copies records that are not due and keep the watermark from
// passing finished ones to the end of their own topic, so that the commit needs
// not name what is above them.
func (s *source) moveBlockers(l *loop) {
	if s.closing || !l.releasing || s.inlet.tier == inbox || s.moving > 0 || len(s.failed) > 0 || !l.leaseFresh() {
		return
	}
	for _, h := range s.order.Blockers(l.f.moveBatch()) {
		s.prepareHeld(l, h, true)
		if !s.aim(l, &h.Value) {
			h.Value.to, h.Value.headers = nil, nil
			return
		}
		s.moving++
		s.release(l, h)
	}
}
