package testkit

import (
	"context"
	"strings"
	"sync"
	"testing"
)

// sharedPostgres is the server of this test binary.
var sharedPostgres struct {
	sync.Mutex
	server *Postgres
}

// RealPostgres returns the URL of an empty database, which the test has for itself, on the server that the tests of this binary
// share; the first one to ask starts it. The package needs [Main] as its TestMain, which closes the server. With -short the test
// is skipped. A test that kills the server takes [OwnPostgres].
func RealPostgres(t testing.TB) string {
	t.Helper()
	skipShortPostgres(t)
	sharedPostgres.Lock()
	defer sharedPostgres.Unlock()
	if sharedPostgres.server == nil {
		server, err := StartPostgres(t.Context(), PostgresOptions{})
		if err != nil {
			t.Fatalf("start postgres: %v", err)
		}
		sharedPostgres.server = server
	}
	server := sharedPostgres.server
	showPostgresTail(t, server)
	name := strings.ReplaceAll(UniqueName("test"), "-", "_")
	url, err := server.CreateDatabase(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Its pages stay in the cache of the server else. Connections of the test may still be on their way out.
		if err := server.exec(context.WithoutCancel(t.Context()), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return url
}

// OwnPostgres starts a server for one test and closes it when the test ends. With -short the test is skipped.
func OwnPostgres(t testing.TB, options PostgresOptions) *Postgres {
	t.Helper()
	skipShortPostgres(t)
	p, err := StartPostgres(t.Context(), options)
	if err != nil {
		t.Fatalf("start postgres: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close postgres: %v", err)
		}
	})
	showPostgresTail(t, p)
	return p
}

// skipShortPostgres is the only skip there is: the caller asked for it.
func skipShortPostgres(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("real Postgres is left out by -short")
	}
}

// showPostgresTail adds to the log of a failed test what the server had to say.
func showPostgresTail(t testing.TB, p *Postgres) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of postgres ends\n%s", p.LogTail())
		}
	})
}

func closeSharedPostgres() error {
	sharedPostgres.Lock()
	defer sharedPostgres.Unlock()
	server := sharedPostgres.server
	if server == nil {
		return nil
	}
	sharedPostgres.server = nil
	return server.Close()
}
