package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

var dialect = sqlquery.Dialect{
	Placeholder: func(n int) string { return "$" + strconv.Itoa(n) },
	AnyOf:       func(column, placeholder string) string { return column + " = ANY(" + placeholder + ")" },
	Strings:     func(values []string) any { return values },
	Numbers:     func(values []int64) any { return values },
	Text:        short,
	TopicID:     "id",
	Time:        func(t time.Time) any { return storableTime(t) },
	Like:        "ILIKE",
}

// letterColumns are what scanLetter reads.
const letterColumns = `id, topic, record_partition, record_offset, message_id, record_key, origin, origin_partition, origin_offset,
	origin_partitions, origin_timestamp, consumer_group, reason, error_type, error_text, fingerprint, label, attempt, deliveries,
	replay_id, replay_count, failed_at, dead_at, indexed_at, size, digest, pointer, kept, state, state_at, note,
	coalesce(owner, ''), coalesce(fence_epoch, 0), coalesce(fence_n, 0), claim_until, coalesce(job, ''), claim_count,
	coalesce(target_topic, ''), coalesce(target_partition, 0), coalesce(target_offset, -1),
	coalesce(copy_topic, ''), coalesce(copy_partition, 0), coalesce(copy_offset, -1)`

// stored is a letter as its row has it: the topic is a number there.
type stored struct {
	topic  int32
	letter deadletter.Letter
}

// scanLetter reads a row of letterColumns.
func scanLetter(row pgx.CollectableRow) (stored, error) {
	var (
		s                                  stored
		l                                  = &s.letter
		c                                  = &l.Claim
		reason, state                      string
		digest                             []byte
		originTimestamp, failedAt, claimed *time.Time
	)
	err := row.Scan(&l.ID, &s.topic, &l.Place.Partition, &l.Place.Offset, &l.MessageID, &l.Key, &l.Origin, &l.OriginPartition, &l.OriginOffset,
		&l.OriginPartitions, &originTimestamp, &l.Group, &reason, &l.ErrorType, &l.ErrorText, &l.Fingerprint, &l.Label, &l.Attempt, &l.Deliveries,
		&l.ReplayID, &l.ReplayCount, &failedAt, &l.DeadAt, &l.IndexedAt, &l.Size, &digest, &l.Pointer, &l.Kept, &state, &l.StateAt, &l.Note,
		&c.Owner, &c.Fence.Epoch, &c.Fence.N, &claimed, &c.Job, &c.ReplayCount,
		&c.Target.Topic, &c.Target.Partition, &c.Target.Offset,
		&l.Copy.Topic, &l.Copy.Partition, &l.Copy.Offset)
	if err != nil {
		return stored{}, err
	}
	if copy(l.Digest[:], digest) != len(l.Digest) {
		return stored{}, fmt.Errorf("the digest of letter %d has %d bytes", l.ID, len(digest))
	}
	l.Reason, l.State = envelope.Reason(reason), deadletter.State(state)
	l.OriginTimestamp, l.FailedAt, c.Until = instant(originTimestamp), instant(failedAt), instant(claimed)
	l.DeadAt, l.IndexedAt, l.StateAt = l.DeadAt.UTC(), l.IndexedAt.UTC(), l.StateAt.UTC()
	if c.Letter = l.ID; c.Fence == (idempotency.Fence{}) {
		*c = deadletter.Claim{Target: deadletter.Target{Offset: -1}}
	}
	return s, nil
}

// instant is a time that may be missing.
func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// querier runs statements: the pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// planned goes before the arguments of a statement that has a filter in it: it is planned anew for each set of them. A plan for any
// filter can be a thousand times slower than one for the filter at hand.
const planned = pgx.QueryExecModeCacheDescribe

// withPlan are arguments with planned before them.
func withPlan(args []any) []any { return append([]any{planned}, args...) }

// letters runs a statement that selects letterColumns.
func (l *Ledger) letters(ctx context.Context, on querier, sql string, args ...any) ([]deadletter.Letter, error) {
	rows, err := on.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanLetter)
	if err != nil {
		return nil, err
	}
	letters := make([]deadletter.Letter, len(found))
	for i := range found {
		t, err := l.topicOf(ctx, on, found[i].topic)
		if err != nil {
			return nil, err
		}
		letters[i] = found[i].letter
		letters[i].Place.TopicID, letters[i].Place.Topic = t.id, t.name
	}
	return letters, nil
}

// topicOf is the topic of a number. Topics never change, so that each is read once.
func (l *Ledger) topicOf(ctx context.Context, on querier, no int32) (topic, error) {
	l.mu.Lock()
	known, ok := l.topics[no]
	l.mu.Unlock()
	if ok {
		return known, nil
	}
	var id []byte
	if err := on.QueryRow(ctx, "SELECT id, name FROM topics WHERE no = $1", no).Scan(&id, &known.name); err != nil {
		return topic{}, fmt.Errorf("read topic %d: %w", no, err)
	}
	known.id = deadletter.TopicID(id)
	l.learn(no, known)
	return known, nil
}

func (l *Ledger) learn(no int32, t topic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.topics[no], l.numbers[t.id] = t, no
}

// numberOf is the number of a topic; not ok where the ledger does not have it.
func (l *Ledger) numberOf(ctx context.Context, on querier, id deadletter.TopicID) (no int32, ok bool, err error) {
	l.mu.Lock()
	no, ok = l.numbers[id]
	l.mu.Unlock()
	if ok {
		return no, true, nil
	}
	t := topic{id: id}
	err = on.QueryRow(ctx, "SELECT no, name FROM topics WHERE id = $1", id[:]).Scan(&no, &t.name)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the number of a topic: %w", err)
	}
	l.learn(no, t)
	return no, true, nil
}

// selection is what a filter selects, for a statement that reads all of it.
func selection(filter deadletter.Filter, args ...any) *sqlquery.Query {
	q := dialect.New(args...)
	q.Filter(filter)
	if len(filter.States) == 0 && (!filter.DeadFrom.IsZero() || !filter.DeadTo.IsZero()) {
		// No index begins with the time, but one has it after the state.
		q.And("state = ANY(" + q.Arg(stateNames()) + ")")
	}
	return q
}

// listing is the statement that reads one page of what a filter selects. Each part of a filter is limited and in order by
// itself, so that the database merges them and reads no more than the page needs.
func listing(filter deadletter.Filter, page sqlquery.Page) (sql string, args []any) {
	order := sqlquery.OrderBy(page.Order)
	q := dialect.New(page.Limit + 1)
	var parts []string
	for _, branch := range branches(filter, page.Order) {
		part := dialect.New(q.Args()...)
		part.Filter(branch)
		page.After(part)
		parts = append(parts, "(SELECT * FROM letters WHERE "+part.Where()+" ORDER BY "+order+" LIMIT $1)")
		q = dialect.New(part.Args()...)
	}
	return "SELECT " + letterColumns + " FROM (" + strings.Join(parts, " UNION ALL ") + ") AS letters ORDER BY " + order + " LIMIT $1", q.Args()
}

// maxBranches bounds the length of a statement.
const maxBranches = 64

// branches splits a filter into parts that an index gives in the order of time, of which the database reads only as much as the
// page needs, where that can be done: a condition on a column of an index must name one value. The parts have no letter in
// common.
func branches(filter deadletter.Filter, order deadletter.Order) []deadletter.Filter {
	if order == deadletter.ReplayOrder || len(filter.IDs) > 0 || len(filter.MessageIDs) > 0 || filter.HasKey || filter.Job != "" || filter.Offset != nil ||
		len(filter.Fingerprints) == 1 || len(filter.ErrorTypes) == 1 || len(filter.Reasons) == 1 {
		return []deadletter.Filter{filter}
	}
	if n := len(filter.Expiring); n > 0 && n <= maxBranches {
		return filter.EachCut()
	}
	if parts, ok := split(filter, filter.Fingerprints, func(f *deadletter.Filter, v []string) { f.Fingerprints = v }); ok {
		return parts
	}
	if parts, ok := split(filter, filter.ErrorTypes, func(f *deadletter.Filter, v []string) { f.ErrorTypes = v }); ok {
		return parts
	}
	if parts, ok := split(filter, filter.Reasons, func(f *deadletter.Filter, v []envelope.Reason) { f.Reasons = v }); ok {
		return parts
	}
	states := filter.States
	if len(states) == 0 {
		states = deadletter.States()
	}
	parts, ok := split(filter, states, func(f *deadletter.Filter, v []deadletter.State) { f.States = v })
	if !ok {
		return []deadletter.Filter{filter}
	}
	if len(filter.Origins) < 2 {
		return parts
	}
	var all []deadletter.Filter
	for _, part := range parts {
		some, ok := split(part, filter.Origins, func(f *deadletter.Filter, v []string) { f.Origins = v })
		if !ok || len(all)+len(some) > maxBranches {
			return parts
		}
		all = append(all, some...)
	}
	return all
}

// split makes a filter for each of the values, if there are a few.
func split[T ~string](filter deadletter.Filter, values []T, set func(*deadletter.Filter, []T)) (parts []deadletter.Filter, ok bool) {
	seen := map[T]bool{}
	for _, value := range values {
		value = T(short(string(value))) // Two that are stored alike are one.
		if seen[value] {
			continue
		}
		seen[value] = true
		part := filter
		set(&part, []T{value})
		parts = append(parts, part)
	}
	return parts, len(parts) > 0 && len(parts) <= maxBranches
}
