package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// FreePort reserves a TCP port of 127.0.0.1 for a server of the test, until the test ends.
func FreePort(t testing.TB) int {
	t.Helper()
	port, release, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// ReservePort is FreePort for programs: the port is theirs until release.
func ReservePort() (port int, release func(), err error) { return reservePort() }

// reservePort finds a free port and keeps it from others that ask here, in this process or another, until release.
//
// A broker must find its port free again when it is restarted, so the port that the system gives for :0 will not do. It is
// one of those the system also gives to outgoing connections; a client that tries in vain to reach the dead broker
// can even be given the very port it dials, and then is connected to itself.
func reservePort() (port int, release func(), err error) {
	locks, err := cacheDir("ports")
	if err != nil {
		return 0, nil, err
	}
	low, high := portRange()
	for range 1000 {
		port := low + rand.IntN(high-low)
		unlock, err := lockFile(filepath.Join(locks, strconv.Itoa(port)), false)
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			unlock()
			continue
		}
		if err := listener.Close(); err != nil {
			unlock()
			return 0, nil, fmt.Errorf("probe port %d: %w", port, err)
		}
		return port, unlock, nil
	}
	return 0, nil, errors.New("no free port found in 1000 tries")
}

// portRange returns the larger stretch of ports beside those for outgoing connections, high not included.
func portRange() (low, high int) {
	const first, last = 10000, 65536
	ephemeralLow, ephemeralHigh := 32768, 60999 // the default of Linux
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &ephemeralLow, &ephemeralHigh)
	}
	below, above := ephemeralLow-first, last-ephemeralHigh-1
	switch {
	case below < 100 && above < 100: // no room beside them: better a port that may be taken than none
		return first, last
	case below >= above:
		return first, ephemeralLow
	default:
		return ephemeralHigh + 1, last
	}
}
