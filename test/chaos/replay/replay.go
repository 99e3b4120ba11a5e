// Package replay tells whether each letter comes back once and in order, whatever dies meanwhile.
//
// The model. Letters of many keys lie in a dead-letter topic, those of one key over all its partitions and in no order. Jobs, each for
// the letters of some keys, replay them while replicas of the real dlt-replayer are killed again and again: at random moments, and after
// the lease, the claim, the send, the ack, before the mark and after it. Brokers and Postgres are killed as well. Then, where there
// are two replicas, one is stopped in the middle of a job for longer than its lease (SIGSTOP), and goes on when the other has done the
// rest. At the end the origin is read with a plain client, the ledger by the export of the API, and both are held against what was
// written:
//
//   - marked_absent: a letter that is marked as replayed, and no copy of it lies where the mark says.
//   - unreplayed: a letter that no job has replayed, or a job that is not done.
//   - replayed_twice: copies above one of a letter. Each is put down to the death, or the stop, of a replica between its send and its mark,
//     if whoever took over could not see the copy yet: it was appended after the death, or a broker was down. All others are
//     twice_unexplained.
//   - order_first: first copies that stand behind one of a later letter of their key.
//   - corrupt, id_changed, misrouted: copies with other bytes, another message id or replay headers, or in another partition.
//   - frozen_marks: letters that changed when a replica went on after its lease; frozen_sends_max is how many copies it then sent, frozen_held_max
//     how many records its client had when it stopped.
//
// The moments of kills depend on the machine as well as on the seed: a seed repeats the letters, not the run.
package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// points are the crash points of a replay.
var points = []string{"after-lease", "after-claim", "after-send", "after-ack", "before-finish", "after-finish"}

// Options say how large the story is.
type Options struct {
	// Letters are replayed while something is killed, of so many Keys.
	Letters, Keys int
	// Kills are of replicas, BrokerKills and DatabaseKills of what they need.
	Kills, BrokerKills, DatabaseKills int
	// Freezes is how often a replica is stopped for longer than its lease; with SQLite, which has only one, it is not.
	Freezes int
	// Ledger is stage.Postgres or stage.SQLite.
	Ledger string
	// Brokers is 1 or 3.
	Brokers int
	Seed    uint64
	// Dir is an empty folder, which the caller owns; Binary a dlt-replayer with crash points, "" to build one.
	Dir, Binary string
	Say         func(format string, args ...any)
}

// topic is where it all happens: more partitions of letters than of the origin.
var topic = stage.Topic{Origin: "chaos-replay", Partitions: 4, LetterPartitions: 6}

// jobTime is how long a job takes at its rate if nothing is in its way.
const jobTime = 4 * time.Second

// run is one run of the story.
type run struct {
	Options
	*workload
	stage *stage.Stage
	jobs  []string // ids, all that were created

	frozenMarks, frozenSends, frozenMost, frozenFenced, frozenHeld int
	details                                                        stage.Details
}

// Run tells the story. The error is about the run itself; what is wrong with the replays is in the report.
func Run(ctx context.Context, o Options) (_ *stage.Report, err error) {
	began := time.Now()
	if o.Ledger == stage.SQLite {
		o.Freezes = 0
	}
	s, err := stage.New(ctx, stage.Options{
		Dir: o.Dir, Ledger: o.Ledger, Brokers: o.Brokers, Binary: o.Binary, Say: o.Say, Topics: []stage.Topic{topic},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := &run{Options: o, stage: s, workload: newWorkload(o)}
	o.Say("%s, %d brokers: %d letters of %d keys in %d jobs, %d kills, %d stops", o.Ledger, o.Brokers, o.Letters, o.Keys, r.groups(), o.Kills, o.Freezes)
	if err := r.write(ctx, s); err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	err = s.Await(ctx, stage.Patience, "all letters to be indexed", func(ctx context.Context) error {
		n, err := s.API.Count(ctx, nil)
		if err == nil && n != int64(r.total()) {
			err = fmt.Errorf("%d of %d are indexed", n, r.total())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := r.kill(ctx); err != nil {
		return nil, err
	}
	if err := s.AwaitReady(ctx); err != nil {
		return nil, err
	}
	if err := r.awaitJobs(ctx); err != nil {
		o.Say("%v", err) // The check says what is missing.
	}
	for n := range o.Freezes {
		if err := r.freeze(ctx, n); err != nil {
			return nil, err
		}
	}
	o.Say("reading the origin and the ledger")
	h, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Stop(); err != nil {
		return nil, err
	}
	return r.report(h, check(h), time.Since(began)), nil
}

// kill creates the jobs one by one, as the replicas are killed.
func (r *run) kill(ctx context.Context) error {
	steps, ctx := errgroup.WithContext(ctx)
	over := make(chan struct{})
	steps.Go(func() error {
		defer close(over)
		return r.stage.Disturb(ctx, stage.Plan{
			Kills: r.Kills, Points: points, Brokers: r.BrokerKills, Databases: r.DatabaseKills,
			Working: replays, Window: 3 * time.Second, Random: rand.New(rand.NewPCG(r.Seed, 1)),
		})
	})
	steps.Go(func() error {
		for group := range r.groups() {
			if err := r.awaitTurn(ctx, over, group*r.Kills/r.groups()); err != nil {
				return err
			}
			if err := r.create(ctx, fmt.Sprintf("job-%d", group), r.errorType(group), float64(r.sizes[group])/jobTime.Seconds()); err != nil {
				return err
			}
		}
		return nil
	})
	return steps.Wait()
}

// awaitTurn waits until so many replicas were killed, or the killing is over.
func (r *run) awaitTurn(ctx context.Context, over <-chan struct{}, kills int) error {
	for r.stage.Killed() < kills {
		select {
		case <-over:
			return nil
		default:
		}
		if err := stage.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// create creates the job for the letters of one error type. Whoever asks for it may have to ask again, since the replica that he asks may
// die; then he must not get a second job.
func (r *run) create(ctx context.Context, request, errorType string, rate float64) error {
	var job stage.Job
	count := int64(r.byType[errorType])
	err := r.stage.API.Insist(ctx, stage.Patience, func(ctx context.Context) (err error) {
		job, err = r.stage.API.CreateJob(ctx, request, stage.Replay{
			Filter: stage.Filter{ErrorType: []string{errorType}}, Reason: "chaos", Rate: &rate, Expect: count,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("create the job for %s: %w", errorType, err)
	}
	if job.Total != count {
		r.details.Tell("unreplayed", "job %s is for %d letters, not %d", job.ID, job.Total, count)
	}
	r.jobs = append(r.jobs, job.ID)
	return nil
}

// replays tells whether a replica has replayed in this life.
func replays(ctx context.Context, r *stage.Replica) (bool, error) {
	n, err := r.Metric(ctx, "redrive_replayed_letters_total")
	return n > 0, err
}

// awaitJobs waits until all jobs are done.
func (r *run) awaitJobs(ctx context.Context) error {
	return r.stage.Await(ctx, stage.Patience, "all jobs to be done", func(ctx context.Context) error {
		for _, id := range r.jobs {
			job, err := r.stage.API.Job(ctx, id)
			if err == nil && job.State != "done" {
				err = fmt.Errorf("job %s is %s with %d of %d done", id, job.State, job.Done, job.Total)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// export reads the letters of a query whole.
func (r *run) export(ctx context.Context, query url.Values, each func(*stage.Letter)) error {
	return r.stage.API.Export(ctx, query, func(l *stage.Letter) error {
		each(l)
		return nil
	})
}
