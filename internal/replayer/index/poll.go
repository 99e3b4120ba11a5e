package index

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

// poll queues what is fetched until ctx ends. Between a poll and the next no partition changes its owner, so that this is also the
// place to seek.
func (ix *Indexer) poll(ctx context.Context) {
	var scratch scratch
	for ctx.Err() == nil {
		waiting, wake := context.WithCancel(ctx)
		ix.mu.Lock()
		ix.wake = wake
		if len(ix.seeks) > 0 {
			wake()
		}
		ix.mu.Unlock()
		fetches := ix.consumer.PollFetches(waiting)
		wake()
		if fetches.IsClientClosed() {
			ix.consumer.AllowRebalance()
			return
		}
		ix.take(fetches, &scratch)
		ix.seek()
		ix.consumer.AllowRebalance()
	}
}

// seek sets the consumer where placed sources want it.
func (ix *Indexer) seek() {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for s := range ix.seeks {
		delete(ix.seeks, s)
		if s.closing || ix.sources[s.topic.DeadLetters][s.partition] != s {
			continue
		}
		// Nothing of another offset can come after this: what was fetched before is dropped by the client.
		ix.consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{
			s.topic.DeadLetters: {s.partition: {Epoch: -1, Offset: s.target}},
		})
		s.placed = true
		if s.lost > 0 {
			s.add(nil, nil, s.target, s.lost)
		}
		ix.regulate(s)
		s.tell()
	}
}

// scratch is what the poller makes letters in.
type scratch struct {
	letters  []deadletter.Letter
	payloads []deadletter.Payload
}

func (ix *Indexer) take(fetches kgo.Fetches, scratch *scratch) {
	for i := range fetches {
		for j := range fetches[i].Topics {
			topic := &fetches[i].Topics[j]
			for k := range topic.Partitions {
				ix.takePartition(topic, &topic.Partitions[k], scratch)
			}
		}
	}
}

func (ix *Indexer) takePartition(topic *kgo.FetchTopic, p *kgo.FetchPartition, scratch *scratch) {
	ix.mu.Lock()
	s := ix.sources[topic.Topic][p.Partition]
	if p.Err != nil {
		ix.fetchFailed(topic.Topic, p.Partition, s, p.Err)
	}
	if s == nil || !s.placed || s.closing || len(p.Records) == 0 {
		ix.mu.Unlock()
		return
	}
	if none := [16]byte{}; topic.TopicID != none && s.id != none && s.id != topic.TopicID {
		s.misplace() // The topic was made again between the two.
		ix.mu.Unlock()
		return
	}
	delete(ix.faults.fetch, place{topic.Topic, p.Partition})
	reached := s.reached
	ix.mu.Unlock()

	// Without the lock: this is most of the work. Only the poller adds, so that reached stays what it is, unless the source is
	// placed anew.
	lost := int64(0)
	if first := p.Records[0].Offset; p.LogStartOffset > reached && first > reached {
		lost = min(p.LogStartOffset, first) - reached
	}
	letters, payloads := scratch.letters[:0], scratch.payloads[:0]
	next := reached
	for _, r := range p.Records {
		if r.Offset < next {
			continue
		}
		next = r.Offset + 1
		if r.Attrs.IsControl() {
			continue
		}
		letters = append(letters, s.reader.Letter(r))
		if ix.opts.KeepPayload {
			letters[len(letters)-1].Kept = true
			payloads = append(payloads, deadletter.PayloadOf(r))
		}
	}
	scratch.letters, scratch.payloads = letters, payloads

	ix.mu.Lock()
	if s.placed && !s.closing && s.reached == reached && next > reached {
		end := p.LastStableOffset
		if end <= 0 {
			end = p.HighWatermark
		}
		s.noteEnd(max(end, next))
		s.add(letters, payloads, next, lost)
	}
	ix.mu.Unlock()
	clear(letters)
	clear(payloads)
}

// misplace has a partition placed anew when what is queued was written. The caller holds Indexer.mu.
func (s *source) misplace() {
	s.placed = false
	s.ix.regulate(s)
	s.tell()
}

// restInterval is how long a partition is not read after an error: after some the client asks again at once, thousands of times a
// second.
const restInterval = time.Second

// rest stops the reading of a partition for a moment. The caller holds Indexer.mu.
func (ix *Indexer) rest(s *source) {
	if s.resting {
		return
	}
	s.resting = true
	ix.regulate(s)
	time.AfterFunc(restInterval, func() {
		ix.mu.Lock()
		defer ix.mu.Unlock()
		s.resting = false
		ix.regulate(s)
	})
}

func isMissing(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InconsistentTopicID)
}

// fetchFailed takes an error that came with a poll. The caller holds Indexer.mu.
func (ix *Indexer) fetchFailed(topic string, partition int32, s *source, err error) {
	var session *kgo.ErrGroupSession
	var cut *kgo.ErrDataLoss
	switch {
	case kafka.Classify(err) == kafka.Canceled:
	case kafka.Classify(err) == kafka.Fenced:
		ix.log.Error("this member is fenced: another process has its instance id",
			"instance_id", ix.opts.InstanceID, "remedy", "give each process an instance id of its own", "err", err)
		if ix.fatalErr == nil {
			ix.fatalErr = fmt.Errorf("another process of group %s runs with the instance id %q, give each its own: %w", ix.opts.Group, ix.opts.InstanceID, err)
			close(ix.fatal)
		}
	case errors.As(err, &session):
		ix.faults.group = fault{err, time.Now()}
		ix.report("group", "the group can not be joined, it is tried again", "err", err)
	case errors.Is(err, kerr.OffsetOutOfRange) || errors.As(err, &cut):
		// The log starts above, or was cut: the ledger decides what that means.
		if s != nil && s.placed {
			s.misplace()
		}
	case kerr.IsRetriable(err) && !isMissing(err):
		// A leader moves; the client looks for it.
	default:
		if isMissing(err) {
			ix.counts.Kick()
		}
		at := place{topic, partition}
		ix.faults.fetch[at] = fault{err, time.Now()}
		ix.report(fmt.Sprint(topic, "/", partition), "a partition can not be read, it is tried again",
			"topic", topic, "partition", partition, "err", err)
		if s != nil {
			ix.rest(s)
		}
	}
}

// onAssigned makes the sources of assigned partitions. Where they are read from is found out beside the group, which must not wait for
// the ledger; until then their fetching is paused.
func (ix *Indexer) onAssigned(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	select {
	case <-ix.joined:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if ix.root.Err() != nil {
		return nil, ix.root.Err()
	}
	count := 0
	ix.mu.Lock()
	for name, partitions := range offsets {
		t := ix.topics[name]
		if t == nil {
			continue
		}
		for n := range partitions {
			ix.consumer.PauseFetchPartitions(map[string][]int32{name: {n}})
			partitions[n] = kgo.NewOffset().At(0)
			if old := ix.sources[name][n]; old != nil {
				ix.drop(old)
			}
			ix.add(t, n)
			count++
		}
	}
	ix.mu.Unlock()
	if count > 0 {
		ix.metrics.rebalances.WithLabelValues("assigned").Inc()
		ix.log.InfoContext(ctx, "partitions assigned", "count", count)
	}
	return offsets, nil
}

// add starts the source of a partition. The caller holds Indexer.mu.
func (ix *Indexer) add(t *topic, partition int32) {
	s := &source{
		ix: ix, topic: t, partition: partition, committed: -1, currentAt: time.Now(),
		signal: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(ix.root)
	if ix.sources[t.DeadLetters] == nil {
		ix.sources[t.DeadLetters] = map[int32]*source{}
	}
	ix.sources[t.DeadLetters][partition] = s
	ix.assigned++
	ix.running.Go(func() {
		defer s.cancel()
		s.run()
	})
}

// drop takes a source from the assignment: it writes what it has and ends. The caller holds Indexer.mu.
func (ix *Indexer) drop(s *source) {
	s.closing = true
	s.tell()
	if ix.sources[s.topic.DeadLetters][s.partition] != s {
		return
	}
	delete(ix.sources[s.topic.DeadLetters], s.partition)
	delete(ix.seeks, s)
	delete(ix.faults.fetch, place{s.topic.DeadLetters, s.partition})
	ix.assigned--
}

// finish has sources write what they have, for as long as patience lasts, and ends them. It reports whether all was written.
func (ix *Indexer) finish(sources []*source, patience time.Duration) bool {
	ix.mu.Lock()
	for _, s := range sources {
		s.closing = true
		ix.regulate(s)
		s.tell()
	}
	ix.mu.Unlock()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for i, s := range sources {
		select {
		case <-s.done:
			continue
		case <-limit.C:
		}
		for _, late := range sources[i:] {
			late.cancel()
		}
		for _, late := range sources[i:] {
			<-late.done
		}
		return false
	}
	return true
}

// revokeLimit bounds how long a revoke waits for a batch. The group waits meanwhile.
const revokeLimit = 10 * time.Second

// onRevoked hands partitions over: what is queued is written, or dropped if that takes too long. The next owner asks the ledger either way.
func (ix *Indexer) onRevoked(ctx context.Context, _ *kgo.Client, revoked map[string][]int32) {
	if len(revoked) == 0 {
		return // A cooperative rebalance that takes nothing from us.
	}
	sources := ix.find(revoked)
	if !ix.finish(sources, min(revokeLimit, ix.opts.ShutdownTimeout*6/10)) {
		ix.log.WarnContext(ctx, "the ledger did not take all letters before partitions were given up; the next owner reads them again")
	}
	ix.forgetAll(sources)
	ix.metrics.rebalances.WithLabelValues("revoked").Inc()
	ix.log.InfoContext(ctx, "partitions revoked", "count", len(sources))
}

// onLost drops partitions that may already have another owner. A write that is under way has its effect only if that owner has not
// begun.
func (ix *Indexer) onLost(ctx context.Context, _ *kgo.Client, lost map[string][]int32) {
	if len(lost) == 0 {
		return
	}
	sources := ix.find(lost)
	ix.finish(sources, 0)
	ix.forgetAll(sources)
	ix.metrics.rebalances.WithLabelValues("lost").Inc()
	ix.log.WarnContext(ctx, "partitions lost: the group does not answer, or went on without this member", "count", len(sources))
}

func (ix *Indexer) find(partitions map[string][]int32) []*source {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	var found []*source
	for topic, numbers := range partitions {
		for _, n := range numbers {
			if s := ix.sources[topic][n]; s != nil {
				found = append(found, s)
			}
		}
	}
	return found
}

// forgetAll takes sources that have ended, and what they still held, from the account.
func (ix *Indexer) forgetAll(sources []*source) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for _, s := range sources {
		ix.drop(s)
	}
}

// remade goes over to a topic that was deleted and made again: to the brokers it is another one, and the client refuses to go on
// with it until it is told to forget the first. What was fetched of that one is still written.
func (ix *Indexer) remade(name string) {
	ix.log.Warn("a topic was deleted and made again", "topic", name)
	select {
	case <-ix.joined:
	default:
		return // Nothing was read yet.
	}
	ix.mu.Lock()
	t := ix.topics[name]
	t.remadeAt = time.Now()
	for _, s := range ix.sources[name] {
		ix.drop(s)
	}
	ix.mu.Unlock()
	t.look <- struct{}{}
	t.view = view{}
	<-t.look
	ix.consumer.PurgeTopicsFromConsuming(name)
	ix.consumer.AddConsumeTopics(name)
}
