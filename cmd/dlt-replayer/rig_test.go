package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// result is what a command line left behind.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit code: %d\n--- stdout\n%s--- stderr\n%s", r.code, r.stdout, r.stderr)
}

func execIn(ctx context.Context, environ []string, stdin string, args ...string) result {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := execute(ctx, command.Process{Args: args, Environ: environ, Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr})
	return result{code, stdout.String(), stderr.String()}
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// served is a serve in this process.
type served struct {
	t       *testing.T
	admin   string
	environ []string // of its clients
	stop    func() int
	stderr  *testkit.Buffer
}

// serve starts one and waits for its addresses.
func serve(t *testing.T, config string) *served {
	t.Helper()
	s := &served{t: t, stderr: &testkit.Buffer{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, command.Process{
			Args:   []string{"serve", "-c", config, "--admin-address", "127.0.0.1:0", "--api-address", "127.0.0.1:0"},
			Stdout: io.Discard, Stderr: s.stderr,
		})
	}()
	s.stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { s.stop() })
	s.admin = s.logged(`"admin_address":"([^"]+)"`)
	s.environ = []string{"REDRIVE_URL=http://" + s.logged(`"api_address":"([^"]+)"`)}
	return s
}

// logged waits for what matches in the log.
func (s *served) logged(pattern string) string {
	s.t.Helper()
	expression := regexp.MustCompile(pattern)
	var found []string
	testkit.WaitFor(s.t, 20*time.Second, pattern+" in the log", func(context.Context) error {
		if found = expression.FindStringSubmatch(s.stderr.String()); found == nil {
			return errors.New(s.stderr.String())
		}
		return nil
	})
	return found[len(found)-1]
}

// run runs a command line against it.
func (s *served) run(args ...string) result {
	s.t.Helper()
	return execIn(s.t.Context(), s.environ, "", args...)
}

// want runs a command line and reports another exit code.
func (s *served) want(code int, args ...string) result {
	s.t.Helper()
	got := s.run(args...)
	if got.code != code {
		s.t.Fatalf("%s: want exit code %d\n%v\n--- log of serve\n%s", strings.Join(args, " "), code, got, s.stderr)
	}
	return got
}

// eventually runs a command line until its answer has a text.
func (s *served) eventually(text string, args ...string) {
	s.t.Helper()
	testkit.WaitFor(s.t, 20*time.Second, text, func(context.Context) error {
		if got := s.run(args...); !strings.Contains(got.stdout, text) {
			return errors.New(got.String())
		}
		return nil
	})
}

func (s *served) fetch(path string) (int, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.admin+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// stage is a cluster with dead letters and a configuration for it.
type stage struct {
	cluster *kfake.Cluster
	client  *testkit.Client
	dir     string
	config  string
}

func newStage(t *testing.T, partitions int32, more string) *stage {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	for _, topic := range []string{"orders", "orders.dlt", "orders.dlt.replay"} {
		if err := cluster.CreateTopic(topic, partitions, nil); err != nil {
			t.Fatal(err)
		}
	}
	client, err := testkit.NewClient(cluster.ListenAddrs())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Kafka().Close)
	s := &stage{cluster: cluster, client: client, dir: t.TempDir()}
	s.config = filepath.Join(s.dir, "topics.yaml")
	s.write(t, more)
	return s
}

func (s *stage) write(t *testing.T, more string) {
	t.Helper()
	text := fmt.Sprintf("kafka: {brokers: [%q]}\n%s\ntopics: [{origin: orders, tiers: [1m]}]\n", s.cluster.ListenAddrs()[0], more)
	if !strings.Contains(more, "ledger:") {
		text = fmt.Sprintf("ledger: {dataDir: %q}\n%s", s.dir, text)
	}
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// bury produces dead letters with these keys, of which the offset in the origin is
// the index.
func (s *stage) bury(t *testing.T, keys ...string) {
	t.Helper()
	for i, key := range keys {
		header := func(name, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: name, Value: []byte(value)} }
		err := s.client.Produce(t.Context(), &kgo.Record{
			Topic: "orders.dlt", Partition: 0, Key: []byte(key), Value: []byte(`{"amount": ` + strconv.Itoa(i) + `}`),
			Headers: []kgo.RecordHeader{
				header("redrive-message-id", fmt.Sprint("orders/0/", i)), header("redrive-original-topic", "orders"),
				header("redrive-original-partition", "0"), header("redrive-original-offset", strconv.Itoa(i)),
				header("redrive-original-partitions", "2"), header("redrive-reason", "exhausted"), header("redrive-error-type", "java.lang.IllegalStateException"),
				header("redrive-error-message", fmt.Sprint("no stock for item ", i)),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// arrived waits for records in the origin and returns them.
func (s *stage) arrived(t *testing.T, count int) []*kgo.Record {
	t.Helper()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.ListenAddrs()...), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var records []*kgo.Record
	for len(records) < count {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records arrived", len(records), count)
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

func headerOf(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
