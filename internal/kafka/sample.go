package kafka

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/issue"
)

// A sample is read from the ends of some partitions of an origin.
const (
	sampleRecords    = 640
	samplePartitions = 16
	// sampleKeys is how many keys a verdict needs. By chance alone a wrong
	// partitioner puts nine tenths of thirty keys where they are less than once in
	// 200,000 topics of two partitions, and more rarely with more partitions.
	sampleKeys = 30
	// sampleFit is the share of keys, in percent, that a partitioner must put where
	// they are. Not all of them: a topic has test records, and other producers.
	sampleFit = 90
)

// The verdicts beside the names of the partitioners.
const (
	// VerdictNone means that the producers choose partitions by none of the known
	// partitioners.
	VerdictNone = "none"
	// VerdictUnknown means that too few different keys were seen to say anything.
	VerdictUnknown = "unknown"
)

// Sample says how the latest records of an origin are partitioned.
type Sample struct {
	Origin     string `json:"origin"`
	Partitions int32  `json:"partitions"`
	// Records were read, Keyed of them have a key. Keys are the different pairs of
	// key and partition among these.
	Records int `json:"records"`
	Keyed   int `json:"keyed"`
	Keys    int `json:"keys"`
	// Fits says of how many Keys each partitioner names the partition.
	Fits map[Partitioner]int `json:"fits"`
	// Verdict is the partitioner that the keys fit, [VerdictNone] or
	// [VerdictUnknown].
	Verdict string `json:"verdict"`
}

func partitioners() []Partitioner { return []Partitioner{Murmur2, CRC32, FNV1a} }

// sampler collects a sample.
type sampler struct {
	Sample
	seed maphash.Seed
	seen map[uint64]bool // By a hash of key and partition: keys are not kept.
}

func newSampler(origin string, partitions int32) *sampler {
	return &sampler{
		Sample: Sample{Origin: origin, Partitions: partitions, Fits: map[Partitioner]int{}},
		seed:   maphash.MakeSeed(),
		seen:   make(map[uint64]bool),
	}
}

func (s *sampler) add(r *kgo.Record) {
	s.Records++
	// The default of librdkafka treats an empty key like none.
	if len(r.Key) == 0 {
		return
	}
	s.Keyed++
	hash := maphash.Bytes(s.seed, r.Key) ^ uint64(r.Partition)
	if s.seen[hash] {
		return
	}
	s.seen[hash] = true
	s.Keys++
	for _, p := range partitioners() {
		if p.Partition(r.Key, int(s.Partitions)) == int(r.Partition) {
			s.Fits[p]++
		}
	}
}

// judge returns the sample with its verdict.
func (s *sampler) judge() Sample {
	s.Verdict = VerdictUnknown
	if s.Keys < sampleKeys || s.Partitions < 2 {
		return s.Sample
	}
	s.Verdict = VerdictNone
	most := 0
	for _, p := range partitioners() {
		if fits := s.Fits[p]; fits > most && fits*100 >= s.Keys*sampleFit {
			s.Verdict, most = string(p), fits
		}
	}
	return s.Sample
}

// sampleOrigins reads from the origins that there are, and that this principal may
// read. Only the partition count of the moment counts: the latest records are by
// far most likely to be placed by it.
func (in cluster) sampleOrigins(ctx context.Context, ladders []Ladder) map[string]Sample {
	samplers := make(map[string]*sampler)
	var origins []string
	for _, l := range ladders {
		topic := in.topics[l.Origin]
		if samplers[l.Origin] != nil || topic.err != nil || topic.operations.denies(kmsg.ACLOperationRead) {
			continue
		}
		samplers[l.Origin] = newSampler(l.Origin, topic.count())
		if topic.count() > 1 { // Any partitioner fits one partition.
			origins = append(origins, l.Origin)
		}
	}
	count := func(topic string, partition int32) int64 {
		partitions := samplers[topic].Partitions
		if step := (partitions + samplePartitions - 1) / samplePartitions; partition%step != 0 {
			return 0
		}
		return sampleRecords / int64(min(partitions, samplePartitions))
	}
	readSpans(ctx, in.client, lastSpans(ctx, in.client, count, origins...), func(r *kgo.Record) {
		samplers[r.Topic].add(r)
	})
	samples := make(map[string]Sample, len(samplers))
	for origin, s := range samplers {
		samples[origin] = s.judge()
	}
	return samples
}

// samples puts the samples into the plan and tells of settings that do not fit.
func (in cluster) samples(plan *Plan, ladders []Ladder) {
	listed := make(map[string]bool)
	told := make(map[string]bool)
	for _, l := range ladders {
		s, ok := plan.Survey.samples[l.Origin]
		if !ok {
			continue
		}
		if !listed[l.Origin] {
			listed[l.Origin] = true
			plan.Samples = append(plan.Samples, s)
		}
		setting := string(l.Partitioner)
		if setting == "" || s.Verdict == VerdictUnknown || s.Verdict == setting || told[l.Origin+" "+setting] {
			continue
		}
		told[l.Origin+" "+setting] = true
		if s.Verdict == VerdictNone {
			plan.add(problem(issue.PartitionerMismatch, l.Origin,
				"No setting fits: do not add partitions to the origin while records of it wait, and have consumers set redrive-original-partition.",
				"Of %d keys on the origin the partitioner %s puts %d where they are, and no known one fits nine tenths of them (%s): where only the key can tell, a record returns to another partition than its producer uses.", s.Keys, setting, s.Fits[l.Partitioner], s.figures()))
			continue
		}
		plan.add(problem(issue.PartitionerMismatch, l.Origin,
			fmt.Sprintf("Set partitioner: %s for the origin in topics.yaml.", s.Verdict),
			"Of %d keys on the origin the partitioner %s puts %d where they are, and %s %d: where only the key can tell, a record returns to another partition than its producer uses.", s.Keys, setting, s.Fits[l.Partitioner], s.Verdict, s.Fits[Partitioner(s.Verdict)]))
	}
}

// figures is one text of what fits, for people.
func (s Sample) figures() string {
	var parts []string
	for _, p := range partitioners() {
		parts = append(parts, fmt.Sprintf("%s %d", p, s.Fits[p]))
	}
	return strings.Join(parts, ", ")
}
