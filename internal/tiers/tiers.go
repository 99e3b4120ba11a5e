// Package tiers answers which hop of a record is next, when it is due, and when the record is dead.
//
// A Policy is one entry of topics.yaml: an origin topic with its inbox, its ladder of tiers and its dead letters. A
// record that failed comes to the inbox, is sent to a tier, waits there until it is due, and goes back to the origin (or
// to the return topic); after too many failures, or when its consumer says so, it becomes a dead letter. FromInbox and
// FromTier take what the record's control headers say and return one Step: where the copy goes and not before when.
//
// Promised: a step depends on the arguments only; no record is sent back before its tier's delay or its available-at is
// over, and none is made to wait longer than the longest delay or maxDelay, whatever its headers say; headers choose only
// among the destinations of the Policy; none goes round for ever, whoever sends it round. Refused: the package reads no clock, draws no random number by itself and does
// no I/O. The caller passes the time, carries the step out, and sees to order, routing and the message id.
//
// A Policy is immutable and safe for concurrent use. The Envelope that a call takes is written to, and belongs to the
// caller's goroutine.
package tiers

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// Tier is one rung of the ladder: a topic in which records wait.
type Tier struct {
	// Name is short, as in "10s"; it stands in topic names and metrics. Required.
	Name string
	// Topic holds the records that wait. Required.
	Topic string
	// Delay is how long a record waits. Required, above zero.
	Delay time.Duration
	// Jitter is the most that is added to the delay by chance. Zero adds nothing.
	Jitter time.Duration
}

// hold is the longest that a record waits here by the tier's own rule.
func (t Tier) hold() time.Duration { return t.Delay + t.Jitter }

// slack is how much longer than its own rule a tier, or a limit, may be used. It keeps a record from being copied
// for the sake of a clock that is a little off.
func slack(d time.Duration) time.Duration { return max(time.Second, d/10) }

// maxSpan bounds every duration of a Policy, so that sums of them stay far from overflow.
const maxSpan = 10 * 365 * 24 * time.Hour

// Options describe a Policy.
type Options struct {
	// Origin is the topic whose records failed. Required.
	Origin string
	// ReturnTo is where records are sent back to. Empty means the origin.
	ReturnTo string
	// Inbox is where consumers hand failed records over. Required.
	Inbox string
	// DeadLetters is where dead records go. Required.
	DeadLetters string
	// Tiers is the ladder, first rung first. Without tiers the first failure is the last.
	Tiers []Tier
	// MaxAttempts is how many deliveries a record gets in all, the first included. Zero means one more than there are
	// tiers. With fewer the later tiers are not reached; with more the last tier repeats.
	MaxAttempts int
	// MaxDelay is the longest wait that a record may ask for. Zero means the longest delay of the tiers.
	MaxDelay time.Duration
	// MaxDeliveries is the loop guard: with so many failed deliveries, over all replays, a record is dead, from the
	// inbox and from the tiers alike. It can not be below MaxAttempts. Zero means 1000, or MaxAttempts if that is more.
	MaxDeliveries int
}

// defaultMaxDeliveries is far beyond what a ladder and the replays that people ask for add up to.
const defaultMaxDeliveries = 1000

// Policy is one entry of topics.yaml, as decisions.
type Policy struct {
	origin, returnTo, inbox, deadLetters string

	tiers         []Tier
	maxAttempts   int
	maxDelay      time.Duration
	maxDeliveries int
}

// New checks the options and returns their Policy. The error names every problem.
func New(o Options) (*Policy, error) {
	p := &Policy{
		origin: o.Origin, returnTo: o.ReturnTo, inbox: o.Inbox, deadLetters: o.DeadLetters,
		tiers:         append([]Tier(nil), o.Tiers...),
		maxAttempts:   o.MaxAttempts,
		maxDelay:      o.MaxDelay,
		maxDeliveries: o.MaxDeliveries,
	}
	if p.returnTo == "" {
		p.returnTo = p.origin
	}
	if p.maxAttempts == 0 {
		p.maxAttempts = len(p.tiers) + 1
	}
	if p.maxDelay == 0 {
		for _, t := range p.tiers {
			p.maxDelay = max(p.maxDelay, t.Delay)
		}
	}
	if p.maxDeliveries == 0 {
		p.maxDeliveries = max(defaultMaxDeliveries, p.maxAttempts)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("policy for origin %q: %w", o.Origin, err)
	}
	return p, nil
}

func (p *Policy) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	// Two roles on one topic would feed records round in a circle. The return topic may be the origin.
	roles := map[string]string{}
	topic := func(role, name string) {
		if name == "" {
			bad("%s topic is required", role)
			return
		}
		if strings.HasPrefix(name, "__") {
			bad("%s topic %q has a name that is kept for Kafka itself", role, name)
		}
		if other, taken := roles[name]; taken {
			bad("%s topic %q is also the %s topic", role, name, other)
			return
		}
		roles[name] = role
	}
	topic("origin", p.origin)
	if p.returnTo != p.origin {
		topic("return", p.returnTo)
	}
	topic("inbox", p.inbox)
	topic("dead-letter", p.deadLetters)

	names := map[string]bool{}
	for i, t := range p.tiers {
		if t.Name == "" {
			bad("tier %d has no name", i+1)
		} else if names[t.Name] {
			bad("tier %q is there twice", t.Name)
		}
		names[t.Name] = true
		topic(fmt.Sprintf("tier %q", t.Name), t.Topic)
		if t.Delay <= 0 || t.Delay > maxSpan {
			bad("tier %q: delay %s is not between 0 and %s", t.Name, t.Delay, maxSpan)
		}
		if t.Jitter < 0 || t.Jitter > maxSpan {
			bad("tier %q: jitter %s is not between 0 and %s", t.Name, t.Jitter, maxSpan)
		}
	}
	switch {
	case p.maxAttempts < 1:
		bad("max attempts %d is below 1", p.maxAttempts)
	case p.maxAttempts > envelope.MaxCount:
		// The header would never get there.
		bad("max attempts %d is above %d", p.maxAttempts, envelope.MaxCount)
	case len(p.tiers) == 0 && p.maxAttempts > 1:
		bad("max attempts %d needs a tier", p.maxAttempts)
	case p.maxDeliveries < p.maxAttempts:
		bad("max deliveries %d is below max attempts %d", p.maxDeliveries, p.maxAttempts)
	}
	if p.maxDeliveries > envelope.MaxCount {
		bad("max deliveries %d is above %d", p.maxDeliveries, envelope.MaxCount)
	}
	if p.maxDelay < 0 || p.maxDelay > maxSpan {
		bad("max delay %s is not between 0 and %s", p.maxDelay, maxSpan)
	}
	return errors.Join(errs...)
}

// Origin returns the topic whose records failed.
func (p *Policy) Origin() string { return p.origin }

// ReturnTo returns the topic that records are sent back to.
func (p *Policy) ReturnTo() string { return p.returnTo }

// Inbox returns the topic in which consumers hand failed records over.
func (p *Policy) Inbox() string { return p.inbox }

// DeadLetters returns the topic of the dead records.
func (p *Policy) DeadLetters() string { return p.deadLetters }

// Tiers returns how many tiers the ladder has.
func (p *Policy) Tiers() int { return len(p.tiers) }

// Tier returns the tier with the given index, which counts from 0.
func (p *Policy) Tier(i int) Tier { return p.tiers[i] }

// MaxAttempts returns how many deliveries a record gets in all.
func (p *Policy) MaxAttempts() int { return p.maxAttempts }

// MaxDelay returns the longest wait that a record may ask for.
func (p *Policy) MaxDelay() time.Duration { return p.maxDelay }

// MaxDeliveries returns the number of failed deliveries, over all replays, with which a record is dead.
func (p *Policy) MaxDeliveries() int { return p.maxDeliveries }

// Topic returns the topic that a step leads to.
func (p *Policy) Topic(s Step) string {
	switch s.To {
	case ToTier:
		return p.tiers[s.Tier].Topic
	case ToDeadLetters:
		return p.deadLetters
	default:
		return p.returnTo
	}
}

// bestFit returns the tier with the shortest hold that covers the wait, else the one with the longest hold. Of equals it
// is the first.
func (p *Policy) bestFit(wait time.Duration) int {
	best := 0
	for i, t := range p.tiers {
		covers, bestCovers := t.hold() >= wait, p.tiers[best].hold() >= wait
		switch {
		case covers && !bestCovers,
			covers && t.hold() < p.tiers[best].hold(),
			!covers && !bestCovers && t.hold() > p.tiers[best].hold():
			best = i
		}
	}
	return best
}
