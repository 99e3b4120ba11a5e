package main

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// maxAttempts is the number of deliveries that a record gets: the first and one for each of the three tiers.
const maxAttempts = 4

// maxDelay, the longest wait a record may ask for, is what the longest tier holds.
func (l *ladder) maxDelay() time.Duration {
	last := l.tiers[len(l.tiers)-1]
	return last.delay + last.jitter
}

// ladder is one entry of topics.yaml.
type ladder struct {
	name   string // Also the origin topic.
	mixed  bool   // Records ask for waits of their own, and tiers have jitter.
	tiers  []tier
	inbox  string
	letter string
}

type tier struct {
	name          string
	topic         string
	delay, jitter time.Duration
}

// fate is how a record ends.
type fate uint8

const (
	returned  fate = iota // The last delivery succeeds.
	exhausted             // All deliveries fail.
	poison                // The consumer gives the reason poison.
	permanent             // The consumer gives the action dead.
)

// reason is the redrive-reason of the dead letter.
func (f fate) reason() string { return [...]string{"", "exhausted", "poison", "permanent"}[f] }

// entrance is where and how a record comes in first.
type entrance uint8

const (
	viaInbox       entrance = iota
	viaTier                 // Written to the first tier, which waits its own delay.
	viaTierWithDue          // Written to the first tier, due later than that tier can hold, or not.
)

type wishKind uint8

const (
	noWish wishKind = iota
	wishSeconds
	wishDuration
	wishInstant
)

// wish is what the consumer says about the wait after one failure.
type wish struct {
	kind wishKind
	wait time.Duration
}

// plan is what happens to one record. It follows from the seed and the record's number, so that nothing of it needs to be
// remembered.
type plan struct {
	ladder     int
	failures   int // Deliveries that fail; the last one decides the fate.
	fate       fate
	entrance   entrance
	named      bool // The producer gives a message id.
	positioned bool // The record says where it first lived.
	partition  int32
	twice      int // The failure that is handed over twice, as by a consumer that crashed; 0 if none.
	wishes     [maxAttempts + 1]wish
}

// dead tells whether the n-th failure makes the record a dead letter.
func (p *plan) dead(n int) bool { return n == p.failures && p.fate != returned }

// workload knows every record of a run.
type workload struct {
	seed       uint64
	partitions int32
	ladders    []*ladder
}

// idHeader carries the number of a record. It is a foreign header to Redrive, like all but the redrive-* ones.
const idHeader = "chaos-id"

func (w *workload) random(id uint32) *rand.Rand { return rand.New(rand.NewPCG(w.seed, uint64(id))) }

// plan returns what happens to a record.
func (w *workload) plan(id uint32) plan {
	var source rand.PCG
	source.Seed(w.seed, uint64(id))
	return w.draw(rand.New(&source), id)
}

// draw takes the plan out of the record's random numbers; the content is what is drawn next.
func (w *workload) draw(r *rand.Rand, id uint32) plan {
	p := plan{ladder: int(id) % len(w.ladders)}
	ladder := w.ladders[p.ladder]
	switch n := r.IntN(100); {
	case n < 76:
		p.failures = 1
	case n < 86:
		p.failures = 2
	case n < 91:
		p.failures = 3
	case n < 95:
		p.failures, p.fate = maxAttempts, exhausted
	case n < 98:
		p.failures, p.fate = 1+r.IntN(3), poison
	default:
		p.failures, p.fate = 1+r.IntN(3), permanent
	}
	p.named = r.IntN(4) == 0
	p.positioned = r.IntN(4) != 0
	if r.IntN(2) == 0 { // Half of all are in partition 0, which is hot.
		p.partition = r.Int32N(w.partitions)
	}
	if r.IntN(100) == 0 && p.failures > 1 {
		p.twice = 2 + r.IntN(p.failures-1)
	}
	if !ladder.mixed {
		return p
	}
	for n := 1; n <= maxAttempts; n++ {
		if r.IntN(5) < 4 {
			p.wishes[n] = wish{
				kind: wishKind(1 + r.IntN(3)),
				// Up to a little more than is allowed.
				wait: time.Duration(200+r.IntN(int(ladder.maxDelay().Milliseconds()))) * time.Millisecond,
			}
		}
	}
	if (p.fate == returned || p.failures > 1) && r.IntN(20) == 0 {
		p.entrance = entrance(1 + r.IntN(2))
	}
	return p
}

// record returns what is sent first of a record. The bytes do not depend on now; only what own headers say does.
func (w *workload) record(id uint32, now time.Time) *kgo.Record {
	r := w.random(id)
	p := w.draw(r, id)
	ladder := w.ladders[p.ladder]

	rec := &kgo.Record{Topic: ladder.inbox, Key: randomKey(r), Value: randomValue(r, id), Headers: foreignHeaders(r, id)}
	var own []kgo.RecordHeader
	add := func(name, value string) { own = append(own, kgo.RecordHeader{Key: name, Value: []byte(value)}) }
	if p.named {
		add("redrive-message-id", givenName(id))
	}
	if p.positioned {
		add("redrive-original-topic", ladder.name)
		add("redrive-original-partition", strconv.Itoa(int(p.partition)))
		add("redrive-original-offset", strconv.Itoa(int(id)))
		add("redrive-original-timestamp", "2024-02-29T23:59:59.999Z")
		if r.IntN(2) == 0 {
			add("redrive-original-partitions", strconv.Itoa(int(w.partitions)))
		}
	}
	if r.IntN(2) == 0 {
		add("redrive-error-type", "chaos.Failure")
	}
	switch p.entrance {
	case viaInbox:
		own = append(own, p.says(1, now)...)
	case viaTier:
		rec.Topic = ladder.tiers[0].topic
	case viaTierWithDue:
		rec.Topic = ladder.tiers[0].topic
		add("redrive-available-at", stamp(now.Add(time.Duration(r.Int64N(int64(ladder.maxDelay()))))))
		add("redrive-attempt", "1")
	}
	// Own headers stand anywhere between the others.
	for _, h := range own {
		i := r.IntN(len(rec.Headers) + 1)
		rec.Headers = append(rec.Headers, kgo.RecordHeader{})
		copy(rec.Headers[i+1:], rec.Headers[i:])
		rec.Headers[i] = h
	}
	return rec
}

// says returns what the consumer says about the n-th failure: its verdict or its wish.
func (p *plan) says(n int, now time.Time) []kgo.RecordHeader {
	header := func(name, value string) []kgo.RecordHeader {
		return []kgo.RecordHeader{{Key: name, Value: []byte(value)}}
	}
	if p.dead(n) {
		switch p.fate {
		case poison:
			return header("redrive-reason", "poison")
		case permanent:
			return header("redrive-action", "dead")
		case returned, exhausted:
		}
	}
	wish := p.wishes[n]
	switch wish.kind {
	case wishSeconds:
		return header("redrive-retry-after", strconv.FormatFloat(wish.wait.Seconds(), 'f', -1, 64))
	case wishDuration:
		return header("redrive-retry-after", wish.wait.String())
	case wishInstant:
		return header("redrive-available-at", stamp(now.Add(wish.wait)))
	case noWish:
	}
	return nil
}

// handOver returns what a consumer writes to the inbox when the n-th delivery of a record fails.
func (w *workload) handOver(p *plan, copied *kgo.Record, n int, now time.Time) *kgo.Record {
	rec := &kgo.Record{Topic: w.ladders[p.ladder].inbox, Key: copied.Key, Value: copied.Value}
	rec.Headers = append(make([]kgo.RecordHeader, 0, len(copied.Headers)+10), copied.Headers...)
	missing := func(name, value string) {
		for _, h := range copied.Headers {
			if h.Key == name {
				return
			}
		}
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	missing("redrive-original-topic", copied.Topic)
	missing("redrive-original-partition", strconv.Itoa(int(copied.Partition)))
	missing("redrive-original-offset", strconv.FormatInt(copied.Offset, 10))
	missing("redrive-original-timestamp", stamp(copied.Timestamp))
	missing("redrive-group", "chaos-consumer")
	missing("redrive-failed-at", stamp(now))
	missing("redrive-error-type", "chaos.Failure")
	missing("redrive-error-message", "delivery "+strconv.Itoa(n)+" failed as planned")
	missing("redrive-consumer", "chaos")
	rec.Headers = append(rec.Headers, p.says(n, now)...)
	return rec
}

func givenName(id uint32) string { return "chaos-message-" + strconv.FormatUint(uint64(id), 10) }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func randomKey(r *rand.Rand) []byte {
	switch n := r.IntN(20); {
	case n < 2:
		return nil
	case n < 3:
		return []byte{}
	case n < 5:
		return stage.RandomBytes(r, 1+r.IntN(24))
	default:
		return strconv.AppendInt([]byte("key-"), int64(r.IntN(1000)), 10)
	}
}

func randomValue(r *rand.Rand, id uint32) []byte {
	switch n := r.IntN(100); {
	case n < 5:
		return nil
	case n < 10:
		return []byte{}
	case n < 12:
		return binary.BigEndian.AppendUint32(stage.RandomBytes(r, 1000+r.IntN(7000)), id)
	default:
		return binary.BigEndian.AppendUint32(stage.RandomBytes(r, r.IntN(120)), id)
	}
}

// foreignNames are names that a careless copy might touch: repeated ones, the empty one, no UTF-8, an own name of the
// future.
var foreignNames = [...]string{
	"trace", "trace", "Trace", "", "\xff\xfe", "h\xc3(", "redrive-of-the-future", "redrive-", "content-type",
	"__TypeId__", "kafka_dlt-original-topic", "x\x00y",
}

func foreignHeaders(r *rand.Rand, id uint32) []kgo.RecordHeader {
	n := r.IntN(6)
	headers := make([]kgo.RecordHeader, 0, n+8)
	at := r.IntN(n + 1)
	for i := 0; i <= n; i++ {
		if i == at {
			headers = append(headers, kgo.RecordHeader{Key: idHeader, Value: binary.BigEndian.AppendUint32(nil, id)})
			continue
		}
		h := kgo.RecordHeader{Key: foreignNames[r.IntN(len(foreignNames))]}
		if r.IntN(8) == 0 {
			h.Key = string(stage.RandomBytes(r, 1+r.IntN(12)))
		}
		switch r.IntN(5) {
		case 0:
		case 1:
			h.Value = []byte{}
		default:
			h.Value = stage.RandomBytes(r, 1+r.IntN(40))
		}
		headers = append(headers, h)
	}
	return headers
}

// numberOf finds the number of a record in its headers.
func numberOf(headers []kgo.RecordHeader) (uint32, bool) {
	for i := range headers {
		if headers[i].Key == idHeader && len(headers[i].Value) == 4 {
			return binary.BigEndian.Uint32(headers[i].Value), true
		}
	}
	return 0, false
}
