package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/idempotency"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/replayer/expiry"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
)

const (
	jobOfAlice = "01890a5d-ac96-774b-bcce-b302099a8057"
	jobOfBob   = "01890a5d-ac96-774b-bcce-b302099a8058"
	noJob      = "01890a5d-ac96-774b-bcce-b302099a8059"
)

var deadAt = time.Date(2026, 3, 4, 5, 6, 7, 8_000_000, time.UTC)

// fakeLedger has letters in memory. It filters by what the tests of this package are about: ids, topics, states and message
// ids; that real ledgers know the rest is for their own suite, and for the test of this package that has one.
type fakeLedger struct {
	mu sync.Mutex // guards the following
	// letters are by id, from 1.
	letters []deadletter.Letter
	jobs    []deadletter.Job
	audit   []deadletter.Entry
	// filter and change are the last ones that came.
	filter deadletter.Filter
	change deadletter.Change
	page   deadletter.Page
	groups deadletter.GroupBy
	// err is what every call returns, pingErr what Ping does.
	err, pingErr error
}

func newFakeLedger() *fakeLedger {
	letter := func(id int64, topic string, state deadletter.State, key []byte, message string) deadletter.Letter {
		return deadletter.Letter{
			ID: id, Place: deadletter.Place{TopicID: deadletter.TopicID{1, byte(id)}, Topic: topic, Partition: 1, Offset: 10 + id},
			MessageID: message, Key: key, Origin: "orders", OriginPartition: 1, OriginOffset: 100 + id, Reason: "exhausted",
			ErrorType: "Timeout", ErrorText: "no answer", Fingerprint: "f1", Attempt: 4, Deliveries: 4,
			DeadAt: deadAt, IndexedAt: deadAt, StateAt: deadAt, State: state, Size: 20, Copy: deadletter.Target{Offset: -1},
		}
	}
	replayed := letter(3, "orders.dlt", deadletter.Replayed, []byte("k"), "m1")
	replayed.OriginTimestamp, replayed.FailedAt = deadAt, deadAt
	replayed.Copy = deadletter.Target{Topic: "orders", Partition: 1, Offset: 900}
	replayed.Claim = deadletter.Claim{
		Letter: 3, Owner: "host/1/aa", Fence: idempotency.Fence{Epoch: 1, N: 2}, Until: deadAt, Job: jobOfAlice, ReplayCount: 1,
		Target: deadletter.Target{Topic: "orders", Partition: 1, Offset: 800},
	}
	job := func(id, actor string, state deadletter.JobState) deadletter.Job {
		return deadletter.Job{
			ID: id, Spec: deadletter.JobSpec{Actor: actor, Reason: "repaired", Source: "api", Rate: 10}, State: state,
			CreatedAt: deadAt, StartedAt: deadAt, Total: 3, Done: 1, Owner: "host/1/aa",
		}
	}
	done := job(jobOfAlice, "alice", deadletter.JobDone)
	done.EndedAt = deadAt.Add(2 * time.Second)
	return &fakeLedger{
		letters: []deadletter.Letter{
			letter(1, "orders.dlt", deadletter.Dead, []byte("k"), "m1"),
			letter(2, "orders.dlt", deadletter.Dead, nil, "m2"),
			replayed,
			letter(4, "payments.dlt", deadletter.Dead, []byte{0xff, 0}, "m1"),
			letter(5, "orders.dlt", deadletter.Discarded, []byte{}, "m5"),
		},
		jobs:  []deadletter.Job{job(jobOfBob, "bob", deadletter.JobRunning), done},
		audit: []deadletter.Entry{{ID: 2, At: deadAt, Actor: "bob", Action: "purge"}, {ID: 1, At: deadAt, Actor: "alice", Action: "replay", Count: 3}},
	}
}

func (f *fakeLedger) selected(filter deadletter.Filter) []deadletter.Letter {
	f.filter = filter
	var out []deadletter.Letter
	for _, l := range f.letters {
		if (filter.IDs == nil || slices.Contains(filter.IDs, l.ID)) &&
			(filter.Topics == nil || slices.Contains(filter.Topics, l.Place.Topic)) &&
			(filter.States == nil || slices.Contains(filter.States, l.State)) &&
			(filter.MessageIDs == nil || slices.Contains(filter.MessageIDs, l.MessageID)) &&
			(!filter.HasKey || string(filter.Key) == string(l.Key)) {
			out = append(out, l)
		}
	}
	return out
}

func (f *fakeLedger) Letter(_ context.Context, id int64) (deadletter.Letter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return deadletter.Letter{}, f.err
	}
	if id > int64(len(f.letters)) {
		return deadletter.Letter{}, deadletter.ErrUnknown
	}
	return f.letters[id-1], nil
}

func (f *fakeLedger) Letters(_ context.Context, filter deadletter.Filter, page deadletter.Page) (deadletter.Letters, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.page = page
	found := f.selected(filter)
	switch {
	case f.err != nil:
		return deadletter.Letters{}, f.err
	case page.After == "more":
		return deadletter.Letters{Letters: found[min(len(found), page.Limit):]}, nil
	case page.After != "":
		return deadletter.Letters{}, deadletter.ErrCursor
	case len(found) > page.Limit:
		return deadletter.Letters{Letters: found[:page.Limit], Next: "more"}, nil
	}
	return deadletter.Letters{Letters: found}, nil
}

func (f *fakeLedger) Count(_ context.Context, filter deadletter.Filter) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.selected(filter))), f.err
}

func (f *fakeLedger) Payload(context.Context, int64) (*deadletter.Payload, error) { return nil, f.err }

func (f *fakeLedger) Groups(_ context.Context, filter deadletter.Filter, by deadletter.GroupBy, _ int) ([]deadletter.Group, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.groups = by
	found := f.selected(filter)
	if f.err != nil || len(found) == 0 {
		return nil, f.err
	}
	return []deadletter.Group{{Value: "f1", Count: int64(len(found)), First: deadAt, Last: deadAt, Newest: found[0]}}, nil
}

func (f *fakeLedger) Stats(context.Context) ([]deadletter.Stat, error) {
	return []deadletter.Stat{
		{Topic: "orders.dlt", Origin: "orders", State: deadletter.Dead, Count: 2, Oldest: deadAt, LastHour: 1},
		{Topic: "payments.dlt", Origin: "payments", State: deadletter.Dead, Count: 1, Oldest: deadAt},
	}, f.err
}

func (f *fakeLedger) Progress(context.Context) ([]deadletter.Progress, error) {
	return []deadletter.Progress{{Topic: "orders.dlt", Next: 20}, {Topic: "payments.dlt", Next: 5, Lost: 1}}, f.err
}

func (f *fakeLedger) Older(context.Context, deadletter.Letter) (*deadletter.Letter, int64, error) {
	if f.err != nil {
		return nil, 0, f.err
	}
	return &f.letters[3], 2, nil
}

func (f *fakeLedger) History(_ context.Context, id int64) ([]deadletter.Item, error) {
	if f.err != nil || id != 3 {
		return nil, f.err
	}
	return []deadletter.Item{f.item()}, nil
}

func (f *fakeLedger) item() deadletter.Item {
	return deadletter.Item{
		Job: jobOfAlice, Seq: 1, Letter: f.letters[2], State: deadletter.ItemDone, ReplayCount: 1,
		Copy: deadletter.Target{Topic: "orders", Partition: 1, Offset: 900}, At: deadAt,
	}
}

func (f *fakeLedger) Audit(_ context.Context, below int64, limit int) ([]deadletter.Entry, error) {
	var out []deadletter.Entry
	for _, e := range f.audit {
		if (below == 0 || e.ID < below) && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, f.err
}

func (f *fakeLedger) changed(filter deadletter.Filter, actor, reason string, to deadletter.State) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := f.selected(filter)
	f.audit = append(f.audit, deadletter.Entry{Actor: actor, Reason: reason, Action: string(to), Count: int64(len(found))})
	for _, l := range found {
		f.letters[l.ID-1].State = to
	}
	return int64(len(found)), f.err
}

func (f *fakeLedger) Discard(_ context.Context, filter deadletter.Filter, actor, reason string) (int64, error) {
	return f.changed(filter, actor, reason, deadletter.Discarded)
}

func (f *fakeLedger) Undiscard(_ context.Context, filter deadletter.Filter, actor, reason string) (int64, error) {
	return f.changed(filter, actor, reason, deadletter.Dead)
}

func (f *fakeLedger) Purge(_ context.Context, filter deadletter.Filter, actor, reason string) (int64, error) {
	return f.changed(filter, actor, reason, "purged")
}

func (f *fakeLedger) Keep(_ context.Context, payloads map[int64]deadletter.Payload, actor, reason string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.audit = append(f.audit, deadletter.Entry{Actor: actor, Reason: reason, Action: "keep", Count: int64(len(payloads))})
	for id := range payloads {
		f.letters[id-1].Kept = true
	}
	return int64(len(payloads)), f.err
}

func (f *fakeLedger) Record(context.Context, deadletter.Entry) error {
	return errors.New("not asked for by the API")
}

func (f *fakeLedger) Job(_ context.Context, id string) (deadletter.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if j.ID == id {
			return j, f.err
		}
	}
	return deadletter.Job{}, errors.Join(deadletter.ErrUnknown, f.err)
}

func (f *fakeLedger) Jobs(_ context.Context, after string, limit int) ([]deadletter.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := 1 + slices.IndexFunc(f.jobs, func(j deadletter.Job) bool { return j.ID == after })
	return f.jobs[from:min(len(f.jobs), from+limit)], f.err
}

func (f *fakeLedger) Items(_ context.Context, job string, from int64, _ int, states ...deadletter.ItemState) ([]deadletter.Item, error) {
	if job != jobOfAlice || from > 1 || len(states) > 0 && !slices.Contains(states, deadletter.ItemDone) {
		return nil, f.err
	}
	return []deadletter.Item{f.item()}, f.err
}

func (f *fakeLedger) ControlJob(ctx context.Context, id string, change deadletter.Change) (deadletter.Job, error) {
	job, err := f.Job(ctx, id)
	if err != nil {
		return job, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change = change
	if job.State.Ended() {
		return job, deadletter.ErrState
	}
	return job, nil
}

func (f *fakeLedger) Ping(context.Context) error { return f.pingErr }

// fakeReplayer answers what it is told to.
type fakeReplayer struct {
	mu      sync.Mutex // guards the following
	request replay.Request
	payload deadletter.Payload
	// lost are the letters that Read has no bytes of, and why.
	lost map[int64]error
	err  error
	// jobs are by Spec.Request.
	jobs map[string]deadletter.Job
}

func newFakeReplayer() *fakeReplayer {
	return &fakeReplayer{
		payload: deadletter.Payload{
			Key: []byte("k"), Value: []byte(`{"a":[1,2]}`),
			Headers: []deadletter.Header{{Key: "trace", Value: []byte("t")}, {Key: "none"}, {Key: "empty", Value: []byte{}}, {Key: "bin", Value: []byte{0xff}}},
		},
		jobs: map[string]deadletter.Job{},
	}
}

func (f *fakeReplayer) Plan(_ context.Context, request replay.Request) (replay.Plan, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.request = request
	return replay.Plan{
		Version: 1, CreatedAt: deadAt, UpTo: 5, IDs: []int64{1, 2},
		Excluded:     []replay.Exclusion{{Letter: 3, Place: "orders.dlt/1/13", MessageID: "m1", Reason: "already_replayed", Detail: "by a job"}},
		Destinations: map[string]int64{"orders": 2}, Rate: 100,
		Sample: newFakeLedger().letters[:1],
	}, f.err
}

func (f *fakeReplayer) Submit(_ context.Context, request replay.Request) (deadletter.Job, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.request = request
	if f.err != nil {
		return deadletter.Job{}, false, f.err
	}
	if job, ok := f.jobs[request.Spec.Request]; ok {
		return job, false, nil
	}
	job := deadletter.Job{ID: noJob, Spec: request.Spec, State: deadletter.JobQueued, CreatedAt: deadAt, Total: 2}
	if request.Spec.Request != "" {
		f.jobs[request.Spec.Request] = job
	}
	return job, true, nil
}

func (f *fakeReplayer) Payload(context.Context, deadletter.Letter) (deadletter.Payload, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.payload, f.err
}

func (f *fakeReplayer) Read(_ context.Context, letters []deadletter.Letter) ([]replay.Read, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	read := make([]replay.Read, len(letters))
	for i, l := range letters {
		read[i] = replay.Read{Payload: f.payload, Err: f.lost[l.ID]}
	}
	return read, f.err
}

// fakeRadar says of letters that died before a moment, by a time that is asked for, that they expire.
type fakeRadar struct {
	waiting []expiry.Waiting
	unknown []error
	err     error
	// forever are topics that keep records for ever.
	forever []string
}

func (f *fakeRadar) Within() time.Duration { return 72 * time.Hour }

func (f *fakeRadar) Topics() []string { return []string{"orders.dlt", "payments.dlt"} }

func (f *fakeRadar) Cuts(_ context.Context, topics []string, within time.Duration) ([]deadletter.Cut, error) {
	var cuts []deadletter.Cut
	for i, topic := range f.Topics() {
		if slices.Contains(topics, topic) && !slices.Contains(f.forever, topic) {
			cuts = append(cuts, deadletter.Cut{TopicID: deadletter.TopicID{byte(i + 1)}, Topic: topic, Before: deadAt.Add(within)})
		}
	}
	return cuts, f.err
}

func (f *fakeRadar) Until(l *deadletter.Letter) (time.Time, bool) {
	return l.DeadAt.Add(24 * time.Hour), !slices.Contains(f.forever, l.Place.Topic)
}

func (f *fakeRadar) Count(_ context.Context, topics []string, _ time.Duration) ([]expiry.Expiring, error) {
	var all []expiry.Expiring
	for _, topic := range topics {
		all = append(all, expiry.Expiring{Kept: kafka.Kept{Topic: topic, Retention: kafka.Retention{Age: 24 * time.Hour, Bytes: -1}}, Count: 3, Soonest: deadAt})
	}
	return all, f.err
}

func (f *fakeRadar) Waiting(context.Context, []string, time.Duration) ([]expiry.Waiting, []error) {
	return f.waiting, f.unknown
}
