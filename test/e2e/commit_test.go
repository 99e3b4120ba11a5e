package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// checkQuiet checks that nothing is left to do, by the forwarder's own figures and by the lag that tools for Kafka show.
func (s *story) checkQuiet(c *child) {
	s.t.Helper()
	for _, name := range []string{"redrive_held_records", "redrive_held_bytes", "redrive_overdue_records", "redrive_in_flight_records"} {
		c.awaitMetric(name, "", 0)
	}
	testkit.WaitFor(s.t, patience/3, "a lag of 0", func(ctx context.Context) error {
		lags, err := s.client.Admin().Lag(ctx, s.group)
		if err != nil {
			return err
		}
		group := lags[s.group]
		if err := group.Error(); err != nil {
			return err
		}
		for _, lag := range group.Lag.Sorted() {
			if lag.Lag != 0 {
				return fmt.Errorf("%s/%d: lag %d: the commit stands at %d, the end is %d", lag.Topic, lag.Partition, lag.Lag, lag.Commit.At, lag.End.Offset)
			}
		}
		return nil
	})
}

func TestCommitsReachTheEndWhenAllIsForwarded(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"500ms", "1s"}})
	c := s.start()
	random := seeded(t)
	const n = 1000
	var records []*kgo.Record
	for i := range n {
		records = append(records, s.failure(random, i))
	}
	s.client.Produce(records...)
	s.client.WaitForRecords(patience, s.deadLetters(), n/3)
	s.client.WaitForRecords(patience, s.origin, n-n/3)
	s.checkQuiet(c)
}

// TestAbortedRecordsAreNeverForwardedAndLeaveNoLag has an application hand over in transactions, every second of which it
// aborts: a lag that stays, of records that are not there, would keep an autoscaler awake for ever.
func TestAbortedRecordsAreNeverForwardedAndLeaveNoLag(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{partitions: 2, tiers: []string{"500ms"}})
	c := s.start()
	application := s.kafka.Client(t, kgo.TransactionalID(testkit.UniqueName("application")))
	const transactions, size = 20, 10
	kept := 0
	for i := range transactions {
		if err := application.Kafka().BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		end, value := kgo.TryCommit, "kept"
		if i%2 == 1 {
			end, value = kgo.TryAbort, "aborted"
		} else {
			kept += size
		}
		var records []*kgo.Record
		for j := range size {
			records = append(records, &kgo.Record{Topic: s.inbox(), Key: []byte(strconv.Itoa(j)), Value: fmt.Append(nil, value, " ", i, " ", j)})
		}
		application.Produce(records...)
		if err := application.Kafka().EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	s.client.WaitForRecords(patience, s.origin, kept)

	for _, topic := range append(s.tiers, s.origin, s.deadLetters()) {
		for _, r := range s.client.ReadAll(topic, kgo.ReadUncommitted()) {
			if string(r.Value[:4]) != "kept" {
				t.Errorf("%s holds %q", topic, r.Value)
			}
		}
	}
	if got := len(s.client.ReadAll(s.origin, kgo.ReadCommitted())); got != kept {
		t.Errorf("%d records came back, want %d", got, kept)
	}
	s.checkQuiet(c)
}
