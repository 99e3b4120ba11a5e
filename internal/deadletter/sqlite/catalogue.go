package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
)

// Letter implements deadletter.Catalogue.
func (l *Ledger) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	found, err := letters(ctx, l.read, `letters.id = ?1`, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("letter %d: %w", id, deadletter.ErrUnknown)
	}
	if err != nil {
		return deadletter.Letter{}, l.failed("read a letter", err)
	}
	return found[0], nil
}

// Letters implements deadletter.Catalogue.
func (l *Ledger) Letters(ctx context.Context, filter deadletter.Filter, page deadletter.Page) (deadletter.Letters, error) {
	p, err := sqlquery.NewPage(filter, page)
	if err != nil {
		return deadletter.Letters{}, fmt.Errorf("list letters: %w", err)
	}
	where, args := listing(filter, p)
	found, err := letters(ctx, l.read, where, args...)
	if err != nil {
		return deadletter.Letters{}, l.failed("list letters", err)
	}
	return p.Cut(found)
}

// listing is what follows WHERE in the query for a page, which asks for one letter more.
func listing(filter deadletter.Filter, p sqlquery.Page) (where string, args []any) {
	q := dialect.New()
	if len(filter.Expiring) > 1 && p.Order != deadletter.ReplayOrder {
		// Each topic gives its own letters in order, and no more of them than the page needs.
		limit, parts := q.Arg(p.Limit+1), []string{}
		for _, each := range filter.EachCut() {
			part := dialect.New(q.Args()...)
			part.Filter(each)
			p.After(part)
			parts = append(parts, "SELECT id FROM (SELECT id FROM letters WHERE "+part.Where()+" ORDER BY "+sqlquery.OrderBy(p.Order)+" LIMIT "+limit+")")
			q = dialect.New(part.Args()...)
		}
		return "letters.id IN (" + strings.Join(parts, " UNION ALL ") + ") ORDER BY " + sqlquery.OrderBy(p.Order) + " LIMIT " + limit, q.Args()
	}
	q.Filter(filter)
	p.After(q)
	where = q.Where() + " ORDER BY " + sqlquery.OrderBy(p.Order) + " LIMIT " + q.Arg(p.Limit+1)
	return where, q.Args()
}

// Count implements deadletter.Catalogue.
func (l *Ledger) Count(ctx context.Context, filter deadletter.Filter) (n int64, err error) {
	q := dialect.New()
	q.Filter(filter)
	err = l.read.QueryRowContext(ctx, "SELECT count(*) FROM letters WHERE "+q.Where(), q.Args()...).Scan(&n)
	return n, l.failed("count letters", err)
}

// Payload implements deadletter.Catalogue.
func (l *Ledger) Payload(ctx context.Context, id int64) (*deadletter.Payload, error) {
	var key, value, headers blob
	err := l.read.QueryRowContext(ctx, `SELECT record_key, value, headers FROM payloads WHERE letter = ?1`, id).Scan(&key, &value, &headers)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // No bytes are kept, which is no error.
	}
	if err != nil {
		return nil, l.failed("read the bytes of a letter", err)
	}
	p := &deadletter.Payload{Key: key, Value: value}
	p.Headers, err = sqlquery.ParseHeaders(headers)
	return p, l.failed("read the headers of a letter", err)
}

// hour and day are as long as the text of their beginning, in microseconds.
const (
	hour = int64(time.Hour / time.Microsecond)
	day  = 24 * hour
)

// common is what letters of a group have in common, in SQL, and 0 or how long a span of time it is.
func common(by deadletter.GroupBy) (expression string, span int64, err error) {
	switch by {
	case deadletter.ByFingerprint:
		return "fingerprint", 0, nil
	case deadletter.ByReason:
		return "reason", 0, nil
	case deadletter.ByErrorType:
		return "error_type", 0, nil
	case deadletter.ByOrigin:
		return "origin", 0, nil
	case deadletter.ByLabel:
		return "label", 0, nil
	case deadletter.ByState:
		return "state", 0, nil
	case deadletter.ByHour:
		return fmt.Sprintf("dead_at / %d", hour), hour, nil
	case deadletter.ByDay:
		return fmt.Sprintf("dead_at / %d", day), day, nil
	default:
		return "", 0, fmt.Errorf("letters can not be counted by %q", by)
	}
}

// Groups implements deadletter.Catalogue.
func (l *Ledger) Groups(ctx context.Context, filter deadletter.Filter, by deadletter.GroupBy, limit int) ([]deadletter.Group, error) {
	expression, span, err := common(by)
	if err != nil {
		return nil, err
	}
	order := "2 DESC, 1"
	if span > 0 {
		order = "1"
	}
	if limit <= 0 {
		limit = sqlquery.DefaultLimit
	}
	groups := []deadletter.Group{}
	err = l.snapshot(ctx, func(tx *sql.Tx) error {
		q := dialect.New()
		q.Filter(filter)
		values := []any{}
		err := each(ctx, tx, "SELECT "+expression+", count(*), min(dead_at), max(dead_at) FROM letters WHERE "+q.Where()+
			" GROUP BY 1 ORDER BY "+order+" LIMIT "+q.Arg(limit), q.Args(), func(scan func(...any) error) error {
			var value any
			var g deadletter.Group
			if err := scan(&value, &g.Count, (*moment)(&g.First), (*moment)(&g.Last)); err != nil {
				return err
			}
			g.Value = fmt.Sprint(value)
			if number, ok := value.(int64); ok {
				g.Value = time.UnixMicro(number * span).UTC().Format(time.RFC3339)
			}
			values = append(values, value)
			groups = append(groups, g)
			return nil
		})
		if err != nil {
			return err
		}
		for i := range groups {
			q := dialect.New()
			q.Filter(filter)
			q.And(expression + " = " + q.Arg(values[i]))
			q.And("dead_at = " + q.Arg(groups[i].Last.UnixMicro()))
			newest, err := letters(ctx, tx, q.Where()+" ORDER BY id DESC LIMIT 1", q.Args()...)
			if err != nil {
				return err
			}
			groups[i].Newest = newest[0]
		}
		return nil
	})
	return groups, l.failed("count letters that are alike", err)
}

// Stats implements deadletter.Catalogue.
func (l *Ledger) Stats(ctx context.Context) ([]deadletter.Stat, error) {
	out := []deadletter.Stat{}
	recent := time.Now().Add(-time.Hour).UnixMicro()
	err := each(ctx, l.read, `SELECT name, origin, state, count(*), min(dead_at), sum(dead_at > ?1) FROM `+letterTables+` GROUP BY name, origin, state ORDER BY name, origin, state`,
		[]any{recent}, func(scan func(...any) error) error {
			var s deadletter.Stat
			if err := scan(&s.Topic, &s.Origin, &s.State, &s.Count, (*moment)(&s.Oldest), &s.LastHour); err != nil {
				return err
			}
			out = append(out, s)
			return nil
		})
	return out, l.failed("count letters by topic and state", err)
}

// Older implements deadletter.Catalogue.
func (l *Ledger) Older(ctx context.Context, letter deadletter.Letter) (first *deadletter.Letter, count int64, err error) {
	if letter.Key == nil || letter.OriginPartition < 0 || letter.OriginOffset < 0 {
		return nil, 0, nil
	}
	err = l.snapshot(ctx, func(tx *sql.Tx) error {
		q := dialect.New()
		q.Key(letter.Key)
		q.And("origin = " + q.Arg(letter.Origin))
		q.And("origin_partition = " + q.Arg(letter.OriginPartition))
		q.And("origin_offset >= 0 AND origin_offset < " + q.Arg(letter.OriginOffset))
		q.And("state IN ('dead', 'claimed')")
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM letters WHERE "+q.Where(), q.Args()...).Scan(&count); err != nil || count == 0 {
			return err
		}
		found, err := letters(ctx, tx, q.Where()+" ORDER BY origin_offset, id LIMIT 1", q.Args()...)
		if err != nil {
			return err
		}
		first = &found[0]
		return nil
	})
	return first, count, l.failed("look for older letters of a key", err)
}

// Audit implements deadletter.Catalogue.
func (l *Ledger) Audit(ctx context.Context, below int64, limit int) ([]deadletter.Entry, error) {
	out := []deadletter.Entry{}
	err := each(ctx, l.read, `SELECT id, at, actor, action, reason, object, count, detail FROM audit WHERE ?1 = 0 OR id < ?1 ORDER BY id DESC LIMIT ?2`,
		[]any{below, limit}, func(scan func(...any) error) error {
			var e deadletter.Entry
			if err := scan(&e.ID, (*moment)(&e.At), &e.Actor, &e.Action, &e.Reason, &e.Object, &e.Count, &e.Detail); err != nil {
				return err
			}
			out = append(out, e)
			return nil
		})
	return out, l.failed("read the audit trail", err)
}
