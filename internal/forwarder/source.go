package forwarder

import (
	"context"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/ordering"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

type held = ordering.Held[record]

// record is one record of a source on its way.
type record struct {
	source  *source
	rec     *kgo.Record // as it was read; a copy of ours if it had to wait
	arrival int64       // Unix nanoseconds
	twin    identity    // its place in source.twins, if it has one

	route *route
	size  int64

	// The following are set when the step is decided, at the release.
	to      *outlet
	target  *target
	wish    wish
	headers []kgo.RecordHeader
	reason  envelope.Reason // of a dead letter
	cause   error           // why it is one, if its destination refused it
	form    form
	fitted  *outlet // the topic that form was found for
	tail    bool    // a copy to the end of the topic it stands in
	solo    bool    // it may go alone only
	alone   bool    // it was sent alone, so that its error is its own
	probe   bool    // it was sent as part of a probe
	aside   bool    // its pointer letter is written
	seq     uint64  // order of release in the source
	sent    int64   // Unix nanoseconds
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

	// lostBefore is how many records retention had removed before the source was
	// assigned.
	lostBefore int64

	// committed is the offset of the group's last commit here; -1: none.
	committed int64

	blocked    issue.Code // nothing is read until an operator decides; "" if not
	detail     string     // of blocked
	fault      error      // why nothing moves, if a topic is missing
	orphaned   bool       // its topic was deleted and made again, see remade.go
	fresh      bool       // without a commit so far
	undecided  bool       // blocked since its start: nothing may be committed for it
	paused     bool       // over its byte budget
	resting    bool       // not read for a moment, after an error
	closing    bool       // nothing is released any more
	dropped    bool       // not ours any more
	runnable   bool       // on the loop's list
	stalled    bool       // on the loop's list of those who wait for a commit
	alarm      time.Time
	alarmIndex int

	flying int    // sent and not acknowledged
	moving int    // copies to the own tail under way
	seq    uint64 // of the next release

	freeze freeze

	// Records whose pointer letter is written and whose bytes are nowhere else.
	aside      []*held
	asideAt    time.Time
	asideFlies bool

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
		inlet: in, partition: partition, order: order, committed: -1,
		alarmIndex: -1, twins: map[identity]*held{},
	}
}

// budget is how many bytes the source may hold before it is paused. While all
// sources together are over theirs, each has an equal share, so that one long
// tier can not starve the others.
func (s *source) budget(l *loop) int64 {
	limit := s.inlet.maxHeld
	if l.heldSum > l.f.opts.MaxHeldBytes {
		limit = min(limit, l.f.opts.MaxHeldBytes/int64(max(1, l.assigned)))
	}
	return limit
}

// mayRead tells whether nothing stands against fetching on.
func (s *source) mayRead() bool { return !s.dropped && !s.paused && !s.resting && s.blocked == "" }

func (s *source) overBudget(l *loop) bool { return s.order.Bytes() > s.budget(l) }

// uncommitted counts the records that a crash now would send again.
func (s *source) uncommitted() int {
	return s.order.InFlight() - len(s.aside) + int(s.order.Finished()-s.covered)
}

// take queues the records of one fetch.
func (s *source) take(l *loop, p *kgo.FetchPartition) {
	now := l.now.UnixNano()
	s.noteLoss(l, p)
	l.skew.read(p, s.inlet.topic)
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
		if r.route = s.inlet.routeOf(l.f, e); r.route == nil {
			s.strand(l, rec)
			break
		}
		step := s.inlet.decide(e, &r, now, l.random)
		s.inlet.stats.note(&step)
		if step.LoopGuard {
			s.inlet.guardedAt = l.now
		}
		if step.Due.After(l.clock()) {
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
	route := r.route
	kind := envelope.Return
	r.to, r.reason = route.origin, ""
	switch step.To {
	case tiers.ToOrigin:
	case tiers.ToTier:
		kind, r.to = envelope.Hop, route.tiers[step.Tier]
	case tiers.ToDeadLetters:
		kind, r.to, r.reason = envelope.Letter, route.deadLetters, step.Reason
	}
	s.identify(r, e)
	r.wish = wish{e.OriginalPartition, e.OriginalPartitions}
	*out = e.Append(*out, r.rec.Headers, kind)
}

// prepareAgain is prepare for a record that has waited, or that is to be written
// otherwise than before: it is read again, since the envelope was not kept. One
// that is not due yet, because it asked for more than its topic keeps records,
// goes on to the end of the topic.
func (s *source) prepareAgain(l *loop, h *held) {
	r := &h.Value
	e := &l.env
	e.Parse(r.rec.Headers)
	step := s.inlet.decide(e, r, l.now.UnixNano(), l.random) // The attempt counts whatever follows.
	switch {
	case r.cause != nil:
		step = tiers.Step{To: tiers.ToDeadLetters, Reason: r.explain(e)}
	case s.inlet.hasTail() && (r.tail || step.To == tiers.ToOrigin && step.Due.After(l.clock())):
		// The envelope has the due time as available-at already.
		step = tiers.Step{To: tiers.ToTier, Tier: s.inlet.tier}
	}
	if r.form >= trimmed {
		e.Shorten()
	}
	r.headers, r.target = nil, nil
	s.prepare(r, e, step, &r.headers)
	if r.form >= pointer {
		s.point(r)
	}
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
	p := r.route.partitionFor(r.wish, r.rec.Key, s.partition, count)
	r.target = r.to.target(p)
	return true
}

// pump releases what is due and has room, and sets the source's next alarm.
func (s *source) pump(l *loop) {
	if s.closing || !l.releasing {
		l.setAlarm(s, time.Time{})
		return
	}
	if s.freeze.frozen() {
		s.probe(l)
		return
	}
	s.offerAside(l)
	for {
		h := s.next(l)
		if h == nil {
			return
		}
		if !s.orphaned && !l.leaseFresh() {
			l.commit.force = true
			l.stall(s)
			return
		}
		if s.uncommitted() >= s.window && !s.orphaned && !isMissing(l.f.counts.Err(s.inlet.topic)) {
			// From a topic that is gone nothing is ever sent again.
			s.limited, l.commit.pressed = true, true
			l.stall(s)
			return
		}
		r := &h.Value
		if r.to == nil {
			r.tail = s.orphaned && s.inlet.hasTail()
			s.prepareAgain(l, h)
		}
		if r.fitted != r.to {
			s.fit(l, h)
		}
		if r.solo {
			// It waits until the source is quiet, so that it keeps its place, and is
			// sent as what failed is.
			s.withdraw(h)
			s.freeze.failed = append(s.freeze.failed, h)
			s.freeze.since = l.now
			s.probe(l)
			return
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
		if !s.mayGo(l, r) {
			return
		}
		s.fault = nil
		s.release(l, h)
	}
}

// next is the record to release now. Without one it sets the alarm for the next.
// An orphaned source releases all.
func (s *source) next(l *loop) *held {
	now := l.clock()
	if s.orphaned && s.inlet.hasTail() {
		now = time.Unix(0, math.MaxInt64)
	}
	if h := s.order.Ready(now); h != nil {
		return h
	}
	due, waits := s.order.NextDue()
	if waits {
		due = due.Add(l.skew.ahead)
	}
	if len(s.aside) > 0 && (!waits || s.asideAt.Before(due)) {
		due = s.asideAt
	}
	l.setAlarm(s, due) // The zero time if nothing is held.
	return nil
}

// release sends a prepared and aimed record.
func (s *source) release(l *loop, h *held) {
	s.withdraw(h)
	s.send(l, h, false)
}

// withdraw takes a record out of the queue.
func (s *source) withdraw(h *held) {
	s.order.Release(h)
	s.forgetTwin(h)
	h.Value.seq = s.seq
	s.seq++
}

// send produces a record; alone says that no other record is under way for its
// target by the producer that is for single records.
func (s *source) send(l *loop, h *held, alone bool) {
	r := &h.Value
	r.target.records++
	r.target.bytes += r.size
	r.sent = l.now.UnixNano()
	r.alone = alone
	s.flying++
	producer := l.f.producer
	if alone {
		producer = l.f.solo
		r.target.solo = true
	}
	// A new record: the client writes its own marks into the one it is given.
	// The timestamp stays zero, which means now.
	producer.TryProduce(context.Background(), &kgo.Record{
		Topic:     r.target.outlet.topic,
		Partition: r.target.partition,
		Key:       r.key(),
		Value:     r.value(),
		Headers:   r.headers,
	}, func(sent *kgo.Record, err error) { l.acked(h, sent.Offset, err) })
}

// settle takes one acknowledgement.
func (s *source) settle(l *loop, a ack) {
	h, err := a.held, a.err
	r := &h.Value
	t := r.target
	t.records--
	t.bytes -= r.size
	s.flying--
	if r.alone {
		t.solo = false
	}
	if l.f.opts.Tracer != nil {
		s.trace(l, a)
	}
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
	probe := r.probe
	r.probe = false
	switch {
	case r.aside:
		if !s.settleAside(l, err) {
			return
		}
	case err != nil:
		s.refused(l, h, err)
		if probe {
			s.probed(l)
		}
		return
	case r.form >= pointer:
		s.setAside(l, h)
		if probe {
			s.probed(l)
		}
		return
	}
	l.skew.sent(l.now, r, a.offset)
	s.inlet.stats.acked(h, l.now)
	if r.to.topic == s.inlet.topic {
		s.moving = max(0, s.moving-1)
	}
	l.heldSum -= r.size
	s.order.Finish(h) // r is empty from here on.
	l.finished(s, 1)
	if probe {
		s.probed(l)
	}
	if s.paused && s.order.Bytes() <= s.budget(l)/2 {
		l.resume(s)
	}
	if s.order.Waiting() > 0 || s.freeze.frozen() {
		l.ready(s)
	}
	l.laid(s)
}

// moveBlockers copies records that are not due and keep the watermark from
// passing finished ones to the end of their own topic, so that the commit needs
// not name what is above them.
func (s *source) moveBlockers(l *loop) {
	if s.closing || !l.releasing || !s.inlet.hasTail() || s.moving > 0 || s.freeze.frozen() || !l.leaseFresh() {
		return
	}
	for _, h := range s.order.Blockers(l.f.moveBatch()) {
		h.Value.tail = true
		s.prepareAgain(l, h)
		s.fit(l, h)
		if h.Value.solo || !s.aim(l, &h.Value) {
			h.Value.to, h.Value.fitted, h.Value.headers, h.Value.tail = nil, nil, nil, false
			return
		}
		s.moving++
		s.release(l, h)
	}
}
