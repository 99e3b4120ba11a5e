package issue_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kafka-redrive/redrive/internal/issue"
)

func TestEveryCodeIsListedOnceWithASeverityASentenceAndARemedy(t *testing.T) {
	word := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	seen := make(map[issue.Code]bool)
	for _, e := range issue.All() {
		if seen[e.Code] {
			t.Errorf("%s is listed twice", e.Code)
		}
		seen[e.Code] = true
		if !word.MatchString(string(e.Code)) {
			t.Errorf("%q is not a label value of small letters and dashes", e.Code)
		}
		switch e.Severity {
		case issue.SeverityError, issue.SeverityWarning, issue.SeverityInfo:
		default:
			t.Errorf("%s: severity %q", e.Code, e.Severity)
		}
		for _, sentence := range []string{e.Means, e.Remedy} {
			if !strings.HasSuffix(sentence, ".") || strings.Contains(sentence, ". ") {
				t.Errorf("%s: not one sentence: %q", e.Code, sentence)
			}
		}
		if issue.Of(e.Code) != e || e.Code.Severity() != e.Severity {
			t.Errorf("Of(%s) = %+v", e.Code, issue.Of(e.Code))
		}
	}
}

// A constant without an entry would be an issue that no page and no severity knows.
func TestEveryConstantIsInTheList(t *testing.T) {
	source, err := os.ReadFile("list.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\t[A-Za-z]+ +Code = "([^"]+)"$`).FindAllSubmatch(source, -1)
	if len(found) != len(issue.All()) {
		t.Errorf("%d constants and %d entries", len(found), len(issue.All()))
	}
	for _, match := range found {
		if code := issue.Code(match[1]); issue.Of(code).Code != code {
			t.Errorf("%s has no entry", code)
		}
	}
}

func TestACodeThatIsNotListedHasNothingToSay(t *testing.T) {
	if e := issue.Of("no-such-issue"); e != (issue.Entry{}) || issue.Code("no-such-issue").Severity() != "" {
		t.Errorf("Of = %+v", e)
	}
}

func TestTheListCannotBeChangedFromOutside(t *testing.T) {
	issue.All()[0].Severity = "changed"
	if issue.All()[0].Severity == "changed" {
		t.Error("a caller changed the list")
	}
}

// The page is what an alert links to: every code is a heading there, in the order of the list, with the severity, both
// sentences, and something to type.
func TestThePageTellsEveryCodeAsTheListDoes(t *testing.T) {
	page, err := os.ReadFile("../../docs/issues.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings, want []string
	sections := make(map[string]string)
	for _, section := range strings.Split("\n"+string(page), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		headings, sections[heading] = append(headings, heading), body
	}
	for _, e := range issue.All() {
		want = append(want, string(e.Code))
		body, ok := sections[string(e.Code)]
		if !ok {
			continue // The headings are compared below.
		}
		for what, text := range map[string]string{
			"severity and meaning": "**" + string(e.Severity) + "**: " + e.Means,
			"remedy":               "Remedy: " + e.Remedy,
			"something to type":    "\n```",
		} {
			if !strings.Contains(body, text) {
				t.Errorf("%s: the page lacks the %s: %s", e.Code, what, text)
			}
		}
	}
	if diff := cmp.Diff(want, headings); diff != "" {
		t.Errorf("headings of the page (-list +page):\n%s", diff)
	}
}
