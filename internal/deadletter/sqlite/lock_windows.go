package sqlite

import (
	"errors"
	"fmt"
	"syscall"
)

// sharing is the error of a file that somebody else has open.
const sharing = syscall.Errno(32)

// lock is a file that nobody else can open while this process lives.
type lock struct{ file syscall.Handle }

func acquire(path string) (*lock, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	file, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, sharing) {
		return nil, fmt.Errorf("%w by another process: a SQLite ledger belongs to one process: stop that one, or give this one another file; several replicas share a PostgreSQL ledger", ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &lock{file: file}, nil
}

func (l *lock) release() error { return syscall.CloseHandle(l.file) }
