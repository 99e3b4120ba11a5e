package replay

import (
	"context"
	"encoding/json"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// replyEvery is how often it is looked for jobs that others have ended.
const replyEvery = 2 * time.Second

// outcome is the value of a reply.
type outcome struct {
	Job        string `json:"job"`
	Replayed   int64  `json:"replayed"`
	Failed     int64  `json:"failed"`
	Skipped    int64  `json:"skipped"`
	FirstError string `json:"first_error"`
}

// sendReplies tells the outcomes of ended jobs to who asked for it, until ctx ends. An outcome is told at least once: who tells it
// and dies before that is noted tells it again.
func (r *Replayer) sendReplies(ctx context.Context) {
	for wait.Until(ctx, replyEvery, r.wakeReplies) {
		jobs, err := r.ledger.Unreplied(ctx, 100)
		r.ledgerAnswered(ctx, err)
		if err != nil {
			continue
		}
		for i := range jobs {
			r.answer(ctx, &jobs[i])
		}
	}
}

// answer sends the reply of one job. What is not acknowledged is tried again in the next round.
func (r *Replayer) answer(ctx context.Context, job *deadletter.Job) {
	to := job.Spec.Reply
	if to == nil {
		return
	}
	if !r.mayReply(to.Topic) {
		// The configuration was changed since, and nobody else may write there either.
		r.giveUpReply(ctx, job, "no replyTo lists "+to.Topic)
		return
	}
	value := outcome{Job: job.ID, Replayed: job.Done, Failed: job.Failed, Skipped: job.Skipped, FirstError: job.FirstError}
	err := r.reply(ctx, to, value)
	if kafka.Classify(err) == kafka.RecordRefused {
		r.giveUpReply(ctx, job, err.Error())
	}
	if err != nil {
		return
	}
	r.metrics.replies.Inc()
	err = r.ledger.Replied(ctx, job.ID)
	r.ledgerAnswered(ctx, err)
}

// giveUpReply notes in the audit trail that nobody will be told.
func (r *Replayer) giveUpReply(ctx context.Context, job *deadletter.Job, why string) {
	err := r.ledger.Record(ctx, deadletter.Entry{Actor: job.Spec.Actor, Action: "reply-refused", Reason: why, Object: job.ID, Detail: job.Spec.Reply.Topic})
	if err == nil {
		err = r.ledger.Replied(ctx, job.ID)
	}
	r.ledgerAnswered(ctx, err)
}

// reply writes an outcome. It blocks until that is acknowledged, or an error of the client says that it is not, or for ten seconds.
func (r *Replayer) reply(ctx context.Context, to *deadletter.Reply, value outcome) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	acked := make(chan error, 1)
	record := &kgo.Record{Topic: to.Topic, Key: to.Key, Value: text, Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/json")}}}
	r.client.Produce(context.WithoutCancel(ctx), record, func(_ *kgo.Record, err error) { acked <- err })
	select {
	case err = <-acked:
	case <-limit.Done():
		err = limit.Err() // It may still arrive, and come again.
	}
	key := issueKey{code: issue.JobStalled, topic: to.Topic, subject: "reply"}
	if err != nil && ctx.Err() == nil {
		r.issues.raise(key, 0, "replies can not be written: "+err.Error())
	} else {
		r.issues.clear(key)
	}
	return err
}
