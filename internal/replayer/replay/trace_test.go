package replay

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/tracing"
)

const (
	sampledParent   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampledParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

func TestAJobAndItsCopiesAreLinkedToTheLettersAndToWhoAsked(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		exporter := tracetest.NewInMemoryExporter()
		tracer, err := tracing.New(context.Background(), tracing.Options{Service: "redrive-dlt-replayer", Exporter: exporter})
		if err != nil {
			t.Fatal(err)
		}
		defer tracer.Stop(time.Second)
		parent := func(value string) []kgo.RecordHeader {
			return []kgo.RecordHeader{{Key: "traceparent", Value: []byte(value)}}
		}
		r.dieAll(
			letter{key: "secret-a", value: "secret-1", offset: 1, more: parent(sampledParent)},
			letter{key: "secret-b", value: "secret-2", offset: 2},
			letter{key: "secret-c", value: "secret-3", offset: 3, more: parent(unsampledParent)},
		)
		var out testkit.Buffer
		p := r.start(func(o *Options, _ *gate) {
			o.Tracer, o.Logger = tracer, slog.New(tracing.LogHandler(slog.NewTextHandler(&out, nil)))
		})
		defer p.stop()
		ctx, request := tracer.Start(t.Context(), "POST /jobs", nil)
		job, _, err := p.Submit(ctx, everything())
		if err != nil {
			t.Fatal(err)
		}
		request.End()
		r.awaitJob(time.Minute, job.ID)
		time.Sleep(10 * time.Second) // The next batch of spans.

		spans := map[string]tracetest.SpanStub{}
		var session trace.SpanID
		for _, s := range exporter.GetSpans() {
			name := s.Name
			for _, a := range s.Attributes {
				if strings.Contains(a.Value.String(), "secret") {
					t.Errorf("%s has %s=%s", s.Name, a.Key, a.Value.String())
				}
				if a.Key == "messaging.message.id" {
					name += " of " + a.Value.AsString()
				}
			}
			if name == "replay job" {
				session = s.SpanContext.SpanID()
			}
			if s.Parent.IsValid() {
				t.Errorf("%s is no root", name)
			}
			spans[name] = s
		}
		for _, message := range []string{"a replay runs", "a replay is done"} {
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, message) && !strings.Contains(line, "span_id="+session.String()) {
					t.Errorf("a line of the job does not name its span: %s", line)
				}
			}
		}
		if !strings.Contains(out.String(), "a replay is done") {
			t.Error("nothing is logged")
		}
		names := map[trace.SpanID]string{request.SpanContext().SpanID(): "request", session: "job"}
		links := map[string]string{}
		for name, s := range spans {
			for _, l := range s.Links {
				to := names[l.SpanContext.SpanID()]
				if to == "" {
					to = l.SpanContext.SpanID().String()
				}
				links[name] += " " + to
			}
		}
		want := map[string]string{
			"replay job":                " request",
			"send orders of orders/0/1": " 00f067aa0ba902b7 job request",
			"send orders of orders/0/2": " job request",
		}
		if diff := cmp.Diff(want, links); diff != "" {
			t.Errorf("links (-want +got):\n%s", diff)
		}
		if len(spans) != 4 {
			t.Errorf("%d spans", len(spans))
		}
		for name, want := range map[string]string{
			"replay job":                "redrive.replay.letters=3 redrive.replay.result=done redrive.replay_id=" + job.ID,
			"send orders of orders/0/1": "redrive.letter=1 redrive.replay_count=1 redrive.replay_id=" + job.ID + " redrive.route=replay redrive.source.offset=0 redrive.source.partition=0 redrive.source.topic=orders.dlt",
		} {
			if got := own(spans[name]); got != want {
				t.Errorf("%s has %s, want %s", name, got, want)
			}
		}
		var parents []string
		for _, rec := range r.copies("orders") {
			for _, h := range rec.Headers {
				if h.Key == "traceparent" {
					parents = append(parents, string(h.Value))
				}
			}
		}
		if diff := cmp.Diff([]string{sampledParent, unsampledParent}, parents); diff != "" {
			t.Errorf("contexts of the copies (-want +got):\n%s", diff)
		}
	})
}

// own are Redrive's attributes of a span, in their order by name.
func own(s tracetest.SpanStub) string {
	var all []string
	for _, a := range s.Attributes {
		if strings.HasPrefix(string(a.Key), "redrive.") {
			all = append(all, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestWhoAskedIsRememberedForSoManyJobsAtMost(t *testing.T) {
	var asked requests
	valid := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	asked.note("untraced", trace.SpanContext{})
	for i := range 10 * maxAsked {
		asked.note(fmt.Sprint(i), valid)
		if n := len(asked.spans); n > maxAsked {
			t.Fatalf("%d are remembered", n)
		}
	}
	last := fmt.Sprint(10*maxAsked - 1)
	if !asked.take(last).Equal(valid) || asked.take(last).IsValid() || asked.take("untraced").IsValid() {
		t.Error("the span of a request is not given out once")
	}
}
