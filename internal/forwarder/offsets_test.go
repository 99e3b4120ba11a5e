package forwarder

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/ordering"
	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

const testGroup = "redrive-forwarder"

func oneTier() []tiers.Tier { return []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}} }

func (r *rig) operator() *Operator {
	r.t.Helper()
	o, err := NewOperator(r.t.Context(), r.client.Kafka(), r.opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

// commitAt commits for a group without members on partition 0 of the tier of
// oneTier.
func (r *rig) commitAt(group string, at int64, done ordering.Ranges) {
	r.t.Helper()
	text, _ := done.AppendText([]byte("redrive/1 4 "), at, maxMetadata)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "orders.retry.10s", At: at, LeaderEpoch: -1, Metadata: string(text)})
	if err := r.client.Admin().CommitAllOffsets(r.t.Context(), group, offsets); err != nil {
		r.t.Fatal(err)
	}
}

// trim removes the records of that tier below an offset, as retention does.
func (r *rig) trim(partition int32, below int64) {
	r.t.Helper()
	r.client.DeleteRecords("orders.retry.10s", map[int32]int64{partition: below})
}

// positions are the offsets of one partition.
func (r *rig) positions(topic string, partition int32) PartitionOffsets {
	r.t.Helper()
	rows, err := r.operator().Offsets(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, row := range rows {
		if row.Partition == partition {
			return row
		}
	}
	r.t.Fatalf("no row of %s/%d in %+v", topic, partition, rows)
	return PartitionOffsets{}
}

func TestTheStateOfAPartitionIsToldWithItsFigures(t *testing.T) {
	const topic = "orders.retry.10s"
	for name, test := range map[string]struct {
		prepare func(r *rig)
		want    PartitionOffsets
	}{
		"nothing was ever there": {
			func(*rig) {},
			PartitionOffsets{Commit: -1, State: StateNew},
		},
		"records and a group that is plainly new": {
			func(r *rig) { r.produceTo(0, 10) },
			PartitionOffsets{Commit: -1, End: 10, Lag: 10, State: StateNew},
		},
		"the commit is in the topic": {
			func(r *rig) { r.produceTo(0, 10); r.commitAt(testGroup, 4, nil) },
			PartitionOffsets{Commit: 4, End: 10, Lag: 6, State: StateOK},
		},
		"some above the commit are finished": {func(r *rig) {
			r.produceTo(0, 10)
			r.commitAt(testGroup, 2, ordering.Ranges{{From: 3, To: 5}, {From: 7, To: 8}})
		}, PartitionOffsets{Commit: 2, End: 10, Lag: 5, Finished: 3, State: StateOK}},
		"the commit is gone": {
			func(r *rig) { r.produceTo(0, 10); r.trim(0, 3) },
			PartitionOffsets{Start: 3, Commit: -1, End: 10, Lag: 7, State: "offset-missing"},
		},
		"another group has a commit": {
			func(r *rig) { r.produceTo(0, 10); r.commitAt("redrive-forwader", 1, nil) },
			PartitionOffsets{Commit: -1, End: 10, Lag: 10, State: "offset-missing"},
		},
		"the commit is below the topic": {
			func(r *rig) { r.produceTo(0, 10); r.commitAt(testGroup, 1, nil); r.trim(0, 5) },
			PartitionOffsets{Start: 5, Commit: 1, End: 10, Lag: 5, State: "offset-out-of-range"},
		},
		"the commit is above the topic": {
			func(r *rig) { r.produceTo(0, 10); r.commitAt(testGroup, 99, nil) },
			PartitionOffsets{Commit: 99, End: 10, Lag: 10, State: "offset-out-of-range"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, oneTier(), func(t *testing.T, r *rig) {
				test.prepare(r)
				got := r.positions(topic, 0)
				test.want.Topic = topic
				if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(PartitionOffsets{}), cmpopts.IgnoreFields(PartitionOffsets{}, "Detail")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if (got.Detail != "") != got.undecided() {
					t.Errorf("state %s, detail %q", got.State, got.Detail)
				}
			})
		})
	}
}

func TestAMissingTopicIsAStateAndNotAnError(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		if _, err := r.client.Admin().DeleteTopic(t.Context(), "orders.retry.10s"); err != nil {
			t.Fatal(err)
		}
		rows, err := r.operator().Offsets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != partitions+1 || rows[partitions].State != "topic-missing" || rows[partitions].Partition != -1 {
			t.Errorf("%+v", rows)
		}
		found, err := r.operator().Find(t.Context(), Query{MessageID: "x", Limit: 1}, func(Progress) {})
		if err != nil || !found.Complete {
			t.Errorf("find: %+v %v", found, err)
		}
	})
}

func TestAPositionIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]Position{
		"earliest":             {kind: earliest},
		"latest":               {kind: latest},
		"0":                    {kind: atOffset},
		"42":                   {kind: atOffset, offset: 42},
		"2026-01-31T10:00:00Z": {kind: atTime, time: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)},
	} {
		got, err := ParsePosition(text)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Position{})); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"", "first", "-1", "1.5", "2026-01-31", "99999999999999999999"} {
		if got, err := ParsePosition(text); err == nil {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}

// What a change passes and what it repeats is counted against what is known of
// the group: nothing, where its commit is not in the topic.
func TestAChangeTellsWhatItSkipsAndWhatItRepeats(t *testing.T) {
	for name, test := range map[string]struct {
		row               PartitionOffsets
		to                int64
		skipped, repeated int64
	}{
		"missing, to the start":              {PartitionOffsets{Start: 10, Commit: -1, End: 30}, 10, 0, 20},
		"missing, into the middle":           {PartitionOffsets{Start: 10, Commit: -1, End: 30}, 17, 7, 13},
		"missing, to the end":                {PartitionOffsets{Start: 10, Commit: -1, End: 30}, 30, 20, 0},
		"below the topic, to the start":      {PartitionOffsets{Start: 10, Commit: 3, End: 30}, 10, 0, 0},
		"below the topic, to the end":        {PartitionOffsets{Start: 10, Commit: 3, End: 30, done: ordering.Ranges{{From: 5, To: 12}}}, 30, 18, 0},
		"above the topic, to the start":      {PartitionOffsets{Start: 10, Commit: 99, End: 30}, 10, 0, 20},
		"healthy, forwards over finished":    {PartitionOffsets{Start: 10, Commit: 15, End: 30, done: ordering.Ranges{{From: 18, To: 20}}}, 22, 5, 0},
		"healthy, back":                      {PartitionOffsets{Start: 10, Commit: 15, End: 30}, 12, 0, 3},
		"healthy, where it is":               {PartitionOffsets{Start: 10, Commit: 15, End: 30}, 15, 0, 0},
		"nothing there and nothing known":    {PartitionOffsets{Start: 10, Commit: -1, End: 10}, 10, 0, 0},
		"finished up to where it is set now": {PartitionOffsets{Start: 10, Commit: 15, End: 30, done: ordering.Ranges{{From: 16, To: 30}}}, 30, 1, 0},
	} {
		c := test.row.change(test.to)
		if c.Skipped != test.skipped || c.Repeated != test.repeated {
			t.Errorf("%s: skips %d, repeats %d, want %d and %d", name, c.Skipped, c.Repeated, test.skipped, test.repeated)
		}
	}
}

func TestACommitFromOutsideKeepsWhatIsFinishedUnlessItGoesBack(t *testing.T) {
	row := PartitionOffsets{Start: 10, Commit: 15, End: 99, originPartitions: 7, done: ordering.Ranges{{From: 18, To: 20}, {From: 25, To: 26}, {From: 40, To: 50}}}
	for name, test := range map[string]struct {
		to, at int64
		done   ordering.Ranges
	}{
		"below all":                 {16, 16, row.done},
		"where a range begins":      {18, 20, row.done[1:]},
		"inside of a range":         {19, 20, row.done[1:]},
		"between two":               {22, 22, row.done[1:]},
		"back: they come again":     {12, 12, nil},
		"above all":                 {60, 60, nil},
		"where it stands, unmoved":  {15, 15, row.done},
		"at the end of a range":     {20, 20, row.done[1:]},
		"at the end of all of them": {50, 50, nil},
	} {
		c := row.change(test.to)
		at, metadata := c.commit()
		count, done, err := parseMetadata(metadata, at)
		if err != nil || at != test.at || count != 7 || !slices.Equal(done, test.done) {
			t.Errorf("%s: at %d, %d partitions, done %v, %v; want %d and %v", name, at, count, done, err, test.at, test.done)
		}
	}
}

func TestAGroupWithoutMembersIsSetAtOnce(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		const topic = "orders.retry.10s"
		for p := range int32(2) {
			r.produceTo(p, 10)
			r.trim(p, 3)
		}
		o := r.operator()
		changes, err := o.PlanOffsets(t.Context(), topic, nil, Position{kind: earliest})
		if err != nil {
			t.Fatal(err)
		}
		if len(changes) != 2 {
			t.Fatalf("%d changes, want those of the two partitions that are lost: %+v", len(changes), changes)
		}
		if err := o.SetOffsets(t.Context(), changes, time.Minute, func(int) { t.Error("it waits") }); err != nil {
			t.Fatal(err)
		}
		for p := range int32(2) {
			if row := r.positions(topic, p); row.State != StateOK || row.Commit != 3 {
				t.Errorf("partition %d: %+v", p, row)
			}
		}
		if _, err := o.PlanOffsets(t.Context(), topic, nil, Position{kind: latest}); !errors.Is(err, ErrNothingToSet) {
			t.Errorf("nothing is left to decide: %v", err)
		}
		r.start()
		if got := r.await(time.Minute, "orders", 14); len(got) != 14 {
			t.Errorf("%d records on the origin, want 14", len(got))
		}
	})
}

func TestAPositionOutsideOfThePartitionIsRefused(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		const topic = "orders.retry.10s"
		r.produceTo(0, 10)
		r.trim(0, 3)
		for at, ok := range map[int64]bool{2: false, 3: true, 10: true, 11: false} {
			_, err := r.operator().PlanOffsets(t.Context(), topic, []int32{0}, Position{kind: atOffset, offset: at})
			if (err == nil) != ok {
				t.Errorf("offset %d: %v", at, err)
			}
		}
		if _, err := r.operator().PlanOffsets(t.Context(), topic, []int32{partitions}, Position{}); err == nil {
			t.Error("a partition that is not there is taken")
		}
		time.Sleep(time.Hour)
		r.produceTo(0, 5)
		changes, err := r.operator().PlanOffsets(t.Context(), topic, []int32{0}, Position{kind: atTime, time: time.Now().Add(-time.Minute)})
		if err != nil || changes[0].To != 10 {
			t.Errorf("by time: %+v %v", changes, err)
		}
		changes, err = r.operator().PlanOffsets(t.Context(), topic, []int32{0}, Position{kind: atTime, time: time.Now().Add(time.Minute)})
		if err != nil || changes[0].To != 15 {
			t.Errorf("by a time after all records: %+v %v", changes, err)
		}
	})
}

// bystander joins the group without being a forwarder, so that nobody takes a
// decision.
func (r *rig) bystander() {
	r.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Brokers()...), kgo.Dialer(r.kafka.Dial),
		kgo.ConsumerGroup(testGroup), kgo.ConsumeTopics("orders.retry.10s"), kgo.DisableAutoCommit())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(client.Close)
	testkit.WaitFor(r.t, time.Minute, "a member", func(context.Context) error {
		if info := r.kafka.GroupInfo(testGroup); info == nil || len(info.Members) == 0 {
			return errors.New("none")
		}
		return nil
	})
}

func TestADecisionThatNobodyTakesIsWithdrawn(t *testing.T) {
	for name, interrupted := range map[string]bool{"patience ends": false, "the operator interrupts": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, oneTier(), func(t *testing.T, r *rig) {
				const topic = "orders.retry.10s"
				r.produceTo(0, 10)
				r.trim(0, 3)
				r.bystander()
				o := r.operator()
				changes, err := o.PlanOffsets(t.Context(), topic, nil, Position{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began, seen := time.Now(), false
				err = o.SetOffsets(ctx, changes, time.Minute, func(int) {
					standing, err := fetchDecisions(t.Context(), r.client.Admin(), testGroup)
					seen = seen || err == nil && standing[topic][0] == decision{at: 3, was: -1}
					if interrupted && time.Since(began) > 10*time.Second {
						cancel()
					}
				})
				if err == nil || changes[0].Done || changes[0].Error == "" {
					t.Errorf("changes %+v, error %v", changes, err)
				}
				if !seen {
					t.Error("the decision did not stand meanwhile")
				}
				if took := time.Since(began); interrupted != (took < 30*time.Second) || took > 70*time.Second {
					t.Errorf("it took %v", took)
				}
				standing, err := fetchDecisions(t.Context(), r.client.Admin(), testGroup)
				if err != nil || len(standing) != 0 {
					t.Errorf("decisions are left: %v %v", standing, err)
				}
				if row := r.positions(topic, 0); row.Commit != -1 {
					t.Errorf("the commit stands at %d", row.Commit)
				}
			})
		})
	}
}

func TestAPartitionThatIsWellIsLeftToItsForwarder(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: time.Hour}}, func(t *testing.T, r *rig) {
		const topic = "orders.retry.10s"
		r.produceTo(0, 10)
		r.start()
		testkit.WaitFor(t, time.Minute, "the start committed", func(context.Context) error {
			if row := r.positions(topic, 0); row.Commit != 0 {
				return errors.New("not yet")
			}
			return nil
		})
		o := r.operator()
		if _, err := o.PlanOffsets(t.Context(), topic, nil, Position{kind: latest}); !errors.Is(err, ErrNothingToSet) {
			t.Errorf("without a partition: %v", err)
		}
		changes, err := o.PlanOffsets(t.Context(), topic, []int32{0}, Position{kind: latest})
		if err != nil {
			t.Fatal(err)
		}
		err = o.SetOffsets(t.Context(), changes, time.Minute, func(int) { t.Error("it waits") })
		if err == nil || !strings.Contains(err.Error(), "nothing is wrong with this partition") {
			t.Errorf("error %v", err)
		}
		if row := r.positions(topic, 0); row.Commit != 0 {
			t.Errorf("the commit moved to %d", row.Commit)
		}
	})
}

// The forwarder that owns a blocked partition takes the decision and goes on.
func TestARunningForwarderTakesTheDecision(t *testing.T) {
	const topic = "orders.retry.10s"
	for name, test := range map[string]struct {
		prepare func(r *rig)
		to      Position
		want    int
	}{
		"the commit is missing":         {func(r *rig) { r.trim(0, 3) }, Position{}, 7},
		"the commit is below the topic": {func(r *rig) { r.commitAt(testGroup, 1, nil); r.trim(0, 5) }, Position{}, 5},
		"the commit is above the topic": {func(r *rig) { r.commitAt(testGroup, 1000, nil) }, Position{}, 10},
		"some are passed":               {func(r *rig) { r.trim(0, 3) }, Position{kind: atOffset, offset: 6}, 4},
		"all are passed":                {func(r *rig) { r.trim(0, 3) }, Position{kind: latest}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, oneTier(), func(t *testing.T, r *rig) {
				r.produceTo(0, 10)
				test.prepare(r)
				f, _ := r.start()
				r.produceTo(1, 10)
				r.await(time.Minute, "orders", 10)
				o := r.operator()
				changes, err := o.PlanOffsets(t.Context(), topic, nil, test.to)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := o.SetOffsets(t.Context(), changes, time.Minute, func(int) {}); err != nil {
					t.Fatalf("%v %+v", err, changes)
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("it took %v", took)
				}
				got := r.await(time.Minute, "orders", 10+test.want)
				r.produceTo(0, 1)
				got = r.await(time.Minute, "orders", len(got)+1)
				if n := ids(got, "partition")["0"]; n != test.want+1 {
					t.Errorf("%d records of the partition on the origin, want %d", n, test.want+1)
				}
				r.committedAll(topic)
				for _, trouble := range f.Status().Troubles {
					if trouble.Issue != issue.LostToRetention { // What is lost is told for a while.
						t.Errorf("trouble: %+v", trouble)
					}
				}
				standing, err := fetchDecisions(t.Context(), r.client.Admin(), testGroup)
				if err != nil || len(standing) != 0 {
					t.Errorf("decisions are left: %v %v", standing, err)
				}
			})
		})
	}
}

// A decision was made about a state of the group. It says nothing about another.
func TestADecisionForAnotherStateIsNotTaken(t *testing.T) {
	simulate(t, oneTier(), func(t *testing.T, r *rig) {
		const topic = "orders.retry.10s"
		r.produceTo(0, 10)
		r.trim(0, 3)
		r.start()
		if err := writeDecision(t.Context(), r.client.Admin(), testGroup, topic, 0, decision{at: 3, was: 5}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if row := r.positions(topic, 0); row.Commit != -1 {
			t.Errorf("the commit stands at %d", row.Commit)
		}
		if n := sum(r.client.EndOffsets("orders")); n != 0 {
			t.Errorf("%d records were forwarded", n)
		}
		if err := writeDecision(t.Context(), r.client.Admin(), testGroup, topic, 0, decision{at: 3, was: -1}); err != nil {
			t.Fatal(err)
		}
		r.await(time.Minute, "orders", 7)
	})
}
