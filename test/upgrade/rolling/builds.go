package rolling

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// PreviousCommit is what the previous build is made from: the last one before the tables of the ledger changed. A later one is
// entered here with each release.
const PreviousCommit = "9560f7c9e6c783993274dae15dd2ac90652e5033"

// ErrNoPrevious means that the previous commit is neither in this clone nor where it comes from.
var ErrNoPrevious = errors.New("the previous commit can not be had")

// Build is a pair of binaries.
type Build struct {
	Name                string // what messages call it
	Forwarder, Replayer string
}

func buildIn(name, dir string) Build {
	return Build{Name: name, Forwarder: filepath.Join(dir, "forwarder"), Replayer: filepath.Join(dir, "dlt-replayer")}
}

// BuildNext compiles the work tree into an empty folder.
func BuildNext(ctx context.Context, dir string) (Build, error) {
	b := buildIn("next", dir)
	return b, errors.Join(testkit.BuildForwarder(ctx, b.Forwarder), testkit.BuildReplayer(ctx, b.Replayer))
}

// BuildPrevious takes the sources of PreviousCommit out of the repository around the working folder, and compiles them in an empty
// folder. A shallow clone fetches the commit first. The error is ErrNoPrevious if that fails.
func BuildPrevious(ctx context.Context, dir string) (Build, error) {
	b := buildIn("previous", dir)
	top, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return b, fmt.Errorf("%w: %w", ErrNoPrevious, err)
	}
	root := strings.TrimSpace(top)
	if _, err := git(ctx, root, "cat-file", "-e", PreviousCommit+"^{commit}"); err != nil {
		if _, err := git(ctx, root, "fetch", "--quiet", "--depth=1", "origin", PreviousCommit); err != nil {
			return b, fmt.Errorf("%w: %s is not in this clone, and was not fetched: %w", ErrNoPrevious, PreviousCommit, err)
		}
	}
	sources := filepath.Join(dir, "sources")
	if err := os.Mkdir(sources, 0o755); err != nil {
		return b, err
	}
	archive := sources + ".tar"
	if _, err := git(ctx, root, "archive", "--format=tar", "--output="+archive, PreviousCommit); err != nil {
		return b, err
	}
	if _, err := run(exec.CommandContext(ctx, "tar", "-xf", archive, "-C", sources)); err != nil {
		return b, err
	}
	compile := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", dir+string(filepath.Separator), "./cmd/forwarder", "./cmd/dlt-replayer")
	compile.Dir = sources
	compile.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if _, err := run(compile); err != nil {
		return b, fmt.Errorf("build %s: %w", PreviousCommit, err)
	}
	return b, nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0") // Nobody is there to be asked for a password.
	return run(cmd)
}

func run(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[:min(2, len(cmd.Args))], " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}
