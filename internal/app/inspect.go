package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	// inspectInterval is how often the topics are looked at while the forwarder
	// runs. Somebody may alter them at any time.
	inspectInterval = time.Minute

	// surveyLasts is how long what changes seldom and is dear to ask counts: the
	// commits of other groups and the samples of the origins.
	surveyLasts = time.Hour
)

// planFunc compares the topics of a configuration with those of the cluster.
// Known is the survey of an earlier plan of the same configuration, or nil.
type planFunc func(ctx context.Context, cfg *config.Config, known *kafka.Survey) (*kafka.Plan, error)

// inspector holds the topics against the rules of the preflight: before a
// configuration comes into force, and every minute while it is.
type inspector struct {
	log     *slog.Logger
	notices *notices
	plan    planFunc

	mu sync.Mutex // guards the following
	// config is the one in force. Who has looked at another meanwhile, throws away
	// what was seen.
	config   *config.Config
	survey   *kafka.Survey
	surveyed time.Time
}

// judge looks at the topics of a configuration that is not in force yet. The
// error is a *RefusedError if they would lose records, and otherwise says why the
// brokers could not be asked.
func (i *inspector) judge(ctx context.Context, cfg *config.Config) (*kafka.Plan, error) {
	plan, err := i.plan(ctx, cfg, nil)
	if err != nil {
		return nil, err
	}
	refused := &RefusedError{}
	for _, p := range plan.Problems() {
		if p.LosesRecords() {
			refused.Problems = append(refused.Problems, p)
		}
	}
	if len(refused.Problems) > 0 {
		return nil, refused
	}
	return plan, nil
}

// adopt notes that a configuration came into force, with the plan that was made
// of its topics; nil if its topics are those of the one before.
func (i *inspector) adopt(ctx context.Context, cfg *config.Config, plan *kafka.Plan) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.config = cfg
	if plan != nil {
		i.survey, i.surveyed = plan.Survey, time.Now()
		i.show(ctx, plan)
	}
}

// run looks at the topics every minute until ctx ends.
func (i *inspector) run(ctx context.Context) {
	silent := false // The brokers would not speak the last time.
	for wait.For(ctx, inspectInterval) {
		err := i.inspect(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !silent:
			i.log.WarnContext(ctx, "the topics can not be looked at, it is tried again every minute", "err", kafka.Explain(err))
		case err == nil && silent:
			i.log.InfoContext(ctx, "the topics can be looked at again")
		}
		silent = err != nil
	}
}

func (i *inspector) inspect(ctx context.Context) error {
	i.mu.Lock()
	cfg, known := i.config, i.survey
	if time.Since(i.surveyed) >= surveyLasts {
		known = nil
	}
	i.mu.Unlock()
	plan, err := i.plan(ctx, cfg, known)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.config != cfg {
		return nil
	}
	if known == nil {
		i.survey, i.surveyed = plan.Survey, time.Now()
	}
	i.show(ctx, plan)
	return nil
}

// show makes the problems of a plan those of now, and logs what is different.
func (i *inspector) show(ctx context.Context, plan *kafka.Plan) {
	news, gone := i.notices.inspected(plan.Problems())
	for _, p := range news {
		level := slog.LevelInfo
		switch p.Severity {
		case issue.SeverityError:
			level = slog.LevelError
		case issue.SeverityWarning:
			level = slog.LevelWarn
		case issue.SeverityInfo:
		}
		i.log.Log(ctx, level, "the preflight found a problem", "code", p.Code, "topic", p.Topic, "detail", p.Message, "remedy", p.Remedy)
	}
	for _, p := range gone {
		i.log.InfoContext(ctx, "a problem that the preflight found is gone", "code", p.Code, "topic", p.Topic)
	}
}
