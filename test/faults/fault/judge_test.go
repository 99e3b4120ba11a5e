package fault

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var start = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// life is a history of one value: in the inbox at 0, in the tier at 1 and due at 10, on the origin at 10.
func life() history {
	h := history{}
	h.add("retry", handedOver, []*kgo.Record{{Value: []byte("v"), Timestamp: after(0)}})
	h.add("tier", waiting, []*kgo.Record{{Value: []byte("v"), Timestamp: after(1), Headers: []kgo.RecordHeader{
		{Key: "redrive-available-at", Value: []byte("2030-01-01T12:00:10.000Z")},
	}}})
	h.add("origin", settled, []*kgo.Record{{Value: []byte("v"), Timestamp: after(10)}})
	return h
}

func TestTheJudgeFindsEachBrokenRule(t *testing.T) {
	inbox, tier, origin := place{"retry", 0, 0}, place{"tier", 0, 0}, place{"origin", 0, 0}
	type input struct {
		h       history
		covered map[place]time.Time
		told    int
	}
	for name, c := range map[string]struct {
		change func(*input)
		want   verdict
	}{
		"nothing": {func(*input) {}, verdict{}},
		"lost": {func(in *input) {
			delete(in.h["v"], origin)
			delete(in.covered, tier)
		}, verdict{lost: 1}},
		"lost, and a commit passed it": {func(in *input) { delete(in.h["v"], origin) }, verdict{lost: 1, ahead: 1}},
		"taken by retention and told": {func(in *input) {
			delete(in.h["v"], origin)
			in.told = 1
		}, verdict{told: 1}},
		"told, though nothing is gone": {func(in *input) { in.told = 3 }, verdict{}},
		"nowhere":                      {func(in *input) { delete(in.h, "v") }, verdict{lost: 1}},
		"the inbox is committed before the tier has it":  {func(in *input) { in.covered[inbox] = after(0) }, verdict{ahead: 1}},
		"the tier is committed before the origin has it": {func(in *input) { in.covered[tier] = after(9) }, verdict{ahead: 1}},
		"a copy to the tail stands for the record": {func(in *input) {
			in.h.add("tier", waiting, []*kgo.Record{{Value: []byte("v"), Offset: 5, Timestamp: after(3)}})
			in.covered[tier] = after(4)
		}, verdict{}},
		"a copy to the tail that is committed as well does not": {func(in *input) {
			in.h.add("tier", waiting, []*kgo.Record{{Value: []byte("v"), Offset: 5, Timestamp: after(3)}})
			in.covered[tier], in.covered[place{"tier", 0, 5}] = after(4), after(4)
		}, verdict{ahead: 1}},
		"early": {func(in *input) {
			in.h["v"][origin] = standing{origin, settled, after(9), time.Time{}}
		}, verdict{early: 1}},
		"twice on the origin": {func(in *input) {
			in.h.add("origin", settled, []*kgo.Record{{Value: []byte("v"), Offset: 1, Timestamp: after(11)}})
		}, verdict{duplicates: 1}},
		"on the origin and in the dead letters": {func(in *input) {
			in.h.add("dlt", buried, []*kgo.Record{{Value: []byte("v"), Timestamp: after(11)}})
		}, verdict{duplicates: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			in := input{life(), map[place]time.Time{inbox: after(2), tier: after(11)}, 0}
			c.change(&in)
			got := judge(in.h, []string{"v"}, in.covered, in.told)
			broken := got.lost + got.ahead + got.early + got.duplicates
			if (broken > 0) != (len(got.details) > 0) {
				t.Errorf("%d rules are broken, details: %q", broken, got.details)
			}
			got.details = nil
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(verdict{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheWatchNotesTheFirstMomentAndTellsTopicsOfOneNameApart(t *testing.T) {
	w := newWatch(nil, "group")
	commit := func(at int64, metadata string) kadm.Offsets {
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: "tier", At: at, Metadata: metadata})
		return offsets
	}
	w.note(after(1), commit(2, "redrive/1 0 "))
	w.note(after(2), commit(3, ""))
	w.made["tier"]++
	w.note(after(3), commit(1, "redrive/1 0 "))
	got, err := w.result()
	if err != nil {
		t.Fatal(err)
	}
	want := map[place]time.Time{
		{"tier", 0, 0}: after(1), {"tier", 0, 1}: after(1), {"tier", 0, 2}: after(2), {"tier'", 0, 0}: after(3),
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(place{})); diff != "" {
		t.Error(diff)
	}
	w.note(after(4), commit(1, "of another tool"))
	if _, err := w.result(); err == nil {
		t.Error("a commit that is not the forwarder's is taken for one")
	}
}

func TestAFailureEndsThePlayAndIsTold(t *testing.T) {
	s := &scene{}
	ended, went := make(chan struct{}), false
	go func() {
		defer close(ended)
		s.check(nil)
		s.check(errors.New("no broker"))
		went = true
	}()
	<-ended
	if went || s.err == nil {
		t.Errorf("the play went on: %v, its error: %v", went, s.err)
	}
}

func TestFaultsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range All() {
		if f.Name == "" || f.What == "" || f.play == nil || seen[f.Name] {
			t.Errorf("fault %q: %q", f.Name, f.What)
		}
		seen[f.Name] = true
	}
	if _, err := Named("min-isr", "no-such-fault"); err == nil {
		t.Error("a name that is no fault's is taken")
	}
	some, err := Named("throttled", "min-isr")
	if err != nil || len(some) != 2 {
		t.Errorf("two names give %d faults, %v", len(some), err)
	}
}
