package sqlquery

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// The limits of a page.
const (
	DefaultLimit = 100
	MaxLimit     = 10_000
)

// noPlace tells the letters that do not say where in the origin they were: they come last in ReplayOrder.
const noPlace = "(CASE WHEN origin_partition < 0 OR origin_offset < 0 THEN 1 ELSE 0 END)"

// replayKeys is ReplayOrder as columns. Letters without a place are by id alone, so their other keys are all alike.
const replayKeys = noPlace +
	", (CASE WHEN origin_partition < 0 OR origin_offset < 0 THEN '' ELSE origin END)" +
	", (CASE WHEN origin_partition < 0 OR origin_offset < 0 THEN -1 ELSE origin_partition END)" +
	", (CASE WHEN origin_partition < 0 OR origin_offset < 0 THEN -1 ELSE origin_offset END)" +
	", id"

// OrderBy is an order as what follows ORDER BY. An unknown one is Newest.
func OrderBy(order deadletter.Order) string {
	switch order {
	case deadletter.Oldest:
		return "dead_at, id"
	case deadletter.ReplayOrder:
		return replayKeys
	default:
		return "dead_at DESC, id DESC"
	}
}

// Page is one page of the letters that a filter selects.
type Page struct {
	// Order is one of the orders, never "".
	Order deadletter.Order
	// Limit is how many letters the page has at most. Ask the database for one more and give all to Cut.
	Limit int

	stamp stamp
	after *position
}

// NewPage checks a page against its filter. It is deadletter.ErrCursor if the cursor is not of this filter and order.
func NewPage(filter deadletter.Filter, page deadletter.Page) (Page, error) {
	p := Page{Order: page.Order, Limit: page.Limit}
	if p.Order == "" {
		p.Order = deadletter.Newest
	}
	if p.Limit <= 0 {
		p.Limit = DefaultLimit
	}
	p.Limit = min(p.Limit, MaxLimit)
	var err error
	if p.stamp, err = stampOf(filter, p.Order); err != nil {
		return Page{}, err
	}
	if page.After != "" {
		if p.after, err = parseCursor(page.After, p.stamp); err != nil {
			return Page{}, err
		}
	}
	return p, nil
}

// After adds to a query the condition that a letter comes after the page before. On the first page there is none.
func (p Page) After(q *Query) {
	if p.after == nil {
		return
	}
	switch p.Order {
	case deadletter.ReplayOrder:
		without := 0
		if p.after.Partition < 0 || p.after.Offset < 0 {
			without = 1
		}
		q.And("(" + replayKeys + ") > (" + q.Arg(int64(without)) + ", " + q.Arg(p.after.Origin) + ", " +
			q.Arg(int64(p.after.Partition)) + ", " + q.Arg(p.after.Offset) + ", " + q.Arg(p.after.ID) + ")")
	case deadletter.Oldest:
		q.And("(dead_at, id) > (" + q.Arg(q.dialect.Time(time.UnixMicro(p.after.DeadAt))) + ", " + q.Arg(p.after.ID) + ")")
	default:
		q.And("(dead_at, id) < (" + q.Arg(q.dialect.Time(time.UnixMicro(p.after.DeadAt))) + ", " + q.Arg(p.after.ID) + ")")
	}
}

// Cut makes the answer of what the database gave: at most Limit letters, and the cursor if there was one more.
func (p Page) Cut(letters []deadletter.Letter) (deadletter.Letters, error) {
	if len(letters) <= p.Limit {
		return deadletter.Letters{Letters: letters}, nil
	}
	letters = letters[:p.Limit]
	last := letters[p.Limit-1]
	at := position{DeadAt: last.DeadAt.UnixMicro(), ID: last.ID, Partition: -1, Offset: -1}
	if p.Order == deadletter.ReplayOrder && last.OriginPartition >= 0 && last.OriginOffset >= 0 {
		at.Origin, at.Partition, at.Offset = last.Origin, last.OriginPartition, last.OriginOffset
	}
	next, err := at.cursor(p.stamp)
	return deadletter.Letters{Letters: letters, Next: next}, err
}

// position is the place of a letter in any of the orders.
type position struct {
	DeadAt    int64  `json:"t,omitempty"` // microseconds
	ID        int64  `json:"i"`
	Origin    string `json:"o,omitempty"`
	Partition int32  `json:"p"`
	Offset    int64  `json:"f"`
}

// stamp tells the cursors of one filter and order from those of another.
type stamp [8]byte

func stampOf(filter deadletter.Filter, order deadletter.Order) (stamp, error) {
	// A time may be one that cannot be written as JSON, or be the same in another zone.
	from, to := filter.DeadFrom, filter.DeadTo
	filter.DeadFrom, filter.DeadTo = time.Time{}, time.Time{}
	filter.Expiring = slices.Clone(filter.Expiring)
	for i := range filter.Expiring {
		filter.Expiring[i].Before = time.Time{} // The next page is asked for later.
	}
	text, err := json.Marshal(struct {
		Filter deadletter.Filter
		Times  [4]int64
		Order  deadletter.Order
	}{filter, [4]int64{from.Unix(), int64(from.Nanosecond()), to.Unix(), int64(to.Nanosecond())}, order})
	if err != nil {
		return stamp{}, fmt.Errorf("stamp the cursor: %w", err)
	}
	sum := sha256.Sum256(text)
	return stamp(sum[:8]), nil
}

// A cursor is base64 of a sum over all that follows, the stamp, and the position. The sum is no secret: whoever makes a cursor
// up gets the answer to another question that they may ask.
func (at position) cursor(s stamp) (string, error) {
	text, err := json.Marshal(at)
	if err != nil {
		return "", fmt.Errorf("write the cursor: %w", err)
	}
	body := slices.Concat(s[:], text)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(body, sumOf(body))), nil
}

func parseCursor(cursor string, s stamp) (*position, error) {
	body, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(body) < len(s)+4 {
		return nil, deadletter.ErrCursor
	}
	body, sum := body[:len(body)-4], binary.BigEndian.Uint32(body[len(body)-4:])
	if sumOf(body) != sum || !bytes.HasPrefix(body, s[:]) {
		return nil, deadletter.ErrCursor
	}
	var at position
	if err := json.Unmarshal(body[len(s):], &at); err != nil {
		return nil, deadletter.ErrCursor
	}
	return &at, nil
}

func sumOf(body []byte) uint32 {
	sum := sha256.Sum256(body)
	return binary.BigEndian.Uint32(sum[:])
}
