package fault

import "syscall"

// childAttributes lets a forwarder die with the harness, however that ends. A group of its own keeps the interrupt key of
// a terminal from it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
