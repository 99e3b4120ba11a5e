package main

import "syscall"

// childAttributes give a child a process group of its own, so that Ctrl-C
// reaches the demo alone, which stops it in order; and let it end with the demo,
// however that ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
