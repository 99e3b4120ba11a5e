package receipts

import (
	_ "embed" // For the schema.
	"strings"
)

// Schema creates the two tables, for the migrations of the consumer's own database. The text is the same for all dialects.
//
//go:embed schema.sql
var Schema string

// Dialect is the database that a transaction is of.
type Dialect string

// The dialects that are tested.
const (
	Postgres Dialect = "postgres"
	SQLite   Dialect = "sqlite"
)

// The statements, as Postgres reads them. NOW is the clock of the database, in milliseconds.
const (
	onceSQL = `INSERT INTO redrive_receipts (consumer, message_id, original_ms, received_ms)
VALUES ($1, $2, $3, NOW)
ON CONFLICT (consumer, message_id, original_ms) DO NOTHING`

	// A mark whose end the commit has reached becomes the time up to which the partition is handled, and the next one begins.
	markSQL = `INSERT INTO redrive_receipt_marks (consumer, topic, part, end_offset, taken_ms, passed_ms)
VALUES ($1, $2, $3, $4, NOW - CAST($6 AS bigint), 0)
ON CONFLICT (consumer, topic, part) DO UPDATE
SET passed_ms = redrive_receipt_marks.taken_ms, end_offset = excluded.end_offset, taken_ms = excluded.taken_ms
WHERE redrive_receipt_marks.end_offset <= $5`

	pruneSQL = `DELETE FROM redrive_receipts
WHERE consumer = $1 AND (message_id, original_ms) IN (
  SELECT message_id, original_ms FROM redrive_receipts
  WHERE consumer = $1 AND received_ms < (
    SELECT min(passed_ms) FROM redrive_receipt_marks WHERE consumer = $1
  ) - CAST($2 AS bigint)
  ORDER BY received_ms LIMIT 10000
)`

	forgetSQL = `DELETE FROM redrive_receipt_marks WHERE consumer = $1 AND topic = $2`
)

// text writes a statement for a dialect.
func (d Dialect) text(statement string) string {
	switch d {
	case Postgres:
		return strings.ReplaceAll(statement, "NOW", "(extract(epoch from clock_timestamp()) * 1000)::bigint")
	case SQLite:
		// Not unixepoch('subsec'), which older libraries lack.
		statement = strings.ReplaceAll(statement, "NOW", "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)")
		return strings.ReplaceAll(statement, "$", "?")
	default:
		return ""
	}
}
