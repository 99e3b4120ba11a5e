package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// protocols are those that forwarder.groupProtocol can choose.
func protocols() []string { return []string{"classic", "consumer"} }

// protocol is what a group uses in the end: brokers before 4.0 do not share partitions out, and the members then do.
func protocol(chosen string) string {
	if !testkit.KafkaAtLeast("4.0") {
		return "classic"
	}
	return chosen
}

// launchAs starts a static member.
func (s *story) launchAs(instance string) *child {
	s.t.Helper()
	all := s.config
	defer func() { s.config = all }()
	s.config = s.configFile(instance+".yaml", strings.Replace(s.text, "forwarder: {", "forwarder: {instanceId: "+instance+", ", 1))
	return s.launch()
}

// awaitShared waits until two members own all partitions between them.
func (s *story) awaitShared(one, two *child) {
	s.t.Helper()
	testkit.WaitFor(s.t, patience, "both members to share the partitions", func(ctx context.Context) error {
		a, err := one.ready(ctx)
		b, err2 := two.ready(ctx)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if a.Assigned == 0 || b.Assigned == 0 || a.Assigned+b.Assigned != s.owned() {
			return fmt.Errorf("they own %d and %d of %d", a.Assigned, b.Assigned, s.owned())
		}
		return nil
	})
}

// awaitHolding waits until records wait with the member.
func (s *story) awaitHolding(c *child) {
	s.t.Helper()
	const some = 10
	testkit.WaitFor(s.t, patience, "records that wait with a member", func(ctx context.Context) error {
		held, err := c.metric(ctx, "redrive_held_records", "")
		if err == nil && held < some {
			err = fmt.Errorf("it holds %v", held)
		}
		return err
	})
}

// rebalances is how often the partitions of the member have changed.
func (c *child) rebalances() float64 {
	c.t.Helper()
	n, err := c.metric(c.t.Context(), "redrive_rebalances_total", "")
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// checkProtocol checks what the brokers take the group for.
func (s *story) checkProtocol(want string) {
	s.t.Helper()
	groups, err := s.client.Admin().ListGroups(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if got := strings.ToLower(groups[s.group].GroupType); got != want {
		s.t.Errorf("the group is of type %q, want %q", got, want)
	}
}

// assignment are the partitions of each static member, as the brokers see it.
func (s *story) assignment(chosen string) map[string][]string {
	s.t.Helper()
	owned := make(map[string][]string)
	note := func(instance *string, set kadm.TopicsSet) {
		if instance == nil {
			s.t.Fatal("a member has no instance id")
		}
		for _, topic := range set.Sorted() {
			for _, p := range topic.Partitions {
				owned[*instance] = append(owned[*instance], fmt.Sprintf("%s/%d", topic.Topic, p))
			}
		}
		slices.Sort(owned[*instance])
	}
	if protocol(chosen) == "consumer" {
		groups, err := s.client.Admin().DescribeConsumerGroups(s.t.Context(), s.group)
		if err := errors.Join(err, groups.Error()); err != nil {
			s.t.Fatal(err)
		}
		for _, m := range groups[s.group].Members {
			note(m.InstanceID, m.Assignment)
		}
		return owned
	}
	groups, err := s.client.Admin().DescribeGroups(s.t.Context(), s.group)
	if err := errors.Join(err, groups.Error()); err != nil {
		s.t.Fatal(err)
	}
	for _, m := range groups[s.group].Members {
		set := make(kadm.TopicsSet)
		if assigned, ok := m.Assigned.AsConsumer(); ok {
			for _, topic := range assigned.Topics {
				set.Add(topic.Topic, topic.Partitions...)
			}
		}
		note(m.InstanceID, set)
	}
	return owned
}

// checkNoneEarly fails the test for every copy on the origin that stands there before its due time in a tier. The origin
// must have the brokers stamp its records.
func (s *story) checkNoneEarly(h history, values []string) {
	s.t.Helper()
	waited, early := 0, 0
	for _, value := range values {
		for _, tier := range s.tiers {
			for _, waiting := range h[tier][value] {
				due := dueOf(s.t, waiting)
				waited++
				for _, back := range h[s.origin][value] {
					if back.Timestamp.Before(due) {
						if early++; early <= 5 {
							s.t.Errorf("%s came %v early: %s", value, due.Sub(back.Timestamp), s.places(h, value))
						}
					}
				}
			}
		}
	}
	if waited == 0 {
		s.t.Error("no record waited in a tier: nothing is shown")
	}
}

// stampedByBrokers are the settings of an origin whose timestamps are those of the brokers' clock.
func stampedByBrokers() map[string]string {
	return map[string]string{"message.timestamp.type": "LogAppendTime"}
}

// TestTheBrokersMayShareOutThePartitions has members come, go and die in a group whose partitions the brokers share out
// (KIP-848), each time while records wait. Brokers that can not do that have the members do it.
func TestTheBrokersMayShareOutThePartitions(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{
		partitions: 6, tiers: []string{"3s", "6s"}, settings: stampedByBrokers(),
		forwarder: "groupProtocol: consumer, sessionTimeout: 6s",
	})
	random := seeded(t)
	stays := s.start()
	s.checkProtocol(protocol("consumer"))
	l := s.load(random, 200)
	for _, leave := range []func(*child){
		func(c *child) { c.term() },
		func(c *child) { c.term() },
		(*child).kill,
	} {
		guest := s.launch()
		s.awaitShared(stays, guest)
		s.awaitHolding(guest)
		leave(guest)
		stays.awaitAssigned(s.owned())
	}
	s.checkProtocol(protocol("consumer"))
	values := l.stop()
	s.awaitDrained(len(values))
	h := s.read()
	extra := s.checkNoneLost(h, values)
	s.checkNoneEarly(h, values)
	t.Logf("%d records, %d copies beyond the first, after one kill", len(values), extra)
}

// TestMembersThatComeAndGoRepeatNothing is the graceful half of TestTheBrokersMayShareOutThePartitions: no copy is made
// twice.
func TestMembersThatComeAndGoRepeatNothing(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{
		partitions: 6, tiers: []string{"2s", "4s"}, settings: stampedByBrokers(),
		forwarder: "groupProtocol: consumer, sessionTimeout: 6s",
	})
	random := seeded(t)
	old := s.start()
	l := s.load(random, 200)
	for range 3 {
		next := s.launch()
		s.awaitShared(old, next)
		s.awaitHolding(next)
		old.term()
		next.awaitAssigned(s.owned())
		old = next
	}
	values, h := s.settle(l)
	s.checkNoneEarly(h, values)
	t.Logf("%d records", len(values))
}

// TestAStaticMemberRestartedWithinItsSessionMovesNothing stops one of two static members while records wait with it and
// starts it again: it has its partitions back, and the other one never notices.
func TestAStaticMemberRestartedWithinItsSessionMovesNothing(t *testing.T) {
	t.Parallel()
	for _, chosen := range protocols() {
		t.Run(chosen, func(t *testing.T) {
			t.Parallel()
			s := tell(t, stage{
				partitions: 6, tiers: []string{"2s", "4s"}, settings: stampedByBrokers(),
				forwarder: "groupProtocol: " + chosen + ", sessionTimeout: 30s",
			})
			random := seeded(t)
			one, two := s.launchAs("one"), s.launchAs("two")
			s.awaitShared(one, two)
			s.checkProtocol(protocol(chosen))
			before, rebalances := s.assignment(chosen), two.rebalances()
			if len(before["one"]) == 0 || len(before["two"]) == 0 || len(before) != 2 {
				t.Fatalf("the brokers see the assignment %v", before)
			}
			l := s.load(random, 200)
			for range 2 {
				s.awaitHolding(one)
				one.term()
				s.checkNonePassed(l.soFar())
				one = s.launchAs("one")
				one.awaitAssigned(len(before["one"]))
			}
			if diff := cmp.Diff(before, s.assignment(chosen)); diff != "" {
				t.Errorf("the restarts have moved partitions (-before +after):\n%s", diff)
			}
			if now := two.rebalances(); now != rebalances {
				t.Errorf("redrive_rebalances_total of the other member went from %v to %v", rebalances, now)
			}
			values, h := s.settle(l)
			s.checkNoneEarly(h, values)
			t.Logf("%d records", len(values))
		})
	}
}

// TestAnInstanceIDGivenTwiceEndsOneProcessLoudly starts a second process under the instance id of one that runs. Which of
// the two has to go depends on the protocol; the other one has all partitions and goes on.
func TestAnInstanceIDGivenTwiceEndsOneProcessLoudly(t *testing.T) {
	t.Parallel()
	for _, chosen := range protocols() {
		t.Run(chosen, func(t *testing.T) {
			t.Parallel()
			s := tell(t, stage{
				tiers: []string{"1s", "2s"}, settings: stampedByBrokers(),
				forwarder: "groupProtocol: " + chosen + ", sessionTimeout: 6s",
			})
			random := seeded(t)
			first := s.launchAs("one")
			first.awaitAssigned(s.owned())
			l := s.load(random, 200)
			s.awaitHolding(first)
			second := s.launchAs("one")
			ended, lives := s.awaitFenced(first, second)
			if code := ended.cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("the process that had to go ended with %d (%v), want 1", code, ended.err)
			}
			if log := ended.tail(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "instance id") {
				t.Errorf("the process that had to go does not say why:\n%s", log)
			}
			if older := ended == first; older != (protocol(chosen) == "classic") {
				t.Errorf("with %s the older one has ended: %v", chosen, older)
			}
			lives.awaitAssigned(s.owned())
			values := l.stop()
			s.awaitDrained(len(values))
			h := s.read()
			extra := s.checkNoneLost(h, values)
			s.checkNoneEarly(h, values)
			lives.term()
			t.Logf("%d records, %d copies beyond the first", len(values), extra)
		})
	}
}

// awaitFenced waits until one of two processes has ended by itself, and returns that one first.
func (s *story) awaitFenced(a, b *child) (ended, lives *child) {
	s.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-a.done:
		return a, b
	case <-b.done:
		return b, a
	case <-timer.C:
		s.t.Fatalf("both processes with one instance id still run after %v", patience)
		return nil, nil
	}
}

// TestFetchesComeFromTheOwnRack has the forwarder run in the rack of one of three brokers: although the others lead their
// share of the partitions, all it reads comes from that one. It shares the brokers with stories that break them, and so does
// not run in parallel.
func TestFetchesComeFromTheOwnRack(t *testing.T) {
	s := tell(t, stage{brokers: 3, partitions: 6, tiers: []string{"500ms", "1s"}, settings: stampedByBrokers()})
	random := seeded(t)
	s.awaitInSync()
	const home = 2
	leaders := make(map[int32]int)
	details, err := s.client.Admin().ListTopics(t.Context(), s.sources()...)
	if err != nil {
		t.Fatal(err)
	}
	details.EachPartition(func(p kadm.PartitionDetail) { leaders[p.Leader]++ })
	if len(leaders) < 2 {
		t.Fatalf("broker %d leads all partitions already: %v", home, leaders)
	}
	for _, edit := range [][2]string{
		{"kafka: {", fmt.Sprintf("kafka: {rackId: rack-%d, ", home)},
		{"logging: {", "logging: {level: debug, "}, // Each read of the client shows there.
	} {
		s.text = strings.Replace(s.text, edit[0], edit[1], 1)
	}
	s.config = s.configFile("topics.yaml", s.text)
	c := s.start()
	l := s.load(random, 200)
	const settled = 30
	testkit.WaitFor(t, patience, "the fetches to come home", func(context.Context) error {
		from := c.fetches(0)
		if len(from) < settled {
			return fmt.Errorf("%d fetches", len(from))
		}
		for _, broker := range from[len(from)-settled:] {
			if broker != fmt.Sprint(home) {
				return fmt.Errorf("fetches from %v", from[len(from)-settled:])
			}
		}
		return nil
	})
	seen := len(c.fetches(0))
	testkit.WaitFor(t, patience, "fetches under load", func(context.Context) error {
		if n := len(c.fetches(seen)); n < settled {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	later := c.fetches(seen)
	away := slices.DeleteFunc(slices.Clone(later), func(broker string) bool { return broker == fmt.Sprint(home) })
	if len(away) > 0 {
		t.Errorf("of %d fetches under load %d came from other brokers than %d: %v", len(later), len(away), home, away)
	}
	values, h := s.settle(l)
	s.checkNoneEarly(h, values)
	t.Logf("%d records, %d fetches from broker %d; the leaders are %v", len(values), len(later), home, leaders)
}

// fetchLine is a line of the client library about an answer to a fetch.
var fetchLine = regexp.MustCompile(`msg="read Fetch v[0-9]+".* broker=([0-9]+) `)

// fetches are the brokers that have answered the fetches of the process, in their order, without the first so many.
func (c *child) fetches(from int) []string {
	c.t.Helper()
	text, err := os.ReadFile(c.logFile)
	if err != nil {
		c.t.Fatal(err)
	}
	var brokers []string
	for _, m := range fetchLine.FindAllSubmatch(text, -1) {
		brokers = append(brokers, string(m[1]))
	}
	return brokers[min(from, len(brokers)):]
}
