package deadletter

import (
	"context"
	"errors"
	"time"

	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// The errors that callers tell apart.
var (
	// ErrUnknown is a letter or job that the ledger does not have.
	ErrUnknown = errors.New("not in the ledger")
	// ErrMoved is a batch whose expected offset is not the partition's next one: another indexer was faster.
	ErrMoved = errors.New("the partition is indexed further, or less far, than was expected")
	// ErrFenced is a write under a fence that is not the current one.
	ErrFenced = errors.New("the claim is not the current one any more")
	// ErrState is a change that the state of the letter or job does not allow.
	ErrState = errors.New("the state does not allow it")
	// ErrCursor is a Page.After that is not one of this query.
	ErrCursor = errors.New("the cursor is not of this query")
	// ErrNewer is a ledger that a newer version of this program has migrated.
	ErrNewer = errors.New("the ledger is of a newer version")
	// ErrOlder is a ledger that is not migrated to this version yet.
	ErrOlder = errors.New("the ledger is not migrated to this version")
)

// Batch is what an indexer has read of one partition: the offsets from Expected to Next, which is not in it. Offsets without
// a letter are holes: of compaction, of transactions, or Lost to retention.
type Batch struct {
	TopicID   TopicID
	Topic     string
	Partition int32
	Expected  int64
	Next      int64
	Lost      int64
	Letters   []Letter
	// Payloads are the bytes of the letters, in the same order, or nil where they are not kept.
	Payloads []Payload
}

// Indexing is the ledger as the index loop sees it.
type Indexing interface {
	// Next is the next offset to index of a partition. One that the ledger does not know begins at start.
	Next(ctx context.Context, topicID TopicID, topic string, partition int32, start int64) (int64, error)
	// Index writes a batch, whole or not at all. It is ErrMoved if the partition's next offset is not Expected. A letter with
	// a replay id makes the letter that was replayed under it returned.
	Index(ctx context.Context, batch Batch) error
	// Expire makes the dead letters of a partition below an offset expired, unless their bytes are kept, and returns how many
	// that were. The audit trail has it.
	Expire(ctx context.Context, topicID TopicID, partition int32, below int64) (int64, error)
	// ExpireTopics makes the dead letters of all incarnations of a topic but the current one expired, unless their bytes are
	// kept, and returns how many that were. A zero id means that the topic does not exist.
	ExpireTopics(ctx context.Context, topic string, current TopicID) (int64, error)
	// Progress is how far all partitions are.
	Progress(ctx context.Context) ([]Progress, error)
	// Unseen are those of the fingerprints that no letter of the ledger has, of whatever topic and state, in the order given.
	Unseen(ctx context.Context, fingerprints []string) ([]string, error)
	// Awaiting lists replayed letters by id, after an id: those whose success is to be judged.
	Awaiting(ctx context.Context, after int64, limit int) ([]Letter, error)
	// Succeed makes replayed letters succeeded, and returns how many were still replayed.
	Succeed(ctx context.Context, ids []int64) (int64, error)
}

// Catalogue is the ledger as a reader sees it.
type Catalogue interface {
	// Letter is the letter of that number, or ErrUnknown.
	Letter(ctx context.Context, id int64) (Letter, error)
	// Letters are the letters that a filter selects, a page of them.
	Letters(ctx context.Context, filter Filter, page Page) (Letters, error)
	// Count is how many letters a filter selects.
	Count(ctx context.Context, filter Filter) (int64, error)
	// Payload are the bytes of a letter that are kept; nil if they are not.
	Payload(ctx context.Context, id int64) (*Payload, error)
	// Groups counts letters that are alike, the largest group first; hours and days come in their order.
	Groups(ctx context.Context, filter Filter, by GroupBy, limit int) ([]Group, error)
	// Stats counts letters by topic and state.
	Stats(ctx context.Context) ([]Stat, error)
	// Older is the oldest letter of the same key and origin partition that lies before a letter in the origin and is dead or
	// claimed; nil if there is none. It tells as well how many there are.
	Older(ctx context.Context, letter Letter) (first *Letter, count int64, err error)
	// History is what jobs did with a letter, oldest first.
	History(ctx context.Context, letter int64) ([]Item, error)
	// Audit is the audit trail, newest first, below an id; 0 is from the end.
	Audit(ctx context.Context, below int64, limit int) ([]Entry, error)
}

// Operating is the ledger as an operator's changes see it. Each writes its audit row in the same transaction.
type Operating interface {
	// Discard makes dead letters discarded, Undiscard makes discarded ones dead, and both return how many that were.
	Discard(ctx context.Context, filter Filter, actor, reason string) (int64, error)
	Undiscard(ctx context.Context, filter Filter, actor, reason string) (int64, error)
	// Purge removes rows, and the bytes kept with them, and returns how many that were. The filter must name states; dead and
	// claimed letters go only if it names dead, and claimed ones never. The audit trail stays.
	Purge(ctx context.Context, filter Filter, actor, reason string) (int64, error)
	// Keep stores the bytes of letters, so that they survive their topic, and returns how many had none.
	Keep(ctx context.Context, payloads map[int64]Payload, actor, reason string) (int64, error)
	// Record adds a row to the audit trail. ID and At are the ledger's.
	Record(ctx context.Context, entry Entry) error
}

// Jobs is the ledger as replay jobs see it.
type Jobs interface {
	// CreateJob freezes what a filter selects, in ReplayOrder, as the items of a job that is queued, with its audit row. If a job
	// with the same Spec.Request is there it is returned, and created is false. A job of no items is created as done.
	CreateJob(ctx context.Context, spec JobSpec, filter Filter) (job Job, created bool, err error)
	// JobByRequest is the job with that Spec.Request, which is not "", or ErrUnknown.
	JobByRequest(ctx context.Context, request string) (Job, error)
	// Job is the job of that id, or ErrUnknown. Jobs are all of them, newest first, after the id of another.
	Job(ctx context.Context, id string) (Job, error)
	Jobs(ctx context.Context, after string, limit int) ([]Job, error)
	// Items are the items of a job from a seq on, of the states given or, with none, of all.
	Items(ctx context.Context, job string, from int64, limit int, states ...ItemState) ([]Item, error)
	// ControlJob changes the state of a job on behalf of an operator: pause (queued or running to paused), resume (paused or
	// cancelled to queued), cancel (queued, running or paused to cancelled), rate. It is ErrState if the state does not allow it.
	ControlJob(ctx context.Context, id string, change Change) (Job, error)
	// LeaseJob takes over the oldest job that is queued, or running with a lease that has run out; nil if there is none.
	LeaseJob(ctx context.Context, owner string, lease time.Duration) (*Job, error)
	// RenewJob renews the lease of a job, and of all letters claimed under it by this owner, and returns the job as it is now. It is
	// ErrFenced if the fence is not the current one. A job that is not running any more is returned, and its lease ends.
	RenewJob(ctx context.Context, id string, fence idempotency.Fence, lease time.Duration) (Job, error)
	// Claim claims letters for a job, in one transaction that is guarded by the fence of the job (ErrFenced). A letter is granted if it
	// is dead; if the job forces, also if it is replayed, succeeded, returned or discarded; and if it is claimed with a lease
	// that has run out, whoever held it. Its lease ends with that of the job.
	Claim(ctx context.Context, job string, fence idempotency.Fence, wants []Want) ([]ClaimResult, error)
	// Finish writes outcomes and the counters of the job in one transaction. Those whose claim is not the current one any more are
	// left out and returned as fenced. It does not need the lease of the job.
	Finish(ctx context.Context, outcomes []Outcome) (fenced []Outcome, err error)
	// Skip makes open items of a job skipped, guarded by the fence of the job (ErrFenced). Errors are by seq.
	Skip(ctx context.Context, job string, fence idempotency.Fence, errors map[int64]string) error
	// EndJob makes a running job done if no item is open, guarded by its fence (ErrFenced), else ErrState.
	EndJob(ctx context.Context, id string, fence idempotency.Fence) (Job, error)
	// LeaveJob gives the lease of a job back, so that another may lease it at once. The job stays as it is.
	LeaveJob(ctx context.Context, id string, fence idempotency.Fence) error
	// StoppedKeys are the keys, and origin partitions, of the failed items of a job.
	StoppedKeys(ctx context.Context, job string) ([]StoppedKey, error)
	// Unreplied are ended jobs with a Reply that has not been sent. Replied notes that it was.
	Unreplied(ctx context.Context, limit int) ([]Job, error)
	Replied(ctx context.Context, id string) error
}

// Change is what an operator does to a job: one of pause, resume, cancel and rate.
type Change struct {
	Action        string
	Rate          float64 // of rate
	Actor, Reason string
}

// The actions of a Change.
const (
	PauseJob  = "pause"
	ResumeJob = "resume"
	CancelJob = "cancel"
	RateJob   = "rate"
)

// StoppedKey is a key that a failed item has stopped. A record without a key stops nothing.
type StoppedKey struct {
	Origin string
	Key    []byte
}

// Ledger is the whole of it.
type Ledger interface {
	Indexing
	Catalogue
	Operating
	Jobs
	// Ping tells whether the database answers.
	Ping(ctx context.Context) error
	// Epoch is the number of the ledger's current life: it rises when the ledger was put back to an older state.
	Epoch(ctx context.Context) (int64, error)
	// Close ends all connections. It does not wait for calls under way.
	Close() error
}
