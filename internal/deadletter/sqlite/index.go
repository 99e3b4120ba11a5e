package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// columns are what Index writes of a letter.
var columns = []string{
	"id", "topic", "record_partition", "record_offset", "message_id", "record_key", "key_hash", "origin", "origin_partition", "origin_offset",
	"origin_partitions", "origin_timestamp", "consumer_group", "reason", "error_type", "error_text", "fingerprint", "label", "attempt", "deliveries",
	"replay_id", "replay_count", "failed_at", "dead_at", "indexed_at", "size", "digest", "pointer", "kept", "state_at",
}

// together is how many letters one statement writes: the most that pays.
const together = 32

// Next implements deadletter.Indexing.
func (l *Ledger) Next(ctx context.Context, topicID deadletter.TopicID, topic string, partition int32, start int64) (next int64, err error) {
	const known = `SELECT next FROM positions JOIN topics ON topics.no = positions.topic WHERE topic_id = ?1 AND name = ?2 AND record_partition = ?3`
	err = l.read.QueryRowContext(ctx, known, topicID[:], topic, partition).Scan(&next)
	if !errors.Is(err, sql.ErrNoRows) {
		return next, l.failed("read how far a partition is indexed", err)
	}
	err = l.change(ctx, "begin a partition", func(tx *change) error {
		if _, err := tx.exec(`INSERT INTO topics (topic_id, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING`, topicID[:], topic); err != nil {
			return err
		}
		if _, err := tx.exec(`INSERT INTO positions (topic, record_partition, next) SELECT no, ?3, ?4 FROM topics WHERE topic_id = ?1 AND name = ?2 ON CONFLICT DO NOTHING`,
			topicID[:], topic, partition, start); err != nil {
			return err
		}
		return tx.get(known, topicID[:], topic, partition)(&next)
	})
	return next, err
}

// Index implements deadletter.Indexing.
func (l *Ledger) Index(ctx context.Context, b deadletter.Batch) error {
	if b.Next < b.Expected || b.Payloads != nil && len(b.Payloads) != len(b.Letters) {
		return fmt.Errorf("index letters: the batch is not whole: offsets %d to %d, %d letters, %d payloads", b.Expected, b.Next, len(b.Letters), len(b.Payloads))
	}
	return l.change(ctx, "index letters", func(tx *change) error {
		var topic int64
		err := tx.get(`UPDATE positions SET next = ?1, lost = lost + ?2
WHERE topic = (SELECT no FROM topics WHERE topic_id = ?3 AND name = ?4) AND record_partition = ?5 AND next = ?6 RETURNING topic`,
			b.Next, b.Lost, b.TopicID[:], b.Topic, b.Partition, b.Expected)(&topic)
		if errors.Is(err, sql.ErrNoRows) {
			return deadletter.ErrMoved
		}
		if err != nil || len(b.Letters) == 0 {
			return err
		}
		// There is one writer, so the numbers are known before the rows are written.
		var last int64
		if err := tx.get(`SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'letters'), 0)`)(&last); err != nil {
			return err
		}
		if err := tx.insert(b, topic, last); err != nil {
			return err
		}
		for i, payload := range b.Payloads {
			if err := tx.keep(last+1+int64(i), payload); err != nil {
				return err
			}
		}
		for i := range b.Letters {
			if err := tx.cameBack(&b.Letters[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// insert writes the letters of a batch, numbered from after last.
func (c *change) insert(b deadletter.Batch, topic, last int64) error {
	args := make([]any, 0, together*len(columns))
	for i := range b.Letters {
		l := &b.Letters[i]
		last++
		args = append(args,
			last, topic, b.Partition, l.Place.Offset, l.MessageID, l.Key, sqlquery.KeyHash(l.Key), l.Origin, l.OriginPartition, l.OriginOffset,
			l.OriginPartitions, stamp(l.OriginTimestamp), l.Group, string(l.Reason), l.ErrorType, l.ErrorText, l.Fingerprint, l.Label, l.Attempt, l.Deliveries,
			l.ReplayID, l.ReplayCount, stamp(l.FailedAt), l.DeadAt.UnixMicro(), c.micros(), l.Size, l.Digest[:], l.Pointer, b.Payloads != nil, c.micros())
		if len(args) < cap(args) && i < len(b.Letters)-1 {
			continue
		}
		if _, err := c.exec(insertion(len(args)/len(columns)), args...); err != nil {
			return err
		}
		args = args[:0]
	}
	return nil
}

// insertion is the statement that writes n letters. Its placeholders have no numbers: the driver asks for the name of each,
// which SQLite finds by a search through all.
func insertion(n int) string {
	row := ", (?" + strings.Repeat(", ?", len(columns)-1) + ")"
	return "INSERT INTO letters (" + strings.Join(columns, ", ") + ") VALUES " + strings.Repeat(row, n)[2:]
}

// cameBack makes the letter that was replayed under the replay id of another one returned. One that is claimed still becomes
// so when its copy is marked. Letters of one message that a job replays differ by their replay counts, if the record has one.
func (c *change) cameBack(l *deadletter.Letter) error {
	if l.ReplayID == "" {
		return nil
	}
	names := []string{l.MessageID}
	if parent, edited := idempotency.ParentID(l.MessageID, l.ReplayID); edited {
		names = append(names, parent)
	}
	for _, name := range names {
		if _, err := c.exec(`UPDATE letters SET state = 'returned', state_at = ?1 WHERE message_id = ?2 AND job = ?3 AND state IN ('replayed', 'succeeded') AND (claim_count = ?4 OR ?4 = 0)`,
			c.micros(), name, l.ReplayID, l.ReplayCount); err != nil {
			return err
		}
	}
	return nil
}

// keep writes the bytes of a letter.
func (c *change) keep(letter int64, p deadletter.Payload) error {
	headers := sqlquery.AppendHeaders([]byte{}, p.Headers)
	_, err := c.exec(`INSERT INTO payloads (letter, record_key, value, headers) VALUES (?1, ?2, ?3, ?4)`, letter, p.Key, p.Value, headers)
	return err
}

// retired is what Expire and ExpireTopics make of a letter.
const retired = `UPDATE letters SET state = 'expired', state_at = ?1, note = ?2 WHERE state = 'dead' AND kept = 0 AND `

// Expire implements deadletter.Indexing.
func (l *Ledger) Expire(ctx context.Context, topicID deadletter.TopicID, partition int32, below int64) (expired int64, err error) {
	err = l.change(ctx, "expire letters", func(tx *change) error {
		const note = "retention removed the record"
		expired, err = tx.long(retired+`topic IN (SELECT no FROM topics WHERE topic_id = ?3) AND record_partition = ?4 AND record_offset < ?5`,
			tx.micros(), note, topicID[:], partition, below)
		if err != nil || expired == 0 {
			return err
		}
		var topic string
		if err := tx.get(`SELECT name FROM topics WHERE topic_id = ?1`, topicID[:])(&topic); err != nil {
			return err
		}
		return tx.record(deadletter.Entry{
			Actor: "redrive", Action: "expire", Reason: note, Count: expired,
			Object: fmt.Sprintf("%s/%d", topic, partition), Detail: fmt.Sprintf("below offset %d", below),
		})
	})
	return expired, err
}

// ExpireTopics implements deadletter.Indexing.
func (l *Ledger) ExpireTopics(ctx context.Context, topic string, current deadletter.TopicID) (expired int64, err error) {
	err = l.change(ctx, "expire letters of a topic that is gone", func(tx *change) error {
		note := "the topic was deleted and made again"
		if current == (deadletter.TopicID{}) {
			note = "the topic was deleted"
		}
		// A topic that does not exist has no incarnation that is the current one, not even that of the zero id.
		expired, err = tx.long(retired+`topic IN (SELECT no FROM topics WHERE name = ?3 AND (topic_id <> ?4 OR ?5))`,
			tx.micros(), note, topic, current[:], current == deadletter.TopicID{})
		if err != nil || expired == 0 {
			return err
		}
		return tx.record(deadletter.Entry{Actor: "redrive", Action: "expire", Reason: note, Count: expired, Object: topic})
	})
	return expired, err
}

// Progress implements deadletter.Indexing.
func (l *Ledger) Progress(ctx context.Context) ([]deadletter.Progress, error) {
	out := []deadletter.Progress{}
	err := each(ctx, l.read, `SELECT topic_id, name, record_partition, next, lost FROM positions JOIN topics ON topics.no = positions.topic ORDER BY name, no, record_partition`,
		nil, func(scan func(...any) error) error {
			var p deadletter.Progress
			var id blob
			if err := scan(&id, &p.Topic, &p.Partition, &p.Next, &p.Lost); err != nil {
				return err
			}
			copy(p.TopicID[:], id)
			out = append(out, p)
			return nil
		})
	return out, l.failed("read how far partitions are indexed", err)
}

// seen tells whether a letter has a fingerprint.
const seen = `SELECT EXISTS (SELECT 1 FROM letters WHERE fingerprint = ?1)`

// Unseen implements deadletter.Indexing.
func (l *Ledger) Unseen(ctx context.Context, fingerprints []string) ([]string, error) {
	var unseen []string
	for _, print := range fingerprints {
		var found bool
		if err := l.read.QueryRowContext(ctx, seen, print).Scan(&found); err != nil {
			return nil, l.failed("look for error groups", err)
		}
		if !found {
			unseen = append(unseen, print)
		}
	}
	return unseen, nil
}

// Awaiting implements deadletter.Indexing.
func (l *Ledger) Awaiting(ctx context.Context, after int64, limit int) ([]deadletter.Letter, error) {
	out, err := letters(ctx, l.read, `letters.state = 'replayed' AND letters.id > ?1 ORDER BY letters.id LIMIT ?2`, after, limit)
	return out, l.failed("read replayed letters", err)
}

// Succeed implements deadletter.Indexing.
func (l *Ledger) Succeed(ctx context.Context, ids []int64) (n int64, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	err = l.change(ctx, "mark letters as succeeded", func(tx *change) error {
		n, err = tx.long(`UPDATE letters SET state = 'succeeded', state_at = ?1 WHERE state = 'replayed' AND id IN (SELECT value FROM json_each(?2))`, tx.micros(), list(ids))
		return err
	})
	return n, err
}
