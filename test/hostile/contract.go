package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The limits of the wire contract.
const (
	maxCount = 1_000_000_000
	maxText  = 1024
	maxTopic = 249
)

// keeps says on which copies an own header stands: r on what returns, t in a tier, d on a dead letter. It is the table of
// the wire contract, written down a second time on purpose. All other headers are somebody else's.
func keeps() map[string]string {
	return map[string]string{
		"redrive-message-id":          "rtd",
		"redrive-original-topic":      "rtd",
		"redrive-original-partition":  "rtd",
		"redrive-original-offset":     "rtd",
		"redrive-original-timestamp":  "rtd",
		"redrive-original-partitions": "rtd",
		"redrive-attempt":             "rtd",
		"redrive-deliveries":          "rtd",
		"redrive-group":               "rtd",
		"redrive-replay-id":           "rtd",
		"redrive-replay-count":        "rtd",
		"redrive-replayed-from":       "rtd",
		"redrive-parent-id":           "rtd",
		"redrive-lane-offset":         "rtd",
		"redrive-available-at":        "t",
		"redrive-failed-at":           "td",
		"redrive-error-type":          "td",
		"redrive-error-message":       "td",
		"redrive-consumer":            "td",
		"redrive-rejected":            "td",
		"redrive-reason":              "d",
		"redrive-action":              "",
		"redrive-retry-after":         "",
		"redrive-key":                 "",
		"redrive-value-null":          "",
		"redrive-held":                "",
		"redrive-letter-source":       "",
		"redrive-letter-digest":       "",
		"redrive-letter-bytes":        "",
	}
}

// standing is what came of the values of one header.
type standing uint8

const (
	absent  standing = iota
	good             // One of them counts.
	refused          // None does.
)

// claims are what the control headers of a record say, as far as the contract lets them.
type claims struct {
	id         string
	topic      string
	topicIs    standing
	partition  int64 // -1 if none counts.
	offset     int64
	attempt    int64
	deliveries int64
	at         time.Time
	atIs       standing
	wish       time.Duration
	wishIs     standing
	action     string // Empty if none counts.
	reason     string
}

// read reads the claims of a record.
func read(headers []kgo.RecordHeader) claims {
	c := claims{partition: -1, offset: -1, attempt: -1, deliveries: -1}
	text := func(limit int) func(string) (string, bool) {
		return func(v string) (string, bool) { return v, v != "" && len(v) <= limit && utf8.ValidString(v) }
	}
	number := func(limit int64) func(string) (int64, bool) {
		return func(v string) (int64, bool) {
			n, err := strconv.ParseUint(v, 10, 63)
			return int64(n), err == nil && isDigits(v) && len(v) <= 19 && int64(n) <= limit
		}
	}
	word := func(words ...string) func(string) (string, bool) {
		return func(v string) (string, bool) { return v, slices.Contains(words, v) }
	}
	c.id, _ = first(headers, "redrive-message-id", c.id, text(maxText))
	c.topic, c.topicIs = first(headers, "redrive-original-topic", c.topic, text(maxTopic))
	c.partition, _ = first(headers, "redrive-original-partition", c.partition, number(math.MaxInt32))
	c.offset, _ = first(headers, "redrive-original-offset", c.offset, number(math.MaxInt64))
	c.attempt, _ = first(headers, "redrive-attempt", c.attempt, number(maxCount))
	c.deliveries, _ = first(headers, "redrive-deliveries", c.deliveries, func(v string) (int64, bool) {
		// A count beyond all bounds is not none: the loop guard would be off.
		if n, ok := number(maxCount)(v); ok {
			return n, true
		}
		return maxCount, isDigits(v)
	})
	c.wish, c.wishIs = first(headers, "redrive-retry-after", c.wish, wait)
	c.action, _ = first(headers, "redrive-action", c.action, word("retry", "dead", "outage"))
	c.reason, _ = first(headers, "redrive-reason", c.reason, word(reasons()...))
	c.at, c.atIs = availableAt(headers)
	return c
}

func reasons() []string {
	return []string{"poison", "permanent", "exhausted", "blocked", "malformed", "unroutable", "too_large", "expired"}
}

// first returns the first value of a header that counts, or what none stands for.
func first[T any](headers []kgo.RecordHeader, name string, none T, parse func(string) (T, bool)) (T, standing) {
	is := absent
	for i := range headers {
		if headers[i].Key != name {
			continue
		}
		is = refused
		if v, ok := parse(string(headers[i].Value)); ok {
			return v, good
		}
	}
	return none, is
}

// availableAt is the exception: if the values say different things none counts.
func availableAt(headers []kgo.RecordHeader) (time.Time, standing) {
	var at time.Time
	is := absent
	for i := range headers {
		if headers[i].Key != "redrive-available-at" {
			continue
		}
		t, ok := instant(headers[i].Value)
		if !ok || is != absent && !t.Equal(at) {
			return time.Time{}, refused
		}
		at, is = t, good
	}
	return at, is
}

func instant(v []byte) (t time.Time, ok bool) {
	err := t.UnmarshalText(v)
	return t, err == nil && len(v) <= 40
}

func isDigits(v string) bool {
	return v != "" && strings.Trim(v, "0123456789") == ""
}

// The forms of a wait: seconds, or a duration with days before it.
var (
	seconds = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	days    = regexp.MustCompile(`^([0-9]+)d(.*)$`)
)

// wait reads redrive-retry-after. What is longer than a Duration is the longest one.
func wait(v string) (time.Duration, bool) {
	scaled := func(digits string, unit time.Duration) time.Duration {
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || n*float64(unit) >= math.MaxInt64 {
			return math.MaxInt64
		}
		return time.Duration(n * float64(unit))
	}
	switch {
	case v == "" || len(v) > 32 || v[0] == '-' || v[0] == '+':
		return 0, false
	case seconds.MatchString(v):
		return scaled(v, time.Second), true
	}
	whole := time.Duration(0)
	if m := days.FindStringSubmatch(v); m != nil {
		if whole, v = scaled(m[1], 24*time.Hour), m[2]; v == "" || whole == math.MaxInt64 {
			return whole, true
		}
	}
	rest, err := time.ParseDuration(v)
	return whole + rest, err == nil && rest >= 0
}

// outcome is what must become of a record.
type outcome struct {
	reason     string    // Of a dead letter; empty: it returns.
	least      time.Time // When it may return at the earliest.
	attempt    int64
	deliveries int64 // -1: the header is not there.
	id         string
}

// decide says what must become of a record that came at this position at this time.
func decide(l *ladder, t topicInfo, headers []kgo.RecordHeader, partition int32, offset int64, arrival time.Time) outcome {
	c := read(headers)
	home := c.topic == l.origin || c.topic == l.returnTo
	position := fmt.Sprintf("%s/%d/%d", t.name, partition, offset)
	if t.role == roleInbox && (c.topicIs == refused || c.topicIs == good && !home) {
		// Another record's headers. What counts is how often it failed, to end a loop through several topics.
		c.id, c.topicIs, c.partition, c.offset, c.attempt = "", absent, -1, -1, -1
	}
	o := outcome{attempt: c.attempt, deliveries: c.deliveries, id: c.id}
	if o.id == "" {
		o.id = position
		if c.topicIs == good && c.partition >= 0 && c.offset >= 0 {
			o.id = fmt.Sprintf("%s/%d/%d", c.topic, c.partition, c.offset)
		}
	}
	if t.role == roleInbox {
		o.fromInbox(l, &c, arrival)
	} else {
		o.fromTier(l, t.tier, &c, home, arrival)
	}
	return o
}

// verdict is the reason for which the consumer, or whoever pretends to be one, declares the record dead.
func (c *claims) verdict() string {
	switch {
	case c.action == "dead" && c.reason == "":
		return "permanent"
	case c.action == "dead":
		return c.reason
	case c.action == "" && (c.reason == "poison" || c.reason == "permanent"):
		return c.reason
	default:
		return ""
	}
}

func (o *outcome) fromInbox(l *ladder, c *claims, arrival time.Time) {
	failed := max(c.attempt, 0) + 1
	o.deliveries = min(max(c.deliveries, 0)+1, maxCount)
	outage := c.verdict() == "" && c.action == "outage"
	o.attempt = min(failed, maxCount)
	if outage {
		o.attempt = failed - 1
	}
	switch {
	case c.verdict() != "":
		o.reason = c.verdict()
	case failed >= int64(l.maxAttempts) && !outage, o.loops(l):
		o.reason = "exhausted"
	}
	wish, wished := c.wish, c.wishIs == good
	if d := c.at.Sub(arrival); c.atIs == good && d > wish {
		wish, wished = d, true
	}
	if !wished {
		wish = l.tiers[min(int(failed), len(l.tiers))-1].delay
	}
	o.least = arrival.Add(min(wish, l.maxDelay))
}

func (o *outcome) fromTier(l *ladder, tier int, c *claims, home bool, arrival time.Time) {
	if o.attempt < 0 {
		o.attempt = int64(tier) + 1
	}
	switch {
	case c.verdict() != "":
		o.reason = c.verdict()
	case c.topicIs == refused:
		o.reason = "malformed"
	case c.topicIs == good && !home:
		o.reason = "unroutable"
	case o.loops(l):
		o.reason = "exhausted"
	}
	// An instant that is further away than is allowed, and than clocks may differ, counts for nothing.
	longest := max(l.maxDelay, l.tiers[tier].delay+l.tiers[tier].jitter)
	if d := c.at.Sub(arrival); c.atIs != good || d > longest+max(time.Second, longest/10) {
		o.least = arrival.Add(l.tiers[tier].delay)
	} else {
		o.least = arrival.Add(max(d, 0))
	}
}

// loops tells whether the record has failed as often as any may, over all replays.
func (o *outcome) loops(l *ladder) bool {
	return max(o.attempt, o.deliveries) >= int64(l.maxDeliveries)
}
