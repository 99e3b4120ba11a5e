package replay

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
)

// refused submits a request that must be refused with a code.
func (p *process) refused(req Request, code Code, checks ...func(*Refusal)) {
	p.t.Helper()
	job, _, err := p.Submit(p.t.Context(), req)
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Code != code {
		p.t.Errorf("job %q, error %v, want a refusal: %s", job.ID, err, code)
		return
	}
	for _, check := range checks {
		check(refusal)
	}
}

func TestWhatIsNotDeadIsRefusedWithItsHistory(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(letter{key: "a", value: "1", offset: 1}, letter{key: "b", value: "2", offset: 2}, letter{key: "c", value: "3", offset: 3})
		p := r.start()
		job := p.submit(one(letters[0].ID))
		r.awaitJob(time.Minute, job.ID)
		p.refused(one(letters[0].ID), CodeReplayed, func(refusal *Refusal) {
			if len(refusal.History) != 1 || refusal.History[0].Job != job.ID || refusal.Letter != letters[0].ID || !strings.Contains(refusal.Detail, job.ID) {
				t.Errorf("refusal %+v", refusal)
			}
		})
		if _, err := r.ledger.Discard(t.Context(), deadletter.Filter{IDs: []int64{letters[1].ID}}, "ada", "rubbish"); err != nil {
			t.Fatal(err)
		}
		p.refused(one(letters[1].ID), CodeDiscarded)
		r.client.DeleteRecords("orders.dlt", map[int32]int64{0: 3})
		p.refused(one(letters[2].ID), CodeExpired)
		p.refused(one(4711), CodeUnknown)
		p.refused(everything(func(q *Request) { q.Filter.Reasons = []envelope.Reason{envelope.ReasonPoison} }), CodeNothing)
		if n := len(r.copies("orders")); n != 1 {
			t.Errorf("%d copies", n)
		}
	})
}

func TestANamedLetterWithOlderDeadOnesOfItsKeyNeedsAWord(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(letter{dlt: 0, key: "k", value: "new", offset: 9}, letter{dlt: 1, key: "k", value: "old", offset: 3}, letter{dlt: 2, key: "other", value: "x", offset: 1})
		p := r.start()
		p.refused(one(letters[0].ID), CodeOutOfOrder, func(refusal *Refusal) {
			if !strings.Contains(refusal.Detail, letters[1].Place.String()) {
				t.Errorf("refusal %q", refusal.Detail)
			}
		})
		both := everything(func(q *Request) { q.Filter.IDs = []int64{letters[0].ID, letters[1].ID} })
		if plan, err := p.Plan(t.Context(), both); err != nil || len(plan.Warnings) != 0 || !slices.Equal(plan.IDs, []int64{letters[1].ID, letters[0].ID}) {
			t.Errorf("plan of both: %v, %v, %v", plan.IDs, plan.Warnings, err)
		}
		job := p.submit(one(letters[0].ID, func(q *Request) { q.OutOfOrder = true }))
		r.awaitJob(time.Minute, job.ID)
	})
}

// I7: copies go where the configuration says, whatever a letter or a request says.
func TestNoCopyLeavesTheAllowedDestinations(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		stray := letter{key: "stray", value: "1", offset: 1}.record()
		for i := range stray.Headers {
			if stray.Headers[i].Key == envelope.HeaderOriginalTopic {
				stray.Headers[i].Value = []byte("payments")
			}
		}
		pointer := &kgo.Record{Topic: "orders.dlt", Partition: 1, Key: []byte("p"), Headers: []kgo.RecordHeader{
			{Key: envelope.HeaderLetterSource, Value: []byte("orders.retry/0/1")}, {Key: envelope.HeaderLetterDigest, Value: []byte("sha256:00")},
		}}
		letters := r.die(stray, pointer, letter{dlt: 2, key: "good", value: "2", offset: 2}.record())
		p := r.start()
		p.refused(one(letters[0].ID), CodeDestination)
		p.refused(one(letters[1].ID), CodePointer)
		for _, to := range []string{"payments", "__consumer_offsets", "orders.dlt", "orders.dlt.replay", "orders.retry"} {
			p.refused(one(letters[2].ID, func(q *Request) { q.Spec.Destination = to }), CodeDestination)
		}
		job := p.submit(one(letters[2].ID, func(q *Request) { q.Spec.Destination = "other" }))
		if ended := r.awaitJob(time.Minute, job.ID); ended.Done != 1 || len(r.copies("other")) != 1 {
			t.Errorf("done %d", ended.Done)
		}
		// A job that was written down under another configuration is held to this one.
		forged, _, err := r.ledger.CreateJob(t.Context(), deadletter.JobSpec{Actor: "eve", Source: "api", Destination: "payments", Force: true}, deadletter.Filter{IDs: []int64{letters[0].ID, letters[2].ID}})
		if err != nil {
			t.Fatal(err)
		}
		if ended := r.awaitJob(time.Minute, forged.ID); ended.Failed != 2 {
			t.Errorf("done %d, failed %d", ended.Done, ended.Failed)
		}
		for _, written := range [][]string{{"__x"}, {"orders.dlt"}} {
			opts := r.opts
			opts.Topics = slices.Clone(opts.Topics)
			opts.Topics[0].ReplayTo = written
			if _, err := New(opts); err == nil {
				t.Errorf("%v may be written", written)
			}
		}
	})
}

func TestBulkNeedsReasonCountAndRate(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.dieAll(scattered(30, 5)...)
		r.opts.BulkLimit, r.opts.DefaultRate = 20, 50
		p := r.start()
		p.refused(everything(), CodeCountNeeded)
		p.refused(everything(func(q *Request) { q.Expect = 29 }), CodeCount)
		p.refused(everything(func(q *Request) { q.Expect, q.Spec.Reason = 30, " " }), CodeInvalid)
		p.refused(everything(func(q *Request) { q.Spec.Actor = "" }), CodeInvalid)
		p.refused(everything(func(q *Request) { q.Spec.Rate = -1 }), CodeInvalid)
		p.refused(everything(func(q *Request) { q.Expect, q.Spec.Edit = 30, &deadletter.Edit{HasValue: true} }), CodeInvalid)
		p.refused(everything(func(q *Request) {
			q.Expect, q.Spec.Edit = 30, &deadletter.Edit{SetHeaders: []deadletter.Header{{Key: "Redrive-attempt"}}}
		}), CodeInvalid)
		job := p.submit(everything(func(q *Request) { q.Expect = 30 }))
		if job.Spec.Rate != 50 || job.Total != 30 {
			t.Errorf("rate %v, %d letters", job.Spec.Rate, job.Total)
		}
		planned := Plan{Version: PlanVersion, IDs: []int64{1, 2}}
		if job := p.submit(everything(func(q *Request) { q.Plan = &planned })); job.Spec.Rate != 0 {
			t.Errorf("rate %v of a plan that has no limit", job.Spec.Rate)
		}
	})
}

func TestARepeatedRequestIsTheSameJobAlsoWhenItIsDone(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(letter{key: "a", value: "1", offset: 1})
		p := r.start()
		req := one(letters[0].ID, func(q *Request) { q.Spec.Request = "key-1" })
		job, created, err := p.Submit(t.Context(), req)
		if err != nil || !created {
			t.Fatal(created, err)
		}
		r.awaitJob(time.Minute, job.ID)
		again, created, err := p.Submit(t.Context(), req)
		if err != nil || created || again.ID != job.ID {
			t.Errorf("job %s, created %v, %v, want %s", again.ID, created, err, job.ID)
		}
	})
}

// I14, and: what was planned is what is executed.
func TestAPlanIsExecutedAsItIsAndAuditedBefore(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		letters := r.dieAll(scattered(12, 3)...)
		moved := letter{dlt: 1, key: "moved", value: "m", partition: 3, offset: 1}.record()
		for i := range moved.Headers {
			if moved.Headers[i].Key == envelope.HeaderOriginalPartitions {
				moved.Headers[i].Value = []byte("9")
			}
		}
		letters = append(letters, r.die(moved)...)
		if _, err := r.ledger.Discard(t.Context(), deadletter.Filter{IDs: []int64{letters[4].ID}}, "ada", "rubbish"); err != nil {
			t.Fatal(err)
		}
		p := r.start()
		made, err := p.Plan(t.Context(), everything(func(q *Request) { q.Spec.Rate = 100 }))
		if err != nil {
			t.Fatal(err)
		}
		var want []int64
		for _, l := range r.letters(deadletter.Filter{States: []deadletter.State{deadletter.Dead}}) {
			want = append(want, l.ID)
		}
		if diff := gocmp.Diff(want, made.IDs); diff != "" {
			t.Errorf("ids (-want +got):\n%s", diff)
		}
		if len(made.Excluded) != 1 || made.Excluded[0].Letter != letters[4].ID || made.Excluded[0].Reason != CodeDiscarded || made.ExcludedBy[CodeDiscarded] != 1 {
			t.Errorf("excluded %v", made.Excluded)
		}
		if made.Destinations["orders"] != 12 || made.Reasons["exhausted"] != 12 || made.Origins["orders"] != 12 || len(made.Sample) != sampleSize || made.Rate != 100 {
			t.Errorf("plan %+v", made)
		}
		if len(made.Warnings) != 1 || made.Warnings[0].Code != CodePartitions || made.Warnings[0].Count != 1 {
			t.Errorf("warnings %v", made.Warnings)
		}
		if n := len(r.copies("orders")); n != 0 {
			t.Fatalf("the plan sent %d copies", n)
		}
		// As a file, reviewed for a while.
		file, err := json.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		var read Plan
		if err := json.Unmarshal(file, &read); err != nil {
			t.Fatal(err)
		}
		r.dieAll(letter{key: "late", value: "late", offset: 99})
		early := p.submit(one(read.IDs[0]))
		r.awaitJob(time.Minute, early.ID)
		job := p.submit(everything(func(q *Request) { q.Plan = &read }))
		entries, err := r.ledger.Audit(t.Context(), 0, 10)
		if err != nil || !slices.ContainsFunc(entries, func(e deadletter.Entry) bool { return e.Object == job.ID && e.Actor == "ada" && e.Count == 12 }) {
			t.Errorf("audit %+v, %v", entries, err)
		}
		ended := r.awaitJob(time.Minute, job.ID)
		if ended.Total != 12 || ended.Done != 11 || ended.Skipped != 1 || ended.Spec.Rate != 100 {
			t.Errorf("total %d, done %d, skipped %d, rate %v", ended.Total, ended.Done, ended.Skipped, ended.Spec.Rate)
		}
		items, err := r.ledger.Items(t.Context(), job.ID, 1, 100)
		if err != nil {
			t.Fatal(err)
		}
		var ran []int64
		for _, item := range items {
			ran = append(ran, item.Letter.ID)
		}
		if diff := gocmp.Diff(read.IDs, ran); diff != "" {
			t.Errorf("what ran is not the plan (-plan +ran):\n%s", diff)
		}
		for _, rec := range r.copies("orders") {
			if want := int32(p.topics["orders.dlt"].Partitioner.Partition(rec.Key, partitions)); string(rec.Key) == "moved" && rec.Partition != want {
				t.Errorf("the moved key is in partition %d, want %d", rec.Partition, want)
			}
		}
		read.Version = 2
		p.refused(everything(func(q *Request) { q.Plan = &read }), CodeInvalid)
	})
}

func TestAPlanOfManyLettersIsMadePageByPage(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		id := deadletter.TopicID(r.kafka.TopicInfo("orders.dlt").TopicID)
		if _, err := r.ledger.Next(t.Context(), id, "orders.dlt", 0, 0); err != nil {
			t.Fatal(err)
		}
		const all = pageSize + 1000
		r.opts.byFilter = all - 1
		for from := int64(0); from < all; from += 1000 {
			batch := deadletter.Batch{TopicID: id, Topic: "orders.dlt", Expected: from, Next: from + 1000}
			for i := range int64(1000) {
				rec := letter{key: "k", offset: all - from - i}.record() // The last in the ledger is the first to go.
				rec.Offset = from + i
				batch.Letters = append(batch.Letters, deadletter.FromRecord(rec, id, "orders", ""))
			}
			if err := r.ledger.Index(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		p := r.start()
		p.stop() // Only the ledger is asked: nothing runs.
		q, err := New(r.opts)
		if err != nil {
			t.Fatal(err)
		}
		defer q.close()
		plan, err := q.Plan(t.Context(), everything())
		if err != nil || len(plan.IDs) != all || !slices.IsSortedFunc(plan.IDs, func(a, b int64) int { return cmp.Compare(b, a) }) {
			t.Fatalf("%d ids, %v", len(plan.IDs), err)
		}
		job, _, err := q.Submit(t.Context(), everything(func(req *Request) { req.Expect = all }))
		if err != nil || job.Total != all {
			t.Errorf("%d letters, %v", job.Total, err)
		}
	})
}
