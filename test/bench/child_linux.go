package main

import "syscall"

// childAttributes lets a child die with this process, however that ends. A group of its own keeps the interrupt key of a
// terminal from it: this process decides when it stops.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
