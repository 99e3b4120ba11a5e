package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// bench is a fake cluster with the topics of a consumer.
type bench struct {
	*testkit.VirtualKafka

	client *testkit.TestClient
}

func newBench(t *testing.T) *bench {
	t.Helper()
	v := testkit.Virtual(t)
	for _, topic := range []string{"orders", "orders.retry"} {
		if err := v.CreateTopic(topic, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	return &bench{v, v.Client(t)}
}

// consume runs a consumer until stop.
func (b *bench) consume(t *testing.T, handle func(context.Context, *kgo.Record) error) (stop func() error) {
	t.Helper()
	connection := []kgo.Opt{kgo.SeedBrokers(b.Brokers()...), kgo.Dialer(b.Dial)}
	c, err := newConsumer(connection, "service", "orders", "orders.retry", handle)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.run(ctx) }()
	return func() error {
		cancel()
		err := <-ended
		c.close()
		return err
	}
}

// awaitCommit waits until the group has committed up to an offset.
func (b *bench) awaitCommit(t *testing.T, offset int64) {
	t.Helper()
	testkit.WaitFor(t, 10*time.Second, "the commit", func(context.Context) error {
		committed, _ := b.client.CommittedOffsets("service").Lookup("orders", 0)
		if committed.At != offset {
			return fmt.Errorf("committed %d", committed.At)
		}
		return nil
	})
}

func TestFailedRecordIsHandedOverWithAllItHas(t *testing.T) {
	b := newBench(t)
	failures := map[string]error{
		"poison": &poisonError{"broken"}, "busy": &busyError{90 * time.Second}, "slow": noAnswer{}, "other": errors.New("no"), "fine": nil,
	}
	stop := b.consume(t, func(_ context.Context, r *kgo.Record) error { return failures[string(r.Key)] })
	at := time.Date(2026, 1, 5, 3, 0, 0, 7e6, time.UTC)
	own := kgo.RecordHeader{Key: "twice"}
	for _, key := range []string{"poison", "busy", "slow", "other", "fine"} {
		b.client.Produce(&kgo.Record{Topic: "orders", Key: []byte(key), Value: []byte("v"), Timestamp: at, Headers: []kgo.RecordHeader{own, own}})
	}
	// It failed before: what Redrive wrote then goes along.
	b.client.Produce(&kgo.Record{Topic: "orders", Key: []byte("other"), Headers: []kgo.RecordHeader{
		{Key: "redrive-original-topic", Value: []byte("orders")},
		{Key: "redrive-original-partition", Value: []byte("0")},
		{Key: "redrive-original-offset", Value: []byte("3")},
		{Key: "redrive-original-timestamp", Value: []byte("2026-01-05T03:00:00.007Z")},
		{Key: "redrive-attempt", Value: []byte("1")},
	}})
	got := b.client.WaitForRecords(10*time.Second, "orders.retry", 5)
	b.awaitCommit(t, 6)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	first := func(offset, errorType, message string, more ...string) []string {
		return append([]string{
			"twice=", "twice=", "redrive-original-topic=orders", "redrive-original-partition=0", "redrive-original-offset=" + offset,
			"redrive-original-timestamp=2026-01-05T03:00:00.007Z", "redrive-error-type=" + errorType, "redrive-error-message=" + message,
		}, more...)
	}
	want := [][]string{
		append([]string{"poison", "v"}, first("0", "InvalidOrder", "broken", "redrive-reason=poison")...),
		append([]string{"busy", "v"}, first("1", "ServiceBusy", "busy, come back in 1m30s", "redrive-retry-after=1m30s")...),
		append([]string{"slow", "v"}, first("2", "Timeout", "payment service did not answer")...),
		append([]string{"other", "v"}, first("3", "Error", "no")...),
		{
			"other", "null", "redrive-original-topic=orders", "redrive-original-partition=0", "redrive-original-offset=3",
			"redrive-original-timestamp=2026-01-05T03:00:00.007Z", "redrive-attempt=1", "redrive-error-type=Error", "redrive-error-message=no",
		},
	}
	var texts [][]string
	for _, r := range got {
		value := string(r.Value)
		if r.Value == nil {
			value = "null"
		}
		text := []string{string(r.Key), value}
		for _, h := range r.Headers {
			text = append(text, h.Key+"="+string(h.Value))
		}
		texts = append(texts, text)
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("inbox (-want +got):\n%s", diff)
	}
}

// A record that is neither handled nor handed over must be read again.
func TestNothingIsCommittedBeforeTheAck(t *testing.T) {
	b := newBench(t)
	b.client.Produce(&kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte("v")})
	refused := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders.retry", Err: kerr.TopicAuthorizationFailed, Count: -1})
	stop := b.consume(t, func(context.Context, *kgo.Record) error { return errors.New("no") })
	if err := refused.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := stop(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("run: %v", err)
	}
	if committed, ok := b.client.CommittedOffsets("service").Lookup("orders", 0); ok && committed.At > 0 {
		t.Errorf("committed %d although the copy was refused", committed.At)
	}
	refused.Remove()
	stop = b.consume(t, func(context.Context, *kgo.Record) error { return errors.New("no") })
	b.client.WaitForRecords(10*time.Second, "orders.retry", 1)
	b.awaitCommit(t, 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
