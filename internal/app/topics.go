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
	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	// answerTimeout is how long a command waits for a broker. A process that
	// runs waits for ever.
	answerTimeout = 10 * time.Second

	// planTimeout bounds the questions of one plan when a broker has answered.
	planTimeout = time.Minute

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
	return makePlan(ctx, client, preflight(opts.Config), opts.ConfigPath)
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
	plan, err := makePlan(ctx, client, preflight(opts.Config), opts.ConfigPath)
	if err != nil {
		return nil, err
	}
	failed := plan.Apply(ctx, client, report)
	left, err := makePlan(ctx, client, preflight(opts.Config), opts.ConfigPath)
	if err != nil {
		return plan, errors.Join(failed, fmt.Errorf("look at the result: %w", err))
	}
	return left, failed
}

// reach makes a client and waits for an answer.
func reach(ctx context.Context, opts Options) (*kgo.Client, error) {
	client, err := connect(opts) //nolint:contextcheck // It reads files and asks nobody.
	if err != nil {
		return nil, &ConfigError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := awaitBroker(ctx, client, func(error) {}); err != nil {
		client.Close()
		return nil, fmt.Errorf("no broker of %s answers: %s", strings.Join(opts.Config.Kafka.Brokers, ", "), kafka.Explain(err))
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
		if !wait.For(ctx, retryInterval) {
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

// makePlan compares the topics. Path is the file that names them.
func makePlan(ctx context.Context, client *kgo.Client, preflight kafka.Preflight, path string) (*kafka.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	plan, err := kafka.MakePlan(ctx, client, preflight)
	if err != nil {
		return nil, fmt.Errorf("look at the topics: %w", err)
	}
	completeRemedies(plan, path)
	return plan, nil
}

// completeRemedies makes the command to apply one that can be copied: the planner
// does not know the file.
func completeRemedies(plan *kafka.Plan, path string) {
	const command = "forwarder topics apply"
	plan.EachProblem(func(p *kafka.Problem) {
		p.Remedy = strings.ReplaceAll(p.Remedy, command, command+" -c "+shellWord(path))
	})
}

func shellWord(s string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`).MatchString(s) {
		return s
	}
	return strconv.Quote(s)
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
		lines = append(lines, describe(p))
	}
	return strings.Join(lines, "\n")
}

// describe is a problem on one line, with its remedy.
func describe(p kafka.Problem) string {
	text := fmt.Sprintf("%s: %s Remedy: %s", p.Code, p.Message, p.Remedy)
	if p.Topic != "" {
		text = p.Topic + ": " + text
	}
	return text
}

// errNotAsked stands in for the answer of a broker before there is one.
var errNotAsked = errors.New("not asked yet")

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
			a.log.WarnContext(ctx, "no broker answers, waiting", "brokers", a.opts.Config.Kafka.Brokers, "err", kafka.Explain(err))
		}
	}
	a.state.starting("waiting for a broker", errNotAsked)
	for {
		if err := awaitBroker(ctx, a.client, waiting); err != nil {
			return nil //nolint:nilerr // Only the end of ctx ends the wait.
		}
		a.state.starting("checking the topics", nil)
		plan, err := a.inspector.judge(ctx, a.opts.Config)
		var refused *RefusedError
		switch {
		case err == nil:
			a.inspector.adopt(ctx, a.opts.Config, plan)
			return nil
		case errors.As(err, &refused):
			return refused
		}
		waiting(err)
		if !wait.For(ctx, retryInterval) {
			return nil
		}
	}
}
