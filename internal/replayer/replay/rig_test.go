package replay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlite"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/idempotency"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const partitions = 4

// rig is a fake cluster with the topics of one origin, and a ledger, in a bubble.
type rig struct {
	t      *testing.T
	kafka  *testkit.VirtualKafka
	client *testkit.TestClient
	ledger deadletter.Ledger
	opts   Options
}

func simulate(t *testing.T, story func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := testkit.Virtual(t)
		r := &rig{t: t, kafka: cluster, client: cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))}
		ledger, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := ledger.Close(); err != nil {
				t.Error(err)
			}
		})
		r.ledger = ledger
		for topic, n := range map[string]int32{"orders": partitions, "orders.dlt": partitions, "orders.dlt.replay": 2, "orders.billing": partitions, "other": 1, "replies": 1} {
			r.client.CreateTopic(topic, n, nil)
		}
		r.opts = Options{
			Kafka: kafka.Options{Brokers: cluster.Brokers(), Dialer: cluster.Dial},
			Topics: []Topic{{
				DeadLetters: "orders.dlt", Origin: "orders", Trigger: "orders.dlt.replay", ReplayTo: []string{"other"}, ReplyTo: []string{"replies"},
			}},
			Ledger: ledger,
			Logger: testkit.Logger(t),
		}
		story(t, r)
	})
}

// process is one replayer as a process of its own: it can be cut off from the world, as kill -9 and SIGSTOP do.
type process struct {
	*Replayer
	t    *testing.T
	gate *gate
	stop func()
}

// gate is a ledger, and the connections of one process.
type gate struct {
	deadletter.Ledger
	mu    sync.Mutex
	err   error // what all calls return; nil: they pass
	conns []net.Conn
	dial  func(ctx context.Context, network, host string) (net.Conn, error)
	fails map[string]int // calls that succeed in the ledger and whose answer is lost, by name
}

var errGone = errors.New("the process is cut off")

func (g *gate) pass() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

func (g *gate) set(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// kill ends what the process could still do.
func (g *gate) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = errGone
	for _, conn := range g.conns {
		_ = conn.Close()
	}
}

func (g *gate) connect(ctx context.Context, network, host string) (net.Conn, error) {
	if err := g.pass(); errors.Is(err, errGone) {
		return nil, err
	}
	conn, err := g.dial(ctx, network, host)
	if err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.conns = append(g.conns, conn)
	}
	return conn, err
}

func (g *gate) lost(call string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fails[call] == 0 {
		return false
	}
	g.fails[call]--
	return true
}

func (g *gate) LeaseJob(ctx context.Context, owner string, lease time.Duration) (*deadletter.Job, error) {
	if err := g.pass(); err != nil {
		return nil, err
	}
	return g.Ledger.LeaseJob(ctx, owner, lease)
}

func (g *gate) RenewJob(ctx context.Context, id string, fence idempotency.Fence, lease time.Duration) (deadletter.Job, error) {
	if err := g.pass(); err != nil {
		return deadletter.Job{}, err
	}
	return g.Ledger.RenewJob(ctx, id, fence, lease)
}

func (g *gate) Job(ctx context.Context, id string) (deadletter.Job, error) {
	if err := g.pass(); err != nil {
		return deadletter.Job{}, err
	}
	return g.Ledger.Job(ctx, id)
}

func (g *gate) Claim(ctx context.Context, job string, fence idempotency.Fence, wants []deadletter.Want) ([]deadletter.ClaimResult, error) {
	if err := g.pass(); err != nil {
		return nil, err
	}
	results, err := g.Ledger.Claim(ctx, job, fence, wants)
	if err == nil && g.lost("claim") {
		return nil, errors.New("the connection broke")
	}
	return results, err
}

func (g *gate) Finish(ctx context.Context, outcomes []deadletter.Outcome) ([]deadletter.Outcome, error) {
	if err := g.pass(); err != nil {
		return nil, err
	}
	fenced, err := g.Ledger.Finish(ctx, outcomes)
	if err == nil && g.lost("finish") {
		return nil, errors.New("the connection broke")
	}
	return fenced, err
}

func (g *gate) Skip(ctx context.Context, job string, fence idempotency.Fence, errs map[int64]string) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Ledger.Skip(ctx, job, fence, errs)
}

func (g *gate) EndJob(ctx context.Context, id string, fence idempotency.Fence) (deadletter.Job, error) {
	if err := g.pass(); err != nil {
		return deadletter.Job{}, err
	}
	return g.Ledger.EndJob(ctx, id, fence)
}

func (g *gate) LeaveJob(ctx context.Context, id string, fence idempotency.Fence) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Ledger.LeaveJob(ctx, id, fence)
}

func (g *gate) CreateJob(ctx context.Context, spec deadletter.JobSpec, filter deadletter.Filter) (deadletter.Job, bool, error) {
	if err := g.pass(); err != nil {
		return deadletter.Job{}, false, err
	}
	return g.Ledger.CreateJob(ctx, spec, filter)
}

// start runs a replayer until its stop is called or the test ends.
func (r *rig) start(changes ...func(*Options, *gate)) *process {
	r.t.Helper()
	opts := r.opts
	g := &gate{Ledger: r.ledger, dial: r.kafka.Dial, fails: map[string]int{}}
	opts.Ledger, opts.Kafka.Dialer = g, g.connect
	opts.Owner = idempotency.NewOwner()
	for _, change := range changes {
		change(&opts, g)
	}
	replayer, err := New(opts)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- replayer.Run(ctx) }()
	p := &process{Replayer: replayer, t: r.t, gate: g}
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
	r.t.Cleanup(p.stop)
	return p
}

// letter is a dead letter to be made.
type letter struct {
	dlt       int32 // partition of the dead letters
	key       string
	value     string
	partition int32 // of the origin
	offset    int64
	more      []kgo.RecordHeader
}

// record is the letter as the forwarder writes it.
func (l letter) record() *kgo.Record {
	headers := []kgo.RecordHeader{
		{Key: "trace", Value: []byte("t-" + l.value)},
		{Key: envelope.HeaderMessageID, Value: fmt.Appendf(nil, "orders/%d/%d", l.partition, l.offset)},
		{Key: envelope.HeaderOriginalTopic, Value: []byte("orders")},
		{Key: envelope.HeaderOriginalPartition, Value: []byte(strconv.Itoa(int(l.partition)))},
		{Key: envelope.HeaderOriginalOffset, Value: []byte(strconv.FormatInt(l.offset, 10))},
		{Key: envelope.HeaderOriginalPartitions, Value: []byte(strconv.Itoa(partitions))},
		{Key: envelope.HeaderAttempt, Value: []byte("4")},
		{Key: envelope.HeaderDeliveries, Value: []byte("9")},
		{Key: envelope.HeaderErrorType, Value: []byte("Timeout")},
		{Key: envelope.HeaderReason, Value: []byte("exhausted")},
	}
	return &kgo.Record{Topic: "orders.dlt", Partition: l.dlt, Key: []byte(l.key), Value: []byte(l.value), Headers: append(headers, l.more...)}
}

// die writes records to the dead letters and indexes them.
func (r *rig) die(records ...*kgo.Record) []deadletter.Letter {
	r.t.Helper()
	r.client.Produce(records...)
	return r.index(records[0].Topic)
}

func (r *rig) dieAll(letters ...letter) []deadletter.Letter {
	r.t.Helper()
	var records []*kgo.Record
	for _, l := range letters {
		records = append(records, l.record())
	}
	return r.die(records...)
}

// index takes what is new in a topic of dead letters, and returns those letters in the order of their places.
func (r *rig) index(topic string) []deadletter.Letter {
	r.t.Helper()
	id := deadletter.TopicID(r.kafka.TopicInfo(topic).TopicID)
	byPartition := map[int32][]deadletter.Letter{}
	for _, rec := range r.client.ReadAll(topic, kgo.ReadCommitted()) {
		byPartition[rec.Partition] = append(byPartition[rec.Partition], deadletter.FromRecord(rec, id, "orders", ""))
	}
	var fresh []int64
	for p, letters := range byPartition {
		next, err := r.ledger.Next(r.t.Context(), id, topic, p, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		letters = slices.DeleteFunc(letters, func(l deadletter.Letter) bool { return l.Place.Offset < next })
		if len(letters) == 0 {
			continue
		}
		end := letters[len(letters)-1].Place.Offset + 1
		if err := r.ledger.Index(r.t.Context(), deadletter.Batch{TopicID: id, Topic: topic, Partition: p, Expected: next, Next: end, Letters: letters}); err != nil {
			r.t.Fatal(err)
		}
		for _, l := range letters {
			found := r.letters(deadletter.Filter{Topics: []string{topic}, Partition: &l.Place.Partition, Offset: &l.Place.Offset})
			for _, f := range found {
				if f.Place.TopicID == id {
					fresh = append(fresh, f.ID)
				}
			}
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	found := r.letters(deadletter.Filter{IDs: fresh})
	slices.SortFunc(found, func(a, b deadletter.Letter) int {
		if a.Place.Partition != b.Place.Partition {
			return int(a.Place.Partition - b.Place.Partition)
		}
		return int(a.Place.Offset - b.Place.Offset)
	})
	return found
}

// letters are those that a filter selects, in the order of a replay.
func (r *rig) letters(filter deadletter.Filter) []deadletter.Letter {
	r.t.Helper()
	found, err := r.ledger.Letters(r.t.Context(), filter, deadletter.Page{Order: deadletter.ReplayOrder, Limit: 10_000})
	if err != nil {
		r.t.Fatal(err)
	}
	return found.Letters
}

func (r *rig) letter(id int64) deadletter.Letter {
	r.t.Helper()
	l, err := r.ledger.Letter(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

func everything(changes ...func(*Request)) Request {
	req := Request{Spec: deadletter.JobSpec{Actor: "ada", Reason: "the bug is mended", Source: "api"}}
	for _, change := range changes {
		change(&req)
	}
	return req
}

func one(id int64, changes ...func(*Request)) Request {
	req := everything(changes...)
	req.Filter.IDs = []int64{id}
	return req
}

func (p *process) submit(req Request) deadletter.Job {
	p.t.Helper()
	job, _, err := p.Submit(p.t.Context(), req)
	if err != nil {
		p.t.Fatal(err)
	}
	return job
}

// awaitJob waits, in virtual time, until a job is done.
func (r *rig) awaitJob(limit time.Duration, id string) deadletter.Job {
	r.t.Helper()
	var job deadletter.Job
	testkit.WaitFor(r.t, limit, fmt.Sprintf("job %s to be done", id), func(ctx context.Context) (err error) {
		if job, err = r.ledger.Job(ctx, id); err != nil {
			return err
		}
		if job.State != deadletter.JobDone {
			return fmt.Errorf("it is %s: %d of %d done, %d failed, %d skipped", job.State, job.Done, job.Total, job.Failed, job.Skipped)
		}
		return nil
	})
	return job
}

// copies are the records of a topic that a job sent.
func (r *rig) copies(topic string) []*kgo.Record {
	r.t.Helper()
	var copies []*kgo.Record
	for _, rec := range r.client.ReadAll(topic, kgo.ReadUncommitted()) {
		if header(rec, envelope.HeaderReplayID) != "" {
			copies = append(copies, rec)
		}
	}
	return copies
}

func header(rec *kgo.Record, name string) string {
	value := ""
	for _, h := range rec.Headers {
		if h.Key == name {
			value = string(h.Value)
		}
	}
	return value
}

// wantMarksTrue fails the test if a letter is marked and its copy is not where the mark says (I8), and returns how many copies
// each place has.
func (r *rig) wantMarksTrue(topic string) map[string]int {
	r.t.Helper()
	count := map[string]int{}
	ids := map[string]string{}
	at := map[string]bool{}
	for _, rec := range r.copies(topic) {
		from := header(rec, envelope.HeaderReplayedFrom)
		count[from]++
		at[fmt.Sprintf("%s/%d/%d", from, rec.Partition, rec.Offset)] = true
		if id := header(rec, envelope.HeaderMessageID); ids[from] != "" && ids[from] != id {
			r.t.Errorf("copies of %s have the ids %s and %s", from, ids[from], id)
		} else {
			ids[from] = id
		}
	}
	for _, l := range r.letters(deadletter.Filter{States: []deadletter.State{deadletter.Replayed}}) {
		if l.Copy.Topic == topic && !at[fmt.Sprintf("%s/%d/%d", l.Place, l.Copy.Partition, l.Copy.Offset)] {
			r.t.Errorf("letter %d at %s is marked with the copy %v, which is not there", l.ID, l.Place, l.Copy)
		}
	}
	return count
}

// wantOrder fails the test if the first copies of a key are not in the order of the origin.
func (r *rig) wantOrder(topic string) {
	r.t.Helper()
	seen := map[string]bool{}
	last := map[string]int64{}
	for _, rec := range r.copies(topic) {
		from := header(rec, envelope.HeaderReplayedFrom)
		if seen[from] {
			continue
		}
		seen[from] = true
		key := fmt.Sprintf("%s in %d", rec.Key, rec.Partition)
		offset, err := strconv.ParseInt(header(rec, envelope.HeaderOriginalOffset), 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		if before, ok := last[key]; ok && offset < before {
			r.t.Errorf("key %s: origin offset %d comes after %d", key, offset, before)
		}
		last[key] = offset
	}
}

// scattered are n letters of some keys, each key in one origin partition and over all partitions of the dead letters, where they
// lie in another order than in the origin.
func scattered(n, keys int) []letter {
	var letters []letter
	for i := range n {
		key := i % keys
		letters = append(letters, letter{
			dlt: int32((i * 7) % partitions), key: "k" + strconv.Itoa(key), value: strconv.Itoa(i),
			partition: int32(key % partitions), offset: int64(1000 + i),
		})
	}
	slices.Reverse(letters)
	return letters
}

// onProduce runs answer for each partition of each produce request to a topic; nil lets the request through.
func (r *rig) onProduce(topic string, answer func(partition int32, records []byte) *kerr.Error) {
	id := r.kafka.TopicInfo(topic).TopicID
	r.kafka.ControlKey(int16(kmsg.Produce), func(raw kmsg.Request) (kmsg.Response, error, bool) {
		r.kafka.KeepControl()
		req := raw.(*kmsg.ProduceRequest)
		refused := false
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range req.Topics {
			t := kmsg.NewProduceResponseTopic()
			t.Topic, t.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition = rp.Partition
				if rt.Topic == topic || rt.TopicID == id {
					if err := answer(rp.Partition, rp.Records); err != nil {
						p.ErrorCode, refused = err.Code, true
					}
				}
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		if !refused {
			return nil, nil, false
		}
		// A request with a refused partition is refused as a whole: nothing of it may be written.
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				if p := &resp.Topics[i].Partitions[j]; p.ErrorCode == 0 {
					p.ErrorCode = kerr.NotLeaderForPartition.Code
				}
			}
		}
		return resp, nil, true
	})
}
