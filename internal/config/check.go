package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	// longestDelay bounds every delay: a longer one is a slip of the unit, and sums of two can not overflow.
	longestDelay = Duration(365 * 24 * time.Hour)
	// A session below the shortest can not be kept alive by heartbeats; the longest is the brokers' own default limit.
	shortestSession = Duration(time.Second)
	longestSession  = Duration(30 * time.Minute)
	// A shorter look at the file would cost more than the forwarding of an idle process.
	shortestReload = Duration(100 * time.Millisecond)
)

// problem reports something wrong with the value of a key, where the value comes from. A default is reported at what is around it.
func (l *layers) problem(path, message, hint string) {
	p := Problem{File: l.file, Line: 1, Column: 1, Path: path, Message: message, Hint: hint}
	if from, ok := l.innermost(path); ok {
		p.File, p.Line, p.Column = from.file, from.at.line, from.at.column
		if from.name != "" {
			p.Path = from.name
		}
	}
	l.problems = append(l.problems, p)
}

// innermost is the origin of a key, or else of the innermost thing around it that has one.
func (l *layers) innermost(path string) (origin, bool) {
	for path != "" {
		if from, ok := l.origins[path]; ok {
			return from, true
		}
		path = parent(path)
	}
	return origin{}, false
}

// parent is the path of what is around a key or a list item.
func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// where says in words where the value of a key is set.
func (l *layers) where(path string) string {
	from, _ := l.innermost(path)
	switch from.file {
	case inEnvironment, inFlags:
		return "set by " + from.name
	default:
		return fmt.Sprintf("line %d", max(from.at.line, 1))
	}
}

// report reports a complaint, if it is one, and tells whether it was.
func (l *layers) report(path string, c complaint) bool {
	if c.message == "" {
		return false
	}
	l.problem(path, c.message, c.hint)
	return true
}

// check reports every value that is wrong by itself or contradicts another. A value that could not be read is not judged again.
func (l *layers) check() {
	c := checker{layers: l, unread: make(map[string]bool), around: make(map[string]bool)}
	for _, p := range l.problems {
		c.unread[p.Path] = true
		for path := parent(p.Path); path != ""; path = parent(path) {
			c.around[path] = true
		}
	}
	c.kafka(l.config.Kafka)
	c.forwarder(l.config.Forwarder)
	c.ledger(l.config.Ledger)
	c.replayer(l.config.Replayer)
	c.topics()
}

// checker is the checks after the values are read.
type checker struct {
	*layers
	unread map[string]bool // The paths and environment variables of the values that could not be read.
	around map[string]bool // The paths of what is around them.
}

// readable tells whether the values could be read whole.
func (c checker) readable(paths ...string) bool {
	for _, path := range paths {
		if from := c.origins[path]; c.around[path] || c.unread[from.name] && from.name != "" {
			return false
		}
		for ; path != ""; path = parent(path) {
			if c.unread[path] {
				return false
			}
		}
	}
	return true
}

func (c checker) set(path string) bool {
	_, ok := c.origins[path]
	return ok
}

func (c checker) kafka(k Kafka) {
	if c.readable("kafka.brokers") {
		if len(k.Brokers) == 0 {
			c.problem("kafka.brokers", "no broker is set", "kafka: {brokers: [localhost:9092]}, or "+envPrefix+"KAFKA_BROKERS")
		}
		for i, broker := range k.Brokers {
			c.report(fmt.Sprintf("kafka.brokers[%d]", i), checkAddress(broker, 1))
		}
	}
	c.tls(k.TLS)
	c.sasl(k.SASL)
}

func (c checker) tls(t TLS) {
	const base = "kafka.tls."
	for _, key := range []struct{ name, value string }{
		{"caFilepath", t.CAFilepath},
		{"certFilepath", t.CertFilepath},
		{"keyFilepath", t.KeyFilepath},
		{"serverName", t.ServerName},
	} {
		c.needsEnabled(base, key.name, key.value != "")
	}
	c.needsEnabled(base, "insecureSkipTlsVerify", t.InsecureSkipTLSVerify)
	switch {
	case !c.readable(base+"certFilepath", base+"keyFilepath"):
	case t.CertFilepath != "" && t.KeyFilepath == "":
		c.problem(base+"certFilepath", "a certificate without its key", "set kafka.tls.keyFilepath")
	case t.CertFilepath == "" && t.KeyFilepath != "":
		c.problem(base+"keyFilepath", "a key without its certificate", "set kafka.tls.certFilepath")
	}
	if t.InsecureSkipTLSVerify && t.CAFilepath != "" {
		c.problem(base+"insecureSkipTlsVerify", "contradicts kafka.tls.caFilepath: no authority is asked", "keep one of the two")
	}
}

// needsEnabled reports a key of a section that nobody switched on or off: most likely the switch was forgotten.
func (c checker) needsEnabled(base, name string, used bool) {
	if used && !c.set(base+"enabled") {
		c.problem(base+name, "has no effect, because "+base+"enabled is not set", "set "+base+"enabled to true, or to false to keep the value unused")
	}
}

func (c checker) forwarder(f Forwarder) {
	const base = "forwarder."
	c.member(base, f.Group, f.InstanceID, f.SessionTimeout,
		bounded{"shutdownTimeout", f.ShutdownTimeout}, bounded{"commitInterval", f.CommitInterval})
	c.reloadInterval(base+"reloadInterval", f.ReloadInterval)
	totalOK := c.aboveZero(base+"maxHeldBytes", f.MaxHeldBytes)
	eachOK := c.aboveZero(base+"maxHeldBytesPerPartition", f.MaxHeldBytesPerPartition)
	if totalOK && eachOK {
		c.withinTotal(base+"maxHeldBytesPerPartition", f.MaxHeldBytesPerPartition)
	}
	if c.readable(base + "admin.address") {
		c.report(base+"admin.address", checkListenAddress(f.Admin.Address, "9400"))
	}
}

// bounded is a time that must end before a session does.
type bounded struct {
	name  string
	value Duration
}

// member checks what a member of a consumer group needs.
func (c checker) member(base, group, instanceID string, session Duration, within ...bounded) {
	if group == "" && c.readable(base+"group") {
		c.problem(base+"group", "is empty", "")
	}
	if !c.report(base+"instanceId", checkCharacters("instance id", instanceID)) && len(instanceID) > 249 {
		c.problem(base+"instanceId", fmt.Sprintf("is %d characters long", len(instanceID)), "Kafka allows 249")
	}
	sessionOK := c.readable(base + "sessionTimeout")
	if sessionOK && (session < shortestSession || session > longestSession) {
		c.problem(base+"sessionTimeout", fmt.Sprintf("%s is not between %s and %s", session, shortestSession, longestSession), "")
		sessionOK = false
	}
	for _, key := range within {
		path := base + key.name
		switch {
		case !c.readable(path):
		case key.value <= 0:
			c.problem(path, "must be above 0", "")
		case sessionOK && key.value >= session:
			c.problem(path, fmt.Sprintf("%s is not shorter than %ssessionTimeout, %s", key.value, base, session), "")
		}
	}
}

func (c checker) reloadInterval(path string, interval Duration) {
	if interval != 0 && interval < shortestReload && c.readable(path) {
		c.problem(path, fmt.Sprintf("%s is below %s", interval, shortestReload), "0s stands for: on SIGHUP only")
	}
}

// aboveZero reports a number of bytes that is 0, and tells whether the number can be used.
func (c checker) aboveZero(path string, b Bytes) bool {
	if !c.readable(path) {
		return false
	}
	if b <= 0 {
		c.problem(path, "must be above 0", "")
	}
	return b > 0
}

// withinTotal reports a budget of one partition that the budget of all can never give it.
func (c checker) withinTotal(path string, b Bytes) {
	if total := c.config.Forwarder.MaxHeldBytes; b > total {
		c.problem(path, fmt.Sprintf("%s is above forwarder.maxHeldBytes, %s", b, total), "")
	}
}

// checkListenAddress finds what is wrong with an address to listen on.
func checkListenAddress(address, port string) complaint {
	if strings.HasPrefix(address, ":") {
		address = "localhost" + address
	}
	c := checkAddress(address, 0)
	if c.message != "" {
		c.hint = "write it as 127.0.0.1:" + port + ", or :" + port + " for all interfaces"
	}
	return c
}

// checkAddress finds what is wrong with a host:port. The smallest port is 0 for a listener, which then takes a free one.
func checkAddress(address string, smallestPort int) complaint {
	const hint = "write it as host:port, as in localhost:9092"
	switch {
	case address == "":
		return complaint{"the address is empty", hint}
	case strings.Contains(address, "@"):
		// Not shown: what stands before the @ may be a password.
		return complaint{"the address holds a user", "users go into kafka.sasl"}
	case strings.Contains(address, "://"):
		return complaint{fmt.Sprintf("%q is a URL", cut(address)), hint}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		message := fmt.Sprintf("%q is not host:port", cut(address))
		if !strings.Contains(address, ":") {
			message = fmt.Sprintf("%q has no port", cut(address))
		}
		return complaint{message, hint}
	}
	if host == "" || strings.ContainsAny(host, " \t\r\n/,;") {
		return complaint{fmt.Sprintf("%q has no usable host", cut(address)), hint}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || int(n) < smallestPort {
		return complaint{fmt.Sprintf("%q is not a port", cut(port)), fmt.Sprintf("a port is a number from %d to 65535", smallestPort)}
	}
	return complaint{}
}
