package kafka

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the plan for people: a table of the topics, the problems with
// their remedies, and a line that sums up.
func (p *Plan) WriteText(w io.Writer) error {
	var b strings.Builder
	// Neither the table nor the builder below it can fail.
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "TOPIC\tROLE\tACTION\tDETAIL")
	for _, t := range p.Topics {
		role := string(t.Role)
		if t.Tier != "" {
			role += " " + t.Tier
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", t.Topic, role, t.Action, t.detail())
	}
	_ = table.Flush()
	for _, s := range p.Samples {
		if s.Verdict != VerdictUnknown {
			fmt.Fprintf(&b, "\n%s: of %d keys in its latest records %s, so the partitioner is %s.\n", s.Origin, s.Keys, s.figures(), s.Verdict)
		}
	}
	for _, r := range p.Retired {
		b.WriteString("\n" + r.text() + "\n")
	}
	for _, problem := range p.Problems() {
		b.WriteString("\n" + problem.Text())
	}
	b.WriteString("\n" + p.summary() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// Text is the problem for people, in three lines.
func (p Problem) Text() string {
	place := ""
	if p.Topic != "" {
		place = " " + p.Topic
	}
	return fmt.Sprintf("%s%s: %s\n  %s\n  remedy: %s\n", p.Severity, place, p.Code, p.Message, p.Remedy)
}

func (r Retired) text() string {
	switch {
	case r.Left == 0:
		return r.Topic + ": no longer in the file, and drained: it may be deleted."
	case r.Until.IsZero():
		return fmt.Sprintf("%s: no longer in the file, up to %d records left, all due.", r.Topic, r.Left)
	default:
		return fmt.Sprintf("%s: no longer in the file, up to %d records left, the last due at %s.", r.Topic, r.Left, r.Until.UTC().Format(time.RFC3339))
	}
}

// detail says in one line what a topic is or becomes.
func (t TopicPlan) detail() string {
	var parts []string
	switch t.Action {
	case ActionChange:
		for _, change := range t.Changes {
			parts = append(parts, fmt.Sprintf("%s %s -> %s", change.Setting, readable(change.Setting, change.From), readable(change.Setting, change.To)))
		}
		return strings.Join(parts, ", ")
	case ActionMissing:
		return "does not exist"
	case ActionUnknown:
		return "cannot be read"
	default:
		if t.Partitions == 0 {
			return "needs its origin " + strings.Join(t.Origins, ", ")
		}
		parts = append(parts, "partitions "+strconv.Itoa(int(t.Partitions)), "replication "+strconv.Itoa(int(t.Replication)))
		for _, name := range slices.Sorted(maps.Keys(t.Settings)) {
			parts = append(parts, name+" "+readable(name, t.Settings[name]))
		}
		return strings.Join(parts, ", ")
	}
}

// readable adds to a retention what it means.
func readable(setting, value string) string {
	if ms, err := strconv.ParseInt(value, 10, 64); setting == retentionMs && err == nil && ms >= 0 {
		return value + " (" + formatMillis(ms) + ")"
	}
	return value
}

func (p *Plan) summary() string {
	var parts []string
	for _, action := range []struct {
		action Action
		words  string
	}{
		{ActionCreate, "to create"},
		{ActionChange, "to change"},
		{ActionDrift, "with drift that apply leaves alone"},
		{ActionMissing, "missing"},
		{ActionBlocked, "blocked"},
		{ActionUnknown, "unknown"},
		{ActionNone, "ok"},
	} {
		if n := p.count(action.action); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, action.words))
		}
	}
	if len(parts) == 0 {
		return "No topics."
	}
	return "Topics: " + strings.Join(parts, ", ") + "."
}
