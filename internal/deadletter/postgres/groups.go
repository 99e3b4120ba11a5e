package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// defaultGroups is how many groups there are at most where the caller does not say.
const defaultGroups = 100

var errGroupBy = errors.New("letters cannot be counted by it")

// groupedBy is the expression of what letters are counted by.
func groupedBy(by deadletter.GroupBy) (string, error) {
	switch by {
	case deadletter.ByFingerprint:
		return "fingerprint", nil
	case deadletter.ByReason:
		return "reason", nil
	case deadletter.ByErrorType:
		return "error_type", nil
	case deadletter.ByOrigin:
		return "origin", nil
	case deadletter.ByLabel:
		return "label", nil
	case deadletter.ByState:
		return "state", nil
	case deadletter.ByHour:
		return "date_trunc('hour', dead_at AT TIME ZONE 'UTC')", nil
	case deadletter.ByDay:
		return "date_trunc('day', dead_at AT TIME ZONE 'UTC')", nil
	default:
		return "", fmt.Errorf("%q: %w", string(by), errGroupBy)
	}
}

// Groups counts letters that are alike, the largest group first; hours and days come in their order, the latest of them if
// there are more than the limit. It reads all letters that the filter selects.
func (l *Ledger) Groups(ctx context.Context, filter deadletter.Filter, by deadletter.GroupBy, limit int) ([]deadletter.Group, error) {
	expression, err := groupedBy(by)
	if err != nil {
		return nil, wrap("group letters", err)
	}
	if limit <= 0 {
		limit = defaultGroups
	}
	ctx, done := l.call(ctx)
	defer done()
	q := selection(filter)
	order, outer, shown, same := "n DESC, value", "n DESC, value", "value", " AND "+expression+" = value"
	if by == deadletter.ByHour || by == deadletter.ByDay {
		// What died at the latest time of an hour is of that hour.
		order, outer, shown, same = "value DESC", "value", `to_char(value, 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`, ""
	}
	where := q.Where()
	// All states are named so that the newest of a group, whose time is known, is found in an index that begins with the state.
	sql := `SELECT ` + shown + `, n, first, last, (
			SELECT id FROM letters WHERE ` + where + same + ` AND dead_at = last AND state = ANY(` + q.Arg(stateNames()) + `) ORDER BY id DESC LIMIT 1
		) FROM (
			SELECT ` + expression + ` AS value, count(*) AS n, min(dead_at) AS first, max(dead_at) AS last
			FROM letters WHERE ` + where + ` GROUP BY 1 ORDER BY ` + order + ` LIMIT ` + q.Arg(limit) + `
		) AS alike ORDER BY ` + outer
	rows, err := l.pool.Query(ctx, sql, withPlan(q.Args())...)
	if err != nil {
		return nil, wrap("group letters", err)
	}
	newest := []*int64{}
	groups, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g deadletter.Group, err error) {
		var id *int64
		err = row.Scan(&g.Value, &g.Count, &g.First, &g.Last, &id)
		g.First, g.Last = g.First.UTC(), g.Last.UTC()
		newest = append(newest, id)
		return g, err
	})
	if err != nil {
		return nil, wrap("group letters", err)
	}
	letters, err := l.byID(ctx, l.pool, newest)
	if err != nil {
		return nil, wrap("group letters", err)
	}
	for i, id := range newest {
		if id != nil {
			groups[i].Newest = letters[*id] // Empty if it was purged in this moment.
		}
	}
	return groups, nil
}

// byID reads letters; nil ids are left out.
func (l *Ledger) byID(ctx context.Context, on querier, ids []*int64) (map[int64]deadletter.Letter, error) {
	letters, err := l.letters(ctx, on, "SELECT "+letterColumns+" FROM letters WHERE id = ANY($1)", ids)
	if err != nil {
		return nil, err
	}
	found := make(map[int64]deadletter.Letter, len(letters))
	for _, letter := range letters {
		found[letter.ID] = letter
	}
	return found, nil
}

func stateNames() []string {
	var names []string
	for _, state := range deadletter.States() {
		names = append(names, string(state))
	}
	return names
}

// maxTallies is how many rows of tallies are left to be summed up by whoever reads them.
const maxTallies = 1000

// Stats counts letters by topic, origin and state.
func (l *Ledger) Stats(ctx context.Context) ([]deadletter.Stat, error) {
	if err := l.sumTallies(ctx); err != nil {
		return nil, err
	}
	ctx, done := l.call(ctx)
	defer done()
	// A topic that was made again is one here. The newest incarnation's oldest letter must not be looked for behind all of the others.
	rows, err := l.pool.Query(ctx, `WITH counts AS (
			SELECT t.name, c.origin, c.state, sum(c.n)::bigint AS n FROM tallies c JOIN topics t ON t.no = c.topic
			GROUP BY t.name, c.origin, c.state HAVING sum(c.n) > 0
		), recent AS (
			SELECT t.name, l.origin, l.state, count(*) AS n FROM letters l JOIN topics t ON t.no = l.topic
			WHERE l.state = ANY($1) AND l.dead_at > now() - interval '1 hour' GROUP BY t.name, l.origin, l.state
		) SELECT name, origin, state, c.n, (
			SELECT dead_at FROM letters l WHERE l.origin = c.origin AND l.state = c.state
				AND l.topic = ANY(ARRAY(SELECT no FROM topics WHERE topics.name = c.name)) ORDER BY l.dead_at LIMIT 1
		), coalesce(r.n, 0) FROM counts c LEFT JOIN recent r USING (name, origin, state) ORDER BY name, origin, state`, stateNames())
	if err != nil {
		return nil, wrap("count by topic and state", err)
	}
	stats, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s deadletter.Stat, err error) {
		var state string
		var oldest *time.Time
		err = row.Scan(&s.Topic, &s.Origin, &state, &s.Count, &oldest, &s.LastHour)
		s.State, s.Oldest = deadletter.State(state), instant(oldest)
		return s, err
	})
	return stats, wrap("count by topic and state", err)
}

// sumTallies puts one row of tallies in the place of many, from time to time. Nobody sees a sum that is wrong meanwhile, and two
// that do it at once take different rows.
func (l *Ledger) sumTallies(ctx context.Context) error {
	return l.transact(ctx, "sum up the tallies", func(ctx context.Context, tx pgx.Tx) error {
		var many bool
		if err := tx.QueryRow(ctx, "SELECT count(*) > $1 FROM tallies", maxTallies).Scan(&many); err != nil || !many {
			return err
		}
		_, err := tx.Exec(ctx, `WITH gone AS (
				DELETE FROM tallies WHERE id IN (SELECT id FROM tallies ORDER BY id LIMIT 100000 FOR UPDATE SKIP LOCKED)
				RETURNING topic, origin, state, n
			) INSERT INTO tallies (topic, origin, state, n)
			SELECT topic, origin, state, sum(n)::bigint FROM gone GROUP BY topic, origin, state HAVING sum(n) <> 0`)
		return err
	})
}
