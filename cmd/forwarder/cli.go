package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/config"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2 // Usage or configuration; nothing was done.
	exitDrift   = 3
	exitNothing = 4 // Nothing was found.
)

// process is what a command line sees of the process it runs in.
type process struct {
	args    []string
	environ []string
	stdout  io.Writer // data
	stderr  io.Writer // talk
	// hangup begins to take the requests to reload, one for each value. Nil: there
	// are none.
	hangup func() <-chan struct{}
}

// errDrift ends a command that has said already what differs.
var errDrift = errors.New("drift found")

// errNothing ends a command that has said already that nothing was found.
var errNothing = errors.New("nothing found")

// usageError is a command line that can not be understood.
type usageError struct {
	err     error
	command string // whose help shows how
}

func (e *usageError) Error() string { return e.err.Error() }

// cli is one command line.
type cli struct {
	process

	build      app.Build
	configPath string
	output     string
	flags      *pflag.FlagSet // those that set keys of the configuration
}

// setting is a flag that sets a key of the configuration.
type setting struct{ flag, path, usage string }

func settings() []setting {
	return []setting{
		{"brokers", "kafka.brokers", "first brokers to ask, `host:port`, separated by commas"},
		{"client-id", "kafka.clientId", "`name` the brokers log the clients by"},
		{"group", "forwarder.group", "consumer `group` of the forwarder"},
		{"instance-id", "forwarder.instanceId", "`name` of a static member of the group"},
		{"shutdown-timeout", "forwarder.shutdownTimeout", "`duration` of the drain at most"},
		{"admin-address", "forwarder.admin.address", "`host:port` of probes and metrics"},
		{"log-level", "logging.level", "lowest `level` that is logged: debug, info, warn or error"},
		{"log-format", "logging.format", "`form` of a log line: auto, json or text"},
	}
}

// execute runs one command line to its end and returns the exit code. The end of
// ctx is the request to stop.
func execute(ctx context.Context, p process) int {
	c := &cli{process: p, build: app.ReadBuild(version)}
	root := c.root() //nolint:contextcheck // Commands take the context from cobra.
	root.SetArgs(p.args)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	return c.code(root.ExecuteContext(ctx))
}

// code tells what is wrong, if anything is, and maps it to an exit code.
func (c *cli) code(err error) int {
	var (
		usage    *usageError
		problems *config.Errors
		unusable *app.ConfigError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDrift):
		return exitDrift
	case errors.Is(err, errNothing):
		return exitNothing
	case errors.As(err, &usage):
		c.talk("forwarder: %v\nSee %s --help.\n", usage, usage.command)
		return exitUsage
	case errors.As(err, &problems):
		for _, p := range c.flagNames(problems.Problems) {
			c.talk("%v\n", p)
		}
		return exitUsage
	case errors.As(err, &unusable):
		c.talk("forwarder: %s: %v\n", c.configPath, unusable)
		return exitUsage
	default:
		c.talk("forwarder: %v\n", err)
		return exitFailure
	}
}

// talk writes to a person. There is nobody to tell when that fails.
func (c *cli) talk(format string, args ...any) { _, _ = fmt.Fprintf(c.stderr, format, args...) }

// flagNames gives problems of flags the name the user typed.
func (c *cli) flagNames(problems []config.Problem) []config.Problem {
	named := make([]config.Problem, 0, len(problems))
	for _, p := range problems {
		for _, s := range settings() {
			if p.File == "flags" && p.Path == s.path {
				p.Path = "--" + s.flag
			}
		}
		named = append(named, p)
	}
	return named
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
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{err, cmd.CommandPath()}
	})
	flags := root.PersistentFlags()
	flags.StringVarP(&c.configPath, "config", "c", "topics.yaml", "configuration `file`")
	c.flags = flags
	for _, s := range settings() {
		flags.String(s.flag, "", s.usage+" ("+s.path+")")
	}
	root.AddCommand(c.runCommand(), c.validateCommand(), c.topicsCommand(), c.offsetsCommand(), c.findCommand(), c.configCommand(), c.versionCommand())
	for _, cmd := range append(root.Commands(), root) {
		strict(cmd)
	}
	return root
}

// strict makes a wrong command a usage error, on every level: cobra shows the help
// of a command with subcommands and calls that a success.
func strict(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, given []string) error {
			if err := args(cmd, given); err != nil {
				return &usageError{err, cmd.CommandPath()}
			}
			return nil
		}
	}
	if cmd.Runnable() || !cmd.HasSubCommands() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &usageError{errors.New("a command is missing: " + names(cmd)), cmd.CommandPath()}
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += ", did you mean " + strings.Join(near, " or ") + "?"
		}
		return &usageError{errors.New(text), cmd.CommandPath()}
	}
}

func names(cmd *cobra.Command) string {
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return strings.Join(all, ", ")
}

// withOutput gives a command the flag -o and runs it only with a form it knows.
func (c *cli) withOutput(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVarP(&c.output, "output", "o", "text", "`form` of the answer: text or json")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if c.output != "text" && c.output != "json" {
			return &usageError{fmt.Errorf("--output %s: want text or json", c.output), cmd.CommandPath()}
		}
		return nil
	}
	return cmd
}

// source is where the configuration of this command line comes from.
func (c *cli) source() config.Source {
	given := map[string]string{}
	for _, s := range settings() {
		if flag := c.flags.Lookup(s.flag); flag.Changed {
			given[s.path] = flag.Value.String()
		}
	}
	return config.Source{Path: c.configPath, Environ: c.environ, Flags: given}
}

// options loads the configuration. There is no logger: commands that end by
// themselves tell what is wrong on their own.
func (c *cli) options() (app.Options, error) {
	cfg, err := config.Load(c.source())
	if err != nil {
		return app.Options{}, err
	}
	return app.Options{Config: cfg, ConfigPath: c.configPath, Build: c.build}, nil
}

// isTerminal reports whether w is a terminal, as near as the standard library can
// tell.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// print writes data.
func (c *cli) print(data []byte) error {
	if _, err := c.stdout.Write(data); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

func (c *cli) printf(format string, args ...any) error {
	return c.print(fmt.Appendf(nil, format, args...))
}

func (c *cli) printJSON(v any) error {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return c.print([]byte(b.String()))
}
