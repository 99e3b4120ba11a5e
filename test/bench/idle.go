package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	// Each of the origins has an inbox and the tiers, all with so many partitions.
	idleOrigins    = 20
	idlePartitions = 25
	// idleSettle is how long a contender has had its partitions when the measurement begins.
	idleSettle = 15 * time.Second
)

var idleTiers = []string{"10s", "1m", "10m"}

// idleAssigned is how many partitions a contender reads.
const idleAssigned = idleOrigins * idlePartitions * 4

// idle measures what partitions cost in which nothing happens. The bare loop shows what the client library takes of it.
func (b *bench) idle(ctx context.Context) error {
	b.say("making topics with %d partitions to read", idleAssigned)
	var entries []entry
	var read []string
	for i := range idleOrigins {
		e := entry{origin: fmt.Sprintf("idle-%02d", i), tiers: idleTiers}
		if err := b.client.CreateTopic(ctx, e.origin, idlePartitions, nil); err != nil {
			return err
		}
		// One after the other: a broker takes its time over thousands of partitions at once.
		one, err := b.configure(e.origin, e.origin, e)
		if err != nil {
			return err
		}
		if err := b.apply(ctx, one); err != nil {
			return err
		}
		entries = append(entries, e)
		read = append(read, e.origin+".retry")
		for _, tier := range e.tiers {
			read = append(read, e.origin+".retry."+tier)
		}
	}
	const group, bareGroup = "forwarder-idle", "bare-idle"
	config, err := b.configure("idle", group, entries...)
	if err != nil {
		return err
	}
	zero := map[int32]int64{}
	for p := range int32(idlePartitions) {
		zero[p] = 0
	}
	for _, topic := range read {
		if err := b.place(ctx, bareGroup, topic, zero); err != nil {
			return err
		}
	}

	loop, err := b.startBare("bare-drain", bareGroup, strings.Join(read, ","), entries[0].origin, base)
	if err != nil {
		return err
	}
	bare, err := b.idleOnce(ctx, bareRuns, loop, bareGroup)
	if err != nil {
		return err
	}
	c, err := b.startForwarder(config)
	if err != nil {
		return err
	}
	mine, err := b.idleOnce(ctx, forwarderRuns, c, group)
	if err != nil {
		return err
	}
	name := fmt.Sprint(idleAssigned)
	b.add("idle_cpu_percent_"+name, mine.percent, "%")
	b.add("idle_rss_mib_"+name, float64(mine.memory.now)/mebibyte, "MiB")
	b.add("idle_rss_peak_mib_"+name, float64(mine.memory.peak)/mebibyte, "MiB")
	b.add("bare_idle_cpu_percent_"+name, bare.percent, "%")
	b.add("bare_idle_rss_mib_"+name, float64(bare.memory.now)/mebibyte, "MiB")
	return nil
}

// idleness is what an idle contender took.
type idleness struct {
	percent float64 // of one core
	memory  memory  // now: the most that it had while it was idle; peak: since its start
}

// idleOnce measures a contender that was just started, and stops it.
func (b *bench) idleOnce(ctx context.Context, who contender, c *child, group string) (idleness, error) {
	defer c.kill()
	if err := b.joinedTo(ctx, c, group, idleAssigned); err != nil {
		return idleness{}, err
	}
	if !wait.For(ctx, idleSettle) {
		return idleness{}, ctx.Err()
	}
	before, err := cpuOf(c.pid())
	if err != nil {
		return idleness{}, c.failure(err)
	}
	began := time.Now()
	var found idleness
	for time.Since(began) < b.length {
		m, err := memoryOf(c.pid())
		if err != nil {
			return idleness{}, c.failure(err)
		}
		found.memory = memory{now: max(found.memory.now, m.now), peak: m.peak}
		if !wait.For(ctx, min(time.Second, b.length)) {
			return idleness{}, ctx.Err()
		}
	}
	after, err := cpuOf(c.pid())
	if err != nil {
		return idleness{}, c.failure(err)
	}
	found.percent = 100 * (after - before).Seconds() / time.Since(began).Seconds()
	b.say("%-9s with %d idle partitions: %.2f %% of a core, %d MiB, at most %d MiB since the start", who, idleAssigned,
		found.percent, found.memory.now/mebibyte, found.memory.peak/mebibyte)
	_, err = c.stop()
	return found, err
}
