package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/issue"
)

const (
	// visibleTimeout bounds the wait for created topics: leaders are elected in
	// well under a second on a healthy cluster.
	visibleTimeout  = 30 * time.Second
	visibleInterval = 100 * time.Millisecond
	brokerTimeout   = 2 * time.Second
)

// Act is one thing that apply did, or tried to do.
type Act struct {
	Topic string
	// What it was: "create", "partitions 4 -> 8", or the same with a setting.
	What string
	// Err is why it was not done; nil if it was.
	Err error
}

// Apply carries out the plan: it creates topics and raises values, and does nothing
// else. It never deletes a topic, lowers a value or touches an origin. Each act is
// handed to report, in order and in this goroutine; a failed one does not stop the
// next. Apply blocks until all live brokers show what was done, with a leader for
// each partition, at most 30 seconds.
//
// The error joins the failed acts and the origins that are missing; what could be
// done has been done nevertheless. Applying the same plan twice, or a plan made
// after a successful apply, changes nothing.
func (p *Plan) Apply(ctx context.Context, client *kgo.Client, report func(Act)) error {
	admin := kadm.NewClient(client)
	var problems []error
	expected := make(map[string]*awaited)
	await := func(topic string) *awaited {
		if expected[topic] == nil {
			expected[topic] = &awaited{partitions: 1, settings: map[string]string{}}
		}
		return expected[topic]
	}
	act := func(topic, what string, err error) bool {
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", topic, what, err)
			problems = append(problems, err)
		}
		report(Act{Topic: topic, What: what, Err: err})
		return err == nil
	}
	for _, t := range p.Topics {
		switch {
		case t.Action == ActionMissing || t.Action == ActionUnknown || t.has(issue.TwoRoles):
			problems = append(problems, fmt.Errorf("%s: left alone: %s", t.Topic, t.Problems[0].Message))
		case t.Role == RoleOrigin:
			// Whatever a plan says, an origin is not ours.
		case t.Action == ActionCreate:
			created, err := createTopic(ctx, admin, t)
			if created || err != nil {
				act(t.Topic, "create", err)
			}
			if err != nil {
				break
			}
			visible := await(t.Topic) // Of somebody else's, any count will do.
			if created {
				visible.partitions = t.Partitions
			}
		case t.Role == RoleReturn:
			// Created if missing, otherwise its consumers'.
		case t.Action == ActionChange:
			for _, change := range t.Changes {
				what := fmt.Sprintf("%s %s -> %s", change.Setting, change.From, change.To)
				if change.Setting != partitionCount {
					if act(t.Topic, what, setConfig(ctx, admin, t.Topic, change)) {
						await(t.Topic).settings[change.Setting] = change.To
					}
					continue
				}
				count, err := growTopic(ctx, admin, t.Topic, change)
				if act(t.Topic, what, err) {
					await(t.Topic).partitions = count
				}
			}
		}
	}
	if err := awaitTopics(ctx, client, expected); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func (t TopicPlan) has(code issue.Code) bool {
	return slices.ContainsFunc(t.Problems, func(p Problem) bool { return p.Code == code })
}

// createTopic reports false without an error if somebody else was faster. Whether
// their topic is fit is for the next plan to say.
func createTopic(ctx context.Context, admin *kadm.Client, t TopicPlan) (created bool, err error) {
	settings := make(map[string]*string, len(t.Settings))
	for name, value := range t.Settings {
		settings[name] = &value
	}
	response, err := admin.CreateTopic(ctx, t.Partitions, t.Replication, settings, t.Topic)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return false, nil
	}
	return true, explained(err, response.ErrMessage)
}

func growTopic(ctx context.Context, admin *kadm.Client, topic string, change Change) (int32, error) {
	count, err := strconv.ParseInt(change.To, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("partition count: %w", err)
	}
	responses, err := admin.UpdatePartitions(ctx, int(count), topic)
	if err != nil {
		return 0, err
	}
	response, err := responses.On(topic, nil)
	if err != nil {
		return 0, err
	}
	return int32(count), explained(response.Err, response.ErrMessage)
}

func setConfig(ctx context.Context, admin *kadm.Client, topic string, change Change) error {
	responses, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: change.Setting, Value: &change.To}}, topic)
	if err != nil {
		return err
	}
	response, err := responses.On(topic, nil)
	if err != nil {
		return err
	}
	return explained(response.Err, response.ErrMessage)
}

// explained adds what the broker said beyond the code.
func explained(err error, message string) error {
	if err == nil || message == "" {
		return err
	}
	return fmt.Errorf("%w (%s)", err, message)
}

// awaited is what the brokers are to show of a topic.
type awaited struct {
	partitions int32 // at least
	settings   map[string]string
}

// shown reports whether the brokers show it. Settings that they do not tell to this
// principal are taken for shown.
func (a *awaited) shown(topic topicDescription, config topicConfig) bool {
	if topic.err != nil || topic.count() < a.partitions || !topic.led() {
		return false
	}
	for name, value := range a.settings {
		if config.err == nil && config.values[name] != value {
			return false
		}
	}
	return true
}

// awaitTopics blocks until all live brokers show what is expected of each topic.
// Every broker is asked, since a client may be connected to any of them and each
// learns of a change in its own time; one that does not answer is not live.
func awaitTopics(ctx context.Context, client *kgo.Client, expected map[string]*awaited) error {
	if len(expected) == 0 {
		return nil
	}
	topics := sortedKeys(expected)
	visible := func(ctx context.Context, broker *kgo.Broker) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
		defer cancel()
		described, err := describeTopics(ctx, broker, topics)
		if err != nil {
			return false, err
		}
		configs, err := describeConfigs(ctx, broker, topics)
		if err != nil {
			return false, err
		}
		for topic, a := range expected {
			if !a.shown(described[topic], configs[topic]) {
				return false, nil
			}
		}
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	for {
		answered, all := 0, true
		for _, broker := range client.DiscoveredBrokers() {
			ok, err := visible(ctx, broker)
			if err != nil {
				continue
			}
			answered++
			all = all && ok
		}
		if answered > 0 && all {
			return nil
		}
		timer := time.NewTimer(visibleInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for the created topics to have leaders on all brokers: %w", ctx.Err())
		case <-timer.C:
		}
	}
}
