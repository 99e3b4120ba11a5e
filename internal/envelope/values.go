package envelope

import (
	"bytes"
	"math"
	"time"
	"unicode/utf8"
)

const (
	maxInt32 = math.MaxInt32
	maxInt64 = math.MaxInt64

	// maxDigits is the length of the largest int64. maxWait and maxTime are longer than any sane duration or timestamp.
	maxDigits = 19
	maxWait   = 32
	maxTime   = 40

	// timeLayout is RFC 3339 in UTC with milliseconds, the form that is written.
	timeLayout = "2006-01-02T15:04:05.000Z"
)

func isText(v []byte) bool { return len(v) <= MaxText && utf8.Valid(v) }

// parseInt reads a decimal number of 0 to limit, digits only.
func parseInt(v []byte, limit uint64) (int64, bool) {
	// No number of maxDigits digits overflows an uint64, so that one comparison at the end is enough.
	if len(v) == 0 || len(v) > maxDigits {
		return 0, false
	}
	var n uint64
	for _, c := range v {
		d := uint64(c) - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + d
	}
	return int64(n), n <= limit
}

// parseTime reads an RFC 3339 timestamp. The form that Redrive writes itself is read by hand, because every record of a
// tier carries two of them.
func parseTime(v []byte) (time.Time, bool) {
	if t, ok := parseUTCMillis(v); ok {
		return t, true
	}
	if len(v) > maxTime {
		return time.Time{}, false
	}
	var t time.Time
	// UnmarshalText is stricter than time.Parse and needs no string.
	if t.UnmarshalText(v) != nil {
		return time.Time{}, false
	}
	return t.UTC(), true
}

// parseUTCMillis reads exactly 2006-01-02T15:04:05.000Z. It leaves to others what it does not know, the last days of a
// month included.
func parseUTCMillis(v []byte) (time.Time, bool) {
	if len(v) != 24 {
		return time.Time{}, false
	}
	b := (*[24]byte)(v)
	if b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != '.' || b[23] != 'Z' {
		return time.Time{}, false
	}
	century, year, month, day := twoDigits(b[0], b[1]), twoDigits(b[2], b[3]), twoDigits(b[5], b[6]), twoDigits(b[8], b[9])
	hour, minute, second := twoDigits(b[11], b[12]), twoDigits(b[14], b[15]), twoDigits(b[17], b[18])
	tenth, hundredths := twoDigits('0', b[20]), twoDigits(b[21], b[22])
	if century > 99 || year > 99 || month-1 > 11 || day-1 > 29 || (day > 28 && month == 2) ||
		hour > 23 || minute > 59 || second > 59 || tenth > 9 || hundredths > 99 {
		return time.Time{}, false
	}
	seconds := daysSinceEpoch(century*100+year, month, day)*86400 + int64(hour*3600+minute*60+second)
	return time.Unix(seconds, int64(tenth*100+hundredths)*int64(time.Millisecond)).UTC(), true
}

// twoDigits reads a number of two digits; anything else is above 99.
func twoDigits(tens, ones byte) uint {
	t, o := uint(tens)-'0', uint(ones)-'0'
	if t > 9 || o > 9 {
		return 100
	}
	return t*10 + o
}

// daysSinceEpoch counts the days from 1970-01-01 to a date of the Gregorian calendar. Years are taken to start in
// March, so that the leap day is the last one; 719468 days lie between the first of them and the epoch. time.Date gives
// the same at several times the cost.
func daysSinceEpoch(year, month, day uint) int64 {
	// 400 years, which are 146097 days, keep the year 0 from becoming a negative one.
	year += 400
	if month <= 2 {
		year--
		month += 12
	}
	return int64(year*365+year/4-year/100+year/400+(153*(month-3)+2)/5+day-1) - 719468 - 146097
}

// appendTime writes t in the form that parseUTCMillis reads. What four digits of a year cannot say becomes the nearest
// instant that they can.
func appendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	switch y := t.Year(); {
	case y > 9999:
		t = time.Date(9999, 12, 31, 23, 59, 59, 999*int(time.Millisecond), time.UTC)
	case y < 0:
		t = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	dst = appendTwoDigits(appendTwoDigits(dst, year/100), year%100)
	dst = appendTwoDigits(append(dst, '-'), int(month))
	dst = appendTwoDigits(append(dst, '-'), day)
	dst = appendTwoDigits(append(dst, 'T'), hour)
	dst = appendTwoDigits(append(dst, ':'), minute)
	dst = appendTwoDigits(append(dst, ':'), second)
	millis := t.Nanosecond() / int(time.Millisecond)
	dst = append(dst, '.', byte('0'+millis/100))
	return append(appendTwoDigits(dst, millis%100), 'Z')
}

func appendTwoDigits(dst []byte, n int) []byte {
	return append(dst, byte('0'+n/10), byte('0'+n%10))
}

// ceilMillis rounds up to what the header can say: rounded down, a record could be forwarded early.
func ceilMillis(t time.Time) time.Time {
	if part := t.Nanosecond() % int(time.Millisecond); part != 0 {
		return t.Add(time.Millisecond - time.Duration(part))
	}
	return t
}

// parseRetryAfter reads a wait: seconds as a plain number, which may have a fraction, or a duration as Go writes it, to
// which "d" is added for days of 24 hours. A wait too long for a Duration is the longest Duration, so that it is cut
// like any other long wish instead of being taken for none.
func parseRetryAfter(v []byte) (time.Duration, bool) {
	if len(v) == 0 || len(v) > maxWait || v[0] == '-' || v[0] == '+' {
		return 0, false
	}
	if whole, fraction, ok := cutNumber(v); ok {
		if whole > maxInt64/int64(time.Second)-1 {
			return maxInt64, true
		}
		return time.Duration(whole)*time.Second + fraction, true
	}
	var days time.Duration
	if before, after, found := bytes.Cut(v, []byte("d")); found {
		n, ok := saturatingInt(before)
		if !ok {
			return 0, false
		}
		if n > maxInt64/int64(24*time.Hour) {
			return maxInt64, true
		}
		days, v = time.Duration(n)*24*time.Hour, after
		if len(v) == 0 {
			return days, true
		}
	}
	rest, err := time.ParseDuration(string(v))
	switch {
	case err != nil && isLongDuration(v):
		return maxInt64, true
	case err != nil || rest < 0:
		return 0, false
	case days > maxInt64-rest:
		return maxInt64, true
	}
	return days + rest, true
}

// cutNumber reads digits with an optional fraction, as seconds.
func cutNumber(v []byte) (whole int64, fraction time.Duration, ok bool) {
	before, after, dot := bytes.Cut(v, []byte("."))
	whole, ok = saturatingInt(before)
	if !ok || !dot {
		return whole, 0, ok
	}
	unit := time.Second / 10
	for _, c := range after {
		if c < '0' || c > '9' {
			return 0, 0, false
		}
		fraction += time.Duration(c-'0') * unit
		unit /= 10
	}
	return whole, fraction, len(after) > 0
}

// saturatingInt reads digits; a number too large for an int64 is the largest one.
func saturatingInt(v []byte) (int64, bool) {
	if len(v) == 0 {
		return 0, false
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, ok := parseInt(v, maxInt64)
	if !ok {
		return maxInt64, true
	}
	return n, true
}

// isLongDuration tells a duration that was refused for its size from one that is no duration: with shorter numbers it
// can be read.
func isLongDuration(v []byte) bool {
	short := make([]byte, 0, maxWait)
	digits := 0
	for _, c := range v {
		if c >= '0' && c <= '9' {
			if digits++; digits > 3 {
				continue
			}
		} else {
			digits = 0
		}
		short = append(short, c)
	}
	_, err := time.ParseDuration(string(short))
	return err == nil && len(short) < len(v)
}

func parseAction(v []byte) (Action, bool) {
	switch string(v) {
	case "retry":
		return ActionRetry, true
	case "dead":
		return ActionDead, true
	case "outage":
		return ActionOutage, true
	default:
		return ActionRetry, false
	}
}

func parseReason(v []byte) Reason {
	// Each case returns a constant: a conversion of v would allocate.
	switch string(v) {
	case string(ReasonPoison):
		return ReasonPoison
	case string(ReasonPermanent):
		return ReasonPermanent
	case string(ReasonExhausted):
		return ReasonExhausted
	case string(ReasonBlocked):
		return ReasonBlocked
	case string(ReasonMalformed):
		return ReasonMalformed
	case string(ReasonUnroutable):
		return ReasonUnroutable
	case string(ReasonTooLarge):
		return ReasonTooLarge
	case string(ReasonExpired):
		return ReasonExpired
	default:
		return ""
	}
}

// cutText shortens v to MaxText bytes of valid UTF-8. Bytes that are no text are replaced, and no character is split.
func cutText(v []byte) []byte {
	if isText(v) {
		return v
	}
	// What is beyond twice the limit cannot matter, and the text may be a megabyte.
	if len(v) > 2*MaxText {
		v = v[:2*MaxText]
	}
	v = bytes.ToValidUTF8(v, []byte("\uFFFD"))
	if len(v) <= MaxText {
		return v
	}
	n := MaxText
	for !utf8.RuneStart(v[n]) {
		n--
	}
	return v[:n:n]
}
