// Package index answers what has become of the dead letters: it follows every dead-letter topic and keeps one row in the ledger
// for each record there.
//
// The invariant (I10): below the next offset that the ledger notes for a partition, the ledger has a row for each record that a
// read_committed reader finds there, no row twice, and no row for anything else. It holds at every instant, whatever crashes,
// and however many indexers believe that they own the partition.
//
// The order of events for one partition:
//
//  1. It is assigned. Its fetching stays paused: where the group stands is not where the index stands.
//  2. The id of the topic and the start of the log are asked for, then the ledger for the next offset of (id, partition). A topic
//     that was made again under its name has another id and begins at its own start. If the log starts above the next offset,
//     what lies between is lost to retention, and the next batch says so.
//  3. The consumer is set to that offset, between two polls, and fetches.
//  4. Records become letters and wait in batches. Offsets without a letter (markers of transactions, what was aborted,
//     what compaction took) are covered by the batch around them.
//  5. A batch is written: rows and the new next offset in one transaction, guarded by the next offset that is expected. Only then
//     does the batch after it have its turn. Fetching goes on meanwhile, and other partitions write beside it.
//  6. If the guard says that the partition has moved, the ledger is asked again where it stands. What it has already is
//     dropped here; if it stands elsewhere, 2 and 3 are repeated. So it does not matter whether it was another indexer, or a write of
//     our own whose answer was lost.
//  7. If the ledger does not answer, the batch is kept and tried again, for ever. What is fetched meanwhile is bounded in bytes:
//     beyond that the partition is paused. Nothing is passed.
//  8. It is revoked: what is queued is written, or dropped when that takes too long. The next owner asks the ledger.
//
// A crash between any two of these leaves the ledger as after the last transaction, and the next owner begins at 2.
//
// Beside that, once a minute: dead letters whose bytes are gone, by the start of the log or because their topic is gone,
// become expired; replayed letters of which the group has passed the copy, and that did not come back within the
// time of the whole ladder, become succeeded. Both are judged late rather than wrongly, since neither can be taken back: what a broker says of the
// identity of a topic counts when it said so twice, and no return counts as absent before the index is past where it would lie.
//
// The offsets of the consumer group are committed now and then so that lag can be watched. Nothing here reads them.
//
// Refused: nothing is sent, and no letter is replayed here. Not found out here: letters that compaction took. Not mended: a log that
// was cut below the next offset (an unclean election) holds other records at the same places later; its partition
// waits with the issue offset-out-of-range until the log is past that offset.
//
// Goroutines: one polls, one for each partition writes, and one each sweeps, counts and commits. What they share is guarded by Indexer.mu. An Indexer is
// safe for concurrent use; Run is called once.
package index
