package index

import (
	"context"
	"errors"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/replayer/crash"
)

// source is an assigned partition. Its goroutine (run) finds out where to read, and writes what the poller queues.
type source struct {
	ix        *Indexer
	topic     *topic
	partition int32

	ctx    context.Context //nolint:containedctx // It is that of run, and ends before the process where a revoke ends.
	cancel context.CancelFunc
	signal chan struct{} // something below has changed
	done   chan struct{} // closed when run has ended

	// Guarded by Indexer.mu.

	// id is that of the topic since the partition was placed.
	id     deadletter.TopicID
	reader *deadletter.Reader // used by the poller only
	// placed tells that the consumer reads from where the ledger stands. Until then nothing that is fetched is taken.
	placed bool
	// expected is the next offset in the ledger, reached that of the next record to come. The queue covers what is between.
	expected, reached int64
	known             bool // where the ledger stands
	queue             []*batch
	bytes             int64 // of the queue and of what is being written
	// full tells that it holds more than it may, and resting that it is not read for a moment after an error.
	full, resting bool
	fetching      bool  // the consumer is not paused
	closing       bool  // nothing more is taken; run ends when all is written
	target, lost  int64 // where the poller is to set the consumer, and how much of what lies before is lost
	problem       error // why it can not be placed

	end       int64     // of what a read_committed reader can read, as far as it is known
	currentAt time.Time // when nothing was left to write last
	committed int64
}

// batch is what becomes one deadletter.Batch.
type batch struct {
	letters    []deadletter.Letter
	payloads   []deadletter.Payload
	from, next int64 // the offsets that it covers
	lost       int64
	bytes      int64
	since      time.Time
}

func (b *batch) isFull() bool { return len(b.letters) >= maxLetters || b.bytes >= maxBytes }

// free gives b back for another use.
func (ix *Indexer) free(b *batch) {
	clear(b.letters)
	clear(b.payloads)
	*b = batch{letters: b.letters[:0], payloads: b.payloads[:0]}
	ix.spare.Put(b)
}

// tell wakes the source's goroutine.
func (s *source) tell() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// run ends when the source is closing and all is written, or with its context.
func (s *source) run() {
	defer close(s.done)
	defer s.discard()
	for s.ctx.Err() == nil {
		b, more := s.take()
		switch {
		case b != nil:
			s.write(b)
		case more:
			s.place()
		default:
			return
		}
	}
}

// take waits for a batch that is to be written now. Without one, more tells whether the partition has to be placed, or else
// everything is done.
func (s *source) take() (b *batch, more bool) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.ix.mu.Lock()
		wait := time.Hour
		if len(s.queue) > 0 {
			b := s.queue[0]
			wait = linger - time.Since(b.since)
			if wait <= 0 || len(s.queue) > 1 || b.isFull() || s.full || s.closing || !s.placed {
				s.queue[0] = nil
				s.queue = s.queue[1:]
				s.ix.mu.Unlock()
				return b, true
			}
		}
		idle := len(s.queue) == 0
		closing, placed := s.closing, s.placed
		s.ix.mu.Unlock()
		if idle && closing {
			return nil, false
		}
		if idle && !placed {
			return nil, true
		}
		timer.Reset(wait)
		select {
		case <-s.ctx.Done():
			return nil, false
		case <-s.signal:
		case <-timer.C:
		}
	}
}

// write writes a batch, whatever it takes.
func (s *source) write(b *batch) {
	ix := s.ix
	defer ix.free(b)
	unmet, fresh := s.news(b)
	var pause backoff
	for {
		ix.mu.Lock()
		expected := s.expected
		if b.next <= expected { // The ledger has it.
			s.passed(b)
			ix.mu.Unlock()
			return
		}
		out := deadletter.Batch{
			TopicID: s.id, Topic: s.topic.DeadLetters, Partition: s.partition,
			Expected: expected, Next: b.next, Lost: b.lost, Letters: b.letters,
		}
		if ix.opts.KeepPayload {
			out.Payloads = b.payloads
		}
		ix.mu.Unlock()

		err := ix.writeOne(s.ctx, &out)
		switch {
		case err == nil:
			ix.wrote(s, b)
			s.topic.newGroupsC.Add(float64(fresh))
			ix.groups.remember(unmet)
			return
		case errors.Is(err, deadletter.ErrMoved):
			var stands bool
			if stands, err = s.adopt(b); err == nil && !stands {
				return // It is placed anew.
			}
			if err == nil && s.expects() != expected {
				continue
			}
		}
		if s.ctx.Err() != nil || !pause.wait(s.ctx) {
			ix.mu.Lock()
			s.passed(b)
			ix.mu.Unlock()
			return
		}
	}
}

func (ix *Indexer) writeOne(ctx context.Context, out *deadletter.Batch) error {
	select {
	case ix.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-ix.slots }()
	crash.Point("before-write")
	err := ix.call(ctx, func(ctx context.Context) error { return ix.opts.Ledger.Index(ctx, *out) })
	if err == nil {
		crash.Point("after-write")
	}
	return err
}

// adopt goes on from where the ledger stands, which is not where it was expected. It reports whether b, and what is queued behind it,
// can still be used.
func (s *source) adopt(b *batch) (stands bool, err error) {
	ix := s.ix
	ix.mu.Lock()
	id, expected := s.id, s.expected
	ix.mu.Unlock()
	next, err := s.next(id, expected)
	if err != nil {
		return false, err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if next < s.expected || next > s.reached {
		ix.log.WarnContext(s.ctx, "the ledger stands elsewhere, the partition is read from there",
			"topic", s.topic.DeadLetters, "partition", s.partition, "expected", s.expected, "offset", next)
		s.passed(b)
		s.placed = false
		s.empty()
		return false, nil
	}
	if next > s.expected {
		ix.log.InfoContext(s.ctx, "the ledger is ahead, what it has is passed",
			"topic", s.topic.DeadLetters, "partition", s.partition, "expected", s.expected, "offset", next)
	}
	s.expected = next
	b.passTo(next)
	for _, queued := range s.queue {
		queued.passTo(next)
	}
	return true, nil
}

func (s *source) expects() int64 {
	s.ix.mu.Lock()
	defer s.ix.mu.Unlock()
	return s.expected
}

// passTo drops what lies below next.
func (b *batch) passTo(next int64) {
	if next <= b.from {
		return
	}
	b.from, b.lost = next, 0 // Whoever wrote it has said what was lost.
	n := 0
	for n < len(b.letters) && b.letters[n].Place.Offset < next {
		n++
	}
	b.letters = b.letters[n:]
	if len(b.payloads) > 0 {
		b.payloads = b.payloads[n:]
	}
}

// passed takes a batch from the account. The caller holds Indexer.mu.
func (s *source) passed(b *batch) {
	s.bytes -= b.bytes
	s.ix.held -= b.bytes
	s.ix.regulate(s)
}

// empty drops what is queued. The caller holds Indexer.mu.
func (s *source) empty() {
	for _, b := range s.queue {
		s.passed(b)
		s.ix.free(b)
	}
	s.queue = nil
}

// discard drops what is still queued when run ends.
func (s *source) discard() {
	s.ix.mu.Lock()
	defer s.ix.mu.Unlock()
	s.closing = true
	s.empty()
}

// wrote notes that the ledger has a batch.
func (ix *Indexer) wrote(s *source, b *batch) {
	s.topic.indexedC.Add(float64(len(b.letters)))
	ix.mu.Lock()
	defer ix.mu.Unlock()
	s.expected = b.next
	s.passed(b)
	s.noteEnd(b.next)
	if b.lost > 0 {
		s.topic.lose(ix, s, b.lost)
	}
}

// add queues what was fetched. It covers the offsets up to next; lost of them retention took. The caller holds Indexer.mu.
func (s *source) add(letters []deadletter.Letter, payloads []deadletter.Payload, next, lost int64) {
	last := func() *batch {
		if n := len(s.queue); n > 0 && !s.queue[n-1].isFull() {
			return s.queue[n-1]
		}
		b := s.ix.spare.Get().(*batch)
		b.from, b.next, b.since = s.reached, s.reached, time.Now()
		s.queue = append(s.queue, b)
		return b
	}
	b := last()
	b.lost += lost
	for i := range letters {
		b = last()
		n := letters[i].Size + letterOverhead
		b.letters = append(b.letters, letters[i])
		if payloads != nil {
			b.payloads = append(b.payloads, payloads[i])
			n += int64(len(payloads[i].Headers)) * 40
		}
		b.next = letters[i].Place.Offset + 1
		s.reached = b.next
		b.bytes += n
		s.bytes += n
		s.ix.held += n
	}
	b.next = next
	s.reached = next
	s.ix.regulate(s)
	s.tell()
}

// regulate fetches on, or not. The caller holds Indexer.mu.
func (ix *Indexer) regulate(s *source) {
	limit := int64(maxHeldPerPartition)
	if ix.held > maxHeld {
		limit = min(limit, maxHeld/int64(max(1, ix.assigned)))
	}
	// What was paused is not read on at once, or it would be paused and read on with each batch.
	switch {
	case s.bytes > limit:
		s.full = true
	case s.bytes <= limit/2:
		s.full = false
	}
	fetch := s.placed && !s.full && !s.resting && !s.closing
	if fetch == s.fetching || ix.sources[s.topic.DeadLetters][s.partition] != s {
		return
	}
	s.fetching = fetch
	partition := map[string][]int32{s.topic.DeadLetters: {s.partition}}
	if fetch {
		ix.consumer.ResumeFetchPartitions(partition)
	} else {
		ix.consumer.PauseFetchPartitions(partition)
	}
}

// noteEnd keeps in mind how far the partition can be read, and when there was nothing left. The caller holds Indexer.mu.
func (s *source) noteEnd(end int64) {
	s.end = max(s.end, end)
	if s.expected >= s.end {
		s.currentAt = time.Now()
	}
}

// behind is how many offsets are not in the ledger yet. The caller holds Indexer.mu.
func (s *source) behind() int64 {
	if !s.known {
		return 0
	}
	return max(0, s.end-s.expected)
}
