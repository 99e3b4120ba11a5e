package sqlite

import (
	"context"
	"fmt"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// itemColumns and itemTables read items with their letters, of which nothing is left if they are purged.
const (
	itemColumns = `items.job, items.seq, items.letter, items.state, items.error, items.replay_count, items.copy_topic, items.copy_partition, items.copy_offset, items.at, ` + letterColumns
	itemTables  = `items LEFT JOIN letters ON letters.id = items.letter LEFT JOIN topics ON topics.no = letters.topic`
)

// items reads items.
func items(ctx context.Context, db querier, from string, args ...any) ([]deadletter.Item, error) {
	out := []deadletter.Item{}
	err := each(ctx, db, "SELECT "+itemColumns+" FROM "+from, args, func(scan func(...any) error) error {
		var i deadletter.Item
		var id int64
		var row letterRow
		into := []any{&i.Job, &i.Seq, &id, &i.State, &i.Error, &i.ReplayCount, &i.Copy.Topic, &i.Copy.Partition, &i.Copy.Offset, (*moment)(&i.At)}
		if err := scan(append(into, row.into()...)...); err != nil {
			return err
		}
		i.Letter = deadletter.Letter{ID: id}
		if row.id.Valid {
			i.Letter = row.letter()
		}
		out = append(out, i)
		return nil
	})
	return out, err
}

// Items implements deadletter.Jobs.
func (l *Ledger) Items(ctx context.Context, job string, from int64, limit int, states ...deadletter.ItemState) ([]deadletter.Item, error) {
	q := dialect.New(job, from)
	if len(states) > 0 {
		names := make([]string, len(states))
		for i, s := range states {
			names[i] = string(s)
		}
		q.And(dialect.AnyOf("items.state", q.Arg(list(names))))
	}
	found, err := items(ctx, l.read, itemTables+` WHERE items.job = ?1 AND items.seq >= ?2 AND `+q.Where()+` ORDER BY items.seq LIMIT `+q.Arg(limit), q.Args()...)
	return found, l.failed("read the items of a job", err)
}

// History implements deadletter.Catalogue.
func (l *Ledger) History(ctx context.Context, letter int64) ([]deadletter.Item, error) {
	found, err := items(ctx, l.read, itemTables+` JOIN jobs ON jobs.id = items.job WHERE items.letter = ?1 ORDER BY jobs.no, items.seq`, letter)
	return found, l.failed("read the history of a letter", err)
}

// StoppedKeys implements deadletter.Jobs.
func (l *Ledger) StoppedKeys(ctx context.Context, job string) ([]deadletter.StoppedKey, error) {
	out := []deadletter.StoppedKey{}
	err := each(ctx, l.read, `SELECT DISTINCT origin, record_key FROM items JOIN letters ON letters.id = items.letter
WHERE items.job = ?1 AND items.state = 'failed' AND record_key IS NOT NULL`, []any{job}, func(scan func(...any) error) error {
		var k deadletter.StoppedKey
		var key blob
		if err := scan(&k.Origin, &key); err != nil {
			return err
		}
		k.Key = key
		out = append(out, k)
		return nil
	})
	return out, l.failed("read the stopped keys of a job", err)
}

// Skip implements deadletter.Jobs.
func (l *Ledger) Skip(ctx context.Context, id string, fence idempotency.Fence, errors map[int64]string) error {
	return l.change(ctx, "skip items of a job", func(tx *change) error {
		if _, err := tx.running(id, fence); err != nil {
			return err
		}
		tally := counters{}
		for seq, why := range errors {
			decided, err := tx.decide(id, seq, deadletter.ItemSkipped, why, 0, deadletter.Target{Offset: -1})
			if err != nil {
				return err
			}
			if decided {
				tally.add(id, deadletter.ItemSkipped, "")
			}
		}
		return tx.count(tally)
	})
}

// running makes sure that a runner holds a job by that fence and that the job was not stopped.
func (c *change) running(id string, fence idempotency.Fence) (deadletter.Job, error) {
	j, err := c.under(id, fence)
	if err == nil && j.State != deadletter.JobRunning {
		err = fmt.Errorf("job %s is %s: %w", id, j.State, deadletter.ErrFenced)
	}
	return j, err
}

// decide writes what became of an item, if that is open.
func (c *change) decide(job string, seq int64, state deadletter.ItemState, why string, count int, at deadletter.Target) (bool, error) {
	changed, err := c.exec(`UPDATE items SET state = ?1, error = ?2, replay_count = ?3, copy_topic = ?4, copy_partition = ?5, copy_offset = ?6, at = ?7
WHERE job = ?8 AND seq = ?9 AND state = 'open'`, string(state), why, count, at.Topic, at.Partition, at.Offset, c.micros(), job, seq)
	return changed == 1, err
}

// counters are what was decided in a transaction, by job.
type counters map[string]*tally

// tally is how many items of a job were decided, and the error of the first that failed.
type tally struct {
	done, failed, skipped int64
	firstError            string
}

func (t counters) add(job string, state deadletter.ItemState, why string) {
	if t[job] == nil {
		t[job] = &tally{}
	}
	switch of := t[job]; state {
	case deadletter.ItemDone:
		of.done++
	case deadletter.ItemSkipped:
		of.skipped++
	case deadletter.ItemFailed:
		if of.failed == 0 {
			of.firstError = why
		}
		of.failed++
	case deadletter.ItemOpen:
	}
}

// count adds them to those of the jobs.
func (c *change) count(t counters) error {
	for job, of := range t {
		if _, err := c.exec(`UPDATE jobs SET first_error = iif(failed = 0, ?1, first_error), done = done + ?2, failed = failed + ?3, skipped = skipped + ?4 WHERE id = ?5`,
			of.firstError, of.done, of.failed, of.skipped, job); err != nil {
			return err
		}
	}
	return nil
}
