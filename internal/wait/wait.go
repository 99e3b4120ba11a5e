// Package wait waits for a while, unless a context ends first. Its functions block, and are safe for concurrent use.
package wait

import (
	"context"
	"time"
)

// For waits for d, and reports whether ctx still stands.
func For(ctx context.Context, d time.Duration) bool { return Until(ctx, d, nil) }

// Until waits for d or for a value of early, whichever comes first, and reports whether ctx still stands.
func Until(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-early:
	case <-timer.C:
	}
	return ctx.Err() == nil
}
