// Package fault stages what production does to a forwarder: each [Fault] is one thing that goes wrong, played on real Kafka
// against the forwarder's own binary, and judged by what it did to the records.
//
// The model. A scene has topics and a group of its own on a cluster that it may share. It hands records over, each with
// a value that no other has, lets the fault happen, and waits until what the fault does is to be seen from outside:
// an issue in /readyz, or a metric. Then the fault ends, and the same processes must bring all that is left to its end.
// Meanwhile a watch looks at the commits. At last the whole history of the topics is read and judged:
//
//   - lost: a record that was acknowledged and is neither on its origin nor in its dead letters. Records that retention
//     removed are told and not lost, if the forwarder counted them.
//   - ahead: an offset that a commit covered before a copy of its record stood in a later topic. All stamps are those of
//     one machine.
//   - early: a copy on the origin that is older than the due time of the copy it was made from.
//   - duplicates: copies beyond the first. Each scene knows how many it may make.
//
// It promises that topics which a scene deletes or truncates are read before that, and judged with the rest. It refuses to
// look into the process. A scene's methods end its goroutine at the first failure, as those of testing.T do, so that a
// scene reads like the story it tells. A Fault is safe for concurrent use, on clusters that it does not share.
package fault

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// Cluster is a kind of cluster.
type Cluster int

// The kinds of clusters.
const (
	// One is a single broker.
	One Cluster = iota
	// Three are three brokers; topics have three replicas, of which two must be in sync.
	Three
	// Guarded is a single broker that asks who one is and what one may: see [GuardedOptions].
	Guarded
)

// Site is where a fault happens. All fields are required but Quick.
type Site struct {
	// Kafka is a cluster of the fault's kind, with all its brokers up. The fault breaks and mends it.
	Kafka *testkit.Kafka
	// Binary is the forwarder under test.
	Binary string
	// Dir is a folder for configurations and logs. It belongs to the caller.
	Dir string
	// Say takes what goes on, from one goroutine at a time.
	Say func(format string, args ...any)
	// Quick asks for as little as shows the fault: fewer records and rounds.
	Quick bool
}

// Fault is one thing that goes wrong.
type Fault struct {
	// Name is unique and holds letters and dashes.
	Name string
	// What happens, in a few words.
	What string
	// Cluster is the kind of cluster that it needs.
	Cluster Cluster
	// Waits says that it breaks nothing which others use, waits more than it works, and has no step that must be quick: it may
	// be played beside others.
	Waits bool

	stage stage
	play  func(*scene)
}

// All are the faults, in the order in which they are best played: those of one cluster stand together.
func All() []Fault {
	return slices.Concat(offsetFaults(), topicFaults(), sizeFaults(), memberFaults(), quotaFaults(), brokerFaults(), accessFaults())
}

// Named returns the faults of these names, in the order of [All].
func Named(names ...string) ([]Fault, error) {
	all := All()
	for _, name := range names {
		if !slices.ContainsFunc(all, func(f Fault) bool { return f.Name == name }) {
			return nil, fmt.Errorf("there is no fault %q", name)
		}
	}
	return slices.DeleteFunc(all, func(f Fault) bool { return !slices.Contains(names, f.Name) }), nil
}

// Result is what became of the records of a scene, and what was to be seen of it.
type Result struct {
	Fault Fault
	// Records were handed over.
	Records int
	// Seen is what showed the fault while it lasted.
	Seen []string
	// Unseen is what should have shown it and did not.
	Unseen []string
	// Lost, Ahead, Early and Duplicates count records, see the package comment. Told are those that are gone and counted
	// by the forwarder.
	Lost, Told, Ahead, Early, Duplicates int
	// Allowed is how many duplicates the scene may make.
	Allowed int
	// Recovered is how long it took from the end of the fault until all was at its end; negative if that did not come.
	Recovered time.Duration
	// Wrong is what else was not as it must be.
	Wrong []string
	// Details name the records that are counted above.
	Details []string
}

// Problems are the rules that were broken, a line each.
func (r *Result) Problems() []string {
	var all []string
	none := func(n int, what string) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%d records %s", n, what))
		}
	}
	none(r.Lost, "are lost")
	none(r.Ahead, "were covered by a commit before they had a copy")
	none(r.Early, "came back early")
	if r.Duplicates > r.Allowed {
		all = append(all, fmt.Sprintf("%d records came twice, %d may", r.Duplicates, r.Allowed))
	}
	for _, what := range r.Unseen {
		all = append(all, "not to be seen: "+what)
	}
	if len(r.Seen) == 0 && len(r.Unseen) == 0 {
		all = append(all, "nothing of it was to be seen")
	}
	if r.Recovered < 0 {
		all = append(all, "it did not recover")
	}
	return append(all, r.Wrong...)
}

// Run plays the fault and judges what came of it. An error says that the play did not come to its end; what is known by then
// is in the Result all the same.
func (f Fault) Run(ctx context.Context, site *Site) (Result, error) {
	s := &scene{site: site, stage: f.stage, kafka: site.Kafka, quick: site.Quick, result: Result{Fault: f, Recovered: -1}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	// A goroutine of its own, because a failure ends it.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer s.leave()
		s.enter(f.Cluster)
		f.play(s)
		s.judge()
	}()
	<-ended
	if s.err != nil {
		return s.result, fmt.Errorf("%s: %w", f.Name, s.err)
	}
	return s.result, nil
}
