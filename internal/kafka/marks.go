package kafka

import "strings"

// CommitMark is what the metadata of a forwarder's commits begin with, before a space. It outlives releases.
const CommitMark = "redrive/1"

// HasCommitMark tells whether the metadata of a commit are those of a forwarder.
func HasCommitMark(metadata string) bool {
	mark, _, _ := strings.Cut(metadata, " ")
	return mark == CommitMark
}

// DecisionGroup is the name of the companion group of a forwarder's group, which never has a member: with its commits an
// operator tells a running forwarder where to read.
func DecisionGroup(group string) string { return group + ".decisions" }
