package forwarder

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/tiers"
	"github.com/kafka-redrive/redrive/internal/tracing"
)

const (
	sampledParent   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampledParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

// traced makes a forwarder trace into the exporter.
func (r *rig) traced() (exporter *tracetest.InMemoryExporter, change func(*Options)) {
	r.t.Helper()
	exporter = tracetest.NewInMemoryExporter()
	tracer, err := tracing.New(context.Background(), tracing.Options{Service: "redrive-forwarder", ClientID: "redrive", Exporter: exporter})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { tracer.Stop(time.Second) })
	return exporter, func(o *Options) { o.Tracer = tracer }
}

// told is a span in the words of a test: what does not depend on chance.
func told(s tracetest.SpanStub) string {
	var links []string
	for _, l := range s.Links {
		links = append(links, l.SpanContext.SpanID().String())
	}
	text := fmt.Sprintf("%s %v links=%v", s.Name, s.SpanKind, links)
	for _, a := range s.Attributes {
		switch key := string(a.Key); {
		case key == "messaging.destination.template", key == "messaging.message.id", key == "error.type",
			strings.HasPrefix(key, "redrive.") && key != "redrive.due_at" && key != "redrive.lateness" && !strings.HasPrefix(key, "redrive.source"):
			text += fmt.Sprintf(" %s=%v", key, a.Value.String())
		}
	}
	return text
}

func valueOf(s tracetest.SpanStub, name string) any {
	for _, a := range s.Attributes {
		if string(a.Key) == name {
			return a.Value.AsInterface()
		}
	}
	return nil
}

func TestEachHopIsASpanThatIsLinkedToTheRecord(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		exporter, on := r.traced()
		r.start(on)
		deliveries := r.consume(everything)
		r.client.Produce(&kgo.Record{Topic: "orders", Partition: 0, Key: []byte("secret-key"), Value: []byte("secret-value"), Headers: []kgo.RecordHeader{
			{Key: "traceparent", Value: []byte(sampledParent)}, {Key: "tracestate", Value: []byte("vendor=1")}, {Key: "customer", Value: []byte("secret-header")},
		}})
		r.await(time.Minute, "orders.dlt", 1)
		time.Sleep(10 * time.Second) // The next batch of spans.

		spans := exporter.GetSpans()
		var got []string
		for _, s := range spans {
			got = append(got, told(s))
			if s.Parent.IsValid() || s.SpanContext.TraceID().String() == "4bf92f3577b34da6a3ce929d0e0e4736" {
				t.Errorf("%s is no root", s.Name)
			}
			if took := s.EndTime.Sub(s.StartTime); took < 0 || took > time.Second {
				t.Errorf("%s lasts %v", s.Name, took)
			}
			for _, a := range s.Attributes {
				if strings.Contains(a.Value.String(), "secret") {
					t.Errorf("%s has %s=%s", s.Name, a.Key, a.Value.String())
				}
			}
		}
		first := deliveries()["secret-key"][0].rec
		id := fmt.Sprintf("orders/%d/%d", first.Partition, first.Offset)
		link := " client links=[00f067aa0ba902b7]"
		want := []string{
			"send orders.retry.10s" + link + " messaging.destination.template=orders.retry.{tier} messaging.message.id=" + id + " redrive.attempt=1 redrive.route=hop",
			"send orders" + link + " messaging.message.id=" + id + " redrive.attempt=1 redrive.route=return",
			"send orders.dlt" + link + " messaging.message.id=" + id + " redrive.attempt=2 redrive.route=dead_letter redrive.reason=exhausted",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("spans (-want +got):\n%s", diff)
		}
		back := spans[1]
		if valueOf(back, "redrive.source.topic") != "orders.retry.10s" || valueOf(back, "redrive.source.offset") != int64(0) {
			t.Errorf("the return comes from %v at %v", valueOf(back, "redrive.source.topic"), valueOf(back, "redrive.source.offset"))
		}
		due, err := time.Parse(time.RFC3339, fmt.Sprint(valueOf(back, "redrive.due_at")))
		late, _ := valueOf(back, "redrive.lateness").(float64)
		if err != nil || !due.Equal(back.EndTime.Add(-time.Duration(late*1e9)).Truncate(time.Millisecond)) {
			t.Errorf("due %v, %v s late at %v: %v", due, late, back.EndTime, err)
		}
		if valueOf(spans[0], "redrive.due_at") == nil || valueOf(spans[2], "redrive.due_at") != nil {
			t.Error("of the three the hop and the return are due")
		}
	})
}

// I6: whoever made the context of a record made it for whoever reads it.
func TestTheContextOfARecordStaysByteForByte(t *testing.T) {
	for name, on := range map[string]bool{"off": false, "on": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
				change := func(*Options) {}
				if on {
					_, change = r.traced()
				}
				r.start(change)
				want := []kgo.RecordHeader{
					{Key: "traceparent", Value: []byte(sampledParent)},
					{Key: "tracestate", Value: []byte("vendor=1 ,  other=x")},
					{Key: "baggage", Value: []byte("a=1;p,b= 2")},
					{Key: "traceparent", Value: []byte("not one")},
					{Key: "Traceparent", Value: nil},
					{Key: "tracestate", Value: []byte{}},
					{Key: "b3", Value: []byte("0")},
				}
				r.client.Produce(&kgo.Record{Topic: "orders.retry", Key: []byte("k"), Value: []byte("v"), Headers: want})
				back := r.await(time.Minute, "orders", 1)[0]
				var got []kgo.RecordHeader
				for _, h := range back.Headers {
					if !strings.HasPrefix(h.Key, "redrive-") {
						got = append(got, h)
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("headers (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestARecordWhoseTraceIsNotSampledHasNoSpan(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		exporter, on := r.traced()
		r.start(on)
		r.produce("orders.retry", 10, func(i int, rec *kgo.Record) {
			parent := unsampledParent
			if i == 7 {
				parent = "something else" // So that it is a root of its own, which is sampled.
			}
			rec.Headers = []kgo.RecordHeader{{Key: "traceparent", Value: []byte(parent)}}
		})
		r.await(time.Minute, "orders", 10)
		time.Sleep(10 * time.Second)
		spans := exporter.GetSpans()
		if len(spans) != 2 {
			t.Fatalf("%d spans, want the two of one record", len(spans))
		}
		for _, s := range spans {
			if len(s.Links) != 0 || s.SpanKind != trace.SpanKindProducer {
				t.Errorf("%s", told(s))
			}
		}
	})
}

func TestARefusedCopyIsAFailedSpan(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		exporter, on := r.traced()
		refusals := 0
		r.kafka.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
			r.kafka.KeepControl()
			req := request.(*kmsg.ProduceRequest)
			if !r.isOrigin(req.Topics[0]) {
				return nil, nil, false
			}
			refusals++
			return r.refuse(req, kerr.InvalidRecord), nil, true
		})
		r.start(on)
		r.produce("orders.retry", 1, nil)
		r.await(time.Minute, "orders.dlt", 1)
		time.Sleep(10 * time.Second)
		spans := exporter.GetSpans()
		last := spans[len(spans)-1]
		if valueOf(last, "redrive.reason") == nil || last.Status.Code != codes.Unset {
			t.Errorf("the last is %s", told(last))
		}
		failed := 0
		for _, s := range spans {
			if s.Name == "send orders" {
				failed++
				if s.Status.Code != codes.Error || valueOf(s, "error.type") != "INVALID_RECORD" || valueOf(s, "messaging.kafka.offset") != nil {
					t.Errorf("%s: %+v", told(s), s.Status)
				}
			}
		}
		if failed == 0 || failed != refusals {
			t.Errorf("%d spans of %d refusals", failed, refusals)
		}
	})
}

// lost is a collector that is not there.
type lost struct{}

func (lost) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	<-ctx.Done()
	return errors.New("connection refused")
}
func (lost) Shutdown(context.Context) error { return nil }

func TestACollectorThatIsAwayHoldsNoRecordUp(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		tracer, err := tracing.New(context.Background(), tracing.Options{Service: "redrive-forwarder", Exporter: lost{}})
		if err != nil {
			t.Fatal(err)
		}
		_, stop := r.start(func(o *Options) { o.Tracer = tracer })
		const all = 5000 // More than the queue of spans takes.
		began := time.Now()
		r.produce("orders.retry", all, nil)
		r.await(time.Minute, "orders", all)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		r.committedAll("orders.retry", "orders.retry.10s")
		stop()
		tracer.Stop(time.Second)
	})
}

// What a record costs the loop: nothing while tracing is off, and little where its trace is not sampled.
func BenchmarkTrace(b *testing.B) {
	policy, err := tiers.New(tiers.Options{Origin: "orders", Inbox: "orders.retry", DeadLetters: "orders.dlt", Tiers: []tiers.Tier{{Name: "10s", Topic: "orders.retry.10s", Delay: time.Second}}})
	if err != nil {
		b.Fatal(err)
	}
	for name, parent := range map[string]string{"off": "", "unsampled": unsampledParent, "sampled": sampledParent} {
		b.Run(name, func(b *testing.B) {
			f := &Forwarder{opts: Options{Topics: []Topic{{Policy: policy}}}, metrics: newMetrics()}
			if err := f.buildRoutes(); err != nil {
				b.Fatal(err)
			}
			if parent != "" {
				if f.opts.Tracer, err = tracing.New(b.Context(), tracing.Options{Service: "x", Exporter: tracetest.NewNoopExporter()}); err != nil {
					b.Fatal(err)
				}
				defer f.opts.Tracer.Stop(time.Second)
			}
			in := f.routes["orders.retry.10s"]
			l := &loop{f: f, now: time.Now()}
			s := newSource(in, 0, nil)
			headers := []kgo.RecordHeader{
				{Key: envelope.HeaderMessageID, Value: []byte("orders/0/1")},
				{Key: envelope.HeaderOriginalTopic, Value: []byte("orders")},
				{Key: envelope.HeaderAttempt, Value: []byte("1")},
				{Key: "content-type", Value: []byte("application/json")},
				{Key: "traceparent", Value: []byte(parent)},
			}
			h := &held{Value: record{
				source: s, rec: &kgo.Record{Headers: headers}, headers: headers, route: in.route,
				to: in.route.origin, target: in.route.origin.target(0), sent: l.now.UnixNano(),
			}}
			b.ReportAllocs()
			for b.Loop() {
				if l.f.opts.Tracer != nil {
					s.trace(l, ack{held: h})
				}
			}
		})
	}
}
