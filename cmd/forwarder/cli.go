package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/command"
)

// The exit codes beside those of every command line.
const (
	exitDrift   = 3
	exitNothing = 4 // Nothing was found.
)

// errDrift ends a command that has said already what differs.
var errDrift = errors.New("drift found")

// errNothing ends a command that has said already that nothing was found.
var errNothing = errors.New("nothing found")

// cli is one command line.
type cli struct{ command.Line }

func settings() []command.Setting {
	return []command.Setting{
		{Flag: "brokers", Path: "kafka.brokers", Usage: "first brokers to ask, `host:port`, separated by commas"},
		{Flag: "client-id", Path: "kafka.clientId", Usage: "`name` the brokers log the clients by"},
		{Flag: "group", Path: "forwarder.group", Usage: "consumer `group` of the forwarder"},
		{Flag: "instance-id", Path: "forwarder.instanceId", Usage: "`name` of a static member of the group"},
		{Flag: "shutdown-timeout", Path: "forwarder.shutdownTimeout", Usage: "`duration` of the drain at most"},
		{Flag: "admin-address", Path: "forwarder.admin.address", Usage: "`host:port` of probes and metrics"},
		{Flag: "log-level", Path: "logging.level", Usage: "lowest `level` that is logged: debug, info, warn or error"},
		{Flag: "log-format", Path: "logging.format", Usage: "`form` of a log line: auto, json or text"},
	}
}

// newCLI is a command line of the forwarder.
func newCLI(p command.Process) *cli {
	return &cli{command.Line{Process: p, Program: "forwarder", Build: app.ReadBuild(version, commit, date), Settings: settings()}}
}

// execute runs one command line to its end and returns the exit code. The end of
// ctx is the request to stop.
func execute(ctx context.Context, p command.Process) int {
	c := newCLI(p)
	switch err := c.Execute(ctx, c.root()); { //nolint:contextcheck // Commands take the context from cobra.
	case errors.Is(err, errDrift):
		return exitDrift
	case errors.Is(err, errNothing):
		return exitNothing
	default:
		return c.Fail(err)
	}
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "forwarder",
		Short: "Bring failed Kafka records back when they are due",
		Long: `forwarder brings failed Kafka records back to their topic when they are due,
or to the dead letters.

Configuration, later wins: defaults, the file, REDRIVE_* environment variables
(REDRIVE_KAFKA_BROKERS for kafka.brokers), flags. Topics are set in the file only.

Exit codes: 0 done, or stopped as asked; 1 failure; 2 usage or configuration,
nothing was done; 3 topics are not as they should be; 4 nothing was found; 130
interrupted twice.`,
	}
	c.Flags(root.PersistentFlags())
	root.AddCommand(c.runCommand(), c.validateCommand(), c.topicsCommand(), c.offsetsCommand(), c.findCommand(), c.ConfigCommand(), c.VersionCommand())
	return root
}
