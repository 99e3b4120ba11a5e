package tracing

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Handler gives each request to next a span, below the one that the caller sends along. It has neither the query nor the body of
// the request: they may name keys.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return otelhttp.NewHandler(next, "",
		otelhttp.WithTracerProvider(t.provider), otelhttp.WithPropagators(propagation.TraceContext{}))
}

// Route names the span of a request by its route, such as GET /letters/{id}. Without a span it does nothing.
func Route(ctx context.Context, route string) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetName(route)
	if _, path, ok := strings.Cut(route, " "); ok {
		span.SetAttributes(semconv.HTTPRoute(path))
	}
}
