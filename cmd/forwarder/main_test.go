package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/testkit/golden"
)

// asForwarder in the environment makes the test binary be the forwarder.
const asForwarder = "BE_THE_FORWARDER"

func TestMain(m *testing.M) {
	if os.Getenv(asForwarder) != "" {
		os.Exit(command.Main(execute))
	}
	testkit.Main(m)
}

// result is what a command line left behind.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit code: %d\n--- stdout\n%s--- stderr\n%s", r.code, r.stdout, r.stderr)
}

func execIn(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := execute(t.Context(), command.Process{Args: args, Environ: environ, Stdout: &stdout, Stderr: &stderr})
	return result{code, stdout.String(), stderr.String()}
}

// file writes a topics.yaml and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topics.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func good(t *testing.T, broker string) string {
	t.Helper()
	return file(t, fmt.Sprintf("kafka: {brokers: [%q]}\ntopics:\n  - {origin: orders, tiers: [1m, 10m]}\n", broker))
}

func cluster(t *testing.T) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestOutputsAndExitCodes(t *testing.T) {
	bad := "kafka:\n  brokerz: [localhost:9092]\ntopics:\n  - origin: orders\n    tiers: [10s, 5 parsecs]\n"
	for _, test := range []struct {
		name    string
		config  string
		environ []string
		args    string
	}{
		{"no-command", "", nil, ""},
		{"help", "", nil, "--help"},
		{"run-help", "", nil, "run --help"},
		{"unknown-command", "", nil, "rum"},
		{"unknown-subcommand", "", nil, "topics plam"},
		{"missing-subcommand", "", nil, "topics"},
		{"unknown-flag", "", nil, "topics plan --forse"},
		{"argument", "", nil, "run topics.yaml"},
		{"unknown-output", "", nil, "version -o yaml"},
		{"valid", "good", nil, "validate"},
		{"valid-json", "good", nil, "validate -o json"},
		{"no-file", "", nil, "validate -c does/not/exist.yaml"},
		{"invalid", bad, []string{"REDRIVE_FORWARDER_GRUOP=x"}, "validate --log-level loud"},
		{"invalid-json", bad, nil, "validate -o json"},
		{"invalid-run", bad, nil, "run"},
		{"invalid-apply", bad, nil, "topics apply"},
		{"unusable", "good", []string{"REDRIVE_KAFKA_TLS_ENABLED=true", "REDRIVE_KAFKA_TLS_CAFILEPATH=/does/not/exist.pem"}, "topics plan"},
		{"unusable-run", "good", []string{"REDRIVE_KAFKA_TLS_ENABLED=true", "REDRIVE_KAFKA_TLS_CAFILEPATH=/does/not/exist.pem"}, "run"},
		{"print", "good", []string{"REDRIVE_FORWARDER_GROUP=from-environment", "REDRIVE_KAFKA_SASL_ENABLED=true", "REDRIVE_KAFKA_SASL_USERNAME=user", "REDRIVE_KAFKA_SASL_PASSWORD=hidden"}, "config print --effective --admin-address :9999 --brokers b1:9092,b2:9092"},
		{"print-not-effective", "good", nil, "config print --effective=false"},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := strings.Fields(test.args)
			path := ""
			switch test.config {
			case "":
			case "good":
				path = good(t, "localhost:9092")
			default:
				path = file(t, test.config)
			}
			if path != "" {
				args = append(args, "--config", path)
			}
			got := execIn(t, test.environ, args...)
			text := got.String()
			if path != "" {
				text = strings.ReplaceAll(text, path, "topics.yaml")
			}
			golden.Check(t, test.name, text)
		})
	}
}

func TestFlagsWinOverEnvironmentWinsOverFile(t *testing.T) {
	path := file(t, "kafka: {brokers: [file:1]}\nforwarder: {group: file}\nlogging: {level: warn}\ntopics: [{origin: orders}]\n")
	environ := []string{"REDRIVE_KAFKA_BROKERS=environment:1", "REDRIVE_FORWARDER_GROUP=environment"}
	got := execIn(t, environ, "config", "print", "-o", "json", "-c", path, "--brokers", "flag:1")
	var answer struct {
		Config struct {
			Kafka     struct{ Brokers []string }
			Forwarder struct{ Group string }
			Logging   struct{ Level string }
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &answer); err != nil {
		t.Fatalf("%v\n%v", err, got)
	}
	c := answer.Config
	if diff := cmp.Diff([]string{"flag:1", "environment", "warn"}, []string{c.Kafka.Brokers[0], c.Forwarder.Group, c.Logging.Level}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryFlagSetsAKeyThereIs(t *testing.T) {
	values := map[string]string{
		"brokers": "b:1", "client-id": "x", "group": "x", "instance-id": "x", "shutdown-timeout": "3s",
		"admin-address": ":1", "log-level": "debug", "log-format": "json",
	}
	args := []string{"validate", "-c", good(t, "localhost:9092")}
	for _, s := range settings() {
		args = append(args, "--"+s.Flag, values[s.Flag])
	}
	if got := execIn(t, nil, args...); got.code != command.ExitOK {
		t.Error(got)
	}
}

func TestVersionAndSchemaAreJSONToo(t *testing.T) {
	for _, args := range [][]string{{"version", "-o", "json"}, {"config", "schema"}, {"config", "schema", "-o", "json"}} {
		got := execIn(t, nil, args...)
		if got.code != command.ExitOK || got.stderr != "" || !json.Valid([]byte(got.stdout)) {
			t.Errorf("%v: %v", args, got)
		}
	}
	text := execIn(t, nil, "version").stdout
	if !regexp.MustCompile(`^forwarder \S+ \(revision \S+, date \S+, go1\.\S+, \w+/\w+\)\n$`).MatchString(text) {
		t.Errorf("version: %q", text)
	}
}

// TestTopicsFromNothingToFit follows an operator who sets up the topics.
func TestTopicsFromNothingToFit(t *testing.T) {
	c := cluster(t)
	broker := c.ListenAddrs()[0]
	path := good(t, broker)
	step := func(name string, code int, args ...string) {
		t.Helper()
		got := execIn(t, nil, append(args, "-c", path)...)
		if got.code != code {
			t.Errorf("%s: exit code %d, want %d", name, got.code, code)
		}
		golden.Check(t, name, strings.NewReplacer(path, "topics.yaml", broker, "BROKER").Replace(got.String()))
	}
	step("origin-missing-apply", command.ExitFailure, "topics", "apply")
	step("origin-missing-run", command.ExitFailure, "run", "--admin-address", "127.0.0.1:0", "--log-level", "error")
	if err := c.CreateTopic("orders", 2, nil); err != nil {
		t.Fatal(err)
	}
	step("missing-run", command.ExitFailure, "run", "--admin-address", "127.0.0.1:0", "--log-level", "error")
	step("missing-validate", exitDrift, "validate", "--kafka")
	step("missing-plan", exitDrift, "topics", "plan")
	step("missing-plan-json", exitDrift, "topics", "plan", "-o", "json")
	if info := c.TopicInfo("orders.retry"); info != nil {
		t.Fatal("plan or validate made a topic")
	}
	step("apply", command.ExitOK, "topics", "apply")
	step("apply-again", command.ExitOK, "topics", "apply")
	step("apply-again-json", command.ExitOK, "topics", "apply", "-o", "json")
	step("fit-plan", command.ExitOK, "topics", "plan")
	step("fit-validate", command.ExitOK, "validate", "--kafka")
	step("fit-validate-json", command.ExitOK, "validate", "--kafka", "-o", "json")
}

// What apply must not change stays an error that it names.
func TestApplyTellsWhatItLeavesAlone(t *testing.T) {
	c := cluster(t)
	broker := c.ListenAddrs()[0]
	for topic, settings := range map[string]map[string]string{
		"orders": nil, "orders.retry": {"cleanup.policy": "compact"},
	} {
		if err := c.CreateTopic(topic, 2, settings); err != nil {
			t.Fatal(err)
		}
	}
	path := good(t, broker)
	got := execIn(t, nil, "topics", "apply", "-c", path)
	if got.code != exitDrift {
		t.Errorf("exit code %d, want %d", got.code, exitDrift)
	}
	golden.Check(t, "apply-compacted", strings.NewReplacer(path, "topics.yaml", broker, "BROKER").Replace(got.String()))
}

// running is a run in this process.
type running struct {
	admin  string
	stop   func() int // asks for a graceful stop and returns the exit code
	stderr *testkit.Buffer
}

// adminAddress waits for the log line that names the address.
func adminAddress(t *testing.T, log fmt.Stringer) string {
	t.Helper()
	address := regexp.MustCompile(`"admin_address":"([^"]+)"`)
	var found string
	testkit.WaitFor(t, 10*time.Second, "the admin address in the log", func(context.Context) error {
		match := address.FindStringSubmatch(log.String())
		if match == nil {
			return errors.New(log.String())
		}
		found = match[1]
		return nil
	})
	return found
}

func startRun(t *testing.T, path string) *running {
	t.Helper()
	r := &running{stderr: &testkit.Buffer{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, command.Process{
			Args:   []string{"run", "-c", path, "--admin-address", "127.0.0.1:0"},
			Stdout: io.Discard, Stderr: r.stderr,
		})
	}()
	r.stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { r.stop() })
	r.admin = adminAddress(t, r.stderr)
	return r
}

func fetch(ctx context.Context, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func awaitAssigned(t *testing.T, admin string, partitions int) {
	t.Helper()
	testkit.WaitFor(t, 20*time.Second, "all partitions", func(ctx context.Context) error {
		code, body, err := fetch(ctx, "http://"+admin+"/readyz?format=json")
		if err == nil && (code != http.StatusOK || !strings.Contains(body, fmt.Sprintf(`"assigned": %d`, partitions))) {
			err = errors.New(body)
		}
		return err
	})
}

// metricNames are the names that dashboards and alerts are built on.
func metricNames() []string {
	return []string{
		"redrive_build_info", "redrive_records_forwarded_total", "redrive_records_dead_lettered_total", "redrive_records_hopped_total",
		"redrive_forward_lateness_seconds", "redrive_overdue_records", "redrive_next_due_timestamp_seconds", "redrive_held_records",
		"redrive_held_bytes", "redrive_in_flight_age_seconds", "redrive_in_flight_records", "redrive_assigned_partitions",
		"redrive_paused_partitions", "redrive_frozen_partitions", "redrive_records_lost_total", "redrive_commit_errors_total",
		"redrive_rebalances_total", "redrive_config_reload_successful", "redrive_config_last_reload_success_timestamp_seconds",
		"redrive_config_hash",
	}
}

func TestRunForwardsShowsItselfAndStopsWithZero(t *testing.T) {
	c := cluster(t)
	if err := c.CreateTopic("orders", 2, nil); err != nil {
		t.Fatal(err)
	}
	path := file(t, fmt.Sprintf("kafka: {brokers: [%q]}\ntopics:\n  - {origin: orders, tiers: [100ms, 1h]}\n", c.ListenAddrs()[0]))
	if got := execIn(t, nil, "topics", "apply", "-c", path); got.code != command.ExitOK {
		t.Fatal(got)
	}
	r := startRun(t, path)
	awaitAssigned(t, r.admin, 3*2)

	client, err := testkit.NewClient(c.ListenAddrs())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Kafka().Close()
	header := func(name, value string) []kgo.RecordHeader {
		return []kgo.RecordHeader{{Key: name, Value: []byte(value)}}
	}
	err = client.Produce(t.Context(),
		&kgo.Record{Topic: "orders.retry", Key: []byte("back"), Value: []byte("v")},
		&kgo.Record{Topic: "orders.retry", Key: []byte("waits"), Value: []byte("v"), Headers: header("redrive-attempt", "1")},
		&kgo.Record{Topic: "orders.retry", Key: []byte("dead"), Value: []byte("v"), Headers: header("redrive-reason", "poison")},
	)
	if err != nil {
		t.Fatal(err)
	}
	var metrics string
	want := []string{
		`redrive_records_forwarded_total{source="orders.retry.100ms",target="orders"} 1`,
		`redrive_records_dead_lettered_total{reason="poison",source="orders.retry"} 1`,
		`redrive_held_records{topic="orders.retry.1h"} 1`,
		`redrive_assigned_partitions{topic="orders.retry"} 2`,
		`redrive_forward_lateness_seconds_count{source="orders.retry.100ms"} 1`,
	}
	testkit.WaitFor(t, 20*time.Second, "the metrics of three records", func(ctx context.Context) error {
		_, metrics, err = fetch(ctx, "http://"+r.admin+"/metrics")
		for _, line := range want {
			if err == nil && !strings.Contains(metrics, line+"\n") {
				err = errors.New("no " + line)
			}
		}
		return err
	})
	for _, name := range metricNames() {
		if !strings.Contains(metrics, "# TYPE "+name+" ") {
			t.Errorf("no metric %s", name)
		}
	}
	operating, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^# TYPE (redrive_\w+) `).FindAllStringSubmatch(metrics, -1) {
		if !bytes.Contains(operating, []byte("`"+match[1])) {
			t.Errorf("docs/operating.md does not know %s", match[1])
		}
	}
	problems, err := promlint.New(strings.NewReader(metrics)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("promlint: %s: %s", p.Metric, p.Text)
	}
	if code, body, err := fetch(t.Context(), "http://"+r.admin+"/livez"); code != http.StatusOK || body != "ok\n" || err != nil {
		t.Errorf("livez: %d %q %v", code, body, err)
	}

	began := time.Now()
	if code := r.stop(); code != command.ExitOK {
		t.Errorf("exit code %d\n%s", code, r.stderr)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if _, _, err := fetch(t.Context(), "http://"+r.admin+"/livez"); err == nil {
		t.Error("the admin server outlives the run")
	}
	if info := c.GroupInfo("redrive-forwarder"); info == nil || len(info.Members) != 0 || len(info.Commits["orders.retry"]) == 0 {
		t.Errorf("the group was not left with commits: %+v", info)
	}
	for line := range strings.Lines(r.stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a log line is not JSON: %s", line)
		}
	}
}

// TestAHangupReloadsTheConfiguration runs the binary, as signals are for processes.
func TestAHangupReloadsTheConfiguration(t *testing.T) {
	c := cluster(t)
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("kafka: {brokers: [%q]}\nforwarder: {reloadInterval: 0s}\nlogging: {level: info}\ntopics:\n  - {origin: orders, tiers: [1m]}\n", c.ListenAddrs()[0])
	path := file(t, text)
	if got := execIn(t, nil, "topics", "apply", "-c", path); got.code != command.ExitOK {
		t.Fatal(got)
	}
	log := &testkit.Buffer{}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "run", "-c", path, "--admin-address", "127.0.0.1:0")
	cmd.Env = append(testkit.Environment(), asForwarder+"=1")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	signal := func(s os.Signal) {
		t.Helper()
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	logged := func(what string) {
		t.Helper()
		testkit.WaitFor(t, 20*time.Second, what+" in the log", func(context.Context) error {
			if !strings.Contains(log.String(), what) {
				return errors.New(log.String())
			}
			return nil
		})
	}
	awaitAssigned(t, adminAddress(t, log), 2)
	for _, test := range []struct{ text, logged string }{
		{strings.Replace(text, "level: info", "level: debug", 1), `"msg":"configuration reloaded"`},
		{"nonsense: true\n" + text, `"problem":"` + path + `:1:1: nonsense: unknown key`},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		signal(syscall.SIGHUP)
		logged(test.logged)
	}
	signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("stop after reloads: %v\n%s", err, log)
	}
}

// TestSecondInterruptEndsAtOnce runs the binary, as signals are for processes.
func TestSecondInterruptEndsAtOnce(t *testing.T) {
	c := cluster(t)
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	path := good(t, c.ListenAddrs()[0])
	if got := execIn(t, nil, "topics", "apply", "-c", path); got.code != command.ExitOK {
		t.Fatal(got)
	}
	client, err := testkit.NewClient(c.ListenAddrs())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Kafka().Close()
	if err := client.Produce(t.Context(), &kgo.Record{Topic: "orders.retry", Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	// The record stays in flight, so that the drain has something to wait for.
	asked := make(chan struct{}, 1)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		select {
		case asked <- struct{}{}:
		default:
		}
		return nil, nil, true
	})

	log := &testkit.Buffer{}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "run", "-c", path, "--admin-address", "127.0.0.1:0", "--shutdown-timeout", "30s")
	cmd.Env = append(testkit.Environment(), asForwarder+"=1")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // ProcessState tells.
	}()
	select {
	case <-asked:
	case <-exited:
		t.Fatalf("ended before it was asked to: %v\n%s", cmd.ProcessState, log)
	case <-time.After(20 * time.Second):
		t.Fatalf("no produce request\n%s", log)
	}
	interrupt := func() {
		t.Helper()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	interrupt()
	testkit.WaitFor(t, 10*time.Second, "the first interrupt in the log", func(context.Context) error {
		if !strings.Contains(log.String(), `"msg":"stopping"`) {
			return errors.New(log.String())
		}
		return nil
	})
	interrupt()
	select {
	case <-exited:
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill()
		<-exited
		t.Fatal("the second interrupt did not end the process")
	}
	// A shell shows death by SIGINT as 130.
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("ended with %v\n%s", cmd.ProcessState, log)
	}
}

func TestNoBrokerIsAFailureOfACommand(t *testing.T) {
	broker := fmt.Sprint("127.0.0.1:", testkit.FreePort(t))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := execute(ctx, command.Process{Args: []string{"topics", "plan", "-c", good(t, broker)}, Stdout: &stdout, Stderr: &stderr})
	if code != command.ExitFailure || stdout.Len() > 0 || !strings.Contains(stderr.String(), "no broker of "+broker+" answers: ") || !strings.Contains(stderr.String(), "refused") {
		t.Errorf("%v", result{code, stdout.String(), stderr.String()})
	}
}
