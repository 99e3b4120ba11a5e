package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/test/upgrade/rolling"
)

// TestAnUpgradeAndTheWayBackLoseAndRepeatNothing is make upgrade, in small.
func TestAnUpgradeAndTheWayBackLoseAndRepeatNothing(t *testing.T) {
	skipShort(t)
	t.Parallel()
	previous, err := rolling.BuildPrevious(t.Context(), t.TempDir())
	if errors.Is(err, rolling.ErrNoPrevious) {
		t.Skipf("there is nothing to upgrade from: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	report, err := rolling.Run(t.Context(), rolling.Options{
		Previous: previous, Next: rolling.Build{Name: "next", Forwarder: binary, Replayer: replayerBinary},
		Order: rolling.ReplayersFirst, Rate: 100, Hold: 2 * time.Second,
		Brokers: testkit.RealKafka(t, 1).Brokers(), Database: testkit.RealPostgres(t),
		Seed: seeded(t).Uint64(), Dir: t.TempDir(), Say: t.Logf,
	})
	judge(t, report, err)
}
