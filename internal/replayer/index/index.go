package index

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// Topic is one dead-letter topic.
type Topic struct {
	// DeadLetters is its name.
	DeadLetters string
	// Origin is the topic that its letters come from, where they do not name one.
	Origin string
	// ReturnTo is where they return to; "" is the origin.
	ReturnTo string
	// Group is the consumer group whose progress tells whether a replay was a success. "": that is never judged.
	Group string
	// Ladder is the longest that a record may wait on its way back to the dead letters: the delays and jitters of all tiers.
	Ladder time.Duration
}

// Ledger is what of a ledger the index needs.
type Ledger interface {
	deadletter.Indexing
	Stats(ctx context.Context) ([]deadletter.Stat, error)
}

// Options are the settings of an Indexer. Kafka, Topics, Ledger and Group are required.
type Options struct {
	Kafka  kafka.Options
	Topics []Topic
	Ledger Ledger
	// Group is the consumer group that shares the partitions out among the replicas.
	Group string
	// InstanceID makes the member a static one (group.instance.id). Empty: dynamic.
	InstanceID string
	// SessionTimeout is session.timeout.ms. Zero: 45 s.
	SessionTimeout time.Duration
	// ShutdownTimeout bounds how long Run goes on after its context ended, and how long a revoke waits for a batch. Zero: 10 s.
	ShutdownTimeout time.Duration
	// KeepPayload has the bytes of letters stored in the ledger.
	KeepPayload bool
	// LabelHeader is the header that becomes Letter.Label. Empty: none.
	LabelHeader string
	// Logger receives what an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics. Nil: they are not registered.
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Group == "":
		return o, errors.New("index: group is required")
	case len(o.Topics) == 0:
		return o, errors.New("index: at least one topic is required")
	case o.Ledger == nil:
		return o, errors.New("index: ledger is required")
	}
	for _, t := range o.Topics {
		if t.DeadLetters == "" || t.Origin == "" {
			return o, errors.New("index: a topic needs the names of its dead letters and its origin")
		}
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = 45 * time.Second
	}
	if o.ShutdownTimeout == 0 {
		o.ShutdownTimeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("component", "index")
	return o, nil
}

const (
	// maxLetters, maxBytes and linger end a batch: it is written when one of them is reached.
	maxLetters = 5000
	maxBytes   = 8 << 20
	linger     = 200 * time.Millisecond
	// writers is how many batches are with the ledger at once. More of them would make smaller batches.
	writers = 4

	// maxHeld bounds the memory of what is fetched and not written, maxHeldPerPartition that of one partition. One fetch may come on top
	// of it, which is limited before it is decompressed.
	maxHeld             = 64 << 20
	maxHeldPerPartition = 16 << 20
	// letterOverhead is what a letter takes beside the bytes of its record.
	letterOverhead = 768

	// callTimeout bounds one call of the ledger: one that is not answered is asked again, and whether it had an effect shows then.
	callTimeout = time.Minute
	// requestTimeout bounds one question to the brokers.
	requestTimeout = 15 * time.Second
	minBackoff     = 100 * time.Millisecond
	maxBackoff     = 5 * time.Second

	commitInterval = 5 * time.Second
)

// Indexer follows dead-letter topics. Make one with New, run it once.
type Indexer struct {
	opts    Options
	log     *slog.Logger
	topics  map[string]*topic
	names   []string // of the topics
	client  *kgo.Client
	admin   *kadm.Client
	counts  *kafka.Partitions
	metrics *metrics
	slots   chan struct{} // room for those who write
	spare   sync.Pool     // of *batch

	// consumer is set before joined is closed, by Run; callbacks of the group wait for it.
	consumer *kgo.Client
	joined   chan struct{}
	// root is the context of all sources: it ends when Run does.
	root    context.Context //nolint:containedctx // Callbacks of the group start goroutines that outlive the callback.
	running sync.WaitGroup  // the goroutines of sources

	mu       sync.Mutex
	started  bool
	sources  map[string]map[int32]*source
	held     int64
	assigned int
	seeks    map[*source]struct{} // that wait for the poller to seek
	wake     context.CancelFunc   // ends the poll under way
	faults   faults
	fatal    chan struct{} // closed once fatalErr is set
	fatalErr error

	groups groups

	// What only the sweeps use.
	judge      judge
	sweepEvery time.Duration // sweepInterval; tests on a real clock are less patient
}

// topic is a dead-letter topic and what is known of it.
type topic struct {
	Topic
	look chan struct{} // lets one question at a time through
	view view          // the last answer

	// Guarded by Indexer.mu.
	lost, expired                         int64
	lostAt, expiredAt, remadeAt           time.Time
	indexedC, lostC, expiredC, succeededC prometheus.Counter
	newGroupsC                            prometheus.Counter

	sweep sweepState // what only the sweeps use
}

// New checks the options and makes a client; it does not block and opens no connection. The caller must call Run.
func New(opts Options) (*Indexer, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	ix := &Indexer{
		opts: opts, log: opts.Logger, metrics: newMetrics(),
		topics:  map[string]*topic{},
		slots:   make(chan struct{}, writers),
		joined:  make(chan struct{}),
		sources: map[string]map[int32]*source{},
		seeks:   map[*source]struct{}{},
		fatal:   make(chan struct{}),
		faults:  faults{fetch: map[place]fault{}, reported: map[string]time.Time{}},
		judge:   judge{passed: map[groupPartition][]passing{}},

		sweepEvery: sweepInterval,
	}
	ix.spare.New = func() any { return &batch{} }
	for _, t := range opts.Topics {
		if ix.topics[t.DeadLetters] != nil {
			continue // Two groups of one origin may share their dead letters; the first entry names them.
		}
		ix.topics[t.DeadLetters] = ix.metrics.add(&topic{Topic: t, look: make(chan struct{}, 1)})
		ix.names = append(ix.names, t.DeadLetters)
	}
	base, err := opts.Kafka.ClientOpts()
	if err != nil {
		return nil, err
	}
	if ix.client, err = kgo.NewClient(append(base, kgo.MetadataMinAge(250*time.Millisecond))...); err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	ix.admin = kadm.NewClient(ix.client)
	ix.counts = kafka.NewPartitions(ix.client, ix.names)
	ix.counts.Remade = ix.remade
	if opts.Registerer != nil {
		if err := opts.Registerer.Register(&collector{ix}); err != nil {
			ix.client.Close()
			return nil, fmt.Errorf("register the metrics: %w", err)
		}
	}
	return ix, nil
}

func (ix *Indexer) consumerOpts() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(ix.opts.Group),
		kgo.ConsumeTopics(ix.names...),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(ix.opts.SessionTimeout),
		kgo.HeartbeatInterval(min(3*time.Second, ix.opts.SessionTimeout/4)),
		// What a producer rolled back is no letter.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// The ledger says where to read, nobody else.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.DisableAutoCommit(),
		kgo.KeepRetryableFetchErrors(),
		// The next offset must pass them, or the lag behind a transaction never ends.
		kgo.KeepControlRecords(),
		// A partition must not change its owner between a poll, its hand-over and a seek.
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.FetchMaxBytes(16 << 20),
		kgo.FetchMaxPartitionBytes(2 << 20),
		// A batch that was made to burst the memory is an error of its partition.
		kgo.MaxDecompressBatchBytes(256 << 20),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(30 * time.Second),
		kgo.AdjustFetchOffsetsFn(ix.onAssigned),
		kgo.OnPartitionsRevoked(ix.onRevoked),
		kgo.OnPartitionsLost(ix.onLost),
	}
	if ix.opts.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(ix.opts.InstanceID))
	}
	return opts
}

// Run indexes until ctx ends. Then what is queued is written, and the group is left, all within ShutdownTimeout. It returns nil
// after that, and an error only for what waiting can not cure: another process took this member's instance id. Faults of brokers
// and of the ledger are waited for and shown by Status.
func (ix *Indexer) Run(ctx context.Context) error {
	defer ix.client.Close()
	if ix.opts.Registerer != nil {
		defer ix.opts.Registerer.Unregister(&collector{ix})
	}
	base, err := ix.opts.Kafka.ClientOpts() //nolint:contextcheck // It authenticates for as long as the client lives.
	if err != nil {
		return err
	}
	// The work must outlive the signal that stops the intake.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ix.root = work
	if ix.consumer, err = kgo.NewClient(append(base, ix.consumerOpts()...)...); err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	close(ix.joined)
	ix.setStarted(true)
	defer ix.setStarted(false)

	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	var polling, others sync.WaitGroup
	polling.Go(func() { ix.poll(intake) })
	others.Go(func() { _ = ix.counts.Refresh(work); ix.counts.Run(work) })
	others.Go(func() { ix.sweeps(work) })
	others.Go(func() { ix.countLetters(work) })
	others.Go(func() { ix.commits(work) })

	select {
	case <-ctx.Done():
	case <-ix.fatal:
	}
	stopIntake()
	ix.drain(work)
	stop()
	polling.Wait()
	others.Wait()
	ix.running.Wait()
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.fatalErr
}

func (ix *Indexer) setStarted(started bool) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.started = started
}

// drain writes what is queued, tells the group how far that was, and leaves it.
func (ix *Indexer) drain(work context.Context) {
	ctx, cancel := context.WithTimeout(work, ix.opts.ShutdownTimeout)
	defer cancel()
	ix.mu.Lock()
	var all []*source
	for _, partitions := range ix.sources {
		for _, s := range partitions {
			all = append(all, s)
		}
	}
	ix.mu.Unlock()
	// Part of the time belongs to leaving the group.
	if !ix.finish(all, ix.opts.ShutdownTimeout*6/10) {
		ix.log.WarnContext(ctx, "the ledger did not take all letters before the shutdown limit; they will be read again")
	}
	commit, cancelCommit := context.WithTimeout(ctx, ix.opts.ShutdownTimeout*2/10)
	defer cancelCommit()
	ix.commit(commit)
	left := make(chan struct{})
	go func() {
		defer close(left)
		ix.consumer.CloseAllowingRebalance()
	}()
	select {
	case <-left:
	case <-ctx.Done():
		ix.log.WarnContext(ctx, "the group was not left in time; its partitions move when the session ends")
	}
}

// commits tells the group, now and then, how far the index is.
func (ix *Indexer) commits(ctx context.Context) {
	for wait.For(ctx, commitInterval) {
		ix.commit(ctx)
	}
}

// commit is for people and their lag tools: no offset of the group is ever read here.
func (ix *Indexer) commit(ctx context.Context) {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	ix.mu.Lock()
	for name, partitions := range ix.sources {
		for n, s := range partitions {
			if !s.known || s.expected == s.committed {
				continue
			}
			if offsets[name] == nil {
				offsets[name] = map[int32]kgo.EpochOffset{}
			}
			offsets[name][n] = kgo.EpochOffset{Epoch: -1, Offset: s.expected}
			s.committed = s.expected
		}
	}
	ix.mu.Unlock()
	if len(offsets) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commitInterval)
	defer cancel()
	ix.consumer.CommitOffsetsSync(ctx, offsets, nil)
}

// backoff grows from minBackoff to maxBackoff.
type backoff time.Duration

func (b *backoff) wait(ctx context.Context) bool {
	*b = min(max(2*(*b), backoff(minBackoff)), backoff(maxBackoff))
	return wait.For(ctx, time.Duration(*b))
}
