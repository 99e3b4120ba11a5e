package forwarder

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// identity finds the candidates for being a twin: a record that a consumer
// handed over twice because it crashed between its produce and its commit, or
// that a forwarder sent twice for the same cause. The zero identity is none.
type identity struct {
	partition int32
	attempt   int32
	replay    int32
	known     bool
	offset    int64
}

func identityOf(e *envelope.Envelope) identity {
	if e.OriginalPartition < 0 || e.OriginalOffset < 0 {
		return identity{}
	}
	return identity{
		partition: e.OriginalPartition,
		offset:    e.OriginalOffset,
		attempt:   int32(e.Attempt),
		replay:    int32(e.ReplayCount),
		known:     true,
	}
}

// isTwin reports whether rec is the same delivery of the same record as one
// that is held. Everything must be equal but what says how and when it failed;
// with the least difference it is another record.
func (s *source) isTwin(e *envelope.Envelope, rec *kgo.Record) bool {
	id := identityOf(e)
	if !id.known {
		return false
	}
	h := s.twins[id]
	if h == nil {
		return false
	}
	first := h.Value.rec
	return (first.Key == nil) == (rec.Key == nil) && (first.Value == nil) == (rec.Value == nil) &&
		bytes.Equal(first.Key, rec.Key) && bytes.Equal(first.Value, rec.Value) &&
		sameHeaders(first.Headers, rec.Headers)
}

func (s *source) rememberTwin(e *envelope.Envelope, h *held) {
	id := identityOf(e)
	if id.known && s.twins[id] == nil {
		h.Value.twin = id
		s.twins[id] = h
	}
}

func (s *source) forgetTwin(h *held) {
	if h.Value.twin.known {
		delete(s.twins, h.Value.twin)
		h.Value.twin = identity{}
	}
}

// sameHeaders compares the headers in order, but for those of one failure.
func sameHeaders(a, b []kgo.RecordHeader) bool {
	for {
		a, b = skipFailure(a), skipFailure(b)
		if len(a) == 0 || len(b) == 0 {
			return len(a) == len(b)
		}
		if a[0].Key != b[0].Key || (a[0].Value == nil) != (b[0].Value == nil) || !bytes.Equal(a[0].Value, b[0].Value) {
			return false
		}
		a, b = a[1:], b[1:]
	}
}

func skipFailure(headers []kgo.RecordHeader) []kgo.RecordHeader {
	for len(headers) > 0 {
		switch headers[0].Key {
		case envelope.HeaderFailedAt, envelope.HeaderErrorType, envelope.HeaderErrorMessage,
			envelope.HeaderConsumer, envelope.HeaderAvailableAt:
			headers = headers[1:]
		default:
			return headers
		}
	}
	return headers
}
