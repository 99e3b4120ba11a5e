package kafka

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Ladder names the topics of one entry of topics.yaml.
type Ladder struct {
	// Origin is where the records come from. It belongs to its producers and
	// consumers: it is read to learn what its ladder must be like, and never
	// created or altered.
	Origin string
	// ReturnTo is where records that are due go. Empty, or equal to Origin: back
	// to the origin. A return topic of its own is created like the origin if it is
	// missing, and never altered.
	ReturnTo string
	// Inbox, Tiers and DeadLetters are Redrive's own.
	Inbox       string
	Tiers       []Tier
	DeadLetters string
	// ReplayTrigger is where records ask for replays of the dead letters. Empty: there
	// is none.
	ReplayTrigger string
	// ReplayTo and ReplyTo are further topics that the dlt-replayer writes copies and
	// answers to. They are never created or altered.
	ReplayTo, ReplyTo []string
	// Partitioner is the one that the file names for the origin's producers. Empty:
	// it is not compared with what the keys on the origin fit.
	Partitioner Partitioner
}

// returnsTo is the topic that records return to.
func (l Ladder) returnsTo() string { return cmp.Or(l.ReturnTo, l.Origin) }

// Tier is one step of a ladder.
type Tier struct {
	Name          string
	Topic         string
	Delay, Jitter time.Duration
}

// Role says what a topic is for.
type Role string

// The roles of a topic.
const (
	RoleOrigin      Role = "origin"
	RoleReturn      Role = "return"
	RoleInbox       Role = "inbox"
	RoleTier        Role = "tier"
	RoleDeadLetters Role = "dead letters"
	RoleTrigger     Role = "replay trigger"
	// RoleTarget is a topic that the dlt-replayer writes to, and that is none of
	// Redrive's.
	RoleTarget Role = "replay target"
)

// Names of topic settings.
const (
	cleanupPolicy   = "cleanup.policy"
	retentionMs     = "retention.ms"
	retentionBytes  = "retention.bytes"
	timestampType   = "message.timestamp.type"
	maxMessageBytes = "max.message.bytes"
	minInsync       = "min.insync.replicas"
	uncleanElection = "unclean.leader.election.enable"

	// partitionCount is not a setting of Kafka, but it changes like one.
	partitionCount = "partitions"
)

const logAppendTime = "LogAppendTime"

const (
	day = 24 * time.Hour

	// A record must outlive its wait in a tier and then some time without a
	// forwarder. A topic that keeps it less than outageMargin beyond the wait is
	// raised; a new one, or one that is raised, gets room for a whole second wait
	// on top (a tail copy starts anew, a record hopping here from a longer wish
	// does too) and at least what Kafka gives everybody, a week.
	outageMargin     = day
	waitingRetention = 7 * day

	// Dead letters wait for people. A month is one holiday and the reading of the
	// alert after it; less than a week is not even one absence, and is raised. For
	// ever (-1) is a fine choice as well, but not one to make for somebody else's
	// disks.
	leastDeadLetters     = 7 * day
	deadLettersRetention = 30 * day

	// A trigger is done within seconds where a dlt-replayer runs. One of yesterday
	// is not what anybody still waits for.
	triggerRetention = day

	// headerRoom is what Redrive's headers may add to a record that was as large
	// as its origin allows.
	headerRoom = 16 << 10
)

// unlimited is the value of a setting that sets no limit.
const unlimited = -1

// wait returns how long a record may have to stay in the tier: its delay and all
// of its jitter.
func (t Tier) wait() time.Duration { return t.Delay + t.Jitter }

// want is what Redrive needs of one topic. Zero values are not asked for.
type want struct {
	topic   string
	roles   []Role // One, or the mistake of topics.yaml that plan reports.
	tier    string
	origins []string

	wait        time.Duration // How long a record stays by intent.
	partitions  int32         // The origin's.
	replication int16         // The origin's.

	leastRetention time.Duration // Less is raised.
	retention      int64         // What a new topic gets, and one that is raised; milliseconds, -1 for ever.
	messageBytes   int64         // At least.
	minInsync      int64         // At least.

	operations []kmsg.ACLOperation // What the process does with the topic, beside describing it.
}

// user is the process that a plan is made for.
type user int

const (
	byForwarder user = iota
	byReplayer
)

// only returns the operations if it is of that does them.
func (u user) only(of user, operations ...kmsg.ACLOperation) []kmsg.ACLOperation {
	if u != of {
		return nil
	}
	return operations
}

func (w *want) role() Role { return w.roles[0] }

// wants returns what the topics of all ladders must be like, in the order of the
// ladders and of a record's life. A topic that several ladders share must be fit
// for each of them. origins holds what is known of the origin topics. For the
// dlt-replayer they are the topics that it reads and writes.
func wants(ladders []Ladder, origins map[string]originState, by user) []*want {
	var all []*want
	byTopic := make(map[string]*want)
	add := func(w want) {
		if w.topic == "" {
			return
		}
		if known := byTopic[w.topic]; known != nil {
			known.merge(w)
			return
		}
		byTopic[w.topic] = &w
		all = append(all, &w)
	}
	// What records, or copies of dead letters, are written to. Who takes a replay over
	// looks there for the copy first.
	copied := []kmsg.ACLOperation{kmsg.ACLOperationWrite}
	if by == byReplayer {
		copied = []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite}
	}
	// Origins first, so that a topic which is one is never taken for anything that
	// may be created or altered.
	for _, l := range ladders {
		origin := want{topic: l.Origin, roles: []Role{RoleOrigin}, origins: []string{l.Origin}}
		if l.returnsTo() == l.Origin {
			origin.operations = slices.Clone(copied)
		}
		add(origin)
	}
	for _, l := range ladders {
		origin := origins[l.Origin]
		of := want{
			origins:      []string{l.Origin},
			partitions:   origin.partitions,
			replication:  origin.replication,
			minInsync:    origin.minInsync,
			messageBytes: min(origin.messageBytes+headerRoom, math.MaxInt32),
		}
		if origin.messageBytes == 0 {
			of.messageBytes = 0
		}
		waiting := func(topic string, role Role, tier string, wait time.Duration) {
			w := of
			w.topic, w.roles, w.tier, w.wait = topic, []Role{role}, tier, wait
			w.operations = []kmsg.ACLOperation{kmsg.ACLOperationRead}
			if role == RoleTier {
				w.operations = append(w.operations, kmsg.ACLOperationWrite)
			}
			w.leastRetention = wait + outageMargin
			w.retention = max(waitingRetention, 2*wait+outageMargin).Milliseconds()
			add(w)
		}
		if l.returnsTo() != l.Origin {
			w := of
			w.topic, w.roles = l.ReturnTo, []Role{RoleReturn}
			w.retention = origin.retention
			w.operations = slices.Clone(copied)
			add(w)
		}
		if by == byForwarder {
			waiting(l.Inbox, RoleInbox, "", 0)
			for _, tier := range l.Tiers {
				waiting(tier.Topic, RoleTier, tier.Name, tier.wait())
			}
		}
		w := of
		w.topic, w.roles = l.DeadLetters, []Role{RoleDeadLetters}
		w.leastRetention = leastDeadLetters
		w.retention = deadLettersRetention.Milliseconds()
		w.operations = []kmsg.ACLOperation{kmsg.ACLOperationWrite}
		if by == byReplayer {
			w.operations = []kmsg.ACLOperation{kmsg.ACLOperationRead}
		}
		add(w)
		w = of
		w.topic, w.roles = l.ReplayTrigger, []Role{RoleTrigger}
		w.messageBytes = 0 // It takes keys and no values.
		w.retention = triggerRetention.Milliseconds()
		w.operations = by.only(byReplayer, kmsg.ACLOperationRead)
		add(w)
	}
	if by == byReplayer {
		// Last, so that one which has another use is that.
		for _, l := range ladders {
			for _, topic := range l.ReplayTo {
				add(want{topic: topic, roles: []Role{RoleTarget}, origins: []string{l.Origin}, operations: slices.Clone(copied)})
			}
			for _, topic := range l.ReplyTo {
				add(want{topic: topic, roles: []Role{RoleTarget}, origins: []string{l.Origin}, operations: []kmsg.ACLOperation{kmsg.ACLOperationWrite}})
			}
		}
	}
	return all
}

// merge makes w fit for what other needs as well.
func (w *want) merge(other want) {
	for _, role := range other.roles {
		// A return topic that is also the origin of another entry is an origin, and who
		// else writes to a topic does not change what it is.
		if !slices.Contains(w.roles, role) && role != RoleTarget && (role != RoleReturn || w.role() != RoleOrigin) {
			w.roles = append(w.roles, role)
		}
	}
	for _, origin := range other.origins {
		if !slices.Contains(w.origins, origin) {
			w.origins = append(w.origins, origin)
		}
	}
	for _, operation := range other.operations {
		if !slices.Contains(w.operations, operation) {
			w.operations = append(w.operations, operation)
		}
	}
	if w.tier == "" {
		w.tier = other.tier
	}
	w.wait = max(w.wait, other.wait)
	w.partitions = max(w.partitions, other.partitions)
	w.replication = max(w.replication, other.replication)
	w.minInsync = max(w.minInsync, other.minInsync)
	w.messageBytes = max(w.messageBytes, other.messageBytes)
	w.leastRetention = max(w.leastRetention, other.leastRetention)
	w.retention = longer(w.retention, other.retention)
}

// longer returns the longer of two values of retention.ms.
func longer(a, b int64) int64 {
	if a < 0 || b < 0 {
		return unlimited
	}
	return max(a, b)
}

// settings returns the configuration of the topic if it must be created.
func (w *want) settings() map[string]string {
	s := map[string]string{
		cleanupPolicy:  "delete",
		retentionBytes: strconv.Itoa(unlimited),
		timestampType:  logAppendTime,
	}
	if w.retention != 0 {
		s[retentionMs] = strconv.FormatInt(w.retention, 10)
	}
	if w.messageBytes != 0 {
		s[maxMessageBytes] = strconv.FormatInt(w.messageBytes, 10)
	}
	if acks := w.acknowledgements(); acks != 0 {
		s[minInsync] = strconv.FormatInt(acks, 10)
	}
	return s
}

// acknowledgements returns min.insync.replicas of the topic if it must be created:
// the origin's, but with three replicas and more at least two. While a record waits
// its only copy is here, and one broker must not be enough to lose it. A return
// topic is like the origin.
func (w *want) acknowledgements() int64 {
	if w.minInsync == 1 && w.replication >= 3 && w.role() != RoleReturn {
		return 2
	}
	return w.minInsync
}

// originState is what the ladder of an origin takes from it. Zero: not known.
type originState struct {
	partitions   int32
	replication  int16
	minInsync    int64
	messageBytes int64
	retention    int64
}

// newOriginState reads the state from what the brokers said.
func newOriginState(d topicDescription, c topicConfig) originState {
	if d.err != nil {
		return originState{}
	}
	o := originState{partitions: d.count(), replication: d.replicas()}
	o.minInsync, _ = c.number(minInsync)
	o.messageBytes, _ = c.number(maxMessageBytes)
	o.retention, _ = c.number(retentionMs)
	return o
}

// number returns the value of a numeric setting, and whether the brokers told it.
func (c topicConfig) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(c.values[name], 10, 64)
	return n, err == nil
}

// policies returns the words of cleanup.policy.
func (c topicConfig) policies() []string {
	return strings.FieldsFunc(c.values[cleanupPolicy], func(r rune) bool { return r == ',' || r == ' ' })
}
