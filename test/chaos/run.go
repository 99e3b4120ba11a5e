package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

const (
	group      = "chaos-forwarder"
	partitions = 3
	// sessionTimeout is short, so that the partitions of a dead dynamic member move within a run.
	sessionTimeout = 6 * time.Second
	// maxUncommitted is the forwarder's default, which the run leaves alone.
	maxUncommitted = 10_000
)

// options are what the command line says.
type options struct {
	kills, brokerKills, graceful int
	rate                         int
	records                      int
	seed                         uint64
	waits                        string
	longest                      time.Duration
	out                          string
	keep                         bool

	// Of index and replay.
	target, ledger, binary                         string
	databaseKills, letters, keys, freezes, brokers int
}

// ladders returns the entries of topics.yaml that waits names.
func ladders(waits string, longest time.Duration) ([]*ladder, error) {
	kinds := map[string][]string{"plain": {"plain"}, "mixed": {"mixed"}, "both": {"plain", "mixed"}}[waits]
	if kinds == nil {
		return nil, fmt.Errorf("waits are plain, mixed or both, not %q", waits)
	}
	var all []*ladder
	for _, kind := range kinds {
		l := &ladder{name: "chaos-" + kind, mixed: kind == "mixed"}
		l.inbox, l.letter = l.name+".retry", l.name+".dlt"
		for i, delay := range []time.Duration{time.Second, 2 * time.Second, longest} {
			t := tier{name: [...]string{"short", "middle", "long"}[i], delay: delay}
			if l.mixed {
				t.jitter = [...]time.Duration{500 * time.Millisecond, time.Second, time.Second}[i]
			}
			t.topic = l.inbox + "." + t.name
			l.tiers = append(l.tiers, t)
		}
		all = append(all, l)
	}
	return all, nil
}

// run is one run of the harness.
type run struct {
	options
	progress io.Writer
	dir      string // The working folder.
	began    time.Time
	random   *rand.Rand // Of the killer; the records have their own.

	work     *workload
	kafka    *testkit.Kafka
	client   *testkit.Client
	load     *load
	commits  *commitWatch
	replicas []*stage.Process
	events   []*event

	gracefulFrom int64
	slowestStop  time.Duration
}

func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.progress, "chaos %6.1fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// execute does the whole run and returns what is known of it after it.
func (r *run) execute(ctx context.Context) (*history, error) {
	all, err := ladders(r.waits, r.longest)
	if err != nil {
		return nil, err
	}
	r.work = &workload{seed: r.seed, partitions: partitions, ladders: all}
	r.random = rand.New(rand.NewPCG(r.seed, math.MaxUint64))
	if err := r.setUp(ctx); err != nil {
		return nil, err
	}
	defer r.kafka.Close() //nolint:errcheck // Nothing can be done about it.
	defer r.client.Close()
	defer func() {
		for _, f := range r.replicas {
			f.End()
		}
	}()

	if r.load, err = newLoad(r.kafka.Brokers(), r.work, r.rate); err != nil {
		return nil, err
	}
	defer r.load.close()
	return r.scenario(ctx)
}

// setUp starts the brokers and creates the topics, those of the forwarder with the forwarder.
func (r *run) setUp(ctx context.Context) error {
	binary := filepath.Join(r.dir, "forwarder")
	steps, stepCtx := errgroup.WithContext(ctx)
	steps.Go(func() error { return testkit.BuildForwarder(stepCtx, binary) })
	steps.Go(func() (err error) {
		data := filepath.Join(r.dir, "kafka")
		if err := os.Mkdir(data, 0o755); err != nil {
			return err
		}
		r.kafka, err = testkit.StartKafka(stepCtx, testkit.KafkaOptions{Dir: data, Brokers: 3})
		return err
	})
	err := steps.Wait()
	if err == nil {
		r.client, err = testkit.NewClient(r.kafka.Brokers())
	}
	if err == nil {
		err = r.createTopics(ctx, binary)
	}
	if err != nil && r.kafka != nil {
		return errors.Join(err, r.kafka.Close())
	}
	return err
}

func (r *run) createTopics(ctx context.Context, binary string) error {
	for _, l := range r.work.ladders {
		err := r.client.CreateTopic(ctx, l.name, partitions, map[string]string{"message.timestamp.type": "LogAppendTime"})
		if errors.Is(err, kerr.TopicAlreadyExists) {
			// The cluster is new and ours: the first answer was lost, and the client asked again.
			err = await(ctx, patience, "topic "+l.name, func(ctx context.Context) error {
				_, err := r.client.EndOffsets(ctx, l.name)
				return err
			})
		}
		if err != nil {
			return err
		}
	}
	config := filepath.Join(r.dir, "topics.yaml")
	if err := os.WriteFile(config, []byte(topicsYAML(r.kafka.Brokers(), r.work.ladders)), 0o644); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, binary, "topics", "apply", "-c", config).CombinedOutput()
	if err != nil {
		return fmt.Errorf("forwarder topics apply: %w\n%s", err, out)
	}
	// One static member, one dynamic: their deaths look different to the group.
	for _, f := range []*stage.Process{{Name: "a", Env: []string{"REDRIVE_FORWARDER_INSTANCEID=chaos-a"}}, {Name: "b"}} {
		f.LogFile = filepath.Join(r.dir, "forwarder-"+f.Name+".log")
		f.Name = "forwarder " + f.Name
		f.Program, f.Args, f.Dir = binary, []string{"run", "-c", config}, r.dir
		r.replicas = append(r.replicas, f)
	}
	return nil
}

func topicsYAML(brokers []string, ladders []*ladder) string {
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	line("kafka: {brokers: [%s]}", strings.Join(brokers, ", "))
	line("forwarder:")
	line("  group: %s", group)
	line("  sessionTimeout: %dms", sessionTimeout.Milliseconds())
	line("  admin: {address: 127.0.0.1:0}")
	line("logging: {format: text}")
	line("topics:")
	for _, l := range ladders {
		line("  - origin: %s", l.name)
		line("    maxDelay: %dms", l.maxDelay().Milliseconds())
		line("    tiers:")
		for _, t := range l.tiers {
			line("      - {name: %s, delay: %dms, jitter: %dms}", t.name, t.delay.Milliseconds(), t.jitter.Milliseconds())
		}
	}
	return s.String()
}

// scenario is the life of the run: load, kills, graceful stops, the end of the load, and the end of all waits.
func (r *run) scenario(ctx context.Context) (*history, error) {
	table := r.work.topics()
	r.commits = &commitWatch{client: r.client, group: group, topics: map[string]uint8{}, coverage: newCoverage()}
	for i, t := range table {
		if t.role == roleInbox || t.role == roleTier {
			r.commits.topics[t.name] = uint8(i)
		}
	}

	world, stopWorld := context.WithCancel(ctx)
	defer stopWorld()
	stopProducing := make(chan struct{})
	produced := make(chan error, 1)
	tasks, worldCtx := errgroup.WithContext(world)
	tasks.Go(func() error { return r.load.consume(worldCtx) })
	tasks.Go(func() error { return r.commits.run(worldCtx) })
	tasks.Go(func() error {
		err := r.load.produce(worldCtx, stopProducing)
		produced <- err
		return err
	})

	err := r.disturb(worldCtx)
	if err == nil {
		close(stopProducing)
		if err = <-produced; err == nil {
			r.say("%d records sent; waiting until all have come to rest", r.load.sent.Load())
			err = r.awaitRest(worldCtx)
		}
	}
	stopWorld()
	if taskErr := tasks.Wait(); taskErr != nil && !errors.Is(taskErr, context.Canceled) {
		err = taskErr // What stopped the others.
	}
	if err != nil {
		return nil, err
	}
	for _, f := range r.replicas {
		if _, err := f.Stop(); err != nil {
			return nil, err
		}
	}

	h := &history{
		work: r.work, table: table, produced: r.load.sent.Load(), events: r.events,
		covered: r.commits.coverage, gracefulFrom: r.gracefulFrom, maxUncommitted: maxUncommitted,
	}
	r.say("reading every topic from its start; the commits were looked at %d times", r.commits.seen)
	if err := h.read(ctx, r.client); err != nil {
		return nil, err
	}
	return h, nil
}

// disturb starts the forwarders and does all kills and stops while the load goes on.
func (r *run) disturb(ctx context.Context) error {
	r.say("two forwarders, three brokers, %d records/s, waits %s", r.rate, r.waits)
	for _, f := range r.replicas {
		if err := f.Start(); err != nil {
			return err
		}
	}
	if err := r.killAll(ctx); err != nil {
		return err
	}
	if r.graceful > 0 {
		if err := r.settle(ctx); err != nil {
			return err
		}
		if err := r.stopAll(ctx); err != nil {
			return err
		}
	}
	if missing := r.records - int(r.load.sent.Load()); missing > 0 {
		r.say("%d records to go", missing)
		return r.await(ctx, time.Hour, "all records to be sent", func(context.Context) error {
			if n := int(r.load.sent.Load()); n < r.records {
				return fmt.Errorf("%d of %d are sent", n, r.records)
			}
			return nil
		})
	}
	return nil
}

// await waits for a state.
func await(ctx context.Context, limit time.Duration, what string, cond func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := testkit.Await(ctx, cond); err != nil {
		return fmt.Errorf("waited %v for %s: %w", limit, what, err)
	}
	return nil
}

// await waits for a state in which both forwarders run, and watches meanwhile that none ends by itself. It is for the
// goroutine that kills them.
func (r *run) await(ctx context.Context, limit time.Duration, what string, cond func(context.Context) error) error {
	var died error
	err := await(ctx, limit, what, func(ctx context.Context) error {
		died = nil
		for _, f := range r.replicas {
			died = errors.Join(died, f.Alive())
		}
		if died != nil {
			return nil //nolint:nilerr // There is nothing to wait for any more.
		}
		return cond(ctx)
	})
	return errors.Join(died, err)
}

// patience is how long the harness waits for a state that must come by itself once the faults are over.
const patience = 2 * time.Minute

// awaitForwarding waits until both forwarders are members of a stable group and records come back.
func (r *run) awaitForwarding(ctx context.Context) error {
	before := r.load.copies.Load()
	return r.await(ctx, patience, "two forwarders that forward", func(ctx context.Context) error {
		groups, err := r.client.Admin().DescribeGroups(ctx, group)
		if err != nil {
			return err
		}
		g := groups[group]
		if g.Err != nil {
			return g.Err
		}
		if g.State != "Stable" || len(g.Members) != len(r.replicas) {
			return fmt.Errorf("the group is %s with %d members", g.State, len(g.Members))
		}
		if r.load.copies.Load() == before {
			return errors.New("nothing comes back")
		}
		return nil
	})
}

// ends returns the ends of all topics that are read.
func (r *run) ends(ctx context.Context) (map[string]map[int32]int64, error) {
	ends := map[string]map[int32]int64{}
	for topic := range r.commits.topics {
		var err error
		if ends[topic], err = r.client.EndOffsets(ctx, topic); err != nil {
			return nil, err
		}
	}
	return ends, nil
}

// committedTo tells whether everything below the ends is committed.
func (r *run) committedTo(ctx context.Context, ends map[string]map[int32]int64) error {
	_, commits, err := r.commits.look(ctx)
	if err != nil {
		return err
	}
	for topic, partitions := range ends {
		for partition, end := range partitions {
			if o, _ := commits.Lookup(topic, partition); o.At < end {
				return fmt.Errorf("%s/%d is committed to %d of %d", topic, partition, o.At, end)
			}
		}
	}
	return nil
}

// settle waits until everything that was there when it was called is committed: the effects of all kills are over.
func (r *run) settle(ctx context.Context) error {
	r.say("waiting until the effects of the kills are over")
	if err := r.awaitForwarding(ctx); err != nil {
		return err
	}
	ends, err := r.ends(ctx)
	if err != nil {
		return err
	}
	return r.await(ctx, patience, "the commits to pass all kills", func(ctx context.Context) error { return r.committedTo(ctx, ends) })
}

// awaitRest waits until nothing waits or is under way any more.
func (r *run) awaitRest(ctx context.Context) error {
	return r.await(ctx, patience+r.longest*maxAttempts, "all records to come to rest", func(ctx context.Context) error {
		ends, err := r.ends(ctx)
		if err != nil {
			return err
		}
		if err := r.committedTo(ctx, ends); err != nil {
			return err
		}
		for _, l := range r.work.ladders {
			origin, err := r.client.EndOffsets(ctx, l.name)
			if err != nil {
				return err
			}
			if err := r.load.caughtUp(l.name, origin); err != nil {
				return err
			}
		}
		// What the consumer handed over since the first look is not at rest.
		again, err := r.ends(ctx)
		if err != nil {
			return err
		}
		for topic, partitions := range again {
			for partition, end := range partitions {
				if end != ends[topic][partition] {
					return fmt.Errorf("%s/%d still grows", topic, partition)
				}
			}
		}
		return nil
	})
}
