package forwarder

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// loop owns the sources and everything below them. All methods but run, hand,
// do, acked and beatAge are called on its goroutine only.
type loop struct {
	f *Forwarder

	fetched chan kgo.Fetches
	taken   chan struct{}
	calls   chan func()
	ended   chan struct{} // closed when run returns
	fatal   chan struct{} // closed once fatalErr is set

	fatalErr error

	// acks collects what the producer's callbacks say, which must not block.
	acks struct {
		sync.Mutex
		list   []ack
		signal chan struct{}
	}
	spare []ack

	sources  map[string]map[int32]*source
	assigned int
	orphans  map[*source]bool // of topics that were made again, with records to save
	blocked  map[*source]bool // sources that wait for an operator
	looking  bool             // for what the operator decided
	lookAt   time.Time
	seeks    map[string]map[int32]kgo.EpochOffset
	seeking  atomic.Bool
	runnable []*source // sources to pump before the loop waits again
	stalled  []*source // sources that wait for the answer to a commit
	alarms   alarms    // sources by their next moment
	heldSum  int64     // bytes held or in flight, all sources

	releasing bool
	idle      []idleWait

	now    time.Time
	commit commitState
	env    envelope.Envelope // scratch of the record under way
	skew   skew
	random func() float64
	beat   atomic.Int64 // Unix nanoseconds of the last turn
	faults faults
	member bool // the group has taken this member in, as far as status has seen
}

type ack struct {
	held   *held
	offset int64 // of the copy
	err    error
}

// idleWait is somebody who waits until nothing is in flight.
type idleWait struct {
	sources []*source // nil: all
	done    chan struct{}
}

func newLoop(f *Forwarder) *loop {
	l := &loop{
		f:         f,
		fetched:   make(chan kgo.Fetches),
		taken:     make(chan struct{}),
		calls:     make(chan func()),
		ended:     make(chan struct{}),
		fatal:     make(chan struct{}),
		sources:   map[string]map[int32]*source{},
		orphans:   map[*source]bool{},
		blocked:   map[*source]bool{},
		seeks:     map[string]map[int32]kgo.EpochOffset{},
		releasing: true,
		random:    rand.Float64,
		faults:    faults{remade: map[string]time.Time{}},
	}
	l.acks.signal = make(chan struct{}, 1)
	return l
}

// run turns the loop until ctx ends.
func (l *loop) run(ctx context.Context) {
	defer close(l.ended)
	l.tick()
	l.keepPace()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case fetches := <-l.fetched:
			l.tick()
			l.take(fetches)
			l.taken <- struct{}{}
		case <-l.acks.signal:
			l.tick()
		case call := <-l.calls:
			l.tick()
			call()
		case <-timer.C:
			l.tick()
		}
		l.settle()
		l.wake()
		l.pumpAll()
		l.maybeCommit()
		l.maybeLook()
		timer.Reset(l.untilNext())
	}
}

func (l *loop) tick() {
	l.now = time.Now()
	l.beat.Store(l.now.UnixNano())
}

// hand gives fetches to the loop and returns when they were taken.
func (l *loop) hand(fetches kgo.Fetches) {
	select {
	case l.fetched <- fetches:
		<-l.taken
	case <-l.ended:
	}
}

// do runs f on the loop and returns when it has run. It reports false, and f
// does not run, if the loop has ended.
func (l *loop) do(f func()) bool {
	done := make(chan struct{})
	select {
	case l.calls <- func() { f(); close(done) }:
		<-done
		return true
	case <-l.ended:
		return false
	}
}

// ask is do for readers, who can do with an old loop.
func (l *loop) ask(f func()) {
	if l.beat.Load() == 0 {
		return // Not started.
	}
	l.do(f)
}

// acked is the producer's callback. It never blocks.
func (l *loop) acked(h *held, offset int64, err error) {
	l.acks.Lock()
	l.acks.list = append(l.acks.list, ack{h, offset, err})
	first := len(l.acks.list) == 1
	l.acks.Unlock()
	if first {
		select {
		case l.acks.signal <- struct{}{}:
		default:
		}
	}
}

// settle works off the acknowledgements.
func (l *loop) settle() {
	l.acks.Lock()
	list := l.acks.list
	l.acks.list = l.spare[:0]
	l.acks.Unlock()
	for i, a := range list {
		a.held.Value.source.settle(l, a)
		list[i] = ack{}
	}
	l.spare = list
	if len(l.idle) > 0 {
		l.notifyIdle()
	}
}

// wake makes the sources runnable whose moment has come.
func (l *loop) wake() {
	for len(l.alarms) > 0 && !l.alarms[0].alarm.After(l.now) {
		s := heap.Pop(&l.alarms).(*source)
		l.ready(s)
	}
}

// ready puts a source on the list of those to pump.
func (l *loop) ready(s *source) {
	if !s.runnable {
		s.runnable = true
		l.runnable = append(l.runnable, s)
	}
}

// stall parks s until the next commit was answered.
func (l *loop) stall(s *source) {
	l.setAlarm(s, time.Time{})
	if !s.stalled {
		s.stalled = true
		l.stalled = append(l.stalled, s)
	}
}

func (l *loop) unstall() {
	for i, s := range l.stalled {
		s.stalled = false
		l.ready(s)
		l.stalled[i] = nil
	}
	l.stalled = l.stalled[:0]
}

func (l *loop) pumpAll() {
	for i := 0; i < len(l.runnable); i++ {
		s := l.runnable[i]
		s.runnable = false
		if !s.dropped {
			s.pump(l)
		}
	}
	clear(l.runnable)
	l.runnable = l.runnable[:0]
}

// untilNext is how long the loop may wait for its next turn.
func (l *loop) untilNext() time.Duration {
	next := l.commit.next(l)
	if len(l.blocked) > 0 && !l.looking && l.lookAt.Before(next) {
		next = l.lookAt
	}
	if len(l.alarms) > 0 && l.alarms[0].alarm.Before(next) {
		next = l.alarms[0].alarm
	}
	return time.Until(next)
}

// setAlarm says when s wants to be pumped next; zero: on an event only.
func (l *loop) setAlarm(s *source, when time.Time) {
	switch {
	case s.alarmIndex >= 0 && when.IsZero():
		heap.Remove(&l.alarms, s.alarmIndex)
	case s.alarmIndex >= 0:
		if !s.alarm.Equal(when) {
			s.alarm = when
			heap.Fix(&l.alarms, s.alarmIndex)
		}
	case !when.IsZero():
		s.alarm = when
		heap.Push(&l.alarms, s)
	}
}

// take queues what was fetched.
func (l *loop) take(fetches kgo.Fetches) {
	var pause []*source
	for i := range fetches {
		for j := range fetches[i].Topics {
			topic := &fetches[i].Topics[j]
			for k := range topic.Partitions {
				p := &topic.Partitions[k]
				s := l.sources[topic.Topic][p.Partition]
				if p.Err != nil {
					l.fetchFailed(topic.Topic, p.Partition, s, p.Err)
				}
				if s == nil || s.closing || s.blocked != "" {
					continue // Not ours (any more); nothing was committed for them.
				}
				s.take(l, p)
				if !s.paused && s.overBudget(l) {
					pause = append(pause, s)
				}
				l.ready(s)
			}
		}
	}
	l.pause(pause)
}

func (l *loop) pause(sources []*source) {
	if len(sources) == 0 {
		return
	}
	for _, s := range sources {
		s.paused = true
	}
	l.f.consumer.PauseFetchPartitions(partitionsOf(sources))
}

func (l *loop) resume(s *source) {
	s.paused = false
	l.readOn(s)
}

// halt ends the reading of one partition, readOn begins it again unless
// something else stands against it.
func (l *loop) halt(s *source) {
	l.f.consumer.PauseFetchPartitions(partitionsOf([]*source{s}))
}

func (l *loop) readOn(s *source) {
	if s.mayRead() {
		l.f.consumer.ResumeFetchPartitions(partitionsOf([]*source{s}))
	}
}

// restInterval is how long a partition is not read after an error.
const restInterval = time.Second

// rest stops reading a partition for a moment: after some errors the client asks
// again at once, thousands of times a second.
func (l *loop) rest(s *source) {
	if s.resting {
		return
	}
	s.resting = true
	l.halt(s)
	time.AfterFunc(restInterval, func() {
		l.do(func() {
			s.resting = false
			l.readOn(s)
		})
	})
}

func partitionsOf(sources []*source) map[string][]int32 {
	m := map[string][]int32{}
	for _, s := range sources {
		m[s.inlet.topic] = append(m[s.inlet.topic], s.partition)
	}
	return m
}

// stopReleasing ends the release of the given sources, or of all, and returns
// a channel that is closed once nothing of them is in flight.
func (l *loop) stopReleasing(sources []*source) chan struct{} {
	if sources == nil {
		l.releasing = false
	}
	for _, s := range sources {
		s.closing = true
	}
	wait := idleWait{sources: sources, done: make(chan struct{})}
	l.idle = append(l.idle, wait)
	l.notifyIdle()
	return wait.done
}

func (l *loop) notifyIdle() {
	left := l.idle[:0]
	for _, w := range l.idle {
		if l.isIdle(w.sources) {
			close(w.done)
		} else {
			left = append(left, w)
		}
	}
	clear(l.idle[len(left):])
	l.idle = left
}

func (l *loop) isIdle(sources []*source) bool {
	if sources == nil {
		for s := range l.orphans {
			if s.flying > 0 {
				return false
			}
		}
		for _, partitions := range l.sources {
			for _, s := range partitions {
				if s.flying > 0 {
					return false
				}
			}
		}
		return true
	}
	for _, s := range sources {
		if s.flying > 0 {
			return false
		}
	}
	return true
}

// add takes over an assigned partition.
func (l *loop) add(s *source) {
	partitions := l.sources[s.inlet.topic]
	if partitions == nil {
		partitions = map[int32]*source{}
		l.sources[s.inlet.topic] = partitions
	}
	if old := partitions[s.partition]; old != nil {
		l.drop(old)
	}
	partitions[s.partition] = s
	if s.blocked != "" {
		l.block(s)
	}
	if s.lostBefore > 0 {
		s.inlet.lose(l.now, s.lostBefore)
	}
	s.window = min(minWindow, l.f.maxWindow())
	l.assigned++
	if s.fresh && !s.undecided {
		l.markDirty(s)
	}
	l.ready(s)
}

// drop forgets a source. What is in flight for it may still be acknowledged;
// that changes nothing then.
func (l *loop) drop(s *source) {
	if l.sources[s.inlet.topic][s.partition] != s {
		return
	}
	delete(l.sources[s.inlet.topic], s.partition)
	delete(l.blocked, s)
	l.assigned--
	l.heldSum -= s.order.Bytes()
	l.commit.uncovered -= int(s.order.Finished() - s.covered)
	s.dropped, s.closing = true, true
	l.setAlarm(s, time.Time{})
	l.commit.forget(s)
}

func (l *loop) fail(err error) {
	if l.fatalErr == nil {
		l.fatalErr = err
		close(l.fatal)
	}
}

// alarms is a heap of sources by the moment they want to be pumped.
type alarms []*source

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].alarm.Before(a[j].alarm) }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].alarmIndex, a[j].alarmIndex = i, j
}

// Push implements heap.Interface.
func (a *alarms) Push(x any) {
	s := x.(*source)
	s.alarmIndex = len(*a)
	*a = append(*a, s)
}

// Pop implements heap.Interface.
func (a *alarms) Pop() any {
	old := *a
	n := len(old) - 1
	s := old[n]
	old[n] = nil
	*a = old[:n]
	s.alarmIndex = -1
	return s
}
