package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/config"
)

const partitions = 3

// cluster is the Kafka of the demo: one inside this process, or the user's own.
type cluster struct {
	brokers  []string
	embedded *kfake.Cluster // nil: the user's own
	topic    config.Topic
	group    string // of the consumer
	file     string // topics.yaml

	forwarderGroup string
	replayerGroup  string
	dir            string // for the ledger
	connection     []kgo.Opt
	environ        []string // of the programs
	client         *kgo.Client
	admin          *kadm.Client
	made           []string // topics to remove at the end
}

// openCluster starts a broker, or connects to the one that is given, writes a
// topics.yaml in dir and creates the origin. The caller calls close.
func openCluster(ctx context.Context, brokers []string, prefix, dir string) (_ *cluster, err error) {
	c := &cluster{
		brokers:        brokers,
		group:          prefix + "orders-service",
		forwarderGroup: prefix + "forwarder",
		replayerGroup:  prefix + "dlt-replayer",
		file:           filepath.Join(dir, "topics.yaml"),
		dir:            dir,
	}
	if prefix == "" {
		c.forwarderGroup, c.replayerGroup = "redrive-forwarder", "redrive-dlt-replayer"
	}
	defer func() {
		if err != nil {
			c.shut()
		}
	}()
	if len(brokers) == 0 {
		c.embedded, err = kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return nil, fmt.Errorf("start the embedded broker: %w", err)
		}
		c.brokers = c.embedded.ListenAddrs()
	}
	c.environ = c.childEnviron(os.Environ())
	if err := os.WriteFile(c.file, []byte(c.yaml(prefix+"orders")), 0o600); err != nil {
		return nil, err
	}
	// The forwarder's own reading of the file tells the names of the topics, and
	// how to connect if REDRIVE_KAFKA_TLS_... and REDRIVE_KAFKA_SASL_... are set.
	cfg, err := config.Load(config.Source{Path: c.file, Environ: c.environ})
	if err != nil {
		return nil, err
	}
	c.topic = cfg.Topics[0]
	cfg.Kafka.ClientID = "redrive-quickstart"
	c.connection, err = app.KafkaOptions(app.Options{Config: cfg}).ClientOpts()
	if err != nil {
		return nil, err
	}
	// New topics are looked for at once: the client's own pace is 5 s.
	c.client, err = kgo.NewClient(append(slices.Clone(c.connection), kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		return nil, err
	}
	c.admin = kadm.NewClient(c.client)
	if err := c.client.Ping(ctx); err != nil {
		return nil, fmt.Errorf("no broker answers at %s: %w", strings.Join(c.brokers, ", "), err)
	}
	return c, c.createOrigin(ctx)
}

// yaml is the whole configuration of both programs.
func (c *cluster) yaml(origin string) string {
	delays := make([]string, 0, len(ladder()))
	for _, d := range ladder() {
		delays = append(delays, d.String())
	}
	quoted := make([]string, 0, len(c.brokers))
	for _, b := range c.brokers {
		quoted = append(quoted, fmt.Sprintf("%q", b))
	}
	return fmt.Sprintf(`kafka: {brokers: [%s]}
forwarder: {group: %s, admin: {address: "127.0.0.1:0"}}
replayer: {group: %s, admin: {address: "127.0.0.1:0"}, api: {address: "127.0.0.1:0"}}
ledger: {dataDir: %q}
topics:
  - origin: %s
    tiers: [%s]
`, strings.Join(quoted, ", "), c.forwarderGroup, c.replayerGroup, filepath.Join(c.dir, "data"), origin, strings.Join(delays, ", "))
}

// childEnviron leaves out settings that would change the story; how to connect to one's own Kafka stays.
func (c *cluster) childEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		connects := strings.HasPrefix(variable, "REDRIVE_KAFKA_") && !strings.HasPrefix(variable, "REDRIVE_KAFKA_BROKERS=")
		return strings.HasPrefix(variable, "REDRIVE_") && (c.embedded != nil || !connects)
	})
}

// topics are all the topics of the demo, the origin first.
func (c *cluster) topics() []string {
	return append([]string{c.topic.Origin, c.topic.Inbox()}, append(c.tiers(), c.topic.DeadLetters(), c.topic.ReplayTrigger())...)
}

func (c *cluster) tiers() []string {
	var names []string
	for _, tier := range c.topic.Tiers {
		names = append(names, tier.Topic)
	}
	return names
}

// createOrigin makes the topic of the orders: Redrive itself never does. A topic
// that was there before the demo is none of its business.
func (c *cluster) createOrigin(ctx context.Context) error {
	found, err := c.admin.ListTopics(ctx, c.topics()...)
	if err != nil {
		return fmt.Errorf("look for topics: %w", err)
	}
	for _, name := range c.topics() {
		if found.Has(name) {
			return fmt.Errorf("topic %s exists: name another --prefix", name)
		}
	}
	if _, err := c.admin.CreateTopic(ctx, partitions, -1, nil, c.topic.Origin); err != nil {
		return fmt.Errorf("create %s: %w", c.topic.Origin, err)
	}
	c.made = c.topics()
	return nil
}

// awaitConsumer returns when the consumer has its partitions.
func (c *cluster) awaitConsumer(ctx context.Context) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		groups, err := c.admin.DescribeGroups(ctx, c.group)
		if err == nil && groups[c.group].State == "Stable" {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("the consumer does not get its partitions: %w", ctx.Err())
		}
	}
}

// watch hands every record of the tiers and the dead letters to the story, until
// ctx ends.
func (c *cluster) watch(ctx context.Context, s *story) error {
	options := append(slices.Clone(c.connection),
		kgo.ConsumeTopics(append(c.tiers(), c.topic.DeadLetters())...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if r.Topic == c.topic.DeadLetters() {
				s.buried(r)
			} else {
				s.waiting(r)
			}
		})
	}
	return nil
}

// remove deletes the topics and groups of the demo from the user's Kafka.
func (c *cluster) remove(ctx context.Context) error {
	if c.embedded != nil || len(c.made) == 0 {
		return nil
	}
	var problems []error
	topics, err := c.admin.DeleteTopics(ctx, c.made...)
	problems = append(problems, err)
	for _, t := range topics {
		if t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			problems = append(problems, fmt.Errorf("topic %s: %w", t.Topic, t.Err))
		}
	}
	groups, err := c.admin.DeleteGroups(ctx, c.group, c.forwarderGroup, c.replayerGroup)
	problems = append(problems, err)
	for _, g := range groups {
		if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
			problems = append(problems, fmt.Errorf("group %s: %w", g.Group, g.Err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("remove what the demo made: %w", err)
	}
	return nil
}

// shut closes the connections, and the broker if it is the embedded one.
func (c *cluster) shut() {
	if c.client != nil {
		c.client.Close()
	}
	if c.embedded != nil {
		c.embedded.Close()
	}
}
