package stage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// Process is a program that dies and comes back. Its methods are for one goroutine at a time; the fields stay as they are once
// it was started.
type Process struct {
	// Name is what messages call it.
	Name    string
	Program string
	Args    []string
	// Env is added to the environment of each of its lives.
	Env []string
	// Dir is its working folder.
	Dir string
	// LogFile gets the output of all its lives.
	LogFile string

	cmd  *exec.Cmd
	done chan error // of the last life; readable once for each value that was put back
}

// Start begins a life; env is added to the environment of this one.
func (p *Process) Start(env ...string) error {
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.Name, err)
	}
	defer log.Close() //nolint:errcheck // The child has its own descriptor; nothing is written here.
	// Not with a context: it ends by Kill or Stop.
	cmd := exec.Command(p.Program, p.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(append(testkit.Environment(), p.Env...), env...)
	cmd.Dir = p.Dir
	done := make(chan error, 1)
	if err := testkit.StartChild(cmd, func(err error) { done <- err }); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd, p.done = cmd, done
	return nil
}

// PID is the number of the process in its last life.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Running tells whether there is a process.
func (p *Process) Running() bool { return p.cmd != nil && p.Alive() == nil }

// Alive reports an error if the process ended by itself.
func (p *Process) Alive() error {
	select {
	case err := <-p.done:
		p.done <- err
		return p.ended(err)
	default:
		return nil
	}
}

func (p *Process) ended(err error) error {
	if err == nil {
		err = errors.New("exit code 0")
	}
	return fmt.Errorf("%s ended by itself: %w; its log ends\n%s", p.Name, err, p.Tail())
}

// Kill ends the process with SIGKILL and waits until it is gone. One that has ended by itself is an error.
func (p *Process) Kill() error {
	if err := p.Alive(); err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	p.done <- <-p.done // It stays readable for Alive and End.
	return nil
}

// Signal sends a signal.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("send %v to %s: %w", signal, p.Name, err)
	}
	return nil
}

// AwaitSuicide waits until the process has ended by a SIGKILL that it sent to itself, and tells whether it has within the limit.
// Any other end is an error.
func (p *Process) AwaitSuicide(limit time.Duration, giveUp <-chan struct{}) (bool, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-p.done:
		p.done <- err
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
				return true, nil
			}
		}
		return false, p.ended(err)
	case <-timer.C:
	case <-giveUp:
	}
	return false, nil
}

// stopLimit is how long a graceful stop is waited for; what is allowed is less.
const stopLimit = 30 * time.Second

// Stop ends the process with SIGTERM and returns how long that took.
func (p *Process) Stop() (time.Duration, error) {
	if err := p.Alive(); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case err := <-p.done:
		p.done <- err
		took := time.Since(began)
		if err != nil {
			return took, fmt.Errorf("%s did not stop cleanly: %w; its log ends\n%s", p.Name, err, p.Tail())
		}
		return took, nil
	case <-timer.C:
	}
	// Where it hangs is what one wants to know: the runtime writes all stacks to the log.
	err := fmt.Errorf("%s did not stop in %v; its stacks are in %s", p.Name, stopLimit, p.LogFile)
	return stopLimit, errors.Join(err, p.Signal(syscall.SIGQUIT), p.awaitEnd())
}

// awaitEnd waits a moment for the end of the process and then kills it.
func (p *Process) awaitEnd() error {
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case err := <-p.done:
		p.done <- err
		return nil
	case <-timer.C:
		return p.Kill()
	}
}

// End makes sure that there is no process.
func (p *Process) End() {
	if p.Running() {
		_ = p.Kill()
	}
}

// Tail is the end of the log.
func (p *Process) Tail() string {
	text, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}
