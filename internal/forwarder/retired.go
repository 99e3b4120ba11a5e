package forwarder

import (
	"context"
	"slices"
	"strings"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

// findRetired finds the topics that were taken out of the configuration and
// still hold records, by the commits of the group, and has them read as well, so
// that their records come back. It blocks until the brokers have answered.
func (f *Forwarder) findRetired(ctx context.Context) {
	commits, err := fetchCommits(ctx, f.admin, f.opts.Group)
	if err != nil {
		f.log.WarnContext(ctx, "the group's commits are not known; topics that were taken out of the configuration are not drained", "err", err)
		return
	}
	var names []string
	for topic, partitions := range commits {
		if f.routes[topic] != nil {
			continue
		}
		for _, o := range partitions {
			if kafka.HasCommitMark(o.Metadata) {
				names = append(names, topic)
				break
			}
		}
	}
	if len(names) == 0 {
		return
	}
	topics, err := f.admin.ListTopics(ctx, names...)
	if err != nil {
		f.log.WarnContext(ctx, "topics that were taken out of the configuration can not be described and are not drained", "err", err)
		return
	}
	slices.Sort(names)
	for _, topic := range names {
		if !topics.Has(topic) || f.isOutlet(topic) {
			continue
		}
		in := &inlet{topic: topic, tier: retiredTier, maxHeld: f.opts.MaxHeldBytesPerPartition}
		for _, o := range commits[topic] {
			if count, _, err := parseMetadata(o.Metadata, o.At); err == nil && count > 0 {
				in.tier = retiredInbox
			}
		}
		f.routes[topic] = in
		f.metrics.add(in, nil)
		f.counts.Add(topic)
		f.log.InfoContext(ctx, "a topic that was taken out of the configuration is drained", "topic", topic)
	}
}

// isOutlet tells whether a topic is written. Such a one must not be read.
func (f *Forwarder) isOutlet(topic string) bool {
	return slices.ContainsFunc(f.outlets, func(o *outlet) bool { return o.topic == topic })
}

// routeOf is the entry of the configuration that a record belongs to. That of a
// retired topic says so by its original topic, and its group where several
// entries share an origin; without such a header the names of the topics tell.
// It is nil if there is none.
func (in *inlet) routeOf(f *Forwarder, e *envelope.Envelope) *route {
	if in.route != nil {
		return in.route
	}
	var best *route
	bestFit := -1
	for _, r := range f.ladders {
		origin := r.policy.Origin()
		switch {
		case e.OriginalTopic != nil:
			if o := string(e.OriginalTopic); o != origin && o != r.policy.ReturnTo() {
				continue
			}
		case !strings.HasPrefix(in.topic, origin+".") && !strings.HasPrefix(in.topic, origin+"-") && !strings.HasPrefix(in.topic, origin+"_"):
			continue
		}
		fit := common(in.topic, r.policy.Inbox())
		if r.group != "" && string(e.Value(envelope.HeaderGroup)) == r.group {
			fit += 1 << 16
		}
		if fit > bestFit {
			best, bestFit = r, fit
		}
	}
	return best
}

// common is the length of the common prefix of two names.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
