package index

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

const (
	// judgePage is how many replayed letters are judged at once, judgePages how many times that in one sweep: the rest waits for the next.
	judgePage  = 1000
	judgePages = 20
	// judgeSlack is added to the time of the ladder, for the forwarder, the consumer and the clocks.
	judgeSlack = time.Minute
)

// judge decides which replayed letters have succeeded. Used by the sweeps only.
//
// A letter has succeeded if the group has passed its copy and the copy did not come back. It could come back until the time of the whole
// ladder has gone by since the group passed it, which is known by watching the group: no broker keeps when a commit was made. So a
// process that has just started waits for the ladder once more. And what came back is known only up to where the index is.
type judge struct {
	after  int64 // the letter to go on behind
	passed map[groupPartition][]passing
}

type groupPartition struct {
	group, topic string
	partition    int32
}

// passing is a commit and when it was seen first.
type passing struct {
	offset int64
	at     time.Time
}

// asOf notes whether the index has all that the topic held at the last sweep.
func (w *sweepState) asOf(v view, next map[int32]int64) {
	w.complete = time.Time{}
	if w.before.at.IsZero() || w.before.id != v.id || w.before.missing != nil || len(w.before.end) == 0 {
		return
	}
	for partition, end := range w.before.end {
		if end > w.before.start[partition] && next[partition] < end {
			return
		}
	}
	w.complete = w.before.at
}

// observe notes a commit of a group.
func (j *judge) observe(at groupPartition, offset int64, now, forget time.Time) {
	seen := j.passed[at]
	if n := len(seen); n > 0 && seen[n-1].offset >= offset {
		if seen[n-1].offset == offset {
			return
		}
		seen = nil // Somebody set the group back: what it passes, it passes again.
	}
	// Of what was long ago one is enough.
	for len(seen) > 1 && seen[1].at.Before(forget) {
		seen = seen[1:]
	}
	j.passed[at] = append(seen, passing{offset, now})
}

// passedAt is when a group was seen to have passed an offset first; zero if it has not.
func (j *judge) passedAt(at groupPartition, offset int64) time.Time {
	for _, p := range j.passed[at] {
		if p.offset > offset {
			return p.at
		}
	}
	return time.Time{}
}

func (ix *Indexer) judgeReplays(ctx context.Context) {
	judged := false
	for _, t := range ix.topics {
		judged = judged || t.Group != ""
	}
	if !judged {
		return
	}
	j := &ix.judge
	commits := map[string]kadm.OffsetResponses{}
	for range judgePages {
		var letters []deadletter.Letter
		if err := ix.call(ctx, func(ctx context.Context) (err error) {
			letters, err = ix.opts.Ledger.Awaiting(ctx, j.after, judgePage)
			return err
		}); err != nil {
			return
		}
		if !ix.watchGroups(ctx, letters, commits) {
			return
		}
		succeeded := map[string][]int64{}
		for i := range letters {
			l := &letters[i]
			if ix.hasSucceeded(l) {
				succeeded[l.Place.Topic] = append(succeeded[l.Place.Topic], l.ID)
			}
		}
		for name, ids := range succeeded {
			var n int64
			if err := ix.call(ctx, func(ctx context.Context) (err error) {
				n, err = ix.opts.Ledger.Succeed(ctx, ids)
				return err
			}); err != nil {
				return
			}
			ix.topics[name].succeededC.Add(float64(n))
		}
		if len(letters) < judgePage {
			j.after = 0
			return
		}
		j.after = letters[len(letters)-1].ID
	}
}

// watchGroups learns the commits of the groups that letters wait for, unless commits has them. It reports whether all could be
// learned.
func (ix *Indexer) watchGroups(ctx context.Context, letters []deadletter.Letter, commits map[string]kadm.OffsetResponses) bool {
	now := time.Now()
	var ladder time.Duration
	for _, t := range ix.topics {
		ladder = max(ladder, t.Ladder)
	}
	for i := range letters {
		t := ix.topics[letters[i].Place.Topic]
		if t == nil || t.Group == "" {
			continue
		}
		if _, known := commits[t.Group]; known {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		responses, err := ix.admin.FetchOffsets(limited, t.Group)
		cancel()
		if err != nil {
			ix.mu.Lock()
			ix.report("group "+t.Group, "the commits of a group can not be fetched, replays are judged later", "group", t.Group, "err", err)
			ix.mu.Unlock()
			return false
		}
		commits[t.Group] = responses
		responses.Each(func(o kadm.OffsetResponse) {
			if o.Err == nil && o.At >= 0 {
				ix.judge.observe(groupPartition{t.Group, o.Topic, o.Partition}, o.At, now, now.Add(-ladder-2*judgeSlack))
			}
		})
	}
	return true
}

func (ix *Indexer) hasSucceeded(l *deadletter.Letter) bool {
	t := ix.topics[l.Place.Topic]
	if t == nil || t.Group == "" || l.Copy.Offset < 0 || t.sweep.complete.IsZero() {
		return false
	}
	passed := ix.judge.passedAt(groupPartition{t.Group, l.Copy.Topic, l.Copy.Partition}, l.Copy.Offset)
	if passed.IsZero() {
		return false
	}
	if l.StateAt.After(passed) {
		passed = l.StateAt
	}
	return !passed.Add(t.Ladder + judgeSlack).After(t.sweep.complete)
}
