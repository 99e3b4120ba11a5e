// Package app is the composition root: it turns one validated configuration into
// a running process and takes that process down again.
//
// The model: New builds what can fail without a broker, in a straight line, and
// notes for each resource how it is undone. Run has two actors. One serves
// probes and metrics over HTTP. The other waits for a broker, checks the topics
// and then runs three side by side: the runner, which runs one forwarder after the
// other; the reloader, which loads the configuration when it is asked to or when
// the file has changed, and has the runner begin anew where that needs it; and the
// inspector, which holds the topics against the rules of the start once a minute.
// When they end, everything is undone in reverse order, so that the probes answer
// until the last commit is made.
//
// It promises that a forwarder never joins its group while the topics as they
// are would lose records, that a broker which does not answer is waited for, that
// a configuration that can not be used changes nothing, and that an end of the
// context of Run is a graceful stop at any time. It refuses to read flags, the
// environment or signals: that is the business of cmd.
//
// A dlt-replayer is built and taken down in the same manner, by NewReplayer: it waits
// for its ledger, and then for a broker, while its API and its probes answer already.
// On the way down the API ends first, then the replays, which leave their jobs to
// another replica, the index, the ledger, and the probes last.
//
// An App and a Replayer are run once. Plan and Apply stand alone.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/forwarder"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/tracing"
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
	// Level is the level of Logger, which a reload sets. Nil: it stays.
	Level *slog.LevelVar
	// Reload loads the configuration as it is by then, from the same places as
	// Config. It is called when Hangup says so, and when the content of the file at
	// ConfigPath has changed. Nil: the configuration stays.
	Reload func() (*config.Config, error)
	// Hangup asks for a reload with each value. Nil: only the file does.
	Hangup <-chan struct{}

	// tracer is that of the process, once New has made it; nil if tracing is off.
	tracer *tracing.Tracer
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Level == nil {
		o.Level = &slog.LevelVar{}
	}
	return o
}

// with are the options for another configuration.
func (o Options) with(cfg *config.Config) Options {
	o.Config = cfg
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
	opts      Options
	log       *slog.Logger
	forward   forwarder.Options
	registry  *prometheus.Registry
	client    *kgo.Client // for the preflight and the probes
	state     state
	notices   notices
	inspector *inspector
	runner    *runner
	reloader  *reloader // nil: the configuration stays
	admin     *admin
	undo      teardown
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
	if err := a.opts.trace(ctx, forwarderClientID, opts.Config.Kafka.ClientID, a.registry); err != nil {
		return nil, &ConfigError{err}
	}
	opts = a.opts
	a.undo.push("tracer", opts.flush(time.Duration(opts.Config.Forwarder.ShutdownTimeout))) //nolint:contextcheck // It has a limit of its own.
	a.forward, err = forwarderOptions(opts, a.registry)
	if err != nil {
		return nil, &ConfigError{err}
	}
	a.client, err = connect(opts) //nolint:contextcheck // It reads files and asks nobody.
	if err != nil {
		return nil, &ConfigError{err}
	}
	a.undo.push("kafka client", func() error { a.client.Close(); return nil })
	probes := &probes{state: &a.state, notices: &a.notices, ping: pinger(a.client)}
	a.registry.MustRegister(&issueCollector{probes})
	a.watch()
	a.admin, err = listen(ctx, opts.Config.Forwarder.Admin.Address, adminHandler(probes, a.registry, opts.Config.Forwarder.Admin.Pprof))
	if err != nil {
		return nil, err
	}
	a.undo.push("admin server", a.admin.stop)
	return a, nil
}

// watch makes the actors that look after the forwarder.
func (a *App) watch() {
	a.inspector = &inspector{
		log: a.log, notices: &a.notices,
		plan: func(ctx context.Context, cfg *config.Config, known *kafka.Survey) (*kafka.Plan, error) {
			preflight := preflight(cfg)
			preflight.Known = known
			return makePlan(ctx, a.client, preflight, a.opts.ConfigPath)
		},
	}
	a.runner = newRunner(&a.state, func(options forwarder.Options) (engine, error) { return forwarder.New(options) })
	metrics := newReloadMetrics(a.registry, a.opts.Config)
	if a.opts.Reload == nil {
		return
	}
	a.reloader = &reloader{
		log: a.log, load: a.opts.Reload, hangup: a.opts.Hangup, level: a.opts.Level,
		fingerprint: func() (string, error) { return contentOf(a.opts.ConfigPath) },
		inspector:   a.inspector, runner: a.runner, notices: &a.notices, metrics: metrics, current: a.opts.Config,
		interval: time.Duration(a.opts.Config.Forwarder.ReloadInterval),
		options: func(cfg *config.Config) (forwarder.Options, error) {
			return forwarderOptions(a.opts.with(cfg), a.registry)
		},
	}
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
	if !onLoopback(a.AdminAddress()) {
		a.log.WarnContext(ctx, "whoever reaches the admin address may read probes and metrics: they name topics, and nothing asks who it is",
			"admin_address", a.AdminAddress(), "pprof", cfg.Forwarder.Admin.Pprof)
	}
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
	group, running := errgroup.WithContext(ctx)
	// The runner ends with the context, or with an error, which ends the others.
	group.Go(func() error { return a.runner.run(running, a.forward) })
	group.Go(func() error { a.inspector.run(running); return nil })
	if a.reloader != nil {
		group.Go(func() error { a.reloader.run(running); return nil })
	}
	return group.Wait()
}

// NewLogger makes the logger of a process, and the level it goes by. Terminal
// tells whether w is one, for the format auto.
func NewLogger(w io.Writer, settings config.Logging, terminal bool) (*slog.Logger, *slog.LevelVar, error) {
	initial, err := parseLevel(settings.Level)
	if err != nil {
		return nil, nil, err
	}
	level := &slog.LevelVar{}
	level.Set(initial)
	options := &slog.HandlerOptions{Level: level}
	if settings.Format == "text" || settings.Format == "auto" && terminal {
		return slog.New(tracing.LogHandler(slog.NewTextHandler(w, options))), level, nil
	}
	// Levels in lower case, as everywhere else in our output.
	options.ReplaceAttr = func(groups []string, attr slog.Attr) slog.Attr {
		if len(groups) == 0 && attr.Key == slog.LevelKey {
			attr.Value = slog.StringValue(strings.ToLower(attr.Value.String()))
		}
		return attr
	}
	return slog.New(tracing.LogHandler(slog.NewJSONHandler(w, options))), level, nil
}

func parseLevel(text string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return level, fmt.Errorf("logging level: %w", err)
	}
	return level, nil
}
