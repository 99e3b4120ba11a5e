package ledgertest

import (
	"github.com/kafka-redrive/redrive/internal/deadletter"
)

func expiryRules() []rule {
	return []rule{
		{"dead letters below an offset expire unless their bytes are kept", (*rig).expire},
		{"dead letters of a topic that was made again expire", (*rig).expireTopics},
		{"replayed letters are judged by id", (*rig).judge},
	}
}

func (r *rig) expire() {
	letters := r.index(letter(0), letter(1), letter(2), letter(3), letter(4), letter(9, in("orders.dlt", "orders.dlt", 1)),
		letter(0, in("orders.dlt", "orders.dlt made again", 0)))
	kept := r.indexKept([]deadletter.Letter{letter(5)}, []deadletter.Payload{{Value: []byte("v")}})[0]
	edge := r.index(letter(6))[0]
	job := r.leased(spec(), letters[1], letters[2])
	claimed := r.granted(job, letters[1], letters[2])
	r.finish(sent(claimed[0], 500))
	_, err := r.ledger.Discard(r.ctx(), of(letters[3]), "ada", "test data")
	r.no(err)

	n, err := r.ledger.Expire(r.ctx(), topicID("orders.dlt"), 0, 6)
	r.no(err)
	r.same("letters expired", n, int64(2))
	r.states(letters, deadletter.Expired, deadletter.Replayed, deadletter.Claimed, deadletter.Discarded, deadletter.Expired, deadletter.Dead, deadletter.Dead)
	r.states([]deadletter.Letter{kept, edge}, deadletter.Dead, deadletter.Dead)
	if e := r.audit()[0]; e.Action != "expire" || e.Count != 2 {
		r.t.Errorf("newest audit row is %+v", e)
	}
	n, err = r.ledger.Expire(r.ctx(), topicID("orders.dlt"), 0, 6)
	r.no(err)
	r.same("letters expired the second time", n, int64(0))
}

func (r *rig) expireTopics() {
	old := r.index(letter(0), letter(1, in("orders.dlt", "orders.dlt", 1)), letter(0, in("cash.dlt", "cash.dlt", 0)))
	kept := r.indexKept([]deadletter.Letter{letter(1)}, []deadletter.Payload{{}})[0]
	middle := r.index(letter(0, in("orders.dlt", "orders.dlt made again", 0)))[0]
	fresh := r.index(letter(0, in("orders.dlt", "orders.dlt made once more", 0)))[0]

	n, err := r.ledger.ExpireTopics(r.ctx(), "orders.dlt", topicID("orders.dlt made once more"))
	r.no(err)
	r.same("letters expired", n, int64(3))
	r.states(append(old, kept, middle, fresh), deadletter.Expired, deadletter.Expired, deadletter.Dead, deadletter.Dead, deadletter.Expired, deadletter.Dead)
	if e := r.audit()[0]; e.Action != "expire" || e.Count != 3 {
		r.t.Errorf("newest audit row is %+v", e)
	}

	n, err = r.ledger.ExpireTopics(r.ctx(), "orders.dlt", deadletter.TopicID{})
	r.no(err)
	r.same("letters expired of a topic that is gone", n, int64(1))
	r.states([]deadletter.Letter{fresh}, deadletter.Expired)
}

func (r *rig) judge() {
	letters := r.index(letter(0), letter(1), letter(2), letter(3), letter(4))
	job := r.leased(spec(), letters[:4]...)
	r.replay(job, letters[:4]...)
	r.index(letter(5, named(letters[1].MessageID), cameBack(job.ID, 1)))

	awaiting := func(after int64, limit int) []int64 {
		got, err := r.ledger.Awaiting(r.ctx(), after, limit)
		r.no(err)
		return ids(got)
	}
	r.same("letters awaiting", awaiting(0, 10), []int64{letters[0].ID, letters[2].ID, letters[3].ID})
	r.same("the first of them", awaiting(0, 1), []int64{letters[0].ID})
	r.same("those after it", awaiting(letters[0].ID, 10), []int64{letters[2].ID, letters[3].ID})
	first, err := r.ledger.Awaiting(r.ctx(), 0, 1)
	r.no(err)
	r.same("the copy to be judged", first[0].Copy, deadletter.Target{Topic: "orders", Partition: 1, Offset: 500})

	n, err := r.ledger.Succeed(r.ctx(), ids(letters[:3]))
	r.no(err)
	r.same("letters that have succeeded", n, int64(2))
	r.states(letters, deadletter.Succeeded, deadletter.Returned, deadletter.Succeeded, deadletter.Replayed, deadletter.Dead)
	n, err = r.ledger.Succeed(r.ctx(), ids(letters[:3]))
	r.no(err)
	r.same("letters that have succeeded the second time", n, int64(0))
	r.same("letters awaiting", awaiting(0, 10), []int64{letters[3].ID})
}
