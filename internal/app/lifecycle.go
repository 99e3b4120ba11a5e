package app

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// teardown is a stack of named steps that undo what was built.
type teardown struct{ steps []step }

type step struct {
	name string
	undo func() error
}

func (t *teardown) push(name string, undo func() error) {
	t.steps = append(t.steps, step{name, undo})
}

// run takes the steps, last in first out; one that fails does not stop the next.
// Each step is taken once, however often run is called.
func (t *teardown) run(log *slog.Logger) error {
	var problems []error
	for len(t.steps) > 0 {
		last := t.steps[len(t.steps)-1]
		t.steps = t.steps[:len(t.steps)-1]
		log.Debug("closing", "step", last.name)
		if err := last.undo(); err != nil {
			problems = append(problems, fmt.Errorf("close %s: %w", last.name, err))
		}
	}
	return errors.Join(problems...)
}

// phase is how far the process is:
//
//	starting -> running -> stopping -> stopped
//	   |         |   ^         ^
//	   |         v   |         |
//	   |       reloading ------|
//	   `-----------------------'
type phase int

const (
	phaseStarting phase = iota
	phaseRunning
	// phaseReloading is running while one forwarder drains and before the next
	// has begun.
	phaseReloading
	phaseStopping
	phaseStopped
)

// state is what the probes know of the actor that works.
type state struct {
	mu sync.Mutex // guards the following
	// at is the phase.
	at phase
	// doing says what a process that starts is waiting for.
	doing string
	// unreachable is why no broker answers a process that starts; nil once one did.
	unreachable error
	// forwarder is set with phaseRunning, and stays until the next one begins.
	forwarder engine
}

// get is a consistent view.
func (s *state) get() (at phase, doing string, f engine, unreachable error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, s.doing, s.forwarder, s.unreachable
}

// engine is the forwarder that runs, nil before the first.
func (s *state) engine() engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forwarder
}

// enter goes on to stopping or stopped, from where nothing leads back.
func (s *state) enter(p phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = max(s.at, p)
}

func (s *state) starting(doing string, unreachable error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing, s.unreachable = doing, unreachable
}

// run notes that a forwarder runs, the first or the next.
func (s *state) run(e engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forwarder, s.unreachable = e, nil
	if s.at < phaseStopping {
		s.at = phaseRunning
	}
}

// reload notes that the forwarder drains for another to take its place.
func (s *state) reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = max(s.at, phaseReloading)
}
