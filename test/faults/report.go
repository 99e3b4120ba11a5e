package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kafka-redrive/redrive/test/faults/fault"
)

// figure is one line of the file.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// report is the outcome of a run.
type report struct {
	figures []figure
	played  int
	broken  int // faults with a problem
	lost    int
	ahead   int
	code    int
}

// add takes what became of one fault; err says that it was not played to its end.
func (r *report) add(result *fault.Result, err error) {
	r.played++
	r.lost += result.Lost
	r.ahead += result.Ahead
	switch {
	case err != nil:
		r.broken++
		r.code = exitFailed
	case len(result.Problems()) > 0:
		r.broken++
		r.code = max(r.code, exitViolation)
	}
	prefix := strings.ReplaceAll(result.Fault.Name, "-", "_") + "_"
	add := func(name string, value float64, unit string) {
		r.figures = append(r.figures, figure{prefix + name, value, unit})
	}
	add("records", float64(result.Records), "records")
	add("lost", float64(result.Lost), "records")
	add("told", float64(result.Told), "records")
	add("ahead", float64(result.Ahead), "records")
	add("early", float64(result.Early), "records")
	add("duplicates", float64(result.Duplicates), "records")
	add("seen", float64(len(result.Seen)), "signs")
	add("unseen", float64(len(result.Unseen)), "signs")
	add("recovered", result.Recovered.Seconds(), "s")
}

// print writes the line of a fault, and below it what is wrong.
func (r *report) print(w io.Writer, result *fault.Result, err error) {
	verdict := "ok"
	problems := result.Problems()
	if err != nil {
		verdict, problems = "NOT PLAYED TO ITS END", append(problems, err.Error())
	} else if len(problems) > 0 {
		verdict = "NOT OK"
	}
	told := ""
	if result.Told > 0 {
		told = fmt.Sprintf(" (%d told)", result.Told)
	}
	recovered := "not recovered"
	if result.Recovered >= 0 {
		recovered = fmt.Sprintf("recovered after %.1f s", result.Recovered.Seconds())
	}
	_, _ = fmt.Fprintf(w, "%-20s %s; %d records, lost %d%s, ahead %d, duplicates %d, %s: seen %s\n", result.Fault.Name, verdict,
		result.Records, result.Lost, told, result.Ahead, result.Duplicates, recovered, strings.Join(result.Seen, "; "))
	for _, text := range problems {
		_, _ = fmt.Fprintf(w, "    PROBLEM: %s\n", text)
	}
	for _, text := range result.Details {
		_, _ = fmt.Fprintf(w, "    %s\n", text)
	}
}

// sum writes the last line.
func (r *report) sum(w io.Writer) {
	_, _ = fmt.Fprintf(w, "%d faults, %d with problems; lost %d, ahead %d\n", r.played, r.broken, r.lost, r.ahead)
}

// write writes the figures, one JSON object a line.
func (r *report) write(path string) error {
	all := append([]figure{
		{"faults", float64(r.played), "faults"},
		{"faults_with_problems", float64(r.broken), "faults"},
		{"lost", float64(r.lost), "records"},
		{"ahead", float64(r.ahead), "records"},
	}, r.figures...)
	var s strings.Builder
	encoder := json.NewEncoder(&s)
	for _, line := range all {
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(s.String()), 0o644)
}
