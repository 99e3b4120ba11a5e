package ledgertest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/idempotency"
)

// long is a lease that does not run out during a test, short one that has run out as soon as the ledger is asked again, or
// little later.
const (
	long  = time.Hour
	short = time.Millisecond
)

// limit is more rows than any test has.
const limit = 1000

// began is when the first letter of a test died: on a day of its own, so that hours and days are known.
var began = time.Date(2026, 3, 14, 9, 26, 53, 589000000, time.UTC)

// rig is one ledger under test.
type rig struct {
	t      *testing.T
	ledger deadletter.Ledger
}

func (r *rig) ctx() context.Context { return r.t.Context() }

// no fails the test if there is an error.
func (r *rig) no(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// is fails the test if err is not the one wanted.
func (r *rig) is(err, want error) {
	r.t.Helper()
	if !errors.Is(err, want) {
		r.t.Fatalf("error %v, want: %v", err, want)
	}
}

// same fails the test if two values differ.
func (r *rig) same(what string, got, want any, options ...cmp.Option) {
	r.t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		r.t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// await asks until the ledger says yes. Leases run by the clock of the ledger, so there is nothing else to wait for.
func (r *rig) await(what string, ask func() bool) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ask(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("the ledger does not come to: %s", what)
		}
	}
}

// topicID is the id of an incarnation of a topic.
func topicID(name string) deadletter.TopicID {
	sum := sha256.Sum256([]byte(name))
	return deadletter.TopicID(sum[:16])
}

// letter is one in orders.dlt/0 that died that many seconds after the first, with what differs.
func letter(offset int64, changes ...func(*deadletter.Letter)) deadletter.Letter {
	l := deadletter.Letter{
		Place:     deadletter.Place{TopicID: topicID("orders.dlt"), Topic: "orders.dlt", Offset: offset},
		MessageID: fmt.Sprintf("orders/0/%d", 1000+offset),
		Key:       []byte("customer-7"),
		Origin:    "orders", OriginOffset: 1000 + offset, OriginPartitions: 3,
		OriginTimestamp: began.Add(-time.Hour),
		Group:           "billing", Reason: envelope.ReasonExhausted, ErrorType: "TimeoutError", ErrorText: "no answer within 3 s",
		Fingerprint: "f00d", Label: "v1",
		Attempt: 3, Deliveries: 3,
		FailedAt: began.Add(-time.Second), DeadAt: began.Add(time.Duration(offset) * time.Second),
		Size: 20, Digest: sha256.Sum256(fmt.Append(nil, offset)),
	}
	for _, change := range changes {
		change(&l)
	}
	return l
}

// in places a letter into another topic or incarnation of one.
func in(topic, incarnation string, partition int32) func(*deadletter.Letter) {
	return func(l *deadletter.Letter) {
		l.Place.Topic, l.Place.TopicID, l.Place.Partition = topic, topicID(incarnation), partition
	}
}

// from says where a letter first lived.
func from(origin string, partition int32, offset int64) func(*deadletter.Letter) {
	return func(l *deadletter.Letter) { l.Origin, l.OriginPartition, l.OriginOffset = origin, partition, offset }
}

// keyed gives a letter that key.
func keyed(key []byte) func(*deadletter.Letter) { return func(l *deadletter.Letter) { l.Key = key } }

// named gives a letter that message id.
func named(id string) func(*deadletter.Letter) {
	return func(l *deadletter.Letter) { l.MessageID = id }
}

// cameBack says which replay a letter came back from.
func cameBack(job string, count int) func(*deadletter.Letter) {
	return func(l *deadletter.Letter) { l.ReplayID, l.ReplayCount = job, count }
}

// next is where the index of a partition stands.
func (r *rig) next(place deadletter.Place) int64 {
	r.t.Helper()
	next, err := r.ledger.Next(r.ctx(), place.TopicID, place.Topic, place.Partition, 0)
	r.no(err)
	return next
}

// index writes letters of any partitions, in their order, and returns them as the ledger has them.
func (r *rig) index(letters ...deadletter.Letter) []deadletter.Letter {
	r.t.Helper()
	return r.indexKept(letters, nil)
}

// indexKept is index with the bytes of the letters.
func (r *rig) indexKept(letters []deadletter.Letter, payloads []deadletter.Payload) []deadletter.Letter {
	r.t.Helper()
	for i, l := range letters {
		batch := deadletter.Batch{
			TopicID: l.Place.TopicID, Topic: l.Place.Topic, Partition: l.Place.Partition,
			Expected: r.next(l.Place), Next: l.Place.Offset + 1, Letters: []deadletter.Letter{l},
		}
		if payloads != nil {
			batch.Payloads = payloads[i : i+1]
		}
		r.no(r.ledger.Index(r.ctx(), batch))
	}
	out := make([]deadletter.Letter, len(letters))
	for i, l := range letters {
		out[i] = r.at(l.Place)
	}
	return out
}

// at is the letter of a place.
func (r *rig) at(place deadletter.Place) deadletter.Letter {
	r.t.Helper()
	for _, l := range r.all(deadletter.Filter{Topics: []string{place.Topic}, Partition: &place.Partition, Offset: &place.Offset}, "") {
		if l.Place == place {
			return l
		}
	}
	r.t.Fatalf("no letter at %s of topic %x", place, place.TopicID)
	return deadletter.Letter{}
}

// get is the letter of that number as it is now.
func (r *rig) get(id int64) deadletter.Letter {
	r.t.Helper()
	l, err := r.ledger.Letter(r.ctx(), id)
	r.no(err)
	return l
}

// states fails the test if a letter is in another state than is wanted.
func (r *rig) states(letters []deadletter.Letter, want ...deadletter.State) {
	r.t.Helper()
	got := make([]deadletter.State, len(letters))
	for i, l := range letters {
		got[i] = r.get(l.ID).State
	}
	r.same("states of the letters", got, want)
}

// all are the letters that a filter selects, in one page.
func (r *rig) all(filter deadletter.Filter, order deadletter.Order) []deadletter.Letter {
	r.t.Helper()
	page, err := r.ledger.Letters(r.ctx(), filter, deadletter.Page{Order: order, Limit: limit})
	r.no(err)
	if page.Next != "" {
		r.t.Fatalf("a page of %d letters says that more than %d follow", len(page.Letters), limit)
	}
	return page.Letters
}

// ids are the numbers of letters.
func ids(letters []deadletter.Letter) []int64 {
	out := make([]int64, len(letters))
	for i, l := range letters {
		out[i] = l.ID
	}
	return out
}

// of selects letters by their numbers.
func of(letters ...deadletter.Letter) deadletter.Filter { return deadletter.Filter{IDs: ids(letters)} }

// spec is what somebody wants.
func spec(changes ...func(*deadletter.JobSpec)) deadletter.JobSpec {
	s := deadletter.JobSpec{Actor: "ada", Reason: "the consumer is repaired", Source: "api", Rate: 100}
	for _, change := range changes {
		change(&s)
	}
	return s
}

// force makes a job replay what was replayed before.
func force(s *deadletter.JobSpec) { s.Force = true }

// job creates one of letters.
func (r *rig) job(s deadletter.JobSpec, letters ...deadletter.Letter) deadletter.Job {
	r.t.Helper()
	job, created, err := r.ledger.CreateJob(r.ctx(), s, of(letters...))
	r.no(err)
	if !created {
		r.t.Fatalf("job %s was there already", job.ID)
	}
	return job
}

// lease takes the oldest job that may be taken.
func (r *rig) lease(owner string, length time.Duration) deadletter.Job {
	r.t.Helper()
	job, err := r.ledger.LeaseJob(r.ctx(), owner, length)
	r.no(err)
	if job == nil {
		r.t.Fatal("there is no job to lease")
	}
	return *job
}

// leased creates a job of letters and takes it.
func (r *rig) leased(s deadletter.JobSpec, letters ...deadletter.Letter) deadletter.Job {
	r.t.Helper()
	created := r.job(s, letters...)
	job := r.lease("runner-1", long)
	r.same("the job leased", job.ID, created.ID)
	return job
}

// lapse lets the lease of a job, and of all letters claimed under it by its owner, run out.
func (r *rig) lapse(job deadletter.Job) {
	r.t.Helper()
	_, err := r.ledger.RenewJob(r.ctx(), job.ID, job.Fence, short)
	r.no(err)
}

// takeOver leases a job of another owner as soon as that one's lease has run out.
func (r *rig) takeOver(job deadletter.Job, owner string) deadletter.Job {
	r.t.Helper()
	r.lapse(job)
	var taken *deadletter.Job
	r.await("the lease of the job has run out", func() bool {
		var err error
		taken, err = r.ledger.LeaseJob(r.ctx(), owner, long)
		r.no(err)
		return taken != nil
	})
	r.same("the job taken over", taken.ID, job.ID)
	return *taken
}

// items are the items of a job.
func (r *rig) items(job string, states ...deadletter.ItemState) []deadletter.Item {
	r.t.Helper()
	items, err := r.ledger.Items(r.ctx(), job, 0, limit, states...)
	r.no(err)
	return items
}

// item is that of a letter in a job.
func (r *rig) item(job string, letter int64) deadletter.Item {
	r.t.Helper()
	items := r.items(job)
	i := slices.IndexFunc(items, func(i deadletter.Item) bool { return i.Letter.ID == letter })
	if i < 0 {
		r.t.Fatalf("letter %d is not in job %s", letter, job)
	}
	return items[i]
}

// want asks for a letter of a job.
func (r *rig) want(job string, letter int64) deadletter.Want {
	r.t.Helper()
	return deadletter.Want{
		Seq: r.item(job, letter).Seq, Letter: letter, Target: deadletter.Target{Topic: "orders", Partition: 1, Offset: 500},
	}
}

// claim claims letters for a job and returns what came of it.
func (r *rig) claim(job deadletter.Job, letters ...deadletter.Letter) []deadletter.ClaimResult {
	r.t.Helper()
	wants := make([]deadletter.Want, len(letters))
	for i, l := range letters {
		wants[i] = r.want(job.ID, l.ID)
	}
	claimed, err := r.ledger.Claim(r.ctx(), job.ID, job.Fence, wants)
	r.no(err)
	if len(claimed) != len(wants) {
		r.t.Fatalf("%d wants have %d outcomes", len(wants), len(claimed))
	}
	return claimed
}

// granted claims letters for a job that are all granted.
func (r *rig) granted(job deadletter.Job, letters ...deadletter.Letter) []deadletter.ClaimResult {
	r.t.Helper()
	claimed := r.claim(job, letters...)
	for _, c := range claimed {
		if c.Granted == nil {
			r.t.Fatalf("letter %d is refused, as it is %s", c.Want.Letter, c.Refused)
		}
	}
	return claimed
}

// sent is the outcome of a letter whose copy is acknowledged.
func sent(c deadletter.ClaimResult, offset int64) deadletter.Outcome {
	return deadletter.Outcome{
		Claim: *c.Granted, Seq: c.Want.Seq,
		Copy: deadletter.Target{Topic: c.Want.Target.Topic, Partition: c.Want.Target.Partition, Offset: offset},
	}
}

// without is the outcome of a letter that has no copy, with what differs.
func without(c deadletter.ClaimResult, changes ...func(*deadletter.Outcome)) deadletter.Outcome {
	o := deadletter.Outcome{Claim: *c.Granted, Seq: c.Want.Seq, Copy: deadletter.Target{Offset: -1}}
	for _, change := range changes {
		change(&o)
	}
	return o
}

// failed is the outcome of a letter that could not be sent.
func failed(c deadletter.ClaimResult, why string) deadletter.Outcome {
	return without(c, func(o *deadletter.Outcome) { o.Error = why })
}

// finish writes outcomes that are all accepted.
func (r *rig) finish(outcomes ...deadletter.Outcome) {
	r.t.Helper()
	fenced, err := r.ledger.Finish(r.ctx(), outcomes)
	r.no(err)
	if len(fenced) != 0 {
		r.t.Fatalf("%d of %d outcomes are fenced: %+v", len(fenced), len(outcomes), fenced)
	}
}

// replay claims letters for a job and marks them as sent, the first to offset 500.
func (r *rig) replay(job deadletter.Job, letters ...deadletter.Letter) {
	r.t.Helper()
	for i, c := range r.granted(job, letters...) {
		r.finish(sent(c, 500+int64(i)))
	}
}

// end ends a job whose items are all decided.
func (r *rig) end(job deadletter.Job) deadletter.Job {
	r.t.Helper()
	job, err := r.ledger.EndJob(r.ctx(), job.ID, job.Fence)
	r.no(err)
	return job
}

// replayed creates a job that replays letters, and ends it.
func (r *rig) replayed(letters ...deadletter.Letter) deadletter.Job {
	r.t.Helper()
	job := r.leased(spec(force), letters...)
	r.replay(job, letters...)
	return r.end(job)
}

// current is a job as it is now.
func (r *rig) current(id string) deadletter.Job {
	r.t.Helper()
	job, err := r.ledger.Job(r.ctx(), id)
	r.no(err)
	return job
}

// control changes a job as an operator.
func (r *rig) control(id, action string) deadletter.Job {
	r.t.Helper()
	job, err := r.ledger.ControlJob(r.ctx(), id, deadletter.Change{Action: action, Rate: 5, Actor: "ada", Reason: "as planned"})
	r.no(err)
	return job
}

// audit are the newest rows of the audit trail.
func (r *rig) audit() []deadletter.Entry {
	r.t.Helper()
	entries, err := r.ledger.Audit(r.ctx(), 0, limit)
	r.no(err)
	return entries
}

// audited fails the test if the newest row of the audit trail is not the one wanted.
func (r *rig) audited(action, actor, reason string, count int64) {
	r.t.Helper()
	entries := r.audit()
	if len(entries) == 0 {
		r.t.Fatalf("the audit trail is empty, want %s", action)
	}
	e := entries[0]
	if e.Action != action || e.Actor != actor || e.Reason != reason || e.Count != count {
		r.t.Fatalf("newest audit row is %+v, want %s by %s for %q of %d", e, action, actor, reason, count)
	}
}

// distinct fails the test if a fence was seen before, or is no fence.
func (r *rig) distinct(seen map[idempotency.Fence]bool, fences ...idempotency.Fence) {
	r.t.Helper()
	for _, f := range fences {
		if f == (idempotency.Fence{}) || seen[f] {
			r.t.Fatalf("fence %s is none or was given before", f)
		}
		seen[f] = true
	}
}
