package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/issue"
)

// Action says what applying a plan does about a topic.
type Action string

// The actions.
const (
	// ActionNone leaves a topic alone that is as it must be. Of an origin it says no
	// more than that it exists: apply has nothing to do with it.
	ActionNone Action = "ok"
	// ActionCreate creates the topic.
	ActionCreate Action = "create"
	// ActionChange raises what the plan lists.
	ActionChange Action = "change"
	// ActionDrift leaves a topic alone that is not as it should be: what is wrong
	// needs a decision of its owner, and the problem names the command.
	ActionDrift Action = "drift"
	// ActionMissing is an origin that does not exist. Nobody but its owner creates
	// it.
	ActionMissing Action = "missing"
	// ActionBlocked is a topic that cannot be created, or not be judged in full,
	// because its origin is missing or unreadable.
	ActionBlocked Action = "blocked"
	// ActionUnknown is a topic about which the brokers would not speak.
	ActionUnknown Action = "unknown"
)

// Preflight says what a plan is made for.
type Preflight struct {
	// Ladders are the entries of topics.yaml.
	Ladders []Ladder
	// Replayer makes the plan one for the dlt-replayer: of what it reads and writes,
	// and of its group. Otherwise it is for the forwarder.
	Replayer bool
	// Group is the consumer group of the process. Empty: nothing is asked about
	// it, neither its permissions nor the topics it still has to drain.
	Group string
	// Principal is who the forwarder is to the brokers, as in "User:forwarder", for
	// the commands that grant something. Empty, where only the brokers know: the
	// commands say User:NAME.
	Principal string
	// TopicsOnly leaves out everything but the topics as they are: what this
	// principal may do with them, groups, samples, clocks and retired topics. It is
	// for applying, which may be the right of another principal than the forwarder's.
	TopicsOnly bool
	// Known is what an earlier plan learned of other groups and of the records on
	// the origins. Nil: it is learned anew, which reads some hundred records of each
	// origin and asks for the commits of every group, and so is more than a check
	// each minute should do to a cluster. A check each minute passes the Survey of
	// an earlier plan and renews it once in a while. Of an origin that the survey
	// does not know nothing is told.
	Known *Survey

	now func() time.Time // For tests; nil: time.Now.
}

// Plan is the difference between the topics as they are and as the ladders need
// them, with whatever else stands in the way of forwarding. It is a value: it
// renders as text with [Plan.WriteText] and as JSON with encoding/json.
type Plan struct {
	Topics []TopicPlan `json:"topics"`
	// Samples say how the keys on the origins are partitioned.
	Samples []Sample `json:"samples,omitempty"`
	// Retired are topics that the ladders no longer name and the group still drains.
	Retired []Retired `json:"retired,omitempty"`
	// Others are the problems that are of none of the topics above.
	Others []Problem `json:"problems,omitempty"`

	// Survey is for the next Preflight, as Known.
	Survey *Survey `json:"-"`
}

// TopicPlan is the part of a plan that concerns one topic.
type TopicPlan struct {
	Topic string `json:"topic"`
	Role  Role   `json:"role"`
	// Tier is the name of the tier, for a tier topic.
	Tier string `json:"tier,omitempty"`
	// Origins are the origins the topic serves: one, unless ladders share it.
	Origins []string `json:"origins"`
	Action  Action   `json:"action"`
	// Partitions and Replication are those of the topic, or those it will be
	// created with; 0 if not known.
	Partitions  int32 `json:"partitions"`
	Replication int16 `json:"replication"`
	// Settings are those a topic is created with.
	Settings map[string]string `json:"settings,omitempty"`
	// Changes are what apply raises on a topic that exists.
	Changes []Change `json:"changes,omitempty"`
	// Problems are what is wrong with the topic now.
	Problems []Problem `json:"problems,omitempty"`
}

// Change is one value that is raised: a setting by its Kafka name, or "partitions".
type Change struct {
	Setting string `json:"setting"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// Problem is one thing wrong with one topic, with the group or with the cluster.
type Problem struct {
	Code issue.Code `json:"code"`
	// Severity is that of the code.
	Severity issue.Severity `json:"severity"`
	// Topic is empty where the problem is not one of a topic.
	Topic string `json:"topic"`
	// Role is that of the topic; empty if it is none of the ladders'.
	Role Role `json:"role,omitempty"`
	// Message is a sentence that says what is the case and what goes wrong by it.
	Message string `json:"message"`
	// Remedy is a command, or a sentence where no command can do it.
	Remedy string `json:"remedy"`
	// FixedByApply reports whether applying the plan ends the problem.
	FixedByApply bool `json:"fixedByApply"`
}

// LosesRecords reports whether forwarding in spite of the problem would lose
// records: this alone refuses a start. A missing origin or return topic loses
// nothing, because its records wait in their tiers.
func (p Problem) LosesRecords() bool {
	if p.Role == RoleTrigger || p.Role == RoleTarget {
		return false // Nothing that is forwarded passes there.
	}
	switch p.Code {
	case issue.Compacted, issue.RetentionBelowDelay, issue.TwoRoles:
		return true
	case issue.TopicMissing:
		return p.Role != RoleReturn
	default:
		return false
	}
}

// applyCommand is the remedy of everything that apply takes care of.
const applyCommand = "forwarder topics apply"

// MakePlan looks at the topics of all ladders, at what this principal may do with
// them, at its group, at the clocks, and at who else uses the origins, and
// compares. It changes nothing, and tries no permission by writing. The client
// must be one without a group; a second one with its options, which lives no longer
// than the call, reads the few records that have to be looked at.
//
// The error is that of a request for the topics that no broker answered. Whatever
// is wrong with a topic, being unreadable included, is a problem in the plan.
// Anything else that the brokers do not tell, because they are too old or this
// principal may not ask, is not held against anyone: nothing is said about it.
//
// MakePlan blocks for as long as the requests for the topics take, and at most
// some 20 seconds longer for everything else.
func MakePlan(ctx context.Context, client *kgo.Client, p Preflight) (*Plan, error) {
	ladders, by := p.Ladders, byForwarder
	if p.Replayer {
		by = byReplayer
	}
	names := make([]string, 0, len(ladders))
	for _, w := range wants(ladders, nil, by) {
		names = append(names, w.topic)
	}
	plan := &Plan{Topics: []TopicPlan{}, Survey: &Survey{}}
	if len(names) == 0 {
		return plan, nil
	}
	topics, err := describeAllowed(ctx, client, names)
	if err != nil {
		return nil, err
	}
	readable := slices.DeleteFunc(slices.Clone(names), func(t string) bool { return topics[t].err != nil })
	configs, err := describeConfigs(ctx, client, readable)
	if err != nil {
		return nil, err
	}

	origins := make(map[string]originState, len(ladders))
	for _, l := range ladders {
		origins[l.Origin] = newOriginState(topics[l.Origin], configs[l.Origin])
	}
	seeds, _ := client.OptValue(kgo.SeedBrokers).([]string)
	in := cluster{
		client:    client,
		bootstrap: strings.Join(seeds, ","),
		principal: p.Principal,
		brokers:   len(client.DiscoveredBrokers()),
		topics:    topics,
		configs:   configs,
		now:       p.now,
		only:      p.TopicsOnly,
	}
	if in.principal == "" {
		in.principal = "User:NAME"
	}
	if in.now == nil {
		in.now = time.Now
	}
	for _, w := range wants(ladders, origins, by) {
		c := check{
			cluster: in,
			want:    w,
			topic:   topics[w.topic],
			config:  configs[w.topic],
			origins: origins,
		}
		plan.Topics = append(plan.Topics, c.plan())
	}
	if !p.TopicsOnly {
		in.survey(ctx, plan, p)
	}
	return plan, nil
}

// cluster is what a plan is made of: the client, and what the brokers said of the
// topics of the ladders.
type cluster struct {
	client    *kgo.Client
	bootstrap string
	principal string
	brokers   int
	topics    map[string]topicDescription
	configs   map[string]topicConfig
	now       func() time.Time
	only      bool // the topics, and nothing else
}

// extraTime bounds everything that a plan asks beyond the topics.
const extraTime = 20 * time.Second

// survey adds to a plan what is not in the descriptions of the topics.
func (in cluster) survey(ctx context.Context, plan *Plan, p Preflight) {
	ctx, cancel := context.WithTimeout(ctx, extraTime)
	defer cancel()
	if p.Known != nil {
		plan.Survey = p.Known
	} else {
		plan.Survey = in.ask(ctx, p)
	}
	if !p.Replayer {
		in.sharedOrigins(plan, p.Ladders)
	}
	in.samples(plan, p.Ladders)
	in.clocks(ctx, plan)
	switch {
	case p.Group == "":
	case p.Replayer:
		in.replayerGroup(ctx, plan, p.Group)
	default:
		in.group(ctx, plan, p.Group)
		in.retired(ctx, plan, p.Group)
	}
}

// Survey is what a plan learned of other groups and of the records on the origins.
// It is not changed once it is made.
type Survey struct {
	// At is when it was made.
	At time.Time

	samples map[string]Sample   // by origin
	groups  map[string][]string // by origin: those with commits there
}

// ask makes a survey.
func (in cluster) ask(ctx context.Context, p Preflight) *Survey {
	s := &Survey{At: in.now(), samples: in.sampleOrigins(ctx, p.Ladders)}
	if !p.Replayer {
		s.groups = in.groupsOn(ctx, p)
	}
	return s
}

// problem makes a problem of a code.
func problem(code issue.Code, topic, remedy, format string, args ...any) Problem {
	return Problem{
		Code:         code,
		Severity:     code.Severity(),
		Topic:        topic,
		Message:      fmt.Sprintf(format, args...),
		Remedy:       remedy,
		FixedByApply: remedy == applyCommand,
	}
}

// add puts a problem to its topic, or to the others.
func (p *Plan) add(problem Problem) {
	for i := range p.Topics {
		if t := &p.Topics[i]; t.Topic == problem.Topic {
			problem.Role = t.Role
			t.Problems = append(t.Problems, problem)
			return
		}
	}
	p.Others = append(p.Others, problem)
}

// Changed reports whether applying the plan would change anything.
func (p *Plan) Changed() bool {
	return p.count(ActionCreate)+p.count(ActionChange) > 0
}

// Problems returns all problems, errors first and then warnings, and otherwise in
// the order of the topics.
func (p *Plan) Problems() []Problem {
	var all []Problem
	for _, severity := range []issue.Severity{issue.SeverityError, issue.SeverityWarning, issue.SeverityInfo} {
		p.EachProblem(func(problem *Problem) {
			if problem.Severity == severity {
				all = append(all, *problem)
			}
		})
	}
	return all
}

// EachProblem calls each with every problem, which it may change.
func (p *Plan) EachProblem(each func(*Problem)) {
	for i := range p.Topics {
		for j := range p.Topics[i].Problems {
			each(&p.Topics[i].Problems[j])
		}
	}
	for i := range p.Others {
		each(&p.Others[i])
	}
}

func (p *Plan) count(action Action) int {
	n := 0
	for _, t := range p.Topics {
		if t.Action == action {
			n++
		}
	}
	return n
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
