package kafka

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/issue"
)

// seedLadder creates the topics of a ladder, all of them fit.
func seedLadder(t *testing.T, cluster *kfake.Cluster, origin string, partitions int32) {
	t.Helper()
	seedTopic(t, cluster, origin, partitions, map[string]string{minInsync: "2"})
	for _, w := range wants([]Ladder{ladder(origin)}, nil, byForwarder)[1:] {
		settings := fit()
		settings[minInsync] = "2"
		seedTopic(t, cluster, w.topic, partitions, settings)
	}
}

func preflight(t *testing.T, client *kgo.Client, p Preflight) *Plan {
	t.Helper()
	plan, err := MakePlan(t.Context(), client, p)
	if err != nil {
		t.Fatalf("make plan: %v", err)
	}
	return plan
}

// one returns the only problem of a code.
func one(t *testing.T, p *Plan, code issue.Code) Problem {
	t.Helper()
	found := slices.DeleteFunc(p.Problems(), func(problem Problem) bool { return problem.Code != code })
	if len(found) != 1 {
		t.Fatalf("%d problems of code %s: %+v", len(found), code, p.Problems())
	}
	return found[0]
}

func none(t *testing.T, p *Plan, code issue.Code) {
	t.Helper()
	for _, problem := range p.Problems() {
		if problem.Code == code {
			t.Errorf("unexpected: %+v", problem)
		}
	}
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("no %q in %q", word, text)
		}
	}
}

func produce(t *testing.T, client *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("produce: %v", err)
	}
}

func TestOnlyWhatLosesRecordsRefusesAStart(t *testing.T) {
	roles := []Role{RoleOrigin, RoleReturn, RoleInbox, RoleTier, RoleDeadLetters, ""}
	for _, role := range []Role{RoleTrigger, RoleTarget} {
		for _, e := range issue.All() {
			if (Problem{Code: e.Code, Role: role}).LosesRecords() {
				t.Errorf("%s of %q refuses a start", e.Code, role)
			}
		}
	}
	refused := map[issue.Code][]Role{
		issue.Compacted:           roles,
		issue.RetentionBelowDelay: roles,
		issue.TwoRoles:            roles,
		issue.TopicMissing:        {RoleOrigin, RoleInbox, RoleTier, RoleDeadLetters, ""},
	}
	for _, e := range issue.All() {
		for _, role := range roles {
			want := slices.Contains(refused[e.Code], role)
			if got := (Problem{Code: e.Code, Role: role}).LosesRecords(); got != want {
				t.Errorf("%s of %q: %v, want %v", e.Code, role, got, want)
			}
		}
	}
}

func TestAnOriginIsToldWhatEndangersItsRecordsAndIsNotCalledDrift(t *testing.T) {
	for name, tt := range map[string]struct {
		settings map[string]string
		codes    []string
		remedy   string
	}{
		"fit":                       {map[string]string{minInsync: "2"}, nil, ""},
		"stamped by the broker":     {map[string]string{minInsync: "2", timestampType: logAppendTime}, []string{"warning origin-log-append-time"}, "message.timestamp.type=CreateTime"},
		"led by who lacks records":  {map[string]string{minInsync: "2", uncleanElection: "true"}, []string{"warning unclean-election"}, "unclean.leader.election.enable=false"},
		"acknowledged by one alone": {map[string]string{minInsync: "1"}, []string{"warning min-isr"}, "min.insync.replicas=2"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fakeCluster(t, kfake.NumBrokers(3))
			seedTopic(t, cluster, "orders", 4, tt.settings)
			client := fakeClient(t, cluster)
			apply(t, client, makePlan(t, client, ladder("orders")))
			plan := makePlan(t, client, ladder("orders"))
			want := map[string][]string{}
			if tt.codes != nil {
				want["orders"] = tt.codes
			}
			// The topics that apply has made are fit whatever the origin is like.
			wantDiff(t, "codes", codes(plan), want)
			if origin := topicPlan(t, plan, "orders"); origin.Action != ActionNone {
				t.Errorf("action %s", origin.Action)
			}
			for _, problem := range plan.Problems() {
				wantWords(t, problem.Remedy, "kafka-configs.sh", tt.remedy, "--entity-name orders")
			}
		})
	}
}

func TestNewTopicsAreAcknowledgedByTwoReplicasWhereThereAreThree(t *testing.T) {
	for brokers, want := range map[int]string{1: "1", 3: "2"} {
		cluster := fakeCluster(t, kfake.NumBrokers(brokers))
		seedTopic(t, cluster, "orders", 2, map[string]string{minInsync: "1"})
		l := ladder("orders")
		l.ReturnTo = "orders.billing"
		plan := makePlan(t, fakeClient(t, cluster), l)
		for _, topic := range plan.Topics[2:] {
			if got := topic.Settings[minInsync]; got != want {
				t.Errorf("%d brokers: %s gets %s=%s, want %s", brokers, topic.Topic, minInsync, got, want)
			}
		}
		if got := topicPlan(t, plan, "orders.billing").Settings[minInsync]; got != "1" {
			t.Errorf("%d brokers: the return topic gets %s, not what its origin has", brokers, got)
		}
	}
}

func TestOneReplicaIsToldWhereTheClusterHasMoreBrokers(t *testing.T) {
	for brokers, want := range map[int]bool{1: false, 3: true} {
		cluster := fakeCluster(t, kfake.NumBrokers(brokers))
		client := fakeClient(t, cluster)
		if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 2, 1, nil, "orders"); err != nil {
			t.Fatal(err)
		}
		got := slices.Contains(codes(makePlan(t, client, ladder("orders")))["orders"], "warning replication")
		if got != want {
			t.Errorf("%d brokers: told %v, want %v", brokers, got, want)
		}
	}
}

func commit(t *testing.T, client *kgo.Client, group, topic string, partition int32, at int64, metadata string) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: at, LeaderEpoch: -1, Metadata: metadata})
	if err := kadm.NewClient(client).CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatalf("commit for %s: %v", group, err)
	}
}

func TestAnOriginThatSeveralGroupsReadIsTold(t *testing.T) {
	cluster := fakeCluster(t)
	seedLadder(t, cluster, "orders", 2)
	seedLadder(t, cluster, "payments", 2)
	client := fakeClient(t, cluster)
	p := Preflight{Ladders: []Ladder{ladder("orders"), ladder("payments")}, Group: "redrive"}
	commit(t, client, "billing", "orders", 1, 5, "")
	commit(t, client, "audit", "payments", 0, 5, "")
	commit(t, client, "redrive", "orders", 0, 1, "")
	commit(t, client, "redrive.decisions", "orders", 0, 1, "")
	first := preflight(t, client, p)
	none(t, first, issue.SharedOrigin)

	commit(t, client, "shipping", "orders", 0, 0, "")
	second := preflight(t, client, p)
	shared := one(t, second, issue.SharedOrigin)
	if shared.Topic != "orders" || shared.Role != RoleOrigin {
		t.Errorf("told of %s, %s", shared.Topic, shared.Role)
	}
	wantWords(t, shared.Message, "2 groups", "billing, shipping")
	wantWords(t, shared.Remedy, "returnTo")

	// What is known is not asked again.
	p.Known = first.Survey
	none(t, preflight(t, client, p), issue.SharedOrigin)
	p.Known = second.Survey
	one(t, preflight(t, client, p), issue.SharedOrigin)

	// Records that go to a topic of their group reach no other.
	p.Known = nil
	p.Ladders[0].ReturnTo = "orders.billing"
	none(t, preflight(t, client, p), issue.SharedOrigin)
}

// allow makes ACLs for a user of the fake cluster.
func allow(resource kmsg.ACLResourceType, name string, operations ...kmsg.ACLOperation) []kfake.ACL {
	var acls []kfake.ACL
	for _, operation := range operations {
		acls = append(acls, kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true})
	}
	return acls
}

func TestEachMissingPermissionIsToldWithTheCommandThatGrantsItAndNoMore(t *testing.T) {
	const (
		topic   = kmsg.ACLResourceTypeTopic
		read    = kmsg.ACLOperationRead
		write   = kmsg.ACLOperationWrite
		configs = kmsg.ACLOperationDescribeConfigs
	)
	enough := map[string][]kmsg.ACLOperation{
		"orders": {write, configs}, "orders.retry": {read, configs}, "orders.dlt": {write, configs},
		"orders.retry.10s": {read, write, configs}, "orders.retry.10d": {read, write, configs},
	}
	for name, tt := range map[string]struct {
		topics    map[string][]kmsg.ACLOperation
		groups    []string
		described string
		want      map[string]string // by topic, or "" for a group: the end of the command
	}{
		"nothing": {nil, []string{"redrive", "redrive.decisions"}, "", nil},
		"no write on a tier": {
			map[string][]kmsg.ACLOperation{"orders.retry.10s": {read, configs}},
			[]string{"redrive", "redrive.decisions"},
			"",
			map[string]string{"orders.retry.10s": "--operation Write --topic orders.retry.10s"},
		},
		"no more than configs on a tier": {
			map[string][]kmsg.ACLOperation{"orders.retry.10s": {kmsg.ACLOperationDescribe, configs}},
			[]string{"redrive", "redrive.decisions"},
			"",
			map[string]string{"orders.retry.10s": "--operation Read --operation Write --topic orders.retry.10s"},
		},
		"no write on the origin, no read on the inbox": {
			map[string][]kmsg.ACLOperation{"orders": {read, configs}, "orders.retry": {write, configs}},
			[]string{"redrive", "redrive.decisions"},
			"",
			map[string]string{"orders": "--operation Write --topic orders", "orders.retry": "--operation Read --topic orders.retry"},
		},
		"nothing at all on the dead letters": {
			map[string][]kmsg.ACLOperation{"orders.dlt": {}},
			[]string{"redrive", "redrive.decisions"},
			"",
			map[string]string{"orders.dlt": "--operation Write --operation Describe --operation DescribeConfigs --topic orders.dlt"},
		},
		"no group":           {nil, []string{"redrive.decisions"}, "", map[string]string{"": "--operation Read --group redrive"}},
		"group described":    {nil, []string{"redrive.decisions"}, "redrive", map[string]string{"": "--operation Read --group redrive"}},
		"no companion group": {nil, []string{"redrive"}, "", map[string]string{"": "--operation Read --group redrive.decisions"}},
	} {
		t.Run(name, func(t *testing.T) {
			granted := maps.Clone(enough)
			maps.Copy(granted, tt.topics)
			var acls []kfake.ACL
			for name, operations := range granted {
				acls = append(acls, allow(topic, name, operations...)...)
			}
			for _, group := range tt.groups {
				acls = append(acls, allow(kmsg.ACLResourceTypeGroup, group, read)...)
			}
			acls = append(acls, allow(kmsg.ACLResourceTypeGroup, tt.described, kmsg.ACLOperationDescribe)...)
			cluster := fakeCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User(MechanismPlain, "forwarder", "secret", acls...))
			seedLadder(t, cluster, "orders", 2)
			client := newClient(t, Options{Brokers: cluster.ListenAddrs(), SASL: &SASLOptions{Mechanism: MechanismPlain, Username: "forwarder", Password: "secret"}})
			plan := preflight(t, client, Preflight{Ladders: []Ladder{ladder("orders")}, Group: "redrive", Principal: "User:forwarder"})
			got := make(map[string]string)
			for _, problem := range plan.Problems() {
				if problem.Code != issue.ACLMissing || problem.Severity != issue.SeverityError || got[problem.Topic] != "" {
					t.Errorf("unexpected: %+v", problem)
				}
				got[problem.Topic] = problem.Remedy
			}
			want := make(map[string]string)
			for topic, end := range tt.want {
				want[topic] = "kafka-acls.sh --bootstrap-server " + cluster.ListenAddrs()[0] + " --add --allow-principal User:forwarder " + end
			}
			wantDiff(t, "commands", got, want)

			// For applying, which is another principal's, nothing but the topics counts.
			plan = preflight(t, client, Preflight{Ladders: []Ladder{ladder("orders")}, Group: "redrive", TopicsOnly: true})
			for _, problem := range plan.Problems() {
				if problem.Topic != "orders.dlt" || len(tt.topics["orders.dlt"]) > 0 {
					t.Errorf("topics only: %+v", problem)
				}
			}
		})
	}
}

func TestAPrincipalThatAShellWouldSplitIsQuoted(t *testing.T) {
	in := cluster{bootstrap: "b:1", principal: "User:CN=it's, O=x"}
	want := `kafka-acls.sh --bootstrap-server b:1 --add --allow-principal 'User:CN=it'\''s, O=x' --operation Read --topic orders`
	if got := in.grant("topic", "orders", kmsg.ACLOperationRead); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// keyed returns records with so many different keys, each in the partition that
// place says.
func keyed(topic string, keys int, place func(key []byte, i int) int) []*kgo.Record {
	var records []*kgo.Record
	for i := range keys {
		key := fmt.Appendf(nil, "customer-%d", i*i)
		records = append(records, &kgo.Record{Topic: topic, Key: key, Partition: int32(place(key, i))})
	}
	return records
}

func TestTheSampleSaysWhichPartitionerTheKeysFit(t *testing.T) {
	const partitions = 6
	by := func(p Partitioner) func([]byte, int) int {
		return func(key []byte, _ int) int { return p.Partition(key, partitions) }
	}
	for name, tt := range map[string]struct {
		keys    int
		place   func([]byte, int) int
		setting Partitioner
		verdict string
		told    string
	}{
		"murmur2 as set":    {200, by(Murmur2), Murmur2, "murmur2", ""},
		"crc32 as set":      {200, by(CRC32), CRC32, "crc32", ""},
		"fnv1a as set":      {200, by(FNV1a), FNV1a, "fnv1a", ""},
		"crc32, not as set": {200, by(CRC32), Murmur2, "crc32", "Set partitioner: crc32 for the origin in topics.yaml."},
		"fnv1a, not as set": {200, by(FNV1a), CRC32, "fnv1a", "Set partitioner: fnv1a for the origin in topics.yaml."},
		"nothing is set":    {200, by(CRC32), "", "crc32", ""},
		"no known one":      {200, func(_ []byte, i int) int { return i % partitions }, Murmur2, VerdictNone, "No setting fits: "},
		"with strays": {200, func(key []byte, i int) int {
			if i%20 == 0 {
				return 0
			}
			return CRC32.Partition(key, partitions)
		}, CRC32, "crc32", ""},
		"too few keys": {sampleKeys - 1, by(CRC32), Murmur2, VerdictUnknown, ""},
		"empty":        {0, nil, Murmur2, VerdictUnknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fakeCluster(t)
			seedLadder(t, cluster, "orders", partitions)
			client := fakeClient(t, cluster, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			produce(t, client, keyed("orders", tt.keys, tt.place)...)
			// The same keys again, and records that have none, tell nothing more.
			produce(t, client, keyed("orders", tt.keys, tt.place)...)
			produce(t, client, &kgo.Record{Topic: "orders", Partition: 3}, &kgo.Record{Topic: "orders", Partition: 4, Key: []byte{}})
			l := ladder("orders")
			l.Partitioner = tt.setting
			plan := preflight(t, client, Preflight{Ladders: []Ladder{l}, Group: "redrive"})
			if len(plan.Samples) != 1 {
				t.Fatalf("samples: %+v", plan.Samples)
			}
			s := plan.Samples[0]
			if s.Origin != "orders" || s.Partitions != partitions || s.Keys != tt.keys || s.Records != 2*tt.keys+2 || s.Keyed != 2*tt.keys || s.Verdict != tt.verdict {
				t.Errorf("sample: %+v, want verdict %s", s, tt.verdict)
			}
			var text strings.Builder
			if err := plan.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if told := strings.Contains(text.String(), "so the partitioner is "+tt.verdict); told != (tt.verdict != VerdictUnknown) {
				t.Errorf("the text: %s", text.String())
			}
			if tt.told == "" {
				none(t, plan, issue.PartitionerMismatch)
				return
			}
			mismatch := one(t, plan, issue.PartitionerMismatch)
			wantWords(t, mismatch.Remedy, tt.told)
			wantWords(t, mismatch.Message, "Of 200 keys", string(tt.setting))
			groups, err := kadm.NewClient(client).ListGroups(t.Context())
			if err != nil || len(groups) > 0 {
				t.Errorf("the plan left groups behind: %v, %v", groups, err)
			}
		})
	}
}

func TestASpanIsReadAndNoRecordBesideIt(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 2, nil)
	client := fakeClient(t, cluster, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for i := range 20 { // Ten in one batch for each partition.
		records = append(records, &kgo.Record{Topic: "orders", Partition: int32(i % 2), Value: []byte("v")})
	}
	produce(t, client, records...)
	read := make(map[int32][]int64)
	readSpans(t.Context(), client, map[string]map[int32]span{"orders": {0: {2, 5}, 1: {9, 10}}}, func(r *kgo.Record) {
		read[r.Partition] = append(read[r.Partition], r.Offset)
	})
	wantDiff(t, "offsets", read, map[int32][]int64{0: {2, 3, 4}, 1: {9}})
}

func TestASampleIsOfTheLatestRecordsOnly(t *testing.T) {
	cluster := fakeCluster(t)
	seedLadder(t, cluster, "orders", 2)
	client := fakeClient(t, cluster, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	place := func(p Partitioner) func([]byte, int) int {
		return func(key []byte, _ int) int { return p.Partition(key, 2) }
	}
	// Before the producers changed, and then so many that none of those are left.
	for range 4 {
		produce(t, client, keyed("orders", 300, place(CRC32))...)
	}
	for range 4 {
		produce(t, client, keyed("orders", 300, place(Murmur2))...)
	}
	s := preflight(t, client, Preflight{Ladders: []Ladder{ladder("orders")}}).Samples[0]
	if s.Records != sampleRecords || s.Verdict != "murmur2" || s.Fits[Murmur2] != s.Keys {
		t.Errorf("sample: %+v", s)
	}
}

func TestAnOriginOfOnePartitionOrThatMayNotBeReadIsNotSampled(t *testing.T) {
	acls := allow(kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationWrite, kmsg.ACLOperationDescribeConfigs)
	acls = append(acls, allow(kmsg.ACLResourceTypeTopic, "payments", kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationDescribeConfigs)...)
	cluster := fakeCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User(MechanismPlain, "forwarder", "secret", acls...))
	seedTopic(t, cluster, "orders", 4, nil)
	seedTopic(t, cluster, "payments", 1, nil)
	client := newClient(t, Options{Brokers: cluster.ListenAddrs(), SASL: &SASLOptions{Mechanism: MechanismPlain, Username: "forwarder", Password: "secret"}})
	produce(t, client, keyed("payments", 100, func([]byte, int) int { return 0 })...)
	one, two := ladder("orders"), ladder("payments")
	one.Partitioner, two.Partitioner = CRC32, CRC32
	plan := preflight(t, client, Preflight{Ladders: []Ladder{one, two}})
	none(t, plan, issue.PartitionerMismatch)
	for _, s := range plan.Samples {
		if s.Records != 0 || s.Verdict != VerdictUnknown {
			t.Errorf("sample: %+v", s)
		}
	}
}

func TestTopicsThatTheFileNoLongerNamesAreShownUntilTheyAreDrained(t *testing.T) {
	cluster := fakeCluster(t)
	seedLadder(t, cluster, "orders", 2)
	for _, topic := range []string{"orders.retry.5m", "orders.retry.1h", "drained", "foreign", "gone"} {
		seedTopic(t, cluster, topic, 2, nil)
	}
	client := fakeClient(t, cluster, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	due := time.Now().Add(42 * time.Minute).Truncate(time.Second)
	waiting := func(topic string, partition int32, at time.Time) *kgo.Record {
		var e envelope.Envelope
		e.Parse(nil)
		e.SetAvailableAt(at)
		return &kgo.Record{Topic: topic, Partition: partition, Value: []byte("v"), Headers: e.Append(nil, nil, envelope.Hop)}
	}
	for i := range 30 {
		produce(t, client,
			waiting("orders.retry.1h", 0, due.Add(time.Duration(i-29)*time.Minute)),
			waiting("orders.retry.1h", 1, due.AddDate(7000, 0, 0)), // Nobody waits for that.
			&kgo.Record{Topic: "orders.retry.5m", Value: []byte("v")},
			&kgo.Record{Topic: "drained", Value: []byte("v")},
			&kgo.Record{Topic: "foreign", Value: []byte("v")},
			&kgo.Record{Topic: "gone", Value: []byte("v")},
		)
	}
	commit(t, client, "redrive", "orders.retry.1h", 0, 10, "redrive/1 2 ")
	commit(t, client, "redrive", "orders.retry.1h", 1, 25, "redrive/1 2 ")
	commit(t, client, "redrive", "orders.retry.5m", 0, 28, "redrive/1 0 ")
	commit(t, client, "redrive", "drained", 0, 30, "redrive/1 0 ")
	commit(t, client, "redrive", "foreign", 0, 0, "somebody else's")
	commit(t, client, "redrive", "gone", 0, 0, "redrive/1 0 ")
	commit(t, client, "redrive", "orders.retry.10s", 0, 0, "redrive/1 0 ")
	if err := cluster.DeleteTopic("gone"); err != nil {
		t.Fatal(err)
	}
	plan := preflight(t, client, Preflight{Ladders: []Ladder{ladder("orders")}, Group: "redrive"})
	wantDiff(t, "retired", plan.Retired, []Retired{
		{Topic: "drained"},
		{Topic: "orders.retry.1h", Left: 25, Until: due.UTC()},
		{Topic: "orders.retry.5m", Left: 2},
	})
	wantDiff(t, "codes", codes(plan), map[string][]string{"orders.retry.1h": {"info retired-topic"}, "orders.retry.5m": {"info retired-topic"}})
	for _, problem := range plan.Others {
		wantWords(t, problem.Remedy, "--delete --topic "+problem.Topic)
	}
	wantWords(t, plan.Others[0].Message, "up to 25 records", "due at "+due.UTC().Format(time.RFC3339))
	wantWords(t, plan.Others[1].Message, "up to 2 records", "all of them are due")

	var text strings.Builder
	if err := plan.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	wantWords(t, text.String(), "drained: no longer in the file, and drained: it may be deleted.\n",
		"orders.retry.1h: no longer in the file, up to 25 records left, the last due at "+due.UTC().Format(time.RFC3339)+".\n",
		"orders.retry.5m: no longer in the file, up to 2 records left, all due.\n")
	encoded, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	wantWords(t, string(encoded), `"retired":[{"topic":"drained","left":0},{"topic":"orders.retry.1h","left":25,"until":"`, `"problems":[{"code":"retired-topic","severity":"info"`)
}

// A record that a client stamped says nothing of the broker's clock, even where the
// brokers stamp the topic by now.
func TestAFutureStampOfAClientIsNoClockSkew(t *testing.T) {
	cluster := fakeCluster(t)
	seedLadder(t, cluster, "orders", 2)
	client := fakeClient(t, cluster)
	produce(t, client, &kgo.Record{Topic: "orders.retry", Value: []byte("v"), Timestamp: time.Now().Add(time.Hour)})
	none(t, makePlan(t, client, ladder("orders")), issue.ClockSkew)
}

// What the brokers do not answer beyond the topics costs nobody the plan.
func TestAPlanIsMadeWithoutWhatMayNotBeAsked(t *testing.T) {
	cluster := fakeCluster(t)
	seedLadder(t, cluster, "orders", 2)
	client := fakeClient(t, cluster, kgo.RequestRetries(0))
	for _, key := range []kmsg.Key{kmsg.ListGroups, kmsg.OffsetFetch, kmsg.DescribeGroups, kmsg.FindCoordinator, kmsg.ListOffsets, kmsg.Heartbeat} {
		cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			return nil, errors.New("no answer"), true
		})
	}
	plan := preflight(t, client, Preflight{Ladders: []Ladder{ladder("orders")}, Group: "redrive"})
	if len(plan.Problems()) > 0 || len(plan.Topics) != 5 {
		t.Errorf("plan: %v", plan.Problems())
	}
}

func TestReplayerIsToldWhatItMayNotDo(t *testing.T) {
	const (
		topic   = kmsg.ACLResourceTypeTopic
		read    = kmsg.ACLOperationRead
		write   = kmsg.ACLOperationWrite
		configs = kmsg.ACLOperationDescribeConfigs
	)
	var acls []kfake.ACL
	for name, operations := range map[string][]kmsg.ACLOperation{
		"orders": {read, configs}, "orders.dlt": {write, configs}, "orders.dlt.replay": {}, "repaired": {write, configs}, "answers": {write},
	} {
		acls = append(acls, allow(topic, name, operations...)...)
	}
	cluster := fakeCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User(MechanismPlain, "replayer", "secret", acls...))
	l := replayed("orders")
	l.ReplayTo = []string{"repaired"}
	seedLadder(t, cluster, "orders", 2)
	for _, name := range []string{"orders.dlt.replay", "repaired", "answers"} {
		seedTopic(t, cluster, name, 2, fit())
	}
	client := newClient(t, Options{Brokers: cluster.ListenAddrs(), SASL: &SASLOptions{Mechanism: MechanismPlain, Username: "replayer", Password: "secret"}})
	ends := func(p Preflight) map[string]string {
		got := make(map[string]string)
		for _, problem := range preflight(t, client, p).Problems() {
			if problem.Code == issue.ACLMissing {
				_, got[problem.Topic], _ = strings.Cut(problem.Remedy, " --allow-principal User:replayer ")
			}
		}
		return got
	}
	wantDiff(t, "commands", ends(Preflight{Replayer: true, Ladders: []Ladder{l}, Group: "redrive-dlt-replayer", Principal: "User:replayer"}), map[string]string{
		"":                  "--operation Read --group redrive-dlt-replayer",
		"orders":            "--operation Write --topic orders",
		"orders.dlt":        "--operation Read --topic orders.dlt",
		"orders.dlt.replay": "--operation Read --operation Describe --operation DescribeConfigs --topic orders.dlt.replay",
		"repaired":          "--operation Read --topic repaired",
	})
	// A forwarder needs no right on the trigger topic.
	if end, told := ends(Preflight{Ladders: []Ladder{l}, Group: "redrive", Principal: "User:replayer"})["orders.dlt.replay"]; told {
		t.Errorf("a forwarder is told: %s", end)
	}
}
