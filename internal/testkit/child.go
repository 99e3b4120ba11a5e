package testkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// StartChild starts a process that dies with this one, however that ends (on Linux), and hands the outcome of its Wait to
// ended, on a goroutine of its own. It does not block for longer than the start takes. Linux sends the signal that lets a
// child die with its parent when the parent's *thread* ends, so the thread that starts it is kept until the child is gone.
func StartChild(cmd *exec.Cmd, ended func(error)) error {
	cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended(cmd.Wait())
		}
	}()
	return <-started
}

// Environment is that of this process without REDRIVE_*: a binary of ours refuses the settings that it does not know, as
// those of the tests.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "REDRIVE_") })
}

// BuildForwarder compiles the forwarder as it is shipped. It blocks until that is done or ctx ends.
func BuildForwarder(ctx context.Context, target string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", target, "github.com/kafka-redrive/redrive/cmd/forwarder")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the forwarder: %w\n%s", err, out)
	}
	return nil
}
