package metrics

import (
	"strings"
	"testing"
)

func TestWhatIsNotRegisteredIsFound(t *testing.T) {
	known, err := Registered(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]string{
		`sum by (topic) (redrive_overdue_records{namespace="a"})`:                                          "",
		`histogram_quantile(0.9, sum by (le, source) (rate(redrive_forward_lateness_seconds_bucket[5m])))`: "",
		`max by (source) (label_replace(redrive_tier_delay_seconds, "source", "$1", "topic", "(.+)"))`:     "",
		`go_goroutines`:                             "",
		`redrive_ledger_up`:                         "",
		`redrive_trace_spans_total{result="x"}`:     "",
		`redrive_overdue_record`:                    "no program registers redrive_overdue_record",
		`redrive_overdue_records_bucket`:            "no program registers",
		`redrive_overdue_records{source="a"}`:       "has no label source",
		`sum by (source) (redrive_overdue_records)`: "is grouped by source",
		`sum by (topic) redrive_overdue_records)`:   "parse",
		`redrive_build_info{version=~".+"}`:         "",
	} {
		var got []string
		for _, err := range known.Check(expr) {
			got = append(got, err.Error())
		}
		if text := strings.Join(got, "\n"); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", expr, text, want)
		}
	}
}
