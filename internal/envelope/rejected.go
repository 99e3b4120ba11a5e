package envelope

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"
)

const (
	// maxRejections bounds what a record with very many repeats costs; far fewer fit into MaxRejected.
	maxRejections = 64
	// maxRejectedValue is how much of one value is listed, so that one long value leaves room for others.
	maxRejectedValue = 256
	// omittedRoom is kept free for the entry that counts what did not fit.
	omittedRoom = len(`,{"omitted":1000000000}`) + len(`]`)
)

// rejection is one value that was not accepted. The value aliases the header's.
type rejection struct {
	header header
	value  []byte
}

// rejectedEntry is one element of the JSON array in redrive-rejected. A nil value has no "value", an empty one an empty
// one. Size is the whole size of a value of which only the start is listed. An entry without a name counts the values
// that found no room.
type rejectedEntry struct {
	Name    string  `json:"name,omitempty"`
	Value   *string `json:"value,omitempty"`
	Size    int     `json:"size,omitempty"`
	Omitted int     `json:"omitted,omitempty"`
}

func (e *Envelope) reject(h header, v []byte) {
	if len(e.rejections) == maxRejections {
		e.overflow++
		return
	}
	e.rejections = append(e.rejections, rejection{h, v})
}

// Rejections returns how many values were not accepted.
func (e *Envelope) Rejections() int { return len(e.rejections) + e.overflow }

// rejectedValue returns the value of redrive-rejected for the next copy: what an earlier hop listed, then what this one
// adds. It is nil if there is nothing to list.
func (e *Envelope) rejectedValue() []byte {
	if len(e.rejections) == 0 && !e.accepted.has(rejected) {
		return nil
	}
	var earlier []rejectedEntry
	added := e.rejections
	if e.accepted.has(rejected) {
		v := e.raw[rejected]
		// The header is as untrusted as all others: a value that Redrive did not write becomes an entry itself.
		if len(v) == 0 || len(v) > MaxRejected || v[0] != '[' || !utf8.Valid(v) || json.Unmarshal(v, &earlier) != nil {
			earlier = []rejectedEntry{newRejectedEntry(rejection{rejected, v})}
		} else if len(added) == 0 {
			return v
		}
	}

	out := append(make([]byte, 0, MaxRejected), '[')
	omitted := e.overflow
	add := func(entry rejectedEntry) {
		if entry.Name == "" {
			omitted = addCount(omitted, entry.Omitted)
			return
		}
		text, err := json.Marshal(entry)
		if err != nil || len(out)+len(text)+1+omittedRoom > MaxRejected {
			omitted = addCount(omitted, 1)
			return
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, text...)
	}
	for _, entry := range earlier {
		add(entry)
	}
	for _, r := range added {
		add(newRejectedEntry(r))
	}
	if omitted > 0 {
		text, err := json.Marshal(rejectedEntry{Omitted: omitted})
		if err == nil {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, text...)
		}
	}
	return append(out, ']')
}

// addCount adds two counts, of which the second may be forged, and stays within MaxCount.
func addCount(a, b int) int {
	return min(a+min(max(b, 0), MaxCount), MaxCount)
}

func newRejectedEntry(r rejection) rejectedEntry {
	entry := rejectedEntry{Name: r.header.name()}
	if r.value == nil {
		return entry
	}
	v := r.value
	if len(v) > maxRejectedValue {
		entry.Size, v = len(v), v[:maxRejectedValue]
	}
	text := base64.StdEncoding.EncodeToString(v)
	entry.Value = &text
	return entry
}
