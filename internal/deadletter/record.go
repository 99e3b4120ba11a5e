package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// MaxLabel is the size limit of Letter.Label, in bytes.
const MaxLabel = 256

// FromRecord makes the letter of a record of a dead-letter topic: dead, and not in the ledger yet. Origin is the configured one, for
// a record that names none; labelHeader is the header that becomes the label, "" for none.
//
// The record is untrusted. Whatever it holds, every text of the letter is valid UTF-8 without NUL, which Postgres refuses, and
// no longer than MaxErrorText or, of the label, MaxLabel; numbers are in the range that package envelope accepts; times are
// between 1970 and 9999, or zero where the record does not say. The key is whole, however long: it is what letters are ordered
// and found by. It shares its bytes with the record.
//
// A record without a message id is named by its place. It is a pointer letter if it has the header of one and no value, since
// the bytes of a pointer letter never fitted the topic.
func FromRecord(r *kgo.Record, topicID TopicID, origin, labelHeader string) Letter {
	reader := Reader{topicID: topicID, origin: origin, labelHeader: labelHeader}
	return reader.Letter(r)
}

// Reader is FromRecord for many records of one topic. It keeps the texts that letters share, so that a thousand letters of one
// cause hold them once. It belongs to one goroutine at a time.
type Reader struct {
	topicID     TopicID
	origin      string
	labelHeader string

	env    envelope.Envelope
	room   []byte // for fingerprints
	texts  map[string]string
	prints map[failure]string
}

// failure is what a fingerprint is made of.
type failure struct{ errorType, text string }

// maxShared is how many texts, and fingerprints, a Reader keeps. It forgets all of them when they are more: those that are worth
// keeping are soon there again.
const maxShared = 512

// NewReader makes a Reader of the records of one topic; see FromRecord.
func NewReader(topicID TopicID, origin, labelHeader string) *Reader {
	return &Reader{
		topicID: topicID, origin: origin, labelHeader: labelHeader,
		room: make([]byte, 0, MaxErrorText+2*printed), texts: map[string]string{}, prints: map[failure]string{},
	}
}

// Letter is FromRecord.
func (d *Reader) Letter(r *kgo.Record) Letter {
	e := &d.env
	e.Parse(r.Headers)
	l := Letter{
		Place:            Place{TopicID: d.topicID, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset},
		MessageID:        Text(e.MessageID),
		Key:              r.Key,
		Origin:           d.origin,
		OriginPartition:  e.OriginalPartition,
		OriginOffset:     e.OriginalOffset,
		OriginPartitions: e.OriginalPartitions,
		OriginTimestamp:  sane(e.OriginalTimestamp),
		Group:            d.shared(e.Value(envelope.HeaderGroup)),
		Reason:           e.Reason,
		ErrorType:        d.shared(e.Value(envelope.HeaderErrorType)),
		ErrorText:        d.shared(e.Value(envelope.HeaderErrorMessage)),
		Label:            d.label(r.Headers),
		Attempt:          e.Attempt,
		Deliveries:       e.Deliveries,
		ReplayID:         d.shared(e.Value(envelope.HeaderReplayID)),
		ReplayCount:      e.ReplayCount,
		FailedAt:         parseTime(e.Value(envelope.HeaderFailedAt)),
		DeadAt:           sane(r.Timestamp),
		Size:             sizeOf(r),
		Digest:           Digest(r.Key, r.Value, r.Headers),
		Pointer:          r.Value == nil && len(e.Value(envelope.HeaderLetterSource)) > 0,
		State:            Dead,
		Copy:             Target{Partition: -1, Offset: -1},
	}
	if l.MessageID == "" {
		l.MessageID = l.Place.String()
	}
	if e.OriginalTopic != nil && string(e.OriginalTopic) != d.origin {
		l.Origin = d.shared(e.OriginalTopic)
	}
	if l.Reason == "" {
		l.Reason = e.Verdict() // An action of dead alone is a reason too.
	}
	if l.DeadAt.IsZero() {
		l.DeadAt = time.UnixMilli(0).UTC()
	}
	l.Fingerprint = d.print(l.ErrorType, l.ErrorText)
	return l
}

// MessageID is the message id of a record as its letter has it, or "" if the record has none.
func MessageID(r *kgo.Record) string {
	var e envelope.Envelope
	e.Parse(r.Headers)
	return Text(e.MessageID)
}

// PayloadOf is the record, byte for byte. It shares its bytes with the record.
func PayloadOf(r *kgo.Record) Payload {
	p := Payload{Key: r.Key, Value: r.Value}
	if len(r.Headers) > 0 {
		p.Headers = make([]Header, len(r.Headers))
		for i, h := range r.Headers {
			p.Headers[i] = Header(h)
		}
	}
	return p
}

// digestBuffer is the size up to which a record is digested without an allocation.
const digestBuffer = 2 << 10

// Digest is the SHA-256 of a record: of its key, its value, and the name and value of each header in their order, each of them led
// by its length in eight bytes, big endian, which is all ones for nil. So nil is told from empty, and no byte can move from
// one part to the next unseen. The layout outlives this code: it is that of redrive-letter-digest, and ledgers hold it.
func Digest[H ~struct {
	Key   string
	Value []byte
}](key, value []byte, headers []H) [sha256.Size]byte {
	// One call with all of it costs less than many calls with a few bytes each, the copying included.
	var room [digestBuffer]byte
	b := appendPart(appendPart(room[:0], key), value)
	for i := range headers {
		h := Header(headers[i])
		b = binary.BigEndian.AppendUint64(b, uint64(len(h.Key)))
		b = appendPart(append(b, h.Key...), h.Value)
	}
	return sha256.Sum256(b)
}

func appendPart(dst, part []byte) []byte {
	if part == nil {
		return binary.BigEndian.AppendUint64(dst, ^uint64(0))
	}
	return append(binary.BigEndian.AppendUint64(dst, uint64(len(part))), part...)
}

// Text is a header's value as the ledger holds it: valid UTF-8 without NUL, at most MaxErrorText bytes.
func Text(v []byte) string { return string(clean(v, MaxErrorText)) }

// clean returns v itself if nothing is wrong with it.
func clean(v []byte, limit int) []byte {
	if len(v) <= limit && bytes.IndexByte(v, 0) < 0 && utf8.Valid(v) {
		return v
	}
	// What is beyond twice the limit cannot matter, and the value may be a megabyte.
	if len(v) > 2*limit {
		v = v[:2*limit]
	}
	v = bytes.ReplaceAll(bytes.ToValidUTF8(v, []byte("\uFFFD")), []byte{0}, []byte("\uFFFD"))
	if len(v) <= limit {
		return v
	}
	for !utf8.RuneStart(v[limit]) {
		limit--
	}
	return v[:limit]
}

// shared is Text, but each text is made once.
func (d *Reader) shared(v []byte) string {
	if len(v) == 0 {
		return ""
	}
	v = clean(v, MaxErrorText)
	if s, ok := d.texts[string(v)]; ok {
		return s
	}
	s := string(v)
	if d.texts != nil {
		if len(d.texts) >= maxShared {
			clear(d.texts)
		}
		d.texts[s] = s
	}
	return s
}

func (d *Reader) print(errorType, text string) string {
	f := failure{errorType, text}
	if p, ok := d.prints[f]; ok {
		return p
	}
	p := fingerprint(d.room[:0], errorType, text)
	if d.prints != nil {
		if len(d.prints) >= maxShared {
			clear(d.prints)
		}
		d.prints[f] = p
	}
	return p
}

// label is the value of the first header with the label's name.
func (d *Reader) label(headers []kgo.RecordHeader) string {
	if d.labelHeader == "" {
		return ""
	}
	for i := range headers {
		if strings.EqualFold(headers[i].Key, d.labelHeader) {
			return d.shared(clean(headers[i].Value, MaxLabel))
		}
	}
	return ""
}

// parseTime reads a timestamp that package envelope has accepted.
func parseTime(v []byte) time.Time {
	var t time.Time
	if v == nil || t.UnmarshalText(v) != nil {
		return time.Time{}
	}
	return sane(t)
}

var (
	earliest = time.UnixMilli(0)
	latest   = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// sane is t to the millisecond, or zero if databases and people can do nothing with it.
func sane(t time.Time) time.Time {
	if t.Before(earliest) || !t.Before(latest) {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

func sizeOf(r *kgo.Record) int64 {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}
