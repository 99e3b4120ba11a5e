package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// Moments of the synthetic histories, in Unix milliseconds.
const (
	start = int64(1_700_000_000_000)
	kill  = start + 60_000
)

// good is a history in which everything went well: each letter has one copy, in order, and is marked.
func good(t *testing.T) *history {
	t.Helper()
	w := newWorkload(Options{Letters: 60, Keys: 6, Kills: 3, Seed: 1})
	h := &history{work: w, rows: map[int]row{}, details: &stage.Details{}, jobs: []stage.Job{{ID: "job", State: "done", Total: 60, Done: 60}}}
	next := map[int32]int64{}
	for id := range w.letters {
		home := int32(partitioner.Partition(&kgo.Record{Key: w.record(id).Key}, int(topic.Partitions)))
		c := copied{id: id, partition: home, offset: next[home], time: start + int64(id)*1000, job: "job"}
		next[home]++
		h.copies = append(h.copies, c)
		h.rows[id] = row{state: "replayed", job: "job", copy: stage.Target{Topic: topic.Origin, Partition: home, Offset: c.offset}}
	}
	return h
}

// doubled is the letter that again makes a second copy of.
const doubled = 40

// again adds a second copy of a letter at the end of its partition, ten seconds after kill.
func (h *history) again() {
	const id, time = doubled, kill + 10_000
	first := h.copies[slices.IndexFunc(h.copies, func(c copied) bool { return c.id == id })]
	end := int64(0)
	for _, c := range h.copies {
		if c.partition == first.partition {
			end = max(end, c.offset+1)
		}
	}
	h.copies = append(h.copies, copied{id: id, partition: first.partition, offset: end, time: time, job: first.job})
}

func TestAHistoryWithoutFaultHasNoFindings(t *testing.T) {
	h := good(t)
	if f := check(h); *f != (findings{replayed: 60, most: 1}) {
		t.Errorf("findings %+v: %q", *f, h.details.Lines())
	}
}

func TestEachFaultIsFound(t *testing.T) {
	event := func(kind stage.Kind, from, to int64) *stage.Event {
		return &stage.Event{Kind: kind, What: string(kind), From: from, To: to}
	}
	for _, test := range []struct {
		name  string
		spoil func(h *history)
		want  findings
	}{
		{"a mark without a copy", func(h *history) { h.copies = h.copies[1:] }, findings{replayed: 60, absent: 1, most: 1}},
		{"a mark where another copy lies", func(h *history) {
			r := h.rows[5]
			r.copy.Offset += 3
			h.rows[5] = r
		}, findings{replayed: 60, absent: 1, most: 1}},
		{"a mark of another job", func(h *history) {
			r := h.rows[5]
			r.job = "other"
			h.rows[5] = r
		}, findings{replayed: 60, absent: 1, most: 1}},
		{"a letter that stays claimed", func(h *history) { h.rows[7] = row{state: "claimed"} }, findings{replayed: 59, unreplayed: 1, most: 1}},
		{"a letter without a row", func(h *history) { delete(h.rows, 7) }, findings{replayed: 59, unreplayed: 1, most: 1}},
		{"a job that is not done", func(h *history) { h.jobs[0].Done = 59 }, findings{replayed: 60, unreplayed: 1, most: 1}},
		{"a key in another order", func(h *history) {
			// 50 and 56 are of one key.
			h.copies[50].offset, h.copies[56].offset = h.copies[56].offset, h.copies[50].offset
			for _, id := range []int{50, 56} {
				r := h.rows[id]
				r.copy.Offset = h.copies[id].offset
				h.rows[id] = r
			}
		}, findings{replayed: 60, inversions: 1, most: 1}},
		{"two copies and no reason", func(h *history) { h.again() }, findings{replayed: 60, twice: 1, unexplained: 1, most: 2}},
		{"two copies, and a death long before the first", func(h *history) {
			h.again()
			h.events = append(h.events, event(stage.ReplicaKilled, start, start+10))
		}, findings{replayed: 60, twice: 1, unexplained: 1, most: 2}},
		{"two copies, and a death after the first could be seen", func(h *history) {
			h.again()
			h.events = append(h.events, event(stage.ReplicaKilled, start+45_000, start+46_000))
		}, findings{replayed: 60, twice: 1, unexplained: 1, most: 2}},
		{"two copies, the first of them appended after a death", func(h *history) {
			h.again()
			h.events = append(h.events, event(stage.ReplicaKilled, start+39_500, start+41_000))
		}, findings{replayed: 60, twice: 1, most: 2}},
		{"two copies, a death between them, and a broker that was down", func(h *history) {
			h.again()
			h.events = append(h.events, event(stage.ReplicaKilled, start+45_000, start+46_000), event(stage.BrokerKilled, start+44_000, start+55_000))
		}, findings{replayed: 60, twice: 1, most: 2}},
		{"two copies, and nothing but a broker that was down", func(h *history) {
			h.again()
			h.events = append(h.events, event(stage.BrokerKilled, start+44_000, start+55_000))
		}, findings{replayed: 60, twice: 1, unexplained: 1, most: 2}},
		{"two copies, the second sent when a replica went on", func(h *history) {
			h.again()
			h.events = append(h.events, event(stage.ReplicaFrozen, start+39_000, kill+9_000))
		}, findings{replayed: 60, twice: 1, most: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := good(t)
			test.spoil(h)
			if f := check(h); *f != test.want {
				t.Errorf("findings %+v, want %+v: %q", *f, test.want, h.details.Lines())
			}
		})
	}
}

// TestACopyIsHeldAgainstItsLetter takes copies as the replayer makes them, and changes one thing of each.
func TestACopyIsHeldAgainstItsLetter(t *testing.T) {
	w := newWorkload(Options{Letters: 60, Keys: 6, Kills: 3, Seed: 1})
	const id = 8 // It has no name of its own.
	lies := map[int]string{id: "chaos-replay.dlt/3/17"}
	proper := func() *kgo.Record {
		letter := w.record(id)
		copied := &kgo.Record{Topic: topic.Origin, Key: letter.Key, Value: letter.Value}
		copied.Partition = int32(partitioner.Partition(letter, int(topic.Partitions)))
		dropped := []string{"redrive-attempt", "redrive-reason", "redrive-error-type", "redrive-error-message"}
		for _, h := range letter.Headers {
			if !slices.Contains(dropped, h.Key) {
				copied.Headers = append(copied.Headers, h)
			}
		}
		for _, h := range []string{"message-id=" + lies[id], "replay-id=job", "replay-count=1", "replayed-from=" + lies[id]} {
			name, value, _ := strings.Cut(h, "=")
			copied.Headers = append(copied.Headers, kgo.RecordHeader{Key: "redrive-" + name, Value: []byte(value)})
		}
		return copied
	}
	set := func(r *kgo.Record, name, value string) {
		for i := range r.Headers {
			if r.Headers[i].Key == name {
				r.Headers[i].Value = []byte(value)
			}
		}
	}
	for _, test := range []struct {
		name   string
		spoil  func(r *kgo.Record)
		counts [3]int // corrupt, id_changed, misrouted
	}{
		{"nothing", func(*kgo.Record) {}, [3]int{}},
		{"the value", func(r *kgo.Record) { r.Value = []byte("other") }, [3]int{1, 0, 0}},
		{"the number", func(r *kgo.Record) { set(r, idHeader, "x") }, [3]int{1, 0, 0}},
		{"a number that there is not", func(r *kgo.Record) { set(r, idHeader, strconv.Itoa(w.total())) }, [3]int{1, 0, 0}},
		{"the message id", func(r *kgo.Record) { set(r, "redrive-message-id", "other") }, [3]int{0, 1, 0}},
		{"the replay count", func(r *kgo.Record) { set(r, "redrive-replay-count", "2") }, [3]int{0, 1, 0}},
		{"attempts that go on", func(r *kgo.Record) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "redrive-attempt", Value: []byte("3")})
		}, [3]int{0, 1, 0}},
		{"the partition", func(r *kgo.Record) { r.Partition = (r.Partition + 1) % topic.Partitions }, [3]int{0, 0, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &history{work: w, details: &stage.Details{}}
			r := proper()
			test.spoil(r)
			h.add(r, lies)
			if got := [3]int{h.corrupt, h.idChanged, h.misrouted}; got != test.counts {
				t.Errorf("corrupt, id_changed, misrouted are %v, want %v: %q", got, test.counts, h.details.Lines())
			}
		})
	}
}

func TestAKeyBelongsToOneJobAndOnePartition(t *testing.T) {
	w := newWorkload(Options{Letters: 1000, Keys: 30, Kills: 7, Freezes: 2, Seed: 1})
	homes, letterPartitions := map[string]string{}, map[string]map[int32]bool{}
	byType := map[string]int{}
	for id := range w.total() {
		r := w.record(id)
		errorType, _ := stage.Header(r, "redrive-error-type")
		home, _ := stage.Header(r, "redrive-original-partition")
		byType[errorType]++
		key := string(r.Key)
		if was, ok := homes[key]; ok && was != errorType+home {
			t.Fatalf("key %s is of %s and %s", key, was, errorType+home)
		}
		homes[key] = errorType + home
		if letterPartitions[key] == nil {
			letterPartitions[key] = map[int32]bool{}
		}
		letterPartitions[key][r.Partition] = true
	}
	for errorType, n := range w.byType {
		if byType[errorType] != n {
			t.Errorf("%d letters are of %s, want %d", byType[errorType], errorType, n)
		}
	}
	if len(byType) != 7+2 || len(homes) != 30+2*frozenKeys {
		t.Errorf("%d error types and %d keys", len(byType), len(homes))
	}
	for key, in := range letterPartitions {
		if len(in) < 2 {
			t.Errorf("the letters of key %s are all in one partition", key)
		}
	}
	if got := fmt.Sprint(w.record(3).Headers); got != fmt.Sprint(newWorkload(Options{Letters: 1000, Keys: 30, Kills: 7, Freezes: 2, Seed: 1}).record(3).Headers) {
		t.Errorf("a letter is another one the second time: %s", got)
	}
}
