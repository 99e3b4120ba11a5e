package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// failure makes the i-th record of a load: something an application hands over for the first, second or third time, so
// that a ladder of two tiers leads it to each of them or to the dead letters. Every second one says where it first lived.
// Every fifth has a wait of its own, so that waits are not in the order of offsets. The value is unique.
func (s *story) failure(random *rand.Rand, i int) *kgo.Record {
	r := &kgo.Record{Topic: s.inbox(), Key: strconv.AppendInt(nil, int64(i%97), 10), Value: fmt.Appendf(nil, "record %06d", i)}
	if i%2 == 0 {
		r.Headers = position(s.origin, int32(i)%s.partitions, int64(i), time.Now())
	}
	if failedBefore := i % 3; failedBefore > 0 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "redrive-attempt", Value: strconv.AppendInt(nil, int64(failedBefore), 10)})
	}
	if i%5 == 0 {
		wait := time.Duration(100+random.IntN(900)) * time.Millisecond
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "redrive-retry-after", Value: []byte(wait.String())})
	}
	return r
}

// load hands failures over at a steady rate until stop.
type load struct {
	t       *testing.T
	client  *testkit.Client
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex // guards the following
	acked []string   // values
	err   error      // the first
}

// load starts a load of so many failures a second.
func (s *story) load(random *rand.Rand, perSecond int) *load {
	s.t.Helper()
	client, err := testkit.NewClient(s.kafka.Brokers())
	if err != nil {
		s.t.Fatal(err)
	}
	own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64())) // The caller goes on with random.
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: s.t, client: client, cancel: cancel}
	l.running.Go(func() { l.run(ctx, perSecond, func(i int) *kgo.Record { return s.failure(own, i) }) })
	s.t.Cleanup(func() {
		cancel()
		l.running.Wait()
		client.Close()
	})
	return l
}

func (l *load) run(ctx context.Context, perSecond int, record func(i int) *kgo.Record) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	began := time.Now()
	sent := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		for ; float64(sent) < time.Since(began).Seconds()*float64(perSecond); sent++ {
			// What is on its way when the load ends must still arrive.
			l.client.Kafka().Produce(context.WithoutCancel(ctx), record(sent), l.done)
		}
	}
}

func (l *load) done(r *kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.acked = append(l.acked, string(r.Value))
	} else if l.err == nil {
		l.err = err
	}
}

// soFar are the values that are acknowledged by now.
func (l *load) soFar() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.acked)
}

// stop ends the load and returns the values of all of it.
func (l *load) stop() []string {
	l.t.Helper()
	l.cancel()
	l.running.Wait()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	if err := l.client.Kafka().Flush(ctx); err != nil {
		l.t.Fatalf("the end of the load: %v", err)
	}
	if l.err != nil {
		l.t.Fatalf("the load: %v", l.err)
	}
	return l.soFar()
}

// pass lets time go by in which a load runs: what comes next shall come at a moment that nothing else fixes.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("the test has ended")
	}
}
