package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sampledParent   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampledParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

// start makes a tracer whose environment is the one given and nothing else.
func start(t *testing.T, exporter sdktrace.SpanExporter, environ map[string]string) *Tracer {
	t.Helper()
	setenv(t, environ)
	tracer, err := New(t.Context(), Options{Service: "redrive-forwarder", Version: "1.2.3", ClientID: "redrive", Exporter: exporter})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

func setenv(t *testing.T, environ map[string]string) {
	t.Helper()
	for _, name := range []string{
		envSampler, envSamplerArg, envQueueSize, "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_EXPORTER",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_BSP_SCHEDULE_DELAY",
	} {
		t.Setenv(name, environ[name])
	}
}

// kept is an exporter that keeps what it was given, also after its end.
type kept struct {
	*tracetest.InMemoryExporter
}

func keep() kept { return kept{tracetest.NewInMemoryExporter()} }

func (kept) Shutdown(context.Context) error { return nil }

func header(key, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: []byte(value)}
}

func TestOfARecordsContextOnlyWhatIsWellFormedCounts(t *testing.T) {
	for value, want := range map[string]string{
		sampledParent:                  "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7/01",
		unsampledParent:                "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7/00",
		sampledParent[:53] + "ff":      "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7/01", // Of the flags one is known.
		"42" + sampledParent[2:]:       "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7/01", // A later version,
		"42" + sampledParent[2:] + "-": "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7/01", // which may have more.
		"42" + sampledParent[2:] + "x": "",
		sampledParent + "-":            "",
		"ff" + sampledParent[2:]:       "",
		strings.ToUpper(sampledParent): "",
		sampledParent[:54]:             "",
		"":                             "",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01": "",
		"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01": "",
	} {
		c := contextOf([]kgo.RecordHeader{header("Traceparent", sampledParent), header("traceparent", value), header("traceparent", sampledParent)})
		got := ""
		if c.IsValid() {
			got = c.TraceID().String() + "/" + c.SpanID().String() + "/" + c.TraceFlags().String()
		}
		if got != want || c.IsValid() && !c.IsRemote() {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

func TestEnvironmentThatIsNotUnderstoodIsRefused(t *testing.T) {
	for _, environ := range []map[string]string{
		{envSampler: "jaeger_remote"},
		{envSampler: "traceidratio", envSamplerArg: "10%"},
		{envSampler: "parentbased_traceidratio", envSamplerArg: "1.5"},
		{envSampler: "traceidratio", envSamplerArg: "NaN"},
		{envQueueSize: "many"},
		{envQueueSize: "0"},
		{"OTEL_RESOURCE_ATTRIBUTES": "no equals sign"},
		{"OTEL_TRACES_EXPORTER": "zipkin"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke signals"},
	} {
		setenv(t, environ)
		if _, err := New(t.Context(), Options{Service: "redrive-forwarder"}); err == nil {
			t.Errorf("%v is taken", environ)
		} else {
			for name := range environ {
				if !strings.Contains(err.Error(), name) && name != "OTEL_EXPORTER_OTLP_PROTOCOL" {
					t.Errorf("%v: %v", environ, err)
				}
			}
		}
	}
}

func TestARecordIsSampledAsTheTraceThatItCameWith(t *testing.T) {
	record := func(parent string) []kgo.RecordHeader {
		if parent == "" {
			return nil
		}
		return []kgo.RecordHeader{header("traceparent", parent)}
	}
	const all, none = 1000, 0
	for _, test := range []struct {
		sampler, arg, parent string
		low, high            int
	}{
		{"", "", "", all, all},
		{"", "", sampledParent, all, all},
		{"", "", unsampledParent, none, none},
		{"parentbased_always_off", "", sampledParent, all, all},
		{"parentbased_always_off", "", "", none, none},
		{"parentbased_traceidratio", "0.1", sampledParent, all, all},
		{"parentbased_traceidratio", "0.1", unsampledParent, none, none},
		{"parentbased_traceidratio", "0.1", "", 20, 300},
		{"always_on", "", unsampledParent, all, all},
		{"always_off", "", sampledParent, none, none},
		{"traceidratio", "0.99", sampledParent, all, all}, // All hops of a record or none.
		{"traceidratio", "0.01", sampledParent, none, none},
		{"traceidratio", "0.1", "", 20, 300},
	} {
		tracer := start(t, keep(), map[string]string{envSampler: test.sampler, envSamplerArg: test.arg})
		n := 0
		for range all {
			if _, yes := tracer.Follow(record(test.parent), trace.SpanContext{}); yes {
				n++
			}
		}
		tracer.Stop(time.Second)
		if n < test.low || n > test.high {
			t.Errorf("%s(%s) with %q: %d of %d", test.sampler, test.arg, test.parent, n, all)
		}
	}
}

func TestWhatFollowSaysYesToIsSampled(t *testing.T) {
	exporter := keep()
	tracer := start(t, exporter, map[string]string{envSampler: "traceidratio", envSamplerArg: "0.5"})
	n := 0
	for range 200 {
		if origin, yes := tracer.Follow(nil, trace.SpanContext{}); yes {
			n++
			tracer.Send(origin, &Send{Topic: "orders"})
		}
	}
	tracer.Stop(time.Second)
	if got := len(exporter.GetSpans()); got != n || n == 0 || n == 200 {
		t.Errorf("%d spans of %d", got, n)
	}
}

func TestARootFollowsWhatItIsLinkedTo(t *testing.T) {
	for name, parent := range map[string]string{"parentbased_always_on": unsampledParent, "parentbased_always_off": sampledParent} {
		tracer := start(t, keep(), map[string]string{envSampler: name})
		before := contextOf([]kgo.RecordHeader{header("traceparent", parent)})
		_, span := tracer.Start(t.Context(), "replay job", []trace.SpanContext{before})
		span.End()
		if span.IsRecording() || span.SpanContext().IsSampled() != before.IsSampled() || span.SpanContext().TraceID() == before.TraceID() {
			t.Errorf("%s: a root that is linked to %s is %+v", name, parent, span.SpanContext())
		}
		if _, yes := tracer.Follow(nil, span.SpanContext()); yes != before.IsSampled() {
			t.Errorf("%s: what follows it is sampled: %t", name, yes)
		}
		tracer.Stop(time.Second)
	}
}

func TestTheRatioIsThatOfTheLibrary(t *testing.T) {
	ours, err := samplerOf("traceidratio", "0.3")
	if err != nil {
		t.Fatal(err)
	}
	library := sdktrace.TraceIDRatioBased(0.3)
	for range 10_000 {
		var id trace.TraceID
		for i := range id {
			id[i] = byte(rand.Uint32())
		}
		p := sdktrace.SamplingParameters{ParentContext: t.Context(), TraceID: id}
		if got, want := ours.ShouldSample(p).Decision, library.ShouldSample(p).Decision; got != want {
			t.Fatalf("%s: %v, want %v", id, got, want)
		}
	}
}

func TestASpanIsARootThatIsLinkedToTheRecordsOwnTrace(t *testing.T) {
	exporter := keep()
	tracer := start(t, exporter, nil)
	headers := []kgo.RecordHeader{header("traceparent", sampledParent), header("tracestate", "vendor=1")}
	origin, yes := tracer.Follow(headers, trace.SpanContext{})
	if !yes {
		t.Fatal("not sampled")
	}
	began := time.Date(2026, 1, 5, 3, 0, 0, 0, time.UTC)
	tracer.Send(origin, &Send{
		Topic: "orders.retry.10s", Template: "orders.retry.{tier}", Partition: 3, Offset: 42, Began: began, Ended: began.Add(time.Millisecond),
		MessageID: []byte("orders/3/7\xff"), Attributes: []attribute.KeyValue{attribute.Int("redrive.attempt", 2)},
	})
	tracer.Send(trace.SpanContext{}, &Send{Topic: "orders", Began: began, Ended: began, Err: errors.New("no leader"), Code: "NOT_LEADER", Tombstone: true})
	tracer.Stop(time.Second)

	spans := exporter.GetSpans()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	first, second := spans[0], spans[1]
	if first.Parent.IsValid() || first.SpanContext.TraceID() == origin.TraceID() {
		t.Error("the span is no root")
	}
	if len(first.Links) != 1 || first.Links[0].SpanContext.TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" ||
		first.Links[0].SpanContext.TraceState().Get("vendor") != "1" {
		t.Errorf("links %+v", first.Links)
	}
	if !first.StartTime.Equal(began) || first.EndTime.Sub(first.StartTime) != time.Millisecond {
		t.Errorf("it lasts from %v to %v", first.StartTime, first.EndTime)
	}
	want := map[string]any{
		"messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send",
		"messaging.destination.name": "orders.retry.10s", "messaging.destination.template": "orders.retry.{tier}",
		"messaging.destination.partition.id": "3", "messaging.kafka.offset": int64(42), "messaging.client.id": "redrive",
		"messaging.message.id": "orders/3/7\uFFFD", "redrive.attempt": int64(2),
	}
	if diff := cmp.Diff(want, attributesOf(first)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if first.Name != "send orders.retry.10s" || first.SpanKind != trace.SpanKindClient || first.Status.Code != codes.Unset {
		t.Errorf("%q is a %v with status %v", first.Name, first.SpanKind, first.Status)
	}
	if second.SpanKind != trace.SpanKindProducer || len(second.Links) != 0 || second.Status.Code != codes.Error {
		t.Errorf("without a context of its own it is a %v with links %v and status %v", second.SpanKind, second.Links, second.Status)
	}
	got := attributesOf(second)
	if got["error.type"] != "NOT_LEADER" || got["messaging.kafka.message.tombstone"] != true || got["messaging.kafka.offset"] != nil {
		t.Errorf("attributes of a failure: %v", got)
	}
}

func attributesOf(s tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

func TestTheEnvironmentNamesTheService(t *testing.T) {
	who := func(environ map[string]string) map[string]string {
		exporter := keep()
		tracer := start(t, exporter, environ)
		_, span := tracer.Start(t.Context(), "x", nil)
		span.End()
		tracer.Stop(time.Second)
		all := map[string]string{}
		for _, a := range exporter.GetSpans()[0].Resource.Attributes() {
			all[string(a.Key)] = a.Value.AsString()
		}
		return all
	}
	plain := who(nil)
	if plain["service.name"] != "redrive-forwarder" || plain["service.version"] != "1.2.3" || plain["service.instance.id"] == "" {
		t.Errorf("by itself: %v", plain)
	}
	named := who(map[string]string{"OTEL_SERVICE_NAME": "retries", "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=pod-7,deployment.environment=prod"})
	if named["service.name"] != "retries" || named["service.instance.id"] != "pod-7" || named["deployment.environment"] != "prod" {
		t.Errorf("with the environment: %v", named)
	}
}

// stuck is a collector that does not answer.
type stuck struct{ heeds bool }

func (s stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	if s.heeds {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(time.Hour)
	return nil
}

func (stuck) Shutdown(context.Context) error { return nil }

func TestACollectorThatIsStuckHoldsNothingUp(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		setenv(t, map[string]string{envQueueSize: "100"}) // No bubble for Setenv.
		synctest.Test(t, func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			tracer, err := New(t.Context(), Options{Service: "x", Exporter: stuck{heeds}, Registerer: registry})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for range 1000 {
				if origin, yes := tracer.Follow(nil, trace.SpanContext{}); yes {
					tracer.Send(origin, &Send{Topic: "orders", Began: began, Ended: began})
				}
			}
			for range 10 { // Those that were begun while there was room.
				_, span := tracer.Start(t.Context(), "x", nil)
				span.End()
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("handing over took %v", took)
			}
			want := `
				# HELP redrive_trace_spans_total Spans by what became of them: exported, failed, or dropped because the queue was full.
				# TYPE redrive_trace_spans_total counter
				redrive_trace_spans_total{result="dropped"} 910
				redrive_trace_spans_total{result="exported"} 0
				redrive_trace_spans_total{result="failed"} 0
			`
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
			tracer.Stop(time.Second)
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("the stop took %v", took)
			}
			if n := testutil.ToFloat64(tracer.queue.failed); heeds && n != 100 {
				t.Errorf("%v of the spans in the queue count as failed", n)
			}
			time.Sleep(time.Hour) // For the one that heeds nothing.
		})
	}
}

// refusing is a collector that takes nothing.
type refusing struct{ calls int }

func (r *refusing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	r.calls++
	return errors.New("connection refused")
}

func (*refusing) Shutdown(context.Context) error { return nil }

func TestSpansThatAreNotTakenAreToldOnceAMinute(t *testing.T) {
	setenv(t, nil)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		exporter := &refusing{}
		tracer, err := New(t.Context(), Options{Service: "x", Exporter: exporter, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 { // 150 s.
			_, span := tracer.Start(t.Context(), "x", nil)
			span.End()
			time.Sleep(1500 * time.Millisecond)
		}
		tracer.Stop(time.Second)
		lines := strings.Count(out.String(), "\n")
		if exporter.calls < 20 || lines != 4 { // One of them at the end.
			t.Errorf("%d calls and %d lines:\n%s", exporter.calls, lines, out.String())
		}
		lost := 0
		for _, match := range regexp.MustCompile(`spans=(\d+)`).FindAllStringSubmatch(out.String(), -1) {
			n, _ := strconv.Atoi(match[1])
			lost += n
		}
		if lost != 100 {
			t.Errorf("%d spans are told as lost, want 100:\n%s", lost, out.String())
		}
		if !strings.Contains(out.String(), "connection refused") || !strings.Contains(out.String(), "component=tracing") {
			t.Errorf("the log does not tell why:\n%s", out.String())
		}
	})
}

func TestANilTracerDoesNothing(t *testing.T) {
	var tracer *Tracer
	if _, yes := tracer.Follow([]kgo.RecordHeader{header("traceparent", sampledParent)}, trace.SpanContext{}); yes {
		t.Error("it follows a record")
	}
	ctx, span := tracer.Start(t.Context(), "x", nil)
	if span.IsRecording() || ctx != t.Context() {
		t.Error("it starts a span")
	}
	handler := http.NotFoundHandler()
	if got := tracer.Handler(handler); got == nil {
		t.Error("it takes a handler away")
	}
	tracer.Stop(time.Second)
}

func TestWhatIsNotSampledAllocatesNothing(t *testing.T) {
	tracer := start(t, keep(), nil)
	defer tracer.Stop(time.Second)
	headers := []kgo.RecordHeader{header("redrive-message-id", "orders/0/1"), header("traceparent", unsampledParent)}
	for name, tracer := range map[string]*Tracer{"off": nil, "on": tracer} {
		if n := testing.AllocsPerRun(1000, func() { tracer.Follow(headers, trace.SpanContext{}) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestARequestIsNamedByItsRouteAndShowsNoQuery(t *testing.T) {
	exporter := keep()
	tracer := start(t, exporter, nil)
	handler := tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Route(r.Context(), "GET /letters/{letter}")
		http.Error(w, "gone", http.StatusGone)
	}))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/letters/7?key=secret-customer", http.NoBody)
	request.Header.Set("Traceparent", sampledParent)
	request.Header.Set("Authorization", "Bearer secret-token")
	handler.ServeHTTP(httptest.NewRecorder(), request)
	tracer.Stop(time.Second)

	span := exporter.GetSpans()[0]
	if span.Name != "GET /letters/{letter}" || span.Parent.SpanID().String() != "00f067aa0ba902b7" {
		t.Errorf("%q below %v", span.Name, span.Parent)
	}
	got := attributesOf(span)
	if got["http.route"] != "/letters/{letter}" || got["http.response.status_code"] != int64(http.StatusGone) {
		t.Errorf("attributes %v", got)
	}
	for key, value := range got {
		if text, ok := value.(string); ok && strings.Contains(text, "secret") {
			t.Errorf("%s=%s", key, text)
		}
	}
}

// The API sets deadlines and sends what it has in parts.
func TestAHandlerCanStillSetDeadlinesAndFlush(t *testing.T) {
	tracer := start(t, keep(), nil)
	defer tracer.Stop(time.Second)
	server := httptest.NewServer(tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		if err := errors.Join(control.SetWriteDeadline(time.Now().Add(time.Minute)), control.Flush()); err != nil {
			t.Error(err)
		}
	})))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
}

func TestLinesWithinASpanNameIt(t *testing.T) {
	tracer := start(t, keep(), nil)
	defer tracer.Stop(time.Second)
	var out bytes.Buffer
	log := slog.New(LogHandler(slog.NewTextHandler(&out, nil))).With("component", "x").WithGroup("g")
	ctx, span := tracer.Start(t.Context(), "x", nil)
	defer span.End()
	log.InfoContext(t.Context(), "without")
	log.InfoContext(ctx, "within", "n", 1)
	lines := strings.Split(out.String(), "\n")
	if strings.Contains(lines[0], "trace_id") {
		t.Error(lines[0])
	}
	id := span.SpanContext().TraceID()
	if !strings.Contains(lines[1], "trace_id="+hex.EncodeToString(id[:])) || !strings.Contains(lines[1], "component=x") {
		t.Error(lines[1])
	}
	if !log.Enabled(t.Context(), slog.LevelInfo) || log.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("the level is not that of the handler below")
	}
}

func BenchmarkFollow(b *testing.B) {
	headers := []kgo.RecordHeader{
		header("redrive-message-id", "orders/0/1"), header("content-type", "application/json"), header("traceparent", unsampledParent), header("tracestate", "a=b"),
	}
	tracer, err := New(b.Context(), Options{Service: "x", Exporter: keep()})
	if err != nil {
		b.Fatal(err)
	}
	defer tracer.Stop(time.Second)
	for name, tracer := range map[string]*Tracer{"off": nil, "unsampled": tracer} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tracer.Follow(headers, trace.SpanContext{})
			}
		})
	}
}
