package forwarder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-redrive/redrive/internal/kafka"
)

// Kafka takes a commit from outside of a group only while the group has no
// member. What an operator decides for a partition of a forwarder that runs is
// therefore left as a commit of a companion group that never has a member: the
// forwarder that owns the partition looks there while it is blocked, takes the
// decision and voids it.
const (
	// decisionVoid is the metadata of a decision that was taken or withdrawn. It
	// is written over the decision, since to delete a commit takes a right of its
	// own.
	decisionVoid = kafka.CommitMark + " done"
	// decisionLasts is how long a decision may be taken by the clock of whoever
	// wrote it. One that a killed command left behind must not be found years
	// later by a partition that happens to be in the same state again. It is long
	// enough for clocks that differ.
	decisionLasts = time.Hour
)

// decision says where a blocked partition is to be read on.
type decision struct {
	at  int64
	was int64 // the group's commit when it was made, -1 for none: it holds for that state only
}

// fetchDecisions returns the decisions that stand for partitions of the topics.
// Without topics it returns all.
func fetchDecisions(ctx context.Context, admin *kadm.Client, group string, topics ...string) (map[string]map[int32]decision, error) {
	commits, err := fetchCommits(ctx, admin, kafka.DecisionGroup(group))
	if err == nil {
		err = commits.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("fetch the decisions for group %s: %w", group, err)
	}
	found := map[string]map[int32]decision{}
	now := time.Now()
	commits.Each(func(o kadm.OffsetResponse) {
		if len(topics) > 0 && !slices.Contains(topics, o.Topic) {
			return
		}
		was, until, ok := parseDecision(o.Metadata)
		if !ok || o.At < 0 || now.After(until) {
			return
		}
		if found[o.Topic] == nil {
			found[o.Topic] = map[int32]decision{}
		}
		found[o.Topic][o.Partition] = decision{at: o.At, was: was}
	})
	return found, nil
}

// fetchCommits returns the commits of a group. One that nobody has made yet has
// none; brokers differ in how they say that.
func fetchCommits(ctx context.Context, admin *kadm.Client, group string) (kadm.OffsetResponses, error) {
	commits, err := admin.FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	return commits, err
}

// writeDecision leaves a decision for whoever owns the partition. It replaces
// an earlier one.
func writeDecision(ctx context.Context, admin *kadm.Client, group, topic string, partition int32, d decision) error {
	text := fmt.Sprintf("%s was=%d until=%d", kafka.CommitMark, d.was, time.Now().Add(decisionLasts).Unix())
	if err := commitDecision(ctx, admin, group, topic, partition, d.at, text); err != nil {
		return fmt.Errorf("leave a decision for %s/%d: %w", topic, partition, err)
	}
	return nil
}

// voidDecision ends a decision: it was taken, or is withdrawn.
func voidDecision(ctx context.Context, admin *kadm.Client, group, topic string, partition int32) error {
	if err := commitDecision(ctx, admin, group, topic, partition, 0, decisionVoid); err != nil {
		return fmt.Errorf("void the decision for %s/%d: %w", topic, partition, err)
	}
	return nil
}

func commitDecision(ctx context.Context, admin *kadm.Client, group, topic string, partition int32, at int64, text string) error {
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: at, LeaderEpoch: -1, Metadata: text})
	return admin.CommitAllOffsets(ctx, kafka.DecisionGroup(group), offsets)
}

// parseDecision reads what writeDecision wrote beside the offset. Anything else
// is no decision.
func parseDecision(text string) (was int64, until time.Time, ok bool) {
	fields := strings.Split(text, " ")
	if len(fields) != 3 || fields[0] != kafka.CommitMark {
		return 0, time.Time{}, false
	}
	wasText, isWas := strings.CutPrefix(fields[1], "was=")
	untilText, isUntil := strings.CutPrefix(fields[2], "until=")
	was, err := strconv.ParseInt(wasText, 10, 64)
	if !isWas || !isUntil || err != nil || was < -1 {
		return 0, time.Time{}, false
	}
	seconds, err := strconv.ParseInt(untilText, 10, 64)
	if err != nil {
		return 0, time.Time{}, false
	}
	return was, time.Unix(seconds, 0), true
}
