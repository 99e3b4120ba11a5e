package forwarder

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kafka-redrive/redrive/internal/tiers"
)

func TestADecisionStandsUntilItIsVoidReplacedOrOld(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		admin := r.client.Admin()
		expect := func(when string, want map[string]map[int32]decision, topics ...string) {
			t.Helper()
			got, err := fetchDecisions(t.Context(), admin, "redrive-forwarder", topics...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(decision{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		write := func(topic string, partition int32, d decision) {
			t.Helper()
			if err := writeDecision(t.Context(), admin, "redrive-forwarder", topic, partition, d); err != nil {
				t.Fatal(err)
			}
		}
		none := map[string]map[int32]decision{}
		expect("before", none)
		write("orders.retry", 1, decision{at: 0, was: -1})
		write("orders.retry.10s", 2, decision{at: 7, was: 1})
		write("orders.retry.10s", 2, decision{at: 9, was: 3})
		expect("written", map[string]map[int32]decision{
			"orders.retry":     {1: {at: 0, was: -1}},
			"orders.retry.10s": {2: {at: 9, was: 3}},
		})
		expect("of one topic", map[string]map[int32]decision{"orders.retry": {1: {at: 0, was: -1}}}, "orders.retry")
		if err := voidDecision(t.Context(), admin, "redrive-forwarder", "orders.retry.10s", 2); err != nil {
			t.Fatal(err)
		}
		expect("void", map[string]map[int32]decision{"orders.retry": {1: {at: 0, was: -1}}})
		time.Sleep(decisionLasts - time.Minute)
		expect("not old yet", map[string]map[int32]decision{"orders.retry": {1: {at: 0, was: -1}}})
		time.Sleep(2 * time.Minute)
		expect("old", none)
	})
}

func TestOnlyWhatWasWrittenAsADecisionIsOne(t *testing.T) {
	for _, text := range []string{
		"", "redrive/1", "redrive/1 done", "redrive/1 0 ", "redrive/1 12 AwQ", "redrive/2 was=1 until=99999999999",
		"redrive/1 was=1", "redrive/1 was=x until=99999999999", "redrive/1 was=-2 until=99999999999", "redrive/1 was=1 until=",
		"redrive/1 until=99999999999 was=1", "redrive/1 1 99999999999", "redrive/1 was=1 until=99999999999 ", "was=1 until=99999999999",
	} {
		if was, until, ok := parseDecision(text); ok {
			t.Errorf("%q is taken as a decision: was %d until %v", text, was, until)
		}
	}
	for _, want := range []int64{-1, 0, 1 << 60} {
		was, until, ok := parseDecision(fmt.Sprintf("redrive/1 was=%d until=1700000000", want))
		if !ok || was != want || until.Unix() != 1700000000 {
			t.Errorf("was %d: %d %v %v", want, was, until, ok)
		}
	}
}
