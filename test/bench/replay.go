package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kafka-redrive/redrive/internal/wait"
	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// replayRecords is the most letters that are replayed in one run.
const replayRecords = 200_000

// claimBatch is how many letters the bare loop claims and marks at once.
const claimBatch = 500

// replayTurn is one replay and both bare loops, one after the other. All are letters a second.
type replayTurn struct {
	replay, produce, claim float64
	cpu                    time.Duration
	rss                    []int64
}

// ratio is the replay's rate as a share of the slower bare loop's.
func (t replayTurn) ratio() float64 { return t.replay / min(t.produce, t.claim) }

// replay measures how fast a job without a limit replays: claim, fetch, send, mark. The ceilings are a bare loop that fetches and
// produces the same records, and one that claims and marks the same rows.
func (b *bench) replay(ctx context.Context) error {
	l, err := b.newLetters(ctx, "bench-replay", min(b.records, replayRecords))
	if err != nil {
		return err
	}
	defer l.freeAddress()
	if err := b.fillLetters(ctx, l); err != nil {
		return err
	}
	const bareTarget = "bench-replay-bare"
	if err := b.client.CreateTopic(ctx, bareTarget, partitions, map[string]string{"message.timestamp.type": "LogAppendTime"}); err != nil {
		return err
	}
	turns := make([]replayTurn, b.runs)
	for i := range turns {
		if turns[i], err = b.replayTurn(ctx, l, fmt.Sprintf("replay_%d", i), bareTarget); err != nil {
			return err
		}
		t := turns[i]
		b.say("replay: %6.0f letters/s, bare fetch-produce %7.0f, bare claim-mark %6.0f, %.1f us of CPU a letter, %.0f MiB", t.replay, t.produce, t.claim,
			float64(t.cpu)/1e3/float64(l.records), peakOf(t.rss))
	}
	of := func(f func(replayTurn) float64) float64 {
		var all []float64
		for _, t := range turns {
			all = append(all, f(t))
		}
		return median(all)
	}
	b.add("replay_ratio", of(replayTurn.ratio), "ratio")
	b.add("replay_per_s", of(func(t replayTurn) float64 { return t.replay }), "letters/s")
	b.add("replay_bare_produce_per_s", of(func(t replayTurn) float64 { return t.produce }), "letters/s")
	b.add("replay_bare_claim_per_s", of(func(t replayTurn) float64 { return t.claim }), "letters/s")
	b.add("replay_cpu_us_per_letter", of(func(t replayTurn) float64 { return float64(t.cpu) / 1e3 / float64(l.records) }), "us")
	b.add("replay_rss_mib", of(func(t replayTurn) float64 { return peakOf(t.rss) }), "MiB")
	b.add("replay_rss_growth", of(func(t replayTurn) float64 { return growthOf(t.rss) }), "ratio")
	return errors.Join(b.trim(ctx, l.topic()), b.trim(ctx, l.origin))
}

func (b *bench) replayTurn(ctx context.Context, l *letters, name, bareTarget string) (t replayTurn, err error) {
	url, err := b.database(ctx, name, "")
	if err != nil {
		return t, err
	}
	bareName := name + "_bare"
	defer func() {
		for _, database := range []string{name, bareName} {
			err = errors.Join(err, b.sql(context.WithoutCancel(ctx), b.postgres.URL(""), "DROP DATABASE IF EXISTS "+database))
		}
	}()
	if _, err := b.indexed(ctx, l, url); err != nil {
		return t, err
	}
	if err := b.sql(ctx, url, "VACUUM ANALYZE"); err != nil {
		return t, err
	}
	bareURL, err := b.database(ctx, bareName, name)
	if err != nil {
		return t, err
	}
	if err := b.replayOnce(ctx, l, url, &t); err != nil {
		return t, err
	}
	if t.claim, err = bareClaims(ctx, bareURL, l.records); err != nil {
		return t, err
	}
	t.produce, err = b.bareProduce(ctx, l, bareTarget)
	return t, err
}

// replayOnce lets a replayer replay all letters in one job.
func (b *bench) replayOnce(ctx context.Context, l *letters, url string, t *replayTurn) error {
	before, err := b.client.EndOffsets(ctx, l.origin)
	if err != nil {
		return err
	}
	c, err := b.startReplayer(l, url)
	if err != nil {
		return err
	}
	defer c.kill()
	api, err := b.awaitAPI(ctx, c, l)
	if err != nil {
		return c.failure(err)
	}
	defer api.Close()
	unlimited := float64(stage.Unlimited)
	job, err := api.CreateJob(ctx, "", stage.Replay{
		Filter: stage.Filter{Topic: []string{l.topic()}}, Reason: "benchmark", Rate: &unlimited, Expect: l.records, All: true,
	})
	if err != nil {
		return c.failure(err)
	}
	done, moved := int64(0), time.Now()
	for job.State != "done" {
		if err := c.ended(); err != nil {
			return err
		}
		if !wait.For(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
		if mem, err := memoryOf(c.pid()); err == nil && job.Done > 0 {
			t.rss = append(t.rss, mem.now)
		}
		if job, err = api.Job(ctx, job.ID); err != nil {
			return c.failure(err)
		}
		if job.Done != done {
			done, moved = job.Done, time.Now()
		} else if time.Since(moved) > stallLimit {
			return c.failure(fmt.Errorf("the job stands still at %d of %d", job.Done, job.Total))
		}
	}
	if job.Done != l.records || job.StartedAt == nil || job.EndedAt == nil {
		return c.failure(fmt.Errorf("the job has ended with %+v", job))
	}
	if t.cpu, err = c.stop(); err != nil {
		return err
	}
	after, err := b.client.EndOffsets(ctx, l.origin)
	if err != nil {
		return err
	}
	if n := total(after) - total(before); n != l.records {
		return fmt.Errorf("%d copies are on the origin, of %d letters", n, l.records)
	}
	t.replay = float64(l.records) / job.EndedAt.Sub(*job.StartedAt).Seconds()
	return nil
}

// bareProduce lets the bare loop move the same records.
func (b *bench) bareProduce(ctx context.Context, l *letters, target string) (float64, error) {
	const group = "bare-replay"
	zero := map[int32]int64{}
	for p := range int32(partitions) {
		zero[p] = 0
	}
	if err := b.place(ctx, group, l.topic(), zero); err != nil {
		return 0, err
	}
	g := growth{topic: target}
	var err error
	if g.start, err = b.client.EndOffsets(ctx, target); err != nil {
		return 0, err
	}
	c, err := b.startBare("bare-drain", group, l.topic(), target, base)
	if err != nil {
		return 0, err
	}
	defer c.kill()
	if err := b.grown(ctx, c, target, g.start, l.records); err != nil {
		return 0, err
	}
	if _, err := c.stop(); err != nil {
		return 0, err
	}
	if g.end, err = b.client.EndOffsets(ctx, target); err != nil {
		return 0, err
	}
	took, err := b.span(ctx, g)
	if err != nil {
		return 0, err
	}
	if took <= 0 {
		return 0, errors.New("too few letters: the bare loop took no time")
	}
	return float64(l.records) / took.Seconds(), b.trim(ctx, target)
}

// bareClaims claims and marks all letters, a batch at a time, each with one statement: what no replay can do without.
func bareClaims(ctx context.Context, url string, letters int64) (float64, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // All of it has been answered.
	rows, err := conn.Query(ctx, "SELECT id FROM letters ORDER BY origin, origin_partition, origin_offset, id")
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, err
	}
	const claim = `UPDATE letters SET state = 'claimed', state_at = now(), owner = 'bare', job = 'bare', fence_epoch = 1, fence_n = nextval('fences'),
		claim_until = now() + interval '30 s', target_topic = 'bench', target_partition = 0, target_offset = 0 WHERE id = ANY($1) AND state = 'dead'`
	const mark = `UPDATE letters SET state = 'replayed', state_at = now(), copy_topic = 'bench', copy_partition = 0, copy_offset = o.at
		FROM unnest($1::bigint[], $2::bigint[]) AS o (id, at) WHERE letters.id = o.id AND state = 'claimed' AND owner = 'bare'`
	began := time.Now()
	for batch := range slices.Chunk(ids, claimBatch) {
		if tag, err := conn.Exec(ctx, claim, batch); err != nil || tag.RowsAffected() != int64(len(batch)) {
			return 0, errors.Join(fmt.Errorf("claim %d letters: %v", len(batch), tag), err)
		}
		if tag, err := conn.Exec(ctx, mark, batch, batch); err != nil || tag.RowsAffected() != int64(len(batch)) {
			return 0, errors.Join(fmt.Errorf("mark %d letters: %v", len(batch), tag), err)
		}
	}
	if int64(len(ids)) != letters {
		return 0, fmt.Errorf("%d rows are in the ledger, of %d letters", len(ids), letters)
	}
	return float64(letters) / time.Since(began).Seconds(), nil
}
