package forwarder

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/tiers"
)

// keep sets how long a topic keeps its records.
func (r *rig) keep(topic, ms string) {
	r.t.Helper()
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &ms}}
	if _, err := r.client.Admin().AlterTopicConfigs(r.t.Context(), set, topic); err != nil {
		r.t.Fatal(err)
	}
}

// What waits as it should says nothing, however many records there are; what is held up says when retention may take it.
func TestRetentionIsToldOfRecordsThatAreHeldUpOnly(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		r.keep("orders.retry.10s", "3600000")
		f, _ := r.start()
		expires := func() time.Time { return topicStatus(f, "orders.retry.10s").Expires }
		for range 20 {
			r.produce("orders.retry.10s", 50, nil)
			time.Sleep(time.Second)
			if at := expires(); !at.IsZero() {
				t.Fatalf("records that wait are said to expire at %s", at)
			}
		}
		r.await(time.Minute, "orders", 1000)

		f.Control(map[string]Pace{"orders.retry": {Paused: true}})
		arrived := time.Now()
		r.produce("orders.retry.10s", 50, nil)
		time.Sleep(time.Minute)
		if at := expires(); !at.IsZero() {
			t.Errorf("records that are due for less than a minute are said to expire at %s", at)
		}
		r.produce("orders.retry.10s", 50, nil)
		time.Sleep(time.Minute)
		if at, want := expires(), arrived.Add(time.Hour); at.Sub(want).Abs() > time.Second {
			t.Errorf("the oldest record that is held up expires at %s, want %s", at, want)
		}
		r.keep("orders.retry.10s", "7200000")
		time.Sleep(time.Minute)
		if at, want := expires(), arrived.Add(2*time.Hour); at.Sub(want).Abs() > time.Second {
			t.Errorf("after the retention was raised it expires at %s, want %s", at, want)
		}
		r.keep("orders.retry.10s", "-1")
		time.Sleep(time.Minute)
		if at := expires(); !at.IsZero() {
			t.Errorf("a record that is kept for ever expires at %s", at)
		}
		r.keep("orders.retry.10s", "3600000")
		time.Sleep(time.Minute)
		f.Control(map[string]Pace{"orders.retry": {}})
		r.await(time.Minute, "orders", 1100)
		if at := expires(); !at.IsZero() {
			t.Errorf("with nothing held up a record expires at %s", at)
		}
	})
}

func TestRetentionIsToldOfRecordsThatAreDueOnlyAfterIt(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10m", Delay: 10 * time.Minute}}, func(t *testing.T, r *rig) {
		r.keep("orders.retry.10m", "300000")
		f, _ := r.start()
		arrived := time.Now()
		r.produce("orders.retry.10m", 10, nil)
		time.Sleep(time.Second)
		if at, want := topicStatus(f, "orders.retry.10m").Expires, arrived.Add(5*time.Minute); at.Sub(want).Abs() > time.Second {
			t.Errorf("records that are due after retention took them expire at %s, want %s", at, want)
		}
		time.Sleep(9 * time.Minute)
		r.await(2*time.Minute, "orders", 10)
		r.produce("orders.retry.10m", 10, func(_ int, rec *kgo.Record) {
			rec.Headers = []kgo.RecordHeader{{Key: "redrive-available-at", Value: []byte(time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339))}}
		})
		time.Sleep(time.Second)
		if at := topicStatus(f, "orders.retry.10m").Expires; !at.IsZero() {
			t.Errorf("records that are due before are said to expire at %s", at)
		}
	})
}
