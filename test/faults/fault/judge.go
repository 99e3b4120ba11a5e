package fault

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// rank is how far a record has come, by the topic that it stands in.
type rank int

const (
	handedOver rank = iota // in the inbox
	waiting                // in a tier
	settled                // on the origin
	buried                 // in the dead letters
)

// place is where a record stands. A topic that was made again has another name than before, see incarnation.
type place struct {
	topic     string
	partition int32
	offset    int64
}

func (p place) String() string { return fmt.Sprintf("%s/%d@%d", p.topic, p.partition, p.offset) }

// incarnation names a topic that was deleted and made again so many times.
func incarnation(topic string, times int) string {
	return topic + strings.Repeat("'", times)
}

// standing is a copy of a record at its place.
type standing struct {
	place
	rank    rank
	written time.Time
	due     time.Time // of a copy in a tier that says so
}

// history is all that stood in the topics of a scene, by value.
type history map[string]map[place]standing

// add takes what stands in a topic. A record that was taken before is the same.
func (h history) add(topic string, rank rank, records []*kgo.Record) {
	for _, r := range records {
		s := standing{place{topic, r.Partition, r.Offset}, rank, r.Timestamp, time.Time{}}
		if text, ok := header(r, "redrive-available-at"); ok && rank == waiting {
			if due, err := time.Parse(time.RFC3339Nano, text); err == nil {
				s.due = due
			}
		}
		value := string(r.Value)
		if h[value] == nil {
			h[value] = map[place]standing{}
		}
		h[value][s.place] = s
	}
}

// header is the value of the first header of that name.
func header(r *kgo.Record, name string) (string, bool) {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value), true
		}
	}
	return "", false
}

// verdict is what a history says about the records that were handed over.
type verdict struct {
	lost, told, ahead, early, duplicates int
	details                              []string
}

const maxDetails = 10

func (v *verdict) tell(format string, args ...any) {
	if len(v.details) < maxDetails {
		v.details = append(v.details, fmt.Sprintf(format, args...))
	}
}

// judge holds a history against the rules. Values are those of the records that were acknowledged; covered says when
// the watch first saw that a commit covered a place; told is how many records the forwarder says that retention took.
func judge(h history, values []string, covered map[place]time.Time, told int) verdict {
	var v verdict
	var gone []string
	for _, value := range values {
		copies := h[value]
		ends := 0
		for _, c := range copies {
			if c.rank >= settled {
				ends++
			}
		}
		if ends == 0 {
			gone = append(gone, value)
			continue
		}
		v.duplicates += ends - 1
		if ends > 1 {
			v.tell("came %d times: %s", ends, describe(copies, covered))
		}
		if tooEarly(copies) {
			v.early++
			v.tell("came early: %s", describe(copies, covered))
		}
		if isAhead(copies, covered) {
			v.ahead++
			v.tell("was covered by a commit before it had a copy: %s", describe(copies, covered))
		}
	}
	// What retention took has no copy, and the commit had to pass it.
	v.told = min(told, len(gone))
	v.lost = len(gone) - v.told
	if v.lost > 0 {
		for _, value := range gone {
			if isAhead(h[value], covered) {
				v.ahead++
			}
			v.tell("is gone: %s", describe(h[value], covered))
		}
	}
	return v
}

// tooEarly tells whether a copy on the origin is older than every due time it can have had. A millisecond is allowed for
// rounding.
func tooEarly(copies map[place]standing) bool {
	for _, o := range copies {
		if o.rank != settled {
			continue
		}
		var due time.Time
		for _, w := range copies {
			if w.rank == waiting && !w.due.IsZero() && (due.IsZero() || w.due.Before(due)) {
				due = w.due
			}
		}
		if o.written.Before(due.Add(-time.Millisecond)) {
			return true
		}
	}
	return false
}

// isAhead tells whether a commit covered one of the copies while no later one was written: one in a later topic, or one in
// the same that no commit covered, which is a copy to the tail of its tier.
func isAhead(copies map[place]standing, covered map[place]time.Time) bool {
	for _, c := range copies {
		seen, ok := covered[c.place]
		if c.rank >= settled || !ok {
			continue
		}
		safe := false
		for _, later := range copies {
			if later.place == c.place || later.written.After(seen) {
				continue
			}
			at, passed := covered[later.place]
			safe = safe || later.rank > c.rank || later.rank == c.rank && (!passed || at.After(seen))
		}
		if !safe {
			return true
		}
	}
	return false
}

// describe tells the life of a record, in the order of time.
func describe(copies map[place]standing, covered map[place]time.Time) string {
	if len(copies) == 0 {
		return "it stands nowhere"
	}
	all := slices.SortedFunc(maps.Values(copies), func(a, b standing) int { return a.written.Compare(b.written) })
	parts := make([]string, len(all))
	for i, c := range all {
		parts[i] = fmt.Sprintf("%s written %s", c.place, clock(c.written))
		if !c.due.IsZero() {
			parts[i] += " due " + clock(c.due)
		}
		if at, ok := covered[c.place]; ok {
			parts[i] += " covered " + clock(at)
		}
	}
	return strings.Join(parts, ", ")
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
