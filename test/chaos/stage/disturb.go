package stage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// Kind is what an event was done to, and how.
type Kind string

// The kinds of events.
const (
	ReplicaKilled  Kind = "SIGKILL of a replica"
	ReplicaFrozen  Kind = "SIGSTOP of a replica"
	BrokerKilled   Kind = "SIGKILL of a broker"
	DatabaseKilled Kind = "SIGKILL of Postgres"
)

// Event is something that was broken. Moments are Unix milliseconds.
type Event struct {
	Kind Kind
	What string
	From int64 // before it began
	To   int64 // when it was over: the process was started again
}

// Plan says what is to be broken.
type Plan struct {
	// Kills are SIGKILLs of replicas; Points are the crash points that every second of them takes, in turn.
	Kills  int
	Points []string
	// Brokers and Databases are SIGKILLs of a broker and of Postgres, spread over the kills.
	Brokers, Databases int
	// Working tells whether a replica does what it is to be killed at. Nil is always.
	Working func(context.Context, *Replica) (bool, error)
	// Window is the time from when a replica works in which a kill falls at a random moment.
	Window time.Duration
	Random *rand.Rand
}

// The bounds of what a kill waits for: that a replica works, and that it comes to a crash point. What is not reached then is killed
// all the same.
const (
	workLimit  = 12 * time.Second
	pointLimit = 15 * time.Second
	// BrokerSettle is how long after a broker's return its death can still have an effect.
	BrokerSettle = 10 * time.Second
)

// Disturb does what the plan says and returns when everything runs again. It starts the replicas that do not run; those that do must
// be ready. Each of them has a life of its own: at times all are dead at once.
func (s *Stage) Disturb(ctx context.Context, plan Plan) error {
	budget := make(chan string, plan.Kills) // the manners in which replicas die; "" is a random moment
	points := slices.Clone(plan.Points)
	for i := range plan.Kills {
		if len(points) > 0 && i%2 == 1 {
			budget <- points[(i/2)%len(points)]
		} else {
			budget <- ""
		}
	}
	close(budget)
	s.killed.Store(0)

	var mu sync.Mutex // guards plan.Random
	between := func(low, high time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return low + time.Duration(plan.Random.Int64N(int64(high-low)))
	}
	all, ctx := errgroup.WithContext(ctx)
	replicas, replicaCtx := errgroup.WithContext(ctx)
	for _, r := range s.Replicas {
		replicas.Go(func() error { return s.lives(replicaCtx, r, plan, budget, between) })
	}
	ended := make(chan struct{})
	all.Go(func() error {
		defer close(ended)
		return replicas.Wait()
	})
	// Those of the two kinds fall on different kills, mostly.
	spread := func(n, part int, do func() error) {
		all.Go(func() error {
			for i := range n {
				if err := s.awaitKills(ctx, ended, (part*i+1)*plan.Kills/(part*n)); err != nil {
					return err
				}
				if err := do(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if plan.Brokers > 0 {
		spread(plan.Brokers, 2, func() error {
			return s.bounceBroker(ctx, 1+int(between(0, time.Duration(s.Brokers))), between(500*time.Millisecond, 4*time.Second))
		})
	}
	if plan.Databases > 0 && s.Postgres != nil {
		spread(plan.Databases, 3, func() error { return s.bounceDatabase(ctx, between(200*time.Millisecond, 3*time.Second)) })
	}
	return all.Wait()
}

// Killed is how many replicas Disturb has killed so far.
func (s *Stage) Killed() int { return int(s.killed.Load()) }

// awaitKills waits until so many replicas were killed, or none will be any more.
func (s *Stage) awaitKills(ctx context.Context, ended <-chan struct{}, n int) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for s.Killed() < n {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
			return nil
		case <-ticker.C:
		}
	}
	return nil
}

// lives kills a replica in the manners that the budget gives, and leaves it running.
func (s *Stage) lives(ctx context.Context, r *Replica, plan Plan, budget <-chan string, between func(low, high time.Duration) time.Duration) error {
	// A crash point must be known from the start of a life.
	start := func(point string) error {
		if point == "" {
			return r.Start()
		}
		return r.Start(fmt.Sprintf("TEST_CRASH_POINT=%s:%d", point, 1+between(0, 4)))
	}
	point, more := <-budget
	if r.Running() && point != "" {
		if _, err := r.Stop(); err != nil {
			return err
		}
	}
	if !r.Running() {
		if err := start(point); err != nil {
			return err
		}
	}
	for more {
		e, err := s.die(ctx, r, point, plan, between)
		if err != nil {
			return err
		}
		down := between(0, 1500*time.Millisecond)
		s.Say("%s, for %v", e.What, down.Round(time.Millisecond))
		s.killed.Add(1)
		if err := Sleep(ctx, down); err != nil {
			return err
		}
		s.mu.Lock()
		e.To = NowMilli()
		s.mu.Unlock()
		point, more = <-budget
		if err := start(point); err != nil {
			return err
		}
	}
	return nil
}

// die lets a replica die once.
func (s *Stage) die(ctx context.Context, r *Replica, point string, plan Plan, between func(low, high time.Duration) time.Duration) (*Event, error) {
	e := s.Event(ReplicaKilled)
	if point != "" {
		died, err := r.AwaitSuicide(pointLimit, ctx.Done())
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		if died {
			s.hit[point]++
		} else {
			s.missed[point]++
		}
		s.mu.Unlock()
		if died {
			// It died a moment ago.
			e.What = fmt.Sprintf("%s died at %s, %s", r.Name, point, clock())
			return e, nil
		}
	} else {
		if err := s.awaitWork(ctx, r, plan); err != nil {
			return nil, err
		}
		if err := Sleep(ctx, between(0, plan.Window)); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	e.From = NowMilli()
	s.mu.Unlock()
	e.What = fmt.Sprintf("SIGKILL of %s, %s", r.Name, clock())
	return e, r.Kill()
}

// awaitWork waits until a replica works, for a while.
func (s *Stage) awaitWork(ctx context.Context, r *Replica, plan Plan) error {
	if plan.Working == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
	_ = testkit.Await(limited, func(ctx context.Context) error {
		if r.Alive() != nil {
			return nil //nolint:nilerr // The kill that follows reports it.
		}
		works, err := plan.Working(ctx, r)
		if err == nil && !works {
			err = errors.New("it does not work yet")
		}
		return err
	})
	return context.Cause(ctx)
}

// Event adds an event that begins now. Its To is far in the future until somebody knows better.
func (s *Stage) Event(kind Kind) *Event {
	e := &Event{Kind: kind, From: NowMilli(), To: 1 << 60}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	return e
}

// Events are all that were done, in their order. Nobody may disturb meanwhile.
func (s *Stage) Events() []*Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// Points tells how often each crash point has killed, and which were never reached.
func (s *Stage) Points(points []string) (hits int, never []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, point := range points {
		hits += s.hit[point]
		if s.hit[point] == 0 {
			never = append(never, point)
		}
	}
	return hits, never
}

// bounceBroker kills a broker, starts it again, and waits until it has all that it missed.
func (s *Stage) bounceBroker(ctx context.Context, n int, down time.Duration) error {
	e := s.Event(BrokerKilled)
	e.What = fmt.Sprintf("SIGKILL of broker %d, %s", n, clock())
	s.Say("%s, for %v", e.What, down.Round(time.Millisecond))
	if err := s.Kafka.Kill(n); err != nil {
		return err
	}
	if err := Sleep(ctx, down); err != nil {
		return err
	}
	if err := s.Kafka.Start(ctx, n); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := testkit.Await(limited, func(ctx context.Context) error { return s.Client.InSync(ctx) }); err != nil {
		return fmt.Errorf("wait until all replicas are in sync: %w", err)
	}
	s.mu.Lock()
	e.To = NowMilli() + BrokerSettle.Milliseconds()
	s.mu.Unlock()
	s.Say("broker %d is back and in sync", n)
	return nil
}

// bounceDatabase kills all processes of Postgres and starts it again.
func (s *Stage) bounceDatabase(ctx context.Context, down time.Duration) error {
	e := s.Event(DatabaseKilled)
	e.What = "SIGKILL of Postgres, " + clock()
	s.Say("%s, for %v", e.What, down.Round(time.Millisecond))
	if err := s.Postgres.Kill(); err != nil {
		return err
	}
	if err := Sleep(ctx, down); err != nil {
		return err
	}
	if err := s.Postgres.Start(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	e.To = NowMilli()
	s.mu.Unlock()
	s.Say("Postgres is back")
	return nil
}

// NowMilli is this moment in Unix milliseconds.
func NowMilli() int64 { return time.Now().UnixMilli() }

func clock() string { return time.Now().UTC().Format("15:04:05.000") }

// Sleep waits, or returns why the context has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
