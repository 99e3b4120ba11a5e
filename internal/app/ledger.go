package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/postgres"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlite"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	// ledgerInterval is how often a ledger that is open is asked whether it answers.
	ledgerInterval = 2 * time.Second

	// ledgerTimeout is how long it may take for that.
	ledgerTimeout = 2 * time.Second
)

// ledger is the ledger of the process. It is there from the beginning, so that all
// that use it can be built, and answers with the reason while none is open. It
// counts and measures every call, and knows whether the database answers.
type ledger struct {
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
	up       prometheus.Gauge

	mu sync.RWMutex // guards the following
	// open is the ledger itself; nil until it is opened, and after it was closed.
	open deadletter.Ledger
	// fault is why none is open, or why the one that is does not answer; nil if it
	// does.
	fault error
}

var _ deadletter.Ledger = (*ledger)(nil)

var errNotOpened = errors.New("the ledger is not opened yet")

func newLedger(registerer prometheus.Registerer) *ledger {
	l := &ledger{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "redrive_ledger_errors_total",
			Help: "Calls of the ledger that failed. Answers such as that a letter is unknown are no failures.",
		}, []string{"call"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "redrive_ledger_call_duration_seconds",
			Help:    "How long calls of the ledger took.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"call"}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "redrive_ledger_up",
			Help: "Is 1 while the database of the ledger answers, 0 while it does not or is not opened yet.",
		}),
		fault: errNotOpened,
	}
	registerer.MustRegister(l.errors, l.duration, l.up)
	return l
}

// current is the ledger that is open, or why none is.
func (l *ledger) current() (deadletter.Ledger, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.open == nil {
		return nil, l.fault
	}
	return l.open, nil
}

// state tells whether a ledger is open, and why it does not answer if it does not.
func (l *ledger) state() (open bool, fault error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.open != nil, l.fault
}

// set takes a ledger that was opened, or why that failed.
func (l *ledger) set(open deadletter.Ledger, fault error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if open != nil {
		l.open = open
	}
	l.fault = fault
	up := 0.0
	if fault == nil {
		up = 1
	}
	l.up.Set(up)
}

// Close closes the ledger that is open, if one is.
func (l *ledger) Close() error {
	l.mu.Lock()
	open := l.open
	l.open, l.fault = nil, errors.New("the ledger is closed, because the process stops")
	l.mu.Unlock()
	l.up.Set(0)
	if open == nil {
		return nil
	}
	return open.Close()
}

// do makes one call of the ledger.
func (l *ledger) do(name string, call func(deadletter.Ledger) error) error {
	open, err := l.current()
	if err != nil {
		return err
	}
	began := time.Now()
	err = call(open)
	l.duration.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if failed(err) {
		l.errors.WithLabelValues(name).Inc()
	}
	return err
}

// ask makes one call of the ledger that answers with a value.
func ask[T any](l *ledger, name string, call func(deadletter.Ledger) (T, error)) (answer T, err error) {
	err = l.do(name, func(open deadletter.Ledger) (err error) {
		answer, err = call(open)
		return err
	})
	return answer, err
}

// failed tells a ledger that could not answer from one whose answer is no.
func failed(err error) bool {
	if err == nil {
		return false
	}
	for _, answer := range []error{
		deadletter.ErrUnknown, deadletter.ErrMoved, deadletter.ErrFenced, deadletter.ErrState, deadletter.ErrCursor, context.Canceled,
	} {
		if errors.Is(err, answer) {
			return false
		}
	}
	return true
}

// finding is what is wrong with the ledger now, if anything is.
func (l *ledger) finding() (finding, bool) {
	open, fault := l.state()
	code := issue.LedgerDown
	switch {
	case fault == nil, errors.Is(fault, errNotOpened):
		return finding{}, false
	case open:
	case errors.Is(fault, deadletter.ErrOlder):
		code = issue.LedgerOlder
	case errors.Is(fault, deadletter.ErrNewer):
		code = issue.LedgerNewer
	}
	return newFinding(code, fault.Error()), true
}

// watch asks the ledger every few seconds whether it answers, until ctx ends.
func (l *ledger) watch(ctx context.Context, log *slog.Logger) {
	silent := false
	for wait.For(ctx, ledgerInterval) {
		err := l.pinged(ctx)
		if ctx.Err() != nil {
			return
		}
		l.set(nil, err)
		switch {
		case err != nil && !silent:
			log.ErrorContext(ctx, "the ledger does not answer, it is asked again until it does", "err", err)
		case err == nil && silent:
			log.InfoContext(ctx, "the ledger answers again")
		}
		silent = err != nil
	}
}

func (l *ledger) pinged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return l.Ping(ctx)
}

// ledgerAt says where the ledger is and how it is opened.
type ledgerAt struct {
	settings config.Ledger
	// url is that of Postgres; "" for SQLite.
	url string
	// file is that of SQLite.
	file string
	log  *slog.Logger
}

// locateLedger reads the URL. Its errors are those of the configuration.
func locateLedger(settings config.Ledger, log *slog.Logger) (ledgerAt, error) {
	at := ledgerAt{settings: settings, url: settings.URL.Reveal(), log: log}
	if settings.URLFilepath != "" {
		text, err := os.ReadFile(settings.URLFilepath)
		if err != nil {
			return at, fmt.Errorf("ledger.urlFilepath: %w", err)
		}
		at.url = strings.TrimSpace(string(text))
		if at.url == "" {
			return at, fmt.Errorf("ledger.urlFilepath: %s is empty", settings.URLFilepath)
		}
	}
	if at.url == "" {
		at.file = filepath.Join(settings.DataDir, "ledger.db")
		return at, nil
	}
	file, isFile, err := config.LedgerFile(at.url)
	switch {
	case err != nil && settings.URLFilepath != "":
		return at, fmt.Errorf("ledger.urlFilepath: the URL in %s %w", settings.URLFilepath, err)
	case err != nil:
		return at, fmt.Errorf("ledger.url: %w", err)
	case isFile:
		at.file, at.url = file, ""
		return at, nil
	}
	// What is wrong with an option, or with a file that one names, no waiting mends. The
	// text has the password taken out.
	if _, err := pgxpool.ParseConfig(at.url); err != nil {
		return at, fmt.Errorf("ledger: %w", err)
	}
	return at, nil
}

// name is where the ledger is, without what is secret.
func (at ledgerAt) name() string {
	if at.file != "" {
		return at.file
	}
	return "postgres"
}

func (at ledgerAt) postgres() postgres.Options {
	return postgres.Options{URL: at.url, MaxConnections: at.settings.MaxConnections, Logger: at.log}
}

// open opens the ledger once. Final tells that trying again would not help.
func (at ledgerAt) open(ctx context.Context) (_ deadletter.Ledger, final bool, err error) {
	if at.file != "" {
		// Nothing about a file mends itself while this process waits for it.
		opened, err := sqlite.Open(ctx, sqlite.Options{Path: at.file})
		if errors.Is(err, sqlite.ErrInUse) {
			return nil, true, fmt.Errorf("%w by another process: a ledger in SQLite has one replica; for more name a database of Postgres with ledger.url", err)
		}
		if err != nil {
			return nil, true, err
		}
		return opened, false, nil
	}
	if at.settings.Migrate {
		from, to, err := postgres.Migrate(ctx, at.postgres())
		if err != nil {
			return nil, false, fmt.Errorf("migrate the ledger: %w", err)
		}
		if from != to {
			at.log.InfoContext(ctx, "the ledger was migrated", "from", from, "to", to)
		}
	}
	opened, err := postgres.Open(ctx, at.postgres())
	if err != nil {
		return nil, false, fmt.Errorf("open the ledger: %w", err)
	}
	return opened, false, nil
}

// await opens the ledger and tries until it is open or ctx ends, which is no
// error. An error is one that trying again does not end.
func (at ledgerAt) await(ctx context.Context, l *ledger) error {
	var talked time.Time
	for {
		opened, final, err := at.open(ctx)
		if err == nil {
			l.set(opened, nil)
			at.log.InfoContext(ctx, "the ledger is open", "ledger", at.name())
			return nil
		}
		if final || ctx.Err() != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // It was asked to stop.
			}
			return err
		}
		l.set(nil, err)
		if time.Since(talked) >= talkInterval {
			talked = time.Now()
			at.log.WarnContext(ctx, "the ledger can not be opened, waiting", "ledger", at.name(), "err", err)
		}
		if !wait.For(ctx, retryInterval) {
			return nil
		}
	}
}

// Migration is what became of a ledger that was migrated.
type Migration struct {
	// From and To are the versions before and after; they are the same if there was
	// nothing to do.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Epoch is the number of the life that was begun, if one was.
	Epoch int64 `json:"epoch,omitempty"`
}

// MigrateLedger brings the tables of the ledger to the version of this program, and
// begins a new epoch of it where it was put back to an older state. The error is a
// *ConfigError, or says what the database did not do.
func MigrateLedger(ctx context.Context, opts Options, restored bool) (Migration, error) {
	opts = opts.withDefaults()
	at, err := locateLedger(opts.Config.Ledger, opts.Logger)
	if err != nil {
		return Migration{}, &ConfigError{err}
	}
	var m Migration
	migrate := func() (int64, int64, error) { return postgres.Migrate(ctx, at.postgres()) }
	restore := func() (int64, error) { return postgres.Restored(ctx, at.postgres()) }
	if at.file != "" {
		migrate = func() (int64, int64, error) { return sqlite.Migrate(ctx, sqlite.Options{Path: at.file}) }
		restore = func() (int64, error) { return sqlite.Restored(ctx, sqlite.Options{Path: at.file}) }
	}
	if m.From, m.To, err = migrate(); err != nil {
		return m, fmt.Errorf("migrate the ledger: %w", err)
	}
	if restored {
		if m.Epoch, err = restore(); err != nil {
			return m, fmt.Errorf("begin a new epoch of the ledger: %w", err)
		}
	}
	return m, nil
}
