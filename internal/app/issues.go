package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

// finding is one thing that is wrong now, or worth knowing, with its place.
type finding struct {
	Code     issue.Code     `json:"code"`
	Severity issue.Severity `json:"severity"`
	Topic    string         `json:"topic,omitempty"`
	// Partition is -1 if it is not of one partition.
	Partition int32 `json:"partition"`
	// Detail says what is the case here, Means what a code always says.
	Detail string `json:"detail"`
	Means  string `json:"means"`
	Remedy string `json:"remedy"`
}

func newFinding(code issue.Code, detail string) finding {
	entry := issue.Of(code)
	return finding{Code: code, Severity: entry.Severity, Partition: -1, Detail: oneLine(detail), Means: entry.Means, Remedy: entry.Remedy}
}

// ofTrouble is what a part of the process has met.
func ofTrouble(t issue.Trouble) finding {
	f := newFinding(t.Issue, t.Detail)
	f.Topic, f.Partition = t.Topic, t.Partition
	return f
}

// ofProblem is what the preflight has found. Its remedy names the topic and the
// file, which that of the list can not.
func ofProblem(p kafka.Problem) finding {
	f := newFinding(p.Code, p.Message)
	f.Topic, f.Remedy = p.Topic, p.Remedy
	return f
}

// sorted puts the worst first, and beside each other what has one code.
func sorted(findings []finding) []finding {
	slices.SortStableFunc(findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(a.Code, b.Code))
	})
	return findings
}

func rank(s issue.Severity) int {
	switch s {
	case issue.SeverityError:
		return 0
	case issue.SeverityWarning:
		return 1
	default:
		return 2
	}
}

// writeFindings writes a line for each finding, and below those of one code what
// it means and what to do. A remedy that is not that of the lines before it
// follows its line.
func writeFindings(b *strings.Builder, findings []finding) {
	for i, f := range findings {
		sign := "-"
		if f.Severity == issue.SeverityInfo {
			sign = "i"
		}
		fmt.Fprintf(b, "[%s]%s: %s%s\n", sign, f.Code, f.place(), f.Detail)
		if i+1 < len(findings) && findings[i+1].Code == f.Code && findings[i+1].Remedy == f.Remedy {
			continue
		}
		if f.Means != "" {
			fmt.Fprintf(b, "    %s\n", f.Means)
		}
		fmt.Fprintf(b, "    remedy: %s\n", f.Remedy)
	}
}

func (f finding) place() string {
	switch {
	case f.Topic == "":
		return ""
	case f.Partition < 0:
		return f.Topic + ": "
	default:
		return fmt.Sprintf("%s/%d: ", f.Topic, f.Partition)
	}
}

// oneLine keeps a broker's text from looking like lines of ours.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// notices are the findings about the process itself and about its topics, which
// the forwarder does not know.
type notices struct {
	mu sync.Mutex // guards the following
	// failed is why the last reload failed; empty: it did not.
	failed string
	// restart are the keys that were changed and need a restart.
	restart []string
	// problems are those of the last preflight.
	problems []kafka.Problem
}

func (n *notices) reloadFailed(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed = why
}

// reloaded takes the keys that need a restart, and returns those of before.
func (n *notices) reloaded(restart []string) (was []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was = n.restart
	n.failed, n.restart = "", restart
	return was
}

// inspected takes the problems of a preflight and returns those that are new and
// those that are gone.
func (n *notices) inspected(problems []kafka.Problem) (news, gone []kafka.Problem) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.problems
	n.problems = problems
	return without(problems, before), without(before, problems)
}

// without are those of problems that are not in others, whatever their figures
// are by now.
func without(problems, others []kafka.Problem) []kafka.Problem {
	var left []kafka.Problem
	for _, p := range problems {
		if !slices.ContainsFunc(others, func(o kafka.Problem) bool { return o.Code == p.Code && o.Topic == p.Topic }) {
			left = append(left, p)
		}
	}
	return left
}

func (n *notices) findings() []finding {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []finding
	if n.failed != "" {
		all = append(all, newFinding(issue.ReloadFailed, n.failed))
	}
	if len(n.restart) > 0 {
		all = append(all, newFinding(issue.RestartRequired, "changed and not in force: "+strings.Join(n.restart, ", ")))
	}
	for _, p := range n.problems {
		all = append(all, ofProblem(p))
	}
	return all
}

// issueCollector exports the issues. A series is there, with the value 1, while
// its issue is, and gone with it: one for every code and topic that could ever
// have it would be tens of thousands of zeros.
type issueCollector struct{ probes prober }

var issueDesc = prometheus.NewDesc("redrive_issue",
	"Is 1 while an issue of the code is present at the topic, if it is of one; absent otherwise.", []string{"code", "topic"}, nil)

// Describe implements prometheus.Collector.
func (c *issueCollector) Describe(ch chan<- *prometheus.Desc) { ch <- issueDesc }

// Collect implements prometheus.Collector. Like the probes it takes as long as the
// loop and a broker need for an answer, and seconds at most.
func (c *issueCollector) Collect(ch chan<- prometheus.Metric) {
	type label struct{ code, topic string }
	seen := map[label]bool{}
	for _, f := range c.probes.findings(context.Background()) {
		at := label{string(f.Code), f.Topic}
		if !seen[at] {
			seen[at] = true
			ch <- prometheus.MustNewConstMetric(issueDesc, prometheus.GaugeValue, 1, at.code, at.topic)
		}
	}
}
