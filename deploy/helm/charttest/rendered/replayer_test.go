package rendered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// The dlt-replayer as a user installs it: a ledger in Postgres and the tokens of the API from Secrets, the tables made by the
// container that runs first. Its probes tell the truth from the start without a ledger to the stop by SIGTERM.
func TestReplayerPodsRunAsRendered(t *testing.T) {
	if testing.Short() {
		t.Skip("real Kafka is left out by -short")
	}
	k := testkit.OwnKafka(t, testkit.KafkaOptions{})
	db := testkit.OwnPostgres(t, testkit.PostgresOptions{})
	url, err := db.CreateDatabase(t.Context(), "redrive")
	check(t, err)
	client := k.Client(t)
	client.CreateTopic("orders", partitions, nil)
	token, tokens := newToken(t)
	c := install(t, fmt.Sprintf(`
kafka: {brokers: [%s]}
topics:
  - origin: orders
    tiers: [1s]
forwarder: {replicas: 1}
replayer:
  replicas: 2
  sessionTimeout: 10s
  shutdownTimeout: 5s
  auth: {existingSecret: {name: api-tokens}}
ledger: {type: postgres, existingSecret: {name: ledger}}
topicManagement: {mode: job}
`, strings.Join(k.Brokers(), ", ")), map[string]map[string]string{
		"ledger":     {"url": url},
		"api-tokens": {"tokens.yaml": tokens},
	})
	c.complete("Job/redrive-topics", 0)
	forwarder := c.start("Deployment/redrive-forwarder", "redrive-forwarder-a")
	forwarder.awaitReady()

	// Without the ledger the tables can not be made, so that the program is not started. With it all goes on by itself.
	check(t, db.Stop())
	first := c.start("Deployment/redrive-replayer", "redrive-replayer-a")
	first.await("the tables are tried", func(s state) bool { return s.first > 0 })
	check(t, db.Start(t.Context()))
	first.awaitReady()
	client.Produce(&kgo.Record{Topic: "orders.dlt", Key: []byte("k"), Value: []byte("v")})
	first.awaitLetters(token, 1)
	if out, err := first.client([]string{"REDRIVE_URL=" + first.api()}, "list"); exitCode(err) != 5 {
		t.Errorf("list without a token: %v, want exit code 5\n%s", err, out)
	}
	c.complete("Pod/redrive-test", 0, 0) // helm test asks the forwarder and the dlt-replayer

	// A second replica joins.
	before := first.state()
	second := c.start("Deployment/redrive-replayer", "redrive-replayer-b")
	second.awaitReady()
	second.awaitLetters(token, 1)
	awaitAssigned(t, partitions, first, second)
	if s := first.state(); s.unready != before.unready || s.restarts != before.restarts {
		t.Errorf("the rebalance made the first replica %+v, before it was %+v", s, before)
	}

	// The ledger is lost: nobody is ready, and nobody is restarted. It is back: all go on, with what has come meanwhile.
	check(t, db.Kill())
	for _, p := range []*pod{first, second} {
		p.awaitUnready("[-]ledger")
	}
	c.complete("Pod/redrive-test", 0, 1)
	client.Produce(&kgo.Record{Topic: "orders.dlt", Key: []byte("k"), Value: []byte("w")})
	check(t, db.Start(t.Context()))
	for _, p := range []*pod{first, second} {
		if s := p.awaitReady(); s.restarts != 0 {
			t.Errorf("%s was restarted for the loss of the ledger: %+v", p.at.name, s)
		}
		p.awaitLetters(token, 2)
	}

	// The brokers are lost: what the ledger knows is answered, so that it stays ready.
	calm := first.state()
	check(t, k.Kill())
	forwarder.awaitUnready("[-]brokers")
	first.awaitIssue("no-broker")
	first.awaitLetters(token, 2)
	if s := first.state(); !s.ready || s.unready != calm.unready || s.restarts != 0 {
		t.Errorf("the loss of the brokers made it %+v", s)
	}
	check(t, k.Start(t.Context()))
	forwarder.awaitReady()

	t.Logf("the second replica stopped in %v", second.term())
	first.awaitLetters(token, 2)
	t.Logf("the first replica stopped in %v", first.term())
	t.Logf("the forwarder stopped in %v", forwarder.term())
}

// With the smallest values the ledger is a file on a volume, which outlives the pod, and the API is for this pod alone.
func TestReplayerPodKeepsItsFile(t *testing.T) {
	if testing.Short() {
		t.Skip("real Kafka is left out by -short")
	}
	k := testkit.RealKafka(t, 1)
	origin := testkit.UniqueName("orders")
	client := k.Client(t)
	for _, suffix := range []string{"", ".retry", ".retry.10s", ".retry.1m", ".retry.10m", ".dlt"} {
		client.CreateTopic(origin+suffix, 1, map[string]string{"retention.ms": "604800000"})
	}
	c := install(t, fmt.Sprintf("kafka: {brokers: [%s]}\ntopics: [{origin: %s}]\n", strings.Join(k.Brokers(), ", "), origin), nil)
	client.Produce(&kgo.Record{Topic: origin + ".dlt", Value: []byte("v")})
	for _, name := range []string{"redrive-replayer-a", "redrive-replayer-b"} {
		p := c.start("Deployment/redrive-replayer", name)
		p.awaitReady()
		p.awaitLetters("", 1)
		port, _ := p.at.pod.Port("metrics")
		out, err := p.client(nil, "healthcheck", "--address", p.address(port))
		if exitCode(err) != 0 {
			t.Errorf("healthcheck in the pod: %v\n%s", err, out)
		}
		t.Logf("%s stopped in %v", name, p.term())
	}
}

// newToken makes a token with the program, as its help says it, and the file for the Secret.
func newToken(t *testing.T) (token, file string) {
	t.Helper()
	out, err := run(t, exec.Command(filepath.Join(programs, "dlt-replayer"), "token", "--name", "ops", "--role", "operator", "-o", "json"))
	check(t, err)
	var made struct {
		Token string          `json:"token"`
		Entry json.RawMessage `json:"entry"`
	}
	check(t, json.Unmarshal([]byte(out), &made))
	return made.Token, "[" + string(made.Entry) + "]\n" // YAML takes JSON.
}

// api is where the API of the pod is.
func (p *pod) api() string { return "http://" + p.address(apiPort) }

// awaitLetters waits until the API knows so many letters, asked by the command line.
func (p *pod) awaitLetters(token string, want int) {
	p.t.Helper()
	testkit.WaitFor(p.t, patience, fmt.Sprintf("%s knows %d letters", p.at.name, want), func(context.Context) error {
		out, err := p.client([]string{"REDRIVE_URL=" + p.api(), "REDRIVE_TOKEN=" + token}, "list", "-o", "jsonl")
		if err != nil {
			return fmt.Errorf("list: %w\n%s", err, out)
		}
		if got := strings.Count(out, "\n"); got != want {
			return fmt.Errorf("it knows %d:\n%s", got, out)
		}
		return nil
	})
}

// awaitIssue waits until the program tells of an issue.
func (p *pod) awaitIssue(code string) {
	p.t.Helper()
	port, _ := p.at.pod.Port("metrics")
	testkit.WaitFor(p.t, patience, p.at.name+" tells of "+code, func(ctx context.Context) error {
		body, err := p.get(ctx, "http://"+p.address(port)+"/readyz?verbose", nil)
		if err == nil && !strings.Contains(string(body), "]"+code) {
			err = errors.New(string(body))
		}
		return err
	})
}
