// Package deadletter answers which records are dead, why, and what has become of each.
//
// The model: a dead-letter topic keeps the bytes, the ledger keeps one row for each of its records, a letter. A letter is
// known by its place (the id of the topic, partition, offset), so that a topic which was made again is another one, and by
// a number of the ledger's own. A letter has one state:
//
//	dead ----> claimed ----> replayed ----> succeeded    a receipt, or the group passed the copy and nothing came back
//	 | ^ \        |               \-------> returned     a letter with this replay id was indexed
//	 | |  \       +--> dead  the claim ran out or was given back
//	 | |   \-> expired       the bytes are gone from the topic and were not kept
//	 | +------ discarded     an operator may take it back
//	 +-------> discarded     an operator wants it no more
//
// The ledger promises: rows and the partition's next offset change in one transaction, which is guarded by the offset
// expected, so that no row is missing or doubled whatever crashes and however many indexers run; every change of a state is
// one conditional statement that is guarded by the state and, of a claim, by its fence; times come from the clock of the
// database; a job, what it shall replay and the audit row about it are written in one transaction before anything is sent. It
// refuses to talk to Kafka: that is package replayer's part.
//
// Ledger is implemented by the packages postgres and sqlite, which one suite of tests, package ledgertest, holds to the same
// behaviour. All their methods are safe for concurrent use, block until the database has answered or the context ends, and
// return the errors of this package, or one that says what could not be done.
package deadletter
