package fault

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// forwarderUser is who the forwarder is on a guarded cluster.
const (
	forwarderUser     = "forwarder"
	forwarderPassword = "of-the-forwarder"
)

// GuardedOptions are those of a cluster that asks the forwarder who it is (SASL PLAIN) and lets it do what ACLs allow.
func GuardedOptions() testkit.KafkaOptions {
	return testkit.KafkaOptions{Secure: &testkit.Secure{
		Protocol: "SASL_PLAINTEXT",
		Users:    map[string]string{forwarderUser: forwarderPassword},
	}}
}

func accessFaults() []Fault {
	return []Fault{
		{
			Name: "acl-missing", What: "the forwarder may not write to the origin, read the tier, be in its group", Cluster: Guarded,
			stage: stage{neighbour: true},
			play:  aclMissing,
		},
		{
			Name: "letters-refused", What: "the dead letters may not be written, then are not there", Cluster: Guarded,
			stage: stage{neighbour: true},
			play:  lettersRefused,
		},
	}
}

// grant is one thing that the forwarder may do.
type grant struct {
	group bool
	name  string
	op    kadm.ACLOperation
}

func (g grant) rule() *kadm.ACLBuilder {
	b := kadm.NewACLs().Allow("User:" + forwarderUser).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(g.op)
	if g.group {
		return b.Groups(g.name)
	}
	return b.Topics(g.name)
}

func (s *scene) allow(grants ...grant) {
	for _, g := range grants {
		answers, err := s.client.Admin().CreateACLs(s.ctx, g.rule())
		for _, a := range answers {
			err = errors.Join(err, a.Err)
		}
		if err != nil {
			s.failf("allow %+v: %w", g, err)
		}
	}
}

func (s *scene) forbid(grants ...grant) {
	for _, g := range grants {
		answers, err := s.client.Admin().DeleteACLs(s.ctx, g.rule())
		for _, a := range answers {
			if err = errors.Join(err, a.Err); err == nil && len(a.Deleted) != 1 {
				err = fmt.Errorf("%d rules were there", len(a.Deleted))
			}
		}
		if err != nil {
			s.failf("forbid %+v: %w", g, err)
		}
	}
}

// allowAll gives the forwarder what it needs, and no more.
func (s *scene) allowAll() {
	s.allow(grant{group: true, name: s.group, op: kadm.OpRead}, grant{group: true, name: s.group + ".decisions", op: kadm.OpRead})
	for _, l := range s.ladders() {
		for topic, rank := range l.ranks() {
			s.allow(grant{name: topic, op: kadm.OpDescribe}, grant{name: topic, op: kadm.OpDescribeConfigs})
			if rank == handedOver || rank == waiting {
				s.allow(grant{name: topic, op: kadm.OpRead})
			}
			if rank != handedOver {
				s.allow(grant{name: topic, op: kadm.OpWrite})
			}
		}
	}
}

// aclMissing takes one right after the other away and gives it back.
func aclMissing(s *scene) {
	s.allowAll()
	p := s.start()
	n := s.several(500, 40)
	refused := issues("", "acl-missing", "partition-frozen", "produce-refused", "fetch-failed", "group-unstable", "commit-refused")

	write := grant{name: s.origin, op: kadm.OpWrite}
	s.forbid(write)
	s.hand(s.some(s.ladder, n)...)
	p.see(refused)
	beside := s.some(s.neighbour, n)
	s.hand(beside...)
	s.awaitBack(s.neighbour, len(beside))
	s.allow(write)
	s.recovers()
	if letters := s.count(s.deadLetters()); letters > 0 {
		s.wrongf("%d records are in the dead letters because a right was missing", letters)
	}

	rights := []grant{{name: s.tier(), op: kadm.OpRead}}
	if !s.quick {
		rights = append(rights, grant{group: true, name: s.group, op: kadm.OpRead})
	}
	for _, right := range rights {
		s.forbid(right)
		s.hand(s.some(s.ladder, n)...)
		p.see(refused)
		s.allow(right)
		s.recovers()
	}
	if !s.quick {
		s.allWrites(p, n, refused)
	}
}

// allWrites takes every right to write at once, which a producer with idempotence may not survive.
func (s *scene) allWrites(p *process, n int, refused sign) {
	var writes []grant
	for _, l := range s.ladders() {
		for topic, rank := range l.ranks() {
			if rank != handedOver {
				writes = append(writes, grant{name: topic, op: kadm.OpWrite})
			}
		}
	}
	s.forbid(writes...)
	s.hand(s.some(s.ladder, n)...)
	p.see(refused)
	s.allow(writes...)
	s.recovers()
}

// lettersRefused has dead letters that can not be written: their offsets are not passed, all else goes on, and it shows.
func lettersRefused(s *scene) {
	s.allowAll()
	p := s.start()
	n := s.several(200, 20)
	write := grant{name: s.deadLetters(), op: kadm.OpWrite}
	for _, refuse := range []struct{ do, undo func() }{
		{func() { s.forbid(write) }, func() { s.allow(write) }},
		{func() { s.deleteTopic(s.deadLetters()) }, func() { s.must("topics", "apply", "-c", s.operator) }},
	} {
		refuse.do()
		back, beside := s.count(s.origin), s.count(s.neighbour.origin)
		dead := s.some(s.ladder, n)
		for _, r := range dead {
			r.Key = dead[0].Key // All in one partition.
			with(r, "redrive-action", "dead")
		}
		s.hand(dead...)
		p.see(issues("", "acl-missing", "topic-missing", "partition-frozen", "produce-refused"))
		mates := s.some(s.ladder, 4*n)
		s.hand(mates...)
		for _, r := range mates {
			if r.Partition != dead[0].Partition {
				back++
			}
		}
		s.hand(s.some(s.neighbour, n)...)
		s.awaitBack(s.ladder, int(back))
		s.awaitBack(s.neighbour, int(beside)+n)
		if o, _ := s.commits().Lookup(dead[0].Topic, dead[0].Partition); o.At > dead[0].Offset {
			s.wrongf("the commit of %s/%d went to %d, past a letter that is nowhere", s.short(dead[0].Topic), dead[0].Partition, o.At)
		}
		refuse.undo()
		s.recovers()
	}
}
