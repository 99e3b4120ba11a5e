package testkit

import (
	"context"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// VirtualKafka is a fake cluster that is reached only through [VirtualKafka.Dial]. Inside a testing/synctest bubble
// hours of waiting take milliseconds, since nothing in it ever waits for a real network.
//
// What the fake does not do, and a test must show on [RealKafka] instead: message.timestamp.type=LogAppendTime and limits of
// timestamps, min.insync.replicas, retention of back-dated records, validation of topic settings.
type VirtualKafka struct {
	*kfake.Cluster
	network *kfake.VirtualNetwork
}

// Virtual starts a fake cluster of one broker, or as options say, and closes it when the test ends. Every client
// needs [VirtualKafka.Dial] as its dialer and must be made, and closed, in the same bubble.
//
// Build with the tag synctests: it makes the mutexes of the Kafka client visible to the bubble, which otherwise can take
// a goroutine that waits for one for a busy one and never moves the clock.
func Virtual(t testing.TB, options ...kfake.Opt) *VirtualKafka {
	t.Helper()
	network := &kfake.VirtualNetwork{}
	fixed := []kfake.Opt{kfake.NumBrokers(1)}
	cluster, err := kfake.NewCluster(append(append(fixed, options...), kfake.ListenFn(network.Listen))...)
	if err != nil {
		t.Fatalf("start the fake cluster: %v", err)
	}
	t.Cleanup(cluster.Close)
	return &VirtualKafka{Cluster: cluster, network: network}
}

// Brokers returns the addresses of the brokers on the virtual network.
func (v *VirtualKafka) Brokers() []string { return v.ListenAddrs() }

// Dial connects to a broker over the virtual network: the dialer of every client.
func (v *VirtualKafka) Dial(ctx context.Context, network, host string) (net.Conn, error) {
	return v.network.DialContext(ctx, network, host)
}

// Client returns a client for the test, closed when the test ends.
func (v *VirtualKafka) Client(t testing.TB, options ...kgo.Opt) *TestClient {
	t.Helper()
	return newTestClient(t, v.Brokers(), append([]kgo.Opt{kgo.Dialer(v.Dial)}, options...)...)
}
