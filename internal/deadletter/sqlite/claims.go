package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// wanted is an item of a job, with its letter, as a claim needs to know them.
type wanted struct {
	item    deadletter.ItemState
	letter  int64
	state   deadletter.State // "" if the letter is purged
	message string
	claim   deadletter.Claim // the current or last one
}

// Claim implements deadletter.Jobs.
func (l *Ledger) Claim(ctx context.Context, id string, fence idempotency.Fence, wants []deadletter.Want) (results []deadletter.ClaimResult, err error) {
	err = l.change(ctx, "claim letters", func(tx *change) error {
		j, err := tx.running(id, fence)
		if err != nil {
			return err
		}
		known, err := tx.wanted(id, wants)
		if err != nil {
			return err
		}
		results = make([]deadletter.ClaimResult, len(wants))
		var granted []int
		for i, want := range wants {
			results[i].Want = want
			w := known[want.Seq]
			if w == nil || w.letter != want.Letter {
				continue // Not an item of this job.
			}
			if !w.grantable(j.Spec.Force, tx.now) || slices.ContainsFunc(granted, func(g int) bool { return wants[g].Seq == want.Seq }) {
				results[i].Refused = w.state
				if w.state == deadletter.Claimed {
					results[i].Until = w.claim.Until
				}
				continue
			}
			granted = append(granted, i)
		}
		return tx.grant(&j, known, granted, results)
	})
	return results, err
}

// grantable tells whether a letter may be claimed.
func (w *wanted) grantable(force bool, now time.Time) bool {
	if w.item != deadletter.ItemOpen {
		return false // It was decided in this job. A forced one must not do so twice.
	}
	switch w.state {
	case deadletter.Dead:
		return true
	case deadletter.Claimed:
		return !w.claim.Until.After(now)
	case deadletter.Replayed, deadletter.Succeeded, deadletter.Returned, deadletter.Discarded:
		return force
	default:
		return false
	}
}

// wanted reads the items that are wanted, by seq.
func (c *change) wanted(job string, wants []deadletter.Want) (map[int64]*wanted, error) {
	seqs := make([]int64, len(wants))
	for i, want := range wants {
		seqs[i] = want.Seq
	}
	known := make(map[int64]*wanted, len(wants))
	err := each(c.rows, c.tx, `SELECT items.seq, items.letter, items.state, coalesce(letters.state, ''), coalesce(message_id, ''), coalesce(letters.job, ''), coalesce(owner, ''),
coalesce(fence_epoch, 0), coalesce(fence_n, 0), claimed_until, coalesce(claim_count, 0), coalesce(target_topic, ''), coalesce(target_partition, 0), coalesce(target_offset, -1)
FROM items LEFT JOIN letters ON letters.id = items.letter WHERE items.job = ?1 AND items.seq IN (SELECT value FROM json_each(?2))`,
		[]any{job, list(seqs)}, func(scan func(...any) error) error {
			var seq int64
			w := &wanted{}
			if err := scan(&seq, &w.letter, &w.item, &w.state, &w.message, &w.claim.Job, &w.claim.Owner, &w.claim.Fence.Epoch, &w.claim.Fence.N,
				(*moment)(&w.claim.Until), &w.claim.ReplayCount, &w.claim.Target.Topic, &w.claim.Target.Partition, &w.claim.Target.Offset); err != nil {
				return err
			}
			w.claim.Letter = w.letter
			known[seq] = w
			return nil
		})
	return known, err
}

// grant claims the letters of results that are named by their index.
func (c *change) grant(j *deadletter.Job, known map[int64]*wanted, granted []int, results []deadletter.ClaimResult) error {
	if len(granted) == 0 {
		return nil
	}
	counts, err := c.replayCounts(known, granted, results)
	if err != nil {
		return err
	}
	epoch, fence, err := c.fences(len(granted))
	if err != nil {
		return err
	}
	for _, i := range granted {
		want, w := results[i].Want, known[results[i].Want.Seq]
		claim := deadletter.Claim{
			Letter: w.letter, Owner: j.Owner, Fence: idempotency.Fence{Epoch: epoch, N: fence}, Until: j.Until, Job: j.ID, Target: want.Target,
		}
		fence++
		if w.state == deadletter.Claimed {
			before := w.claim
			results[i].Before = &before
		}
		if w.state == deadletter.Claimed && w.claim.Job == j.ID {
			claim.ReplayCount = w.claim.ReplayCount // It is the same replay.
		} else {
			counts[w.message]++
			claim.ReplayCount = counts[w.message]
		}
		changed, err := c.exec(`UPDATE letters SET state = 'claimed', state_at = ?1, note = '', job = ?2, owner = ?3, fence_epoch = ?4, fence_n = ?5, claimed_until = ?6,
claim_count = ?7, target_topic = ?8, target_partition = ?9, target_offset = ?10 WHERE id = ?11 AND state = ?12 AND fence_epoch = ?13 AND fence_n = ?14`,
			c.micros(), claim.Job, claim.Owner, claim.Fence.Epoch, claim.Fence.N, stamp(claim.Until),
			claim.ReplayCount, claim.Target.Topic, claim.Target.Partition, claim.Target.Offset,
			w.letter, string(w.state), w.claim.Fence.Epoch, w.claim.Fence.N)
		if err != nil {
			return err
		}
		if changed != 1 {
			return fmt.Errorf("letter %d has changed under the transaction", w.letter)
		}
		results[i].Granted = &claim
	}
	return nil
}

// replayCounts are the highest of any letter or claim, by message id.
func (c *change) replayCounts(known map[int64]*wanted, granted []int, results []deadletter.ClaimResult) (map[string]int, error) {
	messages := make([]string, len(granted))
	for n, i := range granted {
		messages[n] = known[results[i].Want.Seq].message
	}
	counts := make(map[string]int, len(messages))
	err := each(c.rows, c.tx, `SELECT message_id, max(max(replay_count, claim_count)) FROM letters WHERE message_id IN (SELECT value FROM json_each(?1)) GROUP BY message_id`,
		[]any{list(messages)}, func(scan func(...any) error) error {
			var message string
			var count int
			if err := scan(&message, &count); err != nil {
				return err
			}
			counts[message] = count
			return nil
		})
	return counts, err
}

// held is a claimed letter, as an outcome needs to know it.
type held struct {
	fence    idempotency.Fence
	job      string
	message  string
	count    int
	returned bool // Its copy has come back already.
}

// Finish implements deadletter.Jobs.
func (l *Ledger) Finish(ctx context.Context, outcomes []deadletter.Outcome) (fenced []deadletter.Outcome, err error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	err = l.change(ctx, "write what became of letters", func(tx *change) error {
		fenced = nil
		known, err := tx.held(outcomes)
		if err != nil {
			return err
		}
		tally := counters{}
		for _, o := range outcomes {
			h := known[o.Claim.Letter]
			if h == nil || h.fence != o.Claim.Fence {
				fenced = append(fenced, o)
				continue
			}
			delete(known, o.Claim.Letter) // A second outcome of it is stale.
			if err := tx.finish(h, o, tally); err != nil {
				return err
			}
		}
		return tx.count(tally)
	})
	return fenced, err
}

// held reads the letters of outcomes that are claimed, by number.
func (c *change) held(outcomes []deadletter.Outcome) (map[int64]*held, error) {
	ids := make([]int64, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.Claim.Letter
	}
	known := make(map[int64]*held, len(outcomes))
	copies := map[[2]string][]*held{} // by replay id and message id of the copy
	messages := []string{}
	err := each(c.rows, c.tx, `SELECT id, fence_epoch, fence_n, job, message_id, claim_count FROM letters WHERE state = 'claimed' AND id IN (SELECT value FROM json_each(?1))`,
		[]any{list(ids)}, func(scan func(...any) error) error {
			var id int64
			h := &held{}
			if err := scan(&id, &h.fence.Epoch, &h.fence.N, &h.job, &h.message, &h.count); err != nil {
				return err
			}
			known[id] = h
			for _, message := range []string{h.message, idempotency.EditedID(h.message, h.job)} {
				copies[[2]string{h.job, message}] = append(copies[[2]string{h.job, message}], h)
				messages = append(messages, message)
			}
			return nil
		})
	if err != nil || len(known) == 0 {
		return known, err
	}
	// The copy may be consumed, fail and be indexed before it is marked.
	jobs := map[string]bool{}
	for _, h := range known {
		jobs[h.job] = true
	}
	for job := range jobs {
		err := each(c.rows, c.tx, `SELECT message_id, replay_count FROM letters WHERE replay_id = ?1 AND replay_id <> '' AND message_id IN (SELECT value FROM json_each(?2))`,
			[]any{job, list(messages)}, func(scan func(...any) error) error {
				var message string
				var count int
				err := scan(&message, &count)
				for _, h := range copies[[2]string{job, message}] {
					h.returned = h.returned || count == h.count || count == 0
				}
				return err
			})
		if err != nil {
			return nil, err
		}
	}
	return known, nil
}

// finish writes the outcome of a claimed letter.
func (c *change) finish(h *held, o deadletter.Outcome, tally counters) error {
	state, item, why := deadletter.Dead, deadletter.ItemOpen, ""
	copied, count := deadletter.Target{Offset: -1}, 0
	switch {
	case o.Copy.Offset >= 0 && o.Copy.Topic != "":
		state, item, copied, count = deadletter.Replayed, deadletter.ItemDone, o.Copy, h.count
		if h.returned {
			state = deadletter.Returned
		}
	case o.Error != "":
		item, why = deadletter.ItemFailed, o.Error
	case o.Skip != "":
		item, why = deadletter.ItemSkipped, o.Skip
	}
	if item != deadletter.ItemDone && o.Expired {
		state = deadletter.Expired
	}
	unused := 0
	if item == deadletter.ItemOpen {
		unused = 1 // It has replayed nothing, and the next claim counts as it did.
	}
	changed, err := c.exec(`UPDATE letters SET state = ?1, state_at = ?2, note = ?3, copy_topic = ?4, copy_partition = ?5, copy_offset = ?6, claim_count = claim_count - ?10
WHERE id = ?7 AND state = 'claimed' AND fence_epoch = ?8 AND fence_n = ?9`,
		string(state), c.micros(), why, copied.Topic, copied.Partition, copied.Offset, o.Claim.Letter, h.fence.Epoch, h.fence.N, unused)
	if err != nil {
		return err
	}
	if changed != 1 {
		return fmt.Errorf("letter %d has changed under the transaction", o.Claim.Letter)
	}
	if item == deadletter.ItemOpen {
		return nil
	}
	decided, err := c.decide(h.job, o.Seq, item, why, count, copied)
	if err == nil && decided {
		tally.add(h.job, item, why)
	}
	return err
}
