// Package envelope answers what the control headers of one record say, and writes the headers of its next copy.
//
// A record carries Redrive's state in headers whose names start with "redrive-" (the own headers; all others are
// foreign). Parse reads the own headers of one record into an Envelope; Set methods change what the next copy shall say;
// Append writes the next copy's headers. What becomes of the record is decided elsewhere, by package tiers.
//
// Promised: foreign headers, and own-looking ones with an unknown name, come out byte for byte, in place and order, with
// repeats, and with a nil value told from an empty one. Every own header comes out at most once. Parse takes anything:
// headers are untrusted, so sizes are capped and numbers are range-checked, and a value that is not accepted is treated
// as absent and listed in redrive-rejected of the next hop or letter. Refused: no name is trusted as a destination here,
// no clock is read, nothing is logged.
//
// An Envelope belongs to one goroutine at a time. It is made to be reused: Parse resets it and allocates nothing for a
// record whose headers are well-formed.
package envelope

import (
	"bytes"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// MaxText is the size limit of every text value, in bytes. Error texts are cut to it, others are not accepted.
	MaxText = 1024
	// MaxRejected is the size limit of the value of redrive-rejected, in bytes.
	MaxRejected = 1024
	// MaxCount is the largest attempt, deliveries or replay-count that is accepted or written.
	MaxCount = 1_000_000_000

	// maxTopic is Kafka's own limit for the name of a topic.
	maxTopic = 249
)

// Reason says why a record is a dead letter. The empty Reason means none.
type Reason string

// The reasons of the contract. Other values are not accepted.
const (
	// ReasonPoison is the consumer's verdict that this record can never be handled.
	ReasonPoison Reason = "poison"
	// ReasonPermanent is the consumer's verdict that the failure will not pass.
	ReasonPermanent Reason = "permanent"
	// ReasonExhausted means that the allowed deliveries are used up.
	ReasonExhausted Reason = "exhausted"
	// ReasonBlocked means that an older record of the key stands in the way.
	ReasonBlocked Reason = "blocked"
	// ReasonMalformed means that only the control headers make the record unusable.
	ReasonMalformed Reason = "malformed"
	// ReasonUnroutable means that the headers name an origin that is not allowed.
	ReasonUnroutable Reason = "unroutable"
	// ReasonTooLarge means that the target refuses the record for its size.
	ReasonTooLarge Reason = "too_large"
	// ReasonExpired means that the record waited longer than is allowed.
	ReasonExpired Reason = "expired"
)

// Action is the verdict of the consumer that failed the record.
type Action uint8

const (
	// ActionRetry is the default: try again and count the attempt.
	ActionRetry Action = iota
	// ActionDead sends the record to the dead letters.
	ActionDead
	// ActionOutage says that a dependency is down: try again and count no attempt.
	ActionOutage
)

// String returns the action as it stands in the header.
func (a Action) String() string {
	switch a {
	case ActionDead:
		return "dead"
	case ActionOutage:
		return "outage"
	default:
		return "retry"
	}
}

// State says what came of a header that decides something.
type State uint8

const (
	// Absent means that the record does not carry the header.
	Absent State = iota
	// Valid means that the value was accepted, or was set.
	Valid
	// Unreadable means that no value of the header could be accepted.
	Unreadable
	// Conflicting means that the header is repeated with different values, where no choice among them is safe.
	Conflicting
)

// Envelope is what the own headers of one record say. Read the fields; change them with the Set methods only, because
// Append writes what those recorded. Byte slices alias the values of the headers that were parsed.
//
// The zero Envelope is not ready: call Parse first, with nil for a record that has no headers yet.
type Envelope struct {
	// MessageID names the message over all hops and replays; nil means none.
	MessageID []byte

	// OriginalTopic is where the record first lived; nil means none. It is a claim, not a permission.
	OriginalTopic      []byte
	OriginalTopicState State
	// OriginalPartition and OriginalOffset are -1 if unset.
	OriginalPartition int32
	OriginalOffset    int64
	// OriginalTimestamp is zero if unset.
	OriginalTimestamp time.Time
	// OriginalPartitions is the partition count of the target when the record failed; 0 means none.
	OriginalPartitions int32

	// Attempt is 0 if none was accepted; AttemptState tells that from an accepted 0.
	Attempt      int
	AttemptState State
	// Deliveries is 0 if none was accepted. A number beyond MaxCount is MaxCount: taken for none it would disarm the
	// loop guard.
	Deliveries int

	// AvailableAt is meaningful only if AvailableAtState is Valid.
	AvailableAt      time.Time
	AvailableAtState State
	// RetryAfter is meaningful only if RetryAfterState is Valid. A value beyond what a Duration holds is the longest
	// Duration. RetryAfterState is never Conflicting.
	RetryAfter      time.Duration
	RetryAfterState State

	// Action is ActionRetry if the record carries none or an unknown one.
	Action        Action
	ActionUnknown bool
	// Reason is empty if the record carries none or an unknown one.
	Reason Reason

	// ReplayCount is 0 if none was accepted.
	ReplayCount int
	// LaneOffset is -1 if unset.
	LaneOffset int64

	// raw holds a value for every header of seen, as it came, and for every text that was set. It is not cleared by
	// Parse; the sets below say which entries count.
	raw [headerCount][]byte
	// seen has the headers that the record carries, accepted those that have a value to write, changed those whose value
	// is formatted from the fields above because a Set method stored it there, and moved those whose value is not that
	// of their first occurrence, because a repeat or a Set method brought it.
	seen, accepted, changed, moved headerSet
	// leftOut has the headers that no copy carries, because Shorten was called.
	leftOut headerSet

	// names holds what lookup found for the first headers parsed, and first and count say which slice that was, so that
	// Append need not look the same names up again.
	names [32]header
	first *kgo.RecordHeader
	count int

	// rejections are the values that were not accepted, in the order they were met; those beyond maxRejections are
	// only counted.
	rejections []rejection
	overflow   int
}

// Parse reads the own headers of one record and forgets what the Envelope held before. It never fails: a value that
// cannot be accepted counts as absent. Of a repeated header the first well-formed value counts, but for
// redrive-available-at, where different values are Conflicting and none of them counts.
func (e *Envelope) Parse(headers []kgo.RecordHeader) {
	e.MessageID = nil
	e.OriginalTopic, e.OriginalTopicState = nil, Absent
	e.OriginalPartition, e.OriginalOffset = -1, -1
	e.OriginalTimestamp = time.Time{}
	e.OriginalPartitions = 0
	e.Attempt, e.AttemptState = 0, Absent
	e.Deliveries = 0
	e.AvailableAt, e.AvailableAtState = time.Time{}, Absent
	e.RetryAfter, e.RetryAfterState = 0, Absent
	e.Action, e.ActionUnknown = ActionRetry, false
	e.Reason = ""
	e.ReplayCount = 0
	e.LaneOffset = -1
	e.seen, e.accepted, e.changed, e.moved, e.leftOut = 0, 0, 0, 0, 0
	e.rejections, e.overflow = e.rejections[:0], 0

	e.first, e.count = nil, len(headers)
	if len(headers) > 0 {
		e.first = &headers[0]
	}
	for i := range headers {
		h := lookup(headers[i].Key)
		if i < len(e.names) {
			e.names[i] = h
		}
		if h == unknown {
			continue
		}
		v := headers[i].Value
		if e.seen.has(h) {
			e.repeat(h, v)
			continue
		}
		e.seen |= 1 << h
		e.raw[h] = v
		if e.accept(h, v) {
			e.accepted |= 1 << h
		} else {
			e.reject(h, v)
		}
	}
}

// repeat handles a header that was seen before.
func (e *Envelope) repeat(h header, v []byte) {
	if h == availableAt {
		e.repeatAvailableAt(v)
		return
	}
	if bytes.Equal(e.raw[h], v) {
		return
	}
	if !e.accepted.has(h) && e.accept(h, v) {
		e.raw[h] = v
		e.accepted |= 1 << h
		e.moved |= 1 << h
		return
	}
	e.reject(h, v)
}

// repeatAvailableAt finds out whether another value of redrive-available-at says the same as the first. If not, whoever
// wrote one of them may want the record early and whoever wrote the other may want it never; so none of them counts.
func (e *Envelope) repeatAvailableAt(v []byte) {
	if e.AvailableAtState != Conflicting {
		if bytes.Equal(e.raw[availableAt], v) {
			return
		}
		if t, ok := parseTime(v); ok && e.AvailableAtState == Valid && t.Equal(e.AvailableAt) {
			return
		}
		if e.AvailableAtState == Valid {
			e.reject(availableAt, e.raw[availableAt])
			e.accepted &^= 1 << availableAt
			e.AvailableAt = time.Time{}
		}
		e.AvailableAtState = Conflicting
	}
	e.reject(availableAt, v)
}

// accept stores what v says, or reports that it is not well-formed.
func (e *Envelope) accept(h header, v []byte) bool {
	switch h {
	case messageID:
		if len(v) == 0 || !isText(v) {
			return false
		}
		e.MessageID = v
	case originalTopic:
		if len(v) == 0 || len(v) > maxTopic || !isText(v) {
			e.OriginalTopicState = Unreadable
			return false
		}
		e.OriginalTopic, e.OriginalTopicState = v, Valid
	case originalPartition:
		n, ok := parseInt(v, maxInt32)
		if !ok {
			return false
		}
		e.OriginalPartition = int32(n)
	case originalOffset:
		n, ok := parseInt(v, maxInt64)
		if !ok {
			return false
		}
		e.OriginalOffset = n
	case originalTimestamp:
		t, ok := parseTime(v)
		if !ok {
			return false
		}
		e.OriginalTimestamp = t
	case originalPartitions:
		n, ok := parseInt(v, maxInt32)
		if !ok || n == 0 {
			return false
		}
		e.OriginalPartitions = int32(n)
	case attempt:
		n, ok := parseInt(v, MaxCount)
		if !ok {
			e.AttemptState = Unreadable
			return false
		}
		e.Attempt, e.AttemptState = int(n), Valid
	case deliveries:
		n, ok := parseInt(v, MaxCount)
		if !ok {
			return e.acceptHuge(v)
		}
		e.Deliveries = int(n)
	case availableAt:
		t, ok := parseTime(v)
		if !ok {
			e.AvailableAtState = Unreadable
			return false
		}
		e.AvailableAt, e.AvailableAtState = t, Valid
	case failedAt:
		_, ok := parseTime(v)
		return ok
	case group, replayID, replayedFrom, parentID:
		return isText(v)
	case action:
		a, ok := parseAction(v)
		e.Action, e.ActionUnknown = a, !ok
		return ok
	case retryAfter:
		d, ok := parseRetryAfter(v)
		if !ok {
			e.RetryAfterState = Unreadable
			return false
		}
		e.RetryAfter, e.RetryAfterState = d, Valid
	case reason:
		r := parseReason(v)
		if r == "" {
			return false
		}
		e.Reason = r
	case replayCount:
		n, ok := parseInt(v, MaxCount)
		if !ok {
			return false
		}
		e.ReplayCount = int(n)
	case laneOffset:
		n, ok := parseInt(v, maxInt64)
		if !ok {
			return false
		}
		e.LaneOffset = n
	default:
		// Error texts are cut when they are written, redrive-rejected is checked when it is written, and the headers of
		// lanes and of pointer letters mean nothing anywhere else.
	}
	return true
}

// acceptHuge takes a count of deliveries that parseInt refused for the largest one, if it is a number at all. The value
// itself is not accepted.
func (e *Envelope) acceptHuge(v []byte) bool {
	if _, ok := saturatingInt(v); !ok {
		return false
	}
	e.SetDeliveries(MaxCount)
	e.reject(deliveries, v)
	return true
}

// Verdict returns the reason for which the consumer declares the record dead, or an empty one if it may be tried again.
// An action of dead without a reason means permanent. A reason of poison or permanent without an action means dead; an
// explicit action of retry or outage stands above it.
func (e *Envelope) Verdict() Reason {
	switch {
	case e.Action == ActionDead && e.Reason == "":
		return ReasonPermanent
	case e.Action == ActionDead:
		return e.Reason
	case e.accepted.has(action):
		return ""
	case e.Reason == ReasonPoison || e.Reason == ReasonPermanent:
		return e.Reason
	default:
		return ""
	}
}

// Value returns the value that the next copy would carry under the given own name if its kind keeps the header, or nil
// if there is none. The value must not be changed.
func (e *Envelope) Value(name string) []byte {
	h := lookup(name)
	switch {
	case h == unknown, e.leftOut.has(h):
		return nil
	case h == rejected:
		return e.rejectedValue()
	case !e.accepted.has(h):
		return nil
	}
	v, _ := e.value(h, nil)
	return v
}
