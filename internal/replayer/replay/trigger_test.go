package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

func (r *rig) ask(key []byte, headers ...string) {
	r.t.Helper()
	rec := &kgo.Record{Topic: "orders.dlt.replay", Key: key}
	for i := 0; i < len(headers); i += 2 {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	r.client.Produce(rec)
}

// replies waits for n records on the reply topic.
func (r *rig) replies(n int) []outcome {
	r.t.Helper()
	var all []outcome
	for _, rec := range r.client.WaitForRecords(2*time.Minute, "replies", n) {
		var o outcome
		if err := json.Unmarshal(rec.Value, &o); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// jobs waits until there are n jobs and all are done.
func (r *rig) jobs(n int) []deadletter.Job {
	r.t.Helper()
	var jobs []deadletter.Job
	testkit.WaitFor(r.t, 2*time.Minute, fmt.Sprintf("%d jobs to be done", n), func(ctx context.Context) (err error) {
		if jobs, err = r.ledger.Jobs(ctx, "", 100); err != nil {
			return err
		}
		done := 0
		for _, job := range jobs {
			if job.State == deadletter.JobDone {
				done++
			}
		}
		if done < n {
			return fmt.Errorf("%d of %d", done, len(jobs))
		}
		return nil
	})
	if len(jobs) != n {
		r.t.Errorf("%d jobs, want %d", len(jobs), n)
	}
	return jobs
}

func TestATriggerRecordReplaysItsKeyInOrderAndAnswers(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(30, 3)...)
		r.opts.Group = "redrive-dlt-replayer"
		r.start()
		r.ask([]byte("k1"), HeaderReplyTo, "replies", HeaderActor, "billing", HeaderReasonText, "mended", HeaderRate, "50")
		got := r.replies(1)
		job := r.jobs(1)[0]
		if got[0] != (outcome{Job: job.ID, Replayed: 10}) {
			t.Errorf("reply %+v", got[0])
		}
		if job.Spec.Actor != "trigger:billing" || job.Spec.Reason != "mended" || job.Spec.Rate != 50 || job.Spec.Source != "trigger" {
			t.Errorf("spec %+v", job.Spec)
		}
		for _, rec := range r.copies("orders") {
			if string(rec.Key) != "k1" {
				t.Errorf("a copy of %s", rec.Key)
			}
		}
		r.wantOrder("orders")
		testkit.WaitFor(t, time.Minute, "the reply to be noted", func(ctx context.Context) error {
			if jobs, err := r.ledger.Unreplied(ctx, 10); err != nil || len(jobs) > 0 {
				return fmt.Errorf("%d jobs, %w", len(jobs), err)
			}
			return nil
		})
		time.Sleep(time.Minute)
		if n := len(r.client.ReadAll("replies", kgo.ReadCommitted())); n != 1 {
			t.Errorf("%d replies", n)
		}
	})
}

func TestATriggerRecordWithAMessageIDReplaysTheNewestLetterOfIt(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(letter{key: "k", value: "first", offset: 5}, letter{key: "k", value: "other", offset: 6})
		time.Sleep(time.Minute)
		again := r.dieAll(letter{dlt: 1, key: "k", value: "second", offset: 5})
		r.opts.Group = "redrive-dlt-replayer"
		r.start()
		r.ask(nil, envelope.HeaderMessageID, "orders/0/5", HeaderReplyTo, "replies")
		r.replies(1)
		if a, b, c := r.letter(letters[0].ID).State, r.letter(letters[1].ID).State, r.letter(again[0].ID).State; a != deadletter.Dead || b != deadletter.Dead || c != deadletter.Replayed {
			t.Errorf("the letters are %s, %s and %s", a, b, c)
		}
		// The next one has older letters of its key.
		r.ask([]byte("x"), envelope.HeaderMessageID, "orders/0/6", HeaderReplyTo, "replies")
		if got := r.replies(2); got[1].Job != "" || !strings.Contains(got[1].FirstError, "older") {
			t.Errorf("reply %+v", got[1])
		}
		r.ask(nil, envelope.HeaderMessageID, "orders/0/6", HeaderReplyTo, "replies", HeaderOutOfOrder, "true")
		if got := r.replies(3); got[2].Replayed != 1 {
			t.Errorf("reply %+v", got[2])
		}
	})
}

// I12: a record that asks for nothing is noted, and holds up no other.
func TestGarbageOnTheTriggerTopicIsPassedAndAudited(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(6, 2)...)
		r.opts.Group = "redrive-dlt-replayer"
		r.start()
		r.ask(nil)
		r.ask(nil, HeaderReplyTo, "replies")
		r.ask([]byte("nobody"), HeaderReplyTo, "replies")
		r.ask([]byte("k0"), HeaderReplyTo, "orders")
		r.ask([]byte("k0"), HeaderRate, "NaN")
		r.ask([]byte("k0"), HeaderRate, "-3")
		r.ask(nil, envelope.HeaderMessageID, "no/such/1")
		r.ask([]byte("k1"), HeaderActor, strings.Repeat("\xff", 3000), HeaderReasonText, strings.Repeat("x", 9000))
		jobs := r.jobs(1)
		if jobs[0].Done != 3 {
			t.Errorf("done %d", jobs[0].Done)
		}
		entries, err := r.ledger.Audit(t.Context(), 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		refused := slices.DeleteFunc(entries, func(e deadletter.Entry) bool { return e.Action != "trigger-refused" })
		if len(refused) != 7 {
			t.Errorf("%d refusals in the audit trail: %+v", len(refused), refused)
		}
		for _, e := range refused {
			if !strings.HasPrefix(e.Object, "orders.dlt.replay/0/") || e.Detail == "" {
				t.Errorf("entry %+v", e)
			}
		}
		if got := r.replies(2); got[0].FirstError == "" || got[1].FirstError == "" {
			t.Errorf("replies %+v", got)
		}
		if n := len(r.copies("orders")); n != 3 {
			t.Errorf("%d copies", n)
		}
	})
}

func TestATriggerRecordThatIsReadTwiceReplaysOnce(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(20, 2)...)
		r.opts.Group = "redrive-dlt-replayer"
		first := r.start()
		r.ask([]byte("k1"))
		r.jobs(1)
		first.stop()
		// Another group reads it from the start, as one does whose commit was lost; the letter's next death is no part of it.
		r.dieAll(letter{key: "k1", value: "again", partition: 1, offset: 1001})
		r.opts.Group = "another"
		r.start()
		r.ask([]byte("k0"))
		r.jobs(2)
		if n := len(r.copies("orders")); n != 20 {
			t.Errorf("%d copies", n)
		}
	})
}
