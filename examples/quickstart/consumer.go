package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// This file is all that an application has to do for Redrive. It needs a Kafka
// client and nothing else: copy it, and put your own work where handle is called.

// consumer handles the records of a topic, and hands those it can not handle to
// Redrive, which brings them back later.
type consumer struct {
	client *kgo.Client
	inbox  string // Redrive's topic for failed records: {origin}.retry
	handle func(ctx context.Context, record *kgo.Record) error
}

// newConsumer joins the group. The caller calls run, and close after that.
func newConsumer(connection []kgo.Opt, group, topic, inbox string, handle func(context.Context, *kgo.Record) error) (*consumer, error) {
	options := append(slices.Clone(connection),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// Offsets are committed by hand, once a record is handled or handed over.
		kgo.DisableAutoCommit(),
		// A partition does not move while its records are being handled.
		kgo.BlockRebalanceOnPoll(),
	)
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("make the consumer: %w", err)
	}
	return &consumer{client: client, inbox: inbox, handle: handle}, nil
}

// run handles records until ctx ends, or until one can be neither handled nor
// handed over. That one is not committed: it is read again after a restart.
func (c *consumer) run(ctx context.Context) error {
	// The end of ctx stops the reading. What was read is still finished and
	// committed, so that a stop makes no duplicates.
	work := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		fetches := c.client.PollRecords(ctx, 100)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("poll: %w", err)
		}
		records := fetches.Records()
		for _, record := range records {
			failure := c.handle(work, record)
			if failure == nil {
				continue
			}
			// The failed record waits elsewhere. The next one is handled at once.
			if err := c.handOver(work, record, failure); err != nil {
				return fmt.Errorf("hand over %s/%d@%d: %w", record.Topic, record.Partition, record.Offset, err)
			}
		}
		// Only now: a crash before this line repeats records and loses none.
		if err := c.client.CommitRecords(work, records...); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		c.client.AllowRebalance()
	}
	return nil
}

// close leaves the group.
func (c *consumer) close() { c.client.CloseAllowingRebalance() }

// handOver writes a copy of the record to the inbox and waits for the ack of all
// replicas, which is what this client asks for by default.
func (c *consumer) handOver(ctx context.Context, record *kgo.Record, failure error) error {
	failed := &kgo.Record{
		Topic: c.inbox,
		Key:   record.Key,
		Value: record.Value,
		// All headers, Redrive's own included: they count the deliveries.
		Headers: slices.Clone(record.Headers),
	}
	// Where and when the record first lived. A record that fails again has it already.
	addHeader(failed, "redrive-original-topic", record.Topic)
	addHeader(failed, "redrive-original-partition", strconv.Itoa(int(record.Partition)))
	addHeader(failed, "redrive-original-offset", strconv.FormatInt(record.Offset, 10))
	addHeader(failed, "redrive-original-timestamp", record.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z"))
	// Why it failed, for whoever looks at the dead letters.
	addHeader(failed, "redrive-error-type", errorType(failure))
	addHeader(failed, "redrive-error-message", failure.Error())

	// Optional: what the consumer knows better than the policy.
	if _, ok := errors.AsType[*poisonError](failure); ok {
		addHeader(failed, "redrive-reason", "poison") // To the dead letters at once.
	}
	if busy, ok := errors.AsType[*busyError](failure); ok {
		addHeader(failed, "redrive-retry-after", busy.retryAfter.String())
	}
	return c.client.ProduceSync(ctx, failed).FirstErr()
}

// addHeader adds a header unless the record has it.
func addHeader(record *kgo.Record, name, value string) {
	if header(record, name) == "" {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
}

// header returns the value of a header, and "" if there is none.
func header(record *kgo.Record, name string) string {
	for _, h := range record.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// poisonError is a record that can never be handled.
type poisonError struct{ what string }

func (e *poisonError) Error() string { return e.what }

// busyError is a dependency that says when to come back.
type busyError struct{ retryAfter time.Duration }

func (e *busyError) Error() string { return "busy, come back in " + e.retryAfter.String() }

// errorType names the kind of a failure, as dead letters are searched by it.
func errorType(failure error) string {
	var poison *poisonError
	var busy *busyError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(failure, &poison):
		return "InvalidOrder"
	case errors.As(failure, &busy):
		return "ServiceBusy"
	case errors.As(failure, &timeout) && timeout.Timeout():
		return "Timeout"
	default:
		return "Error"
	}
}
