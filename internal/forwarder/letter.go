package forwarder

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

// asideInterval is how often a record that was set aside is offered to the dead
// letters again: an operator may have raised their limit.
const asideInterval = time.Minute

// form is what a record is written as. When a topic refuses it for its size, it
// is written in the next form.
type form uint8

const (
	whole       form = iota
	trimmed          // without our own texts
	pointer          // of a dead letter: headers, and where the bytes are
	pointerOwn       // the same without foreign headers
	pointerBare      // the same without the key
)

// wireOverhead bounds what a batch of one record takes beside keys, values and
// headers: the batch's header (61 bytes) and the record's varints.
const wireOverhead = 61 + 36

// wireBound is the most that r takes as a batch of its own, uncompressed.
func wireBound(r *record) int64 {
	n := wireOverhead + int64(len(r.key())+len(r.value()))
	for i := range r.headers {
		n += 10 + int64(len(r.headers[i].Key)+len(r.headers[i].Value))
	}
	return n
}

// maxAdded bounds what the headers of a copy take beyond those of its record.
const maxAdded = 8 << 10

// key and value are those to write.
func (r *record) key() []byte {
	if r.form == pointerBare {
		return nil
	}
	return r.rec.Key
}

func (r *record) value() []byte {
	if r.form >= pointer {
		return nil
	}
	return r.rec.Value
}

// returns tells whether the record goes back to where it failed.
func (r *record) returns() bool { return r.to == r.route.origin }

// fit finds the form in which a prepared record can be written where it goes.
// The client fails a record above its limit by itself, but a broker fails the
// whole batch, and the client all that it has buffered for the partition; so
// what is known to be refused is not sent at all.
func (s *source) fit(l *loop, h *held) {
	r := &h.Value
	for {
		r.fitted, r.solo = r.to, false
		rules := r.to.rules.Load()
		keyless := rules.compacted && r.key() == nil && r.to != r.route.deadLetters
		limit := int64(rules.maxBytes)
		large := r.size+maxAdded > limit && wireBound(r) > limit
		switch {
		case !keyless && !large:
			return
		case l.now.Sub(rules.learned) > rulesTrust:
			// An operator may just have changed them: the broker judges this one.
			r.solo = true
			l.f.relearn()
			return
		case keyless:
			s.prepareLetter(l, h, kerr.InvalidRecord)
			continue
		}
		// The broker counts compressed bytes. If it has a chance it is sent alone,
		// compressed as well as can be, and the broker judges.
		if r.solo = true; l.compressed(r) <= limit || !s.shrink(l, h, kerr.MessageTooLarge) {
			return
		}
	}
}

// shrink gives a record that is too large for where it goes its next form, or
// its next destination. It reports false if there is none.
func (s *source) shrink(l *loop, h *held, cause error) bool {
	r := &h.Value
	switch {
	case r.form == pointerBare:
		return false
	case r.form >= pointer, r.form == whole, r.to == r.route.deadLetters:
		r.form++
		s.prepareAgain(l, h)
	default:
		s.prepareLetter(l, h, cause)
	}
	return true
}

// compressed is the size of r after compression.
func (l *loop) compressed(r *record) int64 {
	var src bytes.Buffer
	src.Write(r.key())
	src.Write(r.value())
	for i := range r.headers {
		src.WriteString(r.headers[i].Key)
		src.Write(r.headers[i].Value)
	}
	out, _ := l.f.gzip.Compress(&bytes.Buffer{}, src.Bytes())
	return int64(len(out))
}

// prepareLetter makes h a dead letter, because its destination refuses it.
func (s *source) prepareLetter(l *loop, h *held, cause error) {
	r := &h.Value
	r.cause = fmt.Errorf("refused by %s: %w", r.to.topic, cause)
	r.form, r.solo, r.tail = whole, false, false
	s.prepareAgain(l, h)
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// explain writes into e why a destination refused its record.
func (r *record) explain(e *envelope.Envelope) envelope.Reason {
	reason := envelope.ReasonUnroutable
	if tooLarge(r.cause) {
		reason = envelope.ReasonTooLarge
	}
	e.SetReason(reason)
	e.SetError(kafka.Code(r.cause), r.cause.Error())
	return reason
}

// point makes the headers of a letter those of a pointer letter, which stands
// for a record that the dead letters refuse for its size.
func (s *source) point(r *record) {
	if r.form >= pointerOwn {
		kept := r.headers[:0]
		for _, h := range r.headers {
			if strings.HasPrefix(h.Key, "redrive-") {
				kept = append(kept, h)
			}
		}
		r.headers = kept
	}
	size := len(r.rec.Key) + len(r.rec.Value)
	for _, h := range r.rec.Headers {
		size += len(h.Key) + len(h.Value)
	}
	digest := digestOf(r.rec)
	r.headers = append(r.headers,
		kgo.RecordHeader{Key: envelope.HeaderLetterSource, Value: fmt.Appendf(nil, "%s/%d/%d", s.inlet.topic, s.partition, r.rec.Offset)},
		kgo.RecordHeader{Key: envelope.HeaderLetterDigest, Value: []byte("sha256:" + hex.EncodeToString(digest[:]))},
		kgo.RecordHeader{Key: envelope.HeaderLetterBytes, Value: strconv.AppendInt(nil, int64(size), 10)})
}

// digestOf is the SHA-256 of key, value and headers, each led by its length in
// eight bytes, big endian, with all ones for null.
func digestOf(rec *kgo.Record) [sha256.Size]byte {
	d := sha256.New()
	add := func(b []byte, null bool) {
		n := uint64(len(b))
		if null {
			n = ^uint64(0)
		}
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], n)
		d.Write(length[:])
		d.Write(b)
	}
	add(rec.Key, rec.Key == nil)
	add(rec.Value, rec.Value == nil)
	for _, h := range rec.Headers {
		add([]byte(h.Key), false)
		add(h.Value, h.Value == nil)
	}
	return [sha256.Size]byte(d.Sum(nil))
}

// setAside takes a record out of the way whose pointer letter is written. Its
// bytes are nowhere else, so its offset is not finished: it is offered to the
// dead letters from time to time. The records behind it flow.
func (s *source) setAside(l *loop, h *held) {
	r := &h.Value
	l.f.log.Error("a dead letter is too large for its topic; a pointer letter stands for it and its offset is not passed",
		"topic", s.inlet.topic, "partition", s.partition, "offset", h.Offset(), "dead_letters", r.to.topic)
	r.form = whole
	s.prepareAgain(l, h)
	r.aside = true
	s.aside = append(s.aside, h)
	s.asideAt = l.now.Add(asideInterval)
	l.ready(s)
}

// offerAside sends the first record that was set aside, whole.
func (s *source) offerAside(l *loop) {
	if len(s.aside) == 0 || l.now.Before(s.asideAt) || s.asideFlies || !l.leaseFresh() {
		return
	}
	h := s.aside[0]
	r := &h.Value
	r.target = nil
	s.asideAt = l.now.Add(asideInterval)
	if !s.aim(l, r) || r.target.solo {
		return
	}
	s.asideFlies = true
	s.send(l, h, true)
}

// settleAside takes the answer to such an offer. It reports whether the record
// is finished.
func (s *source) settleAside(l *loop, err error) bool {
	s.asideFlies = false
	if err != nil {
		s.asideAt = l.now.Add(asideInterval)
		l.ready(s)
		return false
	}
	s.aside[0] = nil
	s.aside = s.aside[1:]
	s.asideAt = l.now // The next one fits as well, perhaps.
	return true
}
