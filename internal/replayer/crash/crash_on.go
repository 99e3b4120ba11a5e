//go:build crashpoints

// Package crash kills the process at a named point, for the kill tests: see the variant without the tag.
package crash

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// armed is the point that kills and how many passages of it are left. It can not be anywhere but here: points are
// passed in packages that must not know of tests.
var armed = sync.OnceValue(func() *point {
	name, count, _ := strings.Cut(os.Getenv("TEST_CRASH_POINT"), ":")
	left, err := strconv.Atoi(count)
	if err != nil {
		left = 1
	}
	return &point{name: name, left: left}
})

type point struct {
	mu   sync.Mutex
	name string
	left int
}

// Point is a place between two effects. It does not return if it is the one that kills.
func Point(name string) {
	p := armed()
	if p.name != name {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left--; p.left > 0 {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // The signal needs a moment, and nothing may happen in it.
}
