//go:build !windows

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// lock is held on a file of its own, since the descriptors of the ledger itself are SQLite's. It ends with the process,
// however that ends, and the file stays.
type lock struct{ file *os.File }

// acquire takes the lock, or says who has it.
func acquire(path string) (*lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = inUse(file)
		} else {
			err = fmt.Errorf("lock %s: %w", path, err)
		}
		return nil, errors.Join(err, file.Close())
	}
	l := &lock{file: file}
	if err := l.sign(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

// sign writes down who has the lock, for the message that others get.
func (l *lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

func inUse(file *os.File) error {
	who := "another process"
	if pid, err := io.ReadAll(io.LimitReader(file, 20)); err == nil && len(bytes.TrimSpace(pid)) > 0 {
		who = fmt.Sprintf("process %s", bytes.TrimSpace(pid))
	}
	return fmt.Errorf("%w by %s: a SQLite ledger belongs to one process: stop that one, or give this one another file; several replicas share a PostgreSQL ledger", ErrInUse, who)
}

func (l *lock) release() error { return l.file.Close() }
