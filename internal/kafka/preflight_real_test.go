package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// realLadder creates the topics of a ladder with its own client, so that they are as
// apply makes them.
func realLadder(t *testing.T, k *testkit.Kafka, client *kgo.Client, partitions int32, settings map[string]string) Ladder {
	t.Helper()
	origin := testkit.UniqueName("orders")
	k.Client(t).CreateTopic(origin, partitions, settings)
	l := ladder(origin)
	apply(t, client, makePlan(t, client, l))
	return l
}

func TestAnOriginWithEverythingWrongIsTold(t *testing.T) {
	k := testkit.RealKafka(t, 3)
	client := realClient(t, k)
	l := realLadder(t, k, client, 2, map[string]string{minInsync: "1", uncleanElection: "true", timestampType: logAppendTime})
	plan := makePlan(t, client, l)
	wantDiff(t, "codes", codes(plan), map[string][]string{l.Origin: {"warning origin-log-append-time", "warning min-isr", "warning unclean-election"}})
}

// librdkafka's own producer is what the sample must recognise.
func TestTheSampleRecognisesRealProducers(t *testing.T) {
	k := testkit.RealKafka(t, 1)
	client := realClient(t, k)
	for kcatName, partitioner := range map[string]Partitioner{"consistent_random": CRC32, "murmur2_random": Murmur2, "fnv1a_random": FNV1a, "random": ""} {
		t.Run(kcatName, func(t *testing.T) {
			l := realLadder(t, k, client, 20, nil) // Not all partitions are sampled.
			l.Partitioner = Murmur2
			var lines strings.Builder
			for i := range 2000 {
				fmt.Fprintf(&lines, "customer-%d:v\n", i*7)
			}
			testkit.Kcat(t, []byte(lines.String()), "-P", "-b", strings.Join(k.Brokers(), ","), "-t", l.Origin, "-K", ":", "-z", "lz4", "-X", "topic.partitioner="+kcatName)
			plan := makePlan(t, client, l)
			s := plan.Samples[0]
			want := string(partitioner)
			if partitioner == "" {
				want = VerdictNone
			}
			if s.Verdict != want || s.Keys < 200 || s.Records > sampleRecords || partitioner != "" && s.Fits[partitioner] != s.Keys {
				t.Errorf("sample: %+v", s)
			}
			if want == string(Murmur2) {
				none(t, plan, issue.PartitionerMismatch)
			} else {
				one(t, plan, issue.PartitionerMismatch)
			}
		})
	}
}

// Transactions leave marks in the log that are no records: they must not keep a
// reader waiting for the end.
func TestTheSampleReadsPastTransactionMarks(t *testing.T) {
	k := testkit.RealKafka(t, 1)
	client := realClient(t, k)
	l := realLadder(t, k, client, 2, nil)
	producer := newClient(t, Options{Brokers: k.Brokers()}, kgo.TransactionalID(l.Origin), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, producer, keyed(l.Origin, 100, func(key []byte, _ int) int { return Murmur2.Partition(key, 2) })...)
		if err := producer.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	// One that waits in vain waits each time.
	var took time.Duration
	for range 5 {
		began := time.Now()
		s := makePlan(t, client, l).Samples[0]
		took = time.Since(began)
		if s.Records != 100 || s.Verdict != "murmur2" {
			t.Errorf("sample: %+v", s)
		}
		if took < readIdle {
			return
		}
	}
	t.Errorf("the plan takes %s", took)
}

// The clock of the test's own plan is set back: to it the broker is ahead.
func TestABrokerThatIsAheadIsTold(t *testing.T) {
	k := testkit.RealKafka(t, 1)
	client := realClient(t, k)
	l := realLadder(t, k, client, 2, nil)
	p := Preflight{Ladders: []Ladder{l}, now: func() time.Time { return time.Now().Add(-5 * time.Second) }}
	none(t, preflight(t, client, p), issue.ClockSkew) // Nothing was stamped yet.
	produce(t, client, &kgo.Record{Topic: l.Tiers[0].Topic, Value: []byte("v")})
	skew := one(t, preflight(t, client, p), issue.ClockSkew)
	if skew.Topic != l.Tiers[0].Topic || skew.Role != RoleTier {
		t.Errorf("told of %s, %s", skew.Topic, skew.Role)
	}
	wantWords(t, skew.Message, "broker 1 is ", "s or more ahead", l.Tiers[0].Topic+"/")
	none(t, makePlan(t, client, l), issue.ClockSkew)
}

func TestWhatAGroupStillDrainsIsShownOnARealCluster(t *testing.T) {
	k := testkit.RealKafka(t, 1)
	client := realClient(t, k)
	l := realLadder(t, k, client, 2, nil)
	admin := k.Client(t)
	group := testkit.UniqueName("redrive")
	retired, gone := l.Origin+".retry.5m", l.Origin+".retry.gone"
	admin.CreateTopic(retired, 1, nil)
	admin.CreateTopic(gone, 1, nil)
	for range 3 {
		produce(t, client, &kgo.Record{Topic: retired, Value: []byte("v")})
	}
	commit(t, client, group, retired, 0, 1, "redrive/1 2 ")
	commit(t, client, group, gone, 0, 0, "redrive/1 2 ")
	commit(t, client, "billing-"+group, l.Origin, 0, 0, "")
	commit(t, client, "audit-"+group, l.Origin, 0, 0, "")
	if _, err := admin.Admin().DeleteTopic(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, time.Minute, "the plan to show what is retired and no more", func(ctx context.Context) error {
		plan, err := MakePlan(ctx, client, Preflight{Ladders: []Ladder{l}, Group: group})
		if err != nil {
			return err
		}
		if diff := cmp.Diff([]Retired{{Topic: retired, Left: 2}}, plan.Retired); diff != "" {
			return errors.New(diff) // The brokers may still know the deleted topic.
		}
		wantWords(t, one(t, plan, issue.SharedOrigin).Message, "audit-"+group+", billing-"+group)
		none(t, plan, issue.ACLMissing)
		return nil
	})
}

// The commands that a plan names are carried out here as they stand there, and must
// be all that it takes.
func TestTheGrantsThatAPlanNamesAreEnoughAndNeeded(t *testing.T) {
	k := testkit.OwnKafka(t, testkit.KafkaOptions{
		Brokers: 1,
		Secure:  &testkit.Secure{Protocol: "SASL_PLAINTEXT", Users: map[string]string{"forwarder": "secret"}},
	})
	super := realClient(t, k)
	l := realLadder(t, k, super, 2, nil)
	client := newClient(t, Options{Brokers: k.SecureBrokers(), SASL: &SASLOptions{Mechanism: MechanismPlain, Username: "forwarder", Password: "secret"}})
	p := Preflight{Ladders: []Ladder{l}, Group: "redrive", Principal: "User:forwarder"}

	grant := func(command string) {
		fields := strings.Fields(command)
		acls := kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral)
		var operations []kadm.ACLOperation
		for i := 0; i+1 < len(fields); i++ {
			switch value := fields[i+1]; fields[i] {
			case "--allow-principal":
				acls.Allow(value).AllowHosts()
			case "--topic":
				acls.Topics(value)
			case "--group":
				acls.Groups(value)
			case "--operation":
				operation, err := kmsg.ParseACLOperation(value)
				if err != nil {
					t.Fatal(err)
				}
				operations = append(operations, operation)
			}
		}
		if _, err := kadm.NewClient(super).CreateACLs(t.Context(), acls.Operations(operations...)); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	// A group that does not exist may be described, and no permissions with it.
	grant("--allow-principal User:forwarder --operation Describe --group redrive")
	testkit.WaitFor(t, time.Minute, "the group to be described", func(ctx context.Context) error {
		_, err := kadm.NewClient(client).DescribeGroups(ctx, "redrive")
		return err
	})
	plan := preflight(t, client, p)
	if n := len(plan.Problems()); n != 7 { // Five topics and two groups.
		t.Fatalf("%d problems: %+v", n, plan.Problems())
	}
	for _, problem := range plan.Problems() {
		if problem.Code != issue.ACLMissing {
			t.Errorf("unexpected: %+v", problem)
		}
		grant(problem.Remedy)
	}
	testkit.WaitFor(t, time.Minute, "a plan without problems", func(ctx context.Context) error {
		plan, err := MakePlan(ctx, client, p)
		if err != nil {
			return err
		}
		if left := plan.Problems(); len(left) > 0 {
			return fmt.Errorf("left: %+v", left)
		}
		return nil
	})

	// What the forwarder does works with them, and nothing more was asked for.
	produce(t, client, &kgo.Record{Topic: l.Origin}, &kgo.Record{Topic: l.Tiers[0].Topic}, &kgo.Record{Topic: l.DeadLetters})
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: l.Inbox}).FirstErr(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("write to the inbox: %v", err)
	}
	commit(t, client, "redrive", l.Inbox, 0, 0, "redrive/1 2 ")

	// A permission that is taken away is told again, of the topic that lacks it.
	deny := kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral).Topics(l.Tiers[0].Topic).Groups("redrive").
		Deny("User:forwarder").DenyHosts().Operations(kadm.OpRead)
	if _, err := kadm.NewClient(super).CreateACLs(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, time.Minute, "a plan that tells it", func(ctx context.Context) error {
		plan, err := MakePlan(ctx, client, p)
		if err != nil {
			return err
		}
		want := map[string][]string{l.Tiers[0].Topic: {"error acl-missing"}, "": {"error acl-missing"}}
		if diff := cmp.Diff(want, codes(plan)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}
