package charttest

import (
	"maps"
	"slices"
	"sync"
	"testing"
)

// chartDir is the chart under test.
const chartDir = "../redrive"

// clusterAPIs are what a cluster has where all that the chart can make use of is installed.
var clusterAPIs = []string{ //nolint:gochecknoglobals // A list that is only read.
	"monitoring.coreos.com/v1", "gateway.networking.k8s.io/v1", "keda.sh/v1alpha1", "kafka.strimzi.io/v1", "kafka.strimzi.io/v1beta2",
}

// load is the chart under test.
func load(t *testing.T) *Chart {
	t.Helper()
	c, err := Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ciSet is one set of values that the chart comes with.
type ciSet struct {
	values map[string]any
	made   *Rendered
	err    error
}

// ciSets are all of them, by name. They are rendered once for all tests, which only read.
var ciSets = sync.OnceValues(func() (map[string]ciSet, error) {
	c, err := Load(chartDir)
	if err != nil {
		return nil, err
	}
	values, err := CIValues(chartDir)
	if err != nil {
		return nil, err
	}
	sets := make(map[string]ciSet, len(values))
	for name, v := range values {
		made, err := c.Render(v, clusterAPIs...)
		sets[name] = ciSet{v, made, err}
	}
	return sets, nil
})

// forEachCI has the rule look at what the chart makes of every set of values that it comes with.
func forEachCI(t *testing.T, rule func(t *testing.T, values map[string]any, r *Rendered)) {
	t.Helper()
	sets, err := ciSets()
	if err != nil {
		t.Fatal(err)
	}
	if len(sets) == 0 {
		t.Fatal("the chart has no ci/*-values.yaml")
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		t.Run(name, func(t *testing.T) {
			if sets[name].err != nil {
				t.Fatal(sets[name].err)
			}
			rule(t, sets[name].values, sets[name].made)
		})
	}
}
