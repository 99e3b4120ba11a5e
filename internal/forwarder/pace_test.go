package forwarder

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

func hasIssue(f *Forwarder, code issue.Code) bool {
	return slices.ContainsFunc(f.Status().Troubles, func(t issue.Trouble) bool { return t.Issue == code })
}

func wantIssue(t *testing.T, f *Forwarder, code issue.Code, want bool) {
	t.Helper()
	if hasIssue(f, code) != want {
		t.Errorf("issue %s: want %v, troubles are %+v", code, want, f.Status().Troubles)
	}
}

// A pause is for the consumers of the origin: consumers still hand failures
// over, and what is dead still becomes a dead letter.
func TestAPausedTopicHoldsReturnsAndNothingElse(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		r.opts.Topics[0].Paused = true
		f, _ := r.start()
		r.produce("orders.retry", 100, nil)
		r.produce("orders.retry", 10, func(_ int, rec *kgo.Record) {
			rec.Headers = []kgo.RecordHeader{{Key: "redrive-reason", Value: []byte("poison")}}
		})
		r.await(time.Minute, "orders.retry.10s", 100)
		r.await(time.Minute, "orders.dlt", 10)
		time.Sleep(10 * time.Minute)
		if n := sum(r.client.EndOffsets("orders")); n != 0 {
			t.Errorf("%d records came back to a paused topic", n)
		}
		wantIssue(t, f, issue.Paused, true)
		wantIssue(t, f, issue.LatenessHigh, false)

		f.Control(map[string]Pace{"orders.retry": {}})
		r.await(time.Second, "orders", 100)
		r.committedAll("orders.retry", "orders.retry.10s")
		wantIssue(t, f, issue.Paused, false)

		f.Control(map[string]Pace{"orders.retry": {Paused: true}})
		r.produce("orders.retry.10s", 10, nil)
		time.Sleep(10 * time.Minute)
		if n := sum(r.client.EndOffsets("orders")); n != 100 {
			t.Errorf("%d records on the origin, want the 100 of before the second pause", n)
		}
	})
}

// The limit is that of all members: each takes its share.
func TestARateLimitIsThatOfTheWholeGroup(t *testing.T) {
	for name, members := range map[string]int{"one member": 1, "two members": 2} {
		t.Run(name, func(t *testing.T) {
			simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
				const n, limit = 2000, 100
				for p := range partitions {
					r.produceTo(int32(p), n/partitions)
				}
				time.Sleep(time.Minute)
				r.opts.Topics[0].Paused = true
				r.opts.Topics[0].RateLimit = limit
				var all []*Forwarder
				for range members {
					f, _ := r.start()
					all = append(all, f)
				}
				time.Sleep(time.Minute) // The group settles.
				for _, f := range all {
					f.Control(map[string]Pace{"orders.retry": {RateLimit: limit}})
				}
				time.Sleep(5 * time.Second)
				wantIssue(t, all[0], issue.RateLimited, true)
				got := r.await(time.Hour, "orders", n)
				r.committedAll("orders.retry.10s")

				perSecond := map[int64]int{}
				first, last := got[0].Timestamp, got[0].Timestamp
				for _, rec := range got {
					perSecond[rec.Timestamp.Unix()]++
					if rec.Timestamp.Before(first) {
						first = rec.Timestamp
					}
					if rec.Timestamp.After(last) {
						last = rec.Timestamp
					}
				}
				for second, count := range perSecond {
					if count > limit*115/100 {
						t.Errorf("%d records in second %d, the limit is %d", count, second, limit)
					}
				}
				if took := last.Sub(first); took < 19*time.Second || took > 22*time.Second {
					t.Errorf("%d records took %v at %d a second", n, took, limit)
				}
			})
		})
	}
}
