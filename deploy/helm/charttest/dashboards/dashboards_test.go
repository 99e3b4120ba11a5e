package dashboards

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kafka-redrive/redrive/deploy/helm/charttest/metrics"
)

var update = flag.Bool("update", false, "write the dashboards of the chart anew")

const folder = "../../redrive/files/dashboards"

func boards() map[string]*Dashboard {
	return map[string]*Dashboard{"overview.json": Overview(), "topic.json": Topic()}
}

func TestTheDashboardsOfTheChartAreThoseOfThisPackage(t *testing.T) {
	for name, board := range boards() {
		want, err := board.JSON()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is another one: go test ./dashboards -update", name)
		}
		if !json.Valid(got) {
			t.Errorf("%s is no JSON", name)
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != len(boards()) {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// filled is an expression as Grafana sends it.
func filled(expr string) string {
	expr = strings.NewReplacer("$__rate_interval", "5m", "$__interval", "1m").Replace(expr)
	return regexp.MustCompile(`\$(namespace|origin|tier|inbox|letters)\b`).ReplaceAllString(expr, "x")
}

func TestWhatTheDashboardsReadIsRegistered(t *testing.T) {
	known, err := metrics.Registered(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, board := range boards() {
		n := 0
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				n++
				for _, err := range known.Check(filled(target.Expr)) {
					t.Errorf("%s, %q: %v", name, p.Title, err)
				}
			}
		}
		if n < 25 {
			t.Errorf("%s has %d expressions", name, n)
		}
		for _, v := range board.Templating.List {
			if v.Type != "query" {
				continue
			}
			q := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Query)
			if q == nil {
				t.Errorf("%s: the variable %s asks %q", name, v.Name, v.Query)
				continue
			}
			for _, err := range known.Check(filled("count by (" + q[2] + ") (" + q[1] + ")")) {
				t.Errorf("%s, variable %s: %v", name, v.Name, err)
			}
		}
	}
}

// Most of what is registered is for somebody to see.
func TestTheDashboardsShowWhatIsRegistered(t *testing.T) {
	known, err := metrics.Registered(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var all string
	for _, board := range boards() {
		text, err := board.JSON()
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	// What is for a look at /metrics and not for every day.
	hidden := map[string]bool{
		"redrive_config_last_reload_success_timestamp_seconds": true, "redrive_clock_ahead_seconds": true, "redrive_records_shortened_total": true,
		"redrive_letters_indexed_total": true, "redrive_index_assigned_partitions": true, "redrive_replay_copies_found_total": true,
		"redrive_replay_fenced_total": true, "redrive_replay_jobs_total": true, "redrive_replay_replies_total": true,
		"redrive_http_request_duration_seconds": true, "redrive_trace_spans_total": true,
	}
	for name := range known {
		if shown := strings.Contains(all, name); strings.HasPrefix(name, "redrive_") && shown == hidden[name] {
			t.Errorf("%s is shown: %v", name, shown)
		}
	}
}

func TestPanelsHaveAPlaceAUnitAndAWayToTheRunbook(t *testing.T) {
	runbook, err := os.ReadFile("../../../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		anchors[strings.ToLower(h[1])] = true
	}
	linked := map[string]bool{}
	for name, board := range boards() {
		taken, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range board.Panels {
			if ids[p.ID] || p.Title == "" {
				t.Errorf("%s: panel %d %q", name, p.ID, p.Title)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= width {
						t.Fatalf("%s: %q lies on %q", name, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			if p.FieldConfig.Defaults.Unit == "" || len(p.FieldConfig.Defaults.Thresholds.Steps) == 0 || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: %q has no unit, no thresholds or a fixed data source", name, p.Title)
			}
			for _, l := range p.Links {
				_, anchor, _ := strings.Cut(l.URL, "#")
				if !anchors[anchor] {
					t.Errorf("%s: %q leads to %s, which is no section of the runbook", name, p.Title, l.URL)
				}
				linked[anchor] = true
			}
		}
	}
	for anchor := range anchors {
		if strings.HasPrefix(anchor, "redrive") && !linked[anchor] {
			t.Errorf("no panel leads to %s", anchor)
		}
	}
}
