// Package fetch answers what stands at a given place of a topic: the bytes of a dead letter, and what follows a given
// offset of a target.
//
// The model: nothing is consumed. A place is asked of the leader of its partition by one fetch request, as many
// partitions in a request as have the same leader. Places that lie close together come with one answer, those that lie
// far apart with one each, and what an answer holds beyond them is kept for the next call: letters are mostly wanted in
// the order in which they lie.
//
// Promised: a record comes byte for byte, null and empty apart, and is that of the place and no other one. A topic that
// was made again is another topic. What can not be had any more is an error of that place alone, ErrGone, and it is
// certain: an answer of a broker that may know less than others is asked for again before it counts. Whatever else goes
// wrong is tried again until the context ends, and shown by Troubles.
//
// A Fetcher is safe for concurrent use and starts no goroutine that outlives a call.
package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	// doubts is how many answers in a row must say that something is not there, where a broker may be behind the others.
	doubts    = 3
	doubtWait = 300 * time.Millisecond

	// gap is how far two places may lie apart for one read through what is between them.
	gap = 128
	// minRead and maxRead bound what is asked of a partition in one request.
	minRead = 16 << 10
	maxRead = 1 << 20
	// maxAhead is how many bytes are kept for later calls.
	maxAhead = 16 << 20
)

// ErrGone is the bytes of a place that can not be had any more.
var ErrGone = errors.New("the bytes are gone from the topic")

// Why says how bytes went.
type Why string

// The ways that bytes go.
const (
	BelowStart     Why = "below-start"     // retention, or somebody who deleted records
	AboveEnd       Why = "above-end"       // the log was cut
	Hole           Why = "hole"            // compaction
	TopicRecreated Why = "topic-recreated" // another topic has the name now
	TopicDeleted   Why = "topic-deleted"
)

// GoneError is ErrGone with the particulars.
type GoneError struct {
	Place deadletter.Place
	Why   Why
}

// Error implements error.
func (e *GoneError) Error() string { return fmt.Sprintf("%s: %v: %s", e.Place, ErrGone, e.Why) }

// Is makes a GoneError an ErrGone.
func (e *GoneError) Is(target error) bool { return target == ErrGone }

// Options say how a Fetcher reaches the cluster.
type Options struct {
	// Kafka are the connection options. Required.
	Kafka kafka.Options
	// Logger receives what an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
}

// Result is the record of a place, or why there is none.
type Result struct {
	Payload   deadletter.Payload
	Timestamp time.Time
	// Err is nil or a *GoneError.
	Err error
}

// Trouble is a topic that can not be read for the moment.
type Trouble struct {
	Topic string
	Err   error
	Since time.Time
}

// Fetcher reads records by their places. Make one with New and close it.
type Fetcher struct {
	client *kgo.Client
	inflow kgo.Decompressor
	log    *slog.Logger

	mu       sync.Mutex
	topics   map[string]topicState
	ahead    map[part]*chunk
	size     int64
	spread   map[part]spread
	troubles map[string]Trouble
}

// part is a partition of one incarnation of a topic.
type part struct {
	id        deadletter.TopicID
	topic     string
	partition int32
}

// spread is how the bytes of a partition lie, as last seen.
type spread struct {
	density float64 // bytes an offset
	// batch is what to ask for at least. A broker gives a batch that is larger than what was asked for only to the first
	// partition of a request (KIP-74), and nothing to the others.
	batch float64
}

// chunk is what stands in a partition from one offset to another, which is not in it.
type chunk struct {
	from, next int64
	records    []*kgo.Record
	size       int64
}

// New returns a Fetcher. It opens no connection.
func New(opts Options) (*Fetcher, error) {
	base, err := opts.Kafka.ClientOpts()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(base, kgo.MetadataMinAge(250*time.Millisecond))...)
	if err != nil {
		return nil, fmt.Errorf("make the client that reads letters: %w", err)
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Fetcher{
		client:   client,
		inflow:   kgo.DefaultDecompressor(),
		log:      log.With("component", "fetch"),
		topics:   map[string]topicState{},
		ahead:    map[part]*chunk{},
		spread:   map[part]spread{},
		troubles: map[string]Trouble{},
	}, nil
}

// Close ends the connections. Calls under way fail.
func (f *Fetcher) Close() { f.client.Close() }

// Troubles are the topics that can not be read for the moment.
func (f *Fetcher) Troubles() []Trouble {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []Trouble
	for _, t := range f.troubles {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b Trouble) int { return cmp.Compare(a.Topic, b.Topic) })
	return list
}

// trouble notes an error of a topic, or that it is over.
func (f *Fetcher) trouble(ctx context.Context, topic string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, was := f.troubles[topic]
	switch {
	case err == nil && was:
		delete(f.troubles, topic)
		f.log.InfoContext(ctx, "the topic can be read again", "topic", topic)
	case err == nil || ctx.Err() != nil:
	case was:
		f.troubles[topic] = Trouble{Topic: topic, Err: err, Since: before.Since}
	default:
		f.troubles[topic] = Trouble{Topic: topic, Err: err, Since: time.Now()}
		f.log.WarnContext(ctx, "a topic can not be read, it is tried again", "topic", topic, "err", err)
	}
}

// want is one place of a call.
type want struct {
	offset int64
	index  int
}

// pending are the places of one partition that have no result yet, in the order of their offsets.
type pending struct {
	part  part
	wants []want
	// doubt is what the last answer said and may be wrong about, said how often it did so in a row.
	doubt Why
	said  int
}

// Fetch reads the records of places, as a reader of committed records sees them. The results stand in the order of the
// places. All of them are in memory at once: bound a call by the sizes of its letters. The error is that of ctx.
func (f *Fetcher) Fetch(ctx context.Context, places []deadletter.Place) ([]Result, error) {
	results := make([]Result, len(places))
	open := group(places)
	backoff := time.Duration(0)
	for {
		open = slices.DeleteFunc(open, func(p *pending) bool {
			f.serveAhead(p, results)
			return len(p.wants) == 0
		})
		if len(open) == 0 {
			return results, nil
		}
		moved, behind, err := f.round(ctx, open, results)
		if err != nil {
			return nil, err
		}
		switch {
		case moved:
			backoff = 0
			continue
		case behind > 0:
			backoff = behind
		default:
			backoff = min(max(minBackoff, 2*backoff), maxBackoff)
		}
		if !wait.For(ctx, backoff) {
			return nil, fmt.Errorf("read %s: %w", open[0].part.topic, context.Cause(ctx))
		}
	}
}

func group(places []deadletter.Place) []*pending {
	byPart := map[part]*pending{}
	var open []*pending
	for i, place := range places {
		key := part{place.TopicID, place.Topic, place.Partition}
		p := byPart[key]
		if p == nil {
			p = &pending{part: key}
			byPart[key] = p
			open = append(open, p)
		}
		p.wants = append(p.wants, want{place.Offset, i})
	}
	for _, p := range open {
		slices.SortFunc(p.wants, func(a, b want) int { return cmp.Compare(a.offset, b.offset) })
	}
	return open
}

// round asks once for the first places of all partitions. It tells whether any place got its result, and if not how
// long to wait, where that is known.
func (f *Fetcher) round(ctx context.Context, open []*pending, results []Result) (moved bool, wait time.Duration, err error) {
	var names []string
	for _, p := range open {
		names = append(names, p.part.topic)
	}
	topics, err := f.locate(ctx, names)
	if err != nil {
		for _, name := range names {
			f.trouble(ctx, name, err)
		}
		return false, 0, ctx.Err()
	}
	byLeader := map[int32][]*pending{}
	for _, p := range open {
		leader, why, err := topics[p.part.topic].leader(p.part)
		switch {
		case why != "":
			f.forget(p.part.topic)
			if p.doubted(why) {
				p.gone(results, why, len(p.wants))
				moved = true
			}
			wait = doubtWait
		case err != nil:
			f.forget(p.part.topic)
			f.trouble(ctx, p.part.topic, err)
		default:
			byLeader[leader] = append(byLeader[leader], p)
		}
	}
	type request struct {
		asked   []*pending
		answers []answer
		err     error
	}
	var requests []*request
	var group sync.WaitGroup
	for leader, asked := range byLeader {
		r := &request{asked: asked}
		requests = append(requests, r)
		asks := f.asks(asked)
		group.Go(func() { r.answers, r.err = f.read(ctx, leader, true, asks) })
	}
	group.Wait()
	for _, r := range requests {
		for n, p := range r.asked {
			a := answer{err: r.err}
			if r.err == nil {
				a = r.answers[n]
			}
			did, doubted := f.take(ctx, p, a, results)
			moved = moved || did
			if doubted {
				wait = doubtWait
			}
		}
	}
	return moved, wait, ctx.Err()
}

// asks are the first reads of partitions: from the first place through those that lie close to each other.
func (f *Fetcher) asks(open []*pending) []ask {
	f.mu.Lock()
	defer f.mu.Unlock()
	asks := make([]ask, 0, len(open))
	for _, p := range open {
		last := p.wants[0].offset
		for _, w := range p.wants[1:] {
			if w.offset-last > gap {
				break
			}
			last = w.offset
		}
		lie := f.spread[p.part]
		if lie.density == 0 {
			lie.density = 1 << 10
		}
		bytes := max(minRead, lie.batch) + lie.density*float64(last-p.wants[0].offset+1)
		asks = append(asks, ask{part: p.part, offset: p.wants[0].offset, maxBytes: int32(min(bytes, maxRead))})
	}
	return asks
}

// take gives the places that an answer is about their results. It tells whether there were any, and whether the answer
// is in doubt.
func (f *Fetcher) take(ctx context.Context, p *pending, a answer, results []Result) (moved, doubted bool) {
	topic, first := p.part.topic, p.wants[0].offset
	switch {
	case a.err != nil && isOutOfRange(a.err):
		return f.outOfRange(ctx, p, results)
	case a.err != nil:
		f.forget(topic)
		f.trouble(ctx, topic, fmt.Errorf("partition %d, offset %d: %w", p.part.partition, first, a.err))
		return false, false
	case a.next > first:
		p.doubt, p.said = "", 0
		f.trouble(ctx, topic, nil)
		f.mu.Lock()
		f.spread[p.part] = spread{density: float64(a.bytes) / float64(a.next-first), batch: f.spread[p.part].batch}
		f.mu.Unlock()
		c := &chunk{from: first, next: a.next, records: a.records}
		p.serve(c, results)
		f.keep(p.part, c)
		return true, false
	case a.highWatermark >= 0 && a.highWatermark <= first:
		if p.doubted(AboveEnd) {
			p.gone(results, AboveEnd, len(p.wants))
			return true, false
		}
		f.forget(topic)
		return false, true
	case a.err == nil && a.stable > first:
		f.mu.Lock()
		defer f.mu.Unlock()
		lie := f.spread[p.part]
		lie.batch = min(2*max(minRead, lie.batch), maxRead)
		f.spread[p.part] = lie
		return false, false
	default:
		// A transaction below the place is open again, to a broker that leads only since a moment ago.
		f.trouble(ctx, topic, fmt.Errorf("partition %d, offset %d: not readable as committed yet", p.part.partition, first))
		return false, false
	}
}

// outOfRange finds out on which side of the log the first place lies.
func (f *Fetcher) outOfRange(ctx context.Context, p *pending, results []Result) (moved, doubted bool) {
	one := []Partition{{p.part.topic, p.part.partition}}
	starts, err := f.Starts(ctx, one)
	if err != nil {
		f.trouble(ctx, p.part.topic, err)
		return false, false
	}
	start := starts[one[0]]
	below, _ := slices.BinarySearchFunc(p.wants, start, func(w want, at int64) int { return cmp.Compare(w.offset, at) })
	if below > 0 {
		p.gone(results, BelowStart, below)
		return true, false
	}
	if p.doubted(AboveEnd) {
		p.gone(results, AboveEnd, 1)
		return true, false
	}
	f.forget(p.part.topic)
	return false, true
}

// doubted tells whether something was said often enough to be believed.
func (p *pending) doubted(why Why) bool {
	if p.doubt != why {
		p.doubt, p.said = why, 0
	}
	p.said++
	return p.said >= doubts
}

// gone gives the first n places their result.
func (p *pending) gone(results []Result, why Why, n int) {
	for _, w := range p.wants[:n] {
		results[w.index].Err = &GoneError{p.place(w.offset), why}
	}
	p.wants = p.wants[n:]
	p.doubt, p.said = "", 0
}

func (p *pending) place(offset int64) deadletter.Place {
	return deadletter.Place{TopicID: p.part.id, Topic: p.part.topic, Partition: p.part.partition, Offset: offset}
}

// serve gives the places that lie in a chunk their results, and leaves in it what lies behind them.
func (p *pending) serve(c *chunk, results []Result) {
	for len(p.wants) > 0 && p.wants[0].offset < c.next {
		w := p.wants[0]
		i, found := slices.BinarySearchFunc(c.records, w.offset, func(r *kgo.Record, at int64) int { return cmp.Compare(r.Offset, at) })
		if found {
			results[w.index].Payload, results[w.index].Timestamp = payload(c.records[i]), c.records[i].Timestamp
		} else {
			results[w.index].Err = &GoneError{p.place(w.offset), Hole}
		}
		p.wants = p.wants[1:]
		clear(c.records[:i])
		c.records, c.from = c.records[i:], w.offset
	}
}

// serveAhead serves what an earlier call has read.
func (f *Fetcher) serveAhead(p *pending, results []Result) {
	f.mu.Lock()
	c := f.ahead[p.part]
	if c == nil || len(p.wants) == 0 || p.wants[0].offset < c.from || p.wants[0].offset >= c.next {
		f.mu.Unlock()
		return
	}
	delete(f.ahead, p.part)
	f.size -= c.size
	f.mu.Unlock()
	p.serve(c, results)
	f.keep(p.part, c)
}

// keep keeps what is left of a chunk for later calls.
func (f *Fetcher) keep(key part, c *chunk) {
	c.size = 0
	for _, r := range c.records {
		c.size += int64(len(r.Key)+len(r.Value)) + 256
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(c.records) < 2 || c.size > maxAhead {
		return
	}
	if old := f.ahead[key]; old != nil {
		f.size -= old.size
		delete(f.ahead, key)
	}
	for other, old := range f.ahead {
		if f.size+c.size <= maxAhead {
			break
		}
		f.size -= old.size
		delete(f.ahead, other)
	}
	f.ahead[key] = c
	f.size += c.size
}

// payload copies a record: it must not hold on to the answer it came with.
func payload(r *kgo.Record) deadletter.Payload {
	size := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Value)
	}
	buf := make([]byte, 0, size)
	copied := func(v []byte) []byte {
		if v == nil {
			return nil
		}
		start := len(buf)
		buf = append(buf, v...)
		return buf[start:len(buf):len(buf)]
	}
	p := deadletter.Payload{Key: copied(r.Key), Value: copied(r.Value)}
	for _, h := range r.Headers {
		p.Headers = append(p.Headers, deadletter.Header{Key: h.Key, Value: copied(h.Value)})
	}
	return p
}
