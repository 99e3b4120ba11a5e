package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/issue"
)

// operations is what the brokers say that this principal may do with something: a
// bit for each operation. The zero value says that it may do nothing.
type operations int32

// unasked is the value of operations where the brokers did not tell.
const unasked operations = math.MinInt32

// denies reports whether the brokers told that the operation is not allowed.
func (o operations) denies(operation kmsg.ACLOperation) bool {
	return o != unasked && o&(1<<operation) == 0
}

// permissions tells what the forwarder must do with the topic and may not. A topic
// that was described may be described; so only reading and writing are left.
func (c *check) permissions() {
	var missing []kmsg.ACLOperation
	var effects []string
	for _, operation := range c.want.operations {
		if c.only || !c.topic.operations.denies(operation) {
			continue
		}
		missing = append(missing, operation)
		switch role := c.want.role(); {
		case operation != kmsg.ACLOperationRead:
			effects = append(effects, "not write to it, so that what is to go there waits where it is")
		case role == RoleOrigin || role == RoleReturn || role == RoleTarget:
			effects = append(effects, "not read it, so that a replay whose replica died goes no further: its copies are looked for there")
		default:
			effects = append(effects, "not read it, so that what waits in it stays there")
		}
	}
	if len(missing) > 0 {
		c.problem(issue.ACLMissing, c.grant("topic", c.want.topic, missing...), "This principal may %s.", strings.Join(effects, ", and "))
	}
}

// hidden is for a topic that this principal may not even describe: it lacks all
// that it needs there.
func (c *check) hidden() {
	var all []kmsg.ACLOperation
	if !c.only {
		all = append(all, c.want.operations...)
	}
	all = append(all, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs)
	c.problem(issue.ACLMissing, c.grant("topic", c.want.topic, all...),
		"This principal may not describe the topic (%s), so that nothing about it could be checked, and nothing can be done with it if it exists.", Code(c.topic.err))
}

// grant returns the command that allows this principal operations on a topic or a
// group.
func (in cluster) grant(resource, name string, operations ...kmsg.ACLOperation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-acls.sh --bootstrap-server %s --add --allow-principal %s", in.bootstrap, quoted(in.principal))
	for _, operation := range operations {
		b.WriteString(" --operation " + operationName(operation))
	}
	b.WriteString(" --" + resource + " " + quoted(name))
	return b.String()
}

// operationName is the name of an operation for kafka-acls.sh.
func operationName(operation kmsg.ACLOperation) string {
	switch operation {
	case kmsg.ACLOperationRead:
		return "Read"
	case kmsg.ACLOperationWrite:
		return "Write"
	case kmsg.ACLOperationDescribe:
		return "Describe"
	case kmsg.ACLOperationDescribeConfigs:
		return "DescribeConfigs"
	default:
		panic(fmt.Sprintf("kafka: the forwarder needs no operation %d", operation))
	}
}

// quoted returns a word that a shell takes as one.
func quoted(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// group looks at what this principal may do with the group of the forwarder and
// with its companion.
func (in cluster) group(ctx context.Context, plan *Plan, group string) {
	for _, of := range []struct{ group, effect string }{
		{group, "so that the forwarder cannot join it and forwards nothing"},
		{DecisionGroup(group), "so that a running forwarder does not see what forwarder offsets set decides"},
	} {
		if in.groupDenied(ctx, of.group) {
			plan.add(problem(issue.ACLMissing, "", in.grant("group", of.group, kmsg.ACLOperationRead),
				"This principal may not read the group %s, %s.", of.group, of.effect))
		}
	}
}

// replayerGroup looks at what this principal may do with the group of the
// dlt-replayer.
func (in cluster) replayerGroup(ctx context.Context, plan *Plan, group string) {
	if in.groupDenied(ctx, group) {
		plan.add(problem(issue.ACLMissing, "", in.grant("group", group, kmsg.ACLOperationRead),
			"This principal may not read the group %s, so that the dlt-replayer cannot join it and indexes nothing.", group))
	}
}

// groupDenied reports whether the brokers told that this principal may not read a
// group. Of a group that does not exist, or that is of the new protocol, they
// describe no permissions: there a heartbeat is answered by who may not read the
// group, and otherwise refused because its member is unknown, which changes
// nothing.
func (in cluster) groupDenied(ctx context.Context, group string) bool {
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups = []string{group}
	request.IncludeAuthorizedOperations = true
	response, err := request.RequestWith(ctx, in.client)
	if err != nil {
		return errors.Is(err, kerr.GroupAuthorizationFailed)
	}
	for _, g := range response.Groups {
		if g.ErrorCode == kerr.GroupAuthorizationFailed.Code {
			return true
		}
		if allowed := operations(g.AuthorizedOperations); allowed != unasked {
			return allowed.denies(kmsg.ACLOperationRead)
		}
	}
	heartbeat := kmsg.NewPtrHeartbeatRequest()
	heartbeat.Group, heartbeat.MemberID, heartbeat.Generation = group, "preflight", -1
	answer, err := heartbeat.RequestWith(ctx, in.client)
	if err != nil {
		return errors.Is(err, kerr.GroupAuthorizationFailed)
	}
	return answer.ErrorCode == kerr.GroupAuthorizationFailed.Code
}
