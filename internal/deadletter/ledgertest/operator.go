package ledgertest

import (
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

func operatorRules() []rule {
	return []rule{
		{"only dead letters are discarded, and only discarded ones come back", (*rig).discard},
		{"a claimed letter is not discarded, its lease run out or not", (*rig).discardClaimed},
		{"a purge must name states", (*rig).purgeNames},
		{"a purge takes no dead letter unless it names dead, and never a claimed one", (*rig).purge},
		{"a purge takes the bytes and leaves the audit trail", (*rig).purgeBytes},
		{"a job survives a purge of its letters", (*rig).purgeUnderJob},
		{"bytes are kept on demand", (*rig).keep},
		{"each change of an operator is audited", (*rig).operatorAudited},
	}
}

func (r *rig) discard() {
	letters := r.index(letter(0), letter(1), letter(2), letter(3))
	r.replayed(letters[3])
	n, err := r.ledger.Discard(r.ctx(), of(letters[0], letters[1], letters[3]), "ada", "test data")
	r.no(err)
	r.same("letters discarded", n, int64(2))
	r.states(letters, deadletter.Discarded, deadletter.Discarded, deadletter.Dead, deadletter.Replayed)
	discarded := r.get(letters[0].ID)
	if discarded.Note != "test data" || discarded.StateAt.Before(letters[0].StateAt) {
		r.t.Errorf("note %q since %s", discarded.Note, discarded.StateAt)
	}
	n, err = r.ledger.Discard(r.ctx(), of(letters[0]), "ada", "test data")
	r.no(err)
	r.same("letters discarded the second time", n, int64(0))

	n, err = r.ledger.Undiscard(r.ctx(), of(letters...), "ben", "they are wanted")
	r.no(err)
	r.same("letters that come back", n, int64(2))
	r.states(letters, deadletter.Dead, deadletter.Dead, deadletter.Dead, deadletter.Replayed)
	r.audited("undiscard", "ben", "they are wanted", 2)
}

func (r *rig) discardClaimed() {
	l := r.index(letter(0))[0]
	job := r.leased(spec(), l)
	claimed := r.granted(job, l)
	r.lapse(job)
	n, err := r.ledger.Discard(r.ctx(), of(l), "ada", "test data")
	r.no(err)
	r.same("letters discarded", n, int64(0))
	r.finish(sent(claimed[0], 500))
	r.states([]deadletter.Letter{l}, deadletter.Replayed)
}

func (r *rig) purgeNames() {
	letters := r.index(letter(0), letter(1))
	r.replayed(letters[0])
	if n, err := r.ledger.Purge(r.ctx(), of(letters...), "ada", "old"); err == nil {
		r.t.Errorf("a purge without states removes %d letters", n)
	}
	r.states(letters, deadletter.Replayed, deadletter.Dead)
}

func (r *rig) purge() {
	letters := r.index(letter(0), letter(1), letter(2), letter(3), letter(4))
	r.replayed(letters[1])
	job := r.leased(spec(), letters[2])
	r.granted(job, letters[2])
	_, err := r.ledger.Discard(r.ctx(), of(letters[3]), "ada", "test data")
	r.no(err)

	n, err := r.ledger.Purge(r.ctx(), deadletter.Filter{States: []deadletter.State{deadletter.Replayed, deadletter.Claimed}}, "ada", "old")
	r.no(err)
	r.same("letters purged", n, int64(1))
	r.same("letters left", ids(r.all(deadletter.Filter{}, deadletter.Oldest)), ids([]deadletter.Letter{letters[0], letters[2], letters[3], letters[4]}))

	n, err = r.ledger.Purge(r.ctx(), deadletter.Filter{States: deadletter.States(), DeadTo: letters[4].DeadAt}, "ada", "old")
	r.no(err)
	r.same("letters purged by all states and age", n, int64(2))
	r.same("letters left", ids(r.all(deadletter.Filter{}, deadletter.Oldest)), ids([]deadletter.Letter{letters[2], letters[4]}))
	_, err = r.ledger.Letter(r.ctx(), letters[0].ID)
	r.is(err, deadletter.ErrUnknown)
	r.same("next offset", r.next(letters[0].Place), int64(5))
}

func (r *rig) purgeBytes() {
	l := r.indexKept([]deadletter.Letter{letter(0)}, []deadletter.Payload{{Value: []byte("v")}})[0]
	r.replayed(l)
	before := len(r.audit())
	_, err := r.ledger.Purge(r.ctx(), deadletter.Filter{States: []deadletter.State{deadletter.Replayed}}, "ada", "old")
	r.no(err)
	got, err := r.ledger.Payload(r.ctx(), l.ID)
	r.no(err)
	if got != nil {
		r.t.Errorf("the bytes of a purged letter are %+v", got)
	}
	r.same("rows of the audit trail", len(r.audit()), before+1)
}

func (r *rig) purgeUnderJob() {
	letters := r.index(letter(0), letter(1))
	job := r.leased(spec(), letters...)
	want := r.want(job.ID, letters[0].ID)
	_, err := r.ledger.Purge(r.ctx(), deadletter.Filter{IDs: []int64{letters[0].ID}, States: []deadletter.State{deadletter.Dead}}, "ada", "test data")
	r.no(err)
	claimed, err := r.ledger.Claim(r.ctx(), job.ID, job.Fence, []deadletter.Want{want})
	r.no(err)
	if len(claimed) != 1 || claimed[0].Granted != nil {
		r.t.Fatalf("a letter that is purged is granted: %+v", claimed)
	}
	r.no(r.ledger.Skip(r.ctx(), job.ID, job.Fence, map[int64]string{want.Seq: "purged"}))
	r.replay(job, letters[1])
	job = r.end(job)
	if job.Done != 1 || job.Left() != 0 {
		r.t.Errorf("the job ends as %+v", job)
	}
	_, err = r.ledger.Items(r.ctx(), job.ID, 0, limit)
	r.no(err)
}

func (r *rig) keep() {
	letters := r.index(letter(0), letter(1))
	kept := r.indexKept([]deadletter.Letter{letter(2)}, []deadletter.Payload{{Value: []byte("first")}})[0]
	want := deadletter.Payload{Key: []byte("k"), Value: []byte{}, Headers: []deadletter.Header{{Key: "a", Value: []byte("1")}}}
	n, err := r.ledger.Keep(r.ctx(), map[int64]deadletter.Payload{letters[0].ID: want, kept.ID: {Value: []byte("second")}, 1 << 40: {}}, "ada", "retention is near")
	r.no(err)
	r.same("letters kept that had no bytes", n, int64(1))
	got, err := r.ledger.Payload(r.ctx(), letters[0].ID)
	r.no(err)
	if got == nil || !r.get(letters[0].ID).Kept {
		r.t.Fatal("the bytes are not kept")
	}
	r.same("the bytes", *got, want)
	got, err = r.ledger.Payload(r.ctx(), kept.ID)
	r.no(err)
	r.same("the bytes that were there", string(got.Value), "first")
	_, err = r.ledger.Expire(r.ctx(), topicID("orders.dlt"), 0, 10)
	r.no(err)
	r.states(letters, deadletter.Dead, deadletter.Expired)
}

func (r *rig) operatorAudited() {
	letters := r.index(letter(0), letter(1), letter(2))
	began := r.audit()
	_, err := r.ledger.Discard(r.ctx(), of(letters[:2]...), "ada", "test data")
	r.no(err)
	r.audited("discard", "ada", "test data", 2)
	_, err = r.ledger.Undiscard(r.ctx(), of(letters[0]), "ben", "a mistake")
	r.no(err)
	r.audited("undiscard", "ben", "a mistake", 1)
	_, err = r.ledger.Purge(r.ctx(), deadletter.Filter{States: []deadletter.State{deadletter.Discarded}}, "cyd", "old")
	r.no(err)
	r.audited("purge", "cyd", "old", 1)
	_, err = r.ledger.Keep(r.ctx(), map[int64]deadletter.Payload{letters[2].ID: {}}, "dot", "retention is near")
	r.no(err)
	r.audited("keep", "dot", "retention is near", 1)
	entries := r.audit()
	r.same("rows", len(entries), len(began)+4)
	for i, e := range entries[:4] {
		if e.Object == "" || time.Since(e.At).Abs() > time.Hour || i > 0 && e.ID >= entries[i-1].ID {
			r.t.Errorf("row %d is %+v", i, e)
		}
	}
}
