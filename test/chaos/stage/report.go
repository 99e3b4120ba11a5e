package stage

import (
	"fmt"
	"io"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// Report is the outcome of a run: figures, and what is wrong with them.
type Report struct {
	// Events are what was done to the processes, and what each has cost.
	Events     []string
	Figures    []testkit.Figure
	Violations []string
	Details    []string
}

// Add adds a figure.
func (r *Report) Add(name string, value float64, unit string) {
	r.Figures = append(r.Figures, testkit.Figure{Name: name, Value: value, Unit: unit})
}

// None adds a figure that must be 0.
func (r *Report) None(name string, n int, unit string) {
	r.Add(name, float64(n), unit)
	if n > 0 {
		r.Violations = append(r.Violations, fmt.Sprintf("%s is %d and must be 0", name, n))
	}
}

// Figure is the value of a figure; 0 if there is none.
func (r *Report) Figure(name string) float64 {
	for _, f := range r.Figures {
		if f.Name == name {
			return f.Value
		}
	}
	return 0
}

// maxDetails bounds what is told of one kind of finding.
const maxDetails = 20

// Details collects what there is to tell of each kind of finding, a bounded number of lines. The zero value is ready.
type Details struct {
	kinds []string
	lines map[string][]string
	count map[string]int
}

// Tell adds a line.
func (d *Details) Tell(kind, format string, args ...any) {
	if d.lines == nil {
		d.lines, d.count = map[string][]string{}, map[string]int{}
	}
	if d.count[kind]++; d.count[kind] == 1 {
		d.kinds = append(d.kinds, kind)
	}
	if d.count[kind] <= maxDetails {
		d.lines[kind] = append(d.lines[kind], kind+": "+fmt.Sprintf(format, args...))
	}
}

// Count is how many lines of a kind there were.
func (d *Details) Count(kind string) int { return d.count[kind] }

// Lines are all that were kept.
func (d *Details) Lines() []string {
	var all []string
	for _, kind := range d.kinds {
		all = append(all, d.lines[kind]...)
		if d.count[kind] > maxDetails {
			all = append(all, kind+": further ones are not listed")
		}
	}
	return all
}

// Write writes the figures as JSON lines.
func (r *Report) Write(file string) error { return testkit.WriteFigures(file, r.Figures) }

// Print shows the report to people.
func (r *Report) Print(w io.Writer) {
	for _, text := range r.Events {
		_, _ = fmt.Fprintln(w, text)
	}
	for _, f := range r.Figures {
		text := fmt.Sprintf("%.0f", f.Value)
		if f.Value != float64(int64(f.Value)) {
			text = fmt.Sprintf("%.3f", f.Value)
		}
		_, _ = fmt.Fprintf(w, "%-26s %12s %s\n", f.Name, text, f.Unit)
	}
	for _, text := range r.Details {
		_, _ = fmt.Fprintln(w, text)
	}
	for _, text := range r.Violations {
		_, _ = fmt.Fprintln(w, "VIOLATION:", text)
	}
}
