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

// binary returns the path of the forwarder: bin/forwarder if it was built, or a
// build of this source in dir.
func binary(ctx context.Context, dir string) (string, error) {
	const built = "bin/forwarder"
	if info, err := os.Stat(built); err == nil && !info.IsDir() {
		return filepath.Abs(built)
	}
	path := filepath.Join(dir, "forwarder")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/kafka-redrive/redrive/cmd/forwarder") //nolint:gosec // The path is ours.
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the forwarder: %w\n%s", err, out)
	}
	return path, nil
}

// command makes a command line of the forwarder.
func command(ctx context.Context, binary, config string, environ []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, append(args, "--config", config)...) //nolint:gosec // All of it is ours.
	cmd.Env = environ
	cmd.SysProcAttr = childAttributes()
	// The end of ctx is a request to stop, and has a limit.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// child is a forwarder that runs.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	err    error         // valid then

	admin chan string // gets the admin address, once

	mu   sync.Mutex
	tail []string // the last lines it logged
}

// startForwarder runs the forwarder until ctx ends.
func startForwarder(ctx context.Context, binary, config string, environ []string) (*child, error) {
	c := &child{
		cmd:    command(ctx, binary, config, environ, "run", "--log-format", "json"),
		exited: make(chan struct{}),
		admin:  make(chan string, 1),
	}
	logs, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the forwarder: %w", err)
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
		}
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Admin != "" {
			select {
			case c.admin <- entry.Admin:
			default:
			}
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

func (c *child) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.tail, "\n")
}

// awaitReady returns when the forwarder owns so many partitions.
func (c *child) awaitReady(ctx context.Context, partitions int) (admin string, err error) {
	select {
	case admin = <-c.admin:
	case <-c.exited:
		return "", c.died()
	case <-ctx.Done():
		return "", ctx.Err()
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
			return "", fmt.Errorf("the forwarder does not get ready: %w", ctx.Err())
		}
	}
}

func (c *child) died() error {
	if c.err == nil {
		return errors.New("the forwarder ended by itself")
	}
	return fmt.Errorf("the forwarder ended: %w", c.err)
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
