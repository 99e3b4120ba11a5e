package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// child is a process that is measured.
type child struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // valid once done is closed
}

// command says how to start a child.
type command struct {
	name    string // for messages and the name of its log
	program string
	args    []string
	env     []string // beside what this process has, without the settings of a binary of ours
}

// startChild starts a process whose output goes to a file in dir.
func startChild(dir string, c command) (*child, error) {
	path := filepath.Join(dir, c.name+".log")
	out, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // The child has its own.
	p := &child{name: c.name, log: path, done: make(chan struct{}), cmd: exec.Command(c.program, c.args...)}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(testkit.Environment(), c.env...)
	err = testkit.StartChild(p.cmd, func(err error) {
		p.err = err
		close(p.done)
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return p, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// ended returns an error if the process is gone, with the end of its log.
func (c *child) ended() error {
	select {
	case <-c.done:
		return c.failure(errors.New("ended by itself"))
	default:
		return nil
	}
}

func (c *child) failure(err error) error {
	text, readErr := os.ReadFile(c.log)
	if readErr != nil {
		text = []byte(readErr.Error())
	}
	if c.err != nil {
		err = fmt.Errorf("%w (%w)", err, c.err)
	}
	return fmt.Errorf("%s: %w; its log ends\n%s", c.name, err, lastLines(text, 20))
}

func lastLines(text []byte, n int) []byte {
	text = bytes.TrimSpace(text)
	lines := bytes.Split(text, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}

// stop ends the process with SIGTERM and returns the processor time of its whole life.
func (c *child) stop() (time.Duration, error) {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, fmt.Errorf("stop %s: %w", c.name, err)
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.kill()
		return 0, c.failure(fmt.Errorf("did not stop in %v", stopLimit))
	}
	if c.err != nil {
		return 0, c.failure(errors.New("did not stop cleanly"))
	}
	state := c.cmd.ProcessState
	return state.UserTime() + state.SystemTime(), nil
}

// kill ends the process, if it is still there, and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // It fails only if the process is gone.
	<-c.done
}

// runChild runs a command that ends by itself.
func runChild(ctx context.Context, c command) error {
	out, err := exec.CommandContext(ctx, c.program, c.args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", c.name, err, lastLines(out, 20))
	}
	return nil
}
