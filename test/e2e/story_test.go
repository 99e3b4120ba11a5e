package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// stage is what a story begins with.
type stage struct {
	brokers    int               // 1 or 3; 0 means 1
	partitions int32             // of the origin and, by topics apply, of the others; 0 means 4
	settings   map[string]string // of the origin
	tiers      []string          // as they stand in topics.yaml
	forwarder  string            // more keys of the section, as "a: b, c: d"
	topic      string            // more keys of the entry, likewise
}

// story is one origin with its ladder.
type story struct {
	t          *testing.T
	kafka      *testkit.Kafka
	client     *testkit.TestClient
	dir        string
	config     string // path of topics.yaml
	text       string // of topics.yaml
	origin     string
	group      string
	tiers      []string // topics
	partitions int32
	told       time.Time // when the story began
}

// tell makes the origin and has the forwarder create the rest.
func tell(t *testing.T, st stage) *story {
	t.Helper()
	s := untold(t, st)
	s.expect(0, "topics", "apply", "-c", s.config)
	return s
}

// untold makes the origin and topics.yaml, nothing else.
func untold(t *testing.T, st stage) *story {
	t.Helper()
	k := testkit.RealKafka(t, max(1, st.brokers))
	s := &story{
		t:          t,
		kafka:      k,
		client:     k.Client(t),
		dir:        t.TempDir(),
		origin:     testkit.UniqueName("orders"),
		group:      testkit.UniqueName("redrive"),
		partitions: st.partitions,
		told:       time.Now(),
	}
	if st.partitions == 0 {
		s.partitions = 4
	}
	for _, tier := range st.tiers {
		// In {delay: 1s, jitter: 1s} the delay comes first and names the tier.
		name, _, _ := strings.Cut(strings.TrimPrefix(tier, "{delay: "), ",")
		s.tiers = append(s.tiers, s.origin+".retry."+name)
	}
	s.client.CreateTopic(s.origin, s.partitions, st.settings)
	more := func(keys string) string {
		if keys == "" {
			return ""
		}
		return ", " + keys
	}
	s.text = fmt.Sprintf("kafka: {brokers: [%s]}\nforwarder: {group: %s%s}\nlogging: {format: text}\ntopics:\n  - {origin: %s, tiers: [%s]%s}\n",
		strings.Join(k.Brokers(), ", "), s.group, more(st.forwarder), s.origin, strings.Join(st.tiers, ", "), more(st.topic))
	s.config = s.configFile("topics.yaml", s.text)
	return s
}

func (s *story) inbox() string       { return s.origin + ".retry" }
func (s *story) deadLetters() string { return s.origin + ".dlt" }

// sources are the topics that the forwarder reads.
func (s *story) sources() []string { return append([]string{s.inbox()}, s.tiers...) }

// owned is the number of partitions of all sources.
func (s *story) owned() int { return int(s.partitions) * len(s.sources()) }

// consume runs an application on the origin, from its start until the test ends. What handle returns is handed over to
// the inbox; nil means that the record succeeded.
func (s *story) consume(handle func(*kgo.Record) *kgo.Record) {
	s.t.Helper()
	client, err := testkit.NewClient(s.kafka.Brokers(), kgo.ConsumeTopics(s.origin), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			client.Kafka().PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				failed := handle(r)
				if failed == nil || ctx.Err() != nil {
					return
				}
				failed.Topic = s.inbox()
				if err := client.Produce(ctx, failed); err != nil && ctx.Err() == nil {
					s.t.Errorf("hand over: %v", err)
				}
			})
		}
	})
	s.t.Cleanup(func() {
		cancel()
		running.Wait()
		client.Close()
	})
}

// failed is the smallest correct hand-over of docs/contract.md: everything copied, the position added if there is none.
func failed(r *kgo.Record, errorType string) *kgo.Record {
	out := &kgo.Record{Key: r.Key, Value: r.Value, Headers: slices.Clone(r.Headers)}
	for _, h := range position(r.Topic, r.Partition, r.Offset, r.Timestamp) {
		if _, ok := header(r, h.Key); !ok {
			out.Headers = append(out.Headers, h)
		}
	}
	out.Headers = append(out.Headers, kgo.RecordHeader{Key: "redrive-error-type", Value: []byte(errorType)})
	return out
}

// position are the headers that say where a record first lived.
func position(topic string, partition int32, offset int64, timestamp time.Time) []kgo.RecordHeader {
	return []kgo.RecordHeader{
		{Key: "redrive-original-topic", Value: []byte(topic)},
		{Key: "redrive-original-partition", Value: strconv.AppendInt(nil, int64(partition), 10)},
		{Key: "redrive-original-offset", Value: strconv.AppendInt(nil, offset, 10)},
		{Key: "redrive-original-timestamp", Value: []byte(instant(timestamp))},
	}
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// header is the value of the first header of that name.
func header(r *kgo.Record, name string) (string, bool) {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value), true
		}
	}
	return "", false
}

// dueOf is the instant before which a record must not come back.
func dueOf(t *testing.T, r *kgo.Record) time.Time {
	t.Helper()
	text, _ := header(r, "redrive-available-at")
	value, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatalf("%s/%d@%d: redrive-available-at: %v", r.Topic, r.Partition, r.Offset, err)
	}
	return value
}

// drained returns nil when n records or more have reached the origin or the dead letters and the commits stand at the
// end of every source.
func (s *story) drained(ctx context.Context, n int) error {
	// Commits first: a copy stands in its next topic before the commit that passes its record.
	commits, err := s.client.Client.CommittedOffsets(ctx, s.group)
	if err != nil {
		return err
	}
	for _, topic := range s.sources() {
		ends, err := s.client.Client.EndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		for _, partition := range slices.Sorted(maps.Keys(ends)) {
			if commit, _ := commits.Lookup(topic, partition); commit.At != ends[partition] {
				return fmt.Errorf("%s/%d ends at %d, the commit stands at %d", topic, partition, ends[partition], commit.At)
			}
		}
	}
	arrived := 0
	for _, topic := range []string{s.origin, s.deadLetters()} {
		ends, err := s.client.Client.EndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		for _, end := range ends {
			arrived += int(end)
		}
	}
	if arrived < n {
		return fmt.Errorf("%d records are on the origin and in the dead letters", arrived)
	}
	return nil
}

// awaitDrained waits until n records have reached their end and all commits stand at the end.
func (s *story) awaitDrained(n int) {
	s.t.Helper()
	testkit.WaitFor(s.t, patience, fmt.Sprintf("%d records and all commits at the end", n), func(ctx context.Context) error {
		return s.drained(ctx, n)
	})
}

// history is what stands in the topics of a story: by topic and value, the records in the order of their offsets.
type history map[string]map[string][]*kgo.Record

// read reads all topics of the story.
func (s *story) read() history {
	s.t.Helper()
	h := history{}
	for _, topic := range append(s.sources(), s.origin, s.deadLetters()) {
		h[topic] = byValue(s.client.ReadAll(topic, kgo.ReadCommitted()))
	}
	return h
}

func byValue(records []*kgo.Record) map[string][]*kgo.Record {
	m := make(map[string][]*kgo.Record)
	for _, r := range records {
		m[string(r.Value)] = append(m[string(r.Value)], r)
	}
	return m
}

// settled are the copies of one value that have reached their end.
func (s *story) settled(h history, value string) []*kgo.Record {
	return slices.Concat(h[s.origin][value], h[s.deadLetters()][value])
}

// checkNoneLost fails the test for every value that is neither on the origin nor in the dead letters, and for every copy
// whose id is not that of the others. It returns the number of copies beyond the first.
func (s *story) checkNoneLost(h history, values []string) (extra int) {
	s.t.Helper()
	lost, changed := 0, 0
	for _, value := range values {
		settled := s.settled(h, value)
		if len(settled) == 0 {
			if lost++; lost <= 5 {
				s.t.Errorf("%s is lost: %s", value, s.places(h, value))
			}
			continue
		}
		extra += len(settled) - 1
		ids := map[string]bool{}
		for _, topic := range slices.Concat(s.tiers, []string{s.origin, s.deadLetters()}) {
			for _, r := range h[topic][value] {
				id, _ := header(r, "redrive-message-id")
				ids[id] = true
			}
		}
		if len(ids) != 1 || ids[""] {
			if changed++; changed <= 5 {
				s.t.Errorf("%s has the ids %q, want one: %s", value, slices.Collect(maps.Keys(ids)), s.places(h, value))
			}
		}
	}
	if lost > 0 || changed > 0 {
		s.t.Errorf("of %d records %d are lost and %d have not one id", len(values), lost, changed)
	}
	return extra
}

// places says where the copies of a value are.
func (s *story) places(h history, value string) string {
	var all []string
	for _, topic := range append(s.sources(), s.origin, s.deadLetters()) {
		for _, r := range h[topic][value] {
			all = append(all, fmt.Sprintf("%s/%d@%d", topic, r.Partition, r.Offset))
		}
	}
	return strings.Join(all, " ")
}

// checkNonePassed fails the test for every value that no commit may be ahead of and one is: it must be on the origin, in
// the dead letters, or in a source where the commit has not passed it. No forwarder may run meanwhile.
func (s *story) checkNonePassed(values []string) {
	s.t.Helper()
	commits := s.client.CommittedOffsets(s.group)
	safe := make(map[string]bool)
	for _, topic := range s.sources() {
		for _, r := range s.client.ReadAll(topic, kgo.ReadUncommitted()) {
			if commit, ok := commits.Lookup(topic, r.Partition); !ok || r.Offset >= commit.At {
				safe[string(r.Value)] = true
			}
		}
	}
	for _, topic := range []string{s.origin, s.deadLetters()} {
		for _, r := range s.client.ReadAll(topic, kgo.ReadUncommitted()) {
			safe[string(r.Value)] = true
		}
	}
	passed := 0
	for _, value := range values {
		if !safe[value] {
			if passed++; passed <= 5 {
				s.t.Errorf("the commits are ahead of %s, which has no copy", value)
			}
		}
	}
	if passed > 0 {
		s.t.Errorf("the commits are ahead of %d of %d records", passed, len(values))
	}
}

// settle ends the load and returns its values and the history when all of them are forwarded: none lost, none twice.
func (s *story) settle(l *load) ([]string, history) {
	s.t.Helper()
	values := l.stop()
	s.awaitDrained(len(values))
	h := s.read()
	s.checkNoneLost(h, values)
	s.checkNoneTwice(h, values)
	return values, h
}

// checkNoneTwice fails the test for every value with more than one copy at its end.
func (s *story) checkNoneTwice(h history, values []string) {
	s.t.Helper()
	twice := 0
	for _, value := range values {
		if len(s.settled(h, value)) > 1 {
			if twice++; twice <= 5 {
				s.t.Errorf("%s came twice: %s", value, s.places(h, value))
			}
		}
	}
	if twice > 0 {
		s.t.Errorf("%d of %d records came twice", twice, len(values))
	}
}

// awaitMissing waits until no broker knows the topic.
func (s *story) awaitMissing(topic string) {
	s.t.Helper()
	testkit.WaitFor(s.t, patience, topic+" to be gone", func(ctx context.Context) error {
		details, err := s.client.Admin().ListTopics(ctx, topic)
		if err == nil && details.Has(topic) {
			err = errors.New("it is still there")
		}
		return err
	})
}
