package app

import (
	"reflect"
	"slices"
	"strings"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/forwarder"
)

// inForce is what a process that runs with current does when next is loaded: it
// takes the topics and the log level. The keys are those that are different in the
// rest, which stays as it is until a restart.
func inForce(current, next *config.Config) (merged *config.Config, restart []string) {
	logging := next.Logging
	logging.Level = current.Logging.Level
	restart = slices.Concat(
		changedKeys("kafka", reflect.ValueOf(current.Kafka), reflect.ValueOf(next.Kafka)),
		changedKeys("forwarder", reflect.ValueOf(current.Forwarder), reflect.ValueOf(next.Forwarder)),
		changedKeys("logging", reflect.ValueOf(current.Logging), reflect.ValueOf(logging)),
		changedKeys("tracing", reflect.ValueOf(current.Tracing), reflect.ValueOf(next.Tracing)),
	)
	merged = &config.Config{
		Kafka:     current.Kafka,
		Forwarder: current.Forwarder,
		Ledger:    next.Ledger, // Of the dlt-replayer, as the next.
		Replayer:  next.Replayer,
		Logging:   config.Logging{Level: next.Logging.Level, Format: current.Logging.Format},
		Tracing:   current.Tracing,
		Topics:    slices.Clone(next.Topics),
	}
	for i := range merged.Topics {
		// A topic that follows the section must not run ahead of it.
		if bytes := &merged.Topics[i].MaxHeldBytesPerPartition; *bytes == next.Forwarder.MaxHeldBytesPerPartition {
			*bytes = current.Forwarder.MaxHeldBytesPerPartition
		}
	}
	return merged, restart
}

// changedKeys are the paths of the keys below path that are different.
func changedKeys(path string, before, after reflect.Value) []string {
	var keys []string
	for i := range before.NumField() {
		field := before.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		key := path + "." + name
		b, a := before.Field(i), after.Field(i)
		switch {
		case field.Type.Kind() == reflect.Struct:
			keys = append(keys, changedKeys(key, b, a)...)
		case !reflect.DeepEqual(b.Interface(), a.Interface()):
			keys = append(keys, key)
		}
	}
	return keys
}

// difference is what a reload has to do about the topics.
type difference int

const (
	sameTopics difference = iota
	// otherPaces change while the forwarder runs.
	otherPaces
	// otherTopics need another forwarder.
	otherTopics
)

// compareTopics compares the entries by their inbox; their order means nothing.
func compareTopics(before, after []config.Topic) difference {
	if len(before) != len(after) {
		return otherTopics
	}
	known := make(map[string]config.Topic, len(before))
	for _, t := range before {
		known[t.Inbox()] = t
	}
	result := sameTopics
	for _, t := range after {
		old, ok := known[t.Inbox()]
		if !ok {
			return otherTopics
		}
		if pace(t) != pace(old) {
			result = otherPaces
		}
		t.Paused, t.RateLimit = old.Paused, old.RateLimit
		// Of the dlt-replayer alone.
		t.ReplayTo, t.ReplyTo, t.Names.ReplayTrigger = old.ReplayTo, old.ReplyTo, old.Names.ReplayTrigger
		if !reflect.DeepEqual(t, old) {
			return otherTopics
		}
	}
	return result
}

func pace(t config.Topic) forwarder.Pace {
	return forwarder.Pace{Paused: t.Paused, RateLimit: t.RateLimit}
}

// paces are those of all topics, by inbox.
func paces(cfg *config.Config) map[string]forwarder.Pace {
	all := make(map[string]forwarder.Pace, len(cfg.Topics))
	for _, t := range cfg.Topics {
		all[t.Inbox()] = pace(t)
	}
	return all
}
