package forwarder

import (
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/tracing"
)

// The ways that a record goes, as its span says them.
const (
	wayReturn = "return"      // to its origin
	wayHop    = "hop"         // to a tier
	wayTail   = "tail"        // to the end of the topic it stands in
	wayLetter = "dead_letter" // to the dead letters
)

// trace makes the span of a record that was handed over, if it is to have one. It does so when the answer is there, so that
// nothing needs to be kept for it meanwhile; the record is still what was sent.
func (s *source) trace(l *loop, a ack) {
	h := a.held
	r := &h.Value
	origin, yes := l.f.opts.Tracer.Follow(r.rec.Headers, trace.SpanContext{})
	if !yes {
		return
	}
	// What the copy says, which is what the record is from now on.
	var e envelope.Envelope
	e.Parse(r.headers)
	attributes := append(make([]attribute.KeyValue, 0, 10),
		attribute.String("redrive.source.topic", s.inlet.topic),
		attribute.Int("redrive.source.partition", int(s.partition)),
		attribute.Int64("redrive.source.offset", h.Offset()),
	)
	if e.AttemptState == envelope.Valid {
		attributes = append(attributes, attribute.Int("redrive.attempt", e.Attempt))
	}
	span := tracing.Send{
		Topic: r.to.topic, Partition: r.target.partition, Offset: a.offset,
		Began: at(r.sent), Ended: l.now, Err: a.err, Code: kafka.Code(a.err),
		MessageID: e.MessageID, Tombstone: r.rec.Value == nil,
	}
	switch {
	case r.reason != "":
		attributes = append(attributes, attribute.String("redrive.route", wayLetter), attribute.String("redrive.reason", string(r.reason)))
	case r.returns():
		attributes = append(attributes, attribute.String("redrive.route", wayReturn))
		if !s.inlet.isInbox() {
			attributes = append(attributes, dueAt(h.Due()), attribute.Float64("redrive.lateness", h.Late(l.now).Seconds()))
		}
	default:
		way := wayHop
		if r.to.topic == s.inlet.topic {
			way = wayTail
		}
		attributes = append(attributes, attribute.String("redrive.route", way))
		if e.AvailableAtState == envelope.Valid {
			attributes = append(attributes, dueAt(e.AvailableAt))
		}
		span.Template = r.route.templateOf(r.to)
	}
	span.Attributes = attributes
	l.f.opts.Tracer.Send(origin, &span)
}

func dueAt(t time.Time) attribute.KeyValue {
	return attribute.String("redrive.due_at", t.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// templateOf is the name of a tier's topic with {tier} for the tier, or "" if the topic is not named after it.
func (r *route) templateOf(o *outlet) string {
	i := slices.Index(r.tiers, o)
	if i < 0 {
		return ""
	}
	name := r.policy.Tier(i).Name
	at := strings.LastIndex(o.topic, name)
	if name == "" || at < 0 {
		return ""
	}
	return o.topic[:at] + "{tier}" + o.topic[at+len(name):]
}
