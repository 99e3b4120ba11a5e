package rolling

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// start is when a synthetic history begins, in Unix milliseconds.
const start = int64(1_700_000_000_000)

const records = 200

// good is a history in which everything went well.
func good(t *testing.T) *history {
	t.Helper()
	w := &workload{seed: 1, origin: "orders"}
	w.sent.Store(records)
	h := &history{
		workload: w, inboxed: map[uint32][]copied{}, tiers: map[uint32][]copied{}, returned: map[uint32][]copied{},
		dead: map[uint32][]copied{}, replays: map[uint32][]copied{}, rows: map[uint32][]row{},
		back: make([][]copied, partitions), again: make([][]copied, partitions),
	}
	total := int64(0)
	for id := range uint32(records) {
		p := w.plan(id)
		at := start + int64(id)*100
		c := copied{id: id, partition: w.partition(w.record(id)), offset: int64(id), time: at}
		h.inboxed[id] = []copied{c}
		if p.dead {
			h.dead[id] = []copied{c}
			c.job = "job"
			h.replays[id] = []copied{c}
			h.again[c.partition] = append(h.again[c.partition], c)
			h.rows[id] = []row{{"replayed", stage.Target{Topic: w.origin, Partition: c.partition, Offset: c.offset}}}
			total++
			continue
		}
		_, wait := w.tier(p.key)
		c.due = at + wait.Milliseconds()
		h.tiers[id] = []copied{c}
		c.time, c.due = c.due, 0
		h.returned[id] = []copied{c}
		h.back[c.partition] = append(h.back[c.partition], c)
	}
	h.jobs = []stage.Job{{ID: "job", State: "done", Total: total, Done: total}}
	return h
}

// find returns the first record that is dead, or is not.
func (h *history) find(dead bool) uint32 {
	for id := range uint32(records) {
		if h.plan(id).dead == dead {
			return id
		}
	}
	return 0
}

// swapKey swaps two copies of one key.
func swapKey(h *history, byPartition [][]copied) {
	for _, copies := range byPartition {
		for i := range copies {
			for j := range i {
				if h.plan(copies[i].id).key == h.plan(copies[j].id).key {
					copies[i], copies[j] = copies[j], copies[i]
					return
				}
			}
		}
	}
}

func TestAHistoryWithoutFaultHasNoFindings(t *testing.T) {
	h := good(t)
	want := findings{dead: len(h.dead), replayed: len(h.dead), back: len(h.returned)}
	if want.dead == 0 || want.back+want.dead != records {
		t.Fatalf("%d dead, %d back", want.dead, want.back)
	}
	var details stage.Details
	if got := check(h, &details); *got != want {
		t.Errorf("findings %+v, want %+v: %q", *got, want, details.Lines())
	}
}

func TestEachFaultIsFound(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(h *history, alive, dead uint32)
		want  func(f *findings)
	}{
		{"a record that did not come back", func(h *history, alive, _ uint32) { delete(h.returned, alive) }, func(f *findings) { f.lost, f.back = 1, f.back-1 }},
		{"a dead letter that is not there", func(h *history, _, dead uint32) { delete(h.dead, dead) }, func(f *findings) { f.lost, f.dead, f.replayed = 1, f.dead-1, f.replayed-1 }},
		{"a record that came back before it was due", func(h *history, alive, _ uint32) { h.returned[alive][0].time = h.tiers[alive][0].due - 2 }, func(f *findings) { f.early = 1 }},
		{"a due time before the wait is over", func(h *history, alive, _ uint32) { h.tiers[alive][0].due -= 2 }, func(f *findings) { f.early = 1 }},
		{"a record that did not wait", func(h *history, alive, _ uint32) { delete(h.tiers, alive) }, func(f *findings) { f.early = 1 }},
		{"two copies on the origin", func(h *history, alive, _ uint32) { h.returned[alive] = slices.Repeat(h.returned[alive], 2) }, func(f *findings) { f.duplicate = 1 }},
		{"two copies in a tier", func(h *history, alive, _ uint32) { h.tiers[alive] = slices.Repeat(h.tiers[alive], 2) }, func(f *findings) { f.duplicate = 1 }},
		{"a record that came back and is dead", func(h *history, alive, dead uint32) { h.dead[alive] = h.dead[dead] }, func(f *findings) { f.duplicate = 1 }},
		{"a dead letter that was retried", func(h *history, alive, dead uint32) { h.tiers[dead] = h.tiers[alive] }, func(f *findings) { f.duplicate = 1 }},
		{"keys out of order", func(h *history, _, _ uint32) { swapKey(h, h.back) }, func(f *findings) { f.order = 1 }},
		{"no row", func(h *history, _, dead uint32) { delete(h.rows, dead) }, func(f *findings) { f.indexMissing = 1 }},
		{"two rows", func(h *history, _, dead uint32) { h.rows[dead] = slices.Repeat(h.rows[dead], 2) }, func(f *findings) { f.indexDuplicate = 1 }},
		{"no replay", func(h *history, _, dead uint32) { delete(h.replays, dead) }, func(f *findings) { f.unreplayed, f.replayed = 1, f.replayed-1 }},
		{"two replays", func(h *history, _, dead uint32) { h.replays[dead] = slices.Repeat(h.replays[dead], 2) }, func(f *findings) { f.replayedTwice = 1 }},
		{"a mark where no copy lies", func(h *history, _, dead uint32) { h.rows[dead][0].copy.Offset++ }, func(f *findings) { f.markedAbsent = 1 }},
		{"a letter that stays claimed", func(h *history, _, dead uint32) { h.rows[dead][0].state = "claimed" }, func(f *findings) { f.markedAbsent = 1 }},
		{"a job that is not done", func(h *history, _, _ uint32) { h.jobs[0].Done-- }, func(f *findings) { f.jobs = 1 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := good(t)
			want := findings{dead: len(h.dead), replayed: len(h.dead), back: len(h.returned)}
			test.want(&want)
			test.spoil(h, h.find(false), h.find(true))
			var details stage.Details
			if got := check(h, &details); *got != want || len(details.Lines()) == 0 {
				t.Errorf("findings %+v, want %+v: %q", *got, want, details.Lines())
			}
		})
	}
}

// TestReplaysOfOneKeyHaveAnOrderInTheirJobOnly has two letters of one key, the later one first.
func TestReplaysOfOneKeyHaveAnOrderInTheirJobOnly(t *testing.T) {
	h := good(t)
	byKey := map[int]uint32{}
	var first, second uint32
	for id := range uint32(records) {
		key := h.plan(id).key
		if earlier, ok := byKey[key]; ok {
			first, second = earlier, id
			break
		}
		byKey[key] = id
	}
	if second == 0 {
		t.Fatal("no key twice")
	}
	for _, jobs := range [][2]string{{"a", "a"}, {"a", "b"}} {
		h.again = [][]copied{{{id: second, job: jobs[0]}, {id: first, job: jobs[1]}}}
		var details stage.Details
		if got := inversions(h, h.again, func(c copied) string { return c.job }, "replay_order", &details); (got == 1) != (jobs[0] == jobs[1]) {
			t.Errorf("jobs %q: %d out of order", jobs, got)
		}
	}
}

// TestACopyIsHeldAgainstItsRecord takes copies as the forwarder makes them, and changes one thing of each.
func TestACopyIsHeldAgainstItsRecord(t *testing.T) {
	w := &workload{seed: 1, origin: "orders"}
	w.sent.Store(records)
	const id, due = 8, "2026-01-31T12:00:00.000Z"
	at, err := time.Parse(time.RFC3339, due)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		spoil  func(r *kgo.Record)
		counts [3]int // corrupt, id_changed, misrouted
	}{
		{"nothing", func(*kgo.Record) {}, [3]int{}},
		{"the value", func(r *kgo.Record) { r.Value = append(r.Value, 'x') }, [3]int{1, 0, 0}},
		{"the number", func(r *kgo.Record) { r.Headers[0].Value = nil }, [3]int{1, 0, 0}},
		{"a number that there is not", func(r *kgo.Record) { w.sent.Store(id) }, [3]int{1, 0, 0}},
		{"the message id", func(r *kgo.Record) { r.Headers[len(r.Headers)-1].Value = []byte("other") }, [3]int{0, 1, 0}},
		{"the partition", func(r *kgo.Record) { r.Partition = (r.Partition + 1) % partitions }, [3]int{0, 0, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.sent.Store(records)
			h := &history{workload: w}
			r := w.record(id)
			r.Topic, r.Partition, r.Offset, r.Timestamp = w.origin, w.partition(r), 77, time.UnixMilli(start)
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "redrive-available-at", Value: []byte(due)},
				kgo.RecordHeader{Key: "redrive-replay-id", Value: []byte("job")}, kgo.RecordHeader{Key: "redrive-message-id", Value: []byte(w.messageID(id))})
			home := r.Partition
			test.spoil(r)
			var details stage.Details
			c, ok := h.take(r, &details)
			if got := [3]int{h.corrupt, h.idChanged, h.misrouted}; got != test.counts {
				t.Errorf("corrupt, id_changed, misrouted are %v, want %v: %q", got, test.counts, details.Lines())
			}
			want := copied{id: id, partition: home, offset: 77, time: start, due: at.UnixMilli(), job: "job"}
			if test.name == "nothing" && (!ok || cmp.Diff(want, c, cmp.AllowUnexported(copied{})) != "") {
				t.Errorf("the copy is %+v, want %+v", c, want)
			}
		})
	}
}

// TestAllOfAKeyWaitEquallyLongInOnePartition is what the rule of order rests on.
func TestAllOfAKeyWaitEquallyLongInOnePartition(t *testing.T) {
	w := &workload{seed: 7, origin: "orders"}
	places := map[string]string{}
	for id := range uint32(3000) {
		rec := w.record(id)
		attempt, _ := stage.Header(rec, "redrive-attempt")
		place := attempt + " " + strconv.Itoa(int(w.partition(rec)))
		if was, ok := places[string(rec.Key)]; ok && was != place {
			t.Fatalf("key %s is in %q and %q", rec.Key, was, place)
		}
		places[string(rec.Key)] = place
	}
	if len(places) != keys {
		t.Errorf("%d keys", len(places))
	}
}

func TestWithoutARepositoryThereIsNoPreviousBuild(t *testing.T) {
	t.Setenv("GIT_CEILING_DIRECTORIES", os.TempDir())
	dir := t.TempDir()
	t.Chdir(dir)
	if _, err := BuildPrevious(t.Context(), dir); !errors.Is(err, ErrNoPrevious) {
		t.Errorf("%v", err)
	}
	// A clone that has not the commit and no place to fetch it from.
	if _, err := git(t.Context(), dir, "init", "--quiet", filepath.Join(dir, "clone")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(dir, "clone"))
	if _, err := BuildPrevious(t.Context(), dir); !errors.Is(err, ErrNoPrevious) {
		t.Errorf("%v", err)
	}
}
