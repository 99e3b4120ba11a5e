package main

import (
	"bytes"
	"encoding/base64"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/ordering"
	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

func newWorkload(t *testing.T, seed uint64) *workload {
	t.Helper()
	all, err := ladders("both", 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return &workload{seed: seed, partitions: partitions, ladders: all}
}

func TestARecordFollowsFromSeedAndNumber(t *testing.T) {
	now := time.Now()
	for id := range uint32(1000) {
		a, b := newWorkload(t, 3).record(id, now), newWorkload(t, 3).record(id, now)
		if diff := cmp.Diff(a.Headers, b.Headers); diff != "" || !stage.Same(a.Key, b.Key) || !stage.Same(a.Value, b.Value) || a.Topic != b.Topic {
			t.Fatalf("record %d is another one the second time: %s", id, diff)
		}
		// The checker does not know when it was sent.
		if diff := stage.Difference(newWorkload(t, 3).record(id, time.Time{}), a); diff != "" {
			t.Fatalf("the bytes of record %d depend on the time: %s", id, diff)
		}
		if got, ok := numberOf(a.Headers); !ok || got != id {
			t.Fatalf("record %d says it is %d", id, got)
		}
	}
	if stage.Difference(newWorkload(t, 3).record(1, now), newWorkload(t, 4).record(1, now)) == "" {
		t.Error("two seeds give the same record")
	}
}

func TestTheWorkloadHasEveryKindOfRecord(t *testing.T) {
	w := newWorkload(t, 5)
	seen := map[string]bool{}
	for id := range uint32(20_000) {
		p := w.plan(id)
		r := w.record(id, time.Now())
		note := func(what string, is bool) { seen[what] = seen[what] || is }
		note("null key", r.Key == nil)
		note("empty key", r.Key != nil && len(r.Key) == 0)
		note("null value", r.Value == nil)
		note("empty value", r.Value != nil && len(r.Value) == 0)
		note("large value", len(r.Value) > 4000)
		note("named", p.named)
		note("without position", !p.positioned)
		note("handed over twice", p.twice > 0)
		note(p.fate.reason()+" fate", true)
		note("dead at once", p.dead(1))
		note("four failures", p.failures == 4)
		note("direct", p.entrance == viaTier)
		note("direct with due time", p.entrance == viaTierWithDue)
		for n := 1; n <= p.failures; n++ {
			note("wish "+string('0'+rune(p.wishes[n].kind)), true)
		}
		names := map[string]bool{}
		for _, h := range r.Headers {
			note("null header", h.Value == nil)
			note("empty header", h.Value != nil && len(h.Value) == 0)
			note("header without name", h.Key == "")
			note("header name that is no UTF-8", h.Key == "\xff\xfe")
			note("unknown own header", h.Key == "redrive-of-the-future")
			note("two headers of one name", names[h.Key])
			if names[h.Key] && stage.OwnHeaders[h.Key] {
				t.Fatalf("record %d has %s twice", id, h.Key)
			}
			names[h.Key] = true
		}
	}
	for _, what := range []string{
		"null key", "empty key", "null value", "empty value", "large value", "named", "without position", "handed over twice",
		" fate", "exhausted fate", "poison fate", "permanent fate", "dead at once", "four failures", "direct", "direct with due time",
		"wish 0", "wish 1", "wish 2", "wish 3", "null header", "empty header", "header without name", "header name that is no UTF-8",
		"unknown own header", "two headers of one name",
	} {
		if !seen[what] {
			t.Errorf("no record of 20,000 is of the kind %q", what)
		}
	}
}

func TestAHandOverChangesNothingThatIsNotOurs(t *testing.T) {
	w := newWorkload(t, 6)
	for id := range uint32(2000) {
		p := w.plan(id)
		copied := w.record(id, time.Now())
		if got := stage.Difference(copied, w.handOver(&p, copied, 2, time.Now())); got != "" {
			t.Fatalf("record %d: %s", id, got)
		}
	}
}

func TestEveryChangeOfBytesIsADifference(t *testing.T) {
	record := func() *kgo.Record {
		return &kgo.Record{Key: []byte{}, Value: []byte("value"), Headers: []kgo.RecordHeader{
			{Key: "a", Value: []byte("1")},
			{Key: "redrive-attempt", Value: []byte("1")},
			{Key: "a", Value: []byte{}},
			{Key: "", Value: nil},
			{Key: "redrive-of-the-future", Value: []byte("2")},
		}}
	}
	tests := []struct {
		name   string
		change func(*kgo.Record)
		same   bool
	}{
		{"nothing", func(*kgo.Record) {}, true},
		{"an own header changed", func(r *kgo.Record) { r.Headers[1].Value = []byte("2") }, true},
		{"an own header gone", func(r *kgo.Record) { r.Headers = slices.Delete(r.Headers, 1, 2) }, true},
		{"an own header added", func(r *kgo.Record) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "redrive-message-id", Value: []byte("x")})
		}, true},
		{"empty key null", func(r *kgo.Record) { r.Key = nil }, false},
		{"key changed", func(r *kgo.Record) { r.Key = []byte("k") }, false},
		{"value null", func(r *kgo.Record) { r.Value = nil }, false},
		{"value cut", func(r *kgo.Record) { r.Value = r.Value[:4] }, false},
		{"header gone", func(r *kgo.Record) { r.Headers = r.Headers[1:] }, false},
		{"last header gone", func(r *kgo.Record) { r.Headers = r.Headers[:4] }, false},
		{"header added", func(r *kgo.Record) { r.Headers = append(r.Headers, kgo.RecordHeader{Key: "b"}) }, false},
		{"header value changed", func(r *kgo.Record) { r.Headers[0].Value = []byte("2") }, false},
		{"header name changed", func(r *kgo.Record) { r.Headers[0].Key = "A" }, false},
		{"empty header null", func(r *kgo.Record) { r.Headers[2].Value = nil }, false},
		{"null header empty", func(r *kgo.Record) { r.Headers[3].Value = []byte{} }, false},
		{"order of one name", func(r *kgo.Record) { r.Headers[0], r.Headers[2] = r.Headers[2], r.Headers[0] }, false},
		{"unknown own header gone", func(r *kgo.Record) { r.Headers = r.Headers[:4] }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			changed := record()
			test.change(changed)
			if got := stage.Difference(record(), changed); (got == "") != test.same {
				t.Errorf("difference %q, want none: %v", got, test.same)
			}
		})
	}
}

func TestWhatIsReadBecomesAnEntry(t *testing.T) {
	w := newWorkload(t, 7)
	now := time.UnixMilli(start)
	newHistory := func() *history { return &history{work: w, table: w.topics(), produced: 100} }
	tier := uint8(slices.IndexFunc(w.topics(), func(i topicInfo) bool { return i.role == roleTier && i.tier == 1 }))
	read := func(id uint32, own ...kgo.RecordHeader) *kgo.Record {
		r := w.record(id, now)
		r.Headers = slices.DeleteFunc(r.Headers, func(h kgo.RecordHeader) bool { return stage.OwnHeaders[h.Key] })
		r.Headers = append(r.Headers, own...)
		r.Partition, r.Offset, r.Timestamp = 2, 77, now
		return r
	}

	t.Run("whole", func(t *testing.T) {
		h := newHistory()
		h.add(tier, read(8,
			kgo.RecordHeader{Key: "redrive-message-id", Value: []byte("name")},
			kgo.RecordHeader{Key: "redrive-attempt", Value: []byte("3")},
			kgo.RecordHeader{Key: "redrive-available-at", Value: []byte(stamp(now.Add(time.Second)))},
			kgo.RecordHeader{Key: "redrive-reason", Value: []byte("poison")}))
		want := []entry{{
			id: 8, topic: tier, partition: 2, offset: 77, time: start, due: start + 1000, name: hashOf("name"), attempt: 3, fate: poison,
		}}
		if diff := cmp.Diff(want, h.entries, cmp.AllowUnexported(entry{})); diff != "" || h.corrupted != 0 {
			t.Errorf("entries (-want +got):\n%s%v", diff, h.corrupt)
		}
	})
	t.Run("without an attempt it has that of its tier", func(t *testing.T) {
		h := newHistory()
		h.add(tier, read(8))
		if h.entries[0].attempt != 2 {
			t.Errorf("attempt %d, want 2", h.entries[0].attempt)
		}
	})
	t.Run("in an inbox it is about the next failure", func(t *testing.T) {
		h := newHistory()
		h.add(0, read(8, kgo.RecordHeader{Key: "redrive-attempt", Value: []byte("2")}))
		if h.entries[0].attempt != 3 {
			t.Errorf("attempt %d, want 3", h.entries[0].attempt)
		}
	})
	t.Run("changed bytes are told", func(t *testing.T) {
		h := newHistory()
		r := read(8)
		r.Key = append(bytes.Clone(r.Key), 'x')
		h.add(tier, r)
		if h.corrupted != 1 || len(h.corrupt) != 1 || len(h.entries) != 1 {
			t.Errorf("%d corrupt, told %q, %d entries", h.corrupted, h.corrupt, len(h.entries))
		}
	})
	t.Run("a stranger is told", func(t *testing.T) {
		h := newHistory()
		h.add(tier, &kgo.Record{Value: []byte("abc")})
		h.add(tier, read(100))
		if h.corrupted != 2 || len(h.strangers) != 2 || len(h.entries) != 0 {
			t.Errorf("%d corrupt, told %q, %d entries", h.corrupted, h.strangers, len(h.entries))
		}
	})
}

func TestCommitMetadataThatIsNotTheForwardersIsRefused(t *testing.T) {
	text, _ := ordering.Ranges{{From: 12, To: 14}}.AppendText([]byte("redrive/1 3 "), 10, 4000)
	got, err := parseMetadata(string(text), 10)
	if diff := cmp.Diff(ordering.Ranges{{From: 12, To: 14}}, got); diff != "" || err != nil {
		t.Errorf("ranges (-want +got):\n%s%v", diff, err)
	}
	for _, bad := range []string{"", "redrive/1", "redrive/2 3 ", "redrive/1 3 !", "redrive/1 3 " + base64.RawStdEncoding.EncodeToString([]byte{0, 1})} {
		if _, err := parseMetadata(bad, 10); err == nil {
			t.Errorf("metadata %q is taken", bad)
		}
	}
}
