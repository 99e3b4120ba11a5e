// Package tracing answers what of the work of this process an operator sees in a tracing system.
//
// The model: a Tracer makes spans of OpenTelemetry and sends them to a collector in the background. What it sends to and how
// much it samples is said by the standard variables of the environment, OTEL_*, as for any other program; it is the one place
// beside package command where the environment is read. A record that is handed over has one span, from the moment it is given
// to the client until it is acknowledged, and never one for the hours it waits: each is the root of a trace of its own, and is
// linked to the context that the record brought along (its traceparent). That context belongs to whoever made the record:
// nothing here writes a header.
//
// A link alone says nothing about sampling, so Follow decides it: a record is treated as though its span were a part of the
// trace that it came with. All hops of a record are sampled, or none.
//
// It promises that no span holds the key, the value or a foreign header of a record, that nothing here blocks or fails what is
// traced, that a collector which does not take the spans costs a bounded queue, a count and one line of the log a minute, and
// that a nil *Tracer, which is what a process has whose tracing is off, does nothing and costs nothing. It refuses to be
// configured in a way that it does not understand.
//
// A Tracer is safe for concurrent use. Its goroutines end with Stop.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// scope names this instrumentation in the spans.
const scope = "github.com/kafka-redrive/redrive"

// Options say who makes the spans, and where they go.
type Options struct {
	// Service is service.name where the environment names none (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES). Required.
	Service string
	// Version is service.version, in the same way.
	Version string
	// ClientID is the name by which the brokers know the clients of this process.
	ClientID string
	// Logger receives what an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics. Nil: they are not registered.
	Registerer prometheus.Registerer
	// Exporter is where spans go. Nil: where OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_* say.
	Exporter sdktrace.SpanExporter
}

// Tracer makes spans. Make one with New; a nil one makes none.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sampler  sampler
	queue    *queue
	clientID string
	// decided is the context of spans that Follow has decided about. There is no span in it, so that they are roots.
	decided context.Context
	log     *slog.Logger
}

// New reads the environment and makes a Tracer; it opens no connection. An error says what of the environment can not be
// understood. It also makes the error handler of the OpenTelemetry library, of which there is one in a process, write to the
// Logger: what the library finds wrong in the background has no other way out.
func New(ctx context.Context, o Options) (*Tracer, error) {
	if o.Service == "" {
		return nil, errors.New("tracing: a service is required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	log := o.Logger.With("component", "tracing")
	sampler, err := samplerOf(os.Getenv(envSampler), os.Getenv(envSamplerArg))
	if err != nil {
		return nil, err
	}
	size, err := queueSize(os.Getenv(envQueueSize))
	if err != nil {
		return nil, err
	}
	who, err := describe(ctx, &o)
	if err != nil {
		return nil, err
	}
	if o.Exporter == nil {
		if o.Exporter, err = autoexport.NewSpanExporter(ctx); err != nil {
			return nil, fmt.Errorf("make the exporter of spans from OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_*: %w", err)
		}
	}
	queue := newQueue(o.Exporter, size, log)
	if o.Registerer != nil {
		if err := o.Registerer.Register(queue.spans); err != nil {
			return nil, errors.Join(fmt.Errorf("register the metrics: %w", err), o.Exporter.Shutdown(ctx))
		}
	}
	otel.SetErrorHandler(queue)
	queue.begin()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithResource(who), sdktrace.WithSpanProcessor(queue))
	return &Tracer{
		provider: provider,
		tracer:   provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL)),
		sampler:  sampler,
		queue:    queue,
		clientID: o.ClientID,
		decided:  context.WithValue(context.Background(), decidedKey{}, true),
		log:      log,
	}, nil
}

// describe is the resource of all spans: what the environment says of the process comes before what we know.
func describe(ctx context.Context, o *Options) (*resource.Resource, error) {
	known := []attribute.KeyValue{semconv.ServiceName(o.Service), semconv.ServiceInstanceID(uuid.NewString())}
	if o.Version != "" {
		known = append(known, semconv.ServiceVersion(o.Version))
	}
	who, err := resource.New(ctx,
		resource.WithSchemaURL(semconv.SchemaURL), resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(known...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe the process from OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return who, nil
}

// Stop sends what is left, for at most limit, and ends the goroutines. Spans that end later are dropped.
func (t *Tracer) Stop(limit time.Duration) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	t.queue.abandon()
	if lost, why := t.queue.untold(); lost > 0 || err != nil {
		t.log.Warn("not all spans were taken before the end", "spans", lost, "err", cmp.Or(err, why))
	}
}

// Start begins a span below the one in ctx, or else a root that is linked to what is given. It must be ended by its caller.
func (t *Tracer) Start(ctx context.Context, name string, links []trace.SpanContext, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	if t == nil {
		return ctx, noop.Span{}
	}
	return t.tracer.Start(ctx, name, trace.WithLinks(linksTo(links)...), trace.WithAttributes(attributes...))
}

// linksTo are links to those that are valid.
func linksTo(contexts []trace.SpanContext) []trace.Link {
	links := make([]trace.Link, 0, len(contexts))
	for _, c := range contexts {
		if c.IsValid() {
			links = append(links, trace.Link{SpanContext: c})
		}
	}
	return links
}

// Follow decides whether the hand-over of a record is to have a span, which Send makes then, and returns the context that the
// record brought along, which may be none. Otherwise is what the decision follows where there is none. Where the sampler heeds
// parents (parentbased_*), the record's own trace decides; otherwise, and for a record without a trace, the ratio does.
//
// It allocates nothing unless the answer is yes. It is no while the queue of spans is full, since a span that is dropped costs
// more than it is worth.
func (t *Tracer) Follow(headers []kgo.RecordHeader, otherwise trace.SpanContext) (origin trace.SpanContext, yes bool) {
	if t == nil {
		return origin, false
	}
	origin = contextOf(headers)
	of := origin
	if !of.IsValid() {
		of = otherwise
	}
	if of.IsValid() {
		yes = t.sampler.follows(of)
	} else {
		yes = t.sampler.takes(rand.Uint64()) //nolint:gosec // Which traces are kept is no secret.
	}
	if !yes || t.queue.full() {
		return origin, false
	}
	return origin.WithTraceState(stateOf(headers)), true
}

// Send is one hand-over of a record to a topic, after its end.
type Send struct {
	// Topic is where the record went, Template the name of which it is one of several, such as orders.retry.{tier}, or "".
	Topic, Template string
	Partition       int32
	// Offset is where the copy lies. It means nothing where Err says that there is none.
	Offset int64
	// Began is when the record was given to the client, Ended when the answer came.
	Began, Ended time.Time
	// Err is why there is no copy, Code its short name. Nil: it is acknowledged.
	Err  error
	Code string
	// MessageID is redrive-message-id, Tombstone a record without a value.
	MessageID []byte
	Tombstone bool
	// Links are what asked for it, beside the record's own context.
	Links []trace.SpanContext
	// Attributes are those of Redrive.
	Attributes []attribute.KeyValue
}

// Send makes the span of a hand-over that Follow has said yes to; origin is what Follow returned.
func (t *Tracer) Send(origin trace.SpanContext, s *Send) {
	attributes := append(make([]attribute.KeyValue, 0, len(s.Attributes)+10),
		semconv.MessagingSystemKafka,
		semconv.MessagingOperationName("send"),
		semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationName(s.Topic),
		semconv.MessagingDestinationPartitionID(decimal(int64(s.Partition))),
	)
	if s.Template != "" {
		attributes = append(attributes, semconv.MessagingDestinationTemplate(s.Template))
	}
	if t.clientID != "" {
		attributes = append(attributes, semconv.MessagingClientID(t.clientID))
	}
	if len(s.MessageID) > 0 {
		attributes = append(attributes, semconv.MessagingMessageID(text(s.MessageID)))
	}
	if s.Tombstone {
		attributes = append(attributes, semconv.MessagingKafkaMessageTombstone(true))
	}
	if s.Err == nil {
		attributes = append(attributes, semconv.MessagingKafkaOffset(int(s.Offset)))
	} else {
		attributes = append(attributes, semconv.ErrorTypeKey.String(cmp.Or(s.Code, "other")))
	}
	// Whoever made the record also made the context in it: then we are only its carrier.
	kind := trace.SpanKindProducer
	if origin.IsValid() {
		kind = trace.SpanKindClient
	}
	_, span := t.tracer.Start(t.decided, "send "+s.Topic, trace.WithSpanKind(kind), trace.WithTimestamp(s.Began),
		trace.WithLinks(linksTo(append([]trace.SpanContext{origin}, s.Links...))...), trace.WithAttributes(append(attributes, s.Attributes...)...))
	if s.Err != nil {
		fail(span, s.Err)
	}
	span.End(trace.WithTimestamp(s.Ended))
}
