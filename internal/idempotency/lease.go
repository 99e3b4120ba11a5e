package idempotency

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// Fence tells one claim from all others. Epoch counts how often the ledger was begun or put back to an older state; N
// rises with each claim of an epoch. The zero Fence is no claim.
type Fence struct{ Epoch, N int64 }

// String is the fence as it stands in logs and answers: epoch.n.
func (f Fence) String() string {
	return strconv.FormatInt(f.Epoch, 10) + "." + strconv.FormatInt(f.N, 10)
}

// NewOwner names this process as the owner of claims: its host, its process id and a random part, so that a process which
// starts again under the same name is another owner.
func NewOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	random := make([]byte, 6)
	_, _ = rand.Read(random) // It never fails.
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), hex.EncodeToString(random))
}

// Lease is the holder's own view of a claim: how long it may still act on it. It goes by the monotonic clock and counts
// from before the claim was asked for, so that it always ends before the ledger's own view does. It is safe for concurrent
// use.
type Lease struct {
	length time.Duration

	mu    sync.Mutex
	began time.Time
}

// NewLease is a lease of that length, asked for at began.
func NewLease(began time.Time, length time.Duration) *Lease {
	return &Lease{length: length, began: began}
}

// Renewed notes that the ledger accepted a renewal which was asked for at began.
func (l *Lease) Renewed(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if began.After(l.began) {
		l.began = began
	}
}

// Holds tells whether the holder may begin something at now. It may in the first half of the lease: the rest is for what
// was begun to end, and for a clock that runs slow.
func (l *Lease) Holds(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.began) < l.length/2
}

// RenewAt is when the holder should ask for a renewal: after a third, so that one that fails can be repeated.
func (l *Lease) RenewAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began.Add(l.length / 3)
}

// EditedID is the message id of an edited copy. It is another message than its parent, which it names. Of a parent so long that
// the id would be longer than a message id may be, the start is named.
func EditedID(parent, job string) string {
	mark := editMark(job)
	if most := envelope.MaxText - len(mark); len(parent) > most {
		for most > 0 && !utf8.RuneStart(parent[most]) {
			most--
		}
		parent = parent[:most]
	}
	return parent + mark
}

// ParentID is the message id that EditedID was given, as far as the id names it, if id is an edited one of that job.
func ParentID(id, job string) (parent string, edited bool) {
	return strings.CutSuffix(id, editMark(job))
}

func editMark(job string) string { return "~" + strings.ReplaceAll(job, "-", "") }
