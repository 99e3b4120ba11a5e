package forwarder

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/ordering"
)

// lookInterval is how often the decisions of operators are looked for while a
// partition waits for one.
const lookInterval = 5 * time.Second

// block notes that s is not read until somebody decides where it goes on.
func (l *loop) block(s *source) {
	l.blocked[s] = true
	l.lookAt = l.now
}

// outOfRange stops reading a partition at once: the client would ask for the
// offset again thousands of times a second. What is held goes on.
func (l *loop) outOfRange(s *source) {
	if s.blocked != "" {
		return
	}
	s.blocked = issue.OffsetOutOfRange
	s.detail = fmt.Sprintf("offset %d is not in the topic", s.order.Next())
	s.report(l.f)
	l.halt(s)
	l.block(s)
}

// strand stops reading a retired topic at a record that belongs to no topic of
// the configuration.
func (s *source) strand(l *loop, rec *kgo.Record) {
	s.blocked = issue.RetiredTopic
	s.detail = fmt.Sprintf("the record at offset %d belongs to no topic of the configuration: put its entry back", rec.Offset)
	s.report(l.f)
	l.halt(s)
}

// maybeLook looks for decisions if partitions wait for one.
func (l *loop) maybeLook() {
	if len(l.blocked) == 0 || l.looking || l.lookAt.After(l.now) {
		return
	}
	l.looking, l.lookAt = true, l.now.Add(lookInterval)
	topics := map[string]bool{}
	for s := range l.blocked {
		topics[s.inlet.topic] = true
	}
	names := slices.Collect(maps.Keys(topics))
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*lookInterval)
		defer cancel()
		l.f.look(ctx, names)
		l.do(func() { l.looking = false })
	}()
}

// look asks for decisions about the topics, and where their logs begin, and
// acts on the answers.
func (f *Forwarder) look(ctx context.Context, topics []string) {
	decisions, err := fetchDecisions(ctx, f.admin, f.opts.Group, topics...)
	if err != nil {
		f.loop.do(func() {
			f.loop.report("decisions", "the decisions of operators can not be read, it is tried again", "err", err)
		})
	}
	starts, err := f.admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		f.log.WarnContext(ctx, "the start offsets are not known, it is tried again", "err", err)
		return
	}
	var taken []*source
	f.loop.do(func() {
		for s := range f.loop.blocked {
			if o, ok := starts.Lookup(s.inlet.topic, s.partition); ok && o.Err == nil {
				f.loop.overtaken(s, o.Offset)
			}
			if s.blocked == "" {
				continue
			}
			d, ok := decisions[s.inlet.topic][s.partition]
			if !ok || d.was != s.committed {
				continue
			}
			if s.order.Waiting()+s.order.InFlight() > 0 {
				s.detail = "a decision is there and is taken when the records in memory are forwarded"
				continue
			}
			taken = append(taken, s)
			f.loop.decided(s, d.at)
		}
	})
	for _, s := range taken {
		// Only a decision that fits the commit counts, so that one which stays does
		// no harm; it is taken away for those who look.
		if err := voidDecision(ctx, f.admin, f.opts.Group, s.inlet.topic, s.partition); err != nil {
			f.log.WarnContext(ctx, "a decision was taken and can not be removed", "topic", s.inlet.topic, "partition", s.partition, "err", err)
		}
	}
}

// overtaken takes the start of the log. Where it lies above the next offset of a
// running source, retention removed what was to be read: there is nothing to
// decide, what is lost is counted and alarmed, and the rest is read.
func (l *loop) overtaken(s *source, start int64) {
	if s.undecided || s.blocked != issue.OffsetOutOfRange || start <= s.order.Next() {
		return
	}
	s.loseUpTo(l, start)
	s.blocked, s.detail = "", ""
	delete(l.blocked, s)
	l.seek(s, start)
}

// decided starts a partition anew where an operator said.
func (l *loop) decided(s *source, at int64) {
	l.f.log.Info("an operator set the offset of a partition", "topic", s.inlet.topic, "partition", s.partition, "from", s.committed, "to", at)
	fresh := newSource(s.inlet, s.partition, ordering.New[record](at, nil))
	fresh.topicID, fresh.originPartitions = s.topicID, s.originPartitions
	l.add(fresh)
	l.markDirty(fresh)
	l.seek(fresh, at)
}

// seek reads a partition from another offset on. It happens between two polls.
func (l *loop) seek(s *source, at int64) {
	m := l.seeks[s.inlet.topic]
	if m == nil {
		m = map[int32]kgo.EpochOffset{}
		l.seeks[s.inlet.topic] = m
	}
	m[s.partition] = kgo.EpochOffset{Epoch: -1, Offset: at}
	l.seeking.Store(true)
	if wake := l.f.wakePoll.Load(); wake != nil {
		(*wake)()
	}
}

// seek does what loop.seek asked for. Only the poller calls it, while no
// partition can change its owner.
func (f *Forwarder) seek() {
	if !f.loop.seeking.Load() {
		return
	}
	var seeks map[string]map[int32]kgo.EpochOffset
	resume := map[string][]int32{}
	f.loop.do(func() {
		seeks = f.loop.seeks
		f.loop.seeks = map[string]map[int32]kgo.EpochOffset{}
		f.loop.seeking.Store(false)
		for topic, partitions := range seeks {
			for p := range partitions {
				if s := f.loop.sources[topic][p]; s == nil {
					delete(partitions, p)
				} else if s.mayRead() {
					resume[topic] = append(resume[topic], p)
				}
			}
		}
	})
	f.consumer.SetOffsets(seeks)
	f.consumer.ResumeFetchPartitions(resume)
}
