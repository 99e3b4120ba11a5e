// Package idempotency answers what makes a second try harmless: who may act on a dead letter now, and by what name its
// copies are known.
//
// The model: whoever wants to replay a letter claims it in the ledger. The claim names an owner, ends with its lease, and
// carries a fence that no other claim ever had. Every later write about the letter says the fence and is without effect if
// the ledger has another one by then. The lease is counted twice: by the clock of the ledger, which decides who may take the
// letter over, and by the monotonic clock of the holder, which stops sending long before that.
//
// Promised: a fence compares unequal to that of any other claim, also after the ledger was put back to an older state. Not
// promised: that a holder which lost its lease has sent nothing; what was with its Kafka client already may still arrive.
// Whoever takes over therefore looks for the copy first, by message id and replay id.
//
// Values are immutable but for Lease, which is safe for concurrent use.
package idempotency
