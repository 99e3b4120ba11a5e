package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// binary returns the path of a program: that in bin if it was built, or a build
// of this source in dir.
func binary(ctx context.Context, dir, name string) (string, error) {
	built := filepath.Join("bin", name)
	if info, err := os.Stat(built); err == nil && !info.IsDir() {
		return filepath.Abs(built)
	}
	path := filepath.Join(dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/kafka-redrive/redrive/cmd/"+name) //nolint:gosec // The path is ours.
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// command makes a command line of a program.
func command(ctx context.Context, binary string, environ []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...) //nolint:gosec // All of it is ours.
	cmd.Env = environ
	cmd.SysProcAttr = childAttributes()
	// The end of ctx is a request to stop, and has a limit.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// child is a forwarder or a dlt-replayer that runs.
type child struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	err    error         // valid then

	admin chan string // gets the address of probes and metrics, once
	api   chan string // gets that of the API, once, of a dlt-replayer

	mu   sync.Mutex
	tail []string // the last lines it logged
}

// startChild runs a program until ctx ends.
func startChild(ctx context.Context, binary string, environ []string, args ...string) (*child, error) {
	c := &child{
		name:   filepath.Base(binary),
		cmd:    command(ctx, binary, environ, append(args, "--log-format", "json")...),
		exited: make(chan struct{}),
		admin:  make(chan string, 1),
		api:    make(chan string, 1),
	}
	logs, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", c.name, err)
	}
	go func() {
		c.readLogs(logs)
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

// readLogs keeps the last lines, and finds where probes are served.
func (c *child) readLogs(logs io.Reader) {
	lines := bufio.NewScanner(logs)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry struct {
			Admin string `json:"admin_address"`
			API   string `json:"api_address"`
		}
		if json.Unmarshal(lines.Bytes(), &entry) == nil {
			offer(c.admin, entry.Admin)
			offer(c.api, entry.API)
		}
		c.mu.Lock()
		c.tail = append(c.tail, lines.Text())
		if len(c.tail) > 40 {
			c.tail = c.tail[1:]
		}
		c.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, logs) // After a line that is too long.
}

// offer puts an address where it is waited for, if it is the first.
func offer(to chan string, address string) {
	if address == "" {
		return
	}
	select {
	case to <- address:
	default:
	}
}

func (c *child) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.tail, "\n")
}

// await returns what the log tells, once it does.
func (c *child) await(ctx context.Context, told <-chan string) (string, error) {
	select {
	case address := <-told:
		return address, nil
	case <-c.exited:
		return "", c.died()
	case <-ctx.Done():
		return "", fmt.Errorf("the %s does not start: %w", c.name, ctx.Err())
	}
}

// awaitReady returns when the child owns so many partitions.
func (c *child) awaitReady(ctx context.Context, partitions int) (admin string, err error) {
	admin, err = c.await(ctx, c.admin)
	if err != nil {
		return "", err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		var answer struct {
			OK       bool `json:"ok"`
			Assigned int  `json:"assigned"`
		}
		if err := getJSON(ctx, "http://"+admin+"/readyz?format=json", &answer); err == nil && answer.OK && answer.Assigned == partitions {
			return admin, nil
		}
		select {
		case <-ticker.C:
		case <-c.exited:
			return "", c.died()
		case <-ctx.Done():
			return "", fmt.Errorf("the %s does not get ready: %w", c.name, ctx.Err())
		}
	}
}

// ended returns what is to be said about the end of a child that was stopped.
func (c *child) ended(err error) error {
	<-c.exited
	if code := c.cmd.ProcessState.ExitCode(); code != 0 || err != nil {
		return errors.Join(err, fmt.Errorf("the %s ended with code %d; its log:\n%s", c.name, code, c.log()))
	}
	return nil
}

func (c *child) died() error {
	if c.err == nil {
		return fmt.Errorf("the %s ended by itself", c.name)
	}
	return fmt.Errorf("the %s ended: %w", c.name, c.err)
}

func getJSON(ctx context.Context, url string, v any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return json.NewDecoder(response.Body).Decode(v)
}
