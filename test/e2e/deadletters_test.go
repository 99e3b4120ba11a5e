package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
	chaos "github.com/kafka-redrive/redrive/test/chaos/stage"
)

// TestADeadLetterIsFoundReplayedAndReadByAnyClient goes the whole way: a client that is not ours fails a record, the forwarder gives it
// up, an operator finds and replays it, the client reads it, and when it fails again it has its whole ladder before it dies anew.
func TestADeadLetterIsFoundReplayedAndReadByAnyClient(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"500ms"}})
	s.start()
	r := s.replay(s.sqlite())
	brokers := strings.Join(s.kafka.Brokers(), ",")
	testkit.Kcat(t, []byte("order 17"), "-P", "-b", brokers, "-t", s.inbox(), "-k", "customer", "-H", "trace=abc", "-H", "redrive-action=dead",
		"-H", "redrive-error-type=OutOfStock")

	first := r.awaitLetters(1, state("dead"))[0]
	listed := decode[chaos.Letter](t, r.cli(0, "list", "--state", "dead", "--error-type", "OutOfStock", "-o", "jsonl").stdout)
	if listed.ID != first.ID || listed.Reason != "permanent" || listed.Origin != s.origin || listed.Deliveries != 1 {
		t.Errorf("the list says %+v", listed)
	}
	id := strconv.FormatInt(first.ID, 10)
	if shown := r.cli(0, "show", id, "--raw").stdout; shown != "order 17" {
		t.Errorf("the bytes shown are %q", shown)
	}
	r.cli(4, "list", "--state", "discarded")
	r.cli(0, "replay", id, "--reason", "the stock is filled", "--yes")
	r.awaitLetters(1, state("replayed"))
	r.cli(5, "replay", id, "--reason", "again", "--yes")

	read := string(testkit.Kcat(t, nil, "-C", "-b", brokers, "-t", s.origin, "-o", "beginning", "-e", "-q", "-f", `%k|%s|%h\n`))
	for _, want := range []string{"customer|order 17|", "trace=abc", "redrive-message-id=" + first.MessageID, "redrive-replay-count=1"} {
		if !strings.Contains(read, want) {
			t.Errorf("kcat reads %q, which is without %q", read, want)
		}
	}
	for _, unwanted := range []string{"redrive-attempt=", "redrive-error-type=", "redrive-action="} {
		if strings.Contains(read, unwanted) {
			t.Errorf("kcat reads %q, which is with %q", read, unwanted)
		}
	}

	// It fails again: back by the tier, and only then dead.
	again := failed(s.client.ReadAll(s.origin, kgo.ReadCommitted())[0], "OutOfStock")
	again.Topic = s.inbox()
	s.client.Produce(again)
	records := s.client.WaitForRecords(patience, s.origin, 2)
	last := records[slices.IndexFunc(records, func(r *kgo.Record) bool { _, retried := header(r, "redrive-attempt"); return retried })]
	final := failed(last, "OutOfStock")
	final.Topic = s.inbox()
	final.Headers = append(final.Headers, kgo.RecordHeader{Key: "redrive-action", Value: []byte("dead")})
	s.client.Produce(final)
	second := r.awaitLetters(1, state("dead"))[0]
	if second.MessageID != first.MessageID || second.Deliveries != 3 || second.ReplayCount != 1 {
		t.Errorf("the second letter is %+v, of message %s, want 3 deliveries over all", second, first.MessageID)
	}
	if returned := r.awaitLetters(1, state("returned"))[0]; returned.ID != first.ID {
		t.Errorf("%+v has returned, not letter %d", returned, first.ID)
	}
	r.term()
}

// TestFiftyRequestsForOneLetterProduceOnce asks for one letter by API, command line and trigger topic at once, of two replicas.
func TestFiftyRequestsForOneLetterProduceOnce(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"10m"}})
	ledger := testkit.RealPostgres(t)
	replicas := []*replayer{s.replay(ledger), s.replay(ledger)}
	s.bury("one", 0, 1)
	letter := replicas[0].awaitLetters(1, state("dead"))[0]

	const byAPI, byCLI, byTrigger = 20, 10, 20
	var asked sync.WaitGroup
	begin := make(chan struct{})
	for i := range byAPI {
		asked.Go(func() {
			<-begin
			_, err := replicas[i%2].api.CreateJob(t.Context(), "", chaos.Replay{Filter: chaos.Filter{ID: []int64{letter.ID}}, Reason: "many"})
			var problem *chaos.Problem
			if err != nil && (!errors.As(err, &problem) || problem.Status != 409) {
				t.Errorf("a job by the API: %v", err)
			}
		})
	}
	for i := range byCLI {
		asked.Go(func() {
			cmd := exec.Command(replayerBinary, "replay", strconv.FormatInt(letter.ID, 10), "--reason", "many", "--yes")
			cmd.Env = append(testkit.Environment(), "REDRIVE_URL="+replicas[i%2].base)
			<-begin
			out, err := cmd.CombinedOutput()
			// It was this one, another one did it, or had done it.
			if code := cmd.ProcessState.ExitCode(); code != 0 && code != 3 && code != 5 {
				t.Errorf("a replay by the command line: %v\n%s", err, out)
			}
		})
	}
	var triggers []*kgo.Record
	for range byTrigger {
		triggers = append(triggers, &kgo.Record{Topic: s.triggers(), Headers: []kgo.RecordHeader{{Key: "redrive-message-id", Value: []byte(letter.MessageID)}}})
	}
	close(begin)
	s.client.Produce(triggers...)
	asked.Wait()
	replicas[0].awaitTriggersPassed()
	done := int64(0)
	for _, job := range replicas[0].awaitIdle() {
		done += job.Done
	}
	if copies := s.copies(s.origin); len(copies) != 1 || done != 1 {
		t.Errorf("%d copies are on the origin, and jobs have done %d, want 1", len(copies), done)
	}
	replicas[0].awaitLetters(1, state("replayed"))
}

// TestAReplayForOneGroupNeverReachesTheOther has two groups that failed the same record of one origin.
func TestAReplayForOneGroupNeverReachesTheOther(t *testing.T) {
	t.Parallel()
	s := untold(t, stage{tiers: []string{"10m"}})
	entry := func(group string) string {
		return fmt.Sprintf("  - origin: %s\n    group: %s\n    tiers: [10m]\n    returnTo: \"{origin}.{group}.return\"\n"+
			"    names: {inbox: \"{origin}.{group}.retry\", tier: \"{origin}.{group}.retry.{tier}\", deadLetters: \"{origin}.{group}.dlt\"}\n", s.origin, group)
	}
	head, _, _ := strings.Cut(s.text, "topics:")
	s.config = s.configFile("groups.yaml", head+"topics:\n"+entry("billing")+entry("shipping"))
	back := map[string]string{}
	for _, group := range []string{"billing", "shipping"} {
		back[group] = s.origin + "." + group + ".return"
		s.client.CreateTopic(back[group], s.partitions, nil)
	}
	s.expect(0, "topics", "apply", "-c", s.config)
	r := s.replay(s.sqlite())
	for _, group := range []string{"billing", "shipping"} {
		for i := range 2 {
			letter := s.letter("order-"+strconv.Itoa(i), "customer", i)
			letter.Topic = s.origin + "." + group + ".dlt"
			letter.Headers = append(letter.Headers, kgo.RecordHeader{Key: "redrive-group", Value: []byte(group)})
			s.client.Produce(letter)
		}
	}
	letters := r.awaitLetters(4, state("dead"))
	billing := letters[slices.IndexFunc(letters, func(l chaos.Letter) bool { return l.Group == "billing" && l.OriginOffset == 0 })]
	r.awaitJob(r.job("", chaos.Replay{Filter: chaos.Filter{ID: []int64{billing.ID}}}).ID)
	expect := func(billing, shipping []string) {
		t.Helper()
		got := map[string][]string{"billing": s.copies(back["billing"]), "shipping": s.copies(back["shipping"]), "origin": s.copies(s.origin)}
		if diff := cmp.Diff(map[string][]string{"billing": billing, "shipping": shipping, "origin": nil}, got); diff != "" {
			t.Errorf("copies (-want +got):\n%s", diff)
		}
	}
	expect([]string{"order-0"}, nil)
	// A key on the trigger topic of one group is that group's business as well.
	s.client.Produce(&kgo.Record{Topic: s.origin + ".shipping.dlt.replay", Key: []byte("customer")})
	r.awaitLetters(3, state("replayed"))
	expect([]string{"order-0"}, []string{"order-0", "order-1"})
}

// TestALedgerThatIsAwayLosesNothing kills Postgres in the middle of a job and while letters come in.
func TestALedgerThatIsAwayLosesNothing(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"10m"}})
	p := testkit.OwnPostgres(t, testkit.PostgresOptions{})
	r := s.replay(p.URL(""))
	values := s.bury("early", 0, 40)
	r.awaitLetters(len(values), state("dead"))
	rate := 10.0
	job := r.job("", chaos.Replay{Filter: chaos.Filter{State: []string{"dead"}}, Rate: &rate, Expect: int64(len(values))})
	testkit.WaitFor(t, patience, "a job that runs", func(ctx context.Context) error {
		job, err := r.api.Job(ctx, job.ID)
		if err == nil && job.Done == 0 {
			err = errors.New("nothing is done yet")
		}
		return err
	})
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	late := s.bury("late", 0, 30)
	testkit.WaitFor(t, patience, "a ledger that is known to be down", func(ctx context.Context) error {
		ready, err := r.ready(ctx)
		if err == nil && (ready.OK || len(ready.Issues) == 0 || ready.Issues[0].Issue != "ledger-down") {
			err = fmt.Errorf("readyz: %+v", ready)
		}
		return err
	})
	_, err := r.api.Letters(t.Context(), nil)
	r.refusal("ledger_unavailable", err)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done := r.awaitJob(job.ID); done.Done != int64(len(values)) || done.Failed+done.Skipped != 0 {
		t.Errorf("the job has ended as %+v", done)
	}
	r.awaitLetters(len(late), state("dead"))
	r.awaitLetters(len(values), state("replayed"))
	if diff := cmp.Diff(values, s.copies(s.origin)); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
	r.awaitReady()
	r.term()
}

// TestARecreatedTopicIsAnotherOne deletes the dead-letter topic and makes it again, so that offsets begin anew.
func TestARecreatedTopicIsAnotherOne(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"10m"}})
	r := s.replay(s.sqlite())
	s.bury("old", 0, 5)
	old := r.awaitLetters(5, state("dead"))
	if _, err := s.client.Admin().DeleteTopic(t.Context(), s.deadLetters()); err != nil {
		t.Fatal(err)
	}
	s.awaitMissing(s.deadLetters())
	s.client = s.kafka.Client(t) // The old one knows the old topic.
	s.client.CreateTopic(s.deadLetters(), s.partitions, nil)
	s.bury("new", 10, 3)
	young := r.awaitLetters(3, url.Values{"state": {"dead"}, "key": {"new"}})
	r.awaitLetters(5, state("expired"))
	if old[0].TopicID == young[0].TopicID {
		t.Errorf("both topics have the id %s", old[0].TopicID)
	}
	_, err := r.api.CreateJob(t.Context(), "", chaos.Replay{Filter: chaos.Filter{ID: []int64{old[0].ID}}, Reason: "gone"})
	r.refusal("expired", err)
	r.awaitJob(r.job("", chaos.Replay{Filter: chaos.Filter{State: []string{"dead"}}, Expect: 3}).ID)
	if diff := cmp.Diff([]string{"new-10", "new-11", "new-12"}, s.copies(s.origin)); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
}

// TestWhatRetentionTookIsToldAndNotReplayed removes letters from the head of their topic: some that are indexed, and some that are not.
func TestWhatRetentionTookIsToldAndNotReplayed(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"10m"}, partitions: 1})
	r := s.replay(s.sqlite())
	s.bury("key", 0, 8)
	r.awaitLetters(8, state("dead"))
	s.trim(s.deadLetters(), 3)
	r.awaitLetters(5, state("expired"))
	r.awaitJob(r.job("", chaos.Replay{Filter: chaos.Filter{State: []string{"dead"}}}).ID)
	if diff := cmp.Diff([]string{"key-5", "key-6", "key-7"}, s.copies(s.origin)); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
	r.term()

	s.bury("key", 8, 4)
	s.trim(s.deadLetters(), 1)
	r = s.replay(s.sqlite())
	r.awaitLetters(1, state("dead"))
	r.awaitMetric("redrive_letters_lost_total", s.deadLetters(), 3)
}

// TestKeptBytesOutliveTheirTopic has the ledger keep the bytes.
func TestKeptBytesOutliveTheirTopic(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"10m"}})
	r := s.replay(s.sqlite(), "REDRIVE_LEDGER_KEEPPAYLOAD=true")
	values := s.bury("kept", 0, 3)
	nothing := s.letter("", "kept", 3)
	nothing.Value = nil
	nothing.Headers = append(nothing.Headers, kgo.RecordHeader{Key: "empty", Value: []byte{}}, kgo.RecordHeader{Key: "null"})
	s.client.Produce(nothing)
	r.awaitLetters(4, state("dead"))
	s.trim(s.deadLetters(), 0)
	if job := r.awaitJob(r.job("", chaos.Replay{Filter: chaos.Filter{State: []string{"dead"}}}).ID); job.Done != 4 {
		t.Errorf("the job has ended as %+v", job)
	}
	records := s.client.ReadAll(s.origin, kgo.ReadCommitted())
	if diff := cmp.Diff(append(values, ""), s.copies(s.origin)); diff != "" {
		t.Fatalf("copies (-want +got):\n%s", diff)
	}
	if diff := chaos.Difference(nothing, records[3]); diff != "" {
		t.Errorf("the copy of a tombstone: %s", diff)
	}
}

// TestATriggerReplaysItsKeyInOrderAndOnlyOnce asks by records, lets the replayer die before it commits them, and looks at the answers.
func TestATriggerReplaysItsKeyInOrderAndOnlyOnce(t *testing.T) {
	t.Parallel()
	replies := testkit.UniqueName("replies")
	s := tell(t, stage{tiers: []string{"10m"}, topic: "replyTo: [" + replies + "]"})
	s.client.CreateTopic(replies, 1, nil)
	r := s.replay(s.sqlite())
	// They die in another order than they were written to the origin, and in other partitions.
	for _, i := range []int{4, 1, 3, 0, 2} {
		letter := s.letter("ordered-"+strconv.Itoa(i), "ordered", i)
		letter.Partition = int32(i) % s.partitions
		s.produceTo(letter)
	}
	s.bury("single", 10, 2)
	s.bury("silent", 20, 1)
	r.awaitLetters(8, state("dead"))

	ask := func(key []byte, headers ...string) {
		record := &kgo.Record{Topic: s.triggers(), Key: key}
		for i := 0; i < len(headers); i += 2 {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
		}
		s.client.Produce(record)
	}
	ask([]byte("ordered"), "redrive-reply-to", replies, "redrive-actor", "a program")
	ask([]byte("single"), "redrive-message-id", "message-single-10")
	ask(nil)
	ask([]byte("nobody"), "redrive-reply-to", replies)
	ask([]byte{0xff, 0}, "redrive-message-id", "\xff\x00", "redrive-rate", "quickly", "redrive-reply-to", "__consumer_offsets")

	answers := map[string]outcome{}
	for _, record := range s.client.WaitForRecords(patience, replies, 2) {
		answers[string(record.Key)] = decode[outcome](t, string(record.Value))
	}
	if a := answers["ordered"]; a.Replayed != 5 || a.Failed+a.Skipped != 0 || a.Job == "" {
		t.Errorf("the answers are %+v", answers)
	}
	r.awaitTriggersPassed()
	jobs := len(r.awaitIdle())
	want := []string{"ordered-0", "ordered-1", "ordered-2", "ordered-3", "ordered-4", "single-10"}
	check := func() {
		t.Helper()
		copies := s.copies(s.origin)
		if diff := cmp.Diff(want, sorted(copies)); diff != "" {
			t.Errorf("copies (-want +got):\n%s", diff)
		}
		ordered := slices.DeleteFunc(copies, func(v string) bool { return !strings.HasPrefix(v, "ordered") })
		if !slices.IsSorted(ordered) {
			t.Errorf("copies of one key stand as %q", ordered)
		}
	}
	check()
	refused := 0
	for line := range strings.Lines(r.cli(0, "audit", "-o", "jsonl").stdout) {
		if strings.Contains(line, "trigger-refused") {
			refused++
		}
	}
	if refused < 2 {
		t.Errorf("%d triggers are refused in the audit trail, want those without sense", refused)
	}

	// As if it had died before it committed any of them.
	r.kill()
	s.forget(s.group+"-replayer", s.triggers())
	r = s.replay(s.sqlite())
	ask([]byte("silent"))
	r.awaitTriggersPassed()
	if after := len(r.awaitIdle()); after != jobs+1 {
		t.Errorf("%d jobs became %d with one trigger more", jobs, after)
	}
	want = append(want, "silent-20")
	slices.Sort(want)
	check()
}

// outcome is the value of a reply.
type outcome struct {
	Job                       string
	Replayed, Failed, Skipped int
}

// produceTo writes a record to the partition that it names.
func (s *story) produceTo(record *kgo.Record) {
	s.t.Helper()
	client := s.kafka.Client(s.t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	client.Produce(record)
}

// forget sets the commits of a group without members back to the start of a topic.
func (s *story) forget(group, topic string) {
	s.t.Helper()
	offsets := kadm.Offsets{}
	for partition := range s.client.EndOffsets(topic) {
		offsets.AddOffset(topic, partition, 0, -1)
	}
	testkit.WaitFor(s.t, patience, "a group that takes other commits", func(ctx context.Context) error {
		answers, err := s.client.Admin().CommitOffsets(ctx, group, offsets)
		return errors.Join(err, answers.Error())
	})
}

// TestAReplayIsOfWhatWasSeen holds a filter to the letters that were there when it was asked, and a second request to the first.
func TestAReplayIsOfWhatWasSeen(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"10m"}})
	r := s.replay(s.sqlite())
	values := s.bury("seen", 0, 20)
	r.awaitLetters(20, state("dead"))
	replay := chaos.Replay{Filter: chaos.Filter{State: []string{"dead"}}, Reason: "seen", Rate: new(float64), Expect: 19, All: true}
	*replay.Rate = 10
	_, err := r.api.CreateJob(t.Context(), "one", replay)
	r.refusal("count_changed", err)
	replay.Expect = 20
	job := r.job("one", replay)
	s.bury("unseen", 20, 5)
	r.awaitLetters(25, nil)
	if again := r.job("one", replay); again.ID != job.ID {
		t.Errorf("the same request has made job %s beside %s", again.ID, job.ID)
	}
	if job = r.awaitJob(job.ID); job.Total != 20 || job.Done != 20 {
		t.Errorf("the job has ended as %+v", job)
	}
	unseen := r.awaitLetters(5, state("dead"))
	if diff := cmp.Diff(values, s.copies(s.origin)); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
	// Not the second of a key before the first.
	_, err = r.api.CreateJob(t.Context(), "", chaos.Replay{Filter: chaos.Filter{ID: []int64{unseen[1].ID}}, Reason: "too soon"})
	r.refusal("out_of_order", err)
	r.cli(5, "replay", strconv.FormatInt(unseen[1].ID, 10), "--reason", "too soon", "--yes")
	if n, err := r.api.Change(t.Context(), "discards", chaos.Filter{ID: []int64{unseen[0].ID}}, 1); n != 1 || err != nil {
		t.Errorf("%d letters were discarded: %v", n, err)
	}
	r.awaitJob(r.job("", chaos.Replay{Filter: chaos.Filter{ID: []int64{unseen[1].ID}}}).ID)
	_, err = r.api.CreateJob(t.Context(), "", chaos.Replay{Filter: chaos.Filter{ID: []int64{unseen[0].ID}}, Reason: "not wanted"})
	r.refusal("discarded", err)
	_, err = r.api.CreateJob(t.Context(), "", chaos.Replay{Filter: chaos.Filter{ID: []int64{unseen[1].ID}}, Reason: "again"})
	r.refusal("already_replayed", err)
	_, err = r.api.CreateJob(t.Context(), "", chaos.Replay{Filter: chaos.Filter{ID: []int64{1 << 40}}, Reason: "unknown"})
	var problem *chaos.Problem
	if !errors.As(err, &problem) || problem.Status != 404 {
		t.Errorf("a replay of a letter that nobody knows: %v", err)
	}
}

// TestAReplayGoesOnAfterADeath kills the only replica in the middle of a job.
func TestAReplayGoesOnAfterADeath(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"10m"}})
	ledger := s.sqlite()
	r := s.replay(ledger)
	values := s.bury("key", 0, 60)
	r.awaitLetters(60, state("dead"))
	rate := 20.0
	job := r.job("", chaos.Replay{Filter: chaos.Filter{State: []string{"dead"}}, Rate: &rate})
	testkit.WaitFor(t, patience, "half of a job", func(ctx context.Context) error {
		job, err := r.api.Job(ctx, job.ID)
		if err == nil && job.Done < 10 {
			err = fmt.Errorf("%+v", job)
		}
		return err
	})
	r.kill()
	// Meanwhile somebody finds no ledger that he may use.
	r = s.replay(ledger)
	refused := s.execute(exec.Command(replayerBinary, "serve", "-c", s.config), "REDRIVE_LEDGER_URL="+ledger,
		"REDRIVE_REPLAYER_API_ADDRESS="+s.address(), "REDRIVE_REPLAYER_ADMIN_ADDRESS="+s.address())
	if refused.code == 0 || !strings.Contains(refused.stderr, "ledger.db") {
		t.Errorf("a second process on a ledger of SQLite: exit code %d\n%s", refused.code, refused.stderr)
	}
	if done := r.awaitJob(job.ID); done.Done != 60 || done.Failed+done.Skipped != 0 {
		t.Errorf("the job has ended as %+v", done)
	}
	// The copies that were sent and not marked are found, on a broker that does not die.
	if diff := cmp.Diff(values, s.copies(s.origin)); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
	if took := r.term(); took > 10*time.Second {
		t.Errorf("the stop took %v", took)
	}
}
