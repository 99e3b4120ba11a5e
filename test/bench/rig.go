package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
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
}

func newRig(ctx context.Context, forwarder string, progress io.Writer) (_ *rig, err error) {
	r := &rig{progress: progress}
	if r.forwarder, err = filepath.Abs(forwarder); err != nil {
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
	r.say("starting Kafka")
	if r.kafka, err = testkit.StartKafka(ctx, testkit.KafkaOptions{Heap: "512m"}); err != nil {
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
	origin, tier string
	config       string
}

// newLadder makes the topics as a user does: the origin by hand, the others by the forwarder. The origin stamps records
// when they are appended, which is what rates and lateness are read from.
func (r *rig) newLadder(ctx context.Context, origin, tier string) (ladder, error) {
	l := ladder{origin: origin, tier: origin + ".retry." + tier, config: filepath.Join(r.dir, origin+".yaml")}
	err := r.client.CreateTopic(ctx, origin, partitions, map[string]string{
		"message.timestamp.type": "LogAppendTime",
		"segment.bytes":          fmt.Sprint(64 * mebibyte), // So that trim gives the disk back.
	})
	if err != nil {
		return l, err
	}
	text := fmt.Sprintf("kafka: {brokers: [%s]}\nforwarder: {group: %s, admin: {address: \"127.0.0.1:0\"}}\nlogging: {level: warn}\ntopics:\n  - origin: %s\n    tiers: [%s]\n",
		strings.Join(r.brokers, ", "), groupOf(forwarderRuns, l), origin, tier)
	if err := os.WriteFile(l.config, []byte(text), 0o600); err != nil {
		return l, err
	}
	return l, runChild(ctx, command{name: "topics apply", program: r.forwarder, args: []string{"topics", "apply", "-c", l.config}})
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
		return startChild(r.dir, command{name: "forwarder", program: r.forwarder, args: []string{"run", "-c", l.config}})
	}
	args := append([]string{
		mode, "-brokers", strings.Join(r.brokers, ","), "-group", groupOf(bareRuns, l), "-from", l.tier, "-to", l.origin,
	}, s.args()...)
	return startChild(r.dir, command{name: "bare", program: r.self, args: args})
}

// rewind sets where a contender starts in the tier.
func (r *rig) rewind(ctx context.Context, who contender, l ladder, offsets map[int32]int64) error {
	var at kadm.Offsets
	for p, o := range offsets {
		at.AddOffset(l.tier, p, o, -1)
	}
	responses, err := r.client.Admin().CommitOffsets(ctx, groupOf(who, l), at)
	if err == nil {
		err = responses.Error()
	}
	if err != nil {
		return fmt.Errorf("set the offsets of %s: %w", groupOf(who, l), err)
	}
	return nil
}

// joined waits until a contender has its partitions.
func (r *rig) joined(ctx context.Context, c *child, group string) error {
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
		g := groups[group]
		if g.State != "Stable" || len(g.AssignedPartitions()) == 0 {
			return fmt.Errorf("group %s is in state %q", group, g.State)
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
		if !sleep(ctx, 100*time.Millisecond) {
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

// span is how long it took from the first to the last record between two ends of a topic, by the broker's stamps.
func (r *rig) span(ctx context.Context, topic string, start, end map[int32]int64) (time.Duration, error) {
	var first, last time.Time
	ends := map[int32]kgo.Offset{}
	starts := map[int32]kgo.Offset{}
	for p := range end {
		if start[p] == end[p] {
			continue
		}
		starts[p], ends[p] = kgo.NewOffset().At(start[p]), kgo.NewOffset().At(end[p]-1)
	}
	err := errors.Join(
		r.readFirst(ctx, topic, starts, func(t time.Time) {
			if first.IsZero() || t.Before(first) {
				first = t
			}
		}),
		r.readFirst(ctx, topic, ends, func(t time.Time) {
			if t.After(last) {
				last = t
			}
		}),
	)
	return last.Sub(first), err
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
	var offsets kadm.Offsets
	for p, o := range end {
		offsets.AddOffset(topic, p, o, -1)
	}
	responses, err := r.client.Admin().DeleteRecords(ctx, offsets)
	if err == nil {
		err = responses.Error()
	}
	if err != nil {
		return fmt.Errorf("delete the records of %s: %w", topic, err)
	}
	return nil
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
