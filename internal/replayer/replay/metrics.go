package replay

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters of a Replayer. All labels are topics of the configuration or words of this package.
type metrics struct {
	replayed *prometheus.CounterVec
	failures *prometheus.CounterVec
	refusals *prometheus.CounterVec
	triggers *prometheus.CounterVec
	jobs     *prometheus.CounterVec

	takeovers, found, fenced, replies prometheus.Counter
	running, inFlight                 prometheus.GaugeFunc
}

func newMetrics(r *Replayer) *metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string, value func() float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m := &metrics{
		replayed:  vec("redrive_replayed_letters_total", "Letters whose copy is acknowledged and marked, by dead-letter topic.", "topic"),
		failures:  vec("redrive_replay_failures_total", "Letters that could not be replayed, by dead-letter topic.", "topic"),
		refusals:  vec("redrive_replay_requests_total", "Requests for a replay by their result: taken, repeated, or the code of the refusal.", "result"),
		triggers:  vec("redrive_trigger_records_total", "Records of trigger topics by what came of them.", "topic", "result"),
		jobs:      vec("redrive_replay_jobs_total", "Jobs that this process has stopped working on, by why.", "result"),
		takeovers: counter("redrive_replay_takeovers_total", "Claims taken over because their lease had run out."),
		found:     counter("redrive_replay_copies_found_total", "Copies found by a takeover, and marked instead of sent again."),
		fenced:    counter("redrive_replay_fenced_total", "Marks without effect because another had taken the letter over."),
		replies:   counter("redrive_replay_replies_total", "Replies about jobs that are acknowledged."),
		running:   gauge("redrive_replay_jobs_running", "Jobs that this process runs.", func() float64 { return float64(len(r.running.all())) }),
		inFlight: gauge("redrive_replay_in_flight_records", "Copies that are with the clients and not acknowledged.", func() float64 {
			total := 0
			for _, s := range r.running.all() {
				n, _ := s.outstanding()
				total += n
			}
			return float64(total)
		}),
	}
	// Known labels count from zero, so that the first event is a rise.
	for _, t := range r.opts.Topics {
		m.replayed.WithLabelValues(t.DeadLetters)
		m.failures.WithLabelValues(t.DeadLetters)
		if t.Trigger != "" {
			for _, result := range []string{triggerTaken, triggerRepeated, triggerRefused} {
				m.triggers.WithLabelValues(t.Trigger, result)
			}
		}
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.replayed, m.failures, m.refusals, m.triggers, m.jobs, m.takeovers, m.found, m.fenced, m.replies, m.running, m.inFlight,
	}
}

func (m *metrics) register(to prometheus.Registerer) error {
	var errs []error
	for _, c := range m.collectors() {
		errs = append(errs, to.Register(c))
	}
	return errors.Join(errs...)
}

func (m *metrics) unregister(from prometheus.Registerer) {
	for _, c := range m.collectors() {
		from.Unregister(c)
	}
}
