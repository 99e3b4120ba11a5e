package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// connectTimeout is the limit of one attempt to connect where the URL has none.
const connectTimeout = 10 * time.Second

// Options says which ledger to open.
type Options struct {
	// URL is where the database is: postgres://user:password@host:port/database?sslmode=... It may have all parameters of pgx.
	URL string
	// MaxConnections is the most connections at once; 0 is 8.
	MaxConnections int
	// Logger gets what is seldom and worth knowing, such as a new epoch. Nil: nothing is logged.
	Logger *slog.Logger
}

// Ledger implements [deadletter.Ledger].
type Ledger struct {
	pool   *pgxpool.Pool
	begin  string // the statements that begin a transaction
	logger *slog.Logger
	closed context.Context // ends with Close
	shut   context.CancelFunc

	mu      sync.Mutex // guards the following
	topics  map[int32]topic
	numbers map[deadletter.TopicID]int32
	expired map[partition]int64 // below which no letter can be expired any more
	revived int                 // how often expired was forgotten
}

var _ deadletter.Ledger = (*Ledger)(nil)

type topic struct {
	id   deadletter.TopicID
	name string
}

type partition struct{ topic, partition int32 }

// Open connects to a ledger and checks its schema: it is deadletter.ErrOlder where Migrate has something to do, and
// deadletter.ErrNewer where this program cannot work with what a newer one has made. Close ends the connections.
func Open(ctx context.Context, options Options) (*Ledger, error) {
	config, err := options.parse()
	if err != nil {
		return nil, err
	}
	l := &Ledger{
		logger: options.logger(), begin: beginning(stillness),
		topics: map[int32]topic{}, numbers: map[deadletter.TopicID]int32{}, expired: map[partition]int64{},
	}
	l.closed, l.shut = context.WithCancel(context.Background())
	if err := l.check(ctx, config.ConnConfig); err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	config.AfterConnect = l.prepare
	if l.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	if err := l.Ping(ctx); err != nil {
		l.pool.Close()
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return l, nil
}

func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger.With("component", "ledger")
}

func (o Options) parse() (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		// What pgx says has the password taken out.
		return nil, fmt.Errorf("read the URL of the ledger: %w", err)
	}
	config.MaxConns = 8
	if o.MaxConnections > 0 {
		config.MaxConns = int32(min(o.MaxConnections, 10_000))
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	params := config.ConnConfig.RuntimeParams
	params["timezone"] = "UTC"
	// Who waits for a lock looks at the row again then, which a stricter level would refuse.
	params["default_transaction_isolation"] = "read committed"
	// Compiling a statement takes longer than any of ours runs; estimates beyond its threshold come with large tables.
	params["jit"] = "off"
	if params["application_name"] == "" {
		params["application_name"] = "redrive"
	}
	return config, nil
}

// check looks at the schema over a connection of its own.
func (l *Ledger) check(ctx context.Context, config *pgx.ConnConfig) (err error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	have, compatible, err := schemaVersion(ctx, conn)
	if err != nil {
		return err
	}
	return judgeVersion(have, compatible)
}

// judgeVersion compares the schema that is there with the one that is known.
func judgeVersion(have, compatible int64) error {
	known, err := knownVersion()
	switch {
	case err != nil:
		return err
	case compatible > known:
		return fmt.Errorf("%w: its schema is of version %d and needs a program that knows %d; this one knows %d", deadletter.ErrNewer, have, compatible, known)
	case have < known:
		return fmt.Errorf("%w: its schema is of version %d, this program needs %d", deadletter.ErrOlder, have, known)
	default:
		return nil
	}
}

// prepare makes a new connection fit to be used. A connection that is made again after the server was replaced by an older
// state of itself must not be used under the old epoch.
func (l *Ledger) prepare(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"); err != nil {
		return fmt.Errorf("prepare the connection: %w", err)
	}
	return l.identify(ctx, conn)
}

// identify begins a new epoch if the server is not the one that the ledger was on.
func (l *Ledger) identify(ctx context.Context, conn *pgx.Conn) error {
	now, err := identityOf(ctx, conn)
	if err != nil {
		return err
	}
	var noted identity
	if err := conn.QueryRow(ctx, "SELECT system, timeline FROM meta").Scan(&noted.system, &noted.timeline); err != nil {
		return fmt.Errorf("read the identity of the ledger: %w", err)
	}
	if now == noted || now == (identity{}) {
		return nil
	}
	if noted == (identity{}) {
		_, err := conn.Exec(ctx, "UPDATE meta SET system = $1, timeline = $2 WHERE system = ''", now.system, now.timeline)
		return wrap("note the identity of the ledger", err)
	}
	var epoch int64
	err = conn.QueryRow(ctx, `WITH begun AS (
			UPDATE meta SET epoch = epoch + 1, system = $1, timeline = $2 WHERE system = $3 AND timeline = $4 RETURNING epoch
		), noted AS (
			INSERT INTO audit (actor, action, reason, object, count, detail)
			SELECT 'redrive', 'restore', 'the database is on another cluster or timeline', 'epoch ' || epoch, 0, '' FROM begun
		) SELECT epoch FROM begun`, now.system, now.timeline, noted.system, noted.timeline).Scan(&epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // Another connection was faster.
	}
	if err != nil {
		return fmt.Errorf("begin a new epoch: %w", err)
	}
	l.logger.WarnContext(ctx, "the ledger was moved or restored: a new epoch begins", "epoch", epoch)
	return nil
}

// identity tells a cluster, and the history of it, from others.
type identity struct{ system, timeline string }

// identityOf is the zero identity where the server does not tell: then only Restored begins an epoch.
func identityOf(ctx context.Context, conn *pgx.Conn) (identity, error) {
	var now identity
	err := conn.QueryRow(ctx, `SELECT system_identifier::text, left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system()`).
		Scan(&now.system, &now.timeline)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && (refused.Code == "42501" || refused.Code == "42883" || refused.Code == "0A000") {
		return identity{}, nil
	}
	return now, wrap("ask for the identity of the server", err)
}

// Restored begins a new epoch: no claim of before is valid any more for whoever remembers it from a later state.
func Restored(ctx context.Context, options Options) (epoch int64, err error) {
	config, err := options.parse()
	if err != nil {
		return 0, err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return 0, fmt.Errorf("begin a new epoch: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	have, compatible, err := schemaVersion(ctx, conn)
	if err != nil {
		return 0, err
	}
	if err := judgeVersion(have, compatible); err != nil {
		return 0, err
	}
	now, err := identityOf(ctx, conn)
	if err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, `WITH begun AS (
			UPDATE meta SET epoch = epoch + 1, system = $1, timeline = $2 RETURNING epoch
		), noted AS (
			INSERT INTO audit (actor, action, reason, object, count, detail)
			SELECT 'operator', 'restore', 'the ledger was put back to an older state', 'epoch ' || epoch, 0, '' FROM begun
		) SELECT epoch FROM begun`, now.system, now.timeline).Scan(&epoch)
	return epoch, wrap("begin a new epoch", err)
}

// Ping tells whether the database answers.
func (l *Ledger) Ping(ctx context.Context) error {
	ctx, done := l.call(ctx)
	defer done()
	return wrap("ask the ledger", l.pool.Ping(ctx))
}

// Epoch is the number of the ledger's current life.
func (l *Ledger) Epoch(ctx context.Context) (epoch int64, err error) {
	ctx, done := l.call(ctx)
	defer done()
	err = l.pool.QueryRow(ctx, "SELECT epoch FROM meta").Scan(&epoch)
	return epoch, wrap("read the epoch", err)
}

// Close ends all connections. Calls under way fail.
func (l *Ledger) Close() error {
	l.shut()
	l.pool.Close()
	return nil
}
