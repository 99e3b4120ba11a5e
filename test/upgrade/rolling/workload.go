package rolling

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// keys is how many keys the records have.
const keys = 300

// workload knows every record of a run. What a record is follows from the seed and its number.
type workload struct {
	seed   uint64
	origin string
	sent   atomic.Uint32 // Records 0 to sent-1 were given to the producer.
}

func (w *workload) inbox() string   { return w.origin + ".retry" }
func (w *workload) letters() string { return w.origin + ".dlt" }

// tier is the topic in which a record waits, and how long. All records of one key wait equally long.
func (w *workload) tier(key int) (topic string, wait time.Duration) {
	if key%2 == 0 {
		return w.inbox() + ".short", shortWait
	}
	return w.inbox() + ".long", longWait
}

// plan is what shall become of a record.
type plan struct {
	key  int
	dead bool
}

func (w *workload) draw(id uint32) (*rand.Rand, plan) {
	r := rand.New(rand.NewPCG(w.seed, uint64(id)))
	return r, plan{key: r.IntN(keys), dead: r.IntN(10) == 0}
}

func (w *workload) plan(id uint32) plan {
	_, p := w.draw(id)
	return p
}

// fates is how many records shall come back, and how many shall be dead.
func (w *workload) fates() (back, dead int64) {
	for id := range w.sent.Load() {
		if w.plan(id).dead {
			dead++
		} else {
			back++
		}
	}
	return back, dead
}

// idHeader carries the number of a record. It is a foreign header to Redrive.
const idHeader = "upgrade-id"

// partitioner is that of the producer of the origin.
var partitioner = kgo.StickyKeyPartitioner(nil)

// record is what a consumer hands over, the record with this offset on the origin having failed.
func (w *workload) record(id uint32) *kgo.Record {
	r, p := w.draw(id)
	rec := &kgo.Record{Topic: w.inbox(), Key: fmt.Appendf(nil, "key-%03d", p.key)}
	switch r.IntN(10) {
	case 0:
	case 1:
		rec.Value = []byte{}
	default:
		rec.Value = stage.RandomBytes(r, 1+r.IntN(300))
	}
	add := func(name, value string) {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: idHeader, Value: binary.BigEndian.AppendUint32(nil, id)})
	for range r.IntN(3) {
		h := kgo.RecordHeader{Key: [...]string{"trace", "trace", "", "h\xc3("}[r.IntN(4)]}
		if r.IntN(4) != 0 {
			h.Value = stage.RandomBytes(r, r.IntN(20))
		}
		rec.Headers = append(rec.Headers, h)
	}
	add("redrive-original-topic", w.origin)
	add("redrive-original-partition", strconv.Itoa(int(w.partition(rec))))
	add("redrive-original-offset", strconv.Itoa(int(id)))
	add("redrive-original-timestamp", "2024-02-29T23:59:59.999Z")
	add("redrive-error-type", "upgrade.Failure")
	if p.key%2 != 0 {
		add("redrive-attempt", "1") // It has been through the short tier.
	}
	if p.dead {
		add("redrive-reason", "poison")
	}
	return rec
}

// partition is where a record lives on the origin.
func (w *workload) partition(rec *kgo.Record) int32 {
	return int32(partitioner.ForTopic(w.origin).Partition(rec, partitions))
}

// messageID is what names a record for all its life.
func (w *workload) messageID(id uint32) string {
	return fmt.Sprintf("%s/%d/%d", w.origin, w.partition(w.record(id)), id)
}

// numberOf finds the number of a record.
func numberOf(rec *kgo.Record) (uint32, bool) {
	for i := range rec.Headers {
		if h := &rec.Headers[i]; h.Key == idHeader && len(h.Value) == 4 {
			return binary.BigEndian.Uint32(h.Value), true
		}
	}
	return 0, false
}

// produce sends records at the rate until stop is closed, and returns when all are acknowledged.
func (w *workload) produce(ctx context.Context, brokers []string, rate int, stop <-chan struct{}) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return fmt.Errorf("make the producer: %w", err)
	}
	defer client.Close()
	var (
		mu     sync.Mutex // guards failed
		failed error
	)
	noteFailure := func(_ *kgo.Record, err error) {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = err
		}
	}
	const pace = 10 * time.Millisecond
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	last, owed := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stop:
			if err := client.Flush(ctx); err != nil {
				return fmt.Errorf("flush the producer: %w", err)
			}
			mu.Lock()
			defer mu.Unlock()
			return failed
		case now := <-ticker.C:
			// After a stall the rate is the rate again: nothing is made up for.
			owed = min(owed+now.Sub(last).Seconds()*float64(rate), float64(rate)/4)
			last = now
		}
		for ; owed >= 1; owed-- {
			id := w.sent.Load()
			client.Produce(ctx, w.record(id), noteFailure)
			w.sent.Store(id + 1)
		}
	}
}
