package envelope

import (
	"strconv"
	"time"
)

// setText stores a text that the next copy carries, cut to MaxText bytes of UTF-8: what is longer would not be accepted
// by whoever reads the copy.
func (e *Envelope) setText(h header, v []byte) {
	e.raw[h] = cutText(v)
	e.accepted |= 1 << h
	e.moved |= 1 << h
}

// setField marks a header whose value Append formats from its field.
func (e *Envelope) setField(h header) {
	e.accepted |= 1 << h
	e.changed |= 1 << h
}

// drop makes a header one that the next copy does not carry.
func (e *Envelope) drop(h header) {
	e.accepted &^= 1 << h
	e.changed &^= 1 << h
}

// SetMessageID names the message. A name beyond MaxText bytes is cut.
func (e *Envelope) SetMessageID(id string) {
	e.setText(messageID, []byte(id))
	e.MessageID = e.raw[messageID]
}

// EnsureMessageID names the message by its origin position if it has no name yet. Without a complete origin position it
// takes the position given, which is where the record was read.
func (e *Envelope) EnsureMessageID(topic string, partition int32, offset int64) {
	if e.MessageID != nil {
		return
	}
	id := make([]byte, 0, 64)
	if e.OriginalTopic != nil && e.OriginalPartition >= 0 && e.OriginalOffset >= 0 {
		id = append(id, e.OriginalTopic...)
		partition, offset = e.OriginalPartition, e.OriginalOffset
	} else {
		id = append(id, topic...)
	}
	id = append(id, '/')
	id = strconv.AppendInt(id, int64(partition), 10)
	id = append(id, '/')
	id = strconv.AppendInt(id, offset, 10)
	e.MessageID = id
	e.setText(messageID, id)
}

// SetOriginal says where and when the record first lived. A negative partition or offset and a zero timestamp are left
// unset.
func (e *Envelope) SetOriginal(topic string, partition int32, offset int64, timestamp time.Time) {
	e.OriginalTopic, e.OriginalTopicState = []byte(topic), Valid
	e.setText(originalTopic, e.OriginalTopic)
	e.OriginalPartition, e.OriginalOffset = max(partition, -1), max(offset, -1)
	e.setOrDrop(originalPartition, partition >= 0)
	e.setOrDrop(originalOffset, offset >= 0)
	e.OriginalTimestamp = timestamp
	e.setOrDrop(originalTimestamp, !timestamp.IsZero())
}

func (e *Envelope) setOrDrop(h header, set bool) {
	if set {
		e.setField(h)
	} else {
		e.drop(h)
	}
}

// SetOriginalPartitions says how many partitions the target had when the record failed.
func (e *Envelope) SetOriginalPartitions(n int32) {
	e.OriginalPartitions = n
	e.setField(originalPartitions)
}

// SetAttempt says how many deliveries have failed in this run, at most MaxCount.
func (e *Envelope) SetAttempt(n int) {
	e.Attempt, e.AttemptState = min(n, MaxCount), Valid
	e.setField(attempt)
}

// ResetAttempt begins a new run: the next copy says nothing of deliveries that have failed.
func (e *Envelope) ResetAttempt() {
	e.Attempt, e.AttemptState = 0, Absent
	e.drop(attempt)
}

// SetDeliveries says how many deliveries have failed over all replays, at most MaxCount.
func (e *Envelope) SetDeliveries(n int) {
	e.Deliveries = min(n, MaxCount)
	e.setField(deliveries)
}

// SetAvailableAt says before which instant the record must not be forwarded. It is rounded up to the milliseconds that
// the header holds.
func (e *Envelope) SetAvailableAt(t time.Time) {
	e.AvailableAt, e.AvailableAtState = ceilMillis(t), Valid
	e.setField(availableAt)
}

// SetReason says why the record is a dead letter.
func (e *Envelope) SetReason(r Reason) {
	e.Reason = r
	e.setText(reason, []byte(r))
}

// SetAction states a consumer's verdict.
func (e *Envelope) SetAction(a Action) {
	e.Action, e.ActionUnknown = a, false
	e.setText(action, []byte(a.String()))
}

// SetRetryAfter states a consumer's wish for the wait.
func (e *Envelope) SetRetryAfter(d time.Duration) {
	e.RetryAfter, e.RetryAfterState = d, Valid
	e.setText(retryAfter, []byte(d.String()))
}

// SetFailedAt says when the last delivery failed.
func (e *Envelope) SetFailedAt(t time.Time) {
	e.setText(failedAt, appendTime(nil, t))
}

// SetError describes the last failure. Both texts are cut to MaxText bytes of UTF-8.
func (e *Envelope) SetError(errType, message string) {
	e.setText(errorType, []byte(errType))
	e.setText(errorMessage, []byte(message))
}

// SetConsumer names the member and the group that failed last.
func (e *Envelope) SetConsumer(member, groupName string) {
	e.setText(consumer, []byte(member))
	e.setText(group, []byte(groupName))
}

// SetReplay names the replay job, how often the message was replayed with it, and the dead-letter position it was read
// from.
func (e *Envelope) SetReplay(id string, count int, from string) {
	e.setText(replayID, []byte(id))
	e.ReplayCount = min(count, MaxCount)
	e.setField(replayCount)
	e.setText(replayedFrom, []byte(from))
}

// SetParentID names the message of which the next copy is an edited one. A name beyond MaxText bytes is cut.
func (e *Envelope) SetParentID(id string) {
	e.setText(parentID, []byte(id))
}

// SetLaneOffset says how far the lane was read when the copy was released.
func (e *Envelope) SetLaneOffset(offset int64) {
	e.LaneOffset = offset
	e.setField(laneOffset)
}

// RejectAvailableAt takes back the acceptance of redrive-available-at, for a caller that knows the limit which the value
// exceeds. The value is then treated like any other that was not accepted.
func (e *Envelope) RejectAvailableAt() {
	if e.accepted.has(availableAt) && e.seen.has(availableAt) && !e.changed.has(availableAt) {
		e.reject(availableAt, e.raw[availableAt])
	}
	e.drop(availableAt)
	e.AvailableAt, e.AvailableAtState = time.Time{}, Unreadable
}

// Shorten leaves out of every copy, until the next Parse, what only people read: error type, error message, consumer and
// the list of rejected values. It is for a copy that is too large for its topic. It reports whether a hop or a letter
// becomes smaller by it; a return carries none of these.
func (e *Envelope) Shorten() bool {
	smaller := (e.accepted&^e.leftOut)&freeTexts != 0 || (len(e.rejections) > 0 && !e.leftOut.has(rejected))
	e.leftOut = freeTexts
	return smaller
}

// Inherit makes the record a new one, for own headers that a stream processor copied from its input: message id, origin
// position, attempt, replay, parent and lane offset are gone, and the old values are listed in redrive-rejected. What the consumer
// said about its failure stays, and so does the count of deliveries, the loop guard.
func (e *Envelope) Inherit() {
	for h := range headerCount {
		if !inheritable.has(h) || !e.accepted.has(h) {
			continue
		}
		if e.seen.has(h) && !e.changed.has(h) {
			e.reject(h, e.raw[h])
		}
		e.drop(h)
	}
	e.MessageID = nil
	e.OriginalTopic, e.OriginalTopicState = nil, Absent
	e.OriginalPartition, e.OriginalOffset = -1, -1
	e.OriginalTimestamp = time.Time{}
	e.OriginalPartitions = 0
	e.Attempt, e.AttemptState = 0, Absent
	e.ReplayCount = 0
	e.LaneOffset = -1
}
