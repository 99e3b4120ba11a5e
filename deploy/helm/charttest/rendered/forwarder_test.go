package rendered

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

const partitions = 4

// The forwarder as a user installs it: SASL and TLS from Secrets, two replicas, the topics made by the job. Its probes tell the
// truth from the start without a broker to the stop by SIGTERM, and no loss of a broker and no rebalance would have a kubelet
// restart it.
func TestForwarderPodsRunAsRendered(t *testing.T) {
	k, secrets := secured(t, "forwarder")
	client := k.Client(t)
	client.CreateTopic("orders", partitions, nil)
	c := install(t, fmt.Sprintf(`
kafka:
  brokers: [%s]
  tls: {enabled: true, caSecret: {name: kafka-ca}}
  sasl: {enabled: true, mechanism: SCRAM-SHA-512, existingSecret: {name: kafka-user}}
topics:
  - origin: orders
    tiers: [1s, 5s]
forwarder: {replicas: 2, sessionTimeout: 10s, shutdownTimeout: 5s}
replayer: {enabled: false}
topicManagement: {mode: job}
`, strings.Join(k.SecureBrokers(), ", ")), secrets)

	// Without a broker it waits, and says so. It is not restarted for it.
	check(t, k.Stop())
	first := c.start("Deployment/redrive-forwarder", "redrive-forwarder-a")
	first.awaitStarted()
	if s := first.awaitUnready("[-]brokers"); s.restarts != 0 {
		t.Errorf("it was restarted %d times while there was no broker", s.restarts)
	}

	// With a broker and the topics it goes to work, which needs no hand: without the topics it refuses the start, and is started again.
	check(t, k.Start(t.Context()))
	out := c.complete("Job/redrive-topics", 0)
	for _, topic := range []string{"orders.retry", "orders.retry.1s", "orders.retry.5s", "orders.dlt"} {
		if !strings.Contains(out, topic) {
			t.Errorf("the job does not tell of %s:\n%s", topic, out)
		}
	}
	first.awaitReady()
	const all = 3 * partitions // the inbox and two tiers
	awaitAssigned(t, all, first)
	comesBack(t, client, "first")

	// A second replica joins: neither is taken for dead, and the first stays ready.
	before := first.state()
	second := c.start("Deployment/redrive-forwarder", "redrive-forwarder-b")
	second.awaitReady()
	awaitAssigned(t, all, first, second)
	if s := first.state(); s.unready != before.unready || s.restarts != before.restarts {
		t.Errorf("the rebalance made the first replica %+v, before it was %+v", s, before)
	}
	comesBack(t, client, "second")

	// The brokers are lost: nobody is ready, and nobody is restarted. They are back: all go on.
	check(t, k.Kill())
	for _, p := range []*pod{first, second} {
		p.awaitUnready("[-]brokers")
	}
	check(t, k.Start(t.Context()))
	for _, p := range []*pod{first, second} {
		if s := p.awaitReady(); s.restarts != before.restarts && p == first || s.restarts != 0 && p == second {
			t.Errorf("%s was restarted for the loss of the brokers: %+v", p.at.name, s)
		}
	}
	awaitAssigned(t, all, first, second)
	comesBack(t, client, "third")

	// One is stopped, the other takes over.
	t.Logf("the second replica stopped in %v", second.term())
	awaitAssigned(t, all, first)
	comesBack(t, client, "fourth")

	// A pod that stops while there is no broker can not make its last commit; it is done all the same before it would be killed.
	check(t, k.Kill())
	first.awaitUnready("[-]brokers")
	t.Logf("the first replica stopped without a broker in %v", first.term())
}

// secured starts a cluster that asks its clients for a name, and makes the Secrets with which this one may do everything.
func secured(t *testing.T, user string) (*testkit.Kafka, map[string]map[string]string) {
	t.Helper()
	if testing.Short() {
		t.Skip("real Kafka is left out by -short")
	}
	authority, err := testkit.NewAuthority(t.TempDir())
	check(t, err)
	const password = "not-a-secret-but-looks-like-one"
	k := testkit.OwnKafka(t, testkit.KafkaOptions{Secure: &testkit.Secure{Authority: authority, Users: map[string]string{user: password}}})
	rights := kadm.NewACLs().Allow("User:" + user).AllowHosts("*").Operations(kadm.OpAll).ResourcePatternType(kadm.ACLPatternLiteral).Topics("*").Groups("*").Clusters()
	_, err = k.Client(t).Admin().CreateACLs(t.Context(), rights)
	check(t, err)
	ca, err := os.ReadFile(authority.CAFile())
	check(t, err)
	return k, map[string]map[string]string{
		"kafka-ca":   {"ca.crt": string(ca)},
		"kafka-user": {"username": user, "password": password},
	}
}

// comesBack hands a record over and waits until it is back at its origin.
func comesBack(t *testing.T, client *testkit.TestClient, value string) {
	t.Helper()
	client.Produce(&kgo.Record{Topic: "orders.retry", Key: []byte(value), Value: []byte(value)})
	testkit.WaitFor(t, patience, value+" is back", func(context.Context) error {
		for _, r := range client.ReadAll("orders", kgo.ReadUncommitted()) {
			if string(r.Value) == value {
				return nil
			}
		}
		return errors.New("not yet")
	})
}

// awaitAssigned waits until the pods own so many partitions together, and each of them some.
func awaitAssigned(t *testing.T, want int, pods ...*pod) {
	t.Helper()
	testkit.WaitFor(t, patience, fmt.Sprintf("%d partitions are owned", want), func(ctx context.Context) error {
		sum := 0
		for _, p := range pods {
			n, err := p.assigned(ctx)
			if err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("%s owns none", p.at.name)
			}
			sum += n
		}
		if sum != want {
			return fmt.Errorf("they own %d", sum)
		}
		return nil
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
