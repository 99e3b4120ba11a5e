package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
)

// batchBytes bounds the letters of one batch, as far as there are several. A session has four batches in memory at most.
const batchBytes = 4 << 20

// piece is one item on its way.
type piece struct {
	item   deadletter.Item
	topic  *Topic // nil: not configured any more
	target deadletter.Target

	payload deadletter.Payload
	// fault says why the letter can not be replayed, expired that its bytes are gone. Unread tells that nobody looked, because
	// another has the letter.
	fault   string
	expired bool
	unread  bool

	claim  deadletter.Claim
	before *deadletter.Claim
	record *kgo.Record
	err    error // of the last produce

	// end is what became of it. One that is unknown is left to time.
	end     deadletter.Outcome
	unknown bool
}

// pass takes the open items once, in their order. The stages run side by side, a batch in each: reading, claiming, sending and
// marking. A batch is handed to the client when all of the one before is acknowledged or has failed, so that order holds.
func (s *session) pass(work context.Context) {
	s.replan.Store(false)
	read, claimed, sent := make(chan []*piece), make(chan []*piece), make(chan []*piece)
	var group sync.WaitGroup
	group.Go(func() {
		defer close(read)
		s.readAll(read)
	})
	group.Go(func() {
		defer close(claimed)
		for batch := range read {
			if batch = s.claimBatch(batch); len(batch) > 0 {
				claimed <- batch
			}
		}
	})
	group.Go(func() {
		defer close(sent)
		for batch := range claimed {
			s.sendBatch(work, batch)
			sent <- batch
		}
	})
	for batch := range sent {
		s.finish(work, batch)
	}
	group.Wait()
}

// readAll reads the open items, batch by batch, with their bytes.
func (s *session) readAll(to chan<- []*piece) {
	from := int64(1)
	for s.hand.Err() == nil {
		var items []deadletter.Item
		err := s.r.persist(s.hand, func(ctx context.Context) (err error) {
			items, err = s.r.ledger.Items(ctx, s.job.ID, from, s.batchSize(), deadletter.ItemOpen)
			return err
		})
		if err != nil {
			s.stop(err)
			return
		}
		if len(items) == 0 {
			return
		}
		from = items[len(items)-1].Seq + 1
		for len(items) > 0 {
			n, size := 0, int64(0)
			for n < len(items) && (n == 0 || size+items[n].Letter.Size <= batchBytes) {
				size += items[n].Letter.Size
				n++
			}
			batch, err := s.readBatch(items[:n])
			if err != nil {
				s.stop(err)
				return
			}
			items = items[n:]
			select {
			case to <- batch:
			case <-s.hand.Done():
				return
			}
		}
	}
}

// readBatch finds out where the letters go, reads their bytes and lists the ends of their targets.
func (s *session) readBatch(items []deadletter.Item) ([]*piece, error) {
	batch := make([]*piece, 0, len(items))
	for _, item := range items {
		p := &piece{item: item, topic: s.r.topics[item.Letter.Place.Topic]}
		if refusal := s.r.mayReplay(&p.item.Letter, &s.job.Spec); refusal != nil {
			p.fault = refusal.Detail
		}
		switch item.Letter.State {
		case deadletter.Dead, deadletter.Claimed:
		default:
			p.unread = !s.job.Spec.Force
		}
		batch = append(batch, p)
	}
	if err := s.r.fill(s.hand, batch); err != nil {
		return nil, err
	}
	return batch, s.aim(batch)
}

// fill reads the bytes of a batch, from the topic, or where they are gone from it from the ledger.
func (r *Replayer) fill(ctx context.Context, batch []*piece) error {
	var wanted []*piece
	var places []deadletter.Place
	for _, p := range batch {
		if p.fault == "" && !p.unread {
			wanted, places = append(wanted, p), append(places, p.item.Letter.Place)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	results, err := r.fetcher.Fetch(ctx, places)
	if err != nil {
		return err
	}
	for i, p := range wanted {
		l := &p.item.Letter
		p.payload = results[i].Payload
		if results[i].Err != nil && l.Kept {
			var kept *deadletter.Payload
			err := r.persist(ctx, func(ctx context.Context) (err error) {
				kept, err = r.ledger.Payload(ctx, l.ID)
				return err
			})
			if err != nil && !answered(err) {
				return err
			}
			if kept != nil {
				p.payload, results[i].Err = *kept, nil
			}
		}
		switch {
		case results[i].Err != nil:
			p.fault, p.expired = results[i].Err.Error(), errors.Is(results[i].Err, fetch.ErrGone)
		case r.verify(ctx, l, &p.payload) != nil:
			p.fault = ErrChanged.Error()
		}
	}
	return nil
}

// claimBatch claims what can be claimed and returns those pieces. What another has is skipped.
func (s *session) claimBatch(batch []*piece) []*piece {
	skip := map[int64]string{}
	var wants []deadletter.Want
	bySeq := map[int64]*piece{}
	for _, p := range batch {
		if why := s.skips(&p.item.Letter); why != "" {
			skip[p.item.Seq] = why
			continue
		}
		wants = append(wants, deadletter.Want{Seq: p.item.Seq, Letter: p.item.Letter.ID, Target: p.target})
		bySeq[p.item.Seq] = p
	}
	if s.replan.Load() || !s.mayHand() {
		return nil
	}
	var results []deadletter.ClaimResult
	if len(wants) > 0 {
		err := s.r.persist(s.hand, func(ctx context.Context) (err error) {
			results, err = s.r.ledger.Claim(ctx, s.job.ID, s.fence, wants)
			return err
		})
		if err != nil {
			s.endedBy(err)
			return nil
		}
		s.r.opts.crash("after-claim")
	}
	var claimed []*piece
	var refused []deadletter.ClaimResult
	for _, c := range results {
		p := bySeq[c.Want.Seq]
		switch {
		case p == nil:
		case c.Granted != nil:
			p.claim, p.before = *c.Granted, c.Before
			p.end = deadletter.Outcome{Claim: p.claim, Seq: p.item.Seq, Copy: deadletter.Target{Partition: -1, Offset: -1}}
			claimed = append(claimed, p)
		default:
			refused = append(refused, c)
		}
	}
	s.skipRefused(refused, skip)
	if len(skip) > 0 {
		err := s.r.persist(s.hand, func(ctx context.Context) error { return s.r.ledger.Skip(ctx, s.job.ID, s.fence, skip) })
		if err != nil {
			s.endedBy(err) // The claimed ones are given back by the next stage.
		}
	}
	return claimed
}

// endedBy stops the session for an error that the ledger means.
func (s *session) endedBy(err error) {
	if errors.Is(err, deadletter.ErrFenced) {
		// Either another runner has the job, or it is not to run any more: watch may know better, and was first then.
		err = errFenced
	}
	s.stop(err)
}

// skipRefused says for each letter that was not granted who has it, or what became of it.
func (s *session) skipRefused(refused []deadletter.ClaimResult, skip map[int64]string) {
	if len(refused) == 0 {
		return
	}
	ids := make([]int64, 0, len(refused))
	for _, c := range refused {
		ids = append(ids, c.Want.Letter)
	}
	var found deadletter.Letters
	err := s.r.persist(s.hand, func(ctx context.Context) (err error) {
		found, err = s.r.ledger.Letters(ctx, deadletter.Filter{IDs: ids}, deadletter.Page{Limit: len(ids)})
		return err
	})
	if err != nil {
		s.endedBy(err)
		return
	}
	letters := map[int64]*deadletter.Letter{}
	for i := range found.Letters {
		letters[found.Letters[i].ID] = &found.Letters[i]
	}
	for _, c := range refused {
		l := letters[c.Want.Letter]
		switch {
		case l == nil:
			skip[c.Want.Seq] = "the letter is not in the ledger any more"
		case l.State == deadletter.Dead:
			// It was given back since: the next pass takes it.
		case l.State == deadletter.Claimed && l.Claim.Job == s.job.ID:
			s.stop(errHeld)
		case l.Claim.Job != "" && l.Claim.Job != s.job.ID:
			skip[c.Want.Seq] = fmt.Sprintf("the letter is %s by job %s", l.State, l.Claim.Job)
		default:
			skip[c.Want.Seq] = fmt.Sprintf("the letter is %s", l.State)
		}
	}
}

// finish marks a batch, under the fences of its letters.
func (s *session) finish(work context.Context, batch []*piece) {
	var outcomes []deadletter.Outcome
	for _, p := range batch {
		if p.unknown {
			s.leftUnknown()
			continue
		}
		outcomes = append(outcomes, p.end)
	}
	if len(outcomes) == 0 {
		return
	}
	s.r.opts.crash("before-finish")
	var fenced []deadletter.Outcome
	err := s.r.persist(work, func(ctx context.Context) (err error) {
		fenced, err = s.r.ledger.Finish(ctx, outcomes)
		return err
	})
	if err != nil {
		s.log.WarnContext(work, "a batch was not marked, its claims run out", "letters", len(outcomes), "err", err)
		s.leftUnknown()
		s.stop(err)
		return
	}
	s.r.opts.crash("after-finish")
	late := map[int64]bool{}
	for _, o := range fenced {
		late[o.Seq] = true
	}
	if len(fenced) > 0 {
		s.r.metrics.fenced.Add(float64(len(fenced)))
		s.log.WarnContext(work, "letters were taken over by others before they were marked", "letters", len(fenced))
	}
	for _, p := range batch {
		switch topic := p.item.Letter.Place.Topic; {
		case p.unknown || late[p.item.Seq] || p.topic == nil:
		case p.end.Copy.Offset >= 0:
			s.r.metrics.replayed.WithLabelValues(topic).Inc()
		case p.end.Error != "":
			s.r.metrics.failures.WithLabelValues(topic).Inc()
		}
	}
}

// fail makes a letter dead again and its item failed, and stops its key.
func (s *session) fail(p *piece, why string) {
	p.end.Error = strings.ToValidUTF8(why, "\uFFFD")
	p.end.Expired = p.expired
	s.stopKey(&p.item.Letter)
}
