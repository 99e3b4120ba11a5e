package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/issue"
)

const (
	// maxSkew is how far apart clocks may be without a word: NTP keeps them closer
	// than that by far, and what is read off a record is a bound and no measurement.
	maxSkew = time.Second
	// clockPartitions is of how many partitions each broker is asked.
	clockPartitions = 16
	// maxTimestamp asks for the record with the highest timestamp of a partition.
	maxTimestamp = -3
)

// stamp is a record that was stamped by a broker.
type stamp struct {
	topic     string
	partition int32
	offset    int64
	at        time.Time
	broker    int32
}

// clocks tells of a broker whose clock is ahead of ours. That much can be had
// without writing: a record that the broker stamped in our future. A broker whose
// clock is behind cannot be told from one that has had no records lately; a running
// forwarder, which writes, measures both.
func (in cluster) clocks(ctx context.Context, plan *Plan) {
	latest := in.latestStamps(ctx)
	now := in.now() // After the answers, so that the time they took counts for the brokers.
	latest = slices.DeleteFunc(latest, func(s stamp) bool { return s.at.Sub(now) <= maxSkew })
	if len(latest) == 0 {
		return
	}
	// A topic may hold records from before its brokers stamped them.
	var worst stamp
	for _, s := range in.stampedByBroker(ctx, latest) {
		if s.at.After(worst.at) {
			worst = s
		}
	}
	if worst.topic == "" {
		return
	}
	ahead := worst.at.Sub(now).Round(100 * time.Millisecond)
	plan.add(problem(issue.ClockSkew, worst.topic,
		"Have this machine and broker "+fmt.Sprint(worst.broker)+" keep their clocks by NTP (chronyc tracking says how far off each is).",
		"The clock of broker %d is %s or more ahead of the one here: what it stamped on %s/%d@%d lies in our future. Waits that are counted from its stamps end late by that much.", worst.broker, ahead, worst.topic, worst.partition, worst.offset))
}

// latestStamps returns the records with the highest timestamps of partitions whose
// brokers stamp them. Brokers before Kafka 3.0 do not tell.
func (in cluster) latestStamps(ctx context.Context) []stamp {
	leaders := make(map[string]map[int32]int32)
	asked := make(map[int32]int)
	request := kmsg.NewPtrListOffsetsRequest()
	for _, topic := range sortedKeys(in.topics) {
		d := in.topics[topic]
		if d.err != nil || in.configs[topic].values[timestampType] != logAppendTime {
			continue
		}
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		leaders[topic] = make(map[int32]int32)
		for _, partition := range d.partitions {
			if partition.Leader < 0 || asked[partition.Leader] == clockPartitions {
				continue
			}
			asked[partition.Leader]++
			leaders[topic][partition.Partition] = partition.Leader
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = partition.Partition, maxTimestamp
			t.Partitions = append(t.Partitions, p)
		}
		if len(t.Partitions) > 0 {
			request.Topics = append(request.Topics, t)
		}
	}
	if len(request.Topics) == 0 {
		return nil
	}
	response, err := request.RequestWith(ctx, in.client)
	if err != nil {
		return nil
	}
	var stamps []stamp
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.Offset >= 0 {
				stamps = append(stamps, stamp{t.Topic, p.Partition, p.Offset, time.UnixMilli(p.Timestamp), leaders[t.Topic][p.Partition]})
			}
		}
	}
	return stamps
}

// stampedByBroker reads the records and returns those that a broker stamped.
func (in cluster) stampedByBroker(ctx context.Context, stamps []stamp) []stamp {
	spans := make(map[string]map[int32]span)
	for _, s := range stamps {
		if spans[s.topic] == nil {
			spans[s.topic] = make(map[int32]span)
		}
		spans[s.topic][s.partition] = span{s.offset, s.offset + 1}
	}
	var confirmed []stamp
	readSpans(ctx, in.client, spans, func(r *kgo.Record) {
		const byBroker = 1
		if r.Attrs.TimestampType() != byBroker {
			return
		}
		for _, s := range stamps {
			if s.topic == r.Topic && s.partition == r.Partition {
				s.at = r.Timestamp
				confirmed = append(confirmed, s)
			}
		}
	})
	return confirmed
}
