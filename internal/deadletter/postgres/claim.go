package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// claimGrant looks at the letters, claims what may be claimed and has not changed meanwhile, and tells of each what it was before,
// and how many might have been claimed. A letter that is taken over by its own job keeps its replay count and whether it came back;
// any other gets the next count of its message, and several of one message get several.
//
// What is looked up for each letter is a scalar subquery, which can be nothing but a step into an index: as joins they become
// hash joins over all items of the job when the statistics are old. The highest count is looked up once for each message, however
// many letters share its name. The update goes by id.
var claimGrant = movedAfter(`seen AS MATERIALIZED (
		SELECT l.id, l.message_id, l.state AS was, l.state = 'claimed' AND l.job = j.id AS same, j.owner AS next_owner, j.until AS next_until,
			w.target_topic AS next_topic, w.target_partition AS next_partition, w.target_offset AS next_offset,
			l.job, l.owner, l.fence_epoch, l.fence_n, l.claim_until, l.claim_count, l.target_topic, l.target_partition, l.target_offset,
			(
				l.state = 'dead' OR (l.state = 'claimed' AND l.claim_until <= clock_timestamp())
				OR (j.force AND l.state IN ('replayed', 'succeeded', 'returned', 'discarded'))
			) AND coalesce((SELECT i.state FROM items i WHERE i.job = $1 AND i.seq = w.seq AND i.letter = w.letter), '') = 'open' AS able
		FROM jobs j
		CROSS JOIN unnest($4::bigint[], $5::bigint[], $6::text[], $7::integer[], $8::bigint[]) AS w(seq, letter, target_topic, target_partition, target_offset)
		JOIN letters l ON l.id = w.letter
		WHERE j.id = $1 AND j.fence_epoch = $2 AND j.fence_n = $3 AND j.state = 'running'
	), numbered AS MATERIALIZED (
		SELECT *, row_number() OVER (PARTITION BY message_id, same ORDER BY id) AS place, row_number() OVER (PARTITION BY message_id ORDER BY id) AS nth
		FROM seen WHERE able
	), granted AS MATERIALIZED (
		SELECT *, least(2147483647, place + max(CASE WHEN nth = 1 THEN (
			SELECT max(greatest(m.replay_count, m.claim_count)) FROM letters m WHERE m.message_id = numbered.message_id
		) END) OVER (PARTITION BY message_id)) AS next FROM numbered ORDER BY id
	)`,
	`UPDATE letters l SET state = 'claimed', state_at = clock_timestamp(), note = '', owner = g.next_owner, job = $1,
		fence_epoch = (SELECT epoch FROM meta), fence_n = nextval('fences'), claim_until = g.next_until,
		claim_count = CASE WHEN g.same THEN l.claim_count ELSE g.next END, came_back = g.same AND l.came_back,
		target_topic = g.next_topic, target_partition = g.next_partition, target_offset = g.next_offset,
		copy_topic = NULL, copy_partition = NULL, copy_offset = NULL
		FROM granted g WHERE l.id = g.id AND l.state = g.was AND l.fence_n IS NOT DISTINCT FROM g.fence_n
			AND l.claim_until IS NOT DISTINCT FROM g.claim_until AND l.claim_count = g.claim_count
		RETURNING l.id, l.topic, l.origin, g.was, l.state, l.owner, l.fence_epoch, l.fence_n, l.claim_until, l.claim_count,
			g.job AS old_job, g.owner AS old_owner, g.fence_epoch AS old_epoch, g.fence_n AS old_n, g.claim_until AS old_until,
			g.claim_count AS old_count, g.target_topic AS old_topic, g.target_partition AS old_partition, g.target_offset AS old_offset`,
	`SELECT true AS granted, id, was, owner, fence_epoch, fence_n, claim_until, claim_count,
		coalesce(old_job, ''), coalesce(old_owner, ''), coalesce(old_epoch, 0), coalesce(old_n, 0), old_until, old_count,
		coalesce(old_topic, ''), coalesce(old_partition, 0), coalesce(old_offset, -1) FROM moved
	UNION ALL
	SELECT false, id, was, '', 0, 0, claim_until, 0, '', '', 0, 0, NULL, 0, '', 0, -1 FROM seen WHERE NOT able
	UNION ALL
	SELECT false, -1, '', '', (SELECT count(*) FROM granted), 0, NULL, 0, '', '', 0, 0, NULL, 0, '', 0, -1`)

// claimGuard comes last, so that the row of the job is locked for a moment only, and after those of the letters as everywhere.
const claimGuard = "SELECT id FROM jobs WHERE id = $1 AND fence_epoch = $2 AND fence_n = $3 AND state = 'running' FOR SHARE"

// Claim claims letters for a job, in one transaction that is guarded by the fence of the job and by its being run (ErrFenced).
// An item that is not open is refused with the state of its letter; one of a letter that is gone, with none.
func (l *Ledger) Claim(ctx context.Context, job string, fence idempotency.Fence, wants []deadletter.Want) ([]deadletter.ClaimResult, error) {
	n := len(wants)
	seqs, letters, offsets := make([]int64, n), make([]int64, n), make([]int64, n)
	topics, partitions := make([]string, n), make([]int32, n)
	for i, w := range wants {
		seqs[i], letters[i] = w.Seq, w.Letter
		topics[i], partitions[i], offsets[i] = storable(w.Target.Topic), w.Target.Partition, w.Target.Offset
	}
	var seen map[int64]claimSeen
	err := l.transact(ctx, "claim letters for job "+job, func(ctx context.Context, tx pgx.Tx) (err error) {
		batch := &pgx.Batch{}
		batch.Queue(claimGrant, storable(job), fence.Epoch, fence.N, seqs, letters, topics, partitions, offsets)
		batch.Queue(claimGuard, storable(job), fence.Epoch, fence.N)
		results := tx.SendBatch(ctx, batch)
		defer func() { err = errors.Join(err, results.Close()) }()
		if seen, err = readSeen(results, job); err != nil {
			return err
		}
		var guard string
		if err := results.QueryRow().Scan(&guard); errors.Is(err, pgx.ErrNoRows) {
			return deadletter.ErrFenced
		} else if err != nil {
			return fmt.Errorf("check the job: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return claimResults(wants, seen), nil
}

// claimSeen is what a letter was, and its claim if it was granted.
type claimSeen struct {
	granted       bool
	was           deadletter.State
	claim, before deadletter.Claim
}

// readSeen reads what claimGrant answers. It is errAgain if a letter that might have been claimed was changed by another in this
// moment: what it is now must be looked at again.
func readSeen(results pgx.BatchResults, job string) (map[int64]claimSeen, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, fmt.Errorf("grant the claims: %w", err)
	}
	seen := map[int64]claimSeen{}
	var (
		s             claimSeen
		state         string
		until, before *time.Time
		c, b          = &s.claim, &s.before
		able, granted int64
	)
	_, err = pgx.ForEachRow(rows, []any{
		&s.granted, &c.Letter, &state, &c.Owner, &c.Fence.Epoch, &c.Fence.N, &until, &c.ReplayCount,
		&b.Job, &b.Owner, &b.Fence.Epoch, &b.Fence.N, &before, &b.ReplayCount, &b.Target.Topic, &b.Target.Partition, &b.Target.Offset,
	}, func() error {
		if c.Letter < 0 {
			able = c.Fence.Epoch
			return nil
		}
		if s.granted {
			granted++
		}
		s.was, c.Job, b.Letter = deadletter.State(state), job, c.Letter
		c.Until, b.Until = instant(until), instant(before)
		seen[c.Letter] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("grant the claims: %w", err)
	}
	if granted != able {
		return nil, errAgain
	}
	return seen, nil
}

func claimResults(wants []deadletter.Want, seen map[int64]claimSeen) []deadletter.ClaimResult {
	out := make([]deadletter.ClaimResult, len(wants))
	for i, w := range wants {
		out[i].Want = w
		s := seen[w.Letter]
		if !s.granted {
			out[i].Refused = s.was
			if s.was == deadletter.Claimed {
				out[i].Until = s.claim.Until
			}
			continue
		}
		s.claim.Target = w.Target
		out[i].Granted = &s.claim
		if s.was == deadletter.Claimed {
			out[i].Before = &s.before
		}
		// A letter that is wanted twice is granted once.
		seen[w.Letter] = claimSeen{was: deadletter.Claimed, claim: s.claim}
	}
	return out
}

// finishLetters writes what became of letters whose claim is the current one. Claim and copy stay with what was replayed. A claim that
// is given back has replayed nothing, and the next one counts as it did. The state is hidden from the planner, which might look for all that is claimed in an index otherwise: few letters are, but until the
// next vacuum it has an entry for each that has been.
var finishLetters = movedAfter(`outcome AS MATERIALIZED (
		SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[],
			$9::text[], $10::integer[], $11::bigint[], $12::integer[])
			AS o(letter, fence_epoch, fence_n, job, seq, state, item, error, copy_topic, copy_partition, copy_offset, replay_count)
	), finished AS (
		UPDATE letters l SET state_at = clock_timestamp(), note = CASE WHEN o.state = 'expired' THEN o.error ELSE '' END,
			state = CASE WHEN o.state = 'replayed' AND l.came_back THEN 'returned' ELSE o.state END,
			copy_topic = CASE WHEN o.copied THEN o.copy_topic END, copy_partition = CASE WHEN o.copied THEN o.copy_partition END,
			copy_offset = CASE WHEN o.copied THEN o.copy_offset END,
			owner = CASE WHEN o.copied THEN l.owner END, job = CASE WHEN o.copied THEN l.job END,
			fence_epoch = CASE WHEN o.copied THEN l.fence_epoch END, fence_n = CASE WHEN o.copied THEN l.fence_n END,
			claim_until = CASE WHEN o.copied THEN l.claim_until END, target_topic = CASE WHEN o.copied THEN l.target_topic END,
			target_partition = CASE WHEN o.copied THEN l.target_partition END, target_offset = CASE WHEN o.copied THEN l.target_offset END,
			claim_count = l.claim_count - CASE WHEN o.item = 'open' AND NOT o.copied THEN 1 ELSE 0 END,
			came_back = o.copied AND l.came_back
		FROM (SELECT *, state = 'replayed' AS copied FROM outcome) AS o
		WHERE l.id = o.letter AND coalesce(l.state, '') = 'claimed' AND l.fence_epoch = o.fence_epoch AND l.fence_n = o.fence_n AND l.job = o.job
		RETURNING l.id, l.topic, l.origin, l.state, o.fence_epoch, o.fence_n, o.job, o.seq, o.item, o.error, o.copied,
			o.copy_topic, o.copy_partition, o.copy_offset, o.replay_count
	), decided AS (
		UPDATE items i SET state = f.item, error = f.error, at = clock_timestamp(),
			replay_count = CASE WHEN f.copied THEN f.replay_count ELSE 0 END, copy_topic = CASE WHEN f.copied THEN f.copy_topic ELSE '' END,
			copy_partition = CASE WHEN f.copied THEN f.copy_partition ELSE 0 END, copy_offset = CASE WHEN f.copied THEN f.copy_offset ELSE -1 END
		FROM finished f WHERE i.job = f.job AND i.seq = f.seq AND i.letter = f.id AND i.state = 'open' AND f.item <> 'open'
		RETURNING i.job, i.seq, i.state, i.error
	), counted AS (
		UPDATE jobs j SET done = j.done + d.done, failed = j.failed + d.failed, skipped = j.skipped + d.skipped,
			first_error = CASE WHEN j.first_error = '' THEN coalesce(d.first_error, '') ELSE j.first_error END
		FROM (
			SELECT job, count(*) FILTER (WHERE state = 'done') AS done, count(*) FILTER (WHERE state = 'failed') AS failed,
				count(*) FILTER (WHERE state = 'skipped') AS skipped,
				(array_agg(error ORDER BY seq) FILTER (WHERE state = 'failed'))[1] AS first_error
			FROM decided GROUP BY job
		) AS d WHERE j.id = d.job
	)`,
	"SELECT id, topic, origin, 'claimed' AS was, state, fence_epoch, fence_n FROM finished",
	"SELECT id, fence_epoch, fence_n FROM moved")

// Finish writes outcomes and the counters of their jobs in one transaction. Those whose claim is not the current one any more are
// left out and returned as fenced.
func (l *Ledger) Finish(ctx context.Context, outcomes []deadletter.Outcome) (fenced []deadletter.Outcome, err error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	given := newFinishing(outcomes)
	type claim struct {
		letter int64
		fence  idempotency.Fence
	}
	var current map[claim]bool
	err = l.transact(ctx, "finish letters", func(ctx context.Context, tx pgx.Tx) error {
		current = make(map[claim]bool, len(outcomes))
		rows, err := tx.Query(ctx, finishLetters, given.letters, given.epochs, given.ns, given.jobs, given.seqs, given.states, given.items, given.errors,
			given.topics, given.partitions, given.offsets, given.counts)
		if err != nil {
			return err
		}
		var c claim
		_, err = pgx.ForEachRow(rows, []any{&c.letter, &c.fence.Epoch, &c.fence.N}, func() error {
			current[c] = true
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if slices.Contains(given.states, string(deadletter.Dead)) {
		l.forgetExpired()
	}
	for _, o := range outcomes {
		if !current[claim{o.Claim.Letter, o.Claim.Fence}] {
			fenced = append(fenced, o)
		}
	}
	return fenced, nil
}

// finishing is outcomes by columns.
type finishing struct {
	letters, epochs, ns, seqs, offsets  []int64
	jobs, states, items, errors, topics []string
	partitions, counts                  []int32
}

// newFinishing sorts them by letter, so that the rows are locked in that order.
func newFinishing(outcomes []deadletter.Outcome) finishing {
	var f finishing
	byLetter := func(a, b deadletter.Outcome) int { return cmp.Compare(a.Claim.Letter, b.Claim.Letter) }
	for _, o := range slices.SortedStableFunc(slices.Values(outcomes), byLetter) {
		state, item, text := deadletter.Dead, deadletter.ItemOpen, ""
		if o.Expired {
			state = deadletter.Expired
		}
		switch {
		case o.Copy.Offset >= 0 && o.Copy.Topic != "": // The zero Target is no copy.
			state, item = deadletter.Replayed, deadletter.ItemDone
		case o.Error != "":
			item, text = deadletter.ItemFailed, o.Error
		case o.Skip != "":
			item, text = deadletter.ItemSkipped, o.Skip
		}
		f.letters, f.seqs = append(f.letters, o.Claim.Letter), append(f.seqs, o.Seq)
		f.epochs, f.ns = append(f.epochs, o.Claim.Fence.Epoch), append(f.ns, o.Claim.Fence.N)
		f.jobs, f.states, f.items = append(f.jobs, storable(o.Claim.Job)), append(f.states, string(state)), append(f.items, string(item))
		f.errors, f.topics = append(f.errors, storable(text)), append(f.topics, storable(o.Copy.Topic))
		f.partitions, f.offsets = append(f.partitions, o.Copy.Partition), append(f.offsets, o.Copy.Offset)
		f.counts = append(f.counts, int32(o.Claim.ReplayCount))
	}
	return f
}

// Skip makes open items of a job skipped, guarded by the fence of the job (ErrFenced). Errors are by seq.
func (l *Ledger) Skip(ctx context.Context, job string, fence idempotency.Fence, why map[int64]string) error {
	seqs, texts := make([]int64, 0, len(why)), make([]string, 0, len(why))
	for seq, text := range why {
		seqs, texts = append(seqs, seq), append(texts, storable(text))
	}
	return l.transact(ctx, "skip items of job "+job, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `WITH skipped AS (
				UPDATE items i SET state = 'skipped', error = s.error, at = clock_timestamp()
				FROM unnest($4::bigint[], $5::text[]) AS s(seq, error) WHERE i.job = $1 AND i.seq = s.seq AND i.state = 'open' RETURNING 1
			) UPDATE jobs SET skipped = skipped + (SELECT count(*) FROM skipped) WHERE id = $1 AND fence_epoch = $2 AND fence_n = $3`,
			storable(job), fence.Epoch, fence.N, seqs, texts)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		return refusal(ctx, tx, job, fence)
	})
}
