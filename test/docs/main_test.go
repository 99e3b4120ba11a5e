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
	"path/filepath"
	"testing"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// binaries is the folder of the programs under test. TestMain has no other way to hand it to the tests.
var binaries string

func TestMain(m *testing.M) {
	testkit.MainWithPrograms(m, func(ctx context.Context, dir string) error {
		binaries = dir
		return errors.Join(testkit.BuildForwarder(ctx, filepath.Join(dir, "forwarder")), testkit.BuildReplayer(ctx, filepath.Join(dir, "dlt-replayer")))
	})
}
