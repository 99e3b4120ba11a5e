package main

import "runtime/debug"

const (
	// gcPercent lets the heap triple between collections: a forwarder makes
	// little that lives, and collecting it was a quarter of its time.
	gcPercent = 200
	// besidesHeld is the memory for everything but held records: fetch and
	// produce buffers, and the runtime.
	besidesHeld = 96 << 20
)

// tuneMemory sets the collector for a forwarder that may hold maxHeld bytes,
// unless GOGC or GOMEMLIMIT say otherwise. The limit is a soft one: near it the
// collector works more, and nothing fails.
func tuneMemory(maxHeld int64, getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(maxHeld + besidesHeld)
	}
}
