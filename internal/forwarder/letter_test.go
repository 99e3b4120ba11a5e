package forwarder

import (
	"bytes"
	"crypto/rand"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

// limit sets max.message.bytes of a topic.
func (r *rig) limit(topic string, n int) {
	r.t.Helper()
	value := strconv.Itoa(n)
	responses, err := r.client.Admin().AlterTopicConfigs(r.t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &value}}, topic)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, response := range responses {
		if response.Err != nil {
			r.t.Fatal(response.Err)
		}
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // It never fails.
	return b
}

func TestOurOwnTextsNeverMakeARecordTooLarge(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		r.limit("orders.retry.10s", 10_000)
		value := randomBytes(8_800)
		r.start()
		r.produce("orders.retry", 20, func(_ int, rec *kgo.Record) {
			rec.Value = value
			rec.Headers = []kgo.RecordHeader{{Key: envelope.HeaderErrorMessage, Value: []byte(strings.Repeat("trace ", 300))}}
		})
		got := r.await(time.Minute, "orders", 20)
		for _, rec := range got {
			if !bytes.Equal(rec.Value, value) {
				t.Error("the value changed")
			}
		}
		if n := sum(r.client.EndOffsets("orders.dlt")); n != 0 {
			t.Errorf("%d records became dead letters for our own texts", n)
		}
		r.committedAll("orders.retry", "orders.retry.10s")
	})
}

// What is too large is told by the settings of the topic: its neighbours need
// not wait for a refusal.
func TestARecordTooLargeForItsOriginIsADeadLetterAndItsNeighboursFlow(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		r.limit("orders", 10_000)
		f, _ := r.start()
		large := randomBytes(20_000)
		r.produce("orders.retry.10s", 200, func(i int, rec *kgo.Record) {
			switch i % 20 {
			case 0:
				rec.Value = large
			case 1:
				rec.Value = make([]byte, 20_000) // It fits when it is compressed.
			}
		})
		got := r.await(time.Minute, "orders", 190)
		letters := r.await(time.Minute, "orders.dlt", 10)
		if len(got) != 190 || len(letters) != 10 {
			t.Errorf("%d records and %d letters, want 190 and 10", len(got), len(letters))
		}
		for _, letter := range letters {
			if v, _ := header(letter, envelope.HeaderReason); v != string(envelope.ReasonTooLarge) || !bytes.Equal(letter.Value, large) {
				t.Errorf("reason %q", v)
			}
		}
		r.committedAll("orders.retry.10s")
		if troubles := f.Status().Troubles; len(troubles) != 0 {
			t.Errorf("troubles: %+v", troubles)
		}
	})
}

func TestAPointerLetterStandsForWhatEvenTheDeadLettersRefuse(t *testing.T) {
	simulate(t, []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}}, func(t *testing.T, r *rig) {
		r.limit("orders", 10_000)
		r.limit("orders.dlt", 10_000)
		large := randomBytes(20_000)
		f, _ := r.start()
		r.produceTo(0, 10)
		r.produce("orders.retry.10s", 1, func(_ int, rec *kgo.Record) { rec.Value = large })
		for p := range partitions {
			r.produceTo(int32(p), 10)
		}
		r.await(time.Minute, "orders", 50)
		pointers := r.await(time.Minute, "orders.dlt", 1)
		source, _ := header(pointers[0], envelope.HeaderLetterSource)
		if pointers[0].Value != nil || !strings.HasPrefix(source, "orders.retry.10s/") {
			t.Errorf("pointer letter: value of %d bytes, source %q", len(pointers[0].Value), source)
		}
		if v, _ := header(pointers[0], envelope.HeaderLetterDigest); !strings.HasPrefix(v, "sha256:") || len(v) != 71 {
			t.Errorf("digest %q", v)
		}
		if v, _ := header(pointers[0], envelope.HeaderLetterBytes); v != strconv.Itoa(20_000+len("k0")) {
			t.Errorf("bytes %q", v)
		}
		time.Sleep(10 * time.Minute)
		if n := sum(r.client.EndOffsets("orders.dlt")); n != 1 {
			t.Errorf("%d letters, want the one pointer", n)
		}
		wantIssue(t, f, issue.LetterTooLarge, true)
		// The offset is not passed: its bytes are nowhere else.
		passed := true
		for p, o := range r.client.CommittedOffsets("redrive-forwarder")["orders.retry.10s"] {
			if o.At < r.client.EndOffsets("orders.retry.10s")[p] {
				passed = false
			}
		}
		if passed {
			t.Error("the offset of a record whose bytes are not safe is passed")
		}

		r.limit("orders.dlt", 100_000)
		letters := r.await(10*time.Minute, "orders.dlt", 2)
		safe := false
		for _, letter := range letters {
			safe = safe || bytes.Equal(letter.Value, large)
		}
		if !safe {
			t.Error("the whole letter is not there")
		}
		r.committedAll("orders.retry.10s")
		wantIssue(t, f, issue.LetterTooLarge, false)
	})
}

// Two tiers write to the same partitions of the origin. The client fails all
// that it has buffered for a partition with the error of one batch, so that the
// poison of one tier strikes what the other sends.
func TestThePoisonOfOneTierParksNoRecordOfAnother(t *testing.T) {
	ladder := []tiers.Tier{{Name: "10s", Delay: 10 * time.Second}, {Name: "20s", Delay: 20 * time.Second}}
	simulate(t, ladder, func(t *testing.T, r *rig) {
		r.kafka.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.kafka.KeepControl()
			produce := req.(*kmsg.ProduceRequest)
			for _, topic := range produce.Topics {
				for _, p := range topic.Partitions {
					if bytes.Contains(p.Records, []byte("POISON")) && r.isOrigin(topic) {
						return r.refuse(produce, kerr.InvalidRecord), nil, true
					}
				}
			}
			return nil, nil, false
		})
		const n = 3000
		for _, tier := range ladder {
			r.produce("orders.retry."+tier.Name, n, func(i int, rec *kgo.Record) {
				rec.Key = []byte("one partition")
				if i%100 == 50 {
					rec.Value = []byte("POISON")
				}
			})
		}
		time.Sleep(time.Minute)
		r.start()
		letters := r.await(time.Hour, "orders.dlt", 2*n/100)
		got := r.await(time.Hour, "orders", 2*n-2*n/100)
		if len(letters) != 2*n/100 || len(got) != 2*n-2*n/100 {
			t.Errorf("%d letters and %d records", len(letters), len(got))
		}
		for _, letter := range letters {
			if string(letter.Value) != "POISON" {
				t.Fatalf("an innocent record is a dead letter: %q", letter.Value)
			}
		}
		r.committedAll("orders.retry.10s", "orders.retry.20s")
	})
}
