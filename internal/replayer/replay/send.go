package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	// defaultBatchBytes is the largest batch of a topic whose limit is not known: the client's own default.
	defaultBatchBytes = 1_000_012
	// soloBytes is the largest record that is sent alone, where the broker judges.
	soloBytes = 100 << 20
	// overhead is what a batch and a record cost beside their bytes, at most, and each header.
	overhead, headerOverhead = 256, 12
)

// slot is the room for one session, with producers of its own: a flush concerns everything that a producer holds.
type slot struct {
	r    *Replayer
	base []kgo.Opt

	mu     sync.Mutex
	runs   *kgo.Client // holds a run until all of it is there
	solo   *kgo.Client // for records that are judged alone
	closed bool

	limitsMu sync.Mutex // of its own: making a client asks for a limit
	limits   map[string]int32
}

// producers makes the clients when they are needed first.
func (s *slot) producers() (runs, solo *kgo.Client, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, kgo.ErrClientClosed
	}
	if s.runs != nil {
		return s.runs, s.solo, nil
	}
	opts := append(slices.Clone(s.base), producerOpts()...)
	opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(1<<30))
	runs, err = kgo.NewClient(append(slices.Clone(opts), kgo.ManualFlushing(), kgo.ProducerBatchMaxBytesFn(s.limit))...)
	if err != nil {
		return nil, nil, fmt.Errorf("make a producer: %w", err)
	}
	solo, err = kgo.NewClient(append(opts, kgo.ProducerBatchMaxBytes(soloBytes))...)
	if err != nil {
		runs.Close()
		return nil, nil, fmt.Errorf("make a producer of single records: %w", err)
	}
	s.runs, s.solo = runs, solo
	return runs, solo, nil
}

// limit is the largest batch for a topic.
func (s *slot) limit(topic string) int32 {
	s.limitsMu.Lock()
	defer s.limitsMu.Unlock()
	if n := s.limits[topic]; n > 0 {
		return n
	}
	return defaultBatchBytes
}

// learn asks for the largest batch that a topic takes, before anything is sent there: a batch above it is refused with all that
// is in it. Without an answer the default holds, and such batches are found out record by record.
func (s *slot) learn(ctx context.Context, topic string) {
	runs, _, err := s.producers()
	if err != nil {
		return
	}
	s.limitsMu.Lock()
	known := s.limits[topic] > 0
	s.limitsMu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	limit := int32(defaultBatchBytes)
	configs, err := kadm.NewClient(runs).DescribeTopicConfigs(ctx, topic)
	if err == nil {
		for _, c := range configs {
			for _, entry := range c.Configs {
				if entry.Key != "max.message.bytes" {
					continue
				}
				if n, err := strconv.ParseInt(entry.MaybeValue(), 10, 32); err == nil && n >= 1024 {
					limit = min(limit, int32(n))
				}
			}
		}
	}
	s.limitsMu.Lock()
	defer s.limitsMu.Unlock()
	if s.limits == nil {
		s.limits = map[string]int32{}
	}
	s.limits[topic] = limit
}

func (s *slot) close() {
	s.mu.Lock()
	runs, solo := s.runs, s.solo
	s.closed = true
	s.mu.Unlock()
	if runs != nil {
		runs.Close()
		solo.Close()
	}
}

// sendBatch sends what was claimed, in order, and returns when each piece has its end.
func (s *session) sendBatch(work context.Context, batch []*piece) {
	s.takeOver(work, batch)
	var run []*piece
	flush := func() {
		s.sendRun(work, run)
		run = nil
	}
	_, most := s.pace()
	for _, p := range batch {
		if p.unknown || p.end.Copy.Offset >= 0 || p.unread {
			continue // Left to time, found, or given back.
		}
		if p.fault != "" {
			flush()
			if why := s.skips(&p.item.Letter); why != "" {
				p.end.Skip = why
			} else if !s.replan.Load() {
				s.fail(p, p.fault)
			}
			continue
		}
		s.slot.learn(s.hand, p.target.Topic)
		p.record = s.copyOf(p)
		if s.large(p.record) {
			// The client refuses it at once where it is too large for a batch, and the rest of a run would overtake it.
			flush()
			s.sendAlone(work, p)
			continue
		}
		if run = append(run, p); len(run) >= most {
			flush()
			_, most = s.pace()
		}
	}
	flush()
}

// large tells whether a record may be too large for a batch of its topic.
func (s *session) large(r *kgo.Record) bool {
	size := overhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += headerOverhead + len(h.Key) + len(h.Value)
	}
	return size > int(s.slot.limit(r.Topic))
}

// sendRun sends records as a whole, in their order. What is not sent keeps an empty end, and is given back.
func (s *session) sendRun(work context.Context, run []*piece) {
	run = slices.DeleteFunc(run, func(p *piece) bool {
		p.end.Skip = s.skips(&p.item.Letter)
		return p.end.Skip != ""
	})
	if len(run) == 0 || !s.ready(run) {
		return
	}
	runs, _, err := s.slot.producers()
	if err != nil {
		s.stop(err)
		return
	}
	if !s.mayHand() {
		return
	}
	s.produce(work, runs, true, run)
	s.judgeAll(work, run)
}

// sendAlone is sendRun for one record that the broker shall judge.
func (s *session) sendAlone(work context.Context, p *piece) {
	if p.end.Skip = s.skips(&p.item.Letter); p.end.Skip != "" || !s.ready([]*piece{p}) {
		return
	}
	_, solo, err := s.slot.producers()
	if err != nil {
		s.stop(err)
		return
	}
	if !s.mayHand() {
		return
	}
	s.produce(work, solo, false, []*piece{p})
	if kafka.Classify(p.err) == kafka.RecordRefused {
		s.refused(work, p)
		return
	}
	s.judgeAll(work, []*piece{p})
}

// ready waits for the rate and looks whether the targets are still there.
func (s *session) ready(run []*piece) bool {
	for _, p := range run {
		if s.replan.Load() || s.vanished(p.target.Topic, p.target.Partition) {
			return false
		}
	}
	return s.take(len(run))
}

// take waits until n letters may be sent.
func (s *session) take(n int) bool {
	for _, limiter := range []interface {
		WaitN(ctx context.Context, n int) error
	}{s.limiter, s.r.limiter} {
		if limiter.WaitN(s.hand, n) == nil {
			continue
		}
		// The rate was lowered meanwhile, and a run is more than may go at once now.
		for range n {
			if limiter.WaitN(s.hand, 1) != nil {
				return false
			}
		}
	}
	return s.hand.Err() == nil
}

// produce hands records to a client and waits for their acknowledgements. They stay valid until the client has ended: nothing
// here can take them back.
func (s *session) produce(work context.Context, client *kgo.Client, flush bool, run []*piece) {
	var acks sync.WaitGroup
	acks.Add(len(run))
	s.sent(len(run))
	began := time.Now()
	for _, p := range run {
		client.Produce(context.WithoutCancel(work), p.record, func(rec *kgo.Record, err error) {
			p.err = err
			if s.r.opts.Tracer != nil {
				s.trace(p, began, rec.Offset)
			}
			if err == nil {
				p.end.Copy = deadletter.Target{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset}
			}
			s.sent(-1)
			acks.Done()
		})
	}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		if flush {
			_ = client.Flush(context.WithoutCancel(work)) // It only ends early with its context.
		}
	}()
	s.r.opts.crash("after-send")
	acks.Wait()
	<-flushed
	s.r.opts.crash("after-ack")
}

// judgeAll ends what failed of a run, one partition after the other.
func (s *session) judgeAll(work context.Context, run []*piece) {
	type target struct {
		topic     string
		partition int32
	}
	var order []target
	failed := map[target][]*piece{}
	for _, p := range run {
		if p.err == nil {
			continue
		}
		at := target{p.target.Topic, p.target.Partition}
		if failed[at] == nil {
			order = append(order, at)
		}
		failed[at] = append(failed[at], p)
	}
	for _, at := range order {
		s.judge(work, failed[at])
	}
}

// judge sends what failed on one partition again, in its order, until each has its end. An error of a run may be that of any
// record in it; only the error of a record that was sent alone is its own.
func (s *session) judge(work context.Context, failed []*piece) {
	pause := time.Duration(0)
	suspect := false // One among them is refused.
	for len(failed) > 0 {
		p := failed[0]
		if why := s.skips(&p.item.Letter); why != "" {
			p.end.Skip = why
			failed = failed[1:]
			continue
		}
		switch kafka.Classify(p.err) {
		case kafka.Canceled:
			leave(failed)
			return
		case kafka.RecordRefused:
			suspect = true
		default:
			pause = min(max(minPause, 2*pause), maxPause)
			if !s.mend(work, failed, pause) {
				return
			}
			if failed = without(failed); len(failed) == 0 || failed[0] != p {
				continue // The copy is there in spite of the error.
			}
		}
		_, solo, err := s.slot.producers()
		if err != nil || !s.mayHand() {
			giveBack(failed)
			return
		}
		p.record = s.copyOf(p)
		s.produce(work, solo, false, failed[:1])
		switch class := kafka.Classify(p.err); class {
		case kafka.None:
			pause = 0
			s.unstall(p.target.Topic)
			failed = failed[1:]
		case kafka.RecordRefused:
			s.refused(work, p)
			failed, suspect = failed[1:], false
		default:
			continue
		}
		if !suspect && len(failed) > 0 {
			failed = s.again(work, failed)
		}
	}
}

// again sends the rest of what failed as one run, and returns what failed again.
func (s *session) again(work context.Context, failed []*piece) []*piece {
	failed = slices.DeleteFunc(slices.Clone(failed), func(p *piece) bool {
		p.end.Skip = s.skips(&p.item.Letter)
		return p.end.Skip != ""
	})
	runs, _, err := s.slot.producers()
	if err != nil || len(failed) == 0 || !s.mayHand() {
		giveBack(failed)
		return nil
	}
	for _, p := range failed {
		p.record = s.copyOf(p)
	}
	s.produce(work, runs, true, failed)
	return without(failed)
}

// mend waits after an error that is not a record's own, and looks whether copies are there in spite of it. It reports false if
// nothing more is to be sent; all pieces have their end then.
func (s *session) mend(work context.Context, failed []*piece, pause time.Duration) bool {
	p := failed[0]
	s.stall(s.hand, p.target.Topic, p.err)
	s.r.counts.Kick()
	if runs, solo, err := s.slot.producers(); err == nil {
		for _, client := range []*kgo.Client{runs, solo} {
			if errors.Is(p.err, kerr.UnknownTopicID) || errors.Is(p.err, kerr.UnknownTopicOrPartition) {
				client.PurgeTopicsFromProducing(p.target.Topic)
			}
			client.ForceMetadataRefresh()
		}
	}
	if !wait.For(s.hand, pause) || s.vanished(p.target.Topic, p.target.Partition) {
		giveBack(failed)
		return false
	}
	var doubtful []sought
	for _, p := range failed {
		if !written(p.err) {
			continue
		}
		doubtful = append(doubtful, sought{p, s.job.ID, p.target})
	}
	if err := s.lookFor(work, doubtful); err != nil {
		leave(failed)
		return false
	}
	return true
}

// refused ends a letter that its target will never take.
func (s *session) refused(ctx context.Context, p *piece) {
	why := fmt.Sprintf("%s refuses the copy: %v", p.target.Topic, p.err)
	if s.r.issues.raise(issueKey{code: issue.ReplayRefused, topic: p.target.Topic}, shows, fmt.Sprintf("letter %d: %v", p.item.Letter.ID, p.err)) {
		s.log.ErrorContext(ctx, "a topic refuses a copy", "topic", p.target.Topic, "partition", p.target.Partition, "err", p.err)
	}
	s.fail(p, why)
}

// written tells whether the record of a failed produce may be in the topic all the same.
func written(err error) bool {
	answer, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		return err != nil
	}
	switch answer.Code {
	case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.InvalidTopicException.Code,
		kerr.TopicAuthorizationFailed.Code, kerr.ClusterAuthorizationFailed.Code, kerr.TransactionalIDAuthorizationFailed.Code,
		kerr.PolicyViolation.Code, kerr.InvalidTimestamp.Code, kerr.InvalidRecord.Code, kerr.MessageTooLarge.Code,
		kerr.RecordListTooLarge.Code, kerr.UnsupportedForMessageFormat.Code, kerr.CorruptMessage.Code,
		kerr.NotLeaderForPartition.Code, kerr.NotEnoughReplicas.Code, kerr.InvalidRequiredAcks.Code:
		return false
	}
	return true
}

// without returns the pieces that have no copy.
func without(pieces []*piece) []*piece {
	return slices.DeleteFunc(slices.Clone(pieces), func(p *piece) bool { return p.end.Copy.Offset >= 0 })
}

// leave leaves to time what may or may not be in the topic.
func leave(pieces []*piece) {
	for _, p := range pieces {
		p.unknown = true
	}
}

// giveBack leaves to time what may be in the topic. The rest keeps its empty end and is given back.
func giveBack(pieces []*piece) {
	for _, p := range pieces {
		p.unknown = p.unknown || written(p.err)
	}
}
