// Package replay sends dead letters back to where they came from, and answers who asked for it and what became of it.
//
// The model: whatever is to be sent is a job, one letter or a million. Plan says what a request would replay and what not;
// Submit writes down a job with exactly the letters of such a plan; a replica that has room leases the job and runs it, one
// runner for each job. A letter is replayed by this order of events, and by no other:
//
//  1. The job, its letters in their order and the audit row are committed to the ledger. (I14)
//  2. The job is leased under a fence.
//  3. The bytes are read by the letter's place, and compared with the digest that was indexed (I13). The target partition is
//     decided, and where its log ends is listed. Nothing of this has an effect.
//  4. The letter is claimed: the ledger commits a fence, and that end.
//  5. If the claim takes over one that ran out, the partition that the old one names is read from its end to the high watermark
//     of now. A copy that is found there is marked, and no other is sent.
//  6. The copy is produced with acks=all by an idempotent producer.
//  7. Its acknowledgement is marked in the ledger, if the fence is still the current one.
//
// So a letter that is marked has its copy, at the place that the mark says (I8). A letter has two copies only where a holder died,
// or lost its lease, between 6 and 7, and its copy reached the partition after 5 had read it; both have one message id and one
// replay id. A holder that lost its lease without knowing hands nothing more to its client, which has at most InFlight records of
// a job, and marks nothing.
//
// Order: letters of a job are sent in the order of their origin offsets, and what is handed to the client for one partition at
// one time, a run, is handed over as a whole before any of it is sent, and is acknowledged or failed before the next run. The
// client fails all of a run that comes behind a refused record, so none overtakes it; what failed is then sent alone, in
// order. A letter that fails for good stops its key: its later letters in the job are skipped. An error that is not the record's
// own fails nothing; it is tried again for ever, and shows in Status.
//
// A job that is paused, cancelled or interrupted gives back what it claimed and did not send. What it can not know about, because
// the client ended before the broker answered, it leaves claimed, for the reading of 5.
//
// The package refuses to write to a topic that its options do not allow, whatever a header says, and to replay what is not dead
// unless it is forced. Replayer is safe for concurrent use; all goroutines end with Run.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/replayer/crash"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
	"github.com/kafka-redrive/redrive/internal/tracing"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// Topic is one dead-letter topic, and where its letters may go.
type Topic struct {
	// DeadLetters is the topic whose letters these are; Origin is where they came from. Both are required.
	DeadLetters, Origin string
	// ReturnTo is where copies go: the origin, or the return topic of a group. Empty: the origin.
	ReturnTo string
	// Trigger is the topic whose records ask for replays. Empty: none.
	Trigger string
	// Group is the consumer group whose failures these are, or "".
	Group string
	// Partitioner routes a key where the original partition does not count. Empty: murmur2.
	Partitioner kafka.Partitioner
	// ReplayTo are the other topics that a request may name as the destination.
	ReplayTo []string
	// ReplyTo are the topics that a trigger record may name for the answer.
	ReplyTo []string
}

// Options say what a Replayer does. Only the fields named so are required.
type Options struct {
	// Kafka are the connection options. Required.
	Kafka kafka.Options
	// Topics are what may be replayed; at least one. Required.
	Topics []Topic
	// Ledger is where letters and jobs are. Required; it stays the caller's.
	Ledger deadletter.Ledger
	// Owner names this process in claims. Empty: a new name.
	Owner string
	// Group is the consumer group that reads the trigger topics. Empty: they are not read.
	Group string
	// InstanceID makes the member that reads the trigger topics a static one (group.instance.id). Empty: a dynamic one.
	InstanceID string
	// SessionTimeout is session.timeout.ms of that member. Zero: 45 s.
	SessionTimeout time.Duration
	// Lease is how long a claim holds without a renewal. Zero: 30 s.
	Lease time.Duration
	// InFlight is the most records of one job that are with the client and not acknowledged. Zero: 256.
	InFlight int
	// Batch is the most letters that are claimed at once. Zero: 500.
	Batch int
	// BulkLimit is the most letters that a request may replay without saying how many it expects. Zero: 1000.
	BulkLimit int
	// RateLimit is the most letters a second that this process sends, of all jobs. Zero: no limit.
	RateLimit float64
	// DefaultRate is the rate of a job whose request names none. Zero: no limit.
	DefaultRate float64
	// ShutdownTimeout bounds the wait for acknowledgements after the context of Run ends. Zero: 10 s.
	ShutdownTimeout time.Duration
	// Logger receives what an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics. Nil: they are not registered.
	Registerer prometheus.Registerer
	// Tracer makes a span of each job that runs here and of each copy. Nil: it makes none.
	Tracer *tracing.Tracer

	// crash is called between two effects: tests stop a Replayer there. Nil: package crash.
	crash func(point string)
	// poll is how often the ledger is asked for jobs and for changes of those that run. Zero: 500 ms.
	poll time.Duration
	// byFilter is from how many letters on a job is written down by its filter, where that selects exactly the plan.
	// Zero: 20,000.
	byFilter int64
}

func (o Options) withDefaults() (Options, error) {
	if o.Ledger == nil {
		return o, errors.New("replay: a ledger is required")
	}
	if len(o.Topics) == 0 {
		return o, errors.New("replay: at least one topic is required")
	}
	if o.Owner == "" {
		o.Owner = idempotency.NewOwner()
	}
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 45*time.Second)
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.InFlight = cmp.Or(o.InFlight, 256)
	o.Batch = cmp.Or(o.Batch, 500)
	o.BulkLimit = cmp.Or(o.BulkLimit, 1000)
	o.ShutdownTimeout = cmp.Or(o.ShutdownTimeout, 10*time.Second)
	o.poll = cmp.Or(o.poll, 500*time.Millisecond)
	o.byFilter = cmp.Or(o.byFilter, 20_000)
	if o.crash == nil {
		o.crash = crash.Point
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("component", "replay")
	o.Topics = slices.Clone(o.Topics)
	for i := range o.Topics {
		t := &o.Topics[i]
		if t.DeadLetters == "" || t.Origin == "" {
			return o, errors.New("replay: a topic has no dead letters or no origin")
		}
		t.ReturnTo = cmp.Or(t.ReturnTo, t.Origin)
		t.Partitioner = cmp.Or(t.Partitioner, kafka.Murmur2)
	}
	return o, nil
}

// jobsAtOnce is how many jobs one process runs side by side, so that a letter which is replayed by hand does not wait behind a
// long job.
const jobsAtOnce = 8

// Replayer plans, takes and runs replays. Make one with New, run it once.
type Replayer struct {
	opts     Options
	log      *slog.Logger
	ledger   deadletter.Ledger
	topics   map[string]*Topic // by dead-letter topic
	triggers map[string]*Topic // by trigger topic
	ours     map[string]bool   // topics that no copy goes to

	fetcher *fetch.Fetcher
	client  *kgo.Client // for metadata and replies
	counts  *kafka.Partitions
	limiter *rate.Limiter // of all jobs
	slots   chan *slot
	metrics *metrics
	issues  issues

	// wakeJobs and wakeReplies have room for one: there may be something to do.
	wakeJobs, wakeReplies chan struct{}

	running sessions
	spans   requests
}

// New checks the options and makes the clients; it does not block and opens no connection. The caller must call Run.
func New(opts Options) (*Replayer, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Replayer{
		opts: opts, log: opts.Logger, ledger: opts.Ledger,
		topics: map[string]*Topic{}, triggers: map[string]*Topic{}, ours: map[string]bool{},
		limiter:  rate.NewLimiter(rate.Inf, opts.InFlight),
		slots:    make(chan *slot, jobsAtOnce),
		wakeJobs: make(chan struct{}, 1), wakeReplies: make(chan struct{}, 1),
	}
	if opts.RateLimit > 0 {
		r.limiter = rate.NewLimiter(rate.Limit(opts.RateLimit), burst(opts.RateLimit, opts.InFlight))
	}
	var written []string
	for i := range opts.Topics {
		t := &opts.Topics[i]
		if r.topics[t.DeadLetters] != nil {
			return nil, fmt.Errorf("replay: topic %s has two entries", t.DeadLetters)
		}
		r.topics[t.DeadLetters], r.ours[t.DeadLetters] = t, true
		if t.Trigger != "" {
			r.triggers[t.Trigger], r.ours[t.Trigger] = t, true
		}
		written = append(append(append(written, t.ReturnTo), t.ReplayTo...), t.ReplyTo...)
	}
	for _, name := range written {
		if r.ours[name] || strings.HasPrefix(name, "__") {
			return nil, fmt.Errorf("replay: nothing may be written to topic %s", name)
		}
	}
	base, err := opts.Kafka.ClientOpts()
	if err != nil {
		return nil, err
	}
	if r.client, err = kgo.NewClient(append(base, producerOpts()...)...); err != nil {
		return nil, fmt.Errorf("make the client of replies: %w", err)
	}
	if r.fetcher, err = fetch.New(fetch.Options{Kafka: opts.Kafka, Logger: opts.Logger}); err != nil {
		r.client.Close()
		return nil, err
	}
	r.counts = kafka.NewPartitions(r.client, written)
	for range jobsAtOnce {
		r.slots <- &slot{r: r, base: base}
	}
	r.metrics = newMetrics(r)
	if opts.Registerer != nil {
		if err := r.metrics.register(opts.Registerer); err != nil {
			r.close()
			return nil, fmt.Errorf("register the metrics: %w", err)
		}
	}
	return r, nil
}

// producerOpts are the settings of all producers.
func producerOpts() []kgo.Opt {
	return []kgo.Opt{
		kgo.ProducerLinger(0),
		kgo.ProduceRequestTimeout(5 * time.Second),
		kgo.RequestTimeoutOverhead(4 * time.Second),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(30 * time.Second),
	}
}

func (r *Replayer) close() {
	for range jobsAtOnce {
		(<-r.slots).close()
	}
	r.client.Close()
	r.fetcher.Close()
}

// Run runs jobs, takes trigger records and sends replies until ctx ends. Then nothing new is claimed or sent, what is with the
// clients is awaited within ShutdownTimeout and marked, and what was claimed and not sent is given back. It returns nil: broker
// and ledger faults are waited for and shown by Status.
func (r *Replayer) Run(ctx context.Context) error {
	if r.opts.Registerer != nil {
		defer r.metrics.unregister(r.opts.Registerer)
	}
	// Marks must outlive the signal that stops the claims.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background, jobs errgroup.Group
	background.Go(func() error { r.counts.Run(work); return nil })
	background.Go(func() error { r.takeTriggers(ctx, work); return nil })
	background.Go(func() error { r.sendReplies(ctx); return nil })
	_ = r.counts.Refresh(ctx) // Run repeats it, and who needs a count waits for it.
	r.issues.run(true)
	r.runJobs(ctx, work, &jobs)
	r.issues.run(false)

	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = jobs.Wait()
	}()
	timer := time.NewTimer(r.opts.ShutdownTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		r.log.Warn("jobs did not end in time, what they have sent is left to whoever takes them over")
		r.running.closeProducers()
	}
	stop()
	<-done
	_ = background.Wait()
	r.close()
	return nil
}

// runJobs leases jobs as long as there are slots, until ctx ends.
func (r *Replayer) runJobs(ctx, work context.Context, jobs *errgroup.Group) {
	for {
		var free *slot
		select {
		case <-ctx.Done():
			return
		case free = <-r.slots:
		}
		began := time.Now()
		job, err := r.ledger.LeaseJob(ctx, r.opts.Owner, r.opts.Lease)
		r.ledgerAnswered(ctx, err)
		if err != nil || job == nil {
			r.slots <- free
			if !wait.Until(ctx, r.opts.poll, r.wakeJobs) {
				return
			}
			continue
		}
		r.opts.crash("after-lease")
		s := newSession(r, free, *job, began)
		before := r.running.add(s)
		jobs.Go(func() error {
			defer func() {
				r.running.remove(s)
				r.slots <- free
				r.wake(r.wakeJobs)
			}()
			if before != nil {
				// This process had the job and lost its lease. Its records must be out before others are looked for.
				before.stop(errFenced)
				<-before.done
			}
			s.run(ctx, work)
			return nil
		})
	}
}

func (r *Replayer) wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// persist calls the ledger until it answers, or ctx ends. An answer is also an error that the ledger's interface names.
func (r *Replayer) persist(ctx context.Context, call func(context.Context) error) error {
	pause := 50 * time.Millisecond
	for {
		err := call(ctx)
		if err == nil || answered(err) {
			r.ledgerAnswered(ctx, nil)
			return err
		}
		r.ledgerAnswered(ctx, err)
		if !wait.For(ctx, pause) {
			return err
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// answered tells an error that the ledger means from one of getting at it.
func answered(err error) bool {
	for _, known := range []error{deadletter.ErrUnknown, deadletter.ErrFenced, deadletter.ErrState, deadletter.ErrCursor, deadletter.ErrMoved} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
