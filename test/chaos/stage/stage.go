// Package stage is what the stories about dead letters play on: real brokers, a real ledger, replicas of the real dlt-replayer, and
// somebody who kills them.
//
// The model. A [Stage] has brokers, a ledger (a Postgres of its own, or a file of SQLite, which one replica has for itself) and
// replicas, each a process with an API. [Stage.Disturb] kills replicas at random moments and at the points that the binary names, and
// brokers and Postgres in between; what it did is in Events. Stories find out what became of the letters from the outside: from the
// topics, with a plain client, and from the HTTP API, with a client that knows nothing but its document.
//
// It promises that nothing it started outlives the process, and that a crash point which was never reached is told. It judges
// nothing.
package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

const (
	// Group is the consumer group of the replicas.
	Group = "chaos-replayer"
	// SessionTimeout is short, so that the partitions of a dead dynamic member move within a run.
	SessionTimeout = 6 * time.Second
	// Lease is short as well: so long a job waits after the death of its replica.
	Lease = 6 * time.Second
	// InFlight is how many records a replica may have with its client.
	InFlight = 256
	// Patience is how long a state is waited for that must come by itself once nothing is broken any more.
	Patience = 3 * time.Minute
)

// Ledgers that a stage can have.
const (
	Postgres = "postgres"
	SQLite   = "sqlite"
)

// Options say what to set up.
type Options struct {
	// Dir is an empty folder for everything, which the caller owns.
	Dir string
	// Ledger is Postgres or SQLite.
	Ledger string
	// Brokers is 1 or 3.
	Brokers int
	// Topics are the origins; each has a dead-letter topic and one for triggers. Their partitions are those of both.
	Topics []Topic
	// Binary is a dlt-replayer that was built with crash points; "" builds one.
	Binary string
	// Say tells what goes on.
	Say func(format string, args ...any)
}

// Topic is an origin.
type Topic struct {
	Origin     string
	Partitions int32
	// LetterPartitions are those of the dead-letter topic; 0 is as many as the origin has.
	LetterPartitions int32
}

// Letters is the topic of the dead letters.
func (t Topic) Letters() string { return t.Origin + ".dlt" }

// Trigger is the topic of the triggers.
func (t Topic) Trigger() string { return t.Letters() + ".replay" }

// Stage is what a story plays on. Its fields are set by New and stay.
type Stage struct {
	Options
	Kafka    *testkit.Kafka
	Postgres *testkit.Postgres // nil: SQLite
	Client   *testkit.Client
	Replicas []*Replica
	API      *API

	release []func()
	killed  atomic.Int64

	mu     sync.Mutex // guards the following
	events []*Event
	missed map[string]int
	hit    map[string]int
}

// New starts brokers and database, makes the topics, and starts no replica.
func New(ctx context.Context, options Options) (_ *Stage, err error) {
	s := &Stage{Options: options, missed: map[string]int{}, hit: map[string]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	steps, stepCtx := errgroup.WithContext(ctx)
	if s.Binary == "" {
		s.Binary = filepath.Join(s.Dir, "dlt-replayer")
		steps.Go(func() error { return testkit.BuildReplayer(stepCtx, s.Binary, "crashpoints") })
	}
	steps.Go(func() (err error) {
		data := filepath.Join(s.Dir, "kafka")
		if err := os.Mkdir(data, 0o755); err != nil {
			return err
		}
		s.Kafka, err = testkit.StartKafka(stepCtx, testkit.KafkaOptions{Dir: data, Brokers: s.Brokers})
		return err
	})
	if s.Ledger == Postgres {
		steps.Go(func() (err error) {
			s.Postgres, err = testkit.StartPostgres(stepCtx, testkit.PostgresOptions{})
			return err
		})
	}
	if err := steps.Wait(); err != nil {
		return nil, err
	}
	if s.Client, err = testkit.NewClient(s.Kafka.Brokers()); err != nil {
		return nil, err
	}
	for _, t := range s.Topics {
		letters := t.LetterPartitions
		if letters == 0 {
			letters = t.Partitions
		}
		// The origin stamps what comes in, which tells what was there first.
		settings := map[string]string{"message.timestamp.type": "LogAppendTime"}
		for topic, partitions := range map[string]int32{t.Origin: t.Partitions, t.Letters(): letters, t.Trigger(): t.Partitions} {
			if err := s.Client.CreateTopic(ctx, topic, partitions, settings); err != nil {
				return nil, err
			}
		}
	}
	return s, s.addReplicas()
}

// addReplicas makes two replicas for Postgres, a static member and a dynamic one, whose deaths look different to the group; for SQLite one.
func (s *Stage) addReplicas() error {
	config := filepath.Join(s.Dir, "topics.yaml")
	if err := os.WriteFile(config, []byte(s.topicsYAML()), 0o600); err != nil {
		return err
	}
	members := [][]string{{"REDRIVE_REPLAYER_INSTANCEID=chaos-a"}}
	if s.Ledger == Postgres {
		members = append(members, nil)
	}
	var addresses []string
	for i, env := range members {
		name := string(rune('a' + i))
		r := &Replica{Process: Process{
			Name: "replayer " + name, Program: s.Binary, Args: []string{"serve", "-c", config},
			Dir: s.Dir, LogFile: filepath.Join(s.Dir, "replayer-"+name+".log"),
		}}
		for _, address := range []*string{&r.API, &r.Admin} {
			port, release, err := testkit.ReservePort()
			if err != nil {
				return err
			}
			s.release = append(s.release, release)
			*address = fmt.Sprintf("127.0.0.1:%d", port)
		}
		r.Env = slices.Concat(env, []string{"REDRIVE_REPLAYER_API_ADDRESS=" + r.API, "REDRIVE_REPLAYER_ADMIN_ADDRESS=" + r.Admin})
		s.Replicas = append(s.Replicas, r)
		addresses = append(addresses, r.API)
	}
	s.API = NewAPI(addresses...)
	return nil
}

func (s *Stage) topicsYAML() string {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	line("kafka: {brokers: [%s]}", strings.Join(s.Kafka.Brokers(), ", "))
	if s.Postgres != nil {
		line("ledger: {url: %q}", s.Postgres.URL(""))
	} else {
		line("ledger: {url: %q}", "sqlite://"+filepath.Join(s.Dir, "ledger.db"))
	}
	line("replayer:")
	line("  group: %s", Group)
	line("  sessionTimeout: %dms", SessionTimeout.Milliseconds())
	line("  shutdownTimeout: 5s")
	line("  lease: %dms", Lease.Milliseconds())
	line("  inFlight: %d", InFlight)
	line("logging: {format: text}")
	line("topics:")
	for _, t := range s.Topics {
		line("  - {origin: %s, tiers: [1m]}", t.Origin)
	}
	return text.String()
}

// Close ends everything that the stage has started.
func (s *Stage) Close() error {
	for _, r := range s.Replicas {
		r.End()
	}
	if s.API != nil {
		s.API.Close()
	}
	if s.Client != nil {
		s.Client.Close()
	}
	var err error
	if s.Postgres != nil {
		err = s.Postgres.Close()
	}
	if s.Kafka != nil {
		err = errors.Join(err, s.Kafka.Close())
	}
	for _, release := range s.release {
		release()
	}
	return err
}

// Start starts all replicas.
func (s *Stage) Start() error {
	for _, r := range s.Replicas {
		if err := r.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends all replicas with SIGTERM.
func (s *Stage) Stop() error {
	for _, r := range s.Replicas {
		if _, err := r.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// Alive reports the replicas that have ended by themselves.
func (s *Stage) Alive() error {
	var err error
	for _, r := range s.Replicas {
		err = errors.Join(err, r.Alive())
	}
	return err
}

// Await waits for a state that must come by itself; nobody may disturb the replicas meanwhile.
func (s *Stage) Await(ctx context.Context, limit time.Duration, what string, cond func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var died error
	err := testkit.Await(ctx, func(ctx context.Context) error {
		if died = s.Alive(); died != nil {
			return nil //nolint:nilerr // There is nothing to wait for any more.
		}
		return cond(ctx)
	})
	if err != nil {
		err = fmt.Errorf("waited %v for %s: %w", limit, what, err)
	}
	return errors.Join(died, err)
}

// AwaitReady waits until all replicas say that they are ready.
func (s *Stage) AwaitReady(ctx context.Context) error {
	return s.Await(ctx, Patience, "the replicas to be ready", func(ctx context.Context) error {
		var err error
		for _, r := range s.Replicas {
			err = errors.Join(err, r.Ready(ctx))
		}
		return err
	})
}
