package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/wait"
)

// bare is a loop that does the forwarder's work with nothing around it: no header is read, no bound is kept, an error
// ends it. It is the ceiling that the forwarder is measured against, and runs in a process of its own like it.
type bare struct {
	brokers  string
	group    string
	from, to string
	settings settings
}

// settings are what the ceiling is tried with; the fastest counts.
type settings struct {
	PartitionBytes int    // FetchMaxPartitionBytes
	FetchBytes     int    // FetchMaxBytes
	Buffered       int    // MaxBufferedRecords: how many are under way
	Compression    string // of what is written: none, snappy or lz4
	GC             int    // GOGC
}

func (s settings) args() []string {
	return []string{
		"-partition-bytes", strconv.Itoa(s.PartitionBytes),
		"-fetch-bytes", strconv.Itoa(s.FetchBytes),
		"-buffered", strconv.Itoa(s.Buffered),
		"-compression", s.Compression,
		"-gc", strconv.Itoa(s.GC),
	}
}

func (b *bare) flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.StringVar(&b.brokers, "brokers", "", "addresses, separated by commas")
	f.StringVar(&b.group, "group", "", "consumer group")
	f.StringVar(&b.from, "from", "", "topics to read, separated by commas")
	f.StringVar(&b.to, "to", "", "topic to write")
	f.IntVar(&b.settings.PartitionBytes, "partition-bytes", 0, "FetchMaxPartitionBytes")
	f.IntVar(&b.settings.FetchBytes, "fetch-bytes", 0, "FetchMaxBytes")
	f.IntVar(&b.settings.Buffered, "buffered", 0, "MaxBufferedRecords")
	f.StringVar(&b.settings.Compression, "compression", "", "none, snappy or lz4")
	f.IntVar(&b.settings.GC, "gc", 0, "GOGC")
	return f
}

func (b *bare) client() (*kgo.Client, error) {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression()}
	codec, ok := codecs[b.settings.Compression]
	if !ok {
		return nil, fmt.Errorf("unknown compression %q", b.settings.Compression)
	}
	debug.SetGCPercent(b.settings.GC)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(b.brokers, ",")...),
		kgo.ConsumerGroup(b.group),
		kgo.ConsumeTopics(strings.Split(b.from, ",")...),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.FetchMaxBytes(int32(b.settings.FetchBytes)),
		kgo.FetchMaxPartitionBytes(int32(b.settings.PartitionBytes)),
		kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(b.settings.Buffered),
	)
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	return client, nil
}

// drain moves what is there as fast as the client can, until ctx ends. Acknowledgements of one partition come in order
// and a record stays in its partition, so that the last record of a fetch stands for all before it.
func (b *bare) drain(ctx context.Context) error {
	client, err := b.client()
	if err != nil {
		return err
	}
	var failed failure
	work := context.WithoutCancel(ctx)
	for ctx.Err() == nil && failed.get() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetchError(fetches); err != nil {
			failed.note(nil, err)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for i, r := range p.Records {
				promise := failed.note
				if i == len(p.Records)-1 {
					promise = func(_ *kgo.Record, err error) {
						failed.note(nil, err)
						if err == nil {
							client.MarkCommitRecords(r)
						}
					}
				}
				client.Produce(work, b.copyOf(r), promise)
			}
		})
	}
	return b.finish(work, client, &failed)
}

// delay moves each record when the due time in its value has come, until ctx ends. The records of a partition are in
// due order, so that each partition needs only a sleep for its next one.
func (b *bare) delay(ctx context.Context) error {
	client, err := b.client()
	if err != nil {
		return err
	}
	var failed failure
	work := context.WithoutCancel(ctx)
	queues := map[int32]chan *kgo.Record{}
	forward := func(queue <-chan *kgo.Record) {
		for {
			select {
			case <-ctx.Done():
				return
			case r := <-queue:
				due, err := dueOf(r.Value)
				if err != nil {
					failed.note(nil, err)
					return
				}
				if left := time.Until(due); left > 0 && !wait.For(ctx, left) {
					return
				}
				client.Produce(work, b.copyOf(r), func(_ *kgo.Record, err error) {
					failed.note(nil, err)
					if err == nil {
						client.MarkCommitRecords(r)
					}
				})
			}
		}
	}
	for ctx.Err() == nil && failed.get() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetchError(fetches); err != nil {
			failed.note(nil, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			queue := queues[r.Partition]
			if queue == nil {
				queue = make(chan *kgo.Record, 1<<16)
				queues[r.Partition] = queue
				go forward(queue)
			}
			select {
			case queue <- r:
			case <-ctx.Done():
			}
		})
	}
	return b.finish(work, client, &failed)
}

func (b *bare) copyOf(r *kgo.Record) *kgo.Record {
	return &kgo.Record{Topic: b.to, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}
}

func fetchError(fetches kgo.Fetches) error {
	var first error
	fetches.EachError(func(topic string, partition int32, err error) {
		if first == nil && !errors.Is(err, context.Canceled) {
			first = fmt.Errorf("fetch %s/%d: %w", topic, partition, err)
		}
	})
	return first
}

func (b *bare) finish(ctx context.Context, client *kgo.Client, failed *failure) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := errors.Join(failed.get(), client.Flush(ctx), client.CommitMarkedOffsets(ctx))
	client.Close()
	return err
}
