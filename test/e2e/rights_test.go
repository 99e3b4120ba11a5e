package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// toServe is the heading of the handbook under which the rights of the dlt-replayer stand.
const toServe = "dlt-replayer serve"

// A dlt-replayer with the rights of the handbook indexes, replays on all ways, and has nothing to complain about. Without the
// right to read a topic it names the command that grants it.
func TestTheReplayerServesWithTheDocumentedRights(t *testing.T) {
	rights := documentedRights(t)
	if len(rights[toServe]) == 0 {
		t.Fatalf("%s documents no rights under %q", handbook, toServe)
	}
	applier, user := rights[toApply][0].user, rights[toServe][0].user
	s := secure(t, testkit.Secure{}, applier, user)
	s.grant(rulesOf(rights[toApply], "")...)
	s.tell(t, 0, "topics", "apply", "-c", s.as(applier))
	s.grant(rulesOf(rights[toServe], "")...)
	s.config = s.configFile("replayer.yaml", "kafka: {"+s.over(login("SCRAM-SHA-512", user, s.passwords[user]))+`}
topics:
  - {origin: orders, group: orders-app, maxDelay: 1h, tiers: [{name: 10s, delay: 500ms}, {name: 1m, delay: 600ms}, {name: 10m, delay: 700ms}]}
`)
	r := s.replay(s.sqlite(), "REDRIVE_REPLAYER_GROUP=redrive-dlt-replayer")

	s.bury("by-id", 0, 1)
	s.bury("by-trigger", 10, 3)
	letters := r.awaitLetters(4, state("dead"))
	r.cli(0, "replay", "--key", "by-id", "--reason", "its turn", "--count", "1")
	s.client.Produce(&kgo.Record{Topic: s.triggers(), Key: []byte("by-trigger")})
	r.awaitLetters(len(letters), state("replayed"))
	want := []string{"by-id-0", "by-trigger-10", "by-trigger-11", "by-trigger-12"}
	if diff := cmp.Diff(want, sorted(s.copies(s.origin))); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
	ready, err := r.ready(t.Context())
	if err != nil || !ready.OK || len(ready.Issues) > 0 {
		t.Errorf("readyz: %+v, %v; want ready, and no issue", ready, err)
	}
	r.term()
	s.said.add(r.tail())

	for _, topic := range []string{s.origin, s.deadLetters()} {
		all := rulesOf(rights[toServe], "")
		lost := all[slices.IndexFunc(all, func(r rule) bool { return r.topic == topic })]
		s.revoke(lost)
		without := s.replay(s.sqlite(), "REDRIVE_REPLAYER_GROUP=redrive-dlt-replayer")
		testkit.WaitFor(t, patience, "a line about "+lost.String(), func(context.Context) error {
			for line := range strings.Lines(without.tail()) {
				if strings.Contains(line, "acl-missing") && strings.Contains(line, "kafka-acls.sh") && strings.Contains(line, "--topic "+topic) {
					return nil
				}
			}
			return errors.New("not logged")
		})
		without.term()
		s.said.add(without.tail())
		s.grant(lost)
	}
}
