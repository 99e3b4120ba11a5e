package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// refreshInterval is how long a change of a partition count may go unseen.
	refreshInterval = 30 * time.Second
	// missingInterval is the same while a topic is missing: records wait for it.
	missingInterval = 5 * time.Second
)

// Partitions knows the partition counts of a fixed set of topics. Counts are read
// without a lock, from the last metadata answer; nothing is known before the
// first [Partitions.Refresh].
type Partitions struct {
	client *kgo.Client
	topics []string

	// current is replaced as a whole by refresh and never written in place.
	current atomic.Pointer[map[string]topicState]

	// refreshing lets one request at a time through, so that an older answer can
	// not replace a newer one.
	refreshing sync.Mutex
}

type topicState struct {
	id    [16]byte
	count int32 // 0: unknown
	err   error
}

// NewPartitions returns the counts of topics, all of them still unknown. It makes
// no request. The client is used for metadata only and stays the caller's.
func NewPartitions(client *kgo.Client, topics []string) *Partitions {
	p := &Partitions{client: client, topics: slices.Compact(slices.Sorted(slices.Values(topics)))}
	p.current.Store(&map[string]topicState{})
	return p
}

// Count returns the number of partitions of topic, and whether it is known. It is
// not known for a topic that does not exist, that the brokers have not described
// yet, or that is not among those given to NewPartitions.
func (p *Partitions) Count(topic string) (n int32, known bool) {
	state := (*p.current.Load())[topic]
	return state.count, state.count > 0
}

// Err returns why the last refresh did not learn the partition count of topic, or
// nil if it did. The count of before is kept beside it, unless the error says that
// the topic is not there.
func (p *Partitions) Err(topic string) error {
	return (*p.current.Load())[topic].err
}

// Run refreshes the counts every 30 seconds, and every 5 while a topic is missing,
// until ctx ends. It returns nothing because there is nothing to do about an error
// but try again; Err shows it.
func (p *Partitions) Run(ctx context.Context) {
	for {
		interval := refreshInterval
		for _, topic := range p.topics {
			if _, known := p.Count(topic); !known {
				interval = missingInterval
			}
		}
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		_ = p.Refresh(ctx) // Err tells it, topic by topic.
	}
}

// Refresh asks the brokers now, in one request for just these topics. It blocks
// until the answer is there or ctx ends. The error is that of the request; what
// the brokers said of a single topic is in Err. When a topic has changed, the
// client is told to look again as well: it would refuse to produce to a partition
// it has not heard of.
func (p *Partitions) Refresh(ctx context.Context) error {
	if len(p.topics) == 0 {
		return nil // An empty list of topics in the request would mean all.
	}
	p.refreshing.Lock()
	defer p.refreshing.Unlock()

	before := *p.current.Load()
	after := maps.Clone(before)
	described, err := describeTopics(ctx, p.client, p.topics)
	if err != nil {
		if ctx.Err() == nil {
			for _, topic := range p.topics {
				state := before[topic]
				state.err = err
				after[topic] = state
			}
			p.current.Store(&after)
		}
		return err
	}

	changed := false
	for _, topic := range p.topics {
		was := before[topic]
		is := was.next(described[topic])
		after[topic] = is
		if (was.count > 0 || was.err != nil) && (is.count != was.count || is.id != was.id) {
			changed = true
		}
	}
	p.current.Store(&after)
	if changed {
		p.client.ForceMetadataRefresh()
	}
	return nil
}

// next returns the state that follows s by a new description of the topic.
func (s topicState) next(d topicDescription) topicState {
	switch {
	case errors.Is(d.err, kerr.UnknownTopicOrPartition):
		return topicState{err: d.err}
	case d.err != nil:
		s.err = d.err
		return s
	case s.id == d.id && s.count > d.count() && s.id != [16]byte{}:
		// One topic only ever grows. This answer came from a broker that has not
		// heard of the growth yet, and would send keys where their producers do
		// not.
		s.err = nil
		return s
	default:
		return topicState{id: d.id, count: d.count()}
	}
}
