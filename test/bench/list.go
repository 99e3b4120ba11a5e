package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kafka-redrive/redrive/internal/wait"
	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// What the rows of list are spread over.
const (
	listDays       = 90
	listOrigins    = 20
	listErrorTypes = 200
	listKeys       = 1_000_000
	// listQueries is how often each kind of query is asked.
	listQueries = 120
)

// listReasons are as frequent as their place says: the first is the most frequent.
var listReasons = []string{"exhausted", "poison", "permanent", "blocked"}

// listStates likewise.
var listStates = []string{"dead", "replayed", "succeeded", "discarded"}

// listRanges are within what time range a list is asked for, back from a random moment.
var listRanges = []time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

// list measures how long a page of letters takes to find among many, through the API, and fails where a plan reads the whole table.
func (b *bench) list(ctx context.Context) (err error) {
	l, err := b.newLetters(ctx, "bench-list", 0)
	if err != nil {
		return err
	}
	defer l.freeAddress()
	const name = "list"
	db, err := b.database(ctx, name, "")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.sql(context.WithoutCancel(ctx), b.postgres.URL(""), "DROP DATABASE "+name+" WITH (FORCE)"))
	}()
	if err := errors.Join(b.keepRows(ctx, l), b.fillRows(ctx, l, db)); err != nil {
		return err
	}
	worst, err := b.askAll(ctx, l, db)
	if err != nil {
		return err
	}
	b.add("list_p99_ms_"+rowsName(b.rows), milliseconds(worst), "ms")
	return b.plans(ctx, l, db)
}

// rowsName is how names of figures call a number of rows: 10m, 50k.
func rowsName(n int64) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return strconv.FormatInt(n/1_000_000, 10) + "m"
	case n >= 1000 && n%1000 == 0:
		return strconv.FormatInt(n/1000, 10) + "k"
	default:
		return strconv.FormatInt(n, 10)
	}
}

// fillRows lets a replayer make the tables and note the topic, which is empty, and then makes the rows inside Postgres. The indexes are
// taken away meanwhile and made again as they were.
func (b *bench) fillRows(ctx context.Context, l *letters, db string) error {
	c, err := b.startReplayer(l, db)
	if err != nil {
		return err
	}
	defer c.kill()
	conn, err := b.awaitTopic(ctx, c, db)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // All of it has been answered.
	if _, err := c.stop(); err != nil {
		return err
	}
	b.say("making %d rows", b.rows)
	rows, err := conn.Query(ctx, `SELECT indexname::text, indexdef FROM pg_indexes WHERE tablename = 'letters' AND indexname <> 'letters_pkey' ORDER BY indexname`)
	if err != nil {
		return err
	}
	type index struct{ Name, Definition string }
	indexes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[index])
	if err != nil {
		return err
	}
	for _, i := range indexes {
		if _, err := conn.Exec(ctx, "DROP INDEX "+i.Name); err != nil {
			return err
		}
	}
	if err := fillKeys(ctx, conn, min(listKeys, b.rows)); err != nil {
		return err
	}
	const step = 1_000_000
	for from := int64(0); from < b.rows; from += step {
		if _, err := conn.Exec(ctx, rowsSQL, from, min(from+step, b.rows)-1, min(listKeys, b.rows), l.topic()); err != nil {
			return fmt.Errorf("make rows: %w", err)
		}
		b.say("%d rows", min(from+step, b.rows))
	}
	for _, i := range indexes {
		if _, err := conn.Exec(ctx, i.Definition); err != nil {
			return fmt.Errorf("%s: %w", i.Definition, err)
		}
	}
	for _, statement := range []string{
		"INSERT INTO tallies (n, topic, origin, state) SELECT count(*), topic, origin, state FROM letters GROUP BY topic, origin, state",
		"VACUUM (ANALYZE) letters", "CHECKPOINT",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	b.say("%d indexes are made again", len(indexes))
	return nil
}

// awaitTopic waits until a replayer has noted its topic in the ledger.
func (b *bench) awaitTopic(ctx context.Context, c *child, db string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, db)
	if err != nil {
		return nil, err
	}
	for began := time.Now(); ; {
		var n int
		err := conn.QueryRow(ctx, "SELECT count(*) FROM positions").Scan(&n)
		if err == nil && n == partitions {
			return conn, nil
		}
		if time.Since(began) > stallLimit || c.ended() != nil {
			return nil, c.failure(errors.Join(fmt.Errorf("%d partitions are in the ledger", n), err, conn.Close(ctx)))
		}
		if !wait.For(ctx, 100*time.Millisecond) {
			return nil, errors.Join(ctx.Err(), conn.Close(context.WithoutCancel(ctx)))
		}
	}
}

// fillKeys makes a table of keys with the hashes that the ledger finds them by, which Postgres can not compute.
func fillKeys(ctx context.Context, conn *pgx.Conn, n int64) error {
	if _, err := conn.Exec(ctx, "CREATE TEMPORARY TABLE keys (no bigint PRIMARY KEY, key bytea NOT NULL, hash bigint NOT NULL)"); err != nil {
		return err
	}
	no := int64(-1)
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"keys"}, []string{"no", "key", "hash"}, pgx.CopyFromFunc(func() ([]any, error) {
		if no++; no >= n {
			return nil, nil
		}
		key := listKey(no)
		h := fnv.New64a()
		_, _ = h.Write(key)
		return []any{no, key, int64(binary.BigEndian.Uint64(h.Sum(nil)))}, nil
	}))
	if err == nil {
		_, err = conn.Exec(ctx, "ANALYZE keys")
	}
	return err
}

func listKey(no int64) []byte { return fmt.Appendf(nil, "customer-%08d", no) }

func listMessage(no int64) string { return fmt.Sprintf("origin-%d/%d/%d", no%listOrigins, no%8, no) }

// rowsSQL makes the rows $1 to $2 of $3 keys in the topic $4. What it takes for random are the digits of a product, so that one column
// says nothing about the next.
var rowsSQL = fmt.Sprintf(`
INSERT INTO letters (record_offset, key_hash, origin_offset, origin_timestamp, failed_at, dead_at, state_at, size, topic, record_partition,
	origin_partition, origin_partitions, attempt, deliveries, replay_count, pointer, kept, message_id, record_key, origin, consumer_group,
	reason, error_type, error_text, fingerprint, label, replay_id, digest, state, copy_topic, copy_partition, copy_offset)
SELECT g, k.hash, g, dead, dead, dead, dead, 400 + g %% 1000, t.no, g %% 8, g %% 8, 8, 4, 4, 0, false, false,
	'origin-' || g %% %[1]d || '/' || g %% 8 || '/' || g, k.key, 'origin-' || g %% %[1]d, 'shop',
	CASE WHEN r1 < 700 THEN 'exhausted' WHEN r1 < 850 THEN 'poison' WHEN r1 < 950 THEN 'permanent' ELSE 'blocked' END,
	'com.example.Failure' || r2, 'order ' || g || ' was refused by the stock service: timeout after 3000 ms',
	md5('com.example.Failure' || r2)::text, '', '', decode(md5(g::text) || md5((g + 1)::text), 'hex'),
	CASE WHEN r3 < 900 THEN 'dead' WHEN r3 < 950 THEN 'replayed' WHEN r3 < 980 THEN 'succeeded' ELSE 'discarded' END,
	CASE WHEN r3 BETWEEN 900 AND 979 THEN 'origin-' || g %% %[1]d END, CASE WHEN r3 BETWEEN 900 AND 979 THEN g %% 8 END,
	CASE WHEN r3 BETWEEN 900 AND 979 THEN g END
FROM (
	SELECT g, (g * 7919) %% $3 AS no, (g * 104729) %% 1000 AS r1, (g * 15485863) %% 982451653 %% %[2]d AS r2, (g * 32452843) %% 1299709 %% 1000 AS r3,
		now() - interval '%[3]d days' * ((g * 49979687) %% 15485863 / 15485863.0) AS dead
	FROM generate_series($1::bigint, $2::bigint) AS g
) AS made JOIN keys k USING (no) CROSS JOIN (SELECT no FROM topics WHERE name = $4) AS t`, listOrigins, listErrorTypes, listDays)

// question is a kind of query.
type question struct {
	name  string
	query func(r *rand.Rand, rows int64) url.Values
}

var questions = []question{
	{"message_id", func(r *rand.Rand, rows int64) url.Values {
		return url.Values{"messageId": {listMessage(r.Int64N(rows))}}
	}},
	{"key", func(r *rand.Rand, rows int64) url.Values {
		return url.Values{"key": {string(listKey(r.Int64N(min(listKeys, rows))))}}
	}},
	{"origin", func(r *rand.Rand, _ int64) url.Values {
		return ranged(r, url.Values{"origin": {fmt.Sprintf("origin-%d", r.IntN(listOrigins))}})
	}},
	{"reason", func(r *rand.Rand, _ int64) url.Values {
		return ranged(r, url.Values{"reason": {listReasons[r.IntN(len(listReasons))]}})
	}},
	{"error_type", func(r *rand.Rand, _ int64) url.Values {
		return ranged(r, url.Values{"errorType": {fmt.Sprintf("com.example.Failure%d", r.IntN(listErrorTypes))}})
	}},
	{"state", func(r *rand.Rand, _ int64) url.Values {
		return ranged(r, url.Values{"state": {listStates[r.IntN(len(listStates))]}})
	}},
	{expiringQuestion, func(r *rand.Rand, _ int64) url.Values {
		return url.Values{"within": {listRanges[r.IntN(len(listRanges))].String()}}
	}},
}

// expiringQuestion is the one that is not asked of the list of letters, but of those that retention is about to take.
const expiringQuestion = "expiring"

// ask asks one question and returns how many letters the answer has.
func (q *question) ask(ctx context.Context, api *stage.API, query url.Values) (int, error) {
	if q.name != expiringQuestion {
		letters, err := api.Letters(ctx, query)
		return len(letters), err
	}
	var answer struct {
		Letters []struct{} `json:"letters"`
	}
	err := api.Get(ctx, "/expiring", query, &answer)
	return len(answer.Letters), err
}

// keepRows has retention take the letters at the age that only the oldest rows have.
func (b *bench) keepRows(ctx context.Context, l *letters) error {
	ms := strconv.FormatInt((listDays*24*time.Hour - time.Hour).Milliseconds(), 10)
	_, err := b.client.Admin().AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &ms}}, l.topic())
	return err
}

// ranged adds a random time range to a query.
func ranged(r *rand.Rand, query url.Values) url.Values {
	to := time.Now().Add(-time.Duration(r.Int64N(int64(listDays * 24 * time.Hour))))
	query.Set("to", to.UTC().Format(time.RFC3339))
	query.Set("from", to.Add(-listRanges[r.IntN(len(listRanges))]).UTC().Format(time.RFC3339))
	return query
}

// askAll asks all kinds of queries in turn and returns the largest p99 of them.
func (b *bench) askAll(ctx context.Context, l *letters, db string) (time.Duration, error) {
	c, err := b.startReplayer(l, db)
	if err != nil {
		return 0, err
	}
	defer c.kill()
	api, err := b.awaitAPI(ctx, c, l)
	if err != nil {
		return 0, c.failure(err)
	}
	defer api.Close()
	took, found := map[string][]time.Duration{}, map[string]int{}
	random := rand.New(rand.NewPCG(1, 2))
	var rss []int64
	for range listQueries {
		for _, q := range questions {
			query := q.query(random, b.rows)
			began := time.Now()
			letters, err := q.ask(ctx, api, query)
			if err != nil {
				return 0, c.failure(fmt.Errorf("list by %s, %s: %w", q.name, query.Encode(), err))
			}
			took[q.name] = append(took[q.name], time.Since(began))
			found[q.name] += letters
		}
		if mem, err := memoryOf(c.pid()); err == nil {
			rss = append(rss, mem.now)
		}
	}
	var worst time.Duration
	for _, q := range questions {
		p99 := percentile(took[q.name], 99)
		worst = max(worst, p99)
		b.say("list by %-10s: p99 %6.1f ms, median %5.1f ms, %.1f letters each", q.name, milliseconds(p99), milliseconds(percentile(took[q.name], 50)),
			float64(found[q.name])/listQueries)
		b.add("list_"+q.name+"_p99_ms_"+rowsName(b.rows), milliseconds(p99), "ms")
		if found[q.name] == 0 {
			return 0, fmt.Errorf("no list by %s has found anything", q.name)
		}
	}
	b.add("list_rss_mib", peakOf(rss), "MiB")
	b.add("list_rss_growth", growthOf(rss), "ratio")
	_, err = c.stop()
	return worst, err
}

// plans lets Postgres write down the plan of each statement, asks a few more queries, and fails if one read the whole table.
func (b *bench) plans(ctx context.Context, l *letters, db string) error {
	err := b.sql(ctx, db, "ALTER DATABASE list SET session_preload_libraries = 'auto_explain'", "ALTER DATABASE list SET auto_explain.log_min_duration = 0")
	if err != nil {
		return err
	}
	c, err := b.startReplayer(l, db)
	if err != nil {
		return err
	}
	defer c.kill()
	api, err := b.awaitAPI(ctx, c, l)
	if err != nil {
		return c.failure(err)
	}
	defer api.Close()
	random := rand.New(rand.NewPCG(3, 4))
	for _, q := range questions {
		for range 5 {
			b.postgresLog.reset()
			if _, err := q.ask(ctx, api, q.query(random, b.rows)); err != nil {
				return c.failure(err)
			}
			plan, err := b.awaitPlan(ctx, q.name == expiringQuestion)
			if err != nil {
				return fmt.Errorf("list by %s: %w", q.name, err)
			}
			scans := scanPattern.FindAllString(plan, -1)
			b.say("list by %-10s: %s", q.name, strings.Join(scans, "; "))
			if strings.Contains(plan, "Seq Scan on letters") || len(scans) == 0 {
				return fmt.Errorf("list by %s reads the whole table:\n%s", q.name, plan)
			}
		}
	}
	b.add("list_plans_indexed", float64(5*len(questions)), "plans")
	_, err = c.stop()
	return err
}

var scanPattern = regexp.MustCompile(`(Index Only Scan|Index Scan|Bitmap Index Scan)( Backward)? (using|on) letters_\w+`)

// awaitPlan waits until the log has the plan of a page of letters, or of those that are expiring.
func (b *bench) awaitPlan(ctx context.Context, expiring bool) (string, error) {
	for range 100 {
		if plan := planOf(b.postgresLog.String(), expiring); plan != "" {
			return plan, nil
		}
		if !wait.For(ctx, 50*time.Millisecond) {
			return "", ctx.Err()
		}
	}
	return "", fmt.Errorf("no plan is in the log of Postgres:\n%s", b.postgresLog.String())
}

// planOf finds the plan of a page of letters in the log of Postgres: an entry whose lines, but the first, are indented, and whose
// statement reads letters in an order. The replayer looks for those that are expiring by itself, at any moment.
func planOf(log string, expiring bool) string {
	var plan strings.Builder
	var entries []string
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "\t") {
			entries = append(entries, plan.String())
			plan.Reset()
			if !strings.Contains(line, " plan:") {
				continue
			}
		} else if plan.Len() == 0 {
			continue
		}
		plan.WriteString(line)
	}
	// The last is whole only if something follows; its scans stand in it all the same.
	for _, entry := range append(entries, plan.String()) {
		if strings.Contains(entry, "FROM letters") && strings.Contains(entry, "ORDER BY") && strings.Contains(entry, "Limit") && strings.Contains(entry, "cost=") &&
			strings.Contains(entry, "NOT kept") == expiring {
			return entry
		}
	}
	return ""
}

// logBuffer keeps what Postgres logs since the last reset, up to a size.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write never fails.
func (l *logBuffer) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() < mebibyte {
		l.text.Write(text)
	}
	return len(text), nil
}

func (l *logBuffer) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// String is what was kept.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
