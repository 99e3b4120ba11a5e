package kafka

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/issue"
)

// ladder is the ladder of an origin with the names and two of the tiers that a
// topics.yaml of three lines gives.
func ladder(origin string) Ladder {
	return Ladder{
		Origin: origin,
		Inbox:  origin + ".retry",
		Tiers: []Tier{
			{Name: "10s", Topic: origin + ".retry.10s", Delay: 10 * time.Second},
			{Name: "10d", Topic: origin + ".retry.10d", Delay: 9 * day, Jitter: day},
		},
		DeadLetters: origin + ".dlt",
	}
}

// fit are settings with which any topic of the ladder of a default origin is fit.
func fit() map[string]string {
	return map[string]string{
		cleanupPolicy:   "delete",
		retentionMs:     "-1",
		timestampType:   logAppendTime,
		maxMessageBytes: "10000000",
	}
}

func seedTopic(t *testing.T, cluster *kfake.Cluster, topic string, partitions int32, settings map[string]string) {
	t.Helper()
	if err := cluster.CreateTopic(topic, partitions, settings); err != nil {
		t.Fatalf("create %s: %v", topic, err)
	}
}

func makePlan(t *testing.T, client *kgo.Client, ladders ...Ladder) *Plan {
	t.Helper()
	plan, err := MakePlan(t.Context(), client, Preflight{Ladders: ladders})
	if err != nil {
		t.Fatalf("make plan: %v", err)
	}
	return plan
}

// apply applies the plan and returns the acts as "topic: what".
func apply(t *testing.T, client *kgo.Client, plan *Plan) []string {
	t.Helper()
	acts := []string{}
	err := plan.Apply(t.Context(), client, func(a Act) { acts = append(acts, a.Topic+": "+a.What) })
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return acts
}

func actions(p *Plan) map[string]Action {
	all := make(map[string]Action)
	for _, t := range p.Topics {
		all[t.Topic] = t.Action
	}
	return all
}

// codes returns topic -> "severity code" of each problem, with a plus if apply
// fixes it.
func codes(p *Plan) map[string][]string {
	all := make(map[string][]string)
	for _, problem := range p.Problems() {
		text := string(problem.Severity) + " " + string(problem.Code)
		if problem.FixedByApply {
			text += " +"
		}
		all[problem.Topic] = append(all[problem.Topic], text)
	}
	return all
}

func wantDiff(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func topicPlan(t *testing.T, p *Plan, topic string) TopicPlan {
	t.Helper()
	for _, tp := range p.Topics {
		if tp.Topic == topic {
			return tp
		}
	}
	t.Fatalf("the plan has no %s", topic)
	return TopicPlan{}
}

func settingsOf(t *testing.T, client *kgo.Client, topic string) map[string]string {
	t.Helper()
	configs, err := describeConfigs(t.Context(), client, []string{topic})
	if err = errors.Join(err, configs[topic].err); err != nil {
		t.Fatalf("configuration of %s: %v", topic, err)
	}
	return configs[topic].values
}

func TestPlanCreatesWhatIsMissingLikeTheOrigin(t *testing.T) {
	cluster := fakeCluster(t, kfake.NumBrokers(3))
	seedTopic(t, cluster, "orders", 7, map[string]string{minInsync: "2", maxMessageBytes: "2000000", retentionMs: "3600000"})
	client := fakeClient(t, cluster)
	l := ladder("orders")
	l.ReturnTo = "orders.billing"
	plan := makePlan(t, client, l)

	wantDiff(t, "actions", actions(plan), map[string]Action{
		"orders": ActionNone, "orders.billing": ActionCreate, "orders.retry": ActionCreate,
		"orders.retry.10s": ActionCreate, "orders.retry.10d": ActionCreate, "orders.dlt": ActionCreate,
	})
	settings := func(retention string) map[string]string {
		return map[string]string{
			cleanupPolicy: "delete", retentionBytes: "-1", timestampType: logAppendTime,
			maxMessageBytes: "2016384", minInsync: "2", retentionMs: retention,
		}
	}
	for topic, retention := range map[string]string{
		"orders.billing":   "3600000",
		"orders.retry":     "604800000",  // 7 d
		"orders.retry.10s": "604800000",  // 7 d
		"orders.retry.10d": "1814400000", // twice 10 d and one
		"orders.dlt":       "2592000000", // 30 d
	} {
		tp := topicPlan(t, plan, topic)
		wantDiff(t, "settings of "+topic, tp.Settings, settings(retention))
		if tp.Partitions != 7 || tp.Replication != 3 {
			t.Errorf("%s: %d partitions, %d replicas", topic, tp.Partitions, tp.Replication)
		}
	}
	if !plan.Changed() {
		t.Error("Changed() = false")
	}

	wantDiff(t, "acts", apply(t, client, plan), []string{
		"orders.billing: create", "orders.retry: create", "orders.retry.10s: create", "orders.retry.10d: create", "orders.dlt: create",
	})
	described, err := describeTopics(t.Context(), client, []string{"orders.dlt"})
	if err != nil {
		t.Fatal(err)
	}
	if d := described["orders.dlt"]; d.count() != 7 || d.replicas() != 3 {
		t.Errorf("orders.dlt has %d partitions and %d replicas", d.count(), d.replicas())
	}
	got := settingsOf(t, client, "orders.dlt")
	for name, want := range settings("2592000000") {
		if got[name] != want {
			t.Errorf("orders.dlt: %s = %q, want %q", name, got[name], want)
		}
	}

	again := makePlan(t, client, l)
	if again.Changed() || len(again.Problems()) > 0 {
		t.Errorf("after apply the plan has %v and %v", actions(again), again.Problems())
	}
}

func TestEachRuleIsFoundAndOnlyRaisingIsApplied(t *testing.T) {
	tests := []struct {
		name     string
		topic    string
		settings map[string]string
		codes    []string
		changes  []Change
	}{
		{"fit", "orders.retry.10d", nil, nil, nil},
		{"kept for ever", "orders.dlt", map[string]string{retentionMs: "-1"}, nil, nil},
		{"deleted before due", "orders.retry.10d", map[string]string{retentionMs: "864000000"}, []string{"error retention-below-delay +"}, []Change{{retentionMs, "864000000", "1814400000"}}},
		{"an outage of a day loses records", "orders.retry.10d", map[string]string{retentionMs: "950399999"}, []string{"warning tier-retention-short +"}, []Change{{retentionMs, "950399999", "1814400000"}}},
		{"a day more than the wait", "orders.retry.10d", map[string]string{retentionMs: "950400000"}, nil, nil},
		{"inbox of an hour", "orders.retry", map[string]string{retentionMs: "3600000"}, []string{"warning tier-retention-short +"}, []Change{{retentionMs, "3600000", "604800000"}}},
		{"inbox of two days", "orders.retry", map[string]string{retentionMs: "172800000"}, nil, nil},
		{"dead letters of six days", "orders.dlt", map[string]string{retentionMs: "518400000"}, []string{"warning dlt-retention-short +"}, []Change{{retentionMs, "518400000", "2592000000"}}},
		{"dead letters of two weeks", "orders.dlt", map[string]string{retentionMs: "1209600000"}, nil, nil},
		{"compacted", "orders.retry.10s", map[string]string{cleanupPolicy: "compact", retentionMs: "1"}, []string{"error compacted"}, nil},
		{"compacted and deleted", "orders.retry.10s", map[string]string{cleanupPolicy: "compact,delete"}, []string{"error compacted"}, nil},
		{"limited by size", "orders.retry.10s", map[string]string{retentionBytes: "1000000"}, []string{"warning retention-bytes"}, nil},
		{"stamped by clients", "orders.retry.10s", map[string]string{timestampType: "CreateTime"}, []string{"warning timestamp-type"}, nil},
		{"too narrow", "orders.dlt", map[string]string{maxMessageBytes: "1000012"}, []string{"warning message-bytes +"}, []Change{{maxMessageBytes, "1000012", "1064972"}}},
		{"led by a replica that lacks records", "orders.retry", map[string]string{uncleanElection: "true"}, []string{"warning unclean-election"}, nil},
		{"acknowledged by fewer", "orders.dlt", map[string]string{minInsync: "1"}, []string{"warning min-isr"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cluster := fakeCluster(t, kfake.NumBrokers(3))
			seedTopic(t, cluster, "orders", 4, map[string]string{minInsync: "2"})
			for _, w := range wants([]Ladder{ladder("orders")}, nil, byForwarder)[1:] {
				settings := fit()
				settings[minInsync] = "2"
				if w.topic == tt.topic {
					maps.Copy(settings, tt.settings)
				}
				seedTopic(t, cluster, w.topic, 4, settings)
			}
			client := fakeClient(t, cluster)
			before := settingsOf(t, client, tt.topic)
			plan := makePlan(t, client, ladder("orders"))
			wantCodes := map[string][]string{}
			if tt.codes != nil {
				wantCodes[tt.topic] = tt.codes
			}
			wantDiff(t, "codes", codes(plan), wantCodes)
			tp := topicPlan(t, plan, tt.topic)
			wantDiff(t, "changes", tp.Changes, tt.changes)
			wantAction := ActionNone
			if tt.codes != nil {
				wantAction = ActionDrift
			}
			if tt.changes != nil {
				wantAction = ActionChange
			}
			if tp.Action != wantAction {
				t.Errorf("action %s, want %s", tp.Action, wantAction)
			}

			apply(t, client, plan)
			for _, change := range tt.changes {
				before[change.Setting] = change.To
			}
			wantDiff(t, "settings after apply", settingsOf(t, client, tt.topic), before)
			for topic, left := range codes(makePlan(t, client, ladder("orders"))) {
				for _, code := range left {
					if strings.HasSuffix(code, "+") {
						t.Errorf("%s: %s is left after apply", topic, code)
					}
				}
			}
		})
	}
}

func TestPartitionsGrowToTheOriginsCountAndNeverShrink(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 6, nil)
	l := ladder("orders")
	l.ReturnTo = "orders.billing"
	for topic, partitions := range map[string]int32{"orders.billing": 2, "orders.retry": 1, "orders.retry.10s": 6, "orders.retry.10d": 9, "orders.dlt": 5} {
		seedTopic(t, cluster, topic, partitions, fit())
	}
	client := fakeClient(t, cluster)
	plan := makePlan(t, client, l)
	wantDiff(t, "codes", codes(plan), map[string][]string{
		"orders.billing": {"error fewer-partitions"},
		"orders.retry":   {"error fewer-partitions +"},
		"orders.dlt":     {"error fewer-partitions +"},
	})
	wantDiff(t, "acts", apply(t, client, plan), []string{"orders.retry: partitions 1 -> 6", "orders.dlt: partitions 5 -> 6"})
	for topic, want := range map[string]int{"orders": 6, "orders.billing": 2, "orders.retry": 6, "orders.retry.10s": 6, "orders.retry.10d": 9, "orders.dlt": 6} {
		if got := len(cluster.PartitionInfos(topic)); got != want {
			t.Errorf("%s has %d partitions, want %d", topic, got, want)
		}
	}
}

func TestMissingOriginIsAnErrorAndBlocksOnlyItsOwnLadder(t *testing.T) {
	cluster := fakeCluster(t, kfake.AllowAutoTopicCreation())
	seedTopic(t, cluster, "orders", 2, nil)
	short := fit()
	short[retentionMs] = "1000"
	seedTopic(t, cluster, "payments.retry", 1, short)
	client := fakeClient(t, cluster)
	plan := makePlan(t, client, ladder("orders"), ladder("payments"))
	got := actions(plan)
	wantDiff(t, "actions", got, map[string]Action{
		"orders": ActionNone, "orders.retry": ActionCreate, "orders.retry.10s": ActionCreate, "orders.retry.10d": ActionCreate, "orders.dlt": ActionCreate,
		"payments": ActionMissing, "payments.retry": ActionChange, "payments.retry.10s": ActionBlocked, "payments.retry.10d": ActionBlocked, "payments.dlt": ActionBlocked,
	})
	err := plan.Apply(t.Context(), client, func(Act) {})
	if err == nil || !strings.Contains(err.Error(), "payments: left alone: The origin does not exist") {
		t.Errorf("apply: %v", err)
	}
	for topic, want := range map[string]bool{"orders.dlt": true, "payments": false, "payments.dlt": false} {
		if got := cluster.TopicInfo(topic) != nil; got != want {
			t.Errorf("%s exists: %v, want %v", topic, got, want)
		}
	}
	if got := settingsOf(t, client, "payments.retry")[retentionMs]; got != "604800000" {
		t.Errorf("the inbox that exists keeps %s ms", got)
	}
}

func TestSharedTopicIsFitForEveryLadder(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 2, map[string]string{maxMessageBytes: "3000000"})
	seedTopic(t, cluster, "payments", 5, nil)
	one, two := ladder("orders"), ladder("payments")
	one.DeadLetters, two.DeadLetters = "graveyard", "graveyard"
	tp := topicPlan(t, makePlan(t, fakeClient(t, cluster), one, two), "graveyard")
	if tp.Partitions != 5 || tp.Settings[maxMessageBytes] != "3016384" || !cmp.Equal(tp.Origins, []string{"orders", "payments"}) {
		t.Errorf("plan is %+v", tp)
	}
}

func TestTopicWithTwoRolesIsLeftAlone(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 2, nil)
	seedTopic(t, cluster, "orders.retry", 1, map[string]string{retentionMs: "1000"})
	l, second := ladder("orders"), ladder("orders.retry") // The inbox of one is the origin of the other.
	client := fakeClient(t, cluster)
	plan := makePlan(t, client, l, second)
	wantDiff(t, "codes", codes(plan)["orders.retry"], []string{"error two-roles"})
	if err := plan.Apply(t.Context(), client, func(Act) {}); err == nil || !strings.Contains(err.Error(), "orders.retry: left alone") {
		t.Errorf("apply: %v", err)
	}
	if got := settingsOf(t, client, "orders.retry")[retentionMs]; got != "1000" || len(cluster.PartitionInfos("orders.retry")) != 1 {
		t.Error("a topic that is an origin was altered")
	}
}

func TestReturnTopicMayBeTheOriginOfAnotherEntry(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 2, nil)
	l := ladder("orders")
	l.ReturnTo = "orders.billing"
	plan := makePlan(t, fakeClient(t, cluster), l, ladder("orders.billing"))
	if tp := topicPlan(t, plan, "orders.billing"); tp.Role != RoleOrigin || tp.Action != ActionMissing {
		t.Errorf("plan is %+v", tp)
	}
}

func TestOneUnreadableTopicHidesNoOther(t *testing.T) {
	user := func(acls ...kfake.ACL) kfake.Opt { return kfake.User(MechanismPlain, "forwarder", "secret", acls...) }
	allow := func(topic string, operations ...kmsg.ACLOperation) []kfake.ACL {
		var acls []kfake.ACL
		for _, operation := range operations {
			acls = append(acls, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true})
		}
		return acls
	}
	acls := allow("orders", kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs)
	acls = append(acls, allow("orders.retry", kmsg.ACLOperationDescribe)...)
	acls = append(acls, allow("orders.retry.10s", kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs)...)
	cluster := fakeCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), user(acls...))
	seedTopic(t, cluster, "orders", 2, nil)
	for _, topic := range []string{"orders.retry", "orders.retry.10s", "orders.retry.10d", "orders.dlt"} {
		settings := fit()
		settings[retentionMs] = "1"
		seedTopic(t, cluster, topic, 2, settings)
	}
	client := newClient(t, Options{Brokers: cluster.ListenAddrs(), SASL: &SASLOptions{Mechanism: MechanismPlain, Username: "forwarder", Password: "secret"}})
	plan := makePlan(t, client, ladder("orders"))
	wantDiff(t, "codes", codes(plan), map[string][]string{
		"orders":           {"error acl-missing"}, // It may be described, and not written to.
		"orders.retry":     {"error acl-missing", "warning config-unreadable"},
		"orders.retry.10s": {"error retention-below-delay +", "error acl-missing"},
		"orders.retry.10d": {"error acl-missing"},
		"orders.dlt":       {"error acl-missing"},
	})
	for _, problem := range plan.Problems() {
		if !problem.FixedByApply && !strings.Contains(problem.Remedy, "kafka-acls.sh") {
			t.Errorf("%s: remedy %q", problem.Code, problem.Remedy)
		}
	}

	// What the principal may not do is an error of that act.
	var acts []Act
	err := plan.Apply(t.Context(), client, func(a Act) { acts = append(acts, a) })
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "orders.retry.10s: retention.ms 1 -> 604800000") || !strings.Contains(err.Error(), "orders.dlt: left alone") {
		t.Errorf("apply: %v", err)
	}
	if len(acts) != 1 || acts[0].Err == nil {
		t.Errorf("acts: %v", acts)
	}
}

func TestApplyTakesATopicThatSomebodyElseCreatedMeanwhile(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 2, nil)
	client := fakeClient(t, cluster)
	plan := makePlan(t, client, ladder("orders"))
	seedTopic(t, cluster, "orders.retry", 1, nil)
	acts := apply(t, client, plan)
	if len(acts) != 3 {
		t.Errorf("acts: %v", acts)
	}
	if len(cluster.PartitionInfos("orders.retry")) != 1 {
		t.Error("the topic of somebody else was altered by an old plan")
	}
}

func TestApplyWaitsUntilTopicsAreVisibleWithLeaders(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 4, nil)
	seedTopic(t, cluster, "orders.retry", 1, fit())
	client := fakeClient(t, cluster)
	plan := makePlan(t, client, ladder("orders"))

	// The first answers after the changes do not show them yet.
	hide := []func(*kmsg.MetadataResponseTopic){
		func(topic *kmsg.MetadataResponseTopic) {
			*topic = kmsg.MetadataResponseTopic{Topic: topic.Topic, ErrorCode: kerr.UnknownTopicOrPartition.Code}
		},
		func(topic *kmsg.MetadataResponseTopic) { topic.Partitions = topic.Partitions[:1] },
		func(topic *kmsg.MetadataResponseTopic) { topic.Partitions[3].Leader = -1 },
	}
	hidden := 0
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request := req.(*kmsg.MetadataRequest)
		if hidden == len(hide) || len(request.Topics) == 0 || cluster.TopicInfo("orders.dlt") == nil {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.MetadataResponse)
		for _, topic := range request.Topics {
			visible := kmsg.NewMetadataResponseTopic()
			visible.Topic = topic.Topic
			for i := range int32(4) {
				partition := kmsg.NewMetadataResponseTopicPartition()
				partition.Partition = i
				visible.Partitions = append(visible.Partitions, partition)
			}
			if *topic.Topic == "orders.retry" {
				hide[hidden](&visible)
			}
			response.Topics = append(response.Topics, visible)
		}
		hidden++
		return response, nil, true
	})
	apply(t, client, plan)
	if hidden != len(hide) {
		t.Errorf("apply returned after %d answers that did not show the grown topic, want %d", hidden, len(hide))
	}
}

func TestApplyLeavesAnOriginAloneWhateverThePlanSays(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 2, nil)
	client := fakeClient(t, cluster)
	plan := &Plan{Topics: []TopicPlan{
		{Topic: "orders", Role: RoleOrigin, Action: ActionChange, Changes: []Change{{partitionCount, "2", "4"}, {retentionMs, "1", "2"}}},
		{Topic: "payments", Role: RoleOrigin, Action: ActionCreate, Partitions: 1, Replication: 1},
		{Topic: "orders.billing", Role: RoleReturn, Action: ActionChange, Changes: []Change{{partitionCount, "2", "4"}}},
	}}
	wantDiff(t, "acts", apply(t, client, plan), []string{})
}

func TestPlanIsAnErrorWhenNoBrokerAnswers(t *testing.T) {
	client := newClient(t, Options{Brokers: []string{"127.0.0.1:1"}}, kgo.RequestRetries(0))
	if plan, err := MakePlan(t.Context(), client, Preflight{Ladders: []Ladder{ladder("orders")}}); err == nil || Classify(err) != Transient {
		t.Errorf("MakePlan = %v, %v", plan, err)
	}
}

func TestEveryProblemHasASentenceAndARemedy(t *testing.T) {
	cluster := fakeCluster(t, kfake.NumBrokers(3))
	seedTopic(t, cluster, "orders", 4, map[string]string{minInsync: "2"})
	one := kadm.NewClient(fakeClient(t, cluster))
	compact, small := "compact,delete", "10"
	for _, topic := range []string{"orders.retry", "orders.retry.10s", "orders.dlt"} {
		if _, err := one.CreateTopic(t.Context(), 1, 1, map[string]*string{cleanupPolicy: &compact, retentionMs: &small, retentionBytes: &small, maxMessageBytes: &small}, topic); err != nil {
			t.Fatal(err)
		}
	}
	plan := makePlan(t, fakeClient(t, cluster), ladder("orders"), ladder("payments"))
	seen := make(map[issue.Code]bool)
	for _, p := range plan.Problems() {
		seen[p.Code] = true
		if p.Topic == "" || !strings.HasSuffix(p.Message, ".") || len(p.Remedy) < 10 {
			t.Errorf("%+v", p)
		}
		if strings.Contains(p.Remedy, ".sh") && !strings.Contains(p.Remedy, cluster.ListenAddrs()[0]) {
			t.Errorf("%s: the remedy does not name the brokers: %s", p.Code, p.Remedy)
		}
	}
	for _, code := range []issue.Code{
		issue.OriginMissing, issue.TopicMissing, issue.FewerPartitions, issue.Compacted, issue.RetentionBelowDelay, issue.TierRetentionShort, issue.DLTRetentionShort,
		issue.RetentionBytes, issue.TimestampType, issue.MessageBytes, issue.MinISR, issue.Replication,
	} {
		if !seen[code] {
			t.Errorf("no problem of code %s", code)
		}
	}
}

func TestPlanRendersAsTextAndJSON(t *testing.T) {
	plan := &Plan{Topics: []TopicPlan{
		{Topic: "orders", Role: RoleOrigin, Origins: []string{"orders"}, Action: ActionNone, Partitions: 8, Replication: 3},
		{
			Topic: "orders.retry", Role: RoleInbox, Origins: []string{"orders"}, Action: ActionCreate, Partitions: 8, Replication: 3,
			Settings: map[string]string{retentionMs: "604800000", cleanupPolicy: "delete"},
			Problems: []Problem{{Code: issue.TopicMissing, Severity: issue.SeverityError, Topic: "orders.retry", Role: RoleInbox, Message: "The topic does not exist.", Remedy: applyCommand, FixedByApply: true}},
		},
		{
			Topic: "orders.retry.10m", Role: RoleTier, Tier: "10m", Origins: []string{"orders"}, Action: ActionChange, Partitions: 8, Replication: 3,
			Changes:  []Change{{partitionCount, "4", "8"}, {retentionMs, "5400000", "604800000"}},
			Problems: []Problem{{Code: issue.TierRetentionShort, Severity: issue.SeverityWarning, Topic: "orders.retry.10m", Role: RoleTier, Message: "Too short.", Remedy: applyCommand, FixedByApply: true}},
		},
	}}
	var text strings.Builder
	if err := plan.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	wantDiff(t, "text", text.String(), `TOPIC             ROLE      ACTION  DETAIL
orders            origin    ok      partitions 8, replication 3
orders.retry      inbox     create  partitions 8, replication 3, cleanup.policy delete, retention.ms 604800000 (7d)
orders.retry.10m  tier 10m  change  partitions 4 -> 8, retention.ms 5400000 (1h30m) -> 604800000 (7d)

error orders.retry: topic-missing
  The topic does not exist.
  remedy: forwarder topics apply

warning orders.retry.10m: tier-retention-short
  Too short.
  remedy: forwarder topics apply

Topics: 1 to create, 1 to change, 1 ok.
`)
	encoded, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	var back Plan
	if err := json.Unmarshal(encoded, &back); err != nil {
		t.Fatal(err)
	}
	wantDiff(t, "json", &back, plan)
	for _, want := range []string{`"topics":[{"topic":"orders","role":"origin"`, `"fixedByApply":true`, `"changes":[{"setting":"partitions","from":"4","to":"8"}`} {
		if !strings.Contains(string(encoded), want) {
			t.Errorf("%s is not in %s", want, encoded)
		}
	}
}

// replayed is a ladder with all that the dlt-replayer has to do with.
func replayed(origin string) Ladder {
	l := ladder(origin)
	l.ReplayTrigger = origin + ".dlt.replay"
	l.ReplayTo, l.ReplyTo = []string{"repaired", "payments"}, []string{"answers"}
	return l
}

// The forwarder does nothing with the trigger topic: it is created like the others, and its lack stops nobody.
func TestTriggerTopicIsCreatedAndNeverRefusesTheForwarder(t *testing.T) {
	cluster := fakeCluster(t, kfake.NumBrokers(1))
	seedTopic(t, cluster, "orders", 3, nil)
	client := fakeClient(t, cluster)
	l := replayed("orders")
	plan := makePlan(t, client, l)
	trigger := topicPlan(t, plan, "orders.dlt.replay")
	if trigger.Action != ActionCreate || trigger.Role != RoleTrigger || trigger.Partitions != 3 || trigger.Settings[retentionMs] != "86400000" {
		t.Errorf("%+v", trigger)
	}
	wantDiff(t, "problems of the trigger", codes(plan)["orders.dlt.replay"], []string{"warning trigger-missing +"})
	for _, p := range trigger.Problems {
		if p.LosesRecords() {
			t.Errorf("%s refuses a start", p.Code)
		}
	}
	for _, topic := range []string{"repaired", "payments", "answers"} {
		if slices.ContainsFunc(plan.Topics, func(tp TopicPlan) bool { return tp.Topic == topic }) {
			t.Errorf("the plan for the forwarder looks at %s", topic)
		}
	}
	apply(t, client, plan)
	if again := makePlan(t, client, l); again.Changed() || len(again.Problems()) > 0 {
		t.Errorf("after apply: %v, %v", actions(again), again.Problems())
	}
}

func TestPlanForTheReplayerLooksAtWhatItReadsAndWrites(t *testing.T) {
	cluster := fakeCluster(t, kfake.NumBrokers(1))
	seedTopic(t, cluster, "orders", 2, nil)
	seedTopic(t, cluster, "payments", 2, nil)
	seedTopic(t, cluster, "payments.dlt", 2, map[string]string{cleanupPolicy: "delete", retentionMs: "3600000", timestampType: logAppendTime, maxMessageBytes: "2000000"})
	client := fakeClient(t, cluster)
	plan := preflight(t, client, Preflight{Replayer: true, Ladders: []Ladder{replayed("orders"), ladder("payments")}})
	wantDiff(t, "actions", actions(plan), map[string]Action{
		"orders": ActionNone, "payments": ActionNone, "orders.dlt": ActionCreate, "orders.dlt.replay": ActionCreate,
		"payments.dlt": ActionChange, "repaired": ActionMissing, "answers": ActionMissing,
	})
	wantDiff(t, "problems", codes(plan), map[string][]string{
		"orders.dlt": {"error topic-missing +"}, "orders.dlt.replay": {"warning trigger-missing +"},
		"payments.dlt": {"warning dlt-retention-short +"}, "repaired": {"error topic-missing"}, "answers": {"error topic-missing"},
	})
}
