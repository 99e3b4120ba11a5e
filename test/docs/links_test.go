package docs

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kafka-redrive/redrive/internal/issue"
)

func TestEveryLinkBetweenThePagesLeadsSomewhere(t *testing.T) {
	t.Parallel()
	all := pages(t)
	byPath := map[string]page{}
	for _, p := range all {
		byPath[p.path] = p
	}
	for _, p := range all {
		for _, l := range p.links {
			target, anchor, _ := strings.Cut(l.target, "#")
			to := p.path
			if target != "" {
				to = path.Join(path.Dir(p.path), target)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil {
				t.Errorf("%s:%d: %s: there is no %s", p.path, l.line, l.target, to)
				continue
			}
			if other, isPage := byPath[to]; isPage && anchor != "" && !other.anchors[anchor] {
				t.Errorf("%s:%d: %s: %s has no such heading", p.path, l.line, l.target, to)
			}
		}
	}
}

func TestEveryAlertHasItsSectionInTheRunbook(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "deploy/helm/redrive/files/alerts/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no alerts: %v", err)
	}
	var alerts []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^\s*(?:- )?alert:\s*(\w+)\s*$`).FindAllStringSubmatch(string(text), -1) {
			alerts = append(alerts, found[1])
		}
		for _, found := range regexp.MustCompile(`runbook_url:\s*(\S+)`).FindAllStringSubmatch(string(text), -1) {
			url := strings.Trim(found[1], `"'`)
			_, anchor, _ := strings.Cut(url, "/docs/runbook.md#")
			if anchor == "" || !slices.ContainsFunc(alerts, func(a string) bool { return strings.ToLower(a) == anchor }) {
				t.Errorf("%s: %s is no section of docs/runbook.md", filepath.Base(file), url)
			}
		}
	}
	var sections []string
	text, err := os.ReadFile(filepath.Join(root, "docs/runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		sections = append(sections, title)
		for _, part := range []string{"**What it means.**", "**First look.**", "```sh", "**Fix.**", "**Call**"} {
			if !strings.Contains(body, part) {
				t.Errorf("docs/runbook.md: %s lacks %s", title, part)
			}
		}
	}
	slices.Sort(alerts)
	slices.Sort(sections)
	if diff := cmp.Diff(slices.Compact(alerts), sections); diff != "" {
		t.Errorf("alerts and sections of docs/runbook.md (-alerts +sections):\n%s", diff)
	}
}

func TestEveryIssueCodeHasItsSection(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		if p.path != "docs/issues.md" {
			continue
		}
		for _, entry := range issue.All() {
			if !p.anchors[string(entry.Code)] {
				t.Errorf("docs/issues.md has no section %s", entry.Code)
			}
		}
		return
	}
	t.Error("there is no docs/issues.md")
}

// commandLine is what a line of a block that is not tagged as sh begins with if it is a command.
var commandLine = regexp.MustCompile(`^\s*(\$ )?(sudo |printf |echo |cat >|export |make |go |curl |kcat |helm |kubectl |docker |psql |kafka-[a-z-]+\.sh |(bin/)?(forwarder|dlt-replayer) [a-z])`)

func TestEveryBlockOfCommandsIsRunOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	tests := testNames(t)
	counts := map[string]int{}
	reasons := map[string]int{}
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			switch b.language {
			case "sh":
			case "bash", "shell", "console":
				t.Errorf("%s: write ```sh", b)
				continue
			case "":
				for line := range strings.Lines(b.text) {
					if commandLine.MatchString(line) {
						t.Errorf("%s: write ```sh, it has the command %s", b, strings.TrimSpace(line))
						break
					}
				}
				continue
			default:
				continue
			}
			fate := p.fate(b)
			switch fate.kind {
			case "run", "file":
			case "run by":
				for name := range strings.SplitSeq(fate.detail, ", ") {
					if !tests[name] {
						t.Errorf("%s: there is no test %s", b, name)
					}
				}
			case "not run":
				if len(fate.detail) < 10 {
					t.Errorf("%s: %q is no reason", b, fate.detail)
				}
				reasons[fate.detail]++
			default:
				t.Errorf("%s: it is neither run nor says why not: put one of the marks of pages_test.go above it", b)
				continue
			}
			counts[fate.kind]++
		}
	}
	t.Logf("blocks of commands: %v", counts)
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("not run, %d: %s", reasons[reason], reason)
	}
}

// testNames are those of all tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range declaration.FindAllSubmatch(source, -1) {
			names[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestANewUserIsThereInTwelveCommands counts the commands under the headings that promise it.
func TestANewUserIsThereInTwelveCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, title := range []string{"With Helm", "Without Kubernetes"} {
		_, section, ok := strings.Cut(string(text), "\n## "+title+"\n")
		if !ok {
			t.Errorf("docs/kubernetes.md has no section %s", title)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var commands []string
		for _, b := range parse("docs/kubernetes.md", section).blocks {
			if b.language == "sh" {
				for _, line := range commandsOf(b.text) {
					commands = append(commands, strings.Split(line, " && ")...)
				}
			}
		}
		t.Logf("%s: %d commands", title, len(commands))
		if len(commands) == 0 || len(commands) > 12 {
			t.Errorf("%s: %d commands, want 1 to 12:\n%s", title, len(commands), strings.Join(commands, "\n"))
		}
	}
}

// commandsOf are the commands of a block, each on one line: lines that go on are joined, here documents and comments left out.
func commandsOf(text string) []string {
	text = strings.ReplaceAll(text, "\\\n", " ")
	here := regexp.MustCompile(`<<-?\s*['"]?(\w+)['"]?`)
	var commands []string
	end := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if end != "" {
			if line == end {
				end = ""
			}
			continue
		}
		if found := here.FindStringSubmatch(line); found != nil {
			end = found[1]
		}
		if line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, line)
		}
	}
	return commands
}
