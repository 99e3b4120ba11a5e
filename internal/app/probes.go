package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/forwarder"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

const (
	// loopTimeout is how long the loop may take for one answer. It does nothing
	// that blocks, so that it takes milliseconds under full load.
	loopTimeout = 1500 * time.Millisecond

	// pingTimeout is how long a broker may take.
	pingTimeout = 1500 * time.Millisecond
)

// prober answers the questions of whoever watches a process.
type prober interface {
	// live says whether the process is worth keeping.
	live(ctx context.Context) report
	// ready says whether it does its work.
	ready(ctx context.Context) report
	// findings are what is wrong now, the worst first.
	findings(ctx context.Context) []finding
}

// report is the answer of a probe.
type report struct {
	OK       bool          `json:"ok"`
	Checks   []check       `json:"checks"`
	Issues   []finding     `json:"issues"`
	Assigned int           `json:"assigned"`
	Topics   []topicReport `json:"topics"`
	// Behind is how many records are not indexed yet, of a dlt-replayer.
	Behind *int64 `json:"behind,omitempty"`

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
	writeFindings(&b, r.Issues)
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
	if r.Behind != nil {
		fmt.Fprintf(&b, "dead letters: partitions %d, behind %d\n", r.Assigned, *r.Behind)
	}
	verdict := "passed"
	if !r.OK {
		verdict = "failed"
	}
	fmt.Fprintf(&b, "%s check %s\n", r.name, verdict)
	return b.String()
}

// probes answers the questions of whoever watches the process.
type probes struct {
	state   *state
	notices *notices
	// ping returns nil as soon as any broker answers.
	ping func(ctx context.Context) error

	mu sync.Mutex // guards the following
	// asked is the one question that is under way, if one is.
	asked *question
}

// question is one call of Status. A loop that is stuck is asked once, not once
// for each probe.
type question struct {
	of     engine
	done   chan struct{}
	status forwarder.Status // valid once done is closed
}

// live says whether the process is worth keeping: that its loop answers, if it
// has one yet. Kafka has no part in it.
func (p *probes) live(ctx context.Context) report {
	loop := check{Name: "loop", OK: true}
	if at, _, f, _ := p.state.get(); f != nil && at == phaseRunning {
		if _, ok := p.status(ctx, f); !ok {
			loop.OK, loop.Detail = false, noAnswer()
		}
	}
	return report{name: "livez", OK: loop.OK, Checks: []check{loop}, Issues: []finding{}, Topics: []topicReport{}}
}

func noAnswer() string { return fmt.Sprintf("no answer for %v", loopTimeout) }

// view is what a look at the process shows.
type view struct {
	brokers, loop check
	status        forwarder.Status
	findings      []finding
}

// look asks the loop and the brokers. It takes as long as the slower of them, and
// no longer than their limits.
func (p *probes) look(ctx context.Context) view {
	at, doing, f, fault := p.state.get()
	v := view{brokers: check{Name: "brokers", OK: true}, loop: check{Name: "loop", OK: true}}
	answers := true
	if f != nil {
		// The two questions do not wait for each other.
		answered := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, pingTimeout)
			defer cancel()
			answered <- p.ping(ctx)
		}()
		v.status, answers = p.status(ctx, f)
		fault = <-answered
	}
	stopped := ""
	switch {
	case at >= phaseStopping:
		stopped = "stopping"
	case at == phaseReloading:
		stopped = "reloading: draining, to go on with other topics"
	case f == nil:
		stopped = "starting: " + doing
	case !answers:
		stopped = noAnswer()
	case !v.status.Running:
		stopped = "starting: learning about the topics"
	case !v.status.Joined:
		stopped = "starting: joining the group"
	}
	v.loop.OK, v.loop.Detail = stopped == "", stopped
	if fault != nil {
		why := oneLine(kafka.Explain(fault))
		v.brokers.OK, v.brokers.Detail = false, "no broker answers: "+why
		if !errors.Is(fault, errNotAsked) {
			v.findings = append(v.findings, newFinding(issue.NoBroker, why))
		}
	}
	v.findings = append(v.findings, p.notices.findings()...)
	for _, t := range v.status.Troubles {
		v.findings = append(v.findings, ofTrouble(t))
	}
	v.findings = sorted(v.findings)
	return v
}

func (p *probes) findings(ctx context.Context) []finding { return p.look(ctx).findings }

// ready says whether the process does its work: that a broker answers, the loop
// runs, and the group has taken this member in. Issues are told and change nothing: another instance could not do better,
// and the rest flows.
func (p *probes) ready(ctx context.Context) report {
	v := p.look(ctx)
	r := report{
		name: "readyz", OK: v.brokers.OK && v.loop.OK, Checks: []check{v.brokers, v.loop},
		Issues: append([]finding{}, v.findings...), Assigned: v.status.Assigned, Topics: []topicReport{},
	}
	for i := range v.status.Topics {
		t := &v.status.Topics[i]
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
	return r
}

// status asks the loop, and reports false if it does not answer in time.
func (p *probes) status(ctx context.Context, f engine) (forwarder.Status, bool) {
	p.mu.Lock()
	q := p.asked
	if q == nil || q.of != f {
		q = &question{of: f, done: make(chan struct{})}
		p.asked = q
		go func() {
			q.status = f.Status()
			p.mu.Lock()
			if p.asked == q {
				p.asked = nil
			}
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

// pinger asks by client whether any broker answers. It asks twice, since a connection
// that had died unnoticed fails the first.
func pinger(client *kgo.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		if ping(ctx, client) == nil {
			return nil
		}
		return ping(ctx, client)
	}
}
