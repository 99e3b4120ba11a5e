package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// story follows the orders and knows when all have ended. It is safe for
// concurrent use; events are told one at a time, in the order they were seen.
type story struct {
	tell   func(event)
	prefix string // of the topics, not worth telling

	mu       sync.Mutex // guards the following
	began    time.Time
	seen     []*progress
	ended    chan struct{} // closed when every order has
	left     int
	repaired bool     // the consumer fails no more, dead letters are replayed
	replayed []string // the orders that came back since, in their order
}

// progress is what happened to one order so far.
type progress struct {
	order
	deliveries int
	failed     time.Time // the last time
	waits      []wait
	letter     string // the message id of its dead letter
	dead       string // how it ended before it was replayed
	end        string
	took       time.Duration
	wrong      []string // what broke a promise
}

// wait is one stay in a tier.
type wait struct {
	tier string
	due  time.Time
}

// event is one thing that happened, as a line of text or of JSON.
type event struct {
	At       float64 `json:"at"` // seconds since the first order was produced
	Order    string  `json:"order"`
	Event    string  `json:"event"`
	Delivery int     `json:"delivery,omitempty"`
	Topic    string  `json:"topic,omitempty"`
	Detail   string  `json:"detail"`
}

func newStory(orders []order, prefix string, tell func(event)) *story {
	s := &story{tell: tell, prefix: prefix, ended: make(chan struct{}), left: len(orders)}
	for _, o := range orders {
		s.seen = append(s.seen, &progress{order: o})
	}
	return s
}

// about tells an event of an order. The caller holds the lock.
func (s *story) about(p *progress, what, topic, format string, args ...any) {
	e := event{At: time.Since(s.began).Round(time.Millisecond).Seconds(), Order: p.id, Event: what, Topic: topic, Detail: fmt.Sprintf(format, args...)}
	if what == "failed" || what == "succeeded" {
		e.Delivery = p.deliveries
	}
	s.tell(e)
}

// of finds the order of a record by the header that must never change.
func (s *story) of(record *kgo.Record) *progress {
	for _, p := range s.seen {
		if header(record, "trace") == "trace of "+p.id {
			return p
		}
	}
	return nil // Not of this demo.
}

func (s *story) name(topic string) string { return strings.TrimPrefix(topic, s.prefix) }

// shorten leaves the prefix of the topics out of a text.
func (s *story) shorten(text string) string {
	if s.prefix == "" {
		return text
	}
	return strings.ReplaceAll(text, s.prefix, "")
}

func (s *story) place(r *kgo.Record) string {
	return fmt.Sprintf("%s/%d@%d", s.name(r.Topic), r.Partition, r.Offset)
}

// produce writes the orders to their topic, as any producer would.
func (s *story) produce(ctx context.Context, client *kgo.Client, topic string) error {
	s.mu.Lock()
	s.began = time.Now()
	s.mu.Unlock()
	for _, p := range s.seen {
		// Under the lock, so that nothing is told of an order before this.
		s.mu.Lock()
		r := &kgo.Record{
			Topic:   topic,
			Key:     []byte(p.recordKey()),
			Value:   []byte(p.value),
			Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("trace of " + p.id)}},
		}
		err := client.ProduceSync(ctx, r).FirstErr()
		if err == nil {
			s.about(p, "produced", r.Topic, "to %s, %s", s.place(r), p.title)
		}
		s.mu.Unlock()
		if err != nil {
			return fmt.Errorf("produce %s: %w", p.id, err)
		}
	}
	return nil
}

// delivered is the work of the consumer: it does what the script says.
func (s *story) delivered(_ context.Context, r *kgo.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(r)
	if p == nil {
		return nil
	}
	p.deliveries++
	switch attempt := header(r, "redrive-attempt"); {
	case s.repaired && p.dead != "":
		s.broughtBack(p, r)
	case attempt != "":
		s.returned(p, r, attempt)
	}
	failure := p.try(p.deliveries)
	if s.repaired {
		failure = nil
	}
	if failure != nil {
		p.failed = time.Now()
		s.about(p, "failed", r.Topic, "delivery %d: %s: %v", p.deliveries, errorType(failure), failure)
		return failure
	}
	s.about(p, "succeeded", r.Topic, "delivery %d", p.deliveries)
	if p.dead != "" {
		s.finish(p, later)
	} else {
		s.finish(p, succeeded)
	}
	return nil
}

// asScripted tells whether all went as it should so far.
func (s *story) asScripted() bool {
	return !slices.ContainsFunc(s.results(), func(r result) bool { return len(r.Differences) > 0 })
}

// repair begins the second act: from now on nothing fails, and the dead letters
// are expected to come back. The channel is closed when all of them have.
func (s *story) repair() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repaired, s.ended = true, make(chan struct{})
	for _, p := range s.seen {
		if p.letter != "" {
			p.dead, p.end = p.end, ""
			s.left++
		}
	}
	return s.ended
}

// letters are the message ids of the dead letters, by the title of their order.
func (s *story) letters() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]string{}
	for _, p := range s.seen {
		if p.letter != "" {
			all[p.title] = p.letter
		}
	}
	return all
}

// broughtBack checks a replayed order: the same record, at the start of its ladder.
func (s *story) broughtBack(p *progress, r *kgo.Record) {
	s.sameBytes(p, r)
	s.replayed = append(s.replayed, p.id)
	if attempt := header(r, "redrive-attempt"); attempt != "" && attempt != "0" {
		p.wrong = append(p.wrong, "was replayed with attempt "+attempt)
	}
	if id := header(r, "redrive-message-id"); id != p.letter {
		p.wrong = append(p.wrong, fmt.Sprintf("was replayed as %q, not %q", id, p.letter))
	}
	if header(r, "redrive-replay-id") == "" || header(r, "redrive-replay-count") != "1" {
		p.wrong = append(p.wrong, "came back, but not by its first replay")
	}
	s.about(p, "replayed", r.Topic, "from %s to %s", s.shorten(header(r, "redrive-replayed-from")), s.place(r))
}

// returned checks an order that comes back to the origin.
func (s *story) returned(p *progress, r *kgo.Record, attempt string) {
	s.sameBytes(p, r)
	if want := strconv.Itoa(p.deliveries - 1); attempt != want {
		p.wrong = append(p.wrong, fmt.Sprintf("came back with attempt %s, not %s", attempt, want))
	}
	if len(p.waits) < p.deliveries-1 {
		p.wrong = append(p.wrong, "came back before it was seen in a tier")
		s.about(p, "forwarded", r.Topic, "to %s", s.place(r))
		return
	}
	late := time.Since(p.waits[len(p.waits)-1].due)
	if late < 0 {
		p.wrong = append(p.wrong, fmt.Sprintf("came back %v before it was due", -late))
	}
	s.about(p, "forwarded", r.Topic, "after %s to %s, %d ms after it was due", seconds(time.Since(p.failed)), s.place(r), late.Milliseconds())
}

// waiting notes an order that was seen in a tier.
func (s *story) waiting(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(r)
	if p == nil {
		return
	}
	s.sameBytes(p, r)
	due, err := time.Parse(time.RFC3339, header(r, "redrive-available-at"))
	if err != nil {
		p.wrong = append(p.wrong, "waits without a due time: "+err.Error())
	}
	p.waits = append(p.waits, wait{tier: s.name(r.Topic), due: due})
	s.about(p, "waiting", r.Topic, "in %s until %s", s.name(r.Topic), due.Local().Format("15:04:05.000"))
}

// buried notes an order that was seen in the dead letters.
func (s *story) buried(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(r)
	if p == nil {
		return
	}
	s.sameBytes(p, r)
	reason := header(r, "redrive-reason")
	p.letter = header(r, "redrive-message-id")
	s.about(p, "dead-lettered", r.Topic, "%s after %s, in %s: %s", reason, times(header(r, "redrive-attempt")), s.place(r), header(r, "redrive-error-message"))
	s.finish(p, "dead: "+reason)
}

func times(attempt string) string {
	if attempt == "1" {
		return "1 delivery"
	}
	return attempt + " deliveries"
}

// sameBytes checks what must never change on the way.
func (s *story) sameBytes(p *progress, r *kgo.Record) {
	if string(r.Key) != p.recordKey() || !bytes.Equal(r.Value, []byte(p.value)) {
		p.wrong = append(p.wrong, "changed on its way to "+s.place(r))
	}
}

// finish notes the end of an order; a second one is a duplicate.
func (s *story) finish(p *progress, end string) {
	if p.end != "" {
		p.wrong = append(p.wrong, "ended twice: "+p.end+", "+end)
		return
	}
	p.end, p.took = end, time.Since(s.began)
	if s.left--; s.left == 0 {
		close(s.ended)
	}
}

// result is the end of the story of one order.
type result struct {
	Order      string   `json:"order"`
	Story      string   `json:"story"`
	Deliveries int      `json:"deliveries"`
	Tiers      []string `json:"tiers"`
	Dead       string   `json:"dead,omitempty"` // before it was replayed
	End        string   `json:"end"`
	Seconds    float64  `json:"seconds"`
	// Differences from what should have come out; none if all is well.
	Differences []string `json:"differences"`
}

// results compares what happened with the script.
func (s *story) results() []result {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []result
	for _, p := range s.seen {
		r := result{Order: p.id, Story: p.title, Deliveries: p.deliveries, Tiers: []string{}, End: p.end, Seconds: p.took.Round(time.Millisecond).Seconds()}
		for _, w := range p.waits {
			r.Tiers = append(r.Tiers, w.tier)
		}
		r.Differences = append([]string{}, slices.Compact(p.wrong)...)
		if p.end == "" {
			r.End = "not ended"
		}
		end, deliveries := p.order.end, p.order.deliveries
		if p.dead != "" {
			r.Dead = p.dead
			if p.dead != end {
				r.Differences = append(r.Differences, fmt.Sprintf("%s, not %s", p.dead, end))
			}
			end, deliveries = later, deliveries+1
		}
		if r.End != end {
			r.Differences = append(r.Differences, fmt.Sprintf("%s, not %s", r.End, end))
		}
		if p.deliveries != deliveries {
			r.Differences = append(r.Differences, fmt.Sprintf("deliveries %d, not %d", p.deliveries, deliveries))
		}
		if earlier := s.overtook(p); earlier != "" {
			r.Differences = append(r.Differences, "replayed before "+earlier+", which has the same key")
		}
		all = append(all, r)
	}
	return all
}

// overtook is an earlier order of the same key that was replayed later; "" is none.
func (s *story) overtook(p *progress) string {
	at := slices.Index(s.replayed, p.id)
	if at < 0 {
		return ""
	}
	for _, earlier := range s.seen {
		if earlier == p {
			break
		}
		if earlier.recordKey() == p.recordKey() && slices.Index(s.replayed, earlier.id) > at {
			return earlier.id
		}
	}
	return ""
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) + " s" }
