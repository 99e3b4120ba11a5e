package index

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// statsInterval is how old the counts of the letters may be. They are never counted while somebody reads the metrics.
const statsInterval = 15 * time.Second

// metrics are the counters of the index. What can be read off the state is not kept here: see collector.
type metrics struct {
	indexed, lost, expired, succeeded, newGroups, rebalances *prometheus.CounterVec
	stats                                                    atomic.Pointer[[]deadletter.Stat]
}

func newMetrics() *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	return &metrics{
		indexed:    counter("redrive_letters_indexed_total", "Dead letters written to the ledger.", "topic"),
		lost:       counter("redrive_letters_lost_total", "Offsets that retention removed before they were indexed.", "topic"),
		expired:    counter("redrive_letters_expired_total", "Dead letters whose bytes were found gone before they were replayed or discarded.", "topic"),
		succeeded:  counter("redrive_letters_succeeded_total", "Replayed letters that the group has passed and that did not come back.", "topic"),
		newGroups:  counter("redrive_dead_letter_groups_new_total", "Error groups of which a letter that died lately is the first in the ledger.", "topic"),
		rebalances: counter("redrive_index_rebalances_total", "Changes of the assignment.", "type"),
	}
}

// add gives a topic its counters, which count from zero, so that the first event is a rise.
func (m *metrics) add(t *topic) *topic {
	t.indexedC = m.indexed.WithLabelValues(t.DeadLetters)
	t.lostC = m.lost.WithLabelValues(t.DeadLetters)
	t.expiredC = m.expired.WithLabelValues(t.DeadLetters)
	t.succeededC = m.succeeded.WithLabelValues(t.DeadLetters)
	t.newGroupsC = m.newGroups.WithLabelValues(t.DeadLetters)
	return t
}

func (m *metrics) counters() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{m.indexed, m.lost, m.expired, m.succeeded, m.newGroups, m.rebalances}
}

// collector exports the counters and, from the last snapshots, the gauges.
type collector struct{ ix *Indexer }

var (
	lettersDesc = prometheus.NewDesc("redrive_dead_letters", "Dead letters in the ledger by state.", []string{"topic", "state"}, nil)
	oldestDesc  = prometheus.NewDesc("redrive_dead_letter_oldest_timestamp_seconds",
		"When the oldest letter that is still dead died; absent if none is.", []string{"topic"}, nil)
	behindDesc = prometheus.NewDesc("redrive_index_behind_records",
		"Offsets of the partitions that this process owns that are not indexed yet.", []string{"topic"}, nil)
	assignedDesc = prometheus.NewDesc("redrive_index_assigned_partitions", "Partitions of the topic that this process indexes.", []string{"topic"}, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.ix.metrics.counters() {
		v.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{lettersDesc, oldestDesc, behindDesc, assignedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ix := c.ix
	for _, v := range ix.metrics.counters() {
		v.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ix.mu.Lock()
	for name := range ix.topics {
		var behind int64
		for _, s := range ix.sources[name] {
			behind += s.behind()
		}
		gauge(behindDesc, float64(behind), name)
		gauge(assignedDesc, float64(len(ix.sources[name])), name)
	}
	ix.mu.Unlock()

	stats := ix.metrics.stats.Load()
	if stats == nil {
		return // The ledger was not asked yet.
	}
	type pair struct {
		topic string
		state deadletter.State
	}
	counts := map[pair]int64{}
	oldest := map[string]time.Time{}
	for name := range ix.topics {
		for _, state := range deadletter.States() {
			counts[pair{name, state}] = 0
		}
	}
	for _, s := range *stats {
		if ix.topics[s.Topic] == nil {
			continue // Of a topic that the file names no more; a ledger may hold any number of them.
		}
		counts[pair{s.Topic, s.State}] += s.Count // One for each origin.
		if at, ok := oldest[s.Topic]; s.State == deadletter.Dead && s.Count > 0 && (!ok || s.Oldest.Before(at)) {
			oldest[s.Topic] = s.Oldest
		}
	}
	for p, n := range counts {
		gauge(lettersDesc, float64(n), p.topic, string(p.state))
	}
	for name, at := range oldest {
		gauge(oldestDesc, float64(at.UnixMilli())/1000, name)
	}
}
