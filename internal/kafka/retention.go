package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Retention is what the settings of a topic say about how long it keeps its records.
//
// Brokers remove whole segments. By age one goes when its largest timestamp is older than retention.ms, looked at every
// few minutes; the segment that is written to is closed and may go as well. So a record is never removed by age before its own
// timestamp plus retention.ms, and mostly later. By size the oldest segments go as soon as the partition is larger than
// retention.bytes without them; no clock says when that is. What of a topic lies in tiered storage is kept for as long: the
// settings that begin with local decide about copies only.
type Retention struct {
	// Age is how long after its timestamp no record is removed; negative: for ever.
	Age time.Duration
	// Bytes is the size of a partition above which its oldest records go, whatever their age; negative: any.
	Bytes int64
}

// longestAge is what a time.Duration can say, less room for what it is added to: more is for ever.
const longestAge = 200 * 365 * day

// RetentionOf reads the settings of a topic. It is not ok where they do not say.
func RetentionOf(settings map[string]string) (r Retention, ok bool) {
	c := topicConfig{values: settings}
	policies := c.policies()
	if len(policies) == 0 {
		return r, false
	}
	r = Retention{Age: unlimited, Bytes: unlimited}
	if !slices.Contains(policies, "delete") {
		return r, true // Compaction removes records by key only.
	}
	age, known := c.number(retentionMs)
	if !known {
		return r, false
	}
	if age >= 0 && age <= longestAge.Milliseconds() {
		r.Age = time.Duration(age) * time.Millisecond
	}
	if bytes, known := c.number(retentionBytes); known && bytes >= 0 {
		r.Bytes = bytes
	}
	return r, true
}

// Until is the moment before which a record of that timestamp is not removed by age. It is not ok where that never happens.
func (r Retention) Until(timestamp time.Time) (at time.Time, ok bool) {
	if r.Age < 0 {
		return time.Time{}, false
	}
	return timestamp.Add(r.Age), true
}

// Before is the timestamp before which records may be removed by age until then. It is not ok where that never happens.
func (r Retention) Before(until time.Time) (timestamp time.Time, ok bool) {
	if r.Age < 0 {
		return time.Time{}, false
	}
	return until.Add(-r.Age), true
}

// Kept is one topic and how long it keeps its records.
type Kept struct {
	Topic string
	ID    [16]byte
	Retention
	// Err is why it is not known, or nil.
	Err error
}

// DescribeRetention asks the brokers how long topics keep their records. What can not be had of one topic is an error of that
// topic.
func DescribeRetention(ctx context.Context, client *kgo.Client, topics []string) (map[string]Kept, error) {
	kept := make(map[string]Kept, len(topics))
	if len(topics) == 0 {
		return kept, nil
	}
	described, err := describeTopics(ctx, client, topics)
	if err != nil {
		return nil, err
	}
	configs, err := describeConfigs(ctx, client, topics)
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		d, c := described[topic], configs[topic]
		k := Kept{Topic: topic, ID: d.id}
		switch {
		case d.err != nil:
			k.Err = fmt.Errorf("describe %s: %w", topic, d.err)
		case c.err != nil:
			k.Err = fmt.Errorf("read the settings of %s: %w", topic, c.err)
		default:
			var known bool
			if k.Retention, known = RetentionOf(c.values); !known {
				k.Err = fmt.Errorf("the settings of %s do not say how long it keeps records", topic)
			}
		}
		kept[topic] = k
	}
	return kept, nil
}

// Waiting are records of one partition that wait although retention is about to remove them.
type Waiting struct {
	Topic     string
	Partition int32
	// From is the first of them, To is not one any more.
	From, To int64
}

// WaitingBefore finds, of each topic, the records that a group has not passed and whose timestamps are older than the moment
// given for the topic. Nothing is read: the brokers know the first offset that is not older.
func WaitingBefore(ctx context.Context, client *kgo.Client, group string, before map[string]time.Time) ([]Waiting, error) {
	if len(before) == 0 {
		return nil, nil
	}
	admin := kadm.NewClient(client)
	commits, err := admin.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // A group that was never there has passed nothing.
		return nil, fmt.Errorf("read the offsets of group %s: %w", group, err)
	}
	topics := sortedKeys(before)
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list where the topics begin: %w", err)
	}
	var found []Waiting
	for _, topic := range topics {
		// The answer is the end of the partition where all of its records are older.
		newer, err := admin.ListOffsetsAfterMilli(ctx, max(0, min(before[topic].UnixMilli(), math.MaxInt64/2)), topic)
		if err != nil {
			return nil, fmt.Errorf("list the offsets of %s: %w", topic, err)
		}
		for _, o := range newer[topic] {
			start, ok := starts.Lookup(topic, o.Partition)
			if o.Err != nil || !ok || start.Err != nil {
				continue // A leader moves; it is looked at again.
			}
			from := start.Offset
			if commit, ok := commits.Lookup(topic, o.Partition); ok && commit.Err == nil {
				from = max(from, commit.At)
			}
			if from < o.Offset {
				found = append(found, Waiting{topic, o.Partition, from, o.Offset})
			}
		}
	}
	slices.SortFunc(found, func(a, b Waiting) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return found, nil
}
