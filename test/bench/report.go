package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
)

// figure is one line of the report.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// report collects figures in the order in which they are to be read.
type report struct{ figures []figure }

func (r *report) add(name string, value float64, unit string) {
	r.figures = append(r.figures, figure{name, value, unit})
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
func (r *report) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(f)
	for _, line := range r.figures {
		if err := encoder.Encode(line); err != nil {
			_ = f.Close()
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return f.Close()
}

// sizeName is how names of figures call a size of values: 1kb, 100b.
func sizeName(bytes int) string {
	if bytes >= 1024 && bytes%1024 == 0 {
		return strconv.Itoa(bytes/1024) + "kb"
	}
	return strconv.Itoa(bytes) + "b"
}
