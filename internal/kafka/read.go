package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What reading for a plan may cost. The bounds of bytes are in memory; a batch that
// would grow beyond its bound when it is decompressed is not read.
const (
	readTime       = 5 * time.Second
	readIdle       = 2 * time.Second // Where the end of a log is compacted away it never comes.
	readBytes      = 32 << 20
	readBatchBytes = 16 << 20
	fetchBytes     = 4 << 20
	fetchPartition = 128 << 10
)

// span is a stretch of a partition: from is read and to is not.
type span struct{ from, to int64 }

// lastSpans returns the last offsets of each partition of the topics, as many as
// count says and the partition has. What the brokers do not tell is left out.
func lastSpans(ctx context.Context, client *kgo.Client, count func(topic string, partition int32) int64, topics ...string) map[string]map[int32]span {
	spans := make(map[string]map[int32]span)
	if len(topics) == 0 {
		return spans
	}
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return spans
	}
	ends, err := admin.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return spans
	}
	ends.Each(func(end kadm.ListedOffset) {
		start, ok := starts.Lookup(end.Topic, end.Partition)
		if !ok || start.Err != nil || end.Err != nil {
			return
		}
		from := max(start.Offset, end.Offset-count(end.Topic, end.Partition))
		if from >= end.Offset {
			return
		}
		if spans[end.Topic] == nil {
			spans[end.Topic] = make(map[int32]span)
		}
		spans[end.Topic][end.Partition] = span{from, end.Offset}
	})
	return spans
}

// readSpans hands the committed records of the spans to each, those of a partition
// in order. It reads as much as it can within its bounds and leaves out the rest,
// and what it may not read. It joins no group and commits nothing.
func readSpans(ctx context.Context, client *kgo.Client, spans map[string]map[int32]span, each func(*kgo.Record)) {
	from := make(map[string]map[int32]kgo.Offset, len(spans))
	left := make(map[string]map[int32]int64, len(spans)) // The ends not yet seen.
	open := 0
	for topic, partitions := range spans {
		from[topic], left[topic] = make(map[int32]kgo.Offset), make(map[int32]int64)
		for partition, s := range partitions {
			from[topic][partition], left[topic][partition] = kgo.NewOffset().At(s.from), s.to
			open++
		}
	}
	if open == 0 {
		return
	}
	reader, err := kgo.NewClient(append(client.Opts(),
		kgo.ConsumePartitions(from),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // The mark of a transaction may be the last thing before the end.
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchPartition),
		kgo.MaxDecompressBatchBytes(readBatchBytes),
		kgo.DisableFetchSessions(),
	)...)
	if err != nil {
		return // The options are those of a client that was made.
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	for bytes := 0; open > 0 && bytes < readBytes; {
		fetches, alive := poll(ctx, reader)
		if !alive {
			return
		}
		done := make(map[string][]int32)
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			end, wanted := left[p.Topic][p.Partition]
			if !wanted {
				return
			}
			finished := p.Err != nil
			for _, r := range p.Records {
				bytes += len(r.Key) + len(r.Value)
				if r.Offset < end && !r.Attrs.IsControl() {
					each(r)
				}
				finished = finished || r.Offset >= end-1
			}
			if finished {
				delete(left[p.Topic], p.Partition)
				done[p.Topic] = append(done[p.Topic], p.Partition)
				open--
			}
		})
		reader.PauseFetchPartitions(done)
	}
}

// poll waits for the next records and reports false if none come any more.
func poll(ctx context.Context, reader *kgo.Client) (kgo.Fetches, bool) {
	ctx, cancel := context.WithTimeout(ctx, readIdle)
	defer cancel()
	fetches := reader.PollFetches(ctx)
	return fetches, ctx.Err() == nil
}
