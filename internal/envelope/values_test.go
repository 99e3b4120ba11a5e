package envelope

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTimeOfTheFastPathIsTheTimeOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	// Every day of 401 years around the epoch, and the ends of what four digits of a year can say.
	for day := time.Date(1799, 12, 31, 23, 59, 58, 987_000_000, time.UTC); day.Year() < 2201; day = day.AddDate(0, 0, 1) {
		text := []byte(day.Format(timeLayout))
		if got, ok := parseTime(text); !ok || !got.Equal(day) || got.Location() != time.UTC {
			t.Fatalf("parseTime(%s) = %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"0000-01-01T00:00:00.000Z", "0000-03-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "2024-02-29T12:00:00.000Z"} {
		want, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := parseTime([]byte(text)); !ok || !got.Equal(want) {
			t.Errorf("parseTime(%s) = %v, %v, want %v", text, got, ok, want)
		}
	}
}

func TestTimeIsReadOnlyIfTheStandardLibraryReadsIt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(time.UnixMilli(rapid.Int64Range(-62135596800000, 253402300799999).Draw(t, "ms")).UTC().Format(timeLayout))
		for range rapid.IntRange(0, 3).Draw(t, "edits") {
			text[rapid.IntRange(0, len(text)-1).Draw(t, "at")] = rapid.SampledFrom([]byte("0123459-:.TZz+ x\x00\xff")).Draw(t, "byte")
		}
		var want time.Time
		wantOK := want.UnmarshalText(text) == nil
		got, ok := parseTime(text)
		if ok != wantOK || (ok && !got.Equal(want)) {
			t.Fatalf("parseTime(%q) = %v, %v; the standard library says %v, %v", text, got, ok, want, wantOK)
		}
	})
}

func TestTimeTakesOffsetsAndFractions(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, text := range []string{"2026-03-04T05:06:07Z", "2026-03-04T06:06:07+01:00", "2026-03-04T05:06:07.000000Z"} {
		if got, ok := parseTime([]byte(text)); !ok || !got.Equal(want) {
			t.Errorf("parseTime(%s) = %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "now", "1772600767", "NaN", "2026-03-04", "2026-03-04 05:06:07Z", "2026-13-04T05:06:07.000Z", "2026-02-30T05:06:07.000Z",
		"2026-03-04T24:06:07.000Z", "2026-03-04T05:06:60.000Z", "99999-03-04T05:06:07Z",
		"2026-03-04T05:06:07." + strings.Repeat("0", 100) + "Z",
	} {
		if got, ok := parseTime([]byte(text)); ok {
			t.Errorf("parseTime(%q) = %v, want refusal", text, got)
		}
	}
}

func TestWrittenTimeIsReadBackAndNeverEarlier(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300798).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		got, ok := parseUTCMillis(appendTime(nil, ceilMillis(at)))
		if !ok {
			// The last days of a month are read by the standard library.
			got, ok = parseTime(appendTime(nil, ceilMillis(at)))
		}
		if !ok || got.Before(at) || got.Sub(at) >= time.Millisecond {
			t.Fatalf("%v was written and read as %v, %v", at, got, ok)
		}
	})
	for _, at := range []time.Time{time.Unix(math.MaxInt32*100_000, 0), time.Unix(-math.MaxInt32*100_000, 0)} {
		if text := appendTime(nil, at); len(text) != 24 {
			t.Errorf("a year without four digits was written as %s", text)
		}
	}
}

func TestRetryAfterTakesSecondsAndDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0": 0, "90": 90 * time.Second, "007": 7 * time.Second, "1.5": 1500 * time.Millisecond, "0.0000000019": 1,
		"90s": 90 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "1.5h": 90 * time.Minute,
		"2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "0d0s": 0,
		"9223372035":           9223372035 * time.Second,
		"9223372036":           math.MaxInt64,
		"9999999999":           math.MaxInt64,
		"9223372036854775807":  math.MaxInt64,
		"99999999999999999999": math.MaxInt64,
		"9999999999h":          math.MaxInt64,
		"99999999999999999d":   math.MaxInt64,
		"106751d":              106751 * 24 * time.Hour,
		"106751d23h59m":        math.MaxInt64,
		"1d9999999999h":        math.MaxInt64,
	} {
		got, ok := parseRetryAfter([]byte(text))
		if !ok || got != want {
			t.Errorf("parseRetryAfter(%q) = %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", " 5", "5 ", "-5", "+5", "-5s", "1.", ".5", "1.5.5", "NaN", "Inf", "1e3", "0x10", "d", "1dd", "-1d", "1d-1h", "5 minutes", "PT5S", "\x00",
		"00000000000000000000000000000000000005", strings.Repeat("9", 1000),
	} {
		if got, ok := parseRetryAfter([]byte(text)); ok {
			t.Errorf("parseRetryAfter(%q) = %v, want refusal", text, got)
		}
	}
}

func TestNumbersAreDigitsWithinTheirRange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "7": 7, "007": 7, "2147483647": math.MaxInt32} {
		if got, ok := parseInt([]byte(text), maxInt32); !ok || got != want {
			t.Errorf("parseInt(%q) = %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "NaN", "2147483648", "9223372036854775807", "9223372036854775808",
		"\x00\x00\x00\x01", "\xff\xff\xff\xff\xff\xff\xff\xff\xff", strings.Repeat("0", 100),
	} {
		if got, ok := parseInt([]byte(text), maxInt32); ok {
			t.Errorf("parseInt(%q) = %d, want refusal", text, got)
		}
	}
	if got, ok := parseInt([]byte("9223372036854775807"), maxInt64); !ok || got != math.MaxInt64 {
		t.Errorf("the largest offset is read as %d, %v", got, ok)
	}
}

func TestErrorTextIsCutToValidUTF8(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, in, want string }{
		{"short", "boom", "boom"},
		{"empty", "", ""},
		{"exact", strings.Repeat("x", MaxText), strings.Repeat("x", MaxText)},
		{"long", strings.Repeat("x", MaxText+1), strings.Repeat("x", MaxText)},
		{"character on the edge", strings.Repeat("x", MaxText-1) + "\u20ac", strings.Repeat("x", MaxText-1)},
		{"no text", "a\xffb", "a\uFFFDb"},
		{"megabyte", strings.Repeat("\u20ac", 1<<20), strings.Repeat("\u20ac", MaxText/3)},
	} {
		if got := cutText([]byte(test.in)); string(got) != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	if cutText(nil) != nil {
		t.Error("nil became empty")
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.Byte(), 0, 3*MaxText).Draw(t, "text")
		got := cutText(in)
		if len(got) > MaxText || !utf8.Valid(got) || !bytes.Equal(cutText(got), got) {
			t.Fatalf("%d bytes became %d, valid %v", len(in), len(got), utf8.Valid(got))
		}
	})
}
