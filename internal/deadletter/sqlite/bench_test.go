package sqlite_test

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlite"
	"github.com/kafka-redrive/redrive/internal/envelope"
)

// batch is what an indexer reads at once.
func batch(tb testing.TB, l *sqlite.Ledger, size int) deadletter.Batch {
	tb.Helper()
	id := deadletter.TopicID{1}
	next, err := l.Next(tb.Context(), id, "orders.dlt", 0, 0)
	if err != nil {
		tb.Fatal(err)
	}
	b := deadletter.Batch{TopicID: id, Topic: "orders.dlt", Expected: next, Next: next + int64(size)}
	for i := range int64(size) {
		at := next + i
		b.Letters = append(b.Letters, deadletter.Letter{
			Place: deadletter.Place{TopicID: id, Topic: "orders.dlt", Offset: at}, MessageID: fmt.Sprintf("orders/%d/%d", at%12, 1000+at),
			Key: fmt.Appendf(nil, "customer-%d", at*7919%100_000), Origin: "orders", OriginPartition: int32(at % 12), OriginOffset: 1000 + at, OriginPartitions: 12,
			OriginTimestamp: time.UnixMilli(1_790_000_000_000 + at), Group: "billing", Reason: envelope.ReasonExhausted,
			ErrorType: "com.example.TimeoutException", ErrorText: fmt.Sprintf("no answer from inventory within 3000 ms (attempt 5, request %d)", at),
			Fingerprint: "5f2b1c0d9e8a7f61", Label: "v3", Attempt: 5, Deliveries: 5,
			FailedAt: time.UnixMilli(1_790_000_100_000 + at), DeadAt: time.UnixMilli(1_790_000_100_007 + at), Size: 412, Digest: sha256.Sum256(fmt.Append(nil, at)),
		})
	}
	return b
}

func BenchmarkIndex(b *testing.B) {
	const size = 5000
	l := open(b, filepath.Join(b.TempDir(), "ledger.db"))
	rows := 0
	for b.Loop() {
		b.StopTimer()
		next := batch(b, l, size)
		b.StartTimer()
		if err := l.Index(b.Context(), next); err != nil {
			b.Fatal(err)
		}
		rows += size
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkClaimFinish(b *testing.B) {
	const size = 500
	l := open(b, filepath.Join(b.TempDir(), "ledger.db"))
	letters := 0
	for b.Loop() {
		b.StopTimer()
		if err := l.Index(b.Context(), batch(b, l, size)); err != nil {
			b.Fatal(err)
		}
		if _, _, err := l.CreateJob(b.Context(), deadletter.JobSpec{}, deadletter.Filter{States: []deadletter.State{deadletter.Dead}}); err != nil {
			b.Fatal(err)
		}
		job, err := l.LeaseJob(b.Context(), "runner", time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		items, err := l.Items(b.Context(), job.ID, 1, size)
		if err != nil {
			b.Fatal(err)
		}
		wants := make([]deadletter.Want, len(items))
		for i, item := range items {
			wants[i] = deadletter.Want{Seq: item.Seq, Letter: item.Letter.ID, Target: deadletter.Target{Topic: "orders", Offset: 1}}
		}
		b.StartTimer()
		claimed, err := l.Claim(b.Context(), job.ID, job.Fence, wants)
		if err != nil {
			b.Fatal(err)
		}
		outcomes := make([]deadletter.Outcome, len(claimed))
		for i, c := range claimed {
			outcomes[i] = deadletter.Outcome{Claim: *c.Granted, Seq: c.Want.Seq, Copy: deadletter.Target{Topic: "orders", Offset: int64(i + 1)}}
		}
		if fenced, err := l.Finish(b.Context(), outcomes); err != nil || len(fenced) > 0 {
			b.Fatal(err, len(fenced))
		}
		letters += len(wants)
	}
	b.ReportMetric(float64(letters)/b.Elapsed().Seconds(), "letters/s")
}
