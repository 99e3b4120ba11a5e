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

	"github.com/kafka-redrive/redrive/internal/command"
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

// commandDocs reads the page: what is common to several commands, and each of them.
func commandDocs(t *testing.T) (common string, sections []section) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, page, ok := strings.Cut(string(content), "\n## dlt-replayer\n")
	if !ok {
		t.Fatal("the page has nothing about dlt-replayer")
	}
	heading := regexp.MustCompile("^`(dlt-replayer [a-z ]+)`\n")
	block := regexp.MustCompile("(?ms)^```(sh|json)\n(.*?)^```$")
	for text := range strings.SplitSeq(page, "\n## ") {
		match := heading.FindStringSubmatch(text)
		if match == nil {
			common += text
			continue
		}
		s := section{command: match[1], text: text}
		for _, b := range block.FindAllStringSubmatch(text, -1) {
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
	return common, sections
}

func parseExample(t *testing.T, line string) example {
	t.Helper()
	text, comment, _ := strings.Cut(strings.TrimSpace(line), " #")
	var e example
	for i, part := range strings.Split(text, "'") { // What is between quotes is one word.
		if i%2 == 1 {
			e.args = append(e.args, part)
			continue
		}
		e.args = append(e.args, strings.Fields(part)...)
	}
	if len(e.args) == 0 || e.args[0] != "dlt-replayer" {
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
	common, sections := commandDocs(t)
	documented := map[string]section{}
	for _, s := range sections {
		documented[s.command] = s
		if len(s.examples) == 0 {
			t.Errorf("%s has no example", s.command)
		}
		if !strings.Contains(s.text, "\nExit codes: 0 ") {
			t.Errorf("%s does not tell its exit codes", s.command)
		}
	}
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
		cmd.InheritedFlags() // Merges the flags of the parents into those of the command.
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if row := "`--" + f.Name + "` |"; f.Name != "help" && !strings.Contains(s.text, row) && !strings.Contains(common, row) {
				t.Errorf("%s: the flag --%s is not documented", s.command, f.Name)
			}
		})
	}
	walk(newCLI(command.Process{}).root())
	if len(documented) > 0 {
		t.Errorf("documented and not there: %v", slices.Sorted(maps.Keys(documented)))
	}
	for _, name := range filterFlags() {
		if !strings.Contains(common, "`--"+name+"` |") {
			t.Errorf("the filter --%s is not documented", name)
		}
	}
}

// TestTheDocumentedCommandsDoWhatTheyAreSaidToDo runs every example of
// docs/commands.md in its order, and holds what it prints as JSON against the
// shape that is shown.
func TestTheDocumentedCommandsDoWhatTheyAreSaidToDo(t *testing.T) {
	_, sections := commandDocs(t)
	st := newStage(t, 1, "")
	st.bury(t, "customer-1", "customer-2", "customer-3", "customer-4", "customer-17", "customer-17")
	t.Chdir(st.dir)
	var s *served
	for _, section := range sections {
		if section.command == "dlt-replayer serve" {
			s = serve(t, "topics.yaml")
			s.environ = append(s.environ, adminVariable+"="+s.admin)
			s.eventually("orders/0/5", "list")
			continue
		}
		for _, e := range section.examples {
			var environ []string
			args := e.args
			if s != nil {
				environ = s.environ
				args = slices.Clone(args)
				if i := slices.Index(args, "JOB"); i >= 0 {
					jobs := s.run("jobs", "list", "-o", "jsonl", "--limit", "1").stdout
					args[i] = regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(jobs)[1]
				}
			}
			got := execIn(t.Context(), environ, "", args...)
			if got.code != e.code {
				t.Errorf("dlt-replayer %s: want exit code %d\n%v", strings.Join(e.args, " "), e.code, got)
			}
			if section.shape != "" && slices.Contains(e.args, "json") {
				fits(t, section, got.stdout)
			}
		}
	}
	if code := s.stop(); code != command.ExitOK {
		t.Errorf("exit code %d\n%s", code, s.stderr)
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
	shown, answered := map[string]bool{}, map[string]bool{}
	fields("", shape, shown)
	fields("", got, answered)
	for _, path := range slices.Sorted(maps.Keys(answered)) {
		if !shown[path] {
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
