package rules

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"

	"github.com/kafka-redrive/redrive/deploy/helm/charttest/metrics"
)

// cases are the tests of a file in promtool's form, as far as they are used here; what is not is an error.
type cases struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []story        `yaml:"tests"`
}

type story struct {
	Name     string         `yaml:"name"`
	Interval model.Duration `yaml:"interval"`
	Input    []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Moments []moment `yaml:"alert_rule_test"`
}

type moment struct {
	At     model.Duration `yaml:"eval_time"`
	Alert  string         `yaml:"alertname"`
	Firing []firing       `yaml:"exp_alerts"`
}

type firing struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

func readCases(t *testing.T) cases {
	t.Helper()
	text, err := os.ReadFile(casesFile)
	if err != nil {
		t.Fatal(err)
	}
	var all cases
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&all); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(all.RuleFiles, []string{"redrive.rules.yaml"}) {
		t.Fatalf("the tests are of %v", all.RuleFiles)
	}
	return all
}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	all := alerts(t, text)
	file := readCases(t)
	for _, s := range file.Tests {
		t.Run(s.Name, func(t *testing.T) { s.run(t, all, time.Duration(file.EvaluationInterval)) })
	}
}

// run evaluates all rules one interval after the other, as Prometheus does, and looks at what fires at the moments of the story.
func (s *story) run(t *testing.T, all []rulefmt.Rule, every time.Duration) {
	load := fmt.Sprintf("load %s\n", s.Interval)
	for _, in := range s.Input {
		load += "  " + in.Series + " " + in.Values + "\n"
	}
	suite, err := promqltest.NewLazyLoader(load, promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true, Parser: metrics.Parser()})
	if err != nil {
		t.Fatal(err)
	}
	defer suite.Close() //nolint:errcheck // It is a storage of the test's own.
	suite.SubqueryInterval = every
	query := rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage())

	loaded := map[string]*rules.AlertingRule{}
	for _, r := range all {
		expr, err := metrics.Parser().ParseExpr(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		loaded[r.Alert] = rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
			labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger())
	}
	var last time.Duration
	for _, m := range s.Moments {
		if loaded[m.Alert] == nil {
			t.Fatalf("there is no alert %s", m.Alert)
		}
		last = max(last, time.Duration(m.At))
	}
	for at := time.Duration(0); at <= last; at += every {
		now := time.Unix(0, 0).Add(at)
		suite.WithSamplesTill(now, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for name, rule := range loaded {
				if _, err := rule.Eval(context.WithoutCancel(t.Context()), 0, now, query, nil, 0); err != nil {
					t.Fatalf("%s after %v: %v", name, at, err)
				}
			}
		})
		for _, m := range s.Moments {
			if time.Duration(m.At) == at {
				m.compare(t, loaded[m.Alert])
			}
		}
	}
}

func (m *moment) compare(t *testing.T, rule *rules.AlertingRule) {
	t.Helper()
	var want, got []string
	for _, f := range m.Firing {
		f.Labels = maps.Clone(f.Labels)
		f.Labels[labels.AlertName] = m.Alert
		want = append(want, shown(labels.FromMap(f.Labels), labels.FromMap(f.Annotations)))
	}
	for _, a := range rule.ActiveAlerts() {
		if a.State == rules.StateFiring {
			got = append(got, shown(a.Labels, a.Annotations))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s after %s (-want +got):\n%s", m.Alert, m.At, diff)
	}
}

func shown(of, annotations labels.Labels) string {
	var b strings.Builder
	for _, set := range []labels.Labels{of, annotations} {
		set.Range(func(l labels.Label) { fmt.Fprintf(&b, "%s: %s\n", l.Name, l.Value) })
	}
	return b.String()
}

// A story's name says what it shows: the alert and "fires", the alert and "is silent", or "normal work".
func TestEveryAlertIsShownFiringSilentBelowAndSilentInNormalWork(t *testing.T) {
	shows := map[string]map[string]bool{}
	show := func(alert, what string) {
		if shows[alert] == nil {
			shows[alert] = map[string]bool{}
		}
		shows[alert][what] = true
	}
	for _, s := range readCases(t).Tests {
		for _, m := range s.Moments {
			switch {
			case strings.HasPrefix(s.Name, "normal work") && len(m.Firing) == 0:
				show(m.Alert, "normal work")
			case strings.HasPrefix(s.Name, m.Alert+" is silent") && len(m.Firing) == 0:
				show(m.Alert, "silent")
			case strings.HasPrefix(s.Name, m.Alert+" fires") && len(m.Firing) > 0:
				show(m.Alert, "fires")
			case strings.HasPrefix(s.Name, m.Alert+" fires"): // Not yet, or no longer.
			default:
				t.Errorf("%q does not say what it shows of %s", s.Name, m.Alert)
			}
		}
	}
	for _, a := range alerts(t, render(t, enabled)) {
		for _, what := range []string{"fires", "silent", "normal work"} {
			if !shows[a.Alert][what] {
				t.Errorf("no story shows %s: %s", a.Alert, what)
			}
		}
	}
}

// Normal work is that of a million records that wait, on several replicas, through restarts and a change of their number.
func TestNormalWorkIsThatOfAMillionWaitingRecords(t *testing.T) {
	for _, s := range readCases(t).Tests {
		if s.Name != "normal work" {
			continue
		}
		held := 0
		for _, in := range s.Input {
			if strings.HasPrefix(in.Series, "redrive_held_records") {
				var n int
				if _, err := fmt.Sscanf(in.Values, "%dx", &n); err != nil {
					t.Fatalf("%s: %v", in.Series, err)
				}
				held += n
			}
		}
		if held < 1_000_000 {
			t.Errorf("%d records wait", held)
		}
		return
	}
	t.Error("there is no normal work")
}
