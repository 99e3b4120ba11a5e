package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// Why a session hands over nothing more.
var (
	errShutdown   = errors.New("the process ends")
	errFenced     = errors.New("another runner has the job")
	errNotRunning = errors.New("an operator stopped the job")
	// errHeld is a letter that is claimed under this very job, by a runner before or by a call whose answer was lost. When all
	// leases of the job have run out it is taken over like any other.
	errHeld = errors.New("a letter of the job is still claimed")
)

// session is one lease of a job: from the lease to the end of the job, of the lease, or of the process.
type session struct {
	r     *Replayer
	log   *slog.Logger
	slot  *slot
	job   deadletter.Job
	fence idempotency.Fence
	lease *idempotency.Lease

	// hand ends when nothing may be claimed or handed to the client any more. Its cause says why.
	hand    context.Context
	stop    context.CancelCauseFunc
	done    chan struct{}
	limiter *rate.Limiter

	// span is that of the session, asked that of the request, if this process took it.
	span, asked trace.SpanContext

	mu      sync.Mutex
	rate    float64 // 0: no limit
	stopped map[lane]string
	flying  int
	since   time.Time
	unknown bool // something that was sent has no answer

	// replan tells that targets are not what they were when the pass began: nothing more is sent until the next one.
	replan atomic.Bool
}

// lane is a key of an origin: its letters are replayed in their order.
type lane struct{ origin, key string }

// laneOf returns the lane of a letter. One without a key has none.
func laneOf(l *deadletter.Letter) (lane, bool) {
	return lane{l.Origin, string(l.Key)}, l.Key != nil
}

func newSession(r *Replayer, free *slot, job deadletter.Job, began time.Time) *session {
	s := &session{
		r: r, slot: free, job: job, fence: job.Fence, lease: idempotency.NewLease(began, r.opts.Lease),
		log:     r.log.With("job", job.ID),
		done:    make(chan struct{}),
		limiter: rate.NewLimiter(rate.Inf, r.opts.InFlight),
		stopped: map[lane]string{},
	}
	s.hand, s.stop = context.WithCancelCause(context.Background())
	s.setRate(job.Spec.Rate)
	return s
}

// run works on the job. Ctx ends the claims, work everything.
func (s *session) run(ctx, work context.Context) {
	defer close(s.done)
	defer s.stop(nil)
	unlink := context.AfterFunc(ctx, func() { s.stop(errShutdown) })
	defer unlink()
	ctx, work, traced := s.begin(ctx, work)
	watched := make(chan struct{})
	watching, stopWatch := context.WithCancel(work)
	go func() {
		defer close(watched)
		s.watch(watching)
	}()
	s.log.InfoContext(ctx, "a replay runs", "total", s.job.Total, "left", s.job.Left(), "rate", s.job.Spec.Rate)
	err := s.work(work)
	stopWatch()
	<-watched
	traced(s.leave(work, err))
	for _, topic := range s.destinations() {
		s.unstall(topic)
	}
}

// work passes over the open items until there are none.
func (s *session) work(work context.Context) error {
	var keys []deadletter.StoppedKey
	err := s.r.persist(s.hand, func(ctx context.Context) (err error) {
		keys, err = s.r.ledger.StoppedKeys(ctx, s.job.ID)
		return err
	})
	if err != nil {
		return cmp.Or(context.Cause(s.hand), err)
	}
	for _, k := range keys {
		s.stopped[lane{k.Origin, string(k.Key)}] = "an earlier letter of its key failed"
	}
	for {
		s.pass(work)
		if s.hand.Err() != nil {
			return context.Cause(s.hand)
		}
		var ended deadletter.Job
		err := s.r.persist(s.hand, func(ctx context.Context) (err error) {
			ended, err = s.r.ledger.EndJob(ctx, s.job.ID, s.fence)
			return err
		})
		switch {
		case err == nil:
			s.log.InfoContext(work, "a replay is done", "done", ended.Done, "failed", ended.Failed, "skipped", ended.Skipped)
			s.r.wake(s.r.wakeReplies)
			return nil
		case errors.Is(err, deadletter.ErrFenced):
			return errFenced
		case errors.Is(err, deadletter.ErrUnknown):
			return err
		case s.hand.Err() != nil:
			return context.Cause(s.hand)
		}
		// Some items are open again: what could not be sent as it was planned is planned anew.
		if !wait.For(s.hand, s.r.opts.poll) {
			return context.Cause(s.hand)
		}
	}
}

// leave says why the session ends, in a word as well, and gives the lease back if nothing is left that only time tells.
func (s *session) leave(work context.Context, err error) (result string) {
	result = "stopped"
	s.mu.Lock()
	unknown := s.unknown
	s.mu.Unlock()
	switch {
	case err == nil:
		result = "done"
	case errors.Is(err, errShutdown) && !unknown:
		ctx, cancel := context.WithTimeout(work, s.r.opts.Lease/3)
		defer cancel()
		if err := s.r.ledger.LeaveJob(ctx, s.job.ID, s.fence); err != nil && !errors.Is(err, deadletter.ErrFenced) {
			s.log.WarnContext(work, "the lease of a job could not be given back, it runs out", "err", err)
		}
		s.log.InfoContext(work, "a replay is left to others")
	case errors.Is(err, errFenced):
		result = "fenced"
		s.log.WarnContext(work, "a replay was taken over by another runner")
	default:
		s.log.InfoContext(work, "a replay stops", "err", err)
	}
	s.r.metrics.jobs.WithLabelValues(result).Inc()
	return result
}

// watch renews the lease and looks what operators want, until ctx ends.
func (s *session) watch(ctx context.Context) {
	every := min(s.r.opts.poll, s.r.opts.Lease/10)
	for wait.For(ctx, every) {
		if s.hand.Err() != nil && !errors.Is(context.Cause(s.hand), errShutdown) {
			return // The lease ends by itself.
		}
		began := time.Now()
		renew := !began.Before(s.lease.RenewAt())
		call, cancel := context.WithTimeout(ctx, s.r.opts.Lease/3)
		var job deadletter.Job
		var err error
		if renew {
			job, err = s.r.ledger.RenewJob(call, s.job.ID, s.fence, s.r.opts.Lease)
		} else {
			job, err = s.r.ledger.Job(call, s.job.ID)
		}
		cancel()
		switch {
		case errors.Is(err, deadletter.ErrFenced), err == nil && !renew && job.State == deadletter.JobRunning && job.Fence != s.fence:
			s.stop(errFenced)
		case errors.Is(err, deadletter.ErrUnknown):
			s.stop(err)
		case err != nil:
			s.r.ledgerAnswered(ctx, err)
		case job.State != deadletter.JobRunning:
			s.stop(fmt.Errorf("%w: it is %s", errNotRunning, job.State))
		default:
			s.r.ledgerAnswered(ctx, nil)
			if renew {
				s.lease.Renewed(began)
			}
			s.setRate(job.Spec.Rate)
		}
	}
}

// setRate takes the rate that the ledger says.
func (s *session) setRate(perSecond float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate = perSecond
	if perSecond <= 0 {
		s.limiter.SetBurst(s.r.opts.InFlight)
		s.limiter.SetLimit(rate.Inf)
		return
	}
	s.limiter.SetLimit(rate.Limit(perSecond))
	s.limiter.SetBurst(burst(perSecond, s.r.opts.InFlight))
}

// burst is how many letters may go at once: what a twentieth of a second brings.
func burst(perSecond float64, most int) int { return max(1, min(int(perSecond/20), most)) }

// pace is the rate that counts, 0 for none, and how many letters a run may have at it.
func (s *session) pace() (perSecond float64, run int) {
	s.mu.Lock()
	perSecond = s.rate
	s.mu.Unlock()
	if all := s.r.opts.RateLimit; all > 0 && (perSecond <= 0 || all < perSecond) {
		perSecond = all
	}
	if perSecond <= 0 {
		return 0, s.r.opts.InFlight
	}
	return perSecond, burst(perSecond, s.r.opts.InFlight)
}

// batchSize is how many letters are claimed at once: so few that two batches are sent within a third of the lease.
func (s *session) batchSize() int {
	perSecond, _ := s.pace()
	if perSecond <= 0 {
		return s.r.opts.Batch
	}
	return max(1, min(s.r.opts.Batch, int(perSecond*s.r.opts.Lease.Seconds()/6)))
}

// mayHand waits until the lease holds. It reports false when nothing may be handed over any more.
func (s *session) mayHand() bool {
	for {
		if s.hand.Err() != nil {
			return false
		}
		if s.lease.Holds(time.Now()) {
			return true
		}
		if !wait.For(s.hand, min(50*time.Millisecond, s.r.opts.Lease/20)) {
			return false
		}
	}
}

// stopKey makes the later letters of a failed one's key skipped.
func (s *session) stopKey(l *deadletter.Letter) {
	if at, ok := laneOf(l); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stopped[at] == "" {
			s.stopped[at] = fmt.Sprintf("an earlier letter of its key failed: %d", l.ID)
		}
	}
}

// skips says why a letter is skipped, "" if it is not.
func (s *session) skips(l *deadletter.Letter) string {
	at, ok := laneOf(l)
	if !ok {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped[at]
}

func (s *session) sent(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flying == 0 {
		s.since = time.Now()
	}
	s.flying += n
}

// leftUnknown notes that a claim is left to run out.
func (s *session) leftUnknown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = true
}

func (s *session) outstanding() (n int, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flying, s.since
}

// destinations are the topics that the job may write.
func (s *session) destinations() []string {
	var names []string
	for _, t := range s.r.opts.Topics {
		names = append(names, s.r.destination(&t, &s.job.Spec))
	}
	return slices.Compact(slices.Sorted(slices.Values(append(names, ""))))
}

// sessions are those under way.
type sessions struct {
	mu   sync.Mutex
	list []*session
}

// add takes a session, and returns another one of the same job.
func (l *sessions) add(s *session) (before *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.list {
		if other.job.ID == s.job.ID {
			before = other
		}
	}
	l.list = append(l.list, s)
	return before
}

func (l *sessions) remove(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(other *session) bool { return other == s })
}

func (l *sessions) all() []*session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// closeProducers ends what waits for acknowledgements. Their outcome is unknown then.
func (l *sessions) closeProducers() {
	for _, s := range l.all() {
		s.slot.close()
	}
}
