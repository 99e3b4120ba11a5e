package e2e

import (
	"testing"

	"github.com/kafka-redrive/redrive/test/chaos/index"
	"github.com/kafka-redrive/redrive/test/chaos/replay"
	chaos "github.com/kafka-redrive/redrive/test/chaos/stage"
)

// TestTheIndexIsWhatTheTopicsHoldWhateverDies is make chaos TARGET=index, in small.
func TestTheIndexIsWhatTheTopicsHoldWhateverDies(t *testing.T) {
	t.Parallel()
	for _, ledger := range []string{chaos.Postgres, chaos.SQLite} {
		t.Run(ledger, func(t *testing.T) {
			skipShort(t)
			t.Parallel()
			report, err := index.Run(t.Context(), index.Options{
				Letters: 20_000, Rate: 5000, Kills: 6, BrokerKills: 1, DatabaseKills: 1, Ledger: ledger, Brokers: 1,
				Seed: seeded(t).Uint64(), Dir: t.TempDir(), Binary: crashBinary, Say: t.Logf,
			})
			judge(t, report, err)
		})
	}
}

// TestALetterIsReplayedOnceAndInOrderWhateverDies is make chaos TARGET=replay, in small.
func TestALetterIsReplayedOnceAndInOrderWhateverDies(t *testing.T) {
	t.Parallel()
	for _, ledger := range []string{chaos.Postgres, chaos.SQLite} {
		t.Run(ledger, func(t *testing.T) {
			skipShort(t)
			t.Parallel()
			report, err := replay.Run(t.Context(), replay.Options{
				Letters: 3000, Keys: 100, Kills: 8, BrokerKills: 1, DatabaseKills: 1, Freezes: 1, Ledger: ledger, Brokers: 1,
				Seed: seeded(t).Uint64(), Dir: t.TempDir(), Binary: crashBinary, Say: t.Logf,
			})
			judge(t, report, err)
		})
	}
}

// skipShort is the only skip there is: the caller asked for it.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("real Kafka is left out by -short")
	}
}

// judge fails the test if a rule was broken.
func judge(t *testing.T, report *chaos.Report, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Figures {
		t.Logf("%s %v %s", f.Name, f.Value, f.Unit)
	}
	for _, text := range report.Details {
		t.Log(text)
	}
	for _, text := range report.Violations {
		t.Error(text)
	}
}
