package replay

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// The headers of a trigger record, beside redrive-message-id.
const (
	// HeaderReplyTo is the topic where the outcome is to be written, with the key of the trigger record.
	HeaderReplyTo = "redrive-reply-to"
	// HeaderReasonText says why the replay is wanted.
	HeaderReasonText = "redrive-reason-text"
	// HeaderActor says who wants it. It is what the writer of the record says, and stands in the audit trail as such.
	HeaderActor = "redrive-actor"
	// HeaderRate is the most letters a second.
	HeaderRate = "redrive-rate"
	// HeaderOutOfOrder with the value true allows a message id whose key has older dead letters.
	HeaderOutOfOrder = "redrive-out-of-order"
)

// sourceTrigger is the Source of jobs that a record asked for.
const sourceTrigger = "trigger"

// What may come of a trigger record.
const (
	triggerTaken    = "taken"
	triggerRepeated = "repeated"
	triggerRefused  = "refused"
)

// takeTriggers reads the trigger topics until ctx ends. The order of events: the job is in the ledger, under a name made of the
// place of the record, and only then the offset is committed. So a record that is read twice makes one job.
func (r *Replayer) takeTriggers(ctx, work context.Context) {
	if len(r.triggers) == 0 || r.opts.Group == "" {
		return
	}
	base, err := r.opts.Kafka.ClientOpts() //nolint:contextcheck // It authenticates for as long as the client lives.
	if err != nil {
		r.log.ErrorContext(ctx, "the trigger topics can not be read", "err", err)
		return
	}
	if r.opts.InstanceID != "" {
		base = append(base, kgo.InstanceID(r.opts.InstanceID))
	}
	consumer, err := kgo.NewClient(append(
		base,
		kgo.ConsumerGroup(r.opts.Group),
		// A member that died holds up every rebalance of its group for this long.
		kgo.SessionTimeout(r.opts.SessionTimeout),
		kgo.HeartbeatInterval(min(3*time.Second, r.opts.SessionTimeout/4)),
		kgo.ConsumeTopics(slices.Collect(maps.Keys(r.triggers))...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// A record that is read again is taken once: where no commit is, the start is safe.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.FetchMaxBytes(1<<20),
		kgo.FetchMaxPartitionBytes(256<<10),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.MetadataMaxAge(30*time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { r.issues.assign(partitionsIn(m)) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { r.issues.assign(-partitionsIn(m)) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { r.issues.assign(-partitionsIn(m)) }),
	)...)
	if err != nil {
		r.log.ErrorContext(ctx, "the trigger topics can not be read", "err", err)
		return
	}
	defer consumer.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetches := consumer.PollRecords(ctx, 100)
		r.fetchErrors(ctx, fetches)
		var taken []*kgo.Record
		fetches.EachRecord(func(rec *kgo.Record) {
			if ctx.Err() == nil && r.trigger(ctx, rec) {
				taken = append(taken, rec)
			}
		})
		if len(taken) > 0 {
			limit, cancel := context.WithTimeout(work, 5*time.Second)
			if err := consumer.CommitRecords(limit, taken...); err != nil {
				r.log.WarnContext(ctx, "trigger records may be read again, which has no effect", "err", err)
			}
			cancel()
		}
		consumer.AllowRebalance()
	}
}

func partitionsIn(m map[string][]int32) (n int) {
	for _, partitions := range m {
		n += len(partitions)
	}
	return n
}

// fetchErrors shows what a poll could not read. Nothing says when it is over, so it is shown for a while.
func (r *Replayer) fetchErrors(ctx context.Context, fetches kgo.Fetches) {
	fetches.EachError(func(topic string, _ int32, err error) {
		if ctx.Err() != nil || kafka.Classify(err) == kafka.Canceled || errors.Is(err, kerr.UnknownTopicOrPartition) {
			return
		}
		if r.issues.raise(issueKey{code: issue.FetchFailed, topic: topic}, time.Minute, err.Error()) {
			r.log.WarnContext(ctx, "a trigger topic can not be read", "topic", topic, "err", err)
		}
	})
}

// trigger takes one record. It reports false only if ctx ended first: the ledger and the brokers are waited for.
func (r *Replayer) trigger(ctx context.Context, rec *kgo.Record) bool {
	pause := minPause
	for {
		err := r.tryTrigger(ctx, rec)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "a trigger record can not be taken yet", "topic", rec.Topic, "partition", rec.Partition, "offset", rec.Offset, "err", err)
		}
		if !wait.For(ctx, pause) {
			return false
		}
		pause = min(2*pause, maxPause)
	}
}

// tryTrigger makes the job that a record asks for, or notes why not. The error is one that another try may not meet.
func (r *Replayer) tryTrigger(ctx context.Context, rec *kgo.Record) error {
	entry := r.triggers[rec.Topic]
	place := fmt.Sprintf("%s/%d/%d", rec.Topic, rec.Partition, rec.Offset)
	req, reply, refusal := r.asked(entry, rec, place)
	if refusal == nil {
		topics, err := r.fetcher.Topics(ctx, rec.Topic)
		if err != nil {
			return err
		}
		id := topics[rec.Topic].ID
		req.Spec.Request = fmt.Sprintf("trigger:%s/%d/%d", hex.EncodeToString(id[:]), rec.Partition, rec.Offset)
		if len(req.Filter.MessageIDs) > 0 {
			// Of several letters of one message the newest that is dead is meant.
			found, err := r.ledger.Letters(ctx, req.Filter, deadletter.Page{Order: deadletter.Newest, Limit: 1})
			r.ledgerAnswered(ctx, err)
			if err != nil {
				return err
			}
			if len(found.Letters) > 0 {
				req.Filter = deadletter.Filter{IDs: []int64{found.Letters[0].ID}}
			} else {
				req.Filter.States = nil // So that the refusal says what has become of it.
			}
		}
		_, created, err := r.Submit(ctx, req)
		if err == nil {
			result := triggerTaken
			if !created {
				result = triggerRepeated
			}
			r.metrics.triggers.WithLabelValues(rec.Topic, result).Inc()
			return nil
		}
		if !errors.As(err, &refusal) {
			r.ledgerAnswered(ctx, err)
			return err
		}
	}
	err := r.ledger.Record(ctx, deadletter.Entry{
		Actor: req.Spec.Actor, Action: "trigger-refused", Reason: string(refusal.Code), Object: place, Detail: refusal.Detail,
	})
	r.ledgerAnswered(ctx, err)
	if err != nil {
		return err
	}
	r.metrics.triggers.WithLabelValues(rec.Topic, triggerRefused).Inc()
	r.issues.raise(issueKey{code: issue.TriggerRefused, topic: rec.Topic}, shows, place+": "+refusal.Detail)
	if reply == nil {
		return nil
	}
	if err := r.reply(ctx, reply, outcome{FirstError: refusal.Detail}); kafka.Classify(err) != kafka.RecordRefused {
		return err
	}
	return nil
}

// asked reads a trigger record, which is as untrusted as any other. The reply is nil where none may be written.
func (r *Replayer) asked(entry *Topic, rec *kgo.Record, place string) (req Request, reply *deadletter.Reply, refusal *Refusal) {
	refuse := func(format string, args ...any) {
		if refusal == nil {
			refusal = &Refusal{Code: CodeInvalid, Detail: fmt.Sprintf(format, args...)}
		}
	}
	req.Spec = deadletter.JobSpec{Source: sourceTrigger, Actor: "trigger", Reason: "trigger record " + place}
	req.Filter = deadletter.Filter{Topics: []string{entry.DeadLetters}, States: []deadletter.State{deadletter.Dead}}
	messageID := ""
	for _, h := range rec.Headers {
		text := deadletter.Text(h.Value)
		switch h.Key {
		case envelope.HeaderMessageID:
			messageID = text
		case HeaderReplyTo:
			if !slices.Contains(entry.ReplyTo, text) {
				refuse("no replies about %s may go to %q: replyTo does not list it", entry.DeadLetters, text)
				continue
			}
			reply = &deadletter.Reply{Topic: text, Key: rec.Key}
		case HeaderReasonText:
			if text != "" {
				req.Spec.Reason = text
			}
		case HeaderActor:
			req.Spec.Actor = "trigger:" + strings.ToValidUTF8(text[:min(len(text), maxActor-len("trigger:"))], "")
		case HeaderRate:
			rate, err := strconv.ParseFloat(text, 64)
			if err != nil || !(rate > 0) {
				refuse("the rate %q is no number above 0", text)
				continue
			}
			req.Spec.Rate = rate
		case HeaderOutOfOrder:
			req.OutOfOrder = text == "true"
		}
	}
	req.Spec.Reply = reply
	switch {
	case messageID != "":
		req.Filter.MessageIDs = []string{messageID}
	case rec.Key == nil:
		refuse("the record has neither a key nor %s", envelope.HeaderMessageID)
	default:
		req.Filter.Key, req.Filter.HasKey = rec.Key, true
	}
	return req, reply, refusal
}
