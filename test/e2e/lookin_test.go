package e2e

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// handOver writes n records to a topic, named from and up, and returns their values.
func (s *story) handOver(topic string, from, n int) []string {
	s.t.Helper()
	var (
		records []*kgo.Record
		values  []string
	)
	for i := range n {
		value := "value-" + strconv.Itoa(from+i)
		values = append(values, value)
		records = append(records, &kgo.Record{
			Topic: topic, Key: []byte("key-" + strconv.Itoa(from+i)), Value: []byte(value),
			Headers: position(s.origin, int32(i)%s.partitions, int64(from+i), time.Now()),
		})
	}
	s.client.Produce(records...)
	return values
}

// trim removes records from the head of each partition of a topic, as retention does: all but the last so many, and
// returns how many are left.
func (s *story) trim(topic string, keep int64) (left int) {
	s.t.Helper()
	offsets := map[int32]int64{}
	for partition, end := range s.client.EndOffsets(topic) {
		below := max(0, end-keep)
		left += int(end - below)
		offsets[partition] = below
	}
	s.client.DeleteRecords(topic, offsets)
	return left
}

// awaitEmptyGroup waits until the brokers have forgotten the last member.
func (s *story) awaitEmptyGroup() {
	s.t.Helper()
	testkit.WaitFor(s.t, patience, "a group without members", func(ctx context.Context) error {
		groups, err := s.client.Admin().DescribeGroups(ctx, s.group)
		if err == nil && len(groups[s.group].Members) > 0 {
			err = fmt.Errorf("%d members", len(groups[s.group].Members))
		}
		return err
	})
}

// awaitIssue waits until the readiness of the process names an issue of a topic.
func (c *child) awaitIssue(code, topic string) {
	c.t.Helper()
	testkit.WaitFor(c.t, patience, code+" of "+topic, func(ctx context.Context) error {
		body, err := c.get(ctx, "/readyz?format=json")
		if err == nil && (!strings.Contains(string(body), `"`+code+`"`) || !strings.Contains(string(body), `"`+topic+`"`)) {
			err = errors.New(string(body))
		}
		return err
	})
}

// awaitWell waits until the readiness of the process names no issue of an offset.
func (c *child) awaitWell() {
	c.t.Helper()
	testkit.WaitFor(c.t, patience, "no issue of an offset", func(ctx context.Context) error {
		body, err := c.get(ctx, "/readyz?format=json")
		if err == nil && strings.Contains(string(body), `"offset-`) {
			err = errors.New(string(body))
		}
		return err
	})
}

// offsets is what offsets list says of a topic, by partition.
func (s *story) offsets(topic string) map[int32]struct{ State, Detail string } {
	s.t.Helper()
	var answer struct {
		Group      string
		Partitions []struct {
			Partition     int32
			State, Detail string
		}
	}
	r := s.expect(0, "offsets", "list", "--topic", topic, "-o", "json", "-c", s.config)
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || answer.Group != s.group {
		s.t.Fatalf("offsets list: %v\n%s", err, r.stdout)
	}
	states := map[int32]struct{ State, Detail string }{}
	for _, p := range answer.Partitions {
		states[p.Partition] = struct{ State, Detail string }{p.State, p.Detail}
	}
	return states
}

// lostCommits is a forwarder that runs and does not read its tier: 20 records were forwarded and removed, 20 wait, and the
// commits are gone.
func lostCommits(t *testing.T) (s *story, c *child, waiting []string) {
	t.Helper()
	s = tell(t, stage{partitions: 2, tiers: []string{"1s"}})
	c = s.start()
	s.handOver(s.inbox(), 0, 20)
	s.awaitDrained(20)
	c.term()
	s.trim(s.inbox(), 0)
	s.trim(s.tiers[0], 0)
	waiting = s.handOver(s.tiers[0], 100, 20)
	s.awaitEmptyGroup()
	if _, err := s.client.Admin().DeleteGroup(t.Context(), s.group); err != nil {
		t.Fatal(err)
	}
	c = s.start()
	c.awaitIssue("offset-missing", s.tiers[0])
	return s, c, waiting
}

func TestCommitsThatAreGoneAreSetWhileTheForwarderRuns(t *testing.T) {
	t.Parallel()
	s, c, waiting := lostCommits(t)
	for partition, p := range s.offsets(s.tiers[0]) {
		if p.State != "offset-missing" || p.Detail == "" {
			t.Errorf("partition %d: %+v", partition, p)
		}
	}
	r := s.expect(0, "offsets", "set", "--topic", s.tiers[0], "--to", "earliest", "-c", s.config)
	for partition := range 2 {
		if !strings.Contains(r.stdout, fmt.Sprintf("%s/%d: is read on from offset ", s.tiers[0], partition)) {
			t.Errorf("partition %d is not named:\n%s", partition, r.stdout)
		}
	}
	s.awaitDrained(40)
	c.awaitWell()
	for partition, p := range s.offsets(s.tiers[0]) {
		if p.State != "ok" {
			t.Errorf("partition %d: %+v", partition, p)
		}
	}
	c.term()
	h := s.read()
	s.checkNoneTwice(h, waiting)
	for _, value := range waiting {
		if len(h[s.origin][value]) != 1 {
			t.Errorf("%s is not on the origin", value)
		}
	}
}

func TestACommitOutOfRangeIsSetWhileTheForwarderRuns(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{partitions: 2, tiers: []string{"1s"}})
	c := s.start()
	s.handOver(s.inbox(), 0, 20)
	s.awaitDrained(20)
	c.term()
	s.handOver(s.tiers[0], 100, 40)
	left := s.trim(s.tiers[0], 5)
	c = s.start()
	c.awaitIssue("offset-out-of-range", s.tiers[0])
	s.expect(0, "offsets", "set", "--topic", s.tiers[0], "--to", "earliest", "-c", s.config)
	s.awaitDrained(20 + left)
	c.awaitWell()
	c.term()
	if n := len(s.client.ReadAll(s.origin, kgo.ReadCommitted())); n != 20+left {
		t.Errorf("%d records on the origin, want %d", n, 20+left)
	}
}

func TestWaitingRecordsArePassedOnlyWhenThatIsSaid(t *testing.T) {
	t.Parallel()
	s, c, waiting := lostCommits(t)
	set := []string{"offsets", "set", "--topic", s.tiers[0], "--to", "latest", "-c", s.config}
	r := s.expect(2, set...)
	if !strings.Contains(r.stderr, "passes 20 records") || !strings.Contains(r.stderr, "--yes") {
		t.Errorf("the count is not told:\n%s", r.stderr)
	}
	for partition, p := range s.offsets(s.tiers[0]) {
		if p.State != "offset-missing" {
			t.Errorf("partition %d after a refusal: %+v", partition, p)
		}
	}
	r = s.expect(0, append(set, "--yes", "-o", "json")...)
	var answer struct {
		Changes []struct {
			From, To, Skipped int64
			Done              bool
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || len(answer.Changes) != 2 {
		t.Fatalf("%v\n%s", err, r.stdout)
	}
	skipped := int64(0)
	for _, change := range answer.Changes {
		skipped += change.Skipped
		if !change.Done || change.From != -1 {
			t.Errorf("%+v", change)
		}
	}
	if skipped != 20 {
		t.Errorf("%d are skipped, want 20", skipped)
	}
	s.handOver(s.tiers[0], 200, 10)
	s.awaitDrained(30)
	c.term()
	h := s.read()
	for _, value := range waiting {
		if len(h[s.origin][value]) != 0 {
			t.Errorf("%s was to be passed", value)
		}
	}
}

func TestAHealthyPartitionIsSetOnlyWithoutAForwarder(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{partitions: 2, tiers: []string{"1s"}})
	c := s.start()
	s.handOver(s.inbox(), 0, 20)
	s.awaitDrained(20)
	before := s.client.CommittedOffsets(s.group)
	set := []string{"offsets", "set", "--topic", s.tiers[0], "--to", "earliest", "-c", s.config}
	r := s.expect(1, set...)
	if !strings.Contains(r.stderr, "no partition waits for a decision") {
		t.Errorf("no clear message:\n%s", r.stderr)
	}
	r = s.expect(1, append(set, "--partition", "0")...)
	if !strings.Contains(r.stderr, "nothing is wrong with this partition") {
		t.Errorf("no clear message:\n%s", r.stderr)
	}
	for _, topic := range s.sources() {
		for partition := range s.partitions {
			was, _ := before.Lookup(topic, partition)
			if is, _ := s.client.CommittedOffsets(s.group).Lookup(topic, partition); is.At != was.At {
				t.Errorf("%s/%d: the commit moved from %d to %d", topic, partition, was.At, is.At)
			}
		}
	}
	c.term()
	s.awaitEmptyGroup()
	end := s.client.EndOffsets(s.tiers[0])[0]
	s.expect(0, append(set, "--partition", "0")...)
	if commit, _ := s.client.CommittedOffsets(s.group).Lookup(s.tiers[0], 0); commit.At != 0 {
		t.Errorf("the commit stands at %d, want 0", commit.At)
	}
	s.start()
	s.awaitDrained(20 + int(end))
}

func TestAUsageOfOffsetsThatIsWrongDoesNothing(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{partitions: 2, tiers: []string{"1s"}})
	for _, arguments := range []string{
		"offsets", "offsets set --to earliest", "offsets set --topic " + s.inbox(), "offsets set --topic " + s.inbox() + " --to first",
		"offsets set --topic " + s.inbox() + " --to 0", "offsets set --topic " + s.origin + " --to earliest",
		"offsets set --topic " + s.inbox() + " --to earliest --timeout 2h", "offsets list --topic " + s.deadLetters(),
		"find", "find --key a --message-id b", "find --key zz --key-encoding hex", "find --key a --limit 0", "find --key a --topic " + s.inbox(),
		"find --message-id a --key-encoding text",
	} {
		r := s.expect(2, append(strings.Fields(arguments), "-c", s.config)...)
		if r.stdout != "" || r.stderr == "" {
			t.Errorf("%s:\n%s%s", arguments, r.stdout, r.stderr)
		}
	}
	if commits := s.client.CommittedOffsets(s.group); len(commits) > 0 {
		t.Errorf("commits: %v", commits)
	}
}

// waitingRecord is one record of the answer of find.
type waitingRecord struct {
	Topic           string
	Partition       int32
	Offset          int64
	MessageID, Next string
	Attempt         int
	Until           time.Time
	Original        struct {
		Topic     string
		Partition int32
		Offset    int64
	}
}

func (s *story) find(code int, arguments ...string) []waitingRecord {
	s.t.Helper()
	var answer struct{ Records []waitingRecord }
	r := s.expect(code, append([]string{"find", "-o", "json", "-c", s.config}, arguments...)...)
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
		s.t.Fatalf("find: %v\n%s", err, r.stdout)
	}
	if strings.Contains(r.stdout+r.stderr, "value-") {
		s.t.Errorf("find shows a value:\n%s%s", r.stdout, r.stderr)
	}
	return answer.Records
}

func TestARecordIsFoundWhileItWaitsAndNotAfter(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"15s", "1h"}})
	c := s.start()
	began := time.Now()
	s.handOver(s.inbox(), 0, 50)
	c.awaitMetric("redrive_held_records", s.tiers[0], 50)

	id := fmt.Sprintf("%s/%d/7", s.origin, 7%s.partitions)
	key := []byte("key-7")
	testkit.WaitFor(t, patience, "the commit of the inbox, until which a record is found there as well", func(context.Context) error {
		if n := len(s.find(0, "--message-id", id)); n != 1 {
			return fmt.Errorf("%d records are found", n)
		}
		return nil
	})
	for _, arguments := range [][]string{
		{"--message-id", id},
		{"--key", "key-7"},
		{"--key", base64.StdEncoding.EncodeToString(key), "--key-encoding", "base64", "--topic", s.origin},
		{"--key", hex.EncodeToString(key), "--key-encoding", "hex", "--limit", "5"},
	} {
		got := s.find(0, arguments...)
		if len(got) != 1 {
			t.Fatalf("find %q: %d records, want 1", arguments, len(got))
		}
		w := got[0]
		if w.Topic != s.tiers[0] || w.Next != s.origin || w.MessageID != id || w.Attempt != 1 ||
			w.Original.Topic != s.origin || w.Original.Partition != int32(7)%s.partitions || w.Original.Offset != 7 {
			t.Errorf("find %q: %+v", arguments, w)
		}
		if wait := w.Until.Sub(began); wait < 14*time.Second || wait > 60*time.Second {
			t.Errorf("find %q: it waits for %v", arguments, wait)
		}
	}
	if text := s.expect(0, "find", "--message-id", id, "-c", s.config).stdout; !strings.Contains(text, id) || !strings.Contains(text, s.tiers[0]) {
		t.Errorf("as text:\n%s", text)
	}
	if got := s.find(4, "--key", "key-50"); len(got) != 0 {
		t.Errorf("found what is not there: %+v", got)
	}
	s.awaitDrained(50)
	if got := s.find(4, "--message-id", id); len(got) != 0 {
		t.Errorf("found after it was forwarded: %+v", got)
	}
	if r, err := c.ready(t.Context()); err != nil || !r.OK || r.Assigned != s.owned() {
		t.Errorf("the forwarder was disturbed: %+v %v", r, err)
	}
}
