package forwarder

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

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

// The tier index of an inlet that is none of the ladder.
const (
	inbox        = -1
	retiredTier  = -2
	retiredInbox = -3
)

// inlet is a topic that is read.
type inlet struct {
	topic   string
	tier    int    // index in the ladder, or one of the above
	route   *route // nil for a retired topic: each record has its own
	maxHeld int64
	stats   inletStats

	lostAt time.Time // when records were last found lost to retention
	lost   int64     // how many since the start

	guardedAt time.Time // when the loop guard last took a record

	retention atomic.Pointer[kafka.Retention] // nil: not known
}

// hasTail tells whether records may be copied to the end of the topic they are in.
func (in *inlet) hasTail() bool { return in.tier >= 0 }

// isInbox tells whether records arrive here from consumers.
func (in *inlet) isInbox() bool { return in.tier == inbox || in.tier == retiredInbox }

// route is one entry of topics.yaml as the topics it writes.
type route struct {
	policy      *tiers.Policy
	group       string
	partitioner kafka.Partitioner
	origin      *outlet
	tiers       []*outlet
	deadLetters *outlet
	pace        pace // the loop's
}

// outlet is a topic that is written.
type outlet struct {
	topic   string
	targets []*target
	rules   atomic.Pointer[rules]
}

// rules are what a topic refuses, as far as its settings tell.
type rules struct {
	maxBytes  int32 // max.message.bytes
	minInsync int   // min.insync.replicas; 0: not known
	compacted bool  // a record without a key is refused
	learned   time.Time
}

// target is one partition of an outlet. The loop owns it.
type target struct {
	outlet    *outlet
	partition int32
	records   int
	bytes     int64
	solo      bool      // a record that is judged alone is under way
	waiters   []*source // sources whose next record waits for room, or for solo
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
			outlets[topic].rules.Store(&rules{maxBytes: defaultMaxMessageBytes})
			f.outlets = append(f.outlets, outlets[topic])
		}
		return outlets[topic]
	}
	for _, t := range f.opts.Topics {
		p := t.Policy
		r := &route{policy: p, group: t.Group, partitioner: t.Partitioner}
		r.pace.Pace = Pace{Paused: t.Paused, RateLimit: t.RateLimit}
		r.partitioner = cmp.Or(r.partitioner, kafka.Murmur2)
		maxHeld := t.MaxHeldBytesPerPartition
		maxHeld = cmp.Or(maxHeld, f.opts.MaxHeldBytesPerPartition)
		r.origin = outletOf(p.ReturnTo())
		r.deadLetters = outletOf(p.DeadLetters())
		f.ladders = append(f.ladders, r)
		read := []*inlet{{topic: p.Inbox(), tier: inbox, route: r, maxHeld: maxHeld}}
		for i := range p.Tiers() {
			topic := p.Tier(i).Topic
			r.tiers = append(r.tiers, outletOf(topic))
			read = append(read, &inlet{topic: topic, tier: i, route: r, maxHeld: maxHeld})
		}
		for _, in := range read {
			if f.routes[in.topic] != nil {
				return fmt.Errorf("forwarder: topic %s is read for two purposes", in.topic)
			}
			f.routes[in.topic] = in
			f.metrics.add(in, r)
		}
	}
	return nil
}

// decide says what becomes of a record, and fills in e what its next topic
// must read.
func (in *inlet) decide(e *envelope.Envelope, r *record, now int64, random func() float64) tiers.Step {
	switch in.tier {
	case inbox, retiredInbox:
		return r.route.policy.FromInbox(e, r.arrivedAt(), at(now), random)
	case retiredTier:
		return r.route.policy.FromRetired(e, r.arrivedAt(), at(now))
	default:
		return r.route.policy.FromTier(in.tier, e, r.arrivedAt(), at(now))
	}
}

// identify gives a record what it lacks of a name and an origin, before it is
// written anywhere.
func (s *source) identify(r *record, e *envelope.Envelope) {
	e.EnsureMessageID(s.inlet.topic, s.partition, r.rec.Offset)
	if e.OriginalTopic == nil {
		e.SetOriginal(r.route.policy.Origin(), e.OriginalPartition, e.OriginalOffset, e.OriginalTimestamp)
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

// defaultMaxMessageBytes is Kafka's default of max.message.bytes.
const defaultMaxMessageBytes = 1048588

// maxBatch is how many bytes the producer may put into one batch for a topic.
// The client must not build a batch that the broker refuses, because all of its
// records would fail with it.
func (f *Forwarder) maxBatch(topic string) int32 {
	for _, o := range f.outlets {
		if o.topic == topic {
			return o.rules.Load().maxBytes
		}
	}
	return defaultMaxMessageBytes
}

// learnRules asks for the settings of the topics that are read and written. It blocks
// until the answer is there or ctx ends; without one the old ones hold.
func (f *Forwarder) learnRules(ctx context.Context) {
	names := map[string]*outlet{}
	for _, o := range f.outlets {
		names[o.topic] = o
	}
	f.metrics.mu.Lock()
	read := map[string]*inlet{}
	for _, in := range f.metrics.inlets {
		read[in.topic] = in
	}
	f.metrics.mu.Unlock()
	all := slices.AppendSeq(slices.Collect(maps.Keys(names)), maps.Keys(read))
	slices.Sort(all)
	configs, err := f.admin.DescribeTopicConfigs(ctx, slices.Compact(all)...)
	if err != nil {
		f.log.WarnContext(ctx, "the settings of the topics are not known, the last ones are assumed", "err", err)
		return
	}
	for _, c := range configs {
		read[c.Name].learn(&c)
		o := names[c.Name]
		if o == nil || c.Err != nil {
			continue
		}
		learned := rules{maxBytes: defaultMaxMessageBytes, learned: time.Now()}
		for _, entry := range c.Configs {
			value := entry.MaybeValue()
			switch entry.Key {
			case "max.message.bytes":
				if n, err := strconv.ParseInt(value, 10, 32); err == nil && n >= 512 {
					learned.maxBytes = int32(min(n, 1<<30))
				}
			case "min.insync.replicas":
				learned.minInsync, _ = strconv.Atoi(value) // Not known if it is no number.
			case "cleanup.policy":
				learned.compacted = strings.Contains(value, "compact")
			}
		}
		if old := o.rules.Swap(&learned); learned.maxBytes < old.maxBytes {
			// The client keeps the limit of when it first heard of a topic.
			f.producer.PurgeTopicsFromProducing(o.topic)
		}
	}
}
