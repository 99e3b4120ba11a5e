package forwarder

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lossShows is how long a loss to retention is an issue.
const lossShows = time.Hour

// lose counts records that retention removed before they were read.
func (in *inlet) lose(now time.Time, n int64) {
	in.stats.lost.Add(float64(n))
	in.lost += n
	in.lostAt = now
}

// loseUpTo counts what is missing between the next offset and start, and passes it.
func (s *source) loseUpTo(l *loop, start int64) {
	lost := start - s.order.Next()
	s.inlet.lose(l.now, lost)
	l.f.log.Error("retention removed records before they were read",
		"topic", s.inlet.topic, "partition", s.partition, "offset", s.order.Next(), "count", lost)
	s.order.Skip(start)
	l.markDirty(s)
}

// noteLoss looks whether the log begins above the offset that was to come next.
func (s *source) noteLoss(l *loop, p *kgo.FetchPartition) {
	if len(p.Records) == 0 {
		return
	}
	delete(l.faults.fetch[s.inlet.topic], s.partition)
	if p.LogStartOffset > s.order.Next() && p.Records[0].Offset > s.order.Next() {
		s.loseUpTo(l, min(p.LogStartOffset, p.Records[0].Offset))
	}
}
