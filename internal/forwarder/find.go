package forwarder

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

// Query says which waiting records are looked for: those of a message id or, if
// Key is not nil, those of a key.
type Query struct {
	MessageID string
	Key       []byte
	// Origin limits the search to the records of one origin. Empty: all.
	Origin string
	// Limit ends the search after so many records. Required.
	Limit int
}

// Waiting is a record that the group has not finished. It has neither the key
// nor the value.
type Waiting struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	// MessageID is the one in the record, or that a forwarder would give it.
	MessageID string `json:"messageId"`
	// Attempt is how many deliveries have failed so far in this run.
	Attempt int `json:"attempt"`
	// Until is the instant before which it is not forwarded; zero: it does not
	// wait. Of a record in the inbox it is when its tier will let it go.
	Until time.Time `json:"until,omitzero"`
	// Next is the topic it goes to from here. Empty: it stands in a topic that was
	// taken out of the configuration, and belongs to none that is there.
	Next string `json:"next"`
	// Reason is set if that is the dead letters.
	Reason envelope.Reason `json:"reason,omitempty"`
	// Original is where the record first lived.
	Original Place `json:"original"`
}

// Place is the position of a record.
type Place struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"` // -1: not known
	Offset    int64  `json:"offset"`    // -1: not known
}

// Progress is how far a search is.
type Progress struct {
	Read, Total int64 // offsets
	Found       int
}

// Found is the answer to a Query.
type Found struct {
	// Records are in the order in which they are forwarded.
	Records []Waiting `json:"records"`
	// Complete says that everything was searched: nothing went wrong, and
	// Query.Limit was not reached.
	Complete bool `json:"complete"`
	// Read is how many offsets were read.
	Read int64 `json:"read"`
	// Undecided are partitions that wait for an operator to set their offset.
	// They are searched from their start.
	Undecided []PartitionOffsets `json:"undecided"`
}

// searchIdle is how long a search waits for the next records of a partition
// that has not been read to its end.
const searchIdle = 30 * time.Second

// Find looks for records that wait: it reads the inboxes and the tiers from the
// group's commit to their ends as they are at the call, without what is
// finished above the commit. What was forwarded in the last moments, and is not
// committed yet, is found as well. It keeps no more in memory than what is on
// its way from the brokers and what it found, tells progress after each fetch,
// and changes nothing. An error means that the search is not complete; what was
// found by then comes with it, if it began at all.
func (o *Operator) Find(ctx context.Context, q Query, progress func(Progress)) (*Found, error) {
	s, err := o.search(ctx, q)
	if err != nil {
		return nil, err
	}
	if len(s.left) > 0 {
		err = s.read(ctx, progress)
	}
	f := &s.found
	f.Complete = len(s.left) == 0
	f.Read = s.progress.Read
	slices.SortFunc(f.Records, func(a, b Waiting) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return f, err
}

// search is one Find under way.
type search struct {
	o        *Operator
	query    Query
	left     map[string]map[int32]*searched // not read to their ends
	found    Found
	progress Progress
	env      envelope.Envelope
}

// searched is one partition of a search.
type searched struct {
	in  *inlet
	row PartitionOffsets
	at  int64 // the next offset
	end int64
}

// search finds out what is to be read.
func (o *Operator) search(ctx context.Context, q Query) (*search, error) {
	s := &search{o: o, query: q, left: map[string]map[int32]*searched{}}
	s.found.Records, s.found.Undecided = []Waiting{}, []PartitionOffsets{}
	var topics []string
	for _, topic := range o.Topics() {
		r := o.f.routes[topic].route
		if r == nil || q.Origin == "" || r.policy.Origin() == q.Origin {
			topics = append(topics, topic)
		}
	}
	if q.Origin != "" && !slices.ContainsFunc(o.f.ladders, func(r *route) bool { return r.policy.Origin() == q.Origin }) {
		return nil, fmt.Errorf("no origin is named %s", q.Origin)
	}
	rows, err := o.Offsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	// Up to the last stable offset: what is above it nobody may see yet.
	ends, err := o.f.admin.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list the end offsets: %w", err)
	}
	for _, row := range rows {
		if row.undecided() {
			s.found.Undecided = append(s.found.Undecided, row)
		}
		end, ok := ends.Lookup(row.Topic, row.Partition)
		if row.Partition < 0 || !ok {
			continue // A topic that is missing holds nothing.
		}
		if end.Err != nil {
			return nil, fmt.Errorf("list the end offset of %s: %w", &row, end.Err)
		}
		p := &searched{in: o.f.routes[row.Topic], row: row, at: row.from(), end: end.Offset}
		if p.at >= p.end {
			continue
		}
		s.progress.Total += p.end - p.at
		if s.left[row.Topic] == nil {
			s.left[row.Topic] = map[int32]*searched{}
		}
		s.left[row.Topic][row.Partition] = p
	}
	return s, nil
}

// read reads until everything is searched or the limit is reached.
func (s *search) read(ctx context.Context, progress func(Progress)) error {
	from := map[string]map[int32]kgo.Offset{}
	for topic, partitions := range s.left {
		from[topic] = map[int32]kgo.Offset{}
		for partition, p := range partitions {
			from[topic][partition] = kgo.NewOffset().At(p.at)
		}
	}
	base, err := s.o.f.opts.Kafka.ClientOpts() //nolint:contextcheck // It authenticates for as long as the client lives.
	if err != nil {
		return err
	}
	consumer, err := kgo.NewClient(append(base,
		kgo.ConsumePartitions(from),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// The end of a transaction may be the last thing before the end.
		kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(2<<20),
		kgo.FetchMaxPartitionBytes(256<<10),
		// One broker after the other, so that the memory is that of one answer.
		kgo.MaxConcurrentFetches(1),
	)...)
	if err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	defer consumer.Close()
	for len(s.left) > 0 && len(s.found.Records) < s.query.Limit {
		fetches, err := pollWithin(ctx, consumer, searchIdle)
		if err != nil {
			return s.stuck(err)
		}
		if err := fetchError(fetches); err != nil {
			return err
		}
		now := time.Now()
		ended := map[string][]int32{}
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			if p := s.left[f.Topic][f.Partition]; p != nil && s.take(p, f.Records, now) {
				ended[f.Topic] = append(ended[f.Topic], f.Partition)
				delete(s.left[f.Topic], f.Partition)
				if len(s.left[f.Topic]) == 0 {
					delete(s.left, f.Topic)
				}
			}
		})
		if len(ended) > 0 {
			// What is written now is not read any more.
			consumer.PauseFetchPartitions(ended)
		}
		s.progress.Found = len(s.found.Records)
		progress(s.progress)
	}
	return nil
}

// pollWithin returns an error if nothing came for so long, or ctx ended.
func pollWithin(ctx context.Context, consumer *kgo.Client, limit time.Duration) (kgo.Fetches, error) {
	poll, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fetches := consumer.PollFetches(poll)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return fetches, poll.Err()
}

// stuck says how far the search had come when it ended early.
func (s *search) stuck(cause error) error {
	if !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("the search was ended after %d of %d offsets: %w", s.progress.Read, s.progress.Total, cause)
	}
	for _, partitions := range s.left {
		for _, p := range partitions {
			return fmt.Errorf("nothing came for %v, perhaps because of a transaction that is open, and %s is read up to offset %d of %d only", searchIdle, &p.row, p.at, p.end)
		}
	}
	return cause
}

func fetchError(fetches kgo.Fetches) error {
	var failed error
	fetches.EachError(func(topic string, partition int32, err error) {
		if errors.Is(err, kerr.OffsetOutOfRange) {
			err = fmt.Errorf("retention removed records while they were to be read, try again: %w", err)
		}
		failed = firstOf(failed, fmt.Errorf("read %s/%d: %w", topic, partition, err))
	})
	return failed
}

// take searches records of one partition, until the limit is reached, and
// reports whether the partition's end is.
func (s *search) take(p *searched, records []*kgo.Record, now time.Time) (ended bool) {
	for _, r := range records {
		if len(s.found.Records) == s.query.Limit {
			return false
		}
		if r.Offset >= p.end {
			s.progress.Read += p.end - p.at
			p.at = p.end
			return true
		}
		s.progress.Read += r.Offset + 1 - p.at
		p.at = r.Offset + 1
		if r.Attrs.IsControl() || p.row.done.Cover(r.Offset, r.Offset+1) {
			continue
		}
		if w, ok := s.match(p.in, r, now); ok {
			s.found.Records = append(s.found.Records, w)
		}
	}
	return p.at >= p.end
}

// match reports whether the record is one of those that are looked for, and
// what becomes of it.
func (s *search) match(in *inlet, r *kgo.Record, now time.Time) (Waiting, bool) {
	q, e := &s.query, &s.env
	if q.Key != nil && (r.Key == nil || !bytes.Equal(q.Key, r.Key)) {
		return Waiting{}, false
	}
	e.Parse(r.Headers)
	arrival := now
	if r.Timestamp.Unix() > 0 && r.Timestamp.Before(now) {
		arrival = r.Timestamp
	}
	w := Waiting{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
	rec := record{rec: r, arrival: arrival.UnixNano(), route: in.routeOf(s.o.f, e)}
	if q.Origin != "" && (rec.route == nil || rec.route.policy.Origin() != q.Origin) {
		return Waiting{}, false
	}
	if rec.route != nil {
		policy := rec.route.policy
		// Of a jitter nobody knows yet what it will be: the least is told.
		step := in.decide(e, &rec, now.UnixNano(), func() float64 { return 0 })
		w.Next, w.Reason = policy.Topic(step), step.Reason
		w.Original.Topic = policy.Origin()
		if step.To != tiers.ToDeadLetters {
			w.Until = step.AvailableAt
		}
	}
	e.EnsureMessageID(r.Topic, r.Partition, r.Offset)
	if q.Key == nil && string(e.MessageID) != q.MessageID {
		return Waiting{}, false
	}
	w.MessageID, w.Attempt = string(e.MessageID), e.Attempt
	w.Original.Partition, w.Original.Offset = e.OriginalPartition, e.OriginalOffset
	if e.OriginalTopic != nil {
		w.Original.Topic = string(e.OriginalTopic)
	}
	return w, true
}
