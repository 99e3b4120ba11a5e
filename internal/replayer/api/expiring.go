package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
)

const (
	// longestWithin is further ahead than anybody plans.
	longestWithin = 10 * 365 * 24 * time.Hour

	defaultRescue = 500
	// rescuePage is how many letters are looked at in one go, rescueBytes how many bytes of them are in memory at once, unless one
	// letter alone has more.
	rescuePage  = 100
	rescueBytes = 8 << 20
	// rescueTime is when a request ends that has not come to its limit, so that whoever waits for it sees how far it is. readTimeout is
	// how long Kafka may take for the bytes of one part.
	rescueTime  = 15 * time.Second
	readTimeout = 30 * time.Second
)

// withinOf is how far ahead a request looks.
func (o *operations) withinOf(text *string) (time.Duration, error) {
	if text == nil {
		return o.radar.Within(), nil
	}
	d, err := model.ParseDuration(*text)
	if err != nil || d <= 0 || time.Duration(d) > longestWithin {
		return 0, badParameter("within", "within must be a duration such as 72h or 3d, of 10 years at most")
	}
	return time.Duration(d), nil
}

// watched are the dead-letter topics that a filter leaves and the caller sees.
func (o *operations) watched(c *caller, filter *deadletter.Filter) []string {
	return slices.DeleteFunc(o.radar.Topics(), func(topic string) bool {
		return !c.sees(topic) || len(filter.Topics) > 0 && !slices.Contains(filter.Topics, topic)
	})
}

// ListExpiring answers GET /expiring.
func (o *operations) ListExpiring(w http.ResponseWriter, r *http.Request, params ListExpiringParams) {
	filter, err := (&Filter{Topic: params.Topic}).selection()
	if err != nil {
		o.fail(w, r, err)
		return
	}
	within, err := o.withinOf(params.Within)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	page, err := pageOf(new(OrderOldest), params.Cursor, params.Limit)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	list := ExpiringList{
		WithinSeconds: within.Seconds(), Letters: []ExpiringLetter{}, Topics: []ExpiringTopic{}, Waiting: []ExpiringWait{}, Unknown: []string{},
	}
	topics := o.watched(callerOf(r), &filter)
	if filter.Expiring, err = o.radar.Cuts(r.Context(), topics, within); err != nil {
		o.fail(w, r, ofReplayer(err))
		return
	}
	if len(filter.Expiring) > 0 {
		found, err := o.ledger.Letters(r.Context(), deadletter.Filter{Expiring: filter.Expiring}, page)
		if err != nil {
			o.fail(w, r, err)
			return
		}
		list.Next = found.Next
		for i := range found.Letters {
			if at, ok := o.radar.Until(&found.Letters[i]); ok {
				list.Letters = append(list.Letters, ExpiringLetter{ExpiresAt: at.UTC(), Letter: letterOf(&found.Letters[i])})
			}
		}
	}
	if value(params.Outlook) {
		if err := o.outlook(r.Context(), &list, topics, within); err != nil {
			o.fail(w, r, err)
			return
		}
	}
	o.answer(w, r, http.StatusOK, list)
}

// outlook adds what there is to tell beside letters.
func (o *operations) outlook(ctx context.Context, list *ExpiringList, topics []string, within time.Duration) error {
	counts, err := o.radar.Count(ctx, topics, within)
	if err != nil {
		return ofReplayer(err)
	}
	for _, e := range counts {
		topic := ExpiringTopic{Topic: e.Topic, Count: e.Count, Soonest: timeOf(e.Soonest)}
		if e.Err != nil {
			topic.Unknown = new(e.Err.Error())
		} else {
			topic.RetentionMs, topic.RetentionBytes = new(retentionMs(e.Age)), new(e.Bytes)
		}
		list.Topics = append(list.Topics, topic)
	}
	waiting, unknown := o.radar.Waiting(ctx, topics, within)
	for _, w := range waiting {
		list.Waiting = append(list.Waiting, ExpiringWait{
			Topic: w.Topic, Partition: w.Partition, From: w.From, To: w.To, WaitSeconds: w.Wait.Seconds(), RetentionMs: retentionMs(w.Age),
		})
	}
	for _, err := range unknown {
		list.Unknown = append(list.Unknown, err.Error())
	}
	return nil
}

func retentionMs(age time.Duration) int64 {
	if age < 0 {
		return -1
	}
	return age.Milliseconds()
}

// RescueLetters answers POST /rescues.
func (o *operations) RescueLetters(w http.ResponseWriter, r *http.Request) {
	var body RescueRequest
	if err := o.decode(r, &body, false); err != nil {
		o.fail(w, r, err)
		return
	}
	if err := checkReason(body.Reason); err != nil {
		o.fail(w, r, err)
		return
	}
	if body.Expect != nil && *body.Expect < 1 {
		o.fail(w, r, badParameter("expect", "expect must be at least 1"))
		return
	}
	limit := int32(defaultRescue)
	if body.Limit != nil {
		limit = *body.Limit
	}
	most, err := limitOf(&limit)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	page, err := pageOf(new(OrderOldest), body.Cursor, nil)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	filter, some, err := o.rescuable(r, &body)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	result := RescueResult{DryRun: value(body.DryRun), Failed: []RescueFailure{}}
	if page.After == "" {
		count := int64(0)
		if some {
			if count, err = o.ledger.Count(r.Context(), filter); err != nil {
				o.fail(w, r, err)
				return
			}
		}
		result.Count = &count
		if !result.DryRun {
			err = o.checkCount(count, body.Expect)
		}
	}
	if err == nil && some && !result.DryRun {
		err = o.rescue(r, filter, page, most, body.Reason, &result)
	}
	if err != nil {
		o.fail(w, r, err)
		return
	}
	o.answer(w, r, http.StatusOK, result)
}

// rescuable is what a request selects, as far as the ledger has no copy of it. It reports false if that can be nothing.
func (o *operations) rescuable(r *http.Request, body *RescueRequest) (filter deadletter.Filter, some bool, err error) {
	if body.Filter != nil {
		if filter, err = body.Filter.selection(); err != nil {
			return filter, false, err
		}
	}
	if body.Filter != nil && body.Within == nil {
		if err := checkSelection(&filter, value(body.All)); err != nil {
			return filter, false, err
		}
	} else {
		within, err := o.withinOf(body.Within)
		if err != nil {
			return filter, false, err
		}
		if filter.Expiring, err = o.radar.Cuts(r.Context(), o.watched(callerOf(r), &filter), within); err != nil {
			return filter, false, ofReplayer(err)
		}
		if len(filter.Expiring) == 0 {
			return filter, false, nil // No cut would be any letter.
		}
	}
	filter.Unkept = true
	if len(filter.States) == 0 {
		filter.States = []deadletter.State{deadletter.Dead, deadletter.Claimed}
	}
	// The bytes of these are known to be gone.
	filter.States = slices.DeleteFunc(slices.Clone(filter.States), func(s deadletter.State) bool { return s == deadletter.Expired })
	return filter, len(filter.States) > 0 && callerOf(r).narrow(&filter), nil
}

// rescue keeps what a filter selects, page by page, until it has looked at so many letters or has been at it for long enough.
func (o *operations) rescue(r *http.Request, filter deadletter.Filter, page deadletter.Page, most int, reason string, result *RescueResult) error {
	began := time.Now()
	for most > 0 && time.Since(began) < rescueTime {
		page.Limit = min(most, rescuePage)
		found, err := o.ledger.Letters(r.Context(), filter, page)
		if err != nil {
			return err
		}
		most -= len(found.Letters)
		for letters := found.Letters; len(letters) > 0; {
			n, size := 0, int64(0)
			for n < len(letters) && (n == 0 || size+letters[n].Size <= rescueBytes) {
				size += letters[n].Size
				n++
			}
			if err := o.keep(r, letters[:n], reason, result); err != nil {
				return err
			}
			letters = letters[n:]
		}
		page.After, result.Next = found.Next, found.Next
		if found.Next == "" {
			return nil
		}
	}
	return nil
}

// keep reads the bytes of letters and has the ledger store them, with its row in the audit trail.
func (o *operations) keep(r *http.Request, letters []deadletter.Letter, reason string, result *RescueResult) error {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	read, err := o.replayer.Read(ctx, letters)
	if err != nil {
		return ofReplayer(err)
	}
	payloads := make(map[int64]deadletter.Payload, len(letters))
	bytes := int64(0)
	for i := range letters {
		l := &letters[i]
		if err := read[i].Err; err != nil {
			failure := RescueFailure{Letter: l.ID, Place: l.Place.String(), MessageID: l.MessageID, Code: RescueFailureCodeChanged, Detail: err.Error()}
			if errors.Is(err, fetch.ErrGone) {
				failure.Code = RescueFailureCodeGone
				result.Gone++
			} else {
				result.Changed++
			}
			result.Failed = append(result.Failed, failure)
			continue
		}
		payloads[l.ID] = read[i].Payload
		bytes += l.Size
	}
	if len(payloads) == 0 {
		return nil
	}
	kept, err := o.ledger.Keep(r.Context(), payloads, callerOf(r).name, reason)
	if err != nil {
		return err
	}
	result.Kept += kept
	result.Bytes += bytes
	return nil
}
