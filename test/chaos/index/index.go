// Package index tells whether the ledger holds what the dead-letter topics hold, whatever dies meanwhile.
//
// The model. Dead letters with random content are written to two topics, some of them in transactions of which a part is aborted,
// while replicas of the real dlt-replayer index them and are killed again and again: at random moments, and at the points before and
// after the write of a batch. Brokers and Postgres are killed as well. At the end both sides are read from the outside and compared: the
// topics with a plain client that sees what is committed, the ledger by the export of the API. The digests are computed by the code of
// the harness.
//
//   - index_missing: a record without a row.
//   - index_duplicate: a row more than one of a record.
//   - index_phantom: a row without a record, as of an aborted transaction.
//   - index_differs: a row that says something else than its record.
//   - index_lost: offsets that are said to be lost to retention, of which there was none.
//
// The moments of kills depend on the machine as well as on the seed: a seed repeats the records, not the run.
package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// points are the crash points of the index loop.
var points = []string{"before-write", "after-write"}

// Options say how large the story is.
type Options struct {
	// Letters are written at least; the last share of them goes on until nothing is killed any more.
	Letters int
	// Rate is how many letters are written a second at most.
	Rate int
	// Kills are of replicas, BrokerKills and DatabaseKills of what they need.
	Kills, BrokerKills, DatabaseKills int
	// Ledger is stage.Postgres or stage.SQLite.
	Ledger string
	// Brokers is 1 or 3.
	Brokers int
	Seed    uint64
	// Dir is an empty folder, which the caller owns; Binary a dlt-replayer with crash points, "" to build one.
	Dir, Binary string
	Say         func(format string, args ...any)
}

// Run tells the story. The error is about the run itself; what is wrong with the ledger is in the report.
func Run(ctx context.Context, o Options) (_ *stage.Report, err error) {
	began := time.Now()
	s, err := stage.New(ctx, stage.Options{
		Dir: o.Dir, Ledger: o.Ledger, Brokers: o.Brokers, Binary: o.Binary, Say: o.Say,
		Topics: []stage.Topic{{Origin: "chaos-many", Partitions: 6}, {Origin: "chaos-few", Partitions: 2}},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	w, err := newWriter(s, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	o.Say("%s, %d brokers: %d letters, %d kills", o.Ledger, o.Brokers, o.Letters, o.Kills)

	steps, stepCtx := errgroup.WithContext(ctx)
	over := make(chan struct{})
	steps.Go(func() error { return w.write(stepCtx, over) })
	steps.Go(func() error {
		defer close(over)
		return s.Disturb(stepCtx, stage.Plan{
			Kills: o.Kills, Points: points, Brokers: o.BrokerKills, Databases: o.DatabaseKills,
			Working: indexes, Window: 2 * time.Second, Random: rand.New(rand.NewPCG(o.Seed, 1)),
		})
	})
	if err := steps.Wait(); err != nil {
		return nil, err
	}

	o.Say("%d letters written, %d records in aborted transactions; reading the topics", w.committed, w.aborted)
	want, err := readTopics(ctx, s)
	if err != nil {
		return nil, err
	}
	o.Say("waiting until all %d are indexed", want.count)
	if err := s.Await(ctx, stage.Patience, "the index to reach the ends", func(ctx context.Context) error { return want.reached(ctx, s.API) }); err != nil {
		o.Say("%v", err) // The comparison says what is missing.
	}
	f := &findings{want: want}
	if err := s.API.Export(ctx, nil, f.row); err != nil {
		return nil, err
	}
	f.end()
	if err := f.progress(ctx, s.API); err != nil {
		return nil, err
	}
	if s.Postgres != nil {
		if err := f.rows(ctx, s.Postgres.URL("")); err != nil {
			return nil, err
		}
	}
	if err := s.Stop(); err != nil {
		return nil, err
	}
	return makeReport(s, f, w, time.Since(began)), nil
}

// indexes tells whether a replica has written rows in this life.
func indexes(ctx context.Context, r *stage.Replica) (bool, error) {
	n, err := r.Metric(ctx, "redrive_letters_indexed_total")
	return n > 0, err
}

// rows asks the tables themselves: an export that reads them in some order might show a row once that is there twice.
func (f *findings) rows(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // Only read.
	var rows, places int
	err = conn.QueryRow(ctx, "SELECT count(*), count(DISTINCT (topic, record_partition, record_offset)) FROM letters").Scan(&rows, &places)
	if err != nil {
		return fmt.Errorf("count the rows: %w", err)
	}
	if hidden := rows - places - f.duplicate; hidden > 0 {
		f.duplicate += hidden
		f.details.Tell("index_duplicate", "%d rows that the export does not show", hidden)
	}
	if rows != f.seen {
		f.details.Tell("index_rows", "the table has %d rows, the export %d", rows, f.seen)
	}
	return nil
}

func makeReport(s *stage.Stage, f *findings, w *writer, took time.Duration) *stage.Report {
	r := &stage.Report{Details: f.details.Lines()}
	kinds := map[stage.Kind]int{}
	for _, e := range s.Events() {
		r.Events = append(r.Events, e.What)
		kinds[e.Kind]++
	}
	hits, never := s.Points(points)
	r.Add("letters", float64(f.want.count), "records")
	r.Add("letters_aborted", float64(w.aborted), "records")
	r.None("index_missing", f.missing, "records")
	r.None("index_duplicate", f.duplicate, "rows")
	r.None("index_phantom", f.phantom, "rows")
	r.None("index_differs", f.differs, "rows")
	r.None("index_lost", f.lost, "offsets")
	r.Add("index_kills", float64(kinds[stage.ReplicaKilled]), "kills")
	r.Add("index_point_kills", float64(hits), "kills")
	r.Add("index_broker_kills", float64(kinds[stage.BrokerKilled]), "kills")
	r.Add("index_database_kills", float64(kinds[stage.DatabaseKilled]), "kills")
	r.Add("index_seconds", took.Seconds(), "s")
	if kinds[stage.ReplicaKilled] >= 4*len(points) && len(never) > 0 {
		r.Violations = append(r.Violations, fmt.Sprintf("nobody died at %v", never))
	}
	return r
}
