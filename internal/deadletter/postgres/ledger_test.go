package postgres

import (
	"testing"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/ledgertest"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// open returns an empty ledger.
func open(t testing.TB) *Ledger {
	t.Helper()
	return openAt(t, testkit.RealPostgres(t))
}

// openAt migrates and opens a ledger.
func openAt(t testing.TB, url string) *Ledger {
	t.Helper()
	options := Options{URL: url, Logger: testkit.Logger(t)}
	if _, _, err := Migrate(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	l, err := Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestLedgerKeepsThePromisesOfDeadletter(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) deadletter.Ledger { return open(t) })
}
