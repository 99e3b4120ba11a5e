package ordering

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
)

// Range is a run of offsets: From up to, but without, To.
type Range struct{ From, To int64 }

// Ranges are runs of finished offsets, rising and apart from each other.
type Ranges []Range

// minRangeBytes is what one range takes at least before base64: two varints.
const minRangeBytes = 2

// AppendText appends the ranges as text, relative to the watermark that is
// committed with them, and stops before the text gets longer than limit bytes.
// It returns how many ranges went in.
func (r Ranges) AppendText(dst []byte, watermark int64, limit int) ([]byte, int) {
	raw := make([]byte, 0, min(len(r)*4, limit))
	at, n := watermark, 0
	for ; n < len(r); n++ {
		next := binary.AppendUvarint(raw, uint64(r[n].From-at))
		next = binary.AppendUvarint(next, uint64(r[n].To-r[n].From))
		if base64.RawStdEncoding.EncodedLen(len(next)) > limit {
			break
		}
		raw, at = next, r[n].To
	}
	return base64.RawStdEncoding.AppendEncode(dst, raw), n
}

var errRanges = errors.New("malformed ranges of finished offsets")

// ParseRanges reads what AppendText wrote. The text comes from the broker,
// where other tools can write it: anything that is not a rising list of ranges
// above the watermark is an error.
func ParseRanges(text []byte, watermark int64) (Ranges, error) {
	raw, err := base64.RawStdEncoding.AppendDecode(nil, text)
	if err != nil {
		return nil, errRanges
	}
	var ranges Ranges
	at := watermark
	for len(raw) > 0 {
		gap, n := binary.Uvarint(raw)
		if n <= 0 || gap == 0 || gap > uint64(math.MaxInt64-at) {
			return nil, errRanges
		}
		length, m := binary.Uvarint(raw[n:])
		from := at + int64(gap)
		if m <= 0 || length == 0 || length > uint64(math.MaxInt64-from) {
			return nil, errRanges
		}
		at = from + int64(length)
		ranges = append(ranges, Range{From: from, To: at})
		raw = raw[n+m:]
	}
	return ranges, nil
}

// first reports whether offset is in the first range.
func (r Ranges) first(offset int64) bool {
	return len(r) > 0 && r[0].From <= offset && offset < r[0].To
}

// Cover reports whether every offset from from up to, but without, to is in one
// of the ranges.
func (r Ranges) Cover(from, to int64) bool {
	r = r.Above(from)
	return from >= to || len(r) > 0 && r[0].From <= from && to <= r[0].To
}

// Above returns the ranges without those that end at or below offset.
func (r Ranges) Above(offset int64) Ranges {
	for len(r) > 0 && r[0].To <= offset {
		r = r[1:]
	}
	return r
}
