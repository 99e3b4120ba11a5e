package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	envQueueSize = "OTEL_BSP_MAX_QUEUE_SIZE"
	// talkInterval is how often it is told that spans are not taken.
	talkInterval = time.Minute
	// abandonAfter is how long an exporter may take to heed the end of its context.
	abandonAfter = 500 * time.Millisecond
)

// queueSize understands the variable.
func queueSize(text string) (int, error) {
	if text = strings.TrimSpace(text); text == "" {
		return sdktrace.DefaultMaxQueueSize, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1<<20 {
		return 0, fmt.Errorf("%s=%q is not a number from 1 to %d", envQueueSize, text, 1<<20)
	}
	return n, nil
}

// queue is both ends of the batch processor of the library: it counts spans in, as a processor before it, and out, as the
// exporter behind it. So it knows how many are inside, drops what the processor would drop without a word, and counts that.
// No error of the exporter gets any further.
type queue struct {
	log      *slog.Logger
	exporter sdktrace.SpanExporter
	batches  sdktrace.SpanProcessor
	limit    int64
	pending  atomic.Int64 // in the processor, or being exported

	spans                     *prometheus.CounterVec
	exported, failed, dropped prometheus.Counter

	// ending ends exports under way; closed is closed when the processor is done.
	ending context.Context
	end    context.CancelFunc
	closed chan struct{}

	mu     sync.Mutex // guards the following
	talked time.Time
	lost   int   // since the last line
	why    error // the last one
}

func newQueue(exporter sdktrace.SpanExporter, limit int, log *slog.Logger) *queue {
	q := &queue{log: log, exporter: exporter, limit: int64(limit), closed: make(chan struct{})}
	q.spans = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "redrive_trace_spans_total", Help: "Spans by what became of them: exported, failed, or dropped because the queue was full.",
	}, []string{"result"})
	q.exported, q.failed, q.dropped = q.spans.WithLabelValues("exported"), q.spans.WithLabelValues("failed"), q.spans.WithLabelValues("dropped")
	q.ending, q.end = context.WithCancel(context.Background())
	return q
}

// begin starts the goroutine of the processor.
func (q *queue) begin() {
	q.batches = sdktrace.NewBatchSpanProcessor(exporterEnd{q}, sdktrace.WithMaxQueueSize(int(q.limit)))
}

// full tells whether a span would be dropped, and counts it as dropped then.
func (q *queue) full() bool {
	if q.pending.Load() < q.limit {
		return false
	}
	q.dropped.Inc()
	return true
}

// OnStart implements the interface of the library.
func (q *queue) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) { q.batches.OnStart(ctx, s) }

// OnEnd takes a span. It never blocks: there is room in the processor for all that are pending.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.pending.Add(1) > q.limit {
		q.pending.Add(-1)
		q.dropped.Inc()
		return
	}
	q.batches.OnEnd(s)
}

// ForceFlush implements the interface of the library.
func (q *queue) ForceFlush(ctx context.Context) error { return q.batches.ForceFlush(ctx) }

// Shutdown implements the interface of the library.
func (q *queue) Shutdown(ctx context.Context) error { return q.batches.Shutdown(ctx) }

// abandon ends what Shutdown did not wait for. An exporter that does not even heed its context, such as one that writes to a pipe
// which nobody reads, is left behind.
func (q *queue) abandon() {
	q.end()
	patience := time.NewTimer(abandonAfter)
	defer patience.Stop()
	select {
	case <-q.closed:
	case <-patience.C:
	}
}

// Handle implements the error handler of the library.
func (q *queue) Handle(err error) { q.tell(0, err) }

// tell logs that spans were lost, if that was not told a moment ago.
func (q *queue) tell(lost int, err error) {
	q.mu.Lock()
	q.lost, q.why = q.lost+lost, err
	if time.Since(q.talked) < talkInterval {
		q.mu.Unlock()
		return
	}
	lost, q.lost, q.talked = q.lost, 0, time.Now()
	q.mu.Unlock()
	q.log.Warn("spans are not taken", "spans", lost, "err", err)
}

// untold is how many spans were lost since that was last told, or are stuck.
func (q *queue) untold() (lost int, why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost + int(q.pending.Load()), q.why
}

// exporterEnd is the queue as the exporter of the processor.
type exporterEnd struct{ q *queue }

// ExportSpans sends a batch, and never says that it failed: the processor could not do anything about it but talk.
func (e exporterEnd) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	q, n := e.q, len(spans)
	defer q.pending.Add(-int64(n))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(q.ending, func() { cancel(errors.New("the process ends")) })() //nolint:contextcheck // Both end it.
	if err := q.exporter.ExportSpans(ctx, spans); err != nil {
		q.failed.Add(float64(n))
		q.tell(n, err)
		return nil
	}
	q.exported.Add(float64(n))
	return nil
}

// Shutdown closes the exporter. It is the last that the processor does.
func (e exporterEnd) Shutdown(ctx context.Context) error {
	defer close(e.q.closed)
	return e.q.exporter.Shutdown(ctx)
}
