package ledgertest

import (
	"slices"
	"strings"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

func understandingRules() []rule {
	return []rule{
		{"groups count letters that are alike", (*rig).groups},
		{"the largest group comes first, hours and days in their order", (*rig).groupOrder},
		{"groups are as many as the limit", (*rig).groupLimit},
		{"stats count by topic and state", (*rig).stats},
		{"an older letter of a key is told", (*rig).older},
		{"history is what jobs did with a letter", (*rig).history},
		{"the audit trail is read from its end", (*rig).auditPages},
		{"the ledger answers and has an epoch", (*rig).alive},
	}
}

// common is what letters of a group have in common.
func common(by deadletter.GroupBy, l deadletter.Letter) string {
	switch by {
	case deadletter.ByFingerprint:
		return l.Fingerprint
	case deadletter.ByReason:
		return string(l.Reason)
	case deadletter.ByErrorType:
		return l.ErrorType
	case deadletter.ByOrigin:
		return l.Origin
	case deadletter.ByLabel:
		return l.Label
	case deadletter.ByState:
		return string(l.State)
	case deadletter.ByHour:
		return l.DeadAt.UTC().Truncate(time.Hour).Format(time.RFC3339)
	default:
		return l.DeadAt.UTC().Truncate(24 * time.Hour).Format(time.RFC3339)
	}
}

func (r *rig) groups() {
	letters := r.population()
	for _, filter := range []deadletter.Filter{{}, {Topics: []string{"cash.dlt"}}} {
		for _, by := range deadletter.GroupBys() {
			want := map[string]deadletter.Group{}
			for _, l := range selected(letters, filter, deadletter.Oldest) {
				g, ok := want[common(by, l)]
				if !ok {
					g = deadletter.Group{Value: common(by, l), First: l.DeadAt}
				}
				g.Count++
				g.Last, g.Newest = l.DeadAt, l
				want[g.Value] = g
			}
			got, err := r.ledger.Groups(r.ctx(), filter, by, limit)
			r.no(err)
			seen := map[string]deadletter.Group{}
			for _, g := range got {
				seen[g.Value] = g
			}
			r.same("groups by "+string(by), seen, want)
			r.same("number of groups by "+string(by), len(got), len(want))
		}
	}
}

func (r *rig) groupOrder() {
	r.population()
	for _, by := range deadletter.GroupBys() {
		got, err := r.ledger.Groups(r.ctx(), deadletter.Filter{}, by, limit)
		r.no(err)
		sorted := slices.IsSortedFunc(got, func(a, b deadletter.Group) int {
			if by == deadletter.ByHour || by == deadletter.ByDay {
				return strings.Compare(a.Value, b.Value)
			}
			return int(b.Count - a.Count)
		})
		if !sorted {
			r.t.Errorf("groups by %s are not in their order: %+v", by, got)
		}
	}
}

func (r *rig) groupLimit() {
	r.population()
	all, err := r.ledger.Groups(r.ctx(), deadletter.Filter{}, deadletter.ByState, limit)
	r.no(err)
	few, err := r.ledger.Groups(r.ctx(), deadletter.Filter{}, deadletter.ByState, 2)
	r.no(err)
	if len(few) != 2 || few[0].Count != all[0].Count || few[1].Count != all[1].Count {
		r.t.Errorf("the two largest groups are %+v of %+v", few, all)
	}
}

func (r *rig) stats() {
	now := time.Now().UTC().Truncate(time.Millisecond)
	at := func(ago time.Duration) func(*deadletter.Letter) {
		return func(l *deadletter.Letter) { l.DeadAt = now.Add(-ago) }
	}
	// The clock of the database may be another one than ours: nothing lies near the edge of the hour.
	letters := r.index(letter(0, at(3*time.Hour)), letter(1, at(time.Minute)), letter(2, at(2*time.Minute)), letter(3, at(5*time.Hour)),
		letter(0, at(2*time.Hour), in("cash.dlt", "cash.dlt", 0), from("cash", 0, 1)), letter(0, at(4*time.Hour), in("orders.dlt", "made again", 0)))
	_, err := r.ledger.Discard(r.ctx(), of(letters[2], letters[3]), "ada", "test data")
	r.no(err)
	got, err := r.ledger.Stats(r.ctx())
	r.no(err)
	slices.SortFunc(got, func(a, b deadletter.Stat) int {
		return strings.Compare(a.Topic+string(a.State), b.Topic+string(b.State))
	})
	r.same("stats", got, []deadletter.Stat{
		{Topic: "cash.dlt", Origin: "cash", State: deadletter.Dead, Count: 1, Oldest: now.Add(-2 * time.Hour)},
		{Topic: "orders.dlt", Origin: "orders", State: deadletter.Dead, Count: 3, Oldest: now.Add(-4 * time.Hour), LastHour: 1},
		{Topic: "orders.dlt", Origin: "orders", State: deadletter.Discarded, Count: 2, Oldest: now.Add(-5 * time.Hour), LastHour: 1},
	})
}

func (r *rig) older() {
	a := keyed([]byte("a"))
	letters := r.index(
		letter(0, a, from("orders", 0, 10)), letter(1, a, from("orders", 0, 12)), letter(2, a, from("orders", 0, 14)), letter(3, a, from("orders", 0, 16)),
		letter(4, keyed([]byte("b")), from("orders", 0, 11)), letter(5, a, from("orders", 1, 1)), letter(6, a, from("cash", 0, 1)),
		letter(7, keyed(nil), from("orders", 0, 1)), letter(8, keyed(nil), from("orders", 0, 2)),
		letter(9, a, from("orders", -1, -1)), letter(10, a, from("orders", 0, 5), in("orders.dlt", "orders.dlt", 1)),
	)
	check := func(what string, i, first int, count int64) {
		r.t.Helper()
		got, n, err := r.ledger.Older(r.ctx(), letters[i])
		r.no(err)
		if n != count || (got == nil) != (count == 0) || got != nil && got.ID != letters[first].ID {
			r.t.Errorf("%s: %+v, %d older letters, want the one at %d, %d", what, got, n, first, count)
		}
	}
	check("of all partitions of the dead-letter topic", 3, 10, 4)
	check("the oldest one", 10, 0, 0)
	check("one of another key", 4, 0, 0)
	check("one of another partition of the origin", 5, 0, 0)
	check("one without a key", 8, 0, 0)
	check("one without a place in the origin", 9, 0, 0)

	r.replayed(letters[10])
	check("when the oldest is replayed", 3, 0, 3)
	job := r.leased(spec(), letters[0])
	r.granted(job, letters[0])
	check("when the oldest is claimed", 3, 0, 3)
	_, err := r.ledger.Discard(r.ctx(), of(letters[1]), "ada", "test data")
	r.no(err)
	check("when one between is discarded", 3, 0, 2)
}

func (r *rig) history() {
	l := r.index(letter(0))[0]
	got, err := r.ledger.History(r.ctx(), l.ID)
	r.no(err)
	r.same("items of a letter that no job has", len(got), 0)

	first := r.leased(spec(), l)
	r.finish(failed(r.granted(first, l)[0], "the topic is gone"))
	r.end(first)
	second := r.replayed(l)
	third := r.job(spec(), l)
	got, err = r.ledger.History(r.ctx(), l.ID)
	r.no(err)
	if len(got) != 3 {
		r.t.Fatalf("%d items, want 3", len(got))
	}
	for i, want := range []deadletter.Item{
		{Job: first.ID, State: deadletter.ItemFailed, Error: "the topic is gone", Copy: deadletter.Target{Offset: -1}},
		{Job: second.ID, State: deadletter.ItemDone, Copy: deadletter.Target{Topic: "orders", Partition: 1, Offset: 500}},
		{Job: third.ID, State: deadletter.ItemOpen, Copy: deadletter.Target{Offset: -1}},
	} {
		item := got[i]
		if item.Job != want.Job || item.State != want.State || item.Error != want.Error || item.Copy.Offset != want.Copy.Offset ||
			want.Copy.Offset >= 0 && item.Copy != want.Copy || item.Letter.ID != l.ID || item.Seq != 1 {
			r.t.Errorf("item %d is %+v, want %+v", i, item, want)
		}
	}
	if got[1].ReplayCount < 1 || got[0].ReplayCount != 0 || got[1].At.IsZero() {
		r.t.Errorf("replay counts are %d and %d, at %s", got[0].ReplayCount, got[1].ReplayCount, got[1].At)
	}
}

func (r *rig) auditPages() {
	for _, detail := range []string{"one", "two", "three"} {
		r.no(r.ledger.Record(r.ctx(), deadletter.Entry{
			ID: 77, At: began, Actor: "trigger", Action: "trigger-refused", Reason: "no key", Object: "orders.dlt.replay/0/5", Count: 4, Detail: detail,
		}))
	}
	all := r.audit()
	if len(all) != 3 || all[0].Detail != "three" || all[2].Detail != "one" {
		r.t.Fatalf("the audit trail is %+v", all)
	}
	e := all[0]
	if e.ID == 77 || e.ID <= all[1].ID || e.At.Equal(began) || e.At.IsZero() {
		r.t.Errorf("id and time are not the ledger's: %+v", e)
	}
	e.ID, e.At = 0, time.Time{}
	r.same("the row", e, deadletter.Entry{
		Actor: "trigger", Action: "trigger-refused", Reason: "no key", Object: "orders.dlt.replay/0/5", Count: 4, Detail: "three",
	})
	page, err := r.ledger.Audit(r.ctx(), all[0].ID, 1)
	r.no(err)
	r.same("the row below", page, all[1:2])
	page, err = r.ledger.Audit(r.ctx(), all[2].ID, 10)
	r.no(err)
	r.same("rows below the first", len(page), 0)
}

func (r *rig) alive() {
	r.no(r.ledger.Ping(r.ctx()))
	epoch, err := r.ledger.Epoch(r.ctx())
	r.no(err)
	if epoch < 1 {
		r.t.Errorf("epoch %d", epoch)
	}
}
