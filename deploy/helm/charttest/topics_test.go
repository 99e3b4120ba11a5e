package charttest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"

	"github.com/kafka-redrive/redrive/internal/config"
)

// What Strimzi is asked for are the topics that the product reads out of the same file, and each keeps its records for as long as
// forwarder topics apply would have it keep them.
func TestKafkaTopicsAreThoseOfTheProduct(t *testing.T) {
	t.Parallel()
	r, err := load(t).Render(withValues(t, `
topicManagement: {mode: strimzi, strimzi: {cluster: kafka, partitions: 12, partitionsByOrigin: {Shop.Orders_v1: 7}}}
topics:
  - origin: orders
  - origin: Shop.Orders_v1
    group: billing
    tiers: [500ms, 60s, 90s, 1h30m, 24h, 7d, {delay: 2w, jitter: 12h}, {delay: 1y, name: year}, {delay: 5m, topic: "late.{group}.{tier}"}]
    names: {inbox: "in.{group}.{origin}", tier: "{origin}.{group}.wait-{tier}", deadLetters: "{origin}.{group}.dead", replayTrigger: "again.{deadLetters}"}
    returnTo: "{origin}.{group}.return"
  - origin: payments
    tiers: [{delay: 3h}]
`), clusterAPIs...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Find[*core.ConfigMap](r, Release+"-config")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "topics.yaml")
	if err := os.WriteFile(path, []byte(m.Data["topics.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}

	type topic struct {
		Partitions int32
		Retention  string
	}
	const day = 24 * time.Hour
	want := map[string]topic{}
	for _, entry := range cfg.Topics {
		partitions := int32(12)
		if entry.Origin == "Shop.Orders_v1" {
			partitions = 7
		}
		add := func(name string, retention time.Duration) {
			want[name] = topic{partitions, fmt.Sprint(retention.Milliseconds())}
		}
		add(entry.Inbox(), 7*day)
		for _, tier := range entry.Tiers {
			add(tier.Topic, max(7*day, 2*time.Duration(tier.Delay+tier.Jitter)+day))
		}
		add(entry.DeadLetters(), 30*day)
		add(entry.ReplayTrigger(), day)
		if entry.ReturnTopic() != entry.Origin {
			want[entry.ReturnTopic()] = topic{partitions, fmt.Sprint(nil)} // As its owner has it.
		}
	}
	got := map[string]topic{}
	for _, k := range All[*KafkaTopic](r) {
		got[k.Spec.TopicName] = topic{k.Spec.Partitions, fmt.Sprint(k.Spec.Config["retention.ms"])}
		if k.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s goes with the release, and the records in it", k.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topics (-product +chart):\n%s", diff)
	}
}
