package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// partitions is the partition count of every topic.
const partitions = 8

// dueBytes is the length of the due time, Unix nanoseconds, that a value begins with when its lateness is measured: the
// header that says it does not come back to the origin.
const dueBytes = 8

// loader makes the records of a tier topic as the forwarder writes them, and writes them.
type loader struct {
	client *kgo.Client
	origin string
	tier   string
	size   int
	random *rand.ChaCha8
	env    envelope.Envelope
	made   int64
	spoil  func(*kgo.Record) // changes each record before it is written; nil: none is changed
}

func newLoader(brokers []string, ladder ladder, size int) (*loader, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(0),
	}
	if ladder.batch > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(ladder.batch))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("make the client that loads: %w", err)
	}
	return &loader{client: client, origin: ladder.origin, tier: ladder.tier, size: size, random: newRandom()}, nil
}

// newRandom yields bytes that do not compress, the same ones in every run.
func newRandom() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{}) }

func (l *loader) close() { l.client.Close() }

// record makes the next record, due at the given time: it failed once on the origin a moment ago.
func (l *loader) record(due time.Time) *kgo.Record {
	due = due.Truncate(time.Millisecond) // As the header has it.
	partition, offset := int32(l.made%partitions), l.made/partitions
	l.made++
	value := make([]byte, l.size)
	_, _ = l.random.Read(value)
	if l.size >= dueBytes {
		binary.BigEndian.PutUint64(value, uint64(due.UnixNano()))
	}
	e := &l.env
	e.Parse(nil)
	e.SetOriginal(l.origin, partition, offset, due.Add(-time.Minute))
	e.SetOriginalPartitions(partitions)
	e.SetAttempt(1)
	e.SetDeliveries(1)
	e.SetAvailableAt(due)
	e.EnsureMessageID(l.origin, partition, offset)
	r := &kgo.Record{
		Topic:     l.tier,
		Partition: partition,
		Key:       fmt.Appendf(nil, "key-%08d", l.made),
		Value:     value,
		Headers:   e.Append(make([]kgo.RecordHeader, 0, 9), nil, envelope.Hop),
	}
	if l.spoil != nil {
		l.spoil(r)
	}
	return r
}

// dueOf reads the due time that a value begins with.
func dueOf(value []byte) (time.Time, error) {
	if len(value) < dueBytes {
		return time.Time{}, errors.New("the value is too short to hold a due time")
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(value))), nil
}

// failure keeps the first error of many callbacks.
type failure struct {
	mu  sync.Mutex
	err error
}

func (f *failure) note(_ *kgo.Record, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *failure) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// load writes n records at the given rate, each due this long after its own moment; negative means overdue. Rate 0 is as
// fast as it goes. It returns when all are acknowledged.
func (l *loader) load(ctx context.Context, n int64, rate int, due time.Duration) error {
	var failed failure
	began := time.Now()
	for i := int64(0); i < n; {
		target := n
		if rate > 0 {
			target = min(n, inTime(rate, time.Since(began)))
		}
		now := time.Now()
		for ; i < target; i++ {
			l.client.Produce(ctx, l.record(now.Add(due)), failed.note)
			if rate == 0 && i%1000 == 0 {
				now = time.Now()
			}
		}
		if err := errors.Join(ctx.Err(), failed.get()); err != nil {
			return fmt.Errorf("load %s: %w", l.tier, err)
		}
		if i < n && !wait.For(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	if err := errors.Join(l.client.Flush(ctx), failed.get()); err != nil {
		return fmt.Errorf("load %s: %w", l.tier, err)
	}
	return nil
}

// inTime is how many records of a rate are due to be written after so much time.
func inTime(rate int, passed time.Duration) int64 {
	return int64(passed.Seconds() * float64(rate))
}
