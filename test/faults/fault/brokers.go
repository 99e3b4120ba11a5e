package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

func brokerFaults() []Fault {
	return []Fault{
		{
			Name: "disk-full-alone", What: "the disk of the only broker is full, and it stops",
			stage: stage{delay: "5s"},
			play:  diskFullAlone,
		},
		{
			Name: "leaders-moved", What: "all leaders move, again and again", Cluster: Three,
			stage: stage{partitions: 6},
			play:  leadersMoved,
		},
		{
			Name: "coordinator-lost", What: "the broker that coordinates the group dies", Cluster: Three,
			stage: stage{forwarder: "sessionTimeout: 10s"},
			play:  coordinatorLost,
		},
		{
			Name: "min-isr", What: "too few replicas are in sync", Cluster: Three,
			stage: stage{partitions: 2, delay: "5s", settings: map[string]string{"min.insync.replicas": "3"}},
			play:  minISR,
		},
		{
			Name: "disk-full", What: "the disk of one of three brokers is full, and it stops", Cluster: Three,
			play: diskFull,
		},
	}
}

// leadersMoved turns the order of the replicas of every partition around, so that another one leads, under load.
func leadersMoved(s *scene) {
	p := s.start()
	stop := s.load(s.several(500, 200))
	topics := append(s.sources(), s.origin, s.deadLetters())
	for range s.several(6, 2) {
		s.pause(time.Second)
		s.moveLeaders(topics)
	}
	s.pause(time.Second)
	stop()
	s.recovers()
	// It lasts for a moment each time: what shows is by how much the moved ones are late.
	count := p.reading("redrive_forward_lateness_seconds_count", label("source", s.tier()))
	inTime := p.reading("redrive_forward_lateness_seconds_bucket", label("source", s.tier()), label("le", "0.05"))
	late := p.reading("redrive_forward_lateness_seconds_bucket", label("source", s.tier()), label("le", "10"))
	s.seen(fmt.Sprintf("redrive_forward_lateness_seconds above 0.05: %v of %v", count-inTime, count))
	if late < count {
		s.wrongf("%v records were more than 10 s late", count-late)
	}
}

func (s *scene) moveLeaders(topics []string) {
	admin := s.client.Admin()
	details, err := admin.ListTopics(s.ctx, topics...)
	if err == nil {
		err = details.Error()
	}
	s.check(err)
	var order kadm.AlterPartitionAssignmentsReq
	var all kadm.TopicsSet
	leaders := map[string]map[int32]int32{}
	details.EachPartition(func(p kadm.PartitionDetail) {
		at := slices.Index(p.Replicas, p.Leader)
		replicas := slices.Concat(p.Replicas[at+1:], p.Replicas[:at+1])
		order.Assign(p.Topic, p.Partition, replicas)
		all.Add(p.Topic, p.Partition)
		if leaders[p.Topic] == nil {
			leaders[p.Topic] = map[int32]int32{}
		}
		leaders[p.Topic][p.Partition] = replicas[0]
	})
	answers, err := admin.AlterPartitionAssignments(s.ctx, order)
	if err == nil {
		err = answers.Error()
	}
	s.check(err)
	s.await("other leaders", func(ctx context.Context) error {
		if _, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, all); err != nil {
			return err
		}
		details, err := admin.ListTopics(ctx, topics...)
		if err != nil {
			return err
		}
		var other error
		details.EachPartition(func(p kadm.PartitionDetail) {
			if p.Leader != leaders[p.Topic][p.Partition] {
				other = fmt.Errorf("%s/%d is led by %d", p.Topic, p.Partition, p.Leader)
			}
		})
		return other
	})
}

// goOnLimit is within what time the forwarder must go on after one of three brokers is gone: the brokers themselves take
// three seconds to notice.
const goOnLimit = 20 * time.Second

// coordinatorLost kills the coordinator under load. The forwarder must not wait for it to come back.
func coordinatorLost(s *scene) {
	p := s.start()
	for range s.several(3, 1) {
		stop := s.load(s.several(300, 100))
		s.awaitMoving()
		broker := s.coordinator()
		s.say("broker %d coordinates", broker)
		s.goesOn(p, func() { s.check(s.kafka.Kill(broker)) },
			issues("", "commit-refused"), issues("", "group-unstable"), issues("", "produce-stalled", "fetch-failed"),
			p.rises("redrive_commit_errors_total"), p.rises("redrive_rebalances_total", label("type", "lost")),
			atLeast(1, "redrive_in_flight_age_seconds"), p.slowCommits())
		stop()
		s.check(s.kafka.Start(s.ctx, broker))
		s.recovers()
		s.awaitInSync()
	}
	s.result.Allowed = s.unfenced()
}

// unfenced is how many duplicates are allowed where a member loses its partitions under load: what was on its way is sent
// again by the next owner, which nothing but transactions would fence.
func (s *scene) unfenced() int { return len(s.acked) / 10 }

// goesOn does the fault and waits until what is handed over after it comes back and is committed, although it lasts. Signs
// are what shows it meanwhile.
func (s *scene) goesOn(p *process, do func(), signs ...sign) {
	end := p.during(signs...)
	do()
	began := time.Now()
	marks := s.some(s.ladder, 40)
	s.hand(marks...)
	s.awaitCommitted(marks[0].Topic, func() map[int32]int64 {
		ends := map[int32]int64{}
		for _, r := range marks {
			ends[r.Partition] = max(ends[r.Partition], r.Offset+1)
		}
		return ends
	}())
	s.awaitCommitted(s.tier(), s.ends(s.tier()))
	took := time.Since(began)
	end()
	s.seen(fmt.Sprintf("it went on after %.1f s", took.Seconds()))
	if took > goOnLimit+s.wait() {
		s.wrongf("it took %v to go on", took.Round(time.Second))
	}
}

// awaitCommitted waits until the commits on a topic have reached the offsets.
func (s *scene) awaitCommitted(topic string, offsets map[int32]int64) {
	s.await("commits on "+topic, func(ctx context.Context) error {
		commits, err := s.client.CommittedOffsets(ctx, s.group)
		if err != nil {
			return err
		}
		for _, partition := range slices.Sorted(maps.Keys(offsets)) {
			if o, _ := commits.Lookup(topic, partition); o.At < offsets[partition] {
				return fmt.Errorf("partition %d stands at %d of %d", partition, o.At, offsets[partition])
			}
		}
		return nil
	})
}

// awaitMoving waits until records come back.
func (s *scene) awaitMoving() {
	before := s.count(s.origin)
	s.await("records to come back", func(ctx context.Context) error {
		ends, err := s.client.EndOffsets(ctx, s.origin)
		if err != nil {
			return err
		}
		now := int64(0)
		for _, end := range ends {
			now += end
		}
		if now == before {
			return errors.New("none does")
		}
		return nil
	})
}

// coordinator is the broker that coordinates the group.
func (s *scene) coordinator() int {
	broker := 0
	s.await("the coordinator", func(ctx context.Context) error {
		answers := s.client.Admin().FindGroupCoordinators(ctx, s.group)
		if err := answers.Error(); err != nil {
			return err
		}
		broker = int(answers[s.group].NodeID)
		return nil
	})
	return broker
}

// awaitInSync waits until every replica is in sync: another broker may go then.
func (s *scene) awaitInSync() {
	s.await("all replicas to be in sync", func(ctx context.Context) error { return s.client.InSync(ctx) })
}

// minISR takes away the replica without which the topics take no write.
func minISR(s *scene) {
	s.awaitInSync()
	p := s.start()
	waits := s.several(1000, 100)
	s.hand(s.some(s.ladder, waits)...)
	p.awaitHeld(s.tier(), waits)
	s.check(s.kafka.Kill(3))
	if at := s.committed(s.tier()); at != 0 {
		s.failf("%d records were due before the broker was killed: the machine is too slow for this scene", at)
	}
	p.see(issues("", "min-isr"))
	if at := s.committed(s.tier()); at != 0 {
		s.wrongf("the commits of the tier went to %d while no copy could be written", at)
	}
	if letters := s.count(s.deadLetters()); letters > 0 {
		s.wrongf("%d records are in the dead letters because a broker is missing", letters)
	}
	s.check(s.kafka.Start(s.ctx, 3))
	s.recovers()
}

// diskFull lets one of three brokers run out of disk under load. It gives up by itself, and the others go on.
func diskFull(s *scene) {
	s.awaitInSync()
	p := s.start()
	stop := s.load(s.several(300, 100))
	s.awaitMoving()
	// Not the coordinator, which has a fault of its own.
	broker := s.coordinator()%3 + 1
	s.goesOn(p, func() { s.fillDisk(broker) },
		issues("", "produce-stalled", "fetch-failed", "partition-frozen", "commit-refused"),
		atLeast(1, "redrive_in_flight_age_seconds"), p.rises("redrive_produce_errors_total"))
	stop()
	s.check(s.kafka.Start(s.ctx, broker))
	s.recovers()
	s.awaitInSync()
	s.result.Allowed = s.unfenced()
}

// diskFullAlone leaves no broker at all, until there is room again and it is started.
func diskFullAlone(s *scene) {
	p := s.start()
	waits := s.several(1000, 100)
	s.hand(s.some(s.ladder, waits)...)
	p.awaitHeld(s.tier(), waits)
	s.fillDisk(1)
	p.see(issues("", "no-broker", "produce-stalled", "partition-frozen"), sign{"brokers check of readyz", func(ctx context.Context, p *process) (string, error) {
		r, err := p.ready(ctx)
		if err != nil || r.OK {
			return "", err
		}
		return "readyz fails", nil
	}})
	s.check(s.kafka.Start(s.ctx, 1))
	s.recovers()
	s.result.Allowed = waits // What was sent and not acknowledged in time may be there twice.
}

// fillDisk lets no file of a broker grow any more, and returns when it has given up.
func (s *scene) fillDisk(broker int) {
	s.check(s.kafka.LimitFiles(broker, 1))
	s.await(fmt.Sprintf("broker %d to stop", broker), func(context.Context) error {
		if s.kafka.Running(broker) {
			return errors.New("it runs")
		}
		return nil
	})
}
