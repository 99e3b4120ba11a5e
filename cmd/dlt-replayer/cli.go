package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

// The exit codes beside those of every command line.
const (
	exitPartial     = 3   // Some letters were not replayed, or not kept.
	exitNothing     = 4   // Nothing matched.
	exitRefused     = 5   // Refused, or no permission.
	exitInterrupted = 130 // As a shell shows a death by SIGINT.
)

// The errors of commands that have said already what there is to say.
var (
	errPartial     = errors.New("not all letters were replayed, or kept")
	errNothing     = errors.New("nothing matched")
	errInterrupted = errors.New("interrupted")
)

// refusedError is a refusal of this side: what the server would do is not what was
// asked for.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// cli is one command line.
type cli struct {
	command.Line

	// url and tokenFile are flags: where the API is and what it is asked with.
	url, tokenFile string
	// noHeaders leaves out the first line of a table.
	noHeaders bool
}

func settings() []command.Setting {
	return []command.Setting{
		{Flag: "brokers", Path: "kafka.brokers", Usage: "first brokers to ask, `host:port`, separated by commas"},
		{Flag: "client-id", Path: "kafka.clientId", Usage: "`name` the brokers log the clients by"},
		{Flag: "ledger-url-file", Path: "ledger.urlFilepath", Usage: "`file` that holds the URL of the ledger"},
		{Flag: "data-dir", Path: "ledger.dataDir", Usage: "`directory` of the ledger where no URL is set"},
		{Flag: "group", Path: "replayer.group", Usage: "consumer `group` of the dlt-replayer"},
		{Flag: "instance-id", Path: "replayer.instanceId", Usage: "`name` of a static member of the group"},
		{Flag: "shutdown-timeout", Path: "replayer.shutdownTimeout", Usage: "`duration` of the stop at most"},
		{Flag: "admin-address", Path: "replayer.admin.address", Usage: "`host:port` of probes and metrics"},
		{Flag: "api-address", Path: "replayer.api.address", Usage: "`host:port` of the API"},
		{Flag: "log-level", Path: "logging.level", Usage: "lowest `level` that is logged: debug, info, warn or error"},
		{Flag: "log-format", Path: "logging.format", Usage: "`form` of a log line: auto, json or text"},
	}
}

// newCLI is a command line of the dlt-replayer.
func newCLI(p command.Process) *cli {
	return &cli{Line: command.Line{Process: p, Program: "dlt-replayer", Build: app.ReadBuild(version, commit, date), Settings: settings()}}
}

// execute runs one command line to its end and returns the exit code. The end of
// ctx is the request to stop.
func execute(ctx context.Context, p command.Process) int {
	c := newCLI(p)
	err := c.Execute(ctx, c.root()) //nolint:contextcheck // Commands take the context from cobra.
	var (
		answered *client.Error
		refused  *refusedError
	)
	switch {
	case errors.Is(err, errPartial):
		return exitPartial
	case errors.Is(err, errNothing):
		return exitNothing
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &answered):
		c.Fail(err)
		c.explain(answered)
		return exitCode(answered)
	case errors.As(err, &refused):
		c.Fail(err)
		return exitRefused
	default:
		return c.Fail(err)
	}
}

// exitCode is that of a problem that the API answers with.
func exitCode(e *client.Error) int {
	switch e.Problem.Code {
	case "nothing_selected", "unknown":
		return exitNothing
	}
	switch e.Problem.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict:
		return exitRefused
	case http.StatusBadRequest:
		return command.ExitUsage
	default:
		return command.ExitFailure
	}
}

// explain tells what stands beside the text of a problem.
func (c *cli) explain(e *client.Error) {
	p := e.Problem
	switch {
	case p.Status == http.StatusUnauthorized:
		c.Talk("Set REDRIVE_TOKEN, or name a file with --token-file; dlt-replayer token makes a token.\n")
	case p.Code == "out_of_order":
		c.Talk("Replay the older ones as well (--key), or say --out-of-order.\n")
	case p.Code == "already_replayed", p.Code == "discarded":
		c.Talk("--force replays it nevertheless.\n")
	case p.Code == "filter_empty":
		c.Talk("Say --all if everything is meant.\n")
	case p.Code == "count_needed" && p.Count != nil:
		c.Talk("Say --count %d.\n", *p.Count)
	}
	for i := range p.History {
		item := &p.History[i]
		c.Talk("  %s job %s: letter %d %s%s\n", stamp(item.At), item.Job, item.Letter, item.State, suffix(": ", item.Error))
	}
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "dlt-replayer",
		Short: "Find, understand and replay dead letters",
		Long: `dlt-replayer serve indexes the dead letters of topics.yaml in a ledger, and
replays them. All other commands but migrate, token, config and version talk to it:
at REDRIVE_URL or --url, by default http://127.0.0.1:9402, with the token in
REDRIVE_TOKEN, or in the file that REDRIVE_TOKEN_FILE or --token-file names.

Answers go to standard output, everything else to standard error.

Exit codes: 0 done; 1 failure; 2 usage or configuration, nothing was done; 3 not all
letters were replayed, or kept; 4 nothing matched; 5 refused, or no permission; 130
interrupted.`,
	}
	serving := []*cobra.Command{c.serveCommand(), c.migrateCommand(), c.configCommand(), c.tokenCommand(), c.healthcheckCommand(), c.VersionCommand()}
	asking := []*cobra.Command{
		c.listCommand(), c.showCommand(), c.groupsCommand(), c.statsCommand(), c.replayCommand(), c.jobsCommand(),
		c.discardCommand(), c.undiscardCommand(), c.purgeCommand(), c.expiringCommand(), c.rescueCommand(), c.auditCommand(), c.exportCommand(),
	}
	for _, cmd := range asking {
		flags := cmd.PersistentFlags()
		flags.StringVar(&c.url, "url", "", "`URL` of the API (REDRIVE_URL)")
		flags.StringVar(&c.tokenFile, "token-file", "", "`file` that holds the token (REDRIVE_TOKEN_FILE)")
	}
	root.AddCommand(serving...)
	root.AddCommand(asking...)
	return root
}

// configCommand is config, whose print takes the settings.
func (c *cli) configCommand() *cobra.Command {
	cmd := c.ConfigCommand()
	for _, sub := range cmd.Commands() {
		if sub.Name() == "print" {
			c.WithConfig(sub)
		}
	}
	return cmd
}
