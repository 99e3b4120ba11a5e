package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/test/faults/fault"
)

// TestFaults plays the faults of make faults with as few records as show them. They break the clusters they share, and so
// do not run in parallel with anything.
func TestFaults(t *testing.T) {
	guarded := guardedKafka(t)
	for _, f := range fault.All() {
		if f.Waits {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			var kafka *testkit.Kafka
			switch f.Cluster {
			case fault.One:
				kafka = testkit.RealKafka(t, 1)
			case fault.Three:
				kafka = testkit.RealKafka(t, 3)
			case fault.Guarded:
				kafka = guarded(t)
			}
			play(t, f, kafka)
		})
	}
}

// TestFaultsThatWait plays the others, which only take their time.
func TestFaultsThatWait(t *testing.T) {
	t.Parallel()
	for _, f := range fault.All() {
		if !f.Waits {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			play(t, f, testkit.RealKafka(t, 1))
		})
	}
}

// play plays one fault and fails the test for every rule that it breaks.
func play(t *testing.T, f fault.Fault, kafka *testkit.Kafka) {
	t.Helper()
	site := &fault.Site{Kafka: kafka, Binary: binary, Dir: t.TempDir(), Say: t.Logf, Quick: true}
	result, err := f.Run(t.Context(), site)
	if err != nil {
		t.Error(err)
	}
	for _, problem := range result.Problems() {
		t.Error(problem)
	}
	for _, detail := range result.Details {
		t.Log(detail)
	}
	t.Logf("%d records, %d told as lost, %d came twice; seen: %s; recovered after %v",
		result.Records, result.Told, result.Duplicates, strings.Join(result.Seen, "; "), result.Recovered)
}

// guardedKafka returns what starts a guarded cluster for the first test that asks for it, and gives it to the others as well.
// It ends with the test that it was made for.
func guardedKafka(t *testing.T) func(*testing.T) *testkit.Kafka {
	t.Helper()
	var kafka *testkit.Kafka
	t.Cleanup(func() {
		if kafka == nil {
			return
		}
		if err := kafka.Close(); err != nil {
			t.Errorf("close kafka: %v", err)
		}
	})
	return func(t *testing.T) *testkit.Kafka {
		t.Helper()
		if testing.Short() {
			t.Skip("real Kafka is left out by -short")
		}
		if kafka != nil {
			return kafka
		}
		started, err := testkit.StartKafka(t.Context(), fault.GuardedOptions())
		if err != nil {
			t.Fatalf("start kafka: %v", err)
		}
		kafka = started
		return kafka
	}
}

// TestATierThatKeepsItsRecordsForLessThanItsWaitIsRefused keeps records from being lost for sure; what lies between that and
// a safe retention is a warning, and its loss is counted: see the fault retention-too-short.
func TestATierThatKeepsItsRecordsForLessThanItsWaitIsRefused(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"10s"}})
	set := func(retention string) {
		change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &retention}}
		if _, err := s.client.Admin().AlterTopicConfigs(t.Context(), change, s.tiers[0]); err != nil {
			t.Fatal(err)
		}
		// The broker answers before it goes by the new value.
		testkit.WaitFor(t, patience, "the new retention", func(ctx context.Context) error {
			configs, err := s.client.Admin().DescribeTopicConfigs(ctx, s.tiers[0])
			if err != nil {
				return err
			}
			for _, c := range configs[0].Configs {
				if c.Key == "retention.ms" && c.MaybeValue() != retention {
					err = fmt.Errorf("it is %s", c.MaybeValue())
				}
			}
			return err
		})
	}
	set("10000")
	refused := s.expect(1, "run", "-c", s.config, "--admin-address", "127.0.0.1:0")
	for _, want := range []string{"retention-below-delay", s.tiers[0], "forwarder topics apply"} {
		if !strings.Contains(refused.stderr, want) {
			t.Errorf("a run that would lose records does not say %q:\n%s", want, refused.stderr)
		}
	}
	set("20000")
	c := s.start()
	if log := c.tail(); !strings.Contains(log, "tier-retention-short") {
		t.Errorf("a run that may lose records does not warn:\n%s", log)
	}
}

// TestAMisspeltKeyIsRefusedByName keeps a slip of the pen from switching something off that its writer counts on.
func TestAMisspeltKeyIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"10s"}})
	for misspelt, meant := range map[string]string{
		"maxAtempts: 3":                        "maxAttempts",
		"names: {deadLetter: '{origin}.dlt'}":  "deadLetters",
		"names: {deadletters: '{origin}.dlt'}": "deadLetters",
		"ratelimit: 5":                         "rateLimit",
	} {
		key, _, _ := strings.Cut(strings.TrimPrefix(misspelt, "names: {"), ":")
		text := strings.Replace(s.text, "tiers:", misspelt+", tiers:", 1)
		config := s.configFile("misspelt.yaml", text)
		for _, command := range [][]string{{"run"}, {"validate"}, {"topics", "plan"}} {
			r := s.expect(2, append(command, "-c", config)...)
			if !strings.Contains(r.stderr, key) || !strings.Contains(r.stderr, meant) || !strings.Contains(r.stderr, fmt.Sprintf("misspelt.yaml:%d", line(text, misspelt))) {
				t.Errorf("forwarder %q with %q does not say what is wrong where:\n%s", command, misspelt, r.stderr)
			}
		}
	}
}

// line is the number of the line that holds a text.
func line(text, part string) int {
	before, _, _ := strings.Cut(text, part)
	return strings.Count(before, "\n") + 1
}
