package envelope

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// decodeHeaders makes a list of headers of any bytes: a name (an own one by number, or free), then a value, which may be
// nil.
func decodeHeaders(data []byte) (headers []kgo.RecordHeader) {
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		n := int(data[0])
		data = data[1:]
		return n
	}
	take := func(n int) []byte {
		n = min(n, len(data))
		v := data[:n:n]
		data = data[n:]
		return v
	}
	for len(data) > 0 {
		var out kgo.RecordHeader
		switch n := next(); {
		case n < int(headerCount):
			out.Key = header(n).name()
		case n < 128:
			out.Key = prefix + string(take(n%16))
		default:
			out.Key = string(take(n % 16))
		}
		if n := next(); n > 0 {
			out.Value = take(n - 1)
		}
		headers = append(headers, out)
	}
	return headers
}

func encodeHeaders(headers []kgo.RecordHeader) (data []byte) {
	for _, h := range headers {
		if n := lookup(h.Key); n != unknown {
			data = append(data, byte(n))
		} else {
			data = append(append(data, byte(128+len(h.Key)%16)), h.Key...)
		}
		if h.Value == nil {
			data = append(data, 0)
			continue
		}
		data = append(append(data, byte(1+len(h.Value))), h.Value...)
	}
	return data
}

func foreign(headers []kgo.RecordHeader) (out []kgo.RecordHeader) {
	for _, h := range headers {
		if lookup(h.Key) == unknown {
			out = append(out, h)
		}
	}
	return out
}

// equal tells nil from empty values.
func equal(a, b []kgo.RecordHeader) bool {
	return slices.EqualFunc(a, b, func(a, b kgo.RecordHeader) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
	})
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkHeaders holds one list of headers against the promises of the package comment.
func checkHeaders(t failer, in []kgo.RecordHeader) {
	t.Helper()
	before := slices.Clone(in)
	for i := range before {
		before[i].Value = bytes.Clone(before[i].Value)
	}
	var e Envelope
	for _, kind := range []Kind{Return, Hop, Letter} {
		e.Parse(in)
		out := e.Append(nil, in, kind)
		if !equal(foreign(in), foreign(out)) {
			t.Fatalf("kind %d: foreign headers changed\nin:  %q\nout: %q", kind, show(in), show(out))
		}
		var seen headerSet
		for _, h := range out {
			n := lookup(h.Key)
			if n == unknown {
				continue
			}
			if seen.has(n) {
				t.Fatalf("kind %d: %s comes twice\nin: %q", kind, h.Key, show(in))
			}
			seen |= 1 << n
			if !kind.keeps().has(n) {
				t.Fatalf("kind %d keeps %s", kind, h.Key)
			}
			if len(h.Value) > max(MaxText, MaxRejected) {
				t.Fatalf("kind %d: %s has %d bytes", kind, h.Key, len(h.Value))
			}
			if first := firstPlace(in, h.Key); first >= 0 && first != firstPlace(out, h.Key) {
				t.Fatalf("kind %d: %s moved\nin:  %q\nout: %q", kind, h.Key, show(in), show(out))
			}
		}
		e.Parse(out)
		if n := e.Rejections(); n != 0 {
			t.Fatalf("kind %d: %d of the values written are not accepted\nout: %q", kind, n, show(out))
		}
		if again := e.Append(nil, out, kind); !equal(out, again) {
			t.Fatalf("kind %d: no fixed point\nin:  %q\nout: %q\nout: %q", kind, show(in), show(out), show(again))
		}
		e.Parse(in)
		smaller := e.Shorten()
		short := e.Append(nil, in, kind)
		if !equal(foreign(in), foreign(short)) || len(short) > len(out) || !smaller && !equal(out, short) {
			t.Fatalf("kind %d: shortened (%v)\nin:    %q\nout:   %q\nshort: %q", kind, smaller, show(in), show(out), show(short))
		}
	}
	if !equal(before, in) {
		t.Fatalf("the input changed: %q, was %q", show(in), show(before))
	}
}

// firstPlace returns how many foreign headers stand before the first header of that name, or -1 if there is none.
func firstPlace(headers []kgo.RecordHeader, name string) int {
	place := 0
	for _, h := range headers {
		if h.Key == name {
			return place
		}
		if lookup(h.Key) == unknown {
			place++
		}
	}
	return -1
}

func FuzzParse(f *testing.F) {
	var all []kgo.RecordHeader
	for _, row := range contract() {
		all = append(all, row.header)
	}
	f.Add([]byte(nil))
	f.Add(encodeHeaders(all))
	f.Add(encodeHeaders(append(all, all...)))
	f.Add(encodeHeaders([]kgo.RecordHeader{h("a", "1"), {Key: "a"}, h(HeaderAttempt, "-1"), h(HeaderAttempt, "1"), h(HeaderAvailableAt, "x"), h("", "")}))
	f.Add(encodeHeaders([]kgo.RecordHeader{h(HeaderDeliveries, "99999999999999999999"), h(HeaderDeliveries, "1"), h(HeaderLetterSource, "orders.dlt/0/9")}))
	f.Add(encodeHeaders([]kgo.RecordHeader{h(HeaderRejected, "[]"), h(HeaderRejected, `[{"omitted":3}]`), h(HeaderErrorMessage, "\xff\xfe")}))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkHeaders(t, decodeHeaders(data))
	})
}

// drawHeaders makes headers that are mostly plausible, repeats and broken values included.
func drawHeaders(t *rapid.T) []kgo.RecordHeader {
	values := rapid.OneOf(
		rapid.SampledFrom([]string{
			"", "0", "1", "2", "007", "-1", "1000000000", "9223372036854775807", "9223372036854775808", "NaN", "dead", "retry", "outage", "poison",
			"permanent", "exhausted", "10s", "90", "2d", "orders", "orders/3/42", "2026-03-04T05:06:07.089Z", "2026-03-04T06:06:07.089+01:00",
			"9999-12-31T23:59:59.999Z", "[]", `[{"name":"redrive-attempt","value":"eA=="}]`, `[{"omitted":1000000000}]`, "\xff\x00\xfe",
			"99999999999999999999", strings.Repeat("9", 5000),
		}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(1000, 5000), func(n int) string { return string(bytes.Repeat([]byte("\u20ac"), n/3)) }),
	)
	names := rapid.OneOf(
		rapid.Map(rapid.IntRange(0, int(headerCount)-1), func(n int) string { return header(n).name() }),
		rapid.SampledFrom([]string{"trace", "trace", "redrive-future", "redrive-", "Redrive-Attempt", ""}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) }),
	)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kgo.RecordHeader {
		out := kgo.RecordHeader{Key: names.Draw(t, "name")}
		if rapid.IntRange(0, 9).Draw(t, "nil") > 0 {
			out.Value = []byte(values.Draw(t, "value"))
		}
		return out
	}), 0, 80).Draw(t, "headers")
}

func TestAnyHeadersKeepThePromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { checkHeaders(t, drawHeaders(t)) })
}

func TestForeignHeadersAreTheSameBytesAfterThreeHops(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		in := drawHeaders(t)
		out := in
		var e Envelope
		for hop, kind := range []Kind{Hop, Hop, Return} {
			e.Parse(out)
			e.EnsureMessageID("orders.retry", 0, int64(hop))
			e.SetAttempt(e.Attempt + 1)
			e.SetAvailableAt(at.Add(time.Duration(hop) * time.Hour))
			out = e.Append(nil, out, kind)
		}
		if !equal(foreign(in), foreign(out)) {
			t.Fatalf("foreign headers changed\nin:  %q\nout: %q", show(in), show(out))
		}
	})
}
