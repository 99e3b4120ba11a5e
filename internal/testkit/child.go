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
// Of the attributes that cmd has, only the credential is kept.
func StartChild(cmd *exec.Cmd, ended func(error)) error {
	attributes := childAttributes()
	if cmd.SysProcAttr != nil {
		attributes.Credential = cmd.SysProcAttr.Credential
	}
	cmd.SysProcAttr = attributes
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
	return build(ctx, target, "forwarder")
}

// BuildReplayer compiles the dlt-replayer, as it is shipped or with build tags. It blocks until that is done or ctx ends.
func BuildReplayer(ctx context.Context, target string, tags ...string) error {
	return build(ctx, target, "dlt-replayer", tags...)
}

func build(ctx context.Context, target, command string, tags ...string) error {
	tags = append([]string{"grpcnotrace"}, tags...) // As make build: see the Makefile.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", strings.Join(tags, ","), "-o", target,
		"github.com/kafka-redrive/redrive/cmd/"+command)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the %s: %w\n%s", command, err, out)
	}
	return nil
}
