package app

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kafka-redrive/redrive/internal/forwarder"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

func problem(code issue.Code, topic string) kafka.Problem {
	return kafka.Problem{Code: code, Severity: code.Severity(), Topic: topic, Message: "As it is.", Remedy: "Do something."}
}

// expectIssues compares the series of the gauge.
func expectIssues(t *testing.T, p *probes, series ...string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&issueCollector{p})
	want := ""
	if len(series) > 0 {
		want = "# HELP redrive_issue Is 1 while an issue of the code is present at the topic, if it is of one; absent otherwise.\n# TYPE redrive_issue gauge\n" +
			strings.Join(series, "\n") + "\n"
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "redrive_issue"); err != nil {
		t.Error(err)
	}
}

func TestTheIssueGaugeIsThereWhileTheIssueIs(t *testing.T) {
	f := &fakeEngine{status: forwarder.Status{Running: true, Joined: true, Troubles: []issue.Trouble{
		{Issue: issue.PartitionFrozen, Topic: "orders.retry.1m", Partition: 0},
		{Issue: issue.PartitionFrozen, Topic: "orders.retry.1m", Partition: 1},
		{Issue: issue.MinISR, Topic: "orders", Partition: 1},
	}}}
	broken := false
	p := watching(running(f), func(context.Context) error {
		if broken {
			return errors.New("refused")
		}
		return nil
	})
	p.notices.inspected([]kafka.Problem{problem(issue.MinISR, "orders"), problem(issue.ClockSkew, "")})
	p.notices.reloaded([]string{"kafka.brokers"})
	expectIssues(
		t, p,
		`redrive_issue{code="clock-skew",topic=""} 1`,
		`redrive_issue{code="min-isr",topic="orders"} 1`,
		`redrive_issue{code="partition-frozen",topic="orders.retry.1m"} 1`,
		`redrive_issue{code="restart-required",topic=""} 1`,
	)
	broken = true
	f.status.Troubles = nil
	p.notices.inspected(nil)
	p.notices.reloaded(nil)
	p.notices.reloadFailed("topics.yaml: no topics")
	expectIssues(t, p, `redrive_issue{code="no-broker",topic=""} 1`, `redrive_issue{code="reload-failed",topic=""} 1`)
	broken = false
	p.notices.reloaded(nil)
	expectIssues(t, p)
}

func TestReadyTellsTheRemedyThatThePreflightNames(t *testing.T) {
	p := watching(running(&fakeEngine{status: forwarder.Status{Running: true, Joined: true}}), answering)
	first, second := problem(issue.TierRetentionShort, "orders.retry"), problem(issue.TierRetentionShort, "orders.retry.1m")
	first.Remedy, second.Remedy = "Alter the first.", "Alter the second."
	p.notices.inspected([]kafka.Problem{first, second})
	code, text := get(t, p, "/readyz?verbose")
	means := issue.Of(issue.TierRetentionShort).Means
	wantText(t, text, `[+]brokers ok
[+]loop ok
[-]tier-retention-short: orders.retry: As it is.
    `+means+`
    remedy: Alter the first.
[-]tier-retention-short: orders.retry.1m: As it is.
    `+means+`
    remedy: Alter the second.
readyz check passed
`)
	if code != 200 {
		t.Errorf("code %d", code)
	}
}

// A problem of the same code and topic is the same one, whatever its figures.
func TestOnlyWhatIsNewOrGoneSinceTheLastPreflightIsTold(t *testing.T) {
	var n notices
	names := func(problems []kafka.Problem) []string {
		var all []string
		for _, p := range problems {
			all = append(all, string(p.Code)+" "+p.Topic)
		}
		return all
	}
	skew := problem(issue.ClockSkew, "")
	n.inspected([]kafka.Problem{skew, problem(issue.MinISR, "a"), problem(issue.MinISR, "b")})
	skew.Message = "It is another second."
	news, gone := n.inspected([]kafka.Problem{skew, problem(issue.MinISR, "b"), problem(issue.Replication, "b")})
	if diff := cmp.Diff([][]string{{"replication b"}, {"min-isr a"}}, [][]string{names(news), names(gone)}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestABrokerThatWasNotAskedYetIsNotMissing(t *testing.T) {
	s := &state{}
	p := watching(s, answering)
	s.starting("waiting for a broker", errNotAsked)
	expectIssues(t, p)
	s.starting("waiting for a broker", errors.New("refused"))
	expectIssues(t, p, `redrive_issue{code="no-broker",topic=""} 1`)
}
