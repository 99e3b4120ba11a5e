package fetch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// trust is how long what is known of a topic may be used unasked. Errors end it at once.
const trust = 10 * time.Second

// Topic is what the cluster says of a topic now.
type Topic struct {
	ID         deadletter.TopicID
	Partitions int32
	// Err is why nothing else is known: kerr.UnknownTopicOrPartition of one that does not exist.
	Err error
}

// topicState is a Topic with the leaders of its partitions, -1 where there is none.
type topicState struct {
	Topic
	leaders []int32
	asked   time.Time
}

// leader is the broker that is asked about a partition. Why says that there is nothing to ask for.
func (t topicState) leader(p part) (node int32, why Why, err error) {
	none := deadletter.TopicID{}
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition), errors.Is(t.Err, kerr.UnknownTopicID):
		return 0, TopicDeleted, nil
	case t.Err != nil:
		return 0, "", t.Err
	case p.id != none && t.ID != none && p.id != t.ID:
		return 0, TopicRecreated, nil
	case int(p.partition) >= len(t.leaders) || p.partition < 0:
		return 0, AboveEnd, nil
	case t.leaders[p.partition] < 0:
		return 0, "", kerr.LeaderNotAvailable
	}
	return t.leaders[p.partition], "", nil
}

// Topics asks the cluster what it knows of topics. The error is that of the request.
func (f *Fetcher) Topics(ctx context.Context, names ...string) (map[string]Topic, error) {
	states, err := f.ask(ctx, names)
	if err != nil {
		return nil, err
	}
	topics := make(map[string]Topic, len(states))
	for name, state := range states {
		topics[name] = state.Topic
	}
	return topics, nil
}

// locate is Topics with leaders, and takes what is known if it is fresh.
func (f *Fetcher) locate(ctx context.Context, names []string) (map[string]topicState, error) {
	states := map[string]topicState{}
	missing := map[string]bool{}
	f.mu.Lock()
	for _, name := range names {
		if t, ok := f.topics[name]; ok && time.Since(t.asked) < trust {
			states[name] = t
		} else {
			missing[name] = true
		}
	}
	f.mu.Unlock()
	if len(missing) == 0 {
		return states, nil
	}
	asked, err := f.ask(ctx, slices.Sorted(maps.Keys(missing)))
	if err != nil {
		return nil, err
	}
	maps.Copy(states, asked)
	return states, nil
}

// forget makes the next locate ask.
func (f *Fetcher) forget(topic string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.topics, topic)
}

func (f *Fetcher) ask(ctx context.Context, names []string) (map[string]topicState, error) {
	states := make(map[string]topicState, len(names))
	if len(names) == 0 {
		return states, nil // An empty list in the request would mean all topics.
	}
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = false
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		request.Topics = append(request.Topics, t)
	}
	now := time.Now()
	response, err := request.RequestWith(ctx, f.client)
	if err != nil {
		return nil, fmt.Errorf("read topic metadata: %w", err)
	}
	for _, name := range names {
		states[name] = topicState{Topic: Topic{Err: errors.New("the brokers did not describe the topic")}}
	}
	for _, t := range response.Topics {
		if t.Topic == nil {
			continue
		}
		state := topicState{Topic: Topic{ID: t.TopicID, Partitions: int32(len(t.Partitions)), Err: kerr.ErrorForCode(t.ErrorCode)}, asked: now}
		state.leaders = slices.Repeat([]int32{-1}, len(t.Partitions))
		for _, p := range t.Partitions {
			if int(p.Partition) < len(state.leaders) && p.Partition >= 0 {
				state.leaders[p.Partition] = p.Leader
			}
		}
		states[*t.Topic] = state
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, state := range states {
		if state.Err == nil {
			f.topics[name] = state
		}
	}
	return states, nil
}

// ask is a read of one partition, answer what came of it.
type ask struct {
	part     part
	offset   int64
	maxBytes int32
}

type answer struct {
	records       []*kgo.Record
	next          int64 // behind what was read; the offset asked for if that was nothing
	highWatermark int64 // -1: not known
	stable        int64 // below it all is committed or aborted; -1: not known
	bytes         int
	err           error
}

// read asks one broker. The answers stand in the order of the asks.
func (f *Fetcher) read(ctx context.Context, node int32, committed bool, asks []ask) ([]answer, error) {
	request := kmsg.NewPtrFetchRequest()
	request.MinBytes, request.MaxWaitMillis, request.MaxBytes = 1, 250, 16<<20
	isolation := kgo.ReadUncommitted()
	if committed {
		isolation, request.IsolationLevel = kgo.ReadCommitted(), 1
	}
	at := map[string]int{}
	for _, a := range asks {
		i, ok := at[a.part.topic]
		if !ok {
			i = len(request.Topics)
			at[a.part.topic] = i
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = a.part.topic, a.part.id
			request.Topics = append(request.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = a.part.partition, a.offset, a.maxBytes
		request.Topics[i].Partitions = append(request.Topics[i].Partitions, p)
	}
	raw, err := f.client.Broker(int(node)).Request(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("fetch from broker %d: %w", node, err)
	}
	response, ok := raw.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("fetch from broker %d: the answer is a %T", node, raw)
	}
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return nil, fmt.Errorf("fetch from broker %d: %w", node, err)
	}
	answers := make([]answer, 0, len(asks))
	for _, a := range asks {
		answers = append(answers, answer{next: a.offset, highWatermark: -1, stable: -1, err: errors.New("the broker did not answer for the partition")})
	}
	for _, t := range response.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			n := slices.IndexFunc(asks, func(a ask) bool {
				return a.part.partition == p.Partition && (a.part.topic == t.Topic || t.Topic == "" && a.part.id == t.TopicID)
			})
			if n >= 0 {
				answers[n] = f.decode(asks[n], isolation, p)
			}
		}
	}
	return answers, nil
}

func (f *Fetcher) decode(a ask, isolation kgo.IsolationLevel, p *kmsg.FetchResponseTopicPartition) answer {
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return answer{next: a.offset, highWatermark: -1, stable: -1, err: err}
	}
	opts := kgo.ProcessFetchPartitionOpts{Offset: a.offset, IsolationLevel: isolation, Topic: a.part.topic, Partition: a.part.partition}
	read, next := kgo.ProcessFetchPartition(opts, p, f.inflow, nil)
	if next > a.offset {
		read.Err = nil // What could be read counts; the next request begins behind it and meets the error.
	}
	return answer{records: read.Records, next: next, highWatermark: p.HighWatermark, stable: p.LastStableOffset, bytes: len(p.RecordBatches), err: read.Err}
}

func isOutOfRange(err error) bool { return errors.Is(err, kerr.OffsetOutOfRange) }

// Partition is one partition of a topic.
type Partition struct {
	Topic     string
	Partition int32
}

// Starts lists where the logs of partitions begin, Ends where the next record will lie: their high watermarks. One
// partition that can not be listed fails the call.
func (f *Fetcher) Starts(ctx context.Context, partitions []Partition) (map[Partition]int64, error) {
	return f.list(ctx, partitions, -2)
}

// Ends is described at Starts.
func (f *Fetcher) Ends(ctx context.Context, partitions []Partition) (map[Partition]int64, error) {
	return f.list(ctx, partitions, -1)
}

// list asks the leaders. It does so itself, because the client's own way remembers for seconds that a topic was missing.
func (f *Fetcher) list(ctx context.Context, partitions []Partition, timestamp int64) (map[Partition]int64, error) {
	names := map[string]bool{}
	for _, p := range partitions {
		names[p.Topic] = true
	}
	topics, err := f.locate(ctx, slices.Sorted(maps.Keys(names)))
	if err != nil {
		return nil, err
	}
	byLeader := map[int32][]Partition{}
	wanted := map[Partition]bool{}
	for _, p := range partitions {
		if wanted[p] {
			continue
		}
		wanted[p] = true
		state := topics[p.Topic]
		leader, why, err := state.leader(part{state.ID, p.Topic, p.Partition})
		if err == nil && why != "" {
			err = kerr.UnknownTopicOrPartition
		}
		if err != nil {
			f.forget(p.Topic)
			return nil, fmt.Errorf("list the offsets of %s/%d: %w", p.Topic, p.Partition, err)
		}
		byLeader[leader] = append(byLeader[leader], p)
	}
	offsets := make(map[Partition]int64, len(partitions))
	var mu sync.Mutex
	var group sync.WaitGroup
	var errs []error
	for leader, asked := range byLeader {
		group.Go(func() {
			err := f.listFrom(ctx, leader, asked, timestamp, func(p Partition, offset int64) {
				mu.Lock()
				defer mu.Unlock()
				offsets[p] = offset
			})
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	group.Wait()
	err = errors.Join(errs...)
	if err == nil && len(offsets) < len(wanted) {
		err = errors.New("list offsets: the brokers left partitions out")
	}
	if err != nil {
		for name := range names {
			f.forget(name)
		}
		return nil, err
	}
	return offsets, nil
}

func (f *Fetcher) listFrom(ctx context.Context, node int32, partitions []Partition, timestamp int64, found func(Partition, int64)) error {
	request := kmsg.NewPtrListOffsetsRequest()
	at := map[string]int{}
	for _, p := range partitions {
		i, ok := at[p.Topic]
		if !ok {
			i = len(request.Topics)
			at[p.Topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = p.Topic
			request.Topics = append(request.Topics, t)
		}
		q := kmsg.NewListOffsetsRequestTopicPartition()
		q.Partition, q.Timestamp = p.Partition, timestamp
		request.Topics[i].Partitions = append(request.Topics[i].Partitions, q)
	}
	raw, err := f.client.Broker(int(node)).Request(ctx, request)
	if err != nil {
		return fmt.Errorf("list offsets at broker %d: %w", node, err)
	}
	response, ok := raw.(*kmsg.ListOffsetsResponse)
	if !ok {
		return fmt.Errorf("list offsets at broker %d: the answer is a %T", node, raw)
	}
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("list the offsets of %s/%d: %w", t.Topic, p.Partition, err)
			}
			found(Partition{t.Topic, p.Partition}, p.Offset)
		}
	}
	return nil
}

// Scan calls each with the records of a partition from one offset to another, which is not in it, committed or not, until
// each says to stop. What retention removed, or a topic that is gone, has no records. The error is that of ctx: broker
// trouble is tried again until then.
func (f *Fetcher) Scan(ctx context.Context, topic string, partition int32, from, to int64, each func(*kgo.Record) (goOn bool)) error {
	p := &pending{part: part{topic: topic, partition: partition}}
	backoff := time.Duration(0)
	for from < to {
		next, stop, err := f.scanOnce(ctx, p, from, to, each)
		switch {
		case stop:
			return nil
		case next > from:
			from, backoff = next, 0
			continue
		case ctx.Err() == nil && err != nil:
			f.trouble(ctx, topic, err)
		}
		backoff = min(max(minBackoff, 2*backoff), maxBackoff)
		if !wait.For(ctx, backoff) {
			return fmt.Errorf("read %s/%d: %w", topic, partition, context.Cause(ctx))
		}
	}
	return nil
}

// scanOnce is one request of a Scan. It returns where to go on, and whether there is nothing more.
func (f *Fetcher) scanOnce(ctx context.Context, p *pending, from, to int64, each func(*kgo.Record) bool) (next int64, stop bool, err error) {
	topics, err := f.locate(ctx, []string{p.part.topic})
	if err != nil {
		return from, false, err
	}
	state := topics[p.part.topic]
	p.part.id = state.ID
	leader, why, err := state.leader(p.part)
	if why != "" {
		f.forget(p.part.topic)
		return from, p.doubted(why), nil
	}
	if err != nil {
		f.forget(p.part.topic)
		return from, false, err
	}
	answers, err := f.read(ctx, leader, false, []ask{{part: p.part, offset: from, maxBytes: maxRead}})
	if err == nil {
		err = answers[0].err
	}
	if isOutOfRange(err) {
		at := Partition{p.part.topic, p.part.partition}
		starts, err := f.Starts(ctx, []Partition{at})
		if err != nil || starts[at] > from {
			return max(from, starts[at]), false, err
		}
		f.forget(p.part.topic)
		return from, p.doubted(AboveEnd), nil
	}
	if err != nil {
		f.forget(p.part.topic)
		return from, false, fmt.Errorf("partition %d, offset %d: %w", p.part.partition, from, err)
	}
	a := answers[0]
	if a.next <= from {
		return from, p.doubted(AboveEnd), nil
	}
	p.doubt, p.said = "", 0
	f.trouble(ctx, p.part.topic, nil)
	for _, r := range a.records {
		if r.Offset >= to || !each(r) {
			return a.next, true, nil
		}
	}
	return a.next, false, nil
}
