package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
	chaos "github.com/kafka-redrive/redrive/test/chaos/stage"
)

// replayer is a dlt-replayer that serves.
type replayer struct {
	*child
	story *story
	api   *chaos.API
	base  string // of the API, for the command line
}

// sqlite is the URL of a ledger in the folder of the story.
func (s *story) sqlite() string { return "sqlite://" + filepath.Join(s.dir, "ledger.db") }

// triggers is the topic that asks for replays.
func (s *story) triggers() string { return s.deadLetters() + ".replay" }

// replay starts a dlt-replayer on a ledger and returns when it is ready. A member that was killed is forgotten soon, and so is its
// lease.
func (s *story) replay(ledger string, env ...string) *replayer {
	s.t.Helper()
	r := s.replayLater(ledger, env...)
	r.awaitReady()
	return r
}

// replayLater starts a dlt-replayer and does not wait for anything.
func (s *story) replayLater(ledger string, env ...string) *replayer {
	s.t.Helper()
	api, admin := s.address(), s.address()
	env = append([]string{
		"REDRIVE_LEDGER_URL=" + ledger, "REDRIVE_REPLAYER_GROUP=" + s.group + "-replayer", "REDRIVE_REPLAYER_SESSIONTIMEOUT=6s",
		"REDRIVE_REPLAYER_SHUTDOWNTIMEOUT=5s", "REDRIVE_REPLAYER_LEASE=4s",
		"REDRIVE_REPLAYER_API_ADDRESS=" + api, "REDRIVE_REPLAYER_ADMIN_ADDRESS=" + admin,
	}, env...)
	r := &replayer{story: s, api: chaos.NewAPI(api), base: "http://" + api}
	s.t.Cleanup(r.api.Close)
	r.child = s.spawn("dlt-replayer", admin, exec.Command(replayerBinary, "serve", "-c", s.config), env...)
	return r
}

// awaitReady waits until the process says that it is ready.
func (r *replayer) awaitReady() {
	r.t.Helper()
	testkit.WaitFor(r.t, patience, "a dlt-replayer that is ready", func(ctx context.Context) error {
		ready, err := r.ready(ctx)
		if err == nil && !ready.OK {
			err = fmt.Errorf("readyz: %+v", ready)
		}
		return err
	})
}

// cli runs a command against the API and fails the test if it ends with another exit code.
func (r *replayer) cli(code int, arguments ...string) result {
	r.t.Helper()
	got := r.story.execute(exec.Command(replayerBinary, arguments...), "REDRIVE_URL="+r.base)
	if got.code != code {
		r.t.Fatalf("dlt-replayer %q: exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", arguments, got.code, code, got.stdout, got.stderr)
	}
	return got
}

// find lists the letters that a query selects, in the order in which they died.
func (r *replayer) find(ctx context.Context, query url.Values) ([]chaos.Letter, error) {
	all := url.Values{"order": {"oldest"}, "limit": {"1000"}}
	maps.Copy(all, query)
	return r.api.Letters(ctx, all)
}

// awaitLetters waits until a query selects exactly so many letters, and returns them.
func (r *replayer) awaitLetters(n int, query url.Values) []chaos.Letter {
	r.t.Helper()
	var letters []chaos.Letter
	testkit.WaitFor(r.t, patience, fmt.Sprintf("%d letters of %s", n, query.Encode()), func(ctx context.Context) (err error) {
		if letters, err = r.find(ctx, query); err == nil && len(letters) != n {
			err = fmt.Errorf("there are %d: %s", len(letters), summary(letters))
		}
		return err
	})
	return letters
}

func summary(letters []chaos.Letter) string {
	var all []string
	for _, l := range letters {
		all = append(all, fmt.Sprintf("%d %s/%d@%d %s %s", l.ID, l.Topic, l.Partition, l.Offset, l.MessageID, l.State))
	}
	return strings.Join(all, ", ")
}

// state selects letters in a state.
func state(name string) url.Values { return url.Values{"state": {name}} }

// job creates a job.
func (r *replayer) job(request string, replay chaos.Replay) chaos.Job {
	r.t.Helper()
	if replay.Reason == "" {
		replay.Reason = "a story"
	}
	replay.All = true
	job, err := r.api.CreateJob(r.t.Context(), request, replay)
	if err != nil {
		r.t.Fatal(err)
	}
	return job
}

// awaitJob waits until a job is done and returns it.
func (r *replayer) awaitJob(id string) chaos.Job {
	r.t.Helper()
	var job chaos.Job
	testkit.WaitFor(r.t, patience, "job "+id+" to be done", func(ctx context.Context) (err error) {
		if job, err = r.api.Job(ctx, id); err == nil && job.State != "done" {
			err = fmt.Errorf("%+v", job)
		}
		return err
	})
	return job
}

// refusal fails the test unless err is the problem with that code.
func (r *replayer) refusal(code string, err error) {
	r.t.Helper()
	var problem *chaos.Problem
	if !errors.As(err, &problem) || problem.Code != code {
		r.t.Errorf("the answer is %v, want the problem %s", err, code)
	}
}

// letter is a dead letter as a consumer or the forwarder writes it: the record with the value of that name and this place on the origin.
func (s *story) letter(value, key string, offset int) *kgo.Record {
	r := &kgo.Record{Topic: s.deadLetters(), Key: []byte(key), Value: []byte(value)}
	r.Headers = append(position(s.origin, s.home(key), int64(offset), time.Now()), kgo.RecordHeader{Key: "redrive-reason", Value: []byte("poison")},
		kgo.RecordHeader{Key: "redrive-message-id", Value: []byte("message-" + value)},
		kgo.RecordHeader{Key: "redrive-original-partitions", Value: []byte(strconv.Itoa(int(s.partitions)))})
	return r
}

// home is the partition of a key on the origin.
func (s *story) home(key string) int32 {
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic(s.origin).Partition(&kgo.Record{Key: []byte(key)}, int(s.partitions)))
}

// bury writes n dead letters of one key.
func (s *story) bury(key string, from, n int) []string {
	s.t.Helper()
	var (
		records []*kgo.Record
		values  []string
	)
	for i := range n {
		value := fmt.Sprintf("%s-%d", key, from+i)
		values = append(values, value)
		records = append(records, s.letter(value, key, from+i))
	}
	s.client.Produce(records...)
	return values
}

// copies are the values on a topic, by partition in the order of their offsets.
func (s *story) copies(topic string) []string {
	s.t.Helper()
	var all []string
	for _, r := range s.client.ReadAll(topic, kgo.ReadCommitted()) {
		all = append(all, string(r.Value))
	}
	return all
}

// awaitTriggersPassed waits until all triggers were handled, or refused.
func (r *replayer) awaitTriggersPassed() {
	r.t.Helper()
	group := r.story.group + "-replayer"
	testkit.WaitFor(r.t, patience, "all triggers to be handled", func(ctx context.Context) error {
		ends, err := r.story.client.Client.EndOffsets(ctx, r.story.triggers())
		if err != nil {
			return err
		}
		commits, err := r.story.client.Client.CommittedOffsets(ctx, group)
		if err != nil {
			return err
		}
		for partition, end := range ends {
			if commit, _ := commits.Lookup(r.story.triggers(), partition); end > 0 && commit.At != end {
				return fmt.Errorf("partition %d ends at %d, the commit stands at %d", partition, end, commit.At)
			}
		}
		return nil
	})
}

// awaitIdle waits until all jobs are done and returns them.
func (r *replayer) awaitIdle() []chaos.Job {
	r.t.Helper()
	var answer struct {
		Jobs []chaos.Job `json:"jobs"`
	}
	testkit.WaitFor(r.t, patience, "all jobs to be done", func(ctx context.Context) error {
		if err := r.api.Get(ctx, "/jobs", url.Values{"limit": {"1000"}}, &answer); err != nil {
			return err
		}
		for _, job := range answer.Jobs {
			if job.State != "done" {
				return fmt.Errorf("%+v", job)
			}
		}
		return nil
	})
	return answer.Jobs
}

// decode reads the JSON that a command has written.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return value
}

// sorted returns the values in order.
func sorted(values []string) []string { return slices.Sorted(slices.Values(values)) }
