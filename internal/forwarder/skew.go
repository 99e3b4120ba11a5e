package forwarder

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// sampleInterval is how often a copy is used to compare clocks.
	sampleInterval = time.Second
	// skewSamples is over how many of them the largest difference counts.
	skewSamples = 16
	// skewAlarm is the difference that is an issue.
	skewAlarm = time.Second
)

// skew compares this machine's clock with those of the brokers. A copy that this
// process sent to a tier, and reads there, was stamped by its broker between the
// moment it was sent and the moment it was acknowledged.
//
// Waits are counted by the clock that stamped. Where this clock is ahead of it,
// a record would be forwarded early; so the loop waits longer by the difference.
type skew struct {
	ahead  time.Duration // of this clock, at least
	behind time.Duration // of this clock, at least

	last    time.Time
	pending map[string]map[int32]clockSample // by tier topic and partition
	recent  [skewSamples]time.Duration       // how far this clock was ahead
	n       int
}

type clockSample struct {
	offset      int64
	sent, acked time.Time
}

// clock is the time by which records are due.
func (l *loop) clock() time.Time { return l.now.Add(-l.skew.ahead) }

// sent takes a copy that was acknowledged at now with its offset.
func (k *skew) sent(now time.Time, r *record, offset int64) {
	if r.returns() || r.reason != "" || now.Sub(k.last) < sampleInterval {
		return
	}
	k.last = now
	topic := r.to.topic
	if k.pending == nil {
		k.pending = map[string]map[int32]clockSample{}
	}
	if k.pending[topic] == nil {
		k.pending[topic] = map[int32]clockSample{}
	}
	k.pending[topic][r.target.partition] = clockSample{offset, at(r.sent), now}
}

// read looks for such a copy in what was fetched.
func (k *skew) read(p *kgo.FetchPartition, topic string) {
	s, ok := k.pending[topic][p.Partition]
	if !ok || len(p.Records) == 0 || p.Records[len(p.Records)-1].Offset < s.offset {
		return
	}
	delete(k.pending[topic], p.Partition)
	for _, rec := range p.Records {
		if rec.Offset == s.offset && rec.Attrs.TimestampType() == 1 {
			k.observe(s, rec.Timestamp)
		}
	}
}

// observe takes the stamp that a broker gave, which is cut to milliseconds.
func (k *skew) observe(s clockSample, broker time.Time) {
	k.recent[k.n%skewSamples] = s.sent.Sub(broker.Add(time.Millisecond))
	k.n++
	k.ahead = 0
	for _, d := range k.recent[:min(k.n, skewSamples)] {
		k.ahead = max(k.ahead, d)
	}
	k.behind = max(0, broker.Sub(s.acked))
}
