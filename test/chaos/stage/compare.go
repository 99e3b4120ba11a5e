package stage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kgo"
)

// OwnHeaders are the names that belong to Redrive: the table of the wire contract, written down a second time on purpose,
// so that a mistake in the product's list is not the checker's as well. All other headers are somebody else's.
var OwnHeaders = map[string]bool{
	"redrive-message-id":          true,
	"redrive-original-topic":      true,
	"redrive-original-partition":  true,
	"redrive-original-offset":     true,
	"redrive-original-timestamp":  true,
	"redrive-original-partitions": true,
	"redrive-attempt":             true,
	"redrive-deliveries":          true,
	"redrive-available-at":        true,
	"redrive-failed-at":           true,
	"redrive-error-type":          true,
	"redrive-error-message":       true,
	"redrive-consumer":            true,
	"redrive-group":               true,
	"redrive-action":              true,
	"redrive-retry-after":         true,
	"redrive-reason":              true,
	"redrive-replay-id":           true,
	"redrive-replay-count":        true,
	"redrive-replayed-from":       true,
	"redrive-lane-offset":         true,
	"redrive-key":                 true,
	"redrive-value-null":          true,
	"redrive-held":                true,
	"redrive-rejected":            true,
	"redrive-parent-id":           true,
	"redrive-letter-source":       true,
	"redrive-letter-digest":       true,
	"redrive-letter-bytes":        true,
}

// Difference says how the bytes that are not Redrive's differ, "" if they do not. Null and empty are different.
func Difference(want, got *kgo.Record) string {
	if !Same(want.Key, got.Key) {
		return fmt.Sprintf("key %s became %s", show(want.Key), show(got.Key))
	}
	if !Same(want.Value, got.Value) {
		return fmt.Sprintf("value %s became %s", show(want.Value), show(got.Value))
	}
	a, b := want.Headers, got.Headers
	for n := 0; ; n++ {
		a, b = skipOwn(a), skipOwn(b)
		switch {
		case len(a) == 0 && len(b) == 0:
			return ""
		case len(a) == 0:
			return fmt.Sprintf("foreign header %d, %q: %s, was not there", n, b[0].Key, show(b[0].Value))
		case len(b) == 0:
			return fmt.Sprintf("foreign header %d, %q: %s, is gone", n, a[0].Key, show(a[0].Value))
		case a[0].Key != b[0].Key || !Same(a[0].Value, b[0].Value):
			return fmt.Sprintf("foreign header %d, %q: %s, became %q: %s", n, a[0].Key, show(a[0].Value), b[0].Key, show(b[0].Value))
		}
		a, b = a[1:], b[1:]
	}
}

func skipOwn(headers []kgo.RecordHeader) []kgo.RecordHeader {
	for len(headers) > 0 && OwnHeaders[headers[0].Key] {
		headers = headers[1:]
	}
	return headers
}

// Same tells whether bytes are equal, null and empty being different.
func Same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func show(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 40:
		return fmt.Sprintf("%x... (%d bytes)", b[:40], len(b))
	default:
		return fmt.Sprintf("%x (%d bytes)", b, len(b))
	}
}

// RandomBytes makes n bytes that do not compress.
func RandomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}
