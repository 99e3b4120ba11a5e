package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ours are the names that the forwarder may write or remove; all others are somebody else's.
var ours = []string{
	"redrive-message-id", "redrive-original-topic", "redrive-original-partition", "redrive-original-offset",
	"redrive-original-timestamp", "redrive-original-partitions", "redrive-attempt", "redrive-deliveries",
	"redrive-available-at", "redrive-action", "redrive-retry-after", "redrive-reason",
}

// foreign are the headers that are not ours.
func foreign(headers []kgo.RecordHeader) []kgo.RecordHeader {
	return slices.DeleteFunc(slices.Clone(headers), func(h kgo.RecordHeader) bool { return slices.Contains(ours, h.Key) })
}

// same tells whether two values are the same bytes and both null or neither.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func sameHeaders(a, b []kgo.RecordHeader) bool {
	return slices.EqualFunc(a, b, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && same(a.Value, b.Value) })
}

// randomBytes are null, empty or any bytes.
func randomBytes(random *rand.Rand, limit int) []byte {
	switch random.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	b := make([]byte, 1+random.IntN(limit))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// randomHeaders have names that are empty, repeated, not UTF-8 or nearly ours.
func randomHeaders(random *rand.Rand) []kgo.RecordHeader {
	names := []string{"", "trace", "trace", "\xff\xfe", "Redrive-Attempt", "redrive-", "redrive-unknown", "redrive-attempt ", "caf\xc3\xa9"}
	headers := make([]kgo.RecordHeader, random.IntN(8))
	for i := range headers {
		headers[i] = kgo.RecordHeader{Key: names[random.IntN(len(names))], Value: randomBytes(random, 40)}
		if random.IntN(4) == 0 {
			headers[i].Key = string(randomBytes(random, 12))
		}
	}
	return headers
}

// path is one way of a record through the ladder of TestBytesSurviveEveryHop.
type path struct {
	enters  func(s *story) string
	headers map[string]string
	leads   func(s *story) []string // the topics that hold exactly one copy in the end
}

func paths() []path {
	inbox := (*story).inbox
	through := func(tiers ...int) func(s *story) []string {
		return func(s *story) []string {
			topics := []string{s.origin}
			for _, n := range tiers {
				topics = append(topics, s.tiers[n])
			}
			return topics
		}
	}
	dead := func(s *story) []string { return []string{s.deadLetters()} }
	return []path{
		{inbox, nil, through(0)},
		{inbox, map[string]string{"redrive-attempt": "1"}, through(1)},
		{inbox, map[string]string{"redrive-retry-after": "5s"}, through(1)},
		{inbox, map[string]string{"redrive-attempt": "2"}, dead},
		{inbox, map[string]string{"redrive-action": "dead", "redrive-reason": "poison"}, dead},
		{func(s *story) string { return s.tiers[0] }, map[string]string{"redrive-reason": "permanent"}, func(s *story) []string {
			return []string{s.tiers[0], s.deadLetters()}
		}},
		// Written to a tier that is too short for the wish: from tier to tier and then to the origin.
		{func(s *story) string { return s.tiers[0] }, map[string]string{"redrive-available-at": "+10500ms"}, through(0, 1)},
	}
}

func TestBytesSurviveEveryHop(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"1s", "10s"}, topic: "maxDelay: 20s"})
	s.start()
	random := seeded(t)
	n := setting(t, "REDRIVE_E2E_RECORDS", 10_000)
	ways := paths()
	sent := make([]*kgo.Record, n)
	for first := 0; first < n; first += 1000 {
		chunk := sent[first:min(first+1000, n)]
		for i := range chunk {
			chunk[i] = s.anyRecord(random, first+i, ways[(first+i)%len(ways)])
		}
		s.client.Produce(chunk...)
	}
	s.awaitDrained(n)

	// By topic and id: how often a record stands there with the bytes it was sent with.
	found := map[string][]int{}
	bad := 0
	for _, topic := range append(s.sources(), s.origin, s.deadLetters()) {
		found[topic] = make([]int, n)
		err := s.client.Read(t.Context(), topic, kgo.ReadCommitted(), func(r *kgo.Record) {
			id, _ := header(r, "redrive-message-id")
			i, err := strconv.Atoi(strings.TrimPrefix(id, "random-"))
			if err != nil || i >= n {
				t.Errorf("%s/%d@%d has the id %q", topic, r.Partition, r.Offset, id)
				return
			}
			found[topic][i]++
			want := sent[i]
			if same(r.Key, want.Key) && same(r.Value, want.Value) && sameHeaders(foreign(r.Headers), foreign(want.Headers)) {
				return
			}
			if bad++; bad <= 3 {
				t.Errorf("record %d in %s:\n got %s\nwant %s", i, topic, show(r), show(want))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if bad > 0 {
		t.Errorf("%d copies are not the bytes that were sent", bad)
	}
	misled := 0
	for i := range n {
		leads := append(ways[i%len(ways)].leads(s), sent[i].Topic)
		for topic, counts := range found {
			want := 0
			if slices.Contains(leads, topic) {
				want = 1
			}
			if counts[i] != want {
				if misled++; misled <= 3 {
					t.Errorf("record %d of way %d: %d copies in %s, want %d", i, i%len(ways), counts[i], topic, want)
				}
			}
		}
	}
	if misled > 0 {
		t.Errorf("%d records went elsewhere than they should", misled)
	}
}

// anyRecord is a random record that goes the given way. What leads it stands at random places among its headers.
func (s *story) anyRecord(random *rand.Rand, i int, way path) *kgo.Record {
	headers := randomHeaders(random)
	add := func(name, value string) {
		headers = slices.Insert(headers, random.IntN(len(headers)+1), kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	add("redrive-message-id", fmt.Sprint("random-", i))
	for _, name := range ours { // Not over the map, whose order no seed decides.
		value, ok := way.headers[name]
		if !ok {
			continue
		}
		if wait, relative := strings.CutPrefix(value, "+"); relative {
			value = fromNow(wait)
		}
		add(name, value)
	}
	if random.IntN(2) == 0 {
		for _, h := range position(s.origin, random.Int32N(s.partitions), int64(i), s.told) {
			add(h.Key, string(h.Value))
		}
	}
	return &kgo.Record{Topic: way.enters(s), Key: randomBytes(random, 40), Value: randomBytes(random, 2000), Headers: headers}
}

func fromNow(wait string) string {
	d, err := time.ParseDuration(wait)
	if err != nil {
		panic(err) // It stands in paths.
	}
	return instant(time.Now().Add(d))
}

func show(r *kgo.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "key %q (null: %v), value %.60q (%d bytes, null: %v)", r.Key, r.Key == nil, r.Value, len(r.Value), r.Value == nil)
	for _, h := range r.Headers {
		fmt.Fprintf(&b, "\n     %q = %q (null: %v)", h.Key, h.Value, h.Value == nil)
	}
	return b.String()
}

// TestARecordTheOriginCannotTakeIsADeadLetterAndItsNeighboursFlow hands over a record that fits into the inbox and not
// into the origin, which takes less.
func TestARecordTheOriginCannotTakeIsADeadLetterAndItsNeighboursFlow(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{partitions: 1, tiers: []string{"500ms"}, settings: map[string]string{"max.message.bytes": "20000"}})
	s.start()
	random := seeded(t)
	large := make([]byte, 30_000) // Bytes that do not compress.
	for i := range large {
		large[i] = byte(random.Uint32())
	}
	var records []*kgo.Record
	var neighbours []string
	for i := range 41 {
		if i == 20 {
			records = append(records, &kgo.Record{Topic: s.inbox(), Key: []byte("large"), Value: large})
			continue
		}
		neighbours = append(neighbours, fmt.Sprint("neighbour ", i))
		records = append(records, &kgo.Record{Topic: s.inbox(), Key: []byte("k"), Value: []byte(neighbours[len(neighbours)-1])})
	}
	s.client.Produce(records...)
	s.awaitDrained(len(records))

	h := s.read()
	for _, value := range neighbours {
		expectOne(t, h, s.origin, value)
	}
	letter := expectOne(t, h, s.deadLetters(), string(large))
	for name, want := range map[string]string{
		"redrive-reason": "too_large", "redrive-error-type": "MESSAGE_TOO_LARGE", "redrive-attempt": "1",
		"redrive-original-topic": s.origin, "redrive-message-id": fmt.Sprintf("%s/0/20", s.inbox()),
	} {
		if got, _ := header(letter, name); got != want {
			t.Errorf("the letter's %s is %q, want %q", name, got, want)
		}
	}
	if len(h[s.deadLetters()]) != 1 || len(h[s.origin]) != len(neighbours) {
		t.Errorf("%d dead letters and %d records on the origin, want 1 and %d", len(h[s.deadLetters()]), len(h[s.origin]), len(neighbours))
	}
}

// TestALargeRecordThatCompressesReturns hands over what is larger than the topics take, and fits because it is
// compressed, as its producer sent it: max.message.bytes counts what is on the wire.
func TestALargeRecordThatCompressesReturns(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{partitions: 1, tiers: []string{"500ms"}, settings: map[string]string{"max.message.bytes": "20000"}})
	s.start()
	large := bytes.Repeat([]byte(`{"id":17} `), 10_000)
	producer := s.kafka.Client(t, kgo.ProducerBatchCompression(kgo.GzipCompression()))
	producer.Produce(&kgo.Record{Topic: s.origin, Value: []byte("the origin takes it"), Headers: []kgo.RecordHeader{{Key: "large", Value: large}}})
	producer.Produce(&kgo.Record{Topic: s.inbox(), Value: large}, &kgo.Record{Topic: s.inbox(), Value: []byte("neighbour")})
	s.awaitDrained(3)
	h := s.read()
	expectOne(t, h, s.origin, string(large))
	expectOne(t, h, s.origin, "neighbour")
}
