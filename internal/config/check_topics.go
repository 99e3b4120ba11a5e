package config

import (
	"fmt"
	"strings"
)

// use is one place where a topic is named.
type use struct {
	entry int
	role  string
	path  string
}

// topics checks each entry, then the entries against each other.
func (c checker) topics() {
	names := uses{checker: c, exact: make(map[string]use), folded: make(map[string]string)}
	byOrigin := make(map[string][]int)
	for i := range c.config.Topics {
		t, base := &c.config.Topics[i], topicPath(i)
		tiersOK := c.tiers(t, base)
		c.limits(t, base, tiersOK)
		if t.Group != "" && t.Group == c.config.Forwarder.Group {
			c.problem(base+".group", "is the forwarder's own group", "name the group of the application; the forwarder's is forwarder.group")
		}
		if t.Group != "" && t.Group == c.config.Replayer.Group {
			c.problem(base+".group", "is the dlt-replayer's own group", "name the group of the application; the dlt-replayer's is replayer.group")
		}
		if !c.readable(base+".origin") || c.report(base+".origin", checkTopicName(t.Origin)) {
			continue // Every other name is made from it.
		}
		alone := c.alone(i, byOrigin[t.Origin])
		byOrigin[t.Origin] = append(byOrigin[t.Origin], i)
		c.expandNames(i, names, alone)
	}
	for i, t := range c.config.Topics { // When all names are known.
		names.outside(i, "replayTo", t.ReplayTo)
		names.outside(i, "replyTo", t.ReplyTo)
	}
}

// alone reports a second entry for the same failures, and tells whether the entry is the first for its origin and group.
func (c checker) alone(i int, others []int) bool {
	t, path := c.config.Topics[i], topicPath(i)+".origin"
	for _, other := range others {
		first := c.where(topicPath(other) + ".origin")
		switch group := c.config.Topics[other].Group; {
		case group == t.Group:
			c.problem(path, fmt.Sprintf("duplicate origin %q", t.Origin), "first in "+first+"; entries of one origin need different groups")
			return false
		case group == "" || t.Group == "":
			c.problem(path, fmt.Sprintf("origin %q has another entry", t.Origin), "it is in "+first+"; then each entry needs its group")
			return false
		}
	}
	return true
}

// tiers checks the ladder by itself, and tells whether all its delays can be used.
func (c checker) tiers(t *Topic, base string) bool {
	ok := true
	names := make(map[string]string)
	for j, tier := range t.Tiers {
		path := fmt.Sprintf("%s.tiers[%d]", base, j)
		if !c.readable(path) {
			ok = false
			continue
		}
		delayPath, namePath := path, path
		if c.set(path + ".delay") {
			delayPath = path + ".delay"
		}
		if c.set(path + ".name") {
			namePath = path + ".name"
		}
		switch {
		case tier.Delay <= 0:
			c.problem(delayPath, "the delay must be above 0", "")
			ok = false
			continue // Its default name would only confuse.
		case tier.Delay > longestDelay || tier.Jitter > longestDelay:
			c.problem(delayPath, fmt.Sprintf("a delay or jitter above %s", longestDelay), "")
			ok = false
			continue
		}
		c.report(namePath, checkCharacters("tier name", tier.Name))
		if first, taken := names[tier.Name]; taken {
			c.problem(namePath, fmt.Sprintf("duplicate tier name %q", tier.Name), "first in "+c.where(first)+"; a tier may be given another name")
			continue
		}
		names[tier.Name] = namePath
	}
	return ok && c.readable(base+".tiers")
}

// limits checks the bounds of an entry against its ladder and the forwarder.
func (c checker) limits(t *Topic, base string, tiersOK bool) {
	if path := base + ".maxDelay"; c.set(path) && c.readable(path) {
		var longest Duration
		for _, tier := range t.Tiers {
			longest = max(longest, tier.Delay+tier.Jitter)
		}
		switch {
		case t.MaxDelay > longestDelay:
			c.problem(path, fmt.Sprintf("%s is above %s", t.MaxDelay, longestDelay), "")
		case tiersOK && t.MaxDelay < longest:
			c.problem(path, fmt.Sprintf("%s is shorter than the longest tier with its jitter, %s", t.MaxDelay, longest), "")
		}
	}
	attempts, deliveries := base+".maxAttempts", base+".maxDeliveries"
	if t.MaxDeliveries < t.MaxAttempts && tiersOK && c.readable(attempts, deliveries) {
		at := attempts
		if c.set(deliveries) {
			at = deliveries
		}
		c.problem(at, fmt.Sprintf("maxDeliveries, %d, is below maxAttempts, %d", t.MaxDeliveries, t.MaxAttempts), "raise maxDeliveries, the failed deliveries over all replays")
	}
	if t.RateLimit != 0 {
		c.rate(base+".rateLimit", t.RateLimit, "records", "0 stands for no limit; paused: true keeps all back")
	}
	path, total := base+".maxHeldBytesPerPartition", "forwarder.maxHeldBytes"
	if c.set(path) && c.aboveZero(path, t.MaxHeldBytesPerPartition) && c.readable(total) && c.config.Forwarder.MaxHeldBytes > 0 {
		c.withinTotal(path, t.MaxHeldBytesPerPartition)
	}
}

// expandNames checks the templates of an entry, puts the names in their place and, if the entry is to be held against the others,
// notes what each topic is used for.
func (c checker) expandNames(i int, names uses, note bool) {
	t, base := &c.config.Topics[i], topicPath(i)
	expand := func(path, role string, template *string, tier string, more ...string) bool {
		if !c.readable(path) || c.report(path, t.checkTemplate(*template, more...)) {
			return false
		}
		*template = t.expand(*template, tier)
		if c.report(path, checkTopicName(*template)) {
			return false
		}
		return !note || names.note(*template, use{i, role, path})
	}
	if note {
		names.note(t.Origin, use{i, "origin", base + ".origin"})
	}
	if t.ReturnTo != "" {
		role := "return topic"
		if t.checkTemplate(t.ReturnTo).message == "" && t.ReturnTopic() == t.Origin {
			role = "origin" // Spelled out; the same topic for the same end.
		}
		expand(base+".returnTo", role, &t.ReturnTo, "")
	}
	expand(base+".names.inbox", "inbox", &t.Names.Inbox, "")
	lettersOK := expand(base+".names.deadLetters", "dead-letter topic", &t.Names.DeadLetters, "")
	c.tierTopics(i, expand)
	// A trigger that is named after dead letters which are wrong already would only repeat what is wrong.
	if lettersOK || !strings.Contains(t.Names.ReplayTrigger, "{deadLetters}") {
		expand(base+".names.replayTrigger", "replay trigger topic", &t.Names.ReplayTrigger, "", "deadLetters")
	}
}

// tierTopics expands the topics of the tiers. The template itself is judged once, not once for each tier.
func (c checker) tierTopics(i int, expand func(path, role string, template *string, tier string, more ...string) bool) {
	t, base := &c.config.Topics[i], topicPath(i)
	templatePath, shared := base+".names.tier", 0
	for j := range t.Tiers {
		if !c.set(fmt.Sprintf("%s.tiers[%d].topic", base, j)) {
			shared++
		}
	}
	templateBad := !c.readable(templatePath) || c.report(templatePath, t.checkTemplate(t.Names.Tier, "tier"))
	if !templateBad && shared > 1 && !strings.Contains(t.Names.Tier, "{tier}") {
		c.problem(templatePath, fmt.Sprintf("without {tier} the %d tiers get the same topic", shared), "put {tier} into the template")
		templateBad = true
	}
	named := make(map[string]bool)
	for j := range t.Tiers {
		tier, path := &t.Tiers[j], fmt.Sprintf("%s.tiers[%d]", base, j)
		if !c.readable(path) || tier.Delay <= 0 || named[tier.Name] || checkCharacters("", tier.Name).message != "" {
			continue // Reported already; what follows from it would only confuse.
		}
		named[tier.Name] = true
		if c.set(path + ".topic") {
			path += ".topic"
		} else if templateBad {
			continue
		}
		expand(path, "tier "+tier.Name, &tier.Topic, tier.Name, "tier")
	}
}

// uses is what each topic of the file is used for. No topic may serve two ends: its records could not be told apart.
type uses struct {
	checker
	exact  map[string]use
	folded map[string]string // The name with '_' for '.', as Kafka's metrics see it, to the name.
}

// note takes a topic for a use, or reports that it is taken. It tells whether the use stands.
func (u uses) note(name string, as use) bool {
	if first, taken := u.exact[name]; taken {
		if first.role == "origin" && as.role == "origin" {
			return true
		}
		return !u.report(as.path, u.taken(name, first, as))
	}
	u.exact[name] = as
	folded := strings.ReplaceAll(name, ".", "_")
	other, taken := u.folded[folded]
	if !taken {
		u.folded[folded] = name
		return true
	}
	if u.exact[other].role == "origin" && as.role == "origin" {
		return true
	}
	u.problem(as.path, fmt.Sprintf("topics %q and %q differ in '.' and '_' only", cut(name), cut(other)), "Kafka does not create the second")
	return false
}

// outside reports a topic that copies or replies would be written to and that Redrive itself reads: what is written there would run in
// a circle. Origins and return topics may be named.
func (u uses) outside(i int, key string, topics []string) {
	path := topicPath(i) + "." + key
	if !u.readable(path) {
		return
	}
	seen := make(map[string]bool)
	for j, name := range topics {
		item := fmt.Sprintf("%s[%d]", path, j)
		switch taken, known := u.exact[name]; {
		case u.report(item, checkTopicName(name)):
		case seen[name]:
			u.problem(item, fmt.Sprintf("topic %q a second time", cut(name)), "")
		case known && taken.role != "origin" && taken.role != "return topic":
			u.problem(item, fmt.Sprintf("topic %q is the %s of origin %q, %s", cut(name), taken.role, cut(u.config.Topics[taken.entry].Origin), u.where(taken.path)),
				"name a topic that consumers of yours read")
		}
		seen[name] = true
	}
}

// taken says what else a topic is used for.
func (u uses) taken(name string, first, as use) complaint {
	message := fmt.Sprintf("topic %q, here as %s, is also the %s", cut(name), as.role, first.role)
	if first.entry == as.entry {
		return complaint{message, "each topic has one use"}
	}
	if first.role == "origin" {
		return complaint{message + ", " + u.where(first.path), "each topic has one use"}
	}
	origin := u.config.Topics[first.entry].Origin
	message += fmt.Sprintf(" of origin %q, %s", cut(origin), u.where(first.path))
	if origin == u.config.Topics[as.entry].Origin {
		return complaint{message, "put {group} into the names"}
	}
	return complaint{message, "each topic has one use"}
}
