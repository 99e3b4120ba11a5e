package stage

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Digest is what redrive-letter-digest and the ledger say of a record, written down a second time on purpose, from docs/dead-letters.md and not from
// the code: the SHA-256 of key, value, and name and value of each header, each led by its length in eight bytes, big
// endian, or by eight bytes of ones where it is null.
func Digest(r *kgo.Record) [sha256.Size]byte {
	hash := sha256.New()
	part := func(b []byte, null bool) {
		length := uint64(len(b))
		if null {
			length = 1<<64 - 1
		}
		var head [8]byte
		binary.BigEndian.PutUint64(head[:], length)
		_, _ = hash.Write(head[:])
		_, _ = hash.Write(b)
	}
	part(r.Key, r.Key == nil)
	part(r.Value, r.Value == nil)
	for _, h := range r.Headers {
		part([]byte(h.Key), false)
		part(h.Value, h.Value == nil)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// Header is the value of the first header of that name.
func Header(r *kgo.Record, name string) (string, bool) {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value), true
		}
	}
	return "", false
}
