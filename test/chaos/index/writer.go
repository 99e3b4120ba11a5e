package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// writer writes dead letters as applications and the forwarder do, some in transactions. It keeps pace with the kills, so that there
// is something to index at each of them.
type writer struct {
	options Options
	stage   *stage.Stage
	random  *rand.Rand
	plain   *kgo.Client
	// transactional is nil before the first transaction, and after one that has failed.
	transactional *kgo.Client

	committed, aborted int

	mu  sync.Mutex
	err error // the first of the plain client
}

// chunk is how many letters are written at once; every fifth chunk is a transaction, of which every third is aborted.
const chunk = 200

func newWriter(s *stage.Stage, o Options) (*writer, error) {
	plain, err := kgo.NewClient(append(writerOpts(s), kgo.MaxBufferedRecords(20_000), kgo.ProducerLinger(5*time.Millisecond))...)
	if err != nil {
		return nil, fmt.Errorf("make the client that writes letters: %w", err)
	}
	return &writer{options: o, stage: s, random: rand.New(rand.NewPCG(o.Seed, 2)), plain: plain}, nil
}

func writerOpts(s *stage.Stage) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(s.Kafka.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100 * time.Millisecond),
	}
}

func (w *writer) close() {
	w.plain.Close()
	if w.transactional != nil {
		w.transactional.Close()
	}
}

// write writes all letters, each share of them when its kill is next, until over is closed.
func (w *writer) write(ctx context.Context, over <-chan struct{}) error {
	began, n := time.Now(), 0
	for turn := 1; ; turn++ {
		allowed := w.options.Letters
		select {
		case <-over:
			if w.committed >= allowed {
				return w.flush(ctx)
			}
		default:
			allowed = allowed * (w.stage.Killed() + 1) / (w.options.Kills + 1)
		}
		pace := time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(w.options.Rate)))
		if w.committed >= allowed {
			// What waits is no debt that would be made up for at once.
			pace, began = 20*time.Millisecond, began.Add(20*time.Millisecond)
		}
		if pace > 0 {
			if err := stage.Sleep(ctx, pace); err != nil {
				return err
			}
			continue
		}
		n += chunk
		var err error
		if turn%5 == 0 {
			err = w.transaction(ctx, turn%15 == 0)
		} else {
			err = w.send(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// send writes a chunk outside of transactions.
func (w *writer) send(ctx context.Context) error {
	for range chunk {
		w.plain.Produce(ctx, w.letter(), func(_ *kgo.Record, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.err == nil {
				w.err = err
			}
		})
	}
	w.committed += chunk
	return w.failure()
}

func (w *writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *writer) flush(ctx context.Context) error {
	if err := w.plain.Flush(ctx); err != nil {
		return fmt.Errorf("flush the letters: %w", err)
	}
	return w.failure()
}

// transaction writes a chunk in a transaction. Where a broker dies in the middle of it nobody needs to know how it ends: what a reader
// sees as committed is what counts. The next one, under the same id, makes sure that it ends.
func (w *writer) transaction(ctx context.Context, abort bool) error {
	for {
		err := w.tryTransaction(ctx, abort)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.options.Say("a transaction of letters: %v", err)
		if w.transactional != nil {
			w.transactional.Close()
			w.transactional = nil
		}
	}
	if abort {
		w.aborted += chunk
	} else {
		w.committed += chunk
	}
	return nil
}

func (w *writer) tryTransaction(ctx context.Context, abort bool) error {
	if w.transactional == nil {
		client, err := kgo.NewClient(append(writerOpts(w.stage), kgo.TransactionalID("chaos-letters"), kgo.TransactionTimeout(time.Minute))...)
		if err != nil {
			return fmt.Errorf("make a client for transactions: %w", err)
		}
		w.transactional = client
	}
	if err := w.transactional.BeginTransaction(); err != nil {
		return err
	}
	for range chunk {
		w.transactional.Produce(ctx, w.letter(), nil)
	}
	if err := w.transactional.Flush(ctx); err != nil {
		return err
	}
	return w.transactional.EndTransaction(ctx, kgo.TransactionEndTry(!abort))
}

// letter makes the next dead letter.
func (w *writer) letter() *kgo.Record {
	r := w.random
	topic := w.stage.Topics[0]
	if r.IntN(5) == 0 {
		topic = w.stage.Topics[1]
	}
	rec := &kgo.Record{Topic: topic.Letters(), Partition: r.Int32N(topic.Partitions)}
	switch n := r.IntN(20); {
	case n < 2:
	case n < 3:
		rec.Key = []byte{}
	case n < 5:
		rec.Key = stage.RandomBytes(r, 1+r.IntN(24))
	default:
		rec.Key = strconv.AppendInt([]byte("key-"), int64(r.IntN(10_000)), 10)
	}
	switch n := r.IntN(100); {
	case n < 5:
	case n < 10:
		rec.Value = []byte{}
	case n < 12:
		rec.Value = stage.RandomBytes(r, 1000+r.IntN(7000))
	default:
		rec.Value = stage.RandomBytes(r, 1+r.IntN(200))
	}
	add := func(name, value string) {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	for range r.IntN(4) {
		h := kgo.RecordHeader{Key: [...]string{"trace", "trace", "", "h\xc3(", "redrive-of-the-future"}[r.IntN(5)]}
		switch r.IntN(5) {
		case 0:
		case 1:
			h.Value = []byte{}
		default:
			h.Value = stage.RandomBytes(r, 1+r.IntN(40))
		}
		rec.Headers = append(rec.Headers, h)
	}
	if r.IntN(2) == 0 {
		add("redrive-message-id", fmt.Sprintf("chaos-%x", r.Uint64()))
	}
	if r.IntN(4) != 0 {
		add("redrive-original-topic", topic.Origin)
		add("redrive-original-partition", strconv.Itoa(r.IntN(int(topic.Partitions))))
		add("redrive-original-offset", strconv.FormatInt(r.Int64N(1<<40), 10))
		add("redrive-original-timestamp", "2024-02-29T23:59:59.999Z")
	}
	add("redrive-reason", [...]string{"poison", "permanent", "exhausted", "blocked"}[r.IntN(4)])
	if r.IntN(8) != 0 {
		add("redrive-error-type", "chaos.Failure"+strconv.Itoa(r.IntN(50)))
		add("redrive-error-message", fmt.Sprintf("order %d was refused: \u00fcber 0x%x", r.IntN(1_000_000), r.Uint32()))
		add("redrive-attempt", strconv.Itoa(1+r.IntN(9)))
		add("redrive-deliveries", strconv.Itoa(1+r.IntN(90)))
		add("redrive-group", "chaos-consumer")
	}
	return rec
}
