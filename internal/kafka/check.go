package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/issue"
)

// check compares one topic with what is wanted of it.
type check struct {
	cluster
	want    *want
	topic   topicDescription
	config  topicConfig
	origins map[string]originState

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
		c.permissions()
	}
	return c.result
}

func (c *check) problem(code issue.Code, remedy, format string, args ...any) {
	p := problem(code, c.want.topic, remedy, format, args...)
	p.Role = c.want.role()
	c.result.Problems = append(c.result.Problems, p)
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
	c.problem(issue.TwoRoles, "Give each use a topic of its own in topics.yaml.",
		"topics.yaml uses the topic as %s: records would run in a circle, or be held to the wrong rules.", strings.Join(roles, " and as "))
}

func (c *check) unreadable() {
	if c.unused() {
		return
	}
	c.result.Action = ActionUnknown
	if errors.Is(c.topic.err, kerr.TopicAuthorizationFailed) {
		c.hidden()
		return
	}
	c.problem(issue.TopicUnreadable, lookAtBrokers, "The brokers do not describe the topic (%s), so nothing about it could be checked.", Code(c.topic.err))
}

// unused tells a topic that the process for which the plan is made does nothing
// with, so that it needs no right there either. Such a topic is only created.
func (c *check) unused() bool { return c.want.role() == RoleTrigger && len(c.want.operations) == 0 }

// lookAtBrokers is the remedy where only the brokers' own logs say more.
const lookAtBrokers = "Look at the state of the brokers and try again."

func (c *check) originMissing() {
	c.result.Action = ActionMissing
	c.problem(issue.OriginMissing,
		fmt.Sprintf("Correct the name in topics.yaml, or have the owner of the topic create it (kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions N --replication-factor N).", c.bootstrap, c.want.topic),
		"The origin does not exist: its records have nowhere to return to, and its other topics cannot be created without its partition count. Redrive never creates an origin.")
}

func (c *check) missing() {
	code, effect := issue.TopicMissing, "records that should go there wait or are refused"
	switch c.want.role() {
	case RoleTarget:
		c.result.Action = ActionMissing
		c.problem(code, "Correct the name in topics.yaml, or have the owner of the topic create it.", "The topic does not exist: %s.", effect)
		return
	case RoleTrigger:
		code, effect = issue.TriggerMissing, "nobody can ask for a replay by a record"
	default:
	}
	if c.blocked() {
		c.result.Action = ActionBlocked
		c.problem(code, "Make the origin available first, then run "+applyCommand+".",
			"The topic does not exist, and cannot be created without knowing its origin (%s).", strings.Join(c.want.origins, ", "))
		return
	}
	c.result.Action = ActionCreate
	c.result.Partitions, c.result.Replication = c.want.partitions, c.want.replication
	c.result.Settings = c.want.settings()
	c.problem(code, applyCommand, "The topic does not exist: %s.", effect)
}

// blocked reports whether an origin of the topic is not known well enough to say
// what the topic must be like.
func (c *check) blocked() bool {
	return slices.ContainsFunc(c.want.origins, func(origin string) bool { return c.origins[origin].partitions == 0 })
}

// compare judges a topic that exists.
func (c *check) compare() {
	if c.want.role() == RoleTarget {
		return // Its owner's; nothing is carried over from it.
	}
	if c.config.err != nil && !c.unused() {
		remedy := lookAtBrokers
		if errors.Is(c.config.err, kerr.TopicAuthorizationFailed) {
			remedy = c.grant("topic", c.want.topic, kmsg.ACLOperationDescribeConfigs)
		}
		c.problem(issue.ConfigUnreadable, remedy, "The brokers do not tell the settings of the topic (%s): %s.", Code(c.config.err), c.unchecked())
	}
	if c.want.role() == RoleOrigin {
		c.stamps()
		c.durability()
		return
	}
	c.partitions()
	if c.config.err == nil {
		c.messageBytes()
		if c.want.role() != RoleReturn {
			c.storage()
		}
	}
	c.durability()
	switch {
	case len(c.result.Changes) > 0:
		c.result.Action = ActionChange
	case len(c.result.Problems) > 0:
		c.result.Action = ActionDrift
	case c.blocked():
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
	if have >= c.want.partitions || c.want.role() == RoleTrigger {
		return // Triggers need no partition of their own: the job they ask for keeps the order.
	}
	if c.want.role() == RoleReturn {
		c.problem(issue.FewerPartitions,
			fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --alter --topic %s --partitions %d", c.bootstrap, c.want.topic, c.want.partitions),
			"The topic has %d partitions and its origin %d: a record cannot return to the partition number it came from, and its key changes place.", have, c.want.partitions)
		return
	}
	c.raise(partitionCount, int64(have), int64(c.want.partitions))
	c.problem(issue.FewerPartitions, applyCommand,
		"The topic has %d partitions and its origin %d: records of different origin partitions share one here, so that a slow or refused one holds up its neighbours.", have, c.want.partitions)
}

// storage judges how long and how surely the topic keeps what waits in it.
func (c *check) storage() {
	policies := c.config.policies()
	if slices.Contains(policies, "compact") {
		c.problem(issue.Compacted, c.setting(cleanupPolicy, "delete"),
			"%s is %s: compaction removes every record but the last of a key while they wait, and a record without a key is refused.", cleanupPolicy, c.config.values[cleanupPolicy])
	}
	if slices.Contains(policies, "delete") {
		c.retention()
		if limit, ok := c.config.number(retentionBytes); ok && limit >= 0 {
			c.problem(issue.RetentionBytes, c.setting(retentionBytes, strconv.Itoa(unlimited)),
				"%s is %d: in a burst of failures the oldest records are deleted by size, however long they still have to wait.", retentionBytes, limit)
		}
	}
	if kind, ok := c.config.values[timestampType]; ok && kind != logAppendTime {
		c.problem(issue.TimestampType, c.setting(timestampType, logAppendTime),
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
		c.problem(issue.DLTRetentionShort, applyCommand,
			"The topic keeps dead letters for %s, which is less than a week: they are gone before somebody has looked at them.", keeps)
	case have <= c.want.wait.Milliseconds():
		c.problem(issue.RetentionBelowDelay, applyCommand,
			"The topic keeps records for %s while they wait here for up to %s: they are deleted before they are due.", keeps, formatMillis(c.want.wait.Milliseconds()))
	default:
		c.problem(issue.TierRetentionShort, applyCommand,
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
	c.problem(issue.MessageBytes, remedy,
		"%s is %d, and the largest record of the origin with Redrive's headers has %d bytes: such a record is refused here.", maxMessageBytes, have, c.want.messageBytes)
}

// stamps looks at whose clock the records of an origin carry.
func (c *check) stamps() {
	if c.config.values[timestampType] != logAppendTime {
		return
	}
	c.problem(issue.OriginLogAppendTime, c.setting(timestampType, "CreateTime"),
		"%s is %s: a record that returns gets the time of its return as well as a new offset, so that whoever reads its timestamp takes it for new. Its first timestamp is in the header redrive-original-timestamp only.", timestampType, logAppendTime)
}

// durability judges what an acknowledged record survives. Apply leaves all of it
// alone: more replicas take disk and network of brokers that only their operator
// knows, and a higher minimum stops writes where replicas are short.
func (c *check) durability() {
	replicas, acks, acksKnown := c.topic.replicas(), int64(0), false
	if c.config.err == nil {
		acks, acksKnown = c.config.number(minInsync)
	}
	switch {
	case acksKnown && acks < c.want.minInsync:
		c.problem(issue.MinISR, c.setting(minInsync, strconv.FormatInt(c.want.minInsync, 10)),
			"%s is %d and the origin's is %d: a record can be acknowledged here on fewer replicas than on its origin, and lost with them.", minInsync, acks, c.want.minInsync)
	case acksKnown && acks == 1 && replicas > 1:
		remedy := c.setting(minInsync, "2")
		if replicas == 2 {
			// With two replicas a minimum of two stops all writes when one is down.
			remedy = c.reassign(3) + " Then: " + remedy
		}
		c.problem(issue.MinISR, remedy,
			"%s is 1 and the topic has %d replicas: a record is acknowledged while a single broker holds it, and lost with that broker.", minInsync, replicas)
	}
	switch {
	case replicas < c.want.replication:
		c.problem(issue.Replication, c.reassign(c.want.replication),
			"Its partitions have %d replicas and those of the origin %d: fewer broken disks are enough to lose what waits here.", replicas, c.want.replication)
	case replicas == 1 && c.brokers > 1:
		// Where there is one broker nothing else is possible, and who runs it knows.
		c.problem(issue.Replication, c.reassign(int16(min(c.brokers, 3))),
			"Its partitions have one replica and the cluster has %d brokers: one broken disk is enough to lose what is in it.", c.brokers)
	}
	if replicas > 1 && c.config.values[uncleanElection] == "true" {
		c.problem(issue.UncleanElection, c.setting(uncleanElection, "false"),
			"%s is true: when the replicas in sync are down, one that lacks records becomes leader, and acknowledged records are lost.", uncleanElection)
	}
}

func (c *check) reassign(replicas int16) string {
	return fmt.Sprintf("Reassign the partitions of %s to %d replicas each with kafka-reassign-partitions.sh --bootstrap-server %s.", c.want.topic, replicas, c.bootstrap)
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
