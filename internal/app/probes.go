package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kafka-redrive/redrive/internal/forwarder"
)

const (
	// loopTimeout is how long the loop may take for one answer. It does nothing
	// that blocks, so that it takes milliseconds under full load.
	loopTimeout = 1500 * time.Millisecond

	// pingTimeout is how long a broker may take.
	pingTimeout = 1500 * time.Millisecond
)

// report is the answer of a probe.
type report struct {
	OK       bool                `json:"ok"`
	Checks   []check             `json:"checks"`
	Issues   []forwarder.Trouble `json:"issues"`
	Assigned int                 `json:"assigned"`
	Topics   []topicReport       `json:"topics"`

	name string
}

// check is one thing that decides about the answer.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// topicReport sums up the owned partitions of one topic.
type topicReport struct {
	Topic              string     `json:"topic"`
	Assigned           int        `json:"assigned"`
	Paused             int        `json:"paused"`
	Frozen             int        `json:"frozen"`
	HeldRecords        int        `json:"heldRecords"`
	HeldBytes          int64      `json:"heldBytes"`
	Overdue            int        `json:"overdue"`
	InFlight           int        `json:"inFlight"`
	InFlightAgeSeconds float64    `json:"inFlightAgeSeconds"`
	NextDue            *time.Time `json:"nextDue,omitempty"` // nil: nothing waits
}

// text is the report in the manner of the Kubernetes API server, and below it one
// line for each topic.
func (r report) text() string {
	var b strings.Builder
	for _, c := range r.Checks {
		if c.OK {
			fmt.Fprintf(&b, "[+]%s ok\n", c.Name)
		} else {
			fmt.Fprintf(&b, "[-]%s: %s\n", c.Name, c.Detail)
		}
	}
	for _, issue := range r.Issues {
		fmt.Fprintf(&b, "[-]%s: %s%s\n", issue.Issue, place(issue), oneLine(issue.Detail))
	}
	for _, t := range r.Topics {
		fmt.Fprintf(&b, "%s: partitions %d, held %d, overdue %d, in flight %d", t.Topic, t.Assigned, t.HeldRecords, t.Overdue, t.InFlight)
		if t.Paused > 0 {
			fmt.Fprintf(&b, ", paused %d", t.Paused)
		}
		if t.Frozen > 0 {
			fmt.Fprintf(&b, ", frozen %d", t.Frozen)
		}
		if t.NextDue != nil {
			b.WriteString(", next due " + t.NextDue.Format("2006-01-02T15:04:05.000Z"))
		}
		b.WriteByte('\n')
	}
	verdict := "passed"
	if !r.OK {
		verdict = "failed"
	}
	fmt.Fprintf(&b, "%s check %s\n", r.name, verdict)
	return b.String()
}

func place(t forwarder.Trouble) string {
	switch {
	case t.Topic == "":
		return ""
	case t.Partition < 0:
		return t.Topic + ": "
	default:
		return fmt.Sprintf("%s/%d: ", t.Topic, t.Partition)
	}
}

// oneLine keeps a broker's text from looking like lines of ours.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// probes answers the questions of whoever watches the process.
type probes struct {
	state *state
	// ping returns nil as soon as any broker answers.
	ping func(ctx context.Context) error

	mu sync.Mutex // guards the following
	// asked is closed when the one question that is under way has its answer.
	asked *question
}

// question is one call of Status. A loop that is stuck is asked once, not once
// for each probe.
type question struct {
	done   chan struct{}
	status forwarder.Status // valid once done is closed
}

// live says whether the process is worth keeping: that its loop answers, if it
// has one yet. Kafka has no part in it.
func (p *probes) live(ctx context.Context) report {
	loop := check{Name: "loop", OK: true}
	if at, _, f, _ := p.state.get(); f != nil && at == phaseRunning {
		if _, ok := p.status(ctx, f); !ok {
			loop.OK, loop.Detail = false, fmt.Sprintf("no answer for %v", loopTimeout)
		}
	}
	return report{name: "livez", OK: loop.OK, Checks: []check{loop}, Issues: []forwarder.Trouble{}, Topics: []topicReport{}}
}

// ready says whether the process does its work: that a broker answers and the loop
// runs. Issues of single partitions are told and change nothing: another instance
// could not do better, and the rest flows.
func (p *probes) ready(ctx context.Context) report {
	r := report{name: "readyz", Issues: []forwarder.Trouble{}, Topics: []topicReport{}}
	at, doing, f, fault := p.state.get()
	brokers, loop := check{Name: "brokers", OK: true}, check{Name: "loop", OK: true}
	if f != nil {
		// The two questions do not wait for each other.
		answered := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, pingTimeout)
			defer cancel()
			answered <- p.ping(ctx)
		}()
		status, ok := p.status(ctx, f)
		fault = <-answered
		switch {
		case !ok:
			loop.OK, loop.Detail = false, fmt.Sprintf("no answer for %v", loopTimeout)
		case !status.Running && at == phaseRunning:
			loop.OK, loop.Detail = false, "starting: learning about the topics"
		}
		r.fill(status)
	} else {
		loop.OK, loop.Detail = false, "starting: "+doing
	}
	if at >= phaseStopping {
		loop.OK, loop.Detail = false, "stopping"
	}
	if fault != nil {
		brokers.OK, brokers.Detail = false, "no broker answers: "+oneLine(fault.Error())
	}
	r.Checks = []check{brokers, loop}
	r.OK = brokers.OK && loop.OK
	return r
}

func (r *report) fill(s forwarder.Status) {
	r.Assigned = s.Assigned
	r.Issues = append(r.Issues, s.Troubles...)
	for i := range s.Topics {
		t := &s.Topics[i]
		topic := topicReport{
			Topic: t.Topic, Assigned: t.Assigned, Paused: t.Paused, Frozen: t.Frozen,
			HeldRecords: t.HeldRecords, HeldBytes: t.HeldBytes, Overdue: t.Overdue,
			InFlight: t.InFlight, InFlightAgeSeconds: t.InFlightAge.Seconds(),
		}
		if !t.NextDue.IsZero() {
			due := t.NextDue.UTC()
			topic.NextDue = &due
		}
		r.Topics = append(r.Topics, topic)
	}
}

// status asks the loop, and reports false if it does not answer in time.
func (p *probes) status(ctx context.Context, f engine) (forwarder.Status, bool) {
	p.mu.Lock()
	q := p.asked
	if q == nil {
		q = &question{done: make(chan struct{})}
		p.asked = q
		go func() {
			q.status = f.Status()
			p.mu.Lock()
			p.asked = nil
			p.mu.Unlock()
			close(q.done)
		}()
	}
	p.mu.Unlock()
	timer := time.NewTimer(loopTimeout)
	defer timer.Stop()
	select {
	case <-q.done:
		return q.status, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return forwarder.Status{}, false
}
