package ledgertest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

func modelRules() []rule {
	return []rule{
		{"any sequence of operations leaves letters and jobs in the states of the model", (*rig).operations},
	}
}

// modelLetter is a letter as the model has it.
type modelLetter struct {
	id        int64
	message   string
	offset    int64
	state     deadletter.State
	kept      bool
	fence     idempotency.Fence // of the current claim
	claimedBy *modelJob
	under     idempotency.Fence // of the job when it was claimed
	lapsed    bool              // the lease of the claim has run out
	copyOf    string            // the job that replayed it last
	purged    bool
}

// modelJob is a job as the model has it.
type modelJob struct {
	id      string
	force   bool
	state   deadletter.JobState
	fence   idempotency.Fence // of the current lease
	leased  bool
	lapsed  bool
	letters []int // by seq
	items   []deadletter.ItemState
}

// model is a small ledger in memory: what state each letter and job must be in, and who may change it.
type model struct {
	ledger  deadletter.Ledger
	rig     *rig
	topic   string
	next    int64
	letters []*modelLetter
	jobs    []*modelJob
	stale   []deadletter.Outcome // of claims that are not the current ones any more
	fences  map[idempotency.Fence]bool
}

// operations tries sequences of operations, of letters and jobs of their own, on the ledger and on the model.
func (r *rig) operations() {
	run := 0
	rapid.Check(r.t, func(t *rapid.T) {
		run++
		m := &model{ledger: r.ledger, rig: r, topic: fmt.Sprintf("dlt-%d", run), fences: map[idempotency.Fence]bool{}}
		defer m.retire()
		t.Repeat(map[string]func(*rapid.T){
			"index":     m.index,
			"return":    m.comeBack,
			"expire":    m.expire,
			"discard":   m.discard,
			"undiscard": m.undiscard,
			"purge":     m.purge,
			"create":    m.create,
			"control":   m.control,
			"lease":     m.lease,
			"lapse":     m.lapse,
			"claim":     m.claim,
			"finish":    m.finish,
			"zombie":    m.zombie,
			"end":       m.end,
			"succeed":   m.succeed,
			"":          m.check,
		})
	})
}

// retire ends what a run has left, so that the next one leases its own jobs.
func (m *model) retire() {
	for _, j := range m.jobs {
		if !j.state.Ended() {
			_, _ = m.ledger.ControlJob(m.rig.ctx(), j.id, deadletter.Change{Action: deadletter.CancelJob, Actor: "test"})
		}
	}
}

func (m *model) place(offset int64) func(*deadletter.Letter) {
	return func(l *deadletter.Letter) {
		in(m.topic, m.topic, 0)(l)
		l.Place.Offset = offset
	}
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *rapid.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// some draws a letter that is there.
func (m *model) some(t *rapid.T) *modelLetter {
	there := []*modelLetter{}
	for _, l := range m.letters {
		if !l.purged {
			there = append(there, l)
		}
	}
	if len(there) == 0 {
		t.Skip("no letters")
	}
	return rapid.SampledFrom(there).Draw(t, "letter")
}

// job draws a job of which something holds.
func (m *model) job(t *rapid.T, holds func(*modelJob) bool) *modelJob {
	jobs := []*modelJob{}
	for _, j := range m.jobs {
		if holds(j) {
			jobs = append(jobs, j)
		}
	}
	if len(jobs) == 0 {
		t.Skip("no jobs")
	}
	return rapid.SampledFrom(jobs).Draw(t, "job")
}

func running(j *modelJob) bool { return j.state == deadletter.JobRunning && j.leased }

func (m *model) add(t *rapid.T, changes ...func(*deadletter.Letter)) {
	kept := rapid.Bool().Draw(t, "kept")
	l := letter(m.next, append([]func(*deadletter.Letter){named(fmt.Sprintf("%s/%d", m.topic, m.next)), m.place(m.next)}, changes...)...)
	expected, err := m.ledger.Next(m.rig.ctx(), l.Place.TopicID, m.topic, 0, 0)
	must(t, err)
	equal(t, "next offset", expected, m.next)
	batch := deadletter.Batch{TopicID: l.Place.TopicID, Topic: m.topic, Expected: m.next, Next: m.next + 1, Letters: []deadletter.Letter{l}}
	if kept {
		batch.Payloads = []deadletter.Payload{{Value: []byte("v")}}
	}
	must(t, m.ledger.Index(m.rig.ctx(), batch))
	page, err := m.ledger.Letters(m.rig.ctx(), deadletter.Filter{Topics: []string{m.topic}, Offset: &m.next}, deadletter.Page{})
	must(t, err)
	equal(t, "letters at the place", len(page.Letters), 1)
	m.letters = append(m.letters, &modelLetter{id: page.Letters[0].ID, message: l.MessageID, offset: m.next, state: deadletter.Dead, kept: kept})
	m.next++
}

func (m *model) index(t *rapid.T) { m.add(t) }

func (m *model) comeBack(t *rapid.T) {
	l := m.some(t)
	if l.copyOf == "" || l.state == deadletter.Claimed {
		t.Skip("never replayed")
	}
	replayed, err := m.ledger.Letter(m.rig.ctx(), l.id)
	must(t, err)
	m.add(t, named(l.message), cameBack(l.copyOf, replayed.Claim.ReplayCount))
	for _, o := range m.letters {
		if o.message == l.message && (o.state == deadletter.Replayed || o.state == deadletter.Succeeded) && o.copyOf == l.copyOf {
			o.state = deadletter.Returned
		}
	}
}

func (m *model) expire(t *rapid.T) {
	below := rapid.Int64Range(0, m.next).Draw(t, "below")
	want := int64(0)
	for _, l := range m.letters {
		if l.offset < below && l.state == deadletter.Dead && !l.kept && !l.purged {
			l.state = deadletter.Expired
			want++
		}
	}
	n, err := m.ledger.Expire(m.rig.ctx(), topicID(m.topic), 0, below)
	must(t, err)
	equal(t, "letters expired", n, want)
}

func (m *model) change(t *rapid.T, from, to deadletter.State, change func(deadletter.Filter) (int64, error)) {
	l := m.some(t)
	n, err := change(deadletter.Filter{IDs: []int64{l.id}})
	must(t, err)
	want := int64(0)
	if l.state == from {
		l.state, want = to, 1
	}
	equal(t, "letters changed", n, want)
}

func (m *model) discard(t *rapid.T) {
	m.change(t, deadletter.Dead, deadletter.Discarded, func(f deadletter.Filter) (int64, error) {
		return m.ledger.Discard(m.rig.ctx(), f, "test", "why not")
	})
}

func (m *model) undiscard(t *rapid.T) {
	m.change(t, deadletter.Discarded, deadletter.Dead, func(f deadletter.Filter) (int64, error) {
		return m.ledger.Undiscard(m.rig.ctx(), f, "test", "why not")
	})
}

func (m *model) purge(t *rapid.T) {
	l := m.some(t)
	states := rapid.SliceOfNDistinct(rapid.SampledFrom(deadletter.States()), 1, 4, rapid.ID).Draw(t, "states")
	n, err := m.ledger.Purge(m.rig.ctx(), deadletter.Filter{IDs: []int64{l.id}, States: states}, "test", "old")
	must(t, err)
	want := int64(0)
	if slices.Contains(states, l.state) && l.state != deadletter.Claimed {
		l.purged, want = true, 1
	}
	equal(t, "letters purged", n, want)
}

func (m *model) create(t *rapid.T) {
	job := &modelJob{state: deadletter.JobQueued, force: rapid.Bool().Draw(t, "force")}
	f := deadletter.Filter{}
	messages := map[string]bool{} // Two letters of one message in one job are a rule of their own.
	for i, l := range m.letters {
		if !l.purged && !messages[l.message] && rapid.Bool().Draw(t, "chosen") {
			messages[l.message] = true
			f.IDs = append(f.IDs, l.id)
			job.letters = append(job.letters, i)
			job.items = append(job.items, deadletter.ItemOpen)
		}
	}
	if len(f.IDs) == 0 {
		t.Skip("nothing chosen")
	}
	// Letters of the model lie in one partition of the origin, so that their order is that of the topic.
	created, made, err := m.ledger.CreateJob(m.rig.ctx(), spec(func(s *deadletter.JobSpec) { s.Force = job.force }), f)
	must(t, err)
	equal(t, "created", made, true)
	equal(t, "items", created.Total, int64(len(f.IDs)))
	job.id = created.ID
	m.jobs = append(m.jobs, job)
}

func (m *model) control(t *rapid.T) {
	j := m.job(t, func(*modelJob) bool { return true })
	action := rapid.SampledFrom([]string{deadletter.PauseJob, deadletter.ResumeJob, deadletter.CancelJob}).Draw(t, "action")
	to := map[string]map[deadletter.JobState]deadletter.JobState{
		deadletter.PauseJob:  {deadletter.JobQueued: deadletter.JobPaused, deadletter.JobRunning: deadletter.JobPaused},
		deadletter.ResumeJob: {deadletter.JobPaused: deadletter.JobQueued, deadletter.JobCancelled: deadletter.JobQueued},
		deadletter.CancelJob: {deadletter.JobQueued: deadletter.JobCancelled, deadletter.JobRunning: deadletter.JobCancelled, deadletter.JobPaused: deadletter.JobCancelled},
	}[action][j.state]
	got, err := m.ledger.ControlJob(m.rig.ctx(), j.id, deadletter.Change{Action: action, Actor: "test"})
	if to == "" {
		if err == nil {
			t.Fatalf("%s of a job that is %s", action, j.state)
		}
		return
	}
	must(t, err)
	equal(t, "state of the job", got.State, to)
	j.state, j.leased = to, false
}

func (m *model) lease(t *rapid.T) {
	var want *modelJob
	for _, j := range m.jobs {
		if j.state == deadletter.JobQueued || j.state == deadletter.JobRunning && j.lapsed {
			want = j
			break
		}
	}
	got, err := m.ledger.LeaseJob(m.rig.ctx(), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"), long)
	must(t, err)
	if want == nil {
		if got != nil {
			t.Fatalf("a job is leased that must not be: %+v", got)
		}
		return
	}
	if got == nil || got.ID != want.id {
		t.Fatalf("the job leased is %+v, want %s", got, want.id)
	}
	m.fresh(t, got.Fence)
	want.state, want.fence, want.leased, want.lapsed = deadletter.JobRunning, got.Fence, true, false
}

func (m *model) fresh(t *rapid.T, fence idempotency.Fence) {
	if m.fences[fence] {
		t.Fatalf("fence %s was given before", fence)
	}
	m.fences[fence] = true
}

// lapse lets the lease of a job and of its claims run out.
func (m *model) lapse(t *rapid.T) {
	j := m.job(t, running)
	// Whatever comes next takes longer than that.
	_, err := m.ledger.RenewJob(m.rig.ctx(), j.id, j.fence, time.Microsecond)
	must(t, err)
	j.lapsed = true
	for _, l := range m.letters {
		if l.state == deadletter.Claimed && l.under == j.fence {
			l.lapsed = true
		}
	}
}

func (m *model) claim(t *rapid.T) {
	j := m.job(t, running)
	i := rapid.IntRange(0, len(j.letters)-1).Draw(t, "item")
	l := m.letters[j.letters[i]]
	got, err := m.ledger.Claim(m.rig.ctx(), j.id, j.fence, []deadletter.Want{{Seq: int64(i + 1), Letter: l.id, Target: deadletter.Target{Topic: "orders", Offset: 9}}})
	must(t, err)
	granted := j.items[i] == deadletter.ItemOpen && !l.purged
	switch l.state {
	case deadletter.Dead:
	case deadletter.Claimed:
		granted = granted && l.lapsed
	case deadletter.Expired:
		granted = false
	default:
		granted = granted && j.force
	}
	equal(t, "granted", got[0].Granted != nil, granted)
	if !granted {
		if !l.purged {
			equal(t, "refused as", got[0].Refused, l.state)
		}
		return
	}
	equal(t, "taken over", got[0].Before != nil, l.state == deadletter.Claimed)
	if l.state == deadletter.Claimed {
		equal(t, "fence of the claim taken over", got[0].Before.Fence, l.fence)
		m.stale = append(m.stale, sent(deadletter.ClaimResult{Want: got[0].Want, Granted: got[0].Before}, 8))
	}
	m.fresh(t, got[0].Granted.Fence)
	l.state, l.fence, l.claimedBy, l.under, l.lapsed = deadletter.Claimed, got[0].Granted.Fence, j, j.fence, j.lapsed
}

func (m *model) finish(t *rapid.T) {
	l := m.some(t)
	if l.state != deadletter.Claimed {
		t.Skip("not claimed")
	}
	j := l.claimedBy
	i := slices.IndexFunc(j.letters, func(i int) bool { return m.letters[i] == l })
	c := deadletter.ClaimResult{
		Want:    deadletter.Want{Seq: int64(i + 1), Letter: l.id, Target: deadletter.Target{Topic: "orders"}},
		Granted: &deadletter.Claim{Letter: l.id, Fence: l.fence, Job: j.id},
	}
	outcome := without(c)
	l.state = deadletter.Dead
	switch rapid.SampledFrom([]string{"sent", "failed", "expired", "skipped", "back"}).Draw(t, "outcome") {
	case "sent":
		outcome = sent(c, l.offset)
		l.state, l.copyOf, j.items[i] = deadletter.Replayed, j.id, deadletter.ItemDone
	case "failed":
		outcome.Error, j.items[i] = "too large", deadletter.ItemFailed
	case "expired":
		outcome.Error, outcome.Expired, j.items[i] = "gone", true, deadletter.ItemFailed
		l.state = deadletter.Expired
	case "skipped":
		outcome.Skip, j.items[i] = "not now", deadletter.ItemSkipped
	}
	fenced, err := m.ledger.Finish(m.rig.ctx(), []deadletter.Outcome{outcome})
	must(t, err)
	equal(t, "outcomes fenced", len(fenced), 0)
	m.stale = append(m.stale, outcome)
}

// zombie says what became of a claim that is not the current one any more.
func (m *model) zombie(t *rapid.T) {
	if len(m.stale) == 0 {
		t.Skip("no stale claims")
	}
	fenced, err := m.ledger.Finish(m.rig.ctx(), []deadletter.Outcome{rapid.SampledFrom(m.stale).Draw(t, "outcome")})
	must(t, err)
	equal(t, "outcomes fenced", len(fenced), 1)
}

func (m *model) end(t *rapid.T) {
	j := m.job(t, running)
	_, err := m.ledger.EndJob(m.rig.ctx(), j.id, j.fence)
	if slices.Contains(j.items, deadletter.ItemOpen) {
		if err == nil {
			t.Fatal("a job with open items ends")
		}
		return
	}
	must(t, err)
	j.state, j.leased = deadletter.JobDone, false
}

func (m *model) succeed(t *rapid.T) {
	m.change(t, deadletter.Replayed, deadletter.Succeeded, func(f deadletter.Filter) (int64, error) {
		return m.ledger.Succeed(m.rig.ctx(), f.IDs)
	})
}

// check compares the whole of the ledger with the model.
func (m *model) check(t *rapid.T) {
	page, err := m.ledger.Letters(m.rig.ctx(), deadletter.Filter{Topics: []string{m.topic}}, deadletter.Page{Limit: limit})
	must(t, err)
	got := map[int64]deadletter.Letter{}
	for _, l := range page.Letters {
		got[l.ID] = l
	}
	there := 0
	for _, l := range m.letters {
		if l.purged {
			continue
		}
		there++
		g, ok := got[l.id]
		if !ok {
			t.Fatalf("letter %d is missing", l.offset)
		}
		if g.State != l.state || g.Kept != l.kept || l.state == deadletter.Claimed && g.Claim.Fence != l.fence {
			t.Fatalf("letter %d is %s, kept %t, fence %s; want %+v", l.offset, g.State, g.Kept, g.Claim.Fence, *l)
		}
	}
	equal(t, "number of letters", len(got), there)
	for _, j := range m.jobs {
		g, err := m.ledger.Job(m.rig.ctx(), j.id)
		must(t, err)
		count := map[deadletter.ItemState]int64{}
		for _, s := range j.items {
			count[s]++
		}
		equal(t, "state of the job", g.State, j.state)
		equal(t, "counters of the job", [4]int64{g.Done, g.Failed, g.Skipped, g.Left()}, [4]int64{
			count[deadletter.ItemDone], count[deadletter.ItemFailed], count[deadletter.ItemSkipped], count[deadletter.ItemOpen],
		})
	}
}
