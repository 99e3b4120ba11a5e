// Package app is the composition root: it turns one validated configuration into
// a running process and takes that process down again.
//
// The model: New builds what can fail without a broker, in a straight line, and
// notes for each resource how it is undone. Run has two actors. One serves
// probes and metrics over HTTP. The other waits for a broker, checks the topics,
// makes the forwarder and runs it. When it ends, everything is undone in reverse
// order, so that the probes answer until the last commit is made.
//
// It promises that a forwarder never joins its group while the topics as they
// are would lose records, that a broker which does not answer is waited for, and
// that an end of the context of Run is a graceful stop. It refuses to read flags,
// the environment or signals: that is the business of cmd.
//
// An App is run once. Plan and Apply stand alone.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/forwarder"
)

// Options say what is built.
type Options struct {
	// Config is the configuration after config.Load. Required.
	Config *config.Config
	// ConfigPath is the file as its user named it. It stands in the commands
	// that are recommended.
	ConfigPath string
	// Build is the running build, for the metrics and the brokers.
	Build Build
	// Logger receives what an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// ConfigError is a configuration that is well formed and can not be used, such
// as a certificate file that is not there.
type ConfigError struct{ Err error }

// Error is the text of the cause.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// App is a forwarder process. Make one with New, run it once.
type App struct {
	opts     Options
	log      *slog.Logger
	forward  forwarder.Options
	registry *prometheus.Registry
	client   *kgo.Client // for the start check and the probes
	state    state
	admin    *admin
	undo     teardown
}

// New builds everything that needs no broker and listens on the admin address.
// The caller must call Run, also to undo what New did. After an error there is
// nothing to undo. An error is a *ConfigError unless the address is not to be had.
func New(ctx context.Context, opts Options) (_ *App, err error) {
	opts = opts.withDefaults()
	a := &App{opts: opts, log: opts.Logger.With("component", "app")}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.undo.run(a.log))
		}
	}()

	a.registry = newRegistry(opts.Build)
	a.forward, err = forwarderOptions(opts, a.registry)
	if err != nil {
		return nil, &ConfigError{err}
	}
	a.client, err = connect(opts)
	if err != nil {
		return nil, &ConfigError{err}
	}
	a.undo.push("kafka client", func() error { a.client.Close(); return nil })
	probes := &probes{state: &a.state, ping: func(ctx context.Context) error {
		// Twice, since a connection that had died unnoticed fails the first.
		if ping(ctx, a.client) == nil {
			return nil
		}
		return ping(ctx, a.client)
	}}
	a.admin, err = listen(ctx, opts.Config.Forwarder.Admin.Address, adminHandler(probes, a.registry))
	if err != nil {
		return nil, err
	}
	a.undo.push("admin server", a.admin.stop)
	return a, nil
}

// AdminAddress is where probes and metrics are served, with the port that was
// taken.
func (a *App) AdminAddress() string { return a.admin.address() }

// Run forwards until ctx ends and then stops gracefully, within the configured
// shutdown timeout; it returns nil then. It blocks while no broker answers. The
// error is a *RefusedError if the topics would lose records, and otherwise says
// why the process can not go on.
func (a *App) Run(ctx context.Context) error {
	cfg := a.opts.Config
	a.log.InfoContext(ctx, "starting", "version", a.opts.Build.Version, "group", cfg.Forwarder.Group,
		"origins", len(cfg.Topics), "admin_address", a.AdminAddress())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(a.admin.serve)
	group.Go(func() error {
		err := a.work(ctx)
		a.state.enter(phaseStopped)
		// The last step stops the server, and so the other actor.
		return errors.Join(err, a.undo.run(a.log))
	})
	if err := group.Wait(); err != nil {
		return err
	}
	a.log.Info("stopped")
	return nil
}

// work is the actor that forwards.
func (a *App) work(ctx context.Context) error {
	stopping := context.AfterFunc(ctx, func() {
		a.state.enter(phaseStopping)
		a.log.Info("stopping", "cause", context.Cause(ctx))
	})
	defer stopping()
	if err := a.check(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	f, err := forwarder.New(a.forward)
	if err != nil {
		return fmt.Errorf("make the forwarder: %w", err)
	}
	a.state.run(f)
	if err := f.Run(ctx); err != nil {
		return fmt.Errorf("forward: %w", err)
	}
	return nil
}

// NewLogger makes the logger of a process. Terminal tells whether w is one, for
// the format auto.
func NewLogger(w io.Writer, settings config.Logging, terminal bool) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(settings.Level)); err != nil {
		return nil, fmt.Errorf("logging level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	if settings.Format == "text" || settings.Format == "auto" && terminal {
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	// Levels in lower case, as everywhere else in our output.
	options.ReplaceAttr = func(groups []string, attr slog.Attr) slog.Attr {
		if len(groups) == 0 && attr.Key == slog.LevelKey {
			attr.Value = slog.StringValue(strings.ToLower(attr.Value.String()))
		}
		return attr
	}
	return slog.New(slog.NewJSONHandler(w, options)), nil
}
