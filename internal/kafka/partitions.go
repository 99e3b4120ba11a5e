package kafka

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	// refreshInterval is how long a change of a partition count may go unseen.
	refreshInterval = 30 * time.Second
	// missingInterval is the same while a topic is missing: records wait for it.
	missingInterval = 5 * time.Second
	// kickInterval is the least time between two refreshes by Run.
	kickInterval = time.Second
)

// Partitions knows the partition counts of a fixed set of topics. Counts are read
// without a lock, from the last metadata answer; nothing is known before the
// first [Partitions.Refresh].
type Partitions struct {
	// Remade, if not nil, is told of a topic that was deleted and created again
	// under its name. It is called from Refresh and may block. It is set before the
	// first Refresh.
	Remade func(topic string)

	client *kgo.Client
	kicks  chan struct{}

	mu     sync.Mutex // guards topics
	topics []string

	// current is replaced as a whole by refresh and never written in place.
	current atomic.Pointer[map[string]topicState]

	// refreshing lets one request at a time through, so that an older answer can
	// not replace a newer one.
	refreshing sync.Mutex
}

type topicState struct {
	id     [16]byte // also of a topic that is missing now
	count  int32    // 0: unknown
	inSync []int    // by partition
	err    error
}

// NewPartitions returns the counts of topics, all of them still unknown. It makes
// no request. The client is used for metadata only and stays the caller's.
func NewPartitions(client *kgo.Client, topics []string) *Partitions {
	p := &Partitions{client: client, kicks: make(chan struct{}, 1), topics: slices.Compact(slices.Sorted(slices.Values(topics)))}
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

// Add adds a topic to the set, for the next refresh.
func (p *Partitions) Add(topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A new slice: a refresh under way reads the old one.
	p.topics = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(p.topics), topic))))
}

func (p *Partitions) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.topics
}

// InSync returns how many replicas of a partition were in sync at the last
// refresh; many if that is not known.
func (p *Partitions) InSync(topic string, partition int32) int {
	state := (*p.current.Load())[topic]
	if int(partition) >= len(state.inSync) {
		return math.MaxInt
	}
	return state.inSync[partition]
}

// Kick makes Run refresh soon, within a second. It does not block.
func (p *Partitions) Kick() {
	select {
	case p.kicks <- struct{}{}:
	default:
	}
}

// Err returns why the last refresh did not learn the partition count of topic, or
// nil if it did. The count of before is kept beside it, unless the error says that
// the topic is not there.
func (p *Partitions) Err(topic string) error {
	return (*p.current.Load())[topic].err
}

// Run refreshes the counts every 30 seconds, every 5 while a topic is missing, and
// after a Kick, until ctx ends. It returns nothing because there is nothing to do about an error
// but try again; Err shows it.
func (p *Partitions) Run(ctx context.Context) {
	for {
		interval := refreshInterval
		for _, topic := range p.names() {
			if _, known := p.Count(topic); !known {
				interval = missingInterval
			}
		}
		if !wait.Until(ctx, interval, p.kicks) {
			return
		}
		_ = p.Refresh(ctx) // Err tells it, topic by topic.
		if !wait.For(ctx, kickInterval) {
			return
		}
	}
}

// Refresh asks the brokers now, in one request for just these topics. It blocks
// until the answer is there or ctx ends. The error is that of the request; what
// the brokers said of a single topic is in Err. When a topic has changed, the
// client is told to look again as well: it would refuse to produce to a partition
// it has not heard of.
func (p *Partitions) Refresh(ctx context.Context) error {
	topics := p.names()
	if len(topics) == 0 {
		return nil // An empty list of topics in the request would mean all.
	}
	p.refreshing.Lock()
	defer p.refreshing.Unlock()

	before := *p.current.Load()
	after := maps.Clone(before)
	described, err := describeTopics(ctx, p.client, topics)
	if err != nil {
		if ctx.Err() == nil {
			for _, topic := range topics {
				state := before[topic]
				state.err = err
				after[topic] = state
			}
			p.current.Store(&after)
		}
		return err
	}

	changed := false
	var remade []string
	for _, topic := range topics {
		was := before[topic]
		is := was.next(described[topic])
		after[topic] = is
		if (was.count > 0 || was.err != nil) && (is.count != was.count || is.id != was.id) {
			changed = true
		}
		if none := [16]byte{}; was.id != none && is.id != was.id && is.count > 0 {
			remade = append(remade, topic)
		}
	}
	p.current.Store(&after)
	if changed {
		p.client.ForceMetadataRefresh()
	}
	for _, topic := range remade {
		if p.Remade != nil {
			p.Remade(topic)
		}
	}
	return nil
}

func (d topicDescription) inSync() []int {
	counts := make([]int, len(d.partitions))
	for _, p := range d.partitions {
		if int(p.Partition) < len(counts) {
			counts[p.Partition] = len(p.ISR)
		}
	}
	return counts
}

// next returns the state that follows s by a new description of the topic.
func (s topicState) next(d topicDescription) topicState {
	switch {
	case errors.Is(d.err, kerr.UnknownTopicOrPartition):
		return topicState{id: s.id, err: d.err}
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
		return topicState{id: d.id, count: d.count(), inSync: d.inSync()}
	}
}
