package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// The stories of this file break the brokers they share and so do not run in parallel.

// TestABrokerOfThreeMayStopOrDie loses nothing while one broker is stopped and another one killed under load.
func TestABrokerOfThreeMayStopOrDie(t *testing.T) {
	s := tell(t, stage{brokers: 3, partitions: 6, tiers: []string{"500ms", "1s"}})
	random := seeded(t)
	s.start()
	l := s.load(random, 300)
	restarted := 1 + random.IntN(3)
	killed := 1 + restarted%3
	pass(t, 2*time.Second)
	for _, fault := range []struct {
		down   func(...int) error
		broker int
	}{{s.kafka.Stop, restarted}, {s.kafka.Kill, killed}} {
		if err := fault.down(fault.broker); err != nil {
			t.Fatal(err)
		}
		pass(t, time.Second)
		if err := s.kafka.Start(t.Context(), fault.broker); err != nil {
			t.Fatal(err)
		}
		s.awaitInSync()
	}
	values := l.stop()
	s.awaitDrained(len(values))
	extra := s.checkNoneLost(s.read(), values)
	t.Logf("%d records, %d copies beyond the first", len(values), extra)
}

// awaitInSync waits until every replica of every topic of the story, and of the commits, is in sync: a second broker may
// go then.
func (s *story) awaitInSync() {
	s.t.Helper()
	topics := append(s.sources(), s.origin, s.deadLetters(), "__consumer_offsets")
	testkit.WaitFor(s.t, patience, "all replicas in sync", func(ctx context.Context) error { return s.client.InSync(ctx, topics...) })
}

// TestTooFewReplicasHoldTheOffsetAndParkNothing takes away the replica without which the topics accept no write: what is
// due waits, shows, and goes on without a gap when the broker is back.
func TestTooFewReplicasHoldTheOffsetAndParkNothing(t *testing.T) {
	s := tell(t, stage{
		brokers: 3, partitions: 2, tiers: []string{"10s"},
		settings: map[string]string{"min.insync.replicas": "3"},
	})
	c := s.start()
	s.awaitInSync()
	tier := s.tiers[0]
	const n = 200
	var values []string
	var records []*kgo.Record
	for i := range n {
		values = append(values, fmt.Sprintf("waits %03d", i))
		records = append(records, &kgo.Record{Topic: s.inbox(), Key: []byte(strconv.Itoa(i)), Value: []byte(values[i])})
	}
	s.client.Produce(records...)
	c.awaitMetric("redrive_held_records", tier, n)
	if err := s.kafka.Kill(3); err != nil {
		t.Fatal(err)
	}
	if early := s.committed(tier); early != 0 {
		t.Fatalf("%d records were committed before the broker was killed: the wait of the tier is too short for this machine", early)
	}

	testkit.WaitFor(t, patience, "the trouble to show", func(ctx context.Context) error {
		issues, err := c.get(ctx, "/readyz?verbose")
		if err != nil {
			return err
		}
		age, err := c.metric(ctx, "redrive_in_flight_age_seconds", tier)
		if err != nil {
			return err
		}
		if !strings.Contains(string(issues), "partition-frozen") && age < 5 {
			return fmt.Errorf("redrive_in_flight_age_seconds is %v, and readyz:\n%s", age, issues)
		}
		t.Logf("redrive_in_flight_age_seconds is %v, and readyz:\n%s", age, issues)
		return nil
	})
	if r, err := c.ready(t.Context()); err != nil || !r.OK {
		t.Errorf("readyz: %+v, %v; two brokers answer, so want ready", r, err)
	}
	if now := s.committed(tier); now != 0 {
		t.Errorf("the commits of %s went to %d while no copy could be written", tier, now)
	}
	if letters := s.client.ReadAll(s.deadLetters(), kgo.ReadCommitted()); len(letters) > 0 {
		t.Errorf("%d records are in the dead letters because brokers were missing", len(letters))
	}

	if err := s.kafka.Start(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	s.awaitDrained(n)
	h := s.read()
	s.checkNoneLost(h, values)
	s.checkNoneTwice(h, values)
	if dead := len(h[s.deadLetters()]); dead > 0 {
		t.Errorf("%d records are in the dead letters", dead)
	}
	// Within a partition nothing has overtaken anything.
	for partition := range s.partitions {
		last := ""
		for _, r := range s.client.ReadAll(s.origin, kgo.ReadCommitted()) {
			if r.Partition == partition {
				if string(r.Value) < last {
					t.Errorf("%s stands behind %s", r.Value, last)
				}
				last = string(r.Value)
			}
		}
	}
}

// committed is the sum of the group's commits on a topic. It asks again where the broker it had asked is gone.
func (s *story) committed(topic string) int64 {
	s.t.Helper()
	sum := int64(0)
	testkit.WaitFor(s.t, patience, "the commits of "+topic, func(ctx context.Context) error {
		commits, err := s.client.Client.CommittedOffsets(ctx, s.group)
		if err != nil {
			return err
		}
		sum = 0
		for _, o := range commits[topic] {
			sum += o.At
		}
		return nil
	})
	return sum
}
