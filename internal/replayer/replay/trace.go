package replay

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/tracing"
)

// maxAsked bounds what is remembered of jobs that another replica may have taken.
const maxAsked = 1000

// requests remembers in whose span a job was asked for, until it runs. The ledger has no place for that, so a job that another
// replica runs, or this one after a restart, is not linked to its request.
type requests struct {
	mu    sync.Mutex
	spans map[string]trace.SpanContext // by job
}

func (r *requests) note(job string, span trace.SpanContext) {
	if !span.IsValid() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spans == nil || len(r.spans) >= maxAsked {
		r.spans = map[string]trace.SpanContext{}
	}
	r.spans[job] = span
}

func (r *requests) take(job string) trace.SpanContext {
	r.mu.Lock()
	defer r.mu.Unlock()
	span := r.spans[job]
	delete(r.spans, job)
	return span
}

// begin starts the span of a session, in both contexts. What it returns ends it, and takes the result.
func (s *session) begin(ctx, work context.Context) (ctxIn, workIn context.Context, end func(result string)) {
	if s.r.opts.Tracer == nil {
		return ctx, work, func(string) {}
	}
	s.asked = s.r.spans.take(s.job.ID)
	workIn, span := s.r.opts.Tracer.Start(work, "replay job", []trace.SpanContext{s.asked},
		attribute.String("redrive.replay_id", s.job.ID), attribute.Int64("redrive.replay.letters", s.job.Left()))
	s.span = span.SpanContext()
	return trace.ContextWithSpan(ctx, span), workIn, func(result string) {
		span.SetAttributes(attribute.String("redrive.replay.result", result))
		span.End()
	}
}

// trace makes the span of a copy that was sent, if it is to have one.
func (s *session) trace(p *piece, began time.Time, offset int64) {
	origin, yes := s.r.opts.Tracer.Follow(p.record.Headers, s.span)
	if !yes {
		return
	}
	var e envelope.Envelope
	e.Parse(p.record.Headers)
	place := &p.item.Letter.Place
	s.r.opts.Tracer.Send(origin, &tracing.Send{
		Topic: p.target.Topic, Partition: p.target.Partition, Offset: offset,
		Began: began, Ended: time.Now(), Err: p.err, Code: kafka.Code(p.err),
		MessageID: e.MessageID, Tombstone: p.record.Value == nil,
		Links: []trace.SpanContext{s.span, s.asked},
		Attributes: []attribute.KeyValue{
			attribute.String("redrive.route", "replay"),
			attribute.String("redrive.source.topic", place.Topic),
			attribute.Int("redrive.source.partition", int(place.Partition)),
			attribute.Int64("redrive.source.offset", place.Offset),
			attribute.Int64("redrive.letter", p.item.Letter.ID),
			attribute.String("redrive.replay_id", s.job.ID),
			attribute.Int("redrive.replay_count", p.claim.ReplayCount),
		},
	})
}
