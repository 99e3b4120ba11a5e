package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
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

// clockTick is the unit of processor time in /proc, on every Linux.
const clockTick = 10 * time.Millisecond

// cpuOf is the processor time that a process has used so far.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return cpuIn(string(text))
}

// cpuIn adds the times in user and in system mode. They are counted from the bracket that ends the program's name, which
// may hold anything.
func cpuIn(stat string) (time.Duration, error) {
	const user, system = 11, 12
	words := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(words) <= system {
		return 0, errors.New("read the processor time: too few fields")
	}
	var ticks int64
	for _, word := range []string{words[user], words[system]} {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the processor time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
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
