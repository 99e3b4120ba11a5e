package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
)

// jobColumns are what scanJob reads.
const jobColumns = `id, actor, reason, source, coalesce(request, ''), rate, destination, force, edit, reply, state, created_at, started_at,
	ended_at, replied_at, total, done, failed, skipped, first_error, owner, fence_epoch, fence_n, until`

func scanJob(row pgx.CollectableRow) (j deadletter.Job, err error) {
	var (
		state                             string
		edit, reply                       []byte
		started, ended, replied, leasedTo *time.Time
	)
	err = row.Scan(&j.ID, &j.Spec.Actor, &j.Spec.Reason, &j.Spec.Source, &j.Spec.Request, &j.Spec.Rate, &j.Spec.Destination, &j.Spec.Force,
		&edit, &reply, &state, &j.CreatedAt, &started, &ended, &replied, &j.Total, &j.Done, &j.Failed, &j.Skipped, &j.FirstError,
		&j.Owner, &j.Fence.Epoch, &j.Fence.N, &leasedTo)
	if err != nil {
		return j, err
	}
	j.State, j.CreatedAt = deadletter.JobState(state), j.CreatedAt.UTC()
	j.StartedAt, j.EndedAt, j.RepliedAt, j.Until = instant(started), instant(ended), instant(replied), instant(leasedTo)
	if edit != nil {
		if err := json.Unmarshal(edit, &j.Spec.Edit); err != nil {
			return j, fmt.Errorf("read the edit of job %s: %w", j.ID, err)
		}
	}
	if reply != nil {
		if err := json.Unmarshal(reply, &j.Spec.Reply); err != nil {
			return j, fmt.Errorf("read the reply of job %s: %w", j.ID, err)
		}
	}
	return j, nil
}

// oneJob runs a statement that gives jobColumns of one job, or none.
func oneJob(ctx context.Context, on querier, sql string, args ...any) (job deadletter.Job, found bool, err error) {
	rows, err := on.Query(ctx, sql, args...)
	if err != nil {
		return deadletter.Job{}, false, err
	}
	job, err = pgx.CollectExactlyOneRow(rows, scanJob)
	if errors.Is(err, pgx.ErrNoRows) {
		return deadletter.Job{}, false, nil
	}
	return job, err == nil, err
}

// jsonOrNull is a value as JSON; nil stays NULL.
func jsonOrNull[T any](value *T) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	return json.Marshal(value)
}

// CreateJob freezes what a filter selects, in ReplayOrder, as the items of a job that is queued, with its audit row.
func (l *Ledger) CreateJob(ctx context.Context, spec deadletter.JobSpec, filter deadletter.Filter) (job deadletter.Job, created bool, err error) {
	const act = "create a job"
	edit, err := jsonOrNull(spec.Edit)
	if err != nil {
		return deadletter.Job{}, false, wrap(act, err)
	}
	reply, err := jsonOrNull(spec.Reply)
	if err != nil {
		return deadletter.Job{}, false, wrap(act, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return deadletter.Job{}, false, wrap(act, err)
	}
	q := selection(filter, id.String())
	err = l.transact(ctx, act, func(ctx context.Context, tx pgx.Tx) error {
		// Who asks at the same time waits here, and finds the job of the first.
		added, err := tx.Exec(ctx, `INSERT INTO jobs (id, actor, reason, source, request, rate, destination, force, edit, reply, state)
			VALUES ($1, $2, $3, $4, nullif($5, ''), $6, $7, $8, $9, $10, 'queued') ON CONFLICT (request) DO NOTHING`,
			id.String(), storable(spec.Actor), storable(spec.Reason), storable(spec.Source), storable(spec.Request), spec.Rate, storable(spec.Destination),
			spec.Force, edit, reply)
		if err != nil {
			return err
		}
		if created = added.RowsAffected() == 1; !created {
			var found bool
			job, found, err = oneJob(ctx, tx, "SELECT "+jobColumns+" FROM jobs WHERE request = $1", storable(spec.Request))
			if err == nil && !found {
				err = errAgain
			}
			return err
		}
		frozen, err := tx.Exec(ctx, "INSERT INTO items (job, seq, letter) SELECT $1, row_number() OVER (ORDER BY "+
			sqlquery.OrderBy(deadletter.ReplayOrder)+"), id FROM letters WHERE "+q.Where(), withPlan(q.Args())...)
		if err != nil {
			return fmt.Errorf("freeze the letters: %w", err)
		}
		job, _, err = oneJob(ctx, tx, `UPDATE jobs SET total = $2::bigint, state = CASE WHEN $2::bigint = 0 THEN 'done' ELSE state END,
			ended_at = CASE WHEN $2::bigint = 0 THEN clock_timestamp() END WHERE id = $1 RETURNING `+jobColumns, id.String(), frozen.RowsAffected())
		if err != nil {
			return err
		}
		return record(ctx, tx, deadletter.Entry{
			Actor: spec.Actor, Action: "replay", Reason: spec.Reason, Object: job.ID, Count: job.Total, Detail: sqlquery.Text(filter),
		})
	})
	if err != nil {
		return deadletter.Job{}, false, err
	}
	return job, created, nil
}

// Job is the job of that id, or ErrUnknown.
func (l *Ledger) Job(ctx context.Context, id string) (deadletter.Job, error) {
	ctx, done := l.call(ctx)
	defer done()
	job, err := knownJob(ctx, l.pool, id)
	return job, wrap("read job "+id, err)
}

// knownJob is the job of that id, or ErrUnknown.
func knownJob(ctx context.Context, on querier, id string) (deadletter.Job, error) {
	job, found, err := oneJob(ctx, on, "SELECT "+jobColumns+" FROM jobs WHERE id = $1", storable(id))
	if err == nil && !found {
		err = deadletter.ErrUnknown
	}
	return job, err
}

// JobByRequest is the job with that Spec.Request, or ErrUnknown.
func (l *Ledger) JobByRequest(ctx context.Context, request string) (deadletter.Job, error) {
	ctx, done := l.call(ctx)
	defer done()
	job, found, err := oneJob(ctx, l.pool, "SELECT "+jobColumns+" FROM jobs WHERE request = $1", storable(request))
	if err == nil && !found {
		err = deadletter.ErrUnknown
	}
	return job, wrap("read the job of a request", err)
}

// Jobs are all jobs, newest first, after the id of another.
func (l *Ledger) Jobs(ctx context.Context, after string, limit int) ([]deadletter.Job, error) {
	jobs, err := l.jobs(ctx, "SELECT "+jobColumns+" FROM jobs WHERE $1 = '' OR id < $1 ORDER BY id DESC LIMIT $2", storable(after), max(limit, 0))
	return jobs, wrap("list jobs", err)
}

// Unreplied are ended jobs with a Reply that has not been sent.
func (l *Ledger) Unreplied(ctx context.Context, limit int) ([]deadletter.Job, error) {
	jobs, err := l.jobs(ctx, "SELECT "+jobColumns+` FROM jobs WHERE reply IS NOT NULL AND replied_at IS NULL AND state IN ('done', 'cancelled')
		ORDER BY id LIMIT $1`, max(limit, 0))
	return jobs, wrap("list the jobs to reply to", err)
}

// Replied notes that the reply was sent.
func (l *Ledger) Replied(ctx context.Context, id string) error {
	return l.transact(ctx, "note the reply of job "+id, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "UPDATE jobs SET replied_at = coalesce(replied_at, clock_timestamp()) WHERE id = $1", storable(id))
		if err == nil && tag.RowsAffected() == 0 {
			err = deadletter.ErrUnknown
		}
		return err
	})
}

func (l *Ledger) jobs(ctx context.Context, sql string, args ...any) ([]deadletter.Job, error) {
	ctx, done := l.call(ctx)
	defer done()
	rows, err := l.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanJob)
}

// itemColumns are what items reads.
const itemColumns = "job, seq, letter, state, error, replay_count, copy_topic, copy_partition, copy_offset, at"

// Items are the items of a job from a seq on, of the states given or, with none, of all.
func (l *Ledger) Items(ctx context.Context, job string, from int64, limit int, states ...deadletter.ItemState) (items []deadletter.Item, err error) {
	q := dialect.New(storable(job), from, max(limit, 0))
	q.And("job = $1 AND seq >= $2")
	if len(states) > 0 {
		names := make([]string, len(states))
		for i, state := range states {
			names[i] = string(state)
		}
		q.And("state = ANY(" + q.Arg(names) + ")")
	}
	err = l.transact(ctx, "read the items of job "+job, func(ctx context.Context, tx pgx.Tx) (err error) {
		if err := inOrder(ctx, tx); err != nil {
			return err
		}
		items, err = l.items(ctx, tx, "SELECT "+itemColumns+" FROM items WHERE "+q.Where()+" ORDER BY seq LIMIT $3", q.Args()...)
		return err
	})
	return items, err
}

// items runs a statement that selects itemColumns, and adds the letters as they are now. Of one that was purged only the id is
// left.
func (l *Ledger) items(ctx context.Context, on querier, sql string, args ...any) ([]deadletter.Item, error) {
	rows, err := on.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (i deadletter.Item, err error) {
		var state string
		err = row.Scan(&i.Job, &i.Seq, &i.Letter.ID, &state, &i.Error, &i.ReplayCount, &i.Copy.Topic, &i.Copy.Partition, &i.Copy.Offset, &i.At)
		i.State, i.At = deadletter.ItemState(state), i.At.UTC()
		return i, err
	})
	if err != nil || len(items) == 0 {
		return items, err
	}
	ids := make([]*int64, len(items))
	for i := range items {
		ids[i] = &items[i].Letter.ID
	}
	letters, err := l.byID(ctx, on, ids)
	if err != nil {
		return nil, err
	}
	for i := range items {
		if letter, ok := letters[items[i].Letter.ID]; ok {
			items[i].Letter = letter
		}
	}
	return items, nil
}

// StoppedKeys are the keys, and origins, of the failed items of a job.
func (l *Ledger) StoppedKeys(ctx context.Context, job string) ([]deadletter.StoppedKey, error) {
	ctx, done := l.call(ctx)
	defer done()
	rows, err := l.pool.Query(ctx, `SELECT DISTINCT l.origin, l.record_key FROM items i JOIN letters l ON l.id = i.letter
		WHERE i.job = $1 AND i.state = 'failed' AND l.record_key IS NOT NULL`, storable(job))
	if err != nil {
		return nil, wrap("read the stopped keys of job "+job, err)
	}
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k deadletter.StoppedKey, err error) {
		err = row.Scan(&k.Origin, &k.Key)
		return k, err
	})
	return keys, wrap("read the stopped keys of job "+job, err)
}

// ControlJob changes the state, or the rate, of a job on behalf of an operator, with its audit row.
func (l *Ledger) ControlJob(ctx context.Context, id string, change deadletter.Change) (job deadletter.Job, err error) {
	err = l.transact(ctx, fmt.Sprintf("%s job %s", change.Action, id), func(ctx context.Context, tx pgx.Tx) error {
		var found bool
		if job, found, err = oneJob(ctx, tx, "SELECT "+jobColumns+" FROM jobs WHERE id = $1 FOR UPDATE", storable(id)); err != nil {
			return err
		}
		if !found {
			return deadletter.ErrUnknown
		}
		to, rate := job.State, job.Spec.Rate
		switch change.Action {
		case deadletter.PauseJob:
			to = deadletter.JobPaused
		case deadletter.ResumeJob:
			to = deadletter.JobQueued
		case deadletter.CancelJob:
			to = deadletter.JobCancelled
		case deadletter.RateJob:
			rate = change.Rate
		default:
			return fmt.Errorf("%q is no change of a job", change.Action)
		}
		if !allowed(change.Action, job.State) {
			return fmt.Errorf("%w: the job is %s", deadletter.ErrState, job.State)
		}
		job, _, err = oneJob(ctx, tx, `UPDATE jobs SET state = $2, rate = $3,
			ended_at = CASE WHEN $2 = 'cancelled' THEN clock_timestamp() WHEN $2 = 'queued' THEN NULL ELSE ended_at END
			WHERE id = $1 RETURNING `+jobColumns, job.ID, string(to), rate)
		if err != nil {
			return err
		}
		entry := deadletter.Entry{Actor: change.Actor, Action: change.Action, Reason: change.Reason, Object: job.ID, Count: job.Left()}
		if change.Action == deadletter.RateJob {
			entry.Detail = fmt.Sprintf("%g letters a second", change.Rate)
		}
		return record(ctx, tx, entry)
	})
	if err != nil {
		return deadletter.Job{}, err
	}
	return job, nil
}

// allowed tells whether a job in that state may be changed so.
func allowed(action string, state deadletter.JobState) bool {
	switch action {
	case deadletter.PauseJob:
		return state == deadletter.JobQueued || state == deadletter.JobRunning
	case deadletter.ResumeJob:
		return state == deadletter.JobPaused || state == deadletter.JobCancelled
	default: // cancel, rate
		return !state.Ended()
	}
}
