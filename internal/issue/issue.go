// Package issue is the one list of what can be wrong, and answers for each code how bad it is, what it means and what
// mends it.
//
// A code is the same word everywhere: in the problems of the preflight, in the troubles of a running process, as a
// label of redrive_issue, in /readyz?verbose, and as a heading of docs/issues.md. Whoever finds something adds the
// particulars (which topic, how much) in text of its own; the code says what kind of thing it is.
//
// Promised: the list is closed, so that a dashboard, an alert and a runbook can name all of it; a code has one severity
// wherever it appears; and no severity but the preflight's own rule of what would lose records decides whether a
// process starts. Refused: nothing is detected, counted or kept here.
//
// The list is constant: everything here is safe for concurrent use.
package issue

import (
	"cmp"
	"slices"
)

// Code names what is wrong. Codes outlive releases: alerts and scripts hold them.
type Code string

// Severity says how soon somebody must look.
type Severity string

const (
	// SeverityError is for what loses, misplaces or holds up records until somebody acts.
	SeverityError Severity = "error"
	// SeverityWarning is for what may lose or delay records, or does so when something else breaks.
	SeverityWarning Severity = "warning"
	// SeverityInfo is for what somebody has wished for and may have forgotten.
	SeverityInfo Severity = "info"
)

// Trouble is one issue that is there now, with its place.
type Trouble struct {
	Issue     Code   `json:"issue"`
	Topic     string `json:"topic,omitempty"` // "": not of one topic
	Partition int32  `json:"partition"`       // -1: not of one partition
	Detail    string `json:"detail"`
}

// Compare orders troubles by their place first.
func (t Trouble) Compare(other Trouble) int {
	return cmp.Or(cmp.Compare(t.Topic, other.Topic), cmp.Compare(t.Partition, other.Partition),
		cmp.Compare(t.Issue, other.Issue), cmp.Compare(t.Detail, other.Detail))
}

// Entry is one code with all there is to say about it in general.
type Entry struct {
	Code     Code
	Severity Severity
	// Means is a sentence that says what is the case and what goes wrong by it.
	Means string
	// Remedy is a sentence that says what to do.
	Remedy string
}

// All returns every code once, in the order of docs/issues.md. The caller may change the slice.
func All() []Entry { return slices.Clone(entries) }

// Of returns what there is to say about a code: the zero Entry if the list does not have it.
func Of(c Code) Entry {
	for _, e := range entries {
		if e.Code == c {
			return e
		}
	}
	return Entry{}
}

// Severity returns the severity of the code, which is empty if the list does not have it.
func (c Code) Severity() Severity { return Of(c).Severity }
