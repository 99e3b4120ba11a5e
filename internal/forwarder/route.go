package forwarder

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

const (
	// maxInFlightRecords and maxInFlightBytes bound what one target partition
	// has under way; one record may always be.
	maxInFlightRecords = 4096
	maxInFlightBytes   = 4 << 20
)

// inbox is the tier index of an inlet that is an inbox.
const inbox = -1

// inlet is a topic that is read.
type inlet struct {
	topic string
	tier  int // index in the ladder, or inbox
	route *route
	stats inletStats
}

// route is one entry of topics.yaml as the topics it writes.
type route struct {
	policy      *tiers.Policy
	partitioner kafka.Partitioner
	maxHeld     int64
	origin      *outlet
	tiers       []*outlet
	deadLetters *outlet
}

// outlet is a topic that is written.
type outlet struct {
	topic   string
	targets []*target
}

// target is one partition of an outlet. The loop owns it.
type target struct {
	outlet    *outlet
	partition int32
	records   int
	bytes     int64
	waiters   []*source // sources whose next record waits for room here
}

func (t *target) full() bool {
	return t.records >= maxInFlightRecords || t.bytes >= maxInFlightBytes
}

func (o *outlet) target(partition int32) *target {
	for int(partition) >= len(o.targets) {
		o.targets = append(o.targets, &target{outlet: o, partition: int32(len(o.targets))})
	}
	return o.targets[partition]
}

func (f *Forwarder) buildRoutes() error {
	f.routes = map[string]*inlet{}
	outlets := map[string]*outlet{}
	outletOf := func(topic string) *outlet {
		if outlets[topic] == nil {
			outlets[topic] = &outlet{topic: topic}
			f.outlets = append(f.outlets, outlets[topic])
		}
		return outlets[topic]
	}
	for _, t := range f.opts.Topics {
		p := t.Policy
		r := &route{policy: p, partitioner: t.Partitioner, maxHeld: t.MaxHeldBytesPerPartition}
		setDefault(&r.partitioner, kafka.Murmur2)
		setDefault(&r.maxHeld, f.opts.MaxHeldBytesPerPartition)
		r.origin = outletOf(p.ReturnTo())
		r.deadLetters = outletOf(p.DeadLetters())
		read := []*inlet{{topic: p.Inbox(), tier: inbox, route: r}}
		for i := range p.Tiers() {
			topic := p.Tier(i).Topic
			r.tiers = append(r.tiers, outletOf(topic))
			read = append(read, &inlet{topic: topic, tier: i, route: r})
		}
		for _, in := range read {
			if f.routes[in.topic] != nil {
				return fmt.Errorf("forwarder: topic %s is read for two purposes", in.topic)
			}
			f.routes[in.topic] = in
			in.stats = f.metrics.inlet(in, r)
		}
	}
	return nil
}

// decide says what becomes of a record, and fills in e what its next topic
// must read.
func (in *inlet) decide(e *envelope.Envelope, r *record, now int64, random func() float64) tiers.Step {
	if in.tier == inbox {
		return in.route.policy.FromInbox(e, r.arrivedAt(), at(now), random)
	}
	return in.route.policy.FromTier(in.tier, e, r.arrivedAt(), at(now))
}

// identify gives a record what it lacks of a name and an origin, before it is
// written anywhere.
func (s *source) identify(e *envelope.Envelope, offset int64) {
	e.EnsureMessageID(s.inlet.topic, s.partition, offset)
	if e.OriginalTopic == nil {
		e.SetOriginal(s.inlet.route.policy.Origin(), e.OriginalPartition, e.OriginalOffset, e.OriginalTimestamp)
	}
	if e.OriginalPartitions == 0 && e.OriginalPartition >= 0 && s.originPartitions > 0 {
		e.SetOriginalPartitions(s.originPartitions)
	}
}

// partitionFor is the rule of routing: the original partition while the target
// has the partition count that the origin had, else the partitioner over the
// key. A record without a key keeps its number, within the count.
func (r *route) partitionFor(w wish, key []byte, source, count int32) int32 {
	original := w.original
	switch {
	case original >= 0 && original < count && (w.partitions == count || w.partitions == 0):
		return original
	case key == nil && original >= 0:
		return original % count
	case key == nil:
		return source % count
	}
	return int32(r.partitioner.Partition(key, int(count)))
}

// limits are the max.message.bytes of the topics that are written. The client
// must not build a batch that the broker refuses, because all of its records
// would fail with it.
type limits struct {
	mu    sync.RWMutex
	bytes map[string]int32
}

// defaultMaxMessageBytes is Kafka's default of max.message.bytes.
const defaultMaxMessageBytes = 1048588

func (l *limits) of(topic string) int32 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if n, ok := l.bytes[topic]; ok {
		return n
	}
	return defaultMaxMessageBytes
}

func (l *limits) load(ctx context.Context, admin *kadm.Client, outlets []*outlet, log *slog.Logger) {
	var names []string
	for _, o := range outlets {
		names = append(names, o.topic)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		log.WarnContext(ctx, "max.message.bytes of the topics is not known, the default is assumed", "err", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes = map[string]int32{}
	for _, c := range configs {
		for _, entry := range c.Configs {
			if entry.Key != "max.message.bytes" {
				continue
			}
			if n, err := strconv.ParseInt(entry.MaybeValue(), 10, 32); err == nil && n >= 512 {
				l.bytes[c.Name] = int32(min(n, 1<<30))
			}
		}
	}
}
