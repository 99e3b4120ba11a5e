package forwarder

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Pace says how fast records go back to an origin. It concerns nothing else:
// the inbox is routed on, and dead letters are written.
type Pace struct {
	// Paused holds all records back.
	Paused bool
	// RateLimit is the most records a second, over all members of the group. Each
	// member takes the share of the tier partitions that it owns. Zero: no limit.
	RateLimit float64
}

// pace is a Pace at work.
type pace struct {
	Pace
	limiter   *rate.Limiter
	shared    time.Time // when the share was computed
	limitedAt time.Time // when a record last had to wait for the limit
}

const (
	// shareInterval is how old a member's share of a rate may be.
	shareInterval = time.Second
	// burstOf is the part of a second whose records may go at once after a lull.
	burstOf = 0.05
)

// Control changes the pace of topics, named by their inbox; others keep theirs.
// It takes effect at once, or when Run begins. It is safe for concurrent use and
// blocks for one turn of the loop at most.
func (f *Forwarder) Control(paces map[string]Pace) {
	f.wishes.Lock()
	if f.wishes.paces == nil {
		f.wishes.paces = map[string]Pace{}
	}
	maps.Copy(f.wishes.paces, paces)
	f.wishes.Unlock()
	f.loop.ask(f.loop.keepPace)
}

// wishes are the paces that Control asked for and the loop has not taken.
type wishes struct {
	sync.Mutex
	paces map[string]Pace
}

// keepPace takes the wishes.
func (l *loop) keepPace() {
	l.f.wishes.Lock()
	paces := l.f.wishes.paces
	l.f.wishes.paces = nil
	l.f.wishes.Unlock()
	for inbox, p := range paces {
		in := l.f.routes[inbox]
		if in == nil || in.route == nil || in.route.pace.Pace == p {
			continue
		}
		in.route.pace = pace{Pace: p}
		l.f.log.Info("the pace of a topic changed", "origin", in.route.origin.topic, "paused", p.Paused, "rate_limit", p.RateLimit)
	}
	for _, partitions := range l.sources {
		for _, s := range partitions {
			l.ready(s)
		}
	}
}

// mayReturn asks to send one record to the origin. If it must wait it says how
// long, or zero where only Control ends the wait.
func (r *route) mayReturn(l *loop) (wait time.Duration, ok bool) {
	p := &r.pace
	if p.Paused {
		return 0, false
	}
	if p.RateLimit <= 0 {
		return 0, true
	}
	if l.now.Sub(p.shared) >= shareInterval {
		p.shared = l.now
		limit := rate.Limit(p.RateLimit * l.share(r))
		burst := max(1, int(float64(limit)*burstOf))
		if p.limiter == nil {
			p.limiter = rate.NewLimiter(limit, burst)
		} else if p.limiter.Limit() != limit {
			p.limiter.SetLimitAt(l.now, limit)
			p.limiter.SetBurstAt(l.now, burst)
		}
	}
	if p.limiter.AllowN(l.now, 1) {
		return 0, true
	}
	p.limitedAt = l.now
	// When the next token comes; several sources may wait for it.
	missing := 1 - p.limiter.TokensAt(l.now)
	if limit := float64(p.limiter.Limit()); limit > 0 {
		wait = time.Duration(missing / limit * float64(time.Second))
	} else {
		wait = shareInterval
	}
	return min(max(wait, time.Millisecond), shareInterval), false
}

// share is the part of the tier partitions of r that this member owns.
func (l *loop) share(r *route) float64 {
	owned, all := 0, 0
	for _, t := range r.tiers {
		owned += len(l.sources[t.topic])
		if n, known := l.f.counts.Count(t.topic); known {
			all += int(n)
		}
	}
	if owned == 0 || all == 0 {
		return 1 // Records of a topic that was taken from the ladder.
	}
	return min(1, float64(owned)/float64(all))
}
