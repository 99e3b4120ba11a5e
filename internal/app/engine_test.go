package app

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kafka-redrive/redrive/internal/forwarder"
)

// course is a runner whose forwarders a test makes.
type course struct {
	t       *testing.T
	runner  *runner
	state   *state
	engines []*fakeEngine // those that began
	ctx     context.Context
	stop    context.CancelFunc
	ended   chan error

	mu     sync.Mutex // guards the following
	refuse error      // why none can be made
}

// set changes what the test chooses: a timer that has run makes nobody see it.
func (c *course) set(change func()) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// startCourse runs the first forwarder. Its group is "first".
func startCourse(t *testing.T) *course {
	t.Helper()
	c := &course{t: t, state: &state{}, ended: make(chan error, 1)}
	c.runner = newRunner(c.state, func(options forwarder.Options) (engine, error) {
		if n := len(c.engines); n > 0 && !c.engines[n-1].ended.Load() {
			t.Error("a forwarder begins while the one before it runs")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.refuse != nil && options.Group != "first" {
			return nil, c.refuse
		}
		f := &fakeEngine{options: options, fail: make(chan error, 1), status: forwarder.Status{Running: true, Joined: true}}
		c.engines = append(c.engines, f)
		return f, nil
	})
	c.ctx, c.stop = context.WithCancel(t.Context())
	go func() { c.ended <- c.runner.run(c.ctx, forwarder.Options{Group: "first"}) }()
	synctest.Wait()
	return c
}

// expect waits until nothing moves and looks at the forwarder that runs.
func (c *course) expect(engines int, group string) *fakeEngine {
	c.t.Helper()
	synctest.Wait()
	f, ok := c.state.engine().(*fakeEngine)
	if !ok || len(c.engines) != engines || f.options.Group != group || f.ended.Load() {
		c.t.Fatalf("%d forwarders began, want %d; the last is %+v", len(c.engines), engines, f)
	}
	return f
}

func TestAForwarderBeginsWhenTheOneBeforeHasDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCourse(t)
		c.engines[0].drain = 3 * time.Second
		began := time.Now()
		for i, group := range []string{"second", "third"} {
			if err := c.runner.replace(t.Context(), forwarder.Options{Group: group}); err != nil {
				t.Fatal(err)
			}
			c.expect(i+2, group)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("two turns took %v", took)
		}
		select {
		case err := <-c.ended:
			t.Fatalf("the end of a forwarder that was replaced ended the process: %v", err)
		default:
		}
		c.stop()
		if err := <-c.ended; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

func TestAStopWhileOneForwarderDrainsForTheNextIsGraceful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCourse(t)
		c.engines[0].drain = 3 * time.Second
		answer := make(chan error, 1)
		go func() {
			answer <- c.runner.replace(context.WithoutCancel(t.Context()), forwarder.Options{Group: "second"})
		}()
		time.Sleep(time.Second)
		if at, _, _, _ := c.state.get(); at != phaseReloading {
			t.Errorf("phase %v", at)
		}
		c.stop()
		if err := <-c.ended; err != nil {
			t.Errorf("stop: %v", err)
		}
		if !c.engines[0].ended.Load() || len(c.engines) != 1 {
			t.Errorf("not drained, or %d forwarders", len(c.engines))
		}
		if err := <-answer; err == nil {
			t.Error("whoever asked for the next forwarder was told that it runs")
		}
		if err := c.runner.replace(c.ctx, forwarder.Options{Group: "second"}); err == nil {
			t.Error("a forwarder begins after the stop")
		}
	})
}

func TestAFaultThatEndsTheForwarderEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCourse(t)
		c.engines[0].fail <- errors.New("fenced")
		if err := <-c.ended; err == nil || err.Error() != "forward: fenced" {
			t.Errorf("while it runs: %v", err)
		}

		c = startCourse(t)
		c.engines[0].drain = time.Minute
		answer := make(chan error, 1)
		go func() { answer <- c.runner.replace(t.Context(), forwarder.Options{Group: "second"}) }()
		synctest.Wait()
		c.engines[0].fail <- errors.New("fenced")
		if err := <-c.ended; err == nil || err.Error() != "forward: fenced" {
			t.Errorf("while it drains: %v", err)
		}
		if err := <-answer; err == nil || !strings.Contains(err.Error(), "fenced") {
			t.Errorf("whoever asked for the next forwarder was told %v", err)
		}

		c = startCourse(t)
		close(c.engines[0].fail)
		if err := <-c.ended; err == nil {
			t.Error("an end without a cause is taken for a stop")
		}
	})
}

func TestAForwarderThatCanNotBeMadeLeavesTheTopicsAsTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCourse(t)
		c.set(func() { c.refuse = errors.New("no such file") })
		if err := c.runner.replace(t.Context(), forwarder.Options{Group: "second"}); err == nil || err.Error() != "make the forwarder: no such file" {
			t.Errorf("answer: %v", err)
		}
		c.expect(2, "first")
		c.set(func() { c.refuse = nil })
		if err := c.runner.replace(t.Context(), forwarder.Options{Group: "second"}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		c.expect(3, "second")
		c.stop()
		if err := <-c.ended; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}
