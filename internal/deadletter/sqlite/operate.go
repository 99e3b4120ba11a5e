package sqlite

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
)

// turn is what Discard and Undiscard do: letters of one state that a filter selects come to another.
func (l *Ledger) turn(ctx context.Context, action string, from, to deadletter.State, filter deadletter.Filter, actor, reason string) (n int64, err error) {
	err = l.change(ctx, action+" letters", func(tx *change) error {
		q := dialect.New(string(to), tx.micros(), reason)
		q.Filter(filter)
		q.And("state = " + q.Arg(string(from)))
		if n, err = tx.long(`UPDATE letters SET state = ?1, state_at = ?2, note = ?3 WHERE `+q.Where(), q.Args()...); err != nil {
			return err
		}
		return tx.record(deadletter.Entry{Actor: actor, Action: action, Reason: reason, Object: sqlquery.Text(filter), Count: n})
	})
	return n, err
}

// Discard implements deadletter.Operating.
func (l *Ledger) Discard(ctx context.Context, filter deadletter.Filter, actor, reason string) (int64, error) {
	return l.turn(ctx, "discard", deadletter.Dead, deadletter.Discarded, filter, actor, reason)
}

// Undiscard implements deadletter.Operating.
func (l *Ledger) Undiscard(ctx context.Context, filter deadletter.Filter, actor, reason string) (int64, error) {
	return l.turn(ctx, "undiscard", deadletter.Discarded, deadletter.Dead, filter, actor, reason)
}

// Purge implements deadletter.Operating.
func (l *Ledger) Purge(ctx context.Context, filter deadletter.Filter, actor, reason string) (n int64, err error) {
	if len(filter.States) == 0 {
		return 0, errors.New("purge letters: the filter names no state")
	}
	err = l.change(ctx, "purge letters", func(tx *change) error {
		q := dialect.New()
		q.Filter(filter)
		q.And("state <> 'claimed'")
		if _, err := tx.long(`DELETE FROM payloads WHERE letter IN (SELECT id FROM letters WHERE kept = 1 AND `+q.Where()+`)`, q.Args()...); err != nil {
			return err
		}
		if n, err = tx.long(`DELETE FROM letters WHERE `+q.Where(), q.Args()...); err != nil {
			return err
		}
		return tx.record(deadletter.Entry{Actor: actor, Action: "purge", Reason: reason, Object: sqlquery.Text(filter), Count: n})
	})
	return n, err
}

// Keep implements deadletter.Operating.
func (l *Ledger) Keep(ctx context.Context, payloads map[int64]deadletter.Payload, actor, reason string) (n int64, err error) {
	err = l.change(ctx, "keep the bytes of letters", func(tx *change) error {
		ids := slices.Sorted(maps.Keys(payloads))
		n = 0
		for _, id := range ids {
			changed, err := tx.exec(`UPDATE letters SET kept = 1 WHERE id = ?1 AND kept = 0`, id)
			if err != nil {
				return err
			}
			if changed == 0 {
				continue
			}
			if err := tx.keep(id, payloads[id]); err != nil {
				return err
			}
			n++
		}
		return tx.record(deadletter.Entry{Actor: actor, Action: "keep", Reason: reason, Object: sqlquery.Text(deadletter.Filter{IDs: ids}), Count: n})
	})
	return n, err
}

// Record implements deadletter.Operating.
func (l *Ledger) Record(ctx context.Context, entry deadletter.Entry) error {
	return l.change(ctx, "write to the audit trail", func(tx *change) error { return tx.record(entry) })
}
