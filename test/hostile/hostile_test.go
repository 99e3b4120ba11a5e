package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// story is a run without a broker: records that the policies moved, until a test breaks it.
type story struct {
	t       *testing.T
	forge   *forge
	topics  []topicInfo
	sent    []position
	records map[string][]*kgo.Record // By topic.
	offsets map[string]int64
}

func (s *story) write(topic string, partition int32, at time.Time, rec *kgo.Record) {
	rec.Topic, rec.Partition, rec.Offset, rec.Timestamp = topic, partition, s.offsets[topic], at.Truncate(time.Millisecond)
	s.offsets[topic]++
	s.records[topic] = append(s.records[topic], rec)
}

// newStory moves n records as the forwarder does when all goes well.
func newStory(t *testing.T, n int) *story {
	t.Helper()
	f := newForge(7)
	s := &story{t: t, forge: f, topics: topics(f.ladders), records: map[string][]*kgo.Record{}, offsets: map[string]int64{}}
	var policies []*tiers.Policy
	for _, l := range f.ladders {
		o := tiers.Options{
			Origin: l.origin, ReturnTo: l.returnTo, Inbox: l.inbox, DeadLetters: l.letters,
			MaxAttempts: l.maxAttempts, MaxDelay: l.maxDelay, MaxDeliveries: l.maxDeliveries,
		}
		for _, tier := range l.tiers {
			o.Tiers = append(o.Tiers, tiers.Tier{Name: tier.name, Topic: tier.topic, Delay: tier.delay, Jitter: tier.jitter})
		}
		p, err := tiers.New(o)
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, p)
	}
	began := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for id := range n {
		now := began.Add(time.Duration(id) * 100 * time.Microsecond)
		rec := f.record(uint32(id), now)
		s.write(rec.Topic, int32(id%partitions), now.Add(2*time.Millisecond), rec)
		s.sent = append(s.sent, position{rec.Offset, rec.Partition})
		i := slices.IndexFunc(s.topics, func(t topicInfo) bool { return t.name == rec.Topic })
		s.move(policies[s.topics[i].ladder], &s.topics[i], rec)
	}
	return s
}

// move takes a record from where it is to where it ends.
func (s *story) move(p *tiers.Policy, at *topicInfo, rec *kgo.Record) {
	var e envelope.Envelope
	now := rec.Timestamp.Add(5 * time.Millisecond)
	tier := at.tier
	for hop := 0; ; hop++ {
		e.Parse(rec.Headers)
		var step tiers.Step
		if hop == 0 && at.role == roleInbox {
			step = p.FromInbox(&e, rec.Timestamp, now, func() float64 { return 0.5 })
		} else {
			step = p.FromTier(tier, &e, rec.Timestamp, now)
		}
		e.EnsureMessageID(rec.Topic, rec.Partition, rec.Offset)
		if e.OriginalTopic == nil {
			e.SetOriginal(p.Origin(), e.OriginalPartition, e.OriginalOffset, e.OriginalTimestamp)
		}
		if step.Due.After(now) {
			now = step.Due.Add(time.Millisecond)
		}
		next := &kgo.Record{Key: rec.Key, Value: rec.Value, Headers: e.Append(nil, rec.Headers, step.Kind())}
		s.write(p.Topic(step), rec.Partition, now, next)
		if step.To != tiers.ToTier {
			return
		}
		rec, tier, now = next, step.Tier, next.Timestamp.Add(5*time.Millisecond)
	}
}

func (s *story) check() *findings {
	c := newChecker(s.forge, s.sent)
	for i, t := range c.table {
		for _, rec := range s.records[t.name] {
			c.add(i, rec)
		}
	}
	return c.finish()
}

// violations are the counts that must be 0.
func violations(f *findings) map[string]int {
	all := map[string]int{"escaped": f.escaped, "crashed": f.crashed, "stuck": f.stuck, "early": f.early, "corrupt": f.corrupt, "lost": f.lost}
	maps.DeleteFunc(all, func(_ string, n int) bool { return n == 0 })
	return all
}

// The policies and the second reading of the contract agree on every record, and the records are worth it.
func TestTheSecondReadingOfTheContractAgreesWithThePolicies(t *testing.T) {
	const n = 20_000
	f := newStory(t, n).check()
	if diff := cmp.Diff(map[string]int{}, violations(f)); diff != "" {
		t.Errorf("violations (-want +got):\n%s\n%v", diff, f.details)
	}
	if f.returned < n/6 || f.dead < n/6 || f.returned+f.dead != n || f.duplicate != 0 {
		t.Errorf("%d records: %d returned, %d dead, %d twice", n, f.returned, f.dead, f.duplicate)
	}
	for _, reason := range []string{"poison", "permanent", "exhausted", "malformed", "unroutable", "expired", "blocked", "too_large"} {
		if f.reasons[reason] == 0 {
			t.Errorf("no dead letter is %s: %v", reason, f.reasons)
		}
	}
}

// find returns a record that was sent to a topic of this role and ended in one of that, with its index in the latter.
func (s *story) find(from, to role) (entry *kgo.Record, topic string, index int) {
	s.t.Helper()
	entries := map[uint32]*kgo.Record{}
	for _, t := range s.topics {
		if t.role != from || t.ladder != 0 {
			continue
		}
		for _, rec := range s.records[t.name] {
			if id, _ := numberOf(rec.Headers); s.sent[id] == (position{rec.Offset, rec.Partition}) && s.forge.record(id, time.Time{}).Topic == rec.Topic {
				entries[id] = rec
			}
		}
	}
	for _, t := range s.topics {
		if t.role != to || t.ladder != 0 {
			continue
		}
		for i, rec := range s.records[t.name] {
			if id, _ := numberOf(rec.Headers); entries[id] != nil && entries[id] != rec {
				return entries[id], t.name, i
			}
		}
	}
	s.t.Fatal("no such record")
	return nil, "", 0
}

// Each test breaks one thing of a run that went well, and names what must be found and nothing else.
func TestEachViolationIsFound(t *testing.T) {
	for _, test := range []struct {
		name     string
		from, to role
		spoil    func(s *story, entry *kgo.Record, topic string, i int)
		want     map[string]int
	}{
		{"nothing", roleInbox, roleReturn, func(*story, *kgo.Record, string, int) {}, map[string]int{}},
		{"a record that did not come back", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			s.records[topic] = slices.Delete(s.records[topic], i, i+1)
		}, map[string]int{"lost": 1}},
		{"a dead letter that is not there", roleTier, roleLetters, func(s *story, _ *kgo.Record, topic string, i int) {
			s.records[topic] = slices.Delete(s.records[topic], i, i+1)
		}, map[string]int{"lost": 1}},
		{"a return two milliseconds before its wait is over", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			rec := s.records[topic][i]
			id, _ := numberOf(rec.Headers)
			c := newChecker(s.forge, s.sent)
			for j, t := range c.table {
				for _, r := range s.records[t.name] {
					c.add(j, r)
				}
			}
			rec.Timestamp = time.UnixMilli(max(c.states[id].least, c.states[id].due) - 2)
		}, map[string]int{"early": 1}},
		{"a return at once", roleTier, roleReturn, func(s *story, entry *kgo.Record, topic string, i int) {
			s.records[topic][i].Timestamp = entry.Timestamp.Add(-time.Millisecond * 2)
		}, map[string]int{"early": 1}},
		{"another value", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			s.records[topic][i].Value = append(slices.Clone(s.records[topic][i].Value), 'x')
		}, map[string]int{"corrupt": 1}},
		{"another key", roleTier, roleLetters, func(s *story, _ *kgo.Record, topic string, i int) {
			s.records[topic][i].Key = append(slices.Clone(s.records[topic][i].Key), 'x')
		}, map[string]int{"corrupt": 1}},
		{"a header more", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			s.records[topic][i].Headers = append(s.records[topic][i].Headers, kgo.RecordHeader{Key: "redrive-new"})
		}, map[string]int{"corrupt": 1}},
		{"a control header twice", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			s.records[topic][i].Headers = append(s.records[topic][i].Headers, kgo.RecordHeader{Key: "redrive-attempt", Value: []byte("1")})
		}, map[string]int{"corrupt": 1}},
		{"a control header that a return does not keep", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			s.records[topic][i].Headers = append(s.records[topic][i].Headers, kgo.RecordHeader{Key: "redrive-available-at", Value: []byte("x")})
		}, map[string]int{"corrupt": 1}},
		{"a lost attempt", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			s.records[topic][i].Headers = slices.DeleteFunc(s.records[topic][i].Headers, func(h kgo.RecordHeader) bool { return h.Key == "redrive-attempt" })
		}, map[string]int{"corrupt": 1}},
		{"another id", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			for j := range s.records[topic][i].Headers {
				if h := &s.records[topic][i].Headers[j]; h.Key == "redrive-message-id" {
					h.Value = []byte("stolen")
				}
			}
		}, map[string]int{"corrupt": 1}},
		{"a record of nobody", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, _ int) {
			s.records[topic] = append(s.records[topic], &kgo.Record{Topic: topic, Headers: []kgo.RecordHeader{{Key: numberHeader, Value: []byte("\xff\xff\xff\xff")}}})
		}, map[string]int{"corrupt": 1}},
		{"another origin's topic", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			s.records["hostile-b.return"] = append(s.records["hostile-b.return"], s.records[topic][i])
		}, map[string]int{"escaped": 1}},
		{"an inbox", roleInbox, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			rec := *s.records[topic][i]
			rec.Offset = 1 << 40
			s.records["hostile-a.retry"] = append(s.records["hostile-a.retry"], &rec)
		}, map[string]int{"escaped": 1}},
		{"a dead record that returns", roleTier, roleLetters, func(s *story, _ *kgo.Record, topic string, i int) {
			rec := s.records[topic][i]
			rec.Headers = slices.DeleteFunc(slices.Clone(rec.Headers), func(h kgo.RecordHeader) bool {
				return h.Key == "redrive-reason" || h.Key == "redrive-rejected" || strings.HasPrefix(h.Key, "redrive-error-") ||
					h.Key == "redrive-consumer" || h.Key == "redrive-failed-at"
			})
			s.records["hostile-a"] = append(s.records["hostile-a"], rec)
			s.records[topic] = slices.Delete(s.records[topic], i, i+1)
		}, map[string]int{"escaped": 1}},
		{"a dead letter that should return", roleTier, roleReturn, func(s *story, _ *kgo.Record, topic string, i int) {
			s.records["hostile-a.dlt"] = append(s.records["hostile-a.dlt"], s.records[topic][i])
			s.records[topic] = slices.Delete(s.records[topic], i, i+1)
		}, map[string]int{"escaped": 1}},
		{"another reason", roleTier, roleLetters, func(s *story, _ *kgo.Record, topic string, i int) {
			for j := range s.records[topic][i].Headers {
				if h := &s.records[topic][i].Headers[j]; h.Key == "redrive-reason" {
					h.Value = []byte("none of the list")
				}
			}
		}, map[string]int{"escaped": 1}},
		{"a dead record that waits first", roleTier, roleLetters, func(s *story, entry *kgo.Record, _ string, _ int) {
			rec := *entry
			rec.Offset = 1 << 40
			rec.Headers = slices.DeleteFunc(slices.Clone(rec.Headers), func(h kgo.RecordHeader) bool {
				kinds, own := keeps()[h.Key]
				return own && kinds != "rtd"
			})
			rec.Headers = once(rec.Headers)
			s.records["hostile-a.retry.1s"] = append(s.records["hostile-a.retry.1s"], &rec)
		}, map[string]int{"escaped": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStory(t, 500)
			entry, topic, i := s.find(test.from, test.to)
			test.spoil(s, entry, topic, i)
			if f := s.check(); !cmp.Equal(test.want, violations(f)) {
				t.Errorf("violations %v, want %v\n%v", violations(f), test.want, f.details)
			}
		})
	}
}

// once drops what a copy could not have: repeats, and texts that are too long or no text.
func once(headers []kgo.RecordHeader) []kgo.RecordHeader {
	seen := map[string]bool{}
	return slices.DeleteFunc(headers, func(h kgo.RecordHeader) bool {
		if _, own := keeps()[h.Key]; !own {
			return false
		}
		again := seen[h.Key]
		seen[h.Key] = true
		return again || len(h.Value) > maxText || strings.ToValidUTF8(string(h.Value), "") != string(h.Value)
	})
}

func TestOnlyAReportWithoutViolationsPasses(t *testing.T) {
	for name, spoil := range map[string]func(*findings){
		"escaped": func(f *findings) { f.escaped++ },
		"crashed": func(f *findings) { f.crashed++ },
		"stuck":   func(f *findings) { f.stuck++ },
		"early":   func(f *findings) { f.early++ },
		"corrupt": func(f *findings) { f.corrupt++ },
		"lost":    func(f *findings) { f.lost++ },
	} {
		f := &findings{forged: 10}
		spoil(f)
		if r := makeReport(f); len(r.violations) != 1 || !strings.HasPrefix(r.violations[0], name+" is 1") {
			t.Errorf("%s: violations %q", name, r.violations)
		}
	}
	if r := makeReport(&findings{forged: 10, duplicate: 3}); len(r.violations) != 0 {
		t.Errorf("violations without a finding: %q", r.violations)
	}
}

func TestARecordFollowsFromSeedAndNumber(t *testing.T) {
	now := time.Now()
	f, again := newForge(3), newForge(3)
	c := newChecker(f, nil)
	for id := range uint32(5000) {
		a, b := f.record(id, now), again.record(id, now)
		equal := slices.EqualFunc(a.Headers, b.Headers, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && same(a.Value, b.Value) })
		if !equal || !same(a.Key, b.Key) || !same(a.Value, b.Value) || a.Topic != b.Topic {
			t.Fatalf("record %d is another one the second time", id)
		}
		// The checker does not know when it was sent.
		if diff := c.difference(again.record(id, time.Time{}), a); diff != "" {
			t.Fatalf("the bytes of record %d depend on the time: %s", id, diff)
		}
		if got, ok := numberOf(a.Headers); !ok || got != id {
			t.Fatalf("record %d says it is %d", id, got)
		}
	}
	if c.difference(f.record(1, now), newForge(4).record(1, now)) == "" {
		t.Error("two seeds give the same record")
	}
}

func TestTheForgeryCoversEveryKind(t *testing.T) {
	f := newForge(5)
	now := time.Now()
	seen := map[string]bool{}
	note := func(what string, is bool) { seen[what] = seen[what] || is }
	for id := range uint32(40_000) {
		r := f.record(id, now)
		c := read(r.Headers)
		count := map[string]int{}
		for _, h := range r.Headers {
			count[h.Key]++
			note("null header", h.Value == nil)
			note("empty header", h.Value != nil && len(h.Value) == 0)
			note("500 KB in a header", len(h.Value) >= 500_000)
			note("near miss of a name", h.Key == "redrive-attempt ")
			note("name that is no UTF-8", h.Key == "\xff\xfe")
			note("year 9999", h.Key == "redrive-available-at" && strings.HasPrefix(string(h.Value), "9999-"))
			note("own header that is no UTF-8", strings.HasPrefix(h.Key, "redrive-message-id") && string(h.Value) == "\xff")
		}
		for name := range keeps() {
			note(name, count[name] == 1)
			note(name+" repeated", count[name] > 1)
		}
		note("10,000 headers", len(r.Headers) >= 10_000)
		note("as large as the origin allows", len(r.Value) > nearLimit)
		note("null key", r.Key == nil)
		note("empty key", r.Key != nil && len(r.Key) == 0)
		note("null value", r.Value == nil)
		note("empty value", r.Value != nil && len(r.Value) == 0)
		note("timestamp", !r.Timestamp.IsZero())
		note("conflicting due times", c.atIs == refused && count["redrive-available-at"] > 1)
		note("refused origin", c.topicIs == refused)
		note("decoy as origin", strings.HasPrefix(c.topic, "__"))
		note("own tier as origin", strings.HasPrefix(c.topic, "hostile-a.retry."))
		note("long wish", c.wishIs == good && c.wish > 200*365*24*time.Hour)
		note("deliveries at the cap", c.deliveries == 1000)
		note("huge deliveries", c.deliveries == maxCount)
		note("in the inbox of a", r.Topic == "hostile-a.retry")
		note("in a tier of b", r.Topic == "hostile-b.retry.2s")
	}
	for what, is := range seen {
		if !is {
			t.Errorf("no record is forged so: %s", what)
		}
	}
}

// The harness itself, as make hostile runs it, in small.
func TestForgedHeadersLoseMisleadAndStopNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("real Kafka is left out by -short")
	}
	out := filepath.Join(t.TempDir(), "hostile.json")
	var stdout, stderr strings.Builder
	if code := execute([]string{"-records", "20000", "-out", out}, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d\n%s\n%s", code, &stdout, &stderr)
	}
	t.Logf("\n%s", &stdout)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for dec := json.NewDecoder(strings.NewReader(string(text))); dec.More(); {
		var f testkit.Figure
		if err := dec.Decode(&f); err != nil {
			t.Fatal(err)
		}
		got[f.Name] = f.Value
	}
	for name, want := range map[string]float64{"forged": 20_000, "escaped": 0, "crashed": 0, "stuck": 0, "early": 0, "corrupt": 0, "lost": 0} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %v (%v), want %v", name, v, ok, want)
		}
	}
	if got["returned"] < 3000 || got["dead"] < 3000 {
		t.Errorf("%v returned and %v dead of 20000", got["returned"], got["dead"])
	}
}
