//go:build unix && !linux

package fault

import "syscall"

// childAttributes keeps the interrupt key of a terminal from a forwarder.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
