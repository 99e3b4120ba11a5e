package deadletter

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

func header(name, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: name, Value: []byte(value)}
}

// full is a record as the forwarder writes it.
func full() *kgo.Record {
	return &kgo.Record{
		Topic: "orders.dlt", Partition: 3, Offset: 42, Timestamp: time.UnixMilli(1796040915802),
		Key: []byte("customer-7"), Value: []byte(`{"id":12}`),
		Headers: []kgo.RecordHeader{
			header("trace", "abc"),
			header("Schema-Version", "7"),
			header(envelope.HeaderMessageID, "orders/1/17"),
			header(envelope.HeaderOriginalTopic, "orders"),
			header(envelope.HeaderOriginalPartition, "1"),
			header(envelope.HeaderOriginalOffset, "17"),
			header(envelope.HeaderOriginalTimestamp, "2026-11-30T22:10:00.123Z"),
			header(envelope.HeaderOriginalPartitions, "12"),
			header(envelope.HeaderAttempt, "4"),
			header(envelope.HeaderDeliveries, "9"),
			header(envelope.HeaderFailedAt, "2026-11-30T23:10:00.5+01:00"),
			header(envelope.HeaderErrorType, "java.lang.IllegalStateException"),
			header(envelope.HeaderErrorMessage, "Order 4711 not found"),
			header(envelope.HeaderConsumer, "pod-1"),
			header(envelope.HeaderGroup, "shipping"),
			header(envelope.HeaderReason, "exhausted"),
			header(envelope.HeaderReplayID, "0190"),
			header(envelope.HeaderReplayCount, "2"),
		},
	}
}

func TestLetterSaysWhatTheRecordSays(t *testing.T) {
	r := full()
	id := TopicID{1, 2, 3}
	want := Letter{
		Place:     Place{TopicID: id, Topic: "orders.dlt", Partition: 3, Offset: 42},
		MessageID: "orders/1/17", Key: []byte("customer-7"),
		Origin: "orders", OriginPartition: 1, OriginOffset: 17, OriginPartitions: 12,
		OriginTimestamp: time.Date(2026, 11, 30, 22, 10, 0, 123e6, time.UTC),
		Group:           "shipping", Reason: envelope.ReasonExhausted,
		ErrorType: "java.lang.IllegalStateException", ErrorText: "Order 4711 not found",
		Fingerprint: Fingerprint("java.lang.IllegalStateException", "Order 99 not found"),
		Label:       "7", Attempt: 4, Deliveries: 9, ReplayID: "0190", ReplayCount: 2,
		FailedAt: time.Date(2026, 11, 30, 22, 10, 0, 500e6, time.UTC),
		DeadAt:   time.UnixMilli(1796040915802).UTC(),
		Size:     sizeOf(r), Digest: Digest(r.Key, r.Value, r.Headers),
		State: Dead, Copy: Target{Partition: -1, Offset: -1},
	}
	if diff := cmp.Diff(want, FromRecord(r, id, "elsewhere", "schema-version")); diff != "" {
		t.Error(diff)
	}
	reader := NewReader(id, "elsewhere", "schema-version")
	for range 3 {
		if diff := cmp.Diff(want, reader.Letter(r)); diff != "" {
			t.Error(diff)
		}
	}
	if MessageID(r) != "orders/1/17" {
		t.Errorf("the message id is %q", MessageID(r))
	}
}

func TestLetterOfARecordThatSaysNothing(t *testing.T) {
	r := &kgo.Record{Topic: "orders.dlt", Partition: 3, Offset: 42, Timestamp: time.UnixMilli(-1)}
	want := Letter{
		Place:     Place{Topic: "orders.dlt", Partition: 3, Offset: 42},
		MessageID: "orders.dlt/3/42", Origin: "orders", OriginPartition: -1, OriginOffset: -1,
		Fingerprint: Fingerprint("", ""), DeadAt: time.UnixMilli(0).UTC(),
		Digest: Digest[Header](nil, nil, nil), State: Dead, Copy: Target{Partition: -1, Offset: -1},
	}
	if diff := cmp.Diff(want, FromRecord(r, TopicID{}, "orders", "")); diff != "" {
		t.Error(diff)
	}
	if MessageID(r) != "" {
		t.Errorf("the message id is %q", MessageID(r))
	}
}

func TestLetterOfABadRecordIsValid(t *testing.T) {
	change := func(name, value string) func(*kgo.Record) {
		return func(r *kgo.Record) {
			for i := range r.Headers {
				if r.Headers[i].Key == name {
					r.Headers[i].Value = []byte(value)
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*kgo.Record)
		check  func(Letter) bool
	}{
		{"message id with NUL", change(envelope.HeaderMessageID, "a\x00b"), func(l Letter) bool { return l.MessageID == "a\uFFFDb" }},
		{"message id that is no text", change(envelope.HeaderMessageID, "a\xffb"), func(l Letter) bool { return l.MessageID == "orders.dlt/3/42" }},
		{"message id full of NUL", change(envelope.HeaderMessageID, strings.Repeat("\x00", 1024)), func(l Letter) bool { return l.MessageID == strings.Repeat("\uFFFD", 341) }},
		{"error text that is no text", change(envelope.HeaderErrorMessage, "a\xffb\x00c"), func(l Letter) bool { return l.ErrorText == "a\uFFFDb\uFFFDc" }},
		{"error text of a megabyte", change(envelope.HeaderErrorMessage, strings.Repeat("\u20ac", 1<<18)), func(l Letter) bool { return l.ErrorText == strings.Repeat("\u20ac", 341) }},
		{"label that is long", change("Schema-Version", strings.Repeat("\u20ac", 100)), func(l Letter) bool { return l.Label == strings.Repeat("\u20ac", 85) }},
		{"label that is no text", change("Schema-Version", "\x00\xff"), func(l Letter) bool { return l.Label == "\uFFFD\uFFFD" }},
		{"numbers out of range", change(envelope.HeaderAttempt, "99999999999"), func(l Letter) bool { return l.Attempt == 0 }},
		{"failed before there were computers", change(envelope.HeaderFailedAt, "0001-01-02T00:00:00Z"), func(l Letter) bool { return l.FailedAt.IsZero() }},
		{"failed after all of us", func(r *kgo.Record) { r.Timestamp = time.UnixMilli(1796040915802000) }, func(l Letter) bool { return l.DeadAt.Equal(time.UnixMilli(0)) }},
		{"action alone", func(r *kgo.Record) { r.Headers = []kgo.RecordHeader{header(envelope.HeaderAction, "dead")} }, func(l Letter) bool { return l.Reason == envelope.ReasonPermanent }},
		{"pointer letter", func(r *kgo.Record) {
			r.Value, r.Headers = nil, append(r.Headers, header(envelope.HeaderLetterSource, "orders.retry/1/5"))
		}, func(l Letter) bool { return l.Pointer }},
		{"no pointer letter", func(r *kgo.Record) {
			r.Headers = append(r.Headers, header(envelope.HeaderLetterSource, "orders.retry/1/5"))
		}, func(l Letter) bool { return !l.Pointer }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := full()
			c.change(r)
			l := FromRecord(r, TopicID{}, "orders", "schema-version")
			if !c.check(l) {
				t.Errorf("%+v", l)
			}
			checkLetter(t, l)
		})
	}
}

// checkLetter is what a ledger may count on.
func checkLetter(t *testing.T, l Letter) {
	t.Helper()
	for _, s := range []string{l.MessageID, l.Origin, l.Group, string(l.Reason), l.ErrorType, l.ErrorText, l.Fingerprint, l.Label, l.ReplayID} {
		if len(s) > MaxErrorText || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			t.Errorf("%q is no text for a ledger", s)
		}
	}
	if l.MessageID == "" || l.Origin == "" || len(l.Label) > MaxLabel || len(l.Fingerprint) != 16 || l.State != Dead {
		t.Errorf("%+v", l)
	}
	for _, n := range []int{l.Attempt, l.Deliveries, l.ReplayCount} {
		if n < 0 || n > envelope.MaxCount {
			t.Errorf("%d is out of range", n)
		}
	}
	if l.OriginPartition < -1 || l.OriginOffset < -1 || l.OriginPartitions < 0 {
		t.Errorf("%+v", l)
	}
	for _, at := range []time.Time{l.OriginTimestamp, l.FailedAt, l.DeadAt} {
		if !at.IsZero() && (at.Before(earliest) || !at.Before(latest)) {
			t.Errorf("%v is no time for a ledger", at)
		}
	}
	if l.DeadAt.IsZero() {
		t.Error("it died never")
	}
}

func TestDigestTellsEveryByteAndNilFromEmpty(t *testing.T) {
	// The layout outlives the code: this is what it is, written down a second time.
	by := sha256.New()
	part := func(b []byte, null bool) {
		n := uint64(len(b))
		if null {
			n = 1<<64 - 1
		}
		for shift := 56; shift >= 0; shift -= 8 {
			by.Write([]byte{byte(n >> shift)})
		}
		by.Write(b)
	}
	part([]byte("key"), false)
	part(nil, true)
	part([]byte("name"), false)
	part(nil, true)
	part([]byte("name"), false)
	part([]byte{}, false)
	want := [sha256.Size]byte(by.Sum(nil))
	headers := []Header{{"name", nil}, {"name", []byte{}}}
	if got := Digest([]byte("key"), nil, headers); got != want {
		t.Errorf("got %x, want %x", got, want)
	}

	large := bytes.Repeat([]byte("x"), 3*digestBuffer)
	seen := map[[sha256.Size]byte]int{}
	for i, r := range []kgo.Record{
		{},
		{Key: []byte{}},
		{Value: []byte{}},
		{Key: []byte("ab")},
		{Value: []byte("ab")},
		{Key: []byte("a"), Value: []byte("b")},
		{Headers: []kgo.RecordHeader{{Key: ""}}},
		{Headers: []kgo.RecordHeader{{Key: "", Value: []byte{}}}},
		{Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("b")}}},
		{Headers: []kgo.RecordHeader{{Key: "ab", Value: []byte{}}}},
		{Headers: []kgo.RecordHeader{{Key: "a"}, {Key: "b"}}},
		{Headers: []kgo.RecordHeader{{Key: "b"}, {Key: "a"}}},
		{Value: large},
		{Value: large[1:]},
	} {
		d := Digest(r.Key, r.Value, r.Headers)
		if other, ok := seen[d]; ok {
			t.Errorf("records %d and %d have one digest", other, i)
		}
		seen[d] = i
		p := PayloadOf(&r)
		if Digest(p.Key, p.Value, p.Headers) != d {
			t.Errorf("the payload of record %d has another digest", i)
		}
	}
}

func TestReaderForgetsAndStaysRight(t *testing.T) {
	reader := NewReader(TopicID{}, "orders", "")
	for i := range 3 * maxShared {
		r := full()
		text := fmt.Sprintf("word%s %d", strings.Repeat("x", i%7), i)
		for k := range r.Headers {
			if r.Headers[k].Key == envelope.HeaderErrorMessage {
				r.Headers[k].Value = []byte(text)
			}
		}
		if diff := cmp.Diff(FromRecord(r, TopicID{}, "orders", ""), reader.Letter(r)); diff != "" {
			t.Fatal(diff)
		}
	}
	if len(reader.texts) > maxShared || len(reader.prints) > maxShared {
		t.Errorf("%d texts and %d fingerprints are kept", len(reader.texts), len(reader.prints))
	}
}

func FuzzFromRecord(f *testing.F) {
	f.Add([]byte("k"), []byte("v"), envelope.HeaderMessageID, []byte("id"), envelope.HeaderErrorMessage, []byte("text 12"), int64(1796040915802))
	f.Add([]byte(nil), []byte(nil), envelope.HeaderLetterSource, []byte("a/1/2"), envelope.HeaderFailedAt, []byte("9999-12-31T23:59:59Z"), int64(-1))
	f.Add([]byte{}, []byte{}, "label", []byte("\x00\xff"), envelope.HeaderOriginalTopic, []byte("a\x00b"), int64(1<<62))
	f.Fuzz(func(t *testing.T, key, value []byte, name1 string, value1 []byte, name2 string, value2 []byte, millis int64) {
		r := &kgo.Record{
			Topic: "orders.dlt", Partition: 1, Offset: 2, Key: key, Value: value, Timestamp: time.UnixMilli(millis),
			Headers: []kgo.RecordHeader{{Key: name1, Value: value1}, {Key: name2, Value: value2}, {Key: name1, Value: value2}},
		}
		l := FromRecord(r, TopicID{9}, "orders", "label")
		checkLetter(t, l)
		if !bytes.Equal(l.Key, key) || (l.Key == nil) != (key == nil) {
			t.Errorf("the key %q has become %q", key, l.Key)
		}
		reader := NewReader(TopicID{9}, "orders", "label")
		for range 2 {
			if diff := cmp.Diff(l, reader.Letter(r)); diff != "" {
				t.Error(diff)
			}
		}
		if id := MessageID(r); id != "" && id != l.MessageID {
			t.Errorf("the message id is %q, and %q in the letter", id, l.MessageID)
		}
	})
}

func BenchmarkLetter(b *testing.B) {
	for _, size := range []int{100, 1000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			r := full()
			r.Value = bytes.Repeat([]byte("x"), size)
			reader := NewReader(TopicID{1}, "orders", "schema-version")
			b.ReportAllocs()
			for b.Loop() {
				reader.Letter(r)
			}
		})
	}
	b.Run("text of its own", func(b *testing.B) {
		reader := NewReader(TopicID{1}, "orders", "schema-version")
		records := make([]*kgo.Record, 5000)
		for i := range records {
			records[i] = full()
			for k := range records[i].Headers {
				if records[i].Headers[k].Key == envelope.HeaderErrorMessage {
					records[i].Headers[k].Value = fmt.Appendf(nil, "Order %d of customer 'c%d' not found in warehouse 17 after 3 attempts", i, i)
				}
			}
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			reader.Letter(records[i%len(records)])
		}
	})
}

func BenchmarkDigest(b *testing.B) {
	r := full()
	r.Value = bytes.Repeat([]byte("x"), 1000)
	b.ReportAllocs()
	for b.Loop() {
		Digest(r.Key, r.Value, r.Headers)
	}
}
