package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// meanBound is the most that a kill may repeat on average at a rate of 2,000 records/s: what a quarter of a second
// forwards. Lower rates have no lower bound, since a commit interval is what it is.
const meanBound = 500

// stopBound is what a graceful stop may take.
const stopBound = 5 * time.Second

// makeReport sums up the findings.
func makeReport(h *history, f *findings, slowestStop time.Duration) *stage.Report {
	kills, sum, most := 0, 0, 0
	for i, e := range h.events {
		if e.kind != killed {
			continue
		}
		kills++
		sum += f.perEvent[i].copies
		most = max(most, f.perEvent[i].copies)
	}
	mean := float64(sum) / float64(max(1, kills))

	r := &stage.Report{}
	for i, e := range h.events {
		text := fmt.Sprintf("%s: %d extra copies", e.what, f.perEvent[i].copies)
		if f.perEvent[i].worst != "" {
			text += ", " + f.perEvent[i].worst + " among them"
		}
		r.Events = append(r.Events, text)
	}
	none := func(name string, n int) { r.None(name, n, "records") }
	r.Add("records", float64(f.records), "records")
	none("lost", f.lost)
	none("early", f.early)
	none("corrupt", f.corrupt)
	none("commit_ahead", f.commitAhead)
	r.Add("duplicate", float64(f.duplicate), "records")
	r.Add("duplicate_mean_per_kill", mean, "records")
	r.Add("duplicate_max_per_kill", float64(most), "records")
	none("id_changed", f.idChanged)
	none("graceful_duplicate", f.gracefulDuplicate)
	r.Add("graceful_max_seconds", slowestStop.Seconds(), "s")
	none("graceful_lost", f.gracefulLost)
	none("misrouted", f.misrouted)
	none("duplicate_unexplained", f.unexplained)
	r.Add("moved", float64(f.moved), "records")
	r.Add("twins_dropped", float64(f.skipped), "records")
	r.Add("commits_set_back", float64(f.setBack), "commits")

	if mean > meanBound {
		r.Violations = append(r.Violations, fmt.Sprintf("a kill repeats %.0f records on average, more than %d", mean, meanBound))
	}
	if f.overBound > 0 {
		r.Violations = append(r.Violations, fmt.Sprintf("%d times a kill repeated more than maxUncommitted (%d) of one partition", f.overBound, h.maxUncommitted))
	}
	if slowestStop >= stopBound {
		r.Violations = append(r.Violations, fmt.Sprintf("a graceful stop took %v, which is not under %v", slowestStop, stopBound))
	}
	kinds := make([]string, 0, len(f.details))
	for kind := range f.details {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		for _, text := range f.details[kind] {
			r.Details = append(r.Details, kind+": "+text)
		}
		if len(f.details[kind]) == maxDetails {
			r.Details = append(r.Details, kind+": further ones are not listed")
		}
	}
	return r
}
