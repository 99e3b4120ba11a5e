package forwarder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/ordering"
)

const (
	// maxMetadata is offset.metadata.max.bytes of a broker by default.
	maxMetadata = 4096
	// commitBackoff is the pause after a commit that was not accepted.
	commitBackoff = 100 * time.Millisecond
	// Under load a commit does not wait for the interval: it goes out when so
	// many records are finished and not covered, but not faster than that. A
	// crash sends them again.
	commitRecords = 100
	commitPause   = 10 * time.Millisecond
	// In a burst of more than that commits are spaced out: they cost the brokers
	// as much as a batch of records does.
	burstRecords = 2000
	burstPause   = 25 * time.Millisecond
	// minWindow is how many records a source may have finished or in flight
	// beyond its commit at first, see source.window.
	minWindow = 64
)

// commitState is what the loop knows of commits.
type commitState struct {
	dirty     []*source // with something to commit
	uncovered int       // finished records that no commit covers, all sources
	running   bool      // one is under way
	pressed   bool      // a source waits for its window: do not wait for the interval
	force     bool      // commit even if nothing changed: the lease must be renewed
	last      time.Time // when the last one began
	notBefore time.Time
	confirmed time.Time // the lease: when the last accepted commit, or join, began
	err       error     // of the last commit, for Status
}

// finished notes that n records of s were finished.
func (l *loop) finished(s *source, n int) {
	if s.orphaned {
		return // Nobody reads from its commit any more.
	}
	l.commit.uncovered += n
	l.markDirty(s)
}

// markDirty notes that s has something to commit.
func (l *loop) markDirty(s *source) {
	if !s.dirty && !s.orphaned {
		s.dirty = true
		l.commit.dirty = append(l.commit.dirty, s)
	}
}

func (c *commitState) forget(s *source) {
	c.dirty = slices.DeleteFunc(c.dirty, func(d *source) bool { return d == s })
}

// leaseFresh reports whether the last proof that the partitions are ours is
// younger than half a session.
func (l *loop) leaseFresh() bool {
	return l.now.Sub(l.commit.confirmed) < l.f.opts.SessionTimeout/2
}

// renewAt is when the lease is renewed although there is nothing to commit.
func (c *commitState) renewAt(l *loop) time.Time {
	return c.confirmed.Add(l.f.opts.SessionTimeout / 3)
}

// next is when maybeCommit wants to be called again.
func (c *commitState) next(l *loop) time.Time {
	switch {
	case c.running || l.assigned == 0:
		return l.now.Add(time.Hour)
	case c.force:
		return c.notBefore
	case len(c.dirty) > 0 && (c.pressed || c.uncovered >= commitRecords):
		pause := commitPause
		if c.uncovered > burstRecords {
			pause = burstPause
		}
		return later(c.notBefore, c.last.Add(min(pause, l.f.opts.CommitInterval)))
	case len(c.dirty) > 0:
		return later(c.notBefore, c.last.Add(l.f.opts.CommitInterval))
	case l.heldSum > 0:
		return later(c.notBefore, c.renewAt(l))
	}
	return l.now.Add(time.Hour)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// maybeCommit starts a commit if one is wanted and none is under way.
func (l *loop) maybeCommit() {
	c := &l.commit
	if c.running || c.next(l).After(l.now) {
		return
	}
	c.running, c.pressed, c.force = true, false, false
	c.last = l.now
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), l.f.opts.SessionTimeout/3)
		defer cancel()
		l.f.commitAll(ctx, nil)
		l.do(func() {
			c.running = false
			l.unstall()
		})
	}()
}

// batch is the content of one commit.
type batch struct {
	sources []*source
	points  []ordering.Checkpoint
	counts  []int32
	texts   []string // the metadata
	began   time.Time
}

// request is the batch as a request. Topics go by their id where the broker
// knows ids, so that a commit never counts for a topic that was made again.
func (b *batch) request(group, instanceID string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	if instanceID != "" {
		req.InstanceID = &instanceID
	}
	index := map[string]int{}
	for i, s := range b.sources {
		name := s.inlet.topic
		at, ok := index[name]
		if !ok {
			at = len(req.Topics)
			index[name] = at
			topic := kmsg.NewOffsetCommitRequestTopic()
			topic.Topic, topic.TopicID = name, s.topicID
			req.Topics = append(req.Topics, topic)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = s.partition, b.points[i].Watermark, &b.texts[i]
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p)
	}
	return req
}

// collect makes a batch of the dirty ones among sources; nil means all, and one
// at least, so that the commit renews the lease. Revoked ones pass themselves.
func (l *loop) collect(sources []*source) *batch {
	b := &batch{began: l.now}
	if sources == nil {
		sources = l.commit.dirty
		if len(sources) == 0 {
			sources = l.anySource()
		}
	}
	for _, s := range sources {
		if s.dropped || s.undecided || s.orphaned {
			s.dirty = false
			continue
		}
		b.add(l, s)
	}
	for _, s := range b.sources {
		s.dirty = false
	}
	l.commit.dirty = slices.DeleteFunc(l.commit.dirty, func(s *source) bool { return !s.dirty })
	return b
}

// anySource is a source to renew the lease with.
func (l *loop) anySource() []*source {
	for _, partitions := range l.sources {
		for _, s := range partitions {
			if !s.undecided {
				return []*source{s}
			}
		}
	}
	return nil
}

func (b *batch) add(l *loop, s *source) {
	count := int32(0)
	if s.inlet.isInbox() {
		count = s.originPartitions
		if n, known := l.f.originPartitions(s.inlet); known {
			count = n
		}
	}
	prefix := metadataPrefix(count)
	point := s.order.Checkpoint(maxMetadata - len(prefix))
	b.sources = append(b.sources, s)
	b.points = append(b.points, point)
	b.counts = append(b.counts, count)
	b.texts = append(b.texts, prefix+string(point.Done))
}

// originPartitions is the partition count of the origin that the records of an
// inbox come from. That of a retired inbox is not known.
func (f *Forwarder) originPartitions(in *inlet) (int32, bool) {
	if in.route == nil {
		return 0, false
	}
	return f.counts.Count(in.route.origin.topic)
}

// metadataPrefix is the metadata of a commit but for the finished ranges.
func metadataPrefix(originPartitions int32) string {
	return kafka.CommitMark + " " + strconv.Itoa(int(originPartitions)) + " "
}

// parseMetadata reads what add wrote beside a commit: the partition count of
// the origin and the finished ranges. Metadata of other tools means neither.
func parseMetadata(text string, watermark int64) (originPartitions int32, done ordering.Ranges, err error) {
	if text == "" {
		return 0, nil, nil
	}
	fields := strings.Split(text, " ")
	if len(fields) != 3 || fields[0] != kafka.CommitMark {
		return 0, nil, errors.New("commit metadata is not of this forwarder")
	}
	n, err := strconv.ParseInt(fields[1], 10, 32)
	if err != nil || n < 0 {
		return 0, nil, errors.New("commit metadata has no partition count")
	}
	done, err = ordering.ParseRanges([]byte(fields[2]), watermark)
	return int32(n), done, err
}

// commitAll commits the given sources, or with nil the dirty ones. It blocks
// until the answer is there or ctx ends. Commits go out one after the other, and
// each is made when its turn has come, so that an older state never follows a
// newer one.
func (f *Forwarder) commitAll(ctx context.Context, sources []*source) {
	f.commits <- struct{}{}
	defer func() { <-f.commits }()
	var b *batch
	if !f.loop.do(func() { b = f.loop.collect(sources) }) || len(b.sources) == 0 {
		return
	}
	req := b.request(f.opts.Group, f.opts.InstanceID)
	req.MemberID, req.Generation = f.consumer.GroupMetadata()
	if req.MemberID == "" || req.Generation < 0 {
		// Without a member's name it would be taken as an operator's.
		f.loop.do(func() { f.loop.committed(b, nil, errors.New("the group is not joined")) })
		return
	}
	refused := map[string]map[int32]error{}
	// Not by the consumer: it sends no commit while it waits in a join, which is
	// for a whole session when a member has died. The coordinator takes them.
	resp, failed := req.RequestWith(ctx, f.producer)
	if failed == nil {
		failed = commitErrors(req, resp, refused)
	}
	f.loop.do(func() { f.loop.committed(b, refused, failed) })
}

// commitErrors sorts the answer to a commit by partition. Newer answers name
// topics by id only.
func commitErrors(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, refused map[string]map[int32]error) error {
	names := map[[16]byte]string{}
	for _, t := range req.Topics {
		names[t.TopicID] = t.Topic
	}
	var first error
	for _, t := range resp.Topics {
		topic := t.Topic
		if topic == "" {
			topic = names[t.TopicID]
		}
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			if err == nil {
				continue
			}
			if refused[topic] == nil {
				refused[topic] = map[int32]error{}
			}
			refused[topic][p.Partition] = err
			if first == nil {
				first = fmt.Errorf("commit %s/%d: %w", topic, p.Partition, err)
			}
		}
	}
	return first
}

// committed takes the answer to a commit.
func (l *loop) committed(b *batch, refused map[string]map[int32]error, failed error) {
	c := &l.commit
	if kafka.Classify(failed) == kafka.Fenced {
		l.fenced(failed)
	}
	if failed != nil {
		l.f.metrics.commitErrors.Inc()
		if c.err == nil {
			l.f.log.Warn("a commit was not accepted, it is tried again", "err", failed)
		}
		c.notBefore = l.now.Add(commitBackoff)
	}
	c.err = failed
	l.f.metrics.commitSeconds.Observe(l.now.Sub(b.began).Seconds())
	whole := failed != nil && len(refused) == 0
	accepted := false
	for i, s := range b.sources {
		if s.dropped {
			continue
		}
		if whole || refused[s.inlet.topic][s.partition] != nil {
			l.markDirty(s)
			continue
		}
		accepted = true
		c.uncovered -= int(b.points[i].Covered - s.covered)
		s.covered = b.points[i].Covered
		s.committed = b.points[i].Watermark
		s.resize(l.f)
		if b.counts[i] > 0 {
			s.originPartitions = b.counts[i]
		}
	}
	if accepted && b.began.After(c.confirmed) {
		c.confirmed = b.began
	}
	for i, s := range b.sources {
		if b.points[i].Full && !s.dropped {
			s.moveBlockers(l)
		}
	}
}

// resize fits the window to the pace after a commit was accepted: twice as much
// when the source had to wait for it, half when it needed little of it.
func (s *source) resize(f *Forwarder) {
	switch {
	case s.limited:
		s.window = min(2*s.window, f.maxWindow())
	case s.uncommitted() < s.window/8:
		s.window = max(s.window/2, min(minWindow, f.maxWindow()))
	}
	s.limited = false
}

// maxWindow is the most that a source may have finished or in flight beyond its
// commit by releases.
func (f *Forwarder) maxWindow() int { return f.opts.MaxUncommitted - f.moveBatch() }

// moveBatch is how many records a source may copy to its own tail at once. It
// is kept free of MaxUncommitted for them.
func (f *Forwarder) moveBatch() int { return min(256, f.opts.MaxUncommitted/4) }
