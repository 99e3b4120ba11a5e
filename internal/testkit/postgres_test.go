package testkit

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

func connectPostgres(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) }) // The server may have been killed.
	return conn
}

func run(t *testing.T, url, sql string) {
	t.Helper()
	if _, err := connectPostgres(t, url).Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func query(t *testing.T, url, sql string) (n int) {
	t.Helper()
	if err := connectPostgres(t, url).QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPostgresKeepsWhatWasCommittedWhenItIsKilled(t *testing.T) {
	p := OwnPostgres(t, PostgresOptions{Settings: map[string]string{"application_name": "it's"}})
	url, err := p.CreateDatabase(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	run(t, url, "CREATE TABLE numbers AS SELECT generate_series(1, 1000) AS n")
	for range 3 {
		if err := p.Kill(); err != nil || p.Running() {
			t.Fatalf("kill: %v, running: %v", err, p.Running())
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := query(t, url, "SELECT count(*) FROM numbers"); n != 1000 {
			t.Errorf("%d of 1000 rows are left", n)
		}
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stop what does not run: %v", err)
	}
}

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	first, second := RealPostgres(t), RealPostgres(t)
	run(t, first, "CREATE TABLE here ()")
	if n := query(t, second, "SELECT count(*) FROM pg_tables WHERE tablename = 'here'"); n != 0 {
		t.Error("a table of one database is in the other")
	}
}

func TestMissingPostgresNamesItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := postgresPrograms(t.TempDir() + "/*/bin/initdb")
	wantHint(t, err, "apt-get install postgresql")
}
