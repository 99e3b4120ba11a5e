package rendered

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// The other ways that the values offer: a topics.yaml that is not of the chart, with all that the values say in the environment; a
// static member in a StatefulSet; a password of the database that is a key of its own; tables that a Job makes, for which the
// program waits.
func TestPodsWithAFileOfTheUserRunAsRendered(t *testing.T) {
	if testing.Short() {
		t.Skip("real Kafka is left out by -short")
	}
	k := testkit.RealKafka(t, 1)
	origin := testkit.UniqueName("orders")
	client := k.Client(t)
	client.CreateTopic(origin, partitions, nil)
	at, err := url.Parse(testkit.RealPostgres(t))
	check(t, err)
	at.User = url.User(at.User.Username())
	token, tokens := newToken(t)
	const member = "redrive-forwarder-0"
	group := testkit.UniqueName("forwarders")
	c := install(t, fmt.Sprintf(`
existingConfigMap: {name: shop-topics, key: shop.yaml}
kafka: {brokers: [%[1]s]}
forwarder: {kind: StatefulSet, replicas: 1, group: %[2]s, sessionTimeout: 10m, shutdownTimeout: 5s}
replayer:
  group: %[2]s.replayer
  shutdownTimeout: 5s
  auth: {existingSecret: {name: api-tokens}}
ledger:
  type: postgres
  url: %[3]q
  existingSecret: {name: ledger, passwordKey: password}
  maxConnections: 4
  migrations: {mode: job}
topicManagement: {mode: job}
extraObjects:
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: shop-topics, namespace: streaming}
    data:
      shop.yaml: |
        topics:
          - origin: %[4]s
            tiers: [1s]
`, strings.Join(k.Brokers(), ", "), group, at.String(), origin), map[string]map[string]string{
		"ledger":     {"password": "whatever the server trusts"},
		"api-tokens": {"tokens.yaml": tokens},
	})
	c.complete("Job/redrive-topics", 0)

	replayer := c.start("Deployment/redrive-replayer", "redrive-replayer-a")
	replayer.awaitUnready("[-]ledger")
	c.complete("Job/redrive-migrate", 0)
	if s := replayer.awaitReady(); s.restarts != 0 {
		t.Errorf("it was restarted %d times before the tables were there", s.restarts)
	}
	client.Produce(&kgo.Record{Topic: origin + ".dlt", Value: []byte("v")})
	replayer.awaitLetters(token, 1)

	// A pod that is killed has its partitions back when it is there again, long before the session would end.
	for range 2 {
		forwarder := c.start("StatefulSet/redrive-forwarder", member)
		forwarder.awaitReady()
		awaitAssigned(t, 2*partitions, forwarder)
		groups, err := client.Admin().DescribeGroups(t.Context(), group)
		check(t, err)
		members := groups[group].Members
		if len(members) != 1 || members[0].InstanceID == nil || *members[0].InstanceID != member {
			t.Fatalf("the group has the members %+v, want %s alone", members, member)
		}
		forwarder.kill()
	}
	t.Logf("the dlt-replayer stopped in %v", replayer.term())
}
