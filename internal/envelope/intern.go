package envelope

import "strings"

// Intern returns a copy of a header's name that shares no memory with it. Names of the contract exist once in the
// program, so that a record which waits keeps no memory for them.
func Intern(name string) string {
	if h := lookup(name); h != unknown {
		return h.name()
	}
	return strings.Clone(name)
}
