// Command forwarder brings failed Kafka records back to their topic when they are
// due, or to the dead letters. Try forwarder --help.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version string

func main() {
	os.Exit(mainCode())
}

// mainCode is the only place that knows of signals.
func mainCode() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		// The first signal asks for a graceful stop. Before anybody learns of it,
		// signals do again what they do by default: a second ends the process.
		first := <-signals
		signal.Stop(signals)
		cancel(fmt.Errorf("signal: %v", first))
	}()
	return execute(ctx, process{
		args:    os.Args[1:],
		environ: os.Environ(),
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		hangup:  hangup,
	})
}

// hangup makes each SIGHUP a value of the channel; one that comes while the last
// was not taken adds nothing. Until it is called the signal ends the process, as
// it should a command whose terminal is gone.
func hangup() <-chan struct{} {
	signals, hangups := make(chan os.Signal, 1), make(chan struct{}, 1)
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for range signals {
			select {
			case hangups <- struct{}{}:
			default:
			}
		}
	}()
	return hangups
}
