package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

//go:embed migrations/*.sql
var embedded embed.FS

// versionTable is where the migrations that were applied are noted.
const versionTable = "redrive_migrations"

// Migrate brings the schema up to date, and returns the versions before and after. Processes that ask at the same time wait for
// the first one, which holds a lock of the server until it is done, or dead. It is deadletter.ErrNewer if the schema is of
// a program that this one cannot work beside. Migrations only add: the programs of before go on meanwhile.
func Migrate(ctx context.Context, options Options) (from, to int64, err error) {
	config, err := options.parse()
	if err != nil {
		return 0, 0, err
	}
	db := stdlib.OpenDB(*config.ConnConfig)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := newProvider(db)
	if err != nil {
		return 0, 0, err
	}
	from, err = migratedTo(ctx, config.ConnConfig)
	if err != nil {
		return 0, 0, fmt.Errorf("migrate the ledger: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return from, 0, fmt.Errorf("migrate the ledger: %w", err)
	}
	to, err = migratedTo(ctx, config.ConnConfig)
	return from, to, wrap("migrate the ledger", err)
}

// migratedTo is the version of the schema; it is an error if that is too new for this program.
func migratedTo(ctx context.Context, config *pgx.ConnConfig) (have int64, err error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	have, compatible, err := schemaVersion(ctx, conn)
	if err != nil {
		return 0, err
	}
	// One that is too old is what a migration is for.
	if err := judgeVersion(have, compatible); !errors.Is(err, deadletter.ErrOlder) {
		return have, err
	}
	return have, nil
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	// Each second, for five minutes.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, fmt.Errorf("make the lock of the migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker), goose.WithTableName(versionTable))
	return provider, wrap("read the migrations", err)
}

// knownVersion is the highest version among the migrations of this program.
func knownVersion() (int64, error) {
	names, err := fs.Glob(embedded, "migrations/*.sql")
	if err != nil {
		return 0, fmt.Errorf("read the migrations: %w", err)
	}
	known := int64(0)
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("read the migrations: %w", err)
		}
		known = max(known, version)
	}
	return known, nil
}

// schemaVersion is the version of the schema that is there, 0 for none, and the lowest version that a program must know to
// work with it.
func schemaVersion(ctx context.Context, conn *pgx.Conn) (have, compatible int64, err error) {
	var there bool
	err = conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", versionTable).Scan(&there)
	if err == nil && there {
		err = conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versionTable+" WHERE is_applied").Scan(&have)
	}
	if err == nil && have > 0 {
		err = conn.QueryRow(ctx, "SELECT compatible_from FROM meta").Scan(&compatible)
	}
	return have, compatible, wrap("read the version of the schema", err)
}
