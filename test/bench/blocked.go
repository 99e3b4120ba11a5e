package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	// blockedRate is how many records a second of the other topic become due.
	blockedRate = 1000
	// blockedSize is the length of the values of the blocked topic.
	blockedSize = 1024
	// blockedSettle is how long the blocked topic has had its backlog when the other one is timed.
	blockedSettle = 5 * time.Second
	// missingBroker is stopped, so that an origin that needs all three takes nothing.
	missingBroker = 3
)

// scene is what a forwarder is given: a topic that is timed, and beside it one whose origin takes nothing, or none.
type scene struct {
	name    string // of the obstacle, in figures; "" without one
	blocked ladder
	block   func(ctx context.Context) error // makes the origin take nothing; the forwarder runs already
}

// blocked measures what a topic that is wholly blocked costs another one. Its overdue backlog is larger than all that the
// forwarder may hold, so that it presses for memory, for the connections and for the time of the process.
//
// It is blocked in two ways. no_isr: too few replicas of its origin are in sync; the broker refuses every write, and the
// client tries again. missing: somebody deleted the origin. Both meet one run without the blocked topic in each turn, on
// the same cluster, of which a broker is down in all of them.
func (b *bench) blocked(ctx context.Context) error {
	other, err := b.newLadder(ctx, "beside", latenessTier.String(), nil)
	if err != nil {
		return err
	}
	short, err := b.newLadder(ctx, "short", "10m", nil)
	if err != nil {
		return err
	}
	gone := make([]ladder, b.runs)
	for i := range gone {
		if gone[i], err = b.newLadder(ctx, fmt.Sprintf("gone-%d", i), "10m", nil); err != nil {
			return err
		}
	}
	if err := b.loseBroker(ctx, other, short); err != nil {
		return err
	}

	found := map[string][]late{}
	for i := range b.runs {
		scenes := []scene{
			{},
			{name: "no_isr", blocked: short, block: func(context.Context) error { return nil }},
			{name: "missing", blocked: gone[i], block: func(ctx context.Context) error { return b.deleteTopic(ctx, gone[i].origin) }},
		}
		for _, s := range scenes {
			run, err := b.besideOnce(ctx, other, s)
			if err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
			found[s.name] = append(found[s.name], run)
			b.say("beside %s: p50 %v, p99 %v; seen by a reader p99 %v", s, percentile(run.appended, 50),
				percentile(run.appended, 99), percentile(run.seen, 99).Round(10*time.Microsecond))
		}
	}

	worst := 0.0
	var ratios []testkit.Figure
	for _, name := range []string{"no_isr", "missing"} {
		ratio := latenessRatio(found[name], found[""])
		worst = max(worst, ratio)
		ratios = append(ratios, testkit.Figure{Name: "blocked_" + name + "_lateness_ratio", Value: ratio, Unit: "ratio"},
			testkit.Figure{Name: "blocked_" + name + "_lateness_p99_ms", Value: median(p99s(found[name])), Unit: "ms"})
	}
	b.add("blocked_topic_lateness_ratio", worst, "ratio")
	b.add("blocked_none_lateness_p99_ms", median(p99s(found[""])), "ms")
	b.figures = append(b.figures, ratios...)
	return nil
}

// String says what stands beside the timed topic.
func (s scene) String() string {
	if s.name == "" {
		return "nothing"
	}
	return "a blocked topic (" + s.name + ")"
}

// latenessRatio is the p99 of the runs with an obstacle as a multiple of those without, turn by turn. Stamps are whole
// milliseconds: below one there is nothing to compare.
func latenessRatio(with, without []late) float64 {
	var ratios []float64
	w, wo := p99s(with), p99s(without)
	for i := range w {
		ratios = append(ratios, max(w[i], 1)/max(wo[i], 1))
	}
	return median(ratios)
}

func p99s(runs []late) []float64 {
	var values []float64
	for _, r := range runs {
		values = append(values, milliseconds(percentile(r.appended, 99)))
	}
	return values
}

// loseBroker stops a broker for the rest of the run, and makes the origin of short one that needs it. The topics around
// that origin do not: only it is blocked.
func (b *bench) loseBroker(ctx context.Context, other, short ladder) error {
	// The first commit makes the topic of the commits, which must have all its replicas.
	end, err := b.client.EndOffsets(ctx, other.tier)
	if err != nil {
		return err
	}
	if err := b.rewind(ctx, forwarderRuns, other, end); err != nil {
		return err
	}
	all := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: new("3")}}
	responses, err := b.client.Admin().AlterTopicConfigs(ctx, all, short.origin)
	for _, r := range responses {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return fmt.Errorf("alter %s: %w", short.origin, err)
	}
	b.say("stopping a broker")
	if err := b.kafka.Stop(missingBroker); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stallLimit)
	defer cancel()
	return testkit.Await(ctx, func(ctx context.Context) error {
		topics, err := b.client.Admin().ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		var unled error
		topics.EachPartition(func(p kadm.PartitionDetail) {
			if p.Leader < 0 || p.Leader == missingBroker {
				unled = fmt.Errorf("%s/%d has no other leader yet", p.Topic, p.Partition)
			}
		})
		return unled
	})
}

func (b *bench) deleteTopic(ctx context.Context, topic string) error {
	responses, err := b.client.Admin().DeleteTopics(ctx, topic)
	if err == nil {
		err = responses.Error()
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", topic, err)
	}
	return nil
}

// besideOnce times the records of one topic in a scene.
func (b *bench) besideOnce(ctx context.Context, other ladder, s scene) (late, error) {
	read := []ladder{other}
	if s.block != nil {
		read = append(read, s.blocked)
	}
	// A group of its own for each configuration: what one blocks must not wait in another.
	group := "forwarder-beside-" + s.blocked.origin
	var entries []entry
	for _, l := range read {
		entries = append(entries, l.entry())
		end, err := b.client.EndOffsets(ctx, l.tier)
		if err != nil {
			return late{}, err
		}
		if err := b.place(ctx, group, l.tier, end); err != nil {
			return late{}, err
		}
	}
	config, err := b.configure(group, group, entries...)
	if err != nil {
		return late{}, err
	}
	c, err := b.startForwarder(config)
	if err != nil {
		return late{}, err
	}
	defer c.kill()
	if err := b.joined(ctx, c, group); err != nil {
		return late{}, err
	}
	if s.block != nil {
		if err := s.block(ctx); err != nil {
			return late{}, err
		}
		if err := b.fill(ctx, backlog{ladder: s.blocked, records: b.trouble()}, blockedSize); err != nil {
			return late{}, err
		}
		if !wait.For(ctx, blockedSettle) {
			return late{}, ctx.Err()
		}
	}
	found, err := b.timed(ctx, c, other, stream{rate: blockedRate, length: b.length / 2})
	if err != nil {
		return late{}, err
	}
	if s.block != nil {
		if err := b.stillBlocked(ctx, s.blocked); err != nil {
			return late{}, err
		}
	}
	if _, err := c.stop(); err != nil {
		return late{}, err
	}
	for _, l := range read {
		if err := b.trim(ctx, l.tier); err != nil {
			return late{}, err
		}
	}
	return found, b.trim(ctx, other.origin)
}

// stillBlocked fails if the origin took a record, or if one was given up for dead.
func (b *bench) stillBlocked(ctx context.Context, l ladder) error {
	for _, topic := range []string{l.origin, l.deadLetters()} {
		end, err := b.client.EndOffsets(ctx, topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			continue // Deleted, as it was meant to be.
		}
		if err != nil {
			return err
		}
		if n := total(end); n > 0 {
			return fmt.Errorf("%d records of the blocked topic are in %s", n, topic)
		}
	}
	return nil
}
