package tiers

import (
	"time"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// MaxRetiredWait bounds what a record of a retired tier may still wait: nothing
// is known any more of how long its tier was.
const MaxRetiredWait = 366 * 24 * time.Hour

// FromRetired decides about a record of a tier that was taken out of the ladder:
// it goes back to the origin when its own available-at says so, or now if it has
// none that can be obeyed. Arrival is when the record came to the tier, at most
// now.
func (p *Policy) FromRetired(e *envelope.Envelope, arrival, now time.Time) Step {
	if e.AttemptState != envelope.Valid {
		e.SetAttempt(1)
	}
	step := Step{Due: now}
	switch verdict := e.Verdict(); {
	case verdict != "":
		return p.bury(step, e, verdict)
	case e.OriginalTopicState == envelope.Unreadable:
		return p.bury(step, e, envelope.ReasonMalformed)
	case !p.isHome(e):
		return p.bury(step, e, envelope.ReasonUnroutable)
	}
	switch {
	case e.AvailableAtState == envelope.Absent:
	case e.AvailableAtState == envelope.Valid && e.AvailableAt.Sub(now) <= MaxRetiredWait:
		step.Due = e.AvailableAt
		if step.Due.Before(arrival) {
			step.Due = arrival
		}
	default:
		step.Clamped = true
	}
	step.AvailableAt = step.Due
	return step
}
