package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// stopLimit is how long a child may take to stop; the forwarder promises 5 s.
const stopLimit = 15 * time.Second

// stallLimit is how long a topic may stand still before a measurement gives up.
const stallLimit = time.Minute

// rig is the broker and what is needed to start children against it.
type rig struct {
	forwarder string // the binary
	self      string // this program, which is the bare loop too
	dir       string
	brokers   []string
	kafka     *testkit.Kafka
	client    *testkit.Client
	progress  io.Writer

	replayer    string            // the binary
	postgres    *testkit.Postgres // started by the first that needs it
	postgresLog logBuffer
}

// newRig starts a cluster of one broker or of three.
func newRig(ctx context.Context, binaries binaries, brokers int, progress io.Writer) (_ *rig, err error) {
	r := &rig{progress: progress}
	if r.forwarder, err = filepath.Abs(binaries.forwarder); err != nil {
		return nil, err
	}
	if r.replayer, err = filepath.Abs(binaries.replayer); err != nil {
		return nil, err
	}
	if _, err := os.Stat(r.forwarder); err != nil {
		return nil, fmt.Errorf("the forwarder is not built (make build): %w", err)
	}
	if r.self, err = os.Executable(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.dir, err = os.MkdirTemp("", "redrive-bench-"); err != nil {
		return nil, err
	}
	r.say("starting Kafka, brokers: %d", brokers)
	if r.kafka, err = testkit.StartKafka(ctx, testkit.KafkaOptions{Brokers: brokers, Heap: "512m"}); err != nil {
		return nil, err
	}
	r.brokers = r.kafka.Brokers()
	r.client, err = testkit.NewClient(r.brokers)
	return r, err
}

func (r *rig) close() error {
	var err error
	if r.client != nil {
		r.client.Close()
	}
	if r.kafka != nil {
		err = r.kafka.Close()
	}
	if r.postgres != nil {
		err = errors.Join(err, r.postgres.Close())
	}
	if r.dir != "" {
		err = errors.Join(err, os.RemoveAll(r.dir))
	}
	return err
}

func (r *rig) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.progress, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// ladder is an origin with one tier, and the configuration of a forwarder for it.
type ladder struct {
	origin, delay, tier string
	config              string
	batch               int32 // the largest that the tier takes; 0: the client's default
}

func (l ladder) deadLetters() string { return l.origin + ".dlt" }

func (l ladder) entry() entry { return entry{origin: l.origin, tiers: []string{l.delay}} }

// newLadder makes the topics as a user does: the origin by hand, the others by the forwarder. The origin stamps records
// when they are appended, which is what rates and lateness are read from; it may have more settings.
func (r *rig) newLadder(ctx context.Context, origin, delay string, more map[string]string) (ladder, error) {
	l := ladder{origin: origin, delay: delay, tier: origin + ".retry." + delay}
	configs := map[string]string{
		"message.timestamp.type": "LogAppendTime",
		"segment.bytes":          fmt.Sprint(64 * mebibyte), // So that trim gives the disk back.
	}
	maps.Copy(configs, more)
	err := r.client.CreateTopic(ctx, origin, partitions, configs)
	if err != nil {
		return l, err
	}
	if l.config, err = r.configure(origin, groupOf(forwarderRuns, l), l.entry()); err != nil {
		return l, err
	}
	return l, r.apply(ctx, l.config)
}

// entry is one of topics.yaml.
type entry struct {
	origin string
	tiers  []string // their delays
}

// configure writes the configuration of a forwarder to a file and returns its path.
func (r *rig) configure(name, group string, entries ...entry) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "kafka: {brokers: [%s]}\n", strings.Join(r.brokers, ", "))
	fmt.Fprintf(&text, "forwarder: {group: %s, admin: {address: \"127.0.0.1:0\"}}\nlogging: {level: warn}\ntopics:\n", group)
	for _, e := range entries {
		fmt.Fprintf(&text, "  - origin: %s\n    tiers: [%s]\n", e.origin, strings.Join(e.tiers, ", "))
	}
	path := filepath.Join(r.dir, name+".yaml")
	return path, os.WriteFile(path, []byte(text.String()), 0o600)
}

// apply lets the forwarder make what is missing of its topics.
func (r *rig) apply(ctx context.Context, config string) error {
	return runChild(ctx, command{name: "topics apply", program: r.forwarder, args: []string{"topics", "apply", "-c", config}})
}

// contender is who moves the records.
type contender string

const (
	forwarderRuns contender = "forwarder"
	bareRuns      contender = "bare"
)

func groupOf(who contender, l ladder) string { return string(who) + "-" + l.origin }

// start starts a contender. The mode is what a bare loop does.
func (r *rig) start(who contender, l ladder, mode string, s settings) (*child, error) {
	if who == forwarderRuns {
		return r.startForwarder(l.config)
	}
	return r.startBare(mode, groupOf(bareRuns, l), l.tier, l.origin, s)
}

func (r *rig) startForwarder(config string) (*child, error) {
	return startChild(r.dir, command{name: "forwarder", program: r.forwarder, args: []string{"run", "-c", config}})
}

// startBare starts a bare loop from one or more topics, separated by commas.
func (r *rig) startBare(mode, group, from, to string, s settings) (*child, error) {
	args := append([]string{
		mode, "-brokers", strings.Join(r.brokers, ","), "-group", group, "-from", from, "-to", to,
	}, s.args()...)
	return startChild(r.dir, command{name: "bare", program: r.self, args: args})
}

// rewind sets where a contender starts in the tier.
func (r *rig) rewind(ctx context.Context, who contender, l ladder, offsets map[int32]int64) error {
	return r.place(ctx, groupOf(who, l), l.tier, offsets)
}

// place sets where a group starts in a topic.
func (r *rig) place(ctx context.Context, group, topic string, offsets map[int32]int64) error {
	var at kadm.Offsets
	for p, o := range offsets {
		at.AddOffset(topic, p, o, -1)
	}
	responses, err := r.client.Admin().CommitOffsets(ctx, group, at)
	if err == nil {
		err = responses.Error()
	}
	if err != nil {
		return fmt.Errorf("set the offsets of %s in %s: %w", group, topic, err)
	}
	return nil
}

// joined waits until a contender has its partitions.
func (r *rig) joined(ctx context.Context, c *child, group string) error {
	return r.joinedTo(ctx, c, group, 1)
}

// joinedTo waits until a contender has so many partitions, or more.
func (r *rig) joinedTo(ctx context.Context, c *child, group string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, stallLimit)
	defer cancel()
	err := testkit.Await(ctx, func(ctx context.Context) error {
		if err := c.ended(); err != nil {
			cancel()
			return err
		}
		groups, err := r.client.Admin().DescribeGroups(ctx, group)
		if err == nil {
			err = groups.Error()
		}
		if err != nil {
			return err
		}
		g, have := groups[group], 0
		for _, of := range g.AssignedPartitions() {
			have += len(of)
		}
		if g.State != "Stable" || have < want {
			return fmt.Errorf("group %s is in state %q with %d partitions", group, g.State, have)
		}
		return nil
	})
	if err != nil {
		return c.failure(fmt.Errorf("wait until it has joined: %w", err))
	}
	return nil
}

// grown waits until the topic has n records more than at start, and fails when it stands still.
func (r *rig) grown(ctx context.Context, c *child, topic string, start map[int32]int64, n int64) error {
	last, since := int64(0), time.Now()
	for {
		end, err := r.client.EndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		have := total(end) - total(start)
		if have >= n {
			return nil
		}
		if have != last {
			last, since = have, time.Now()
		}
		if err := c.ended(); err != nil {
			return err
		}
		if time.Since(since) > stallLimit {
			return c.failure(fmt.Errorf("%s stands still at %d of %d records", topic, have, n))
		}
		if !wait.For(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func total(offsets map[int32]int64) int64 {
	var n int64
	for _, o := range offsets {
		n += o
	}
	return n
}

// growth is what a topic got between two ends.
type growth struct {
	topic      string
	start, end map[int32]int64
}

func (g growth) records() int64 { return total(g.end) - total(g.start) }

// span is how long it took from the first to the last record that topics got, by the broker's stamps.
func (r *rig) span(ctx context.Context, topics ...growth) (time.Duration, error) {
	var first, last time.Time
	for _, g := range topics {
		ends := map[int32]kgo.Offset{}
		starts := map[int32]kgo.Offset{}
		for p := range g.end {
			if g.start[p] == g.end[p] {
				continue
			}
			starts[p], ends[p] = kgo.NewOffset().At(g.start[p]), kgo.NewOffset().At(g.end[p]-1)
		}
		err := errors.Join(
			r.readFirst(ctx, g.topic, starts, func(t time.Time) {
				if first.IsZero() || t.Before(first) {
					first = t
				}
			}),
			r.readFirst(ctx, g.topic, ends, func(t time.Time) {
				if t.After(last) {
					last = t
				}
			}),
		)
		if err != nil {
			return 0, err
		}
	}
	return last.Sub(first), nil
}

// readFirst calls each with the timestamp of the first record of each partition at the given offsets.
func (r *rig) readFirst(ctx context.Context, topic string, at map[int32]kgo.Offset, each func(time.Time)) error {
	ctx, cancel := context.WithTimeout(ctx, stallLimit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.FetchMaxPartitionBytes(1),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}))
	if err != nil {
		return err
	}
	defer client.Close()
	for seen := map[int32]bool{}; len(seen) < len(at); {
		fetches := client.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), fetchError(fetches)); err != nil {
			return fmt.Errorf("read %s: %w", topic, err)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) > 0 && !seen[p.Partition] {
				seen[p.Partition] = true
				each(p.Records[0].Timestamp)
			}
		})
	}
	return nil
}

// trim deletes what a topic holds, for the sake of the disk.
func (r *rig) trim(ctx context.Context, topic string) error {
	end, err := r.client.EndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	return r.client.DeleteRecords(ctx, topic, end)
}

// stored is how many bytes a topic takes on the broker's disk.
func (r *rig) stored(ctx context.Context, topic string) (int64, error) {
	set := kadm.TopicsSet{}
	for p := range int32(partitions) {
		set.Add(topic, p)
	}
	dirs, err := r.client.Admin().DescribeAllLogDirs(ctx, set)
	if err != nil {
		return 0, fmt.Errorf("describe the log of %s: %w", topic, err)
	}
	var n int64
	dirs.Each(func(d kadm.DescribedLogDir) {
		err = errors.Join(err, d.Err)
		n += d.Size()
	})
	if err == nil && n == 0 {
		err = errors.New("nothing is stored")
	}
	if err != nil {
		return 0, fmt.Errorf("describe the log of %s: %w", topic, err)
	}
	return n, nil
}
