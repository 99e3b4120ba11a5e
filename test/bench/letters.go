package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/wait"
	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// letterSize is the length of a dead letter's value: that of a small JSON document.
const letterSize = 300

// letters is an origin whose dead letters are measured, and how to reach the replayer that does the work.
type letters struct {
	origin      string
	records     int64
	config      string
	api, admin  string
	ends        map[int32]int64 // of the topic, once it is filled
	freeAddress func()
}

func (l *letters) topic() string { return l.origin + ".dlt" }

// startPostgres starts the server that the ledgers of all measurements are in. It has the memory that a server of its size is given;
// what it writes is not forced to the disk, for those that are compared alike.
func (b *bench) startPostgres(ctx context.Context) error {
	if b.postgres != nil {
		return nil
	}
	if _, err := os.Stat(b.replayer); err != nil {
		return fmt.Errorf("the dlt-replayer is not built (make build): %w", err)
	}
	b.say("starting Postgres")
	var err error
	b.postgres, err = testkit.StartPostgres(ctx, testkit.PostgresOptions{
		Log: &b.postgresLog,
		Settings: map[string]string{
			"shared_buffers": "1GB", "maintenance_work_mem": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
			"effective_cache_size": "4GB", "random_page_cost": "1.1",
		},
	})
	return err
}

// newLetters makes the topics of an origin and the configuration of a replayer for it.
func (b *bench) newLetters(ctx context.Context, origin string, records int64) (*letters, error) {
	if err := b.startPostgres(ctx); err != nil {
		return nil, err
	}
	l := &letters{origin: origin, records: records, freeAddress: func() {}}
	var free []func()
	for _, address := range []*string{&l.api, &l.admin} {
		port, release, err := testkit.ReservePort()
		if err != nil {
			return nil, err
		}
		free = append(free, release)
		*address = fmt.Sprintf("127.0.0.1:%d", port)
	}
	l.freeAddress = func() {
		for _, release := range free {
			release()
		}
	}
	configs := map[string]string{"message.timestamp.type": "LogAppendTime", "segment.bytes": fmt.Sprint(64 * mebibyte)}
	for topic, n := range map[string]int32{origin: partitions, l.topic(): partitions, l.topic() + ".replay": 1} {
		if err := b.client.CreateTopic(ctx, topic, n, configs); err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf("kafka: {brokers: [%s]}\nreplayer: {group: replayer-%s, admin: {address: %q}, api: {address: %q}}\nlogging: {level: warn}\ntopics:\n  - {origin: %s, tiers: [10m]}\n",
		strings.Join(b.brokers, ", "), origin, l.admin, l.api, origin)
	l.config = filepath.Join(b.dir, origin+".yaml")
	return l, os.WriteFile(l.config, []byte(text), 0o600)
}

// fillLetters writes the dead letters of an origin.
func (b *bench) fillLetters(ctx context.Context, l *letters) error {
	b.say("writing %d dead letters to %s", l.records, l.topic())
	load, err := newLoader(b.brokers, ladder{origin: l.origin, tier: l.topic()}, letterSize)
	if err != nil {
		return err
	}
	defer load.close()
	load.spoil = deadLetter
	if err := load.load(ctx, l.records, 0, -time.Hour); err != nil {
		return err
	}
	l.ends, err = b.client.EndOffsets(ctx, l.topic())
	return err
}

// deadLetter makes a dead letter of a record of a tier: with the headers that say why.
func deadLetter(r *kgo.Record) {
	var e envelope.Envelope
	e.Parse(r.Headers)
	e.SetReason(envelope.ReasonExhausted)
	n := len(r.Key) // The same for all, but for the last digits of the key.
	e.SetError(fmt.Sprintf("com.example.orders.Failure%c", r.Key[n-1]), fmt.Sprintf("order %s was refused by the stock service: timeout after 3000 ms", r.Key))
	r.Headers = e.Append(make([]kgo.RecordHeader, 0, 12), r.Headers, envelope.Letter)
}

// database makes an empty database, or a copy of another one that nobody is connected to.
func (b *bench) database(ctx context.Context, name, from string) (url string, err error) {
	if from == "" {
		return b.postgres.CreateDatabase(ctx, name)
	}
	return b.postgres.URL(name), b.sql(ctx, b.postgres.URL(""), fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, from))
}

// sql executes statements, one after the other.
func (b *bench) sql(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // Each statement has been answered.
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", firstLine(statement), err)
		}
	}
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// startReplayer starts a replayer on a ledger.
func (b *bench) startReplayer(l *letters, url string) (*child, error) {
	return startChild(b.dir, command{
		name: "dlt-replayer", program: b.replayer, args: []string{"serve", "-c", l.config}, env: []string{"REDRIVE_LEDGER_URL=" + url},
	})
}

// indexed lets a replayer index all letters into an empty database, and stops it. It returns how long it took from the first rows to the
// last, how many rows were written meanwhile, and the memory it took.
func (b *bench) indexed(ctx context.Context, l *letters, url string) (indexing, error) {
	c, err := b.startReplayer(l, url)
	if err != nil {
		return indexing{}, err
	}
	defer c.kill()
	result, err := b.watchIndex(ctx, c, l, url)
	if err != nil {
		return result, c.failure(err)
	}
	result.cpu, err = c.stop()
	return result, err
}

// indexing is what indexing all letters showed.
type indexing struct {
	rows int64
	took time.Duration
	cpu  time.Duration
	rss  []int64 // resident memory, at even times
}

func (i indexing) perSecond() float64 { return float64(i.rows) / i.took.Seconds() }

// watchIndex looks at the ledger's own word about how far the index is, from the first rows to the last.
func (b *bench) watchIndex(ctx context.Context, c *child, l *letters, url string) (indexing, error) {
	var r indexing
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	var first time.Time
	var before, last int64
	moved := time.Now()
	for {
		if err := c.ended(); err != nil {
			return r, err
		}
		if !wait.For(ctx, 50*time.Millisecond) {
			return r, ctx.Err()
		}
		if conn == nil {
			var err error
			if conn, err = pgx.Connect(ctx, url); err != nil {
				return r, err
			}
		}
		var sum int64
		// The tables may not be there yet.
		if err := conn.QueryRow(ctx, "SELECT coalesce(sum(next), 0) FROM positions").Scan(&sum); err != nil {
			sum = 0
		}
		now := time.Now()
		switch {
		case sum == 0:
		case first.IsZero():
			first, before = now, sum
		default:
			if mem, err := memoryOf(c.pid()); err == nil {
				r.rss = append(r.rss, mem.now)
			}
		}
		if sum != last {
			last, moved = sum, now
		}
		if sum >= total(l.ends) {
			r.rows, r.took = sum-before, now.Sub(first)
			if r.rows <= 0 || r.took <= 0 {
				return r, errors.New("too few letters: indexing took no time")
			}
			return r, nil
		}
		if now.Sub(moved) > stallLimit {
			return r, fmt.Errorf("the index stands still at %d of %d", sum, total(l.ends))
		}
	}
}

// growthOf is how much larger the resident memory was at most in the last quarter of a run than in the second: 1 is flat. The first
// quarter warms up.
func growthOf(rss []int64) float64 {
	quarter := len(rss) / 4
	if quarter == 0 {
		return 1
	}
	peak := func(part []int64) float64 {
		most := int64(1)
		for _, n := range part {
			most = max(most, n)
		}
		return float64(most)
	}
	return peak(rss[3*quarter:]) / peak(rss[quarter:2*quarter])
}

func peakOf(rss []int64) float64 {
	most := int64(0)
	for _, n := range rss {
		most = max(most, n)
	}
	return float64(most) / mebibyte
}

// awaitAPI waits until the API of a replayer answers.
func (b *bench) awaitAPI(ctx context.Context, c *child, l *letters) (*stage.API, error) {
	api := stage.NewAPI(l.api)
	ctx, cancel := context.WithTimeout(ctx, stallLimit)
	defer cancel()
	err := testkit.Await(ctx, func(ctx context.Context) error {
		if err := c.ended(); err != nil {
			cancel()
			return err
		}
		_, err := api.Progress(ctx)
		return err
	})
	return api, err
}
