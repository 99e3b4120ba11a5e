package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startLimit bounds the start of a broker whose context has no deadline. The slowest start measured, three brokers after
// SIGKILL on two cores, takes 7 s; machines that are shared take longer.
const startLimit = 2 * time.Minute

// stopLimit is how long a broker has to stop by itself.
const stopLimit = 30 * time.Second

// broker is one node of a cluster: its files, its ports, and its process while there is one.
type broker struct {
	node                 int
	dir                  string
	port, controllerPort int
	securePort           int // 0: no such listener
	java, jars, heap     string
	env                  []string
	out                  io.Writer
	tail                 lineTail

	mu      sync.Mutex
	process *process
}

// format writes what a node needs to know about its cluster before its first start.
func (b *broker) format(ctx context.Context, clusterID string, more ...string) error {
	cmd := exec.CommandContext(ctx, b.java, append(b.javaArgs("128m", "kafka.tools.StorageTool",
		"format", "--cluster-id", clusterID, "--config", b.propertiesFile()), more...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format broker %d: %w\n%s", b.node, err, lastLines(out, 20))
	}
	return nil
}

// launch starts the process if there is none; ready tells when it can be used.
func (b *broker) launch() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != nil && b.process.running() {
		return nil
	}
	p := &process{ready: make(chan struct{}), done: make(chan struct{})}
	log := &logWriter{tail: &b.tail, out: b.out, ready: p.ready}
	// Not with a context: it ends by kill or stop.
	cmd := exec.Command(b.java, b.javaArgs(b.heap, "kafka.Kafka", b.propertiesFile())...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), b.env...)
	if err := p.start(cmd); err != nil {
		return fmt.Errorf("start broker %d: %w", b.node, err)
	}
	b.process = p
	return nil
}

// awaitReady returns when the broker serves clients.
func (b *broker) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	p := b.current()
	if p == nil {
		return fmt.Errorf("broker %d was not started", b.node)
	}
	select {
	case <-p.ready:
		return nil
	case <-p.done:
		return fmt.Errorf("broker %d ended before it was ready: %w; its log ends\n%s", b.node, p.err, b.tail.String())
	case <-ctx.Done():
		return fmt.Errorf("broker %d is not ready: %w; its log ends\n%s", b.node, context.Cause(ctx), b.tail.String())
	}
}

// stop ends the process with SIGTERM, and by SIGKILL and an error where that takes too long.
func (b *broker) stop() error {
	p := b.current()
	if p == nil {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop broker %d: %w", b.node, err)
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("broker %d did not stop in %v; its log ends\n%s", b.node, stopLimit, b.tail.String()), b.kill())
	}
}

// kill ends the process with SIGKILL and waits until it is gone.
func (b *broker) kill() error {
	p := b.current()
	if p == nil {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill broker %d: %w", b.node, err)
	}
	<-p.done
	return nil
}

func (b *broker) signal(sig syscall.Signal) error {
	p := b.current()
	if p == nil {
		return fmt.Errorf("signal broker %d: it has no process", b.node)
	}
	return p.signal(sig)
}

func (b *broker) pause() error  { return b.signal(syscall.SIGSTOP) }
func (b *broker) resume() error { return b.signal(syscall.SIGCONT) }

func (b *broker) current() *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.process
}

func (b *broker) running() bool {
	p := b.current()
	return p != nil && p.running()
}

func (b *broker) propertiesFile() string { return filepath.Join(b.dir, "server.properties") }

// javaArgs keeps the virtual machine small and quick to start; without perf data it leaves nothing behind in the
// temporary folder when it is killed.
func (b *broker) javaArgs(heap, class string, args ...string) []string {
	return append([]string{
		"-Xms64m", "-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError",
		"-XX:-UsePerfData", "-Dlog4j2.configurationFile=" + filepath.Join(b.dir, "log4j2.properties"),
		"-cp", filepath.Join(b.jars, "*"), class,
	}, args...)
}

// writeFiles writes the configuration of the node.
func (b *broker) writeFiles(properties string) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.dir, "log4j2.properties"), []byte(log4j), 0o600); err != nil {
		return err
	}
	return os.WriteFile(b.propertiesFile(), []byte(properties), 0o600)
}

// process is one run of a broker. err is written before done is closed and read after.
type process struct {
	cmd   *exec.Cmd
	ready chan struct{}
	done  chan struct{}
	err   error
}

// start starts the command and has a goroutine wait for its end.
func (p *process) start(cmd *exec.Cmd) error {
	p.cmd = cmd
	return StartChild(cmd, func(err error) {
		p.err = err
		close(p.done)
	})
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal does nothing to a process that is gone.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// logWriter takes what one run of a broker logs: it keeps the tail and looks for the line that says ready.
type logWriter struct {
	tail  *lineTail
	out   io.Writer
	ready chan struct{}
	rest  []byte
	found bool
}

// Write never fails on account of out: a broker must not stop because nobody takes its log.
func (w *logWriter) Write(text []byte) (int, error) {
	if w.out != nil {
		_, _ = w.out.Write(text)
	}
	w.rest = append(w.rest, text...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte{'\n'})
		if !ok {
			return len(text), nil
		}
		w.tail.add(string(line))
		if !w.found && bytes.Contains(line, []byte(readyLine)) {
			w.found = true
			close(w.ready)
		}
		w.rest = rest
	}
}

// lineTail keeps the last lines of a log.
type lineTail struct {
	mu    sync.Mutex
	lines []string
}

func (l *lineTail) add(line string) {
	const keep = 40
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == keep {
		l.lines = append(l.lines[:0], l.lines[1:]...)
	}
	l.lines = append(l.lines, line)
}

// String returns the lines, each with an indent.
func (l *lineTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 0 {
		return "    (nothing)"
	}
	return "    " + strings.Join(l.lines, "\n    ")
}

// lastLines returns the last n lines of the output of a command.
func lastLines(out []byte, n int) string {
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
