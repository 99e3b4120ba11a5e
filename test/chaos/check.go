package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// findings are what the checker found in a history.
type findings struct {
	records     int // Hand-overs that the brokers acknowledged: entries of an inbox, or of a tier if they came in there.
	lost        int
	early       int
	corrupt     int
	commitAhead int
	idChanged   int
	misrouted   int
	setBack     int // Commits that went backwards.

	duplicate         int // Extra copies by a kill of the forwarder or of a broker.
	unexplained       int // Extra copies without a cause.
	gracefulDuplicate int
	gracefulLost      int
	overBound         int // Sources that a kill repeated more of than maxUncommitted.
	moved             int // Copies from a tier to a tier, with the due time unchanged. They are no duplicates.
	skipped           int // Entries of a tier that needed no copy, being the same delivery as another one that waited.

	perEvent []eventCount // By event.
	details  map[string][]string
}

func (f *findings) tell(kind, format string, args ...any) {
	f.details[kind] = appendCapped(f.details[kind], fmt.Sprintf(format, args...))
}

// eventCount is what one event repeated.
type eventCount struct {
	copies int
	worst  string // The source that it repeated most of.
}

// checker holds what check needs while it goes from record to record.
type checker struct {
	*history
	*findings
	perSource map[sourceOfEvent]int
}

type sourceOfEvent struct {
	event     int
	topic     uint8
	partition int32
}

// check holds a history against the rules. It reads no clock and asks nobody: the same history gives the same findings.
func check(h *history) *findings {
	c := &checker{
		history:   h,
		findings:  &findings{corrupt: h.corrupted, setBack: len(h.covered.setBack), perEvent: make([]eventCount, len(h.events)), details: map[string][]string{}},
		perSource: map[sourceOfEvent]int{},
	}
	for _, text := range slices.Concat(h.corrupt, h.strangers) {
		c.tell("corrupt", "%s", text)
	}
	for _, b := range h.covered.setBack {
		c.tell("commits_set_back", "%s/%d: from %d to %d, seen at %s", h.table[b.topic].name, b.partition, b.from, b.to, moment(b.seen))
	}
	slices.SortFunc(h.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.time, b.time),
			cmp.Compare(a.topic, b.topic), cmp.Compare(a.offset, b.offset))
	})
	rest := h.entries
	for id := range h.produced {
		n := 0
		for n < len(rest) && rest[n].id == id {
			n++
		}
		c.record(id, rest[:n])
		rest = rest[n:]
	}
	c.perKill()
	return c.findings
}

// perKill holds what each kill repeated of each source against the bound.
func (c *checker) perKill() {
	worst := make([]int, len(c.events))
	for source, n := range c.perSource {
		name := fmt.Sprintf("%d of %s/%d", n, c.table[source.topic].name, source.partition)
		if n > worst[source.event] {
			worst[source.event], c.perEvent[source.event].worst = n, name
		}
		if n > c.maxUncommitted {
			c.overBound++
			c.tell("duplicate", "%s: extra copies of %s, above maxUncommitted %d", c.events[source.event].what, name, c.maxUncommitted)
		}
	}
}

// hop is what there is of one failure of one record: what was handed over, the copies that waited in tiers, and where they
// led. All are in the order of time.
type hop struct {
	id      uint32
	plan    *plan
	attempt int
	inbox   []entry
	tiers   []entry
	origin  []entry
	letters []entry
}

// record checks everything that there is of one record.
func (c *checker) record(id uint32, entries []entry) {
	plan := c.work.plan(id)
	var hops [maxAttempts + 1]hop
	for n := range hops {
		hops[n] = hop{id: id, plan: &plan, attempt: n}
	}
	for _, e := range entries {
		if e.attempt < 1 || int(e.attempt) > plan.failures {
			c.misrouted++
			c.tell("misrouted", "%s: record %d fails %d times, this is of failure %d", c.where(e), id, plan.failures, e.attempt)
			continue
		}
		if c.table[e.topic].ladder != plan.ladder {
			c.misrouted++
			c.tell("misrouted", "%s: record %d belongs to %s", c.where(e), id, c.work.ladders[plan.ladder].name)
			continue
		}
		h := &hops[e.attempt]
		switch c.table[e.topic].role {
		case roleInbox:
			h.inbox = append(h.inbox, e)
		case roleTier:
			h.tiers = append(h.tiers, e)
		case roleOrigin:
			h.origin = append(h.origin, e)
		case roleLetters:
			h.letters = append(h.letters, e)
		}
	}
	first := hops[1].entered()
	if len(first) == 0 {
		c.lost++
		c.tell("lost", "record %d was acknowledged and is not in %s", id, c.entranceOf(&plan))
		return
	}
	for n := 1; n <= plan.failures; n++ {
		h := &hops[n]
		if len(h.entered()) == 0 {
			// The hop before it has no copy on the origin, which is told there, or the harness is wrong.
			if len(hops[n-1].origin) > 0 {
				c.lost++
				c.tell("lost", "%s: record %d came back and failure %d of it is not in the inbox", c.where(hops[n-1].origin[0]), id, n)
			}
			break
		}
		c.hop(h)
		c.identity(h, &first[0])
	}
}

// entered are the entries that the harness wrote.
func (h *hop) entered() []entry {
	if h.attempt == 1 && h.plan.entrance != viaInbox {
		return h.tiers[:min(1, len(h.tiers))]
	}
	return h.inbox
}

func (c *checker) hop(h *hop) {
	c.records += len(h.entered())
	if h.plan.dead(h.attempt) {
		c.burial(h)
		return
	}
	for _, e := range h.letters {
		c.misrouted++
		c.tell("misrouted", "%s: record %d is dead after failure %d (reason %q) and should have gone back", c.where(e), h.id, h.attempt, e.fate.reason())
	}
	switch {
	case len(h.tiers) == 0 && len(h.letters) == 0:
		c.lose(h, h.inbox[0], "has no copy in a tier")
	case len(h.origin) == 0 && len(h.letters) == 0:
		c.lose(h, h.tiers[0], "has no copy on the origin")
	}
	c.dues(h)
	c.ahead(h, h.inbox, slices.Concat(h.tiers, h.letters))
	c.ahead(h, h.tiers, slices.Concat(h.origin, h.letters))
	moved := c.tierCopies(h)
	c.originCopies(h, moved)
}

// burial checks a failure that makes the record a dead letter.
func (c *checker) burial(h *hop) {
	for _, e := range slices.Concat(h.tiers, h.origin) {
		c.misrouted++
		c.tell("misrouted", "%s: record %d is to be a dead letter after failure %d", c.where(e), h.id, h.attempt)
	}
	if len(h.letters) == 0 && len(h.tiers)+len(h.origin) == 0 {
		c.lose(h, h.inbox[0], "has no dead letter")
	}
	for _, e := range h.letters {
		if e.fate != h.plan.fate {
			c.misrouted++
			c.tell("misrouted", "%s: record %d has reason %q instead of %q", c.where(e), h.id, e.fate.reason(), h.plan.fate.reason())
		}
	}
	c.ahead(h, h.inbox, h.letters)
	c.extras(h, h.letters, len(h.inbox), h.inbox, nil, false)
}

func (c *checker) lose(h *hop, e entry, what string) {
	c.lost++
	if c.gracefulFrom > 0 && e.time >= c.gracefulFrom {
		c.gracefulLost++
	}
	c.tell("lost", "%s: record %d, failure %d, %s; covered by a commit since %s", c.where(e), h.id, h.attempt, what, moment(c.covered.at(e.topic, e.partition, e.offset)))
}

// dues checks that nobody waits less than the ladder, or the record itself, says.
func (c *checker) dues(h *hop) {
	ladder := c.work.ladders[h.plan.ladder]
	for _, g := range h.tiers {
		least := int64(never)
		for _, s := range h.inbox {
			if s.time <= g.time {
				least = min(least, s.time+c.leastWait(h, s).Milliseconds())
			}
		}
		if least != never && c.dueOf(g) < least-1 {
			c.early++
			c.tell("early", "%s: record %d, failure %d, is due at %s, %d ms before its wait is over",
				c.where(g), h.id, h.attempt, moment(c.dueOf(g)), least-c.dueOf(g))
		}
	}
	for _, o := range h.origin {
		due := int64(never)
		for _, g := range h.tiers {
			if g.time <= o.time {
				due = min(due, c.dueOf(g))
			}
		}
		switch {
		case due == never:
			c.early++
			c.tell("early", "%s: record %d, failure %d, came back without having waited in a tier", c.where(o), h.id, h.attempt)
		case o.time < due-1:
			c.early++
			c.tell("early", "%s: record %d, failure %d, came back at %s, %d ms before it was due", c.where(o), h.id, h.attempt, moment(o.time), due-o.time)
		}
	}
	// Without a wish the rung of the ladder is known as well.
	if h.plan.wishes[h.attempt].kind == noWish && len(h.inbox) > 0 && len(h.tiers) > 0 {
		if g, want := h.tiers[0], min(h.attempt, len(ladder.tiers))-1; c.table[g.topic].tier != want {
			c.misrouted++
			c.tell("misrouted", "%s: record %d, failure %d, belongs to %s", c.where(g), h.id, h.attempt, ladder.tiers[want].topic)
		}
	}
}

// dueOf is when an entry of a tier is due: when it says, else after the tier's delay.
func (c *checker) dueOf(g entry) int64 {
	if g.due != 0 {
		return g.due
	}
	t := c.table[g.topic]
	return g.time + c.work.ladders[t.ladder].tiers[t.tier].delay.Milliseconds()
}

// ahead checks that what a commit covers had a durable copy when the commit was seen. A copy that was written later was
// not there then, whatever it says now. An entry of the same hop that is not covered stands for the others: it is a copy
// to the tail of the tier, or the same delivery once more, of which only one is forwarded.
func (c *checker) ahead(h *hop, sources, copies []entry) {
	for _, s := range sources {
		seen := c.covered.at(s.topic, s.partition, s.offset)
		if seen == never {
			continue
		}
		written := func(e entry) bool { return e.time <= seen }
		waits := func(e entry) bool { return written(e) && c.covered.at(e.topic, e.partition, e.offset) > seen }
		if slices.ContainsFunc(copies, written) || slices.ContainsFunc(sources, waits) {
			continue
		}
		c.commitAhead++
		c.tell("commit_ahead", "%s: record %d, failure %d, was covered by a commit at %s and had no copy", c.where(s), h.id, h.attempt, moment(seen))
	}
}

// tierCopies counts the extra copies in tiers, and returns how many of them only moved. A record that is not due moves to
// the tail of its tier, or to a tier that can hold it, and its due time stays.
func (c *checker) tierCopies(h *hop) (moved int) {
	isMoved := func(i int) bool {
		return slices.ContainsFunc(h.tiers[:i], func(e entry) bool { return c.dueOf(e) == h.tiers[i].due })
	}
	return c.extras(h, h.tiers, len(h.inbox), h.inbox, isMoved, false)
}

// originCopies counts the extra copies on the origin. Each entry of a tier leads to one, but for those that moved.
func (c *checker) originCopies(h *hop, moved int) {
	base := max(1, len(h.tiers)-moved)
	if len(h.origin) > 0 {
		c.skipped += max(0, base-len(h.origin))
	}
	// A kill between a move and its commit leaves two that wait. Both come back when they are due, long after the kill.
	c.extras(h, h.origin, base, h.tiers, nil, moved > 0)
}

// extras counts the copies above base, which is how many the sources have a right to. A copy is the repetition of the one
// that is base places before it, if an event between the two explains that; with long, an event since the first source
// is enough. What no event explains can be a copy that moved, which is returned; the rest has no explanation.
func (c *checker) extras(h *hop, copies []entry, base int, sources []entry, isMoved func(int) bool, long bool) (moved int) {
	base = max(1, base)
	var open []entry
	for i := base; i < len(copies); i++ {
		from := copies[i-base].time
		if long {
			from = sources[0].time
		}
		if cause := c.cause(from, copies[i].time, sources); cause >= 0 {
			c.repeated(h, cause, copies[i], sources)
		} else {
			open = append(open, copies[i])
		}
	}
	for i := 1; i < len(copies) && moved < len(open); i++ {
		if isMoved != nil && isMoved(i) {
			moved++
		}
	}
	c.moved += moved
	for _, e := range open[moved:] {
		c.unexplained++
		c.tell("unexplained", "%s: record %d, failure %d, is an extra copy that no kill explains; %s", c.where(e), h.id, h.attempt, c.story(h))
	}
	return moved
}

// repeated counts a copy that an event made a second time.
func (c *checker) repeated(h *hop, cause int, e entry, sources []entry) {
	c.perEvent[cause].copies++
	if c.events[cause].kind == stopped {
		c.gracefulDuplicate++
		c.tell("graceful_duplicate", "%s: record %d, failure %d, is repeated by %s; %s", c.where(e), h.id, h.attempt, c.events[cause].what, c.story(h))
		return
	}
	c.duplicate++
	if len(sources) > 0 {
		c.perSource[sourceOfEvent{cause, sources[0].topic, sources[0].partition}]++
	}
}

// cause finds the event that explains a second copy: the last one between the two copies, of a source that no commit
// covered then. A broker's death is no excuse where a death of the forwarder is enough. It returns -1 if there is none.
func (c *checker) cause(from, to int64, sources []entry) int {
	found := -1
	for i, e := range slices.Backward(c.events) {
		if e.from > to || e.to < from {
			continue
		}
		if e.kind == brokerKilled {
			if found < 0 && len(sources) > 0 {
				found = i
			}
			continue
		}
		open := func(s entry) bool { return s.time <= e.look && c.covered.at(s.topic, s.partition, s.offset) > e.look }
		if slices.ContainsFunc(sources, open) {
			return i
		}
	}
	return found
}

// identity checks that all copies have the same message id and are in the same partition.
func (c *checker) identity(h *hop, first *entry) {
	want, partition := c.nameOf(h, first), first.partition
	if h.plan.positioned {
		partition = h.plan.partition
	}
	copies := slices.Concat(h.tiers, h.origin, h.letters)
	if h.attempt == 1 && h.plan.entrance != viaInbox {
		copies = copies[1:] // The harness wrote it.
	}
	if h.attempt > 1 {
		copies = append(copies, h.inbox...)
	}
	for _, e := range copies {
		if e.name != want {
			c.idChanged++
			c.tell("id_changed", "%s: record %d, failure %d, has another redrive-message-id than it should", c.where(e), h.id, h.attempt)
		}
		if e.partition != partition && c.table[e.topic].role != roleInbox {
			c.misrouted++
			c.tell("misrouted", "%s: record %d, failure %d, belongs to partition %d", c.where(e), h.id, h.attempt, partition)
		}
	}
}

// nameOf is the message id that a record has for all its life.
func (c *checker) nameOf(h *hop, first *entry) uint64 {
	switch {
	case h.plan.named:
		return hashOf(givenName(h.id))
	case h.plan.positioned:
		return hashOf(positionName(c.work.ladders[h.plan.ladder].name, h.plan.partition, int64(h.id)))
	default:
		return hashOf(positionName(c.table[first.topic].name, first.partition, first.offset))
	}
}

func (c *checker) entranceOf(p *plan) string {
	if p.entrance == viaInbox {
		return c.work.ladders[p.ladder].inbox
	}
	return c.work.ladders[p.ladder].tiers[0].topic
}

// story tells all that there is of a hop.
func (c *checker) story(h *hop) string {
	var parts []string
	for _, e := range slices.Concat(h.inbox, h.tiers, h.origin, h.letters) {
		text := c.where(e) + " written " + moment(e.time)
		if e.due != 0 {
			text += " due " + moment(e.due)
		}
		if r := c.table[e.topic].role; r == roleInbox || r == roleTier {
			text += " covered " + moment(c.covered.at(e.topic, e.partition, e.offset))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func (c *checker) where(e entry) string {
	return fmt.Sprintf("%s/%d@%d", c.table[e.topic].name, e.partition, e.offset)
}

// leastWait is how long a record must wait at least after its failure n came to the inbox as s: what it asked for, as
// far as that is allowed, else the delay of the tier that is next.
func (c *checker) leastWait(h *hop, s entry) time.Duration {
	ladder := c.work.ladders[h.plan.ladder]
	wish := h.plan.wishes[h.attempt]
	wait := wish.wait
	if wish.kind == wishInstant {
		wait = time.Duration(s.due-s.time) * time.Millisecond
	}
	if wish.kind == noWish || wait <= 0 {
		return ladder.tiers[min(h.attempt, len(ladder.tiers))-1].delay
	}
	return min(wait, ladder.maxDelay())
}

func moment(unixMilli int64) string {
	if unixMilli == never {
		return "never"
	}
	return time.UnixMilli(unixMilli).UTC().Format("15:04:05.000")
}
