package receipts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// slack is added to Keep, for what lies between a moment and what it was noted by: a transaction that is open for long, the
// time that a statement takes, a record that a broker has and does not show yet.
const slack = time.Hour

// Survey is where the group stands in all partitions that it reads. It is made before Kafka is asked, filled with the
// answers, and given to Prune.
type Survey struct {
	began     time.Time
	positions []position
}

type position struct {
	topic          string
	partition      int32
	committed, end int64
}

// NewSurvey begins a survey. Ask Kafka after it.
func NewSurvey() *Survey { return &Survey{began: time.Now()} }

// Add notes a partition. All partitions of the origin, and of the return topic if there is one, must be in the survey: one that is
// missing, and was never in one before, holds nothing back.
//
// Committed is the offset below which everything is handled: the group's committed offset, or where it would begin if it has none. End
// is the high watermark (not the last stable offset). Behind the end of a transaction some clients commit one
// less than the end although nothing is left; a partition that stays so holds back the deletion, and loses nothing.
func (s *Survey) Add(topic string, partition int32, committed, end int64) {
	s.positions = append(s.positions, position{topic, partition, committed, end})
}

// Prune notes the survey, and deletes receipts that are not needed any more, 10,000 at most, the oldest first; it returns
// how many. If it was 10,000 there may be more: commit, and call it again with the same survey. A survey deletes
// nothing by itself: it takes another one, later, to see that the group has come as far. Once an hour is enough. Any process may
// call it, and several may at a time. It takes one statement for each partition.
func (r *Receipts) Prune(ctx context.Context, tx Tx, s *Survey) (deleted int64, err error) {
	// In one order, so that two of these never wait for each other.
	slices.SortFunc(s.positions, func(a, b position) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	for _, p := range s.positions {
		// By how long ago, not by when: the clock of the database is the only one that counts.
		ago := time.Since(s.began).Milliseconds() + 1
		if _, err := tx.Exec(ctx, r.mark, r.consumer, p.topic, p.partition, p.end, p.committed, ago); err != nil {
			return 0, fmt.Errorf("note the mark of %s/%d: %w", p.topic, p.partition, err)
		}
	}
	deleted, err = tx.Exec(ctx, r.prune, r.consumer, (r.keep + slack).Milliseconds())
	if err != nil {
		return 0, fmt.Errorf("delete receipts: %w", err)
	}
	return deleted, nil
}

// Forget removes the marks of a topic that the group reads no more. Until then they hold back the deletion of receipts.
func (r *Receipts) Forget(ctx context.Context, tx Tx, topic string) error {
	if _, err := tx.Exec(ctx, r.forget, r.consumer, topic); err != nil {
		return fmt.Errorf("forget the marks of %s: %w", topic, err)
	}
	return nil
}
