package forwarder

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/ordering"
)

const (
	// revokeLimit bounds how long a revoke waits for acknowledgements. The group
	// waits meanwhile, and expels a member that takes longer than the rebalance
	// timeout (60 s).
	revokeLimit = 10 * time.Second
	// offsetsRetention is offsets.retention.minutes of a broker by default.
	offsetsRetention = 7 * 24 * time.Hour
)

// onAssigned decides where each assigned partition starts: at its commit, or,
// for a group that is plainly new, at the beginning. Anything else would be a
// silent reset, which loses or repeats records: such a partition is not read
// and an issue says so.
func (f *Forwarder) onAssigned(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	select {
	case <-f.joined:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if len(offsets) == 0 {
		return offsets, nil
	}
	view, err := f.survey(ctx, offsets)
	if err != nil {
		f.log.WarnContext(ctx, "the start offsets are not known, the group is joined again", "err", err)
		return nil, err
	}
	var sources, blocked []*source
	for topic, partitions := range offsets {
		for partition := range partitions {
			s, start, err := f.start(ctx, view, topic, partition)
			if err != nil {
				return nil, err
			}
			s.topicID = view.topics[topic].ID
			sources = append(sources, s)
			if s.blocked != "" {
				blocked = append(blocked, s)
			}
			partitions[partition] = kgo.NewOffset().At(start)
		}
	}
	if len(blocked) > 0 {
		f.consumer.PauseFetchPartitions(partitionsOf(blocked))
	}
	ok := f.loop.do(func() {
		f.loop.commit.confirmed = f.loop.now
		for _, s := range sources {
			f.loop.add(s)
		}
	})
	if !ok {
		return nil, context.Canceled
	}
	f.metrics.rebalances.WithLabelValues("assigned").Inc()
	f.log.InfoContext(ctx, "partitions assigned", "count", len(sources), "blocked", len(blocked))
	return offsets, nil
}

// survey is what the brokers say of the partitions that were assigned.
type survey struct {
	topics      kadm.TopicDetails
	commits     kadm.OffsetResponses
	start, end  kadm.ListedOffsets
	otherGroups map[string]map[int32]string // by partition: a group with a commit there
	retention   time.Duration
	asked       bool // otherGroups and retention are known
}

func (f *Forwarder) survey(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (*survey, error) {
	var topics []string
	for topic := range offsets {
		topics = append(topics, topic)
	}
	v := &survey{}
	var err error
	if v.topics, err = f.admin.ListTopics(ctx, topics...); err != nil {
		return nil, fmt.Errorf("describe the topics: %w", err)
	}
	if v.commits, err = f.admin.FetchOffsetsForTopics(ctx, f.opts.Group, topics...); err != nil {
		return nil, fmt.Errorf("fetch the commits of group %s: %w", f.opts.Group, err)
	}
	if v.start, err = f.admin.ListStartOffsets(ctx, topics...); err != nil {
		return nil, fmt.Errorf("list the start offsets: %w", err)
	}
	if v.end, err = f.admin.ListEndOffsets(ctx, topics...); err != nil {
		return nil, fmt.Errorf("list the end offsets: %w", err)
	}
	return v, nil
}

// start makes the source of one assigned partition and says where to read.
func (f *Forwarder) start(ctx context.Context, v *survey, topic string, partition int32) (*source, int64, error) {
	in := f.routes[topic]
	commit, ok := v.commits.Lookup(topic, partition)
	if ok && commit.Err != nil {
		return nil, 0, fmt.Errorf("fetch the commit of %s/%d: %w", topic, partition, commit.Err)
	}
	first, _ := v.start.Lookup(topic, partition)
	last, _ := v.end.Lookup(topic, partition)
	if first.Err != nil || last.Err != nil {
		return nil, 0, fmt.Errorf("list the offsets of %s/%d: %w", topic, partition, firstOf(first.Err, last.Err))
	}
	count, _ := f.originPartitions(in)

	if ok && commit.At >= 0 {
		stored, done, err := parseMetadata(commit.Metadata, commit.At)
		if err != nil {
			f.log.WarnContext(ctx, "the metadata of a commit is not ours and is ignored",
				"topic", topic, "partition", partition, "offset", commit.At, "err", err)
		}
		if stored > 0 {
			count = stored
		}
		at := commit.At
		if at < first.Offset && done.Cover(at, first.Offset) {
			at = first.Offset // Retention took only what is finished.
			done = done.Above(at)
		}
		s := newSource(in, partition, ordering.New[record](at, done))
		s.originPartitions, s.committed = count, commit.At
		if at < first.Offset || at > last.Offset {
			s.blocked, s.undecided = issue.OffsetOutOfRange, true
			s.detail = fmt.Sprintf("the commit stands at %d, the topic holds %d to %d", commit.At, first.Offset, last.Offset)
			s.lostBefore = max(0, first.Offset-at)
		}
		s.report(f)
		return s, at, nil
	}

	// The watermark of a source without a commit is dirty from the start: a
	// partition whose records all wait must not look new after a crash.
	s := newSource(in, partition, ordering.New[record](first.Offset, nil))
	s.originPartitions, s.fresh = count, true
	if first.Offset != last.Offset {
		why, err := f.notNew(ctx, v, topic, partition, first.Offset)
		if err != nil {
			return nil, 0, err
		}
		if why != "" {
			s.blocked, s.undecided, s.detail = issue.OffsetMissing, true, why
		}
	}
	s.report(f)
	return s, first.Offset, nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// report logs why a source is blocked.
func (s *source) report(f *Forwarder) {
	if s.blocked == "" {
		return
	}
	f.log.Error("a partition is not read until an operator sets its offset",
		"topic", s.inlet.topic, "partition", s.partition, "issue", string(s.blocked), "detail", s.detail)
}

// notNew says why a partition without a commit does not look like that of a new
// group; "" if it does. A commit may be gone because it expired, or the group's
// name may be mistyped: to begin at the start would send everything again.
func (f *Forwarder) notNew(ctx context.Context, v *survey, topic string, partition int32, first int64) (string, error) {
	if first > 0 {
		return fmt.Sprintf("the group has no commit and the topic begins at offset %d, so that it is older than the group", first), nil
	}
	if !v.asked {
		f.askAround(ctx, v)
	}
	if group := v.otherGroups[topic][partition]; group != "" {
		return fmt.Sprintf("the group has no commit, but group %q has one", group), nil
	}
	young, err := f.admin.ListOffsetsAfterMilli(ctx, time.Now().Add(-v.retention).UnixMilli(), topic)
	if err != nil {
		return "", fmt.Errorf("list the offsets of %s by time: %w", topic, err)
	}
	if o, ok := young.Lookup(topic, partition); ok && o.Err == nil && o.Offset > first {
		return fmt.Sprintf("the group has no commit and the oldest record is older than commits are kept (%s)", v.retention), nil
	}
	return "", nil
}

// askAround learns what notNew needs of the cluster, once for an assignment.
// What may not be asked for is not held against the group.
func (f *Forwarder) askAround(ctx context.Context, v *survey) {
	v.asked = true
	v.retention = f.retentionOfOffsets(ctx)
	v.otherGroups = map[string]map[int32]string{}
	groups, err := f.admin.ListGroups(ctx)
	if err != nil {
		f.log.WarnContext(ctx, "other groups can not be listed", "err", err)
		return
	}
	var names []string
	for _, g := range groups.Groups() {
		if g != f.opts.Group && g != kafka.DecisionGroup(f.opts.Group) {
			names = append(names, g)
		}
	}
	for group, response := range f.admin.FetchManyOffsets(ctx, names...) {
		if response.Err != nil {
			continue
		}
		response.Fetched.Each(func(o kadm.OffsetResponse) {
			if f.routes[o.Topic] == nil || o.At < 0 {
				return
			}
			if v.otherGroups[o.Topic] == nil {
				v.otherGroups[o.Topic] = map[int32]string{}
			}
			v.otherGroups[o.Topic][o.Partition] = group
		})
	}
}

func (f *Forwarder) retentionOfOffsets(ctx context.Context) time.Duration {
	brokers, err := f.admin.ListBrokers(ctx)
	if err != nil || len(brokers) == 0 {
		return offsetsRetention
	}
	configs, err := f.admin.DescribeBrokerConfigs(ctx, brokers[0].NodeID)
	if err != nil {
		return offsetsRetention
	}
	for _, c := range configs {
		for _, entry := range c.Configs {
			if entry.Key != "offsets.retention.minutes" {
				continue
			}
			if n, err := strconv.Atoi(entry.MaybeValue()); err == nil && n > 0 {
				return time.Duration(n) * time.Minute
			}
		}
	}
	return offsetsRetention
}

// onRevoked hands partitions over: stop, wait for what is in flight, commit,
// forget. The next owner starts when it returns.
func (f *Forwarder) onRevoked(ctx context.Context, consumer *kgo.Client, revoked map[string][]int32) {
	if len(revoked) == 0 {
		return // A cooperative rebalance that takes nothing from us.
	}
	var sources []*source
	var idle chan struct{}
	patience := revokeLimit
	if !f.loop.do(func() {
		if !f.loop.releasing {
			patience = 0 // drain has waited already.
		}
		if sources = f.loop.find(revoked); len(sources) > 0 {
			idle = f.loop.stopReleasing(sources)
		}
	}) {
		return
	}
	if idle != nil {
		if !awaitIdle(idle, patience) {
			f.log.WarnContext(ctx, "records in flight were not acknowledged before the partitions were given up; the next owner sends them again")
		}
		commit, cancel := context.WithTimeout(ctx, revokeLimit)
		defer cancel()
		f.commitAll(commit, sources)
		f.loop.do(func() {
			for _, s := range sources {
				f.loop.drop(s)
			}
		})
	}
	// A pause outlives the assignment.
	consumer.ResumeFetchPartitions(revoked)
	f.metrics.rebalances.WithLabelValues("revoked").Inc()
	f.log.InfoContext(ctx, "partitions revoked", "count", len(sources))
}

// awaitIdle reports whether idle is closed, or gets so within patience.
func awaitIdle(idle <-chan struct{}, patience time.Duration) bool {
	select {
	case <-idle:
		return true
	default:
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-idle:
		return true
	case <-limit.C:
		return false
	}
}

// onLost drops partitions that may already have another owner: nothing is
// committed for them.
func (f *Forwarder) onLost(ctx context.Context, consumer *kgo.Client, lost map[string][]int32) {
	if len(lost) == 0 {
		return
	}
	// A commit under way must not end up under the next generation.
	f.commits <- struct{}{}
	defer func() { <-f.commits }()
	f.loop.do(func() {
		for _, s := range f.loop.find(lost) {
			f.loop.drop(s)
		}
	})
	consumer.ResumeFetchPartitions(lost)
	f.metrics.rebalances.WithLabelValues("lost").Inc()
	f.log.WarnContext(ctx, "partitions lost: the group does not answer, or went on without this member", "topics", len(lost))
}

func (l *loop) find(partitions map[string][]int32) []*source {
	var found []*source
	for topic, numbers := range partitions {
		for _, n := range numbers {
			if s := l.sources[topic][n]; s != nil {
				found = append(found, s)
			}
		}
	}
	return found
}
