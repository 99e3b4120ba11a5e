package kafka

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

func wantCount(t *testing.T, p *Partitions, topic string, n int32) {
	t.Helper()
	got, known := p.Count(topic)
	if got != n || known != (n > 0) {
		t.Errorf("Count(%s) = %d, %v, want %d", topic, got, known, n)
	}
}

func grow(t *testing.T, client *kgo.Client, topic string, partitions int) {
	t.Helper()
	responses, err := kadm.NewClient(client).UpdatePartitions(t.Context(), partitions, topic)
	if err == nil {
		err = responses.Error()
	}
	if err != nil {
		t.Fatalf("grow %s: %v", topic, err)
	}
}

func TestCountsAreThoseOfTheLastRefresh(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 3, nil)
	seedTopic(t, cluster, "stranger", 5, nil)
	p := NewPartitions(fakeClient(t, cluster), []string{"orders", "orders.dlt", "orders"})
	wantCount(t, p, "orders", 0)

	asked := make(chan []string, 1)
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		var topics []string
		for _, topic := range req.(*kmsg.MetadataRequest).Topics {
			topics = append(topics, *topic.Topic)
		}
		if len(topics) == 0 {
			cluster.KeepControl()
			return nil, nil, false
		}
		asked <- topics
		return nil, nil, false
	})
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; !slices.Equal(got, []string{"orders", "orders.dlt"}) {
		t.Errorf("the request names %v", got)
	}
	wantCount(t, p, "orders", 3)
	wantCount(t, p, "stranger", 0)
	wantCount(t, p, "orders.dlt", 0)
	if err := p.Err("orders.dlt"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("Err(orders.dlt) = %v", err)
	}
	if err := p.Err("orders"); err != nil {
		t.Errorf("Err(orders) = %v", err)
	}
}

func TestRefreshNeverCreatesATopic(t *testing.T) {
	cluster := fakeCluster(t, kfake.AllowAutoTopicCreation())
	p := NewPartitions(fakeClient(t, cluster), []string{"orders"})
	for range 2 {
		if err := p.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantCount(t, p, "orders", 0)
	if cluster.TopicInfo("orders") != nil {
		t.Error("the topic was created")
	}
}

func TestRefreshOfNoTopicsAsksForNone(t *testing.T) {
	client := newClient(t, Options{Brokers: []string{"127.0.0.1:1"}})
	if err := NewPartitions(client, nil).Refresh(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestGrownTopicCanBeWrittenToAtOnce(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 2, nil)
	client := fakeClient(t, cluster, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMaxAge(time.Hour), kgo.MetadataMinAge(10*time.Millisecond))
	produce := func(partition int32) error {
		return client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Partition: partition, Value: []byte("v")}).FirstErr()
	}
	p := NewPartitions(client, []string{"orders"})
	if err := errors.Join(p.Refresh(t.Context()), produce(1)); err != nil {
		t.Fatal(err)
	}
	grow(t, client, "orders", 4)
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCount(t, p, "orders", 4)
	testkit.WaitFor(t, 10*time.Second, "a record in the new partition", func(context.Context) error { return produce(3) })
}

func TestStaleAnswerDoesNotShrinkATopic(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 4, nil)
	p := NewPartitions(fakeClient(t, cluster), []string{"orders"})
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	answer := func(id [16]byte) {
		cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			response := req.ResponseKind().(*kmsg.MetadataResponse)
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.TopicID = new("orders"), id
			topic.Partitions = []kmsg.MetadataResponseTopicPartition{kmsg.NewMetadataResponseTopicPartition()}
			response.Topics = append(response.Topics, topic)
			return response, nil, true
		})
		if err := p.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	answer(cluster.TopicInfo("orders").TopicID)
	wantCount(t, p, "orders", 4)
	answer([16]byte{1}) // Another topic of that name may be smaller.
	wantCount(t, p, "orders", 1)
}

func TestOnlyAMissingTopicIsForgotten(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 4, nil)
	p := NewPartitions(fakeClient(t, cluster), []string{"orders"})
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}

	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		response := req.ResponseKind().(*kmsg.MetadataResponse)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.ErrorCode = new("orders"), kerr.TopicAuthorizationFailed.Code
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCount(t, p, "orders", 4)
	if err := p.Err("orders"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("Err = %v, want the last answer", err)
	}

	if err := cluster.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCount(t, p, "orders", 0)

	seedTopic(t, cluster, "orders", 2, nil)
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCount(t, p, "orders", 2)
	if err := p.Err("orders"); err != nil {
		t.Errorf("Err = %v after a good answer", err)
	}
}

func TestCountsOutliveTheBrokers(t *testing.T) {
	cluster := fakeCluster(t)
	seedTopic(t, cluster, "orders", 4, nil)
	client := fakeClient(t, cluster, kgo.RequestRetries(0), kgo.RetryTimeout(time.Second))
	p := NewPartitions(client, []string{"orders"})
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.Close()
	if err := p.Refresh(t.Context()); err == nil || Classify(err) != Transient {
		t.Errorf("Refresh = %v", err)
	}
	wantCount(t, p, "orders", 4)
	if err := p.Err("orders"); err == nil {
		t.Error("Err shows nothing")
	}
}

func TestRunSeesAChangeInThirtySecondsAndAMissingTopicInFive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testkit.Virtual(t)
		seedTopic(t, cluster.Cluster, "orders", 2, nil)
		client := newClient(t, Options{Brokers: cluster.Brokers(), Dialer: cluster.Dial})
		var requests atomic.Int32
		cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if len(req.(*kmsg.MetadataRequest).Topics) > 0 {
				requests.Add(1)
			}
			return nil, nil, false
		})
		p := NewPartitions(client, []string{"orders", "orders.dlt"})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()

		time.Sleep(6 * time.Second)
		wantCount(t, p, "orders", 2)
		wantCount(t, p, "orders.dlt", 0)
		seedTopic(t, cluster.Cluster, "orders.dlt", 3, nil)
		time.Sleep(6 * time.Second)
		wantCount(t, p, "orders.dlt", 3)

		grow(t, client, "orders", 8)
		time.Sleep(31 * time.Second)
		wantCount(t, p, "orders", 8)

		quiet := requests.Load()
		time.Sleep(10 * time.Minute)
		if got := requests.Load() - quiet; got > 25 {
			t.Errorf("%d requests in ten quiet minutes", got)
		}
		cancel()
		<-ended
	})
}
