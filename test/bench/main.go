// Command bench measures the forwarder on real Kafka and the dlt-replayer on real Postgres, and bare loops beside them.
//
// It answers nine questions. drain: how fast a million overdue records come back, as a share of what the bare loop
// reaches. lateness: how long after its due time a record is on its origin, at several rates. waiting: how much memory a
// million waiting records take, and how often their bytes are fetched. poison: what records that can never be delivered
// cost the others. idle: what thousands of partitions cost in which nothing happens. blocked: what a topic whose origin
// takes nothing costs the other topics. index: how fast dead letters get into the ledger, as a share of a bare COPY. replay: how
// fast a job replays, as a share of the slower of two bare loops. list: how long a page of letters takes to find among ten million.
//
// The model: a contender, the forwarder's binary or the bare loop, is a child process that moves records from one tier
// topic to one origin. Contenders take turns on the same topics, so that what else the machine does meets both; figures
// are medians of the turns, and a ratio is the median of those of each turn. Rates and lateness are read from the stamps
// that the broker gives; processor time, memory and bytes read from the kernel. Nothing is asked of the contender itself.
// Where the bare loop can not do the work, an undisturbed forwarder takes its place.
//
// Progress goes to standard error, a table to standard output, and one JSON object for each figure to a file. A record
// that is early, missing, doubled or in the wrong place fails the run. All children end with this process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// start is the whole program. It is its own child for the bare loop.
func start(ctx context.Context, args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], "bare-") {
		var b bare
		if err := b.flags(args[0]).Parse(args[1:]); err != nil {
			return err
		}
		if args[0] == "bare-delay" {
			return b.delay(ctx)
		}
		return b.drain(ctx)
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	return measure(ctx, o)
}

// options are what the command line says.
type options struct {
	only     []string
	values   []int
	records  int64
	minutes  float64
	runs     int
	out      string
	rows     int64
	binaries binaries
}

// binaries are what is measured.
type binaries struct{ forwarder, replayer string }

// measurement is one of the questions, and how many brokers it takes to answer it.
type measurement struct {
	name    string
	brokers int
	run     func(*bench, context.Context) error
}

// measurements are all that there are. Those of one cluster follow each other, and idle is the last of its cluster: it
// leaves thousands of partitions behind.
var measurements = []measurement{
	{"drain", 1, (*bench).drain},
	{"lateness", 1, (*bench).lateness},
	{"waiting", 1, (*bench).waiting},
	{"poison", 1, (*bench).poison},
	{"index", 1, (*bench).index},
	{"replay", 1, (*bench).replay},
	{"list", 1, (*bench).list},
	{"idle", 1, (*bench).idle},
	{"blocked", 3, (*bench).blocked},
}

// clusters are the sizes of the clusters that are started, one after the other.
var clusters = []int{1, 3}

func names() []string {
	var all []string
	for _, m := range measurements {
		all = append(all, m.name)
	}
	return all
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := f.String("only", strings.Join(names(), ","), "what to measure")
	values := f.String("values", "1024,100", "sizes of the values to drain, in bytes")
	f.Int64Var(&o.records, "records", 1_000_000, fmt.Sprintf("how many records drain or wait, and letters are indexed; for poison and blocked at most %d, to be replayed %d", troubleRecords, replayRecords))
	f.Int64Var(&o.rows, "rows", 10_000_000, "how many letters the ledger has for list")
	f.Float64Var(&o.minutes, "minutes", 1, "length of a lateness run, and of the idleness; half of it for poison and blocked")
	f.IntVar(&o.runs, "runs", 5, "runs of all but waiting, list and idle, of which the median counts")
	f.StringVar(&o.out, "out", "out/bench.json", "file for the figures")
	f.StringVar(&o.binaries.forwarder, "forwarder", "bin/forwarder", "the forwarder's binary")
	f.StringVar(&o.binaries.replayer, "replayer", "bin/dlt-replayer", "the dlt-replayer's binary")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	for name := range strings.SplitSeq(*only, ",") {
		if !slices.Contains(names(), name) {
			return o, fmt.Errorf("-only: %q is none of %s", name, strings.Join(names(), ", "))
		}
		o.only = append(o.only, name)
	}
	for text := range strings.SplitSeq(*values, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 500_000 {
			return o, fmt.Errorf("-values: %q is not a size from 1 to 500000", text)
		}
		o.values = append(o.values, n)
	}
	if o.records < 1 || o.runs < 1 || o.minutes <= 0 || o.rows < 1 {
		return o, errors.New("-records, -rows, -runs and -minutes must be above 0")
	}
	return o, nil
}

// bench is one run of the program.
type bench struct {
	*rig
	report
	values  []int
	records int64
	rows    int64
	runs    int
	length  time.Duration
}

func measure(ctx context.Context, o options) error {
	if err := os.Remove(o.out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // Old figures must not pass for those of this run.
	}
	b := &bench{values: o.values, records: o.records, rows: o.rows, runs: o.runs, length: time.Duration(o.minutes * float64(time.Minute))}
	var err error
	for _, brokers := range clusters {
		var wanted []measurement
		for _, m := range measurements {
			if m.brokers == brokers && slices.Contains(o.only, m.name) {
				wanted = append(wanted, m)
			}
		}
		if len(wanted) > 0 && ctx.Err() == nil {
			err = errors.Join(err, b.on(ctx, o.binaries, brokers, wanted))
		}
	}
	// What was measured is worth having though something else failed.
	return errors.Join(err, b.table(os.Stdout), b.write(o.out))
}

// on measures on a cluster of its own.
func (b *bench) on(ctx context.Context, binaries binaries, brokers int, wanted []measurement) (err error) {
	if b.rig, err = newRig(ctx, binaries, brokers, os.Stderr); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, m := range wanted {
		if failed := m.run(b, ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", m.name, failed))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// trouble is how many records a backlog has that is there to make trouble.
func (b *bench) trouble() int64 { return min(b.records, troubleRecords) }
