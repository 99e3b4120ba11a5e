package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// dialect is how filters are said to SQLite. A list is one argument, however long.
var dialect = sqlquery.Dialect{
	Placeholder: func(n int) string { return "?" + strconv.Itoa(n) },
	AnyOf:       func(column, list string) string { return column + " IN (SELECT value FROM json_each(" + list + "))" },
	Strings:     func(values []string) any { return list(values) },
	Numbers:     func(values []int64) any { return list(values) },
	TopicID:     "topic_id",
	Time:        func(t time.Time) any { return t.UnixMicro() },
	Like:        "LIKE",
}

// list is values as one argument, which json_each takes apart.
func list[T int64 | string](values []T) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // Numbers and strings always are JSON.
	}
	return string(text)
}

// blob reads bytes, and keeps null apart from empty: the driver gives both as a nil slice, but only one as nil.
type blob []byte

// Scan implements sql.Scanner.
func (b *blob) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*b = nil
	case []byte:
		*b = append(make([]byte, 0, len(v)), v...)
	default:
		return fmt.Errorf("%T is no blob", value)
	}
	return nil
}

// moment reads a time; null is the zero time.
type moment time.Time

// Scan implements sql.Scanner.
func (m *moment) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*m = moment{}
	case int64:
		*m = moment(time.UnixMicro(v).UTC())
	default:
		return fmt.Errorf("%T is no time", value)
	}
	return nil
}

// stamp is a time as an argument; the zero time is null.
func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// letterColumns are what letterRow reads, of the tables of letterTables.
const (
	letterColumns = `letters.id, topics.topic_id, topics.name, letters.record_partition, letters.record_offset, letters.message_id, letters.record_key,
letters.origin, letters.origin_partition, letters.origin_offset, letters.origin_partitions, letters.origin_timestamp, letters.consumer_group, letters.reason,
letters.error_type, letters.error_text, letters.fingerprint, letters.label, letters.attempt, letters.deliveries, letters.replay_id, letters.replay_count,
letters.failed_at, letters.dead_at, letters.indexed_at, letters.size, letters.digest, letters.pointer, letters.kept, letters.state, letters.state_at, letters.note,
letters.job, letters.owner, letters.fence_epoch, letters.fence_n, letters.claimed_until, letters.claim_count, letters.target_topic, letters.target_partition, letters.target_offset,
letters.copy_topic, letters.copy_partition, letters.copy_offset`
	letterTables = `letters CROSS JOIN topics ON topics.no = letters.topic` // CROSS: SQLite must not begin with the topics
)

// letterRow reads a letter. Its columns may all be null, of an item whose letter is purged.
type letterRow struct {
	id                                    sql.NullInt64
	topicID, key, digest                  blob
	topic, message, origin, group, reason sql.NullString
	errorType, errorText, print, label    sql.NullString
	replayID, state, note, job, owner     sql.NullString
	targetTopic, copyTopic                sql.NullString
	partition, offset                     sql.NullInt64
	originPartition, originOffset         sql.NullInt64
	originPartitions, attempt, deliveries sql.NullInt64
	replayCount, size                     sql.NullInt64
	epoch, n, claimCount                  sql.NullInt64
	targetPartition, targetOffset         sql.NullInt64
	copyPartition, copyOffset             sql.NullInt64
	pointer, kept                         sql.NullBool
	originAt, failedAt, deadAt, indexedAt moment
	stateAt, until                        moment
}

// into are where a row is scanned to, in the order of letterColumns.
func (r *letterRow) into() []any {
	return []any{
		&r.id, &r.topicID, &r.topic, &r.partition, &r.offset, &r.message, &r.key,
		&r.origin, &r.originPartition, &r.originOffset, &r.originPartitions, &r.originAt, &r.group, &r.reason,
		&r.errorType, &r.errorText, &r.print, &r.label, &r.attempt, &r.deliveries, &r.replayID, &r.replayCount,
		&r.failedAt, &r.deadAt, &r.indexedAt, &r.size, &r.digest, &r.pointer, &r.kept, &r.state, &r.stateAt, &r.note,
		&r.job, &r.owner, &r.epoch, &r.n, &r.until, &r.claimCount, &r.targetTopic, &r.targetPartition, &r.targetOffset,
		&r.copyTopic, &r.copyPartition, &r.copyOffset,
	}
}

// letter is what was read.
func (r *letterRow) letter() deadletter.Letter {
	l := deadletter.Letter{
		ID:        r.id.Int64,
		Place:     deadletter.Place{Topic: r.topic.String, Partition: int32(r.partition.Int64), Offset: r.offset.Int64},
		MessageID: r.message.String, Key: r.key,
		Origin: r.origin.String, OriginPartition: int32(r.originPartition.Int64), OriginOffset: r.originOffset.Int64,
		OriginPartitions: int32(r.originPartitions.Int64), OriginTimestamp: time.Time(r.originAt),
		Group: r.group.String, Reason: envelope.Reason(r.reason.String), ErrorType: r.errorType.String, ErrorText: r.errorText.String,
		Fingerprint: r.print.String, Label: r.label.String,
		Attempt: int(r.attempt.Int64), Deliveries: int(r.deliveries.Int64),
		ReplayID: r.replayID.String, ReplayCount: int(r.replayCount.Int64),
		FailedAt: time.Time(r.failedAt), DeadAt: time.Time(r.deadAt), IndexedAt: time.Time(r.indexedAt),
		Size: r.size.Int64, Pointer: r.pointer.Bool, Kept: r.kept.Bool,
		State: deadletter.State(r.state.String), StateAt: time.Time(r.stateAt), Note: r.note.String,
		Claim: deadletter.Claim{Target: deadletter.Target{Offset: -1}},
		Copy:  deadletter.Target{Offset: -1},
	}
	copy(l.Place.TopicID[:], r.topicID)
	copy(l.Digest[:], r.digest)
	switch l.State {
	case deadletter.Claimed:
		l.Claim = r.claim()
	case deadletter.Replayed, deadletter.Succeeded, deadletter.Returned:
		l.Claim = r.claim()
		l.Copy = deadletter.Target{Topic: r.copyTopic.String, Partition: int32(r.copyPartition.Int64), Offset: r.copyOffset.Int64}
	default:
		// The row still knows the last claim, for the replay count of the next and for filters by job.
	}
	return l
}

func (r *letterRow) claim() deadletter.Claim {
	return deadletter.Claim{
		Letter: r.id.Int64, Owner: r.owner.String, Fence: idempotency.Fence{Epoch: r.epoch.Int64, N: r.n.Int64}, Until: time.Time(r.until),
		Job: r.job.String, ReplayCount: int(r.claimCount.Int64),
		Target: deadletter.Target{Topic: r.targetTopic.String, Partition: int32(r.targetPartition.Int64), Offset: r.targetOffset.Int64},
	}
}

// querier is a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each runs a query and calls row for each row, with what scans it.
func each(ctx context.Context, db querier, query string, args []any, row func(scan func(...any) error) error) (err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// letters reads letters. What follows WHERE may go on with an order and a limit.
func letters(ctx context.Context, db querier, where string, args ...any) ([]deadletter.Letter, error) {
	out := []deadletter.Letter{}
	err := each(ctx, db, "SELECT "+letterColumns+" FROM "+letterTables+" WHERE "+where, args, func(scan func(...any) error) error {
		var row letterRow
		if err := scan(row.into()...); err != nil {
			return err
		}
		out = append(out, row.letter())
		return nil
	})
	return out, err
}

// snapshot runs queries that all see the ledger as it is when the first of them begins.
func (l *Ledger) snapshot(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := l.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // It has written nothing.
	return do(tx)
}
