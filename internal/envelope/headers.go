package envelope

// prefix is what the name of every own header starts with.
const prefix = "redrive-"

// The names of the own headers. A record carries each of them at most once.
const (
	// HeaderMessageID is the record's name over all hops and replays.
	HeaderMessageID = "redrive-message-id"
	// HeaderOriginalTopic is the topic where the record first lived.
	HeaderOriginalTopic = "redrive-original-topic"
	// HeaderOriginalPartition is the partition where the record first lived.
	HeaderOriginalPartition = "redrive-original-partition"
	// HeaderOriginalOffset is the offset where the record first lived.
	HeaderOriginalOffset = "redrive-original-offset"
	// HeaderOriginalTimestamp is the record's first timestamp (RFC 3339, milliseconds).
	HeaderOriginalTimestamp = "redrive-original-timestamp"
	// HeaderOriginalPartitions is the partition count of the target when the record failed.
	HeaderOriginalPartitions = "redrive-original-partitions"
	// HeaderAttempt is how many deliveries have failed so far in this run.
	HeaderAttempt = "redrive-attempt"
	// HeaderDeliveries is how many deliveries have failed over all replays.
	HeaderDeliveries = "redrive-deliveries"
	// HeaderAvailableAt is the instant before which the record must not be forwarded (RFC 3339, milliseconds).
	HeaderAvailableAt = "redrive-available-at"
	// HeaderFailedAt is the instant of the last failure (RFC 3339).
	HeaderFailedAt = "redrive-failed-at"
	// HeaderErrorType is the class of the last failure.
	HeaderErrorType = "redrive-error-type"
	// HeaderErrorMessage is the text of the last failure, at most MaxText bytes of UTF-8.
	HeaderErrorMessage = "redrive-error-message"
	// HeaderConsumer names the member that failed last.
	HeaderConsumer = "redrive-consumer"
	// HeaderGroup names the consumer group that failed last.
	HeaderGroup = "redrive-group"
	// HeaderAction is the consumer's verdict: retry, dead or outage.
	HeaderAction = "redrive-action"
	// HeaderRetryAfter is the consumer's own wish for the wait: a duration or seconds.
	HeaderRetryAfter = "redrive-retry-after"
	// HeaderReason says why a record is a dead letter.
	HeaderReason = "redrive-reason"
	// HeaderReplayID is the replay job that sent this copy.
	HeaderReplayID = "redrive-replay-id"
	// HeaderReplayCount is how often the message was replayed.
	HeaderReplayCount = "redrive-replay-count"
	// HeaderReplayedFrom is the dead-letter position the copy was read from.
	HeaderReplayedFrom = "redrive-replayed-from"
	// HeaderParentID is the message of which this one is an edited copy.
	HeaderParentID = "redrive-parent-id"
	// HeaderLaneOffset is the lane offset that was read when the copy was released.
	HeaderLaneOffset = "redrive-lane-offset"
	// HeaderKey is the record's own key inside a lane (base64).
	HeaderKey = "redrive-key"
	// HeaderValueNull marks a null value inside a lane.
	HeaderValueNull = "redrive-value-null"
	// HeaderHeld is the dead-letter position of a head that waits for an operator inside a lane.
	HeaderHeld = "redrive-held"
	// HeaderLetterSource is the position of the record for which a pointer letter stands.
	HeaderLetterSource = "redrive-letter-source"
	// HeaderLetterDigest is the digest of the record for which a pointer letter stands.
	HeaderLetterDigest = "redrive-letter-digest"
	// HeaderLetterBytes is the size of the record for which a pointer letter stands.
	HeaderLetterBytes = "redrive-letter-bytes"
	// HeaderRejected lists the control headers that were not accepted (JSON, at most MaxRejected bytes).
	HeaderRejected = "redrive-rejected"
)

// header is one known own header. The order of the constants is the order in which newly set headers are appended.
type header uint8

const (
	messageID header = iota
	originalTopic
	originalPartition
	originalOffset
	originalTimestamp
	originalPartitions
	attempt
	deliveries
	availableAt
	failedAt
	errorType
	errorMessage
	consumer
	group
	action
	retryAfter
	reason
	replayID
	replayCount
	replayedFrom
	parentID
	laneOffset
	laneKey
	laneValueNull
	laneHeld
	letterSource
	letterDigest
	letterBytes
	rejected

	headerCount
	unknown = headerCount
)

// headerSet is a set of known own headers, one bit each.
type headerSet uint32

func (s headerSet) has(h header) bool { return s&(1<<h) != 0 }

// The sets below are constants, because they are read for every record.
const (
	// keptOnReturn is the column "kept on return to origin" of the contract.
	keptOnReturn headerSet = 1<<messageID |
		1<<originalTopic | 1<<originalPartition | 1<<originalOffset | 1<<originalTimestamp | 1<<originalPartitions |
		1<<attempt | 1<<deliveries | 1<<group |
		1<<replayID | 1<<replayCount | 1<<replayedFrom | 1<<parentID | 1<<laneOffset

	// lastFailure tells of the last failure; it travels on until the next delivery, which makes it stale.
	lastFailure headerSet = 1<<failedAt | 1<<errorType | 1<<errorMessage | 1<<consumer

	// A verdict and a wish are used up by the hop that obeys them: kept, they would be obeyed again.
	keptOnHop = keptOnReturn | lastFailure | 1<<availableAt | 1<<rejected

	// A letter waits for nobody, so the due time goes; the reason says what the verdict was.
	keptOnLetter = keptOnReturn | lastFailure | 1<<reason | 1<<rejected

	// inheritable is what a stream processor copies from an input record that had been through Redrive: all that a
	// return keeps, but for the group, which whoever hands a record over writes itself, and for the deliveries: a loop
	// through several topics is one that only a count which nobody sets back can end.
	inheritable = keptOnReturn &^ (1<<group | 1<<deliveries)

	// cutTexts are for people to read. They are shortened where needed; all other texts are taken whole or not at all.
	cutTexts headerSet = 1<<errorType | 1<<errorMessage | 1<<consumer

	// freeTexts are of use to people only. A copy that is too large for its topic goes without them.
	freeTexts = cutTexts | 1<<rejected
)

// Kind is what a record is written as. It decides which own headers stay.
type Kind uint8

const (
	// Return is a copy to the origin, or to the return topic.
	Return Kind = iota
	// Hop is a copy to a tier.
	Hop
	// Letter is a copy to the dead letters.
	Letter
)

func (k Kind) keeps() headerSet {
	switch k {
	case Hop:
		return keptOnHop
	case Letter:
		return keptOnLetter
	default:
		return keptOnReturn
	}
}

// lookup finds a header by its name. Names are case-sensitive, as header names are in Kafka.
func lookup(name string) header {
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return unknown
	}
	switch name {
	case HeaderMessageID:
		return messageID
	case HeaderOriginalTopic:
		return originalTopic
	case HeaderOriginalPartition:
		return originalPartition
	case HeaderOriginalOffset:
		return originalOffset
	case HeaderOriginalTimestamp:
		return originalTimestamp
	case HeaderOriginalPartitions:
		return originalPartitions
	case HeaderAttempt:
		return attempt
	case HeaderDeliveries:
		return deliveries
	case HeaderAvailableAt:
		return availableAt
	case HeaderFailedAt:
		return failedAt
	case HeaderErrorType:
		return errorType
	case HeaderErrorMessage:
		return errorMessage
	case HeaderConsumer:
		return consumer
	case HeaderGroup:
		return group
	case HeaderAction:
		return action
	case HeaderRetryAfter:
		return retryAfter
	case HeaderReason:
		return reason
	case HeaderReplayID:
		return replayID
	case HeaderReplayCount:
		return replayCount
	case HeaderReplayedFrom:
		return replayedFrom
	case HeaderParentID:
		return parentID
	case HeaderLaneOffset:
		return laneOffset
	case HeaderKey:
		return laneKey
	case HeaderValueNull:
		return laneValueNull
	case HeaderHeld:
		return laneHeld
	case HeaderLetterSource:
		return letterSource
	case HeaderLetterDigest:
		return letterDigest
	case HeaderLetterBytes:
		return letterBytes
	case HeaderRejected:
		return rejected
	}
	return unknown
}

// name is the inverse of lookup.
func (h header) name() string {
	switch h {
	case messageID:
		return HeaderMessageID
	case originalTopic:
		return HeaderOriginalTopic
	case originalPartition:
		return HeaderOriginalPartition
	case originalOffset:
		return HeaderOriginalOffset
	case originalTimestamp:
		return HeaderOriginalTimestamp
	case originalPartitions:
		return HeaderOriginalPartitions
	case attempt:
		return HeaderAttempt
	case deliveries:
		return HeaderDeliveries
	case availableAt:
		return HeaderAvailableAt
	case failedAt:
		return HeaderFailedAt
	case errorType:
		return HeaderErrorType
	case errorMessage:
		return HeaderErrorMessage
	case consumer:
		return HeaderConsumer
	case group:
		return HeaderGroup
	case action:
		return HeaderAction
	case retryAfter:
		return HeaderRetryAfter
	case reason:
		return HeaderReason
	case replayID:
		return HeaderReplayID
	case replayCount:
		return HeaderReplayCount
	case replayedFrom:
		return HeaderReplayedFrom
	case parentID:
		return HeaderParentID
	case laneOffset:
		return HeaderLaneOffset
	case laneKey:
		return HeaderKey
	case laneValueNull:
		return HeaderValueNull
	case laneHeld:
		return HeaderHeld
	case letterSource:
		return HeaderLetterSource
	case letterDigest:
		return HeaderLetterDigest
	case letterBytes:
		return HeaderLetterBytes
	case rejected:
		return HeaderRejected
	default:
		return ""
	}
}
