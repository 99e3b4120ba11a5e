package deadletter

import (
	"fmt"
	"time"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// TopicID is Kafka's id of a topic, which another topic of the same name does not have.
type TopicID [16]byte

// MaxErrorText is the size limit of Letter.ErrorText, in bytes.
const MaxErrorText = envelope.MaxText

// Place is where a letter lies.
type Place struct {
	TopicID   TopicID
	Topic     string
	Partition int32
	Offset    int64
}

// String is the place as it stands in logs, answers and redrive-replayed-from.
func (p Place) String() string { return fmt.Sprintf("%s/%d/%d", p.Topic, p.Partition, p.Offset) }

// State is what has become of a letter.
type State string

// The states of a letter, as the package comment draws them.
const (
	Dead      State = "dead"
	Claimed   State = "claimed"
	Replayed  State = "replayed"
	Succeeded State = "succeeded"
	Returned  State = "returned"
	Discarded State = "discarded"
	Expired   State = "expired"
)

// States are all states.
func States() []State {
	return []State{Dead, Claimed, Replayed, Succeeded, Returned, Discarded, Expired}
}

// Letter is one row of the ledger.
type Letter struct {
	// ID is the ledger's number of the letter; 0 before it is indexed. Later ones are greater within a partition.
	ID    int64
	Place Place

	// MessageID is the name of the message over all hops and replays. A letter whose record has none is named by its place.
	MessageID string
	// Key is the key of the record; nil is no key and not an empty one.
	Key []byte

	// Origin is where the record first lived, and where it returns to; the entry of topics.yaml decides about the latter.
	Origin string
	// OriginPartition and OriginOffset are -1 where the record does not say.
	OriginPartition int32
	OriginOffset    int64
	// OriginPartitions is how many partitions the origin had; 0 where the record does not say.
	OriginPartitions int32
	// OriginTimestamp is when the origin took the record; zero where the record does not say.
	OriginTimestamp time.Time

	// Group is the consumer group that failed the record, or "".
	Group  string
	Reason envelope.Reason
	// ErrorType and ErrorText are of the last failure; the text is valid UTF-8 of at most MaxErrorText bytes.
	ErrorType, ErrorText string
	// Fingerprint is the same for letters that failed alike: see Fingerprint.
	Fingerprint string
	// Label is the value of the header that the configuration groups by, such as a schema version, or "".
	Label string

	Attempt, Deliveries int
	// ReplayID and ReplayCount are of the replay that this letter came back from; "" and 0 of one that was never replayed.
	ReplayID    string
	ReplayCount int

	// FailedAt is when the consumer says it failed; zero where the record does not say.
	FailedAt time.Time
	// DeadAt is the timestamp of the record in the dead-letter topic.
	DeadAt time.Time
	// IndexedAt is when the row was written, by the database.
	IndexedAt time.Time

	// Size is the length of key, value and headers together, in bytes.
	Size int64
	// Digest is of key, value and headers: see Digest.
	Digest [32]byte
	// Pointer tells that the record is a pointer letter: the bytes never fitted the topic, and it can not be replayed.
	Pointer bool
	// Kept tells that the ledger has a copy of the bytes.
	Kept bool

	State State
	// StateAt is when the state began, by the database.
	StateAt time.Time
	// Note is why an operator, or retention, changed the state.
	Note string

	// Claim is the current claim of a claimed letter, or the last one of a replayed, succeeded or returned letter.
	Claim Claim
	// Copy is where the copy of a replayed, succeeded or returned letter lies; Offset is -1 before.
	Copy Target
}

// Payload is the record of a letter, byte for byte. Nil and empty differ in all of them.
type Payload struct {
	Key, Value []byte
	Headers    []Header
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Target is the partition that a copy goes to. Offset is where it lies, or, in a claim, the end of the partition when the
// letter was claimed: a copy that the holder sends can not lie below it. It is -1 for none.
type Target struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Claim says who may act on a letter, and until when.
type Claim struct {
	Letter int64
	Owner  string
	Fence  idempotency.Fence
	// Until is when the lease ends, by the clock of the database.
	Until time.Time
	// Job is the job that claimed it.
	Job string
	// ReplayCount is the redrive-replay-count that the copy carries.
	ReplayCount int
	// Target is where the copy goes, and the end of that partition before.
	Target Target
}
