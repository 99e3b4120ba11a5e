package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/kafka-redrive/redrive/test/faults/fault"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// report is the outcome of a run.
type report struct {
	figures []testkit.Figure
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
		r.figures = append(r.figures, testkit.Figure{Name: prefix + name, Value: value, Unit: unit})
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
	all := append([]testkit.Figure{
		{Name: "faults", Value: float64(r.played), Unit: "faults"},
		{Name: "faults_with_problems", Value: float64(r.broken), Unit: "faults"},
		{Name: "lost", Value: float64(r.lost), Unit: "records"},
		{Name: "ahead", Value: float64(r.ahead), Unit: "records"},
	}, r.figures...)
	return testkit.WriteFigures(path, all)
}
