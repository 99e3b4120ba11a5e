package kafka

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Class says what to do about an error.
type Class int

const (
	// None is the class of a nil error.
	None Class = iota
	// Transient is everything that is not the fault of one record: waiting, an
	// operator or a broker ends it. Whoever meets it holds what it has, retries
	// for ever with a backoff, and shows it.
	Transient
	// RecordRefused means that this record can never be written to this topic as
	// both are now. The record is a dead letter; its neighbours are not.
	RecordRefused
	// Fenced means that another process has taken this one's identity. To go on
	// would be to fight it: the process ends.
	Fenced
	// Canceled means that somebody here gave up waiting: a context was cancelled
	// or the client closed. The outcome of what was under way is unknown and
	// counts as not done.
	Canceled
)

// String returns the name that logs and metric labels use.
func (c Class) String() string {
	switch c {
	case None:
		return "none"
	case Transient:
		return "transient"
	case RecordRefused:
		return "record_refused"
	case Fenced:
		return "fenced"
	case Canceled:
		return "canceled"
	default:
		return "invalid"
	}
}

// Classify returns the class of err. The two mistakes it can make do not weigh the
// same: a refusal taken for transient makes one partition wait where everybody can
// see it, while an infrastructure error taken for a refusal pours every record
// there is into the dead letters. So what is not known to be a record's own fault
// is Transient.
func Classify(err error) Class {
	if err == nil {
		return None
	}
	if answer, ok := errors.AsType[*kerr.Error](err); ok {
		// An answer of the broker is a fact and outweighs a context that was
		// cancelled meanwhile, unless it says no more than "not now".
		if class := classifyCode(answer.Code); class != Transient {
			return class
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, kgo.ErrAborting) {
		return Canceled
	}
	return Transient
}

// classifyCode places the error codes of the Kafka protocol.
//
// Codes that look as if they belonged to a record and do not:
//
//   - CORRUPT_MESSAGE: the checksum did not match what arrived. The bytes were
//     damaged on the way; sending the record again builds and sums a new batch.
//     (Brokers before 2.4 said it of a null key on a compacted topic as well;
//     newer ones say INVALID_RECORD.)
//   - POLICY_VIOLATION: no Apache Kafka broker answers it to a produce. Proxies
//     and managed services do, and most of their policies concern the client or
//     the topic (acks, compression, rate, size of the batch), hence every record.
//   - INVALID_TIMESTAMP: every copy is stamped with the time of its produce, so it
//     means that this machine's clock is wrong. As a record's fault it would pour
//     everything into the dead letters.
//   - UNKNOWN_SERVER_ERROR: the broker itself does not know.
//   - UNSUPPORTED_COMPRESSION_TYPE, INVALID_REQUIRED_ACKS, INVALID_TOPIC_EXCEPTION
//     and the authorization codes: the set-up is wrong for every record alike. They
//     wait for an operator.
func classifyCode(code int16) Class {
	switch code {
	case kerr.MessageTooLarge.Code, // Also what kgo itself says of a record above its own limit.
		kerr.RecordListTooLarge.Code,          // Larger than a segment of the log.
		kerr.InvalidRecord.Code,               // Null key on a compacted topic, schema validation.
		kerr.UnsupportedForMessageFormat.Code: // Headers on a topic of a message format without them.
		return RecordRefused
	case kerr.FencedInstanceID.Code:
		// UNRELEASED_INSTANCE_ID is not this: there the newcomer is refused until
		// the session of the one before has ended, and waits.
		return Fenced
	default:
		return Transient
	}
}

// Code returns a short name for err that is safe as a metric label: the Kafka name
// of the error (NOT_ENOUGH_REPLICAS) or one of canceled, timeout, connection and
// other. It is empty for nil.
func Code(err error) string {
	var answer *kerr.Error
	var network net.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &answer):
		return kerr.TypedErrorForCode(answer.Code).Message
	case Classify(err) == Canceled:
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries):
		return "timeout"
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "connection"
	default:
		return "other"
	}
}
