package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/idempotency"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// ErrChanged is a record that is not the one which was indexed at its place.
var ErrChanged = errors.New("the record at the letter's place is not the one that was indexed there")

// destination is where a letter of a topic goes.
func (r *Replayer) destination(t *Topic, spec *deadletter.JobSpec) string {
	if spec.Destination != "" {
		return spec.Destination
	}
	return t.ReturnTo
}

// mayReplay says why a letter can not be replayed at all, whatever its state; nil if nothing speaks against it.
func (r *Replayer) mayReplay(l *deadletter.Letter, spec *deadletter.JobSpec) *Refusal {
	t := r.topics[l.Place.Topic]
	refuse := func(code Code, format string, args ...any) *Refusal {
		return &Refusal{Code: code, Letter: l.ID, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case l.Pointer:
		return refuse(CodePointer, "the letter is a pointer: its bytes never fitted the topic")
	case t == nil:
		return refuse(CodeDestination, "the configuration does not name the topic %s", l.Place.Topic)
	case l.Origin != t.Origin && l.Origin != t.ReturnTo:
		return refuse(CodeDestination, "the letter says that it comes from %s, and letters of %s return to %s", l.Origin, t.DeadLetters, t.ReturnTo)
	}
	if to := r.destination(t, spec); !r.allowed(t, to) {
		return refuse(CodeDestination, "letters of %s may not go to %s: replayTo does not list it", t.DeadLetters, to)
	}
	return nil
}

func (r *Replayer) allowed(t *Topic, to string) bool {
	if strings.HasPrefix(to, "__") || r.ours[to] {
		return false
	}
	return to == t.ReturnTo || slices.Contains(t.ReplayTo, to)
}

// partitionFor is the rule of routing: the original partition while the target has the partition count that the origin had,
// else the partitioner over the key. A record without a key keeps its number, within the count.
func (t *Topic) partitionFor(l *deadletter.Letter, count int32) int32 {
	original := l.OriginPartition
	switch {
	case original >= 0 && original < count && (l.OriginPartitions == count || l.OriginPartitions == 0):
		return original
	case l.Key == nil && original >= 0:
		return original % count
	case l.Key == nil:
		return l.Place.Partition % count
	}
	return int32(t.Partitioner.Partition(l.Key, int(count)))
}

// aim decides the target partitions of a batch and lists their ends. It waits for topics that are missing.
func (s *session) aim(batch []*piece) error {
	seen := map[fetch.Partition]bool{}
	var targets []fetch.Partition
	for _, p := range batch {
		p.target = deadletter.Target{Partition: -1, Offset: -1}
		if p.fault != "" || p.unread {
			continue
		}
		topic := s.r.destination(p.topic, &s.job.Spec)
		count, err := s.count(topic)
		if err != nil {
			return err
		}
		p.target.Topic, p.target.Partition = topic, p.topic.partitionFor(&p.item.Letter, count)
		at := fetch.Partition{Topic: topic, Partition: p.target.Partition}
		if !seen[at] {
			seen[at] = true
			targets = append(targets, at)
		}
	}
	ends, err := s.ends(s.hand, targets)
	if err != nil {
		return err
	}
	for _, p := range batch {
		if p.target.Partition < 0 {
			continue
		}
		p.target.Offset = ends[fetch.Partition{Topic: p.target.Topic, Partition: p.target.Partition}]
		// Of a claim that may be taken over the lower end counts, so that a copy of its holder is found also if this takeover
		// is taken over before it has looked.
		l := &p.item.Letter
		if was := l.Claim.Target; l.State == deadletter.Claimed && was.Topic == p.target.Topic && was.Partition == p.target.Partition && was.Offset >= 0 {
			p.target.Offset = min(p.target.Offset, was.Offset)
		}
	}
	return nil
}

// count waits until the partition count of a topic is known.
func (s *session) count(topic string) (int32, error) {
	for {
		if n, known := s.r.counts.Count(topic); known {
			return n, nil
		}
		err := s.r.counts.Err(topic)
		if err == nil {
			err = errors.New("no broker has described the topic yet")
		}
		s.stall(s.hand, topic, err)
		s.r.counts.Kick()
		if !wait.For(s.hand, 200*time.Millisecond) {
			return 0, context.Cause(s.hand)
		}
	}
}

// ends lists high watermarks until the brokers answer, or ctx ends.
func (s *session) ends(ctx context.Context, targets []fetch.Partition) (map[fetch.Partition]int64, error) {
	pause := 50 * time.Millisecond
	for {
		if len(targets) == 0 {
			return nil, nil
		}
		ends, err := s.r.fetcher.Ends(ctx, targets)
		if err == nil {
			for _, t := range targets {
				s.unstall(t.Topic)
			}
			return ends, nil
		}
		for _, t := range targets {
			s.stall(ctx, t.Topic, err)
			s.vanished(t.Topic, t.Partition)
		}
		if s.replan.Load() || !wait.For(ctx, pause) {
			return nil, err
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// vanished notes a target that is not there any more, which only a topic that was made again can have.
func (s *session) vanished(topic string, partition int32) bool {
	count, known := s.r.counts.Count(topic)
	if known && partition >= count {
		s.replan.Store(true)
		return true
	}
	return false
}

// copyOf is the record to be sent for a claimed letter.
func (s *session) copyOf(p *piece) *kgo.Record {
	l, spec := &p.item.Letter, &s.job.Spec
	value := p.payload.Value
	headers := make([]kgo.RecordHeader, 0, len(p.payload.Headers)+8)
	for _, h := range p.payload.Headers {
		headers = append(headers, kgo.RecordHeader(h))
	}
	if spec.Edit != nil {
		headers = edited(headers, spec.Edit.SetHeaders)
		if spec.Edit.HasValue {
			value = spec.Edit.Value
		}
	}
	var e envelope.Envelope
	e.Parse(headers)
	e.ResetAttempt()
	switch {
	case spec.Edit != nil:
		e.SetMessageID(idempotency.EditedID(l.MessageID, s.job.ID))
		e.SetParentID(l.MessageID)
	case e.MessageID == nil:
		e.SetMessageID(l.MessageID)
	}
	if e.OriginalTopic == nil {
		e.SetOriginal(l.Origin, e.OriginalPartition, e.OriginalOffset, e.OriginalTimestamp)
	}
	e.SetReplay(s.job.ID, p.claim.ReplayCount, l.Place.String())
	return &kgo.Record{
		Topic: p.target.Topic, Partition: p.target.Partition, Key: p.payload.Key, Value: value,
		Headers: e.Append(make([]kgo.RecordHeader, 0, len(headers)+8), headers, envelope.Return),
	}
}

// edited replaces all headers of the names given, at the place of the first one, or adds them.
func edited(headers []kgo.RecordHeader, set []deadletter.Header) []kgo.RecordHeader {
	for _, h := range set {
		placed := false
		kept := headers[:0:0]
		for _, old := range headers {
			switch {
			case old.Key != h.Key:
				kept = append(kept, old)
			case !placed:
				kept, placed = append(kept, kgo.RecordHeader(h)), true
			}
		}
		if !placed {
			kept = append(kept, kgo.RecordHeader(h))
		}
		headers = kept
	}
	return headers
}

// verify compares bytes with what was indexed.
func (r *Replayer) verify(ctx context.Context, l *deadletter.Letter, p *deadletter.Payload) error {
	if deadletter.Digest(p.Key, p.Value, p.Headers) == l.Digest {
		return nil
	}
	if r.issues.raise(issueKey{code: issue.LetterChanged, topic: l.Place.Topic}, shows, fmt.Sprintf("the record at %s is not letter %d", l.Place, l.ID)) {
		r.log.ErrorContext(ctx, "a record is not the one that was indexed at its place", "topic", l.Place.Topic, "partition", l.Place.Partition, "offset", l.Place.Offset)
	}
	return ErrChanged
}

// Payload is the record of a letter, from the ledger where it is kept, else from its topic. It is fetch.ErrGone where the bytes
// are gone, and ErrChanged where other bytes are in their place. Broker trouble is waited for until ctx ends.
func (r *Replayer) Payload(ctx context.Context, letter deadletter.Letter) (deadletter.Payload, error) {
	if letter.Kept {
		kept, err := r.ledger.Payload(ctx, letter.ID)
		if err != nil {
			return deadletter.Payload{}, err
		}
		if kept != nil {
			return *kept, r.verify(ctx, &letter, kept)
		}
	}
	results, err := r.fetcher.Fetch(ctx, []deadletter.Place{letter.Place})
	if err != nil {
		return deadletter.Payload{}, err
	}
	if results[0].Err != nil {
		return deadletter.Payload{}, results[0].Err
	}
	return results[0].Payload, r.verify(ctx, &letter, &results[0].Payload)
}
