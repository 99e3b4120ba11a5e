package postgres

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
)

// The rows of a batch are written in the binary format of COPY by hand: that costs a third of what pgx.CopyFrom does for rows of
// this width, and one round trip less.
const (
	copyLetters = `COPY letters (topic, record_partition, record_offset, message_id, record_key, key_hash, origin, origin_partition,
		origin_offset, origin_partitions, origin_timestamp, consumer_group, reason, error_type, error_text, fingerprint, label,
		attempt, deliveries, replay_id, replay_count, failed_at, dead_at, size, digest, pointer, kept) FROM STDIN (FORMAT binary)`
	copyLettersFields = 27

	copyPayloads       = "COPY payloads (topic, record_partition, record_offset, record_key, value, headers) FROM STDIN (FORMAT binary)"
	copyPayloadsFields = 6
)

// epochOfPostgres is what its times are counted from, in microseconds since ours.
var epochOfPostgres = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// copyRows are rows in the format of COPY.
type copyRows struct{ bytes []byte }

func newCopyRows(size int) *copyRows {
	c := &copyRows{bytes: make([]byte, 0, size)}
	c.bytes = append(c.bytes, "PGCOPY\n\xff\r\n\x00"...)
	c.bytes = append(c.bytes, 0, 0, 0, 0, 0, 0, 0, 0) // no flags, no extension
	return c
}

func (c *copyRows) row(fields int) {
	c.bytes = binary.BigEndian.AppendUint16(c.bytes, uint16(fields))
}

// end returns all rows with the mark of their end.
func (c *copyRows) end() []byte { return append(c.bytes, 0xff, 0xff) }

func (c *copyRows) length(n int) {
	c.bytes = binary.BigEndian.AppendUint32(c.bytes, uint32(n))
}

func (c *copyRows) null() { c.bytes = append(c.bytes, 0xff, 0xff, 0xff, 0xff) }

func (c *copyRows) long(v int64) {
	c.length(8)
	c.bytes = binary.BigEndian.AppendUint64(c.bytes, uint64(v))
}

func (c *copyRows) integer(v int32) {
	c.length(4)
	c.bytes = binary.BigEndian.AppendUint32(c.bytes, uint32(v))
}

// count writes a number that a header may have made larger than the column holds.
func (c *copyRows) count(v int) {
	c.integer(int32(max(math.MinInt32, min(v, math.MaxInt32))))
}

func (c *copyRows) boolean(v bool) {
	c.length(1)
	if v {
		c.bytes = append(c.bytes, 1)
	} else {
		c.bytes = append(c.bytes, 0)
	}
}

func (c *copyRows) text(s string) {
	s = short(s)
	c.length(len(s))
	c.bytes = append(c.bytes, s...)
}

func (c *copyRows) binary(b []byte) {
	if b == nil {
		c.null()
		return
	}
	c.length(len(b))
	c.bytes = append(c.bytes, b...)
}

func (c *copyRows) instant(t time.Time) {
	c.long(storableTime(t).UnixMicro() - epochOfPostgres)
}

func (c *copyRows) instantOrNull(t time.Time) {
	if t.IsZero() {
		c.null()
		return
	}
	c.instant(t)
}

// letterRows are the letters of a batch.
func letterRows(topic int32, batch *deadletter.Batch) []byte {
	size := 64
	for i := range batch.Letters {
		l := &batch.Letters[i]
		size += 320 + len(l.MessageID) + len(l.Key) + len(l.Origin) + len(l.Group) + len(l.ErrorType) + len(l.ErrorText) + len(l.Label) + len(l.ReplayID)
	}
	c := newCopyRows(size)
	for i := range batch.Letters {
		l := &batch.Letters[i]
		c.row(copyLettersFields)
		c.integer(topic)
		c.integer(batch.Partition)
		c.long(l.Place.Offset)
		c.text(l.MessageID)
		c.binary(l.Key)
		c.long(sqlquery.KeyHash(l.Key))
		c.text(l.Origin)
		c.integer(l.OriginPartition)
		c.long(l.OriginOffset)
		c.integer(l.OriginPartitions)
		c.instantOrNull(l.OriginTimestamp)
		c.text(l.Group)
		c.text(string(l.Reason))
		c.text(l.ErrorType)
		c.text(l.ErrorText)
		c.text(l.Fingerprint)
		c.text(l.Label)
		c.count(l.Attempt)
		c.count(l.Deliveries)
		c.text(l.ReplayID)
		c.count(l.ReplayCount)
		c.instantOrNull(l.FailedAt)
		c.instant(l.DeadAt)
		c.long(l.Size)
		c.binary(l.Digest[:])
		c.boolean(l.Pointer)
		c.boolean(batch.Payloads != nil)
	}
	return c.end()
}

// payloadRows are the bytes of a batch that keeps them.
func payloadRows(topic int32, batch *deadletter.Batch) []byte {
	size := 64
	for _, p := range batch.Payloads {
		size += 96 + len(p.Key) + len(p.Value)
		for _, h := range p.Headers {
			size += 8 + len(h.Key) + len(h.Value)
		}
	}
	c := newCopyRows(size)
	var headers []byte
	for i, p := range batch.Payloads {
		c.row(copyPayloadsFields)
		c.integer(topic)
		c.integer(batch.Partition)
		c.long(batch.Letters[i].Place.Offset)
		c.binary(p.Key)
		c.binary(p.Value)
		headers = sqlquery.AppendHeaders(append(headers[:0], headersMark), p.Headers)
		c.binary(headers)
	}
	return c.end()
}

// headersMark stands before stored headers and is their format.
const headersMark = 1
