package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// brokerSettle is how long after a broker's return its death can still be the reason for an extra copy: a member that
// lost its partitions meanwhile begins again at its last commit.
const brokerSettle = 10 * time.Second

// killAll kills forwarders and brokers in a random order. A broker stays dead while the next forwarders are killed.
func (r *run) killAll(ctx context.Context) error {
	broker := make([]bool, r.kills+r.brokerKills)
	for i := range r.brokerKills {
		broker[i] = true
	}
	r.random.Shuffle(len(broker), func(i, j int) { broker[i], broker[j] = broker[j], broker[i] })

	bounces, bounceCtx := errgroup.WithContext(ctx)
	bounces.SetLimit(1) // Of two dead of three no one is left to decide: Go waits for the one before.
	var failed error
	for _, b := range broker {
		if b {
			e := r.event(brokerKilled)
			n, pause, down := 1+r.random.IntN(3), r.between(0, 2*time.Second), r.between(500*time.Millisecond, 4*time.Second)
			bounces.Go(func() error { return r.bounceBroker(bounceCtx, e, n, pause, down) })
			continue
		}
		if failed = r.killForwarders(bounceCtx); failed != nil {
			break
		}
	}
	if err := bounces.Wait(); err != nil {
		return err
	}
	return failed
}

// event adds an event, which its maker fills in.
func (r *run) event(kind eventKind) *event {
	e := &event{kind: kind, from: never, to: never, look: never}
	r.events = append(r.events, e)
	return e
}

// bounceBroker kills a broker, starts it again, and waits until it has all that it missed.
func (r *run) bounceBroker(ctx context.Context, e *event, n int, pause, down time.Duration) error {
	if err := sleep(ctx, pause); err != nil {
		return err
	}
	e.what = fmt.Sprintf("SIGKILL of broker %d at %s", n, time.Now().UTC().Format("15:04:05.000"))
	r.say("%s, for %v", e.what, down.Round(time.Millisecond))
	e.from = nowMilli()
	if err := r.kafka.Kill(n); err != nil {
		return err
	}
	if err := sleep(ctx, down); err != nil {
		return err
	}
	if err := r.kafka.Start(ctx, n); err != nil {
		return err
	}
	if err := await(ctx, patience, "all replicas to be in sync", func(ctx context.Context) error { return r.client.InSync(ctx) }); err != nil {
		return err
	}
	e.to = nowMilli() + brokerSettle.Milliseconds()
	r.say("broker %d is back and in sync", n)
	return nil
}

// killWindow is the time, from when they forward, in which a kill falls at a random moment: long enough that most find
// the steady load of the run, and some the burst after a standstill.
const killWindow = 15 * time.Second

// killForwarders kills one forwarder, or both, at a random moment: mostly while they forward, at times while they start.
// With both dead the commits are read while nobody can change them. At times a single one stays away until the group
// gave its partitions to the other.
func (r *run) killForwarders(ctx context.Context) error {
	victims := r.victims()
	pause, down := r.between(0, killWindow), r.between(0, 1500*time.Millisecond)
	starting := r.random.IntN(7) == 0
	if len(victims) == 1 && r.random.IntN(5) == 0 {
		down += sessionTimeout + time.Second
	}
	if starting {
		pause = r.between(0, 3*time.Second)
	} else if err := r.awaitForwarding(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, pause); err != nil {
		return err
	}

	e := r.event(killed)
	e.what = fmt.Sprintf("SIGKILL of %s at %s", names(victims), time.Now().UTC().Format("15:04:05.000"))
	e.from = nowMilli()
	dying, _ := errgroup.WithContext(ctx)
	for _, f := range victims {
		dying.Go(f.Kill)
	}
	if err := dying.Wait(); err != nil {
		return err
	}
	if err := r.lookAt(ctx, e); err != nil {
		return err
	}
	r.say("%s, for %v", e.what, down.Round(time.Millisecond))
	return r.revive(ctx, e, victims, down)
}

// stopAll stops forwarders with SIGTERM under load, one or both.
func (r *run) stopAll(ctx context.Context) error {
	r.gracefulFrom = nowMilli()
	for range r.graceful {
		victims := r.victims()
		pause := r.between(100*time.Millisecond, 600*time.Millisecond)
		if err := r.awaitForwarding(ctx); err != nil {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		e := r.event(stopped)
		e.what = fmt.Sprintf("SIGTERM of %s at %s", names(victims), time.Now().UTC().Format("15:04:05.000"))
		e.from = nowMilli()
		took := make([]time.Duration, len(victims))
		stopping, _ := errgroup.WithContext(ctx)
		for i, f := range victims {
			stopping.Go(func() (err error) {
				took[i], err = f.Stop()
				return err
			})
		}
		if err := stopping.Wait(); err != nil {
			return err
		}
		for _, t := range took {
			r.slowestStop = max(r.slowestStop, t)
		}
		if err := r.lookAt(ctx, e); err != nil {
			return err
		}
		r.say("%s, gone after %v", e.what, took)
		if err := r.revive(ctx, e, victims, 0); err != nil {
			return err
		}
	}
	return nil
}

// lookAt reads the commits that the dead have left.
func (r *run) lookAt(ctx context.Context, e *event) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	e.look, _, err = r.commits.look(ctx)
	return err
}

func (r *run) revive(ctx context.Context, e *event, victims []*stage.Process, down time.Duration) error {
	if err := sleep(ctx, down); err != nil {
		return err
	}
	e.to = nowMilli()
	for _, f := range victims {
		if err := f.Start(); err != nil {
			return err
		}
	}
	return nil
}

// victims picks one forwarder or both.
func (r *run) victims() []*stage.Process {
	if n := r.random.IntN(5); n < len(r.replicas) {
		return r.replicas[n : n+1]
	} else if n == 2 {
		return r.replicas[r.random.IntN(2):][:1]
	}
	return r.replicas
}

func names(replicas []*stage.Process) string {
	var all []string
	for _, f := range replicas {
		all = append(all, f.Name)
	}
	return strings.Join(all, " and ")
}

func (r *run) between(low, high time.Duration) time.Duration {
	return low + time.Duration(r.random.Int64N(int64(high-low)))
}

func nowMilli() int64 { return time.Now().UnixMilli() }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
