package testkit

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// killWorkers stops a server, so that it starts no more of them, and kills its workers. Each leads a process group of its own,
// and would notice the death of the server only when it waits the next time: until then it may still commit.
func killWorkers(server int) {
	_ = syscall.Kill(server, syscall.SIGSTOP) // It may be gone.
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return // The pattern is a constant.
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // It ended.
		}
		// The name, in parentheses, may hold spaces. The state and the parent follow it.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(server) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
