package main

import (
	"fmt"
	"strings"
	"time"
)

// partitions of every topic of the forwarder.
const partitions = 4

// ladder is one entry of topics.yaml.
type ladder struct {
	origin, returnTo, inbox, letters string

	tiers         []tier
	maxAttempts   int
	maxDeliveries int
	maxDelay      time.Duration
}

type tier struct {
	name, topic   string
	delay, jitter time.Duration
}

// ladders are the two entries of a run: one with the defaults, and one that returns to a topic of its own, repeats its last
// tier and has a low loop guard.
func ladders() []*ladder {
	plain := &ladder{
		origin: "hostile-a", returnTo: "hostile-a", maxAttempts: 4, maxDeliveries: 1000, maxDelay: 5 * time.Second,
		tiers: []tier{{name: "1s", delay: time.Second}, {name: "2s", delay: 2 * time.Second}, {name: "3s", delay: 3 * time.Second}},
	}
	strict := &ladder{
		origin: "hostile-b", returnTo: "hostile-b.return", maxAttempts: 6, maxDeliveries: 50, maxDelay: 4 * time.Second,
		tiers: []tier{{name: "1s", delay: time.Second, jitter: 500 * time.Millisecond}, {name: "2s", delay: 2 * time.Second}},
	}
	all := []*ladder{plain, strict}
	for _, l := range all {
		l.inbox, l.letters = l.origin+".retry", l.origin+".dlt"
		for i := range l.tiers {
			l.tiers[i].topic = l.inbox + "." + l.tiers[i].name
		}
	}
	return all
}

// triggers are the topics whose records ask for replays. The forwarder makes them for the dlt-replayer, and never writes them.
func triggers() []string { return []string{"hostile-a.dlt.replay", "hostile-b.dlt.replay"} }

// decoys are topics that exist, that forged headers name, and that nobody writes. The origin of the second entry is one: what
// returns goes to its return topic.
func decoys() []string {
	return []string{"__decoy", "__redrive", "decoy", "hostile-b", "hostile-c", "hostile-c.retry", "hostile-c.retry.1s", "hostile-c.dlt"}
}

// role is what a topic is for.
type role uint8

const (
	roleInbox role = iota
	roleTier
	roleReturn
	roleLetters
)

// topicInfo is one topic that records may be in.
type topicInfo struct {
	name   string
	role   role
	ladder int
	tier   int // For roleTier.
}

// topics returns the topics of all ladders: those where records come in and wait before those where they end.
func topics(all []*ladder) []topicInfo {
	var table []topicInfo
	for i, l := range all {
		table = append(table, topicInfo{name: l.inbox, role: roleInbox, ladder: i})
		for t := range l.tiers {
			table = append(table, topicInfo{name: l.tiers[t].topic, role: roleTier, ladder: i, tier: t})
		}
	}
	for i, l := range all {
		table = append(table, topicInfo{name: l.returnTo, role: roleReturn, ladder: i}, topicInfo{name: l.letters, role: roleLetters, ladder: i})
	}
	return table
}

// sources are the topics that the forwarder reads.
func sources(all []*ladder) []string {
	var names []string
	for _, t := range topics(all) {
		if t.role == roleInbox || t.role == roleTier {
			names = append(names, t.name)
		}
	}
	return names
}

func topicsYAML(brokers []string, all []*ladder) string {
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	line("kafka: {brokers: [%s]}", strings.Join(brokers, ", "))
	line("forwarder:")
	line("  group: %s", group)
	line("  admin: {address: 127.0.0.1:0}")
	line("logging: {format: text}")
	line("topics:")
	for _, l := range all {
		line("  - origin: %s", l.origin)
		line("    returnTo: %s", l.returnTo)
		line("    maxAttempts: %d", l.maxAttempts)
		line("    maxDeliveries: %d", l.maxDeliveries)
		line("    maxDelay: %dms", l.maxDelay.Milliseconds())
		line("    tiers:")
		for _, t := range l.tiers {
			line("      - {name: %s, delay: %dms, jitter: %dms}", t.name, t.delay.Milliseconds(), t.jitter.Milliseconds())
		}
	}
	return s.String()
}
