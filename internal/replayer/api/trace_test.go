package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/tracing"
)

// kept is an exporter that keeps what it was given after its end.
type kept struct{ *tracetest.InMemoryExporter }

func (kept) Shutdown(context.Context) error { return nil }

var _ trace.SpanExporter = kept{}

func TestEachRequestIsASpanNamedByItsRoute(t *testing.T) {
	exporter := kept{tracetest.NewInMemoryExporter()}
	tracer, err := tracing.New(t.Context(), tracing.Options{Service: "redrive-dlt-replayer", Exporter: exporter})
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(t.Context(), Options{
		Address: "127.0.0.1:0", Ledger: newFakeLedger(), Replayer: newFakeReplayer(), Radar: &fakeRadar{}, Topics: []string{"orders.dlt"},
		Tokens: allTokens(), Logger: testkit.Logger(t), Tracer: tracer,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	for _, path := range []string{"/letters?key=secret-customer", "/letters/1/value", "/letters/secret-nonsense", "/nowhere", "/letters?kye=x"} {
		server.Handler().ServeHTTP(httptest.NewRecorder(), request(t, http.MethodGet, path, bob, ""))
	}
	server.Handler().ServeHTTP(httptest.NewRecorder(), request(t, http.MethodPost, "/jobs", "", "{}"))
	tracer.Stop(time.Second)

	var got []string
	for _, s := range exporter.GetSpans() {
		status := ""
		for _, a := range s.Attributes {
			text := a.Value.String()
			switch a.Key {
			case "http.response.status_code":
				status = text
			case "url.path":
				continue // It names letters and jobs, and what somebody made up.
			}
			if strings.Contains(text, "secret") {
				t.Errorf("%s has %s=%s", s.Name, a.Key, text)
			}
		}
		got = append(got, s.Name+" "+status)
	}
	want := []string{
		"GET /api/v1/letters 200", "GET /api/v1/letters/{letter}/value 200", "GET /api/v1/letters/{letter} 404",
		"GET 404", "GET /api/v1/letters 400", "POST /api/v1/jobs 401",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}
