package api

import (
	"context"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	// maxHistory is how many letters of one message a history tells.
	maxHistory = 1000
)

// limitOf is how many a page has.
func limitOf(limit *int32) (int, error) {
	switch {
	case limit == nil:
		return defaultLimit, nil
	case *limit < 1 || *limit > maxLimit:
		return 0, badParameter("limit", "limit must be between 1 and %d", maxLimit)
	default:
		return int(*limit), nil
	}
}

// orderOf is the order of a page.
func orderOf(order *Order) (deadletter.Order, error) {
	if order == nil {
		return deadletter.Newest, nil
	}
	if !order.Valid() {
		return "", notOneOf("order", string(*order), []string{string(OrderNewest), string(OrderOldest), string(OrderReplay)})
	}
	return deadletter.Order(*order), nil
}

// pageOf is the page that is asked for.
func pageOf(order *Order, cursor *string, limit *int32) (deadletter.Page, error) {
	page := deadletter.Page{After: value(cursor)}
	var err error
	if page.Order, err = orderOf(order); err != nil {
		return page, err
	}
	if page.Limit, err = limitOf(limit); err != nil {
		return page, err
	}
	if cursor != nil {
		if *cursor == "" {
			return page, badParameter("cursor", "cursor is empty; leave it out for the first page")
		}
		return page, checkText("cursor", *cursor, maxText)
	}
	return page, nil
}

// ListLetters answers GET /letters.
func (o *operations) ListLetters(w http.ResponseWriter, r *http.Request, params ListLettersParams) {
	filter, err := filterOf(params)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	page, err := pageOf(params.Order, params.Cursor, params.Limit)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	if !callerOf(r).narrow(&filter) {
		o.answer(w, r, http.StatusOK, LetterList{Letters: []Letter{}})
		return
	}
	found, err := o.ledger.Letters(r.Context(), filter, page)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	o.answer(w, r, http.StatusOK, LetterList{Letters: lettersOf(found.Letters), Next: found.Next})
}

// CountLetters answers GET /count.
func (o *operations) CountLetters(w http.ResponseWriter, r *http.Request, params CountLettersParams) {
	filter, err := filterOf(params)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	count, err := o.count(r, filter)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	o.answer(w, r, http.StatusOK, Count{Count: count})
}

// count is how many letters a filter selects that the caller may see.
func (o *operations) count(r *http.Request, filter deadletter.Filter) (int64, error) {
	if !callerOf(r).narrow(&filter) {
		return 0, nil
	}
	return o.ledger.Count(r.Context(), filter)
}

// GroupLetters answers GET /groups.
func (o *operations) GroupLetters(w http.ResponseWriter, r *http.Request, params GroupLettersParams) {
	filter, err := filterOf(params)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	limit, err := limitOf(params.Limit)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	by := GroupByFingerprint
	if params.By != nil {
		by = *params.By
	}
	if !by.Valid() {
		var all []string
		for _, g := range deadletter.GroupBys() {
			all = append(all, string(g))
		}
		o.fail(w, r, notOneOf("by", string(by), all))
		return
	}
	list := GroupList{By: by, Groups: []Group{}}
	if !callerOf(r).narrow(&filter) {
		o.answer(w, r, http.StatusOK, list)
		return
	}
	groups, err := o.ledger.Groups(r.Context(), filter, deadletter.GroupBy(by), limit)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	for i := range groups {
		g := &groups[i]
		list.Groups = append(list.Groups, Group{Value: g.Value, Count: g.Count, First: g.First.UTC(), Last: g.Last.UTC(), Newest: letterOf(&g.Newest)})
	}
	o.answer(w, r, http.StatusOK, list)
}

// letter is a letter that the caller may see.
func (o *operations) letter(r *http.Request, id int64) (deadletter.Letter, error) {
	unknown := newProblem(codeUnknown, "there is no letter %d", id)
	if id < 1 {
		return deadletter.Letter{}, unknown
	}
	found, err := o.ledger.Letter(r.Context(), id)
	if err != nil {
		return found, err
	}
	if !callerOf(r).sees(found.Place.Topic) {
		return deadletter.Letter{}, unknown
	}
	return found, nil
}

// GetLetter answers GET /letters/{letter}.
func (o *operations) GetLetter(w http.ResponseWriter, r *http.Request, id ParamLetter) {
	letter, err := o.letter(r, id)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	first, count, err := o.older(r.Context(), callerOf(r), &letter)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	detail := LetterDetail{Letter: letterOf(&letter), OlderCount: count}
	if first != nil {
		oldest := letterOf(first)
		detail.Oldest = &oldest
	}
	o.answer(w, r, http.StatusOK, detail)
}

// older finds what of a letter's key lies before it and is not resolved. Letters of the key may lie in dead-letter topics
// that the caller does not see: for one who is narrowed they are not counted.
func (o *operations) older(ctx context.Context, c *caller, letter *deadletter.Letter) (first *deadletter.Letter, count int64, err error) {
	if c.seesAll() {
		return o.ledger.Older(ctx, *letter)
	}
	if letter.Key == nil || letter.OriginPartition < 0 || letter.OriginOffset < 0 {
		return nil, 0, nil
	}
	filter := deadletter.Filter{
		Key: letter.Key, HasKey: true, Topics: c.topics, Origins: []string{letter.Origin},
		States: []deadletter.State{deadletter.Dead, deadletter.Claimed},
	}
	page, err := o.ledger.Letters(ctx, filter, deadletter.Page{Order: deadletter.ReplayOrder, Limit: maxHistory})
	if err != nil {
		return nil, 0, err
	}
	for i := range page.Letters {
		l := &page.Letters[i]
		if l.OriginPartition == letter.OriginPartition && l.OriginOffset >= 0 && l.OriginOffset < letter.OriginOffset {
			if first == nil {
				first = l
			}
			count++
		}
	}
	return first, count, nil
}

// GetLetterHistory answers GET /letters/{letter}/history.
func (o *operations) GetLetterHistory(w http.ResponseWriter, r *http.Request, id ParamLetter) {
	letter, err := o.letter(r, id)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	o.history(w, r, letter.MessageID)
}

// GetHistory answers GET /history.
func (o *operations) GetHistory(w http.ResponseWriter, r *http.Request, params GetHistoryParams) {
	if params.MessageID == "" {
		o.fail(w, r, badParameter("messageId", "messageId is empty"))
		return
	}
	if err := checkText("messageId", params.MessageID, maxText); err != nil {
		o.fail(w, r, err)
		return
	}
	o.history(w, r, params.MessageID)
}

// history answers with all letters of a message, and what jobs did with each.
func (o *operations) history(w http.ResponseWriter, r *http.Request, messageID string) {
	filter := deadletter.Filter{MessageIDs: []string{messageID}}
	callerOf(r).narrow(&filter) // It names no topic yet, so that something is left.
	page, err := o.ledger.Letters(r.Context(), filter, deadletter.Page{Order: deadletter.Oldest, Limit: maxHistory})
	if err != nil {
		o.fail(w, r, err)
		return
	}
	if len(page.Letters) == 0 {
		o.fail(w, r, newProblem(codeUnknown, "there is no letter of that message id"))
		return
	}
	history := History{MessageID: messageID, Entries: make([]HistoryEntry, 0, len(page.Letters)), Truncated: page.Next != ""}
	for i := range page.Letters {
		items, err := o.ledger.History(r.Context(), page.Letters[i].ID)
		if err != nil {
			o.fail(w, r, err)
			return
		}
		entry := HistoryEntry{Letter: letterOf(&page.Letters[i]), Replays: make([]Item, 0, len(items))}
		for j := range items {
			entry.Replays = append(entry.Replays, itemOf(&items[j]))
		}
		history.Entries = append(history.Entries, entry)
	}
	o.answer(w, r, http.StatusOK, history)
}

// GetStats answers GET /stats.
func (o *operations) GetStats(w http.ResponseWriter, r *http.Request) {
	stats, err := o.ledger.Stats(r.Context())
	if err != nil {
		o.fail(w, r, err)
		return
	}
	list := StatList{Stats: []Stat{}}
	for _, s := range stats {
		if callerOf(r).sees(s.Topic) {
			list.Stats = append(list.Stats, Stat{
				Topic: s.Topic, Origin: s.Origin, State: State(s.State), Count: s.Count, Oldest: timeOf(s.Oldest), LastHour: s.LastHour,
			})
		}
	}
	o.answer(w, r, http.StatusOK, list)
}

// GetProgress answers GET /progress.
func (o *operations) GetProgress(w http.ResponseWriter, r *http.Request) {
	progress, err := o.ledger.Progress(r.Context())
	if err != nil {
		o.fail(w, r, err)
		return
	}
	list := ProgressList{Partitions: []Progress{}}
	for _, p := range progress {
		if callerOf(r).sees(p.Topic) {
			list.Partitions = append(list.Partitions, Progress{
				Topic: p.Topic, TopicID: hex.EncodeToString(p.TopicID[:]), Partition: p.Partition, Next: p.Next, Lost: p.Lost,
			})
		}
	}
	o.answer(w, r, http.StatusOK, list)
}

// ListAudit answers GET /audit. The trail has no topics: whoever is narrowed sees what was done under its name.
func (o *operations) ListAudit(w http.ResponseWriter, r *http.Request, params ListAuditParams) {
	limit, err := limitOf(params.Limit)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	var below int64
	if params.Cursor != nil {
		if below, err = strconv.ParseInt(*params.Cursor, 10, 64); err != nil || below < 1 {
			o.fail(w, r, deadletter.ErrCursor)
			return
		}
	}
	c := callerOf(r)
	list := AuditList{Entries: []AuditEntry{}}
	// One who is narrowed may be far from its last entry: a few pages are searched for it, and the next request goes on.
	for pages := 0; len(list.Entries) == 0 && pages < 10; pages++ {
		entries, err := o.ledger.Audit(r.Context(), below, limit)
		if err != nil {
			o.fail(w, r, err)
			return
		}
		list.Next = ""
		if len(entries) == limit {
			below = entries[len(entries)-1].ID
			list.Next = strconv.FormatInt(below, 10)
		}
		for i := range entries {
			if e := &entries[i]; c.seesAll() || e.Actor == c.name {
				list.Entries = append(list.Entries, AuditEntry{
					ID: e.ID, At: e.At.UTC(), Actor: e.Actor, Action: e.Action, Reason: e.Reason, Object: e.Object, Count: e.Count, Detail: e.Detail,
				})
			}
		}
		if list.Next == "" {
			break
		}
	}
	o.answer(w, r, http.StatusOK, list)
}

// WhoAmI answers GET /whoami.
func (o *operations) WhoAmI(w http.ResponseWriter, r *http.Request) {
	c := callerOf(r)
	topics := slices.Clone(c.topics)
	if topics == nil {
		topics = []string{}
	}
	o.answer(w, r, http.StatusOK, Identity{Name: c.name, Role: c.role, Authenticated: c.authenticated, Topics: topics})
}

// GetVersion answers GET /version.
func (o *operations) GetVersion(w http.ResponseWriter, r *http.Request) {
	topics := []string{}
	for _, t := range o.topics {
		if callerOf(r).sees(t) {
			topics = append(topics, t)
		}
	}
	o.answer(w, r, http.StatusOK, Version{Version: o.version, API: "v1", Topics: topics, BulkLimit: o.bulkLimit, MaxBody: o.maxBody})
}
