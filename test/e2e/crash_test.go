package e2e

import (
	"testing"
	"time"
)

// TestKilledUnderLoadItLosesNothing also shows that no commit is ever ahead of a copy and that what comes twice has one id.
func TestKilledUnderLoadItLosesNothing(t *testing.T) {
	t.Parallel()
	// A static member is back at once; others would wait for the end of the session of the dead one.
	s := tell(t, stage{tiers: []string{"500ms", "1s"}, forwarder: "instanceId: one, sessionTimeout: 6s"})
	random := seeded(t)
	c := s.start()
	l := s.load(random, 500)
	const kills = 4
	for range kills {
		pass(t, time.Duration(1000+random.IntN(3000))*time.Millisecond)
		c.kill()
		s.checkNonePassed(l.soFar())
		c = s.start()
	}
	pass(t, time.Second)
	values := l.stop()
	s.awaitDrained(len(values))
	extra := s.checkNoneLost(s.read(), values)
	t.Logf("%d records, %d kills, %d copies beyond the first", len(values), kills, extra)
	if len(values) < 2000 {
		t.Errorf("the load was %d records, too few to show anything", len(values))
	}
}

// TestAGracefulStopUnderLoadNeitherLosesNorRepeats also shows that it is quick and ends with exit code 0.
func TestAGracefulStopUnderLoadNeitherLosesNorRepeats(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"500ms", "1s"}})
	random := seeded(t)
	c := s.start()
	l := s.load(random, 500)
	var longest time.Duration
	for range 5 {
		pass(t, time.Duration(500+random.IntN(1500))*time.Millisecond)
		took := c.term()
		if longest = max(longest, took); took > 5*time.Second {
			t.Errorf("the stop took %v, want at most 5s", took)
		}
		s.checkNonePassed(l.soFar())
		c = s.start()
	}
	values, _ := s.settle(l)
	t.Logf("%d records, the longest stop took %v", len(values), longest)
}
