package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
	chaos "github.com/kafka-redrive/redrive/test/chaos/stage"
)

// expiring is what dlt-replayer expiring -o json answers, as far as a story looks at it.
type expiring struct {
	Letters []struct {
		ExpiresAt time.Time `json:"expiresAt"`
		Letter    struct {
			ID        int64     `json:"id"`
			MessageID string    `json:"messageId"`
			DeadAt    time.Time `json:"deadAt"`
		} `json:"letter"`
	} `json:"letters"`
	Waiting []struct {
		Topic       string  `json:"topic"`
		From        int64   `json:"from"`
		To          int64   `json:"to"`
		WaitSeconds float64 `json:"waitSeconds"`
	} `json:"waiting"`
}

// set alters settings of a topic.
func (s *story) set(topic string, settings map[string]string) {
	s.t.Helper()
	var alter []kadm.AlterConfig
	for name, value := range settings {
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	answers, err := s.client.Admin().AlterTopicConfigs(s.t.Context(), alter, topic)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, a := range answers {
		if a.Err != nil {
			s.t.Fatal(a.Err)
		}
	}
}

// TestLettersAreListedAndRescuedBeforeRetentionTakesThem has a topic of dead letters that keeps them for a minute, in segments of a
// few seconds. Half of the letters are rescued, and the brokers take the records of all.
func TestLettersAreListedAndRescuedBeforeRetentionTakesThem(t *testing.T) {
	t.Parallel()
	const keeps = time.Minute
	s := tell(t, stage{tiers: []string{"10m"}, partitions: 2})
	s.set(s.deadLetters(), map[string]string{"retention.ms": strconv.FormatInt(keeps.Milliseconds(), 10), "segment.ms": "2000"})

	// Bytes that would not survive a detour through text.
	var records []*kgo.Record
	for i := range 8 {
		letter := s.letter(fmt.Sprintf("%d", i), fmt.Sprintf("key-%d", i), i)
		letter.Value = [][]byte{{0xff, 0, byte(i)}, {}, nil, []byte("text")}[i%4]
		letter.Headers = append(letter.Headers, kgo.RecordHeader{Key: "empty", Value: []byte{}}, kgo.RecordHeader{Key: "null"},
			kgo.RecordHeader{Key: "twice", Value: []byte{0xfe}}, kgo.RecordHeader{Key: "twice", Value: []byte("2")})
		records = append(records, letter)
	}
	s.client.Produce(records...)
	r := s.replay(s.sqlite(), "REDRIVE_REPLAYER_EXPIRY_WITHIN=10m")
	r.awaitLetters(8, state("dead"))

	// Known before anything is gone, and early rather than late.
	listed := decode[expiring](t, r.cli(0, "expiring", "-o", "json").stdout)
	if len(listed.Letters) != 8 {
		t.Fatalf("%d letters are listed, want 8", len(listed.Letters))
	}
	for _, e := range listed.Letters {
		if !e.ExpiresAt.Equal(e.Letter.DeadAt.Add(keeps)) {
			t.Errorf("letter %d, dead at %s, expires at %s", e.Letter.ID, e.Letter.DeadAt, e.ExpiresAt)
		}
	}
	if starts := s.starts(t.Context()); slices.Max(starts) > 0 {
		t.Fatalf("retention was faster than the story: the partitions begin at %v", starts)
	}
	r.cli(4, "expiring", "--within", "1s")
	r.awaitMetric("redrive_letters_expiring", s.deadLetters(), 8)
	if verbose, err := r.get(t.Context(), "/readyz?verbose"); err != nil || !strings.Contains(string(verbose), "letters-expiring: "+s.deadLetters()+": retention may take 8 dead letters") {
		t.Errorf("the probe does not tell: %v\n%s", err, verbose)
	}

	would := r.cli(0, "rescue", "--within", "10m", "--message-id", "message-0", "--message-id", "message-1", "--reason", "kept", "--dry-run").stdout
	if would != "would be kept: 2 letters\n" {
		t.Errorf("the dry run says %q", would)
	}
	rescued := []string{"message-0", "message-1", "message-2", "message-3"}
	rescue := []string{"rescue", "--reason", "kept", "--yes"}
	for _, id := range rescued {
		rescue = append(rescue, "--message-id", id)
	}
	if out := r.cli(0, rescue...).stdout; !strings.HasPrefix(out, "kept: 4 letters, ") {
		t.Errorf("the rescue says %q", out)
	}
	r.cli(4, rescue...)
	if listed := decode[expiring](t, r.cli(0, "expiring", "-o", "json").stdout); len(listed.Letters) != 4 {
		t.Errorf("%d letters are listed after the rescue, want 4", len(listed.Letters))
	}

	testkit.WaitFor(t, 2*patience, "retention to take all records", func(ctx context.Context) error {
		starts, ends := s.starts(ctx), s.client.EndOffsets(s.deadLetters())
		for partition, end := range ends {
			if starts[partition] < end {
				return fmt.Errorf("partition %d begins at %d and ends at %d", partition, starts[partition], end)
			}
		}
		return nil
	})
	if early := listed.Letters[0].ExpiresAt; time.Now().Before(early) {
		t.Errorf("the records are gone before %s", early)
	}
	r.awaitLetters(4, state("expired"))
	r.awaitLetters(4, state("dead"))

	r.job("", chaos.Replay{Filter: chaos.Filter{MessageID: rescued}})
	r.awaitLetters(4, state("replayed"))
	copies := map[string]*kgo.Record{}
	for _, c := range s.client.ReadAll(s.origin, kgo.ReadCommitted()) {
		id, _ := header(c, "redrive-message-id")
		copies[id] = c
	}
	for i, id := range rescued {
		c := copies[id]
		if c == nil {
			t.Errorf("%s is not on the origin", id)
			continue
		}
		if want := records[i]; !same(want.Key, c.Key) || !same(want.Value, c.Value) || !sameHeaders(theirs(want), theirs(c)) {
			t.Errorf("%s came back as %q: %q with %v, want %q: %q with %v", id, c.Key, c.Value, theirs(c), want.Key, want.Value, theirs(want))
		}
	}
	r.term()
}

// starts are where the partitions of the dead letters begin.
func (s *story) starts(ctx context.Context) []int64 {
	s.t.Helper()
	listed, err := s.client.Admin().ListStartOffsets(ctx, s.deadLetters())
	if err = errors.Join(err, listed.Error()); err != nil {
		s.t.Fatal(err)
	}
	starts := make([]int64, s.partitions)
	listed.Each(func(o kadm.ListedOffset) { starts[o.Partition] = o.Offset })
	return starts
}

// theirs are the headers that no part of Redrive sets.
func theirs(r *kgo.Record) []kgo.RecordHeader {
	return slices.DeleteFunc(slices.Clone(r.Headers), func(h kgo.RecordHeader) bool { return strings.HasPrefix(h.Key, "redrive-") })
}

// TestRecordsThatRetentionTakesBeforeTheyAreDueAreTold has a tier whose retention somebody has cut below its wait.
func TestRecordsThatRetentionTakesBeforeTheyAreDueAreTold(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"30m"}, partitions: 1})
	f := s.start()
	r := s.replay(s.sqlite())
	s.client.Produce(&kgo.Record{Topic: s.inbox(), Value: []byte("v")})
	s.client.WaitForRecords(patience, s.tiers[0], 1)
	r.cli(4, "expiring", "--within", "20d")

	s.set(s.tiers[0], map[string]string{"retention.ms": "900000"})
	listed := decode[expiring](t, r.cli(0, "expiring", "--within", "1h", "-o", "json").stdout)
	if len(listed.Waiting) != 1 || listed.Waiting[0].Topic != s.tiers[0] || listed.Waiting[0].To-listed.Waiting[0].From != 1 || listed.Waiting[0].WaitSeconds != 1800 {
		t.Errorf("what waits is %+v", listed.Waiting)
	}
	testkit.WaitFor(t, patience, "the forwarder to tell when retention may take the record", func(ctx context.Context) error {
		at, err := f.metric(ctx, "redrive_waiting_expires_timestamp_seconds", s.tiers[0])
		if want := time.Now().Add(15 * time.Minute); err == nil && time.Unix(int64(at), 0).Sub(want).Abs() > 5*time.Minute {
			err = fmt.Errorf("it says %v, want about %v", at, want.Unix())
		}
		return err
	})
}
