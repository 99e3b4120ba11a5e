package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// TestWaitingRecordsSurviveRebalances has partitions move to a second member and back, each time while records wait that
// are due after the move.
func TestWaitingRecordsSurviveRebalances(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{partitions: 6, tiers: []string{"3s", "6s"}, forwarder: "sessionTimeout: 6s"})
	random := seeded(t)
	stays := s.start()
	l := s.load(random, 200)
	for range 3 {
		guest := s.launch()
		s.awaitShared(stays, guest)
		s.awaitHolding(guest)
		guest.term()
		stays.awaitAssigned(s.owned())
	}
	values, h := s.settle(l)
	// The attempt that the ladder counts is not forgotten by a move: two failures before make the third, a dead letter.
	for i, value := range values {
		_, dead := h[s.deadLetters()][value]
		if n, err := strconv.Atoi(value[len("record "):]); err != nil || dead != (n%3 == 2) {
			t.Fatalf("record %d of the load, %s: in the dead letters: %v", i, value, dead)
		}
	}
	t.Logf("%d records", len(values))
}

// TestAWaitLongerThanTheSessionMovesNothing has a wait ten times the session: the member stays in the group and its
// records come back once.
func TestAWaitLongerThanTheSessionMovesNothing(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"1m"}, forwarder: "sessionTimeout: 6s"})
	c := s.start()
	before := c.rebalances()
	if before == 0 {
		t.Fatal("redrive_rebalances_total is 0 after the start: it does not count")
	}
	const n = 40
	var values []string
	for i := range n {
		values = append(values, fmt.Sprint("patient ", i))
		s.client.Produce(&kgo.Record{Topic: s.inbox(), Key: []byte(strconv.Itoa(i)), Value: []byte(values[i])})
	}
	c.awaitMetric("redrive_held_records", s.tiers[0], n)
	testkit.WaitFor(t, time.Minute+patience, "the records to come back", func(ctx context.Context) error { return s.drained(ctx, n) })
	if after := c.rebalances(); after != before {
		t.Errorf("redrive_rebalances_total went from %v to %v during the wait", before, after)
	}
	h := s.read()
	s.checkNoneLost(h, values)
	s.checkNoneTwice(h, values)
	for _, value := range values {
		waiting, back := expectOne(t, h, s.tiers[0], value), expectOne(t, h, s.origin, value)
		if due := dueOf(t, waiting); back.Timestamp.Before(due) {
			t.Errorf("%s came %v early", value, due.Sub(back.Timestamp))
		}
	}
}
