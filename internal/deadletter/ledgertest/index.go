package ledgertest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

func indexRules() []rule {
	return []rule{
		{"a letter is read back as it was indexed", (*rig).readBack},
		{"a letter that says little is read back as it was indexed", (*rig).readBackBare},
		{"text is never code", (*rig).hostileText},
		{"a partition that is not known begins at start", (*rig).firstNext},
		{"a batch is written only at the offset expected", (*rig).guard},
		{"of indexers that run side by side one writes each batch", (*rig).guardParallel},
		{"a batch is written whole or not at all", (*rig).whole},
		{"partitions do not disturb each other", (*rig).partitions},
		{"a topic that was made again is another one", (*rig).recreated},
		{"offsets without a letter are holes or lost", (*rig).holes},
		{"ids rise within a partition", (*rig).idsRise},
		{"keys that are nil and empty are kept apart", (*rig).nilKey},
		{"payloads are kept byte for byte, nil apart from empty", (*rig).payloads},
		{"a letter that comes back makes its replay returned", (*rig).comesBack},
		{"an edited letter that comes back makes its parent returned", (*rig).editedComesBack},
		{"a letter may come back before its replay is marked", (*rig).comesBackEarly},
		{"a letter that comes back late refutes its success", (*rig).comesBackLate},
		{"letters of a large batch are all there", (*rig).largeBatch},
		{"a fingerprint is seen once a letter has it", (*rig).unseen},
	}
}

// byLedger are the fields of a letter that the ledger sets.
var byLedger = cmpopts.IgnoreFields(deadletter.Letter{}, "ID", "IndexedAt", "StateAt", "Claim")

func (r *rig) readBack() {
	before := time.Now()
	want := letter(41, func(l *deadletter.Letter) {
		l.ReplayID, l.ReplayCount, l.Pointer = "0198a", 2, true
		l.OriginTimestamp = l.OriginTimestamp.Add(123 * time.Microsecond)
	})
	want.State, want.Copy.Offset = deadletter.Dead, -1
	got := r.index(want)[0]
	r.same("the letter", got, want, byLedger)
	if got.ID <= 0 || got.Claim.Job != "" || got.Claim.Fence != (idempotency.Fence{}) {
		r.t.Errorf("id %d, claim %+v", got.ID, got.Claim)
	}
	// The clock of the database may be another one than ours.
	for _, at := range []time.Time{got.IndexedAt, got.StateAt} {
		if at.Before(before.Add(-time.Hour)) || at.After(time.Now().Add(time.Hour)) {
			r.t.Errorf("the row says it was written at %s, it is %s", at, before)
		}
	}
	r.same("the letter in a list", r.all(deadletter.Filter{}, ""), []deadletter.Letter{got})
	_, err := r.ledger.Letter(r.ctx(), got.ID+1)
	r.is(err, deadletter.ErrUnknown)
}

func (r *rig) readBackBare() {
	want := deadletter.Letter{
		Place:     deadletter.Place{TopicID: topicID("bare"), Topic: "orders.dlt", Partition: 2},
		MessageID: "orders.dlt/2/0", OriginPartition: -1, OriginOffset: -1,
		DeadAt: time.UnixMilli(0).UTC(), State: deadletter.Dead, Copy: deadletter.Target{Offset: -1},
	}
	got := r.index(want)[0]
	r.same("the letter", got, want, byLedger)
	if got.Key != nil || !got.FailedAt.IsZero() || !got.OriginTimestamp.IsZero() || got.DeadAt.IsZero() {
		r.t.Errorf("what is not there and what is zero are mixed up: %+v", got)
	}
}

func (r *rig) hostileText() {
	for i, text := range []string{`'; DROP TABLE letters; --`, `" OR ""="`, "100%_\\", "\u20ac \U0001f4a9\n\t\r", "$1 ?1 :a @a", "{}[]"} {
		l := r.index(letter(int64(i), named(text), func(l *deadletter.Letter) {
			l.ErrorText, l.ErrorType, l.Label, l.Group, l.Fingerprint, l.Reason = text, text, text, text, text, envelope.Reason(text)
			l.Key = []byte(text)
		}))[0]
		for _, f := range []deadletter.Filter{
			{MessageIDs: []string{text}},
			{ErrorText: text},
			{ErrorTypes: []string{text}},
			{Labels: []string{text}},
			{Groups: []string{text}},
			{Fingerprints: []string{text}},
			{Reasons: []envelope.Reason{envelope.Reason(text)}},
			{Key: []byte(text), HasKey: true},
		} {
			r.same("letters of "+text, r.all(f, ""), []deadletter.Letter{l})
		}
		_, err := r.ledger.Discard(r.ctx(), of(l), text, text)
		r.no(err)
		r.audited("discard", text, text, 1)
	}
}

func (r *rig) firstNext() {
	id := topicID("orders.dlt")
	next, err := r.ledger.Next(r.ctx(), id, "orders.dlt", 0, 41)
	r.no(err)
	r.same("next offset of a new partition", next, int64(41))
	next, err = r.ledger.Next(r.ctx(), id, "orders.dlt", 0, 99)
	r.no(err)
	r.same("next offset when it is asked for with another start", next, int64(41))
}

func (r *rig) guard() {
	r.index(letter(0), letter(1))
	for _, expected := range []int64{0, 1, 3} {
		l := letter(expected)
		err := r.ledger.Index(r.ctx(), deadletter.Batch{
			TopicID: l.Place.TopicID, Topic: l.Place.Topic, Expected: expected, Next: expected + 1, Letters: []deadletter.Letter{l},
		})
		r.is(err, deadletter.ErrMoved)
	}
	r.same("next offset", r.next(letter(0).Place), int64(2))
	r.same("letters", len(r.all(deadletter.Filter{}, "")), 2)
}

func (r *rig) guardParallel() {
	const indexers, batches = 4, 20
	place := letter(0).Place
	r.next(place)
	var group sync.WaitGroup
	errs := make([]error, indexers)
	for i := range indexers {
		group.Go(func() {
			for at := int64(0); at < batches; {
				err := r.ledger.Index(r.ctx(), deadletter.Batch{
					TopicID: place.TopicID, Topic: place.Topic, Expected: at, Next: at + 1, Letters: []deadletter.Letter{letter(at)},
				})
				if err != nil && !errors.Is(err, deadletter.ErrMoved) {
					errs[i] = err
					return
				}
				if at, errs[i] = r.ledger.Next(r.ctx(), place.TopicID, place.Topic, 0, 0); errs[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	r.no(errors.Join(errs...))
	letters := r.all(deadletter.Filter{}, deadletter.Oldest)
	offsets := make([]int64, len(letters))
	want := make([]int64, batches)
	for i := range letters {
		offsets[i] = letters[i].Place.Offset
	}
	for i := range want {
		want[i] = int64(i)
	}
	r.same("offsets", offsets, want)
}

func (r *rig) whole() {
	place := letter(0).Place
	r.next(place)
	// The second letter has the place of the first, which cannot be: nothing of the batch may stay.
	err := r.ledger.Index(r.ctx(), deadletter.Batch{
		TopicID: place.TopicID, Topic: place.Topic, Next: 3, Letters: []deadletter.Letter{letter(0), letter(1), letter(1)},
	})
	if err == nil {
		r.t.Fatal("two letters of one place are accepted")
	}
	r.same("next offset", r.next(place), int64(0))
	r.same("letters", len(r.all(deadletter.Filter{}, "")), 0)
	r.index(letter(0))
}

func (r *rig) partitions() {
	r.index(letter(5), letter(7, in("orders.dlt", "orders.dlt", 1)), letter(2, in("cash.dlt", "cash.dlt", 0)))
	progress, err := r.ledger.Progress(r.ctx())
	r.no(err)
	slices.SortFunc(progress, func(a, b deadletter.Progress) int { return int(a.Next - b.Next) })
	r.same("progress", progress, []deadletter.Progress{
		{TopicID: topicID("cash.dlt"), Topic: "cash.dlt", Next: 3},
		{TopicID: topicID("orders.dlt"), Topic: "orders.dlt", Next: 6},
		{TopicID: topicID("orders.dlt"), Topic: "orders.dlt", Partition: 1, Next: 8},
	})
}

func (r *rig) recreated() {
	old := r.index(letter(0), letter(1))
	again := in("orders.dlt", "orders.dlt made again", 0)
	r.same("next offset of the new topic", r.next(letter(0, again).Place), int64(0))
	fresh := r.index(letter(0, again))[0]
	r.same("letters of the name", len(r.all(deadletter.Filter{Topics: []string{"orders.dlt"}}, "")), 3)
	if fresh.ID == old[0].ID || fresh.Place == old[0].Place {
		r.t.Errorf("the letter of the new topic is %+v, as the old one", fresh.Place)
	}
	r.same("next offset of the old topic", r.next(old[0].Place), int64(2))
}

func (r *rig) holes() {
	place := letter(0).Place
	r.next(place)
	batch := deadletter.Batch{TopicID: place.TopicID, Topic: place.Topic, Expected: 0, Next: 10, Lost: 4, Letters: []deadletter.Letter{letter(6)}}
	r.no(r.ledger.Index(r.ctx(), batch))
	batch = deadletter.Batch{TopicID: place.TopicID, Topic: place.Topic, Expected: 10, Next: 15, Lost: 5}
	r.no(r.ledger.Index(r.ctx(), batch))
	batch = deadletter.Batch{TopicID: place.TopicID, Topic: place.Topic, Expected: 15, Next: 20}
	r.no(r.ledger.Index(r.ctx(), batch))
	progress, err := r.ledger.Progress(r.ctx())
	r.no(err)
	r.same("progress", progress, []deadletter.Progress{{TopicID: place.TopicID, Topic: place.Topic, Next: 20, Lost: 9}})
	r.same("letters", len(r.all(deadletter.Filter{}, "")), 1)
}

func (r *rig) idsRise() {
	letters := r.index(letter(0), letter(3), letter(4), letter(9))
	if got := ids(letters); !slices.IsSorted(got) || len(slices.Compact(got)) != len(letters) {
		r.t.Errorf("ids are %v", got)
	}
	_, err := r.ledger.Discard(r.ctx(), of(letters[3]), "ada", "test data")
	r.no(err)
	_, err = r.ledger.Purge(r.ctx(), deadletter.Filter{States: []deadletter.State{deadletter.Discarded}}, "ada", "test data")
	r.no(err)
	if next := r.index(letter(10))[0]; next.ID <= letters[3].ID {
		r.t.Errorf("id %d is given again or goes back: the letter before, which is purged, had %d", next.ID, letters[3].ID)
	}
}

func (r *rig) nilKey() {
	letters := r.index(letter(0, keyed(nil)), letter(1, keyed([]byte{})), letter(2, keyed([]byte{0})), letter(3, keyed([]byte("\xff\x00'"))))
	for i, l := range letters {
		if (l.Key == nil) != (i == 0) {
			r.t.Errorf("key %#v of letter %d", l.Key, i)
		}
		r.same("letters of the key", ids(r.all(deadletter.Filter{Key: l.Key, HasKey: true}, "")), []int64{l.ID})
	}
}

func (r *rig) payloads() {
	payloads := []deadletter.Payload{
		{Key: []byte("k"), Value: []byte("\x00\xff"), Headers: []deadletter.Header{{Key: "b", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "b", Value: []byte{}}, {Key: ""}}},
		{},
		{Key: []byte{}, Value: []byte{}, Headers: []deadletter.Header{}},
	}
	letters := r.indexKept([]deadletter.Letter{letter(0), letter(1), letter(2)}, payloads)
	for i, l := range letters {
		if !l.Kept {
			r.t.Errorf("letter %d is not said to be kept", i)
		}
		got, err := r.ledger.Payload(r.ctx(), l.ID)
		r.no(err)
		if got == nil {
			r.t.Fatalf("letter %d has no payload", i)
		}
		// A record without headers has none, however its list of them came.
		r.same("payload", *got, payloads[i], cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Headers" }, cmpopts.EquateEmpty()))
	}
	bare := r.index(letter(3))[0]
	got, err := r.ledger.Payload(r.ctx(), bare.ID)
	r.no(err)
	if got != nil || bare.Kept {
		r.t.Errorf("a payload that is not kept is %+v", got)
	}
}

func (r *rig) comesBack() {
	letters := r.index(letter(0), letter(1), letter(2))
	job := r.leased(spec(), letters...)
	r.replay(job, letters...)
	r.index(letter(3, named(letters[1].MessageID), cameBack(job.ID, 1)), letter(4, named("another"), cameBack(job.ID, 1)),
		letter(5, named(letters[2].MessageID), cameBack("another job", 1)), letter(6, named(letters[2].MessageID)))
	r.states(letters, deadletter.Replayed, deadletter.Returned, deadletter.Replayed)
	back := r.get(letters[1].ID)
	if back.Copy.Offset != 501 || back.Claim.Job != job.ID {
		r.t.Errorf("a returned letter has forgotten its replay: %+v, %+v", back.Copy, back.Claim)
	}
}

func (r *rig) editedComesBack() {
	letters := r.index(letter(0), letter(1))
	job := r.leased(spec(func(s *deadletter.JobSpec) {
		s.Edit = &deadletter.Edit{SetHeaders: []deadletter.Header{{Key: "fixed", Value: []byte("yes")}}}
	}), letters...)
	r.replay(job, letters...)
	r.index(letter(2, named(idempotency.EditedID(letters[0].MessageID, job.ID)), cameBack(job.ID, 1)))
	r.states(letters, deadletter.Returned, deadletter.Replayed)
}

func (r *rig) comesBackEarly() {
	letters := r.index(letter(0), letter(1))
	job := r.leased(spec(), letters...)
	claimed := r.granted(job, letters...)
	// The copy is consumed, fails and is indexed while the replayer has not marked it yet.
	r.index(letter(2, named(letters[0].MessageID), cameBack(job.ID, 1)), letter(3, named(idempotency.EditedID(letters[1].MessageID, job.ID)), cameBack(job.ID, 1)))
	r.states(letters, deadletter.Claimed, deadletter.Claimed)
	r.finish(sent(claimed[0], 500), sent(claimed[1], 501))
	r.states(letters, deadletter.Returned, deadletter.Returned)
	r.same("items done", r.current(job.ID).Done, int64(2))
}

func (r *rig) comesBackLate() {
	letters := r.index(letter(0), letter(1))
	job := r.leased(spec(), letters...)
	claimed := r.granted(job, letters...)
	r.finish(failed(claimed[0], "too large"), sent(claimed[1], 500))
	n, err := r.ledger.Succeed(r.ctx(), ids(letters[1:]))
	r.no(err)
	r.same("letters that have succeeded", n, int64(1))
	r.index(letter(2, named(letters[0].MessageID), cameBack(job.ID, 1)), letter(3, named(letters[1].MessageID), cameBack(job.ID, 1)))
	r.states(letters, deadletter.Dead, deadletter.Returned)
}

func (r *rig) largeBatch() {
	const n = 5000
	place := letter(0).Place
	r.next(place)
	batch := deadletter.Batch{TopicID: place.TopicID, Topic: place.Topic, Next: n}
	for i := range int64(n) {
		batch.Letters = append(batch.Letters, letter(i))
	}
	r.no(r.ledger.Index(r.ctx(), batch))
	count, err := r.ledger.Count(r.ctx(), deadletter.Filter{})
	r.no(err)
	r.same("letters", count, int64(n))
	for _, i := range []int64{0, 1, n / 2, n - 1} {
		r.same("the message id", r.at(letter(i).Place).MessageID, letter(i).MessageID)
	}
}

func (r *rig) unseen() {
	ask := func(want ...string) {
		r.t.Helper()
		got, err := r.ledger.Unseen(r.ctx(), []string{"cafe", "", "f00d", "o'neill", "cafe"})
		r.no(err)
		r.same("the fingerprints that no letter has", got, want)
	}
	ask("cafe", "", "f00d", "o'neill", "cafe")
	print := func(print string) func(*deadletter.Letter) {
		return func(l *deadletter.Letter) { l.Fingerprint = print }
	}
	// The topic does not matter, nor what became of the letter.
	letters := r.index(letter(0, print("o'neill")), letter(0, print("cafe"), in("payments.dlt", "payments.dlt", 1)))
	ask("", "f00d")
	n, err := r.ledger.Discard(r.ctx(), deadletter.Filter{IDs: ids(letters)}, "alice", "noise")
	r.no(err)
	r.same("discarded", n, int64(2))
	ask("", "f00d")
	r.index(letter(1, print("")))
	ask("f00d")
	got, err := r.ledger.Unseen(r.ctx(), nil)
	r.no(err)
	r.same("of none", got, []string(nil))
}
