// Package rolling tells whether a running Redrive can be replaced by another build of it, replica by replica, and back, and nobody who
// uses it notices.
//
// The model. Two forwarders and two dlt-replayers of the previous build work under load on real brokers and a real Postgres. One after
// the other is stopped with SIGTERM and started as the next build, as a Deployment does that never has more replicas than it should:
// forwarders first or replayers first. Then all go back to the previous build, the last ones first. Meanwhile
// failed records come in, those that are due return, some are dead, and jobs replay the dead letters. The first replayer of the next
// build migrates the ledger, so that the previous build works on newer tables from there on, and after the way back alone. At the end
// all topics are read with a plain client and the ledger by the export of the API, and both are held against what was sent:
//
//   - lost: an acknowledged record that neither came back nor is dead.
//   - early: a copy on the origin that is older than its due time, or a due time before the end of the wait.
//   - duplicate: copies above one, in a tier, on the origin or among the dead letters. Every stop is a graceful one.
//   - order: a first copy on the origin that stands behind one of a later record of its key. All of one key wait equally long.
//   - corrupt, id_changed, misrouted: copies with other bytes, another message id, or in another partition.
//   - index_missing, index_duplicate, index_phantom: rows of the ledger against the dead letters.
//   - unreplayed, replayed_twice, marked_absent, replay_order: dead letters against their replays, order within one job.
//
// It promises that nothing it started outlives the process. The moments depend on the machine: a seed repeats the records, not the run.
package rolling

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// Order is who is exchanged first.
type Order string

// The orders.
const (
	ForwardersFirst Order = "forwarders"
	ReplayersFirst  Order = "replayers"
)

// Options say what is to be exchanged, and in which surroundings.
type Options struct {
	Previous, Next Build
	Order          Order
	// Rate is how many records come in per second.
	Rate int
	// Hold is how long the load goes on after each exchange, before the next.
	Hold time.Duration
	// Brokers are those of a cluster that is the caller's; Database is the URL of an empty database of Postgres.
	Brokers  []string
	Database string
	Seed     uint64
	// Dir is an empty folder, which the caller owns.
	Dir string
	Say func(format string, args ...any)
}

// The waits. The long one outlasts an exchange, so that records wait across it.
const (
	shortWait = time.Second
	longWait  = 6 * time.Second
)

const (
	partitions = 4
	// patience is how long a state is waited for that must come by itself.
	patience = 2 * time.Minute
	// stopBound is shutdownTimeout, within which a graceful stop is done.
	stopBound = 5 * time.Second
)

// story is one run.
type story struct {
	Options
	*workload
	client *testkit.Client
	config string // the file

	forwarders, replayers []*replica
	api                   *stage.API
	jobs                  []string
	release               []func()

	slowestStop      time.Duration
	schema           int64 // of the ledger, as last seen
	firstSchema      int64
	indexedOnNewer   float64 // letters that the previous build has indexed after the migration
	replayedOnNewer  float64
	exchanges, moved int
	details          stage.Details
}

// Run tells the story. The error is about the run itself; what is wrong is in the report.
func Run(ctx context.Context, o Options) (*stage.Report, error) {
	began := time.Now()
	s := &story{Options: o, workload: &workload{seed: o.Seed, origin: testkit.UniqueName("upgrade")}}
	defer s.close()
	var err error
	if s.client, err = testkit.NewClient(o.Brokers); err != nil {
		return nil, err
	}
	if err := s.setUp(ctx); err != nil {
		return nil, err
	}
	if err := s.scenario(ctx); err != nil {
		return nil, err
	}
	o.Say("reading the topics and the ledger")
	h, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.stopAll(ctx); err != nil {
		return nil, err
	}
	return s.report(h, check(h, &s.details), time.Since(began)), nil
}

// setUp makes the topics with the previous build, and the replicas of it.
func (s *story) setUp(ctx context.Context) error {
	if err := s.client.CreateTopic(ctx, s.origin, partitions, map[string]string{"message.timestamp.type": "LogAppendTime"}); err != nil {
		return err
	}
	s.config = filepath.Join(s.Dir, "topics.yaml")
	if err := os.WriteFile(s.config, []byte(s.topicsYAML()), 0o600); err != nil {
		return err
	}
	apply := exec.CommandContext(ctx, s.Previous.Forwarder, "topics", "apply", "-c", s.config)
	apply.Env = testkit.Environment()
	if _, err := run(apply); err != nil {
		return err
	}
	var addresses []string
	for _, letter := range []string{"a", "b"} {
		forwarder, err := s.newReplica("forwarder "+letter, "run", "REDRIVE_FORWARDER_ADMIN_ADDRESS")
		if err != nil {
			return err
		}
		replayer, err := s.newReplica("dlt-replayer "+letter, "serve", "REDRIVE_REPLAYER_ADMIN_ADDRESS", "REDRIVE_REPLAYER_API_ADDRESS")
		if err != nil {
			return err
		}
		s.forwarders, s.replayers = append(s.forwarders, forwarder), append(s.replayers, replayer)
		addresses = append(addresses, replayer.API)
	}
	s.api = stage.NewAPI(addresses...)
	return nil
}

func (s *story) topicsYAML() string {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	line("kafka: {brokers: [%s]}", strings.Join(s.Brokers, ", "))
	line("ledger: {url: %q}", s.Database)
	line("forwarder: {group: %s-forwarder, sessionTimeout: 10s, shutdownTimeout: 5s}", s.origin)
	line("replayer: {group: %s-replayer, sessionTimeout: 10s, shutdownTimeout: 5s, lease: 10s}", s.origin)
	line("logging: {format: text}")
	line("topics:")
	line("  - origin: %s", s.origin)
	line("    tiers:")
	line("      - {name: short, delay: %dms}", shortWait.Milliseconds())
	line("      - {name: long, delay: %dms}", longWait.Milliseconds())
	return text.String()
}

// scenario is the life of the run: load, both exchanges, the end of the load, and the end of all waits and jobs.
func (s *story) scenario(ctx context.Context) error {
	s.Say("%s first, %d records/s: all start as %s", s.Order, s.Rate, s.Previous.Name)
	for _, r := range s.replicas() {
		if err := s.start(r, s.Previous); err != nil {
			return err
		}
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	var err error
	if s.firstSchema, err = s.lookAtSchema(ctx); err != nil {
		return err
	}

	tasks, taskCtx := errgroup.WithContext(ctx)
	stopLoad, loadOver := make(chan struct{}), make(chan struct{})
	tasks.Go(func() error {
		defer close(loadOver)
		return s.produce(taskCtx, s.Brokers, s.Rate, stopLoad)
	})
	rest := make(chan struct{})
	tasks.Go(func() error { return s.operate(taskCtx, rest) })
	tasks.Go(func() error {
		if err := s.exchangeAll(taskCtx); err != nil {
			return err
		}
		close(stopLoad)
		select {
		case <-loadOver:
		case <-taskCtx.Done():
			return context.Cause(taskCtx)
		}
		s.Say("%d records sent; waiting until all have come to rest", s.sent.Load())
		if err := s.awaitRest(taskCtx); err != nil {
			return err
		}
		close(rest)
		return nil
	})
	return tasks.Wait()
}

// exchangeAll goes to the next build and back, in the other direction.
func (s *story) exchangeAll(ctx context.Context) error {
	order := slices.Concat(s.forwarders, s.replayers)
	if s.Order == ReplayersFirst {
		order = slices.Concat(s.replayers, s.forwarders)
	}
	if err := s.hold(ctx); err != nil {
		return err
	}
	for _, r := range order {
		if err := s.exchange(ctx, r, s.Next); err != nil {
			return err
		}
	}
	for _, r := range slices.Backward(order) {
		if err := s.exchange(ctx, r, s.Previous); err != nil {
			return err
		}
	}
	return nil
}

// hold lets the load go on, and is an error unless records come back meanwhile.
func (s *story) hold(ctx context.Context) error {
	before, err := s.length(ctx, s.origin)
	if err != nil {
		return err
	}
	if err := stage.Sleep(ctx, s.Hold); err != nil {
		return err
	}
	return s.await(ctx, "records to come back", func(ctx context.Context) error {
		after, err := s.length(ctx, s.origin)
		if err == nil && after == before {
			err = errors.New("nothing comes back")
		}
		return err
	})
}

// length is how many records a topic has.
func (s *story) length(ctx context.Context, topic string) (int64, error) {
	ends, err := s.client.EndOffsets(ctx, topic)
	var sum int64
	for _, end := range ends {
		sum += end
	}
	return sum, err
}

// awaitRest waits until as many records have come back, and are indexed as dead letters, as should. What comes twice is seen later.
func (s *story) awaitRest(ctx context.Context) error {
	back, dead := s.fates()
	return s.await(ctx, "all records to come to rest", func(ctx context.Context) error {
		letters, err := s.length(ctx, s.letters())
		if err != nil {
			return err
		}
		copies, err := s.length(ctx, s.origin)
		if err != nil {
			return err
		}
		indexed, err := s.api.Count(ctx, nil)
		if err != nil {
			return err
		}
		replayed, err := s.replayed(ctx)
		if err != nil {
			return err
		}
		if letters < dead || indexed < letters || copies < back+replayed {
			return fmt.Errorf("%d of %d are dead letters, %d of them indexed, and %d of %d copies on the origin", letters, dead, indexed, copies, back+replayed)
		}
		return nil
	})
}

// await waits for a state that must come by itself, while nobody is exchanged.
func (s *story) await(ctx context.Context, what string, cond func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var died error
	err := testkit.Await(ctx, func(ctx context.Context) error {
		died = nil
		for _, r := range s.replicas() {
			died = errors.Join(died, r.Alive())
		}
		if died != nil {
			return nil //nolint:nilerr // There is nothing to wait for any more.
		}
		return cond(ctx)
	})
	if err != nil {
		err = fmt.Errorf("waited %v for %s: %w", patience, what, err)
	}
	return errors.Join(died, err)
}

// lookAtSchema reads the version of the ledger's tables.
func (s *story) lookAtSchema(ctx context.Context) (version int64, err error) {
	conn, err := pgx.Connect(ctx, s.Database)
	if err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, "SELECT max(version_id) FROM redrive_migrations").Scan(&version)
	s.schema = version
	return version, errors.Join(err, conn.Close(ctx))
}

func (s *story) close() {
	for _, r := range s.replicas() {
		r.End()
	}
	if s.api != nil {
		s.api.Close()
	}
	if s.client != nil {
		s.client.Close()
	}
	for _, release := range s.release {
		release()
	}
}
