//go:build unix && !linux

package main

import "syscall"

// childAttributes keeps the interrupt key of a terminal from a forwarder: the harness decides when it stops.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
