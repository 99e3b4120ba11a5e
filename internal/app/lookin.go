package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/forwarder"
)

// ArgumentError is an argument of a command that names nothing there is.
// Nothing was done.
type ArgumentError struct{ Err error }

// Error is the text of the cause.
func (e *ArgumentError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *ArgumentError) Unwrap() error { return e.Err }

// Find looks for records that wait, and tells progress from time to time. It
// changes nothing. It takes as long as it takes to read what waits, unless ctx
// ends. The error is a *ConfigError or an *ArgumentError, says that no broker
// answers, or that the search is not complete.
func Find(ctx context.Context, opts Options, query forwarder.Query, progress func(forwarder.Progress)) (*forwarder.Found, error) {
	if err := knownOrigin(opts.Config, query.Origin); err != nil {
		return nil, err
	}
	operator, client, err := operate(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return operator.Find(ctx, query, progress)
}

// ListOffsets says where the group stands in every partition of a topic that it
// reads, or with an empty topic of all. It changes nothing.
func ListOffsets(ctx context.Context, opts Options, topic string) ([]forwarder.PartitionOffsets, error) {
	operator, client, err := operate(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var topics []string
	if topic != "" {
		if err := knownSource(operator, topic); err != nil {
			return nil, err
		}
		topics = append(topics, topic)
	}
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	return operator.Offsets(ctx, topics...)
}

// OffsetRequest says which offsets SetOffsets sets.
type OffsetRequest struct {
	// Topic is an inbox or a tier. Required.
	Topic string
	// Partitions are those to set. Empty: those that wait for a decision.
	Partitions []int32
	// To is where they are read on.
	To forwarder.Position
	// Patience is how long running forwarders have to take the decision.
	Patience time.Duration
}

// SetOffsets sets offsets of the group: at once if it has no members, else by a
// decision that a running forwarder takes. What is about to be done goes to
// approve, whose error ends it; waiting is called from time to time with the
// number of partitions that are left. It returns what became of each partition;
// an error beside them says that not all were set.
func SetOffsets(ctx context.Context, opts Options, request OffsetRequest,
	approve func([]forwarder.OffsetChange) error, waiting func(left int),
) ([]forwarder.OffsetChange, error) {
	operator, client, err := operate(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := knownSource(operator, request.Topic); err != nil {
		return nil, err
	}
	planning, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	changes, err := operator.PlanOffsets(planning, request.Topic, request.Partitions, request.To)
	if err != nil {
		return nil, err
	}
	if err := approve(changes); err != nil {
		return nil, err
	}
	return changes, operator.SetOffsets(ctx, changes, request.Patience, waiting)
}

// operate reaches a broker and returns the view of an operator.
func operate(ctx context.Context, opts Options) (*forwarder.Operator, *kgo.Client, error) {
	opts.Logger = nil // A command tells what is wrong on its own.
	options, err := forwarderOptions(opts, nil)
	if err != nil {
		return nil, nil, &ConfigError{err}
	}
	client, err := reach(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	operator, err := forwarder.NewOperator(ctx, client, options)
	if err != nil {
		client.Close()
		return nil, nil, &ConfigError{err}
	}
	return operator, client, nil
}

func knownOrigin(cfg *config.Config, origin string) error {
	var all []string
	for _, t := range cfg.Topics {
		all = append(all, t.Origin)
	}
	if origin == "" || slices.Contains(all, origin) {
		return nil
	}
	return &ArgumentError{fmt.Errorf("topic %s is no origin of the configuration, which has %s", origin, enumerate(all))}
}

func knownSource(operator *forwarder.Operator, topic string) error {
	all := operator.Topics()
	if slices.Contains(all, topic) {
		return nil
	}
	return &ArgumentError{fmt.Errorf("topic %s is neither an inbox nor a tier of the configuration, which has %s", topic, enumerate(all))}
}

// enumerate names the first few.
func enumerate(names []string) string {
	const most = 8
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
