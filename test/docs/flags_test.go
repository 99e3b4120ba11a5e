package docs

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// TestTheFlagsInAllCommandsExist reads the help of the binaries: also blocks that nobody runs name commands and flags that are there.
func TestTheFlagsInAllCommandsExist(t *testing.T) {
	if testing.Short() {
		t.Skip("the binaries are not built with -short")
	}
	t.Parallel()
	helps := map[string]string{}
	help := func(program string, subcommand []string) string {
		key := strings.Join(append([]string{program}, subcommand...), " ")
		if text, ok := helps[key]; ok {
			return text
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, program), slices.Concat(subcommand, []string{"--help"})...)
		cmd.Env = testkit.Environment()
		out, err := cmd.CombinedOutput()
		if err != nil {
			out = nil
		}
		helps[key] = string(out)
		return helps[key]
	}
	flag := regexp.MustCompile(`^(--[a-z][a-z-]*|-[a-z])(=|$)`)
	checked := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language != "sh" {
				continue
			}
			for _, line := range commandsOf(b.text) {
				for _, words := range ours(line) {
					program, rest := words[0], words[1:]
					var subcommand []string
					for len(rest) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(rest[0]) && len(subcommand) < 2 {
						if text := help(program, slices.Concat(subcommand, rest[:1])); !usage(text, program, subcommand, rest[0]) {
							break
						}
						subcommand, rest = append(subcommand, rest[0]), rest[1:]
					}
					if len(subcommand) == 0 && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && rest[0] != "COMMAND" {
						t.Errorf("%s: %s has no command %s: %s", b, program, rest[0], line)
						continue
					}
					text := help(program, subcommand)
					for _, word := range rest {
						if found := flag.FindStringSubmatch(word); found != nil && !regexp.MustCompile(`(?m)(^|[ ,])`+found[1]+`\b`).MatchString(text) {
							t.Errorf("%s: %s %s has no flag %s: %s", b, program, strings.Join(subcommand, " "), found[1], line)
						}
					}
					checked++
				}
			}
		}
	}
	t.Logf("%d command lines of ours", checked)
	if checked < 100 {
		t.Errorf("only %d command lines of ours were found", checked)
	}
}

// usage tells if a help is that of the command.
func usage(text, program string, above []string, name string) bool {
	path := strings.Join(append(append([]string{program}, above...), name), " ")
	return regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(path) + `( |$)`).MatchString(text)
}

// ours are the command lines of our programs in a line of the shell, as words without quotes.
func ours(line string) [][]string {
	var all [][]string
	var words []string
	end := func() {
		start := -1
		for i, word := range words {
			name := word[strings.LastIndex(word, "/")+1:]
			if name != "forwarder" && name != "dlt-replayer" {
				continue
			}
			// At the place of a command: first, after settings of the environment, or after the dashes of kubectl exec.
			assignments := true
			for _, before := range words[:i] {
				assignments = assignments && regexp.MustCompile(`^\w+=`).MatchString(before)
			}
			if assignments || words[i-1] == "--" {
				start = i
				words[i] = name
				break
			}
		}
		if start >= 0 {
			all = append(all, words[start:])
		}
		words = nil
	}
	word, inWord, quote := "", false, rune(0)
	next := func() {
		if inWord {
			words = append(words, word)
		}
		word, inWord = "", false
	}
	for _, r := range line + "\n" {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == '#' && !inWord, r == '\n':
			next()
			end()
			if r == '#' {
				return all
			}
		case r == '|' || r == ';' || r == '&' || r == '(' || r == ')' || r == '`':
			next()
			end()
		case r == ' ' || r == '\t' || r == '<' || r == '>':
			next()
		default:
			word, inWord = word+string(r), true
		}
	}
	return all
}
