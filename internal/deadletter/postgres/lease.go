package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// LeaseJob takes over the oldest job that is queued, or running with a lease that has run out; nil if there is none, or if
// another connection is at it in this moment.
func (l *Ledger) LeaseJob(ctx context.Context, owner string, lease time.Duration) (*deadletter.Job, error) {
	var job deadletter.Job
	var found bool
	err := l.transact(ctx, "lease a job", func(ctx context.Context, tx pgx.Tx) (err error) {
		job, found, err = oneJob(ctx, tx, `UPDATE jobs SET state = 'running', owner = $1, fence_epoch = (SELECT epoch FROM meta),
			fence_n = nextval('fences'), until = clock_timestamp() + $2 * interval '1 microsecond',
			started_at = coalesce(started_at, clock_timestamp())
			WHERE id = (
				SELECT id FROM jobs WHERE state = 'queued' OR (state = 'running' AND until <= clock_timestamp())
				ORDER BY created_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
			) RETURNING `+jobColumns, storable(owner), lease.Microseconds())
		return err
	})
	if err != nil || !found {
		return nil, err
	}
	return &job, nil
}

// RenewJob renews the lease of a job, and of all letters claimed under it, and returns the job as it is now. It is ErrFenced if
// the fence is not the current one. A job that is not running any more is returned, and its lease ends.
func (l *Ledger) RenewJob(ctx context.Context, id string, fence idempotency.Fence, lease time.Duration) (job deadletter.Job, err error) {
	err = l.transact(ctx, "renew the lease of job "+id, func(ctx context.Context, tx pgx.Tx) error {
		if job, err = knownJob(ctx, tx, id); err != nil {
			return err
		}
		if job.Fence != fence {
			return deadletter.ErrFenced
		}
		if job.State != deadletter.JobRunning {
			var found bool
			job, found, err = oneJob(ctx, tx, `UPDATE jobs SET until = least(until, now()) WHERE id = $1 AND fence_epoch = $2 AND fence_n = $3
				AND state <> 'running' RETURNING `+jobColumns, job.ID, fence.Epoch, fence.N)
			if err == nil && !found {
				err = errAgain
			}
			return err
		}
		if err := inOrder(ctx, tx); err != nil {
			return err
		}
		// The time of the transaction is the same in both statements. Letters that were claimed under this lease have a later fence
		// than it has, those of a lease before an earlier one. They come first, as in Finish.
		_, err = tx.Exec(ctx, `WITH held AS MATERIALIZED (
				SELECT id FROM letters WHERE state = 'claimed' AND job = $1 AND fence_epoch = $2 AND fence_n > $3 ORDER BY id FOR UPDATE
			) UPDATE letters l SET claim_until = now() + $4 * interval '1 microsecond' FROM held
			WHERE l.id = held.id AND l.state = 'claimed' AND l.job = $1 AND l.fence_epoch = $2 AND l.fence_n > $3`,
			job.ID, fence.Epoch, fence.N, lease.Microseconds())
		if err != nil {
			return fmt.Errorf("renew the claims: %w", err)
		}
		var found bool
		job, found, err = oneJob(ctx, tx, `UPDATE jobs SET until = now() + $4 * interval '1 microsecond'
			WHERE id = $1 AND fence_epoch = $2 AND fence_n = $3 AND state = 'running' RETURNING `+jobColumns,
			job.ID, fence.Epoch, fence.N, lease.Microseconds())
		if err == nil && !found {
			err = errAgain // It was paused, or taken over, in this moment.
		}
		return err
	})
	if err != nil {
		return deadletter.Job{}, err
	}
	return job, nil
}

// EndJob makes a running job done if no item is open, guarded by its fence (ErrFenced), else ErrState.
func (l *Ledger) EndJob(ctx context.Context, id string, fence idempotency.Fence) (job deadletter.Job, err error) {
	err = l.transact(ctx, "end job "+id, func(ctx context.Context, tx pgx.Tx) error {
		var found bool
		job, found, err = oneJob(ctx, tx, `UPDATE jobs SET state = 'done', ended_at = clock_timestamp(), until = least(until, clock_timestamp())
			WHERE id = $1 AND fence_epoch = $2 AND fence_n = $3 AND state = 'running' AND total = done + failed + skipped
			RETURNING `+jobColumns, storable(id), fence.Epoch, fence.N)
		if err != nil || found {
			return err
		}
		return refusal(ctx, tx, id, fence)
	})
	if err != nil {
		return deadletter.Job{}, err
	}
	return job, nil
}

// LeaveJob gives the lease of a job back, so that another may lease it at once. The job stays as it is, and so do claims that
// are not finished.
func (l *Ledger) LeaveJob(ctx context.Context, id string, fence idempotency.Fence) error {
	return l.transact(ctx, "leave job "+id, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "UPDATE jobs SET until = least(until, clock_timestamp()) WHERE id = $1 AND fence_epoch = $2 AND fence_n = $3",
			storable(id), fence.Epoch, fence.N)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		return refusal(ctx, tx, id, fence)
	})
}

// refusal says why a change under a fence had no effect.
func refusal(ctx context.Context, tx pgx.Tx, id string, fence idempotency.Fence) error {
	job, err := knownJob(ctx, tx, id)
	switch {
	case err != nil:
		return err
	case job.Fence != fence:
		return deadletter.ErrFenced
	default:
		return fmt.Errorf("%w: the job is %s and has %d open items", deadletter.ErrState, job.State, job.Left())
	}
}
