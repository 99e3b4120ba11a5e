// Package e2e tells stories of whole processes: the binaries as they are shipped, real Apache Kafka, real Postgres, and kcat as the
// client that is not ours. Each test is named after the rule it shows.
//
// The model. A story is one origin with its ladder on a cluster that it shares with other stories; its topics and its
// group have names of their own. A child is a forwarder that runs, a
// replayer a dlt-replayer. A load hands failures over at a steady rate, and a
// history is what stood in all topics of a story at its end. Nothing here looks into the process: the stories see
// what an operator sees, that is records, commits, probes, metrics and exit codes.
//
// REDRIVE_E2E_RECORDS sets how many records the story of byte fidelity moves (10,000), REDRIVE_E2E_SEED the seed of
// everything random (a new one each run, which is logged).
package e2e

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// The programs under test: the forwarder, the dlt-replayer, and one with crash points. TestMain has no other way to hand them to
// the tests.
var binary, replayerBinary, crashBinary string

func TestMain(m *testing.M) {
	testkit.MainWithPrograms(m, func(ctx context.Context, dir string) error {
		binary, replayerBinary, crashBinary = filepath.Join(dir, "forwarder"), filepath.Join(dir, "dlt-replayer"), filepath.Join(dir, "dlt-replayer-crash")
		return errors.Join(
			// Stories wait far more than they work, so that more of them fit on the machine than it has processors.
			flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))),
			testkit.BuildForwarder(ctx, binary), testkit.BuildReplayer(ctx, replayerBinary), testkit.BuildReplayer(ctx, crashBinary, "crashpoints"),
		)
	})
}

// seeded returns a source of random numbers whose seed stands in the log of the test.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(setting(t, "REDRIVE_E2E_SEED", int(rand.Uint32())))
	t.Logf("REDRIVE_E2E_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// setting is a number from the environment.
func setting(t *testing.T, name string, byDefault int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return byDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number", name, text)
	}
	return n
}
