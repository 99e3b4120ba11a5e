package app

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// registered are the metrics of both processes, with everything on that brings metrics of its own.
func registered(t *testing.T) []Metric {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topics.yaml")
	text := `
kafka: {brokers: ["127.0.0.1:1"]}
forwarder: {admin: {address: "127.0.0.1:0"}}
replayer: {admin: {address: "127.0.0.1:0"}, api: {address: "127.0.0.1:0"}}
ledger: {dataDir: ` + t.TempDir() + `}
tracing: {enabled: true}
topics: [{origin: orders, tiers: [10s, 1m]}]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Config: cfg, ConfigPath: path, Build: ReadBuild("", "", ""), Logger: testkit.Logger(t)}
	forwarder, err := ForwarderMetrics(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	replayer, err := ReplayerMetrics(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(forwarder, replayer)
	all = slices.DeleteFunc(all, func(m Metric) bool { return !strings.HasPrefix(m.Name, "redrive_") })
	slices.SortFunc(all, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b Metric) bool { return a.Name == b.Name && slices.Equal(a.Labels, b.Labels) })
}

func TestTheDocumentationNamesEveryMetricWithItsLabelsAndNoOther(t *testing.T) {
	documented := map[string][]string{}
	for _, file := range []string{"operating.md", "tracing.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		// A row of a table begins with the metrics that it is about.
		for _, row := range regexp.MustCompile("(?m)^\\| (`redrive_[^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
			for _, m := range regexp.MustCompile("`(redrive_\\w+)(?:\\{([^}`]*)\\})?`").FindAllStringSubmatch(row[1], -1) {
				labels := regexp.MustCompile(`\w+`).FindAllString(m[2], -1)
				slices.Sort(labels)
				documented[m[1]] = labels
			}
		}
	}
	known := registered(t)
	if len(known) < 50 {
		t.Errorf("only %d metrics are registered", len(known))
	}
	for _, m := range known {
		labels, ok := documented[m.Name]
		switch {
		case !ok:
			t.Errorf("no table names %s", m.Name)
		case !slices.Equal(labels, m.Labels):
			t.Errorf("%s has the labels %v, the table says %v", m.Name, m.Labels, labels)
		}
		delete(documented, m.Name)
	}
	for name := range documented {
		t.Errorf("no process registers %s", name)
	}
}
