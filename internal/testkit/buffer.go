package testkit

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer that may be read while others write. The zero value is empty and ready.
type Buffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

// String is what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
