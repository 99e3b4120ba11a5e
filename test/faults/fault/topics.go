package fault

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

func topicFaults() []Fault {
	return []Fault{
		{
			Name: "destination-missing", What: "the origin is not there",
			stage: stage{neighbour: true},
			play:  destinationMissing,
		},
		{
			Name: "topic-blocked", What: "all of one topic is blocked and fills the memory",
			stage: stage{neighbour: true, forwarder: "maxHeldBytes: 2MiB, maxHeldBytesPerPartition: 1MiB"},
			play:  topicBlocked,
		},
		{
			Name: "origin-recreated", What: "the origin is deleted and made again",
			stage: stage{delay: "5s"},
			play:  originRecreated,
		},
		{
			Name: "tier-recreated", What: "a tier is deleted and made again while records of it are held",
			stage: stage{delay: "8s"},
			play:  tierRecreated,
		},
		{
			Name: "partitions-added", What: "the origin and the tier grow while records wait", Waits: true,
			play: partitionsAdded,
		},
		{
			Name: "retention-too-short", What: "nobody runs for longer than a tier keeps its records", Waits: true,
			stage: stage{partitions: 2},
			play:  retentionTooShort,
		},
	}
}

// destinationMissing holds up what goes to the missing topic, and nothing else.
func destinationMissing(s *scene) {
	s.deleteTopic(s.origin)
	p := s.start()
	s.hand(s.some(s.ladder, s.several(1000, 40))...)
	p.see(issues("", "topic-missing", "partition-frozen", "origin-missing"))
	beside := s.some(s.neighbour, 40)
	s.hand(beside...)
	s.awaitBack(s.neighbour, len(beside))
	if letters := s.count(s.deadLetters()); letters > 0 {
		s.wrongf("%d records are in the dead letters because their origin is missing", letters)
	}
	s.createOrigin()
	s.recovers()
}

// awaitBack waits until so many records stand on the origin of a ladder.
func (s *scene) awaitBack(l *ladder, n int) {
	s.await(fmt.Sprintf("%d records on %s", n, s.short(l.origin)), func(ctx context.Context) error {
		ends, err := s.client.EndOffsets(ctx, l.origin)
		if err != nil {
			return err
		}
		have := int64(0)
		for _, end := range ends {
			have += end
		}
		if have < int64(n) {
			return fmt.Errorf("%d are there", have)
		}
		return nil
	})
}

// topicBlocked compares by how much the records of the neighbour are late before and while nothing of the first topic can
// go anywhere.
func topicBlocked(s *scene) {
	p := s.start()
	before := s.lateness(s.several(3000, 300))
	s.deleteTopic(s.origin)
	const size = 2000
	blocked := make([]*kgo.Record, s.several(10_000, 2500))
	for i := range blocked {
		blocked[i] = s.record(size)
	}
	s.hand(blocked...)
	p.see(issues("", "topic-missing", "partition-frozen", "origin-missing"))
	p.see(atLeast(1, "redrive_paused_partitions"))
	during := s.lateness(s.several(3000, 300))
	s.seen(fmt.Sprintf("the others are late by %v (p99), before by %v", during, before))
	if during > 500*time.Millisecond && during > before*3/2 {
		s.wrongf("the others are late by %v (p99), before by %v", during, before)
	}
	s.createOrigin()
	s.recovers()
}

// lateness hands failures over to the neighbour at a steady rate, and returns by how much the slowest one of a hundred was
// late, by the stamps of the broker.
func (s *scene) lateness(n int) time.Duration {
	records := s.some(s.neighbour, n)
	back := s.count(s.neighbour.origin) + int64(n)
	for part := range slices.Chunk(records, max(1, n/100)) {
		s.hand(part...)
		s.pause(30 * time.Millisecond)
	}
	s.awaitBack(s.neighbour, int(back))
	h := history{}
	for topic, rank := range s.neighbour.ranks() {
		all, err := s.client.ReadAll(s.ctx, topic, kgo.ReadUncommitted())
		s.check(err)
		h.add(topic, rank, all)
	}
	var late []time.Duration
	for _, r := range records {
		var due, written time.Time
		for _, c := range h[string(r.Value)] {
			switch c.rank {
			case waiting:
				due = c.due
			case settled:
				written = c.written
			default:
			}
		}
		late = append(late, written.Sub(due))
	}
	slices.Sort(late)
	return late[len(late)*99/100].Round(time.Millisecond)
}

// originRecreated has records come due while the topic is not there. Some had gone to the first one of that name.
func originRecreated(s *scene) {
	p := s.start()
	s.hand(s.some(s.ladder, 20)...)
	s.awaitDrained()
	waits := s.several(1000, 40)
	s.hand(s.some(s.ladder, waits)...)
	p.awaitHeld(s.tier(), waits)
	s.deleteTopic(s.origin)
	p.see(issues("", "topic-missing", "topic-recreated", "partition-frozen", "origin-missing"))
	s.createOrigin()
	s.recovers()
}

// tierRecreated deletes a tier of which all is in memory: that is the last copy. What is handed over next waits in the inbox
// for the tier to come back.
func tierRecreated(s *scene) {
	p := s.start()
	waits := s.several(1000, 40)
	s.hand(s.some(s.ladder, waits)...)
	p.awaitHeld(s.tier(), waits)
	s.deleteTopic(s.tier())
	s.hand(s.some(s.ladder, s.several(1000, 40))...)
	p.see(issues("", "topic-missing", "topic-recreated", "fetch-failed", "partition-frozen"))
	s.must("topics", "apply", "-c", s.operator)
	s.recovers()
}

// partitionsAdded checks that a key returns to the partition where its producer writes now, and that new partitions of a
// tier are read from their start.
func partitionsAdded(s *scene) {
	p := s.start()
	s.hand(s.some(s.ladder, 40)...)
	s.awaitDrained()

	grown := 2 * s.partitions
	if _, err := s.client.Admin().UpdatePartitions(s.ctx, int(grown), s.origin); err != nil {
		s.failf("grow %s: %w", s.origin, err)
	}
	if !s.quick {
		p.seeWithin(patience, issues("", "fewer-partitions")) // Of the topics below it, at the next look a minute apart.
	}
	s.must("topics", "apply", "-c", s.operator)
	p.see(atLeast(float64(grown), "redrive_assigned_partitions", label("topic", s.tier())))
	p.awaitOwned(int(grown) * len(s.sources()))
	fresh, err := testkit.NewClient(s.kafka.Brokers()) // It knows of the new partitions.
	s.check(err)
	defer fresh.Close()
	// They failed on the origin as it was, and would be wrong in the partition of that time.
	records := s.later(s.several(1000, 100), time.Second, 0)
	for _, r := range records {
		with(r, "redrive-original-topic", s.origin)
		with(r, "redrive-original-partition", strconv.Itoa(kafka.Murmur2.Partition(r.Key, int(s.partitions))))
		with(r, "redrive-original-partitions", strconv.Itoa(int(s.partitions)))
	}
	s.handBy(fresh, records...)
	s.recovers()

	values := map[string]bool{}
	for _, r := range records {
		values[string(r.Value)] = true
	}
	back, err := s.client.ReadAll(s.ctx, s.origin, kgo.ReadUncommitted())
	s.check(err)
	wrong := 0
	for _, r := range back {
		if values[string(r.Value)] && r.Partition != int32(kafka.Murmur2.Partition(r.Key, int(grown))) {
			wrong++
		}
	}
	if wrong > 0 {
		s.wrongf("%d of %d records are not in the partition that their key has now", wrong, len(records))
	}
	used := int64(0)
	for partition, end := range s.ends(s.tier()) {
		if partition >= s.partitions {
			used += end
		}
	}
	if used == 0 {
		s.wrongf("no record was written to the new partitions of the tier: they were not tried")
	}
}

// retentionTooShort has real retention remove what nobody was there to read. The start warns of such a topic, and the
// next run tells how much is gone.
func retentionTooShort(s *scene) {
	p := s.start()
	s.hand(s.some(s.ladder, 20)...)
	s.awaitDrained()
	p.stop()
	// Longer than the wait, or the forwarder would not start at all; and no outage is allowed for.
	s.set("retention.ms", "3000", s.tier())
	s.set("segment.ms", "1000", s.tier())
	lost := s.several(1000, 40)
	s.hand(s.later(lost, 0, 0)...)
	s.keep(s.tier())
	s.await("retention to remove the records", func(ctx context.Context) error {
		starts, err := s.client.Admin().ListStartOffsets(ctx, s.tier())
		if err != nil {
			return err
		}
		for partition, end := range s.ends(s.tier()) {
			if o, _ := starts.Lookup(s.tier(), partition); o.Offset < end {
				return fmt.Errorf("%s/%d begins at %d and ends at %d", s.short(s.tier()), partition, o.Offset, end)
			}
		}
		return nil
	})

	p = s.start()
	s.seeLoss(p)
	s.set("retention.ms", "604800000", s.tier())
	s.decide(p, s.tier())
	s.hand(s.some(s.ladder, 20)...)
	s.recovers()
	if s.result.Told != lost {
		s.wrongf("%d records are counted as lost, want %d", s.result.Told, lost)
	}
}
