package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	letters    = "orders.dlt"
	partitions = 4
)

// rig is a fake cluster with a topic of dead letters, and a ledger, in a bubble.
type rig struct {
	t      *testing.T
	kafka  *testkit.VirtualKafka
	client *testkit.TestClient
	ledger *memory
	opts   Options
}

// simulate runs story in a bubble of virtual time.
func simulate(t *testing.T, story func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := testkit.Virtual(t, kfake.NumBrokers(1))
		r := &rig{t: t, kafka: cluster, client: cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner())), ledger: newMemory()}
		r.client.CreateTopic(letters, partitions, nil)
		r.client.CreateTopic("orders", partitions, nil)
		r.opts = Options{
			Kafka:  kafka.Options{Brokers: cluster.Brokers(), Dialer: cluster.Dial, Logger: testkit.Logger(t)},
			Topics: []Topic{{DeadLetters: letters, Origin: "orders"}},
			Group:  "redrive-dlt-replayer",
			Ledger: r.ledger,
			Logger: testkit.Logger(t),
		}
		story(t, r)
	})
}

// start runs an indexer until stop is called or the test ends.
func (r *rig) start(changes ...func(*Options)) (ix *Indexer, stop func()) {
	r.t.Helper()
	opts := r.opts
	for _, change := range changes {
		change(&opts)
	}
	ix, err := New(opts)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ix.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
	}
	r.t.Cleanup(stop)
	return ix, stop
}

// produce writes n records, in turn to each partition.
func (r *rig) produce(n int, change func(i int, rec *kgo.Record)) {
	r.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{
			Topic: letters, Partition: int32(i % partitions), Key: []byte("k" + strconv.Itoa(i)), Value: []byte("v" + strconv.Itoa(i)),
			Headers: []kgo.RecordHeader{
				{Key: envelope.HeaderMessageID, Value: []byte("m" + strconv.Itoa(i))},
				{Key: envelope.HeaderErrorType, Value: []byte("E")},
			},
		}
		if change != nil {
			change(i, records[i])
		}
	}
	r.client.Produce(records...)
}

// equal waits until the index equals the dead letters: a row for each record, with its bytes' digest, and no other row.
func (r *rig) equal(limit time.Duration) {
	r.t.Helper()
	want := r.client.ReadAll(letters, kgo.ReadCommitted())
	testkit.WaitFor(r.t, limit, fmt.Sprintf("%d rows", len(want)), func(context.Context) error {
		if n := r.ledger.count(); n < len(want) {
			return fmt.Errorf("%d rows of %d", n, len(want))
		}
		return nil
	})
	r.compare(want)
}

func (r *rig) compare(want []*kgo.Record) {
	r.t.Helper()
	rows := r.ledger.rows()
	for _, rec := range want {
		at := spot{rec.Partition, rec.Offset}
		l, ok := rows[at]
		switch {
		case !ok:
			r.t.Errorf("index_missing: %v has no row", at)
		case l.Digest != deadletter.Digest(rec.Key, rec.Value, rec.Headers) || l.Place.Topic != letters:
			r.t.Errorf("the row of %v is that of another record: %+v", at, l)
		}
		delete(rows, at)
	}
	if len(rows) > 0 {
		r.t.Errorf("index_phantom: %d rows without a record: %v", len(rows), slices.Collect(maps.Keys(rows)))
	}
	for _, err := range r.ledger.broken() {
		r.t.Error(err)
	}
}

// has waits until the status names an issue.
func has(t *testing.T, ix *Indexer, limit time.Duration, code issue.Code) issue.Trouble {
	t.Helper()
	var found issue.Trouble
	testkit.WaitFor(t, limit, "issue "+string(code), func(context.Context) error {
		for _, trouble := range ix.Status().Troubles {
			if trouble.Issue == code {
				found = trouble
				return nil
			}
		}
		return fmt.Errorf("troubles are %v", ix.Status().Troubles)
	})
	return found
}

// spot is where a letter lies; the topic is known.
type spot struct {
	partition int32
	offset    int64
}

// memory is a ledger that keeps the promises of deadletter.Indexing, in memory, and can be made to break down.
type memory struct {
	// before and after are called around each call's effect with its name; an error is answered, after the effect or without it.
	before, after func(ctx context.Context, call string) error

	mu         sync.Mutex
	partitions map[deadletter.TopicID]map[int32]*memoryPartition
	topics     map[deadletter.TopicID]string
	violations []error
	ids        int64
	asked      int                // how often for fingerprints
	batches    []deadletter.Batch // without their letters
}

type memoryPartition struct {
	next, lost int64
	letters    map[int64]*deadletter.Letter
	payloads   map[int64]deadletter.Payload
}

var _ Ledger = (*memory)(nil)

func newMemory() *memory {
	return &memory{partitions: map[deadletter.TopicID]map[int32]*memoryPartition{}, topics: map[deadletter.TopicID]string{}}
}

// do runs one call. The faults are outside of the lock, since they may block.
func (m *memory) do(ctx context.Context, call string, effect func() error) error {
	if m.before != nil {
		if err := m.before(ctx, call); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.mu.Lock()
	err := effect()
	m.mu.Unlock()
	if err == nil && m.after != nil {
		err = m.after(ctx, call)
	}
	return err
}

func (m *memory) Next(ctx context.Context, id deadletter.TopicID, topic string, partition int32, start int64) (next int64, err error) {
	err = m.do(ctx, "next", func() error {
		p := m.partitions[id][partition]
		if p == nil {
			if m.partitions[id] == nil {
				m.partitions[id] = map[int32]*memoryPartition{}
			}
			m.topics[id] = topic
			p = &memoryPartition{next: start, letters: map[int64]*deadletter.Letter{}, payloads: map[int64]deadletter.Payload{}}
			m.partitions[id][partition] = p
		}
		next = p.next
		return nil
	})
	return next, err
}

func (m *memory) Index(ctx context.Context, b deadletter.Batch) error {
	return m.do(ctx, "index", func() error {
		p := m.partitions[b.TopicID][b.Partition]
		if p == nil || p.next != b.Expected {
			return deadletter.ErrMoved
		}
		if b.Next <= b.Expected || b.Lost < 0 || b.Lost > b.Next-b.Expected-int64(len(b.Letters)) || len(b.Letters) > maxLetters {
			m.violations = append(m.violations, fmt.Errorf("a batch from %d to %d with %d letters and %d lost", b.Expected, b.Next, len(b.Letters), b.Lost))
		}
		last := b.Expected - 1
		for i := range b.Letters {
			l := b.Letters[i]
			if l.Place.Offset <= last || l.Place.Offset >= b.Next || l.Place.TopicID != b.TopicID || l.Place.Partition != b.Partition {
				m.violations = append(m.violations, fmt.Errorf("a letter at %v in a batch from %d to %d", l.Place, b.Expected, b.Next))
			}
			last = l.Place.Offset
			if p.letters[last] != nil {
				m.violations = append(m.violations, fmt.Errorf("index_duplicate: %v", l.Place))
			}
			m.ids++
			l.ID, l.StateAt = m.ids, time.Now()
			p.letters[last] = &l
			if b.Payloads != nil {
				p.payloads[last] = b.Payloads[i]
			}
		}
		p.next = b.Next
		p.lost += b.Lost
		b.Letters, b.Payloads = nil, nil
		m.batches = append(m.batches, b)
		return nil
	})
}

func (m *memory) each(do func(id deadletter.TopicID, partition int32, p *memoryPartition)) {
	for id, partitions := range m.partitions {
		for n, p := range partitions {
			do(id, n, p)
		}
	}
}

func (m *memory) Expire(ctx context.Context, id deadletter.TopicID, partition int32, below int64) (n int64, err error) {
	err = m.do(ctx, "expire", func() error {
		if p := m.partitions[id][partition]; p != nil {
			for offset, l := range p.letters {
				if offset < below && l.State == deadletter.Dead && !l.Kept {
					l.State = deadletter.Expired
					n++
				}
			}
		}
		return nil
	})
	return n, err
}

func (m *memory) ExpireTopics(ctx context.Context, topic string, current deadletter.TopicID) (n int64, err error) {
	err = m.do(ctx, "expire topics", func() error {
		m.each(func(id deadletter.TopicID, _ int32, p *memoryPartition) {
			if m.topics[id] != topic || id == current {
				return
			}
			for _, l := range p.letters {
				if l.State == deadletter.Dead && !l.Kept {
					l.State = deadletter.Expired
					n++
				}
			}
		})
		return nil
	})
	return n, err
}

func (m *memory) Progress(ctx context.Context) (all []deadletter.Progress, err error) {
	err = m.do(ctx, "progress", func() error {
		m.each(func(id deadletter.TopicID, n int32, p *memoryPartition) {
			all = append(all, deadletter.Progress{TopicID: id, Topic: m.topics[id], Partition: n, Next: p.next, Lost: p.lost})
		})
		return nil
	})
	return all, err
}

func (m *memory) Unseen(ctx context.Context, fingerprints []string) (unseen []string, err error) {
	err = m.do(ctx, "unseen", func() error {
		m.asked++
		seen := map[string]bool{}
		m.each(func(_ deadletter.TopicID, _ int32, p *memoryPartition) {
			for _, l := range p.letters {
				seen[l.Fingerprint] = true
			}
		})
		for _, print := range fingerprints {
			if !seen[print] {
				unseen = append(unseen, print)
			}
		}
		return nil
	})
	return unseen, err
}

func (m *memory) Awaiting(ctx context.Context, after int64, limit int) (found []deadletter.Letter, err error) {
	err = m.do(ctx, "awaiting", func() error {
		m.each(func(_ deadletter.TopicID, _ int32, p *memoryPartition) {
			for _, l := range p.letters {
				if l.State == deadletter.Replayed && l.ID > after {
					found = append(found, *l)
				}
			}
		})
		slices.SortFunc(found, func(a, b deadletter.Letter) int { return int(a.ID - b.ID) })
		found = found[:min(limit, len(found))]
		return nil
	})
	return found, err
}

func (m *memory) Succeed(ctx context.Context, ids []int64) (n int64, err error) {
	err = m.do(ctx, "succeed", func() error {
		m.each(func(_ deadletter.TopicID, _ int32, p *memoryPartition) {
			for _, l := range p.letters {
				if slices.Contains(ids, l.ID) && l.State == deadletter.Replayed {
					l.State = deadletter.Succeeded
					n++
				}
			}
		})
		return nil
	})
	return n, err
}

func (m *memory) Stats(ctx context.Context) (stats []deadletter.Stat, err error) {
	err = m.do(ctx, "stats", func() error {
		counts := map[deadletter.State]*deadletter.Stat{}
		m.each(func(_ deadletter.TopicID, _ int32, p *memoryPartition) {
			for _, l := range p.letters {
				s := counts[l.State]
				if s == nil {
					s = &deadletter.Stat{Topic: letters, Origin: "orders", State: l.State, Oldest: l.DeadAt}
					counts[l.State] = s
				}
				s.Count++
				if l.DeadAt.Before(s.Oldest) {
					s.Oldest = l.DeadAt
				}
			}
		})
		for _, s := range counts {
			stats = append(stats, *s)
		}
		return nil
	})
	return stats, err
}

func (m *memory) count() int { return len(m.rows()) }

func (m *memory) rows() map[spot]deadletter.Letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := map[spot]deadletter.Letter{}
	m.each(func(_ deadletter.TopicID, n int32, p *memoryPartition) {
		for offset, l := range p.letters {
			rows[spot{n, offset}] = *l
		}
	})
	return rows
}

func (m *memory) inState(state deadletter.State) int {
	n := 0
	for _, l := range m.rows() {
		if l.State == state {
			n++
		}
	}
	return n
}

// change lets a test do to letters what replays and operators do.
func (m *memory) change(do func(l *deadletter.Letter)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.each(func(_ deadletter.TopicID, _ int32, p *memoryPartition) {
		for _, l := range p.letters {
			do(l)
		}
	})
}

func (m *memory) lost() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var n int64
	m.each(func(_ deadletter.TopicID, _ int32, p *memoryPartition) { n += p.lost })
	return n
}

func (m *memory) next() map[int32]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[int32]int64{}
	m.each(func(_ deadletter.TopicID, n int32, p *memoryPartition) { next[n] = p.next })
	return next
}

func (m *memory) broken() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.violations
}

var errDown = errors.New("the database does not answer")
