// Package forwarder is the retry loop: it reads inboxes and tier topics, holds
// each record until it is due, writes it to its next topic and commits the
// source offset after that.
//
// The model: one goroutine, the loop, owns all state. A poller hands it what
// was fetched; the producer's acknowledgements, the results of commits and the
// group's callbacks reach it as messages. The loop never waits for the
// network, so that one stuck topic holds up nothing else. Each assigned
// partition is a source with its own queue ([ordering.Partition]) and
// watermark; each partition that is written is a target with a bounded number
// of records in flight.
//
// The order of events that keeps records safe:
//
//  1. A record is released when it is due, the lease on the assignment is
//     fresh, and its target has room.
//  2. It is produced with acks=all by an idempotent producer.
//  3. Its acknowledgement finishes its offset in the source's queue.
//  4. A commit takes the watermark, below which everything is finished, and
//     the finished ranges above it.
//
// A crash between 2 and 4 sends a record again, with the same
// redrive-message-id; no crash loses one. At most MaxUncommitted records of a
// source are finished or in flight and not covered by a commit, which bounds
// what a crash repeats.
//
// The lease: a member that was stopped for long may have lost its partitions
// without knowing. After half a session without a commit that the coordinator
// accepted, nothing is released until one is. The lease counts from the moment
// the commit was sent.
//
// Revoked partitions: nothing is released any more, acknowledgements of what
// is in flight are awaited, the rest is committed, and only then does the
// callback return. A source that is lost, or assigned again, is a new object;
// acknowledgements that come late for the old one change nothing.
//
// What the package refuses: it never creates a topic, never writes to one that
// its options do not name, and never resets an offset by itself.
package forwarder
