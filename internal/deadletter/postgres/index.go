package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// Next is the next offset to index of a partition. One that the ledger does not know begins at start.
func (l *Ledger) Next(ctx context.Context, topicID deadletter.TopicID, name string, partition int32, start int64) (next int64, err error) {
	err = l.transact(ctx, "read the position", func(ctx context.Context, tx pgx.Tx) error {
		no, ok, err := l.numberOf(ctx, tx, topicID)
		if err != nil {
			return err
		}
		if !ok {
			// Not learned: it may be rolled back.
			if err := tx.QueryRow(ctx, `INSERT INTO topics (id, name) VALUES ($1, $2)
				ON CONFLICT (id) DO UPDATE SET name = topics.name RETURNING no`, topicID[:], storable(name)).Scan(&no); err != nil {
				return fmt.Errorf("add topic %s: %w", name, err)
			}
		}
		if _, err := tx.Exec(ctx, "INSERT INTO positions (topic, partition, next) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", no, partition, start); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT next FROM positions WHERE topic = $1 AND partition = $2", no, partition).Scan(&next)
	})
	return next, err
}

// Index writes a batch, whole or not at all. It is ErrMoved if the partition's next offset is not Expected, which is so too for
// a partition that Next was never asked for. If the connection breaks the outcome is unknown: Next tells it.
func (l *Ledger) Index(ctx context.Context, batch deadletter.Batch) error {
	if batch.Payloads != nil && len(batch.Payloads) != len(batch.Letters) {
		return fmt.Errorf("index %s/%d: %d letters have %d payloads", batch.Topic, batch.Partition, len(batch.Letters), len(batch.Payloads))
	}
	ctx, done := l.call(ctx)
	defer done()
	act := fmt.Sprintf("index %s/%d@%d", batch.Topic, batch.Partition, batch.Expected)
	no, ok, err := l.numberOf(ctx, l.pool, batch.TopicID)
	if err != nil {
		return wrap(act, err)
	}
	if !ok {
		return wrap(act, deadletter.ErrMoved)
	}
	// Before a connection is taken: others can use it meanwhile.
	var letters, payloads []byte
	if len(batch.Letters) > 0 {
		letters = letterRows(no, &batch)
	}
	if len(batch.Payloads) > 0 {
		payloads = payloadRows(no, &batch)
	}
	origins, counts := countOrigins(batch.Letters)
	back := returns(batch.Letters)
	return l.transact(ctx, act, func(ctx context.Context, tx pgx.Tx) error {
		var advanced int
		err := tx.QueryRow(ctx, `WITH advanced AS (
				UPDATE positions SET next = $4, lost = lost + $5 WHERE topic = $1 AND partition = $2 AND next = $3 RETURNING topic
			), tallied AS (
				INSERT INTO tallies (topic, origin, state, n)
				SELECT advanced.topic, o.origin, 'dead', o.n FROM advanced, unnest($6::text[], $7::bigint[]) AS o(origin, n)
			) SELECT count(*) FROM advanced`, no, batch.Partition, batch.Expected, batch.Next, batch.Lost, origins, counts).Scan(&advanced)
		if err != nil {
			return fmt.Errorf("advance the position: %w", err)
		}
		if advanced == 0 {
			return deadletter.ErrMoved
		}
		if err := copyIn(ctx, tx, copyLetters, letters); err != nil {
			return err
		}
		if err := copyIn(ctx, tx, copyPayloads, payloads); err != nil {
			return err
		}
		if len(back.messages) == 0 {
			return nil
		}
		return markReturned(ctx, tx, back)
	})
}

// copyIn writes rows into a table; nil is none.
func copyIn(ctx context.Context, tx pgx.Tx, into string, rows []byte) error {
	if rows == nil {
		return nil
	}
	_, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(rows), into)
	return wrap("copy the rows", err)
}

func countOrigins(letters []deadletter.Letter) (origins []string, counts []int64) {
	n := map[string]int64{}
	for i := range letters {
		n[letters[i].Origin]++
	}
	origins = slices.Collect(maps.Keys(n))
	for i, origin := range origins {
		counts = append(counts, n[origin])
		origins[i] = short(origin)
	}
	return origins, counts
}

// returned are the message ids of letters that came back from a replay, the jobs and the replay counts.
type returned struct {
	messages, jobs []string
	counts         []int32
}

// returns are those of the letters that came back. An edited copy is another message than the letter it was made of, whose id it
// has in its own.
func returns(letters []deadletter.Letter) (back returned) {
	for i := range letters {
		l := &letters[i]
		if l.ReplayID == "" {
			continue
		}
		message := l.MessageID
		if parent, edited := idempotency.ParentID(message, l.ReplayID); edited {
			message = parent
		}
		back.messages, back.jobs = append(back.messages, short(message)), append(back.jobs, short(l.ReplayID))
		back.counts = append(back.counts, int32(min(l.ReplayCount, math.MaxInt32)))
	}
	return back
}

// markReturned makes the letters returned that were replayed by these jobs; a count tells letters of one message and job apart,
// if the copy says it. One that is claimed still, because the consumer was faster than the replayer's mark, becomes so when it is
// marked: whoever comes second waits for the lock of the first and sees what that one has written. The state is hidden from the
// planner: it shall look for the message ids.
func markReturned(ctx context.Context, tx pgx.Tx, back returned) error {
	rows, err := tx.Query(ctx, `SELECT l.id FROM letters l
		JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::integer[]) AS b(message_id, job, count)) AS back
			ON l.message_id = back.message_id AND l.job = back.job AND (back.count = 0 OR l.claim_count = back.count)
		WHERE coalesce(l.state, '') IN ('claimed', 'replayed', 'succeeded') ORDER BY l.id FOR UPDATE OF l`, back.messages, back.jobs, back.counts)
	if err != nil {
		return fmt.Errorf("find the letters that came back: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("find the letters that came back: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, "UPDATE letters SET came_back = true WHERE id = ANY($1) AND coalesce(state, '') = 'claimed'", ids); err != nil {
		return fmt.Errorf("note the letters that came back: %w", err)
	}
	_, err = tx.Exec(ctx, moved(`UPDATE letters l SET came_back = true, state = 'returned', state_at = clock_timestamp(), note = ''
		FROM letters o WHERE o.id = l.id AND l.id = ANY($1) AND coalesce(l.state, '') IN ('replayed', 'succeeded')
		RETURNING l.topic, l.origin, o.state AS was, l.state`, "SELECT 1"), ids)
	return wrap("mark the letters that came back", err)
}

// Expire makes the dead letters of a partition below an offset expired, unless their bytes are kept, and returns how many that
// were.
func (l *Ledger) Expire(ctx context.Context, topicID deadletter.TopicID, of int32, below int64) (expired int64, err error) {
	act := fmt.Sprintf("expire partition %d below %d", of, below)
	var place partition
	var upTo, from int64
	var revived int
	err = l.transact(ctx, act, func(ctx context.Context, tx pgx.Tx) error {
		expired, upTo = 0, 0
		no, ok, err := l.numberOf(ctx, tx, topicID)
		if err != nil || !ok {
			return err
		}
		place = partition{no, of}
		t, err := l.topicOf(ctx, tx, no)
		if err != nil {
			return err
		}
		var next int64
		err = tx.QueryRow(ctx, "SELECT next FROM positions WHERE topic = $1 AND partition = $2", no, of).Scan(&next)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		from, revived = l.expiredBelow(place)
		// What is indexed later may lie below as well.
		upTo = min(below, next)
		err = tx.QueryRow(ctx, moved(expireWhere(`topic = $1 AND record_partition = $2 AND record_offset >= $3 AND record_offset < $4`),
			"SELECT count(*) FROM moved"), no, of, from, below).Scan(&expired)
		if err != nil || expired == 0 {
			return err
		}
		return record(ctx, tx, deadletter.Entry{
			Actor: "redrive", Action: "expire", Reason: "retention removed the bytes", Object: fmt.Sprintf("%s/%d below %d", t.name, of, below), Count: expired,
		})
	})
	if err == nil && upTo > 0 {
		l.noteExpired(place, upTo, revived)
	}
	return expired, err
}

// ExpireTopics makes the dead letters of all incarnations of a topic but the current one expired, unless their bytes are kept,
// and returns how many that were.
func (l *Ledger) ExpireTopics(ctx context.Context, name string, current deadletter.TopicID) (expired int64, err error) {
	err = l.transact(ctx, "expire letters of topics named "+name+" that are gone", func(ctx context.Context, tx pgx.Tx) error {
		expired = 0
		rows, err := tx.Query(ctx, "SELECT no FROM topics WHERE name = $1 AND id <> $2", storable(name), current[:])
		if err != nil {
			return err
		}
		gone, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		if err != nil || len(gone) == 0 {
			return err
		}
		err = tx.QueryRow(ctx, moved(expireWhere("topic = ANY($1)"), "SELECT count(*) FROM moved"), gone).Scan(&expired)
		if err != nil || expired == 0 {
			return err
		}
		return record(ctx, tx, deadletter.Entry{
			Actor: "redrive", Action: "expire", Reason: "the topic was deleted or made again", Object: name, Count: expired,
		})
	})
	return expired, err
}

func expireWhere(condition string) string {
	const dead = " AND state = 'dead' AND NOT kept"
	return `UPDATE letters SET state = 'expired', state_at = clock_timestamp(), note = 'the bytes are gone from the topic'
		WHERE id IN (SELECT id FROM letters WHERE ` + condition + dead + ` ORDER BY id FOR UPDATE)` + dead + `
		RETURNING topic, origin, 'dead' AS was, state`
}

// expiredBelow is the offset below which Expire has left no dead letter, as far as this process knows: retention moves on by
// small steps, and need not be asked about all letters each time.
func (l *Ledger) expiredBelow(p partition) (below int64, revived int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expired[p], l.revived
}

// noteExpired has no effect if letters have become dead again since expiredBelow was called: Expire may not have seen them.
func (l *Ledger) noteExpired(p partition, below int64, revived int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if revived == l.revived {
		l.expired[p] = max(l.expired[p], below)
	}
}

// forgetExpired is called after letters have become dead again, which may be ones whose bytes are gone. That another process
// makes some so is found out when they are fetched.
func (l *Ledger) forgetExpired() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.expired)
	l.revived++
}

// Progress is how far all partitions are.
func (l *Ledger) Progress(ctx context.Context) ([]deadletter.Progress, error) {
	ctx, done := l.call(ctx)
	defer done()
	rows, err := l.pool.Query(ctx, `SELECT t.id, t.name, p.partition, p.next, p.lost FROM positions p JOIN topics t ON t.no = p.topic
		ORDER BY t.name, t.no, p.partition`)
	if err != nil {
		return nil, wrap("read the positions", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p deadletter.Progress, err error) {
		var id []byte
		if err := row.Scan(&id, &p.Topic, &p.Partition, &p.Next, &p.Lost); err != nil {
			return p, err
		}
		p.TopicID = deadletter.TopicID(id)
		return p, nil
	})
	return all, wrap("read the positions", err)
}

// unseen gives the numbers of the fingerprints that no letter has.
const unseen = `SELECT no FROM unnest($1::text[]) WITH ORDINALITY AS asked(print, no)
	WHERE NOT EXISTS (SELECT FROM letters WHERE fingerprint = print) ORDER BY no`

// Unseen are those of the fingerprints that no letter of the ledger has.
func (l *Ledger) Unseen(ctx context.Context, fingerprints []string) ([]string, error) {
	stored := make([]string, len(fingerprints))
	for i, print := range fingerprints {
		stored[i] = short(print)
	}
	ctx, done := l.call(ctx)
	defer done()
	rows, err := l.pool.Query(ctx, unseen, stored)
	if err != nil {
		return nil, wrap("look for error groups", err)
	}
	places, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, wrap("look for error groups", err)
	}
	var found []string
	for _, no := range places {
		found = append(found, fingerprints[no-1])
	}
	return found, nil
}

// Awaiting lists replayed letters by id, after an id.
func (l *Ledger) Awaiting(ctx context.Context, after int64, limit int) ([]deadletter.Letter, error) {
	ctx, done := l.call(ctx)
	defer done()
	letters, err := l.letters(ctx, l.pool, "SELECT "+letterColumns+" FROM letters WHERE state = 'replayed' AND id > $1 ORDER BY id LIMIT $2", after, max(limit, 0))
	return letters, wrap("list what awaits its success", err)
}

// Succeed makes replayed letters succeeded, and returns how many were still replayed.
func (l *Ledger) Succeed(ctx context.Context, ids []int64) (succeeded int64, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	err = l.transact(ctx, "mark what has succeeded", func(ctx context.Context, tx pgx.Tx) error {
		if err := lockLetters(ctx, tx, ids); err != nil {
			return err
		}
		return tx.QueryRow(ctx, moved(`UPDATE letters SET state = 'succeeded', state_at = clock_timestamp(), note = '' WHERE id = ANY($1) AND coalesce(state, '') = 'replayed'
			RETURNING topic, origin, 'replayed' AS was, state`, "SELECT count(*) FROM moved"), ids).Scan(&succeeded)
	})
	return succeeded, err
}

// lockLetters takes the locks of letters in the order that all do.
func lockLetters(ctx context.Context, tx pgx.Tx, ids []int64) error {
	_, err := tx.Exec(ctx, "SELECT FROM letters WHERE id = ANY($1) ORDER BY id FOR UPDATE", ids)
	return wrap("lock the letters", err)
}
