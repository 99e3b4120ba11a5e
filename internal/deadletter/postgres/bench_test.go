package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// batchSize is that of the index loop.
const batchSize = 5000

// sample makes letters as a service with a few kinds of failures has them, offsets from first on.
func sample(topic string, first int64, n int, random *rand.Rand) []deadletter.Letter {
	reasons := []envelope.Reason{envelope.ReasonExhausted, envelope.ReasonPermanent, envelope.ReasonPoison, envelope.ReasonUnroutable}
	letters := make([]deadletter.Letter, n)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range letters {
		offset := first + int64(i)
		kind := random.IntN(40)
		text := fmt.Sprintf("connection to db-%d refused after %d ms: no answer from the pool", kind, random.IntN(10_000))
		letters[i] = deadletter.Letter{
			Place:     deadletter.Place{Topic: topic, Offset: offset},
			MessageID: fmt.Sprintf("orders/%d/%d", offset%8, offset*3),
			Key:       fmt.Appendf(nil, "customer-%d", random.IntN(1_000_000)),
			Origin:    fmt.Sprintf("orders-%d", random.IntN(20)), OriginPartition: int32(offset % 8), OriginOffset: offset * 3, OriginPartitions: 8,
			OriginTimestamp: start.Add(time.Duration(offset) * time.Millisecond),
			Group:           "billing", Reason: reasons[kind%len(reasons)],
			ErrorType: fmt.Sprintf("com.example.orders.Failure%dException", kind%20), ErrorText: text,
			Fingerprint: hex.EncodeToString([]byte(fmt.Sprintf("kind%04d", kind))),
			Attempt:     4, Deliveries: 4,
			FailedAt: start.Add(time.Duration(offset) * time.Millisecond), DeadAt: start.Add(time.Duration(offset) * 100 * time.Millisecond),
			Size: 1100, Digest: sha256.Sum256([]byte(text)),
		}
	}
	return letters
}

// durable is a server as in production: what is committed is on the disk.
func durable(b *testing.B) *Ledger {
	b.Helper()
	server := testkit.OwnPostgres(b, testkit.PostgresOptions{Settings: map[string]string{
		"fsync": "on", "shared_buffers": "512MB", "max_wal_size": "8GB",
	}})
	return openAt(b, server.URL(""))
}

func indexBatch(tb testing.TB, l *Ledger, letters []deadletter.Letter, id deadletter.TopicID) {
	tb.Helper()
	first := letters[0].Place
	err := l.Index(tb.Context(), deadletter.Batch{
		TopicID: id, Topic: first.Topic, Expected: first.Offset, Next: first.Offset + int64(len(letters)), Letters: letters,
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func begin(tb testing.TB, l *Ledger, topic string) deadletter.TopicID {
	tb.Helper()
	sum := sha256.Sum256([]byte(topic))
	id := deadletter.TopicID(sum[:16])
	if _, err := l.Next(tb.Context(), id, topic, 0, 0); err != nil {
		tb.Fatal(err)
	}
	return id
}

// BenchmarkIndexBesideBareCopy writes the same rows in two ways, in turns into one table: by Index, in batches, and by one bare
// COPY of all of them.
func BenchmarkIndexBesideBareCopy(b *testing.B) {
	l := durable(b)
	const rows = 20 * batchSize
	random := rand.New(rand.NewPCG(1, 1))
	indexed := begin(b, l, "indexed.dlt")
	begin(b, l, "copied.dlt")
	var index, bare time.Duration
	next := int64(0)
	for b.Loop() {
		b.StopTimer()
		letters := sample("indexed.dlt", next, rows, random)
		no, _, err := l.numberOf(b.Context(), l.pool, begin(b, l, "copied.dlt"))
		if err != nil {
			b.Fatal(err)
		}
		encoded := letterRows(no, &deadletter.Batch{Letters: letters})
		conn, err := l.pool.Acquire(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if _, err := conn.Conn().PgConn().CopyFrom(b.Context(), bytes.NewReader(encoded), copyLetters); err != nil {
			b.Fatal(err)
		}
		bare += time.Since(began)
		conn.Release()
		b.StartTimer()
		began = time.Now()
		for at := 0; at < rows; at += batchSize {
			indexBatch(b, l, letters[at:at+batchSize], indexed)
		}
		index += time.Since(began)
		next += rows
	}
	total := float64(b.N) * rows
	b.ReportMetric(total/index.Seconds(), "rows/s")
	b.ReportMetric(total/bare.Seconds(), "bare_rows/s")
	b.ReportMetric(bare.Seconds()/index.Seconds(), "ratio")
}

// BenchmarkClaimAndFinish claims and finishes letters in batches of 500, beside the two bare updates that no ledger can do
// without, in turns on one table.
func BenchmarkClaimAndFinish(b *testing.B) {
	const n, batch = 20_000, 500
	l := durable(b)
	id := begin(b, l, "orders.dlt")
	random := rand.New(rand.NewPCG(1, 1))
	next := int64(0)
	fill := func() (filter deadletter.Filter) {
		for range n / batchSize {
			indexBatch(b, l, sample("orders.dlt", next, batchSize, random), id)
			next += batchSize
		}
		return deadletter.Filter{Topics: []string{"orders.dlt"}, States: []deadletter.State{deadletter.Dead}}
	}
	var ours, bare time.Duration
	for b.Loop() {
		b.StopTimer()
		bare += bareClaims(b, l, fill(), batch)
		filter := fill()
		if _, _, err := l.CreateJob(b.Context(), deadletter.JobSpec{Actor: "bench"}, filter); err != nil {
			b.Fatal(err)
		}
		job, err := l.LeaseJob(b.Context(), "bench", time.Hour)
		if err != nil || job == nil {
			b.Fatal(job, err)
		}
		items, err := l.Items(b.Context(), job.ID, 1, n)
		if err != nil || len(items) != n {
			b.Fatal(len(items), err)
		}
		b.StartTimer()
		began := time.Now()
		for at := 0; at < n; at += batch {
			replayBatch(b, l, job, items[at:at+batch])
		}
		ours += time.Since(began)
		b.StopTimer()
		if _, err := l.EndJob(b.Context(), job.ID, job.Fence); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	total := float64(b.N) * n
	b.ReportMetric(total/ours.Seconds(), "letters/s")
	b.ReportMetric(total/bare.Seconds(), "bare_letters/s")
	b.ReportMetric(bare.Seconds()/ours.Seconds(), "ratio")
}

func replayBatch(tb testing.TB, l *Ledger, job *deadletter.Job, items []deadletter.Item) {
	tb.Helper()
	wants := make([]deadletter.Want, len(items))
	for i, item := range items {
		wants[i] = deadletter.Want{Seq: item.Seq, Letter: item.Letter.ID, Target: deadletter.Target{Topic: "orders", Partition: 1, Offset: 7}}
	}
	claimed, err := l.Claim(tb.Context(), job.ID, job.Fence, wants)
	if err != nil {
		tb.Fatal(err)
	}
	outcomes := make([]deadletter.Outcome, len(claimed))
	for i, c := range claimed {
		if c.Granted == nil {
			tb.Fatalf("letter %d is refused, as it is %s", c.Want.Letter, c.Refused)
		}
		outcomes[i] = deadletter.Outcome{Claim: *c.Granted, Seq: c.Want.Seq, Copy: deadletter.Target{Topic: "orders", Partition: 1, Offset: c.Want.Seq}}
	}
	if fenced, err := l.Finish(tb.Context(), outcomes); err != nil || len(fenced) > 0 {
		tb.Fatal(len(fenced), err)
	}
}

// bareClaims takes letters from dead to claimed to replayed with two statements for each batch, and nothing else.
func bareClaims(b *testing.B, l *Ledger, filter deadletter.Filter, batch int) time.Duration {
	b.Helper()
	q := dialect.New()
	q.Filter(filter)
	var ids []int64
	if err := l.pool.QueryRow(b.Context(), "SELECT array_agg(id ORDER BY id) FROM letters WHERE "+q.Where(), q.Args()...).Scan(&ids); err != nil {
		b.Fatal(err)
	}
	do := func(sql string, ids []int64) {
		if _, err := l.pool.Exec(context.WithoutCancel(b.Context()), sql, ids); err != nil {
			b.Fatal(err)
		}
	}
	began := time.Now()
	for at := 0; at < len(ids); at += batch {
		part := ids[at : at+batch]
		do(`UPDATE letters SET state = 'claimed', state_at = clock_timestamp(), owner = 'bench', job = 'bench', fence_epoch = 1, fence_n = nextval('fences'),
			claim_until = clock_timestamp() + interval '30 s', target_topic = 'orders', target_partition = 1, target_offset = 7
			WHERE id = ANY($1) AND state = 'dead'`, part)
		do(`UPDATE letters SET state = 'replayed', state_at = clock_timestamp(), copy_topic = 'orders', copy_partition = 1, copy_offset = 8
			WHERE id = ANY($1) AND state = 'claimed'`, part)
	}
	return time.Since(began)
}
