package rules

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"sigs.k8s.io/yaml"

	"github.com/kafka-redrive/redrive/deploy/helm/charttest"
	"github.com/kafka-redrive/redrive/deploy/helm/charttest/metrics"
	"github.com/kafka-redrive/redrive/internal/issue"
)

var update = flag.Bool("update", false, "write deploy/alerts/redrive.rules.yaml anew")

const (
	chartDir  = "../../redrive"
	rulesFile = "../../../alerts/redrive.rules.yaml"
	casesFile = "../../../alerts/redrive.rules.test.yaml"
)

// header stands above the rules that are for a Prometheus without the chart.
const header = `# The alerts of Redrive with the thresholds of the chart's values, for a Prometheus without the chart: name the file in rule_files.
# What each means and what to do is in docs/runbook.md. Tests: promtool test rules redrive.rules.test.yaml
#
# Made from deploy/helm/redrive/files/alerts; do not edit. In deploy/helm/charttest: go test ./rules -update
`

// render are the rules that the chart makes of values, in the form of a rule file.
func render(t *testing.T, values string) []byte {
	t.Helper()
	chart, err := charttest.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := charttest.Values([]byte(values + `
kafka: {brokers: ["kafka:9092"]}
topics: [{origin: orders, tiers: [10s]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := chart.Render(text, "monitoring.coreos.com/v1")
	if err != nil {
		t.Fatal(err)
	}
	all := charttest.All[*monitoring.PrometheusRule](rendered)
	if len(all) != 1 {
		t.Fatalf("the chart makes %d PrometheusRules", len(all))
	}
	out, err := yaml.Marshal(all[0].Spec)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// alerts reads a rule file as Prometheus does.
func alerts(t *testing.T, text []byte) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, metrics.Parser(), promslog.NewNopLogger())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

const enabled = "metrics: {prometheusRule: {enabled: true}}"

func TestTheRulesForAPrometheusWithoutTheChartAreThoseOfTheChart(t *testing.T) {
	want := append([]byte(header), render(t, enabled)...)
	if *update {
		if err := os.WriteFile(rulesFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what the chart makes: go test ./rules -update", filepath.Clean(rulesFile))
	}
}

func TestEveryAlertTellsWhatItIsAndWhereItsRunbookIs(t *testing.T) {
	runbook, err := os.ReadFile("../../../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	all := alerts(t, render(t, enabled))
	if len(all) < 14 {
		t.Errorf("there are %d alerts", len(all))
	}
	for _, a := range all {
		for _, name := range []string{"summary", "description"} {
			if a.Annotations[name] == "" {
				t.Errorf("%s has no %s", a.Alert, name)
			}
		}
		if !strings.Contains(a.Annotations["description"], "$labels.") {
			t.Errorf("the description of %s does not say where", a.Alert)
		}
		if want := "https://github.com/kafka-redrive/redrive/blob/main/docs/runbook.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("the runbook_url of %s is %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
		if !regexp.MustCompile(`(?m)^## ` + a.Alert + `$`).Match(runbook) {
			t.Errorf("docs/runbook.md has no section %s", a.Alert)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("the severity of %s is %q", a.Alert, a.Labels["severity"])
		}
	}
	for _, section := range regexp.MustCompile(`(?m)^## (Redrive\w+)$`).FindAllSubmatch(runbook, -1) {
		if !slices.ContainsFunc(all, func(a rulefmt.Rule) bool { return a.Alert == string(section[1]) }) {
			t.Errorf("docs/runbook.md has a section for %s, which is no alert", section[1])
		}
	}
}

func TestWhatTheRulesReadIsRegistered(t *testing.T) {
	known, err := metrics.Registered(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alerts(t, render(t, enabled)) {
		for _, err := range known.Check(a.Expr) {
			t.Errorf("%s: %v", a.Alert, err)
		}
	}
	// Nor do the stories have what a process never shows.
	for _, s := range readCases(t).Tests {
		for _, in := range s.Input {
			for _, err := range known.Check(in.Series) {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
}

// An error that no alert tells of wakes nobody.
func TestEveryIssueOfSeverityErrorIsAlarmedOnce(t *testing.T) {
	told := map[string]string{
		// The ledger is not up then.
		"ledger-down": "RedriveLedgerErrors", "ledger-older": "RedriveLedgerErrors", "ledger-newer": "RedriveLedgerErrors",
		// redrive_config_reload_successful says so.
		"reload-failed": "RedriveConfigRejected",
	}
	for _, a := range alerts(t, render(t, enabled)) {
		for _, codes := range regexp.MustCompile(`code=~?"([^"]*)"`).FindAllStringSubmatch(a.Expr, -1) {
			for code := range strings.SplitSeq(codes[1], "|") {
				if told[code] != "" {
					t.Errorf("%s and %s tell of %s", told[code], a.Alert, code)
				}
				told[code] = a.Alert
			}
		}
	}
	for _, e := range issue.All() {
		code := string(e.Code)
		if alarmed := told[code] != ""; alarmed != (e.Severity == issue.SeverityError) {
			t.Errorf("%s is of severity %s, and it is alarmed: %v", code, e.Severity, alarmed)
		}
		delete(told, code)
	}
	for code, alert := range told {
		t.Errorf("%s tells of %s, which is no code", alert, code)
	}
}

func TestThresholdsAndMatchersOfTheValuesReachTheRules(t *testing.T) {
	chart, err := charttest.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	file, ok := chart.File("files/alerts/redrive.yaml")
	if !ok {
		t.Fatal("the chart has no alerts")
	}
	thresholds := map[string]int{}
	values := "metrics: {prometheusRule: {enabled: true, selector: 'namespace=\"shop\"', thresholds: {"
	for i, name := range regexp.MustCompile(`\[\[(\w+)\]\]`).FindAllStringSubmatch(string(file), -1) {
		if _, ok := thresholds[name[1]]; !ok && name[1] != "selector" {
			thresholds[name[1]] = 1000 + i
			values += fmt.Sprintf("%s: %d, ", name[1], 1000+i)
		}
	}
	values += "}}}"
	text := string(render(t, values))
	for name, value := range thresholds {
		if !strings.Contains(text, fmt.Sprint(value)) {
			t.Errorf("the threshold %s has no effect", name)
		}
	}
	if len(thresholds) < 13 {
		t.Errorf("only %v are thresholds", thresholds)
	}
	for _, selector := range regexp.MustCompile(`redrive_\w+(\{[^}]*\})?`).FindAllStringSubmatch(strings.Join(exprs(alerts(t, []byte(text))), "\n"), -1) {
		if !strings.Contains(selector[1], `namespace="shop"`) {
			t.Errorf("%s is not restricted to the matchers of the values", selector[0])
		}
	}
}

func exprs(rules []rulefmt.Rule) (all []string) {
	for _, r := range rules {
		all = append(all, r.Expr)
	}
	return all
}
