package app

import (
	"context"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// The methods of deadletter.Ledger, each the same call of the ledger that is open, measured. What they do stands there.

func (l *ledger) Next(ctx context.Context, topicID deadletter.TopicID, topic string, partition int32, start int64) (int64, error) {
	return ask(l, "next", func(in deadletter.Ledger) (int64, error) { return in.Next(ctx, topicID, topic, partition, start) })
}

func (l *ledger) Index(ctx context.Context, batch deadletter.Batch) error {
	return l.do("index", func(in deadletter.Ledger) error { return in.Index(ctx, batch) })
}

func (l *ledger) Expire(ctx context.Context, topicID deadletter.TopicID, partition int32, below int64) (int64, error) {
	return ask(l, "expire", func(in deadletter.Ledger) (int64, error) { return in.Expire(ctx, topicID, partition, below) })
}

func (l *ledger) ExpireTopics(ctx context.Context, topic string, current deadletter.TopicID) (int64, error) {
	return ask(l, "expire_topics", func(in deadletter.Ledger) (int64, error) { return in.ExpireTopics(ctx, topic, current) })
}

func (l *ledger) Progress(ctx context.Context) ([]deadletter.Progress, error) {
	return ask(l, "progress", func(in deadletter.Ledger) ([]deadletter.Progress, error) { return in.Progress(ctx) })
}

func (l *ledger) Unseen(ctx context.Context, fingerprints []string) ([]string, error) {
	return ask(l, "unseen", func(in deadletter.Ledger) ([]string, error) { return in.Unseen(ctx, fingerprints) })
}

func (l *ledger) Awaiting(ctx context.Context, after int64, limit int) ([]deadletter.Letter, error) {
	return ask(l, "awaiting", func(in deadletter.Ledger) ([]deadletter.Letter, error) { return in.Awaiting(ctx, after, limit) })
}

func (l *ledger) Succeed(ctx context.Context, ids []int64) (int64, error) {
	return ask(l, "succeed", func(in deadletter.Ledger) (int64, error) { return in.Succeed(ctx, ids) })
}

func (l *ledger) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	return ask(l, "letter", func(in deadletter.Ledger) (deadletter.Letter, error) { return in.Letter(ctx, id) })
}

func (l *ledger) Letters(ctx context.Context, filter deadletter.Filter, page deadletter.Page) (deadletter.Letters, error) {
	return ask(l, "letters", func(in deadletter.Ledger) (deadletter.Letters, error) { return in.Letters(ctx, filter, page) })
}

func (l *ledger) Count(ctx context.Context, filter deadletter.Filter) (int64, error) {
	return ask(l, "count", func(in deadletter.Ledger) (int64, error) { return in.Count(ctx, filter) })
}

func (l *ledger) Payload(ctx context.Context, id int64) (*deadletter.Payload, error) {
	return ask(l, "payload", func(in deadletter.Ledger) (*deadletter.Payload, error) { return in.Payload(ctx, id) })
}

func (l *ledger) Groups(ctx context.Context, filter deadletter.Filter, by deadletter.GroupBy, limit int) ([]deadletter.Group, error) {
	return ask(l, "groups", func(in deadletter.Ledger) ([]deadletter.Group, error) { return in.Groups(ctx, filter, by, limit) })
}

func (l *ledger) Stats(ctx context.Context) ([]deadletter.Stat, error) {
	return ask(l, "stats", func(in deadletter.Ledger) ([]deadletter.Stat, error) { return in.Stats(ctx) })
}

func (l *ledger) History(ctx context.Context, letter int64) ([]deadletter.Item, error) {
	return ask(l, "history", func(in deadletter.Ledger) ([]deadletter.Item, error) { return in.History(ctx, letter) })
}

func (l *ledger) Audit(ctx context.Context, below int64, limit int) ([]deadletter.Entry, error) {
	return ask(l, "audit", func(in deadletter.Ledger) ([]deadletter.Entry, error) { return in.Audit(ctx, below, limit) })
}

func (l *ledger) Discard(ctx context.Context, filter deadletter.Filter, actor, reason string) (int64, error) {
	return ask(l, "discard", func(in deadletter.Ledger) (int64, error) { return in.Discard(ctx, filter, actor, reason) })
}

func (l *ledger) Undiscard(ctx context.Context, filter deadletter.Filter, actor, reason string) (int64, error) {
	return ask(l, "undiscard", func(in deadletter.Ledger) (int64, error) { return in.Undiscard(ctx, filter, actor, reason) })
}

func (l *ledger) Purge(ctx context.Context, filter deadletter.Filter, actor, reason string) (int64, error) {
	return ask(l, "purge", func(in deadletter.Ledger) (int64, error) { return in.Purge(ctx, filter, actor, reason) })
}

func (l *ledger) Keep(ctx context.Context, payloads map[int64]deadletter.Payload, actor, reason string) (int64, error) {
	return ask(l, "keep", func(in deadletter.Ledger) (int64, error) { return in.Keep(ctx, payloads, actor, reason) })
}

func (l *ledger) Record(ctx context.Context, entry deadletter.Entry) error {
	return l.do("record", func(in deadletter.Ledger) error { return in.Record(ctx, entry) })
}

func (l *ledger) Job(ctx context.Context, id string) (deadletter.Job, error) {
	return ask(l, "job", func(in deadletter.Ledger) (deadletter.Job, error) { return in.Job(ctx, id) })
}

func (l *ledger) JobByRequest(ctx context.Context, request string) (deadletter.Job, error) {
	return ask(l, "job_by_request", func(in deadletter.Ledger) (deadletter.Job, error) { return in.JobByRequest(ctx, request) })
}

func (l *ledger) Jobs(ctx context.Context, after string, limit int) ([]deadletter.Job, error) {
	return ask(l, "jobs", func(in deadletter.Ledger) ([]deadletter.Job, error) { return in.Jobs(ctx, after, limit) })
}

func (l *ledger) Items(ctx context.Context, job string, from int64, limit int, states ...deadletter.ItemState) ([]deadletter.Item, error) {
	return ask(l, "items", func(in deadletter.Ledger) ([]deadletter.Item, error) {
		return in.Items(ctx, job, from, limit, states...)
	})
}

func (l *ledger) ControlJob(ctx context.Context, id string, change deadletter.Change) (deadletter.Job, error) {
	return ask(l, "control_job", func(in deadletter.Ledger) (deadletter.Job, error) { return in.ControlJob(ctx, id, change) })
}

func (l *ledger) LeaseJob(ctx context.Context, owner string, lease time.Duration) (*deadletter.Job, error) {
	return ask(l, "lease_job", func(in deadletter.Ledger) (*deadletter.Job, error) { return in.LeaseJob(ctx, owner, lease) })
}

func (l *ledger) RenewJob(ctx context.Context, id string, fence idempotency.Fence, lease time.Duration) (deadletter.Job, error) {
	return ask(l, "renew_job", func(in deadletter.Ledger) (deadletter.Job, error) { return in.RenewJob(ctx, id, fence, lease) })
}

func (l *ledger) Claim(ctx context.Context, job string, fence idempotency.Fence, wants []deadletter.Want) ([]deadletter.ClaimResult, error) {
	return ask(l, "claim", func(in deadletter.Ledger) ([]deadletter.ClaimResult, error) { return in.Claim(ctx, job, fence, wants) })
}

func (l *ledger) Finish(ctx context.Context, outcomes []deadletter.Outcome) ([]deadletter.Outcome, error) {
	return ask(l, "finish", func(in deadletter.Ledger) ([]deadletter.Outcome, error) { return in.Finish(ctx, outcomes) })
}

func (l *ledger) Skip(ctx context.Context, job string, fence idempotency.Fence, reasons map[int64]string) error {
	return l.do("skip", func(in deadletter.Ledger) error { return in.Skip(ctx, job, fence, reasons) })
}

func (l *ledger) EndJob(ctx context.Context, id string, fence idempotency.Fence) (deadletter.Job, error) {
	return ask(l, "end_job", func(in deadletter.Ledger) (deadletter.Job, error) { return in.EndJob(ctx, id, fence) })
}

func (l *ledger) LeaveJob(ctx context.Context, id string, fence idempotency.Fence) error {
	return l.do("leave_job", func(in deadletter.Ledger) error { return in.LeaveJob(ctx, id, fence) })
}

func (l *ledger) StoppedKeys(ctx context.Context, job string) ([]deadletter.StoppedKey, error) {
	return ask(l, "stopped_keys", func(in deadletter.Ledger) ([]deadletter.StoppedKey, error) { return in.StoppedKeys(ctx, job) })
}

func (l *ledger) Unreplied(ctx context.Context, limit int) ([]deadletter.Job, error) {
	return ask(l, "unreplied", func(in deadletter.Ledger) ([]deadletter.Job, error) { return in.Unreplied(ctx, limit) })
}

func (l *ledger) Replied(ctx context.Context, id string) error {
	return l.do("replied", func(in deadletter.Ledger) error { return in.Replied(ctx, id) })
}

func (l *ledger) Ping(ctx context.Context) error {
	return l.do("ping", func(in deadletter.Ledger) error { return in.Ping(ctx) })
}

func (l *ledger) Epoch(ctx context.Context) (int64, error) {
	return ask(l, "epoch", func(in deadletter.Ledger) (int64, error) { return in.Epoch(ctx) })
}

func (l *ledger) Older(ctx context.Context, letter deadletter.Letter) (first *deadletter.Letter, count int64, err error) {
	err = l.do("older", func(in deadletter.Ledger) (err error) {
		first, count, err = in.Older(ctx, letter)
		return err
	})
	return first, count, err
}

func (l *ledger) CreateJob(ctx context.Context, spec deadletter.JobSpec, filter deadletter.Filter) (job deadletter.Job, created bool, err error) {
	err = l.do("create_job", func(in deadletter.Ledger) (err error) {
		job, created, err = in.CreateJob(ctx, spec, filter)
		return err
	})
	return job, created, err
}
