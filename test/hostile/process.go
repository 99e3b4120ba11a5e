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

// forwarder is the process under test. Its methods are for one goroutine.
type forwarder struct {
	binary, config, logFile string

	cmd  *exec.Cmd
	done chan struct{} // Closed when the process is gone; err is valid then.
	err  error
}

// start starts the process.
func (f *forwarder) start() error {
	log, err := os.OpenFile(f.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of the forwarder: %w", err)
	}
	defer log.Close() //nolint:errcheck // The child has its own descriptor; nothing is written here.
	// Not with a context: it ends by stop or kill.
	f.cmd = exec.Command(f.binary, "run", "-c", f.config)
	f.cmd.Stdout, f.cmd.Stderr = log, log
	f.cmd.Env = testkit.Environment()
	f.cmd.Dir = filepath.Dir(f.config)
	f.done = make(chan struct{})
	err = testkit.StartChild(f.cmd, func(err error) {
		f.err = err
		close(f.done)
	})
	if err != nil {
		f.cmd = nil
		return fmt.Errorf("start the forwarder: %w", err)
	}
	return nil
}

// ended tells whether the process is gone.
func (f *forwarder) ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// stopLimit is how long a graceful stop may take before the process counts as crashed.
const stopLimit = 30 * time.Second

// stop ends the process with SIGTERM; an error says that it did not end as it should.
func (f *forwarder) stop() error {
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the forwarder: %w", err)
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-f.done:
		return f.err
	case <-timer.C:
		f.kill()
		return fmt.Errorf("the forwarder did not stop in %v", stopLimit)
	}
}

// kill makes sure that there is no process.
func (f *forwarder) kill() {
	if f.cmd == nil || f.ended() {
		return
	}
	_ = f.cmd.Process.Signal(syscall.SIGKILL)
	<-f.done
}

// tail is the end of the log.
func (f *forwarder) tail() string {
	text, err := os.ReadFile(f.logFile)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}
