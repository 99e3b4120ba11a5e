package forwarder

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/tiers"
)

// A group that refuses a member is no reason to be taken for one: a rollout would go on, to the last pod.
func TestJoinedTellsThatTheGroupHasTheMember(t *testing.T) {
	ladder := []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}
	simulate(t, ladder, func(t *testing.T, r *rig) {
		denied := r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.GroupAuthorizationFailed, Count: -1})
		f, _ := r.start()
		time.Sleep(time.Minute)
		if status := f.Status(); !status.Running || status.Joined {
			t.Errorf("while the group refuses it: running %v, joined %v; want it to run, and not to be joined", status.Running, status.Joined)
		}
		denied.Remove()
		time.Sleep(5 * time.Minute)
		if status := f.Status(); !status.Joined || status.Assigned == 0 {
			t.Errorf("after that: joined %v, %d partitions", status.Joined, status.Assigned)
		}
	})
}
