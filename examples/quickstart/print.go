package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// printer writes what happens, for people or as JSON lines.
type printer struct {
	out    io.Writer
	json   bool
	colour bool
}

func newPrinter(out *os.File, asJSON bool) *printer {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &printer{out: out, json: asJSON, colour: terminal && os.Getenv("NO_COLOR") == ""}
}

// The colours of a terminal.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	dim    = "2"
	bold   = "1"
)

func (p *printer) paint(colour, text string) string {
	if !p.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func colourOf(event string) string {
	switch event {
	case "succeeded":
		return green
	case "failed":
		return yellow
	case "forwarded", "replayed":
		return cyan
	case "dead-lettered":
		return red
	default:
		return dim
	}
}

// event writes one line.
func (p *printer) event(e event) {
	if p.json {
		p.line(e)
		return
	}
	p.note("%8.3f  %-8s  %s  %s\n", e.At, e.Order, p.paint(colourOf(e.Event), fmt.Sprintf("%-13s", e.Event)), e.Detail)
}

func (p *printer) line(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		line = fmt.Appendf(nil, `{"event":"error","detail":%q}`, err)
	}
	_, _ = p.out.Write(append(line, '\n')) // Nobody is left to tell if it fails.
}

// note tells a person what the demo does; in JSON there is nothing to tell.
func (p *printer) note(format string, args ...any) {
	if !p.json {
		_, _ = fmt.Fprintf(p.out, format, args...)
	}
}

// heading starts the list of events.
func (p *printer) heading() {
	p.note("\n%s\n", p.paint(bold, " seconds  order     event          detail"))
}

// summary is the last line in JSON, and a table for people.
func (p *printer) summary(results []result, took float64) (ok bool) {
	ok = true
	ends := map[string]int{}
	for _, r := range results {
		ok = ok && len(r.Differences) == 0
		ends[r.End]++
	}
	if p.json {
		p.line(struct {
			Event   string   `json:"event"`
			OK      bool     `json:"ok"`
			Seconds float64  `json:"seconds"`
			Orders  []result `json:"orders"`
		}{"summary", ok, took, results})
		return ok
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "order\tstory\tdeliveries\twaited in\tended\tafter\tas it should")
	for _, r := range results {
		waited := "-"
		if len(r.Tiers) > 0 {
			waited = shortTiers(r.Tiers)
		}
		verdict := "yes"
		if len(r.Differences) > 0 {
			verdict = "NO"
		}
		end := r.End
		if r.Dead != "" {
			end = r.Dead + ", " + end
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%.3f s\t%s\n", r.Order, r.Story, r.Deliveries, waited, end, r.Seconds, verdict)
	}
	_ = table.Flush() // A strings.Builder does not fail.
	head, rows, _ := strings.Cut(b.String(), "\n")
	p.note("%s\n%s\n", p.paint(bold, head), rows)
	if ok {
		p.note("%s %d orders: %d succeeded by themselves, %d when replayed, each as it should, after %.1f s.\n",
			p.paint(green, "OK"), len(results), ends[succeeded], ends[later], took)
		return ok
	}
	p.note("%s Not what should have come out:\n", p.paint(red, "WRONG"))
	for _, r := range results {
		for _, d := range r.Differences {
			p.note("  %s: %s\n", r.Order, d)
		}
	}
	return ok
}

// shortTiers writes orders.retry.2s, orders.retry.4s as 2s, 4s.
func shortTiers(topics []string) string {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t[strings.LastIndexByte(t, '.')+1:]
	}
	return strings.Join(names, ", ")
}
