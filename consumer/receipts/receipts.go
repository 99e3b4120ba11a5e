package receipts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// DefaultKeep is how long receipts are kept where nothing else is said: what the inbox and one tier hold, by the week that
// Redrive gives them.
const DefaultKeep = 14 * 24 * time.Hour

// Options say whose receipts these are, and where.
type Options struct {
	// Dialect is that of the database. Required.
	Dialect Dialect
	// Consumer names who has the effect, at best by its consumer group: the receipts of one are nothing to another. Required,
	// at most 255 bytes of text. With another name all receipts are forgotten.
	Consumer string
	// Keep is how long after its receipt a copy is caught for sure, see the package comment. 0 is DefaultKeep. It should not be
	// below the retention of the inbox plus that of the tier which is kept longest.
	Keep time.Duration
}

// Receipts writes and forgets receipts.
type Receipts struct {
	consumer                  string
	keep                      time.Duration
	once, mark, prune, forget string
}

// New checks the options. It does not talk to a database.
func New(o Options) (*Receipts, error) {
	if o.Dialect != Postgres && o.Dialect != SQLite {
		return nil, fmt.Errorf("dialect %q is neither %q nor %q", string(o.Dialect), string(Postgres), string(SQLite))
	}
	if o.Consumer == "" || len(o.Consumer) > 255 || !storable(o.Consumer) {
		return nil, errors.New("the name of the consumer must be a text of 1 to 255 bytes")
	}
	if o.Keep < 0 {
		return nil, fmt.Errorf("keep %v is negative", o.Keep)
	}
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	return &Receipts{
		consumer: o.Consumer,
		keep:     o.Keep,
		once:     o.Dialect.text(onceSQL),
		mark:     o.Dialect.text(markSQL),
		prune:    o.Dialect.text(pruneSQL),
		forget:   o.Dialect.text(forgetSQL),
	}, nil
}

// Once writes the receipt of a message in tx, and tells whether it is the first: then, and only then, do its work in the same
// transaction. If it is not, there is nothing to do: commit, and treat the record as handled. If the work fails roll back,
// and the receipt is gone as well; so do that before the record is handed to Redrive.
//
// It waits for a transaction that handles the same message at the same time. Where the isolation is repeatable read or
// stricter the database may refuse the loser instead, with its error for a conflict: begin the transaction again. After
// an error the transaction can not be committed.
func (r *Receipts) Once(ctx context.Context, tx Tx, id ID) (first bool, err error) {
	message, original, err := id.columns()
	if err != nil {
		return false, err
	}
	rows, err := tx.Exec(ctx, r.once, r.consumer, message, original)
	if err != nil {
		return false, fmt.Errorf("write the receipt of %s: %w", id, err)
	}
	return rows == 1, nil
}

// Tx is an open transaction. SQL and Pgx make one of what a driver has; anything else that executes a statement, returns how
// many rows it changed, and is committed or rolled back as a whole does as well. A connection that commits each statement by itself is
// none: a receipt without its effect loses the record.
type Tx interface {
	Exec(ctx context.Context, query string, args ...any) (rows int64, err error)
}

// SQL is a transaction of database/sql.
func SQL(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// PgxTx is what pgx.Tx has and pgx.Conn and pgxpool.Pool have not, so that neither is taken for a transaction. Tag is
// pgconn.CommandTag.
type PgxTx[Tag interface{ RowsAffected() int64 }] interface {
	Exec(ctx context.Context, query string, args ...any) (Tag, error)
	Commit(ctx context.Context) error
}

// Pgx is a transaction of pgx. The type argument is found by the compiler.
func Pgx[Tag interface{ RowsAffected() int64 }](tx PgxTx[Tag]) Tx { return pgxTx[Tag]{tx} }

type pgxTx[Tag interface{ RowsAffected() int64 }] struct{ tx PgxTx[Tag] }

func (t pgxTx[Tag]) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return tag.RowsAffected(), nil
}
