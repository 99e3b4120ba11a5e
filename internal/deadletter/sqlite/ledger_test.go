package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/ledgertest"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlite"
)

// open opens a ledger that the test closes.
func open(t testing.TB, path string) *sqlite.Ledger {
	t.Helper()
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
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

func TestLedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) deadletter.Ledger { return open(t, filepath.Join(t.TempDir(), "ledger.db")) })
}
