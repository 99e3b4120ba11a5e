package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// latenessTier is the delay of the tier whose records are timed.
	latenessTier = 2 * time.Second
	// settleTime is how long a contender runs before its records count.
	settleTime = 2 * time.Second
	// latenessSize is the length of the values.
	latenessSize = 1024
)

// rates are the records a second at which lateness is measured.
var rates = []int{100, 1000, 10000}

// late are the latenesses of one run's records.
type late struct {
	appended []time.Duration // by the stamp that the origin gave, whole milliseconds
	seen     []time.Duration // when a reader of the origin had it
}

// lateness measures how long after its due time a record is on the origin.
func (b *bench) lateness(ctx context.Context) error {
	l, err := b.newLadder(ctx, "lateness", latenessTier.String(), nil)
	if err != nil {
		return err
	}
	for _, rate := range rates {
		found := map[string][]float64{}
		for range b.runs {
			for _, who := range []contender{bareRuns, forwarderRuns} {
				run, err := b.latenessOnce(ctx, who, l, stream{rate: rate, length: b.length})
				if err != nil {
					return err
				}
				prefix := "lateness_"
				if who == bareRuns {
					prefix = "lateness_bare_"
				}
				for _, p := range []int{50, 99} {
					name := prefix + "p" + strconv.Itoa(p) + "_ms_" + strconv.Itoa(rate)
					found[name] = append(found[name], milliseconds(percentile(run.appended, float64(p))))
					name = prefix + "seen_p" + strconv.Itoa(p) + "_ms_" + strconv.Itoa(rate)
					found[name] = append(found[name], milliseconds(percentile(run.seen, float64(p))))
				}
				b.say("%-9s at %d/s: p50 %v, p99 %v; seen by a reader p50 %v, p99 %v", who, rate,
					percentile(run.appended, 50), percentile(run.appended, 99),
					percentile(run.seen, 50).Round(10*time.Microsecond), percentile(run.seen, 99).Round(10*time.Microsecond))
			}
		}
		for _, prefix := range []string{"lateness_", "lateness_bare_", "lateness_seen_", "lateness_bare_seen_"} {
			for _, p := range []string{"p50", "p99"} {
				name := prefix + p + "_ms_" + strconv.Itoa(rate)
				b.add(name, median(found[name]), "ms")
			}
		}
	}
	return nil
}

// stream is what becomes due while it is timed.
type stream struct {
	rate   int
	length time.Duration
	poison bool // one in poisonShare is for the dead letters
}

// records is how many are written in all, with those that do not count yet.
func (s stream) records() int64 {
	n := inTime(s.rate, settleTime+s.length)
	if s.poison {
		n -= n % poisonShare
	}
	return n
}

// letters is how many of the records are poison.
func (s stream) letters() int64 {
	if !s.poison {
		return 0
	}
	return s.records() / poisonShare
}

// latenessOnce starts a contender and times what it brings back.
func (b *bench) latenessOnce(ctx context.Context, who contender, l ladder, s stream) (late, error) {
	end, err := b.client.EndOffsets(ctx, l.tier)
	if err != nil {
		return late{}, err
	}
	if err := b.rewind(ctx, who, l, end); err != nil {
		return late{}, err
	}
	c, err := b.start(who, l, "bare-delay", base)
	if err != nil {
		return late{}, err
	}
	defer c.kill()
	if err := b.joined(ctx, c, groupOf(who, l)); err != nil {
		return late{}, err
	}
	found, err := b.timed(ctx, c, l, s)
	if err != nil {
		return late{}, err
	}
	_, err = c.stop()
	return found, err
}

// timed writes the records of a stream to the tier and times on the origin those that come back. It returns when all are
// where they belong.
func (b *bench) timed(ctx context.Context, c *child, l ladder, s stream) (late, error) {
	start, err := b.client.EndOffsets(ctx, l.origin)
	if err != nil {
		return late{}, err
	}
	letters := growth{topic: l.deadLetters()}
	if letters.start, err = b.client.EndOffsets(ctx, letters.topic); err != nil {
		return late{}, err
	}
	n := s.records() - s.letters()
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	var found late
	var readErr error
	var reader sync.WaitGroup
	reader.Go(func() {
		found, readErr = b.watch(reading, l.origin, start, n, inTime(s.rate, settleTime))
		stopReading()
	})
	load, err := newLoader(b.brokers, l, latenessSize)
	if err != nil {
		return late{}, err
	}
	defer load.close()
	if s.poison {
		load.spoil = newPoisoner().spoil
	}
	if err := load.load(ctx, s.records(), s.rate, latenessTier); err != nil {
		return late{}, err
	}
	arrived := b.grown(ctx, c, l.origin, start, n)
	if arrived != nil {
		stopReading()
	}
	reader.Wait()
	if err := errors.Join(arrived, readErr, b.grown(ctx, c, letters.topic, letters.start, s.letters())); err != nil {
		return late{}, err
	}
	if letters.end, err = b.client.EndOffsets(ctx, letters.topic); err != nil {
		return late{}, err
	}
	if have := letters.records(); have != s.letters() {
		return late{}, fmt.Errorf("%d records are in %s, not %d", have, letters.topic, s.letters())
	}
	return found, b.checkLetters(ctx, letters)
}

// watch reads n records of the origin, and times all but the first few.
func (b *bench) watch(ctx context.Context, topic string, start map[int32]int64, n, skip int64) (late, error) {
	at := map[int32]kgo.Offset{}
	for p, o := range start {
		at[p] = kgo.NewOffset().At(o)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}))
	if err != nil {
		return late{}, err
	}
	defer client.Close()
	var found late
	var bad error
	for have := int64(0); have < n; {
		fetches := client.PollFetches(ctx)
		now := time.Now()
		if err := errors.Join(ctx.Err(), fetchError(fetches), bad); err != nil {
			return late{}, fmt.Errorf("read %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			have++
			if have <= skip {
				return
			}
			due, err := dueOf(r.Value)
			if err != nil {
				bad = err
				return
			}
			if early := due.Sub(r.Timestamp); early > 0 {
				bad = fmt.Errorf("record %d/%d is %v early", r.Partition, r.Offset, early)
			}
			found.appended = append(found.appended, r.Timestamp.Sub(due))
			found.seen = append(found.seen, now.Sub(due))
		})
	}
	return found, bad
}
