package kafka

import (
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestRetentionIsWhatTheSettingsOfATopicSay(t *testing.T) {
	at := time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)
	for name, c := range map[string]struct {
		settings map[string]string
		want     Retention
		known    bool
	}{
		"a day":                  {map[string]string{"cleanup.policy": "delete", "retention.ms": "86400000", "retention.bytes": "-1"}, Retention{day, -1}, true},
		"by size as well":        {map[string]string{"cleanup.policy": "delete", "retention.ms": "86400000", "retention.bytes": "1024"}, Retention{day, 1024}, true},
		"at once":                {map[string]string{"cleanup.policy": "delete", "retention.ms": "0"}, Retention{0, -1}, true},
		"for ever":               {map[string]string{"cleanup.policy": "delete", "retention.ms": "-1"}, Retention{-1, -1}, true},
		"longer than a duration": {map[string]string{"cleanup.policy": "delete", "retention.ms": strconv.Itoa(math.MaxInt64)}, Retention{-1, -1}, true},
		"compacted only":         {map[string]string{"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "1"}, Retention{-1, -1}, true},
		"compacted and deleted":  {map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "86400000"}, Retention{day, -1}, true},
		"in tiered storage": {
			map[string]string{"cleanup.policy": "delete", "retention.ms": "86400000", "local.retention.ms": "1000", "remote.storage.enable": "true"}, Retention{day, -1}, true,
		},
		"not told":   {map[string]string{}, Retention{}, false},
		"no number":  {map[string]string{"cleanup.policy": "delete", "retention.ms": "x"}, Retention{-1, -1}, false},
		"age untold": {map[string]string{"cleanup.policy": "delete"}, Retention{-1, -1}, false},
	} {
		got, known := RetentionOf(c.settings)
		if diff := cmp.Diff(c.want, got); diff != "" || known != c.known {
			t.Errorf("%s: known %t, want %t, (-want +got):\n%s", name, known, c.known, diff)
		}
	}
	keeps := Retention{Age: time.Hour}
	if until, ok := keeps.Until(at); !ok || !until.Equal(at.Add(time.Hour)) {
		t.Errorf("a record of %s stays until %s, %t", at, until, ok)
	}
	if before, ok := keeps.Before(at); !ok || !before.Equal(at.Add(-time.Hour)) {
		t.Errorf("what goes until %s is older than %s, %t", at, before, ok)
	}
	always := Retention{Age: -1}
	if _, ok := always.Until(at); ok {
		t.Error("what stays for ever has an end")
	}
	if _, ok := always.Before(at); ok {
		t.Error("what stays for ever is old enough some day")
	}
}

func TestWhatCanNotBeKnownOfATopicIsAnErrorOfThatTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testkit.Virtual(t, kfake.NumBrokers(1))
		cluster.Client(t).CreateTopic("orders.dlt", 1, map[string]string{"retention.ms": "3600000"})
		client := connected(t, cluster)
		got, err := DescribeRetention(t.Context(), client, []string{"orders.dlt", "missing"})
		if err != nil {
			t.Fatal(err)
		}
		if k := got["orders.dlt"]; k.Err != nil || k.Age != time.Hour || k.ID == [16]byte{} || k.Topic != "orders.dlt" {
			t.Errorf("orders.dlt: %+v", k)
		}
		if k := got["missing"]; k.Err == nil {
			t.Errorf("a topic that is not there: %+v", k)
		}
	})
}

func connected(t *testing.T, cluster *testkit.VirtualKafka) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers()...), kgo.Dialer(cluster.Dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestWhatWaitsIsAboveTheCommitAndOlderThanTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testkit.Virtual(t, kfake.NumBrokers(1))
		admin := cluster.Client(t)
		for _, topic := range []string{"new", "passed", "half", "all", "cut"} {
			admin.CreateTopic(topic, 1, nil)
		}
		began := time.Now()
		for i := range 10 {
			for _, topic := range []string{"passed", "half", "all", "cut"} {
				admin.Produce(&kgo.Record{Topic: topic, Value: []byte("v"), Timestamp: began.Add(time.Duration(i) * time.Minute)})
			}
		}
		admin.DeleteRecords("cut", map[int32]int64{0: 3})
		commits := kadm.Offsets{}
		commits.AddOffset("passed", 0, 6, -1)
		commits.AddOffset("half", 0, 2, -1)
		if _, err := admin.Admin().CommitOffsets(t.Context(), "redrive", commits); err != nil {
			t.Fatal(err)
		}
		moment := began.Add(5 * time.Minute)
		got, err := WaitingBefore(t.Context(), connected(t, cluster), "redrive", map[string]time.Time{
			"new": moment, "passed": moment, "half": moment, "all": began.Add(time.Hour), "cut": moment,
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []Waiting{{"all", 0, 0, 10}, {"cut", 0, 3, 5}, {"half", 0, 2, 5}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("waiting (-want +got):\n%s", diff)
		}
	})
}
