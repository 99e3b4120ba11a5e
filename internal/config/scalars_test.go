package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurationIsWrittenInItsShortestForm(t *testing.T) {
	for text, want := range map[string]string{
		"500ms": "500ms", "10s": "10s", "60s": "1m", "90s": "90s", "1m30s": "90s", "1h30m": "90m", "24h": "1d", "7d": "7d", "1w": "7d",
		"36h": "36h", "1s1ms": "1001ms", "0": "0s", "0s": "0s",
	} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if d.String() != want {
			t.Errorf("%s is written %s, want %s", text, d, want)
		}
	}
}

func TestDurationThatIsNoneIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "is not a duration",
		"10":                    "needs a unit",
		"1.5":                   "needs a unit",
		"1.5h":                  "is not a duration",
		"1s1m":                  "is not a duration",
		"10 s":                  "is not a duration",
		"10us":                  "is not a duration",
		"-1s":                   "must not be negative",
		"99999999999999999999s": "is not a duration",
	} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

func TestBytesAreReadWithTheirUnit(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "7": 7, "7B": 7, "512KiB": 512 << 10, "64MiB": 64 << 20, "3GiB": 3 << 30, "1TiB": 1 << 40} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%s: %d, %v, want %d", text, b, err, want)
		}
	}
	for _, text := range []string{"", "B", "KiB", "1KB", "1kib", "1.5MiB", "+1", "-1", "1 MiB", "1iB", "1KiBKiB", "8388608TiB", "9223372036854775808"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %d", text, b)
		}
	}
}

func TestNumberIsReadWithAndWithoutAFraction(t *testing.T) {
	read := func(text string) (float64, error) {
		c, err := Load(Source{Path: write(t, strings.TrimSuffix(threeLines, "\n")+"\n    rateLimit: "+text+"\n")})
		if err != nil {
			return 0, err
		}
		return c.Topics[0].RateLimit, nil
	}
	for text, want := range map[string]float64{"0": 0, "0.0": 0, "7": 7, "0.5": 0.5, "1000000": 1e6, "1.5e+3": 1500, "2.5e-1": 0.25, "0.001": 0.001} {
		if got, err := read(text); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"-1": "must not be negative", "-0.5": "must not be negative", "'5'": "must be a number, not text", "5/s": "must be a number, not text",
		".inf": "must be a number, not infinity", ".nan": "must be a number, not NaN", "true": "must be a number, not true or false",
		"~": "a number is expected", "0x10": "is not a number", "1_000": "is not a number", "+5": "is not a number",
		"0.0001": "is not between 0.001 and 1000000000", "1.0e+10": "is not between", "1.0e+999": "must be a number", "1e3": "must be a number, not text",
	} {
		if got, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want an error with %q", text, got, err, want)
		}
	}
}

func TestWrittenScalarsReadBackTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Range(0, 1<<40).Draw(t, "ms")) * Duration(time.Millisecond)
		var gotD Duration
		if err := gotD.UnmarshalText([]byte(d.String())); err != nil || gotD != d {
			t.Fatalf("%d: %s, %d, %v", d, d, gotD, err)
		}
		b := Bytes(rapid.Int64Range(0, 1<<20).Draw(t, "bytes") << rapid.IntRange(0, 40).Draw(t, "shift"))
		var gotB Bytes
		if err := gotB.UnmarshalText([]byte(b.String())); err != nil || gotB != b {
			t.Fatalf("%d: %s, %d, %v", b, b, gotB, err)
		}
		n := rapid.Float64Range(0, 1e9).Draw(t, "number")
		text := yamlValue(reflect.ValueOf(n))
		if gotN, err := parseNumber(text); err != nil || gotN != n {
			t.Fatalf("%v: %s, %v, %v", n, text, gotN, err)
		}
	})
}

func TestSecretIsNeverPrinted(t *testing.T) {
	const s = Secret("hunter2")
	sasl := SASL{Password: s, OAuth: OAuth{Token: s, ClientSecret: s}, AWSMSKIAM: AWSMSKIAM{SecretKey: s, SessionToken: s}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10s", "%T %v"} {
		args := []any{s, s}[:strings.Count(verb, "%")]
		fmt.Fprintf(&out, verb+"\n", args...)
		fmt.Fprintf(&out, verb+"\n", []any{sasl, &sasl}[:len(args)]...)
	}
	for _, v := range []any{s, sasl, &sasl, map[string]any{"password": s}, []Secret{s}} {
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(encoded)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", s, "sasl", sasl)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", s, "sasl", sasl)
	for _, leak := range []string{"hunter2", "68756e74657232", "68756E74657232"} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("%s is printed:\n%s", leak, out.String())
		}
	}
	if !strings.Contains(out.String(), redacted) {
		t.Error("nothing says that a secret is set")
	}
	if Secret("").String() != "" || s.Reveal() != "hunter2" {
		t.Error("an empty secret prints as set, or a set one can not be used")
	}
}

func TestOnlyOrderingNoneIsAvailable(t *testing.T) {
	var o Ordering
	for _, text := range []string{"key", "strict"} {
		if err := o.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "not available in this version") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := o.UnmarshalText([]byte("none")); err != nil || o != OrderingNone {
		t.Errorf("none: %q, %v", o, err)
	}
}
