package charttest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kafka-redrive/redrive/internal/testkit/golden"
)

// The tables of the chart's README stand between these lines and are written by -update.
const (
	tablesBegin = "<!-- The tables below are generated from values.yaml: go test -run TestReadme . -update, in deploy/helm/charttest -->\n"
	tablesEnd   = "<!-- End of the generated tables. -->\n"
)

// The README lists every value with its default and its comment.
func TestReadmeListsEveryValue(t *testing.T) {
	t.Parallel()
	const path = chartDir + "/README.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), tablesBegin)
	_, tail, ok2 := strings.Cut(rest, tablesEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lost the lines around its tables", path)
	}
	values, leads := documentedValues(t)
	golden.File(t, path, head+tablesBegin+tables(values, leads)+tablesEnd+tail)
}

// tables are one for the values that stand alone, and one for each section of values.yaml in its order.
func tables(values []documentedValue, leads map[string]string) string {
	const alone = ""
	rows, order := map[string]string{}, []string{alone}
	for _, v := range values {
		section, _, nested := strings.Cut(v.path, ".")
		if !nested {
			section = alone
		}
		if rows[section] == "" && section != alone {
			order = append(order, section)
		}
		rows[section] += fmt.Sprintf("| `%s` | `%s` | %s |\n", v.path, inTable(v.standard), inTable(v.comment))
	}
	var out strings.Builder
	for _, section := range order {
		title := "### `" + section + "`"
		if section == alone {
			title = "### Of the release"
		}
		out.WriteString("\n" + title + "\n")
		if lead := leads[section]; lead != "" {
			out.WriteString("\n" + lead + "\n")
		}
		out.WriteString("\n| Key | Default | Meaning |\n|---|---|---|\n" + rows[section])
	}
	return out.String() + "\n"
}

// inTable keeps a text from ending the cell of a table.
func inTable(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
