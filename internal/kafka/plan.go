package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Action says what applying a plan does about a topic.
type Action string

// The actions.
const (
	// ActionNone leaves a topic alone that is as it must be.
	ActionNone Action = "ok"
	// ActionCreate creates the topic.
	ActionCreate Action = "create"
	// ActionChange raises what the plan lists.
	ActionChange Action = "change"
	// ActionDrift leaves a topic alone that is not as it should be: what is wrong
	// needs a decision of its owner, and the problem names the command.
	ActionDrift Action = "drift"
	// ActionMissing is an origin that does not exist. Nobody but its owner creates
	// it.
	ActionMissing Action = "missing"
	// ActionBlocked is a topic that cannot be created, or not be judged in full,
	// because its origin is missing or unreadable.
	ActionBlocked Action = "blocked"
	// ActionUnknown is a topic about which the brokers would not speak.
	ActionUnknown Action = "unknown"
)

// Severity tells what loses or misplaces records from what only may.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Rule names a check, for scripts and for the documentation.
type Rule string

// The rules.
const (
	RuleOriginMissing    Rule = "origin-missing"
	RuleTopicMissing     Rule = "topic-missing"
	RuleTopicUnreadable  Rule = "topic-unreadable"
	RuleConfigUnreadable Rule = "config-unreadable"
	RuleTwoRoles         Rule = "two-roles"
	RuleFewerPartitions  Rule = "fewer-partitions"
	RuleCompacted        Rule = "compacted"
	RuleRetentionDelay   Rule = "retention-below-delay"
	RuleRetentionShort   Rule = "retention-short"
	RuleRetentionBytes   Rule = "retention-bytes"
	RuleTimestampType    Rule = "timestamp-type"
	RuleMessageBytes     Rule = "message-bytes"
	RuleMinInsync        Rule = "min-insync"
	RuleReplication      Rule = "replication"
)

// Plan is the difference between the topics as they are and as the ladders need
// them. It is a value: it renders as text with [Plan.WriteText] and as JSON with
// encoding/json.
type Plan struct {
	Topics []TopicPlan `json:"topics"`
}

// TopicPlan is the part of a plan that concerns one topic.
type TopicPlan struct {
	Topic string `json:"topic"`
	Role  Role   `json:"role"`
	// Tier is the name of the tier, for a tier topic.
	Tier string `json:"tier,omitempty"`
	// Origins are the origins the topic serves: one, unless ladders share it.
	Origins []string `json:"origins"`
	Action  Action   `json:"action"`
	// Partitions and Replication are those of the topic, or those it will be
	// created with; 0 if not known.
	Partitions  int32 `json:"partitions"`
	Replication int16 `json:"replication"`
	// Settings are those a topic is created with.
	Settings map[string]string `json:"settings,omitempty"`
	// Changes are what apply raises on a topic that exists.
	Changes []Change `json:"changes,omitempty"`
	// Problems are what is wrong with the topic now.
	Problems []Problem `json:"problems,omitempty"`
}

// Change is one value that is raised: a setting by its Kafka name, or "partitions".
type Change struct {
	Setting string `json:"setting"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// Problem is one thing wrong with one topic.
type Problem struct {
	Rule     Rule     `json:"rule"`
	Severity Severity `json:"severity"`
	Topic    string   `json:"topic"`
	// Message is a sentence that says what is the case and what goes wrong by it.
	Message string `json:"message"`
	// Remedy is a command, or a sentence where no command can do it.
	Remedy string `json:"remedy"`
	// FixedByApply reports whether applying the plan ends the problem.
	FixedByApply bool `json:"fixedByApply"`
}

// applyCommand is the remedy of everything that apply takes care of.
const applyCommand = "forwarder topics apply"

// MakePlan reads the topics of all ladders and compares. It changes nothing. The
// error is that of a request that no broker answered; whatever is wrong with a
// topic, being unreadable included, is a problem in the plan.
func MakePlan(ctx context.Context, client *kgo.Client, ladders ...Ladder) (*Plan, error) {
	names := make([]string, 0, len(ladders))
	for _, w := range wants(ladders, nil) {
		names = append(names, w.topic)
	}
	plan := &Plan{Topics: []TopicPlan{}}
	if len(names) == 0 {
		return plan, nil
	}
	topics, err := describeTopics(ctx, client, names)
	if err != nil {
		return nil, err
	}
	readable := slices.DeleteFunc(slices.Clone(names), func(t string) bool { return topics[t].err != nil })
	configs, err := describeConfigs(ctx, client, readable)
	if err != nil {
		return nil, err
	}

	origins := make(map[string]originState, len(ladders))
	for _, l := range ladders {
		origins[l.Origin] = newOriginState(topics[l.Origin], configs[l.Origin])
	}
	seeds, _ := client.OptValue(kgo.SeedBrokers).([]string)
	for _, w := range wants(ladders, origins) {
		c := check{
			want:      w,
			topic:     topics[w.topic],
			config:    configs[w.topic],
			origins:   origins,
			bootstrap: strings.Join(seeds, ","),
		}
		plan.Topics = append(plan.Topics, c.plan())
	}
	return plan, nil
}

// Changed reports whether applying the plan would change anything.
func (p *Plan) Changed() bool {
	return p.count(ActionCreate)+p.count(ActionChange) > 0
}

// Problems returns all problems, errors before warnings and otherwise in the order
// of the topics.
func (p *Plan) Problems() []Problem {
	var all []Problem
	for _, severity := range []Severity{SeverityError, SeverityWarning} {
		for _, t := range p.Topics {
			for _, problem := range t.Problems {
				if problem.Severity == severity {
					all = append(all, problem)
				}
			}
		}
	}
	return all
}

func (p *Plan) count(action Action) int {
	n := 0
	for _, t := range p.Topics {
		if t.Action == action {
			n++
		}
	}
	return n
}

// check compares one topic with what is wanted of it.
type check struct {
	want      *want
	topic     topicDescription
	config    topicConfig
	origins   map[string]originState
	bootstrap string

	result TopicPlan
}

func (c *check) plan() TopicPlan {
	c.result = TopicPlan{
		Topic:       c.want.topic,
		Role:        c.want.role(),
		Tier:        c.want.tier,
		Origins:     c.want.origins,
		Action:      ActionNone,
		Partitions:  c.topic.count(),
		Replication: c.topic.replicas(),
	}
	missing := errors.Is(c.topic.err, kerr.UnknownTopicOrPartition)
	switch {
	case len(c.want.roles) > 1:
		c.twoRoles()
	case c.topic.err != nil && !missing:
		c.unreadable()
	case c.want.role() == RoleOrigin && missing:
		c.originMissing()
	case missing:
		c.missing()
	default:
		c.compare()
	}
	return c.result
}

func (c *check) problem(rule Rule, severity Severity, remedy, format string, args ...any) {
	c.result.Problems = append(c.result.Problems, Problem{
		Rule:         rule,
		Severity:     severity,
		Topic:        c.want.topic,
		Message:      fmt.Sprintf(format, args...),
		Remedy:       remedy,
		FixedByApply: remedy == applyCommand,
	})
}

// raise notes a change that apply makes.
func (c *check) raise(setting string, from, to int64) {
	c.result.Changes = append(c.result.Changes, Change{
		Setting: setting,
		From:    strconv.FormatInt(from, 10),
		To:      strconv.FormatInt(to, 10),
	})
}

func (c *check) twoRoles() {
	c.result.Action = ActionDrift
	roles := make([]string, len(c.want.roles))
	for i, role := range c.want.roles {
		roles[i] = string(role)
	}
	c.problem(RuleTwoRoles, SeverityError, "Give each use a topic of its own in topics.yaml.",
		"topics.yaml uses the topic as %s: records would run in a circle, or be held to the wrong rules.", strings.Join(roles, " and as "))
}

func (c *check) unreadable() {
	c.result.Action = ActionUnknown
	remedy := "Look at the state of the brokers and try again."
	if errors.Is(c.topic.err, kerr.TopicAuthorizationFailed) {
		remedy = fmt.Sprintf("Grant DESCRIBE and DESCRIBE_CONFIGS on the topic to this principal (kafka-acls.sh --bootstrap-server %s --add --allow-principal User:NAME --operation Describe --operation DescribeConfigs --topic %s).", c.bootstrap, c.want.topic)
	}
	c.problem(RuleTopicUnreadable, SeverityError, remedy, "The brokers do not describe the topic (%s), so nothing about it could be checked.", Code(c.topic.err))
}

func (c *check) originMissing() {
	c.result.Action = ActionMissing
	c.problem(RuleOriginMissing, SeverityError,
		fmt.Sprintf("Correct the name in topics.yaml, or have the owner of the topic create it (kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions N --replication-factor N).", c.bootstrap, c.want.topic),
		"The origin does not exist: its records have nowhere to return to, and its other topics cannot be created without its partition count. Redrive never creates an origin.")
}

func (c *check) missing() {
	if c.blocked() {
		c.result.Action = ActionBlocked
		c.problem(RuleTopicMissing, SeverityError, "Make the origin available first, then run "+applyCommand+".",
			"The topic does not exist, and cannot be created without knowing its origin (%s).", strings.Join(c.want.origins, ", "))
		return
	}
	c.result.Action = ActionCreate
	c.result.Partitions, c.result.Replication = c.want.partitions, c.want.replication
	c.result.Settings = c.want.settings()
	c.problem(RuleTopicMissing, SeverityError, applyCommand, "The topic does not exist: records that should go there wait or are refused.")
}

// blocked reports whether an origin of the topic is not known well enough to say
// what the topic must be like.
func (c *check) blocked() bool {
	return slices.ContainsFunc(c.want.origins, func(origin string) bool { return c.origins[origin].partitions == 0 })
}

// compare judges a topic that exists.
func (c *check) compare() {
	if c.config.err != nil {
		c.problem(RuleConfigUnreadable, SeverityWarning,
			fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal User:NAME --operation DescribeConfigs --topic %s", c.bootstrap, c.want.topic),
			"The brokers do not tell the settings of the topic (%s): %s.", Code(c.config.err), c.unchecked())
	}
	if c.want.role() != RoleOrigin {
		c.partitions()
		if c.config.err == nil {
			c.messageBytes()
			if c.want.role() != RoleReturn {
				c.storage()
			}
		}
		c.durability()
	}
	switch {
	case len(c.result.Changes) > 0:
		c.result.Action = ActionChange
	case len(c.result.Problems) > 0:
		c.result.Action = ActionDrift
	case c.want.role() != RoleOrigin && c.blocked():
		c.result.Action = ActionBlocked // Nothing wrong so far, but not all could be looked at.
	}
}

func (c *check) unchecked() string {
	if c.want.role() == RoleOrigin {
		return "its size limit and minimum of in-sync replicas cannot be carried over to the other topics"
	}
	return "compaction and retention, by which it may lose records, could not be checked"
}

func (c *check) partitions() {
	have := c.topic.count()
	if have >= c.want.partitions {
		return
	}
	if c.want.role() == RoleReturn {
		c.problem(RuleFewerPartitions, SeverityError,
			fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --alter --topic %s --partitions %d", c.bootstrap, c.want.topic, c.want.partitions),
			"The topic has %d partitions and its origin %d: a record cannot return to the partition number it came from, and its key changes place.", have, c.want.partitions)
		return
	}
	c.raise(partitionCount, int64(have), int64(c.want.partitions))
	c.problem(RuleFewerPartitions, SeverityError, applyCommand,
		"The topic has %d partitions and its origin %d: records of different origin partitions share one here, so that a slow or refused one holds up its neighbours.", have, c.want.partitions)
}

// storage judges how long and how surely the topic keeps what waits in it.
func (c *check) storage() {
	policies := c.config.policies()
	if slices.Contains(policies, "compact") {
		c.problem(RuleCompacted, SeverityError, c.setting(cleanupPolicy, "delete"),
			"%s is %s: compaction removes every record but the last of a key while they wait, and a record without a key is refused.", cleanupPolicy, c.config.values[cleanupPolicy])
	}
	if slices.Contains(policies, "delete") {
		c.retention()
		if limit, ok := c.config.number(retentionBytes); ok && limit >= 0 {
			c.problem(RuleRetentionBytes, SeverityWarning, c.setting(retentionBytes, strconv.Itoa(unlimited)),
				"%s is %d: in a burst of failures the oldest records are deleted by size, however long they still have to wait.", retentionBytes, limit)
		}
	}
	if kind, ok := c.config.values[timestampType]; ok && kind != logAppendTime {
		c.problem(RuleTimestampType, SeverityWarning, c.setting(timestampType, logAppendTime),
			"%s is %s: a client with an old timestamp has its record deleted early, one with a future timestamp has it refused.", timestampType, kind)
	}
}

func (c *check) retention() {
	have, ok := c.config.number(retentionMs)
	if !ok || have < 0 || have >= c.want.leastRetention.Milliseconds() {
		return
	}
	c.raise(retentionMs, have, c.want.retention)
	keeps := formatMillis(have)
	switch {
	case c.want.role() == RoleDeadLetters:
		c.problem(RuleRetentionShort, SeverityWarning, applyCommand,
			"The topic keeps dead letters for %s, which is less than a week: they are gone before somebody has looked at them.", keeps)
	case have <= c.want.wait.Milliseconds():
		c.problem(RuleRetentionDelay, SeverityError, applyCommand,
			"The topic keeps records for %s while they wait here for up to %s: they are deleted before they are due.", keeps, formatMillis(c.want.wait.Milliseconds()))
	default:
		c.problem(RuleRetentionShort, SeverityWarning, applyCommand,
			"The topic keeps records for %s, less than a day more than the %s they wait: they are lost if the forwarder stands still for longer.", keeps, formatMillis(c.want.wait.Milliseconds()))
	}
}

func (c *check) messageBytes() {
	have, ok := c.config.number(maxMessageBytes)
	if !ok || have >= c.want.messageBytes {
		return
	}
	remedy := applyCommand
	if c.want.role() == RoleReturn {
		remedy = c.setting(maxMessageBytes, strconv.FormatInt(c.want.messageBytes, 10))
	} else {
		c.raise(maxMessageBytes, have, c.want.messageBytes)
	}
	c.problem(RuleMessageBytes, SeverityWarning, remedy,
		"%s is %d, and the largest record of the origin with Redrive's headers has %d bytes: such a record is refused here.", maxMessageBytes, have, c.want.messageBytes)
}

// durability judges what an acknowledged record survives. Apply leaves both alone:
// more replicas take disk and network of brokers that only their operator knows,
// and a higher minimum stops writes where replicas are short.
func (c *check) durability() {
	if have, ok := c.config.number(minInsync); ok && have < c.want.minInsync {
		c.problem(RuleMinInsync, SeverityWarning, c.setting(minInsync, strconv.FormatInt(c.want.minInsync, 10)),
			"%s is %d and the origin's is %d: a record can be acknowledged here on fewer replicas than on its origin, and lost with them.", minInsync, have, c.want.minInsync)
	}
	if have := c.topic.replicas(); have < c.want.replication {
		c.problem(RuleReplication, SeverityWarning,
			fmt.Sprintf("Reassign the partitions of %s to %d replicas each with kafka-reassign-partitions.sh --bootstrap-server %s.", c.want.topic, c.want.replication, c.bootstrap),
			"Its partitions have %d replicas and those of the origin %d: fewer broken disks are enough to lose what waits here.", have, c.want.replication)
	}
}

// setting returns the command that changes one setting of the topic.
func (c *check) setting(name, value string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config %s=%s", c.bootstrap, c.want.topic, name, value)
}

// formatMillis renders a value of retention.ms for people: 7d, 1d12h, 10m.
func formatMillis(ms int64) string {
	if ms < 0 {
		return "ever"
	}
	if ms == 0 {
		return "0s"
	}
	var b strings.Builder
	for _, unit := range []struct {
		size int64
		name string
	}{{day.Milliseconds(), "d"}, {time.Hour.Milliseconds(), "h"}, {time.Minute.Milliseconds(), "m"}, {1000, "s"}, {1, "ms"}} {
		if n := ms / unit.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			ms -= n * unit.size
		}
	}
	return b.String()
}
