package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kafka-redrive/redrive/internal/issue"
)

// groupsAtOnce is of how many groups the commits are asked for at once.
const groupsAtOnce = 200

// groupsOn returns the consumer groups that have commits on the origins which
// records return to, without those of the forwarder. A group that may not be seen
// is not there.
func (in cluster) groupsOn(ctx context.Context, p Preflight) map[string][]string {
	found := make(map[string][]string)
	for _, l := range p.Ladders {
		if l.returnsTo() == l.Origin {
			found[l.Origin] = nil
		}
	}
	if len(found) == 0 {
		return found
	}
	admin := kadm.NewClient(in.client)
	listed, err := admin.ListGroups(ctx)
	if _, some := errors.AsType[*kadm.ShardErrors](err); err != nil && !some {
		return found
	}
	var names []string
	for _, g := range listed.Sorted() {
		// A group that only commits, as many tools do, has no protocol.
		consumes := g.ProtocolType == "consumer" || g.ProtocolType == ""
		if consumes && g.Group != p.Group && g.Group != DecisionGroup(p.Group) {
			names = append(names, g.Group)
		}
	}
	for some := range slices.Chunk(names, groupsAtOnce) {
		fetched := admin.FetchManyOffsets(ctx, some...)
		for _, name := range some {
			if fetched[name].Err != nil {
				continue
			}
			for topic, partitions := range fetched[name].Fetched {
				if _, asked := found[topic]; asked && anyCommit(partitions) {
					found[topic] = append(found[topic], name)
				}
			}
		}
	}
	return found
}

func anyCommit(partitions map[int32]kadm.OffsetResponse) bool {
	for _, commit := range partitions {
		if commit.Err == nil && commit.At >= 0 {
			return true
		}
	}
	return false
}

// namedGroups is how many groups a message names.
const namedGroups = 5

// sharedOrigins tells of origins that records return to and several groups read.
func (in cluster) sharedOrigins(plan *Plan, ladders []Ladder) {
	told := make(map[string]bool)
	for _, l := range ladders {
		groups := plan.Survey.groups[l.Origin]
		if len(groups) < 2 || told[l.Origin] || l.returnsTo() != l.Origin {
			continue
		}
		told[l.Origin] = true
		names := strings.Join(groups[:min(len(groups), namedGroups)], ", ")
		if more := len(groups) - namedGroups; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		plan.add(problem(issue.SharedOrigin, l.Origin,
			"Give each group a ladder of its own in topics.yaml, with {group} in its names and a topic of the group as returnTo, and have the group read that beside the origin. A group that is no longer used: kafka-consumer-groups.sh --bootstrap-server "+in.bootstrap+" --delete --group G.",
			"%d groups have commits on the origin (%s): what one of them failed and gets again, all others get a second time.", len(groups), names))
	}
}
