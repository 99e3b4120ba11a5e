package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// troubleRecords is the most records that a backlog has which is there to make trouble.
	troubleRecords = 200_000
	// poisonShare says that one record in so many can never be delivered.
	poisonShare = 100
	// poisonRate is how many records a second become due while lateness is measured.
	poisonRate = 5000
	// poisonSize is the length of the values of all but those that are too large.
	poisonSize = 1024
	// poisonLimit is max.message.bytes of the origin. Its other topics take 16 KiB more.
	poisonLimit = 64 << 10
	// poisonLarge is the length of a value that is too large for the origin and not for the others. All of them together
	// have fewer bytes than the other records, so that the figure does not show what it costs to move them.
	poisonLarge = poisonLimit + 4<<10
	// loadBatch is the largest batch that the tier of such an origin takes.
	loadBatch = poisonLimit + 12<<10
)

// poison measures what records that can never be delivered cost those that can.
func (b *bench) poison(ctx context.Context) error {
	if err := b.poisonDrain(ctx); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	if err := b.poisonLateness(ctx); err != nil {
		return fmt.Errorf("lateness: %w", err)
	}
	return nil
}

// pickyLadder has an origin that refuses some records for ever: those that are larger than the other topics let them be,
// and, since it is compacted, those without a key. Nothing is ever compacted away: the records are counted.
func (b *bench) pickyLadder(ctx context.Context, origin, delay string) (ladder, error) {
	l, err := b.newLadder(ctx, origin, delay, map[string]string{
		"max.message.bytes":     strconv.Itoa(poisonLimit),
		"cleanup.policy":        "compact,delete", // Without delete the topic could not be trimmed.
		"min.compaction.lag.ms": strconv.FormatInt((7 * 24 * time.Hour).Milliseconds(), 10),
	})
	l.batch = loadBatch
	return l, err
}

// poisonDrain compares a backlog with poison in it to one without, in turns on origins of the same settings.
func (b *bench) poisonDrain(ctx context.Context) error {
	n := b.trouble()
	n -= n % poisonShare
	if n == 0 {
		return fmt.Errorf("there is no poison among less than %d records", poisonShare)
	}
	clean, poisoned := backlog{records: n}, backlog{records: n, poison: n / poisonShare}
	for _, l := range []*backlog{&clean, &poisoned} {
		var err error
		if l.ladder, err = b.pickyLadder(ctx, fmt.Sprintf("poison-%d", l.poison), "10m"); err != nil {
			return err
		}
		if err := b.fill(ctx, *l, poisonSize); err != nil {
			return err
		}
	}

	if _, err := b.drainOnce(ctx, forwarderRuns, clean, settings{}); err != nil {
		return err // It warms the broker up and counts for nothing.
	}
	pairs := make([]pair, b.runs)
	for i := range pairs {
		var err error
		if pairs[i].clean, err = b.drainOnce(ctx, forwarderRuns, clean, settings{}); err != nil {
			return err
		}
		if pairs[i].poisoned, err = b.drainOnce(ctx, forwarderRuns, poisoned, settings{}); err != nil {
			return err
		}
	}
	ofPairs := func(f func(pair) float64) float64 {
		var values []float64
		for _, p := range pairs {
			values = append(values, f(p))
		}
		return median(values)
	}
	b.add("poison_throughput_ratio", ofPairs(func(p pair) float64 { return p.poisoned.perSecond / p.clean.perSecond }), "ratio")
	b.add("poison_per_s", ofPairs(func(p pair) float64 { return p.poisoned.perSecond }), "records/s")
	b.add("poison_clean_per_s", ofPairs(func(p pair) float64 { return p.clean.perSecond }), "records/s")
	b.add("poison_cpu_us_per_record", ofPairs(func(p pair) float64 { return float64(p.poisoned.cpuPerRecord) / 1e3 }), "us")
	b.add("poison_clean_cpu_us_per_record", ofPairs(func(p pair) float64 { return float64(p.clean.cpuPerRecord) / 1e3 }), "us")
	return errors.Join(b.trim(ctx, clean.tier), b.trim(ctx, poisoned.tier))
}

// pair is one drain of each backlog, one after the other.
type pair struct {
	clean, poisoned run
}

// poisonLateness measures how long after their due time the others are on the origin, with poison among them and without.
func (b *bench) poisonLateness(ctx context.Context) error {
	l, err := b.pickyLadder(ctx, "poison-lateness", latenessTier.String())
	if err != nil {
		return err
	}
	found := map[string][]float64{}
	for range b.runs {
		for _, s := range []stream{
			{rate: poisonRate, length: b.length / 2},
			{rate: poisonRate, length: b.length / 2, poison: true},
		} {
			run, err := b.latenessOnce(ctx, forwarderRuns, l, s)
			if err != nil {
				return err
			}
			prefix := "poison_lateness_"
			if !s.poison {
				prefix = "poison_clean_lateness_"
			}
			p50, p99 := percentile(run.appended, 50), percentile(run.appended, 99)
			found[prefix+"p50_ms"] = append(found[prefix+"p50_ms"], milliseconds(p50))
			found[prefix+"p99_ms"] = append(found[prefix+"p99_ms"], milliseconds(p99))
			b.say("%d poison records of %d at %d/s: p50 %v, p99 %v of the others", s.letters(), s.records(), s.rate, p50, p99)
			if err := errors.Join(b.trim(ctx, l.tier), b.trim(ctx, l.origin), b.trim(ctx, l.deadLetters())); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"poison_lateness_p99_ms", "poison_lateness_p50_ms", "poison_clean_lateness_p99_ms", "poison_clean_lateness_p50_ms"} {
		b.add(name, median(found[name]), "ms")
	}
	return nil
}

// poisoner spoils one record in poisonShare for a picky origin, the same ones in every run: by turns one loses its key and
// one gets too large.
type poisoner struct {
	bytes   *rand.ChaCha8
	dice    *rand.Rand
	made    int64
	next    int64 // the one of this hundred
	spoiled int64
}

func newPoisoner() *poisoner {
	bytes := newRandom()
	return &poisoner{bytes: bytes, dice: rand.New(bytes)}
}

// spoil takes all records of a load, one after the other.
func (p *poisoner) spoil(r *kgo.Record) {
	if p.made%poisonShare == 0 {
		// Any of them, so that every partition gets some of each kind.
		p.next = p.made + p.dice.Int64N(poisonShare)
	}
	if p.made == p.next {
		if p.spoiled%2 == 0 {
			r.Key = nil
		} else {
			value := make([]byte, poisonLarge)
			_, _ = p.bytes.Read(value[copy(value, r.Value):])
			r.Value = value
		}
		p.spoiled++
	}
	p.made++
}

// isPoison reports whether a picky origin refuses the record.
func isPoison(r *kgo.Record) bool { return r.Key == nil || len(r.Value) > poisonLimit }

// checkLetters fails if there is a dead letter that could have been delivered. The topic holds no other letters.
func (b *bench) checkLetters(ctx context.Context, letters growth) error {
	if letters.records() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stallLimit)
	defer cancel()
	wrong := 0
	err := b.client.Read(ctx, letters.topic, kgo.ReadUncommitted(), func(r *kgo.Record) {
		if r.Offset >= letters.start[r.Partition] && !isPoison(r) {
			wrong++
		}
	})
	if err == nil && wrong > 0 {
		err = fmt.Errorf("%d of %d dead letters in %s could have been delivered", wrong, letters.records(), letters.topic)
	}
	return err
}
