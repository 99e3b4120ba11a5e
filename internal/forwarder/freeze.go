package forwarder

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-redrive/redrive/internal/kafka"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	// maxFirstProbe is how many records the first probe sends after a broker
	// refused some record among many. The client fails all that it had buffered
	// for the partition, so most of them are innocent.
	maxFirstProbe = 64
)

// freeze is the state of a source after a produce error: what failed is sent
// again in probes, in order, and each probe waits for the one before. A probe
// that passes doubles the next one. Of a probe that fails, half is sent again, and
// half of that, down to one record that is sent by a producer of its own and
// alone on its partition. Only then is an error known to be that record's: until
// then it may be that of any record in the same batch, also one of another source.
type freeze struct {
	failed  []*held // to be sent again; sorted by probe
	probes  int     // of them under way
	sent    int     // how many the probe under way began with
	size    int     // of the next probe; 0: not decided
	bad     int     // how many records of the probe under way failed
	suspect int     // so many at the head of failed hold one that is refused
	fault   error   // the last error
	since   time.Time
	backoff time.Duration
	retryAt time.Time
}

func (f *freeze) frozen() bool { return len(f.failed)+f.probes > 0 }

// refused takes a produce error. The first one freezes the source. An error of
// a record that was sent alone is its own: what can never be written becomes a
// dead letter, anything else is tried for ever.
func (s *source) refused(l *loop, h *held, err error) {
	r := &h.Value
	s.inlet.stats.failed(h, err)
	class := kafka.Classify(err)
	if class == kafka.Canceled {
		return // The producer was closed: the outcome is unknown, the offset stays.
	}
	if !s.freeze.frozen() {
		s.freeze.since, s.freeze.size = l.now, 0
		l.f.log.Warn("a partition is frozen after a produce error",
			"topic", s.inlet.topic, "partition", s.partition, "target", r.to.topic, "err", err)
	}
	if isMissing(err) {
		l.f.counts.Kick()
	}
	s.freeze.fault = err
	s.freeze.bad++
	s.freeze.failed = append(s.freeze.failed, h)
	switch {
	case !r.alone && class != kafka.Transient:
	case !r.alone:
		s.freeze.size = 1
		s.backOff(l)
	case tooLarge(err):
		if !s.shrink(l, h, err) {
			s.backOff(l)
		}
	case class == kafka.RecordRefused && r.to != r.route.deadLetters:
		s.prepareLetter(l, h, err)
	default:
		s.backOff(l)
	}
	l.ready(s)
}

func isMissing(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

func (s *source) backOff(l *loop) {
	s.freeze.backoff = min(max(minBackoff, 2*s.freeze.backoff), maxBackoff)
	s.freeze.retryAt = l.now.Add(s.freeze.backoff)
}

// probe sends the first of what failed, when nothing else is under way.
func (s *source) probe(l *loop) {
	z := &s.freeze
	switch {
	case s.flying > 0:
		l.setAlarm(s, time.Time{})
		return
	case l.now.Before(z.retryAt):
		l.setAlarm(s, z.retryAt)
		return
	case !s.orphaned && !l.leaseFresh():
		l.commit.force = true
		l.stall(s)
		return
	}
	slices.SortFunc(z.failed, func(a, b *held) int { return cmp.Compare(a.Value.seq, b.Value.seq) })
	if z.size == 0 {
		z.size = 1
		if kafka.Classify(z.fault) == kafka.RecordRefused {
			z.size = max(1, min(maxFirstProbe, len(z.failed)/2))
		}
	}
	n, size := 0, z.size
	if z.suspect > 0 {
		size = max(1, z.suspect/2)
	}
	for n < min(size, len(z.failed)) {
		r := &z.failed[n].Value
		r.target = nil // The partition count may have changed.
		if n > 0 && (r.solo || !s.mayGo(l, r)) {
			break
		}
		if n == 0 && !s.mayGo(l, r) {
			return // It has set the alarm.
		}
		n++
		if r.solo {
			break
		}
	}
	alone := n == 1
	if t := z.failed[0].Value.target; alone && t.solo {
		t.waiters = append(t.waiters, s)
		l.setAlarm(s, time.Time{})
		return
	}
	probe := slices.Clone(z.failed[:n])
	z.failed = slices.Delete(z.failed, 0, n)
	z.probes, z.bad, z.sent = n, 0, n
	l.setAlarm(s, time.Time{})
	for _, h := range probe {
		h.Value.probe = true
		s.send(l, h, alone)
	}
}

// mayGo aims a record and asks whether it may be sent now. If not it sets the
// source's alarm, where a moment is known.
func (s *source) mayGo(l *loop, r *record) bool {
	if !s.aim(l, r) {
		s.fault = l.f.missing(r.to.topic)
		l.setAlarm(s, l.now.Add(time.Second))
		return false
	}
	if !r.returns() {
		return true
	}
	wait, ok := r.route.mayReturn(l)
	switch {
	case ok:
		return true
	case wait > 0:
		l.setAlarm(s, l.now.Add(wait))
	default:
		l.setAlarm(s, time.Time{}) // Control makes it ready again.
	}
	return false
}

// probed takes the outcome of one record of a probe.
func (s *source) probed(l *loop) {
	z := &s.freeze
	z.probes--
	if z.probes > 0 {
		return
	}
	if z.bad == 0 {
		z.backoff, z.retryAt = 0, time.Time{}
	}
	switch {
	case z.bad > 0 && z.sent > 1:
		// Those that were refused are the first of what failed again.
		z.suspect = z.bad
	case z.bad > 0:
		z.suspect = 0
		z.size = max(1, z.size/2)
		if last := z.failed[len(z.failed)-1]; last.Value.cause != nil {
			z.size = max(z.size, maxFirstProbe/2) // It was found; its neighbours are innocent.
		}
	case z.suspect > z.sent:
		z.suspect -= z.sent
	case z.suspect > 0:
		z.suspect = 0
	case len(z.failed) > 0:
		z.size *= 2
	default:
		if z.fault != nil {
			l.f.log.Info("a frozen partition moves again",
				"topic", s.inlet.topic, "partition", s.partition, "frozen_for", l.now.Sub(z.since))
		}
		s.freeze, s.fault = freeze{}, nil
	}
	l.ready(s)
}
