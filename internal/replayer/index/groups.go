package index

import (
	"context"
	"strings"
	"sync"
	"time"
)

const (
	// newsAge is how long ago a letter may have died whose error counts as a new one. The letters of a topic that is indexed for
	// the first time are no news.
	newsAge = 24 * time.Hour
	// maxAsked bounds how many fingerprints of one batch the ledger is asked about, maxRemembered how many are not asked about
	// again. A consumer whose errors are all different costs no more than that.
	maxAsked      = 500
	maxRemembered = 20_000
)

// groups are the error groups that this process has met, by fingerprint. It spares the ledger the same question with each batch.
type groups struct {
	mu  sync.Mutex
	met map[string]struct{}
}

// unmet are the fingerprints of letters of b that died lately and are not remembered.
func (g *groups) unmet(b *batch, now time.Time) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var unmet []string
	asked := map[string]struct{}{}
	last := ""
	for i := range b.letters {
		l := &b.letters[i]
		if i > 0 && l.Fingerprint == last {
			continue // Mostly many letters die of one thing.
		}
		last = l.Fingerprint
		if _, ok := g.met[last]; ok || now.Sub(l.DeadAt) > newsAge {
			continue
		}
		if _, ok := asked[last]; !ok && len(unmet) < maxAsked {
			asked[last] = struct{}{}
			unmet = append(unmet, last)
		}
	}
	return unmet
}

// remember keeps fingerprints. When there are too many all are forgotten, which costs a question for each that is met again.
func (g *groups) remember(fingerprints []string) {
	if len(fingerprints) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.met == nil || len(g.met)+len(fingerprints) > maxRemembered {
		g.met = make(map[string]struct{}, len(fingerprints))
	}
	for _, f := range fingerprints {
		g.met[strings.Clone(f)] = struct{}{} // It is a part of a larger text.
	}
}

// news looks which error groups a batch is the first of, before it is written. It is for the metric only: where the ledger does
// not answer nothing is new, and of two replicas that write letters of a new group at once each counts it.
func (s *source) news(b *batch) (unmet []string, fresh int) {
	ix := s.ix
	unmet = ix.groups.unmet(b, time.Now())
	if len(unmet) == 0 {
		return nil, 0
	}
	var unseen []string
	err := ix.call(s.ctx, func(ctx context.Context) (err error) {
		unseen, err = ix.opts.Ledger.Unseen(ctx, unmet)
		return err
	})
	if err != nil {
		return nil, 0
	}
	return unmet, len(unseen)
}
