package fault

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"
)

func memberFaults() []Fault {
	return []Fault{
		{
			Name: "member-fenced", What: "a second process takes the instance id",
			stage: stage{delay: "8s", forwarder: "instanceId: only-one, sessionTimeout: 6s"},
			play:  memberFenced,
		},
		{
			Name: "session-lost", What: "a member stands still for longer than its session",
			stage: stage{delay: "1s", forwarder: "sessionTimeout: 6s", topic: "maxDelay: 1m"},
			play:  sessionLost,
		},
		{
			Name: "all-gone", What: "all members are killed and gone for longer than a tier",
			stage: stage{forwarder: "sessionTimeout: 6s"},
			play:  allGone,
		},
	}
}

// memberFenced ends the first of two processes with one instance id, and the second brings all back. The first learns of
// it by its next commit or heartbeat: what it sent on and could not commit comes twice, as after a crash.
func memberFenced(s *scene) {
	first := s.start()
	waits := s.several(1000, 40)
	s.hand(s.some(s.ladder, waits)...)
	s.result.Allowed = waits
	first.mayEnd = true
	second := s.launch()
	if !first.awaitEnd(patience) {
		s.failf("the first of two processes with one instance id goes on")
	}
	if code := first.cmd.ProcessState.ExitCode(); code != 1 {
		s.wrongf("the fenced process ended with exit code %d, want 1", code)
	}
	// The last line is what its operator finds.
	log := strings.Split(strings.TrimSpace(first.log()), "\n")
	if last := log[len(log)-1]; strings.HasPrefix(last, "forwarder: ") && strings.Contains(last, "instance.id") {
		s.seen("exit code 1: " + strings.ReplaceAll(last, s.group, "redrive"))
	} else {
		s.wrongf("the fenced process does not say why it ended; its log ends\n%s", tail(first.log()))
	}
	second.awaitOwned(s.owned())
	s.recovers()
}

// sessionLost stops one of two members with SIGSTOP until its partitions have moved, while records come due all the time:
// those that waited with it are forwarded by the other, and at its wake-up it must send none of them. Nothing is in flight
// when it is stopped, so nothing may come twice.
func sessionLost(s *scene) {
	const session = 6 * time.Second
	stays, sleeps := s.launch(), s.launch()
	for range s.several(3, 1) {
		s.awaitShared(stays, sleeps)
		// Due from a second after the stop until after the wake-up, one every few milliseconds.
		asleep := session + 4*time.Second
		n := s.several(2000, 400)
		s.hand(s.later(n, 3*time.Second, (asleep+2*time.Second)/time.Duration(n))...)
		s.await("records that wait with the one that sleeps", func(ctx context.Context) error {
			held, err := sleeps.metric(ctx, "redrive_held_records", label("topic", s.tier()))
			if err == nil && held < float64(n)/10 {
				err = fmt.Errorf("it holds %v", held)
			}
			return err
		})
		if busy := sleeps.reading("redrive_in_flight_records"); busy > 0 {
			s.failf("%v records are under way already: the machine is too slow for this scene", busy)
		}
		lost := sleeps.rises("redrive_rebalances_total", label("type", "lost"))
		sleeps.signal(syscall.SIGSTOP)
		stopped := time.Now()
		stays.awaitOwned(s.owned())
		s.seen(fmt.Sprintf("redrive_assigned_partitions of the other %d", s.owned()))
		s.pause(asleep - time.Since(stopped))
		sleeps.signal(syscall.SIGCONT)
		s.recovers()
		sleeps.see(lost)
	}
}

// awaitShared waits until two members own all partitions between them.
func (s *scene) awaitShared(a, b *process) {
	s.await("both members to share the partitions", func(ctx context.Context) error {
		x, err := a.ready(ctx)
		if err != nil {
			return err
		}
		y, err := b.ready(ctx)
		if err == nil && (x.Assigned == 0 || y.Assigned == 0 || x.Assigned+y.Assigned != s.owned()) {
			err = fmt.Errorf("they own %d and %d of %d", x.Assigned, y.Assigned, s.owned())
		}
		return err
	})
}

// allGone kills both members and leaves the group without any until what waited is overdue.
func allGone(s *scene) {
	a, b := s.launch(), s.launch()
	s.awaitShared(a, b)
	waits := s.several(5000, 200)
	s.hand(s.some(s.ladder, waits)...)
	s.await("records to wait", func(ctx context.Context) error {
		x, err := a.metric(ctx, "redrive_held_records", label("topic", s.tier()))
		if err != nil {
			return err
		}
		y, err := b.metric(ctx, "redrive_held_records", label("topic", s.tier()))
		if err == nil && x+y < float64(waits)/2 {
			err = fmt.Errorf("%v are held", x+y)
		}
		return err
	})
	a.kill()
	b.kill()
	// What a commit interval forwards may come twice; how much that is the kill harness measures.
	s.result.Allowed = waits
	s.pause(3 * s.wait())
	c := s.launch()
	// The killed ones are members until their sessions end.
	s.recovers()
	late := c.reading("redrive_forward_lateness_seconds_sum", label("source", s.tier())) / max(1, c.reading("redrive_forward_lateness_seconds_count", label("source", s.tier())))
	if late > s.wait().Seconds() {
		s.seen(fmt.Sprintf("redrive_forward_lateness_seconds %.1f on average", late))
	}
}
