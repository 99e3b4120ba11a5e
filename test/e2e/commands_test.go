package e2e

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestApplyThenRunThenPlanFindsNothingToDo(t *testing.T) {
	t.Parallel()
	s := untold(t, stage{tiers: []string{"500ms", "1s"}})
	s.expect(0, "validate", "-c", s.config)
	s.expect(3, "validate", "--kafka", "-c", s.config)
	s.expect(3, "topics", "plan", "-c", s.config)
	s.expect(0, "topics", "apply", "-c", s.config)
	s.expect(0, "validate", "--kafka", "-c", s.config)

	c := s.start()
	s.client.Produce(&kgo.Record{Topic: s.inbox(), Value: []byte("moves")})
	s.awaitDrained(1)
	s.expect(0, "topics", "plan", "-c", s.config)
	c.term()
	s.expect(0, "topics", "apply", "-c", s.config)
	s.expect(0, "topics", "plan", "-c", s.config)
	expectOne(t, s.read(), s.origin, "moves")
}

func TestARunWithAMissingTierIsRefusedWithItsRemedy(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"500ms", "1s"}})
	if _, err := s.client.Admin().DeleteTopic(t.Context(), s.tiers[1]); err != nil {
		t.Fatal(err)
	}
	s.awaitMissing(s.tiers[1])
	r := s.expect(1, "run", "-c", s.config, "--admin-address", "127.0.0.1:0")
	told := false
	for line := range strings.Lines(r.stderr) {
		told = told || strings.Contains(line, s.tiers[1]) && strings.Contains(line, "emedy") &&
			strings.Contains(line, "forwarder topics apply -c "+s.config)
	}
	if !told {
		t.Errorf("no line names %s and the remedy, forwarder topics apply -c %s:\n%s", s.tiers[1], s.config, r.stderr)
	}
	if commits := s.client.CommittedOffsets(s.group); len(commits) > 0 {
		t.Errorf("the group has commits after a start that was refused: %v", commits)
	}
	s.expect(0, "topics", "apply", "-c", s.config)
	s.start()
}

func TestAConfigurationThatIsWrongIsToldWithItsPlace(t *testing.T) {
	t.Parallel()
	s := untold(t, stage{tiers: []string{"500ms"}})
	wrong := s.configFile("wrong.yaml", strings.Replace(s.text, "tiers:", "teirs:", 1)+"retries: 3\n")
	for _, arguments := range [][]string{{"validate"}, {"run"}, {"topics", "plan"}, {"topics", "apply"}} {
		r := s.expect(2, append(arguments, "-c", wrong)...)
		for _, want := range []string{wrong + ":5:", "teirs", "tiers", wrong + ":6:", "retries"} {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("forwarder %q does not tell %s:\n%s", arguments, want, r.stderr)
			}
		}
	}
	s.expect(2, "validate", "-c", s.config+".missing")
	s.expect(2, "run", "--no-such-flag")
	s.expect(2, "no-such-command")
	s.expect(2)
}
