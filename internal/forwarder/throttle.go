package forwarder

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// throttle hears from the clients that a broker slows them down because a quota
// is used up.
type throttle struct {
	last  atomic.Int64 // Unix nanoseconds
	total atomic.Int64 // nanoseconds
}

// OnBrokerThrottle implements kgo.HookBrokerThrottle.
func (t *throttle) OnBrokerThrottle(_ kgo.BrokerMetadata, interval time.Duration, _ bool) {
	t.last.Store(time.Now().UnixNano())
	t.total.Add(int64(interval))
}

func (t *throttle) seconds() float64 { return time.Duration(t.total.Load()).Seconds() }

// present tells whether the last time is recent enough to count as now.
func (t *throttle) present(now time.Time) bool {
	last := t.last.Load()
	return last > 0 && now.Sub(at(last)) < faultLasts
}
