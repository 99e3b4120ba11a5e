package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// jobColumns are what jobs reads.
const jobColumns = `id, coalesce(request, ''), actor, reason, source, rate, destination, forced, edit, reply_topic, reply_key, state,
created_at, started_at, ended_at, replied_at, total, done, failed, skipped, first_error, owner, fence_epoch, fence_n, until`

// jobs reads jobs. What follows WHERE may go on with an order and a limit.
func jobs(ctx context.Context, db querier, where string, args ...any) ([]deadletter.Job, error) {
	out := []deadletter.Job{}
	err := each(ctx, db, "SELECT "+jobColumns+" FROM jobs WHERE "+where, args, func(scan func(...any) error) error {
		var j deadletter.Job
		var edit, replyTopic sql.NullString
		var replyKey blob
		if err := scan(&j.ID, &j.Spec.Request, &j.Spec.Actor, &j.Spec.Reason, &j.Spec.Source, &j.Spec.Rate, &j.Spec.Destination, &j.Spec.Force, &edit, &replyTopic, &replyKey, &j.State,
			(*moment)(&j.CreatedAt), (*moment)(&j.StartedAt), (*moment)(&j.EndedAt), (*moment)(&j.RepliedAt), &j.Total, &j.Done, &j.Failed, &j.Skipped, &j.FirstError,
			&j.Owner, &j.Fence.Epoch, &j.Fence.N, (*moment)(&j.Until)); err != nil {
			return err
		}
		if edit.Valid {
			j.Spec.Edit = &deadletter.Edit{}
			if err := json.Unmarshal([]byte(edit.String), j.Spec.Edit); err != nil {
				return fmt.Errorf("the edit of job %s: %w", j.ID, err)
			}
		}
		if replyTopic.Valid {
			j.Spec.Reply = &deadletter.Reply{Topic: replyTopic.String, Key: replyKey}
		}
		out = append(out, j)
		return nil
	})
	return out, err
}

// job reads one.
func job(ctx context.Context, db querier, id string) (deadletter.Job, error) {
	found, err := jobs(ctx, db, "id = ?1", id)
	if err != nil {
		return deadletter.Job{}, err
	}
	if len(found) == 0 {
		return deadletter.Job{}, fmt.Errorf("job %q: %w", id, deadletter.ErrUnknown)
	}
	return found[0], nil
}

// under reads a job that a runner holds by that fence.
func (c *change) under(id string, fence idempotency.Fence) (deadletter.Job, error) {
	j, err := job(c.rows, c.tx, id)
	if err == nil && (j.Fence != fence || fence == idempotency.Fence{}) {
		err = fmt.Errorf("job %s: %w", id, deadletter.ErrFenced)
	}
	return j, err
}

// CreateJob implements deadletter.Jobs.
func (l *Ledger) CreateJob(ctx context.Context, spec deadletter.JobSpec, filter deadletter.Filter) (created deadletter.Job, isNew bool, err error) {
	var edit, replyTopic, request any
	var replyKey []byte
	if spec.Edit != nil {
		text, err := json.Marshal(spec.Edit)
		if err != nil {
			return deadletter.Job{}, false, fmt.Errorf("create a job: %w", err)
		}
		edit = string(text)
	}
	if spec.Reply != nil {
		replyTopic, replyKey = spec.Reply.Topic, spec.Reply.Key
	}
	if spec.Request != "" {
		request = spec.Request
	}
	id, err := uuid.NewV7()
	if err != nil {
		return deadletter.Job{}, false, fmt.Errorf("create a job: %w", err)
	}
	err = l.change(ctx, "create a job", func(tx *change) error {
		if request != nil {
			found, err := jobs(tx.rows, tx.tx, "request = ?1", request)
			if err != nil {
				return err
			}
			if len(found) > 0 {
				created, isNew = found[0], false
				return nil
			}
		}
		if _, err := tx.exec(`INSERT INTO jobs (id, request, actor, reason, source, rate, destination, forced, edit, reply_topic, reply_key, state, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)`,
			id.String(), request, spec.Actor, spec.Reason, spec.Source, spec.Rate, spec.Destination, spec.Force, edit, replyTopic, replyKey,
			string(deadletter.JobQueued), tx.micros()); err != nil {
			return err
		}
		q := dialect.New(id.String(), tx.micros())
		q.Filter(filter)
		total, err := tx.long(`INSERT INTO items (job, seq, letter, state, at) SELECT ?1, row_number() OVER (ORDER BY `+sqlquery.OrderBy(deadletter.ReplayOrder)+`), id, 'open', ?2
FROM letters WHERE `+q.Where(), q.Args()...)
		if err != nil {
			return err
		}
		// A job of no items has nothing to do.
		if _, err := tx.exec(`UPDATE jobs SET total = ?1, state = iif(?1 = 0, 'done', state), ended_at = iif(?1 = 0, created_at, NULL) WHERE id = ?2`, total, id.String()); err != nil {
			return err
		}
		if err := tx.record(deadletter.Entry{
			Actor: spec.Actor, Action: "replay", Reason: spec.Reason, Object: id.String(), Count: total, Detail: sqlquery.Text(filter),
		}); err != nil {
			return err
		}
		created, err = job(tx.rows, tx.tx, id.String())
		isNew = true
		return err
	})
	return created, isNew, err
}

// Job implements deadletter.Jobs.
func (l *Ledger) Job(ctx context.Context, id string) (deadletter.Job, error) {
	found, err := job(ctx, l.read, id)
	return found, l.failed("read a job", err)
}

// JobByRequest implements deadletter.Jobs.
func (l *Ledger) JobByRequest(ctx context.Context, request string) (deadletter.Job, error) {
	found, err := jobs(ctx, l.read, "request = ?1", request)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("job of request %q: %w", request, deadletter.ErrUnknown)
	}
	if err != nil {
		return deadletter.Job{}, l.failed("read a job", err)
	}
	return found[0], nil
}

// Jobs implements deadletter.Jobs.
func (l *Ledger) Jobs(ctx context.Context, after string, limit int) ([]deadletter.Job, error) {
	below := int64(math.MaxInt64)
	if after != "" {
		if err := l.read.QueryRowContext(ctx, `SELECT no FROM jobs WHERE id = ?1`, after).Scan(&below); err != nil {
			return nil, l.failed("list jobs", err)
		}
	}
	found, err := jobs(ctx, l.read, `no < ?1 ORDER BY no DESC LIMIT ?2`, below, limit)
	return found, l.failed("list jobs", err)
}

// moves are the changes of an operator: from which states, and to which. The rate changes no state.
var moves = map[string]struct {
	from []deadletter.JobState
	to   deadletter.JobState
}{
	deadletter.PauseJob:  {[]deadletter.JobState{deadletter.JobQueued, deadletter.JobRunning}, deadletter.JobPaused},
	deadletter.ResumeJob: {[]deadletter.JobState{deadletter.JobPaused, deadletter.JobCancelled}, deadletter.JobQueued},
	deadletter.CancelJob: {[]deadletter.JobState{deadletter.JobQueued, deadletter.JobRunning, deadletter.JobPaused}, deadletter.JobCancelled},
	deadletter.RateJob:   {[]deadletter.JobState{deadletter.JobQueued, deadletter.JobRunning, deadletter.JobPaused, deadletter.JobCancelled}, ""},
}

// ControlJob implements deadletter.Jobs.
func (l *Ledger) ControlJob(ctx context.Context, id string, wanted deadletter.Change) (changed deadletter.Job, err error) {
	move, known := moves[wanted.Action]
	if !known {
		return deadletter.Job{}, fmt.Errorf("change a job: there is no change %q", wanted.Action)
	}
	err = l.change(ctx, "change a job", func(tx *change) error {
		j, err := job(tx.rows, tx.tx, id)
		if err != nil {
			return err
		}
		if !slices.Contains(move.from, j.State) {
			return fmt.Errorf("%s of job %s, which is %s: %w", wanted.Action, id, j.State, deadletter.ErrState)
		}
		e := deadletter.Entry{Actor: wanted.Actor, Action: wanted.Action, Reason: wanted.Reason, Object: id, Count: j.Left()}
		if wanted.Action == deadletter.RateJob {
			e.Detail = fmt.Sprintf("from %g to %g letters a second", j.Spec.Rate, wanted.Rate)
			if _, err := tx.exec(`UPDATE jobs SET rate = ?1 WHERE id = ?2`, wanted.Rate, id); err != nil {
				return err
			}
		} else if _, err := tx.exec(`UPDATE jobs SET state = ?1, ended_at = ?2 WHERE id = ?3 AND state = ?4`,
			string(move.to), stamp(tx.endOf(move.to)), id, string(j.State)); err != nil {
			return err
		}
		if err := tx.record(e); err != nil {
			return err
		}
		changed, err = job(tx.rows, tx.tx, id)
		return err
	})
	return changed, err
}

// endOf is when a job ended that comes to that state now.
func (c *change) endOf(state deadletter.JobState) time.Time {
	if state.Ended() {
		return c.now
	}
	return time.Time{}
}

// free is a job that may be leased at ?1.
const free = `(state = 'queued' OR state = 'running' AND until <= ?1)`

// LeaseJob implements deadletter.Jobs.
func (l *Ledger) LeaseJob(ctx context.Context, owner string, lease time.Duration) (leased *deadletter.Job, err error) {
	// It is asked often and the answer is mostly no, for which nothing is written.
	var some bool
	err = l.read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM jobs WHERE state IN ('queued', 'running') AND `+free+`)`, time.Now().UnixMicro()).Scan(&some)
	if err != nil || !some {
		return nil, l.failed("look for a job", err)
	}
	err = l.change(ctx, "lease a job", func(tx *change) error {
		leased = nil
		var id string
		err := tx.get(`SELECT id FROM jobs WHERE state IN ('queued', 'running') AND `+free+` ORDER BY no LIMIT 1`, tx.micros())(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil // Another was faster.
		}
		if err != nil {
			return err
		}
		epoch, fence, err := tx.fences(1)
		if err != nil {
			return err
		}
		if _, err := tx.exec(`UPDATE jobs SET state = 'running', owner = ?2, fence_epoch = ?3, fence_n = ?4, until = ?5, started_at = coalesce(started_at, ?1)
WHERE id = ?6 AND `+free, tx.micros(), owner, epoch, fence, tx.until(lease), id); err != nil {
			return err
		}
		j, err := job(tx.rows, tx.tx, id)
		leased = &j
		return err
	})
	return leased, err
}

// until is when a lease ends that begins now.
func (c *change) until(lease time.Duration) int64 { return c.now.Add(lease).UnixMicro() }

// RenewJob implements deadletter.Jobs.
func (l *Ledger) RenewJob(ctx context.Context, id string, fence idempotency.Fence, lease time.Duration) (renewed deadletter.Job, err error) {
	err = l.change(ctx, "renew the lease of a job", func(tx *change) error {
		j, err := tx.under(id, fence)
		if err != nil {
			return err
		}
		if j.State != deadletter.JobRunning {
			if _, err := tx.exec(`UPDATE jobs SET until = min(until, ?1) WHERE id = ?2`, tx.micros(), id); err != nil {
				return err
			}
		} else {
			if _, err := tx.exec(`UPDATE jobs SET until = ?1 WHERE id = ?2`, tx.until(lease), id); err != nil {
				return err
			}
			// Claims under this lease have greater fences than the lease itself. Those of an earlier one, be it of the same owner,
			// must end: their holder does not know them any more.
			if _, err := tx.exec(`UPDATE letters SET claimed_until = ?1 WHERE state = 'claimed' AND job = ?2 AND (fence_epoch, fence_n) > (?3, ?4)`,
				tx.until(lease), id, fence.Epoch, fence.N); err != nil {
				return err
			}
		}
		renewed, err = job(tx.rows, tx.tx, id)
		return err
	})
	return renewed, err
}

// EndJob implements deadletter.Jobs.
func (l *Ledger) EndJob(ctx context.Context, id string, fence idempotency.Fence) (ended deadletter.Job, err error) {
	err = l.change(ctx, "end a job", func(tx *change) error {
		j, err := tx.under(id, fence)
		if err != nil {
			return err
		}
		if j.State != deadletter.JobRunning || j.Left() > 0 {
			return fmt.Errorf("job %s, which is %s and has %d items left: %w", id, j.State, j.Left(), deadletter.ErrState)
		}
		if _, err := tx.exec(`UPDATE jobs SET state = 'done', ended_at = ?1, until = ?1 WHERE id = ?2 AND state = 'running'`, tx.micros(), id); err != nil {
			return err
		}
		ended, err = job(tx.rows, tx.tx, id)
		return err
	})
	return ended, err
}

// LeaveJob implements deadletter.Jobs.
func (l *Ledger) LeaveJob(ctx context.Context, id string, fence idempotency.Fence) error {
	return l.change(ctx, "leave a job", func(tx *change) error {
		if _, err := tx.under(id, fence); err != nil {
			return err
		}
		// The claims keep their lease: what is with the client of this runner may still be sent.
		_, err := tx.exec(`UPDATE jobs SET until = min(until, ?1) WHERE id = ?2`, tx.micros(), id)
		return err
	})
}

// Unreplied implements deadletter.Jobs.
func (l *Ledger) Unreplied(ctx context.Context, limit int) ([]deadletter.Job, error) {
	found, err := jobs(ctx, l.read, `reply_topic IS NOT NULL AND replied_at IS NULL AND state IN ('done', 'cancelled') ORDER BY no LIMIT ?1`, limit)
	return found, l.failed("look for jobs to reply to", err)
}

// Replied implements deadletter.Jobs.
func (l *Ledger) Replied(ctx context.Context, id string) error {
	return l.change(ctx, "note a reply", func(tx *change) error {
		_, err := tx.exec(`UPDATE jobs SET replied_at = coalesce(replied_at, ?1) WHERE id = ?2`, tx.micros(), id)
		return err
	})
}
