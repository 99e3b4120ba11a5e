package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kafka-redrive/redrive/internal/ordering"
)

// Moments of the synthetic histories, in Unix milliseconds.
const (
	start   = int64(1_700_000_000_000)
	kill    = start + 500
	revived = start + 700
	second  = int64(1000)
)

// story is a history under construction: everything went well, until a test breaks it.
type story struct {
	*history
	t *testing.T
}

// newStory returns a story without records. No record of the seed asks for a wait of its own in a plain ladder.
func newStory(t *testing.T, waits string) *story {
	t.Helper()
	all, err := ladders(waits, 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{seed: 1, partitions: partitions, ladders: all}
	return &story{t: t, history: &history{work: w, table: w.topics(), covered: newCoverage(), maxUncommitted: 10}}
}

// find returns the first record from id on whose plan fits. Those below it exist as well.
func (s *story) find(fits func(*plan) bool) uint32 {
	s.t.Helper()
	for id := range uint32(100_000) {
		if p := s.work.plan(id); fits(&p) {
			return id
		}
	}
	s.t.Fatal("no record of the seed has such a plan")
	return 0
}

func simple(p *plan) bool {
	return p.failures == 1 && p.fate == returned && !p.named && p.positioned && p.entrance == viaInbox && p.wishes[1].kind == noWish
}

// liveUntil makes all go well for every record up to id.
func (s *story) liveUntil(id uint32) {
	for i := s.produced; i <= id; i++ {
		s.live(i)
	}
	s.produced = id + 1
}

// live adds the entries of a record for which everything goes as planned, and covers them by commits.
func (s *story) live(id uint32) {
	p := s.work.plan(id)
	name := hashOf(positionName(s.work.ladders[p.ladder].name, p.partition, int64(id)))
	partition := p.partition
	if !p.positioned {
		partition = 0
	}
	offset := int64(id) * 10
	ladder := s.work.ladders[p.ladder]
	inbox, letters, origin := s.at(roleInbox, 0, p.ladder), s.at(roleLetters, 0, p.ladder), s.at(roleOrigin, 0, p.ladder)
	now := start
	for n := 1; n <= p.failures; n++ {
		add := func(topic uint8, time, due int64, f fate) entry {
			if p.named {
				name = hashOf(givenName(id))
			}
			e := entry{id: id, topic: topic, partition: partition, offset: offset, time: time, due: due, attempt: uint8(n), fate: f, name: name}
			s.entries = append(s.entries, e)
			return e
		}
		offset++
		tier := min(n, len(ladder.tiers)) - 1
		wait := ladder.tiers[tier].delay.Milliseconds()
		waiting := s.at(roleTier, tier, p.ladder)
		if n == 1 && p.entrance != viaInbox {
			waiting = s.at(roleTier, 0, p.ladder)
			if !p.positioned && !p.named {
				name = hashOf(positionName(s.table[waiting].name, partition, offset))
			}
		} else {
			if n == 1 && !p.positioned && !p.named {
				name = hashOf(positionName(s.table[inbox].name, partition, offset))
			}
			due := int64(0)
			switch w := p.wishes[n]; w.kind {
			case wishInstant:
				wait = min(w.wait, ladder.maxDelay()).Milliseconds()
				due = now + w.wait.Milliseconds()
			case wishSeconds, wishDuration:
				wait = min(w.wait, ladder.maxDelay()).Milliseconds()
			case noWish:
			}
			e := add(inbox, now, due, returned)
			s.cover(e, now+10)
			if p.dead(n) {
				add(letters, now+5, 0, p.fate)
				return
			}
		}
		g := add(waiting, now+5, now+5+wait, returned)
		now += 5 + wait
		add(origin, now+1, 0, returned)
		s.cover(g, now+10)
		now += 20
	}
}

// at returns the topic of a role.
func (s *story) at(r role, tier, ladder int) uint8 {
	return uint8(slices.IndexFunc(s.table, func(t topicInfo) bool { return t.role == r && t.tier == tier && t.ladder == ladder }))
}

// cover notes a commit that covers exactly this entry.
func (s *story) cover(e entry, seen int64) {
	s.covered.observe(seen, e.topic, e.partition, 0, ordering.Ranges{{From: e.offset, To: e.offset + 1}})
}

// of returns the entries of a record's failure in topics of a role.
func (s *story) of(id uint32, attempt int, r role) []int {
	var found []int
	for i, e := range s.entries {
		if e.id == id && int(e.attempt) == attempt && s.table[e.topic].role == r {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		s.t.Fatalf("record %d has no such entry", id)
	}
	return found
}

func (s *story) drop(index int) { s.entries = slices.Delete(s.entries, index, index+1) }

func (s *story) uncover(e entry) { s.covered.topics[e.topic][e.partition].since[e.offset] = 0 }

// again adds a second copy of an entry.
func (s *story) again(index int, time int64) *entry {
	e := s.entries[index]
	e.offset, e.time = e.offset+5, time
	s.entries = append(s.entries, e)
	return &s.entries[len(s.entries)-1]
}

// counts are the findings that tests compare.
func counts(f *findings) map[string]int {
	all := map[string]int{
		"lost": f.lost, "early": f.early, "corrupt": f.corrupt, "commit_ahead": f.commitAhead, "id_changed": f.idChanged,
		"misrouted": f.misrouted, "duplicate": f.duplicate, "unexplained": f.unexplained, "over_bound": f.overBound, "moved": f.moved,
		"graceful_duplicate": f.gracefulDuplicate, "graceful_lost": f.gracefulLost, "set_back": f.setBack, "skipped": f.skipped,
	}
	for name, n := range all {
		if n == 0 {
			delete(all, name)
		}
	}
	return all
}

func TestNothingIsFoundInAHistoryThatWentWell(t *testing.T) {
	for _, waits := range []string{"plain", "mixed", "both"} {
		t.Run(waits, func(t *testing.T) {
			s := newStory(t, waits)
			s.liveUntil(5000)
			f := check(s.history)
			if diff := cmp.Diff(map[string]int{}, counts(f)); diff != "" {
				t.Errorf("findings (-want +got):\n%s\n%v", diff, f.details)
			}
			if f.records < 5001 {
				t.Errorf("%d records were counted of more than 5000", f.records)
			}
		})
	}
}

// Each test breaks one thing of a history that went well, and names what must be found and nothing else.
func TestEachViolationIsFound(t *testing.T) {
	killed := func(s *story, k eventKind) {
		s.events = append(s.events, &event{kind: k, what: "the kill", from: kill, look: kill + 10, to: revived})
	}
	dead := func(p *plan) bool { return p.failures == 1 && p.fate == poison && p.entrance == viaInbox }
	tests := []struct {
		name  string
		plan  func(*plan) bool
		spoil func(s *story, id uint32)
		want  map[string]int
	}{
		{"a record that the brokers lost", simple, func(s *story, id uint32) {
			s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.id == id })
		}, map[string]int{"lost": 1}},
		{"an inbox record without a copy", simple, func(s *story, id uint32) {
			s.uncover(s.entries[s.of(id, 1, roleInbox)[0]])
			s.drop(s.of(id, 1, roleOrigin)[0])
			s.drop(s.of(id, 1, roleTier)[0])
		}, map[string]int{"lost": 1}},
		{"a tier record without a copy, whose offset was not committed", simple, func(s *story, id uint32) {
			s.uncover(s.entries[s.of(id, 1, roleTier)[0]])
			s.drop(s.of(id, 1, roleOrigin)[0])
		}, map[string]int{"lost": 1}},
		{"a tier record without a copy, whose offset was committed", simple, func(s *story, id uint32) {
			s.drop(s.of(id, 1, roleOrigin)[0])
		}, map[string]int{"lost": 1, "commit_ahead": 1}},
		{"a later failure that got lost", func(p *plan) bool { return p.failures == 3 && p.fate == returned }, func(s *story, id uint32) {
			s.drop(s.of(id, 3, roleOrigin)[0])
		}, map[string]int{"lost": 1, "commit_ahead": 1}},
		{"a dead letter that is not there", dead, func(s *story, id uint32) {
			s.drop(s.of(id, 1, roleLetters)[0])
		}, map[string]int{"lost": 1, "commit_ahead": 1}},
		{"a dead letter with the wrong reason", dead, func(s *story, id uint32) {
			s.entries[s.of(id, 1, roleLetters)[0]].fate = exhausted
		}, map[string]int{"misrouted": 1}},
		{"a record that is dead too soon", simple, func(s *story, id uint32) {
			e := &s.entries[s.of(id, 1, roleOrigin)[0]]
			e.topic, e.fate = s.at(roleLetters, 0, 0), exhausted
		}, map[string]int{"misrouted": 1}},
		{"a return instead of a death", dead, func(s *story, id uint32) {
			s.entries[s.of(id, 1, roleLetters)[0]].topic = s.at(roleOrigin, 0, 0)
		}, map[string]int{"misrouted": 1, "commit_ahead": 1}},
		{"a failure that never was", simple, func(s *story, id uint32) {
			s.again(s.of(id, 1, roleOrigin)[0], start+9*second).attempt = 2
		}, map[string]int{"misrouted": 1}},
		{"a return before the due time", simple, func(s *story, id uint32) {
			e := &s.entries[s.of(id, 1, roleOrigin)[0]]
			e.time -= 3
		}, map[string]int{"early": 1}},
		{"a due time that is too soon, although it is kept", simple, func(s *story, id uint32) {
			s.entries[s.of(id, 1, roleTier)[0]].due -= 50
			s.entries[s.of(id, 1, roleOrigin)[0]].time -= 45
		}, map[string]int{"early": 1}},
		{"a return without a wait", simple, func(s *story, id uint32) {
			s.drop(s.of(id, 1, roleTier)[0])
		}, map[string]int{"early": 1, "lost": 1, "commit_ahead": 1}},
		{"the wrong rung", simple, func(s *story, id uint32) {
			s.entries[s.of(id, 1, roleTier)[0]].topic = s.at(roleTier, 1, 0)
		}, map[string]int{"misrouted": 1}},
		{"the wrong partition", simple, func(s *story, id uint32) {
			s.entries[s.of(id, 1, roleOrigin)[0]].partition = partitions - 1 - s.entries[0].partition
		}, map[string]int{"misrouted": 1}},
		{"a commit before the copy was written", simple, func(s *story, id uint32) {
			e := s.entries[s.of(id, 1, roleTier)[0]]
			s.uncover(e)
			s.cover(e, s.entries[s.of(id, 1, roleOrigin)[0]].time-1)
		}, map[string]int{"commit_ahead": 1}},
		{"an inbox commit before the copy was written", simple, func(s *story, id uint32) {
			e := s.entries[s.of(id, 1, roleInbox)[0]]
			s.uncover(e)
			s.cover(e, s.entries[s.of(id, 1, roleTier)[0]].time-1)
		}, map[string]int{"commit_ahead": 1}},
		{"another message id", simple, func(s *story, id uint32) {
			s.entries[s.of(id, 1, roleOrigin)[0]].name++
		}, map[string]int{"id_changed": 1}},
		{"no message id in a tier", simple, func(s *story, id uint32) {
			s.entries[s.of(id, 1, roleTier)[0]].name = 0
		}, map[string]int{"id_changed": 1}},
		{"a second copy without a kill", simple, func(s *story, id uint32) {
			s.again(s.of(id, 1, roleOrigin)[0], start+2*second)
		}, map[string]int{"unexplained": 1}},
		{"a second copy in a tier without a kill", simple, func(s *story, id uint32) {
			s.again(s.of(id, 1, roleTier)[0], start+second/2).due += 7
		}, map[string]int{"unexplained": 1, "skipped": 1}},
		{"a second copy after a kill", simple, func(s *story, id uint32) {
			killed(s, eventKind(0))
			e := s.entries[s.of(id, 1, roleInbox)[0]]
			s.uncover(e)
			s.cover(e, revived+20)
			s.again(s.of(id, 1, roleTier)[0], revived+10)
		}, map[string]int{"duplicate": 1, "skipped": 1}},
		{"a second copy after a kill that had found it committed", simple, func(s *story, id uint32) {
			killed(s, eventKind(0))
			s.again(s.of(id, 1, roleTier)[0], revived+10).due += 7
		}, map[string]int{"unexplained": 1, "skipped": 1}},
		{"a second copy after a graceful stop", simple, func(s *story, id uint32) {
			s.gracefulFrom = start - 1
			killed(s, stopped)
			e := s.entries[s.of(id, 1, roleInbox)[0]]
			s.uncover(e)
			s.cover(e, revived+20)
			s.again(s.of(id, 1, roleTier)[0], revived+10)
		}, map[string]int{"graceful_duplicate": 1, "skipped": 1}},
		{"a loss by a graceful stop", simple, func(s *story, id uint32) {
			s.gracefulFrom = start - 1
			s.drop(s.of(id, 1, roleOrigin)[0])
		}, map[string]int{"lost": 1, "graceful_lost": 1, "commit_ahead": 1}},
		{"a second copy while a broker is dead", simple, func(s *story, id uint32) {
			s.events = append(s.events, &event{kind: brokerKilled, what: "the broker", from: kill, to: revived, look: never})
			s.again(s.of(id, 1, roleTier)[0], revived+10)
		}, map[string]int{"duplicate": 1, "skipped": 1}},
		{"changed bytes", simple, func(s *story, _ uint32) {
			s.corrupt, s.corrupted = []string{"a key"}, 1
		}, map[string]int{"corrupt": 1}},
		{"a commit that goes backwards", simple, func(s *story, _ uint32) {
			s.covered.observe(start+60*second, s.at(roleInbox, 0, 0), 0, 5, nil)
			s.covered.observe(start+61*second, s.at(roleInbox, 0, 0), 0, 4, nil)
		}, map[string]int{"set_back": 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStory(t, "plain")
			id := s.find(test.plan)
			s.liveUntil(id)
			test.spoil(s, id)
			f := check(s.history)
			if diff := cmp.Diff(test.want, counts(f)); diff != "" {
				t.Errorf("findings (-want +got):\n%s\n%v", diff, f.details)
			}
			for _, kind := range []string{"lost", "early", "corrupt", "commit_ahead", "id_changed", "misrouted", "unexplained", "graceful_duplicate"} {
				if test.want[kind] > 0 && len(f.details[kind]) == 0 {
					t.Errorf("%s is counted and not told", kind)
				}
			}
		})
	}
}

func TestACopyToTheTailOfATierIsNoDuplicate(t *testing.T) {
	s := newStory(t, "plain")
	id := s.find(simple)
	s.liveUntil(id)
	source := s.entries[s.of(id, 1, roleTier)[0]]
	tail := *s.again(s.of(id, 1, roleTier)[0], source.time+100)
	// The source is committed once its tail copy is there, long before the record comes back.
	s.uncover(source)
	s.cover(source, tail.time+5)
	s.cover(tail, source.due+20)
	if diff := cmp.Diff(map[string]int{"moved": 1}, counts(check(s.history))); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestACommitThatCoversTheRecordAndItsTailCopyIsAhead(t *testing.T) {
	s := newStory(t, "plain")
	id := s.find(simple)
	s.liveUntil(id)
	source := s.entries[s.of(id, 1, roleTier)[0]]
	tail := *s.again(s.of(id, 1, roleTier)[0], source.time+100)
	s.uncover(source)
	s.cover(source, tail.time+5)
	s.cover(tail, tail.time+5)
	if diff := cmp.Diff(map[string]int{"moved": 1, "commit_ahead": 2}, counts(check(s.history))); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// What was on its way when the process died is written after its death. Of the copies that follow, the second of the first
// source is the extra one, and the first of the second source is not.
func TestACopyThatArrivesAfterTheDeathOfItsSenderIsPutDownToTheKill(t *testing.T) {
	s := newStory(t, "plain")
	id := s.find(simple)
	s.liveUntil(id)
	inbox, tier, origin := s.of(id, 1, roleInbox)[0], s.of(id, 1, roleTier)[0], s.of(id, 1, roleOrigin)[0]
	at := s.entries[origin].time
	s.events = append(s.events, &event{kind: killed, what: "the kill", from: at - 10, look: at + 20, to: at + 30})
	for _, i := range []int{inbox, tier} {
		s.uncover(s.entries[i])
		s.cover(s.entries[i], at+100)
	}
	s.again(tier, at+50)
	s.again(origin, at+60)
	s.again(origin, at+70).offset++
	if diff := cmp.Diff(map[string]int{"duplicate": 2}, counts(check(s.history))); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// A record that was handed over twice has two sources, and each kill can repeat the copies of both.
func TestAKillExplainsOneMoreCopyOfEachSource(t *testing.T) {
	tests := []struct {
		name   string
		before int64 // One copy more, so long after the first; 0 for none.
		want   map[string]int
	}{
		{"two kills", 0, map[string]int{"duplicate": 4}},
		{"two kills, and a copy before them", 1, map[string]int{"duplicate": 4, "unexplained": 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStory(t, "plain")
			id := s.find(func(p *plan) bool { return p.failures == 1 && p.fate == poison && p.entrance == viaInbox })
			s.liveUntil(id)
			inbox, letter := s.of(id, 1, roleInbox)[0], s.of(id, 1, roleLetters)[0]
			at := s.entries[letter].time
			s.uncover(s.entries[inbox])
			for _, e := range []entry{s.entries[inbox], *s.again(inbox, s.entries[inbox].time)} {
				s.cover(e, at+5000)
			}
			s.again(letter, at)
			for i := range int64(2) {
				s.events = append(s.events, &event{kind: killed, what: "a kill", from: at + 100 + 1000*i, look: at + 110 + 1000*i, to: at + 120 + 1000*i})
				s.again(letter, at+500+1000*i)
				s.again(letter, at+500+1000*i)
			}
			if test.before > 0 {
				s.again(letter, at+test.before)
			}
			if diff := cmp.Diff(test.want, counts(check(s.history))); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAKillThatRepeatsMoreThanMaxUncommittedIsFound(t *testing.T) {
	s := newStory(t, "plain")
	s.maxUncommitted = 3
	s.liveUntil(400)
	s.events = append(s.events, &event{kind: killed, what: "the kill", from: kill, look: kill + 10, to: revived})
	repeated := 0
	for id := range s.produced {
		if p := s.work.plan(id); simple(&p) && p.partition == 0 && repeated < 4 {
			repeated++
			e := s.entries[s.of(id, 1, roleInbox)[0]]
			s.uncover(e)
			s.cover(e, revived+20)
			s.again(s.of(id, 1, roleTier)[0], revived+10)
		}
	}
	f := check(s.history)
	if diff := cmp.Diff(map[string]int{"duplicate": 4, "over_bound": 1, "skipped": 4}, counts(f)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if f.perEvent[0].copies != 4 {
		t.Errorf("the kill repeated %d, want 4", f.perEvent[0].copies)
	}
}

func TestOnlyAReportWithoutViolationsPasses(t *testing.T) {
	h := newStory(t, "plain").history
	h.events = []*event{{kind: killed, what: "a kill"}, {kind: killed, what: "a kill"}}
	clean := func() *findings { return &findings{perEvent: make([]eventCount, 2), details: map[string][]string{}} }
	tests := []struct {
		name  string
		spoil func(*findings) time.Duration
		want  string
	}{
		{"lost", func(f *findings) time.Duration { f.lost++; return 0 }, "lost is 1"},
		{"early", func(f *findings) time.Duration { f.early++; return 0 }, "early is 1"},
		{"corrupt", func(f *findings) time.Duration { f.corrupt++; return 0 }, "corrupt is 1"},
		{"commit_ahead", func(f *findings) time.Duration { f.commitAhead++; return 0 }, "commit_ahead is 1"},
		{"id_changed", func(f *findings) time.Duration { f.idChanged++; return 0 }, "id_changed is 1"},
		{"graceful_duplicate", func(f *findings) time.Duration { f.gracefulDuplicate++; return 0 }, "graceful_duplicate is 1"},
		{"graceful_lost", func(f *findings) time.Duration { f.gracefulLost++; return 0 }, "graceful_lost is 1"},
		{"misrouted", func(f *findings) time.Duration { f.misrouted++; return 0 }, "misrouted is 1"},
		{"unexplained", func(f *findings) time.Duration { f.unexplained++; return 0 }, "duplicate_unexplained is 1"},
		{"bound", func(f *findings) time.Duration { f.overBound++; return 0 }, "more than maxUncommitted"},
		{"mean", func(f *findings) time.Duration { f.perEvent[1].copies = 1002; return 0 }, "501 records on average"},
		{"slow stop", func(*findings) time.Duration { return stopBound }, "a graceful stop took 5s"},
	}
	if r := makeReport(h, clean(), time.Second); len(r.Violations) != 0 {
		t.Errorf("violations without a finding: %v", r.Violations)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := clean()
			took := test.spoil(f)
			r := makeReport(h, f, took)
			if len(r.Violations) != 1 || !strings.Contains(r.Violations[0], test.want) {
				t.Errorf("violations %q, want one with %q", r.Violations, test.want)
			}
		})
	}
}

func TestCoverageKeepsTheFirstMoment(t *testing.T) {
	c := newCoverage()
	c.observe(1, 0, 0, 2, ordering.Ranges{{From: 4, To: 6}})
	c.observe(2, 0, 0, 5, nil)
	var got []string
	for offset := range int64(8) {
		got = append(got, fmt.Sprint(c.at(0, 0, offset)))
	}
	none := fmt.Sprint(int64(math.MaxInt64))
	if diff := cmp.Diff([]string{"1", "1", "2", "2", "1", "1", none, none}, got); diff != "" {
		t.Errorf("first moments (-want +got):\n%s", diff)
	}
	if c.at(0, 1, 0) != never || c.at(1, 0, 0) != never {
		t.Error("a partition without a commit is covered")
	}
}
