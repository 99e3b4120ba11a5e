// Package ordering keeps the records of one source partition between their
// fetch and the moment their offset may be committed.
//
// The model: a record is held from the moment it was read, released once its
// due time has come, and finished when a durable copy of it exists elsewhere.
// Records are released by due time, those of the same due time by offset. The
// watermark is the offset below which everything is finished: the only offset
// that may be committed. Records that finished above it travel as ranges
// beside the commit, so that a successor need not send them again.
//
// What it promises: the watermark never passes a record that is not finished,
// whatever the order in which records finish; nothing is released before its
// due time; a record is released once. It does not know where records go, and
// it reads no clock: the time is an argument.
//
// A Partition belongs to one goroutine. Nothing in this package starts one or
// locks anything.
package ordering

import (
	"encoding/base64"
	"math"
	"time"
)

type state uint8

const (
	held     state = iota // read, waiting for its due time
	released              // handed out, its copy is on the way
	finished              // a durable copy exists, or the offset needs none
)

// Held is one record of a Partition, from Add to Finish.
type Held[T any] struct {
	Value T

	offset int64
	due    int64 // Unix nanoseconds
	bytes  int64
	state  state
}

// Offset is the record's offset in its source partition.
func (h *Held[T]) Offset() int64 { return h.offset }

// Due is the instant before which the record is not released.
func (h *Held[T]) Due() time.Time { return time.Unix(0, h.due) }

// Late is how long after its due time the instant now is.
func (h *Held[T]) Late(now time.Time) time.Duration { return time.Duration(now.UnixNano() - h.due) }

// Partition is the state of one source partition with one owner.
type Partition[T any] struct {
	watermark int64
	next      int64  // the lowest offset that Add still takes
	done      Ranges // finished by an earlier owner, at or above the watermark

	// log holds what is not below the watermark in offset order; log[head:] is
	// live and log[head] is never finished.
	log  []*Held[T]
	head int

	queue queue[T]

	bytes    int64
	waiting  int
	inFlight int
	ahead    int    // finished records above the watermark
	total    uint64 // records ever finished here
}

// New returns the state of a partition whose commit stands at start. The
// ranges are what its former owner had finished above start; offsets in them
// are taken as finished when they are read.
func New[T any](start int64, done Ranges) *Partition[T] {
	return &Partition[T]{watermark: start, next: start, done: done}
}

// Add holds a record until due. Offsets must rise from call to call; gaps are
// normal (compaction, control records). It returns nil if the record needs no
// work: an earlier owner finished it, or its offset was already taken.
func (p *Partition[T]) Add(offset int64, due time.Time, bytes int64, value T) *Held[T] {
	if offset < p.next {
		return nil
	}
	p.next = offset + 1
	h := &Held[T]{Value: value, offset: offset, due: nanos(due), bytes: bytes}
	p.log = append(p.log, h)
	if p.done = p.done.Above(offset); p.done.first(offset) {
		p.finish(h)
		return nil
	}
	p.bytes += bytes
	p.waiting++
	p.queue.push(h)
	return h
}

// nanos keeps instants that do not fit into nanoseconds since 1970 in order.
func nanos(t time.Time) int64 {
	switch s := t.Unix(); {
	case s > math.MaxInt64/int64(time.Second)-1:
		return math.MaxInt64
	case s < math.MinInt64/int64(time.Second)+1:
		return math.MinInt64
	}
	return t.UnixNano()
}

// Skip says that the offsets below next which were not added need no work: the
// topic does not have them any more.
func (p *Partition[T]) Skip(next int64) {
	if next <= p.next {
		return
	}
	p.next = next
	p.done = p.done.Above(next)
	p.advance()
}

// Ready returns the record that is to be released next, without releasing it,
// or nil if none is due at now.
func (p *Partition[T]) Ready(now time.Time) *Held[T] {
	h := p.queue.peek()
	if h == nil || h.due > now.UnixNano() {
		return nil
	}
	return h
}

// Release takes a record out of the queue: its copy is on the way. A record
// that is not held (any more) is left alone.
func (p *Partition[T]) Release(h *Held[T]) {
	if h.state != held {
		return
	}
	h.state = released
	p.waiting--
	p.inFlight++
	if p.queue.peekAny() == h {
		p.queue.pop()
	}
}

// Finish says that h needs no more work: a durable copy of it exists. A held
// record may be finished without having been released.
func (p *Partition[T]) Finish(h *Held[T]) {
	switch h.state {
	case held:
		p.waiting--
	case released:
		p.inFlight--
	case finished:
		return
	}
	p.bytes -= h.bytes
	p.finish(h)
}

func (p *Partition[T]) finish(h *Held[T]) {
	h.state = finished
	// The queue may still point at h until its due time has come; the record
	// itself must not stay in memory for that long.
	var none T
	h.Value = none
	p.total++
	p.ahead++
	p.advance()
}

func (p *Partition[T]) advance() {
	for p.head < len(p.log) && p.log[p.head].state == finished {
		p.watermark = p.log[p.head].offset + 1
		p.log[p.head] = nil
		p.head++
		p.ahead--
	}
	switch {
	case p.head == len(p.log):
		// Nothing is unfinished: the watermark passes the gaps after the last
		// record and what the former owner had finished next.
		p.log, p.head = p.log[:0], 0
		if p.done.first(p.next) {
			p.next = p.done[0].To
		}
		p.watermark = p.next
	case p.head > 1024 && p.head > len(p.log)/2:
		n := copy(p.log, p.log[p.head:])
		clear(p.log[n:])
		p.log, p.head = p.log[:n], 0
	}
}

// Watermark is the offset below which every record is finished.
func (p *Partition[T]) Watermark() int64 { return p.watermark }

// Next is the offset after the last one that was added.
func (p *Partition[T]) Next() int64 { return p.next }

// NextDue is the due time of the record to be released next.
func (p *Partition[T]) NextDue() (time.Time, bool) {
	h := p.queue.peek()
	if h == nil {
		return time.Time{}, false
	}
	return h.Due(), true
}

// Bytes is the size of all records that are held or released.
func (p *Partition[T]) Bytes() int64 { return p.bytes }

// Waiting is the number of held records.
func (p *Partition[T]) Waiting() int { return p.waiting }

// InFlight is the number of released records that are not finished.
func (p *Partition[T]) InFlight() int { return p.inFlight }

// Finished counts the records that were ever finished here.
func (p *Partition[T]) Finished() uint64 { return p.total }

// Overdue counts the held records that were due at now.
func (p *Partition[T]) Overdue(now time.Time) int { return p.queue.countDue(now.UnixNano()) }

// EachDue calls f for every held record that was due at now.
func (p *Partition[T]) EachDue(now time.Time, f func(*Held[T])) { p.queue.eachDue(nanos(now), f) }

// EachInFlight calls f for every released record that is not finished.
func (p *Partition[T]) EachInFlight(f func(*Held[T])) {
	left := p.inFlight
	for _, h := range p.log[p.head:] {
		if left == 0 {
			return
		}
		if h.state == released {
			left--
			f(h)
		}
	}
}

// Blockers returns up to limit held records, lowest offsets first, that keep
// the watermark from passing finished records.
func (p *Partition[T]) Blockers(limit int) []*Held[T] {
	var blockers []*Held[T]
	ahead := p.ahead
	for _, h := range p.log[p.head:] {
		if ahead == 0 || len(blockers) == limit {
			break
		}
		switch h.state {
		case finished:
			ahead--
		case held:
			blockers = append(blockers, h)
		case released:
		}
	}
	return blockers
}

// Checkpoint is what a commit says of a partition.
type Checkpoint struct {
	// Watermark is the offset to commit.
	Watermark int64
	// Done is the text of the finished offsets above the watermark, for
	// ParseRanges.
	Done []byte
	// Covered is Finished less the finished records that Done had no room for.
	Covered uint64
	// Full says that there were such records.
	Full bool
}

// Checkpoint returns the state to commit. Done takes at most limit bytes and
// names the lowest finished offsets.
func (p *Partition[T]) Checkpoint(limit int) Checkpoint {
	var ranges Ranges
	var records []int // how many records of the log each range stands for
	room := base64.RawStdEncoding.DecodedLen(limit)/minRangeBytes + 1
	ahead := p.ahead
	for i := p.head; i < len(p.log) && ahead > 0; i++ {
		h := p.log[i]
		if h.state != finished {
			continue
		}
		if n := len(ranges); n > 0 && p.log[i-1].state == finished {
			// What lies between two neighbours of the log is not a record.
			ranges[n-1].To = h.offset + 1
			records[n-1]++
		} else if n < room {
			ranges = append(ranges, Range{From: h.offset, To: h.offset + 1})
			records = append(records, 1)
		} else {
			break
		}
		ahead--
	}
	if ahead == 0 {
		// What the former owner had finished and was not read again still holds.
		for _, r := range p.done.Above(p.next) {
			r.From = max(r.From, p.next)
			if n := len(ranges); n > 0 && ranges[n-1].To == r.From {
				ranges[n-1].To = r.To
			} else {
				ranges = append(ranges, r)
				records = append(records, 0)
			}
		}
	}
	c := Checkpoint{Watermark: p.watermark, Covered: p.total - uint64(p.ahead)}
	var n int
	c.Done, n = ranges.AppendText(nil, p.watermark, limit)
	named := 0
	for _, k := range records[:n] {
		named += k
	}
	c.Covered += uint64(named)
	c.Full = named < p.ahead
	return c
}
