package e2e

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // What the exporter is told to compress with.
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kafka-redrive/redrive/internal/testkit"
	chaos "github.com/kafka-redrive/redrive/test/chaos/stage"
)

// collector takes spans as a collector of OpenTelemetry does: protobuf over HTTP, and gRPC.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	server *httptest.Server
	grpc   string     // the address
	mu     sync.Mutex // guards the following
	spans  []*tracepb.Span
	owners map[string]string // service by span
	faults []string
}

func collect(t *testing.T) *collector {
	t.Helper()
	c := &collector{owners: map[string]string{}}
	c.server = httptest.NewServer(c)
	t.Cleanup(c.server.Close)
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.grpc = listener.Addr().String()
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil {
			t.Errorf("serve gRPC: %v", err)
		}
	})
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return c
}

// Export is that of the service of gRPC.
func (c *collector) Export(ctx context.Context, request *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	if sent, _ := metadata.FromIncomingContext(ctx); !slices.Equal(sent.Get("tenant"), []string{"shop"}) {
		return nil, status.Errorf(codes.Unauthenticated, "metadata %v", sent)
	}
	c.take(request.GetResourceSpans())
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// ServeHTTP is that of http.Handler.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var data tracepb.TracesData // On the wire it is what an export request is.
	if err := c.read(r, &data); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.faults = append(c.faults, fmt.Sprintf("%s %s: %v", r.Method, r.URL, err))
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.take(data.GetResourceSpans())
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collector) take(resources []*tracepb.ResourceSpans) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range resources {
		service := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, span)
				c.owners[string(span.GetSpanId())] = service
			}
		}
	}
}

func (c *collector) read(r *http.Request, to proto.Message) error {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("Tenant") != "shop" {
		return fmt.Errorf("headers %v", r.Header)
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		body = unpacked
	}
	bytes, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return proto.Unmarshal(bytes, to)
}

// environment makes a process send its spans, all of them only when it ends.
func (c *collector) environment() []string {
	return []string{
		"REDRIVE_TRACING_ENABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=" + c.server.URL, "OTEL_EXPORTER_OTLP_HEADERS=tenant=shop",
		"OTEL_EXPORTER_OTLP_COMPRESSION=gzip", "OTEL_BSP_SCHEDULE_DELAY=600000",
	}
}

// told are the spans of a service whose names contain part, in words: their links, and the attributes that are named.
func (c *collector) told(service, part string, names ...string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := map[string]string{}
	for _, s := range c.spans {
		known[string(s.GetSpanId())] = s.GetName()
	}
	var all []string
	for _, s := range c.spans {
		if c.owners[string(s.GetSpanId())] != service || !strings.Contains(s.GetName(), part) {
			continue
		}
		text := s.GetName() + " ->"
		for _, l := range s.GetLinks() {
			to := known[string(l.GetSpanId())]
			if to == "" {
				to = hex.EncodeToString(l.GetSpanId())
			}
			text += " [" + to + "]"
		}
		for _, a := range s.GetAttributes() {
			if slices.Contains(names, a.GetKey()) {
				text += " " + strings.TrimPrefix(a.GetKey(), "redrive.") + "=" + a.GetValue().GetStringValue()
			}
		}
		if len(s.GetParentSpanId()) > 0 {
			text += " below another"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

// wantSilentAbout fails the test if a span holds a text.
func (c *collector) wantSilentAbout(t *testing.T, secret string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fault := range c.faults {
		t.Errorf("the collector was sent what it does not know: %s", fault)
	}
	for _, s := range c.spans {
		if text := s.String(); strings.Contains(text, secret) {
			t.Errorf("%s", text)
		}
	}
}

// TestTheWayOfARecordIsSeenInItsTrace starts both programs with nothing but the variables that an operator of OpenTelemetry knows.
func TestTheWayOfARecordIsSeenInItsTrace(t *testing.T) {
	t.Parallel()
	const sampled, unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00"
	c := collect(t)
	s := tell(t, stage{tiers: []string{"500ms"}})
	address := s.address()
	f := s.spawn("forwarder", address, exec.Command(binary, "run", "-c", s.config, "--admin-address", address), c.environment()...)
	f.awaitAssigned(s.owned())
	s.consume(func(r *kgo.Record) *kgo.Record {
		if _, replayed := header(r, "redrive-replay-id"); replayed {
			return nil
		}
		return failed(r, "TimeoutError")
	})
	for _, parent := range []string{sampled, unsampled} {
		s.client.Produce(&kgo.Record{
			Topic: s.origin, Key: []byte("secret-key"), Value: []byte("secret-value"),
			Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte(parent)}, {Key: "customer", Value: []byte("secret-header")}},
		})
	}
	s.client.WaitForRecords(patience, s.deadLetters(), 2)
	f.term()

	const link = " -> [00f067aa0ba902b7]"
	want := []string{
		"send " + s.origin + link + " route=return",
		"send " + s.deadLetters() + link + " route=dead_letter reason=exhausted",
		"send " + s.tiers[0] + link + " route=hop",
	}
	if diff := cmp.Diff(want, c.told("redrive-forwarder", "send", "redrive.route", "redrive.reason")); diff != "" {
		t.Errorf("spans of the forwarder (-want +got):\n%s", diff)
	}

	r := s.replay(s.sqlite(), append(c.environment(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+c.grpc, "OTEL_SERVICE_NAME=replays")...)
	r.awaitLetters(2, url.Values{})
	job := r.job("one", chaos.Replay{})
	r.awaitJob(job.ID)
	r.term()
	want = []string{"replay job -> [POST /api/v1/jobs]", "send " + s.origin + link + " [replay job] [POST /api/v1/jobs]"}
	got := append(c.told("replays", "replay job"), c.told("replays", "send")...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans of the dlt-replayer (-want +got):\n%s", diff)
	}
	c.wantSilentAbout(t, "secret")
	for _, rec := range s.client.ReadAll(s.origin, kgo.ReadCommitted()) {
		if value, _ := header(rec, "traceparent"); value != sampled && value != unsampled {
			t.Errorf("%s/%d@%d has the traceparent %q", rec.Topic, rec.Partition, rec.Offset, value)
		}
	}
}

// TestACollectorThatIsAwayIsToldAndNothingElse: spans are lost then, and records are not.
func TestACollectorThatIsAwayIsToldAndNothingElse(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"500ms"}})
	address := s.address()
	f := s.spawn("forwarder", address, exec.Command(binary, "run", "-c", s.config, "--admin-address", address),
		"REDRIVE_TRACING_ENABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_BSP_MAX_QUEUE_SIZE=100")
	f.awaitAssigned(s.owned())
	const all = 2000
	var records []*kgo.Record
	for i := range all {
		records = append(records, &kgo.Record{Topic: s.inbox(), Value: fmt.Append(nil, i)})
	}
	s.client.Produce(records...)
	s.awaitDrained(all)
	testkit.WaitFor(t, patience, "spans that were dropped", func(ctx context.Context) error {
		dropped, err := f.metric(ctx, "redrive_trace_spans_total", "dropped")
		if err == nil && dropped == 0 {
			err = errors.New("none is")
		}
		return err
	})
	if took := f.term(); took > 8*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if n := strings.Count(f.tail(), "spans are not taken"); n > 2 {
		t.Errorf("it is told %d times", n)
	}
	if !strings.Contains(f.tail(), "not all spans were taken before the end") {
		t.Error("the end does not tell of the spans that are lost")
	}
}
