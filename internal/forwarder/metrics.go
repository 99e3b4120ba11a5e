package forwarder

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

// metrics are the counters of the forwarder. What can be read off the state is
// not kept here: see collector.
type metrics struct {
	forwarded     *prometheus.CounterVec
	hopped        *prometheus.CounterVec
	deadLettered  *prometheus.CounterVec
	refusals      *prometheus.CounterVec
	clamped       *prometheus.CounterVec
	inherited     *prometheus.CounterVec
	dropped       *prometheus.CounterVec
	lost          *prometheus.CounterVec
	loopGuard     *prometheus.CounterVec
	shortened     *prometheus.CounterVec
	rejected      *prometheus.CounterVec
	rebalances    *prometheus.CounterVec
	commitErrors  prometheus.Counter
	commitSeconds prometheus.Histogram
	polls         prometheus.Counter

	mu     sync.Mutex // guards inlets: a retired topic is found while the metrics are read
	inlets []*inlet
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		forwarded:    counter("redrive_records_forwarded_total", "Records returned to their origin or return topic, acknowledged.", "source", "target"),
		hopped:       counter("redrive_records_hopped_total", "Records sent to a tier, acknowledged.", "source", "target"),
		deadLettered: counter("redrive_records_dead_lettered_total", "Records sent to the dead letters, acknowledged.", "source", "reason"),
		refusals:     counter("redrive_produce_errors_total", "Produce errors by the topic that was written and the broker's code.", "target", "code"),
		clamped:      counter("redrive_records_clamped_total", "Records whose headers asked for a wait that was not granted as it stood.", "source"),
		inherited:    counter("redrive_records_inherited_total", "Records that came with the control headers of another record.", "source"),
		dropped:      counter("redrive_records_handed_over_twice_total", "Records dropped because the same delivery of the same record is held.", "source"),
		lost:         counter("redrive_records_lost_total", "Records that retention removed before they were read.", "source"),
		loopGuard:    counter("redrive_loop_guard_total", "Records that became dead letters because they had failed too often over all replays.", "source"),
		shortened:    counter("redrive_records_shortened_total", "Copies that were written without the error's texts, because they were too large with them.", "source"),
		rejected:     counter("redrive_records_with_rejected_headers_total", "Records with control headers that were not accepted.", "source"),
		rebalances:   counter("redrive_rebalances_total", "Changes of the assignment.", "type"),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "redrive_commit_duration_seconds", Help: "How long commits took, refused ones included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		polls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "redrive_polls_total", Help: "Polls whose outcome the loop has taken. They go on while nothing comes and while all that is held waits.",
		}),
		commitErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "redrive_commit_errors_total", Help: "Commits that were not accepted."}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.forwarded, m.hopped, m.deadLettered, m.refusals, m.clamped,
		m.inherited, m.dropped, m.lost, m.loopGuard, m.shortened, m.rejected, m.rebalances, m.commitErrors, m.commitSeconds, m.polls,
	}
}

// inletStats are the counters of one inlet, looked up once.
type inletStats struct {
	m         *metrics
	source    string
	forwarded map[*outlet]prometheus.Counter
	hopped    map[*outlet]prometheus.Counter
	clamped   prometheus.Counter
	inherited prometheus.Counter
	twins     prometheus.Counter
	lost      prometheus.Counter
	loopGuard prometheus.Counter
	shortened prometheus.Counter
	rejected  prometheus.Counter
	lateness  *lateness // nil for an inbox, whose records do not wait
}

// reasons are those for which the forwarder writes dead letters.
var reasons = [...]envelope.Reason{
	envelope.ReasonPoison, envelope.ReasonPermanent, envelope.ReasonExhausted, envelope.ReasonMalformed,
	envelope.ReasonUnroutable, envelope.ReasonTooLarge,
}

// add makes the counters of an inlet; r is its entry, or nil if each record has
// its own.
func (m *metrics) add(in *inlet, r *route) {
	s := inletStats{
		m:         m,
		source:    in.topic,
		clamped:   m.clamped.WithLabelValues(in.topic),
		inherited: m.inherited.WithLabelValues(in.topic),
		twins:     m.dropped.WithLabelValues(in.topic),
		lost:      m.lost.WithLabelValues(in.topic),
		loopGuard: m.loopGuard.WithLabelValues(in.topic),
		shortened: m.shortened.WithLabelValues(in.topic),
		rejected:  m.rejected.WithLabelValues(in.topic),
		hopped:    map[*outlet]prometheus.Counter{},
		forwarded: map[*outlet]prometheus.Counter{},
	}
	// Known pairs count from zero, so that the first event is a rise.
	if in.isInbox() && r != nil {
		for _, t := range r.tiers {
			s.hopped[t] = m.hopped.WithLabelValues(in.topic, t.topic)
		}
	}
	if !in.isInbox() {
		s.lateness = &lateness{}
		if r != nil {
			s.forwarded[r.origin] = m.forwarded.WithLabelValues(in.topic, r.origin.topic)
		}
	}
	for _, reason := range reasons {
		m.deadLettered.WithLabelValues(in.topic, string(reason))
	}
	in.stats = s
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inlets = append(m.inlets, in)
}

// note counts what was odd about a decision.
func (s *inletStats) note(step *tiers.Step) {
	if step.Clamped {
		s.clamped.Inc()
	}
	if step.Inherited {
		s.inherited.Inc()
	}
	if step.LoopGuard {
		s.loopGuard.Inc()
	}
	if step.Rejected {
		s.rejected.Inc()
	}
}

// acked counts an acknowledged copy.
func (s *inletStats) acked(h *held, now time.Time) {
	r := &h.Value
	if r.form == trimmed {
		s.shortened.Inc()
	}
	switch {
	case r.reason != "":
		s.m.deadLettered.WithLabelValues(s.source, string(r.reason)).Inc()
	case r.returns():
		count(s.forwarded, s.m.forwarded, s.source, r.to)
		if s.lateness != nil {
			s.lateness.observe(h.Late(now))
		}
	default:
		count(s.hopped, s.m.hopped, s.source, r.to)
	}
}

// count counts by what was written, with the counters that were looked up before.
func count(known map[*outlet]prometheus.Counter, all *prometheus.CounterVec, source string, to *outlet) {
	c := known[to]
	if c == nil {
		c = all.WithLabelValues(source, to.topic)
		known[to] = c
	}
	c.Inc()
}

func (s *inletStats) failed(h *held, err error) {
	s.m.refusals.WithLabelValues(h.Value.target.outlet.topic, kafka.Code(err)).Inc()
}

// latenessBounds are the upper bounds of the buckets in seconds.
var latenessBounds = [...]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}

// lateness is a histogram with one writer, which makes it several times cheaper
// than the general one; a record a microsecond passes here.
type lateness struct {
	buckets [len(latenessBounds) + 1]atomic.Uint64
	sum     atomic.Uint64 // bits of a float64
}

func (l *lateness) observe(late time.Duration) {
	seconds := late.Seconds()
	i := 0
	for i < len(latenessBounds) && seconds > latenessBounds[i] {
		i++
	}
	l.buckets[i].Add(1)
	l.sum.Store(math.Float64bits(math.Float64frombits(l.sum.Load()) + seconds))
}

func (l *lateness) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	cumulative := make(map[float64]uint64, len(latenessBounds))
	var n uint64
	for i, bound := range latenessBounds {
		n += l.buckets[i].Load()
		cumulative[bound] = n
	}
	n += l.buckets[len(latenessBounds)].Load()
	return prometheus.MustNewConstHistogram(desc, n, math.Float64frombits(l.sum.Load()), cumulative, labels...)
}

// collector exports the counters and, from a snapshot of the loop, the gauges.
type collector struct {
	f      *Forwarder
	asking chan struct{} // room for one who asks the loop
}

// statusTimeout is how long the loop may take for a snapshot. One that is stuck
// must not hide the counters, which tell that it is.
const statusTimeout = 1500 * time.Millisecond

// status is a snapshot of the loop, if it answers in time.
func (c *collector) status() (Status, bool) {
	timer := time.NewTimer(statusTimeout)
	defer timer.Stop()
	select {
	case c.asking <- struct{}{}:
	case <-timer.C:
		return Status{}, false
	}
	answer := make(chan Status, 1)
	go func() {
		defer func() { <-c.asking }()
		answer <- c.f.Status()
	}()
	select {
	case s := <-answer:
		return s, true
	case <-timer.C:
		return Status{}, false
	}
}

var delayDesc = prometheus.NewDesc("redrive_tier_delay_seconds",
	"How long a record waits in the tier, jitter not counted.", []string{"topic"}, nil)

type gauge struct {
	desc  *prometheus.Desc
	value func(*TopicStatus) (float64, bool)
}

var latenessDesc = prometheus.NewDesc("redrive_forward_lateness_seconds",
	"How long after its due time a record was acknowledged by its origin.", []string{"source"}, nil)

var throttledDesc = prometheus.NewDesc("redrive_throttled_seconds_total",
	"How long brokers told this process to wait because a quota was used up.", nil, nil)

var skewDesc = prometheus.NewDesc("redrive_clock_ahead_seconds",
	"How far this machine's clock is at least ahead of a broker's (negative: behind); zero if not measured.", nil, nil)

func always(v func(*TopicStatus) float64) func(*TopicStatus) (float64, bool) {
	return func(t *TopicStatus) (float64, bool) { return v(t), true }
}

var gauges = []gauge{
	{desc("redrive_assigned_partitions", "Partitions of the topic that this process owns."), always(func(t *TopicStatus) float64 { return float64(t.Assigned) })},
	{desc("redrive_paused_partitions", "Owned partitions that are not read on, because they hold all they may."), always(func(t *TopicStatus) float64 { return float64(t.Paused) })},
	{desc("redrive_frozen_partitions", "Owned partitions that do not move, because a copy is refused or an offset is missing."), always(func(t *TopicStatus) float64 { return float64(t.Frozen) })},
	{desc("redrive_held_back_partitions", "Owned partitions of tiers whose records wait because paused or rateLimit of the entry wishes so."), always(func(t *TopicStatus) float64 { return float64(t.HeldBack) })},
	{desc("redrive_held_records", "Records in memory that wait or are under way."), always(func(t *TopicStatus) float64 { return float64(t.HeldRecords) })},
	{desc("redrive_held_bytes", "Memory of the records that wait or are under way."), always(func(t *TopicStatus) float64 { return float64(t.HeldBytes) })},
	{desc("redrive_overdue_records", "Held records whose due time has passed."), always(func(t *TopicStatus) float64 { return float64(t.Overdue) })},
	{desc("redrive_in_flight_records", "Records that were sent and are not acknowledged."), always(func(t *TopicStatus) float64 { return float64(t.InFlight) })},
	{desc("redrive_in_flight_age_seconds", "How long the oldest record under way has been so."), always(func(t *TopicStatus) float64 { return t.InFlightAge.Seconds() })},
	{desc("redrive_next_due_timestamp_seconds", "Due time of the next held record; absent if none waits."), func(t *TopicStatus) (float64, bool) {
		return float64(t.NextDue.UnixMilli()) / 1000, !t.NextDue.IsZero()
	}},
	{desc("redrive_waiting_expires_timestamp_seconds",
		"Before when retention takes none of the held records that are due for more than a minute, or only after it; absent if there is none."), func(t *TopicStatus) (float64, bool) {
		return float64(t.Expires.UnixMilli()) / 1000, !t.Expires.IsZero()
	}},
}

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"topic"}, nil)
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.f.metrics.collectors() {
		v.Describe(ch)
	}
	ch <- latenessDesc
	ch <- throttledDesc
	ch <- skewDesc
	ch <- delayDesc
	for _, g := range gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, v := range c.f.metrics.collectors() {
		v.Collect(ch)
	}
	c.f.metrics.mu.Lock()
	inlets := slices.Clone(c.f.metrics.inlets)
	c.f.metrics.mu.Unlock()
	for _, in := range inlets {
		if in.stats.lateness != nil {
			ch <- in.stats.lateness.metric(latenessDesc, in.topic)
		}
	}
	ch <- prometheus.MustNewConstMetric(throttledDesc, prometheus.CounterValue, c.f.throttle.seconds())
	for _, r := range c.f.ladders {
		for i, t := range r.tiers {
			ch <- prometheus.MustNewConstMetric(delayDesc, prometheus.GaugeValue, r.policy.Tier(i).Delay.Seconds(), t.topic)
		}
	}
	status, ok := c.status()
	if !ok {
		return
	}
	ch <- prometheus.MustNewConstMetric(skewDesc, prometheus.GaugeValue, status.ClockAhead.Seconds())
	for i := range status.Topics {
		t := &status.Topics[i]
		for _, g := range gauges {
			if v, ok := g.value(t); ok {
				ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v, t.Topic)
			}
		}
	}
}
