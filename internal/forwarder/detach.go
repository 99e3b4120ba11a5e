package forwarder

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// recordOverhead is what a record in a queue takes beside its own bytes: the
// queue's entry, the record, the slots in the queue's lists.
const recordOverhead = int64(unsafe.Sizeof(held{})) + int64(unsafe.Sizeof(kgo.Record{})) + 32

// sizeOf is the memory that a record takes while it is held.
func sizeOf(r *kgo.Record) int64 {
	n := recordOverhead + int64(len(r.Key)+len(r.Value))
	for i := range r.Headers {
		n += int64(unsafe.Sizeof(kgo.RecordHeader{})) + int64(len(r.Headers[i].Key)+len(r.Headers[i].Value))
	}
	return n
}

// detach copies what is needed of a fetched record. Of a fetch all records share
// one buffer: one that waits would keep all of it in memory.
func detach(r *kgo.Record) *kgo.Record {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Value)
	}
	buf := make([]byte, 0, n)
	own := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(buf)
		buf = append(buf, b...)
		return buf[from:len(buf):len(buf)]
	}
	c := &kgo.Record{Key: own(r.Key), Value: own(r.Value), Offset: r.Offset}
	if len(r.Headers) > 0 {
		c.Headers = make([]kgo.RecordHeader, len(r.Headers))
		for i, h := range r.Headers {
			c.Headers[i] = kgo.RecordHeader{Key: envelope.Intern(h.Key), Value: own(h.Value)}
		}
	}
	return c
}
