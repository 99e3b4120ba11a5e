package forwarder

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/tiers"
)

// series are all values of the registry, by name and label values.
func series(t *testing.T, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

func wantSeries(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, value)
		}
	}
}

// A forwarder whose records all wait is as alive as one that has much to do.
func TestPollsGoOnWhileNothingComesAndAllWaits(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10h", Delay: 10 * time.Hour}}, func(t *testing.T, r *rig) {
		registry := prometheus.NewPedanticRegistry()
		// Whatever it holds, it is above what it may: each partition is paused.
		r.start(func(o *Options) { o.Registerer, o.MaxHeldBytesPerPartition = registry, 1 })
		r.produce("orders.retry.10h", 100, nil)
		time.Sleep(time.Minute)
		before := series(t, registry)
		wantSeries(t, before, map[string]float64{
			"redrive_held_records orders.retry.10h": 100, "redrive_overdue_records orders.retry.10h": 0,
			"redrive_tier_delay_seconds orders.retry.10h": 36000, "redrive_paused_partitions orders.retry.10h": partitions,
			"redrive_held_back_partitions orders.retry.10h": 0,
		})
		time.Sleep(5 * time.Minute)
		if n := series(t, registry)["redrive_polls_total"] - before["redrive_polls_total"]; n < 50 {
			t.Errorf("%v polls in five minutes", n)
		}
	})
}

func TestWhatIsHeldBackOnPurposeIsTold(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		registry := prometheus.NewPedanticRegistry()
		f, _ := r.start(func(o *Options) { o.Registerer = registry })
		f.Control(map[string]Pace{"orders.retry": {Paused: true}})
		r.produce("orders.retry", 10, nil)
		time.Sleep(time.Minute)
		wantSeries(t, series(t, registry), map[string]float64{
			"redrive_held_back_partitions orders.retry.10s": partitions, "redrive_held_back_partitions orders.retry": 0,
			"redrive_overdue_records orders.retry.10s": 10,
		})
		f.Control(map[string]Pace{"orders.retry": {}})
		time.Sleep(time.Minute)
		wantSeries(t, series(t, registry), map[string]float64{"redrive_held_back_partitions orders.retry.10s": 0})
	})
}

func TestCountersAreThereWhileTheLoopIsStuck(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		registry := prometheus.NewPedanticRegistry()
		f, _ := r.start(func(o *Options) { o.Registerer = registry })
		time.Sleep(time.Minute)
		release := make(chan struct{})
		go f.loop.do(func() { <-release })
		time.Sleep(time.Minute)
		before := series(t, registry)["redrive_polls_total"]
		for range 3 { // Scrapes do not pile up.
			began := time.Now()
			got := series(t, registry)
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("a scrape took %v", took)
			}
			if _, ok := got["redrive_held_records orders.retry"]; ok || got["redrive_polls_total"] != before || before == 0 {
				t.Errorf("a loop that is stuck shows %v polls after %v, and what it holds: %v", got["redrive_polls_total"], before, ok)
			}
			time.Sleep(time.Minute)
		}
		close(release)
		time.Sleep(time.Minute)
		got := series(t, registry)
		if _, ok := got["redrive_held_records orders.retry"]; !ok || got["redrive_polls_total"] <= before {
			t.Errorf("after that it shows %v polls, and what it holds: %v", got["redrive_polls_total"], ok)
		}
	})
}
