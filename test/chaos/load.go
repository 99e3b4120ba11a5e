package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// clientOpts are common to all clients of the load. A dead broker must not hold them up for longer than it has to.
func clientOpts(brokers []string) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(100 * time.Millisecond)}
}

// load is the world around the forwarder: producers whose records fail at once, and a consumer of the origins that fails
// some of what comes back. It lives as long as the run, and its idempotent producer tries for ever.
type load struct {
	work     *workload
	rate     int
	producer *kgo.Client
	consumer *kgo.Client

	sent   atomic.Uint32 // Records 0 to sent-1 were given to the producer.
	acked  atomic.Uint32
	failed atomic.Uint32 // Deliveries that the consumer handed over.
	copies atomic.Int64  // Copies that the consumer has read.

	mu       sync.Mutex
	err      error            // The first produce error.
	position map[string]int64 // The consumer's next offset by topic/partition.
	handed   []uint8          // By record: the last failure that was handed over.
}

func newLoad(brokers []string, work *workload, rate int) (*load, error) {
	l := &load{work: work, rate: rate, position: map[string]int64{}}
	var err error
	l.producer, err = kgo.NewClient(append(clientOpts(brokers), kgo.MaxBufferedRecords(20_000), kgo.ProducerLinger(5*time.Millisecond))...)
	if err != nil {
		return nil, fmt.Errorf("make the producer: %w", err)
	}
	var origins []string
	for _, ladder := range work.ladders {
		origins = append(origins, ladder.name)
	}
	l.consumer, err = kgo.NewClient(append(clientOpts(brokers), kgo.ConsumeTopics(origins...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))...)
	if err != nil {
		l.producer.Close()
		return nil, fmt.Errorf("make the consumer: %w", err)
	}
	return l, nil
}

func (l *load) close() {
	l.consumer.Close()
	l.producer.Close()
}

// produce sends records at the rate until stop is closed, and returns when all are acknowledged.
func (l *load) produce(ctx context.Context, stop <-chan struct{}) error {
	const pace = 10 * time.Millisecond
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	last := time.Now()
	owed := 0.0
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stop:
			if err := l.producer.Flush(ctx); err != nil {
				return fmt.Errorf("flush the producer: %w", err)
			}
			return l.failure()
		case <-ticker.C:
		}
		now := time.Now()
		// After a stall the rate is the rate again: nothing is made up for.
		owed = min(owed+now.Sub(last).Seconds()*float64(l.rate), float64(l.rate)/4)
		last = now
		for ; owed >= 1; owed-- {
			id := l.sent.Load()
			l.send(ctx, l.work.record(id, now), &l.acked)
			l.sent.Store(id + 1)
		}
		if err := l.failure(); err != nil {
			return err
		}
	}
}

func (l *load) send(ctx context.Context, rec *kgo.Record, counter *atomic.Uint32) {
	l.producer.Produce(ctx, rec, func(rec *kgo.Record, err error) {
		if err == nil {
			counter.Add(1)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err == nil && !errors.Is(err, context.Canceled) {
			l.err = fmt.Errorf("produce to %s: %w", rec.Topic, err)
		}
	})
}

func (l *load) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// consume reads the origins until ctx ends, and hands over what fails. Only the first copy of a delivery is handed over,
// so that whatever is there twice later was made twice by the forwarder; some are handed over twice on purpose.
func (l *load) consume(ctx context.Context) error {
	for {
		fetches := l.consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // The run is over.
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("read %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
		now := time.Now()
		fetches.EachRecord(func(rec *kgo.Record) { l.deliver(ctx, rec, now) })
		l.mu.Lock()
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if n := len(p.Records); n > 0 {
				l.position[partitionName(p.Topic, p.Partition)] = p.Records[n-1].Offset + 1
			}
		})
		l.mu.Unlock()
	}
}

func (l *load) deliver(ctx context.Context, rec *kgo.Record, now time.Time) {
	l.copies.Add(1)
	id, ok := numberOf(rec.Headers)
	if !ok || id >= l.sent.Load() {
		return // The checker will tell.
	}
	for int(id) >= len(l.handed) {
		l.handed = append(l.handed, make([]uint8, 1<<16)...)
	}
	p := l.work.plan(id)
	n := attemptOf(rec.Headers) + 1
	if n > p.failures || int(l.handed[id]) >= n {
		return
	}
	l.handed[id] = uint8(n)
	times := 1
	if p.twice == n {
		times = 2
	}
	for range times {
		l.send(ctx, l.work.handOver(&p, rec, n, now), &l.failed)
	}
}

func attemptOf(headers []kgo.RecordHeader) int {
	for i := range headers {
		if headers[i].Key == "redrive-attempt" {
			n, _ := strconv.Atoi(string(headers[i].Value))
			return n
		}
	}
	return 0
}

// caughtUp reports whether the consumer has read up to the ends, and all that it handed over is acknowledged.
func (l *load) caughtUp(topic string, ends map[int32]int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for partition, end := range ends {
		if at := l.position[partitionName(topic, partition)]; at < end {
			return fmt.Errorf("the consumer is at %d of %d in %s/%d", at, end, topic, partition)
		}
	}
	if n := l.producer.BufferedProduceRecords(); n > 0 {
		return fmt.Errorf("%d hand-overs are not acknowledged", n)
	}
	return nil
}

func partitionName(topic string, partition int32) string {
	return topic + "/" + strconv.Itoa(int(partition))
}
