package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestDemo runs the whole demo with programs built from this source.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 25 s")
	}
	var out bytes.Buffer
	d := demo{print: &printer{out: &out, json: true}}
	ok, err := d.run(t.Context())
	if err != nil || !ok {
		t.Fatalf("ok %v, %v\n%s", ok, err, &out)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var summary struct {
		Event  string
		OK     bool
		Orders []result
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &summary); err != nil {
		t.Fatal(err)
	}
	if summary.Event != "summary" || !summary.OK || len(summary.Orders) != len(script()) {
		t.Errorf("summary %+v", summary)
	}
	events := map[string]int{}
	for _, line := range lines[:len(lines)-1] {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		events[e.Event]++
	}
	want := map[string]int{"produced": 7, "failed": 10, "waiting": 7, "forwarded": 7, "dead-lettered": 3, "replayed": 3, "succeeded": 7}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func record(topic, key, value string, headers ...string) *kgo.Record {
	r := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("trace of " + key)}}}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

// die lets an order become a dead letter, orders/0/0 by name.
func die(t *testing.T, s *story, o order) {
	t.Helper()
	_ = s.delivered(t.Context(), record("orders", o.id, o.value))
	s.buried(record("orders.dlt", o.id, o.value, "redrive-reason", "poison", "redrive-message-id", "orders/0/0"))
}

func replayed(id, count string) []string {
	return []string{"redrive-message-id", id, "redrive-replay-id", "a job", "redrive-replay-count", count}
}

// Letters of one key come back in the order of the origin.
func TestSummaryTellsAnInversion(t *testing.T) {
	for _, inverted := range []bool{false, true} {
		var orders []order
		for _, o := range script() {
			if o.key == customer {
				o.deliveries, o.end = 1, poison
				orders = append(orders, o)
			}
		}
		s := newStory(orders, "", func(event) {})
		as := func(o order, topic string, headers ...string) *kgo.Record {
			r := record(topic, o.id, o.value, headers...)
			r.Key = []byte(customer)
			return r
		}
		for _, o := range orders {
			_ = s.delivered(t.Context(), as(o, "orders"))
			s.buried(as(o, "orders.dlt", "redrive-reason", "poison", "redrive-message-id", o.id))
		}
		s.repair()
		if inverted {
			slices.Reverse(orders)
		}
		for _, o := range orders {
			_ = s.delivered(t.Context(), as(o, "orders", replayed(o.id, "1")...))
		}
		var got []string
		for _, r := range s.results() {
			got = append(got, r.Differences...)
		}
		var want []string
		if inverted {
			want = []string{"replayed before order-4, which has the same key"}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("inverted %v (-want +got):\n%s", inverted, diff)
		}
	}
}

// The demo is worth nothing if it calls a wrong end right.
func TestSummaryTellsEveryDifference(t *testing.T) {
	only := func(title string) order {
		for _, o := range script() {
			if o.title == title {
				return o
			}
		}
		t.Fatalf("no order %q", title)
		return order{}
	}
	past := time.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano)
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano)
	for _, test := range []struct {
		name, title string
		play        func(s *story, o order)
		want        []string
	}{
		{"all as it should", "fails once", func(s *story, o order) {
			_ = s.delivered(t.Context(), record("orders", o.id, o.value))
			s.waiting(record("orders.retry.2s", o.id, o.value, "redrive-available-at", past))
			_ = s.delivered(t.Context(), record("orders", o.id, o.value, "redrive-attempt", "1"))
		}, nil},
		{"lost", "fails once", func(s *story, o order) {
			_ = s.delivered(t.Context(), record("orders", o.id, o.value))
		}, []string{"not ended, not succeeded", "deliveries 1, not 2"}},
		{"early", "fails once", func(s *story, o order) {
			_ = s.delivered(t.Context(), record("orders", o.id, o.value))
			s.waiting(record("orders.retry.2s", o.id, o.value, "redrive-available-at", future))
			_ = s.delivered(t.Context(), record("orders", o.id, o.value, "redrive-attempt", "1"))
		}, []string{"came back ... before it was due"}},
		{"duplicated", "succeeds at once", func(s *story, o order) {
			_ = s.delivered(t.Context(), record("orders", o.id, o.value))
			_ = s.delivered(t.Context(), record("orders", o.id, o.value))
		}, []string{"ended twice: succeeded, succeeded", "deliveries 2, not 1"}},
		{"changed", "can not be read", func(s *story, o order) {
			_ = s.delivered(t.Context(), record("orders", o.id, o.value))
			s.buried(record("orders.dlt", o.id, "other", "redrive-reason", "poison"))
		}, []string{"changed on its way to orders.dlt/0@0"}},
		{"dead for another reason", "can not be read", func(s *story, o order) {
			_ = s.delivered(t.Context(), record("orders", o.id, o.value))
			s.buried(record("orders.dlt", o.id, o.value, "redrive-reason", "exhausted"))
		}, []string{"dead: exhausted, not dead: poison"}},
		{"wrong attempt", "fails once", func(s *story, o order) {
			_ = s.delivered(t.Context(), record("orders", o.id, o.value))
			s.waiting(record("orders.retry.2s", o.id, o.value, "redrive-available-at", past))
			_ = s.delivered(t.Context(), record("orders", o.id, o.value, "redrive-attempt", "2"))
		}, []string{"came back with attempt 2, not 1"}},
		{"replayed as it should", "can not be read", func(s *story, o order) {
			die(t, s, o)
			s.repair()
			_ = s.delivered(t.Context(), record("orders", o.id, o.value, replayed("orders/0/0", "1")...))
		}, nil},
		{"not replayed", "can not be read", func(s *story, o order) {
			die(t, s, o)
			s.repair()
		}, []string{"not ended, not succeeded when replayed", "deliveries 1, not 2"}},
		{"replayed twice", "can not be read", func(s *story, o order) {
			die(t, s, o)
			s.repair()
			_ = s.delivered(t.Context(), record("orders", o.id, o.value, replayed("orders/0/0", "1")...))
			_ = s.delivered(t.Context(), record("orders", o.id, o.value, replayed("orders/0/0", "1")...))
		}, []string{"ended twice: succeeded when replayed, succeeded when replayed", "deliveries 3, not 2"}},
		{"replayed in the middle of its ladder, under another id, changed", "can not be read", func(s *story, o order) {
			die(t, s, o)
			s.repair()
			_ = s.delivered(t.Context(), record("orders", o.id, "other", append(replayed("orders/0/9", "2"), "redrive-attempt", "1")...))
		}, []string{
			"changed on its way to orders/0@0", "was replayed with attempt 1",
			`was replayed as "orders/0/9", not "orders/0/0"`, "came back, but not by its first replay",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := only(test.title)
			s := newStory([]order{o}, "", func(event) {})
			test.play(s, o)
			results := s.results()
			var got []string
			for _, d := range results[0].Differences {
				if strings.HasSuffix(d, " before it was due") {
					d = "came back ... before it was due"
				}
				got = append(got, d)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var out bytes.Buffer
			p := &printer{out: &out}
			if ok := p.summary(results, 1); ok != (len(test.want) == 0) {
				t.Errorf("summary says %v:\n%s", ok, &out)
			}
			for _, d := range results[0].Differences {
				if !strings.Contains(out.String(), o.id+": "+d+"\n") {
					t.Errorf("the summary does not tell %q:\n%s", d, &out)
				}
			}
		})
	}
}
