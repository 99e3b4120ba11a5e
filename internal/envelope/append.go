package envelope

import (
	"math/bits"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxFormatted is room for the longest value that is formatted: a timestamp.
const maxFormatted = len(timeLayout)

// Append writes the headers of the record's next copy to dst and returns the extended slice. Headers are those that were
// parsed. Foreign headers and unknown own ones are taken over untouched, in place. Every own header that the kind keeps
// stands once, at the place of its first occurrence; those that are new follow at the end, always in the same order.
// Values that were not accepted are listed in redrive-rejected, but for a Return. After Shorten the texts that it names are
// left out.
//
// Values are shared with the parsed headers, never with the Envelope, which may be reused while the copy is in flight.
// Nothing is allocated if dst has room, no value was set and none was rejected.
func (e *Envelope) Append(dst, headers []kgo.RecordHeader, kind Kind) []kgo.RecordHeader {
	keeps := kind.keeps() &^ e.leftOut
	pending := e.accepted & keeps
	var buf []byte
	if n := bits.OnesCount32(uint32(pending & e.changed)); n > 0 {
		buf = make([]byte, 0, n*maxFormatted)
	}
	var rejects []byte
	if keeps.has(rejected) {
		pending &^= 1 << rejected
		if rejects = e.rejectedValue(); rejects != nil {
			pending |= 1 << rejected
		}
	}

	// Headers that stay as they are come in runs, and a run is copied at once: this is most of what a record costs here.
	asIs := pending &^ (e.changed | e.moved | cutTexts | 1<<rejected)
	run := 0
	known := 0
	if len(headers) > 0 && len(headers) == e.count && &headers[0] == e.first {
		known = len(e.names)
	}
	for i := range headers {
		in := &headers[i]
		var h header
		if i < known {
			h = e.names[i]
		} else {
			h = lookup(in.Key)
		}
		if h == unknown {
			continue
		}
		if asIs.has(h) {
			asIs &^= 1 << h
			pending &^= 1 << h
			continue
		}
		dst = append(dst, headers[run:i]...)
		run = i + 1
		if !pending.has(h) {
			continue
		}
		pending &^= 1 << h
		v := rejects
		if h != rejected {
			v, buf = e.value(h, buf)
		}
		dst = append(dst, kgo.RecordHeader{Key: in.Key, Value: v})
	}
	dst = append(dst, headers[run:]...)
	for pending != 0 {
		h := header(bits.TrailingZeros32(uint32(pending)))
		pending &^= 1 << h
		v := rejects
		if h != rejected {
			v, buf = e.value(h, buf)
		}
		dst = append(dst, kgo.RecordHeader{Key: h.name(), Value: v})
	}
	return dst
}

// value returns the value of an accepted header. One that is formatted is written to the end of buf, which is returned
// extended.
func (e *Envelope) value(h header, buf []byte) (v, rest []byte) {
	if !e.changed.has(h) {
		if cutTexts.has(h) {
			return cutText(e.raw[h]), buf
		}
		return e.raw[h], buf
	}
	start := len(buf)
	switch h {
	case originalPartition:
		buf = strconv.AppendInt(buf, int64(e.OriginalPartition), 10)
	case originalOffset:
		buf = strconv.AppendInt(buf, e.OriginalOffset, 10)
	case originalTimestamp:
		buf = appendTime(buf, e.OriginalTimestamp)
	case originalPartitions:
		buf = strconv.AppendInt(buf, int64(e.OriginalPartitions), 10)
	case attempt:
		buf = strconv.AppendInt(buf, int64(e.Attempt), 10)
	case deliveries:
		buf = strconv.AppendInt(buf, int64(e.Deliveries), 10)
	case availableAt:
		buf = appendTime(buf, e.AvailableAt)
	case replayCount:
		buf = strconv.AppendInt(buf, int64(e.ReplayCount), 10)
	case laneOffset:
		buf = strconv.AppendInt(buf, e.LaneOffset, 10)
	default:
		panic("envelope: changed without a format: " + h.name())
	}
	return buf[start:len(buf):len(buf)], buf
}
