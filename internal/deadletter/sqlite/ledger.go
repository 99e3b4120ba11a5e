// Package sqlite keeps the ledger of dead letters in one file, for one machine, a demo and tests.
//
// The model: [Open] locks the file against all others, makes or migrates it and returns a [Ledger]. All changes go through
// one connection, one transaction after another, each of which is on disk when the call returns; a few more connections read
// beside it and see what was committed when they began. The process is the database here, and so its clock is that of the
// database: times and leases come from time.Now.
//
// It promises what package deadletter does, whatever kills the process. It refuses a file that another process has open, a
// file that is not a ledger, and one of a newer version; and it refuses nothing silently: the errors name the file and what
// can be done. What it cannot see is that the file was put back to an older state. Whoever does that says so by [Restored].
//
// A Ledger is safe for concurrent use. It has no goroutine that outlives Close, and works inside a testing/synctest bubble if
// it is opened and closed there.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// ErrInUse is a file that another process, or another Ledger of this one, has open.
var ErrInUse = errors.New("the ledger is in use")

// application tells a ledger from the file of another program: "RDRV".
const application = 0x52445256

// readers is how many connections read beside the one that writes.
const readers = 4

//go:embed migrations/*.sql
var migrations embed.FS

// Options say which file the ledger is.
type Options struct {
	// Path is the file. It and its folder are made if they are not there. Two more files beside it, with -wal and -shm
	// appended, belong to it; one with .lock is never read.
	Path string
}

// Ledger is a ledger in a file.
type Ledger struct {
	path  string
	lock  *lock
	write *sql.DB // one connection
	read  *sql.DB
}

var _ deadletter.Ledger = (*Ledger)(nil)

// Open opens a ledger, and makes or migrates the file first. It is ErrInUse if somebody else has it open, and
// deadletter.ErrNewer if a newer version of this program has migrated it in a way that this one does not understand.
func Open(ctx context.Context, o Options) (*Ledger, error) {
	l, _, _, err := open(ctx, o)
	return l, err
}

// Migrate makes or migrates the file, and says from which version to which; both are the same if there was nothing to do.
func Migrate(ctx context.Context, o Options) (from, to int64, err error) {
	l, from, to, err := open(ctx, o)
	if err != nil {
		return 0, 0, err
	}
	return from, to, l.Close()
}

// Restored notes that the file was put back to an older state. Whoever did so has removed the files with -wal and -shm, which
// are of the state that is gone and would be written into this one. It begins an epoch that no fence is of which was given before,
// also if the same state was put back before.
func Restored(ctx context.Context, o Options) (epoch int64, err error) {
	l, err := Open(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	err = l.change(ctx, "begin a new epoch of the ledger", func(tx *change) error {
		// The state that was put back does not know the epochs after it. The clock does.
		if err := tx.get(`UPDATE meta SET epoch = max(epoch + 1, ?1), fence = 0 RETURNING epoch`, tx.now.Unix())(&epoch); err != nil {
			return err
		}
		return tx.record(deadletter.Entry{
			Actor: "redrive", Action: "restored", Reason: "the ledger was put back to an older state", Object: "ledger",
			Detail: fmt.Sprintf("epoch %d", epoch),
		})
	})
	return epoch, err
}

// open locks a file and opens it, and tells from which version it was migrated to which.
func open(ctx context.Context, o Options) (l *Ledger, from, to int64, err error) {
	path, err := locate(o.Path)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("open the ledger %q: %w", o.Path, err)
	}
	held, err := acquire(path + ".lock")
	if err != nil {
		return nil, 0, 0, fmt.Errorf("open the ledger %s: %w", path, err)
	}
	l = &Ledger{path: path, lock: held}
	if from, to, err = l.begin(ctx); err != nil {
		return nil, 0, 0, errors.Join(fmt.Errorf("open the ledger %s: %w", path, explain(err)), l.Close())
	}
	return l, from, to, nil
}

// begin opens the connections to the locked file, and makes or migrates it.
func (l *Ledger) begin(ctx context.Context) (from, to int64, err error) {
	// The file holds keys and perhaps whole records. SQLite would make it readable for all, and gives its other files the same
	// mode. Nothing of SQLite is open yet, so that closing a descriptor of the file drops no lock of it.
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, 0, err
	}
	if err := file.Close(); err != nil {
		return 0, 0, err
	}
	if err := own(ctx, l.path); err != nil {
		return 0, 0, err
	}
	if l.write, err = sql.Open("sqlite", name(l.path, settings("_txlock=immediate", "_pragma=wal_autocheckpoint(4000)", "_pragma=journal_size_limit(67108864)", "_pragma=cache_size(-65536)")...)); err != nil {
		return 0, 0, err
	}
	l.write.SetMaxOpenConns(1)
	l.write.SetMaxIdleConns(1)
	if l.read, err = sql.Open("sqlite", name(l.path, settings("_query_only=1", "_pragma=cache_size(-8192)")...)); err != nil {
		return 0, 0, err
	}
	l.read.SetMaxOpenConns(readers)
	l.read.SetMaxIdleConns(readers)
	return l.migrate(ctx)
}

// locate makes the folder of a file, and finds the file that a link to it stands for: the lock must be the same by any name.
func locate(path string) (string, error) {
	if path == "" {
		return "", errors.New("no path is given")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		folder, err := filepath.EvalSymlinks(filepath.Dir(path))
		return filepath.Join(folder, filepath.Base(path)), err
	}
	return target, err
}

// name is the file as the driver wants it.
func name(path string, settings ...string) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // A drive letter.
	}
	return "file:" + (&url.URL{Path: slashed}).EscapedPath() + "?" + strings.Join(settings, "&")
}

// settings hold for each connection that a pool makes.
func settings(more ...string) []string {
	return append([]string{
		"_pragma=journal_mode(WAL)", "_pragma=synchronous(FULL)", "_pragma=busy_timeout(10000)", "_pragma=temp_store(MEMORY)", "_dqs=0",
	}, more...)
}

// own makes sure that the file is a ledger, or empty, on a connection without settings: to set a journal mode would change
// the file of another program.
func own(ctx context.Context, path string) (err error) {
	db, err := sql.Open("sqlite", name(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	var owner, tables int64
	if err := db.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&owner); err != nil {
		return err
	}
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&tables); err != nil {
		return err
	}
	switch {
	case owner == application:
		return nil
	case owner == 0 && tables == 0:
		_, err := db.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", application))
		return err
	default:
		return errors.New("the file is a database of another program: give the ledger a file of its own")
	}
}

// migrate brings the schema to the version of this program, or leaves one alone that is newer and can be worked with.
func (l *Ledger) migrate(ctx context.Context) (from, to int64, err error) {
	folder, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return 0, 0, err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, l.write, folder,
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return 0, 0, err
	}
	from, to, err = provider.GetVersions(ctx)
	if err != nil {
		return 0, 0, err
	}
	if from > to {
		var compatible int64
		if err := l.write.QueryRowContext(ctx, `SELECT compatible_from FROM meta`).Scan(&compatible); err != nil {
			return 0, 0, err
		}
		if compatible > to {
			return 0, 0, fmt.Errorf("%w: its schema is version %d, this program knows %d: run the newer program, or put back the file of before the upgrade",
				deadletter.ErrNewer, from, to)
		}
		return from, from, nil
	}
	if _, err := provider.Up(ctx); err != nil {
		return 0, 0, err
	}
	return from, to, nil
}

// explain says what can be done about errors that an operator meets.
func explain(err error) error {
	var sqliteErr *driver.Error
	if !errors.As(err, &sqliteErr) {
		return err
	}
	switch sqliteErr.Code() & 0xff {
	case codes.SQLITE_NOTADB:
		return fmt.Errorf("the file is not a ledger and no SQLite database: give the ledger a file of its own: %w", err)
	case codes.SQLITE_CORRUPT:
		return fmt.Errorf("the file is damaged: put back a copy of it, without its -wal and -shm, and run migrate --restored; or remove all three, then the letters are indexed anew and nothing is known of their replays: %w", err)
	case codes.SQLITE_FULL:
		return fmt.Errorf("the disk is full: %w", err)
	case codes.SQLITE_READONLY, codes.SQLITE_CANTOPEN:
		return fmt.Errorf("the file, or the folder it is in, can not be written to: %w", err)
	default:
		return err
	}
}

// Ping tells whether the file can be read.
func (l *Ledger) Ping(ctx context.Context) error {
	_, err := l.Epoch(ctx)
	return err
}

// Epoch is the number of the ledger's current life.
func (l *Ledger) Epoch(ctx context.Context) (epoch int64, err error) {
	err = l.read.QueryRowContext(ctx, `SELECT epoch FROM meta`).Scan(&epoch)
	return epoch, l.failed("read the epoch", err)
}

// Close closes the file and lets others open it.
func (l *Ledger) Close() error {
	var errs []error
	for _, db := range []*sql.DB{l.read, l.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, l.lock.release())...)
}

// failed says what could not be done, and with which file. The errors of package deadletter, which are no failure of the
// file, say enough.
func (l *Ledger) failed(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s: %w", what, deadletter.ErrUnknown)
	default:
		return fmt.Errorf("%s: ledger %s: %w", what, l.path, explain(err))
	}
}

// change is one transaction that writes. Its statements do not end with the context of the call: each of them is short, but
// for those that say otherwise, and what is not committed is rolled back as a whole.
type change struct {
	ctx  context.Context // of the call
	rows context.Context // without an end
	tx   *sql.Tx
	now  time.Time
	// prepared are the statements of this transaction by their text.
	prepared map[string]*sql.Stmt
}

// change runs a transaction. Only one runs at a time: what it has read stays as it is until it has written.
func (l *Ledger) change(ctx context.Context, what string, do func(tx *change) error) error {
	return l.failed(what, func() error {
		tx, err := l.write.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		c := &change{ctx: ctx, rows: context.WithoutCancel(ctx), tx: tx, now: time.Now().UTC().Truncate(time.Microsecond), prepared: map[string]*sql.Stmt{}}
		if err := do(c); err != nil {
			return errors.Join(err, ended(tx.Rollback()))
		}
		return tx.Commit()
	}())
}

// ended is the error of a rollback, but for that of one which the end of the context has done already.
func ended(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// micros is when the transaction began.
func (c *change) micros() int64 { return c.now.UnixMicro() }

// exec runs a statement that is prepared once for the transaction, and returns how many rows it changed.
func (c *change) exec(statement string, args ...any) (int64, error) {
	prepared, ok := c.prepared[statement]
	if !ok {
		var err error
		if prepared, err = c.tx.PrepareContext(c.rows, statement); err != nil {
			return 0, err
		}
		c.prepared[statement] = prepared // Closed with the transaction.
	}
	result, err := prepared.ExecContext(c.rows, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// long runs a statement that may take long, and ends with the context of the call.
func (c *change) long(statement string, args ...any) (int64, error) {
	result, err := c.tx.ExecContext(c.ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// get runs a statement that returns one row. It is sql.ErrNoRows if there is none.
func (c *change) get(statement string, args ...any) func(into ...any) error {
	return c.tx.QueryRowContext(c.rows, statement, args...).Scan
}

// fences gives n fences that were never given, as the first of them.
func (c *change) fences(n int) (epoch, first int64, err error) {
	err = c.get(`UPDATE meta SET fence = fence + ?1 RETURNING epoch, fence`, n)(&epoch, &first)
	return epoch, first - int64(n) + 1, err
}

// record adds a row to the audit trail.
func (c *change) record(e deadletter.Entry) error {
	_, err := c.exec(`INSERT INTO audit (at, actor, action, reason, object, count, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)`,
		c.micros(), e.Actor, e.Action, e.Reason, e.Object, e.Count, e.Detail)
	return err
}
