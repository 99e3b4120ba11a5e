package deadletter

import (
	"time"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// Filter selects letters. What is empty selects all; what is given must all hold, one value of each list.
type Filter struct {
	IDs        []int64
	MessageIDs []string
	// Key is one key; HasKey tells an empty or missing key (nil) from none asked for.
	Key    []byte
	HasKey bool

	// Topics are dead-letter topics, by name; Place fields below narrow one down.
	Topics  []string
	Origins []string
	Groups  []string
	Reasons []envelope.Reason
	// ErrorTypes are exact. ErrorText is a part of the text, in any case; it is not indexed and should not stand alone.
	ErrorTypes   []string
	ErrorText    string
	Fingerprints []string
	Labels       []string
	States       []State
	Job          string // that replayed, or claimed, the letter last
	// Partition and Offset are of the dead-letter topic; nil is any.
	Partition *int32
	Offset    *int64

	// DeadFrom and DeadTo bound DeadAt: from is in and to is not. Zero is open.
	DeadFrom, DeadTo time.Time
	// MinAttempt, MaxAttempt and MinDeliveries bound the numbers; 0 is open.
	MinAttempt, MaxAttempt, MinDeliveries int
	// UpTo is the highest id, for a set that shall not grow; 0 is open.
	UpTo int64
	// Unkept selects letters whose bytes the ledger has no copy of.
	Unkept bool
	// Expiring selects the letters that retention is about to take: dead or claimed, without a copy in the ledger, and older than
	// the cut of their topic. Empty is any letter.
	Expiring []Cut
}

// Cut is a moment in one incarnation of a dead-letter topic. In a page's cursor it does not count: it moves on with the clock.
type Cut struct {
	TopicID TopicID
	Topic   string
	// Before bounds DeadAt, and is not in.
	Before time.Time
}

// EachCut is a filter for each cut of Expiring. Together they select what the filter does, and no two of them the same letter,
// if it has one cut for each topic.
func (f Filter) EachCut() []Filter {
	parts := make([]Filter, len(f.Expiring))
	for i, cut := range f.Expiring {
		parts[i] = f
		parts[i].Expiring = []Cut{cut}
	}
	return parts
}

// Order is the order of an answer.
type Order string

const (
	// Newest is by DeadAt and id, the latest first.
	Newest Order = "newest"
	// Oldest is by DeadAt and id, the earliest first.
	Oldest Order = "oldest"
	// ReplayOrder is the order of a replay: by origin, origin partition and origin offset; letters that do not say theirs
	// come last, by id.
	ReplayOrder Order = "replay"
)

// Page is a part of an answer. After is the Next of the part before, "" for the first. It is opaque and stays valid while
// letters come and go; with another filter or order it is ErrCursor.
type Page struct {
	Order Order // "" is Newest
	Limit int   // 0 is 100; at most 10,000
	After string
}

// Letters is a part of an answer. Next is "" where nothing follows.
type Letters struct {
	Letters []Letter
	Next    string
}

// GroupBy is what letters are counted by.
type GroupBy string

// What letters can be counted by.
const (
	ByFingerprint GroupBy = "fingerprint" // error type and normalised text
	ByReason      GroupBy = "reason"
	ByErrorType   GroupBy = "errorType"
	ByOrigin      GroupBy = "origin"
	ByLabel       GroupBy = "label"
	ByState       GroupBy = "state"
	ByHour        GroupBy = "hour" // of DeadAt, UTC
	ByDay         GroupBy = "day"
)

// GroupBys are all of them.
func GroupBys() []GroupBy {
	return []GroupBy{ByFingerprint, ByReason, ByErrorType, ByOrigin, ByLabel, ByState, ByHour, ByDay}
}

// Group counts letters that are alike. First and Last are the extremes of DeadAt, Newest an example.
type Group struct {
	// Value is what they have in common, as text; hours and days are RFC 3339.
	Value       string
	Count       int64
	First, Last time.Time
	Newest      Letter
}

// Stat counts the letters of one dead-letter topic in one state.
type Stat struct {
	Topic  string
	Origin string
	State  State
	Count  int64
	// Oldest is the DeadAt of the oldest of them.
	Oldest time.Time
	// LastHour is how many of them died within the last hour.
	LastHour int64
}

// Progress is how far a partition is indexed.
type Progress struct {
	TopicID   TopicID
	Topic     string
	Partition int32
	// Next is the next offset to index.
	Next int64
	// Lost is how many offsets retention took before they were indexed.
	Lost int64
}
