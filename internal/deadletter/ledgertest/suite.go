// Package ledgertest holds a ledger to what package deadletter promises about it.
//
// The model: [Run] runs one sub-test for each rule, named after it, on a ledger of its own that is opened empty. What the
// rules expect of filters, orders and counts is not written down case by case: a small ledger in memory says it, and random
// operations are tried on both. Time is that of the ledger: where a lease must have run out, a rule asks the ledger until it
// says so.
//
// It promises that an implementation which passes keeps every sentence of the documentation of [deadletter.Ledger] that can
// be seen from outside of one process. What a crash may do to a ledger, and how it is opened, is tested beside each
// implementation. Only tests import it.
package ledgertest

import (
	"testing"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// Run runs all rules. It calls open, which fails the test if it cannot, for each of them; what open returns is empty and is
// closed by a cleanup that open has set.
func Run(t *testing.T, open func(t *testing.T) deadletter.Ledger) {
	for _, rules := range [][]rule{
		indexRules(), expiryRules(), catalogueRules(), understandingRules(), operatorRules(),
		jobRules(), controlRules(), leaseRules(), claimRules(), outcomeRules(), modelRules(),
	} {
		for _, rule := range rules {
			t.Run(rule.name, func(t *testing.T) { rule.test(&rig{t: t, ledger: open(t)}) })
		}
	}
}

// rule is a promise and the test that holds a ledger to it.
type rule struct {
	name string
	test func(r *rig)
}
