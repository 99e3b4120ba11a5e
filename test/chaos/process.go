package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// forwarder is one replica: a process that dies and comes back. Its methods are for one goroutine.
type forwarder struct {
	name    string
	binary  string
	config  string
	env     []string
	logFile string

	cmd  *exec.Cmd
	done chan error
}

// start starts the process.
func (f *forwarder) start() error {
	log, err := os.OpenFile(f.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of forwarder %s: %w", f.name, err)
	}
	defer log.Close() //nolint:errcheck // The child has its own descriptor; nothing is written here.
	// Not with a context: it ends by kill or stop.
	cmd := exec.Command(f.binary, "run", "-c", f.config)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(testkit.Environment(), f.env...)
	cmd.Dir = filepath.Dir(f.config)
	done := make(chan error, 1)
	if err := testkit.StartChild(cmd, func(err error) { done <- err }); err != nil {
		return fmt.Errorf("start forwarder %s: %w", f.name, err)
	}
	f.cmd, f.done = cmd, done
	return nil
}

// alive reports an error if the process ended by itself.
func (f *forwarder) alive() error {
	select {
	case err := <-f.done:
		f.done <- err
		if err == nil {
			err = errors.New("exit code 0")
		}
		return fmt.Errorf("forwarder %s ended by itself: %w; its log ends\n%s", f.name, err, f.tail())
	default:
		return nil
	}
}

// kill ends the process with SIGKILL and waits until it is gone.
func (f *forwarder) kill() error {
	if err := f.alive(); err != nil {
		return err
	}
	if err := f.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill forwarder %s: %w", f.name, err)
	}
	f.done <- <-f.done // It stays readable for alive and end.
	return nil
}

// stopLimit is how long the harness waits for a graceful stop before it gives up on it; what is allowed is less.
const stopLimit = 30 * time.Second

// stop ends the process with SIGTERM and returns how long that took.
func (f *forwarder) stop() (time.Duration, error) {
	if err := f.alive(); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("stop forwarder %s: %w", f.name, err)
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case err := <-f.done:
		f.done <- err
		took := time.Since(began)
		if err != nil {
			return took, fmt.Errorf("forwarder %s did not stop cleanly: %w; its log ends\n%s", f.name, err, f.tail())
		}
		return took, nil
	case <-timer.C:
	}
	// Where it hangs is what one wants to know: the runtime writes all stacks to the log.
	err := fmt.Errorf("forwarder %s did not stop in %v; its stacks are in %s", f.name, stopLimit, f.logFile)
	return stopLimit, errors.Join(err, f.cmd.Process.Signal(syscall.SIGQUIT), f.awaitEnd())
}

// awaitEnd waits a moment for the end of the process and then kills it.
func (f *forwarder) awaitEnd() error {
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case err := <-f.done:
		f.done <- err
		return nil
	case <-timer.C:
		return f.kill()
	}
}

// end makes sure that there is no process.
func (f *forwarder) end() {
	if f.cmd != nil && f.alive() == nil {
		_ = f.kill()
	}
}

// tail is the end of the log.
func (f *forwarder) tail() string {
	text, err := os.ReadFile(f.logFile)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}
