package replay

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/idempotency"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
)

// sought is a copy that may be in a partition, at or above an offset, under a job.
type sought struct {
	piece  *piece
	job    string
	target deadletter.Target
}

// takeOver looks for the copies that former holders may have sent. What it can not look for, because all work ends, is left.
//
// A copy that another job sent counts as well: the letter is replayed, and a second copy is for those who force it.
func (s *session) takeOver(work context.Context, batch []*piece) {
	var former []sought
	for _, p := range batch {
		if p.before == nil {
			continue
		}
		s.r.metrics.takeovers.Inc()
		if p.before.Target.Partition < 0 || p.before.Target.Offset < 0 || p.before.Target.Topic == "" {
			continue // It was claimed to say that it can not be replayed.
		}
		if s.job.Spec.Force && p.before.Job != s.job.ID {
			continue
		}
		former = append(former, sought{p, p.before.Job, p.before.Target})
	}
	if err := s.lookFor(work, former); err != nil {
		for _, f := range former {
			f.piece.unknown = true
		}
		return
	}
	for _, f := range former {
		if f.piece.end.Copy.Offset >= 0 {
			s.r.metrics.found.Inc()
		}
	}
}

// lookFor reads the partitions from the lowest offset that is asked for to the high watermark of now, and gives each piece whose
// copy is there that copy. The error is that of ctx.
func (s *session) lookFor(ctx context.Context, list []sought) error {
	byPartition := map[fetch.Partition][]sought{}
	for _, l := range list {
		at := fetch.Partition{Topic: l.target.Topic, Partition: l.target.Partition}
		byPartition[at] = append(byPartition[at], l)
	}
	for at, list := range byPartition {
		ends, err := s.watermark(ctx, at)
		if err != nil {
			return err
		}
		from := list[0].target.Offset
		wanted := map[copyName]*piece{}
		for _, l := range list {
			from = min(from, l.target.Offset)
			wanted[nameOf(l)] = l.piece
		}
		err = s.r.fetcher.Scan(ctx, at.Topic, at.Partition, from, ends, func(r *kgo.Record) bool {
			name, ok := nameIn(r)
			if !ok {
				return true
			}
			if p := wanted[name]; p != nil {
				p.end.Copy = deadletter.Target{Topic: at.Topic, Partition: at.Partition, Offset: r.Offset}
				delete(wanted, name)
			}
			return len(wanted) > 0
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// watermark is the end of a partition now. One that is not there has none, and nothing in it.
func (s *session) watermark(ctx context.Context, at fetch.Partition) (int64, error) {
	if s.vanished(at.Topic, at.Partition) {
		return 0, nil
	}
	ends, err := s.ends(ctx, []fetch.Partition{at})
	if err != nil && s.replan.Load() && ctx.Err() == nil {
		return 0, nil
	}
	return ends[at], err
}

// copyName is what no two copies share but those of one letter in one job. The message id alone is not enough: two letters of
// one message may be in one job.
type copyName struct{ job, from, id string }

// nameOf is the name of the copy that the holder of a claim sends.
func nameOf(l sought) copyName {
	return copyName{l.job, l.piece.item.Letter.Place.String(), plain(l.piece.item.Letter.MessageID, l.job)}
}

// plain is a message id as an edited one names it.
func plain(id, job string) string {
	parent, edited := idempotency.ParentID(id, job)
	if !edited {
		parent, _ = idempotency.ParentID(idempotency.EditedID(id, job), job)
	}
	return parent
}

// nameIn is the name of the copy that a record is, if it is one.
func nameIn(r *kgo.Record) (name copyName, ok bool) {
	for _, h := range r.Headers {
		switch h.Key {
		case envelope.HeaderReplayID:
			name.job = string(h.Value)
		case envelope.HeaderReplayedFrom:
			name.from = string(h.Value)
		case envelope.HeaderMessageID:
			name.id = deadletter.Text(h.Value)
		}
	}
	if name.job == "" || name.from == "" {
		return name, false
	}
	name.id = plain(name.id, name.job)
	return name, true
}
