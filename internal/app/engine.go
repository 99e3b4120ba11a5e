package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/kafka-redrive/redrive/internal/forwarder"
)

// engine is the forwarder, as far as the process asks of it.
type engine interface {
	// Run forwards until ctx ends, and drains then.
	Run(ctx context.Context) error
	// Status blocks while the loop does.
	Status() forwarder.Status
	// Control sets by inbox what is paused and how fast records go back.
	Control(paces map[string]forwarder.Pace)
}

// runner runs one forwarder after the other. A new one is made only when the one
// before has drained: they are members of one group, and export the same metrics.
type runner struct {
	state *state
	// begin makes a forwarder. It does not block.
	begin func(forwarder.Options) (engine, error)
	// turns has no room, so that whoever sent one knows that it was taken.
	turns chan *turn
}

// turn asks for a forwarder with other options.
type turn struct {
	options forwarder.Options
	// done has room for the one answer, since nobody may wait for it any more.
	done chan error
}

func newRunner(state *state, begin func(forwarder.Options) (engine, error)) *runner {
	return &runner{state: state, begin: begin, turns: make(chan *turn)}
}

// run keeps a forwarder running until ctx ends, and returns when the last one has
// drained: nil then, and else why no forwarder can go on.
func (r *runner) run(ctx context.Context, options forwarder.Options) error {
	f, err := r.begin(options)
	if err != nil {
		return fmt.Errorf("make the forwarder: %w", err)
	}
	r.state.run(f)
	for {
		next, err := r.runOne(ctx, f)
		if next == nil {
			return err
		}
		f, err = r.begin(next.options)
		if err == nil {
			options = next.options
		} else {
			// What it needs was checked, so that this is a file that vanished since:
			// better the old topics than none.
			refusal := fmt.Errorf("make the forwarder: %w", err)
			if f, err = r.begin(options); err != nil {
				next.done <- refusal
				return fmt.Errorf("make the forwarder as it was: %w", err)
			}
			err = refusal
		}
		// Before the answer: whoever gets it may ask for the forwarder that runs.
		r.state.run(f)
		next.done <- err
	}
}

// runOne runs a forwarder to its end. It returns the turn that ended it, or nil
// when nothing comes after it.
func (r *runner) runOne(ctx context.Context, f engine) (*turn, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(running) }()
	var next *turn
	select {
	case err := <-ended:
		return nil, forwardError(ctx, err)
	case next = <-r.turns:
	}
	r.state.reload()
	stop()
	err := <-ended
	if err == nil && ctx.Err() == nil {
		return next, nil
	}
	// The process was asked to stop while the forwarder drained, or the forwarder
	// found that another has taken its place.
	err = forwardError(ctx, err)
	next.done <- errors.Join(errors.New("the process stops"), err)
	return nil, err
}

func forwardError(ctx context.Context, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("forward: %w", err)
	case ctx.Err() == nil:
		return errors.New("forward: ended without being asked to")
	default:
		return nil
	}
}

// replace drains the forwarder and puts one with other options in its place. It
// blocks until that one has begun. After an error the forwarder is as it was
// before, or the process is about to end.
func (r *runner) replace(ctx context.Context, options forwarder.Options) error {
	next := &turn{options: options, done: make(chan error, 1)}
	select {
	case r.turns <- next:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-next.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// control changes the forwarder that runs.
func (r *runner) control(paces map[string]forwarder.Pace) {
	if f := r.state.engine(); f != nil {
		f.Control(paces)
	}
}
