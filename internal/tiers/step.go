package tiers

import (
	"time"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// Destination is the kind of topic that a step leads to.
type Destination uint8

const (
	// ToOrigin leads back to the origin or its return topic.
	ToOrigin Destination = iota
	// ToTier leads to a tier.
	ToTier
	// ToDeadLetters leads to the dead letters.
	ToDeadLetters
)

// Step is what is to be done with one record.
type Step struct {
	To Destination
	// Tier is the index of the tier; it counts only for ToTier.
	Tier int
	// Due is the instant before which the step must not be taken.
	Due time.Time
	// AvailableAt is what redrive-available-at of the next tier copy says: for ToTier that of the step's own copy, for a
	// record of a tier on its way to the origin that of a copy to the tail of the same tier. The Envelope has it already.
	// It is zero for the dead letters.
	AvailableAt time.Time
	// Reason says why the record is dead; it is empty unless the step is ToDeadLetters.
	Reason envelope.Reason
	// Clamped means that a due time or a wish was not taken as it stood.
	Clamped bool
	// Inherited means that the record came with another record's headers and is treated as new.
	Inherited bool
	// LoopGuard means that the record is dead because it has failed MaxDeliveries times, over all replays. The reason is
	// exhausted then. A record whose ladder is used up as well is not counted here.
	LoopGuard bool
	// Rejected means that a control header of the record has a value that was not accepted. It counts as absent then, but
	// for what Clamped, Inherited and a reason of malformed say.
	Rejected bool
}

// Kind returns what the step's copy is written as.
func (s Step) Kind() envelope.Kind {
	switch s.To {
	case ToTier:
		return envelope.Hop
	case ToDeadLetters:
		return envelope.Letter
	default:
		return envelope.Return
	}
}

// FromInbox decides about a record of the inbox. It is due at once. Arrival is when the record came to the inbox, at most
// now; random returns numbers in [0, 1) and is called only for a tier with jitter. What changes is set in e: attempt,
// deliveries, available-at or reason, and the loss of inherited headers.
func (p *Policy) FromInbox(e *envelope.Envelope, arrival, now time.Time, random func() float64) Step {
	step := Step{Due: now, Rejected: e.Rejections() > 0}
	if p.inherited(e) {
		e.Inherit()
		step.Inherited = true
	}

	// The failure that brought the record here counts, whatever becomes of it; only an outage is nobody's attempt.
	failed := e.Attempt + 1
	verdict := e.Verdict()
	outage := verdict == "" && e.Action == envelope.ActionOutage
	if outage {
		e.SetAttempt(e.Attempt)
	} else {
		e.SetAttempt(failed)
	}
	e.SetDeliveries(e.Deliveries + 1)

	switch {
	case verdict != "":
		return p.bury(step, e, verdict)
	case len(p.tiers) == 0, failed >= p.maxAttempts && !outage:
		return p.bury(step, e, envelope.ReasonExhausted)
	case p.loops(e):
		step.LoopGuard = true
		return p.bury(step, e, envelope.ReasonExhausted)
	}

	step.To = ToTier
	wish, wished, clamped := p.wish(e, arrival)
	step.Clamped = clamped
	if wished {
		step.Tier = p.bestFit(wish)
		e.SetAvailableAt(arrival.Add(wish))
	} else {
		// During an outage the record climbs as if the attempt counted, but stays on that rung.
		step.Tier = min(failed-1, len(p.tiers)-1)
		t := p.tiers[step.Tier]
		wait := t.Delay
		if t.Jitter > 0 {
			wait += time.Duration(random() * float64(t.Jitter))
		}
		e.SetAvailableAt(arrival.Add(wait))
	}
	step.AvailableAt = e.AvailableAt
	return step
}

// inherited tells whether the own headers are those of another record: a stream processor copies the headers of its
// input, and with them the position and the attempts of a record of another topic.
func (p *Policy) inherited(e *envelope.Envelope) bool {
	return e.OriginalTopicState == envelope.Unreadable || !p.isHome(e)
}

// isHome tells whether the record claims no origin, or one that is this Policy's.
func (p *Policy) isHome(e *envelope.Envelope) bool {
	return e.OriginalTopic == nil || string(e.OriginalTopic) == p.origin || string(e.OriginalTopic) == p.returnTo
}

// loops tells whether the record has failed as often as any record may. The attempt is a lower bound of the deliveries,
// and the only count that a writer of tiers keeps.
func (p *Policy) loops(e *envelope.Envelope) bool {
	return max(e.Deliveries, e.Attempt) >= p.maxDeliveries
}

// wish returns how long after its arrival in the inbox the record wants to wait, if it says so: the longer of retry-after
// and an available-at that lies ahead, within the longest wait allowed.
func (p *Policy) wish(e *envelope.Envelope, arrival time.Time) (wish time.Duration, wished, clamped bool) {
	switch e.RetryAfterState {
	case envelope.Absent:
	case envelope.Valid:
		wish, wished = e.RetryAfter, true
	default:
		clamped = true
	}
	switch e.AvailableAtState {
	case envelope.Absent:
	case envelope.Valid:
		if d := e.AvailableAt.Sub(arrival); d > wish {
			wish, wished = d, true
		}
	default:
		clamped = true
	}
	if wish > p.maxDelay {
		wish, clamped = p.maxDelay, true
	}
	return wish, wished, clamped
}

// FromTier decides about a record of the tier with the given index. Arrival is when the record came to the tier, at most
// now. What changes is set in e: the attempt if there is none, the available-at of a copy that stays in a tier, or the
// reason.
func (p *Policy) FromTier(tier int, e *envelope.Envelope, arrival, now time.Time) Step {
	if e.AttemptState != envelope.Valid {
		e.SetAttempt(tier + 1)
	}
	step := Step{Due: now, Rejected: e.Rejections() > 0}
	switch verdict := e.Verdict(); {
	case verdict != "":
		return p.bury(step, e, verdict)
	case e.OriginalTopicState == envelope.Unreadable:
		// Something was claimed and cannot be read: to guess the configured origin could hand one topic's record to
		// another's consumers.
		return p.bury(step, e, envelope.ReasonMalformed)
	case !p.isHome(e):
		return p.bury(step, e, envelope.ReasonUnroutable)
	case p.loops(e):
		step.LoopGuard = true
		return p.bury(step, e, envelope.ReasonExhausted)
	}

	t := p.tiers[tier]
	remaining := e.AvailableAt.Sub(now)
	limit := max(p.maxDelay, t.hold())
	switch {
	case e.AvailableAtState == envelope.Absent:
		return p.ownDelay(step, t, e, arrival)

	case e.AvailableAtState != envelope.Valid:
		step.Clamped = true
		return p.ownDelay(step, t, e, arrival)

	case remaining > limit+slack(limit):
		step.Clamped = true
		e.RejectAvailableAt()
		return p.ownDelay(step, t, e, arrival)

	case remaining > t.hold()+slack(t.Delay):
		// The topic's retention promises the tier's own delay and a margin, so the record must move before it is due. If
		// no tier is better it moves to the tail of this one, with the slack as the least time between two copies.
		step.To, step.Tier, step.AvailableAt = ToTier, p.bestFit(remaining), e.AvailableAt
		if step.Tier == tier {
			step.Due = arrival.Add(t.hold() + slack(t.Delay))
		}
		return step

	default:
		// A value that was over when the record came means now: now was then.
		step.AvailableAt, step.Due = e.AvailableAt, e.AvailableAt
		if step.Due.Before(arrival) {
			step.Due = arrival
		}
		return step
	}
}

// ownDelay sends the record back after the tier's own delay, counted from its arrival.
func (p *Policy) ownDelay(step Step, t Tier, e *envelope.Envelope, arrival time.Time) Step {
	e.SetAvailableAt(arrival.Add(t.Delay))
	step.Due, step.AvailableAt = e.AvailableAt, e.AvailableAt
	return step
}

// bury makes the record a dead letter, at once.
func (p *Policy) bury(step Step, e *envelope.Envelope, reason envelope.Reason) Step {
	e.SetReason(reason)
	step.To, step.Reason = ToDeadLetters, reason
	return step
}
