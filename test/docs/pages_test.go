package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the repository, seen from here.
const root = "../.."

// page is one document.
type page struct {
	path    string // from the root, with slashes
	anchors map[string]bool
	links   []link
	blocks  []block
	all     mark // what is said of all its commands at once; zero: each block speaks for itself
}

// link is one that does not leave the repository.
type link struct {
	line   int
	target string
}

// block is what stands in one fence.
type block struct {
	page     string
	line     int // of the fence
	language string
	text     string
	mark     mark
}

func (b block) String() string { return b.page + ":" + strconv.Itoa(b.line) }

// mark is the comment above a block, which says what becomes of it.
type mark struct {
	kind     string // "run", "run by", "not run", "file", or "" if there is none
	scenario string // of run and file: which one, "" for that of the page
	detail   string // the tests, the reason, or the name of the file
}

// The marks:
//
//	<!-- run -->                      this package runs it, in the scenario that is named after the page
//	<!-- run: NAME -->                in another one
//	<!-- file: topics.yaml -->        it is written to that file of the scenario
//	<!-- file: topics.yaml: NAME -->  of another one
//	<!-- run by: TestName -->         another test runs it
//	<!-- not run: why -->             nobody does
//	<!-- all commands: ... -->        one of the last two, for every block of the page without one of its own
var marks = regexp.MustCompile(`^<!-- (all commands: )?(run by|not run|run|file)(?:: (.+?))? -->$`)

func parseMark(line string) (m mark, all bool) {
	found := marks.FindStringSubmatch(strings.TrimSpace(line))
	if found == nil {
		return mark{}, false
	}
	m = mark{kind: found[2], detail: found[3]}
	switch m.kind {
	case "run":
		m.scenario, m.detail = m.detail, ""
	case "file":
		m.detail, m.scenario, _ = strings.Cut(m.detail, ": ")
	}
	return m, found[1] != ""
}

var (
	heading    = regexp.MustCompile(`^#{1,6} (.+)$`)
	reference  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inlineCode = regexp.MustCompile("`[^`]*`")
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// slug is the anchor that GitHub gives a heading.
func slug(title string) string {
	title = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(title, "$1")
	return strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// parse reads one page.
func parse(path, text string) page {
	p := page{path: path, anchors: map[string]bool{}}
	var open *block
	indent := ""
	above := "" // the last line that is not empty
	line := 0
	for content := range strings.Lines(text) {
		line++
		content = strings.TrimRight(content, "\r\n")
		trimmed := strings.TrimSpace(content)
		switch {
		case open != nil && trimmed == "```":
			p.blocks = append(p.blocks, *open)
			open, above = nil, trimmed
			continue
		case open != nil:
			open.text += strings.TrimPrefix(content, indent) + "\n"
			continue
		case strings.HasPrefix(trimmed, "```"):
			m, _ := parseMark(above)
			open = &block{page: path, line: line, language: strings.TrimPrefix(trimmed, "```"), mark: m}
			indent, _, _ = strings.Cut(content, "`")
			continue
		}
		if m, all := parseMark(content); all {
			p.all = m
		}
		if found := heading.FindStringSubmatch(content); found != nil {
			anchor := slug(found[1])
			for n := 1; p.anchors[anchor]; n++ {
				anchor = slug(found[1]) + "-" + strconv.Itoa(n)
			}
			p.anchors[anchor] = true
		}
		for _, found := range reference.FindAllStringSubmatch(inlineCode.ReplaceAllString(content, "``"), -1) {
			if !strings.Contains(found[1], "://") && !strings.HasPrefix(found[1], "mailto:") {
				p.links = append(p.links, link{line, found[1]})
			}
		}
		if trimmed != "" {
			above = trimmed
		}
	}
	return p
}

// pages are all documents of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"bin", "out", "testdata", "node_modules"}, name)) {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		all = append(all, parse(filepath.ToSlash(relative), string(text)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d pages were found below %s", len(all), root)
	}
	return all
}

// what becomes of a block of commands, by its own mark or that of its page.
func (p page) fate(b block) mark {
	if b.mark.kind == "" {
		return p.all
	}
	return b.mark
}
