package forwarder

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kafka-redrive/redrive/internal/kafka"
)

// learn takes how long the topic keeps records. The inlet may be nil.
func (in *inlet) learn(c *kadm.ResourceConfig) {
	if in == nil || c.Err != nil {
		return
	}
	settings := map[string]string{}
	for _, entry := range c.Configs {
		settings[entry.Key] = entry.MaybeValue()
	}
	if r, ok := kafka.RetentionOf(settings); ok {
		in.retention.Store(&r)
	}
}

// wait is the longest that a record is held by intent. Of a retired tier nobody knows it.
func (in *inlet) wait() time.Duration {
	switch {
	case in.isInbox():
		return 0
	case in.tier < 0 || in.route == nil:
		return math.MaxInt64
	}
	tier := in.route.policy.Tier(in.tier)
	// One that asks for more goes on to another topic, or to the end of this one, after some slack.
	return tier.Delay + tier.Jitter + max(time.Second, tier.Delay/10)
}

// expires is when retention may take the first of those held records that it
// should not be able to: they are overdue, so that something holds them up, or
// will be due only after it. A record that waits as it should is none of them.
func (s *source) expires(now time.Time) (at time.Time, ok bool) {
	keeps := s.inlet.retention.Load()
	if keeps == nil || keeps.Age < 0 {
		return time.Time{}, false
	}
	oldest := time.Time{}
	note := func(h *held) {
		if arrived := h.Value.arrivedAt(); oldest.IsZero() || arrived.Before(oldest) {
			oldest = arrived
		}
	}
	late := now.Add(-lateAfter)
	s.order.EachDue(late, note)
	s.order.EachInFlight(func(h *held) {
		if !h.Due().After(late) {
			note(h)
		}
	})
	if keeps.Age < s.inlet.wait() {
		s.order.EachDue(time.Unix(0, math.MaxInt64), func(h *held) {
			if h.Due().Sub(h.Value.arrivedAt()) > keeps.Age {
				note(h)
			}
		})
	}
	if oldest.IsZero() {
		return time.Time{}, false
	}
	return keeps.Until(oldest)
}
