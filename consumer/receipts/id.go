package receipts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ID names a message over all its copies.
type ID struct {
	// Message is the redrive-message-id.
	Message string
	// Original is when the origin took the record, to the millisecond, in UTC. Zero is not known, which is a name of its own.
	Original time.Time
}

// String is the id as it stands in errors.
func (id ID) String() string {
	if id.Original.IsZero() {
		return strconv.Quote(id.Message)
	}
	return strconv.Quote(id.Message) + " of " + id.Original.UTC().Format("2006-01-02T15:04:05.000Z")
}

// columns are the id as it is stored. What a text column can not hold is stored by its digest.
func (id ID) columns() (message string, original int64, err error) {
	if id.Message == "" {
		return "", 0, errors.New("a message without an id has no receipt")
	}
	message = id.Message
	if len(message) > maxText || !storable(message) {
		sum := sha256.Sum256([]byte(message))
		message = "sha256:" + hex.EncodeToString(sum[:])
	}
	if !id.Original.IsZero() {
		original = id.Original.UnixMilli()
	}
	return message, original, nil
}

// storable tells whether every database takes s as text: Postgres has no room for a NUL.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// maxText is the size limit of a message id in the wire contract.
const maxText = 1024

// Record is what of a Kafka record names its message.
type Record struct {
	// Topic, Partition and Offset are where it was read, Timestamp is the record's own.
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
	// Headers are all its headers, in order: see HeadersOf. Nil is none.
	Headers iter.Seq2[string, []byte]
	// Origin is the topic that the group's records come from, where Topic is another one that they return to (returnTo). "" is Topic.
	Origin string
}

// HeadersOf lists the headers of a client's record, by a function that takes one apart.
func HeadersOf[H any](headers []H, apart func(H) (name string, value []byte)) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, h := range headers {
			if !yield(apart(h)) {
				return
			}
		}
	}
}

// IDOf is the name of the message that a record is a copy of: redrive-message-id and redrive-original-timestamp, or, where it
// has none yet, its own place and timestamp, which is what the headers of its copies will say. So the first delivery and all that
// come back have the same id, if the consumer hands a record over with the four redrive-original headers, as the wire contract says.
//
// Headers that name another origin were copied by a stream processor from its input. They name another record, and are left out.
// A header that the contract does not accept (not UTF-8, too long, no number) is as good as none; of several the first accepted counts.
func IDOf(r Record) ID {
	h := read(r.Headers)
	origin := r.Origin
	if origin == "" {
		origin = r.Topic
	}
	if h.topic != "" && h.topic != origin && h.topic != r.Topic {
		h = headers{}
	}
	id := ID{Message: h.message, Original: h.original}
	if id.Message == "" {
		id.Message = place(r.Topic, int64(r.Partition), r.Offset)
		if h.topic != "" && h.partition >= 0 && h.offset >= 0 {
			id.Message = place(h.topic, h.partition, h.offset)
		}
	}
	// The timestamp of a copy is that of its last hop, and each copy has another one.
	if id.Original.IsZero() && !h.copied {
		id.Original = r.Timestamp.UTC().Truncate(time.Millisecond)
	}
	return id
}

func place(topic string, partition, offset int64) string {
	return fmt.Sprintf("%s/%d/%d", topic, partition, offset)
}

// headers are the accepted values of the headers that name a message.
type headers struct {
	message, topic    string
	partition, offset int64 // -1: none
	original          time.Time
	copied            bool // Redrive wrote this record.
}

func read(all iter.Seq2[string, []byte]) headers {
	h := headers{partition: -1, offset: -1}
	if all == nil {
		return h
	}
	for name, value := range all {
		switch name {
		case "redrive-message-id":
			if h.message == "" && len(value) <= maxText && utf8.Valid(value) {
				h.message = string(value)
			}
		case "redrive-original-topic":
			if h.topic == "" && len(value) <= 249 && utf8.Valid(value) {
				h.topic = string(value)
			}
		case "redrive-original-partition":
			if h.partition < 0 {
				h.partition = number(value, 31)
			}
		case "redrive-original-offset":
			if h.offset < 0 {
				h.offset = number(value, 63)
			}
		case "redrive-original-timestamp":
			if at, err := time.Parse(time.RFC3339Nano, string(value)); h.original.IsZero() && err == nil && len(value) <= 40 {
				h.original = at.UTC().Truncate(time.Millisecond)
			}
		case "redrive-attempt", "redrive-deliveries", "redrive-replay-id":
			h.copied = true
		}
	}
	return h
}

// number reads decimal digits of at most so many bits; -1 is none.
func number(value []byte, bits int) int64 {
	n, err := strconv.ParseUint(string(value), 10, bits)
	if err != nil || len(value) > 19 {
		return -1
	}
	return int64(n) // It has 63 bits at most.
}
