package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

const startLimit = time.Minute

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }

func contains(text, part string) bool { return strings.Contains(text, part) }

// claimOne indexes a letter and claims it.
func claimOne(t *testing.T, l *Ledger) (deadletter.Job, deadletter.ClaimResult) {
	t.Helper()
	indexBatch(t, l, sample("orders.dlt", 0, 1, random()), begin(t, l, "orders.dlt"))
	if _, _, err := l.CreateJob(t.Context(), deadletter.JobSpec{Actor: "ada"}, deadletter.Filter{}); err != nil {
		t.Fatal(err)
	}
	job, err := l.LeaseJob(t.Context(), "runner", time.Hour)
	if err != nil || job == nil {
		t.Fatal(job, err)
	}
	items, err := l.Items(t.Context(), job.ID, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := l.Claim(t.Context(), job.ID, job.Fence, []deadletter.Want{{Seq: 1, Letter: items[0].Letter.ID, Target: deadletter.Target{Topic: "orders"}}})
	if err != nil || claimed[0].Granted == nil {
		t.Fatal(claimed, err)
	}
	return *job, claimed[0]
}

// A letter is made of headers that anybody may set. One that Postgres could not store would stop its partition for ever.
func TestNoTextOrTimeStopsAPartition(t *testing.T) {
	l := open(t)
	id := begin(t, l, "orders.dlt")
	texts := []string{"\x00", "a\x00b", "\xff\xfe", "\xe2\x82", strings.Repeat("\u20ac", 2000), strings.Repeat("x", 100_000), "\ufeff", "\\N", "\n\t\\."}
	times := []time.Time{{}, time.UnixMilli(math.MaxInt64), time.UnixMilli(math.MinInt64), time.UnixMilli(-1), time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)}
	offset := int64(0)
	for _, text := range texts {
		for _, at := range times {
			letter := deadletter.Letter{
				Place: deadletter.Place{TopicID: id, Topic: "orders.dlt", Offset: offset}, MessageID: text, Key: []byte(text), Origin: text, Group: text,
				Reason: envelope.Reason(text), ErrorType: text, ErrorText: text, Fingerprint: text, Label: text, ReplayID: text, ReplayCount: math.MaxInt,
				Attempt: math.MaxInt, Deliveries: math.MinInt, OriginOffset: math.MaxInt64, OriginPartition: math.MaxInt32, OriginPartitions: math.MinInt32,
				OriginTimestamp: at, FailedAt: at, DeadAt: at, Size: math.MaxInt64,
			}
			batch := deadletter.Batch{TopicID: id, Topic: "orders.dlt", Expected: offset, Next: offset + 1, Letters: []deadletter.Letter{letter}}
			batch.Payloads = []deadletter.Payload{{Key: []byte(text), Headers: []deadletter.Header{{Key: text, Value: []byte(text)}}}}
			if err := l.Index(t.Context(), batch); err != nil {
				t.Fatalf("text %.20q, time %v: %v", text, at, err)
			}
			offset++
			for _, f := range []deadletter.Filter{{MessageIDs: []string{text}}, {Origins: []string{text, "x"}}, {ErrorTypes: []string{text}}, {ErrorText: text}, {HasKey: true, Key: []byte(text)}} {
				page, err := l.Letters(t.Context(), f, deadletter.Page{Limit: 1})
				if err != nil || len(page.Letters) != 1 {
					t.Fatalf("text %.20q, time %v: %d letters, %v", text, at, len(page.Letters), err)
				}
				if _, err := json.Marshal(page.Letters); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// Nor does one stop its job.
	if _, _, err := l.CreateJob(t.Context(), deadletter.JobSpec{Force: true}, deadletter.Filter{}); err != nil {
		t.Fatal(err)
	}
	job, err := l.LeaseJob(t.Context(), "runner\x00", time.Hour)
	if err != nil || job == nil {
		t.Fatal(job, err)
	}
	items, err := l.Items(t.Context(), job.ID, 1, 1000)
	if err != nil || int64(len(items)) != offset {
		t.Fatal(len(items), err)
	}
	replayBatch(t, l, job, items)
	_, _, err = l.CreateJob(t.Context(), deadletter.JobSpec{Actor: "a\x00", Reason: "\xff", Request: "\x00", Reply: &deadletter.Reply{Topic: "\x00"}}, deadletter.Filter{Job: "\x00"})
	if err != nil {
		t.Error(err)
	}
}

func TestNoNumberIsTooLarge(t *testing.T) {
	l := open(t)
	offset, part := int64(math.MaxInt64), int32(math.MaxInt32)
	filter := deadletter.Filter{
		IDs: []int64{math.MaxInt64, math.MinInt64}, Partition: &part, Offset: &offset, MinAttempt: math.MaxInt, MaxAttempt: math.MaxInt,
		MinDeliveries: math.MaxInt, UpTo: math.MaxInt64, DeadFrom: time.UnixMilli(math.MinInt64), DeadTo: time.UnixMilli(math.MaxInt64),
	}
	calls := map[string]error{}
	_, calls["letters"] = l.Letters(t.Context(), filter, deadletter.Page{Limit: math.MaxInt})
	_, calls["count"] = l.Count(t.Context(), filter)
	_, calls["groups"] = l.Groups(t.Context(), filter, deadletter.ByDay, math.MaxInt)
	_, calls["audit"] = l.Audit(t.Context(), math.MaxInt64, math.MaxInt)
	_, calls["awaiting"] = l.Awaiting(t.Context(), math.MaxInt64, math.MaxInt)
	_, calls["items"] = l.Items(t.Context(), "", math.MaxInt64, math.MaxInt)
	_, calls["jobs"] = l.Jobs(t.Context(), "", math.MaxInt)
	_, calls["history"] = l.History(t.Context(), math.MaxInt64)
	_, calls["payload"] = l.Payload(t.Context(), math.MaxInt64)
	_, calls["succeed"] = l.Succeed(t.Context(), []int64{math.MaxInt64})
	_, calls["discard"] = l.Discard(t.Context(), filter, "", "")
	_, calls["keep"] = l.Keep(t.Context(), map[int64]deadletter.Payload{math.MaxInt64: {}}, "", "")
	_, calls["expire"] = l.Expire(t.Context(), begin(t, l, "orders.dlt"), 0, math.MaxInt64)
	for name, err := range calls {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a list is filtered by is read from an index, in order, whatever else the filter has.
func TestListsAreReadFromAnIndex(t *testing.T) {
	l := open(t)
	id := begin(t, l, "orders.dlt")
	r := random()
	const n = 100_000
	for first := int64(0); first < n; first += batchSize {
		indexBatch(t, l, sample("orders.dlt", first, batchSize, r), id)
	}
	if _, err := l.pool.Exec(t.Context(), "ANALYZE letters"); err != nil {
		t.Fatal(err)
	}
	example := sample("orders.dlt", n/2, 1, r)[0]
	from, to := example.DeadAt.Add(-time.Hour), example.DeadAt
	indexes := []string{"letters_state", "letters_origin", "letters_reason", "letters_error_type", "letters_fingerprint", "letters_key", "letters_message", "letters_expiring"}
	for _, c := range []struct {
		filter deadletter.Filter
		index  string
	}{
		{deadletter.Filter{MessageIDs: []string{example.MessageID}}, "letters_message"},
		{deadletter.Filter{HasKey: true, Key: example.Key}, "letters_key"},
		{deadletter.Filter{HasKey: true}, "letters_key"},
		{deadletter.Filter{Origins: []string{example.Origin}, DeadFrom: from, DeadTo: to}, "letters_origin"},
		{deadletter.Filter{Origins: []string{example.Origin}}, "letters_origin"},
		{deadletter.Filter{Reasons: []envelope.Reason{example.Reason}, DeadFrom: from, DeadTo: to}, "letters_reason"},
		{deadletter.Filter{ErrorTypes: []string{example.ErrorType}, DeadFrom: from, DeadTo: to}, "letters_error_type"},
		{deadletter.Filter{ErrorTypes: []string{example.ErrorType, "another"}}, "letters_error_type"},
		{deadletter.Filter{Fingerprints: []string{example.Fingerprint}, DeadFrom: from, DeadTo: to}, "letters_fingerprint"},
		{deadletter.Filter{States: []deadletter.State{deadletter.Dead}, DeadFrom: from, DeadTo: to}, "letters_state"},
		{deadletter.Filter{States: []deadletter.State{deadletter.Dead, deadletter.Claimed}}, "letters_state"},
		{deadletter.Filter{DeadFrom: from, DeadTo: to}, "letters_state"},
		{deadletter.Filter{}, "letters_state"},
		{deadletter.Filter{Expiring: []deadletter.Cut{{TopicID: id, Topic: "orders.dlt", Before: to}}}, "letters_expiring"},
		{deadletter.Filter{Expiring: []deadletter.Cut{{TopicID: id, Topic: "orders.dlt", Before: to}, {Topic: "cash.dlt", Before: to}}}, "letters_expiring"},
	} {
		for _, order := range []deadletter.Order{deadletter.Newest, deadletter.Oldest} {
			first, err := l.Letters(t.Context(), c.filter, deadletter.Page{Order: order, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, after := range []string{"", first.Next} {
				page, err := sqlquery.NewPage(c.filter, deadletter.Page{Order: order, After: after})
				if err != nil {
					t.Fatal(err)
				}
				sql, args := listing(c.filter, page)
				plan := explain(t, l, sql, withPlan(args)...)
				what := fmt.Sprintf("%s, %s", sqlquery.Text(c.filter), order)
				if contains(plan, "Seq Scan on letters") || !contains(plan, c.index) {
					t.Errorf("%s: want index %s:\n%s", what, c.index, plan)
				}
				for _, other := range indexes {
					// Of a state that no letter has, one index is as good as another.
					if other != c.index && other != "letters_state" && contains(plan, other+" ") {
						t.Errorf("%s: reads index %s as well:\n%s", what, other, plan)
					}
				}
				if contains(plan, "Rows Removed by Filter") {
					t.Errorf("%s: reads what it does not need:\n%s", what, plan)
				}
			}
		}
	}
	if plan := explain(t, l, unseen, []string{example.Fingerprint, "another"}); contains(plan, "Seq Scan on letters") || !contains(plan, "letters_fingerprint") {
		t.Errorf("error groups are looked up otherwise:\n%s", plan)
	}
}

// explain is what the database does for a statement.
func explain(t *testing.T, l *Ledger, sql string, args ...any) string {
	t.Helper()
	rows, err := l.pool.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING off) "+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		lines = append(lines, string(rows.RawValues()[0]))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// sums fails the test if the counts that are kept differ from what there is.
func sums(t *testing.T, l *Ledger) {
	t.Helper()
	var wrong int
	err := l.pool.QueryRow(t.Context(), `SELECT count(*) FROM (
		SELECT topic, origin, state, sum(n) AS n FROM tallies GROUP BY 1, 2, 3 HAVING sum(n) <> 0
	) AS kept FULL JOIN (SELECT topic, origin, state, count(*) AS n FROM letters GROUP BY 1, 2, 3) AS there USING (topic, origin, state)
	WHERE kept.n IS DISTINCT FROM there.n`).Scan(&wrong)
	if err != nil {
		t.Fatal(err)
	}
	if wrong != 0 {
		t.Errorf("%d counts differ from what there is", wrong)
	}
	err = l.pool.QueryRow(t.Context(), `SELECT count(*) FROM jobs j WHERE (total, done, failed, skipped) <> (
		SELECT count(*), count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'skipped')
		FROM items i WHERE i.job = j.id)`).Scan(&wrong)
	if err != nil {
		t.Fatal(err)
	}
	if wrong != 0 {
		t.Errorf("the counters of %d jobs differ from their items", wrong)
	}
}

func TestStatsAreExactWhateverHappens(t *testing.T) {
	l := open(t)
	id := begin(t, l, "orders.dlt")
	r := random()
	const n = 400
	indexBatch(t, l, sample("orders.dlt", 0, n, r), id)
	var group sync.WaitGroup
	for worker := range 4 {
		r := rand.New(rand.NewPCG(2, uint64(worker)))
		group.Go(func() {
			for range 40 {
				some := deadletter.Filter{IDs: []int64{1 + r.Int64N(n), 1 + r.Int64N(n), 1 + r.Int64N(n)}}
				var err error
				switch r.IntN(5) {
				case 0:
					_, err = l.Discard(t.Context(), some, "ada", "x")
				case 1:
					_, err = l.Undiscard(t.Context(), some, "ada", "x")
				case 2:
					some.States = []deadletter.State{deadletter.Discarded}
					_, err = l.Purge(t.Context(), some, "ada", "x")
				case 3:
					_, err = l.Expire(t.Context(), id, 0, r.Int64N(20))
				default:
					_, err = l.Stats(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	sums(t, l)
	// So many rows that they are summed up.
	exec := func(sql string) {
		if _, err := l.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("INSERT INTO tallies (topic, origin, state, n) SELECT 1, 'orders-1', 'dead', g % 2 * 2 - 1 FROM generate_series(1, 2000) AS g")
	before, err := l.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sums(t, l)
	var left int
	if err := l.pool.QueryRow(t.Context(), "SELECT count(*) FROM tallies").Scan(&left); err != nil || left > 500 {
		t.Errorf("%d rows are left, %v", left, err)
	}
	total := int64(0)
	for _, s := range before {
		total += s.Count
	}
	count, err := l.Count(t.Context(), deadletter.Filter{})
	if err != nil || count != total {
		t.Errorf("%d letters, %d in the stats, %v", count, total, err)
	}
}

// killed is one ledger whose server is killed while it is used.
type killed struct {
	t        *testing.T
	url      string
	topics   []string
	ids      []deadletter.TopicID
	stop     atomic.Bool
	indexed  atomic.Int64
	finished atomic.Int64
	marked   sync.Map // the ids of letters for which Finish has returned
}

// index writes batches of a partition as an indexer does: the ledger says where to go on.
func (k *killed) index(l *Ledger, partition int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, seed))
	for !k.stop.Load() {
		next, err := l.Next(k.t.Context(), k.ids[partition], k.topics[partition], 0, 0)
		for err == nil && !k.stop.Load() {
			n := 1 + r.IntN(200)
			batch := deadletter.Batch{TopicID: k.ids[partition], Topic: k.topics[partition], Expected: next, Next: next + int64(n)}
			if r.IntN(4) == 0 {
				batch.Lost = int64(n)
			} else {
				batch.Letters = sample(k.topics[partition], next, n, r)
			}
			err = l.Index(k.t.Context(), batch)
			if err == nil {
				next += int64(n)
				k.indexed.Add(int64(n))
			}
		}
	}
}

// replay takes jobs and replays their letters, with copies whose offsets are the ids of their letters.
func (k *killed) replay(l *Ledger, owner string) {
	for !k.stop.Load() {
		_, _, _ = l.CreateJob(k.t.Context(), deadletter.JobSpec{Actor: owner}, deadletter.Filter{States: []deadletter.State{deadletter.Dead}})
		job, err := l.LeaseJob(k.t.Context(), owner, 200*time.Millisecond)
		if err != nil || job == nil {
			continue
		}
		k.run(l, job)
	}
}

func (k *killed) run(l *Ledger, job *deadletter.Job) {
	ctx := k.t.Context()
	for from := int64(1); !k.stop.Load(); {
		items, err := l.Items(ctx, job.ID, from, 50, deadletter.ItemOpen)
		if err != nil {
			return
		}
		if len(items) == 0 {
			_, _ = l.EndJob(ctx, job.ID, job.Fence)
			return
		}
		from = items[len(items)-1].Seq + 1
		if _, err := l.RenewJob(ctx, job.ID, job.Fence, 200*time.Millisecond); err != nil {
			return
		}
		wants := make([]deadletter.Want, len(items))
		for i, item := range items {
			wants[i] = deadletter.Want{Seq: item.Seq, Letter: item.Letter.ID, Target: deadletter.Target{Topic: "orders"}}
		}
		claimed, err := l.Claim(ctx, job.ID, job.Fence, wants)
		if err != nil {
			return
		}
		var outcomes []deadletter.Outcome
		skip := map[int64]string{}
		for _, c := range claimed {
			if c.Granted != nil {
				outcomes = append(outcomes, deadletter.Outcome{Claim: *c.Granted, Seq: c.Want.Seq, Copy: deadletter.Target{Topic: "orders", Offset: c.Want.Letter}})
			} else if c.Refused != deadletter.Claimed {
				skip[c.Want.Seq] = string(c.Refused)
			}
		}
		fenced, err := l.Finish(ctx, outcomes)
		if err != nil {
			return
		}
		for _, o := range outcomes {
			if !slices.ContainsFunc(fenced, func(f deadletter.Outcome) bool { return f.Claim.Letter == o.Claim.Letter }) {
				k.marked.Store(o.Claim.Letter, true)
				k.finished.Add(1)
			}
		}
		if err := l.Skip(ctx, job.ID, job.Fence, skip); err != nil {
			return
		}
	}
}

func TestKilledServerLeavesNothingHalf(t *testing.T) {
	server := testkit.OwnPostgres(t, testkit.PostgresOptions{})
	k := &killed{t: t, url: server.URL("")}
	first := openAt(t, k.url)
	second := openAt(t, k.url)
	for i := range 3 {
		k.topics = append(k.topics, fmt.Sprintf("dlt-%d", i))
		k.ids = append(k.ids, begin(t, first, k.topics[i]))
	}
	var group sync.WaitGroup
	for i := range k.topics {
		// Two indexers for each partition, and two replayers.
		group.Go(func() { k.index(first, i, uint64(i)) })
		group.Go(func() { k.index(second, i, uint64(i+100)) })
	}
	group.Go(func() { k.replay(first, "runner-1") })
	group.Go(func() { k.replay(second, "runner-2") })
	r := random()
	for range 8 {
		before, marked := k.indexed.Load(), k.finished.Load()
		testkit.WaitFor(t, startLimit, "progress", func(context.Context) error {
			if k.indexed.Load() < before+int64(500+r.IntN(1000)) || k.finished.Load() < marked+int64(r.IntN(300)) {
				return errors.New("too little is done")
			}
			return nil
		})
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	k.stop.Store(true)
	group.Wait()

	l := first
	for i, id := range k.ids {
		next, err := l.Next(t.Context(), id, k.topics[i], 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var rows, distinct, lost int64
		err = l.pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT record_offset), (SELECT lost FROM positions p WHERE p.topic = t.no)
			FROM letters l JOIN topics t ON t.no = l.topic WHERE t.name = $1 GROUP BY t.no`, k.topics[i]).Scan(&rows, &distinct, &lost)
		if err != nil {
			t.Fatal(err)
		}
		if rows+lost != next || distinct != rows {
			t.Errorf("%s: %d rows of %d offsets and %d lost ones, next is %d", k.topics[i], rows, distinct, lost, next)
		}
	}
	sums(t, l)
	// What Finish has answered for is there, and no other copy than the one that was reported.
	marked := 0
	k.marked.Range(func(id, _ any) bool {
		marked++
		letter, err := l.Letter(t.Context(), id.(int64))
		if err != nil || letter.State != deadletter.Replayed || letter.Copy.Offset != letter.ID {
			t.Errorf("letter %d is %s, its copy at %d: %v", id, letter.State, letter.Copy.Offset, err)
		}
		return true
	})
	var other, doubled int
	err := l.pool.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE (state = 'replayed') <> (copy_offset IS NOT NULL)) FROM letters").Scan(&other)
	if err != nil || other != 0 {
		t.Errorf("%d letters are replayed without a copy or the other way round: %v", other, err)
	}
	err = l.pool.QueryRow(t.Context(), "SELECT count(*) FROM (SELECT letter FROM items WHERE state = 'done' GROUP BY letter HAVING count(*) > 1) AS twice").Scan(&doubled)
	if err != nil || doubled != 0 {
		t.Errorf("%d letters are done twice: %v", doubled, err)
	}
	if marked == 0 {
		t.Error("nothing was replayed")
	}
	t.Logf("%d letters indexed, %d replayed", k.indexed.Load(), marked)
}

// A process that is stopped in the middle of a transaction holds locks, and no lease frees those.
func TestWhoStandsStillInATransactionKeepsNobodyFromItsJob(t *testing.T) {
	url := testkit.RealPostgres(t)
	stopped, other := openAt(t, url), openAt(t, url)
	stopped.begin = beginning(time.Second)
	_, _ = claimOne(t, other)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	err := stopped.transact(ctx, "stand still", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE jobs SET until = clock_timestamp()"); err != nil {
			return err
		}
		// This waits for the lock.
		if _, err := other.pool.Exec(ctx, "UPDATE jobs SET until = clock_timestamp()"); err != nil {
			t.Errorf("end the lease: %v", err)
		}
		job, err := other.LeaseJob(ctx, "other", time.Hour)
		if err != nil || job == nil {
			t.Errorf("leased %v, %v", job, err)
		}
		return nil
	})
	if err == nil {
		t.Error("the transaction of a process that stood still was committed")
	}
}
