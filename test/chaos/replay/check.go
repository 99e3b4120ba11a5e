package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// history is all that is known after a run.
type history struct {
	work    *workload
	copies  []copied // in the order of their offsets
	rows    map[int]row
	jobs    []stage.Job
	events  []*stage.Event
	details *stage.Details

	corrupt, idChanged, misrouted int
}

// copied is a record of the origin.
type copied struct {
	id        int
	partition int32
	offset    int64
	time      int64 // LogAppendTime, Unix milliseconds
	job       string
}

// row is what the ledger says of a letter.
type row struct {
	state string
	job   string
	copy  stage.Target
}

// read reads the origin and the ledger.
func (r *run) read(ctx context.Context) (*history, error) {
	h := &history{work: r.workload, rows: map[int]row{}, events: r.stage.Events(), details: &r.details}
	// Where each letter lies tells the name of those that have none, and what a copy says that it was replayed from.
	places := map[string]int{}
	lies := map[int]string{}
	err := r.stage.Client.Read(ctx, topic.Letters(), kgo.ReadCommitted(), func(rec *kgo.Record) {
		if id, ok := numberOf(rec); ok {
			at := fmt.Sprintf("%s/%d/%d", rec.Topic, rec.Partition, rec.Offset)
			places[at], lies[id] = id, at
		}
	})
	if err != nil {
		return nil, err
	}
	err = r.stage.Client.Read(ctx, topic.Origin, kgo.ReadUncommitted(), func(rec *kgo.Record) { h.add(rec, lies) })
	if err != nil {
		return nil, err
	}
	err = r.export(ctx, nil, func(l *stage.Letter) {
		id, ok := places[fmt.Sprintf("%s/%d/%d", l.Topic, l.Partition, l.Offset)]
		if !ok {
			h.details.Tell("unreplayed", "letter %d is none of this run: %+v", l.ID, *l)
			return
		}
		w := row{state: l.State}
		if l.Claim != nil {
			w.job = l.Claim.Job
		}
		if l.Copy != nil {
			w.copy = *l.Copy
		}
		h.rows[id] = w
	})
	if err != nil {
		return nil, err
	}
	for _, id := range r.jobs {
		job, err := r.stage.API.Job(ctx, id)
		if err != nil {
			return nil, err
		}
		h.jobs = append(h.jobs, job)
	}
	return h, nil
}

// add takes a record of the origin. lies says where each letter lies.
func (h *history) add(rec *kgo.Record, lies map[int]string) {
	where := fmt.Sprintf("%s/%d@%d", rec.Topic, rec.Partition, rec.Offset)
	id, ok := numberOf(rec)
	if !ok || id >= h.work.total() {
		h.corrupt++
		h.details.Tell("corrupt", "%s is no copy of a letter of this run", where)
		return
	}
	want := h.work.record(id)
	if diff := stage.Difference(want, rec); diff != "" {
		h.corrupt++
		h.details.Tell("corrupt", "%s, letter %d: %s", where, id, diff)
	}
	given := name(id)
	if given == "" {
		given = lies[id]
	}
	job, _ := stage.Header(rec, "redrive-replay-id")
	for header, value := range map[string]string{
		"redrive-message-id": given, "redrive-replay-count": "1", "redrive-replayed-from": lies[id], "redrive-deliveries": "3",
		"redrive-original-topic": topic.Origin, "redrive-original-offset": strconv.Itoa(id), "redrive-attempt": "",
		"redrive-reason": "", "redrive-error-type": "", "redrive-error-message": "",
	} {
		if got, _ := stage.Header(rec, header); got != value {
			h.idChanged++
			h.details.Tell("id_changed", "%s, letter %d: %s is %q, want %q", where, id, header, got, value)
			break
		}
	}
	if home := partitioner.Partition(&kgo.Record{Key: want.Key}, int(topic.Partitions)); rec.Partition != int32(home) {
		h.misrouted++
		h.details.Tell("misrouted", "%s, letter %d, belongs to partition %d", where, id, home)
	}
	h.copies = append(h.copies, copied{id: id, partition: rec.Partition, offset: rec.Offset, time: rec.Timestamp.UnixMilli(), job: job})
}

func numberOf(rec *kgo.Record) (int, bool) {
	text, _ := stage.Header(rec, idHeader)
	id, err := strconv.Atoi(text)
	return id, err == nil && id >= 0
}

// findings are what the check found.
type findings struct {
	replayed, absent, unreplayed, twice, unexplained, inversions int
	most                                                         int // copies of one letter
}

// check holds a history against the rules. It reads no clock and asks nobody.
func check(h *history) *findings {
	f := &findings{}
	slices.SortFunc(h.copies, func(a, b copied) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	byLetter := map[int][]copied{}
	latest := map[int]int{} // by key: the latest letter of which a copy was seen
	for _, c := range h.copies {
		if len(byLetter[c.id]) == 0 {
			key := h.work.key(c.id)
			if last, ok := latest[key]; ok && last > c.id {
				f.inversions++
				h.details.Tell("order_first", "letter %d of key %d stands at %d@%d, behind letter %d", c.id, key, c.partition, c.offset, last)
			}
			latest[key] = max(latest[key], c.id)
		}
		byLetter[c.id] = append(byLetter[c.id], c)
	}
	for id := range h.work.total() {
		h.letter(f, id, byLetter[id])
	}
	for _, job := range h.jobs {
		if job.State != "done" || job.Done != job.Total {
			f.unreplayed++
			h.details.Tell("unreplayed", "job %s is %s: %d letters, %d done, %d failed, %d skipped, %q", job.ID, job.State, job.Total, job.Done,
				job.Failed, job.Skipped, job.FirstError)
		}
	}
	return f
}

// letter checks one letter and its copies.
func (h *history) letter(f *findings, id int, copies []copied) {
	marked := h.rows[id]
	if marked.state != "replayed" {
		f.unreplayed++
		h.details.Tell("unreplayed", "letter %d is %q, with %d copies", id, marked.state, len(copies))
	} else {
		f.replayed++
		there := slices.ContainsFunc(copies, func(c copied) bool {
			return marked.copy == stage.Target{Topic: topic.Origin, Partition: c.partition, Offset: c.offset} && marked.job == c.job
		})
		if !there {
			f.absent++
			h.details.Tell("marked_absent", "letter %d is marked at %+v by job %s, its copies: %+v", id, marked.copy, marked.job, copies)
		}
	}
	f.most = max(f.most, len(copies))
	for i := 1; i < len(copies); i++ {
		f.twice++
		why := h.explain(copies[i-1], copies[i])
		if why == "" {
			f.unexplained++
			h.details.Tell("twice_unexplained", "letter %d: %+v", id, copies)
			continue
		}
		h.details.Tell("replayed_twice", "letter %d, %d ms apart: %s", id, copies[i].time-copies[i-1].time, why)
	}
}

// late is how long after the death of a sender the broker may still append what it had sent.
const late = 2 * time.Second

// explain says which event has made a second copy: a replica died, or stood still, between the two copies, and whoever took over could
// not see the first. It is "" where there is none.
func (h *history) explain(first, second copied) string {
	for _, e := range h.events {
		if e.Kind != stage.ReplicaKilled && e.Kind != stage.ReplicaFrozen {
			continue
		}
		if e.From > second.time || e.From < first.time-late.Milliseconds() {
			continue
		}
		switch {
		case e.Kind == stage.ReplicaFrozen && second.time >= e.To:
			return e.What + ": sent when it went on"
		case first.time >= e.From:
			return e.What + ": appended after it"
		}
		for _, b := range h.events {
			if b.Kind == stage.BrokerKilled && b.From <= second.time && b.To >= first.time {
				return e.What + ", and " + b.What
			}
		}
	}
	return ""
}

func (r *run) report(h *history, f *findings, took time.Duration) *stage.Report {
	report := &stage.Report{Details: r.details.Lines()}
	kinds := map[stage.Kind]int{}
	for _, e := range h.events {
		report.Events = append(report.Events, e.What)
		kinds[e.Kind]++
	}
	hits, never := r.stage.Points(points)
	report.Add("letters", float64(r.total()), "letters")
	report.Add("replayed", float64(f.replayed), "letters")
	report.None("marked_absent", f.absent, "letters")
	report.None("unreplayed", f.unreplayed, "letters")
	report.Add("replayed_twice", float64(f.twice), "copies")
	report.Add("replayed_most", float64(f.most), "copies")
	report.None("twice_unexplained", f.unexplained, "copies")
	report.None("order_first", f.inversions, "copies")
	report.None("corrupt", h.corrupt, "copies")
	report.None("id_changed", h.idChanged, "copies")
	report.None("misrouted", h.misrouted, "copies")
	report.Add("frozen", float64(kinds[stage.ReplicaFrozen]), "stops")
	report.None("frozen_marks", r.frozenMarks, "letters")
	report.Add("frozen_sends", float64(r.frozenSends), "copies")
	report.Add("frozen_sends_max", float64(r.frozenMost), "copies")
	report.Add("frozen_held_max", float64(r.frozenHeld), "records")
	report.Add("frozen_fenced", float64(r.frozenFenced), "writes")
	report.Add("replay_kills", float64(kinds[stage.ReplicaKilled]), "kills")
	report.Add("replay_point_kills", float64(hits), "kills")
	report.Add("replay_broker_kills", float64(kinds[stage.BrokerKilled]), "kills")
	report.Add("replay_database_kills", float64(kinds[stage.DatabaseKilled]), "kills")
	report.Add("replay_seconds", took.Seconds(), "s")
	if r.frozenMost > stage.InFlight {
		report.Violations = append(report.Violations, fmt.Sprintf("a replica sent %d copies after its lease, more than %d", r.frozenMost, stage.InFlight))
	}
	if kinds[stage.ReplicaKilled] >= 4*len(points) && len(never) > 0 {
		report.Violations = append(report.Violations, fmt.Sprintf("nobody died at %v", never))
	}
	return report
}
