package index

import (
	"context"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	sweepInterval = time.Minute
	// settle is how long after the first sweep the second one comes, and how long a topic must have one identity before letters expire by
	// it.
	settle = 5 * time.Second
	// missingLasts is how long a topic must be missing before all of its letters expire.
	missingLasts = 5 * time.Minute
	// expireAgain is how often the ledger is asked to expire letters though nothing has changed: one that was claimed may be dead again.
	expireAgain = 10 * time.Minute
)

// sweepState is what the sweeps keep in mind of a topic.
type sweepState struct {
	id           deadletter.TopicID
	idSince      time.Time // when it had this identity first
	missingSince time.Time // zero: it is there
	// below is up to where the letters of a partition have expired; at when that was, of the partitions and of the other
	// incarnations.
	below    map[int32]int64
	at       time.Time
	othersAt time.Time
	others   int // how many other incarnations there were then

	// before is the view of the last sweep, complete when that was if the index has all that the topic held then.
	before   view
	complete time.Time
}

// sweeps expires letters whose bytes are gone and judges those that were replayed, until ctx ends. A replica does that for all
// topics, whether it owns their partitions or not: all of it is harmless twice.
func (ix *Indexer) sweeps(ctx context.Context) {
	for next := min(settle, ix.sweepEvery); ; next = ix.sweepEvery {
		ix.sweep(ctx)
		if !wait.For(ctx, next) {
			return
		}
	}
}

func (ix *Indexer) sweep(ctx context.Context) {
	var progress []deadletter.Progress
	if err := ix.call(ctx, func(ctx context.Context) (err error) {
		progress, err = ix.opts.Ledger.Progress(ctx)
		return err
	}); err != nil {
		return // It shows; the next sweep does the same.
	}
	next := map[deadletter.TopicID]map[int32]int64{}
	incarnations := map[string]map[deadletter.TopicID]bool{}
	for _, p := range progress {
		if next[p.TopicID] == nil {
			next[p.TopicID] = map[int32]int64{}
		}
		next[p.TopicID][p.Partition] = p.Next
		if incarnations[p.Topic] == nil {
			incarnations[p.Topic] = map[deadletter.TopicID]bool{}
		}
		incarnations[p.Topic][p.TopicID] = true
	}
	for _, name := range ix.names {
		t := ix.topics[name]
		v, err := ix.lookAt(ctx, t, 0)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			ix.mu.Lock()
			ix.report("sweep "+name, "whether dead letters are gone is not known, it is looked for again", "topic", name, "err", err)
			ix.mu.Unlock()
			continue
		}
		ix.learnEnds(t, v)
		ix.expire(ctx, t, v, next[v.id], incarnations[name])
		t.sweep.asOf(v, next[v.id])
		t.sweep.before = v
	}
	ix.judgeReplays(ctx)
}

// learnEnds has the lag follow partitions that are paused, from which nothing is fetched.
func (ix *Indexer) learnEnds(t *topic, v view) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for n, s := range ix.sources[t.DeadLetters] {
		if end, ok := v.end[n]; ok && s.id == v.id {
			s.noteEnd(end)
		}
	}
}

// expire expires the letters of a topic whose bytes are gone. That can not be taken back, so a broker that is behind the others must not
// cause it: an identity, or none, counts when it lasts.
func (ix *Indexer) expire(ctx context.Context, t *topic, v view, next map[int32]int64, incarnations map[deadletter.TopicID]bool) {
	w := &t.sweep
	none := deadletter.TopicID{}
	if v.missing != nil {
		if w.missingSince.IsZero() {
			w.missingSince = v.at
		}
		w.id, w.idSince = none, time.Time{}
		if v.at.Sub(w.missingSince) >= missingLasts && len(incarnations) > 0 {
			ix.expireOthers(ctx, t, none, len(incarnations), v.at, "the topic does not exist")
		}
		return
	}
	w.missingSince = time.Time{}
	if w.id != v.id || w.idSince.IsZero() {
		w.id, w.idSince, w.below, w.at, w.othersAt = v.id, v.at, map[int32]int64{}, time.Time{}, time.Time{}
		return
	}
	if v.at.Sub(w.idSince) < settle {
		return
	}
	others := len(incarnations)
	if incarnations[v.id] {
		others--
	}
	// Brokers before 2.8 give topics no identity: none of them is another one then.
	if v.id != none && others > 0 {
		ix.expireOthers(ctx, t, v.id, others, v.at, "the topic was made again")
	}
	again := v.at.Sub(w.at) >= expireAgain
	if again {
		w.at = v.at
	}
	for partition, start := range v.start {
		if start == 0 || (w.below[partition] == start && !again) {
			continue
		}
		var n int64
		if err := ix.call(ctx, func(ctx context.Context) (err error) {
			n, err = ix.opts.Ledger.Expire(ctx, v.id, partition, start)
			return err
		}); err != nil {
			return
		}
		t.expire(ix, n, "retention")
		// Letters that were fetched before they went may still be written below the start.
		if next[partition] >= start {
			w.below[partition] = start
		}
	}
}

func (ix *Indexer) expireOthers(ctx context.Context, t *topic, current deadletter.TopicID, others int, now time.Time, why string) {
	w := &t.sweep
	if w.others == others && now.Sub(w.othersAt) < expireAgain {
		return
	}
	var n int64
	if err := ix.call(ctx, func(ctx context.Context) (err error) {
		n, err = ix.opts.Ledger.ExpireTopics(ctx, t.DeadLetters, current)
		return err
	}); err != nil {
		return
	}
	t.expire(ix, n, why)
	if n == 0 {
		w.others, w.othersAt = others, now
	}
}

// countLetters keeps the gauges of the letters up to date, less often where counting takes long.
func (ix *Indexer) countLetters(ctx context.Context) {
	for {
		began := time.Now()
		var stats []deadletter.Stat
		if ix.call(ctx, func(ctx context.Context) (err error) {
			stats, err = ix.opts.Ledger.Stats(ctx)
			return err
		}) == nil {
			ix.metrics.stats.Store(&stats)
		}
		if !wait.For(ctx, max(statsInterval, 20*time.Since(began))) {
			return
		}
	}
}
