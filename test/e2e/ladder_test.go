package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// text shows headers as lines, null apart from empty.
func text(headers []kgo.RecordHeader) []string {
	lines := make([]string, 0, len(headers))
	for _, h := range headers {
		if h.Value == nil {
			lines = append(lines, h.Key+" null")
		} else {
			lines = append(lines, h.Key+"="+string(h.Value))
		}
	}
	return lines
}

// expectOne returns the one record of the topic with that value.
func expectOne(t *testing.T, h history, topic, value string) *kgo.Record {
	t.Helper()
	records := h[topic][value]
	if len(records) != 1 {
		t.Fatalf("%s holds %d records with the value %q, want 1", topic, len(records), value)
	}
	return records[0]
}

// What climbs the ladder: a record of a producer, and one that somebody hands over with nothing but a key and a value.
const (
	produced = `{"id":17}`
	bare     = `{"id":18}`
)

// TestAFailingRecordClimbsAllTiersToTheDeadLetters also shows that the attempt rises by one with each delivery, that each
// wait is that of its own tier, and which headers stand at each hop.
func TestAFailingRecordClimbsAllTiersToTheDeadLetters(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"500ms", "1s", "2s"}})
	broker := s.kafka.Brokers()[0]
	s.start()
	s.consume(func(r *kgo.Record) *kgo.Record { return failed(r, "TimeoutError") })
	testkit.Kcat(t, []byte(produced), "-P", "-b", broker, "-t", s.origin, "-k", "order-17", "-p", "2",
		"-H", "content-type=application/json", "-H", "trace=a", "-H", "empty=", "-H", "trace=b", "-H", "null")
	testkit.Kcat(t, []byte(bare), "-P", "-b", broker, "-t", s.inbox(), "-k", "order-18", "-p", "1")
	s.client.WaitForRecords(patience, s.deadLetters(), 2)
	s.awaitDrained(4 + 3 + 2)

	h := s.read()
	delays := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}
	s.checkClimb(h, produced, "order-17", delays, s.hopsOfProduced(h))
	for _, r := range h[s.origin][produced] {
		if r.Partition != 2 {
			t.Errorf("a copy came back to partition %d, want 2", r.Partition)
		}
	}
	s.checkClimb(h, bare, "order-18", delays, s.hopsOfBare(h))

	out := string(testkit.Kcat(t, nil, "-C", "-b", broker, "-t", s.deadLetters(), "-o", "beginning", "-e", "-q", "-f", `%k|%s|%h\n`))
	for _, want := range []string{`order-17|{"id":17}|content-type=application/json,trace=a,empty=,trace=b,null=NULL,`, `order-18|{"id":18}|`} {
		if !strings.Contains(out, want) {
			t.Errorf("kcat read of the dead letters\n%swant a line with %s", out, want)
		}
	}
	if n := strings.Count(out, "redrive-reason=exhausted"); n != 2 {
		t.Errorf("kcat read of the dead letters\n%swant redrive-reason=exhausted twice, not %d times", out, n)
	}
}

// counts are the headers that count, after so many failures.
func counts(attempt int) []string {
	return []string{fmt.Sprintf("redrive-attempt=%d", attempt), fmt.Sprintf("redrive-deliveries=%d", attempt)}
}

// failure is what the consumer adds.
func failure() []string { return []string{"redrive-error-type=TimeoutError"} }

// hopsOfProduced are the headers of a record that came from the origin.
func (s *story) hopsOfProduced(h history) func(attempt int) hop {
	s.t.Helper()
	if len(h[s.origin][produced]) == 0 {
		s.t.Fatal("what kcat produced is not on the origin")
	}
	first := h[s.origin][produced][0]
	foreign := []string{"content-type=application/json", "trace=a", "empty=", "trace=b", "null null"}
	if diff := cmp.Diff(foreign, text(first.Headers)); diff != "" {
		s.t.Fatalf("what kcat produced (-want +got):\n%s", diff)
	}
	head := slices.Concat(foreign, text(position(s.origin, 2, first.Offset, first.Timestamp)))
	kept := func(attempt int) []string {
		return append([]string{
			fmt.Sprintf("redrive-message-id=%s/2/%d", s.origin, first.Offset),
			fmt.Sprintf("redrive-original-partitions=%d", s.partitions),
		}, counts(attempt)...)
	}
	return func(attempt int) hop {
		back := slices.Concat(head, kept(attempt))
		if attempt == 1 { // The forwarder's headers are new here, behind those of the consumer.
			return hop{inbox: slices.Concat(head, failure()), next: slices.Concat(head, failure(), kept(1)), back: back}
		}
		return hop{inbox: slices.Concat(head, kept(attempt-1), failure()), next: slices.Concat(back, failure()), back: back}
	}
}

// hopsOfBare are the headers of a record that came to the inbox without any.
func (s *story) hopsOfBare(h history) func(attempt int) hop {
	s.t.Helper()
	if len(h[s.inbox()][bare]) == 0 || len(h[s.origin][bare]) == 0 {
		s.t.Fatal("what kcat handed over is not in the inbox and on the origin")
	}
	inbox, first := h[s.inbox()][bare][0], h[s.origin][bare][0]
	head := []string{fmt.Sprintf("redrive-message-id=%s/1/%d", s.inbox(), inbox.Offset), "redrive-original-topic=" + s.origin}
	// From its first return on the record has a position, which its consumer adds, and so a partition count.
	rest := text(position(s.origin, first.Partition, first.Offset, first.Timestamp))[1:]
	partitions := []string{fmt.Sprintf("redrive-original-partitions=%d", s.partitions)}
	return func(attempt int) hop {
		now, before := slices.Concat(head, counts(attempt)), slices.Concat(head, counts(attempt-1))
		switch attempt {
		case 1:
			return hop{inbox: []string{}, next: now, back: now}
		case 2:
			return hop{inbox: slices.Concat(before, rest, failure()), next: slices.Concat(now, rest, failure(), partitions), back: slices.Concat(now, rest, partitions)}
		}
		rest := slices.Concat(rest, partitions)
		return hop{inbox: slices.Concat(before, rest, failure()), next: slices.Concat(now, rest, failure()), back: slices.Concat(now, rest)}
	}
}

// hop are the headers of the copies of one attempt: in the inbox, in its tier or the dead letters but for the header that
// is new there, and back on the origin.
type hop struct{ inbox, next, back []string }

// checkClimb checks every copy of a record that failed once more than the ladder has tiers.
func (s *story) checkClimb(h history, value, key string, delays []time.Duration, headers func(attempt int) hop) {
	s.t.Helper()
	t := s.t
	handed, returned := h[s.inbox()][value], slices.Clone(h[s.origin][value])
	if len(returned) == len(delays)+1 { // The first is the producer's.
		returned = returned[1:]
	}
	if len(handed) != len(delays)+1 || len(returned) != len(delays) {
		t.Fatalf("%d records in the inbox and %d returned, want %d and %d", len(handed), len(returned), len(delays)+1, len(delays))
	}
	slices.SortFunc(handed, func(a, b *kgo.Record) int { return a.Timestamp.Compare(b.Timestamp) })
	check := func(what string, r *kgo.Record, want []string) {
		t.Helper()
		if !bytes.Equal(r.Key, []byte(key)) || !bytes.Equal(r.Value, []byte(value)) {
			t.Errorf("%s: key %q, value %q", what, r.Key, r.Value)
		}
		if diff := cmp.Diff(want, text(r.Headers)); diff != "" {
			t.Errorf("%s: headers (-want +got):\n%s", what, diff)
		}
	}
	for i, delay := range delays {
		attempt := i + 1
		want := headers(attempt)
		waiting := expectOne(t, h, s.tiers[i], value)
		due := dueOf(t, waiting)
		check(fmt.Sprint("inbox, failure ", attempt), handed[i], want.inbox)
		check(fmt.Sprint("tier ", attempt), waiting, append(want.next, "redrive-available-at="+instant(due)))
		check(fmt.Sprint("return ", attempt), returned[i], want.back)
		if wait := due.Sub(handed[i].Timestamp); wait != delay {
			t.Errorf("tier %d: due %v after the hand-over, want %v", attempt, wait, delay)
		}
		if returned[i].Timestamp.Before(due) {
			t.Errorf("return %d came %v early", attempt, due.Sub(returned[i].Timestamp))
		}
	}
	last := len(delays) + 1
	want := headers(last)
	check(fmt.Sprint("inbox, failure ", last), handed[last-1], want.inbox)
	check("dead letter", expectOne(t, h, s.deadLetters(), value), append(want.next, "redrive-reason=exhausted"))
}

// wish is what a record of TestNoRecordComesBackEarly asks for.
type wish struct {
	topic       string
	headers     []kgo.RecordHeader
	least, most time.Duration // from its arrival to its due time
	due         time.Time     // instead of least and most
}

// TestNoRecordComesBackEarly has the brokers stamp all records, so that what is compared is one clock that is not the
// forwarder's: no record stands on the origin before the due time its copy in the tier carried.
func TestNoRecordComesBackEarly(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{
		settings: map[string]string{"message.timestamp.type": "LogAppendTime"},
		tiers:    []string{"500ms", "{delay: 1s, jitter: 500ms}", "2s"},
		topic:    "maxDelay: 4s",
	})
	s.start()
	random := seeded(t)
	const n = 2000
	wishes := make(map[string]wish, n)
	var records []*kgo.Record
	for i := range n {
		value := fmt.Sprint("wish ", i)
		w := s.makeWish(random.IntN(6), time.Duration(random.IntN(3500))*time.Millisecond)
		wishes[value] = w
		records = append(records, &kgo.Record{Topic: w.topic, Key: []byte(strconv.Itoa(i % 50)), Value: []byte(value), Headers: w.headers})
	}
	for batch := range slices.Chunk(records, 100) {
		s.client.Produce(batch...)
	}
	s.awaitDrained(n)

	h := s.read()
	var latest time.Duration
	for value, w := range wishes {
		arrived := h[w.topic][value][0]
		back := expectOne(t, h, s.origin, value)
		if stamp := back.Attrs.TimestampType(); stamp != 1 {
			t.Fatalf("the origin's timestamps are of type %d, want those of the broker", stamp)
		}
		due := arrived.Timestamp.Add(w.least)
		if !w.due.IsZero() {
			due = w.due
		}
		if back.Timestamp.Before(due) {
			t.Errorf("%s of %s was due at %s and came %v early", value, w.topic, instant(due), due.Sub(back.Timestamp))
		}
		for _, tier := range s.tiers {
			for _, copied := range h[tier][value] {
				if tier == w.topic && copied.Offset == arrived.Offset && copied.Partition == arrived.Partition {
					continue // The test's own record.
				}
				stamped := dueOf(t, copied)
				if stamped.Before(due) || stamped.Sub(due) > w.most-w.least+time.Millisecond {
					t.Errorf("%s: the copy in %s is due at %s, want %s and at most %v more", value, tier, instant(stamped), instant(due), w.most-w.least)
				}
				if back.Timestamp.Before(stamped) {
					t.Errorf("%s came %v before the due time of its copy in %s", value, stamped.Sub(back.Timestamp), tier)
				}
				latest = max(latest, back.Timestamp.Sub(stamped))
			}
		}
	}
	t.Logf("the latest of %d records came %v after its due time", n, latest)
}

// makeWish is one of six ways to ask for a wait.
func (s *story) makeWish(way int, wait time.Duration) wish {
	attempt := func(n string) []kgo.RecordHeader {
		return []kgo.RecordHeader{{Key: "redrive-attempt", Value: []byte(n)}}
	}
	switch way {
	case 0: // The wait of the first tier.
		return wish{topic: s.inbox(), least: 500 * time.Millisecond, most: 500 * time.Millisecond}
	case 1: // That of the second, which has jitter.
		return wish{topic: s.inbox(), headers: attempt("1"), least: time.Second, most: 1500 * time.Millisecond}
	case 2:
		return wish{topic: s.inbox(), headers: attempt("2"), least: 2 * time.Second, most: 2 * time.Second}
	case 3: // One of its own.
		return wish{topic: s.inbox(), headers: []kgo.RecordHeader{{Key: "redrive-retry-after", Value: []byte(wait.String())}}, least: wait, most: wait}
	case 4: // Written to a tier, with a due time the tier can not always hold.
		due := time.Now().Add(wait).Truncate(time.Millisecond)
		return wish{topic: s.tiers[0], headers: []kgo.RecordHeader{{Key: "redrive-available-at", Value: []byte(instant(due))}}, due: due}
	default: // Written to a tier, without.
		return wish{topic: s.tiers[2], least: 2 * time.Second, most: 2 * time.Second}
	}
}
