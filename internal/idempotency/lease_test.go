package idempotency

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

func TestALeaseHoldsForItsFirstHalfFromBeforeItWasAskedFor(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	lease := NewLease(began, 30*time.Second)
	for after, want := range map[time.Duration]bool{0: true, 15*time.Second - 1: true, 15 * time.Second: false, time.Hour: false} {
		if got := lease.Holds(began.Add(after)); got != want {
			t.Errorf("after %v: holds %v", after, got)
		}
	}
	if at := lease.RenewAt(); !at.Equal(began.Add(10 * time.Second)) {
		t.Errorf("renewed at %v", at)
	}
	lease.Renewed(began.Add(12 * time.Second))
	if !lease.Holds(began.Add(26*time.Second)) || lease.Holds(began.Add(27*time.Second)) {
		t.Error("the renewal does not count from when it was asked for")
	}
	// An answer that comes late must not take back a later one.
	lease.Renewed(began.Add(5 * time.Second))
	if !lease.Holds(began.Add(26 * time.Second)) {
		t.Error("an older renewal shortened the lease")
	}
}

func TestTwoOwnersOfOneProcessDiffer(t *testing.T) {
	t.Parallel()
	if a, b := NewOwner(), NewOwner(); a == b || a == "" {
		t.Errorf("owners %q and %q", a, b)
	}
}

func TestAnEditedIDNamesItsParentAndFitsTheHeader(t *testing.T) {
	t.Parallel()
	const job = "01980f3e-7d5c-7aa0-93d5-4b1a6e0f2c11"
	id := EditedID("orders/2/4711", job)
	if parent, edited := ParentID(id, job); !edited || parent != "orders/2/4711" {
		t.Errorf("parent %q of %q", parent, id)
	}
	if _, edited := ParentID(id, "01980f3e-7d5c-7aa0-93d5-4b1a6e0f2c12"); edited {
		t.Error("another job edited it")
	}
	if _, edited := ParentID("orders/2/4711", job); edited {
		t.Error("nobody edited it")
	}
	for _, long := range []string{strings.Repeat("x", 2000), strings.Repeat("\u20ac", 700)} {
		id := EditedID(long, job)
		if parent, edited := ParentID(id, job); len(id) > envelope.MaxText || !utf8.ValidString(id) || !edited || !strings.HasPrefix(long, parent) {
			t.Errorf("%d bytes, edited %v", len(id), edited)
		}
	}
}
