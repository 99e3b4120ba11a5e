package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fakeCluster starts a fake cluster on the loopback interface.
func fakeCluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatalf("start the fake cluster: %v", err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// newClient returns a client made from options the way every binary makes it.
func newClient(t *testing.T, o Options, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts, err := o.ClientOpts()
	if err != nil {
		t.Fatalf("client options: %v", err)
	}
	client, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

func fakeClient(t *testing.T, cluster *kfake.Cluster, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	return newClient(t, Options{Brokers: cluster.ListenAddrs()}, more...)
}
