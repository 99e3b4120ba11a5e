package receipts

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // The driver for Postgres.
	_ "modernc.org/sqlite"             // The driver for SQLite.

	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// database is one with the schema and a table for effects.
type database struct {
	*sql.DB

	dialect Dialect
	url     string
}

func openSQLite(t *testing.T) *database {
	t.Helper()
	// Immediate: a transaction that reads first and then writes would be refused, not wait, when another one writes.
	return open(t, SQLite, "sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
}

func openPostgres(t *testing.T) *database {
	t.Helper()
	return open(t, Postgres, "pgx", testkit.RealPostgres(t))
}

func open(t *testing.T, dialect Dialect, driver, url string) *database {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	d := &database{db, dialect, url}
	d.exec(t, Schema)
	d.exec(t, "CREATE TABLE effects (name varchar(1024))")
	return d
}

func (d *database) exec(t testing.TB, statement string) {
	t.Helper()
	if _, err := d.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func (d *database) count(t testing.TB, table string) (n int) {
	t.Helper()
	if err := d.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// pass lets time go by: the clock of a database can not be set, but what is noted can be older.
func (d *database) pass(t testing.TB, by time.Duration) {
	t.Helper()
	d.exec(t, fmt.Sprintf("UPDATE redrive_receipts SET received_ms = received_ms - %d", by.Milliseconds()))
	d.exec(t, fmt.Sprintf("UPDATE redrive_receipt_marks SET taken_ms = taken_ms - %d, passed_ms = passed_ms - %[1]d", by.Milliseconds()))
}

func (d *database) receipts(t testing.TB, consumer string, keep time.Duration) *Receipts {
	t.Helper()
	r, err := New(Options{Dialect: d.dialect, Consumer: consumer, Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// in runs work in a transaction, which an error rolls back.
func (d *database) in(ctx context.Context, work func(Tx) error) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := work(sqlTx{tx}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// handle is a consumer's handler: the effect in the transaction of the receipt.
func (d *database) handle(ctx context.Context, r *Receipts, id ID, failure error) (first bool, err error) {
	err = d.in(ctx, func(tx Tx) error {
		if first, err = r.Once(ctx, tx, id); err != nil || !first {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO effects (name) VALUES ('"+strings.ReplaceAll(id.Message, "\x00", "")+"')"); err != nil {
			return err
		}
		return failure
	})
	return first, err
}

func (d *database) prune(t testing.TB, r *Receipts, s *Survey) (deleted int64) {
	t.Helper()
	err := d.in(t.Context(), func(tx Tx) (err error) {
		deleted, err = r.Prune(t.Context(), tx, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return deleted
}

// each runs a test on all dialects.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	t.Run("sqlite", func(t *testing.T) { test(t, openSQLite(t)) })
	t.Run("postgres", func(t *testing.T) {
		if testing.Short() {
			t.Skip("needs Postgres")
		}
		test(t, openPostgres(t))
	})
}

func TestTheSecondCopyHasNoEffect(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		r := d.receipts(t, "billing", 0)
		at := time.UnixMilli(1_767_582_000_007)
		id := ID{"orders/2/4711", at}
		for _, step := range []struct {
			name     string
			receipts *Receipts
			id       ID
			first    bool
		}{
			{"first", r, id, true},
			{"second", r, id, false},
			{"third", r, id, false},
			{"below a millisecond it is the same time", r, ID{id.Message, at.Add(time.Microsecond)}, false},
			{"the topic was made again", r, ID{id.Message, at.Add(time.Hour)}, true},
			{"the time is not known", r, ID{Message: id.Message}, true},
			{"and again", r, ID{Message: id.Message}, false},
			{"another message", r, ID{"orders/2/4712", at}, true},
			{"another consumer", d.receipts(t, "shipping", 0), id, true},
			{"a name with a NUL", r, ID{"a\x00b", at}, true},
			{"once more", r, ID{"a\x00b", at}, false},
			{"another name with a NUL", r, ID{"a\x00c", at}, true},
			{"as long as can be", r, ID{strings.Repeat("\U0001F980", 256), at}, true},
		} {
			first, err := d.handle(t.Context(), step.receipts, step.id, nil)
			if err != nil || first != step.first {
				t.Errorf("%s: first %v, %v", step.name, first, err)
			}
		}
		if _, err := d.handle(t.Context(), r, ID{}, nil); err == nil {
			t.Error("a message without an id has a receipt")
		}
		if n := d.count(t, "effects"); n != 8 {
			t.Errorf("%d effects", n)
		}
	})
}

func TestWorkThatFailsLeavesNoReceipt(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		r := d.receipts(t, "billing", 0)
		failure := errors.New("card refused")
		if first, err := d.handle(t.Context(), r, ID{Message: "m"}, failure); !first || !errors.Is(err, failure) {
			t.Fatalf("first %v, %v", first, err)
		}
		if first, err := d.handle(t.Context(), r, ID{Message: "m"}, nil); !first || err != nil {
			t.Errorf("after the rollback: first %v, %v", first, err)
		}
		if n := d.count(t, "effects"); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

// A member that lost its partition and the one that has it now may handle one record at the same time.
func TestOfManyAtATimeOneHasTheEffect(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		r := d.receipts(t, "billing", 0)
		const messages, members = 5, 8
		var wait sync.WaitGroup
		for m := range messages {
			for member := range members {
				wait.Go(func() {
					var failure error
					if member == 0 {
						failure = errors.New("card refused")
					}
					_, err := d.handle(t.Context(), r, ID{Message: fmt.Sprint(m)}, failure)
					if err != nil && !errors.Is(err, failure) {
						t.Error(err)
					}
				})
			}
		}
		wait.Wait()
		if n := d.count(t, "effects"); n != messages {
			t.Errorf("%d effects of %d messages", n, messages)
		}
	})
}

func TestPgxTransactionsWriteReceiptsToo(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Postgres")
	}
	d := openPostgres(t)
	r := d.receipts(t, "billing", 0)
	conn, err := pgx.Connect(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var got []bool
	for range 2 {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			first, err := r.Once(t.Context(), Pgx(tx), ID{Message: "m"})
			got = append(got, first)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := gocmp.Diff([]bool{true, false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAReceiptGoesOnlyWhenItIsOldAndTheGroupHasPassedItsCopies(t *testing.T) {
	const keep = 24 * time.Hour
	each(t, func(t *testing.T, d *database) {
		r := d.receipts(t, "billing", keep)
		other := d.receipts(t, "shipping", keep)
		for _, receipts := range []*Receipts{r, other} {
			if _, err := d.handle(t.Context(), receipts, ID{Message: "m"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		survey := func(committed0, end0, committed1, end1 int64) int64 {
			s := NewSurvey()
			s.Add("orders", 1, committed1, end1)
			s.Add("orders", 0, committed0, end0)
			return d.prune(t, r, s)
		}
		step := func(what string, got, want int64) {
			t.Helper()
			if got != want {
				t.Fatalf("%s: %d deleted, not %d", what, got, want)
			}
		}
		d.pass(t, 10*keep)
		step("a first survey knows nothing", survey(10, 10, 20, 20), 0)
		step("it is old by then, and passed now", survey(10, 10, 20, 20), 1)
		step("once", survey(10, 10, 20, 20), 0)

		if _, err := d.handle(t.Context(), r, ID{Message: "n"}, nil); err != nil {
			t.Fatal(err)
		}
		d.pass(t, keep+slack-time.Minute)
		step("not old yet when it is noted", survey(12, 15, 20, 25), 0)
		d.pass(t, 10*keep)
		step("one partition is not passed", survey(15, 30, 24, 40), 0)
		step("passed; but at the mark it was not old", survey(20, 31, 25, 41), 0)
		d.pass(t, time.Minute)
		step("the marks of that time are not passed", survey(29, 32, 40, 42), 0)
		// Partition 0 was marked at 30 ten Keeps late, partition 1 at 41.
		step("partition 0 is, partition 1 is not", survey(32, 32, 40, 42), 0)
		step("both are", survey(32, 32, 41, 42), 1)
		if n := d.count(t, "redrive_receipts"); n != 1 {
			t.Errorf("%d receipts are left, not that of the other consumer alone", n)
		}
	})
}

func TestATopicThatIsReadNoMoreHoldsBackUntilItIsForgotten(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		r := d.receipts(t, "billing", time.Hour)
		if _, err := d.handle(t.Context(), r, ID{Message: "m"}, nil); err != nil {
			t.Fatal(err)
		}
		d.pass(t, 24*time.Hour)
		survey := func(topics ...string) int64 {
			s := NewSurvey()
			for _, topic := range topics {
				s.Add(topic, 0, 5, 5)
			}
			return d.prune(t, r, s)
		}
		survey("orders", "orders.old")
		if n := survey("orders"); n != 0 {
			t.Errorf("%d deleted before", n)
		}
		if err := d.in(t.Context(), func(tx Tx) error { return r.Forget(t.Context(), tx, "orders.old") }); err != nil {
			t.Fatal(err)
		}
		if n := survey("orders"); n != 1 {
			t.Errorf("%d deleted after", n)
		}
	})
}

func TestOneCallDeletesABatch(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		r := d.receipts(t, "billing", time.Hour)
		d.exec(t, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10005)
			INSERT INTO redrive_receipts SELECT 'billing', 'm' || i, 0, i FROM n`)
		s := NewSurvey()
		s.Add("orders", 0, 0, 0)
		for _, want := range []int64{0, 10000, 5, 0} {
			if got := d.prune(t, r, s); got != want {
				t.Errorf("%d deleted, not %d", got, want)
			}
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{},
		{Dialect: Postgres},
		{Dialect: "mysql", Consumer: "billing"},
		{Dialect: SQLite, Consumer: strings.Repeat("x", 256)},
		{Dialect: SQLite, Consumer: "a\x00"},
		{Dialect: SQLite, Consumer: "billing", Keep: -1},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestADuplicateInsideTheBoundIsAlwaysCaught plays random lives of a topic: members that crash between their transaction and their
// commit, copies that are written at any time within Keep of the receipt, a consumer that stands still for many times Keep, and
// surveys whenever, with a delay between the question and the note.
func TestADuplicateInsideTheBoundIsAlwaysCaught(t *testing.T) {
	d := openSQLite(t)
	d.exec(t, "PRAGMA synchronous = off")
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for _, table := range []string{"redrive_receipts", "redrive_receipt_marks", "effects"} {
				d.exec(t, "DELETE FROM "+table)
			}
			w := &world{
				database: d, receipts: d.receipts(t, "billing", keep), Rand: rand.New(rand.NewPCG(seed, 1)),
				effects: map[string]int{}, pruned: new(int64),
			}
			for range 250 {
				w.step(t)
			}
			w.away = 0
			// The last records are handled, and then their copies.
			for range 2 {
				for w.consume(t) {
				}
				w.wait(t, keep)
			}
			for w.consume(t) {
			}
			for id, n := range w.effects {
				if n != 1 {
					t.Errorf("%s had %d effects", id, n)
				}
			}
			if len(w.effects) < 20 || w.caught < 20 {
				t.Fatalf("%d messages, %d duplicates: the test shows nothing", len(w.effects), w.caught)
			}
			// The size is bounded: nothing is needed any more.
			w.survey(t)
			w.wait(t, keep+2*slack)
			w.survey(t)
			w.wait(t, time.Hour)
			w.survey(t)
			if n := d.count(t, "redrive_receipts"); n != 0 {
				t.Errorf("%d receipts are left", n)
			}
			t.Logf("%d messages, %d duplicates without effect, %d receipts deleted on the way", len(w.effects), w.caught, *w.pruned)
		})
	}
}

const keep = 24 * time.Hour

// world is a topic of two partitions and its consumer. Its time goes by in pass.
type world struct {
	*database
	*rand.Rand

	receipts  *Receipts
	now       time.Duration
	logs      [2][]string // ids
	committed [2]int
	away      time.Duration // until when the consumer stands still
	pending   []pendingCopy
	effects   map[string]int
	caught    int
	pruned    *int64
	next      int
}

type pendingCopy struct {
	id string
	at time.Duration
}

func (w *world) step(t *testing.T) {
	t.Helper()
	switch n := w.IntN(10); {
	case n < 3: // A producer.
		w.next++
		p := w.IntN(2)
		w.logs[p] = append(w.logs[p], fmt.Sprintf("m%d", w.next))
	case n < 6:
		w.consume(t)
	case n < 7:
		if w.IntN(8) == 0 {
			w.away = w.now + time.Duration(w.IntN(6)+1)*keep
		}
	case n < 8:
		w.survey(t)
	default:
		w.wait(t, time.Duration(w.Int64N(int64(keep/3))))
	}
}

// wait lets time go by. Copies that fall due are written at their time, anywhere.
func (w *world) wait(t *testing.T, by time.Duration) {
	t.Helper()
	until := w.now + by
	slices.SortFunc(w.pending, func(a, b pendingCopy) int { return cmp.Compare(a.at, b.at) })
	for len(w.pending) > 0 && w.pending[0].at <= until {
		w.pass(t, w.pending[0].at-w.now)
		w.now = w.pending[0].at
		p := w.IntN(2)
		w.logs[p] = append(w.logs[p], w.pending[0].id)
		w.pending = w.pending[1:]
	}
	w.pass(t, until-w.now)
	w.now = until
}

// consume handles the next record of a partition, and tells whether there was one.
func (w *world) consume(t *testing.T) bool {
	t.Helper()
	for _, p := range w.Perm(2) {
		if w.now < w.away || w.committed[p] >= len(w.logs[p]) {
			continue
		}
		id := w.logs[p][w.committed[p]]
		first, err := w.handle(t.Context(), w.receipts, ID{Message: id}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if first {
			w.effects[id]++
			// The outcome of the commit was not known, or somebody else failed: it is handed over all the same, and forwarded twice.
			for range w.IntN(3) {
				w.pending = append(w.pending, pendingCopy{id, w.now + time.Duration(w.Int64N(int64(keep)))})
			}
		} else {
			w.caught++
		}
		if w.IntN(4) > 0 { // Else it crashes before the commit.
			w.committed[p]++
		}
		return true
	}
	return false
}

func (w *world) survey(t *testing.T) {
	t.Helper()
	s := NewSurvey()
	for p := range w.logs {
		s.Add("orders", int32(p), int64(w.committed[p]), int64(len(w.logs[p])))
	}
	// Between the question and the note.
	w.wait(t, time.Duration(w.Int64N(int64(slack/2))))
	*w.pruned += w.prune(t, w.receipts, s)
}

// What the bound leaves out has its effect again, and no more is claimed.
func TestACopyBeyondTheBoundHasItsEffectAgain(t *testing.T) {
	d := openSQLite(t)
	r := d.receipts(t, "billing", time.Hour)
	survey := func() {
		s := NewSurvey()
		s.Add("orders", 0, 1, 1)
		d.prune(t, r, s)
	}
	for range 2 {
		if first, err := d.handle(t.Context(), r, ID{Message: "m"}, nil); !first || err != nil {
			t.Fatalf("first %v, %v", first, err)
		}
		d.pass(t, time.Hour+2*slack)
		survey()
		survey()
	}
}
