// Package postgres is the ledger of dead letters on PostgreSQL, version 13 or later, for any number of replicas.
//
// The model: the tables of migrations/, which [Migrate] brings up to date under a lock of the server, so that many may try at
// once, and which [Open] checks. A schema only grows: an older program works with a newer schema as long as the latter says so.
// Every method is one transaction, most of them one statement over arrays, whatever the number of letters. What waits for a
// lock takes them in one order, letters by id, then items, then the job; a deadlock or a serialization failure that comes about
// all the same is tried again a few times. Times are of the server's clock.
//
// A batch is indexed by one guarded update of the position and a COPY straight into the table, in one transaction whose commit
// waits for the log to be written: synchronous_commit is switched on where it is off. Lists of one message id, key, origin,
// reason, error type, fingerprint or state are read from an index in their order; so is one without any of them, merged from
// those of all states. What is filtered beyond that is looked at letter by letter, newest first. [Ledger.Count] and
// [Ledger.Groups] read all that the filter selects: about a second for a million letters on one core. [Ledger.Stats] has its
// counts ready, looks each oldest letter up, and counts the letters of the last hour in an index.
//
// A connection that breaks is an error of the call it was used by, and the pool makes another one. Nothing is tried again by
// itself then, because it may have been committed. The caller may repeat what is guarded: Index, which is ErrMoved the second
// time if the first was committed (read Next again); Finish, whose outcomes are fenced then; CreateJob with a request; Claim,
// which refuses what is claimed until that lease has run out; and everything that sets a state. Repeating Discard, Undiscard,
// Purge, Keep, ControlJob and Record may add a second audit row. A ledger that was put back to an older state begins a new
// epoch: by itself if it is on another cluster or timeline than before, else by [Restored].
//
// A pooler between this package and the server must keep a connection for a session, as locks and settings are of one. The user
// needs to own the schema; no privilege of a superuser is asked for.
//
// A Ledger is safe for concurrent use.
package postgres
