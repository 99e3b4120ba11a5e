package app

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/kafka"
)

const (
	// answerTimeout is how long a command waits for a broker. A process that
	// runs waits for ever.
	answerTimeout = 10 * time.Second

	// planTimeout bounds the questions of one plan when a broker has answered.
	planTimeout = 30 * time.Second

	retryInterval = time.Second
	talkInterval  = 10 * time.Second
)

// Plan compares the topics of the configuration with those of the cluster. It
// changes nothing. It blocks for seconds at most; the error is a *ConfigError, or
// says that no broker answers.
func Plan(ctx context.Context, opts Options) (*kafka.Plan, error) {
	opts = opts.withDefaults()
	client, err := reach(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return makePlan(ctx, client, opts)
}

// Apply makes a plan, carries it out, handing each act to report, and returns a
// second plan: what is left. The plan is nil only if no plan could be made; the
// error joins the acts that failed and the origins that are missing.
func Apply(ctx context.Context, opts Options, report func(kafka.Act)) (*kafka.Plan, error) {
	opts = opts.withDefaults()
	client, err := reach(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	plan, err := makePlan(ctx, client, opts)
	if err != nil {
		return nil, err
	}
	failed := plan.Apply(ctx, client, report)
	left, err := makePlan(ctx, client, opts)
	if err != nil {
		return plan, errors.Join(failed, fmt.Errorf("look at the result: %w", err))
	}
	return left, failed
}

// reach makes a client and waits for an answer.
func reach(ctx context.Context, opts Options) (*kgo.Client, error) {
	client, err := connect(opts)
	if err != nil {
		return nil, &ConfigError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := awaitBroker(ctx, client, func(error) {}); err != nil {
		client.Close()
		return nil, fmt.Errorf("no broker of %s answers: %w", strings.Join(opts.Config.Kafka.Brokers, ", "), err)
	}
	return client, nil
}

// awaitBroker asks until a broker answers or ctx ends. It hands every error to
// failed, and returns the last with the end of ctx.
func awaitBroker(ctx context.Context, client *kgo.Client, failed func(error)) error {
	var last error
	for {
		err := ping(ctx, client)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			// What was wrong says more than that the time is up.
			if last == nil {
				last = err
			}
			return last
		}
		last = err
		failed(err)
		if !sleep(ctx, retryInterval) {
			return last
		}
	}
}

// ping asks all brokers at once and returns nil as soon as one answers: one that
// hangs must not speak for the others.
func ping(ctx context.Context, client *kgo.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	brokers := append(client.DiscoveredBrokers(), client.SeedBrokers()...)
	answers := make(chan error, len(brokers))
	for _, broker := range brokers {
		go func() {
			request := kmsg.NewPtrMetadataRequest()
			request.Topics = []kmsg.MetadataRequestTopic{} // Not nil, which asks for all.
			_, err := broker.Request(ctx, request)
			answers <- err
		}()
	}
	var last error
	for range brokers {
		if last = <-answers; last == nil {
			return nil
		}
	}
	return last
}

func makePlan(ctx context.Context, client *kgo.Client, opts Options) (*kafka.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	plan, err := kafka.MakePlan(ctx, client, ladders(opts.Config)...)
	if err != nil {
		return nil, fmt.Errorf("look at the topics: %w", err)
	}
	completeRemedies(plan, opts.ConfigPath)
	return plan, nil
}

// completeRemedies makes the command to apply one that can be copied: the planner
// does not know the file.
func completeRemedies(plan *kafka.Plan, path string) {
	const command = "forwarder topics apply"
	for i := range plan.Topics {
		for j := range plan.Topics[i].Problems {
			p := &plan.Topics[i].Problems[j]
			p.Remedy = strings.ReplaceAll(p.Remedy, command, command+" -c "+shellWord(path))
		}
	}
}

func shellWord(s string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`).MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// RefusedError is a start that was refused, because the topics as they are would
// lose records.
type RefusedError struct {
	// Problems are the reasons; there is at least one.
	Problems []kafka.Problem
}

// Error is one line for each problem, with its remedy.
func (e *RefusedError) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	lines = append(lines, "not started, records would be lost:")
	for _, p := range e.Problems {
		lines = append(lines, fmt.Sprintf("%s: %s: %s Remedy: %s", p.Topic, p.Rule, p.Message, p.Remedy))
	}
	return strings.Join(lines, "\n")
}

// check waits for a broker and looks at the topics. It returns nil if nothing
// stands against the start, or if ctx ended.
func (a *App) check(ctx context.Context) error {
	var talked time.Time
	waiting := func(err error) {
		if ctx.Err() != nil {
			return
		}
		a.state.starting("waiting for a broker", err)
		if time.Since(talked) >= talkInterval {
			talked = time.Now()
			a.log.WarnContext(ctx, "no broker answers, waiting", "brokers", a.opts.Config.Kafka.Brokers, "err", err)
		}
	}
	a.state.starting("waiting for a broker", errors.New("not asked yet"))
	for {
		if err := awaitBroker(ctx, a.client, waiting); err != nil {
			return nil //nolint:nilerr // Only the end of ctx ends the wait.
		}
		a.state.starting("checking the topics", nil)
		plan, err := makePlan(ctx, a.client, a.opts)
		if err == nil {
			return a.judge(ctx, plan)
		}
		waiting(err)
		if !sleep(ctx, retryInterval) {
			return nil
		}
	}
}

// judge refuses what would lose records and warns of the rest.
func (a *App) judge(ctx context.Context, plan *kafka.Plan) error {
	refused := &RefusedError{}
	for _, t := range plan.Topics {
		for _, p := range t.Problems {
			if losesRecords(t.Role, p) {
				refused.Problems = append(refused.Problems, p)
				continue
			}
			a.log.WarnContext(ctx, "a topic is not as it should be", "topic", p.Topic, "rule", p.Rule, "detail", p.Message, "remedy", p.Remedy)
		}
	}
	if len(refused.Problems) > 0 {
		return refused
	}
	return nil
}

// losesRecords tells what stands against a start from what only wants a look. A
// missing origin or return topic loses nothing: its records wait in their tiers.
func losesRecords(role kafka.Role, p kafka.Problem) bool {
	switch p.Rule {
	case kafka.RuleCompacted, kafka.RuleRetentionDelay, kafka.RuleTwoRoles:
		return true
	case kafka.RuleTopicMissing:
		return role != kafka.RoleReturn
	default:
		return false
	}
}
