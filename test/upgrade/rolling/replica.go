package rolling

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// replica is a forwarder or a dlt-replayer that is now of one build and now of another.
type replica struct {
	stage.Replica
	build string
	// What it had done when the ledger became newer than its build; nil if it is not.
	before map[string]float64
}

// newReplica makes a replica whose addresses are handed to it by the environment, the first being that of probes and metrics.
func (s *story) newReplica(name, command string, addresses ...string) (*replica, error) {
	r := &replica{Replica: stage.Replica{Process: stage.Process{
		Name: name, Args: []string{command, "-c", s.config}, Dir: s.Dir,
		LogFile: filepath.Join(s.Dir, strings.ReplaceAll(name, " ", "-")+".log"),
	}}}
	for i, variable := range addresses {
		port, release, err := testkit.ReservePort()
		if err != nil {
			return nil, err
		}
		s.release = append(s.release, release)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		r.Env = append(r.Env, variable+"="+address)
		if i == 0 {
			r.Admin = address
		} else {
			r.API = address
		}
	}
	return r, nil
}

func (s *story) replicas() []*replica { return slices.Concat(s.forwarders, s.replayers) }

func (r *replica) isReplayer() bool { return r.API != "" }

// start starts a replica as a build.
func (s *story) start(r *replica, b Build) error {
	r.build, r.Program, r.before = b.Name, b.Forwarder, nil
	if r.isReplayer() {
		r.Program = b.Replayer
	}
	if b.Name == s.Previous.Name && s.schema > s.firstSchema {
		r.before = map[string]float64{}
	}
	return r.Start()
}

// exchange stops a replica under load and starts it as another build.
func (s *story) exchange(ctx context.Context, r *replica, b Build) error {
	was := r.build
	took, err := s.stop(ctx, r)
	if err != nil {
		return err
	}
	if err := s.start(r, b); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	s.exchanges++
	s.Say("%s: %s, stopped in %v, became %s", r.Name, was, took.Round(time.Millisecond), b.Name)
	if err := s.noteMigration(ctx); err != nil {
		return err
	}
	return s.hold(ctx)
}

// awaitReady waits until all replicas say that they are ready.
func (s *story) awaitReady(ctx context.Context) error {
	return s.await(ctx, "the replicas to be ready", func(ctx context.Context) error {
		for _, r := range s.replicas() {
			if err := r.Ready(ctx); err != nil {
				return fmt.Errorf("%s: %w", r.Name, err)
			}
		}
		return nil
	})
}

// The counters that show that a replica uses the ledger.
const (
	indexed  = "redrive_letters_indexed_total"
	replayed = "redrive_replayed_letters_total"
)

func (r *replica) counters(ctx context.Context) (map[string]float64, error) {
	all := map[string]float64{}
	for _, name := range []string{indexed, replayed} {
		n, err := r.Metric(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		all[name] = n
	}
	return all, nil
}

// noteMigration looks whether the ledger became newer, and then remembers what the replicas of the previous build had done until then.
func (s *story) noteMigration(ctx context.Context) error {
	was := s.schema
	is, err := s.lookAtSchema(ctx)
	if err != nil || is == was {
		return err
	}
	s.Say("the tables of the ledger are of version %d, and were of version %d", is, was)
	for _, r := range s.replayers {
		if r.build != s.Previous.Name {
			continue
		}
		if r.before, err = r.counters(ctx); err != nil {
			return err
		}
	}
	return nil
}

// note adds up what a replica of the previous build has done on newer tables, before it is stopped.
func (s *story) note(ctx context.Context, r *replica) error {
	if !r.isReplayer() || r.before == nil {
		return nil
	}
	now, err := r.counters(ctx)
	if err != nil {
		return err
	}
	s.indexedOnNewer += now[indexed] - r.before[indexed]
	s.replayedOnNewer += now[replayed] - r.before[replayed]
	return nil
}

// stop ends a replica with SIGTERM, and says how long that took.
func (s *story) stop(ctx context.Context, r *replica) (time.Duration, error) {
	if err := s.note(ctx, r); err != nil {
		return 0, err
	}
	took, err := r.Stop()
	if err == nil {
		s.slowestStop = max(s.slowestStop, took)
	}
	return took, err
}

// stopAll ends all replicas with SIGTERM.
func (s *story) stopAll(ctx context.Context) error {
	for _, r := range s.replicas() {
		if _, err := s.stop(ctx, r); err != nil {
			return err
		}
	}
	return nil
}
