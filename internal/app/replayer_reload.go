package app

import (
	"context"
	"reflect"
	"slices"

	"github.com/kafka-redrive/redrive/internal/config"
)

// reload brings a configuration into force as far as a dlt-replayer that runs can:
// the tokens, those in their file included, and the log level. It leaves everything
// as it was if it returns an error.
func (r *Replayer) reload(ctx context.Context, next *config.Config, asked bool) error {
	level, err := parseLevel(next.Logging.Level)
	if err != nil {
		return &ConfigError{err}
	}
	merged, restart := inForceOfReplayer(r.reloader.current, next)
	tokens, err := tokensOf(merged)
	if err != nil {
		return err
	}
	if err := r.api.SetTokens(tokens); err != nil {
		return &ConfigError{err}
	}
	r.opts.Level.Set(level)
	news := asked || len(restart) > 0 || !reflect.DeepEqual(tokens, r.tokens) || !reflect.DeepEqual(merged, r.reloader.current)
	r.reloader.current, r.tokens = merged, tokens
	r.reloader.metrics.took(merged)
	if was := r.notices.reloaded(restart); len(restart) > 0 && !slices.Equal(was, restart) {
		r.log.WarnContext(ctx, "settings were changed that need a restart", "keys", restart)
	}
	if news {
		r.log.InfoContext(ctx, "configuration reloaded", "tokens", len(tokens), "asked", asked)
	}
	return nil
}

// inForceOfReplayer is what a dlt-replayer that runs with current does when next is
// loaded. The keys are those that are different in the rest, which stays as it is
// until a restart.
func inForceOfReplayer(current, next *config.Config) (merged *config.Config, restart []string) {
	of := func(path string, before, after any) {
		restart = append(restart, changedKeys(path, reflect.ValueOf(before), reflect.ValueOf(after))...)
	}
	replayer, logging := next.Replayer, next.Logging
	replayer.API.Tokens = current.Replayer.API.Tokens
	logging.Level = current.Logging.Level
	of("kafka", current.Kafka, next.Kafka)
	of("ledger", current.Ledger, next.Ledger)
	of("replayer", current.Replayer, replayer)
	of("logging", current.Logging, logging)
	of("tracing", current.Tracing, next.Tracing)
	if !reflect.DeepEqual(forReplayer(current.Topics), forReplayer(next.Topics)) {
		restart = append(restart, "topics")
	}
	merged = &config.Config{
		Kafka: current.Kafka, Forwarder: next.Forwarder, Ledger: current.Ledger, Replayer: current.Replayer,
		Logging: config.Logging{Level: next.Logging.Level, Format: current.Logging.Format},
		Tracing: current.Tracing,
		Topics:  current.Topics,
	}
	merged.Replayer.API.Tokens = next.Replayer.API.Tokens
	return merged, restart
}

// forReplayer are the entries without what is of the forwarder alone.
func forReplayer(topics []config.Topic) []config.Topic {
	all := slices.Clone(topics)
	for i := range all {
		t := &all[i]
		t.Paused, t.RateLimit, t.MaxHeldBytesPerPartition, t.MaxAttempts, t.MaxDeliveries, t.MaxDelay = false, 0, 0, 0, 0, 0
	}
	return all
}

// contentOfAll is the fingerprint of a file and of another one, which there may not
// be.
func contentOfAll(path, other string) (string, error) {
	content, err := contentOf(path)
	if err != nil || other == "" {
		return content, err
	}
	more, err := contentOf(other)
	return content + more, err
}
