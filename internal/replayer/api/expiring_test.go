package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/replayer/expiry"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
)

var _ Radar = (*expiry.Radar)(nil)

// expiring are the places of all pages, and the first page.
func (r *rig) expiring(t *testing.T, secret, query string) (places string, first ExpiringList) {
	t.Helper()
	var all []string
	for cursor := ""; ; {
		path := "/expiring?limit=2&" + query
		if cursor != "" {
			path += "&cursor=" + url.QueryEscape(cursor)
		}
		list := into[ExpiringList](t, r.call(t, http.MethodGet, path, secret, ""))
		if cursor == "" {
			first = list
		}
		for _, e := range list.Letters {
			if !e.ExpiresAt.Equal(e.Letter.DeadAt.Add(24 * time.Hour)) {
				t.Errorf("letter %d, dead at %s, expires at %s", e.Letter.ID, e.Letter.DeadAt, e.ExpiresAt)
			}
			all = append(all, fmt.Sprintf("%.1s%d", e.Letter.Topic, e.Letter.Offset))
		}
		if cursor = list.Next; cursor == "" {
			return strings.Join(all, " "), first
		}
	}
}

func TestWhatExpiresIsListedAndRescuedAndThenIsNotListed(t *testing.T) {
	onEachLedger(t, asIs, func(t *testing.T, r *rig) {
		if got, first := r.expiring(t, carol, "within=3h&outlook=true"); got != "o0 p0 o1 p1 o2 p2" || first.WithinSeconds != 3*3600 || len(first.Topics) != 2 {
			t.Errorf("expiring: %s, first page %+v", got, first)
		}
		if got, first := r.expiring(t, carol, "within=3h&topic=payments.dlt"); got != "p0 p1 p2" || len(first.Topics) > 0 {
			t.Errorf("expiring of a topic: %s, %+v", got, first.Topics)
		}
		if got, first := r.expiring(t, dave, "within=3h&outlook=true"); got != "o0 o1 o2" || len(first.Topics) != 1 {
			t.Errorf("expiring of one who sees a topic: %s, %+v", got, first.Topics)
		}
		r.radar.forever = []string{"orders.dlt", "payments.dlt"}
		if got, _ := r.expiring(t, carol, "within=3h"); got != "" {
			t.Errorf("expiring of topics that keep for ever: %s", got)
		}
		if got := into[RescueResult](t, r.call(t, http.MethodPost, "/rescues", bob, `{"within":"3h","reason":"near"}`)); *got.Count != 0 || got.Kept != 0 {
			t.Errorf("rescued of topics that keep for ever: %+v", got)
		}
		r.radar.forever = nil

		dry := into[RescueResult](t, r.call(t, http.MethodPost, "/rescues", dave, `{"within":"3h","reason":"near","dryRun":true}`))
		if !dry.DryRun || *dry.Count != 3 || dry.Kept != 0 {
			t.Errorf("dry run: %+v", dry)
		}
		r.refused(t, http.MethodPost, "/rescues", bob, `{"within":"3h","reason":"near","expect":5}`, http.StatusConflict, codeCountChanged)
		r.refused(t, http.MethodPost, "/rescues", bob, `{"within":"3h","reason":"near"}`, http.StatusConflict, codeCountNeeded)
		lost := into[LetterList](t, r.call(t, http.MethodGet, "/letters?topic=payments.dlt&partition=0&offset=0", carol, "")).Letters[0]
		changed := into[LetterList](t, r.call(t, http.MethodGet, "/letters?topic=payments.dlt&partition=0&offset=1", carol, "")).Letters[0]
		r.replayer.lost = map[int64]error{
			lost.ID:    &fetch.GoneError{Place: deadletter.Place{Topic: lost.Topic, Offset: lost.Offset}, Why: fetch.BelowStart},
			changed.ID: replay.ErrChanged,
		}
		// Part by part, as one goes on who was interrupted.
		var sum RescueResult
		body := `{"within":"3h","reason":"near","limit":2,"expect":6}`
		for parts := 1; ; parts++ {
			part := into[RescueResult](t, r.call(t, http.MethodPost, "/rescues", bob, body))
			sum.Kept, sum.Gone, sum.Changed, sum.Failed = sum.Kept+part.Kept, sum.Gone+part.Gone, sum.Changed+part.Changed, append(sum.Failed, part.Failed...)
			if part.Next == "" {
				if parts != 3 {
					t.Errorf("%d parts", parts)
				}
				break
			}
			body = fmt.Sprintf(`{"within":"3h","reason":"near","limit":2,"cursor":%q}`, part.Next)
		}
		if sum.Kept != 4 || sum.Gone != 1 || sum.Changed != 1 {
			t.Errorf("rescued: %+v", sum)
		}
		want := []RescueFailure{
			{Letter: lost.ID, Place: "payments.dlt/0/0", MessageID: lost.MessageID, Code: RescueFailureCodeGone, Detail: "payments.dlt/0/0: the bytes are gone from the topic: below-start"},
			{Letter: changed.ID, Place: "payments.dlt/0/1", MessageID: changed.MessageID, Code: RescueFailureCodeChanged, Detail: replay.ErrChanged.Error()},
		}
		if diff := cmp.Diff(want, sum.Failed); diff != "" {
			t.Errorf("failed (-want +got):\n%s", diff)
		}
		if got, _ := r.expiring(t, carol, "within=3h"); got != "p0 p1" {
			t.Errorf("expiring after the rescue: %s", got)
		}
		audit := into[AuditList](t, r.call(t, http.MethodGet, "/audit?limit=1", alice, "")).Entries[0]
		if audit.Action != "keep" || audit.Actor != "bob" || audit.Reason != "near" {
			t.Errorf("audit: %+v", audit)
		}
		again := into[RescueResult](t, r.call(t, http.MethodPost, "/rescues", bob, `{"within":"3h","reason":"near","expect":2}`))
		if again.Kept != 0 || again.Gone != 1 || again.Changed != 1 {
			t.Errorf("the second rescue: %+v", again)
		}
		byID := into[RescueResult](t, r.call(t, http.MethodPost, "/rescues", bob, `{"filter":{"messageId":["orders.dlt/9","orders.dlt/0"]},"reason":"wanted"}`))
		if *byID.Count != 1 || byID.Kept != 1 {
			t.Errorf("rescued by message id: %+v", byID)
		}
		of := fmt.Sprintf(`{"filter":{"id":[%d]},"reason":"wanted"}`, lost.ID)
		if got := into[RescueResult](t, r.call(t, http.MethodPost, "/rescues", dave, of)); *got.Count != 0 || len(got.Failed) > 0 {
			t.Errorf("rescued of a topic that is not seen: %+v", got)
		}
	})
}

func TestRecordsThatWaitAreToldOnDemand(t *testing.T) {
	r := newRig(t)
	r.radar.waiting = []expiry.Waiting{{
		Waiting: kafka.Waiting{Topic: "orders.retry.1m", Partition: 2, From: 5, To: 9}, Retention: kafka.Retention{Age: time.Hour, Bytes: -1}, Wait: time.Minute,
	}}
	r.radar.unknown = []error{errors.New("the settings of orders.retry are not told")}
	list := into[ExpiringList](t, r.call(t, http.MethodGet, "/expiring?outlook=true", carol, ""))
	want := []ExpiringWait{{Topic: "orders.retry.1m", Partition: 2, From: 5, To: 9, WaitSeconds: 60, RetentionMs: 3_600_000}}
	if diff := cmp.Diff(want, list.Waiting); diff != "" || list.Unknown[0] != "the settings of orders.retry are not told" || list.WithinSeconds != 72*3600 {
		t.Errorf("%+v\n%s", list, diff)
	}
}

func TestARescueIsRefusedAsOtherChangesAre(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		secret, body string
		status       int
		code         string
	}{
		{carol, `{"within":"3h","reason":"near"}`, http.StatusForbidden, codeForbidden},
		{bob, `{"within":"3h"}`, http.StatusBadRequest, codeReasonMissing},
		{bob, `{"within":"soon","reason":"near"}`, http.StatusBadRequest, codeBadParameter},
		{bob, `{"within":"0s","reason":"near"}`, http.StatusBadRequest, codeBadParameter},
		{bob, `{"within":"100y","reason":"near"}`, http.StatusBadRequest, codeBadParameter},
		{bob, `{"filter":{},"reason":"near"}`, http.StatusBadRequest, codeFilterEmpty},
		{bob, `{"filter":{"id":[1]},"reason":"near","limit":0}`, http.StatusBadRequest, codeBadParameter},
		{bob, `{"filter":{"id":[1]},"reason":"near","expect":0}`, http.StatusBadRequest, codeBadParameter},
		{bob, `{"filter":{"id":[1]},"reason":"near","cursor":"x"}`, http.StatusBadRequest, codeBadCursor},
	} {
		r.refused(t, http.MethodPost, "/rescues", c.secret, c.body, c.status, c.code)
	}
	r.radar.err = kerr.RequestTimedOut
	r.refused(t, http.MethodPost, "/rescues", bob, `{"reason":"near"}`, http.StatusServiceUnavailable, codeKafkaUnavailable)
	r.refused(t, http.MethodGet, "/expiring", carol, "", http.StatusServiceUnavailable, codeKafkaUnavailable)
}
