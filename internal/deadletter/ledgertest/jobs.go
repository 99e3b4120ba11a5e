package ledgertest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

func jobRules() []rule {
	return []rule{
		{"a job is read back as it was asked for", (*rig).jobReadBack},
		{"a job freezes its letters", (*rig).frozen},
		{"the items of a job are in the order of a replay", (*rig).itemOrder},
		{"a job and its audit row are written together", (*rig).jobAudited},
		{"a request that is repeated makes no second job", (*rig).request},
		{"a request that is repeated at the same time makes one job", (*rig).requestParallel},
		{"a job of no items is done", (*rig).emptyJob},
		{"jobs are listed newest first", (*rig).listJobs},
		{"items are read from a seq on, by state", (*rig).readItems},
		{"what is not there is unknown", (*rig).unknownJob},
		{"an ended job is replied to once", (*rig).replies},
		{"a large job has all its items", (*rig).largeJob},
	}
}

func (r *rig) jobReadBack() {
	l := r.index(letter(0))[0]
	specs := []deadletter.JobSpec{
		{},
		{
			Actor: "ada", Reason: "'; --", Source: "trigger", Request: "r-1", Rate: 12.5, Destination: "orders.again", Force: true,
			Edit:  &deadletter.Edit{SetHeaders: []deadletter.Header{{Key: "a", Value: nil}, {Key: "b", Value: []byte{}}, {Key: "c", Value: []byte("\xff\x00")}}, Value: []byte("\x00v"), HasValue: true},
			Reply: &deadletter.Reply{Topic: "answers", Key: []byte("\xfe")},
		},
		{Edit: &deadletter.Edit{HasValue: true}, Reply: &deadletter.Reply{Topic: "answers"}},
		{Edit: &deadletter.Edit{Value: []byte{}, HasValue: true}, Reply: &deadletter.Reply{Topic: "answers", Key: []byte{}}},
	}
	for i, s := range specs {
		created, _, err := r.ledger.CreateJob(r.ctx(), s, of(l))
		r.no(err)
		for _, job := range []deadletter.Job{created, r.current(created.ID)} {
			r.same(fmt.Sprintf("spec %d", i), job.Spec, s, cmpopts.IgnoreFields(deadletter.Edit{}, "SetHeaders"))
			if s.Edit != nil {
				r.same("headers that are set", job.Spec.Edit.SetHeaders, s.Edit.SetHeaders)
			}
			if job.State != deadletter.JobQueued || job.Total != 1 || job.Left() != 1 || job.CreatedAt.IsZero() ||
				!job.StartedAt.IsZero() || !job.EndedAt.IsZero() || !job.RepliedAt.IsZero() {
				r.t.Errorf("a new job is %+v", job)
			}
		}
		id, err := uuid.Parse(created.ID)
		if err != nil || id.Version() != 7 {
			r.t.Errorf("id %q is not a UUIDv7: %v", created.ID, err)
		}
	}
}

func (r *rig) frozen() {
	r.index(letter(0), letter(1), letter(2, in("cash.dlt", "cash.dlt", 0)))
	job, created, err := r.ledger.CreateJob(r.ctx(), spec(), deadletter.Filter{Topics: []string{"orders.dlt"}})
	r.no(err)
	if !created || job.Total != 2 {
		r.t.Fatalf("created %t with %d items", created, job.Total)
	}
	r.index(letter(5))
	_, err = r.ledger.Discard(r.ctx(), of(r.at(letter(0).Place)), "ada", "test data")
	r.no(err)
	items := r.items(job.ID)
	r.same("items after letters came and went", len(items), 2)
	for i, item := range items {
		if item.Job != job.ID || item.Seq != int64(i+1) || item.State != deadletter.ItemOpen || item.Letter.Place.Offset != int64(i) || item.Error != "" || item.Copy.Offset != -1 || item.ReplayCount != 0 {
			r.t.Errorf("item %d is %+v", i, item)
		}
	}
	r.same("the letter of an item", items[1].Letter, r.get(items[1].Letter.ID))
}

func (r *rig) itemOrder() {
	letters := r.population()
	job := r.job(spec(), letters...)
	got := []int64{}
	for _, item := range r.items(job.ID) {
		got = append(got, item.Letter.ID)
	}
	r.same("letters of the items", got, ids(selected(letters, deadletter.Filter{}, deadletter.ReplayOrder)))
}

func (r *rig) jobAudited() {
	letters := r.index(letter(0), letter(1))
	job := r.job(spec(), letters...)
	r.audited("replay", "ada", "the consumer is repaired", 2)
	r.same("object of the audit row", r.audit()[0].Object, job.ID)
}

func (r *rig) request() {
	letters := r.index(letter(0), letter(1))
	requested := func(s *deadletter.JobSpec) { s.Request = "r-1" }
	first := r.job(spec(requested), letters...)
	audit := len(r.audit())
	again, created, err := r.ledger.CreateJob(r.ctx(), spec(requested), of(letters[0]))
	r.no(err)
	if created || again.ID != first.ID || again.Total != 2 {
		r.t.Errorf("the repeated request: created %t, %+v", created, again)
	}
	r.same("rows of the audit trail", len(r.audit()), audit)
	r.same("items", len(r.items(first.ID)), 2)
	found, err := r.ledger.JobByRequest(r.ctx(), "r-1")
	r.no(err)
	r.same("the job of the request", found, first)
	_, err = r.ledger.JobByRequest(r.ctx(), "r-2")
	r.is(err, deadletter.ErrUnknown)
	// Without a request each is one of its own.
	r.job(spec(), letters...)
	r.job(spec(), letters...)
	jobs, err := r.ledger.Jobs(r.ctx(), "", limit)
	r.no(err)
	r.same("jobs", len(jobs), 3)
}

func (r *rig) requestParallel() {
	l := r.index(letter(0))[0]
	const callers = 20
	type outcome struct {
		id      string
		created bool
	}
	outcomes := make([]outcome, callers)
	errs := make([]error, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			job, created, err := r.ledger.CreateJob(r.ctx(), spec(func(s *deadletter.JobSpec) { s.Request = "r-1" }), of(l))
			outcomes[i], errs[i] = outcome{job.ID, created}, err
		})
	}
	group.Wait()
	r.no(errors.Join(errs...))
	made := 0
	for _, o := range outcomes {
		if o.id != outcomes[0].id {
			r.t.Errorf("two jobs are returned: %s and %s", o.id, outcomes[0].id)
		}
		if o.created {
			made++
		}
	}
	jobs, err := r.ledger.Jobs(r.ctx(), "", limit)
	r.no(err)
	r.same("jobs made", []int{made, len(jobs), len(r.audit()), len(r.items(jobs[0].ID))}, []int{1, 1, 1, 1})
}

func (r *rig) emptyJob() {
	job, created, err := r.ledger.CreateJob(r.ctx(), spec(), deadletter.Filter{Topics: []string{"unknown"}})
	r.no(err)
	if !created || job.State != deadletter.JobDone || job.Total != 0 || job.EndedAt.IsZero() {
		r.t.Errorf("created %t: %+v", created, job)
	}
	leased, err := r.ledger.LeaseJob(r.ctx(), "runner-1", long)
	r.no(err)
	if leased != nil {
		r.t.Errorf("it may be leased: %+v", leased)
	}
}

func (r *rig) listJobs() {
	l := r.index(letter(0))[0]
	var want []string
	for range 5 {
		want = append([]string{r.job(spec(), l).ID}, want...)
	}
	var got []string
	for after := ""; ; {
		jobs, err := r.ledger.Jobs(r.ctx(), after, 2)
		r.no(err)
		if len(jobs) == 0 {
			break
		}
		if len(jobs) > 2 {
			r.t.Fatalf("%d jobs, limit 2", len(jobs))
		}
		for _, job := range jobs {
			got = append(got, job.ID)
		}
		after = got[len(got)-1]
	}
	r.same("jobs", got, want)
}

func (r *rig) readItems() {
	letters := r.index(letter(0), letter(1), letter(2), letter(3))
	job := r.leased(spec(), letters...)
	claimed := r.granted(job, letters...)
	r.finish(sent(claimed[1], 7), failed(claimed[2], "too large"))
	seqs := func(from int64, limit int, states ...deadletter.ItemState) []int64 {
		items, err := r.ledger.Items(r.ctx(), job.ID, from, limit, states...)
		r.no(err)
		out := []int64{}
		for _, item := range items {
			out = append(out, item.Seq)
		}
		return out
	}
	r.same("all", seqs(0, 10), []int64{1, 2, 3, 4})
	r.same("from 3", seqs(3, 10), []int64{3, 4})
	r.same("two of them", seqs(1, 2), []int64{1, 2})
	r.same("open", seqs(1, 10, deadletter.ItemOpen), []int64{1, 4})
	r.same("done or failed", seqs(1, 10, deadletter.ItemDone, deadletter.ItemFailed), []int64{2, 3})
	r.same("open from 2", seqs(2, 1, deadletter.ItemOpen), []int64{4})
	r.same("skipped", seqs(1, 10, deadletter.ItemSkipped), []int64{})
}

func (r *rig) unknownJob() {
	unknown := uuid.Must(uuid.NewV7()).String()
	for _, id := range []string{unknown, "not-an-id", "", "' OR 1=1 --"} {
		_, err := r.ledger.Job(r.ctx(), id)
		r.is(err, deadletter.ErrUnknown)
		_, err = r.ledger.ControlJob(r.ctx(), id, deadletter.Change{Action: deadletter.PauseJob, Actor: "ada"})
		r.is(err, deadletter.ErrUnknown)
	}
	r.same("rows of the audit trail", len(r.audit()), 0)
}

func (r *rig) replies() {
	letters := r.index(letter(0), letter(1), letter(2))
	wanted := func(s *deadletter.JobSpec) { s.Reply = &deadletter.Reply{Topic: "answers", Key: []byte("k")} }
	unreplied := func(limit int) []string {
		jobs, err := r.ledger.Unreplied(r.ctx(), limit)
		r.no(err)
		out := []string{}
		for _, job := range jobs {
			out = append(out, job.ID)
		}
		slices.Sort(out)
		return out
	}
	done := r.leased(spec(wanted), letters[0])
	r.same("jobs to reply to while one runs", unreplied(10), []string{})
	r.replay(done, letters[0])
	r.end(done)
	r.replayed(letters[2]) // It asks for none.
	cancelled := r.job(spec(wanted), letters[1])
	r.control(cancelled.ID, deadletter.CancelJob)
	r.same("jobs to reply to", unreplied(10), []string{done.ID, cancelled.ID})
	r.same("number of one", len(unreplied(1)), 1)

	r.no(r.ledger.Replied(r.ctx(), done.ID))
	r.same("jobs to reply to after one reply", unreplied(10), []string{cancelled.ID})
	if r.current(done.ID).RepliedAt.IsZero() || !r.current(cancelled.ID).RepliedAt.IsZero() {
		r.t.Error("the time of the reply is not that")
	}
}

func (r *rig) largeJob() {
	const n = 3000
	place := letter(0).Place
	r.next(place)
	batch := deadletter.Batch{TopicID: place.TopicID, Topic: place.Topic, Next: n}
	for i := range int64(n) {
		batch.Letters = append(batch.Letters, letter(i))
	}
	r.no(r.ledger.Index(r.ctx(), batch))
	job, _, err := r.ledger.CreateJob(r.ctx(), spec(), deadletter.Filter{})
	r.no(err)
	leased := r.lease("runner-1", long)
	items, err := r.ledger.Items(r.ctx(), job.ID, 1, n)
	r.no(err)
	r.same("items", len(items), n)
	for items := range slices.Chunk(items, 500) {
		wants := []deadletter.Want{}
		for _, item := range items {
			wants = append(wants, deadletter.Want{Seq: item.Seq, Letter: item.Letter.ID, Target: deadletter.Target{Topic: "orders", Offset: 1}})
		}
		claimed, err := r.ledger.Claim(r.ctx(), job.ID, leased.Fence, wants)
		r.no(err)
		outcomes := []deadletter.Outcome{}
		for i, c := range claimed {
			if c.Granted == nil || c.Want != wants[i] {
				r.t.Fatalf("want %+v has the outcome %+v", wants[i], c)
			}
			outcomes = append(outcomes, sent(c, c.Want.Seq))
		}
		r.finish(outcomes...)
	}
	job = r.end(leased)
	if job.Done != n || job.State != deadletter.JobDone {
		r.t.Errorf("the job ends as %+v", job)
	}
	count, err := r.ledger.Count(r.ctx(), deadletter.Filter{States: []deadletter.State{deadletter.Replayed}, Job: job.ID})
	r.no(err)
	r.same("letters replayed", count, int64(n))
	if at := time.Since(job.StartedAt); at > time.Hour || job.EndedAt.Before(job.StartedAt) {
		r.t.Errorf("the job ran from %s to %s", job.StartedAt, job.EndedAt)
	}
}
