package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kafka-redrive/redrive/internal/spelling"
)

// Inbox is the name of the topic that consumers hand failed records to.
func (t Topic) Inbox() string { return t.expand(t.Names.Inbox, "") }

// DeadLetters is the name of the topic of the records that are given up.
func (t Topic) DeadLetters() string { return t.expand(t.Names.DeadLetters, "") }

// ReplayTrigger is the name of the topic on which a record asks for a replay.
func (t Topic) ReplayTrigger() string { return t.expand(t.Names.ReplayTrigger, "") }

// ReturnTopic is the name of the topic a record returns to when it is due.
func (t Topic) ReturnTopic() string {
	if t.ReturnTo == "" {
		return t.Origin
	}
	return t.expand(t.ReturnTo, "")
}

// expand fills in a template. What is not a placeholder stays as it is.
func (t Topic) expand(template, tier string) string {
	// First, since it may hold the others where the dead letters are not expanded yet.
	template = strings.ReplaceAll(template, "{deadLetters}", t.Names.DeadLetters)
	return strings.NewReplacer("{origin}", t.Origin, "{group}", t.Group, "{tier}", tier).Replace(template)
}

// complaint is what is wrong with a value, before it is known where the value stands. The zero value is no complaint.
type complaint struct{ message, hint string }

// checkTemplate finds the first thing wrong with the placeholders of a template of t, which knows {origin}, {group} and some more.
func (t Topic) checkTemplate(template string, more ...string) complaint {
	known := append([]string{"origin", "group"}, more...)
	here := "known here: {" + strings.Join(known, "}, {") + "}"
	for rest := template; ; {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			return complaint{}
		}
		name, after, ok := strings.Cut(after, "}")
		if !ok {
			return complaint{fmt.Sprintf("%q has a { without its }", template), ""}
		}
		switch {
		case name == "tier" && !slices.Contains(known, name):
			return complaint{"{tier} is known in the name of a tier's topic only", here}
		case name == "group" && t.Group == "":
			return complaint{"{group} stands in the name, but no group is set", "set group to the consumer group whose failures these are, or leave {group} out"}
		case !slices.Contains(known, name):
			hint := here
			if near := spelling.Nearest(name, known); near != "" {
				hint = "did you mean {" + near + "}?"
			}
			return complaint{fmt.Sprintf("unknown placeholder {%s}", name), hint}
		}
		rest = after
	}
}

// checkTopicName finds what Kafka would refuse in a topic's name, and the names Kafka keeps for itself.
func checkTopicName(name string) complaint {
	const longest = 249
	switch {
	case name == "":
		return complaint{"the topic name is empty", ""}
	case name == "." || name == "..":
		return complaint{fmt.Sprintf("%q is not a topic name", name), ""}
	case strings.HasPrefix(name, "__"):
		return complaint{fmt.Sprintf("topic name %q starts with __", cut(name)), "such topics are internal to Kafka"}
	}
	if c := checkCharacters("topic name", name); c.message != "" {
		return c
	}
	if len(name) > longest {
		return complaint{fmt.Sprintf("topic name %q is %d characters long", cut(name), len(name)), fmt.Sprintf("Kafka allows %d", longest)}
	}
	return complaint{}
}

// checkCharacters finds a character that Kafka does not allow in the names of topics and of static members.
func checkCharacters(what, name string) complaint {
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		default:
			return complaint{fmt.Sprintf("%s %q has the character %q", what, cut(name), r), "allowed are letters, digits, '.', '_' and '-'"}
		}
	}
	return complaint{}
}

// cut shortens a name for a message.
func cut(name string) string {
	const most = 60
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return name
}
