package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
)

// Letter is the letter of that number, or ErrUnknown.
func (l *Ledger) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	ctx, done := l.call(ctx)
	defer done()
	letters, err := l.letters(ctx, l.pool, "SELECT "+letterColumns+" FROM letters WHERE id = $1", id)
	if err == nil && len(letters) == 0 {
		err = deadletter.ErrUnknown
	}
	if err != nil {
		return deadletter.Letter{}, fmt.Errorf("read letter %d: %w", id, err)
	}
	return letters[0], nil
}

// Letters are the letters that a filter selects, a page of them.
func (l *Ledger) Letters(ctx context.Context, filter deadletter.Filter, page deadletter.Page) (deadletter.Letters, error) {
	p, err := sqlquery.NewPage(filter, page)
	if err != nil {
		return deadletter.Letters{}, wrap("list letters", err)
	}
	ctx, done := l.call(ctx)
	defer done()
	sql, args := listing(filter, p)
	letters, err := l.letters(ctx, l.pool, sql, withPlan(args)...)
	if err != nil {
		return deadletter.Letters{}, wrap("list letters", err)
	}
	return p.Cut(letters)
}

// Count is how many letters a filter selects.
func (l *Ledger) Count(ctx context.Context, filter deadletter.Filter) (n int64, err error) {
	ctx, done := l.call(ctx)
	defer done()
	q := selection(filter)
	err = l.pool.QueryRow(ctx, "SELECT count(*) FROM letters WHERE "+q.Where(), withPlan(q.Args())...).Scan(&n)
	return n, wrap("count letters", err)
}

// Payload are the bytes of a letter that are kept; nil if they are not.
func (l *Ledger) Payload(ctx context.Context, id int64) (*deadletter.Payload, error) {
	ctx, done := l.call(ctx)
	defer done()
	var p deadletter.Payload
	var headers []byte
	err := l.pool.QueryRow(ctx, `SELECT p.record_key, p.value, p.headers FROM letters l JOIN payloads p
		ON p.topic = l.topic AND p.record_partition = l.record_partition AND p.record_offset = l.record_offset WHERE l.id = $1`, id).
		Scan(&p.Key, &p.Value, &headers)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		p.Headers, err = parseHeaders(headers)
	}
	if err != nil {
		return nil, fmt.Errorf("read the bytes of letter %d: %w", id, err)
	}
	return &p, nil
}

func parseHeaders(stored []byte) ([]deadletter.Header, error) {
	if len(stored) == 0 || stored[0] != headersMark {
		return nil, errors.New("the stored headers have an unknown format")
	}
	return sqlquery.ParseHeaders(stored[1:])
}

// Older is the oldest letter of the same key and origin partition that lies before a letter in the origin and is dead or
// claimed, and how many there are. A letter without a key, or without a place in the origin, has none.
func (l *Ledger) Older(ctx context.Context, letter deadletter.Letter) (*deadletter.Letter, int64, error) {
	if letter.Key == nil || letter.OriginPartition < 0 || letter.OriginOffset < 0 {
		return nil, 0, nil
	}
	ctx, done := l.call(ctx)
	defer done()
	q := dialect.New()
	q.Key(letter.Key)
	q.And("origin = " + q.Arg(short(letter.Origin)))
	q.And("origin_partition = " + q.Arg(letter.OriginPartition))
	q.And("origin_offset >= 0 AND origin_offset < " + q.Arg(letter.OriginOffset))
	q.And("state IN ('dead', 'claimed')")
	var count int64
	var first *int64
	err := l.pool.QueryRow(ctx, "SELECT count(*), (array_agg(id ORDER BY origin_offset, id))[1] FROM letters WHERE "+q.Where(), withPlan(q.Args())...).Scan(&count, &first)
	if err != nil {
		return nil, 0, wrap("look for older letters of the key", err)
	}
	if first == nil {
		return nil, 0, nil
	}
	oldest, err := l.Letter(ctx, *first)
	if err != nil {
		return nil, 0, wrap("look for older letters of the key", err)
	}
	return &oldest, count, nil
}

// History is what jobs did with a letter, oldest first.
func (l *Ledger) History(ctx context.Context, letter int64) ([]deadletter.Item, error) {
	ctx, done := l.call(ctx)
	defer done()
	// Ids of jobs rise with the time.
	items, err := l.items(ctx, l.pool, "SELECT "+itemColumns+" FROM items WHERE letter = $1 ORDER BY job, seq", letter)
	return items, wrap("read the history of a letter", err)
}

// Audit is the audit trail, newest first, below an id; 0 is from the end.
func (l *Ledger) Audit(ctx context.Context, below int64, limit int) ([]deadletter.Entry, error) {
	ctx, done := l.call(ctx)
	defer done()
	rows, err := l.pool.Query(ctx, `SELECT id, at, actor, action, reason, object, count, detail FROM audit
		WHERE $1::bigint <= 0 OR id < $1 ORDER BY id DESC LIMIT $2`, below, max(limit, 0))
	if err != nil {
		return nil, wrap("read the audit trail", err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e deadletter.Entry, err error) {
		err = row.Scan(&e.ID, &e.At, &e.Actor, &e.Action, &e.Reason, &e.Object, &e.Count, &e.Detail)
		e.At = e.At.UTC()
		return e, err
	})
	return entries, wrap("read the audit trail", err)
}
