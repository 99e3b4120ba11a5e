package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// patience is how long a state may take to come about that takes seconds on a machine that is not busy.
const patience = 90 * time.Second

// stopLimit is when a story no longer waits for a graceful stop. What is promised is less.
const stopLimit = 30 * time.Second

// child is a process of ours, a forwarder unless its name says otherwise. Its methods are for the goroutine of the test.
type child struct {
	t       *testing.T
	name    string
	cmd     *exec.Cmd
	address string // of probes and metrics
	logFile string
	done    chan struct{}
	err     error // of Wait, valid once done is closed
}

// start starts a forwarder and returns when it owns all partitions of the story.
func (s *story) start() *child {
	s.t.Helper()
	c := s.launch()
	c.awaitAssigned(s.owned())
	return c
}

// launch starts a forwarder and does not wait for anything.
func (s *story) launch() *child {
	s.t.Helper()
	address := s.address()
	return s.spawn("forwarder", address, exec.Command(binary, "run", "-c", s.config, "--admin-address", address))
}

// address is a free one, which stays so until the test ends.
func (s *story) address() string {
	s.t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(testkit.FreePort(s.t)))
}

// spawn starts a process whose probes answer at the address. It dies with the test; what env adds to its environment comes last.
func (s *story) spawn(name, address string, cmd *exec.Cmd, env ...string) *child {
	s.t.Helper()
	c := &child{t: s.t, name: name, address: address, done: make(chan struct{})}
	log, err := os.CreateTemp(s.dir, name+"-*.log")
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // The child has its own descriptor; nothing is written here.
	c.logFile = log.Name()
	// Not with a context: it ends by kill or term.
	c.cmd = cmd
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Dir, c.cmd.Env = s.dir, append(testkit.Environment(), env...)
	err = testkit.StartChild(c.cmd, func(err error) {
		c.err = err
		close(c.done)
	})
	if err != nil {
		s.t.Fatalf("start a %s: %v", name, err)
	}
	s.t.Cleanup(func() {
		c.kill()
		if s.t.Failed() {
			s.t.Logf("log of %s %d ends\n%s", c.name, c.cmd.Process.Pid, c.tail())
		}
	})
	return c
}

// kill ends the process with SIGKILL and returns when it is gone.
func (c *child) kill() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Errorf("kill a %s: %v", c.name, err)
	}
	<-c.done
}

// term ends the process with SIGTERM and returns how long that took. The exit code must be 0.
func (c *child) term() time.Duration {
	c.t.Helper()
	began := time.Now()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatalf("stop a %s: %v", c.name, err)
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		if err := c.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
			c.t.Errorf("ask a %s for its goroutines: %v", c.name, err)
		}
		<-c.done
		c.t.Fatalf("a %s has not stopped %v after SIGTERM; its goroutines stand at the end of its log", c.name, stopLimit)
	}
	took := time.Since(began)
	if c.err != nil {
		c.t.Errorf("a %s stopped by SIGTERM: %v, want exit code 0", c.name, c.err)
	}
	return took
}

// tail is the end of what the process has logged.
func (c *child) tail() string {
	text, err := os.ReadFile(c.logFile)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-64<<10):])
}

// readiness is what /readyz?format=json says, as far as stories ask.
type readiness struct {
	OK       bool `json:"ok"`
	Assigned int  `json:"assigned"`
	Issues   []struct {
		Issue string `json:"code"`
		Topic string `json:"topic"`
	} `json:"issues"`
}

// ready asks the process how it is.
func (c *child) ready(ctx context.Context) (readiness, error) {
	var r readiness
	body, err := c.get(ctx, "/readyz?format=json")
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("readyz: %w", err)
	}
	return r, nil
}

// awaitAssigned waits until the process is ready and owns so many partitions.
func (c *child) awaitAssigned(partitions int) {
	c.t.Helper()
	testkit.WaitFor(c.t, patience, fmt.Sprintf("a %s that owns %d partitions", c.name, partitions), func(ctx context.Context) error {
		r, err := c.ready(ctx)
		if err != nil {
			return err
		}
		if !r.OK || r.Assigned != partitions {
			return fmt.Errorf("readyz: %+v", r)
		}
		return nil
	})
}

// get asks the admin endpoint. A process that is gone fails the test at once.
func (c *child) get(ctx context.Context, path string) ([]byte, error) {
	select {
	case <-c.done:
		c.t.Fatalf("a %s ended by itself: %v", c.name, c.err)
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Close = true // No idle connection is left over.
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // Only read.
	return io.ReadAll(response.Body)
}

// metric is the sum of all samples of a metric, of one topic's or, with "", of all; 0 if there is none.
func (c *child) metric(ctx context.Context, name, topic string) (float64, error) {
	body, err := c.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	if topic == "" {
		return testkit.Metric(string(body), name)
	}
	return testkit.Metric(string(body), name, `="`+topic+`"`)
}

// awaitMetric waits until a metric has the value.
func (c *child) awaitMetric(name, topic string, want float64) {
	c.t.Helper()
	testkit.WaitFor(c.t, patience, fmt.Sprintf("%s of %q = %v", name, topic, want), func(ctx context.Context) error {
		got, err := c.metric(ctx, name, topic)
		if err == nil && got != want {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
}

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// command runs the forwarder with arguments to its end.
func (s *story) command(arguments ...string) result {
	s.t.Helper()
	return s.execute(exec.Command(binary, arguments...))
}

// execute runs a command to its end; what env adds to its environment comes last.
func (s *story) execute(cmd *exec.Cmd, env ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd = exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = &stdout, &stderr, s.dir, append(testkit.Environment(), env...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		s.t.Fatalf("%q: %v\n%s", cmd.Args, err, stderr.String())
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// expect runs a command and fails the test if it ends with another exit code.
func (s *story) expect(code int, arguments ...string) result {
	s.t.Helper()
	r := s.command(arguments...)
	if r.code != code {
		s.t.Fatalf("forwarder %q: exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", arguments, r.code, code, r.stdout, r.stderr)
	}
	return r
}

// configFile writes a file beside the story's own and returns its path.
func (s *story) configFile(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}
