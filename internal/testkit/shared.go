package testkit

import (
	"errors"
	"sync"
	"testing"
)

// shared holds the clusters of this test binary by number of brokers. A test binary has no other place to keep what its
// tests share.
var shared struct {
	sync.Mutex
	clusters map[int]*Kafka
}

// RealKafka returns the cluster of that many brokers (1 or 3) which the tests of this binary share; the first one to ask
// starts it. Brokers that an earlier test has left down are started again. Topics and groups stay: take names from
// [UniqueName]. The package needs [Main] as its TestMain, which closes the cluster. With -short the test is skipped.
//
// A test that breaks brokers must not run in parallel with others of the same cluster; [OwnKafka] is for those.
func RealKafka(t testing.TB, brokers int) *Kafka {
	t.Helper()
	skipShort(t)
	shared.Lock()
	defer shared.Unlock()
	k := shared.clusters[brokers]
	if k == nil {
		started, err := StartKafka(t.Context(), KafkaOptions{Brokers: brokers})
		if err != nil {
			t.Fatalf("start kafka: %v", err)
		}
		if shared.clusters == nil {
			shared.clusters = make(map[int]*Kafka)
		}
		k, shared.clusters[brokers] = started, started
	} else if err := k.Start(t.Context()); err != nil {
		t.Fatalf("start the brokers that are down: %v", err)
	}
	showTail(t, k)
	return k
}

// OwnKafka starts a cluster for one test and closes it when the test ends. With -short the test is skipped.
func OwnKafka(t testing.TB, options KafkaOptions) *Kafka {
	t.Helper()
	skipShort(t)
	k, err := StartKafka(t.Context(), options)
	if err != nil {
		t.Fatalf("start kafka: %v", err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("close kafka: %v", err)
		}
	})
	showTail(t, k)
	return k
}

// skipShort is the only skip there is: the caller asked for it.
func skipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("real Kafka is left out by -short")
	}
}

// showTail adds to the log of a failed test what the brokers had to say.
func showTail(t testing.TB, k *Kafka) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, b := range k.brokers {
			t.Logf("log of broker %d ends\n%s", b.node, b.tail.String())
		}
	})
}

func closeShared() error {
	shared.Lock()
	defer shared.Unlock()
	var errs []error
	for _, k := range shared.clusters {
		errs = append(errs, k.Close())
	}
	shared.clusters = nil
	return errors.Join(errs...)
}
