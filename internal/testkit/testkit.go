// Package testkit gives tests the servers and clients they talk to: real Apache Kafka and Postgres as child processes, kcat
// as a client that is not ours, and a fake cluster on a virtual network for tests of time and faults.
//
// The model. [StartKafka] starts one or three brokers from Kafka's own Maven jars, which are fetched once and kept in
// the user's cache folder, in the version that REDRIVE_TEST_KAFKA names; a [Kafka] can kill, stop and restart each broker, and
// [Secure] gives it a listener with TLS, users and access rules. [RealKafka] shares one such cluster of each
// size among the tests of a binary, and [Main] takes them down when the tests are over. [Virtual] makes a fake
// cluster that works inside a testing/synctest bubble. A [Client] writes to and reads from either kind. [StartPostgres] starts
// a database server that can be killed and restarted as well, and [RealPostgres] gives a test a database on a shared one.
//
// It promises that servers do not outlive the process that started them, that their data is gone after Close, and
// that a tool which is missing fails the test with the name of the package to install: nothing is skipped, except by
// go test -short. It refuses to be part of a program that is shipped: only tests and the programs under test/ import
// it. Unix only.
//
// All types are safe for concurrent use. Real Kafka cannot be used inside a synctest bubble, the virtual one only there
// or in an ordinary test, with clients made in the same place.
package testkit

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main is the TestMain of a package whose tests use this one: it runs the tests, closes the servers that [RealKafka] and
// [RealPostgres] started, and fails the run if a goroutine is left over, which includes the one that watches over each server.
func Main(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(closingRun{m}, options...)
}

// MainWithPrograms is Main for tests that run programs of ours. Before the tests it calls build with a folder for them, which is
// removed at the end; not with -short, where no test needs one.
func MainWithPrograms(m *testing.M, build func(ctx context.Context, dir string) error) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "redrive-programs-")
	if err == nil && !testing.Short() {
		err = build(context.Background(), dir)
	}
	if err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("no programs to test", "err", errors.Join(err, os.RemoveAll(dir)))
		os.Exit(1) //nolint:forbidigo // It is what TestMain does.
	}
	Main(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil {
			code = max(code, 1)
		}
		os.Exit(code) //nolint:forbidigo // As above.
	}))
}

// closingRun closes the shared servers between the tests and the search for left-over goroutines.
type closingRun struct{ m *testing.M }

func (r closingRun) Run() int {
	code := r.m.Run()
	if err := errors.Join(closeShared(), closeSharedPostgres()); err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("shared servers not closed", "err", err)
		code = max(code, 1)
	}
	return code
}

// Await calls cond until it returns nil, and returns nil then. When ctx ends first it returns the last error of cond
// with the cause. The pause between two calls grows from 2 ms to 100 ms.
func Await(ctx context.Context, cond func(context.Context) error) error {
	pause := 2 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := errors.New("not looked at yet")
	for {
		select {
		case <-ctx.Done():
			return errors.Join(last, context.Cause(ctx))
		case <-timer.C:
		}
		if last = cond(ctx); last == nil {
			return nil
		}
		timer.Reset(pause)
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// WaitFor calls cond until it returns nil and fails the test when that takes longer than limit; what names the state
// that is waited for. Inside a synctest bubble limit is virtual time.
func WaitFor(t testing.TB, limit time.Duration, what string, cond func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := Await(ctx, cond); err != nil {
		t.Fatalf("waited %v for %s: %v", limit, what, err)
	}
}

// Logger returns a logger that writes to the log of the test. Its level is info, or the one that REDRIVE_TEST_LOG
// names (debug shows each request of the Kafka client). What is logged after the end of the test is dropped.
func Logger(t testing.TB) *slog.Logger {
	t.Helper()
	level := slog.LevelInfo
	if name := os.Getenv("REDRIVE_TEST_LOG"); name != "" {
		if err := level.UnmarshalText([]byte(name)); err != nil {
			t.Fatalf("REDRIVE_TEST_LOG: %v", err)
		}
	}
	w := &testWriter{t: t}
	t.Cleanup(w.close)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// testWriter writes lines to a test's log until the test ends, after which testing would panic.
type testWriter struct {
	mu     sync.Mutex
	t      testing.TB
	closed bool
}

func (w *testWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.t.Helper()
		w.t.Logf("%s", trimNewline(line))
	}
	return len(line), nil
}

func (w *testWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

func trimNewline(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		return line[:n-1]
	}
	return line
}
