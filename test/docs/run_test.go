package docs

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

//go:embed shell.sh
var shell string

// limit is how long a scenario may take on a busy machine.
const limit = 3 * time.Minute

// file is the topics.yaml of a scenario whose page brings none.
const file = `kafka: {brokers: [localhost:9092]}
topics:
  - origin: orders
    tiers: [10s, 1m, 10m]
`

// scenario is what a page finds when its first command is run, beside the topic orders.
type scenario struct {
	records []*kgo.Record // that are there
	topics  []string      // with one partition
	prelude string        // what is run first
}

// scenarios by name; a page without one of its name finds nothing but the topic.
func scenarios() map[string]scenario {
	const serve = "forwarder topics apply >/dev/null\nforwarder run\ndlt-replayer serve\n"
	letters := scenario{records: append(orders(12), deadLetters(11)...), topics: []string{"orders.dlt"}}
	letters.prelude = serve + "letters 11\ndlt-replayer replay 9 --reason 'before the page' >/dev/null 2>&1\n"
	return map[string]scenario{
		"docs/contract.md":     {prelude: "forwarder topics apply >/dev/null\n"},
		"docs/dead-letters.md": letters,
		"docs/operations.md":   letters,
		"docs/runbook.md":      letters,
		"docs/issues.md":       letters,
		"docs/operating.md":    letters,
		// What stands behind the dashes of kubectl exec is run as a process.
		"kubectl":   {prelude: serve + `kubectl() { while [ "$1" != -- ]; do shift; done; shift; "$@"; touch .produced; }` + "\n"},
		"processes": {},
		// Letters as Spring for Apache Kafka leaves them, in its own topic.
		"spring": {records: springLetters(3), topics: []string{"orders-dlt"}, prelude: serve + "letters 3\n"},
		// A retry topic that somebody else has read as far as 3.
		"retry-topic": {records: waiting(5), topics: []string{"my-orders-retry"}},
	}
}

// part is what one page gives to a scenario.
type part struct {
	page, name string
	blocks     []block
}

// TestTheCommandsOfThePagesWork runs all blocks that are marked as run. The scenarios share the cluster one after the other: all of them
// have the topic orders.
func TestTheCommandsOfThePagesWork(t *testing.T) {
	k := testkit.RealKafka(t, 1)
	known := scenarios()
	for _, p := range pages(t) {
		var parts []part
		for _, b := range p.blocks {
			fate := b.mark
			if fate.kind != "run" && fate.kind != "file" {
				continue
			}
			at := -1
			for i := range parts {
				if parts[i].name == fate.scenario {
					at = i
				}
			}
			if at < 0 {
				at, parts = len(parts), append(parts, part{page: p.path, name: fate.scenario})
			}
			parts[at].blocks = append(parts[at].blocks, b)
		}
		for _, part := range parts {
			name := part.name
			if name == "" {
				name = part.page
			} else if _, ok := known[name]; !ok {
				t.Errorf("%s: there is no scenario %s", part.page, name)
				continue
			}
			t.Run(name, func(t *testing.T) { play(t, k, scenarios()[name], part) })
		}
	}
}

// play runs one scenario.
func play(t *testing.T, k *testkit.Kafka, s scenario, p part) {
	t.Helper()
	client := k.Client(t)
	client.CreateTopic("orders", 3, nil)
	t.Cleanup(func() { clean(t, k) })
	for _, topic := range s.topics {
		client.CreateTopic(topic, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	}
	if len(s.records) > 0 {
		client.Produce(s.records...)
	}
	dir := t.TempDir()
	address := func() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(testkit.FreePort(t))) }
	forwarder, replayer, api := address(), address(), address()
	environ := append(testkit.Environment(), "PATH="+binaries+":"+os.Getenv("PATH"), "BROKERS="+k.Brokers()[0],
		"FORWARDER="+forwarder, "REPLAYER="+replayer, "API="+api, "REDRIVE_URL=http://"+api,
		"REDRIVE_FORWARDER_ADMIN_ADDRESS="+forwarder, "REDRIVE_REPLAYER_ADMIN_ADDRESS="+replayer, "REDRIVE_REPLAYER_API_ADDRESS="+api)
	replace := func(text string) string {
		for from, to := range map[string]string{"localhost:9092": k.Brokers()[0], "kafka:9092": k.Brokers()[0], "127.0.0.1:9400": forwarder, "127.0.0.1:9401": replayer, "127.0.0.1:9402": api} {
			text = strings.ReplaceAll(text, from, to)
		}
		return text
	}

	var script strings.Builder
	script.WriteString(shell)
	write := func(name, text string) {
		fmt.Fprintf(&script, "cat >'%s' <<'END OF FILE'\n%sEND OF FILE\n", name, replace(text))
	}
	write("topics.yaml", file)
	if first := p.blocks[0]; first.mark.kind == "file" {
		write(first.mark.detail, first.text)
	}
	script.WriteString(replace(s.prelude))
	for _, b := range p.blocks {
		if b.mark.kind == "file" {
			write(b.mark.detail, b.text)
			continue
		}
		fmt.Fprintf(&script, "AT=%s\necho \"### $AT\"\n%s\n", b, runnable(replace(b.text)))
	}
	script.WriteString("exit 0\n")
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "script")
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, environ, &output, &output
	// A group of its own, so that nothing that was started in the background outlives a script that is given up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	began := time.Now()
	err := cmd.Run()
	if left := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); left == nil {
		t.Error("the script left processes behind")
	}
	t.Logf("%d blocks, %v", len(p.blocks), time.Since(began).Round(100*time.Millisecond))
	if err = errors.Join(err, ctx.Err()); err != nil {
		t.Fatalf("%s: %v\n%s", p.page, err, tail(output.String(), 60))
	}
	expect(t, p, output.String())
}

// runnable makes lines that a script can run from those of a page.
func runnable(text string) string {
	// What the page starts in the background the shell starts so anyway.
	text = regexp.MustCompile(`(?m)^(\s*(?:bin/)?(?:forwarder run|dlt-replayer serve)\b.*?)\s*&\s*$`).ReplaceAllString(text, "$1")
	text = strings.NewReplacer("bin/forwarder", "forwarder", "bin/dlt-replayer", "dlt-replayer", "5f1c0e3ab2d47790", `"$(fingerprint)"`).Replace(text)
	// The letters of a scenario are numbered from 1.
	text = regexp.MustCompile(`\b471([1-9])\b`).ReplaceAllString(text, "$1")
	text = regexp.MustCompile(`\bID\b`).ReplaceAllString(text, "8")
	text = regexp.MustCompile(`\bJOB\b`).ReplaceAllString(text, `"$$(job)"`)
	// The exit code in a comment.
	return regexp.MustCompile(`(?m)^(.*\S)\s+# ([0-9]+)(?::.*)?$`).ReplaceAllString(text, "code=0; WANT=$2; { $1; } || code=$$?; WANT=0; [ $$code = $2 ]")
}

// expect holds the first line of an output that a page shows below a block against what the block printed.
func expect(t *testing.T, p part, output string) {
	t.Helper()
	printed := map[string]string{}
	for _, section := range strings.Split(output, "### ")[1:] {
		at, text, _ := strings.Cut(section, "\n")
		printed[at] += text
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, shown := range shownOutputs(t, p.page) {
		text, ok := printed[shown.of]
		if !ok {
			continue
		}
		first, _, _ := strings.Cut(shown.text, "\n")
		if !strings.Contains(words(text), words(first)) {
			t.Errorf("%s shows %q, and it prints\n%s", shown.of, first, text)
		}
	}
}

// shownOutput is a block of text right below a block of commands.
type shownOutput struct{ of, text string }

func shownOutputs(t *testing.T, path string) []shownOutput {
	t.Helper()
	var all []shownOutput
	for _, p := range pages(t) {
		if p.path != path {
			continue
		}
		for i, b := range p.blocks {
			if b.language == "text" && i > 0 && p.blocks[i-1].mark.kind == "run" {
				all = append(all, shownOutput{p.blocks[i-1].String(), b.text})
			}
		}
	}
	return all
}

// clean removes all topics and groups.
func clean(t *testing.T, k *testkit.Kafka) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	client, err := testkit.NewClient(k.Brokers())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := client.Admin()
	err = testkit.Await(ctx, func(ctx context.Context) error {
		groups, err := admin.ListGroups(ctx)
		if err != nil {
			return err
		}
		if names := groups.Groups(); len(names) > 0 {
			if _, err := admin.DeleteGroups(ctx, names...); err != nil {
				return err
			}
			return fmt.Errorf("groups were left: %v", names)
		}
		topics, err := admin.ListTopics(ctx)
		if err != nil {
			return err
		}
		if names := topics.Names(); len(names) > 0 {
			if _, err := admin.DeleteTopics(ctx, names...); err != nil {
				return err
			}
			return fmt.Errorf("topics were left: %v", names)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// orders are records of the origin.
func orders(count int) []*kgo.Record {
	var all []*kgo.Record
	for i := range count {
		all = append(all, &kgo.Record{Topic: "orders", Key: []byte("customer-" + strconv.Itoa(i)), Value: []byte(`{"id":` + strconv.Itoa(i) + `}`)})
	}
	return all
}

// deadLetters are records of orders.dlt, the first of which has the number 1 in the ledger. Timeouts are the most, those of one customer among
// them; the smallest group is of the last two.
func deadLetters(count int) []*kgo.Record {
	var all []*kgo.Record
	for i := 1; i <= count; i++ {
		key, kind, reason := "customer-"+strconv.Itoa(i), "TimeoutError", "exhausted"
		switch {
		case i > count-2:
			kind, reason = "StockError", "permanent"
		case i%3 == 0:
			kind, reason = "ParseError", "poison"
		case i > 3:
			key = "customer-17"
		}
		all = append(all, record("orders.dlt", key, map[string]string{
			"redrive-message-id": "orders/2/" + strconv.Itoa(i), "redrive-original-topic": "orders", "redrive-original-partition": "2",
			"redrive-original-offset": strconv.Itoa(i), "redrive-original-partitions": "3", "redrive-original-timestamp": "2026-01-05T03:00:00.000Z",
			"redrive-reason": reason, "redrive-error-type": kind, "redrive-error-message": fmt.Sprint("no answer for order ", i), "redrive-attempt": "4", "redrive-deliveries": "4",
		}))
	}
	return all
}

// springLetters have what a DeadLetterPublishingRecoverer of Spring for Apache Kafka writes, as far as a reader looks at it.
func springLetters(count int) []*kgo.Record {
	var all []*kgo.Record
	for i := range count {
		all = append(all, record("orders-dlt", "order-"+strconv.Itoa(i), map[string]string{
			"kafka_original-topic": "orders", "kafka_original-partition": "\x00\x00\x00\x01", "kafka_original-offset": "\x00\x00\x00\x00\x00\x00\x00" + string(rune(i)),
			"kafka_exception-fqcn":       "org.springframework.kafka.listener.ListenerExecutionFailedException",
			"kafka_exception-cause-fqcn": "java.lang.IllegalStateException", "retry_topic-attempts": "\x00\x00\x00\x04",
		}))
	}
	return all
}

// waiting are records of a retry topic that is not ours: without any header.
func waiting(count int) []*kgo.Record {
	var all []*kgo.Record
	for i := range count {
		all = append(all, record("my-orders-retry", "order-"+strconv.Itoa(i), nil))
	}
	return all
}

func record(topic, key string, headers map[string]string) *kgo.Record {
	r := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(`{"id":1}`)}
	for name, value := range headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return r
}
