package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// memory is the resident memory of a process in bytes.
type memory struct {
	now, peak int64
}

// memoryOf reads the resident memory of a process. The peak of getrusage will not do: it begins with the memory of the
// process that forked.
func memoryOf(pid int) (memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	var m memory
	if m.now, err = field(string(text), "VmRSS:"); err != nil {
		return memory{}, err
	}
	m.peak, err = field(string(text), "VmHWM:")
	return m, err
}

// readBytes is how many bytes a process has read by system calls: all that came over its sockets, and the files it
// opened. It is counted by the kernel, so that it misses nothing and trusts nobody.
func readBytes(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	return field(string(text), "rchar:")
}

// field returns the number of one line of a file in /proc, in bytes.
func field(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		words := strings.Fields(rest)
		if len(words) == 0 {
			break
		}
		n, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", name, err)
		}
		if len(words) > 1 && words[1] == "kB" {
			n *= 1024
		}
		return n, nil
	}
	return 0, fmt.Errorf("no number for %s", name)
}
