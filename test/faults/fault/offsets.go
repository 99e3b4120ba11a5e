package fault

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
)

func offsetFaults() []Fault {
	return []Fault{
		{
			Name: "offset-missing", What: "the group's commits are gone, as when they expire", Waits: true,
			stage: stage{partitions: 2},
			play:  offsetMissing,
		},
		{
			Name: "offset-out-of-range", What: "the commit stands beyond the end of the topic", Waits: true,
			stage: stage{partitions: 2},
			play:  offsetOutOfRange,
		},
		{
			Name: "lost-to-retention", What: "retention overtakes records that wait to be read",
			stage: stage{partitions: 1, delay: "6s", forwarder: "maxHeldBytesPerPartition: 64KiB"},
			play:  lostToRetention,
		},
	}
}

// offsetMissing deletes the group, which leaves what the expiry of its commits leaves.
func offsetMissing(s *scene) {
	p := s.start()
	s.hand(s.some(s.ladder, s.several(1000, 40))...)
	s.awaitDrained()
	p.stop()
	// The topics are older than the group now: where it should begin can not be told from them.
	for _, topic := range s.sources() {
		s.trim(topic, s.ends(topic))
	}
	waits := s.several(1000, 40)
	s.hand(s.later(waits, 0, 0)...)
	before := s.count(s.origin)
	if _, err := s.client.Admin().DeleteGroup(s.ctx, s.group); err != nil {
		s.failf("delete the group: %w", err)
	}

	p = s.start()
	p.see(issues(s.tier(), "offset-missing"))
	if now := s.count(s.origin); now != before {
		s.wrongf("%d records were sent before anybody decided where to begin", now-before)
	}
	s.must("offsets", "set", "-c", s.operator, "--topic", s.tier(), "--to", "earliest")
	s.recovers()
}

// offsetOutOfRange commits where the topic has no records.
func offsetOutOfRange(s *scene) {
	p := s.start()
	s.hand(s.some(s.ladder, 40)...)
	s.awaitDrained()
	p.stop()
	right := s.commits()[s.tier()]
	s.hand(s.later(s.several(1000, 40), 0, 0)...)
	before := s.count(s.origin)

	s.watch.shut() // What this commit covers is not there at all.
	var wrong kadm.Offsets
	for partition, end := range s.ends(s.tier()) {
		wrong.AddOffset(s.tier(), partition, end+1000, -1)
	}
	if err := s.client.Admin().CommitAllOffsets(s.ctx, s.group, wrong); err != nil {
		s.failf("commit beyond the end: %w", err)
	}
	p = s.start()
	p.see(issues(s.tier(), "offset-out-of-range"))
	if now := s.count(s.origin); now != before {
		s.wrongf("%d records were sent before anybody decided where to go on", now-before)
	}
	for partition, o := range right {
		s.must("offsets", "set", "-c", s.operator, "--topic", s.tier(), "--partition", strconv.Itoa(int(partition)), "--to", strconv.FormatInt(o.At, 10), "--yes")
	}
	s.watch.open()
	s.recovers()
}

// lostToRetention removes records that the forwarder has not read yet, because its memory is full.
func lostToRetention(s *scene) {
	const n, lost = 300, 60
	p := s.start()
	records := s.later(n, s.wait(), 0)
	for i := range records {
		large := s.record(4 << 10)
		records[i].Value = large.Value
	}
	s.handInBatches(10, records...) // A batch is read as a whole.
	p.awaitMetric(1, "redrive_paused_partitions", label("topic", s.tier()))
	read := int64(p.reading("redrive_held_records", label("topic", s.tier())))
	if read > n-2*lost {
		s.failf("%d of %d records are in memory: the fault needs more of them on the topic", read, n)
	}
	s.trim(s.tier(), map[int32]int64{0: read + lost})

	s.seeLoss(p)
	s.decide(p, s.tier())
	s.recovers()
	if s.result.Told != lost {
		s.wrongf("%d records are counted as lost, want %d", s.result.Told, lost)
	}
}

// seeLoss waits until the loss of records of the tier is counted and told.
func (s *scene) seeLoss(p *process) {
	p.see(sign{"redrive_records_lost_total", func(ctx context.Context, p *process) (string, error) {
		count, err := p.metric(ctx, "redrive_records_lost_total", label("source", s.tier()))
		if err != nil || count == 0 {
			return "", err
		}
		s.result.Told = int(count)
		return fmt.Sprintf("redrive_records_lost_total %v", count), nil
	}})
	p.see(issues(s.tier(), "lost-to-retention", "offset-out-of-range"))
}

// decide has a partition that waits for an operator go on with what is left of it.
func (s *scene) decide(p *process, topic string) {
	r, err := p.ready(s.ctx)
	s.check(err)
	for _, i := range r.Issues {
		if i.Topic == topic && (i.code() == "offset-missing" || i.code() == "offset-out-of-range") {
			s.must("offsets", "set", "-c", s.operator, "--topic", topic, "--to", "earliest")
			return
		}
	}
}
