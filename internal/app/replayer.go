package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/idempotency"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/replayer/api"
	"github.com/kafka-redrive/redrive/internal/replayer/expiry"
	"github.com/kafka-redrive/redrive/internal/replayer/index"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// Replayer is a dlt-replayer process. Make one with NewReplayer, run it once.
type Replayer struct {
	opts     Options
	log      *slog.Logger
	registry *prometheus.Registry
	client   *kgo.Client // for the preflight and the probes
	at       ledgerAt
	ledger   *ledger
	indexer  *index.Indexer
	replays  *replay.Replayer
	radar    *expiry.Radar
	api      *api.Server
	admin    *admin
	state    replayerState
	begun    bool // The index and the replays run, or have run.
	notices  notices

	inspector *inspector
	reloader  *reloader // nil: the configuration stays
	undo      teardown

	// tokens are in force. They belong to the goroutine of the reloader once it runs.
	tokens []api.Token
}

// NewReplayer builds everything that needs neither a ledger nor a broker, and
// listens on the addresses of the probes and of the API. The caller must call Run,
// also to undo what NewReplayer did. After an error there is nothing to undo. An
// error is a *ConfigError unless an address is not to be had.
func NewReplayer(ctx context.Context, opts Options) (_ *Replayer, err error) {
	opts = opts.withDefaults()
	r := &Replayer{opts: opts, log: opts.Logger.With("component", "app")}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.undo.run(r.log))
		}
	}()

	settings := opts.Config.Replayer
	tokens, err := tokensOf(opts.Config)
	if err != nil {
		return nil, err // An *config.Errors tells of the file itself.
	}
	if r.at, err = locateLedger(opts.Config.Ledger, r.log); err != nil {
		return nil, &ConfigError{err}
	}
	r.tokens = tokens
	r.registry = newRegistry(opts.Build)
	if err := r.opts.trace(ctx, replayerClientID, replayerKafka(opts).ClientID, r.registry); err != nil {
		return nil, &ConfigError{err}
	}
	opts = r.opts
	r.undo.push("tracer", opts.flush(time.Duration(settings.ShutdownTimeout))) //nolint:contextcheck // It has a limit of its own.
	r.ledger = newLedger(r.registry)
	r.undo.push("ledger", r.ledger.Close)
	if r.client, err = connect(opts); err != nil { //nolint:contextcheck // It reads files and asks nobody.
		return nil, &ConfigError{err}
	}
	r.undo.push("kafka client", func() error { r.client.Close(); return nil })
	if err := r.engines(); err != nil { //nolint:contextcheck // It reads files and asks nobody.
		return nil, &ConfigError{err}
	}
	probes := &replayerProbes{
		state: &r.state, notices: &r.notices, ledger: r.ledger, index: r.indexer.Status, replay: r.replays.Status,
		radar: r.radar.Troubles, ping: pinger(r.client),
	}
	r.registry.MustRegister(&issueCollector{probes})
	r.watch()
	r.admin, err = listen(ctx, settings.Admin.Address, adminHandler(probes, r.registry, settings.Admin.Pprof))
	if err != nil {
		return nil, err
	}
	served := apiOptions(opts, tokens, r.ledger, r.replays, r.registry)
	served.Radar = r.radar
	r.api, err = api.New(ctx, served)
	if err != nil {
		return nil, errors.Join(err, r.admin.stop()) //nolint:contextcheck // It has a limit of its own.
	}
	return r, nil
}

// engines makes the index, the replays and the radar. None asks anybody yet.
func (r *Replayer) engines() (err error) {
	if r.indexer, err = index.New(indexOptions(r.opts, r.ledger, r.registry)); err != nil {
		return err
	}
	r.undo.push("index", r.unused(r.indexer.Run))
	if r.replays, err = replay.New(replayOptions(r.opts, idempotency.NewOwner(), r.ledger, r.registry)); err != nil {
		return err
	}
	r.undo.push("replays", r.unused(r.replays.Run))
	r.radar, err = expiry.New(radarOptions(r.opts, r.client, r.ledger, r.registry))
	return err
}

// unused closes what only the end of its run closes, if that never began.
func (r *Replayer) unused(run func(context.Context) error) func() error {
	return func() error {
		if r.begun {
			return nil
		}
		ended, end := context.WithCancel(context.Background())
		end()
		return run(ended)
	}
}

// watch makes the actors that look after the topics and the files.
func (r *Replayer) watch() {
	r.inspector = &inspector{
		log: r.log, notices: &r.notices,
		plan: func(ctx context.Context, cfg *config.Config, known *kafka.Survey) (*kafka.Plan, error) {
			preflight := replayerPreflight(cfg)
			preflight.Known = known
			return makePlan(ctx, r.client, preflight, r.opts.ConfigPath)
		},
	}
	metrics := newReloadMetrics(r.registry, r.opts.Config)
	if r.opts.Reload == nil {
		return
	}
	settings := r.opts.Config.Replayer
	r.reloader = &reloader{
		log: r.log, load: r.opts.Reload, hangup: r.opts.Hangup, level: r.opts.Level,
		fingerprint: func() (string, error) { return contentOfAll(r.opts.ConfigPath, settings.API.TokensFilepath) },
		notices:     &r.notices, metrics: metrics, current: r.opts.Config,
		interval: time.Duration(settings.ReloadInterval),
	}
	r.reloader.force = r.reload
}

// AdminAddress is where probes and metrics are served, with the port that was
// taken.
func (r *Replayer) AdminAddress() string { return r.admin.address() }

// APIAddress is where the API is served, with the port that was taken.
func (r *Replayer) APIAddress() string { return r.api.Address() }

// Run indexes and replays until ctx ends and then stops gracefully, within the
// configured shutdown timeout; it returns nil then. It blocks while neither the
// ledger nor a broker answers. The error says why the process can not go on.
func (r *Replayer) Run(ctx context.Context) error {
	settings := r.opts.Config.Replayer
	r.log.InfoContext(ctx, "starting", "version", r.opts.Build.Version, "group", settings.Group, "origins", len(r.opts.Config.Topics),
		"ledger", r.at.name(), "admin_address", r.AdminAddress(), "api_address", r.APIAddress())
	if !onLoopback(r.AdminAddress()) {
		r.log.WarnContext(ctx, "whoever reaches the admin address may read probes and metrics: they name topics, and nothing asks who it is",
			"admin_address", r.AdminAddress(), "pprof", settings.Admin.Pprof)
	}
	stopAPI := sync.OnceValue(r.api.Stop)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(r.admin.serve)
	group.Go(r.api.Serve)
	group.Go(func() error {
		err := r.work(ctx, stopAPI)
		err = errors.Join(err, stopAPI())
		r.state.enter(phaseStopped)
		err = errors.Join(err, r.undo.run(r.log))
		// The last step stops the server of the probes, and so the last actor.
		return errors.Join(err, r.admin.stop()) //nolint:contextcheck // It has a limit of its own, since the context has ended.
	})
	if err := group.Wait(); err != nil {
		return err
	}
	r.log.Info("stopped")
	return nil
}

// work is the actor that indexes and replays.
func (r *Replayer) work(ctx context.Context, stopAPI func() error) error {
	stopping := context.AfterFunc(ctx, func() {
		r.state.enter(phaseStopping)
		r.log.Info("stopping", "cause", context.Cause(ctx))
	})
	defer stopping()
	r.state.doing("opening the ledger")
	if err := r.at.await(ctx, r.ledger); err != nil || ctx.Err() != nil {
		return err
	}
	// What it looks after is needed until the last letter is marked.
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	watching.Go(func() { r.ledger.watch(watched, r.log) })
	defer watching.Wait()
	defer unwatch()

	r.state.running()
	if !r.awaitTopics(ctx) {
		return nil
	}
	beside, end := context.WithCancel(ctx)
	var actors sync.WaitGroup
	actors.Go(func() { r.inspector.run(beside) })
	actors.Go(func() { r.radar.Run(beside) })
	if r.reloader != nil {
		actors.Go(func() { r.reloader.run(beside) })
	}
	defer actors.Wait()
	defer end()

	r.begun = true
	// Each stops when it is told to, and not when ctx ends: the order matters.
	indexing := startActor(ctx, "index", r.indexer.Run)
	replaying := startActor(ctx, "replay", r.replays.Run)
	var err error
	select {
	case <-ctx.Done():
	case err = <-indexing.ended:
	case err = <-replaying.ended:
	}
	// No request begins anything new, then the replays give back what they did not
	// send, then the index, which may still see a letter come back.
	return errors.Join(err, stopAPI(), replaying.stop(), indexing.stop())
}

// awaitTopics waits for a broker and looks at the topics. Nothing that is wrong with
// them refuses the start: what can not be read waits where it is. It reports false
// if ctx ended.
func (r *Replayer) awaitTopics(ctx context.Context) bool {
	var talked time.Time
	waiting := func(err error) {
		if ctx.Err() == nil && time.Since(talked) >= talkInterval {
			talked = time.Now()
			r.log.WarnContext(ctx, "no broker answers, waiting", "brokers", r.opts.Config.Kafka.Brokers, "err", kafka.Explain(err))
		}
	}
	for {
		if err := awaitBroker(ctx, r.client, waiting); err != nil {
			return false // Only the end of ctx ends the wait.
		}
		plan, err := r.inspector.plan(ctx, r.opts.Config, nil)
		if err == nil {
			r.inspector.adopt(ctx, r.opts.Config, plan)
			return true
		}
		waiting(err)
		if !wait.For(ctx, retryInterval) {
			return false
		}
	}
}

// actor is a loop that runs until it is told to stop.
type actor struct {
	// ended has what the loop returned, once.
	ended chan error
	stop  func() error
}

// startActor runs a loop beside the caller. One that ends by itself is an error; stop ends
// it, and returns what is left to tell.
func startActor(ctx context.Context, name string, run func(context.Context) error) *actor {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &actor{ended: make(chan error, 1)}
	done := make(chan struct{})
	var failure error
	go func() {
		defer close(done)
		err := run(running)
		switch {
		case err != nil && !errors.Is(err, context.Canceled):
			failure = fmt.Errorf("%s: %w", name, err)
		case running.Err() == nil:
			failure = fmt.Errorf("%s: ended without being asked to", name)
		}
		a.ended <- failure
	}()
	a.stop = func() error {
		cancel()
		<-done
		select {
		case err := <-a.ended:
			return err
		default:
			return nil // It was told already.
		}
	}
	return a
}

// replayerState is what the probes know of the actor that works.
type replayerState struct {
	mu    sync.Mutex // guards the following
	at    phase
	waits string
}

func (s *replayerState) doing(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = what
}

func (s *replayerState) running() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = max(s.at, phaseRunning)
}

func (s *replayerState) enter(p phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = max(s.at, p)
}

func (s *replayerState) get() (at phase, waits string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, s.waits
}
