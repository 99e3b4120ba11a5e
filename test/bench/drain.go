package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// run is what one drain showed.
type run struct {
	perSecond    float64
	cpuPerRecord time.Duration
	peak         int64
}

// turn is one drain by each contender, one after the other.
type turn struct {
	bare, forwarder run
}

// ratioOf is the forwarder's rate as a share of the bare loop's.
func ratioOf(turns []turn) float64 {
	return medianOf(turns, func(t turn) float64 { return t.forwarder.perSecond / t.bare.perSecond })
}

func medianOf(turns []turn, f func(turn) float64) float64 {
	var values []float64
	for _, t := range turns {
		values = append(values, f(t))
	}
	return median(values)
}

// addRuns adds what the runs of one contender showed.
func (b *bench) addRuns(rate, prefix, name string, turns []turn, of func(turn) run) {
	b.add(rate+"per_s_"+name, medianOf(turns, func(t turn) float64 { return of(t).perSecond }), "records/s")
	b.add(prefix+"cpu_us_per_record_"+name, medianOf(turns, func(t turn) float64 { return float64(of(t).cpuPerRecord) / 1e3 }), "us")
	b.add(prefix+"drain_rss_mib_"+name, medianOf(turns, func(t turn) float64 { return float64(of(t).peak) / mebibyte }), "MiB")
}

// ceilings are the settings that the bare loop is tried with. Which one is the fastest depends on the machine and on the
// values: compression pays where most of a record is headers, and costs where it is random bytes.
var ceilings = []settings{
	base,
	base.with(func(s *settings) { s.Compression = "snappy" }),
	base.with(func(s *settings) { s.Compression = "lz4" }),
	base.with(func(s *settings) { s.PartitionBytes, s.FetchBytes = 1*mebibyte, 50*mebibyte }),
	base.with(func(s *settings) { s.GC = 200 }), // as the forwarder sets it
	base.with(func(s *settings) { s.GC, s.Compression = 200, "lz4" }),
}

var base = settings{PartitionBytes: 256 << 10, FetchBytes: 8 * mebibyte, Buffered: 10_000, Compression: "none", GC: 100}

func (s settings) with(change func(*settings)) settings {
	change(&s)
	return s
}

// backlog is what drains: records of a tier that are overdue.
type backlog struct {
	ladder
	records int64
	poison  int64 // how many of them become dead letters
}

// drain measures how fast a million overdue records come back.
func (b *bench) drain(ctx context.Context) error {
	for _, size := range b.values {
		if err := b.drainOf(ctx, size); err != nil {
			return fmt.Errorf("values of %d bytes: %w", size, err)
		}
	}
	return nil
}

func (b *bench) drainOf(ctx context.Context, size int) error {
	name := sizeName(size)
	ladder, err := b.newLadder(ctx, "drain-"+name, "10m", nil)
	if err != nil {
		return err
	}
	l := backlog{ladder: ladder, records: b.records}
	if err := b.fill(ctx, l, size); err != nil {
		return err
	}

	best, err := b.ceiling(ctx, l)
	if err != nil {
		return err
	}

	turns := make([]turn, b.runs)
	for i := range turns {
		if turns[i].bare, err = b.drainOnce(ctx, bareRuns, l, best); err != nil {
			return err
		}
		if turns[i].forwarder, err = b.drainOnce(ctx, forwarderRuns, l, settings{}); err != nil {
			return err
		}
	}
	b.add("drain_ratio_"+name, ratioOf(turns), "ratio")
	b.addRuns("drain_", "", name, turns, func(t turn) run { return t.forwarder })
	b.addRuns("bare_", "bare_", name, turns, func(t turn) run { return t.bare })
	return b.trim(ctx, l.tier)
}

// ceiling finds the fastest settings of the bare loop. Each is tried twice, far apart, and its faster run counts; a first
// run warms the broker up and counts for nothing.
func (b *bench) ceiling(ctx context.Context, l backlog) (settings, error) {
	if _, err := b.drainOnce(ctx, bareRuns, l, base); err != nil {
		return settings{}, err
	}
	var best settings
	fastest := 0.0
	for range 2 {
		for _, s := range ceilings {
			r, err := b.drainOnce(ctx, bareRuns, l, s)
			if err != nil {
				return settings{}, err
			}
			if r.perSecond > fastest {
				best, fastest = s, r.perSecond
			}
		}
	}
	b.say("the ceiling of %s is a bare loop with %s", l.origin, strings.Join(best.args(), " "))
	return best, nil
}

// fill writes the records, overdue by an hour.
func (b *bench) fill(ctx context.Context, l backlog, size int) error {
	b.say("writing %d records of %d bytes to %s, %d of them poison", l.records, size, l.tier, l.poison)
	load, err := newLoader(b.brokers, l.ladder, size)
	if err != nil {
		return err
	}
	defer load.close()
	if l.poison > 0 {
		load.spoil = newPoisoner().spoil
	}
	return load.load(ctx, l.records, 0, -time.Hour)
}

// drainOnce lets a contender move a whole backlog, and fails if a record is then missing, doubled or in the wrong place.
func (b *bench) drainOnce(ctx context.Context, who contender, l backlog, s settings) (run, error) {
	zero := map[int32]int64{}
	for p := range int32(partitions) {
		zero[p] = 0
	}
	if err := b.rewind(ctx, who, l.ladder, zero); err != nil {
		return run{}, err
	}
	topics := []growth{{topic: l.origin}, {topic: l.deadLetters()}}
	var err error
	for i := range topics {
		if topics[i].start, err = b.client.EndOffsets(ctx, topics[i].topic); err != nil {
			return run{}, err
		}
	}
	c, err := b.start(who, l.ladder, "bare-drain", s)
	if err != nil {
		return run{}, err
	}
	defer c.kill()
	for i, want := range []int64{l.records - l.poison, l.poison} {
		if err := b.grown(ctx, c, topics[i].topic, topics[i].start, want); err != nil {
			return run{}, err
		}
	}
	mem, err := memoryOf(c.pid())
	if err != nil {
		return run{}, err
	}
	cpu, err := c.stop()
	if err != nil {
		return run{}, err
	}
	for i, want := range []int64{l.records - l.poison, l.poison} {
		if topics[i].end, err = b.client.EndOffsets(ctx, topics[i].topic); err != nil {
			return run{}, err
		}
		if n := topics[i].records(); n != want {
			return run{}, fmt.Errorf("%s wrote %d records to %s, not %d", who, n, topics[i].topic, want)
		}
	}
	if err := b.checkLetters(ctx, topics[1]); err != nil {
		return run{}, err
	}
	took, err := b.span(ctx, topics...)
	if err != nil {
		return run{}, err
	}
	if took <= 0 {
		return run{}, errors.New("too few records: the drain took no time")
	}
	r := run{
		perSecond:    float64(l.records) / took.Seconds(),
		cpuPerRecord: cpu / time.Duration(l.records),
		peak:         mem.peak,
	}
	b.say("%-9s %s: %7.0f records/s, %.2f us of CPU a record, %d MiB", who, l.origin,
		r.perSecond, float64(cpu)/1e3/float64(l.records), r.peak/mebibyte)
	return r, errors.Join(b.trim(ctx, l.origin), b.trim(ctx, l.deadLetters()))
}
