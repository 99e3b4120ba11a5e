package api

import (
	"encoding/base64"
	"encoding/hex"
	"time"
	"unicode/utf8"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
)

// bytesOf is nil for no bytes, which is not the same as empty ones.
func bytesOf(b []byte) *Bytes {
	if b == nil {
		return nil
	}
	out := &Bytes{Base64: base64.StdEncoding.EncodeToString(b)}
	if utf8.Valid(b) {
		text := string(b)
		out.Text = &text
	}
	return out
}

// timeOf is nil for a time that is not known.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func targetOf(t deadletter.Target) Target {
	return Target{Topic: t.Topic, Partition: t.Partition, Offset: t.Offset}
}

// copyOf is nil where there is no copy.
func copyOf(t deadletter.Target) *Target {
	if t.Topic == "" || t.Offset < 0 {
		return nil
	}
	out := targetOf(t)
	return &out
}

func letterOf(l *deadletter.Letter) Letter {
	out := Letter{
		ID: l.ID, Place: l.Place.String(), Topic: l.Place.Topic, TopicID: hex.EncodeToString(l.Place.TopicID[:]),
		Partition: l.Place.Partition, Offset: l.Place.Offset,
		MessageID: l.MessageID, Key: bytesOf(l.Key),
		Origin: l.Origin, OriginPartition: l.OriginPartition, OriginOffset: l.OriginOffset,
		OriginPartitions: l.OriginPartitions, OriginTimestamp: timeOf(l.OriginTimestamp),
		Group: l.Group, Reason: string(l.Reason), ErrorType: l.ErrorType, ErrorText: l.ErrorText,
		Fingerprint: l.Fingerprint, Label: l.Label,
		Attempt: int32(l.Attempt), Deliveries: int32(l.Deliveries), ReplayID: l.ReplayID, ReplayCount: int32(l.ReplayCount),
		FailedAt: timeOf(l.FailedAt), DeadAt: l.DeadAt.UTC(), IndexedAt: l.IndexedAt.UTC(),
		Size: l.Size, Digest: hex.EncodeToString(l.Digest[:]), Pointer: l.Pointer, Kept: l.Kept,
		State: State(l.State), StateAt: l.StateAt.UTC(), Note: l.Note, Copy: copyOf(l.Copy),
	}
	if c := l.Claim; c.Job != "" {
		out.Claim = &Claim{
			Owner: c.Owner, Fence: c.Fence.String(), Until: c.Until.UTC(), Job: c.Job,
			ReplayCount: int32(c.ReplayCount), Target: targetOf(c.Target),
		}
	}
	return out
}

func lettersOf(letters []deadletter.Letter) []Letter {
	out := make([]Letter, 0, len(letters))
	for i := range letters {
		out = append(out, letterOf(&letters[i]))
	}
	return out
}

func itemOf(i *deadletter.Item) Item {
	return Item{
		Job: i.Job, Seq: i.Seq, Letter: i.Letter.ID, Place: i.Letter.Place.String(), MessageID: i.Letter.MessageID,
		Key: bytesOf(i.Letter.Key), State: ItemState(i.State), Error: i.Error, ReplayCount: int32(i.ReplayCount),
		Copy: copyOf(i.Copy), At: i.At.UTC(),
	}
}

// jobOf is a job as of now.
func jobOf(j *deadletter.Job, now time.Time) Job {
	out := Job{
		ID: j.ID, State: JobState(j.State), Actor: j.Spec.Actor, Reason: j.Spec.Reason, Source: j.Spec.Source,
		Rate: j.Spec.Rate, Destination: j.Spec.Destination, Force: j.Spec.Force, Edited: j.Spec.Edit != nil,
		CreatedAt: j.CreatedAt.UTC(), StartedAt: timeOf(j.StartedAt), EndedAt: timeOf(j.EndedAt), RepliedAt: timeOf(j.RepliedAt),
		Total: j.Total, Done: j.Done, Failed: j.Failed, Skipped: j.Skipped, Left: j.Left(),
		FirstError: j.FirstError, Owner: j.Owner,
	}
	if j.Spec.Reply != nil {
		out.ReplyTopic = &j.Spec.Reply.Topic
	}
	until := now
	if !j.EndedAt.IsZero() {
		until = j.EndedAt
	}
	// The clock here and that of the database may differ: a pace that is not positive is none.
	if took := until.Sub(j.StartedAt).Seconds(); !j.StartedAt.IsZero() && took > 0 {
		out.PerSecond = float64(j.Done+j.Failed+j.Skipped) / took
	}
	if j.State == deadletter.JobRunning && out.PerSecond > 0 {
		eta := float64(out.Left) / out.PerSecond
		out.EtaSeconds = &eta
	}
	return out
}

func planOf(p *replay.Plan) Plan {
	count := int64(len(p.IDs))
	out := Plan{
		Version: int32(p.Version), CreatedAt: p.CreatedAt.UTC(), UpTo: p.UpTo, Count: &count, Ids: p.IDs,
		Excluded: make([]Exclusion, 0, len(p.Excluded)), ExcludedBy: map[string]int64{}, Warnings: make([]Warning, 0, len(p.Warnings)),
		Destinations: p.Destinations, Reasons: p.Reasons, Origins: p.Origins, Rate: p.Rate, Destination: &p.Destination, Force: &p.Force,
		Sample: lettersOf(p.Sample),
	}
	if out.Ids == nil {
		out.Ids = []int64{}
	}
	for code, n := range p.ExcludedBy {
		out.ExcludedBy[string(code)] = n
	}
	for _, e := range p.Excluded {
		out.Excluded = append(out.Excluded, Exclusion{Letter: e.Letter, Place: e.Place, MessageID: e.MessageID, Reason: string(e.Reason), Detail: e.Detail})
	}
	for _, w := range p.Warnings {
		warning := Warning{Code: string(w.Code), Topic: w.Topic, Count: w.Count, Detail: w.Detail}
		if w.Letter != 0 {
			warning.Letter = &w.Letter
		}
		out.Warnings = append(out.Warnings, warning)
	}
	return out
}

// planFrom is what is executed of a plan that came back.
func planFrom(p *Plan) *replay.Plan {
	return &replay.Plan{
		Version: int(p.Version), CreatedAt: p.CreatedAt, UpTo: p.UpTo, IDs: p.Ids, Rate: p.Rate,
		Destination: value(p.Destination), Force: value(p.Force),
	}
}
