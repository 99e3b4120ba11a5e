package forwarder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

// lifeline is the network of one forwarder. Cut, it is as if the process had
// been killed: nothing of it reaches the brokers any more.
type lifeline struct {
	dial func(ctx context.Context, network, host string) (net.Conn, error)
	mu   sync.Mutex
	cut  bool
	open []net.Conn
}

func (l *lifeline) Dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := l.dial(ctx, network, host)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		_ = conn.Close()
		return nil, errors.New("the process is dead")
	}
	l.open = append(l.open, conn)
	return conn, nil
}

// sever cuts the line, or makes it whole again.
func (l *lifeline) sever(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for _, conn := range l.open {
		_ = conn.Close()
	}
	l.open = nil
}

// member is one forwarder of a simulation.
type member struct {
	line *lifeline
	stop func()
}

func (r *rig) member() *member {
	m := &member{line: &lifeline{dial: r.kafka.Dial}}
	_, m.stop = r.start(func(o *Options) {
		o.Kafka.Dialer = m.line.Dial
		o.SessionTimeout = 6 * time.Second
		o.MaxHeldBytesPerPartition = 30_000
		o.MaxUncommitted = 1000
	})
	return m
}

// TestAnyScheduleOfFaultsLosesNothing runs forwarders through random schedules
// of kills, graceful stops and refused requests, with waits of all lengths, and
// then looks at every topic. (Leaders that really move are for real Kafka: the
// fake one can send a client into an endless loop with them.)
func TestAnyScheduleOfFaultsLosesNothing(t *testing.T) {
	seeds := 8
	if text := os.Getenv("REDRIVE_TEST_SEEDS"); text != "" {
		var err error
		if seeds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			ladder := []tiers.Tier{{Name: "2s", Delay: 2 * time.Second}, {Name: "20s", Delay: 20 * time.Second, Jitter: 5 * time.Second}}
			simulate(t, ladder, func(t *testing.T, r *rig) { r.schedule(t, rand.New(rand.NewPCG(uint64(seed), 1))) })
		})
	}
}

func (r *rig) schedule(t *testing.T, random *rand.Rand) {
	sent, kills := 0, 0
	members := []*member{r.member(), r.member()}
	var faults []*kfake.FaultHandle
	for range 60 {
		switch i := random.IntN(len(members)); random.IntN(10) {
		case 0, 1, 2, 3:
			n := 1 + random.IntN(150)
			topic := []string{"orders.retry", "orders.retry", "orders.retry.2s", "orders.retry.20s"}[random.IntN(4)]
			r.produce(topic, n, func(_ int, rec *kgo.Record) {
				rec.Headers = []kgo.RecordHeader{{Key: "n", Value: []byte(strconv.Itoa(sent))}}
				switch wish := random.IntN(10); {
				case wish == 0 && topic == "orders.retry":
					rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: envelope.HeaderRetryAfter, Value: []byte(fmt.Sprint(random.IntN(20)))})
				case wish == 1:
					rec.Headers = append(rec.Headers, attempt(2)) // the last delivery has failed, in an inbox
				}
				sent++
			})
		case 4:
			// The fake coordinator waits for ever for a member that died in a join.
			if _, err := r.kafka.WaitGroupStable(t.Context(), "redrive-forwarder", 2); err != nil {
				t.Fatal(err)
			}
			kills++
			members[i].line.sever(true)
			members[i].stop()
			members[i] = r.member()
		case 5:
			members[i].stop()
			members[i] = r.member()
		case 6:
			keys := []kmsg.Key{kmsg.Produce, kmsg.OffsetCommit, kmsg.Fetch, kmsg.Heartbeat, kmsg.JoinGroup}
			codes := []*kerr.Error{kerr.NotLeaderForPartition, kerr.NotCoordinator, kerr.NotLeaderForPartition, kerr.NotCoordinator, kerr.NotCoordinator}
			k := random.IntN(len(keys))
			faults = append(faults, r.kafka.Fault(kfake.Fault{Keys: keys[k : k+1], Group: "", Err: codes[k], Count: 1 + random.IntN(3)}))
		case 7:
			faults = append(faults, r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.TopicAuthorizationFailed, Count: 1 + random.IntN(4)}))
		case 8:
			faults = append(faults, r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders.dlt", Err: kerr.NotEnoughReplicas, Count: 1 + random.IntN(9)}))
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
	for _, f := range faults {
		f.Remove()
	}
	time.Sleep(2 * time.Minute)

	ended := map[string]int{}
	testkit.WaitFor(t, time.Hour, "all records at an end", func(ctx context.Context) error {
		time.Sleep(10 * time.Second) // A look at everything is dear, and a group with dead members needs minutes.
		clear(ended)
		for _, topic := range []string{"orders", "orders.dlt"} {
			records, err := r.client.Client.ReadAll(ctx, topic, kgo.ReadCommitted())
			if err != nil {
				return err
			}
			for v, n := range ids(records, "n") {
				ended[v] += n
			}
		}
		if len(ended) < sent {
			return fmt.Errorf("%d of %d records", len(ended), sent)
		}
		return nil
	})
	twice := 0
	for _, n := range ended {
		twice += n - 1
	}
	if kills == 0 && twice > 0 {
		t.Errorf("%d records came twice although nobody was killed", twice)
	}
	r.committedAll("orders.retry", "orders.retry.2s", "orders.retry.20s")
	r.checkCopies(t)
	t.Logf("%d records, %d kills, %d copies too many", sent, kills, twice)
}

// checkCopies looks at every copy of every record: the same id for all copies
// of one, none on the origin before its time.
func (r *rig) checkCopies(t *testing.T) {
	id := map[string]map[string]bool{}
	due := map[string]time.Time{} // the earliest due time any tier copy had
	for _, topic := range []string{"orders.retry.2s", "orders.retry.20s"} {
		for _, rec := range r.client.ReadAll(topic, kgo.ReadCommitted()) {
			n, _ := header(rec, "n")
			at := rec.Timestamp
			if v, ok := header(rec, envelope.HeaderAvailableAt); ok > 0 {
				at, _ = time.Parse(time.RFC3339, v)
			} else if topic == "orders.retry.2s" {
				at = at.Add(2 * time.Second)
			} else {
				at = at.Add(20 * time.Second)
			}
			if first, ok := due[n]; !ok || at.Before(first) {
				due[n] = at
			}
			if v, ok := header(rec, envelope.HeaderMessageID); ok > 0 {
				note(id, n, v)
			}
		}
	}
	for _, rec := range r.client.ReadAll("orders", kgo.ReadCommitted()) {
		n, _ := header(rec, "n")
		if early := due[n].Sub(rec.Timestamp); early > 0 {
			t.Errorf("record %s was on the origin %s early", n, early)
		}
		v, _ := header(rec, envelope.HeaderMessageID)
		note(id, n, v)
	}
	for n, names := range id {
		if len(names) != 1 {
			t.Errorf("record %s has the ids %v", n, slices.Collect(maps.Keys(names)))
		}
	}
}

func note(m map[string]map[string]bool, key, value string) {
	if m[key] == nil {
		m[key] = map[string]bool{}
	}
	m[key][value] = true
}
