// Package kafka answers four questions for everything that talks to a cluster:
// how to connect, what an error means, which partition a key belongs to, and
// whether the topics around an origin are fit to hold records that wait.
//
// The model is small. [Options] becomes the connection options of every client.
// [Classify] puts any error into one of four classes, and the class alone decides
// what happens next: wait, give up on the one record, end the process, or leave
// quietly; [Explain] tells people what it means and what to do. [Partitioner] is a
// pure function of key bytes. [Partitions] is a cache of partition counts.
// [MakePlan] compares the topics of a [Ladder], and whatever else forwarding depends
// on, with what Redrive needs of them, tells each problem by its code of package
// issue, and [Plan.Apply] makes up the difference.
//
// The package promises that no topic is ever created by accident (no request of
// it allows automatic creation), that apply never deletes, shrinks or narrows
// anything and never touches an origin topic, and that errors are told apart by
// type and never by text. It does not produce or commit, and reads no more than the
// few records that a plan looks at: the rest is the business of the forwarder and
// the replayer.
//
// Options, Partitioner, Ladder and Plan are plain values. Partitions is safe for
// concurrent use; its reads take no lock. The package starts no goroutine of its
// own: [Partitions.Run] runs in the caller's.
package kafka
