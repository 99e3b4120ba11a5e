package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// findings are what became of the records.
type findings struct {
	forged, returned, dead        int
	escaped, early, corrupt, lost int
	crashed, stuck                int
	duplicate                     int // Copies too many where records end.
	seconds                       float64
	details                       map[string][]string
	reasons                       map[string]int // Of dead letters.
}

// maxDetails bounds what is told of one kind of violation.
const maxDetails = 20

func (f *findings) tell(kind string, count *int, format string, args ...any) {
	*count++
	if len(f.details[kind]) < maxDetails {
		f.details[kind] = append(f.details[kind], fmt.Sprintf(format, args...))
	}
}

// position is where the broker put a record that was sent.
type position struct {
	offset    int64
	partition int32
}

// state is what is known of one record. A run has millions.
type state struct {
	least      int64 // Unix milliseconds: the record may not return earlier.
	due        int64 // The latest due time that a copy of it in a tier had.
	id         uint64
	attempt    int32
	deliveries int32
	reason     uint8 // What it must be dead of, as an index into causes.
	waits      uint8 // Copies in tiers.
	returns    uint8
	letters    uint8
	entered    bool
	large      bool
}

// own is what the contract says of one control header.
type own struct {
	bit   uint32
	keeps string
}

// checker takes the records of all topics, those of the sources before the others, and then tells what it found.
type checker struct {
	findings
	forge  *forge
	table  []topicInfo
	byName map[string]int // Index into table.
	own    map[string]own
	causes []string // Reasons; the first is none.
	sent   []position
	states []state
}

func newChecker(f *forge, sent []position) *checker {
	c := &checker{
		findings: findings{forged: len(sent), details: map[string][]string{}, reasons: map[string]int{}},
		forge:    f, table: topics(f.ladders), byName: map[string]int{}, own: map[string]own{},
		causes: append([]string{""}, reasons()...), sent: sent, states: make([]state, len(sent)),
	}
	for i, t := range c.table {
		c.byName[t.name] = i
	}
	bit := uint32(1)
	for name, kinds := range keeps() {
		c.own[name] = own{bit, kinds}
		bit <<= 1
	}
	return c
}

// add takes one record of the topic with that index into the table.
func (c *checker) add(topic int, r *kgo.Record) {
	t := &c.table[topic]
	id, ok := numberOf(r.Headers)
	if !ok || int(id) >= len(c.sent) {
		c.tell("corrupt", &c.corrupt, "%s is no record of this run", where(t, r))
		return
	}
	want := c.forge.record(id, time.Time{})
	if diff := c.difference(want, r); diff != "" {
		c.tell("corrupt", &c.corrupt, "%s, record %d: %s", where(t, r), id, diff)
	}
	s := &c.states[id]
	entrance := &c.table[c.byName[want.Topic]]
	if t == entrance && !s.entered && c.sent[id] == (position{r.Offset, r.Partition}) {
		c.enter(s, t, r)
		return
	}
	if t.ladder != entrance.ladder || t.role == roleInbox {
		c.tell("escaped", &c.escaped, "%s: record %d came in by %s", where(t, r), id, want.Topic)
		return
	}
	if fault := c.control(t, r.Headers); fault != "" {
		c.tell("corrupt", &c.corrupt, "%s, record %d: %s", where(t, r), id, fault)
	}
	switch t.role {
	case roleTier:
		s.waits = inc(s.waits)
		s.due = max(s.due, dueOf(r))
	case roleReturn:
		s.returns = inc(s.returns)
		c.end(s, t, id, r)
	case roleLetters:
		s.letters = inc(s.letters)
		c.end(s, t, id, r)
	case roleInbox:
	}
}

func where(t *topicInfo, r *kgo.Record) string {
	return fmt.Sprintf("%s/%d@%d", t.name, r.Partition, r.Offset)
}

func inc(n uint8) uint8 { return min(n, 254) + 1 }

// enter notes what must become of a record that was sent.
func (c *checker) enter(s *state, t *topicInfo, r *kgo.Record) {
	o := decide(c.forge.ladders[t.ladder], *t, r.Headers, r.Partition, r.Offset, r.Timestamp)
	s.entered = true
	s.large = len(r.Value) >= nearLimit
	s.least = o.least.UnixMilli()
	s.id = hashOf(o.id)
	s.attempt, s.deliveries = int32(o.attempt), int32(o.deliveries)
	s.reason = uint8(slices.Index(c.causes, o.reason))
}

// dueOf is the due time of a copy that waits, in Unix milliseconds.
func dueOf(r *kgo.Record) int64 {
	if t, is := availableAt(r.Headers); is == good {
		return t.UnixMilli()
	}
	return 0
}

// end checks a copy where records end.
func (c *checker) end(s *state, t *topicInfo, id uint32, r *kgo.Record) {
	if !s.entered {
		c.tell("corrupt", &c.corrupt, "%s: record %d is not where it was sent", where(t, r), id)
		return
	}
	reason := c.causes[s.reason]
	if t.role == roleReturn {
		if reason != "" {
			c.tell("escaped", &c.escaped, "%s: record %d should be dead, %s", where(t, r), id, reason)
			return
		}
		if early := max(s.least, s.due) - r.Timestamp.UnixMilli(); early > 1 {
			c.tell("early", &c.early, "%s: record %d came back %d ms early", where(t, r), id, early)
		}
	} else {
		got, _ := first(r.Headers, "redrive-reason", "", func(v string) (string, bool) { return v, true })
		c.reasons[got]++
		if s.large && reason == "" && got == "too_large" {
			return // Its origin may take it with our headers, or not.
		}
		if got != reason || reason == "" {
			c.tell("escaped", &c.escaped, "%s: record %d is dead, %q, and should be %q", where(t, r), id, got, reason)
			return
		}
	}
	for _, want := range []struct {
		name string
		n    int32
	}{{"redrive-attempt", s.attempt}, {"redrive-deliveries", s.deliveries}} {
		got, _ := first(r.Headers, want.name, "-1", func(v string) (string, bool) { return v, true })
		if n, err := strconv.ParseInt(got, 10, 64); err != nil || n != int64(want.n) {
			c.tell("corrupt", &c.corrupt, "%s: record %d has %s %q, want %d", where(t, r), id, want.name, got, want.n)
		}
	}
	name, _ := first(r.Headers, "redrive-message-id", "", func(v string) (string, bool) { return v, true })
	if hashOf(name) != s.id {
		c.tell("corrupt", &c.corrupt, "%s: record %d has the id %q", where(t, r), id, name)
	}
}

// finish judges what only shows when all topics were read.
func (c *checker) finish() *findings {
	for id := range c.states {
		s := &c.states[id]
		if s.reason > 0 && s.waits > 0 {
			c.tell("escaped", &c.escaped, "record %d went to a tier and should be dead at once, %s", id, c.causes[s.reason])
		}
		switch ends := int(s.returns) + int(s.letters); ends {
		case 0:
			c.tell("lost", &c.lost, "record %d, at %s/%d@%d, is nowhere", id, c.forge.record(uint32(id), time.Time{}).Topic, c.sent[id].partition, c.sent[id].offset)
		default:
			c.duplicate += ends - 1
		}
		if s.returns > 0 {
			c.returned++
		}
		if s.letters > 0 {
			c.dead++
		}
	}
	return &c.findings
}

// control says what is wrong with the control headers of a copy, "" if nothing is.
func (c *checker) control(t *topicInfo, headers []kgo.RecordHeader) string {
	kind := map[role]byte{roleTier: 't', roleReturn: 'r', roleLetters: 'd'}[t.role]
	seen := uint32(0)
	for i := range headers {
		h, v := c.own[headers[i].Key], headers[i].Value
		switch {
		case h.bit == 0:
			continue
		case seen&h.bit != 0:
			return headers[i].Key + " is there twice"
		case bytes.IndexByte([]byte(h.keeps), kind) < 0:
			return headers[i].Key + " should be gone"
		case len(v) > maxText:
			return fmt.Sprintf("%s has %d bytes", headers[i].Key, len(v))
		case !utf8.Valid(v):
			return headers[i].Key + " is no UTF-8"
		}
		seen |= h.bit
	}
	return ""
}

// difference says how the bytes that are not Redrive's differ, "" if they do not. Null and empty are different.
func (c *checker) difference(want, got *kgo.Record) string {
	if !same(want.Key, got.Key) {
		return fmt.Sprintf("key %s became %s", show(want.Key), show(got.Key))
	}
	if !same(want.Value, got.Value) {
		return fmt.Sprintf("value %s became %s", show(want.Value), show(got.Value))
	}
	a, b := want.Headers, got.Headers
	for n := 0; ; n++ {
		a, b = c.skipOwn(a), c.skipOwn(b)
		switch {
		case len(a) == 0 && len(b) == 0:
			return ""
		case len(a) == 0:
			return fmt.Sprintf("foreign header %d, %q: %s, was not there", n, b[0].Key, show(b[0].Value))
		case len(b) == 0:
			return fmt.Sprintf("foreign header %d, %q: %s, is gone", n, a[0].Key, show(a[0].Value))
		case a[0].Key != b[0].Key || !same(a[0].Value, b[0].Value):
			return fmt.Sprintf("foreign header %d, %q: %s, became %q: %s", n, a[0].Key, show(a[0].Value), b[0].Key, show(b[0].Value))
		}
		a, b = a[1:], b[1:]
	}
}

func (c *checker) skipOwn(headers []kgo.RecordHeader) []kgo.RecordHeader {
	for len(headers) > 0 && c.own[headers[0].Key].bit != 0 {
		headers = headers[1:]
	}
	return headers
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func show(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 40:
		return fmt.Sprintf("%x... (%d bytes)", b[:40], len(b))
	default:
		return fmt.Sprintf("%x (%d bytes)", b, len(b))
	}
}

func hashOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return binary.BigEndian.Uint64(h.Sum(nil))
}
