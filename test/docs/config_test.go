package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/kafka-redrive/redrive/internal/config"
)

// TestTheConfigurationsInThePagesAreValid reads every block of YAML that is a part of topics.yaml as the programs read it.
func TestTheConfigurationsInThePagesAreValid(t *testing.T) {
	t.Parallel()
	sections := []string{"kafka", "forwarder", "ledger", "replayer", "logging", "tracing", "topics"}
	checked := 0
	for _, p := range pages(t) {
		if strings.HasPrefix(p.path, "deploy/") {
			continue // Values of the chart, which its own tests render.
		}
		for _, b := range p.blocks {
			if b.language != "yaml" {
				continue
			}
			var top map[string]any
			if err := yaml.Unmarshal([]byte(b.text), &top); err != nil {
				continue // A part of a list, or of another file.
			}
			foreign := len(top) == 0
			for key := range top {
				foreign = foreign || !slices.Contains(sections, key)
			}
			if foreign {
				continue
			}
			text := b.text
			if _, ok := top["topics"]; !ok {
				text += "topics: [{origin: orders}]\n"
			}
			file := filepath.Join(t.TempDir(), "topics.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := config.Load(config.Source{Path: file, Environ: []string{"REDRIVE_KAFKA_BROKERS=localhost:9092"}}); err != nil {
				t.Errorf("%s: %v", b, err)
			}
			checked++
		}
	}
	t.Logf("%d configurations", checked)
	if checked < 10 {
		t.Errorf("only %d configurations were found", checked)
	}
}
