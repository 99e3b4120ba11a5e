//go:build unix && !linux

package testkit

import (
	"errors"
	"syscall"
)

// childAttributes keeps a child in the process group of whoever started it, so that the interrupt key of a terminal
// reaches it too: only Linux can tie the life of a child to that of its parent.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func limitFiles(int, int64) error { return errors.ErrUnsupported }
