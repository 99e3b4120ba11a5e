// Package docs holds the documents to what is there.
//
// It answers: does every command in the documents do what the text around it says, or does the document say why nobody runs it? Do
// links between pages lead somewhere, and has every alert and every issue code its section?
//
// The model. Each block of commands (```sh) has a mark, a comment above it: see pages_test.go. Blocks that are marked as run are
// the lines of one shell script for each scenario, in the order of the page, on real Kafka, with the binaries as they are shipped,
// in an empty folder. Addresses, numbers of letters and ids of jobs in the text are replaced by those of the scenario. The shell
// does for the reader what a reader does: it waits until a program is ready, looks again when a letter is not there yet, and
// confirms what is asked. A line must end with 0, or with the number at the beginning of its comment.
package docs

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// binaries is the folder of the programs under test. TestMain has no other way to hand it to the tests.
var binaries string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "redrive-docs-")
	if err == nil && !testing.Short() {
		binaries = dir
		ctx := context.Background()
		err = errors.Join(testkit.BuildForwarder(ctx, filepath.Join(dir, "forwarder")), testkit.BuildReplayer(ctx, filepath.Join(dir, "dlt-replayer")))
	}
	if err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("no programs to test", "err", errors.Join(err, os.RemoveAll(dir)))
		os.Exit(1)
	}
	testkit.Main(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil {
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}
