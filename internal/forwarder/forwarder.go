package forwarder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/tiers"
	"github.com/kafka-redrive/redrive/internal/tracing"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// Topic is one origin with its inbox, tiers and dead letters.
type Topic struct {
	// Policy decides the hops. Required.
	Policy *tiers.Policy
	// Partitioner routes a key where the original partition does not count.
	// Empty: murmur2.
	Partitioner kafka.Partitioner
	// Group is the consumer group whose failures these are. It tells entries of
	// one origin apart where records of a retired topic are routed. Empty: not known.
	Group string
	// Paused and RateLimit are the pace to begin with, see Pace.
	Paused    bool
	RateLimit float64
	// MaxHeldBytesPerPartition overrides Options.MaxHeldBytesPerPartition for
	// the sources of this topic. Zero: no override.
	MaxHeldBytesPerPartition int64
}

// Options say what a Forwarder does. Only the fields named so are required.
type Options struct {
	// Kafka are the connection options. Required.
	Kafka kafka.Options
	// Topics are what is forwarded; at least one, no topic name twice. Required.
	Topics []Topic
	// Group is the consumer group (group.id). Required.
	Group string
	// InstanceID makes the member a static one (group.instance.id). Empty: dynamic.
	InstanceID string
	// GroupProtocol is classic or consumer, the protocol of KIP-848, which needs
	// Kafka 4.0. Empty: classic.
	GroupProtocol string
	// RackID is client.rack: partitions are fetched from the closest replica where
	// the brokers allow it (KIP-392). Empty: from the leader.
	RackID string
	// SessionTimeout is session.timeout.ms. With the protocol consumer the brokers
	// set the session, and this must not be longer than theirs. Zero: 45 s.
	SessionTimeout time.Duration
	// CommitInterval is the longest a finished record waits for its commit.
	// Zero: 100 ms.
	CommitInterval time.Duration
	// ShutdownTimeout bounds the drain after the context of Run ends. Zero: 5 s.
	ShutdownTimeout time.Duration
	// MaxUncommitted bounds, for each source partition, the records that are
	// finished or in flight and not covered by a commit. Zero: 10,000.
	MaxUncommitted int
	// MaxHeldBytes bounds the memory of all records that are held or in flight.
	// Above it partitions with more than their share are paused. Zero: 64 MiB.
	MaxHeldBytes int64
	// MaxHeldBytesPerPartition is the same bound for one source partition.
	// Zero: 8 MiB.
	MaxHeldBytesPerPartition int64
	// Logger receives what an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics. Nil: they are not registered.
	Registerer prometheus.Registerer
	// Tracer makes a span of each record that is handed over. Nil: it makes none.
	Tracer *tracing.Tracer
}

func (o Options) withDefaults() (Options, error) {
	if o.Group == "" {
		return o, errors.New("forwarder: group is required")
	}
	if len(o.Topics) == 0 {
		return o, errors.New("forwarder: at least one topic is required")
	}
	for _, t := range o.Topics {
		if t.Policy == nil {
			return o, errors.New("forwarder: a topic has no policy")
		}
	}
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 45*time.Second)
	o.CommitInterval = cmp.Or(o.CommitInterval, 100*time.Millisecond)
	o.ShutdownTimeout = cmp.Or(o.ShutdownTimeout, 5*time.Second)
	o.MaxUncommitted = cmp.Or(o.MaxUncommitted, 10_000)
	o.MaxHeldBytes = cmp.Or(o.MaxHeldBytes, 64<<20)
	o.MaxHeldBytesPerPartition = cmp.Or(o.MaxHeldBytesPerPartition, 8<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("component", "forwarder")
	return o, nil
}

// Forwarder moves the records of its topics. Make one with New, run it once.
type Forwarder struct {
	opts     Options
	log      *slog.Logger
	routes   map[string]*inlet // by the topic that is read
	ladders  []*route          // one for each of Options.Topics
	outlets  []*outlet
	producer *kgo.Client
	next     bool           // the protocol of KIP-848 is wanted and spoken
	solo     *kgo.Client    // for records that are judged alone, see freeze
	gzip     kgo.Compressor // what solo compresses with: every client can read it
	admin    *kadm.Client
	counts   *kafka.Partitions
	metrics  *metrics
	loop     *loop
	relearns chan struct{}
	throttle throttle
	wishes   wishes

	collector *collector

	// consumer is set before joined is closed, by Run; callbacks of the group
	// wait for it.
	consumer *kgo.Client
	joined   chan struct{}

	// wakePoll ends the poll under way.
	wakePoll atomic.Pointer[context.CancelFunc]

	// commits has room for one: it lets one commit at a time through, so that a
	// revoke callback can wait for the one under way before it sends the last.
	commits chan struct{}
}

// New checks the options and makes the clients; it does not block and opens
// no connection. The caller must call Run.
func New(opts Options) (*Forwarder, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Forwarder{opts: opts, log: opts.Logger, joined: make(chan struct{}), commits: make(chan struct{}, 1), relearns: make(chan struct{}, 1)}
	f.metrics = newMetrics()
	if err := f.buildRoutes(); err != nil {
		return nil, err
	}
	base, err := opts.Kafka.ClientOpts()
	if err != nil {
		return nil, err
	}
	base = append(base, kgo.WithHooks(&f.throttle))
	f.producer, err = kgo.NewClient(append(base, producerOpts(f.maxBatch)...)...)
	if err != nil {
		return nil, fmt.Errorf("make the producer: %w", err)
	}
	if f.gzip, err = kgo.DefaultCompressor(kgo.GzipCompression()); err != nil {
		f.producer.Close()
		return nil, fmt.Errorf("make the compressor of single records: %w", err)
	}
	f.solo, err = kgo.NewClient(append(base, f.soloOpts()...)...)
	if err != nil {
		f.producer.Close()
		return nil, fmt.Errorf("make the producer of single records: %w", err)
	}
	f.admin = kadm.NewClient(f.producer)
	f.counts = kafka.NewPartitions(f.producer, f.topics())
	f.counts.Remade = f.remade
	f.loop = newLoop(f)
	f.collector = &collector{f: f, asking: make(chan struct{}, 1)}
	if opts.Registerer != nil {
		if err := opts.Registerer.Register(f.collector); err != nil {
			f.closeProducers()
			return nil, fmt.Errorf("register the metrics: %w", err)
		}
	}
	return f, nil
}

// producerOpts are the settings of the one producer. Records wait in our own
// queues, bounded for each target, and never in the client: a partition that
// is stuck must not fill a buffer that the others share.
func producerOpts(batchLimit func(topic string) int32) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytesFn(batchLimit),
		kgo.MaxBufferedRecords(1 << 30),
		kgo.ProducerLinger(0),
		// A connection that a broker leaves without an answer is given up after
		// both: everything that goes to the broker waits for that long.
		kgo.ProduceRequestTimeout(5 * time.Second),
		kgo.RequestTimeoutOverhead(4 * time.Second),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(30 * time.Second),
	}
	if lz4, err := kgo.DefaultCompressor(kgo.Lz4Compression()); err == nil {
		opts = append(opts, kgo.WithCompressor(sampled{lz4}))
	}
	return opts
}

// soloOpts are those of the producer that leaves the limit to the broker. The
// client judges a batch before it is compressed, the broker after that.
func (f *Forwarder) soloOpts() []kgo.Opt {
	return append(producerOpts(func(string) int32 { return soloBytes }), kgo.WithCompressor(large{f.gzip}))
}

// soloBytes is the largest batch that the client may send: its
// BrokerMaxWriteBytes by default.
const soloBytes = 100 << 20

func (f *Forwarder) closeProducers() {
	f.producer.Close()
	f.solo.Close()
}

// topics are all topics that are read or written.
func (f *Forwarder) topics() []string {
	names := slices.Collect(maps.Keys(f.routes))
	for _, o := range f.outlets {
		names = append(names, o.topic)
	}
	return names
}

func (f *Forwarder) consumerOpts() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(f.opts.Group),
		kgo.ConsumeTopics(slices.Collect(maps.Keys(f.routes))...),
		kgo.SessionTimeout(f.opts.SessionTimeout),
		kgo.HeartbeatInterval(min(3*time.Second, f.opts.SessionTimeout/4)),
		// What a producer rolled back must not become a record of the origin.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// An offset is never reset by the client: see start.go.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.DisableAutoCommit(),
		// A deleted topic is to be seen: see loop.rest.
		kgo.KeepRetryableFetchErrors(),
		// The watermark must pass them, or the lag behind a transaction never ends.
		kgo.KeepControlRecords(),
		// Held only between a poll and its hand-over to the loop, so that a
		// source can not change its owner in between.
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.FetchMaxBytes(8 << 20),
		kgo.FetchMaxPartitionBytes(256 << 10),
		// A batch that was made to burst the memory is an error of its partition.
		kgo.MaxDecompressBatchBytes(256 << 20),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(30 * time.Second),
		kgo.AdjustFetchOffsetsFn(f.onAssigned),
		kgo.OnPartitionsRevoked(f.onRevoked),
		kgo.OnPartitionsLost(f.onLost),
	}
	if f.next {
		opts = append(opts, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	} else {
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if f.opts.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(f.opts.InstanceID))
	}
	if f.opts.RackID != "" {
		opts = append(opts, kgo.Rack(f.opts.RackID))
	}
	return opts
}

// Run forwards until ctx ends, then drains: what is in flight is awaited, the
// last watermarks are committed and the group is left, all within
// ShutdownTimeout. It returns nil after that, and an error only for what waiting
// can not cure: another process took this member's instance id. Broker faults
// are waited for and shown by Status.
func (f *Forwarder) Run(ctx context.Context) error {
	defer f.closeProducers()
	if f.opts.Registerer != nil {
		defer f.opts.Registerer.Unregister(f.collector)
	}
	base, err := f.opts.Kafka.ClientOpts() //nolint:contextcheck // It authenticates for as long as the client lives.
	if err != nil {
		close(f.loop.ended)
		return err
	}
	base = append(base, kgo.WithHooks(&f.throttle))
	// The work must outlive the signal that stops the intake.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := f.learn(ctx); err != nil {
		close(f.loop.ended)
		return nil // Only the end of ctx ends learn: stopped before it began.
	}

	var group errgroup.Group
	group.Go(func() error { f.loop.run(work); return nil })
	group.Go(func() error { f.counts.Run(work); return nil })
	group.Go(func() error { f.keepLearning(work); return nil })
	// From here on the loop answers, which the group's callbacks count on.
	f.consumer, err = kgo.NewClient(append(base, f.consumerOpts()...)...)
	if err != nil {
		stop()
		_ = group.Wait()
		return fmt.Errorf("make the consumer: %w", err)
	}
	close(f.joined)

	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		f.poll(intake)
	}()

	select {
	case <-ctx.Done():
	case <-f.loop.fatal:
	}
	stopIntake()
	f.drain(work) // The poller may be held up by a rebalance, which drain does not wait for.
	stop()
	<-polled
	_ = group.Wait()
	return f.loop.fatalErr
}

// learn waits for the first answer about the topics that are written. Routing
// by a partition count needs the count.
func (f *Forwarder) learn(ctx context.Context) error {
	for {
		err := f.counts.Refresh(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.log.WarnContext(ctx, "no broker answers yet", "err", err)
		if !wait.For(ctx, time.Second) {
			return ctx.Err()
		}
	}
	f.learnRules(ctx)
	f.findRetired(ctx)
	f.next = f.opts.GroupProtocol == "consumer" && f.speaksNext(ctx)
	return ctx.Err()
}

// speaksNext asks a broker whether it knows the protocol of KIP-848 in a version
// that is not a preview. Without it the client would fall back to a protocol in
// which every change of the group stops all of its members.
func (f *Forwarder) speaksNext(ctx context.Context) bool {
	versions, err := f.admin.ApiVersions(ctx)
	if err == nil {
		for _, v := range versions {
			if latest, ok := v.KeyMaxVersion(int16(kmsg.ConsumerGroupHeartbeat)); ok && latest >= 1 {
				return true
			}
		}
	}
	f.log.WarnContext(ctx, "the brokers do not speak the group protocol consumer, classic is used", "err", err)
	return false
}

const (
	// rulesInterval is how old what is known of the topics' settings may be.
	rulesInterval = 30 * time.Second
	// rulesTrust is how old it may be for a record to be judged by it.
	rulesTrust = 5 * time.Second
)

// keepLearning asks for the settings of the topics again and again until ctx ends.
func (f *Forwarder) keepLearning(ctx context.Context) {
	for {
		timer := time.NewTimer(rulesInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-f.relearns:
			timer.Stop()
		case <-timer.C:
		}
		f.learnRules(ctx)
	}
}

// relearn has the settings of the topics asked for now. It does not block.
func (f *Forwarder) relearn() {
	select {
	case f.relearns <- struct{}{}:
	default:
	}
}

// pollLimit is how long a poll waits for records, so that a poller that does
// nothing for want of records can be told from one that is stuck.
const pollLimit = 5 * time.Second

// poll hands fetches to the loop until ctx ends. Between a poll and the next no
// partition changes its owner, so that this is also the place to seek.
func (f *Forwarder) poll(ctx context.Context) {
	for ctx.Err() == nil {
		waiting, wake := context.WithCancel(ctx)
		f.wakePoll.Store(&wake)
		if f.loop.seeking.Load() {
			wake()
		}
		limit := time.AfterFunc(pollLimit, wake)
		fetches := f.consumer.PollFetches(waiting)
		limit.Stop()
		wake()
		if fetches.IsClientClosed() {
			f.consumer.AllowRebalance()
			return
		}
		f.loop.hand(fetches)
		f.metrics.polls.Inc()
		f.seek()
		f.consumer.AllowRebalance()
	}
}

// drain ends the work in the order that leaves neither a loss nor a duplicate:
// nothing new is released, acknowledgements are awaited, watermarks committed,
// the group left.
func (f *Forwarder) drain(work context.Context) {
	ctx, cancel := context.WithTimeout(work, f.opts.ShutdownTimeout)
	defer cancel()
	// Part of the time belongs to the commit and to leaving the group.
	var idle chan struct{}
	f.loop.do(func() { idle = f.loop.stopReleasing(nil) })
	if idle != nil && !awaitIdle(idle, f.opts.ShutdownTimeout*6/10) {
		f.log.WarnContext(ctx, "records in flight were not acknowledged before the shutdown limit; they will be sent again")
	}
	commitCtx, cancelCommit := context.WithTimeout(work, f.opts.ShutdownTimeout*2/10)
	defer cancelCommit()
	for dirty := true; dirty; {
		f.commitAll(commitCtx, nil)
		f.loop.do(func() { dirty = len(f.loop.commit.dirty) > 0 })
		if dirty && !wait.For(commitCtx, 50*time.Millisecond) {
			f.log.WarnContext(ctx, "the last commit was not accepted in time; what it covers will be sent again")
			break
		}
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		member, _ := f.consumer.GroupMetadata()
		f.consumer.CloseAllowingRebalance()
		f.releaseInstance(ctx, member)
	}()
	select {
	case <-left:
	case <-ctx.Done():
		f.log.WarnContext(ctx, "the group was not left in time; its partitions move when the session ends")
	}
}

// releaseInstance says that a static member of the protocol of KIP-848 leaves for
// a moment, so that the next process with its instance id need not wait for the
// end of the session. The client says so without the instance id, which brokers
// refuse. It is sent after the last heartbeat. Not to be heard costs that wait.
func (f *Forwarder) releaseInstance(ctx context.Context, member string) {
	if !f.next || f.opts.InstanceID == "" || member == "" {
		return
	}
	const leavesForAMoment = -2
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = f.opts.Group, member, leavesForAMoment, &f.opts.InstanceID
	resp, err := req.RequestWith(ctx, f.producer)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil && !errors.Is(err, kerr.UnknownMemberID) {
		f.log.WarnContext(ctx, "the instance id was not released; the next process with it waits for the end of the session", "err", err)
	}
}
