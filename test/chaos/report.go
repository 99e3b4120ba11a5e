package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// meanBound is the most that a kill may repeat on average at a rate of 2,000 records/s: what a quarter of a second
// forwards. Lower rates have no lower bound, since a commit interval is what it is.
const meanBound = 500

// stopBound is what a graceful stop may take.
const stopBound = 5 * time.Second

// report is the outcome of a run: figures, and what is wrong with them.
type report struct {
	events     []string // What each kill and stop repeated.
	figures    []testkit.Figure
	violations []string
	details    []string
}

// makeReport sums up the findings.
func makeReport(h *history, f *findings, slowestStop time.Duration) *report {
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

	r := &report{}
	for i, e := range h.events {
		text := fmt.Sprintf("%s: %d extra copies", e.what, f.perEvent[i].copies)
		if f.perEvent[i].worst != "" {
			text += ", " + f.perEvent[i].worst + " among them"
		}
		r.events = append(r.events, text)
	}
	add := func(name string, value float64, unit string) {
		r.figures = append(r.figures, testkit.Figure{Name: name, Value: value, Unit: unit})
	}
	none := func(name string, n int) {
		add(name, float64(n), "records")
		if n > 0 {
			r.violations = append(r.violations, fmt.Sprintf("%s is %d and must be 0", name, n))
		}
	}
	add("records", float64(f.records), "records")
	none("lost", f.lost)
	none("early", f.early)
	none("corrupt", f.corrupt)
	none("commit_ahead", f.commitAhead)
	add("duplicate", float64(f.duplicate), "records")
	add("duplicate_mean_per_kill", mean, "records")
	add("duplicate_max_per_kill", float64(most), "records")
	none("id_changed", f.idChanged)
	none("graceful_duplicate", f.gracefulDuplicate)
	add("graceful_max_seconds", slowestStop.Seconds(), "s")
	none("graceful_lost", f.gracefulLost)
	none("misrouted", f.misrouted)
	none("duplicate_unexplained", f.unexplained)
	add("moved", float64(f.moved), "records")
	add("twins_dropped", float64(f.skipped), "records")
	add("commits_set_back", float64(f.setBack), "commits")

	if mean > meanBound {
		r.violations = append(r.violations, fmt.Sprintf("a kill repeats %.0f records on average, more than %d", mean, meanBound))
	}
	if f.overBound > 0 {
		r.violations = append(r.violations, fmt.Sprintf("%d times a kill repeated more than maxUncommitted (%d) of one partition", f.overBound, h.maxUncommitted))
	}
	if slowestStop >= stopBound {
		r.violations = append(r.violations, fmt.Sprintf("a graceful stop took %v, which is not under %v", slowestStop, stopBound))
	}
	kinds := make([]string, 0, len(f.details))
	for kind := range f.details {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		for _, text := range f.details[kind] {
			r.details = append(r.details, kind+": "+text)
		}
		if len(f.details[kind]) == maxDetails {
			r.details = append(r.details, kind+": further ones are not listed")
		}
	}
	return r
}

// write writes the figures as JSON lines.
func (r *report) write(file string) error { return testkit.WriteFigures(file, r.figures) }

// print shows the figures to people.
func (r *report) print(w io.Writer) {
	for _, text := range r.events {
		_, _ = fmt.Fprintln(w, text)
	}
	for _, f := range r.figures {
		text := fmt.Sprintf("%.0f", f.Value)
		if f.Value != float64(int64(f.Value)) {
			text = fmt.Sprintf("%.3f", f.Value)
		}
		_, _ = fmt.Fprintf(w, "%-26s %12s %s\n", f.Name, text, f.Unit)
	}
	for _, text := range r.details {
		_, _ = fmt.Fprintln(w, text)
	}
	for _, text := range r.violations {
		_, _ = fmt.Fprintln(w, "VIOLATION:", text)
	}
}
