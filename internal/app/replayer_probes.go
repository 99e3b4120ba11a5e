package app

import (
	"context"
	"slices"

	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/replayer/index"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
)

// replayerProbes answers the questions of whoever watches a dlt-replayer.
type replayerProbes struct {
	state   *replayerState
	notices *notices
	ledger  *ledger
	index   func() index.Status
	replay  func() replay.Status
	// radar are the topics whose letters are about to expire.
	radar func() []issue.Trouble
	// ping returns nil as soon as any broker answers.
	ping func(ctx context.Context) error
}

// live says whether the process is worth keeping. It ends by itself when it is not;
// neither Kafka nor the ledger has a part in it.
func (p *replayerProbes) live(context.Context) report {
	return report{name: "livez", OK: true, Checks: []check{{Name: "process", OK: true}}, Issues: []finding{}, Topics: []topicReport{}}
}

// ready says whether the process does anything of its work. Without the ledger it
// does nothing; without a broker it answers what the ledger knows.
func (p *replayerProbes) ready(ctx context.Context) report {
	at, waits := p.state.get()
	process := check{Name: "process", OK: true}
	switch {
	case at >= phaseStopping:
		process.OK, process.Detail = false, "stopping"
	case at == phaseStarting:
		process.OK, process.Detail = false, "starting: "+waits
	}
	ledger := check{Name: "ledger", OK: true}
	if _, fault := p.ledger.state(); fault != nil {
		ledger.OK, ledger.Detail = false, oneLine(fault.Error())
	}
	findings, status := p.look(ctx)
	r := report{
		name: "readyz", OK: process.OK && ledger.OK, Checks: []check{ledger, process},
		Issues: append([]finding{}, findings...), Assigned: status.Assigned, Topics: []topicReport{},
	}
	if status.Running {
		r.Behind = &status.Behind
	}
	return r
}

func (p *replayerProbes) findings(ctx context.Context) []finding {
	findings, _ := p.look(ctx)
	return findings
}

// look asks the brokers and collects what is wrong.
func (p *replayerProbes) look(ctx context.Context) ([]finding, index.Status) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	var all []finding
	if f, wrong := p.ledger.finding(); wrong {
		all = append(all, f)
	}
	if err := p.ping(ctx); err != nil {
		all = append(all, newFinding(issue.NoBroker, kafka.Explain(err)))
	}
	all = append(all, p.notices.findings()...)
	// They keep what they know of themselves, and do not wait for anybody.
	indexed, replayed := p.index(), p.replay()
	for _, t := range slices.Concat(indexed.Troubles, replayed.Troubles, p.radar()) {
		all = append(all, ofTrouble(t))
	}
	return sorted(withoutRepeats(all)), indexed
}

// withoutRepeats leaves out what the parts tell a second time: each of them notices a
// ledger that is down.
func withoutRepeats(findings []finding) []finding {
	type place struct {
		code      issue.Code
		topic     string
		partition int32
	}
	seen := make(map[place]bool, len(findings))
	var left []finding
	for _, f := range findings {
		at := place{f.Code, f.Topic, f.Partition}
		if f.Code == issue.LedgerDown {
			at = place{code: f.Code}
		}
		if f.Code != issue.JobStalled && seen[at] {
			continue
		}
		seen[at] = true
		left = append(left, f)
	}
	return left
}
