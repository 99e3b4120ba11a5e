package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/kafka-redrive/redrive/internal/config"
)

func TestTheVariablesOfTracingMeanNothingWhileItIsOff(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "nonsense")
	c := cluster(t)
	create(t, c, fit(), "orders", "orders.retry", "orders.retry.1m", "orders.dlt")
	opts := options(t, c.ListenAddrs())
	a, stop := start(t, opts)
	awaitReady(t, a)
	if _, body, err := fetch(t.Context(), a, "/metrics"); err != nil || strings.Contains(body, "redrive_trace") {
		t.Errorf("there are metrics of tracing, or none at all: %v", err)
	}
	if a.forward.Tracer != nil {
		t.Error("the forwarder has a tracer")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}

	opts.Config.Tracing.Enabled = true
	var unusable *ConfigError
	if _, err := New(t.Context(), opts); !errors.As(err, &unusable) || !strings.Contains(err.Error(), "OTEL_TRACES_SAMPLER") {
		t.Errorf("with tracing on: %v", err)
	}
}

func TestTracingLastsThroughAReloadAndEndsWithTheProcess(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	c := cluster(t)
	create(t, c, fit(), "orders", "orders.retry", "orders.retry.1m", "orders.dlt")
	opts := options(t, c.ListenAddrs())
	opts.Config.Tracing.Enabled = true
	a, stop := start(t, opts)
	awaitReady(t, a)
	code, body, err := fetch(t.Context(), a, "/metrics")
	if err != nil || code != http.StatusOK || !strings.Contains(body, `redrive_trace_spans_total{result="dropped"} 0`) {
		t.Errorf("no metrics of tracing: %d, %v", code, err)
	}
	next, err := forwarderOptions(a.opts.with(opts.Config), nil)
	if err != nil || next.Tracer == nil || next.Tracer != a.forward.Tracer {
		t.Errorf("the next forwarder has another tracer, or none: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestALineWithinASpanNamesItsTrace(t *testing.T) {
	provider := trace.NewTracerProvider()
	defer func() { _ = provider.Shutdown(context.Background()) }()
	ctx, span := provider.Tracer("test").Start(t.Context(), "x")
	defer span.End()
	var out bytes.Buffer
	log, _, err := NewLogger(&out, config.Logging{Level: "info", Format: "json"}, false)
	if err != nil {
		t.Fatal(err)
	}
	log.InfoContext(ctx, "a replay runs")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["trace_id"] != span.SpanContext().TraceID().String() || line["span_id"] != span.SpanContext().SpanID().String() || line["level"] != "info" {
		t.Errorf("the line is %v", line)
	}
}

func TestTracingNeedsARestart(t *testing.T) {
	current := load(t, replayerFile)
	next := load(t, strings.Replace(replayerFile, "topics:", "tracing: {enabled: true}\ntopics:", 1))
	merged, restart := inForceOfReplayer(current, next)
	if len(restart) != 1 || restart[0] != "tracing.enabled" || merged.Tracing.Enabled {
		t.Errorf("of the dlt-replayer: %v", restart)
	}
	merged, restart = inForce(current, next)
	if len(restart) != 1 || restart[0] != "tracing.enabled" || merged.Tracing.Enabled {
		t.Errorf("of the forwarder: %v", restart)
	}
}
