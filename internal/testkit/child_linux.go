package testkit

import "syscall"

// childAttributes lets a broker die with the process that started it, however that ends. A group of its own keeps the
// interrupt key of a terminal from it: whoever started it decides when it stops.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
