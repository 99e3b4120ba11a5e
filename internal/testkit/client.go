package testkit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// UniqueName returns a name for a topic or a group that no other test on a shared cluster has: prefix, a dash and ten
// random letters and digits.
func UniqueName(prefix string) string {
	return prefix + "-" + strings.ToLower(rand.Text()[:10])
}

// Client writes to a cluster and looks at what is there. It is not a model of how the product talks to Kafka.
type Client struct {
	seeds   []string
	options []kgo.Opt
	kafka   *kgo.Client
	admin   *kadm.Client
}

// NewClient returns a client of the brokers at these addresses. Options are for the connection and the producer: records go
// where Kafka's own Java producer would send them unless kgo.RecordPartitioner(kgo.ManualPartitioner()) is given.
func NewClient(brokers []string, options ...kgo.Opt) (*Client, error) {
	c := &Client{seeds: brokers, options: options}
	kafka, err := c.connect()
	if err != nil {
		return nil, err
	}
	c.kafka, c.admin = kafka, kadm.NewClient(kafka)
	return c, nil
}

// connect makes a client that notices a new leader soon after a broker was killed.
func (c *Client) connect(more ...kgo.Opt) (*kgo.Client, error) {
	options := []kgo.Opt{kgo.SeedBrokers(c.seeds...), kgo.MetadataMinAge(100 * time.Millisecond)}
	client, err := kgo.NewClient(append(append(options, c.options...), more...)...)
	if err != nil {
		return nil, fmt.Errorf("make a kafka client: %w", err)
	}
	return client, nil
}

// Close ends the connections.
func (c *Client) Close() { c.kafka.Close() }

// Kafka returns the client below, for what has no method here.
func (c *Client) Kafka() *kgo.Client { return c.kafka }

// Admin returns the client for administration, for what has no method here.
func (c *Client) Admin() *kadm.Client { return c.admin }

// CreateTopic creates a topic with the replication factor that is the cluster's default, and returns when every broker
// knows a leader for each partition.
func (c *Client) CreateTopic(ctx context.Context, topic string, partitions int32, configs map[string]string) error {
	values := make(map[string]*string, len(configs))
	for key, value := range configs {
		values[key] = &value
	}
	if _, err := c.admin.CreateTopic(ctx, partitions, -1, values, topic); err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	brokers, err := c.admin.ListBrokers(ctx)
	if err != nil {
		return fmt.Errorf("create topic %s: list brokers: %w", topic, err)
	}
	return Await(ctx, func(ctx context.Context) error {
		for _, id := range brokers.NodeIDs() {
			if err := c.knows(ctx, id, topic, partitions); err != nil {
				return fmt.Errorf("create topic %s: broker %d: %w", topic, id, err)
			}
		}
		return nil
	})
}

// knows asks one broker whether it can tell where all partitions of the topic are.
func (c *Client) knows(ctx context.Context, broker int32, topic string, partitions int32) error {
	request := kmsg.NewPtrMetadataRequest()
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = new(topic)
	request.Topics = []kmsg.MetadataRequestTopic{wanted}
	answer, err := c.kafka.Broker(int(broker)).RetriableRequest(ctx, request)
	if err != nil {
		return err
	}
	response, ok := answer.(*kmsg.MetadataResponse)
	if !ok || len(response.Topics) != 1 {
		return errors.New("no answer about the topic")
	}
	leaders := 0
	for _, p := range response.Topics[0].Partitions {
		if p.ErrorCode == 0 && p.Leader >= 0 {
			leaders++
		}
	}
	if leaders != int(partitions) {
		return fmt.Errorf("%d of %d partitions have a leader", leaders, partitions)
	}
	return nil
}

// Produce writes the records with acks from all replicas and returns when each is acknowledged. It sets the partition,
// the offset and the timestamp of each.
func (c *Client) Produce(ctx context.Context, records ...*kgo.Record) error {
	if err := c.kafka.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return nil
}

// EndOffsets returns the next offset of each partition of the topic: its high watermark.
func (c *Client) EndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	return listed(c.admin.ListEndOffsets(ctx, topic))
}

// DeleteRecords removes what stands below an offset, by partition, as retention does.
func (c *Client) DeleteRecords(ctx context.Context, topic string, below map[int32]int64) error {
	offsets := kadm.Offsets{}
	for partition, offset := range below {
		offsets.AddOffset(topic, partition, offset, -1)
	}
	answers, err := c.admin.DeleteRecords(ctx, offsets)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		return fmt.Errorf("delete the records of %s: %w", topic, err)
	}
	return nil
}

// InSync is nil if all replicas of the topics are in sync; without any, of all topics. Another broker may go then.
func (c *Client) InSync(ctx context.Context, topics ...string) error {
	details, err := c.admin.ListTopicsWithInternal(ctx, topics...)
	if err != nil {
		return err
	}
	var behind error
	details.EachPartition(func(p kadm.PartitionDetail) {
		if p.Err != nil || len(p.ISR) < len(p.Replicas) {
			behind = fmt.Errorf("%s/%d: in sync %v of %v", p.Topic, p.Partition, p.ISR, p.Replicas)
		}
	})
	return behind
}

// listed returns the offsets of the one topic that was asked for.
func listed(offsets kadm.ListedOffsets, err error) (map[int32]int64, error) {
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	byPartition := make(map[int32]int64)
	offsets.Each(func(o kadm.ListedOffset) { byPartition[o.Partition] = o.Offset })
	return byPartition, nil
}

// CommittedOffsets returns what the group has committed, with the metadata of each commit; nothing for a group that does
// not exist. It waits until transactions that hold commits of the group are decided, and while the group has no
// coordinator, as in the first moments of a new cluster or after the death of a broker.
func (c *Client) CommittedOffsets(ctx context.Context, group string) (kadm.Offsets, error) {
	var offsets kadm.Offsets
	var fatal error
	admin, closeFresh := c.admin, func() {}
	defer func() { closeFresh() }()
	err := Await(ctx, func(ctx context.Context) error {
		responses, err := admin.FetchOffsets(kadm.RequireStable(ctx), group)
		if err == nil {
			err = responses.Error()
		}
		if answer, ok := errors.AsType[*kerr.Error](err); ok && !answer.Retriable {
			fatal = err
			return nil
		} else if err != nil && !ok {
			// The coordinator died, and the client may go on asking it. A new one asks who it is now.
			closeFresh()
			closeFresh = func() {}
			fresh, err := c.connect()
			if err != nil {
				return err
			}
			admin, closeFresh = kadm.NewClient(fresh), fresh.Close
		}
		offsets = responses.Offsets()
		return err
	})
	if err := errors.Join(fatal, err); err != nil {
		return nil, fmt.Errorf("fetch the offsets of group %s: %w", group, err)
	}
	return offsets, nil
}

// Read calls each with every record of the topic, from the log start to the end as it was at the call; those of one
// partition come in order. With kgo.ReadCommitted the end is the last stable offset and records of aborted transactions
// are left out; with kgo.ReadUncommitted it is the high watermark. After the death of a broker a new leader's high
// watermark may for a moment be below what was acknowledged: wait with EndOffsets before a read that must see all.
//
// It is not for compacted topics: where the last records are compacted away the end is never seen, and Read
// returns only when ctx ends.
func (c *Client) Read(ctx context.Context, topic string, isolation kgo.IsolationLevel, each func(*kgo.Record)) error {
	starts, err := listed(c.admin.ListStartOffsets(ctx, topic))
	if err != nil {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	listEnds := c.admin.ListEndOffsets
	if isolation == kgo.ReadCommitted() {
		listEnds = c.admin.ListCommittedOffsets
	}
	ends, err := listed(listEnds(ctx, topic))
	if err != nil {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	from := make(map[int32]kgo.Offset)
	for partition, end := range ends {
		if start := starts[partition]; start < end {
			from[partition] = kgo.NewOffset().At(start)
		} else {
			delete(ends, partition)
		}
	}
	if len(ends) == 0 {
		return nil
	}
	// Control records are kept because the marker of a transaction may be the last thing before the end.
	consumer, err := c.connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	defer consumer.Close()
	for len(ends) > 0 {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read %s: %w; %d partitions not read to their end", topic, err, len(ends))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, wanted := ends[r.Partition]
			if !wanted {
				return
			}
			if r.Offset < end && !r.Attrs.IsControl() {
				each(r)
			}
			if r.Offset >= end-1 {
				delete(ends, r.Partition)
			}
		})
	}
	return nil
}

// ReadAll is [Client.Read] into a slice, ordered by partition and offset.
func (c *Client) ReadAll(ctx context.Context, topic string, isolation kgo.IsolationLevel) ([]*kgo.Record, error) {
	var records []*kgo.Record
	if err := c.Read(ctx, topic, isolation, func(r *kgo.Record) { records = append(records, r) }); err != nil {
		return nil, err
	}
	slices.SortStableFunc(records, func(a, b *kgo.Record) int { return int(a.Partition) - int(b.Partition) })
	return records, nil
}

// Client returns a client for the test, closed when the test ends.
func (k *Kafka) Client(t testing.TB, options ...kgo.Opt) *TestClient {
	t.Helper()
	return newTestClient(t, k.Brokers(), options...)
}

// TestClient is a [Client] whose failures fail the test, at once; so it is for the goroutine of the test. Client is there
// for what may fail, and for other goroutines.
type TestClient struct {
	*Client
	t testing.TB
}

// clientLimit bounds each call of a TestClient, so that a broken broker gives a failed test and not one that hangs. The
// longest that a broker's death holds up a client was measured as 13 s.
const clientLimit = 2 * time.Minute

func newTestClient(t testing.TB, brokers []string, options ...kgo.Opt) *TestClient {
	t.Helper()
	c, err := NewClient(brokers, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &TestClient{Client: c, t: t}
}

// CreateTopic is [Client.CreateTopic].
func (c *TestClient) CreateTopic(topic string, partitions int32, configs map[string]string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), clientLimit)
	defer cancel()
	c.check(c.Client.CreateTopic(ctx, topic, partitions, configs))
}

// Produce is [Client.Produce].
func (c *TestClient) Produce(records ...*kgo.Record) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), clientLimit)
	defer cancel()
	c.check(c.Client.Produce(ctx, records...))
}

// EndOffsets is [Client.EndOffsets].
func (c *TestClient) EndOffsets(topic string) map[int32]int64 {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), clientLimit)
	defer cancel()
	ends, err := c.Client.EndOffsets(ctx, topic)
	c.check(err)
	return ends
}

// DeleteRecords is [Client.DeleteRecords].
func (c *TestClient) DeleteRecords(topic string, below map[int32]int64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), clientLimit)
	defer cancel()
	c.check(c.Client.DeleteRecords(ctx, topic, below))
}

// CommittedOffsets is [Client.CommittedOffsets].
func (c *TestClient) CommittedOffsets(group string) kadm.Offsets {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), clientLimit)
	defer cancel()
	offsets, err := c.Client.CommittedOffsets(ctx, group)
	c.check(err)
	return offsets
}

// ReadAll is [Client.ReadAll].
func (c *TestClient) ReadAll(topic string, isolation kgo.IsolationLevel) []*kgo.Record {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), clientLimit)
	defer cancel()
	records, err := c.Client.ReadAll(ctx, topic, isolation)
	c.check(err)
	return records
}

// WaitForRecords waits until the topic holds at least n records that a read_committed reader sees, and returns all.
func (c *TestClient) WaitForRecords(limit time.Duration, topic string, n int) []*kgo.Record {
	c.t.Helper()
	var records []*kgo.Record
	WaitFor(c.t, limit, fmt.Sprintf("%d records in %s", n, topic), func(ctx context.Context) (err error) {
		if records, err = c.Client.ReadAll(ctx, topic, kgo.ReadCommitted()); err != nil {
			return err
		}
		if len(records) < n {
			return fmt.Errorf("%d records are there", len(records))
		}
		return nil
	})
	return records
}

func (c *TestClient) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}
