package sqlite_test

import (
	"os"
	"testing"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// childPath names, to a child of the test, the ledger it writes to until it is killed.
const childPath = "TEST_LEDGER_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		os.Exit(scribble(path))
	}
	testkit.Main(m)
}
