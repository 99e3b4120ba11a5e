package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

const (
	group = "hostile-forwarder"
	// patience is how long nothing may move before what is left counts as stuck.
	patience = time.Minute
	// maxCrashes is when a forwarder that does not stay up is given up on.
	maxCrashes = 20
	// maxBatch lets the largest records through: the inboxes take a little more than the origins.
	maxBatch = 1_060_000
)

// run is one run of the harness.
type run struct {
	options
	progress io.Writer
	dir      string // The working folder.
	began    time.Time

	forge     *forge
	kafka     *testkit.Kafka
	client    *testkit.Client
	forwarder *forwarder
	sent      []position
	crashes   []string // Why the forwarder ended, and how its log does.
}

func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.progress, "hostile %6.1fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// execute does the whole run and returns what it found.
func (r *run) execute(ctx context.Context) (*findings, error) {
	defer func() {
		if r.forwarder != nil {
			r.forwarder.kill()
		}
		if r.client != nil {
			r.client.Close()
		}
		if r.kafka != nil {
			_ = r.kafka.Close()
		}
	}()
	if err := r.setUp(ctx); err != nil {
		return nil, err
	}
	if err := r.forwarder.start(); err != nil {
		return nil, err
	}
	produced := make(chan error, 1)
	produceCtx, stopProducing := context.WithCancel(ctx)
	defer stopProducing()
	go func() { produced <- r.produce(produceCtx) }()
	err := r.supervise(ctx, produced)
	if err != nil {
		return nil, err
	}
	stuck, err := r.drain(ctx)
	if err != nil {
		return nil, err
	}
	if !r.forwarder.ended() {
		if err := r.forwarder.stop(); err != nil {
			r.crashed(err)
		}
	}
	seconds := time.Since(r.began).Seconds()
	c := newChecker(r.forge, r.sent)
	c.seconds = seconds
	for _, name := range stuck {
		c.tell("stuck", &c.stuck, "%s", name)
	}
	for _, text := range r.crashes {
		c.tell("crashed", &c.crashed, "%s", text)
	}
	if err := r.read(ctx, c); err != nil {
		return nil, err
	}
	return c.finish(), nil
}

// setUp starts the broker and creates the topics, those of the forwarder with the forwarder.
func (r *run) setUp(ctx context.Context) error {
	data, config := filepath.Join(r.dir, "kafka"), filepath.Join(r.dir, "topics.yaml")
	binary, err := filepath.Abs(r.binary)
	if err != nil {
		return err
	}
	if r.binary == "" {
		binary = filepath.Join(r.dir, "forwarder")
	}
	if err := os.Mkdir(data, 0o755); err != nil {
		return err
	}
	steps, stepCtx := errgroup.WithContext(ctx)
	steps.Go(func() error {
		if r.binary != "" {
			return nil
		}
		return testkit.BuildForwarder(stepCtx, binary)
	})
	steps.Go(func() (err error) {
		// A topic is there for whoever asks for it: nobody may.
		props := map[string]string{"auto.create.topics.enable": "true"}
		r.kafka, err = testkit.StartKafka(stepCtx, testkit.KafkaOptions{Dir: data, Brokers: 1, Heap: "512m", Props: props})
		return err
	})
	if err := steps.Wait(); err != nil {
		return err
	}
	r.client, err = testkit.NewClient(r.kafka.Brokers(), kgo.ProducerBatchMaxBytes(maxBatch), kgo.MaxBufferedRecords(20_000),
		kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	for _, l := range r.forge.ladders {
		if err := r.client.CreateTopic(ctx, l.returnTo, partitions, map[string]string{"message.timestamp.type": "LogAppendTime"}); err != nil {
			return err
		}
	}
	for _, name := range decoys() {
		if err := r.client.CreateTopic(ctx, name, partitions, nil); err != nil {
			return err
		}
	}
	if err := os.WriteFile(config, []byte(topicsYAML(r.kafka.Brokers(), r.forge.ladders)), 0o644); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, binary, "topics", "apply", "-c", config).CombinedOutput(); err != nil {
		return fmt.Errorf("forwarder topics apply: %w\n%s", err, out)
	}
	r.forwarder = &forwarder{binary: binary, config: config, logFile: filepath.Join(r.dir, "forwarder.log")}
	return nil
}

// produce sends all records and returns when each is acknowledged.
func (r *run) produce(ctx context.Context) error {
	r.sent = make([]position, r.records)
	var failed atomic.Pointer[error]
	for id := range r.sent {
		// The callbacks write to different places, and Flush returns after all of them.
		r.client.Kafka().Produce(ctx, r.forge.record(uint32(id), time.Now()), func(rec *kgo.Record, err error) {
			if err != nil {
				err = fmt.Errorf("produce record %d to %s: %w", id, rec.Topic, err)
				failed.CompareAndSwap(nil, &err)
				return
			}
			r.sent[id] = position{rec.Offset, rec.Partition}
		})
		if err := failed.Load(); err != nil {
			return *err
		}
		if n := id + 1; n%250_000 == 0 {
			r.say("%d records sent", n)
		}
	}
	if err := r.client.Kafka().Flush(ctx); err != nil {
		return fmt.Errorf("flush the producer: %w", err)
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// supervise keeps the forwarder up until everything was sent.
func (r *run) supervise(ctx context.Context, produced <-chan error) error {
	for {
		ended := r.forwarder.done
		if len(r.crashes) >= maxCrashes {
			ended = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-produced:
			r.say("all %d records are sent", r.records)
			return err
		case <-ended:
			if err := r.revive(); err != nil {
				return err
			}
		}
	}
}

// crashed notes that the forwarder ended as it should not.
func (r *run) crashed(err error) {
	if err == nil {
		err = errors.New("exit code 0")
	}
	r.say("the forwarder ended: %v", err)
	r.crashes = append(r.crashes, fmt.Sprintf("%v; the log ends\n%s", err, r.forwarder.tail()))
}

// revive starts a forwarder that ended by itself again, unless it did so too often.
func (r *run) revive() error {
	r.crashed(r.forwarder.err)
	if len(r.crashes) >= maxCrashes {
		return nil
	}
	return r.forwarder.start()
}

// drain waits until everything is worked off, or until nothing has moved for as long as patience lasts. It returns the
// partitions that are left.
func (r *run) drain(ctx context.Context) (stuck []string, err error) {
	r.say("waiting until everything is worked off")
	moved, before := time.Now(), int64(-1)
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		stuck, progress, err := r.left(ctx)
		if err != nil {
			return nil, err
		}
		switch {
		case len(stuck) == 0:
			return nil, nil
		case progress != before:
			moved, before = time.Now(), progress
		case time.Since(moved) > patience:
			r.say("%d partitions are stuck", len(stuck))
			return stuck, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
		if r.forwarder.ended() && len(r.crashes) < maxCrashes {
			if err := r.revive(); err != nil {
				return nil, err
			}
		}
	}
}

// left returns the partitions that are not worked off, and a number that changes when something moves. The ends are asked
// for first: what comes after the answer is behind its source's commit.
func (r *run) left(ctx context.Context) (behind []string, progress int64, err error) {
	ends := map[string]map[int32]int64{}
	for _, name := range sources(r.forge.ladders) {
		if ends[name], err = r.client.EndOffsets(ctx, name); err != nil {
			return nil, 0, err
		}
	}
	commits, err := r.client.CommittedOffsets(ctx, group)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		for partition, end := range ends[name] {
			o, ok := commits.Lookup(name, partition)
			if !ok || o.At < end {
				behind = append(behind, fmt.Sprintf("%s/%d is committed to %d of %d", name, partition, o.At, end))
			}
			progress += max(o.At, 0) + end
		}
	}
	if len(behind) > 0 {
		return behind, progress, nil
	}
	// What was finished in one source may have grown another one after its end was asked for.
	for _, name := range sources(r.forge.ladders) {
		again, err := r.client.EndOffsets(ctx, name)
		if err != nil {
			return nil, 0, err
		}
		if !maps.Equal(again, ends[name]) {
			return []string{name + " still grows"}, progress - 1, nil
		}
	}
	return nil, progress, nil
}

// read gives the checker every record of every topic, and looks for what is where nothing may be.
func (r *run) read(ctx context.Context, c *checker) error {
	r.say("reading every topic from its start")
	known := map[string]bool{}
	for i, t := range c.table {
		known[t.name] = true
		if err := r.client.Read(ctx, t.name, kgo.ReadUncommitted(), func(rec *kgo.Record) { c.add(i, rec) }); err != nil {
			return err
		}
	}
	for _, name := range append(decoys(), triggers()...) {
		known[name] = true
		ends, err := r.client.EndOffsets(ctx, name)
		if err != nil {
			return err
		}
		for partition, end := range ends {
			if end > 0 {
				c.tell("escaped", &c.escaped, "%s/%d has %d records", name, partition, end)
				c.escaped += int(end) - 1
			}
		}
	}
	all, err := r.client.Admin().ListTopicsWithInternal(ctx)
	if err != nil {
		return fmt.Errorf("list the topics: %w", err)
	}
	for _, name := range all.Names() {
		if !known[name] && !slices.Contains([]string{"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}, name) {
			c.tell("escaped", &c.escaped, "topic %q was created", name)
		}
	}
	return nil
}
