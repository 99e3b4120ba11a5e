package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/testkit/golden"
)

// asReplayer in the environment makes the test binary be the dlt-replayer.
const asReplayer = "BE_THE_REPLAYER"

func TestMain(m *testing.M) {
	if os.Getenv(asReplayer) != "" {
		os.Exit(command.Main(execute))
	}
	testkit.Main(m)
}

func TestOutputsAndExitCodes(t *testing.T) {
	good := "kafka: {brokers: [localhost:9092]}\nledger: {url: \"postgres://u:hidden@db/x\"}\ntopics: [{origin: orders, tiers: [1m]}]\n"
	for _, test := range []struct {
		name, config string
		environ      []string
		args         string
	}{
		{"no-command", "", nil, ""},
		{"help", "", nil, "--help"},
		{"replay-help", "", nil, "replay --help"},
		{"unknown-command", "", nil, "lits"},
		{"missing-subcommand", "", nil, "jobs"},
		{"unknown-subcommand", "", nil, "jobs puase"},
		{"unknown-flag", "", nil, "list --stat dead"},
		{"unknown-output", "", nil, "list -o xml"},
		{"not-a-number", "", nil, "list orders/0/1"},
		{"bad-time", "", nil, "list --from yesterday"},
		{"bad-key", "", nil, "list --key zz --key-encoding hex"},
		{"nothing-selected", "", nil, "replay --reason x"},
		{"no-reason", "", nil, "replay 1"},
		{"discard-nothing", "", nil, "discard --reason x"},
		{"purge-no-state", "", nil, "purge --to 90d --reason x"},
		{"show-both", "", nil, "show 1 --message-id x"},
		{"plan-and-filter", "", nil, "replay --plan p.json --origin orders --reason x"},
		{"bad-header", "", nil, "replay 1 --set-header x --reason x"},
		{"no-plan", "", nil, "replay --plan does/not/exist.json --reason x"},
		{"bad-url", "", []string{"REDRIVE_URL=localhost"}, "list"},
		{"no-token-file", "", []string{"REDRIVE_TOKEN_FILE=/does/not/exist"}, "list"},
		{"token-no-name", "", nil, "token"},
		{"token-role", "", nil, "token --name alice --role root"},
		{"serve-invalid", "kafka: {brokers: [localhost:9092]}\nreplayer: {lease: 1s}\ntopics: [{origin: orders}]\n", nil, "serve --api-address :9402"},
		{"serve-no-url-file", "kafka: {brokers: [localhost:9092]}\ntopics: [{origin: orders}]\n", nil, "serve --ledger-url-file /does/not/exist"},
		{"print", good, nil, "config print --group from-flag"},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := strings.Fields(test.args)
			path := ""
			if test.config != "" {
				path = file(t, "topics.yaml", test.config)
				args = append(args, "-c", path)
			}
			text := execIn(t.Context(), test.environ, "", args...).String()
			if path != "" {
				text = strings.ReplaceAll(text, path, "topics.yaml")
			}
			if strings.Contains(text, "hidden") {
				t.Error("a secret is shown")
			}
			golden.Check(t, test.name, text)
		})
	}
}

func TestEveryFlagSetsAKeyThereIs(t *testing.T) {
	values := map[string]string{
		"brokers": "b:1", "client-id": "x", "ledger-url-file": "x", "data-dir": "x", "group": "x", "instance-id": "x", "shutdown-timeout": "3s",
		"admin-address": ":1", "api-address": "127.0.0.1:2", "log-level": "debug", "log-format": "json",
	}
	args := []string{"config", "print", "-c", file(t, "topics.yaml", "kafka: {brokers: [localhost:9092]}\ntopics: [{origin: orders}]\n")}
	for _, s := range settings() {
		args = append(args, "--"+s.Flag, values[s.Flag])
	}
	if got := execIn(t.Context(), nil, "", args...); got.code != command.ExitOK {
		t.Error(got)
	}
}

func TestVersionAndSchemaAreJSONToo(t *testing.T) {
	for _, args := range [][]string{{"version", "-o", "json"}, {"config", "schema"}} {
		got := execIn(t.Context(), nil, "", args...)
		if got.code != command.ExitOK || got.stderr != "" || !json.Valid([]byte(got.stdout)) {
			t.Errorf("%v: %v", args, got)
		}
	}
	if text := execIn(t.Context(), nil, "", "version").stdout; !strings.HasPrefix(text, "dlt-replayer ") {
		t.Errorf("version: %q", text)
	}
}

// What token prints is an entry of the file that serve reads.
func TestTokenPrintsAnEntryForTheFile(t *testing.T) {
	got := execIn(t.Context(), nil, "", "token", "--name", "alice", "--role", "operator", "--topic", "orders.dlt")
	tokens, err := config.LoadTokens(file(t, "tokens.yaml", got.stdout), nil)
	if err != nil || len(tokens) != 1 || tokens[0].Name != "alice" || tokens[0].Role != "operator" || !slices.Equal(tokens[0].Topics, []string{"orders.dlt"}) {
		t.Errorf("%+v, %v\n%v", tokens, err, got)
	}
}

func TestServeIndexesAndCommandsFindReplayAndDiscard(t *testing.T) {
	st := newStage(t, 2, "replayer: {bulkLimit: 3}")
	s := serve(t, st.config)
	s.want(exitNothing, "list")
	st.bury(t, "a", "b", "a", "c", "d", "e", "f")
	s.eventually("orders/0/6", "list", "--state", "dead", "--limit", "0")

	list := s.want(command.ExitOK, "list", "--order", "oldest", "-o", "jsonl")
	ids := map[string]string{}
	for line := range strings.Lines(list.stdout) {
		var letter struct {
			ID        int64
			MessageID string
		}
		if err := json.Unmarshal([]byte(line), &letter); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		ids[letter.MessageID] = fmt.Sprint(letter.ID)
	}
	if len(ids) != 7 {
		t.Fatalf("%d letters: %v", len(ids), list)
	}
	a0, b1, a2 := ids["orders/0/0"], ids["orders/0/1"], ids["orders/0/2"]

	if got := s.want(command.ExitOK, "list", "--limit", "2", "--no-headers"); strings.Count(got.stdout, "\n") != 2 || !strings.Contains(got.stderr, "there are more") {
		t.Error(got)
	}
	if got := s.want(command.ExitOK, "list", "--key", "a", "-o", "json"); strings.Count(got.stdout, `"messageId"`) != 2 {
		t.Error(got)
	}
	s.want(exitNothing, "list", "--origin", "nowhere")
	s.want(command.ExitUsage, "list", "--state", "lost")
	if got := s.want(command.ExitOK, "groups"); !strings.Contains(got.stdout, "no stock for item") || strings.Count(got.stdout, "\n") != 2 {
		t.Error(got)
	}
	if got := s.want(command.ExitOK, "stats"); !regexp.MustCompile(`orders\.dlt +orders +dead +7 `).MatchString(got.stdout) {
		t.Error(got)
	}
	if got := s.want(command.ExitOK, "stats", "--partitions"); !regexp.MustCompile(`orders\.dlt +1 +\d+ +0\n`).MatchString(got.stdout) {
		t.Error(got)
	}
	if got := s.want(command.ExitOK, "show", a0, "--payload"); !strings.Contains(got.stdout, `"amount"`) || !strings.Contains(got.stdout, "no stock for item 0") {
		t.Error(got)
	}
	if got := s.want(command.ExitOK, "show", "--message-id", "orders/0/2", "--raw"); got.stdout != `{"amount": 2}` {
		t.Error(got)
	}
	if got := s.want(command.ExitOK, "show", a2); !strings.Contains(got.stdout, "1 letters of its key lie before it") {
		t.Error(got)
	}
	s.want(exitNothing, "show", "999999")
	s.want(exitNothing, "show", "--message-id", "no such message")

	// A plan changes nothing.
	if got := s.want(command.ExitOK, "replay", "--origin", "orders", "--dry-run"); !regexp.MustCompile(`letters +7`).MatchString(got.stdout) {
		t.Error(got)
	}
	// An older letter of the key is in the way.
	if got := s.want(exitRefused, "replay", a2, "--reason", "fixed"); !strings.Contains(got.stderr, "--out-of-order") {
		t.Error(got)
	}
	if got := s.want(command.ExitOK, "replay", b1, "--reason", "fixed"); got.stdout != "replayed 1, failed 0, skipped 0\n" {
		t.Error(got)
	}
	record := st.arrived(t, 1)[0]
	if string(record.Key) != "b" || string(record.Value) != `{"amount": 1}` || record.Partition != 0 || headerOf(record, "redrive-replay-count") != "1" || headerOf(record, "redrive-message-id") != "orders/0/1" {
		t.Errorf("the copy: %+v", record)
	}
	if got := s.want(exitRefused, "replay", b1, "--reason", "again"); !strings.Contains(got.stderr, "--force") || !strings.Contains(got.stderr, "job ") {
		t.Errorf("a second replay does not tell the first: %v", got)
	}
	// A key, in its order, without a terminal.
	s.want(command.ExitUsage, "replay", "--key", "a", "--reason", "fixed")
	s.want(exitRefused, "replay", "--key", "a", "--reason", "fixed", "--count", "3")
	if got := s.want(command.ExitOK, "replay", "--key", "a", "--reason", "fixed", "--yes", "-o", "json"); !strings.Contains(got.stdout, `"done": 2`) {
		t.Error(got)
	}
	// More than bulkLimit need the count.
	if got := s.want(command.ExitUsage, "replay", "--origin", "orders", "--reason", "fixed", "--yes"); !strings.Contains(got.stderr, "--count 4") {
		t.Error(got)
	}
	// A plan that was kept is executed as it is.
	plan := filepath.Join(st.dir, "plan.json")
	s.want(command.ExitOK, "replay", "--key", "c", "--dry-run", "--plan-out", plan)
	if got := s.want(command.ExitOK, "replay", "--plan", plan, "--reason", "as reviewed", "--count", "1"); got.stdout != "replayed 1, failed 0, skipped 0\n" {
		t.Error(got)
	}
	// Message ids from a list, by another command or by hand.
	export := s.want(command.ExitOK, "export", "--key", "d")
	for _, stdin := range []string{export.stdout, "orders/0/5\n"} {
		got := execIn(t.Context(), s.environ, stdin, "replay", "--from-file", "-", "--reason", "list", "--detach")
		if got.code != command.ExitOK {
			t.Errorf("from a list: %v", got)
		}
		s.want(command.ExitOK, "jobs", "watch", strings.TrimSpace(got.stdout))
	}
	records := st.arrived(t, 6)
	var keys []string
	for _, r := range records {
		keys = append(keys, string(r.Key)+headerOf(r, "redrive-message-id"))
	}
	if diff := cmp.Diff([]string{"borders/0/1", "aorders/0/0", "aorders/0/2", "corders/0/3", "dorders/0/4", "eorders/0/5"}, keys); diff != "" {
		t.Errorf("order in the origin (-want +got):\n%s", diff)
	}

	jobs := s.want(command.ExitOK, "jobs", "list", "-o", "jsonl")
	if strings.Count(jobs.stdout, "\n") != 5 {
		t.Error(jobs)
	}
	job := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(jobs.stdout)[1]
	s.want(command.ExitOK, "jobs", "show", job)
	if got := s.want(command.ExitOK, "jobs", "items", job); !strings.Contains(got.stdout, "orders/0/5") {
		t.Error(got)
	}
	s.want(exitNothing, "jobs", "show", "019aa000-0000-7000-8000-000000000000")
	s.want(exitRefused, "jobs", "pause", job)

	f6 := ids["orders/0/6"]
	if got := s.want(command.ExitOK, "discard", f6, "--reason", "test", "--dry-run"); !strings.HasPrefix(got.stdout, "would be discarded: 1") {
		t.Error(got)
	}
	s.want(command.ExitOK, "discard", f6, "--reason", "a test record")
	s.want(exitRefused, "replay", f6, "--reason", "x")
	s.want(exitNothing, "discard", f6, "--reason", "again")
	s.want(command.ExitOK, "undiscard", f6, "--reason", "was none")
	s.want(command.ExitOK, "discard", "--state", "dead", "--all", "--reason", "done", "--yes")
	s.want(command.ExitOK, "purge", "--state", "discarded", "--reason", "old", "--count", "1", "-o", "json")
	if got := s.want(command.ExitOK, "audit"); !strings.Contains(got.stdout, "purge") || !strings.Contains(got.stdout, "a test record") {
		t.Error(got)
	}

	s.want(command.ExitOK, "healthcheck", "--address", s.admin)
	_, metrics := s.fetch("/metrics")
	for _, name := range []string{
		"redrive_ledger_up 1\n", `redrive_ledger_call_duration_seconds_count{call="index"}`, "# TYPE redrive_dead_letters gauge", "# TYPE redrive_letters_indexed_total counter",
		"# TYPE redrive_replayed_letters_total counter", "# TYPE redrive_build_info gauge", "# TYPE redrive_config_reload_successful gauge",
	} {
		if !strings.Contains(metrics, name) {
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
	if code, body := s.fetch("/readyz?format=json"); code != http.StatusOK || !strings.Contains(body, `"assigned": 2`) {
		t.Errorf("readyz: %d\n%s", code, body)
	}

	began := time.Now()
	if code := s.stop(); code != command.ExitOK {
		t.Errorf("exit code %d\n%s", code, s.stderr)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %v", took)
	}
	for line := range strings.Lines(s.stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a log line is not JSON: %s", line)
		}
	}
	if got := s.want(command.ExitFailure, "list"); !strings.Contains(got.stderr, "refused") {
		t.Errorf("without a server: %v", got)
	}
}

func TestTokensDecideWhoMayDoWhatAndAreReloaded(t *testing.T) {
	make := func(role string) (token, entry string) {
		got := execIn(t.Context(), nil, "", "token", "--name", role, "--role", role, "-o", "json")
		var made made
		if err := json.Unmarshal([]byte(got.stdout), &made); err != nil {
			t.Fatal(err)
		}
		return made.Token, fmt.Sprintf("- {name: %s, role: %s, sha256: %s}\n", role, role, made.Entry.SHA256)
	}
	viewer, viewerEntry := make("viewer")
	operator, operatorEntry := make("operator")
	tokens := file(t, "tokens.yaml", viewerEntry)
	st := newStage(t, 2, fmt.Sprintf("replayer: {reloadInterval: 100ms, api: {tokensFilepath: %q}}", tokens))
	st.bury(t, "a")
	s := serve(t, st.config)
	url := s.environ[0]
	as := func(token string) { s.environ = []string{url, "REDRIVE_TOKEN=" + token} }

	if got := s.want(exitRefused, "list"); !strings.Contains(got.stderr, "REDRIVE_TOKEN") {
		t.Error(got)
	}
	as("rdr_wrong")
	s.want(exitRefused, "list")
	as(viewer)
	s.eventually("orders/0/0", "list")
	s.want(exitRefused, "discard", "1", "--reason", "x")
	s.environ = []string{url}
	s.want(command.ExitOK, "list", "--token-file", file(t, "token", viewer+"\n"))

	as(operator)
	s.want(exitRefused, "list")
	if err := os.WriteFile(tokens, []byte("- nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.logged(`"msg":"not reloaded: the configuration is wrong`)
	as(viewer)
	s.want(command.ExitOK, "list")
	if err := os.WriteFile(tokens, []byte(operatorEntry), 0o600); err != nil {
		t.Fatal(err)
	}
	as(operator)
	s.eventually("orders/0/0", "list")
	s.want(command.ExitOK, "discard", "1", "--reason", "x")
	as(viewer)
	s.want(exitRefused, "list")

	// What needs a restart is told.
	st.write(t, fmt.Sprintf("replayer: {reloadInterval: 100ms, batch: 7, api: {tokensFilepath: %q}}", tokens))
	testkit.WaitFor(t, 20*time.Second, "the key that needs a restart", func(context.Context) error {
		if _, body := s.fetch("/readyz?verbose"); !strings.Contains(body, "restart-required: changed and not in force: replayer.batch") {
			return errors.New(body)
		}
		return nil
	})
}

func TestAnAPIBeyondThisMachineNeedsTokens(t *testing.T) {
	st := newStage(t, 2, "")
	got := execIn(t.Context(), nil, "", "serve", "-c", st.config, "--api-address", "0.0.0.0:0")
	if got.code != command.ExitUsage || !strings.Contains(got.stderr, "replayer.api.tokens") {
		t.Error(got)
	}
}

func TestALedgerThatIsDownIsWaitedForAndShown(t *testing.T) {
	st := newStage(t, 2, fmt.Sprintf("ledger: {url: %q}", fmt.Sprintf("postgres://u:hidden@127.0.0.1:%d/x", testkit.FreePort(t))))
	s := serve(t, st.config)
	testkit.WaitFor(t, 20*time.Second, "the issue", func(context.Context) error {
		if code, body := s.fetch("/readyz?verbose"); code != http.StatusServiceUnavailable || !strings.Contains(body, "ledger-down: ") {
			return errors.New(body)
		}
		return nil
	})
	if code, body := s.fetch("/livez"); code != http.StatusOK {
		t.Errorf("livez: %d %s", code, body)
	}
	if got := s.want(command.ExitFailure, "list"); !strings.Contains(got.stderr, "ledger") {
		t.Error(got)
	}
	s.want(command.ExitFailure, "healthcheck", "--address", s.admin)
	if _, metrics := s.fetch("/metrics"); !strings.Contains(metrics, `redrive_issue{code="ledger-down",topic=""} 1`) || !strings.Contains(metrics, "redrive_ledger_up 0\n") {
		t.Error("the metrics do not tell")
	}
	if code := s.stop(); code != command.ExitOK {
		t.Errorf("exit code %d\n%s", code, s.stderr)
	}
	if strings.Contains(s.stderr.String(), "hidden") {
		t.Errorf("a password is logged:\n%s", s.stderr)
	}
}

func TestABrokerThatIsDownIsWaitedForWhileTheLedgerIsRead(t *testing.T) {
	dir := t.TempDir()
	path := file(t, "topics.yaml", fmt.Sprintf("kafka: {brokers: [\"127.0.0.1:%d\"]}\nledger: {dataDir: %q}\ntopics: [{origin: orders}]\n", testkit.FreePort(t), dir))
	s := serve(t, path)
	testkit.WaitFor(t, 20*time.Second, "the issue", func(context.Context) error {
		if code, body := s.fetch("/readyz?verbose"); code != http.StatusOK || !strings.Contains(body, "no-broker: ") {
			return errors.New(body)
		}
		return nil
	})
	s.want(exitNothing, "list")
	if code := s.stop(); code != command.ExitOK {
		t.Errorf("exit code %d\n%s", code, s.stderr)
	}
}

func TestAFileOfSQLiteHasOneReplica(t *testing.T) {
	st := newStage(t, 2, "")
	s := serve(t, st.config)
	s.logged("the ledger is open")
	got := execIn(t.Context(), nil, "", "serve", "-c", st.config, "--admin-address", "127.0.0.1:0", "--api-address", "127.0.0.1:0", "--log-level", "error")
	if got.code != command.ExitFailure || !strings.Contains(got.stderr, "by another process: a ledger in SQLite has one replica") {
		t.Error(got)
	}
	if code := s.stop(); code != command.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if got := execIn(t.Context(), nil, "", "migrate", "-c", st.config, "--restored"); got.code != command.ExitOK || !strings.Contains(got.stdout, "has begun") {
		t.Error(got)
	}
}

// An interrupt ends the watching; the job is another matter, and can be cancelled, resumed and made faster.
func TestAnInterruptEndsTheWatchingAndNotTheJob(t *testing.T) {
	st := newStage(t, 1, "")
	st.bury(t, "a", "b", "c", "d", "e")
	s := serve(t, st.config)
	s.eventually("orders/0/4", "list")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var stdout bytes.Buffer
	stderr := &testkit.Buffer{}
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, command.Process{
			Args:    []string{"replay", "--origin", "orders", "--reason", "slowly", "--rate", "1", "--yes"},
			Environ: s.environ, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: stderr,
		})
	}()
	var job string
	testkit.WaitFor(t, 20*time.Second, "the job", func(context.Context) error {
		match := regexp.MustCompile(`(?m)^job (\S+)$`).FindStringSubmatch(stderr.String())
		if match == nil {
			return errors.New(stderr.String())
		}
		job = match[1]
		return nil
	})
	interrupt()
	if code := <-ended; code != exitInterrupted || stdout.Len() > 0 || !strings.Contains(stderr.String(), "dlt-replayer jobs cancel "+job) {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	s.want(command.ExitOK, "jobs", "pause", job, "--reason", "wait")
	if got := s.want(command.ExitOK, "jobs", "show", job); !regexp.MustCompile(`state +paused`).MatchString(got.stdout) {
		t.Error(got)
	}
	s.want(command.ExitOK, "jobs", "cancel", job)
	if got := s.want(exitPartial, "jobs", "watch", job); !strings.Contains(got.stdout, "not sent") || !strings.Contains(got.stderr, "jobs resume") {
		t.Error(got)
	}
	s.want(command.ExitOK, "jobs", "rate", job, "--to", "1000")
	s.want(command.ExitOK, "jobs", "resume", job)
	if got := s.want(command.ExitOK, "jobs", "watch", job); got.stdout != "replayed 5, failed 0, skipped 0\n" {
		t.Error(got)
	}
	st.arrived(t, 5)
}

func TestACopyIsChangedOrSentElsewhereOnlyAsAllowed(t *testing.T) {
	st := newStage(t, 1, "")
	st.bury(t, "a", "b")
	s := serve(t, st.config)
	s.eventually("orders/0/1", "list")
	value := file(t, "value", `{"amount": 7}`)
	if got := s.want(command.ExitOK, "replay", "1", "--set-header", "tenant=x", "--value-file", value, "--reason", "repaired"); got.stdout != "replayed 1, failed 0, skipped 0\n" {
		t.Error(got)
	}
	record := st.arrived(t, 1)[0]
	if string(record.Value) != `{"amount": 7}` || headerOf(record, "tenant") != "x" || headerOf(record, "redrive-parent-id") != "orders/0/0" || headerOf(record, "redrive-message-id") == "orders/0/0" {
		t.Errorf("the copy: %+v", record)
	}
	if got := s.want(exitRefused, "replay", "2", "--destination", "payments", "--reason", "x"); !strings.Contains(got.stderr, "payments") {
		t.Error(got)
	}
	// A record on the trigger topic asks for the same as a command does.
	if err := st.client.Produce(t.Context(), &kgo.Record{Topic: "orders.dlt.replay", Key: []byte("b")}, &kgo.Record{Topic: "orders.dlt.replay", Key: []byte("nobody")}); err != nil {
		t.Fatal(err)
	}
	s.eventually(`"source":"trigger"`, "jobs", "list", "-o", "jsonl")
	if copies := st.arrived(t, 2); string(copies[1].Key) != "b" {
		t.Errorf("the copy that was triggered: %+v", copies[1])
	}
	s.eventually("trigger-refused", "audit")
}

// With ledger.migrate false serve waits for migrate; and replicas share a ledger in Postgres, one replay each letter.
func TestReplicasShareALedgerInPostgresThatSomebodyMigrates(t *testing.T) {
	url := testkit.RealPostgres(t)
	st := newStage(t, 2, fmt.Sprintf("ledger: {url: %q, migrate: false}", url))
	one := serve(t, st.config)
	testkit.WaitFor(t, 20*time.Second, "the issue", func(context.Context) error {
		if code, body := one.fetch("/readyz?verbose"); code != http.StatusServiceUnavailable || !strings.Contains(body, "ledger-older: ") {
			return errors.New(body)
		}
		return nil
	})
	if got := execIn(t.Context(), nil, "", "migrate", "-c", st.config); got.code != command.ExitOK || !strings.Contains(got.stdout, "was brought from version 0 to") {
		t.Fatal(got)
	}
	two := serve(t, st.config)
	st.bury(t, "a", "b", "c")
	one.eventually("orders/0/2", "list")
	two.eventually("orders/0/2", "list")
	if got := two.want(command.ExitOK, "replay", "--message-id", "orders/0/1", "--reason", "by the second"); got.stdout != "replayed 1, failed 0, skipped 0\n" {
		t.Error(got)
	}
	one.want(exitRefused, "replay", "--message-id", "orders/0/1", "--reason", "by the first")
	if code := one.stop(); code != command.ExitOK {
		t.Errorf("exit code %d\n%s", code, one.stderr)
	}
	// Whoever is left has all of it.
	testkit.WaitFor(t, 20*time.Second, "all partitions", func(context.Context) error {
		if _, body := two.fetch("/readyz?format=json"); !strings.Contains(body, `"assigned": 2`) {
			return errors.New(body)
		}
		return nil
	})
	if code := two.stop(); code != command.ExitOK {
		t.Errorf("exit code %d\n%s", code, two.stderr)
	}
	if log := one.stderr.String() + two.stderr.String(); strings.Contains(log, url) {
		t.Errorf("the URL is logged:\n%s", log)
	}
}

// TestATermSignalEndsServe runs the binary, as signals are for processes.
func TestATermSignalEndsServe(t *testing.T) {
	st := newStage(t, 1, "")
	log := &testkit.Buffer{}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "serve", "-c", st.config, "--admin-address", "127.0.0.1:0", "--api-address", "127.0.0.1:0")
	cmd.Env = append(testkit.Environment(), asReplayer+"=1")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	(&served{t: t, stderr: log}).logged("partitions assigned")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), `"msg":"stopped"`) {
		t.Errorf("%v\n%s", err, log)
	}
}
