// Package command answers what the command lines of our binaries have in common: how they are told to stop, where their
// settings come from, what they call wrong usage, and how they write an answer.
//
// The model: a binary's main calls Main with a function that runs one command line, a Process, to its end. That makes a
// Line, which knows the process and the configuration of it, hangs its commands below a root of cobra, and maps what they
// return to an exit code. Answers go to Stdout as data, everything else to Stderr as talk.
//
// It promises that signals are known in one place, that a wrong command line does nothing and ends with ExitUsage on every
// level, that -o takes only forms that the command knows, and that what comes from a record does not steer a terminal. It
// refuses to know what a command does.
//
// Nothing here starts a goroutine but Main. A Line belongs to the goroutine that runs the command.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/config"
)

// The exit codes that mean the same in every binary.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2 // Usage or configuration; nothing was done.
)

// Process is what a command line sees of the process it runs in.
type Process struct {
	Args    []string
	Environ []string
	Stdin   io.Reader
	Stdout  io.Writer // data
	Stderr  io.Writer // talk
	// Hangup begins to take the requests to reload, one for each value. Nil: there
	// are none.
	Hangup func() <-chan struct{}
}

// Main runs the command line of this process and returns its exit code. It is the
// only place that knows of signals. The end of the context is the request to stop.
func Main(execute func(context.Context, Process) int) int {
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
	return execute(ctx, Process{
		Args:    os.Args[1:],
		Environ: os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Hangup:  hangup,
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

// Setting is a flag that sets a key of the configuration.
type Setting struct{ Flag, Path, Usage string }

// Line is one command line.
type Line struct {
	Process
	// Program is the name of the binary.
	Program string
	Build   app.Build
	// Settings are the flags that set keys of the configuration.
	Settings []Setting

	// ConfigPath is the file that --config names.
	ConfigPath string
	// Output is the form that -o names.
	Output string
	flags  *pflag.FlagSet
}

// Flags adds --config and the settings.
func (l *Line) Flags(flags *pflag.FlagSet) {
	flags.StringVarP(&l.ConfigPath, "config", "c", "topics.yaml", "configuration `file`")
	l.flags = flags
	for _, s := range l.Settings {
		flags.String(s.Flag, "", s.Usage+" ("+s.Path+")")
	}
}

// WithConfig gives one command --config and the settings, where not all commands of
// the root have them.
func (l *Line) WithConfig(cmd *cobra.Command) *cobra.Command {
	l.Flags(cmd.Flags())
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		l.flags = cmd.Flags() // The last command that was made has set others.
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
	return cmd
}

// Source is where the configuration of this command line comes from.
func (l *Line) Source() config.Source {
	given := map[string]string{}
	for _, s := range l.Settings {
		if flag := l.flags.Lookup(s.Flag); flag.Changed {
			given[s.Path] = flag.Value.String()
		}
	}
	return config.Source{Path: l.ConfigPath, Environ: l.Environ, Flags: given}
}

// Options loads the configuration. There is no logger: commands that end by
// themselves tell what is wrong on their own.
func (l *Line) Options() (app.Options, error) {
	cfg, err := config.Load(l.Source())
	if err != nil {
		return app.Options{}, err
	}
	return app.Options{Config: cfg, ConfigPath: l.ConfigPath, Build: l.Build}, nil
}

// Service loads the configuration for a process that stays: with a logger, and
// with what it needs to load it anew.
func (l *Line) Service() (app.Options, error) {
	opts, err := l.Options()
	if err != nil {
		return opts, err
	}
	opts.Logger, opts.Level, err = app.NewLogger(l.Stderr, opts.Config.Logging, IsTerminal(l.Stderr))
	if err != nil {
		return opts, err
	}
	opts.Reload = func() (*config.Config, error) { return config.Load(l.Source()) }
	if l.Hangup != nil {
		opts.Hangup = l.Hangup()
	}
	return opts, nil
}

// UsageError is a command line that can not be understood.
type UsageError struct {
	err     error
	command string // whose help shows how
}

// Usage makes an error one of usage.
func Usage(cmd *cobra.Command, err error) *UsageError { return &UsageError{err, cmd.CommandPath()} }

// Error is the text of the cause.
func (e *UsageError) Error() string { return e.err.Error() }

// Unwrap is the cause.
func (e *UsageError) Unwrap() error { return e.err }

// Fail tells what is wrong, if anything is, and returns the exit code.
func (l *Line) Fail(err error) int {
	var (
		usage    *UsageError
		problems *config.Errors
		unusable *app.ConfigError
	)
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &usage):
		l.Talk("%s: %v\nSee %s --help.\n", l.Program, usage, usage.command)
		return ExitUsage
	case errors.As(err, &problems):
		for _, p := range l.FlagNames(problems.Problems) {
			l.Talk("%v\n", p)
		}
		return ExitUsage
	case errors.As(err, &unusable):
		l.Talk("%s: %s: %v\n", l.Program, l.ConfigPath, unusable)
		return ExitUsage
	default:
		l.Talk("%s: %v\n", l.Program, err)
		return ExitFailure
	}
}

// FlagNames gives problems of flags the name the user typed.
func (l *Line) FlagNames(problems []config.Problem) []config.Problem {
	named := make([]config.Problem, 0, len(problems))
	for _, p := range problems {
		for _, s := range l.Settings {
			if p.File == "flags" && p.Path == s.Path {
				p.Path = "--" + s.Flag
			}
		}
		named = append(named, p)
	}
	return named
}

// Talk writes to a person. There is nobody to tell when that fails.
func (l *Line) Talk(format string, args ...any) { _, _ = fmt.Fprintf(l.Stderr, format, args...) }

// Print writes data.
func (l *Line) Print(data []byte) error {
	if _, err := l.Stdout.Write(data); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// Printf writes data.
func (l *Line) Printf(format string, args ...any) error {
	return l.Print(fmt.Appendf(nil, format, args...))
}

// PrintJSON writes a value as indented JSON.
func (l *Line) PrintJSON(v any) error {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return l.Print([]byte(b.String()))
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
