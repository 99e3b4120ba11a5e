package replay

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

// frozenLetters are replayed in each job in whose middle a replica is stopped, of frozenKeys keys.
const (
	frozenLetters = 1800
	frozenKeys    = 50
)

// workload knows every letter of a run. What a letter is follows from the seed and its number.
type workload struct {
	seed                uint64
	letters, keys, jobs int
	freezes             int
	sizes               []int          // letters by group: those of one job
	byType              map[string]int // the same by error type, frozen ones too
}

// idHeader carries the number of a letter. It is a foreign header to Redrive.
const idHeader = "chaos-id"

func newWorkload(o Options) *workload {
	w := &workload{seed: o.Seed, letters: o.Letters, keys: o.Keys, freezes: o.Freezes, byType: map[string]int{}}
	w.jobs = max(1, min(o.Kills, o.Keys, 50))
	w.sizes = make([]int, w.jobs)
	for id := range w.letters {
		w.sizes[w.group(id)]++
	}
	for group, n := range w.sizes {
		w.byType[w.errorType(group)] = n
	}
	for n := range w.freezes {
		w.byType[frozenType(n)] = frozenLetters
	}
	return w
}

// groups is how many jobs there are beside those for stops.
func (w *workload) groups() int { return w.jobs }

// total is how many letters there are, those for stops with them.
func (w *workload) total() int { return w.letters + w.freezes*frozenLetters }

// key is the number of the key that a letter has.
func (w *workload) key(id int) int {
	if id < w.letters {
		return id % w.keys
	}
	scene := (id - w.letters) / frozenLetters
	return w.keys + scene*frozenKeys + id%frozenKeys
}

// group is the job of a letter, which is the same for all of its key: order is promised inside a job.
func (w *workload) group(id int) int { return w.key(id) % w.jobs }

func (w *workload) errorType(group int) string { return fmt.Sprintf("chaos.Job%03d", group) }

func frozenType(n int) string { return fmt.Sprintf("chaos.Frozen%03d", n) }

func (w *workload) typeOf(id int) string {
	if id < w.letters {
		return w.errorType(w.group(id))
	}
	return frozenType((id - w.letters) / frozenLetters)
}

// partitioner is what a producer of the origin uses.
var partitioner = kgo.StickyKeyPartitioner(nil).ForTopic(topic.Origin)

// name is the message id that the producer gave to a letter, or "".
func name(id int) string {
	if id%2 == 0 {
		return ""
	}
	return "chaos-message-" + strconv.Itoa(id)
}

// record is the dead letter with that number. It was the record with this offset on the origin: later letters of a key are later ones.
func (w *workload) record(id int) *kgo.Record {
	r := rand.New(rand.NewPCG(w.seed, uint64(id)))
	rec := &kgo.Record{Topic: topic.Letters(), Key: fmt.Appendf(nil, "key-%06d", w.key(id))}
	home := partitioner.Partition(rec, int(topic.Partitions))
	rec.Partition = r.Int32N(topic.LetterPartitions)
	switch r.IntN(20) {
	case 0:
	case 1:
		rec.Value = []byte{}
	default:
		rec.Value = stage.RandomBytes(r, 1+r.IntN(200))
	}
	add := func(name, value string) {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	add(idHeader, strconv.Itoa(id))
	for range r.IntN(3) {
		h := kgo.RecordHeader{Key: [...]string{"trace", "trace", "", "h\xc3("}[r.IntN(4)]}
		if r.IntN(4) != 0 {
			h.Value = stage.RandomBytes(r, r.IntN(20))
		}
		rec.Headers = append(rec.Headers, h)
	}
	if n := name(id); n != "" {
		add("redrive-message-id", n)
	}
	add("redrive-original-topic", topic.Origin)
	add("redrive-original-partition", strconv.Itoa(home))
	add("redrive-original-offset", strconv.Itoa(id))
	add("redrive-original-timestamp", "2024-02-29T23:59:59.999Z")
	add("redrive-original-partitions", strconv.Itoa(int(topic.Partitions)))
	add("redrive-attempt", "3")
	add("redrive-deliveries", "3")
	add("redrive-reason", "exhausted")
	add("redrive-error-type", w.typeOf(id))
	add("redrive-error-message", "it failed as planned")
	return rec
}

// write writes all letters, in no order.
func (w *workload) write(ctx context.Context, s *stage.Stage) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(20_000), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return fmt.Errorf("make the client that writes letters: %w", err)
	}
	defer client.Close()
	var (
		mu    sync.Mutex
		first error
	)
	for _, id := range rand.New(rand.NewPCG(w.seed, 3)).Perm(w.total()) {
		client.Produce(ctx, w.record(id), func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = err
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("write the letters: %w", err)
	}
	mu.Lock()
	defer mu.Unlock()
	return first
}
