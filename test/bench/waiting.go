package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	// waitTime is how long each record waits.
	waitTime = time.Minute
	// waitRate is how many are written a second, and become due a second.
	waitRate = 50_000
	// waitSize is the length of the values.
	waitSize = 1024
)

// waiting measures what a million records that wait cost: memory, and bytes read more than once.
func (b *bench) waiting(ctx context.Context) error {
	l, err := b.newLadder(ctx, "waiting", "10m", nil)
	if err != nil {
		return err
	}
	start, err := b.client.EndOffsets(ctx, l.origin)
	if err != nil {
		return err
	}
	c, err := b.start(forwarderRuns, l, "", settings{})
	if err != nil {
		return err
	}
	defer c.kill()
	if err := b.joined(ctx, c, groupOf(forwarderRuns, l)); err != nil {
		return err
	}
	before, err := readBytes(c.pid())
	if err != nil {
		return err
	}

	b.say("writing %d records of %d bytes to %s, each due after %v", b.records, waitSize, l.tier, waitTime)
	load, err := newLoader(b.brokers, l, waitSize)
	if err != nil {
		return err
	}
	defer load.close()
	began := time.Now()
	if err := load.load(ctx, b.records, waitRate, waitTime); err != nil {
		return err
	}
	loaded := time.Since(began)
	if loaded > waitTime {
		return fmt.Errorf("the records took %v to write, the first is due after %v: there was no moment when all waited", loaded, waitTime)
	}
	stored, err := b.stored(ctx, l.tier)
	if err != nil {
		return err
	}

	// Up to the first due time.
	var peak int64
	for time.Since(began) < waitTime {
		m, err := memoryOf(c.pid())
		if err != nil {
			return c.failure(err)
		}
		peak = max(peak, m.peak)
		if !wait.For(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	b.say("all wait: %d MiB resident at most", peak/mebibyte)

	if err := b.grown(ctx, c, l.origin, start, b.records); err != nil {
		return err
	}
	after, err := readBytes(c.pid())
	if err != nil {
		return err
	}
	mem, err := memoryOf(c.pid())
	if err != nil {
		return err
	}
	cpu, err := c.stop()
	if err != nil {
		return err
	}
	end, err := b.client.EndOffsets(ctx, l.origin)
	if err != nil {
		return err
	}
	if n := total(end) - total(start); n != b.records {
		return fmt.Errorf("the forwarder wrote %d records to %s, not %d", n, l.origin, b.records)
	}
	b.add("rss_waiting_mib", float64(peak)/mebibyte, "MiB")
	b.add("rss_waiting_drain_mib", float64(mem.peak)/mebibyte, "MiB")
	b.add("fetch_amplification", float64(after-before)/float64(stored), "ratio")
	b.add("waiting_cpu_s", cpu.Seconds(), "s")
	return b.trim(ctx, l.tier)
}
