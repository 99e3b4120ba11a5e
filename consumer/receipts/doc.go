// Package receipts makes the second copy of a record without effect: it answers, inside the consumer's own database
// transaction, whether a message is handled for the first time.
//
// The model: a receipt is one row, keyed by the name of the consumer, the redrive-message-id and the original timestamp (a
// topic that was made again counts its offsets anew, so that the id alone may name two messages). Once writes it in the
// transaction that has the effect. So both are committed or neither is, and of two transactions that handle one message
// side by side the database lets one win: the other waits for it, and is told that it is not the first.
//
// What a receipt is needed for decides what may be deleted. A delivery that could still come is one of three:
//
//   - The record that was handled, again, because its offset was not committed yet. That ends when the group's commit has
//     passed it, however long the consumer was away before.
//   - Another copy, which Redrive or the consumer writes after the receipt: a hand-over whose transaction was committed all
//     the same, or the second copy of a forwarder that crashed. It waits in the inbox and in one tier at most, since the
//     consumer does not hand it over again. So it is written within Keep of the receipt, if Keep is at least what these two topics
//     hold (their retention), and it is handled when the commit has passed that place of the log.
//   - A replay of its dead letter. That has no limit of time.
//
// Age by itself is therefore wrong: a consumer that was away for longer than Keep would find its receipts gone and the
// copies still there. The age counts only as far as the group has come. A Survey notes the end of every partition that the group
// reads, the low-water mark; when the commits have reached all of them, everything that was written before that survey is handled,
// and receipts that were older than Keep at that time are deleted. The size is then bounded by what is handled in Keep, plus
// the time between two surveys, plus what the group lags behind.
//
// Promised: a copy that is written within Keep of the receipt has no effect, whatever crashes, and however long consumer and
// pruning stand still. Not promised: what is written later, which is a replay that an operator asks for after Keep; a
// process that slept for longer than Keep with a record in its hands; a group whose offsets were set back by more; effects
// outside of the transaction. It refuses nothing to an operator: a message that was handled stays without effect when it is
// replayed within Keep, also with force. To have the effect again, delete its receipt, or replay it edited, which is another message.
//
// It works with Postgres and SQLite, by database/sql or pgx, and starts no goroutines. A Receipts is immutable and safe for
// concurrent use, a Survey is not.
package receipts
