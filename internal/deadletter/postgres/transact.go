package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
)

// tries is how often a transaction is tried that the database itself breaks off.
const tries = 5

// stillness is how long the database waits in a transaction for the next statement, and then breaks it off. What a process that
// is stopped, or cut off from the network, has locked would be locked for as long otherwise: its jobs could not be taken over.
const stillness = 10 * time.Second

// beginning is how a transaction begins. It is not set for the session, since a pooler lends that out to others.
func beginning(stillness time.Duration) string {
	return fmt.Sprintf("BEGIN; SET LOCAL idle_in_transaction_session_timeout = %d", stillness.Milliseconds())
}

// errAgain asks transact to begin anew: what was read before is not so any more.
var errAgain = errors.New("changed meanwhile")

// call bounds a call by the life of the ledger.
func (l *Ledger) call(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.closed, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// transact does something in one transaction, again and from the start if it lost against another one. An error of do rolls
// it back. act says what it is about, for errors.
func (l *Ledger) transact(ctx context.Context, act string, do func(context.Context, pgx.Tx) error) error {
	ctx, done := l.call(ctx)
	defer done()
	for try := 1; ; try++ {
		err := pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{BeginQuery: l.begin}, func(tx pgx.Tx) error { return do(ctx, tx) })
		if err == nil || !lost(err) || try == tries {
			return wrap(act, err)
		}
		pause := time.Duration(rand.Int64N(int64(try) * int64(20*time.Millisecond))) //nolint:gosec // It is no secret.
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return wrap(act, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// lost tells whether a transaction was broken off in favour of another, so that nothing of it was done.
func lost(err error) bool {
	if errors.Is(err, errAgain) {
		return true
	}
	var failure *pgconn.PgError
	return errors.As(err, &failure) && (failure.Code == "40001" || failure.Code == "40P01")
}

// inOrder keeps the rest of a transaction from reading a bitmap of all rows that fit, instead of an index in its order up to what
// is enough. Statistics take them for few where a job has just got many. A bitmap also reads again and again, until the next
// vacuum, what a plain scan takes out of the way of the next one: the entry of each letter that was claimed once.
func inOrder(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL enable_bitmapscan = off")
	return wrap("set how to read", err)
}

func wrap(act string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", act, err)
}

// moved makes one statement of an UPDATE or DELETE of letters, which must return topic, origin, the state before as was and
// the state after as state (an empty one for none), and of what is selected FROM moved at the end. It notes in the tallies what went
// where.
func moved(change, answer string) string {
	return "WITH moved AS (" + change + "), " + tallied + " " + answer
}

// movedAfter is moved with common table expressions that stand before it.
func movedAfter(with, change, answer string) string {
	return "WITH " + with + ", moved AS (" + change + "), " + tallied + " " + answer
}

const tallied = `tallied AS (
	INSERT INTO tallies (topic, origin, state, n)
	SELECT topic, origin, was, -count(*) FROM moved WHERE was <> state GROUP BY topic, origin, was
	UNION ALL
	SELECT topic, origin, state, count(*) FROM moved WHERE was <> state AND state <> '' GROUP BY topic, origin, state
)`

// record adds a row to the audit trail.
func record(ctx context.Context, tx pgx.Tx, e deadletter.Entry) error {
	_, err := tx.Exec(ctx, "INSERT INTO audit (actor, action, reason, object, count, detail) VALUES ($1, $2, $3, $4, $5, $6)",
		storable(e.Actor), storable(e.Action), storable(e.Reason), storable(e.Object), e.Count, storable(e.Detail))
	return wrap("write the audit trail", err)
}

// storable is a text as Postgres can store it: valid UTF-8 without the zero byte. One bad text must not stop the rest.
func storable(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// short is a text as it stands in the columns of letters: storable, and no longer than an index takes.
func short(s string) string {
	s = storable(s)
	if len(s) <= envelope.MaxText {
		return s
	}
	end := envelope.MaxText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// The times that are stored lie between these: a time beyond could not be written down by those who read it.
var (
	firstTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

func storableTime(t time.Time) time.Time {
	switch {
	case t.Before(firstTime):
		return firstTime
	case t.After(lastTime):
		return lastTime
	default:
		return t.UTC().Truncate(time.Microsecond)
	}
}
