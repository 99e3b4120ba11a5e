package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// report collects figures in the order in which they are to be read.
type report struct{ figures []testkit.Figure }

func (r *report) add(name string, value float64, unit string) {
	r.figures = append(r.figures, testkit.Figure{Name: name, Value: value, Unit: unit})
}

func (r *report) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range r.figures {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", f.Name, number(f.Value), f.Unit)
	}
	return t.Flush() // It reports what the lines above did not.
}

// number writes a value with about four digits.
func number(v float64) string {
	switch {
	case v >= 1000 || v <= -1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
}

// write writes the figures to a file, one JSON object a line.
func (r *report) write(path string) error { return testkit.WriteFigures(path, r.figures) }

// sizeName is how names of figures call a size of values: 1kb, 100b.
func sizeName(bytes int) string {
	if bytes >= 1024 && bytes%1024 == 0 {
		return strconv.Itoa(bytes/1024) + "kb"
	}
	return strconv.Itoa(bytes) + "b"
}
