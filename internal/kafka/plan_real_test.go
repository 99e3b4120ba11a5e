package kafka

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// rawTopic is everything the brokers tell of one topic, for comparing before and
// after.
type rawTopic struct {
	ID         [16]byte
	Partitions int32
	Replicas   int16
	Settings   map[string]string
}

func rawTopics(t *testing.T, client *kgo.Client, topics ...string) map[string]rawTopic {
	t.Helper()
	described, err := describeTopics(t.Context(), client, topics)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]rawTopic)
	for topic, d := range described {
		if d.err == nil {
			all[topic] = rawTopic{ID: d.id, Partitions: d.count(), Replicas: d.replicas(), Settings: settingsOf(t, client, topic)}
		}
	}
	return all
}

func realClient(t *testing.T, k *testkit.Kafka) *kgo.Client {
	t.Helper()
	return newClient(t, Options{Brokers: k.Brokers(), Logger: testkit.Logger(t)})
}

func TestApplyNeverCreatesOrAltersAnOrigin(t *testing.T) {
	k := testkit.RealKafka(t, 1)
	client, admin := realClient(t, k), k.Client(t)
	origin, absent, returns := testkit.UniqueName("orders"), testkit.UniqueName("payments"), testkit.UniqueName("returns")
	// An origin with everything that apply would change on a topic of its own.
	admin.CreateTopic(origin, 2, map[string]string{cleanupPolicy: "compact,delete", retentionMs: "60000", retentionBytes: "100000000", maxMessageBytes: "2000000"})
	admin.CreateTopic(returns, 1, map[string]string{retentionMs: "60000", maxMessageBytes: "1000"})
	// Its inbox is larger in every way, so that any levelling would show.
	admin.CreateTopic(origin+".retry", 5, map[string]string{maxMessageBytes: "5000000", retentionMs: "-1"})
	before := rawTopics(t, client, origin, returns, origin+".retry")

	one, two := ladder(origin), ladder(absent)
	one.ReturnTo = returns
	plan := makePlan(t, client, one, two)
	if err := plan.Apply(t.Context(), client, func(Act) {}); err == nil || !strings.Contains(err.Error(), absent+": left alone") {
		t.Errorf("apply: %v", err)
	}
	wantDiff(t, "origin, return topic and inbox after apply", rawTopics(t, client, origin, returns, origin+".retry"), before)
	if now := rawTopics(t, client, absent, absent+".retry", absent+".dlt"); len(now) > 0 {
		t.Errorf("created although the origin is missing: %v", now)
	}
	if now := rawTopics(t, client, origin+".dlt"); now[origin+".dlt"].Partitions != 2 {
		t.Errorf("the dead letters of the origin: %+v", now)
	}
}

func TestApplyIsIdempotent(t *testing.T) {
	k := testkit.RealKafka(t, 3)
	client, admin := realClient(t, k), k.Client(t)
	origin := testkit.UniqueName("orders")
	admin.CreateTopic(origin, 6, map[string]string{minInsync: "2", maxMessageBytes: "2000000", retentionMs: "3600000"})
	l := ladder(origin)
	l.ReturnTo = origin + ".billing"
	topics := []string{l.ReturnTo, l.Inbox, l.Tiers[0].Topic, l.Tiers[1].Topic, l.DeadLetters}

	first := makePlan(t, client, l)
	if acts := apply(t, client, first); len(acts) != len(topics) {
		t.Errorf("acts: %v", acts)
	}
	// Apply has waited: every broker knows every topic with its leaders.
	for _, broker := range client.DiscoveredBrokers() {
		described, err := describeTopics(t.Context(), broker, topics)
		if err != nil {
			t.Fatal(err)
		}
		for topic, d := range described {
			if d.err != nil || d.count() != 6 || !d.led() {
				t.Errorf("%s is not ready: %+v", topic, d)
			}
		}
	}
	replicas := rawTopics(t, client, origin)[origin].Replicas
	after := rawTopics(t, client, topics...)
	for topic, retention := range map[string]string{
		l.ReturnTo: "3600000", l.Inbox: "604800000", l.Tiers[0].Topic: "604800000", l.Tiers[1].Topic: "1814400000", l.DeadLetters: "2592000000",
	} {
		got := after[topic]
		if got.Partitions != 6 || got.Replicas != replicas {
			t.Errorf("%s has %d partitions and %d replicas, want 6 and %d", topic, got.Partitions, got.Replicas, replicas)
		}
		for name, want := range map[string]string{
			cleanupPolicy: "delete", retentionMs: retention, retentionBytes: "-1", timestampType: logAppendTime, maxMessageBytes: "2016384", minInsync: "2",
		} {
			if got.Settings[name] != want {
				t.Errorf("%s: %s = %q, want %q", topic, name, got.Settings[name], want)
			}
		}
	}

	second := makePlan(t, client, l)
	if second.Changed() || len(second.Problems()) > 0 {
		t.Errorf("second plan: %v, %v", actions(second), second.Problems())
	}
	for name, plan := range map[string]*Plan{"second": second, "first again": first} {
		if acts := apply(t, client, plan); len(acts) != 0 {
			t.Errorf("%s: %v", name, acts)
		}
	}
	wantDiff(t, "topics after three applies", rawTopics(t, client, topics...), after)
}

func TestApplyRaisesShortRetention(t *testing.T) {
	k := testkit.RealKafka(t, 1)
	client, admin := realClient(t, k), k.Client(t)
	origin := testkit.UniqueName("orders")
	admin.CreateTopic(origin, 3, nil)
	l := ladder(origin)
	own := map[string]string{cleanupPolicy: "delete", timestampType: logAppendTime, maxMessageBytes: "3000000", "segment.ms": "3600000"}
	with := func(ms string) map[string]string {
		settings := map[string]string{retentionMs: ms}
		maps.Copy(settings, own)
		return settings
	}
	admin.CreateTopic(l.Inbox, 3, with("172800000"))          // Two days: short of a week, and the owner's choice.
	admin.CreateTopic(l.Tiers[0].Topic, 3, with("5000"))      // Less than the delay.
	admin.CreateTopic(l.Tiers[1].Topic, 1, with("864000000")) // No more than delay and jitter, and too few partitions.
	admin.CreateTopic(l.DeadLetters, 3, with("7776000000"))   // Ninety days: more than a new one would get.
	wait := []string{l.Inbox, l.Tiers[0].Topic, l.Tiers[1].Topic, l.DeadLetters}
	before := rawTopics(t, client, wait...)

	plan := makePlan(t, client, l)
	wantDiff(t, "codes", codes(plan), map[string][]string{
		l.Tiers[0].Topic: {"error retention-below-delay +"},
		l.Tiers[1].Topic: {"error fewer-partitions +", "error retention-below-delay +"},
	})
	wantDiff(t, "acts", apply(t, client, plan), []string{
		l.Tiers[0].Topic + ": retention.ms 5000 -> 604800000",
		l.Tiers[1].Topic + ": partitions 1 -> 3",
		l.Tiers[1].Topic + ": retention.ms 864000000 -> 1814400000",
	})
	before[l.Tiers[0].Topic].Settings[retentionMs] = "604800000"
	before[l.Tiers[1].Topic].Settings[retentionMs] = "1814400000"
	grown := before[l.Tiers[1].Topic]
	grown.Partitions = 3
	before[l.Tiers[1].Topic] = grown
	wantDiff(t, "topics after apply", rawTopics(t, client, wait...), before)
	if again := makePlan(t, client, l); again.Changed() || len(again.Problems()) > 0 {
		t.Errorf("second plan: %v, %v", actions(again), again.Problems())
	}
}

func TestPlanReportsCompaction(t *testing.T) {
	k := testkit.RealKafka(t, 1)
	client, admin := realClient(t, k), k.Client(t)
	origin := testkit.UniqueName("orders")
	admin.CreateTopic(origin, 1, map[string]string{cleanupPolicy: "compact"}) // Of an origin this is nobody's mistake.
	l := ladder(origin)
	apply(t, client, makePlan(t, client, Ladder{Origin: origin, Tiers: l.Tiers[1:], DeadLetters: l.DeadLetters}))
	admin.CreateTopic(l.Inbox, 1, map[string]string{cleanupPolicy: "compact", timestampType: logAppendTime, maxMessageBytes: "2000000"})
	admin.CreateTopic(l.Tiers[0].Topic, 1, map[string]string{cleanupPolicy: "compact,delete", timestampType: logAppendTime, maxMessageBytes: "2000000"})

	plan := makePlan(t, client, l)
	wantDiff(t, "codes", codes(plan), map[string][]string{l.Inbox: {"error compacted"}, l.Tiers[0].Topic: {"error compacted"}})
	if plan.Changed() {
		t.Error("apply would touch it")
	}
	for _, problem := range plan.Problems() {
		want := fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config cleanup.policy=delete", k.Brokers()[0], problem.Topic)
		if problem.Remedy != want {
			t.Errorf("remedy %q, want %q", problem.Remedy, want)
		}
	}
}

// librdkafka is asked itself, through kcat.
func TestPartitionersAgreeWithLibrdkafka(t *testing.T) {
	const n = 17
	k := testkit.RealKafka(t, 1)
	admin := k.Client(t)
	for kcatName, partitioner := range map[string]Partitioner{"consistent": CRC32, "consistent_random": CRC32, "murmur2": Murmur2, "murmur2_random": Murmur2, "fnv1a": FNV1a} {
		t.Run(kcatName, func(t *testing.T) {
			topic := testkit.UniqueName("orders")
			admin.CreateTopic(topic, n, nil)
			var lines strings.Builder
			for i := range 300 {
				fmt.Fprintf(&lines, "%s%d:v\n", strings.Repeat("k", i%9+1), i*i)
			}
			testkit.Kcat(t, []byte(lines.String()), "-P", "-b", strings.Join(k.Brokers(), ","), "-t", topic, "-K", ":", "-X", "topic.partitioner="+kcatName)
			records := admin.ReadAll(topic, kgo.ReadCommitted())
			if len(records) != 300 {
				t.Fatalf("%d records", len(records))
			}
			var wrong []string
			for _, r := range records {
				if got := partitioner.Partition(r.Key, n); int32(got) != r.Partition {
					wrong = append(wrong, string(r.Key)+" is in "+strconv.Itoa(int(r.Partition))+", not in "+strconv.Itoa(got))
				}
			}
			if len(wrong) > 0 {
				t.Errorf("%d keys: %s", len(wrong), strings.Join(wrong[:min(5, len(wrong))], "; "))
			}
		})
	}
}
