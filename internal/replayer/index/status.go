package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/issue"
)

// Status is the state of an Indexer at one moment.
type Status struct {
	// Running tells that Run is under way.
	Running bool `json:"running"`
	// Assigned is how many partitions this process indexes.
	Assigned int `json:"assigned"`
	// Behind is how many offsets of these partitions are not in the ledger yet.
	Behind   int64           `json:"behind"`
	Troubles []issue.Trouble `json:"troubles"`
}

const (
	// lossShows is how long a loss, or letters that expired, or a topic that was made again, is an issue.
	lossShows = time.Hour
	// faultLasts is how long an error that came with a poll counts as present: it is repeated while it lasts, and nothing says that it
	// is over.
	faultLasts = 30 * time.Second
	// behindShows is how long a partition may be behind before that is an issue.
	behindShows = time.Minute
	// reportInterval is how often one thing is warned of.
	reportInterval = 30 * time.Second
)

// place is a partition.
type place struct {
	topic     string
	partition int32
}

// faults are errors that are there, or were a moment ago. Guarded by Indexer.mu.
type faults struct {
	group fault
	fetch map[place]fault
	// ledger is the first error since the ledger answered last, and last the latest.
	ledger, last fault
	reported     map[string]time.Time
}

// fault is an error and when it came.
type fault struct {
	err error
	at  time.Time
}

func (f fault) present(now time.Time) bool { return f.err != nil && now.Sub(f.at) < faultLasts }

// call calls the ledger and keeps in mind whether it answers.
func (ix *Indexer) call(ctx context.Context, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := do(limited)
	if ctx.Err() != nil {
		return err // Whoever gave up says nothing about the ledger.
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err == nil || errors.Is(err, deadletter.ErrMoved) || errors.Is(err, deadletter.ErrUnknown) || errors.Is(err, deadletter.ErrState) {
		if ix.faults.ledger.err != nil {
			ix.log.InfoContext(ctx, "the ledger answers again", "after", time.Since(ix.faults.ledger.at).Round(time.Millisecond).String())
			ix.faults.ledger, ix.faults.last = fault{}, fault{}
		}
		return err
	}
	ix.faults.last = fault{err, time.Now()}
	if ix.faults.ledger.err == nil {
		ix.faults.ledger = ix.faults.last
	}
	ix.report("ledger", "the ledger does not answer, what is fetched is kept and it is tried again", "err", err)
	return err
}

// report warns of one thing from time to time only. The caller holds Indexer.mu.
func (ix *Indexer) report(what, message string, args ...any) {
	now := time.Now()
	if now.Sub(ix.faults.reported[what]) < reportInterval {
		return
	}
	ix.faults.reported[what] = now
	ix.log.Warn(message, args...) //nolint:sloglint // The callers pass constants.
}

// lose notes what retention took before it was read. The caller holds Indexer.mu.
func (t *topic) lose(ix *Indexer, s *source, n int64) {
	t.lost += n
	t.lostAt = time.Now()
	t.lostC.Add(float64(n))
	ix.log.Error("retention removed dead letters before they were indexed",
		"topic", t.DeadLetters, "partition", s.partition, "count", n)
}

// expire notes letters whose bytes are gone.
func (t *topic) expire(ix *Indexer, n int64, why string) {
	if n == 0 {
		return
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	t.expired += n
	t.expiredAt = time.Now()
	t.expiredC.Add(float64(n))
	ix.log.Error("the bytes of dead letters are gone, they have expired", "topic", t.DeadLetters, "count", n, "why", why)
}

// Status takes a snapshot. It does not block and is safe for concurrent use.
func (ix *Indexer) Status() Status {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	now := time.Now()
	status := Status{Running: ix.started, Assigned: ix.assigned}
	add := func(code issue.Code, topic string, partition int32, format string, args ...any) {
		status.Troubles = append(status.Troubles, issue.Trouble{Issue: code, Topic: topic, Partition: partition, Detail: fmt.Sprintf(format, args...)})
	}
	if f := ix.faults.ledger; f.err != nil {
		add(ledgerIssue(ix.faults.last.err), "", -1, "since %s: %v", f.at.UTC().Format(time.RFC3339), ix.faults.last.err)
	}
	if f := ix.faults.group; f.present(now) {
		add(issue.GroupUnstable, "", -1, "%v", f.err)
	}
	for at, f := range ix.faults.fetch {
		if f.present(now) && !isMissing(f.err) {
			add(issue.FetchFailed, at.topic, at.partition, "%v", f.err)
		}
	}
	for name, t := range ix.topics {
		missing := ix.counts.Err(name)
		if isMissing(missing) {
			add(issue.TopicMissing, name, -1, "%v", missing)
		}
		if !t.lostAt.IsZero() && now.Sub(t.lostAt) < lossShows {
			add(issue.LostToRetention, name, -1, "%d dead letters were removed before they were indexed, the last at %s", t.lost, t.lostAt.UTC().Format(time.RFC3339))
		}
		if !t.expiredAt.IsZero() && now.Sub(t.expiredAt) < lossShows {
			add(issue.LettersExpired, name, -1, "the bytes of %d dead letters are gone, the last at %s", t.expired, t.expiredAt.UTC().Format(time.RFC3339))
		}
		if !t.remadeAt.IsZero() && now.Sub(t.remadeAt) < lossShows {
			add(issue.TopicRecreated, name, -1, "found at %s", t.remadeAt.UTC().Format(time.RFC3339))
		}
		var late int64
		for _, s := range ix.sources[name] {
			n := s.behind()
			status.Behind += n
			if n > 0 && now.Sub(s.currentAt) > behindShows {
				late += n
			}
			switch {
			case errors.Is(s.problem, errOutOfRange):
				add(issue.OffsetOutOfRange, name, s.partition, "%v", s.problem)
			case s.problem != nil && !isMissing(missing) && ix.faults.ledger.err == nil:
				add(issue.FetchFailed, name, s.partition, "%v", s.problem)
			}
		}
		if late > 0 {
			add(issue.IndexBehind, name, -1, "%d offsets are not indexed yet", late)
		}
	}
	slices.SortFunc(status.Troubles, issue.Trouble.Compare)
	return status
}

func ledgerIssue(err error) issue.Code {
	switch {
	case errors.Is(err, deadletter.ErrNewer):
		return issue.LedgerNewer
	case errors.Is(err, deadletter.ErrOlder):
		return issue.LedgerOlder
	default:
		return issue.LedgerDown
	}
}
