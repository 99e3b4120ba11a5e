package receipts

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const document = "../../docs/receipts.md"

// statementsOf are the SQL blocks of the document, without the indent of the list they stand in.
func statementsOf(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	var block []string
	indent := -1
	for line := range strings.Lines(string(text)) {
		switch trimmed := strings.TrimSpace(line); {
		case indent < 0 && trimmed == "```sql":
			indent = strings.Index(line, "```")
		case indent >= 0 && trimmed == "```":
			all = append(all, strings.TrimSuffix(strings.Join(block, ""), "\n"))
			block, indent = nil, -1
		case indent >= 0:
			block = append(block, strings.TrimPrefix(line, strings.Repeat(" ", indent)))
		}
	}
	return all
}

func TestTheStatementsOfTheDocumentAreOurs(t *testing.T) {
	statements := statementsOf(t)
	if len(statements) != 6 {
		t.Fatalf("%d statements in %s", len(statements), document)
	}
	schema, again := statements[0], statements[5]
	ours := []string{strings.TrimSuffix(Schema, "\n"), Postgres.text(onceSQL), Postgres.text(markSQL), Postgres.text(pruneSQL), Postgres.text(forgetSQL), again}
	if diff := cmp.Diff(ours, statements); diff != "" {
		t.Errorf("%s has other statements (-want +got):\n%s", document, diff)
	}
	each(t, func(t *testing.T, d *database) {
		// The document says what to write for SQLite.
		dialect := func(statement string) string { return statement }
		if d.dialect == SQLite {
			dialect = strings.NewReplacer("$", "?",
				"(extract(epoch from clock_timestamp()) * 1000)::bigint", "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)").Replace
		}
		d.exec(t, "DROP TABLE redrive_receipts")
		d.exec(t, "DROP TABLE redrive_receipt_marks")
		d.exec(t, schema)
		run := func(want int64, statement string, args ...any) {
			t.Helper()
			result, err := d.ExecContext(t.Context(), dialect(statement), args...)
			if err != nil {
				t.Fatalf("%s\n%v", statement, err)
			}
			if got, err := result.RowsAffected(); err != nil || got != want {
				t.Errorf("%s\n%d rows, not %d, %v", statement, got, want, err)
			}
		}
		once, mark, prune, forget := statements[1], statements[2], statements[3], statements[4]
		run(1, once, "billing", "orders/2/4711", int64(1_767_582_000_000))
		run(0, once, "billing", "orders/2/4711", int64(1_767_582_000_000))
		run(1, again, "billing", "orders/2/4711")
		run(1, once, "billing", "orders/2/4711", int64(1_767_582_000_000))
		d.pass(t, 15*24*time.Hour)
		keep := (DefaultKeep + slack).Milliseconds()
		run(1, mark, "billing", "orders", int32(2), int64(5000), int64(4712), int64(20))
		run(0, prune, "billing", keep)
		run(0, mark, "billing", "orders", int32(2), int64(6000), int64(4999), int64(20))
		run(0, prune, "billing", keep)
		run(1, mark, "billing", "orders", int32(2), int64(7000), int64(5000), int64(20))
		run(1, prune, "billing", keep)
		run(1, forget, "billing", "orders")
	})
}
