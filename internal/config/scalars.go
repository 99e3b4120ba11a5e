package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// redacted stands for every secret that is set, wherever one is printed.
const redacted = "***"

// Duration is a time.Duration written with units from ms to d: 500ms, 10s, 1m, 1h30m, 7d.
type Duration time.Duration

// String writes the duration as a whole number of the largest unit that divides it: 10s, 90m, 7d.
// It is the shortest text that UnmarshalText reads back as the same value, for durations of whole milliseconds.
func (d Duration) String() string {
	ms := time.Duration(d).Milliseconds()
	if ms == 0 {
		return "0s"
	}
	for _, u := range []struct {
		ms   int64
		name string
	}{{24 * 3600 * 1000, "d"}, {3600 * 1000, "h"}, {60 * 1000, "m"}, {1000, "s"}} {
		if ms%u.ms == 0 {
			return strconv.FormatInt(ms/u.ms, 10) + u.name
		}
	}
	return strconv.FormatInt(ms, 10) + "ms"
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(d.String()), nil
}

// UnmarshalText reads a duration; the error names the form that is expected.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	if strings.HasPrefix(s, "-") {
		return errors.New("must not be negative")
	}
	parsed, err := model.ParseDuration(s)
	if err != nil {
		if _, numErr := strconv.ParseFloat(s, 64); numErr == nil {
			return errors.New("a duration needs a unit: 500ms, 10s, 1h30m, 7d")
		}
		return fmt.Errorf("%q is not a duration such as 500ms, 10s, 1h30m, 7d", s)
	}
	*d = Duration(parsed)
	return nil
}

// Bytes is a number of bytes written with a binary unit: 512KiB, 64MiB, 1GiB.
type Bytes int64

// String writes the number in the largest unit that divides it.
func (b Bytes) String() string {
	if b != 0 {
		for _, u := range byteUnits() {
			if int64(b)%u.size == 0 {
				return strconv.FormatInt(int64(b)/u.size, 10) + u.name
			}
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// MarshalText is String.
func (b Bytes) MarshalText() ([]byte, error) {
	return []byte(b.String()), nil
}

// UnmarshalText reads a number of bytes with an optional unit; the error names the form that is expected.
func (b *Bytes) UnmarshalText(text []byte) error {
	s := string(text)
	if strings.HasPrefix(s, "-") {
		return errors.New("must not be negative")
	}
	digits := strings.TrimRight(s, "BKMGTi")
	unit := s[len(digits):]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || digits[0] == '+' {
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%q is too large", s)
		}
		return fmt.Errorf("%q is not a number of bytes such as 512KiB, 64MiB, 1GiB", s)
	}
	if unit == "" || unit == "B" {
		*b = Bytes(n)
		return nil
	}
	for _, u := range byteUnits() {
		if u.name == unit {
			if n > math.MaxInt64/u.size {
				return fmt.Errorf("%q is too large", s)
			}
			*b = Bytes(n * u.size)
			return nil
		}
	}
	return fmt.Errorf("%q is not a number of bytes such as 512KiB, 64MiB, 1GiB", s)
}

type byteUnit struct {
	size int64
	name string
}

// byteUnits are the units with a name, the largest first.
func byteUnits() []byteUnit {
	return []byteUnit{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}}
}

// Secret is a string that prints as *** in every way Go prints a value; an empty one prints as nothing.
// Reveal is the one way to its content.
type Secret string

// Reveal returns the secret itself, for the client that authenticates with it.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString hides the secret.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// Format hides the secret from every verb; without it a wrong verb, as in %d, would print the content.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		text = s.GoString()
	}
	_, _ = f.Write([]byte(text)) // A fmt.State has no way to report an error.
}

// MarshalText hides the secret, from encoding/json as well.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON hides the secret.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(s.GoString()), nil }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Ordering is the order promised among records of one key. OrderingNone is the only one this version offers.
type Ordering string

// OrderingNone promises no order among records that wait.
const OrderingNone Ordering = "none"

// UnmarshalText accepts what this version offers, and says of the other known modes that they are not available.
func (o *Ordering) UnmarshalText(text []byte) error {
	switch s := string(text); s {
	case string(OrderingNone):
		*o = OrderingNone
		return nil
	case "key", "strict":
		return fmt.Errorf("ordering %q is not available in this version; only none is", s)
	default:
		return fmt.Errorf("%q is not an ordering; only none is available in this version", s)
	}
}

// UnmarshalText reads an extension as the environment writes it, key=value.
func (e *Extension) UnmarshalText(text []byte) error {
	key, value, ok := strings.Cut(string(text), "=")
	if !ok {
		return errors.New("an extension is written key=value") // The text may be a value alone, which is not for everybody.
	}
	*e = Extension{Key: key, Value: value}
	return nil
}

// UnmarshalText reads a token as the environment writes it: name:role:sha256, with :topic|topic where it is for some topics only.
func (t *Token) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ":")
	if len(parts) != 3 && len(parts) != 4 {
		return errors.New("a token is written name:role:sha256, with :topic|topic at the end where it is for some only") // Not shown: it may be the token itself.
	}
	*t = Token{Name: parts[0], Role: parts[1], SHA256: parts[2]}
	switch t.Role {
	case "viewer", "operator", "admin":
	default:
		return fmt.Errorf("%q is none of viewer, operator, admin", cut(t.Role))
	}
	if len(parts) == 4 {
		t.Topics = strings.Split(parts[3], "|")
	}
	return nil
}
