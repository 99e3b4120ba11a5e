package ledgertest

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// matches tells whether a filter selects a letter, as the documentation of [deadletter.Filter] has it.
func matches(f deadletter.Filter, l deadletter.Letter) bool {
	return among(f.IDs, l.ID) && among(f.MessageIDs, l.MessageID) &&
		(!f.HasKey || (f.Key == nil) == (l.Key == nil) && bytes.Equal(f.Key, l.Key)) &&
		among(f.Topics, l.Place.Topic) && among(f.Origins, l.Origin) && among(f.Groups, l.Group) &&
		among(f.Reasons, l.Reason) && among(f.ErrorTypes, l.ErrorType) &&
		strings.Contains(strings.ToLower(l.ErrorText), strings.ToLower(f.ErrorText)) &&
		among(f.Fingerprints, l.Fingerprint) && among(f.Labels, l.Label) && among(f.States, l.State) &&
		(f.Job == "" || f.Job == l.Claim.Job) &&
		(f.Partition == nil || *f.Partition == l.Place.Partition) && (f.Offset == nil || *f.Offset == l.Place.Offset) &&
		(f.DeadFrom.IsZero() || !l.DeadAt.Before(f.DeadFrom)) && (f.DeadTo.IsZero() || l.DeadAt.Before(f.DeadTo)) &&
		l.Attempt >= f.MinAttempt && (f.MaxAttempt == 0 || l.Attempt <= f.MaxAttempt) && l.Deliveries >= f.MinDeliveries &&
		(f.UpTo == 0 || l.ID <= f.UpTo) && (!f.Unkept || !l.Kept) && (len(f.Expiring) == 0 || expiring(f.Expiring, l))
}

func expiring(cuts []deadletter.Cut, l deadletter.Letter) bool {
	return !l.Kept && (l.State == deadletter.Dead || l.State == deadletter.Claimed) && slices.ContainsFunc(cuts, func(c deadletter.Cut) bool {
		return c.Topic == l.Place.Topic && c.TopicID == l.Place.TopicID && l.DeadAt.Before(c.Before)
	})
}

func among[T comparable](wanted []T, v T) bool { return len(wanted) == 0 || slices.Contains(wanted, v) }

// selected are the letters that a filter selects, in that order.
func selected(letters []deadletter.Letter, f deadletter.Filter, order deadletter.Order) []deadletter.Letter {
	out := []deadletter.Letter{}
	for _, l := range letters {
		if matches(f, l) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b deadletter.Letter) int { return compare(a, b, order) })
	return out
}

func compare(a, b deadletter.Letter, order deadletter.Order) int {
	switch order {
	case deadletter.Oldest:
		return cmp.Or(a.DeadAt.Compare(b.DeadAt), cmp.Compare(a.ID, b.ID))
	case deadletter.ReplayOrder:
		known := func(l deadletter.Letter) bool { return l.OriginPartition >= 0 && l.OriginOffset >= 0 }
		switch ka, kb := known(a), known(b); {
		case ka != kb && ka:
			return -1
		case ka != kb:
			return 1
		case !ka:
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.OriginPartition, b.OriginPartition),
			cmp.Compare(a.OriginOffset, b.OriginOffset), cmp.Compare(a.ID, b.ID))
	default:
		return -compare(a, b, deadletter.Oldest)
	}
}
