package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// report is the outcome of a run: figures, and what is wrong with them.
type report struct {
	figures    []testkit.Figure
	violations []string
	details    []string
}

func makeReport(f *findings) *report {
	r := &report{}
	add := func(name string, value float64, unit string) {
		r.figures = append(r.figures, testkit.Figure{Name: name, Value: value, Unit: unit})
	}
	none := func(name string, n int, unit string) {
		add(name, float64(n), unit)
		if n > 0 {
			r.violations = append(r.violations, fmt.Sprintf("%s is %d and must be 0", name, n))
		}
	}
	add("forged", float64(f.forged), "records")
	none("escaped", f.escaped, "records")
	none("crashed", f.crashed, "crashes")
	none("stuck", f.stuck, "partitions")
	none("early", f.early, "records")
	none("corrupt", f.corrupt, "records")
	none("lost", f.lost, "records")
	add("returned", float64(f.returned), "records")
	add("dead", float64(f.dead), "records")
	for _, reason := range slices.Sorted(maps.Keys(f.reasons)) {
		add("dead_"+reason, float64(f.reasons[reason]), "letters")
	}
	add("duplicate", float64(f.duplicate), "records")
	add("seconds", f.seconds, "s")
	for _, kind := range slices.Sorted(maps.Keys(f.details)) {
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
	for _, f := range r.figures {
		_, _ = fmt.Fprintf(w, "%-20s %12.0f %s\n", f.Name, f.Value, f.Unit)
	}
	for _, text := range r.details {
		_, _ = fmt.Fprintln(w, text)
	}
	for _, text := range r.violations {
		_, _ = fmt.Fprintln(w, "VIOLATION:", text)
	}
}
