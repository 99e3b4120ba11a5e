package ledgertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
)

func catalogueRules() []rule {
	return []rule{
		{"each field of a filter selects by itself", (*rig).filterFields},
		{"a part of an error text is not a pattern", (*rig).filterText},
		{"a filter without values selects all", (*rig).filterAll},
		{"any filter, order and page size selects what it says", (*rig).filterRandom},
		{"pages are not disturbed by letters that come and go", (*rig).pagesArriving},
		{"the last page says that nothing follows", (*rig).lastPage},
		{"a page is of 100 letters unless it says otherwise", (*rig).pageDefault},
		{"a cursor is good for its filter and order only", (*rig).wrongCursor},
		{"pages of what expires go on while time does", (*rig).pagesExpiring},
		{"the order of a replay is that of the origin", (*rig).replayOrder},
	}
}

// population indexes letters that differ in everything, and brings them into all states.
func (r *rig) population() []deadletter.Letter {
	r.t.Helper()
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // Letters are no secrets.
	pick := func(n int) int { return random.IntN(n) }
	keys := [][]byte{nil, {}, []byte("a"), []byte("b")}
	reasons := []envelope.Reason{envelope.ReasonPoison, envelope.ReasonExhausted, envelope.ReasonBlocked, ""}
	var letters []deadletter.Letter
	for i := range int64(60) {
		letters = append(letters, letter(i, in([]string{"orders.dlt", "cash.dlt"}[pick(2)], "any", int32(pick(2))), func(l *deadletter.Letter) {
			l.Place.TopicID = topicID(l.Place.Topic)
			l.MessageID = fmt.Sprintf("m-%d", pick(40))
			l.Key = keys[pick(len(keys))]
			l.Origin = []string{"orders", "cash", ""}[pick(3)]
			l.OriginPartition, l.OriginOffset = int32(pick(3))-1, int64(pick(30))-1
			l.Group = []string{"billing", "mail", ""}[pick(3)]
			l.Reason = reasons[pick(len(reasons))]
			l.ErrorType = []string{"TimeoutError", "ValueError", ""}[pick(3)]
			l.ErrorText = []string{"no answer within 3 s", "Invalid Amount: 12%", ""}[pick(3)]
			l.Fingerprint = []string{"f00d", "beef"}[pick(2)]
			l.Label = []string{"v1", "v2", ""}[pick(3)]
			l.Attempt, l.Deliveries = pick(6), pick(9)
			l.DeadAt = began.Add(time.Duration(pick(50)) * time.Hour)
		}))
	}
	letters = r.index(letters...)
	first := r.leased(spec(), letters[:20]...)
	r.replay(first, letters[:20]...)
	_, err := r.ledger.Succeed(r.ctx(), ids(letters[:5]))
	r.no(err)
	for i, l := range letters[5:10] {
		r.index(letter(100+int64(i), named(l.MessageID), cameBack(first.ID, 1), in("back.dlt", "back.dlt", 0)))
	}
	r.end(first)
	second := r.leased(spec(), letters[20:30]...)
	r.granted(second, letters[20:30]...)
	_, err = r.ledger.Discard(r.ctx(), of(letters[30:35]...), "ada", "test data")
	r.no(err)
	_, err = r.ledger.Expire(r.ctx(), topicID("orders.dlt"), 0, 50)
	r.no(err)
	for _, l := range letters[40:50] {
		_, err = r.ledger.Keep(r.ctx(), map[int64]deadletter.Payload{l.ID: {}}, "ada", "retention is near")
		r.no(err)
	}
	letters = r.all(deadletter.Filter{}, "")
	for _, s := range deadletter.States() {
		if !slices.ContainsFunc(letters, func(l deadletter.Letter) bool { return l.State == s }) {
			r.t.Fatalf("no letter of the population is %s", s)
		}
	}
	return letters
}

func (r *rig) filterFields() {
	letters := r.population()
	some := letters[len(letters)/2]
	job := letters[slices.IndexFunc(letters, func(l deadletter.Letter) bool { return l.State == deadletter.Replayed })].Claim.Job
	filters := map[string]deadletter.Filter{
		"ids":            {IDs: []int64{some.ID, some.ID + 1, 1 << 40}},
		"message ids":    {MessageIDs: []string{some.MessageID, "m-0", "unknown"}},
		"no key":         {HasKey: true},
		"empty key":      {HasKey: true, Key: []byte{}},
		"key":            {HasKey: true, Key: []byte("b")},
		"topics":         {Topics: []string{"cash.dlt", "back.dlt"}},
		"origins":        {Origins: []string{"cash", "unknown"}},
		"no origin":      {Origins: []string{""}},
		"groups":         {Groups: []string{"mail"}},
		"reasons":        {Reasons: []envelope.Reason{envelope.ReasonPoison, envelope.ReasonBlocked}},
		"no reason":      {Reasons: []envelope.Reason{""}},
		"error types":    {ErrorTypes: []string{"ValueError"}},
		"error text":     {ErrorText: "invalid AMOUNT"},
		"fingerprints":   {Fingerprints: []string{"beef"}},
		"labels":         {Labels: []string{"v2"}},
		"job":            {Job: job},
		"partition":      {Partition: new(int32)},
		"offset":         {Offset: new(int64(7))},
		"dead from":      {DeadFrom: some.DeadAt},
		"dead to":        {DeadTo: some.DeadAt},
		"min attempt":    {MinAttempt: 3},
		"max attempt":    {MaxAttempt: 3},
		"min deliveries": {MinDeliveries: 5},
		"up to":          {UpTo: some.ID},
		"unkept":         {Unkept: true},
		"expiring":       {Expiring: []deadletter.Cut{cut("orders.dlt", some.DeadAt)}},
		"expiring of several": {Expiring: []deadletter.Cut{
			cut("orders.dlt", some.DeadAt), cut("cash.dlt", began.Add(time.Hour)), {Topic: "back.dlt", Before: began.Add(time.Hour)},
		}},
	}
	for _, s := range deadletter.States() {
		filters["state "+string(s)] = deadletter.Filter{States: []deadletter.State{s}}
	}
	for name, f := range filters {
		want := selected(letters, f, deadletter.Newest)
		if len(want) == 0 || len(want) == len(letters) {
			r.t.Errorf("%s selects %d of %d letters, which shows nothing", name, len(want), len(letters))
		}
		r.same("letters by "+name, ids(r.all(f, "")), ids(want))
		n, err := r.ledger.Count(r.ctx(), f)
		r.no(err)
		r.same("count by "+name, n, int64(len(want)))
	}
}

func cut(topic string, before time.Time) deadletter.Cut {
	return deadletter.Cut{TopicID: topicID(topic), Topic: topic, Before: before}
}

func (r *rig) filterText() {
	texts := []string{"100% sure", "100 sure", "a_b", "aXb", `back\slash`, "UPPER lower", "[a-c]", "*?"}
	for i, text := range texts {
		r.index(letter(int64(i), func(l *deadletter.Letter) { l.ErrorText = text }))
	}
	letters := r.all(deadletter.Filter{}, "")
	for _, part := range append(texts, "%", "_", `\`, "upper LOWER", "0%", "a_", "[", "*", "?", "%%") {
		f := deadletter.Filter{ErrorText: part}
		r.same("letters with the text "+part, ids(r.all(f, "")), ids(selected(letters, f, "")))
	}
}

func (r *rig) filterAll() {
	letters := r.population()
	r.same("letters", len(r.all(deadletter.Filter{
		IDs: []int64{}, MessageIDs: []string{}, Topics: []string{}, States: []deadletter.State{}, Key: nil,
	}, "")), len(letters))
}

func (r *rig) filterRandom() {
	letters := r.population()
	lists := func(t *rapid.T, values ...string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(values), 0, 2, rapid.ID).Draw(t, "values")
	}
	rapid.Check(r.t, func(t *rapid.T) {
		some := rapid.SampledFrom(letters).Draw(t, "some")
		var f deadletter.Filter
		fields := map[string]func(){
			"id":         func() { f.IDs = []int64{some.ID, 3} },
			"message id": func() { f.MessageIDs = lists(t, some.MessageID, "m-1", "m-2", "m-3") },
			"key":        func() { f.Key, f.HasKey = some.Key, true },
			"topic":      func() { f.Topics = lists(t, "orders.dlt", "cash.dlt", "back.dlt") },
			"origin":     func() { f.Origins = lists(t, "orders", "cash", "") },
			"group":      func() { f.Groups = lists(t, "billing", "mail", "") },
			"reason":     func() { f.Reasons = []envelope.Reason{some.Reason} },
			"error type": func() { f.ErrorTypes = lists(t, "TimeoutError", "ValueError", "") },
			"error text": func() { f.ErrorText = rapid.SampledFrom([]string{"an", "2%", "AMOUNT"}).Draw(t, "text") },
			"label":      func() { f.Labels = lists(t, "v1", "v2", "") },
			"state": func() {
				f.States = rapid.SliceOfN(rapid.SampledFrom(deadletter.States()), 0, 4).Draw(t, "states")
			},
			"job":       func() { f.Job = some.Claim.Job },
			"partition": func() { f.Partition = &some.Place.Partition },
			"dead from": func() { f.DeadFrom = some.DeadAt },
			"dead to":   func() { f.DeadTo = some.DeadAt.Add(time.Hour) },
			"attempt":   func() { f.MinAttempt, f.MaxAttempt = 1, some.Attempt },
			"up to":     func() { f.UpTo = some.ID },
			"unkept":    func() { f.Unkept = true },
			"expiring": func() {
				f.Expiring = []deadletter.Cut{cut("orders.dlt", some.DeadAt), cut("cash.dlt", began.Add(time.Minute))}[:rapid.IntRange(1, 2).Draw(t, "cuts")]
			},
		}
		names := []string{}
		for name := range fields {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID).Draw(t, "fields") {
			fields[name]()
		}
		order := rapid.SampledFrom([]deadletter.Order{"", deadletter.Newest, deadletter.Oldest, deadletter.ReplayOrder}).Draw(t, "order")
		size := rapid.IntRange(1, 70).Draw(t, "page size")
		want := selected(letters, f, order)
		got := []int64{}
		for page := (deadletter.Page{Order: order, Limit: size}); ; {
			part, err := r.ledger.Letters(r.ctx(), f, page)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ids(part.Letters)...)
			if len(part.Letters) > size || part.Next != "" && len(part.Letters) != size {
				t.Fatalf("a page of %d letters, limit %d, next %q", len(part.Letters), size, part.Next)
			}
			if page.After = part.Next; part.Next == "" {
				break
			}
		}
		if !slices.Equal(got, ids(want)) {
			t.Fatalf("filter %+v selects %v, want %v", f, got, ids(want))
		}
	})
}

func (r *rig) pagesArriving() {
	for _, order := range []deadletter.Order{deadletter.Newest, deadletter.Oldest, deadletter.ReplayOrder} {
		topic := "dlt-" + string(order)
		place := in(topic, topic, 0)
		var before []deadletter.Letter
		for i := range int64(10) {
			// All died in the same moment, twice: the id decides.
			before = append(before, letter(i, place, from("orders", int32(i%2), i), func(l *deadletter.Letter) { l.DeadAt = began.Add(time.Duration(i/5) * time.Hour) }))
		}
		before = r.index(before...)
		f := deadletter.Filter{Topics: []string{topic}}
		seen := map[int64]int{}
		arrived := int64(10)
		for page := (deadletter.Page{Order: order, Limit: 3}); ; {
			part, err := r.ledger.Letters(r.ctx(), f, page)
			r.no(err)
			for _, l := range part.Letters {
				seen[l.ID]++
			}
			if page.After = part.Next; part.Next == "" {
				break
			}
			if arrived < 14 {
				// One arrives before what was read, one after it, and the last one that was read goes.
				r.index(letter(arrived, place, from("orders", 0, -1), func(l *deadletter.Letter) { l.DeadAt = began.Add(-time.Hour) }),
					letter(arrived+1, place, from("another", 0, arrived), func(l *deadletter.Letter) { l.DeadAt = began.Add(9 * time.Hour) }))
				arrived += 2
				last := part.Letters[len(part.Letters)-1]
				_, err := r.ledger.Discard(r.ctx(), of(last), "ada", "test data")
				r.no(err)
				_, err = r.ledger.Purge(r.ctx(), deadletter.Filter{IDs: []int64{last.ID}, States: []deadletter.State{deadletter.Discarded}}, "ada", "test data")
				r.no(err)
			}
		}
		for _, l := range before {
			if seen[l.ID] != 1 {
				r.t.Errorf("order %s: letter %d, which was there from the start, is seen %d times", order, l.Place.Offset, seen[l.ID])
			}
		}
		for id, n := range seen {
			if n != 1 {
				r.t.Errorf("order %s: letter %d is seen %d times", order, id, n)
			}
		}
	}
}

func (r *rig) pagesExpiring() {
	letters := r.index(letter(0), letter(1), letter(2), letter(3), letter(4, in("orders.dlt", "orders.dlt made again", 0)))
	before := letters[3].DeadAt
	var got []int64
	for page := (deadletter.Page{Order: deadletter.Oldest, Limit: 2}); ; before = before.Add(time.Second) {
		part, err := r.ledger.Letters(r.ctx(), deadletter.Filter{Expiring: []deadletter.Cut{cut("orders.dlt", before)}}, page)
		r.no(err)
		got = append(got, ids(part.Letters)...)
		for _, l := range part.Letters {
			// What is kept is not about to be taken, and must not make the next page leave out another one.
			_, err := r.ledger.Keep(r.ctx(), map[int64]deadletter.Payload{l.ID: {Value: []byte("v")}}, "ada", "retention is near")
			r.no(err)
		}
		if page.After = part.Next; part.Next == "" {
			break
		}
	}
	r.same("letters that were about to expire", got, ids(letters[:4]))
	n, err := r.ledger.Count(r.ctx(), deadletter.Filter{Expiring: []deadletter.Cut{cut("orders.dlt", before.Add(time.Hour))}})
	r.no(err)
	r.same("letters about to expire that are not kept", n, int64(0))
}

func (r *rig) lastPage() {
	r.index(letter(0), letter(1), letter(2), letter(3))
	page, err := r.ledger.Letters(r.ctx(), deadletter.Filter{}, deadletter.Page{Limit: 2})
	r.no(err)
	if page.Next == "" {
		r.t.Fatal("the first of two pages says that nothing follows")
	}
	page, err = r.ledger.Letters(r.ctx(), deadletter.Filter{}, deadletter.Page{Limit: 2, After: page.Next})
	r.no(err)
	if len(page.Letters) != 2 || page.Next != "" {
		r.t.Fatalf("the last page has %d letters and says that more follow: %q", len(page.Letters), page.Next)
	}
	page, err = r.ledger.Letters(r.ctx(), deadletter.Filter{Topics: []string{"unknown"}}, deadletter.Page{})
	r.no(err)
	if len(page.Letters) != 0 || page.Next != "" {
		r.t.Fatalf("an empty answer is %+v", page)
	}
}

func (r *rig) pageDefault() {
	place := letter(0).Place
	r.next(place)
	batch := deadletter.Batch{TopicID: place.TopicID, Topic: place.Topic, Next: 101}
	for i := range int64(101) {
		batch.Letters = append(batch.Letters, letter(i))
	}
	r.no(r.ledger.Index(r.ctx(), batch))
	page, err := r.ledger.Letters(r.ctx(), deadletter.Filter{}, deadletter.Page{})
	r.no(err)
	if len(page.Letters) != 100 || page.Next == "" {
		r.t.Fatalf("%d letters, next %q", len(page.Letters), page.Next)
	}
}

func (r *rig) wrongCursor() {
	r.index(letter(0), letter(1), letter(2))
	filter := deadletter.Filter{Topics: []string{"orders.dlt"}}
	page, err := r.ledger.Letters(r.ctx(), filter, deadletter.Page{Limit: 1})
	r.no(err)
	wrong := map[string]func() (deadletter.Letters, error){
		"another filter": func() (deadletter.Letters, error) {
			return r.ledger.Letters(r.ctx(), deadletter.Filter{Origins: []string{"orders.dlt"}}, deadletter.Page{Limit: 1, After: page.Next})
		},
		"another order": func() (deadletter.Letters, error) {
			return r.ledger.Letters(r.ctx(), filter, deadletter.Page{Order: deadletter.Oldest, Limit: 1, After: page.Next})
		},
	}
	for _, garbage := range []string{"x", "!!!", page.Next + "A", page.Next[1:], "\x00", string(bytes.Repeat([]byte("A"), 10_000)), "' OR 1=1 --"} {
		wrong[garbage] = func() (deadletter.Letters, error) {
			return r.ledger.Letters(r.ctx(), filter, deadletter.Page{Limit: 1, After: garbage})
		}
	}
	for what, ask := range wrong {
		if _, err := ask(); err == nil {
			r.t.Errorf("a cursor is accepted for %.40q", what)
		} else {
			r.is(err, deadletter.ErrCursor)
		}
	}
	again, err := r.ledger.Letters(r.ctx(), filter, deadletter.Page{Order: deadletter.Newest, Limit: 2, After: page.Next})
	r.no(err)
	r.same("letters after the cursor with another limit", len(again.Letters), 2)
}

func (r *rig) replayOrder() {
	letters := r.index(
		letter(0, from("orders", 1, 7)), letter(1, from("orders", 1, 5)), letter(2, from("cash", 2, 9)),
		letter(3, from("orders", -1, -1)), letter(4, from("orders", 0, 100)), letter(5, from("", -1, -1)),
		letter(6, from("orders", 1, 5)), letter(7, from("orders", 1, 6), in("another.dlt", "another.dlt", 3)),
	)
	want := []int64{}
	for _, i := range []int{2, 4, 1, 6, 7, 0, 3, 5} {
		want = append(want, letters[i].ID)
	}
	r.same("letters", ids(r.all(deadletter.Filter{}, deadletter.ReplayOrder)), want)
}
