package testkit

import (
	"syscall"
	"unsafe"
)

// childAttributes lets a child die with the process that started it, however that ends. A group of its own keeps the
// interrupt key of a terminal from it: whoever started it decides when it stops.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// limitFiles sets how large a file the process may write; -1 is no limit. The hard limit stays, so that this can be lifted.
func limitFiles(pid int, bytes int64) error {
	limit := struct{ soft, hard uint64 }{uint64(bytes), ^uint64(0)}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_FSIZE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
