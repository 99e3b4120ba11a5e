package deadletter

import (
	"time"

	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// JobState is how far a job is.
type JobState string

// The states of a job. It is queued until a replayer leases it, runs, and ends as done, whatever became of its letters;
// cancelled if an operator ended it. One that is paused or cancelled may be resumed: it goes on with what it did not send.
const (
	JobQueued    JobState = "queued"
	JobRunning   JobState = "running"
	JobPaused    JobState = "paused"
	JobCancelled JobState = "cancelled"
	JobDone      JobState = "done"
)

// Ended tells whether a job in this state sends nothing any more unless it is resumed.
func (s JobState) Ended() bool { return s == JobDone || s == JobCancelled }

// JobSpec is what somebody wants to be replayed. It never changes after the job is created, but for the rate.
type JobSpec struct {
	// Actor is who wants it, Reason why.
	Actor, Reason string
	// Source is what asked: api, trigger.
	Source string
	// Request tells a request from its repetition: a job with the same one is not created twice. "" is never the same.
	Request string
	// Rate is the most letters a second; 0 is no limit of this job's own.
	Rate float64
	// Destination is the topic the copies go to; "" is where each letter returns to by topics.yaml.
	Destination string
	// Force replays letters that were replayed, returned or discarded before as well.
	Force bool
	// Edit changes the copies, which are other messages then. Nil: the bytes as they are.
	Edit *Edit
	// Reply asks for a record about the outcome. Nil: none.
	Reply *Reply
}

// Edit is what is changed in the copies of an edited replay.
type Edit struct {
	// SetHeaders replace all headers of their name, or are added.
	SetHeaders []Header
	// Value replaces the value where HasValue says so; nil is a tombstone then.
	Value    []byte
	HasValue bool
}

// Reply is where the outcome of a job is written, with the key given.
type Reply struct {
	Topic string
	Key   []byte
}

// Job is one replay: a frozen list of letters and how far it is.
type Job struct {
	ID    string // UUIDv7
	Spec  JobSpec
	State JobState

	CreatedAt time.Time
	// StartedAt and EndedAt are zero before.
	StartedAt, EndedAt time.Time
	// RepliedAt is when the reply was acknowledged; zero before.
	RepliedAt time.Time

	// Total is how many items the job has, the others how many of them are in these states.
	Total, Done, Failed, Skipped int64
	// FirstError is that of the first failed item, or "".
	FirstError string

	// Owner, Fence and Until are of the replayer that works on it.
	Owner string
	Fence idempotency.Fence
	Until time.Time
}

// Left is how many items are neither done nor failed nor skipped.
func (j *Job) Left() int64 { return j.Total - j.Done - j.Failed - j.Skipped }

// ItemState is what became of one letter in a job.
type ItemState string

const (
	// ItemOpen is not decided yet. Its letter may be claimed.
	ItemOpen ItemState = "open"
	// ItemDone has a copy that is acknowledged.
	ItemDone ItemState = "done"
	// ItemFailed has none: its error says why. Later items of its key are skipped.
	ItemFailed ItemState = "failed"
	// ItemSkipped was not tried: its letter is not dead any more, or an earlier item of its key failed.
	ItemSkipped ItemState = "skipped"
)

// Item is one letter of a job, at its place in the order of the job (Seq, from 1).
type Item struct {
	Job    string
	Seq    int64
	Letter Letter
	State  ItemState
	// Error says why it failed or was skipped.
	Error string
	// ReplayCount is the redrive-replay-count of the copy, Copy where it lies; 0 and -1 before.
	ReplayCount int
	Copy        Target
	// At is when the state began.
	At time.Time
}

// Want is a letter that a job wants to claim, and where its copy would go.
type Want struct {
	Seq    int64
	Letter int64
	Target Target
}

// ClaimResult is the outcome of a Want. Exactly one of Granted and Refused is meaningful.
type ClaimResult struct {
	Want Want
	// Granted is the claim. Its ReplayCount is one more than the highest of any letter or claim of the message id, but for claims
	// that were given back.
	Granted *Claim
	// Before is the claim that was taken over because its lease had run out, nil for none: its holder may have sent a copy
	// to Before.Target, at or above that offset, with Before.ReplayCount and Before.Job. Granted has the same ReplayCount,
	// since it is the same replay, if Before is of the same job.
	Before *Claim
	// Refused says why it was not granted: the state the letter is in, and until when another holds it.
	Refused State
	Until   time.Time
}

// Outcome is what became of a claimed letter. With Copy.Offset >= 0 it is replayed. With an Error it is dead again and its
// item has failed. With neither the claim is given back: the letter is dead again and its item open, unless Skip says why
// the item is skipped.
type Outcome struct {
	Claim Claim
	Seq   int64
	Copy  Target
	Error string
	Skip  string
	// Expired tells that the bytes are gone: the letter is expired, and not dead again.
	Expired bool
}

// Entry is one row of the audit trail. Rows are only ever added.
type Entry struct {
	ID     int64
	At     time.Time
	Actor  string
	Action string // replay, pause, resume, cancel, rate, discard, undiscard, purge, expire, trigger, ...
	Reason string
	// Object is what it was done to: a job, a letter, or a filter as text.
	Object string
	// Count is how many letters it was about.
	Count  int64
	Detail string
}
