package rolling

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// copied is a record of a topic. Moments are Unix milliseconds, by the brokers' clock.
type copied struct {
	id        uint32
	partition int32
	offset    int64
	time      int64
	due       int64  // redrive-available-at; of a tier only
	job       string // redrive-replay-id; of the origin only
}

// row is what the ledger says of a letter.
type row struct {
	state string
	copy  stage.Target
}

// history is all that is known after a run.
type history struct {
	*workload
	// By record, in the order of the offsets of each partition.
	inboxed, tiers, returned, dead, replays map[uint32][]copied
	// The records that came back, and the replays, in the order of the origin's offsets.
	back, again [][]copied
	rows        map[uint32][]row
	jobs        []stage.Job

	corrupt, idChanged, misrouted, phantom int
}

// read reads all topics and the ledger.
func (s *story) read(ctx context.Context) (*history, error) {
	h := &history{
		workload: s.workload, inboxed: map[uint32][]copied{}, tiers: map[uint32][]copied{}, returned: map[uint32][]copied{},
		dead: map[uint32][]copied{}, replays: map[uint32][]copied{}, rows: map[uint32][]row{},
		back: make([][]copied, partitions), again: make([][]copied, partitions),
	}
	type placement struct {
		topic     string
		partition int32
		offset    int64
	}
	letters := map[placement]uint32{}
	short, _ := s.tier(0)
	long, _ := s.tier(1)
	for topic, into := range map[string]map[uint32][]copied{s.inbox(): h.inboxed, short: h.tiers, long: h.tiers, s.letters(): h.dead, s.origin: nil} {
		err := s.client.Read(ctx, topic, kgo.ReadCommitted(), func(rec *kgo.Record) {
			c, ok := h.take(rec, &s.details)
			switch {
			case !ok:
			case into != nil:
				into[c.id] = append(into[c.id], c)
				if topic == s.letters() {
					letters[placement{topic, c.partition, c.offset}] = c.id
				}
			case c.job == "":
				h.returned[c.id] = append(h.returned[c.id], c)
				h.back[c.partition] = append(h.back[c.partition], c)
			default:
				h.replays[c.id] = append(h.replays[c.id], c)
				h.again[c.partition] = append(h.again[c.partition], c)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	err := s.api.Export(ctx, nil, func(l *stage.Letter) error {
		id, ok := letters[placement{l.Topic, l.Partition, l.Offset}]
		if !ok {
			h.phantom++
			s.details.Tell("index_phantom", "row %d says %s/%d@%d, where no record is", l.ID, l.Topic, l.Partition, l.Offset)
			return nil
		}
		r := row{state: l.State}
		if l.Copy != nil {
			r.copy = *l.Copy
		}
		h.rows[id] = append(h.rows[id], r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, id := range s.jobs {
		job, err := s.api.Job(ctx, id)
		if err != nil {
			return nil, err
		}
		h.jobs = append(h.jobs, job)
	}
	return h, nil
}

// take holds a record against the one that was sent.
func (h *history) take(rec *kgo.Record, details *stage.Details) (copied, bool) {
	where := fmt.Sprintf("%s/%d@%d", rec.Topic, rec.Partition, rec.Offset)
	id, ok := numberOf(rec)
	if !ok || id >= h.sent.Load() {
		h.corrupt++
		details.Tell("corrupt", "%s is no record of this run", where)
		return copied{}, false
	}
	want := h.record(id)
	if diff := stage.Difference(want, rec); diff != "" {
		h.corrupt++
		details.Tell("corrupt", "%s, record %d: %s", where, id, diff)
	}
	if name, _ := stage.Header(rec, "redrive-message-id"); name != h.messageID(id) && rec.Topic != h.inbox() {
		h.idChanged++
		details.Tell("id_changed", "%s, record %d: redrive-message-id is %q", where, id, name)
	}
	if home := h.partition(want); rec.Partition != home {
		h.misrouted++
		details.Tell("misrouted", "%s, record %d, belongs to partition %d", where, id, home)
	}
	c := copied{id: id, partition: rec.Partition, offset: rec.Offset, time: rec.Timestamp.UnixMilli()}
	c.job, _ = stage.Header(rec, "redrive-replay-id")
	if text, ok := stage.Header(rec, "redrive-available-at"); ok {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			c.due = at.UnixMilli()
		}
	}
	return c, true
}

// findings are what the check found.
type findings struct {
	back, dead, replayed                                       int
	lost, early, duplicate, order                              int
	indexMissing, indexDuplicate                               int
	unreplayed, replayedTwice, markedAbsent, replayOrder, jobs int
}

// check holds a history against the rules. It reads no clock and asks nobody.
func check(h *history, details *stage.Details) *findings {
	f := &findings{}
	for id := range h.sent.Load() {
		p := h.plan(id)
		if p.dead {
			f.letter(h, id, details)
		} else {
			f.returns(h, id, p, details)
		}
	}
	f.order = inversions(h, h.back, func(c copied) string { return "" }, "order", details)
	// The first copies of one key in one job are in the order of the origin.
	f.replayOrder = inversions(h, h.again, func(c copied) string { return c.job }, "replay_order", details)
	for _, job := range h.jobs {
		if job.State != "done" || job.Done != job.Total {
			f.jobs++
			details.Tell("jobs_not_done", "job %s is %s: %d letters, %d done, %d failed, %d skipped, %q", job.ID, job.State, job.Total, job.Done,
				job.Failed, job.Skipped, job.FirstError)
		}
	}
	return f
}

// returns checks a record that shall wait and come back.
func (f *findings) returns(h *history, id uint32, p plan, details *stage.Details) {
	if len(h.returned[id]) == 0 {
		f.lost++
		details.Tell("lost", "record %d did not come back; in the inbox %+v, in tiers %+v, dead %+v", id, h.inboxed[id], h.tiers[id], h.dead[id])
		return
	}
	f.back++
	f.single(id, h.tiers[id], "in a tier", details)
	f.single(id, h.returned[id], "on the origin", details)
	if n := len(h.dead[id]) + len(h.replays[id]); n > 0 {
		f.duplicate += n
		details.Tell("duplicate", "record %d came back and is dead as well: %+v, %+v", id, h.dead[id], h.replays[id])
	}
	_, wait := h.tier(p.key)
	for _, t := range h.tiers[id] {
		for _, in := range h.inboxed[id] {
			if t.due < in.time+wait.Milliseconds()-1 {
				f.early++
				details.Tell("early", "record %d came in at %d and is due at %d, not %v later", id, in.time, t.due, wait)
			}
		}
		for _, c := range h.returned[id] {
			if c.time < t.due-1 {
				f.early++
				details.Tell("early", "record %d came back at %d, %d ms before it was due", id, c.time, t.due-c.time)
			}
		}
	}
	if len(h.tiers[id]) == 0 {
		f.early++
		details.Tell("early", "record %d came back without having waited", id)
	}
}

// letter checks a record that shall be dead, indexed and replayed.
func (f *findings) letter(h *history, id uint32, details *stage.Details) {
	if len(h.dead[id]) == 0 {
		f.lost++
		details.Tell("lost", "record %d has no dead letter; in the inbox %+v, in tiers %+v, on the origin %+v", id, h.inboxed[id], h.tiers[id], h.returned[id])
		return
	}
	f.dead++
	f.single(id, h.dead[id], "among the dead letters", details)
	if n := len(h.tiers[id]) + len(h.returned[id]); n > 0 {
		f.duplicate += n
		details.Tell("duplicate", "record %d is dead and was retried as well: %+v, %+v", id, h.tiers[id], h.returned[id])
	}
	rows, copies := h.rows[id], h.replays[id]
	switch {
	case len(rows) < len(h.dead[id]):
		f.indexMissing++
		details.Tell("index_missing", "record %d has %d dead letters and %d rows", id, len(h.dead[id]), len(rows))
	case len(rows) > len(h.dead[id]):
		f.indexDuplicate++
		details.Tell("index_duplicate", "record %d has %d dead letters and %d rows", id, len(h.dead[id]), len(rows))
	}
	if len(copies) == 0 {
		f.unreplayed++
		details.Tell("unreplayed", "record %d has no replay; rows %+v", id, rows)
		return
	}
	f.replayed++
	if n := len(copies) - len(h.dead[id]); n > 0 {
		f.replayedTwice += n
		details.Tell("replayed_twice", "record %d: %+v", id, copies)
	}
	for _, r := range rows {
		there := false
		for _, c := range copies {
			there = there || r.copy == stage.Target{Topic: h.origin, Partition: c.partition, Offset: c.offset}
		}
		if r.state != "replayed" || !there {
			f.markedAbsent++
			details.Tell("marked_absent", "record %d is %q at %+v, its replays are %+v", id, r.state, r.copy, copies)
		}
	}
}

// single counts the copies above one.
func (f *findings) single(id uint32, copies []copied, where string, details *stage.Details) {
	if n := len(copies) - 1; n > 0 {
		f.duplicate += n
		details.Tell("duplicate", "record %d is %d times %s: %+v", id, len(copies), where, copies)
	}
}

// inversions counts the first copies that stand behind one of a later record of their key. Only those of one scope have an order.
func inversions(h *history, byPartition [][]copied, scope func(copied) string, kind string, details *stage.Details) int {
	n := 0
	latest, seen := map[string]uint32{}, map[uint32]bool{}
	for _, copies := range byPartition {
		for _, c := range copies {
			if seen[c.id] {
				continue
			}
			seen[c.id] = true
			key := strconv.Itoa(h.plan(c.id).key) + " " + scope(c)
			if last, ok := latest[key]; ok && last > c.id {
				n++
				details.Tell(kind, "record %d stands at %d@%d, behind record %d of its key", c.id, c.partition, c.offset, last)
			}
			latest[key] = max(latest[key], c.id)
		}
	}
	return n
}

// report sums up.
func (s *story) report(h *history, f *findings, took time.Duration) *stage.Report {
	r := &stage.Report{Details: s.details.Lines()}
	prefix := "upgrade_" + string(s.Order) + "_first_"
	add := func(name string, value float64, unit string) { r.Add(prefix+name, value, unit) }
	none := func(name string, n int, unit string) { r.None(prefix+name, n, unit) }
	add("records", float64(s.sent.Load()), "records")
	add("exchanges", float64(s.exchanges), "replicas")
	add("returned", float64(f.back), "records")
	add("dead", float64(f.dead), "letters")
	add("replayed", float64(f.replayed), "letters")
	add("jobs", float64(len(h.jobs)), "jobs")
	add("jobs_taken_over", float64(s.moved), "jobs")
	none("lost", f.lost, "records")
	none("early", f.early, "records")
	none("duplicate", f.duplicate, "records")
	none("order", f.order, "records")
	none("corrupt", h.corrupt, "records")
	none("id_changed", h.idChanged, "records")
	none("misrouted", h.misrouted, "records")
	none("index_missing", f.indexMissing, "letters")
	none("index_duplicate", f.indexDuplicate, "letters")
	none("index_phantom", h.phantom, "letters")
	none("unreplayed", f.unreplayed, "letters")
	none("replayed_twice", f.replayedTwice, "copies")
	none("marked_absent", f.markedAbsent, "letters")
	none("replay_order", f.replayOrder, "copies")
	none("jobs_not_done", f.jobs, "jobs")
	add("stop_max_seconds", s.slowestStop.Seconds(), "s")
	add("schema_before", float64(s.firstSchema), "version")
	add("schema_after", float64(s.schema), "version")
	add("indexed_by_previous_on_newer", s.indexedOnNewer, "letters")
	add("replayed_by_previous_on_newer", s.replayedOnNewer, "letters")
	add("seconds", took.Seconds(), "s")
	if s.slowestStop >= stopBound {
		r.Violations = append(r.Violations, fmt.Sprintf("a graceful stop took %v, which is not under %v", s.slowestStop, stopBound))
	}
	if s.schema > s.firstSchema && s.indexedOnNewer == 0 {
		r.Violations = append(r.Violations, "the previous build has indexed nothing on the newer tables")
	}
	return r
}
