package replay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kafka-redrive/redrive/internal/issue"
)

// Status is the state of a Replayer at one moment.
type Status struct {
	// Running says that jobs are taken.
	Running bool
	// Assigned is how many partitions of trigger topics this process reads.
	Assigned int
	// Jobs is how many jobs it runs, InFlight how many of their records are with the clients.
	Jobs, InFlight int
	Troubles       []issue.Trouble
}

const (
	// shows is how long something that has happened, and is over, is shown.
	shows = 30 * time.Minute
	// stalled is how long a run may wait for its acknowledgements unseen.
	stalled = 10 * time.Second
)

// Status takes a snapshot.
func (r *Replayer) Status() Status {
	s := Status{}
	s.Running, s.Assigned, s.Troubles = r.issues.snapshot(time.Now())
	for _, session := range r.running.all() {
		s.Jobs++
		n, since := session.outstanding()
		s.InFlight += n
		if n > 0 && time.Since(since) > stalled {
			s.Troubles = append(s.Troubles, issue.Trouble{
				Issue: issue.JobStalled, Partition: -1,
				Detail: fmt.Sprintf("job %s: %d records were sent %s ago and are not acknowledged", session.job.ID, n, time.Since(since).Round(time.Second)),
			})
		}
	}
	for _, t := range r.fetcher.Troubles() {
		s.Troubles = append(s.Troubles, issue.Trouble{Issue: issue.FetchFailed, Topic: t.Topic, Partition: -1, Detail: t.Err.Error()})
	}
	slices.SortFunc(s.Troubles, issue.Trouble.Compare)
	return s
}

// issues holds what is wrong just now. It is safe for concurrent use.
type issues struct {
	mu       sync.Mutex
	running  bool
	assigned int
	present  map[issueKey]present
}

// issueKey tells issues apart: there are only as many as topics and jobs that run.
type issueKey struct {
	code    issue.Code
	topic   string
	subject string
}

type present struct {
	detail string
	until  time.Time // zero: until it is cleared
}

func (i *issues) run(running bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running = running
}

func (i *issues) assign(change int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.assigned = max(0, i.assigned+change)
}

// raise shows an issue until it is cleared, or for some time where lasting is above 0. It reports whether it is new.
func (i *issues) raise(key issueKey, lasting time.Duration, detail string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.present == nil {
		i.present = map[issueKey]present{}
	}
	_, was := i.present[key]
	p := present{detail: detail}
	if lasting > 0 {
		p.until = time.Now().Add(lasting)
	}
	i.present[key] = p
	return !was
}

func (i *issues) clear(key issueKey) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, was := i.present[key]
	delete(i.present, key)
	return was
}

func (i *issues) snapshot(now time.Time) (running bool, assigned int, troubles []issue.Trouble) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key, p := range i.present {
		if !p.until.IsZero() && now.After(p.until) {
			delete(i.present, key)
			continue
		}
		troubles = append(troubles, issue.Trouble{Issue: key.code, Topic: key.topic, Partition: -1, Detail: p.detail})
	}
	return i.running, i.assigned, troubles
}

// ledgerAnswered notes whether the ledger can be reached.
func (r *Replayer) ledgerAnswered(ctx context.Context, err error) {
	key := issueKey{code: issue.LedgerDown}
	switch {
	case err == nil:
		if r.issues.clear(key) {
			r.log.InfoContext(ctx, "the ledger answers again")
		}
	case ctx.Err() != nil:
	case r.issues.raise(key, 0, err.Error()):
		r.log.ErrorContext(ctx, "the ledger does not answer, it is tried again", "err", err)
	}
}

// stall notes that a job can not go on for now.
func (s *session) stall(ctx context.Context, topic string, err error) {
	key := issueKey{issue.JobStalled, topic, s.job.ID}
	if ctx.Err() == nil && s.r.issues.raise(key, 0, fmt.Sprintf("job %s: %v", s.job.ID, err)) {
		s.log.WarnContext(ctx, "a replay can not go on, it is tried again", "topic", topic, "err", err)
	}
}

func (s *session) unstall(topic string) {
	s.r.issues.clear(issueKey{issue.JobStalled, topic, s.job.ID})
}
