package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
)

var errNoStates = errors.New("a purge must name states")

// Discard makes dead letters discarded, and returns how many that were.
func (l *Ledger) Discard(ctx context.Context, filter deadletter.Filter, actor, reason string) (int64, error) {
	return l.change(ctx, "discard", filter, deadletter.Dead, deadletter.Discarded, actor, reason)
}

// Undiscard makes discarded letters dead, and returns how many that were.
func (l *Ledger) Undiscard(ctx context.Context, filter deadletter.Filter, actor, reason string) (int64, error) {
	n, err := l.change(ctx, "undiscard", filter, deadletter.Discarded, deadletter.Dead, actor, reason)
	l.forgetExpired()
	return n, err
}

// change moves letters from one state to another, with its audit row.
func (l *Ledger) change(ctx context.Context, action string, filter deadletter.Filter, from, to deadletter.State, actor, reason string) (n int64, err error) {
	q := selection(filter, string(from), string(to), storable(reason))
	sql := moved(`UPDATE letters SET state = $2, state_at = clock_timestamp(), note = $3
		WHERE state = $1 AND id IN (SELECT id FROM letters WHERE state = $1 AND `+q.Where()+` ORDER BY id FOR UPDATE)
		RETURNING topic, origin, $1::text AS was, state`, "SELECT count(*) FROM moved")
	err = l.transact(ctx, action+" letters", func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, sql, withPlan(q.Args())...).Scan(&n); err != nil {
			return err
		}
		return record(ctx, tx, deadletter.Entry{Actor: actor, Action: action, Reason: reason, Object: sqlquery.Text(filter), Count: n})
	})
	return n, err
}

// Purge removes rows, and the bytes kept with them, and returns how many that were. The filter must name states.
func (l *Ledger) Purge(ctx context.Context, filter deadletter.Filter, actor, reason string) (n int64, err error) {
	if len(filter.States) == 0 {
		return 0, wrap("purge letters", errNoStates)
	}
	q := selection(filter)
	sql := movedAfter(`gone AS (
			DELETE FROM letters WHERE state <> 'claimed' AND id IN (
				SELECT id FROM letters WHERE state <> 'claimed' AND `+q.Where()+` ORDER BY id FOR UPDATE
			) RETURNING topic, record_partition, record_offset, origin, state, kept
		), bytes AS (
			DELETE FROM payloads p USING gone WHERE gone.kept
				AND p.topic = gone.topic AND p.record_partition = gone.record_partition AND p.record_offset = gone.record_offset
		)`, "SELECT topic, origin, state AS was, '' AS state FROM gone", "SELECT count(*) FROM moved")
	err = l.transact(ctx, "purge letters", func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, sql, withPlan(q.Args())...).Scan(&n); err != nil {
			return err
		}
		return record(ctx, tx, deadletter.Entry{Actor: actor, Action: "purge", Reason: reason, Object: sqlquery.Text(filter), Count: n})
	})
	return n, err
}

// Keep stores the bytes of letters, so that they survive their topic, and returns how many had none.
func (l *Ledger) Keep(ctx context.Context, payloads map[int64]deadletter.Payload, actor, reason string) (n int64, err error) {
	ids := slices.Sorted(maps.Keys(payloads))
	keys, values, headers := make([][]byte, len(ids)), make([][]byte, len(ids)), make([][]byte, len(ids))
	for i, id := range ids {
		p := payloads[id]
		keys[i], values[i], headers[i] = p.Key, p.Value, sqlquery.AppendHeaders([]byte{headersMark}, p.Headers)
	}
	err = l.transact(ctx, "keep the bytes of letters", func(ctx context.Context, tx pgx.Tx) error {
		if err := lockLetters(ctx, tx, ids); err != nil {
			return err
		}
		kept, err := tx.Exec(ctx, `WITH given AS (
				SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[]) AS g(id, record_key, value, headers)
			), now_kept AS (
				UPDATE letters l SET kept = true FROM given WHERE l.id = given.id AND NOT l.kept
				RETURNING l.id, l.topic, l.record_partition, l.record_offset
			) INSERT INTO payloads (topic, record_partition, record_offset, record_key, value, headers)
			SELECT k.topic, k.record_partition, k.record_offset, g.record_key, g.value, g.headers FROM now_kept k JOIN given g USING (id)`,
			ids, keys, values, headers)
		if err != nil {
			return err
		}
		n = kept.RowsAffected()
		return record(ctx, tx, deadletter.Entry{
			Actor: actor, Action: "keep", Reason: reason, Object: sqlquery.Text(deadletter.Filter{IDs: ids}), Count: n,
		})
	})
	return n, err
}

// Record adds a row to the audit trail. ID and At are the ledger's.
func (l *Ledger) Record(ctx context.Context, entry deadletter.Entry) error {
	return l.transact(ctx, fmt.Sprintf("record %q", entry.Action), func(ctx context.Context, tx pgx.Tx) error {
		return record(ctx, tx, entry)
	})
}
