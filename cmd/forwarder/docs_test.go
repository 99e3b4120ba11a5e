package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// section is one command in docs/commands.md.
type section struct {
	command  string
	text     string
	examples []example
	shape    string // the JSON that is shown; "" if none is
}

// example is one command line with the exit code in its comment.
type example struct {
	args []string
	code int
}

func commandDocs(t *testing.T) (page string, sections []section) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	page = string(content)
	heading := regexp.MustCompile("(?m)^## `(forwarder [a-z ]+)`$")
	block := regexp.MustCompile("(?ms)^```(sh|json)\n(.*?)^```$")
	found := heading.FindAllStringSubmatchIndex(page, -1)
	for _, at := range found {
		text, _, _ := strings.Cut(page[at[1]:], "\n## ")
		s := section{command: page[at[2]:at[3]], text: text + "\n"}
		for _, b := range block.FindAllStringSubmatch(s.text, -1) {
			if b[1] == "json" {
				s.shape = b[2]
				continue
			}
			for line := range strings.Lines(b[2]) {
				s.examples = append(s.examples, parseExample(t, line))
			}
		}
		sections = append(sections, s)
	}
	return page, sections
}

func parseExample(t *testing.T, line string) example {
	t.Helper()
	command, comment, _ := strings.Cut(strings.TrimSpace(line), " #")
	e := example{args: strings.Fields(command)}
	if len(e.args) == 0 || e.args[0] != "forwarder" {
		t.Fatalf("not a command of ours: %s", line)
	}
	e.args = e.args[1:]
	if comment != "" {
		code, _, _ := strings.Cut(strings.TrimSpace(comment), ":")
		var err error
		if e.code, err = strconv.Atoi(code); err != nil {
			t.Fatalf("a comment begins with the exit code: %s", line)
		}
	}
	return e
}

func TestEveryCommandIsDocumentedWithItsFlags(t *testing.T) {
	page, sections := commandDocs(t)
	documented := map[string]section{}
	for _, s := range sections {
		documented[s.command] = s
		if len(s.examples) == 0 {
			t.Errorf("%s has no example", s.command)
			continue
		}
		shortest := slices.MinFunc(s.examples, func(a, b example) int { return len(a.args) - len(b.args) })
		if len(s.examples[0].args) > len(shortest.args) {
			t.Errorf("%s: the shortest example does not come first", s.command)
		}
		if !strings.Contains(s.text, "\nExit codes: 0 ") {
			t.Errorf("%s does not tell its exit codes", s.command)
		}
	}
	root := newCLI(command.Process{}).root()
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(page, "`--"+f.Name+"` |") {
			t.Errorf("the flag --%s of every command is not documented", f.Name)
		}
	})
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.HasSubCommands() || !cmd.IsAvailableCommand() {
			return
		}
		s, ok := documented[cmd.CommandPath()]
		if !ok {
			t.Errorf("%s is not documented", cmd.CommandPath())
			return
		}
		delete(documented, cmd.CommandPath())
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !strings.Contains(s.text, "`--"+f.Name+"` |") {
				t.Errorf("%s: the flag --%s is not documented", s.command, f.Name)
			}
		})
	}
	walk(root)
	if len(documented) > 0 {
		t.Errorf("documented and not there: %v", slices.Sorted(maps.Keys(documented)))
	}
}

// TestTheDocumentedCommandsDoWhatTheyAreSaidToDo runs every example of
// docs/commands.md in its order, and holds what it prints as JSON against the
// shape that is shown.
func TestTheDocumentedCommandsDoWhatTheyAreSaidToDo(t *testing.T) {
	page, sections := commandDocs(t)
	c := cluster(t)
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	config := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(page)
	if config == nil {
		t.Fatal("no topics.yaml on the page")
	}
	t.Chdir(t.TempDir())
	text := strings.Replace(config[1], "localhost:9092", c.ListenAddrs()[0], 1)
	if err := os.WriteFile("topics.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range sections {
		switch s.command {
		case "forwarder find":
			stage(t, c.ListenAddrs())
		case "forwarder run":
			r := startRun(t, "topics.yaml")
			if code := r.stop(); code != s.examples[0].code {
				t.Errorf("%s: exit code %d\n%s", s.command, code, r.stderr)
			}
			continue
		}
		for _, e := range s.examples {
			got := execIn(t, nil, e.args...)
			if got.code != e.code {
				t.Errorf("forwarder %s: want exit code %d\n%v", strings.Join(e.args, " "), e.code, got)
			}
			if s.shape != "" && slices.Contains(e.args, "json") {
				fits(t, s, got.stdout)
			}
		}
	}
}

// stage makes what the examples of find and offsets look at: a record that
// waits, and a partition whose commit is out of range.
func stage(t *testing.T, brokers []string) {
	t.Helper()
	client, err := testkit.NewClient(brokers)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	record := func(topic string) *kgo.Record {
		return &kgo.Record{Topic: topic, Key: []byte("customer-17"), Value: []byte("v"), Headers: []kgo.RecordHeader{
			{Key: "redrive-original-topic", Value: []byte("orders")},
			{Key: "redrive-original-partition", Value: []byte("3")},
			{Key: "redrive-original-offset", Value: []byte("4711")},
		}}
	}
	for range 5 {
		if err := client.Produce(t.Context(), record("orders.retry.1m")); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Produce(t.Context(), record("orders.retry.10s")); err != nil {
		t.Fatal(err)
	}
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "orders.retry.1m", At: 1, LeaderEpoch: -1})
	if err := client.Admin().CommitAllOffsets(t.Context(), "redrive-forwarder", offsets); err != nil {
		t.Fatal(err)
	}
	below := kadm.Offsets{}
	below.Add(kadm.Offset{Topic: "orders.retry.1m", At: 3})
	if _, err := client.Admin().DeleteRecords(t.Context(), below); err != nil {
		t.Fatal(err)
	}
}

// fits tells if an answer has a field that the documented shape has not.
func fits(t *testing.T, s section, answer string) {
	t.Helper()
	var shape, got any
	if err := json.Unmarshal([]byte(s.shape), &shape); err != nil {
		t.Fatalf("%s: the JSON on the page: %v", s.command, err)
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Errorf("%s: %v\n%s", s.command, err, answer)
		return
	}
	shown := map[string]bool{}
	fields("", shape, shown)
	// What has its own keys: settings of topics, and what a page of problems adds.
	free := regexp.MustCompile(`\.settings\.|^\.samples|^\.retired|^\.others`)
	answered := map[string]bool{}
	fields("", got, answered)
	for _, path := range slices.Sorted(maps.Keys(answered)) {
		if !shown[path] && !free.MatchString(path) {
			t.Errorf("%s: the field %s is not documented", s.command, path)
		}
	}
}

// fields collects the paths of all fields of a value.
func fields(path string, value any, all map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			all[path+"."+key] = true
			fields(path+"."+key, field, all)
		}
	case []any:
		for _, element := range value {
			fields(path+"[]", element, all)
		}
	}
}
