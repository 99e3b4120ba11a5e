package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// connect is a connection behind the back of any ledger.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// exec runs a statement.
func exec(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func migrate(t *testing.T, url string) (from, to int64) {
	t.Helper()
	from, to, err := Migrate(t.Context(), Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return from, to
}

func TestEachEarlierVersionIsMigrated(t *testing.T) {
	known, err := knownVersion()
	if err != nil || known < 1 {
		t.Fatal(known, err)
	}
	for version := range known {
		t.Run(fmt.Sprint("from ", version), func(t *testing.T) {
			url := testkit.RealPostgres(t)
			if version > 0 {
				config, err := pgx.ParseConfig(url)
				if err != nil {
					t.Fatal(err)
				}
				db := stdlib.OpenDB(*config)
				defer func() {
					if err := db.Close(); err != nil {
						t.Error(err)
					}
				}()
				provider, err := newProvider(db)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := provider.UpTo(t.Context(), version); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Open(t.Context(), Options{URL: url}); !errors.Is(err, deadletter.ErrOlder) {
				t.Errorf("version %d is opened: %v", version, err)
			}
			if from, to := migrate(t, url); from != version || to != known {
				t.Errorf("migrated from %d to %d, want %d to %d", from, to, version, known)
			}
			if from, to := migrate(t, url); from != known || to != known {
				t.Errorf("the second time: migrated from %d to %d", from, to)
			}
			l := openAt(t, url)
			indexBatch(t, l, sample("orders.dlt", 0, 3, random()), begin(t, l, "orders.dlt"))
		})
	}
}

func TestManyMigrateAtOnce(t *testing.T) {
	url := testkit.RealPostgres(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if _, _, err := Migrate(t.Context(), Options{URL: url}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	openAt(t, url)
}

func TestNewerSchemaIsRefusedOnlyIfItSaysSo(t *testing.T) {
	url := testkit.RealPostgres(t)
	_, known := migrate(t, url)
	// A newer program has added something that this one can do without.
	exec(t, url, "INSERT INTO redrive_migrations (version_id, is_applied) VALUES ($1, true)", known+5)
	openAt(t, url)
	if from, to := migrate(t, url); from != known+5 || to != known+5 {
		t.Errorf("migrated from %d to %d, want none", from, to)
	}
	// And then something that it cannot.
	exec(t, url, "UPDATE meta SET compatible_from = $1", known+5)
	if _, err := Open(t.Context(), Options{URL: url}); !errors.Is(err, deadletter.ErrNewer) {
		t.Errorf("opened: %v", err)
	}
	if _, _, err := Migrate(t.Context(), Options{URL: url}); !errors.Is(err, deadletter.ErrNewer) {
		t.Errorf("migrated: %v", err)
	}
	if _, err := Restored(t.Context(), Options{URL: url}); !errors.Is(err, deadletter.ErrNewer) {
		t.Errorf("restored: %v", err)
	}
}

func TestRestoredLedgerBeginsANewEpoch(t *testing.T) {
	url := testkit.RealPostgres(t)
	l := openAt(t, url)
	job, claimed := claimOne(t, l)
	epoch := func(l *Ledger) int64 {
		t.Helper()
		epoch, err := l.Epoch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return epoch
	}
	if got := epoch(l); got != 1 || claimed.Granted.Fence.Epoch != 1 {
		t.Fatalf("epoch %d, fence %s", got, claimed.Granted.Fence)
	}
	if got := epoch(openAt(t, url)); got != 1 {
		t.Fatalf("epoch %d after it was opened again on the same server", got)
	}

	// As after a dump is read into another cluster, and as after a recovery to a point in time.
	for i, sql := range []string{"UPDATE meta SET system = '1'", "UPDATE meta SET timeline = '0000FFFF'"} {
		exec(t, url, sql)
		if got := epoch(openAt(t, url)); got != int64(i+2) {
			t.Errorf("epoch %d after %s", got, sql)
		}
	}
	if got, err := Restored(t.Context(), Options{URL: url}); err != nil || got != 4 {
		t.Fatalf("epoch %d, %v", got, err)
	}
	entries, err := l.Audit(t.Context(), 0, 10)
	if err != nil || len(entries) != 4 || entries[0].Action != "restore" {
		t.Errorf("audit %+v, %v", entries, err)
	}
	// A ledger that was open meanwhile gives fences of the new epoch, and those of the old one are still told apart.
	if _, err := l.Finish(t.Context(), []deadletter.Outcome{{Claim: *claimed.Granted, Seq: 1, Copy: deadletter.Target{Offset: -1}}}); err != nil {
		t.Fatal(err)
	}
	again, err := l.Claim(t.Context(), job.ID, job.Fence, []deadletter.Want{claimed.Want})
	if err != nil || again[0].Granted == nil || again[0].Granted.Fence.Epoch != 4 {
		t.Errorf("claimed %+v, %v", again, err)
	}
}

func TestDumpReadIntoAnotherClusterIsKnown(t *testing.T) {
	first := testkit.RealPostgres(t)
	l := openAt(t, first)
	claimOne(t, l)
	second := testkit.OwnPostgres(t, testkit.PostgresOptions{})
	copyTables(t, first, second.URL(""))
	restored := openAt(t, second.URL(""))
	if epoch, err := restored.Epoch(t.Context()); err != nil || epoch != 2 {
		t.Errorf("epoch %d, %v", epoch, err)
	}
}

// copyTables does what a dump and its restoration do to the rows.
func copyTables(t *testing.T, from, to string) {
	t.Helper()
	migrate(t, to)
	source := connect(t, from)
	var epoch int64
	var system, timeline string
	if err := source.QueryRow(t.Context(), "SELECT epoch, system, timeline FROM meta").Scan(&epoch, &system, &timeline); err != nil {
		t.Fatal(err)
	}
	exec(t, to, "UPDATE meta SET epoch = $1, system = $2, timeline = $3", epoch, system, timeline)
}

func TestClaimsNameTheEpochOfAServerThatWasReplaced(t *testing.T) {
	url := testkit.RealPostgres(t)
	l := openAt(t, url)
	// The server comes back as another one while the ledger is open: its connections are made anew.
	exec(t, url, "UPDATE meta SET system = '1'")
	l.pool.Reset()
	_, claimed := claimOne(t, l)
	if claimed.Granted.Fence.Epoch != 2 {
		t.Errorf("fence %s", claimed.Granted.Fence)
	}
}

func TestSettingsOfTheServerDoNotWeakenTheLedger(t *testing.T) {
	server := testkit.OwnPostgres(t, testkit.PostgresOptions{Settings: map[string]string{
		"synchronous_commit": "off", "default_transaction_isolation": "serializable", "timezone": "Asia/Tokyo",
	}})
	// By a user that may do nothing beyond its own schema.
	exec(t, server.URL(""), "CREATE ROLE redrive LOGIN")
	exec(t, server.URL(""), "CREATE DATABASE ledger OWNER redrive")
	l := openAt(t, strings.Replace(server.URL("ledger"), "postgres@", "redrive@", 1))
	for name, want := range map[string]string{"synchronous_commit": "on", "transaction_isolation": "read committed", "timezone": "UTC", "jit": "off"} {
		var got string
		if err := l.pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, want %s: %v", name, got, want, err)
		}
	}
	claimOne(t, l)
}

func TestUnreadableURLDoesNotShowThePassword(t *testing.T) {
	for _, url := range []string{"postgres://redrive:s3cret@localhost:port/db", "postgres://redrive:s3cret@[/db", "postgres://redrive:s3cret@127.0.0.1:1/db?connect_timeout=1"} {
		_, err := Open(t.Context(), Options{URL: url})
		if err == nil {
			t.Errorf("%s is opened", url)
		} else if text := err.Error(); len(text) == 0 || contains(text, "s3cret") {
			t.Errorf("the error is %q", text)
		}
	}
}

func TestCallsEndWhenTheLedgerIsClosed(t *testing.T) {
	url := testkit.RealPostgres(t)
	l := openAt(t, url)
	id := begin(t, l, "orders.dlt")
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE positions"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Index(t.Context(), deadletter.Batch{TopicID: id, Topic: "orders.dlt", Next: 1}) }()
	testkit.WaitFor(t, startLimit, "the call to wait for the lock", func(context.Context) error {
		if l.pool.Stat().AcquiredConns() == 0 {
			return errors.New("it has no connection")
		}
		return nil
	})
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the call has succeeded")
	}
}
