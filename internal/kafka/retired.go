package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

// lastRecords is how many records at the end of a retired partition are looked at
// for the latest due time. In a tier due times rise with the offsets, but for
// clocks and wishes.
const lastRecords = 20

// Retired is a topic that no ladder names any more and that the group has commits
// of a forwarder on: a forwarder drains it.
type Retired struct {
	Topic string `json:"topic"`
	// Left is how many offsets are at or above the commits; some of them may be
	// finished, or be no records.
	Left int64 `json:"left"`
	// Until is when the last of them is due, as far as the last records of the topic
	// say; zero if none waits for a time.
	Until time.Time `json:"until,omitzero"`
}

// retired finds the topics that the group drains and adds what is left in them.
func (in cluster) retired(ctx context.Context, plan *Plan, group string) {
	commits := in.retiredCommits(ctx, group)
	topics := sortedKeys(commits)
	if len(topics) == 0 {
		return
	}
	described, err := describeAllowed(ctx, in.client, topics)
	if err != nil {
		return
	}
	topics = slices.DeleteFunc(topics, func(topic string) bool { return described[topic].err != nil })
	if len(topics) == 0 {
		return
	}
	ends, err := kadm.NewClient(in.client).ListCommittedOffsets(ctx, topics...)
	if _, some := errors.AsType[*kadm.ShardErrors](err); err != nil && !some {
		return
	}
	left := make(map[string]int64)
	ends.Each(func(end kadm.ListedOffset) {
		if commit, ok := commits[end.Topic][end.Partition]; ok && end.Err == nil {
			left[end.Topic] += max(0, end.Offset-commit)
		}
	})
	until := in.latestDue(ctx, commits, topics)
	for _, topic := range topics {
		r := Retired{Topic: topic, Left: left[topic], Until: until[topic]}
		plan.Retired = append(plan.Retired, r)
		if r.Left == 0 {
			continue
		}
		when := "all of them are due"
		if r.Until.After(in.now()) {
			when = "the last of them is due at " + r.Until.UTC().Format(time.RFC3339)
		}
		plan.add(problem(issue.RetiredTopic, topic,
			"Keep the topic until forwarder topics plan shows that nothing is left in it; then kafka-topics.sh --bootstrap-server "+in.bootstrap+" --delete --topic "+topic+".",
			"topics.yaml no longer names the topic, and up to %d records are left in it; %s. The forwarder goes on reading it until it is empty.", r.Left, when))
		if described[topic].operations.denies(kmsg.ACLOperationRead) {
			plan.add(problem(issue.ACLMissing, topic, in.grant("topic", topic, kmsg.ACLOperationRead),
				"This principal may not read the topic, so that what is left in it stays there."))
		}
	}
}

// retiredCommits returns the commits of a forwarder in the group, by topic and
// partition, on topics that no ladder names.
func (in cluster) retiredCommits(ctx context.Context, group string) map[string]map[int32]int64 {
	fetched, err := kadm.NewClient(in.client).FetchOffsets(ctx, group)
	if err != nil {
		return nil
	}
	commits := make(map[string]map[int32]int64)
	fetched.Each(func(commit kadm.OffsetResponse) {
		if _, named := in.topics[commit.Topic]; named || commit.Err != nil || commit.At < 0 {
			return
		}
		if !HasCommitMark(commit.Metadata) {
			return
		}
		if commits[commit.Topic] == nil {
			commits[commit.Topic] = make(map[int32]int64)
		}
		commits[commit.Topic][commit.Partition] = commit.At
	})
	return commits
}

// latestDue returns the latest due time that the last records of each topic carry.
func (in cluster) latestDue(ctx context.Context, commits map[string]map[int32]int64, topics []string) map[string]time.Time {
	spans := lastSpans(ctx, in.client, func(string, int32) int64 { return lastRecords }, topics...)
	for topic, partitions := range spans {
		for partition, s := range partitions {
			commit, ok := commits[topic][partition]
			s.from = max(s.from, commit)
			if partitions[partition] = s; !ok || s.from >= s.to {
				delete(partitions, partition)
			}
		}
	}
	latest := make(map[string]time.Time)
	var e envelope.Envelope
	readSpans(ctx, in.client, spans, func(r *kgo.Record) {
		e.Parse(r.Headers)
		obeyed := e.AvailableAtState == envelope.Valid && e.AvailableAt.Sub(in.now()) <= tiers.MaxRetiredWait
		if obeyed && e.AvailableAt.After(latest[r.Topic]) {
			latest[r.Topic] = e.AvailableAt
		}
	})
	return latest
}
