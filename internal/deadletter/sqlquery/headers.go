package sqlquery

import (
	"encoding/binary"
	"errors"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

var errHeaders = errors.New("the stored headers are not readable")

// AppendHeaders writes headers as they are stored: for each the length of the name, the name, one more than the length of the
// value, or 0 for nil, and the value. Lengths are varints.
func AppendHeaders(dst []byte, headers []deadletter.Header) []byte {
	for _, h := range headers {
		dst = binary.AppendUvarint(dst, uint64(len(h.Key)))
		dst = append(dst, h.Key...)
		if h.Value == nil {
			dst = binary.AppendUvarint(dst, 0)
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(h.Value))+1)
		dst = append(dst, h.Value...)
	}
	return dst
}

// ParseHeaders reads what AppendHeaders has written. Values alias stored. Nothing gives nil.
func ParseHeaders(stored []byte) ([]deadletter.Header, error) {
	var headers []deadletter.Header
	take := func(n uint64) ([]byte, bool) {
		if n > uint64(len(stored)) {
			return nil, false
		}
		taken := stored[:n:n]
		stored = stored[n:]
		return taken, true
	}
	length := func() (uint64, bool) {
		n, size := binary.Uvarint(stored)
		if size <= 0 {
			return 0, false
		}
		stored = stored[size:]
		return n, true
	}
	for len(stored) > 0 {
		n, ok := length()
		if !ok {
			return nil, errHeaders
		}
		key, ok := take(n)
		if !ok {
			return nil, errHeaders
		}
		header := deadletter.Header{Key: string(key)}
		if n, ok = length(); !ok {
			return nil, errHeaders
		}
		if n > 0 {
			if header.Value, ok = take(n - 1); !ok {
				return nil, errHeaders
			}
		}
		headers = append(headers, header)
	}
	return headers, nil
}
