package app

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/forwarder"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

const (
	// settleTime is how long the content of the file must stay as it is before a
	// change counts: an editor may be half way through, and half a list of topics
	// is a valid one.
	settleTime = time.Second

	// missingFor is how long the file may be away before that is told: it is for a
	// moment while a ConfigMap is swapped or an editor saves.
	missingFor = 30 * time.Second

	// retryRefused is when a configuration is tried again that was refused for what
	// the cluster is like, and not for what it says.
	retryRefused = time.Minute
)

// reloader keeps the process in step with its configuration. What it takes it
// takes as a whole: until then, and if anything is wrong, the last good one stays
// in force.
type reloader struct {
	log *slog.Logger
	// load reads the configuration anew.
	load func() (*config.Config, error)
	// fingerprint is different when the content of the file is.
	fingerprint func() (string, error)
	// hangup asks for a reload with each value.
	hangup <-chan struct{}
	// level is that of the process's logger.
	level     *slog.LevelVar
	inspector *inspector
	runner    *runner
	// options are those of a forwarder for a configuration.
	options func(*config.Config) (forwarder.Options, error)
	notices *notices
	metrics *reloadMetrics
	// force brings a configuration into force as far as a process that runs can, and
	// leaves everything as it was if it returns an error. Nil: that of a forwarder.
	force func(ctx context.Context, next *config.Config, asked bool) error
	// interval is the time between two looks at the file; 0: none.
	interval time.Duration

	// The following belong to the goroutine of run.

	// current is in force.
	current *config.Config
	// tried is the content of the last load, taken or not; seen is that of the last
	// look. Both are empty when not known: the first look loads, since the file may
	// have changed between the load of the start and now.
	tried, seen string
	// missing is since when the file can not be read, and lost says that this was
	// told.
	missing time.Time
	lost    bool
	// told is the last failure that was logged.
	told string
}

// run reloads as asked, and when the file has changed, until ctx ends.
func (r *reloader) run(ctx context.Context) {
	look, retry := stoppedTimer(), stoppedTimer()
	defer look.Stop()
	defer retry.Stop()
	if r.interval > 0 {
		look.Reset(r.interval)
	}
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-r.hangup:
			asked = true
		case <-look.C:
			seen := r.look(ctx)
			if seen == changing {
				look.Reset(min(r.interval, settleTime))
				continue
			}
			look.Reset(r.interval)
			if seen == same {
				continue
			}
		case <-retry.C:
		}
		retry.Stop()
		if again := r.reload(ctx, asked); again {
			retry.Reset(retryRefused)
		}
	}
}

func stoppedTimer() *time.Timer {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return timer
}

// sight is what a look at the file shows.
type sight int

const (
	// same is a file with nothing new, or none: it may be there again at once.
	same sight = iota
	// changing is a file that has to be looked at again before it counts.
	changing
	// changed is a file to load.
	changed
)

// look compares the file with the one that was loaded last.
func (r *reloader) look(ctx context.Context) sight {
	content, err := r.fingerprint()
	if err != nil {
		r.miss(ctx, err)
		return same
	}
	r.missing, r.lost = time.Time{}, false
	before := r.seen
	r.seen = content
	switch content {
	case r.tried:
		return same
	case before:
		return changed
	default:
		return changing
	}
}

// miss notes that the file can not be read. The configuration stays in force.
func (r *reloader) miss(ctx context.Context, err error) {
	if r.missing.IsZero() {
		r.missing = time.Now()
	}
	if r.lost || time.Since(r.missing) < missingFor {
		return
	}
	r.lost = true
	// Whatever is there next is loaded, and ends the issue.
	r.tried, r.seen = "", ""
	r.metrics.successful.Set(0)
	r.notices.reloadFailed(err.Error())
	r.log.ErrorContext(ctx, "the configuration can not be read, the last good one stays", "err", err)
}

// reload loads the configuration and takes it. It reports whether the same one
// may be taken later, since what is wrong is not in the file.
func (r *reloader) reload(ctx context.Context, asked bool) (again bool) {
	// Before the load: what changes in between is new to the next look.
	content := r.content()
	r.tried, r.seen = content, content
	next, err := r.load()
	if err != nil && !asked && r.content() != content {
		r.tried = "" // It moved under the load, and is left to the next look.
		return true
	}
	switch {
	case err != nil:
	case r.force != nil:
		err = r.force(ctx, next, asked)
	default:
		err = r.take(ctx, next, asked)
	}
	if ctx.Err() != nil {
		return false
	}
	if err == nil {
		r.told = ""
		return false
	}
	r.metrics.successful.Set(0)
	r.notices.reloadFailed(brief(err))
	if text := err.Error(); text != r.told || asked {
		r.told = text
		r.tell(ctx, err)
	}
	var (
		invalid  *config.Errors
		unusable *ConfigError
	)
	return !errors.As(err, &invalid) && !errors.As(err, &unusable)
}

// content is the fingerprint, empty if the file can not be read.
func (r *reloader) content() string {
	content, err := r.fingerprint()
	if err != nil {
		return "" // The load fails for the same cause and tells it.
	}
	return content
}

// take brings a configuration into force, as far as a process that runs can. It
// leaves everything as it was if it returns an error.
func (r *reloader) take(ctx context.Context, next *config.Config, asked bool) error {
	level, err := parseLevel(next.Logging.Level)
	if err != nil {
		return &ConfigError{err}
	}
	merged, restart := inForce(r.current, next)
	var news []string
	switch compareTopics(r.current.Topics, merged.Topics) {
	case otherTopics:
		if err := r.replace(ctx, merged); err != nil {
			return err
		}
		news = append(news, "topics")
	case otherPaces:
		r.runner.control(paces(merged))
		r.inspector.adopt(ctx, merged, nil)
		news = append(news, "pace")
	case sameTopics:
		r.inspector.adopt(ctx, merged, nil)
	}
	if merged.Logging.Level != r.current.Logging.Level {
		r.level.Set(level)
		news = append(news, "logging.level")
	}
	r.current = merged
	r.metrics.took(merged)
	if was := r.notices.reloaded(restart); len(restart) > 0 && !slices.Equal(was, restart) {
		r.log.WarnContext(ctx, "settings were changed that need a restart", "keys", restart)
	}
	if asked || len(news) > 0 {
		r.log.InfoContext(ctx, "configuration reloaded", "changed", news)
	}
	return nil
}

// replace puts a forwarder with other topics in the place of the one that runs.
func (r *reloader) replace(ctx context.Context, next *config.Config) error {
	options, err := r.options(next)
	if err != nil {
		return &ConfigError{err}
	}
	plan, err := r.inspector.judge(ctx, next)
	if err != nil {
		return err
	}
	r.log.InfoContext(ctx, "the topics have changed: the forwarder drains, and goes on with the new ones", "origins", len(next.Topics))
	if err := r.runner.replace(ctx, options); err != nil {
		// The one that goes on has the paces it was made with.
		r.runner.control(paces(r.current))
		return err
	}
	r.inspector.adopt(ctx, next, plan)
	return nil
}

// tell logs why a configuration was not taken, a line for each cause.
func (r *reloader) tell(ctx context.Context, err error) {
	var (
		invalid *config.Errors
		refused *RefusedError
	)
	switch {
	case errors.As(err, &invalid):
		for _, p := range invalid.Problems {
			r.log.ErrorContext(ctx, "not reloaded: the configuration is wrong, the last good one stays", "problem", p.Error())
		}
	case errors.As(err, &refused):
		for _, p := range refused.Problems {
			r.log.ErrorContext(ctx, "not reloaded: records would be lost, the last good configuration stays",
				"code", p.Code, "topic", p.Topic, "detail", p.Message, "remedy", p.Remedy)
		}
	default:
		r.log.ErrorContext(ctx, "not reloaded, the last good configuration stays", "err", kafka.Explain(err))
	}
}

// brief is the first cause, and how many more there are.
func brief(err error) string {
	var (
		invalid *config.Errors
		refused *RefusedError
		first   string
		causes  int
	)
	switch {
	case errors.As(err, &invalid):
		first, causes = invalid.Problems[0].Error(), len(invalid.Problems)
	case errors.As(err, &refused):
		first, causes = describe(refused.Problems[0]), len(refused.Problems)
	default:
		return kafka.Explain(err)
	}
	if causes > 1 {
		first += fmt.Sprintf(" (and %d more)", causes-1)
	}
	return first
}

// contentOf is the fingerprint of a file. It reads the file and asks neither its
// time nor its name: a ConfigMap changes behind a link to a link.
func contentOf(path string) (_ string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return string(sum.Sum(nil)), nil
}

// reloadMetrics tell how the last reload went. The load of the start is the first.
type reloadMetrics struct {
	successful, at, hash prometheus.Gauge
}

func newReloadMetrics(registerer prometheus.Registerer, cfg *config.Config) *reloadMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &reloadMetrics{
		successful: gauge("redrive_config_reload_successful", "Is 1 if the last load of the configuration succeeded, 0 if the one before it is still in force."),
		at:         gauge("redrive_config_last_reload_success_timestamp_seconds", "When the configuration was last loaded with success."),
		hash:       gauge("redrive_config_hash", "A number that is the same in processes with the same list of topics in force."),
	}
	registerer.MustRegister(m.successful, m.at, m.hash)
	m.took(cfg)
	return m
}

func (m *reloadMetrics) took(cfg *config.Config) {
	m.successful.Set(1)
	m.at.SetToCurrentTime()
	m.hash.Set(hashOf(cfg.Topics))
}

// hashOf is a number that a float64 holds in full. The list of topics has no
// secrets that it could be searched for.
func hashOf(topics []config.Topic) float64 {
	text, err := json.Marshal(topics)
	if err != nil {
		return 0 // Not with plain values.
	}
	sum := sha256.Sum256(text)
	return float64(binary.BigEndian.Uint64(sum[:]) >> 16)
}
