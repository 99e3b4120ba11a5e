package index

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// view is what the brokers say of a topic.
type view struct {
	at      time.Time
	id      deadletter.TopicID
	missing error // it does not exist
	// start and end are where a read_committed reader can read; partitions that could not be asked about are not in them.
	start, end map[int32]int64
}

// viewLasts is how old a view may be by which a partition is placed: those that are assigned together share one.
const viewLasts = time.Second

// lookAt asks the brokers about a topic, unless they were asked less than maxAge ago.
func (ix *Indexer) lookAt(ctx context.Context, t *topic, maxAge time.Duration) (view, error) {
	select {
	case t.look <- struct{}{}:
	case <-ctx.Done():
		return view{}, ctx.Err()
	}
	defer func() { <-t.look }()
	if !t.view.at.IsZero() && time.Since(t.view.at) < maxAge {
		return t.view, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	v := view{at: time.Now(), start: map[int32]int64{}, end: map[int32]int64{}}
	topics, err := ix.admin.ListTopics(ctx, t.DeadLetters)
	if err != nil {
		return view{}, fmt.Errorf("describe %s: %w", t.DeadLetters, err)
	}
	detail := topics[t.DeadLetters]
	switch {
	case errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
		v.missing = detail.Err
		t.view = v
		return v, nil
	case detail.Err != nil:
		return view{}, fmt.Errorf("describe %s: %w", t.DeadLetters, detail.Err)
	}
	v.id = deadletter.TopicID(detail.ID)
	for _, list := range []struct {
		ask func(context.Context, ...string) (kadm.ListedOffsets, error)
		of  map[int32]int64
	}{{ix.admin.ListStartOffsets, v.start}, {ix.admin.ListCommittedOffsets, v.end}} {
		offsets, err := list.ask(ctx, t.DeadLetters)
		if err != nil {
			return view{}, fmt.Errorf("list the offsets of %s: %w", t.DeadLetters, err)
		}
		offsets.Each(func(o kadm.ListedOffset) {
			if o.Err == nil && o.Offset >= 0 {
				list.of[o.Partition] = o.Offset
			}
		})
	}
	t.view = v
	return v, nil
}

// next asks the ledger where a partition stands.
func (s *source) next(id deadletter.TopicID, start int64) (next int64, err error) {
	err = s.ix.call(s.ctx, func(ctx context.Context) error {
		next, err = s.ix.opts.Ledger.Next(ctx, id, s.topic.DeadLetters, s.partition, start)
		return err
	})
	return next, err
}

// place finds out where the partition is to be read from and has the poller set the consumer there. It returns when that is done,
// or when the source is closing.
func (s *source) place() {
	ix := s.ix
	var pause backoff
	for maxAge := viewLasts; ; maxAge = 0 {
		err := s.tryPlace(maxAge)
		if err == nil {
			break
		}
		ix.mu.Lock()
		closing := s.closing
		s.problem = err
		ix.mu.Unlock()
		if closing || s.ctx.Err() != nil {
			return
		}
		ix.log.WarnContext(s.ctx, "where to read a partition from is not known yet, it is tried again",
			"topic", s.topic.DeadLetters, "partition", s.partition, "err", err)
		if !pause.wait(s.ctx) {
			return
		}
	}
	for {
		ix.mu.Lock()
		done := s.placed || s.closing
		ix.mu.Unlock()
		if done {
			return
		}
		select {
		case <-s.signal:
		case <-s.ctx.Done():
			return
		}
	}
}

// errOutOfRange is a ledger that stands above the end of the log.
var errOutOfRange = errors.New("the ledger has more of the partition than the topic, whose log was cut")

func (s *source) tryPlace(maxAge time.Duration) error {
	ix := s.ix
	v, err := ix.lookAt(s.ctx, s.topic, maxAge)
	if err != nil {
		return err
	}
	if v.missing != nil {
		return fmt.Errorf("describe %s: %w", s.topic.DeadLetters, v.missing)
	}
	start, ok := v.start[s.partition]
	end, also := v.end[s.partition]
	if !ok || !also {
		return fmt.Errorf("list the offsets of %s/%d: no leader answers", s.topic.DeadLetters, s.partition)
	}
	next, err := s.next(v.id, start)
	if err != nil {
		return fmt.Errorf("ask the ledger about %s/%d: %w", s.topic.DeadLetters, s.partition, err)
	}

	ix.mu.Lock()
	defer ix.mu.Unlock()
	s.id, s.known = v.id, true
	s.reader = deadletter.NewReader(v.id, s.topic.Origin, ix.opts.LabelHeader)
	s.expected, s.reached, s.end = next, next, end
	s.noteEnd(end)
	if next > end {
		return fmt.Errorf("%w: it stands at %d and the log ends at %d", errOutOfRange, next, end)
	}
	s.problem = nil
	s.target, s.lost = max(next, start), max(0, start-next)
	ix.seeks[s] = struct{}{}
	if ix.wake != nil {
		ix.wake()
	}
	return nil
}
