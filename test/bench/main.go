// Command bench measures the forwarder on one real Kafka broker, and a bare loop of the same client library beside it.
//
// It answers three questions. drain: how fast a million overdue records come back, as a share of what the bare loop
// reaches. lateness: how long after its due time a record is on its origin, at several rates. waiting: how much memory a
// million waiting records take, and how often their bytes are fetched.
//
// The model: a contender, the forwarder's binary or the bare loop, is a child process that moves records from one tier
// topic to one origin. Contenders take turns on the same topics, so that what else the machine does meets both; figures
// are medians of the turns, and a ratio is the median of those of each turn. Rates and lateness are read from the stamps
// that the broker gives; processor time, memory and bytes read from the kernel. Nothing is asked of the contender itself.
//
// Progress goes to standard error, a table to standard output, and one JSON object for each figure to a file. A record
// that is early, missing or doubled fails the run. All children end with this process.
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
	only      []string
	values    []int
	records   int64
	minutes   float64
	runs      int
	out       string
	forwarder string
}

var measurements = []string{"drain", "lateness", "waiting"}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := f.String("only", strings.Join(measurements, ","), "what to measure")
	values := f.String("values", "1024,100", "sizes of the values to drain, in bytes")
	f.Int64Var(&o.records, "records", 1_000_000, "how many records drain or wait")
	f.Float64Var(&o.minutes, "minutes", 1, "length of a lateness run")
	f.IntVar(&o.runs, "runs", 5, "runs of drain and lateness, of which the median counts")
	f.StringVar(&o.out, "out", "out/bench.json", "file for the figures")
	f.StringVar(&o.forwarder, "forwarder", "bin/forwarder", "the forwarder's binary")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	for name := range strings.SplitSeq(*only, ",") {
		if !slices.Contains(measurements, name) {
			return o, fmt.Errorf("-only: %q is none of %s", name, strings.Join(measurements, ", "))
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
	if o.records < 1 || o.runs < 1 || o.minutes <= 0 {
		return o, errors.New("-records, -runs and -minutes must be above 0")
	}
	return o, nil
}

// bench is one run of the program.
type bench struct {
	*rig
	report
	records int64
	runs    int
	length  time.Duration
}

func measure(ctx context.Context, o options) (err error) {
	if err := os.Remove(o.out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // Old figures must not pass for those of this run.
	}
	r, err := newRig(ctx, o.forwarder, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	b := &bench{rig: r, records: o.records, runs: o.runs, length: time.Duration(o.minutes * float64(time.Minute))}
	for _, name := range measurements {
		if slices.Contains(o.only, name) {
			err = errors.Join(err, b.one(ctx, name, o))
		}
		if ctx.Err() != nil {
			break
		}
	}
	// What was measured is worth having though something else failed.
	return errors.Join(err, b.table(os.Stdout), b.write(o.out))
}

func (b *bench) one(ctx context.Context, name string, o options) error {
	switch name {
	case "drain":
		for _, size := range o.values {
			if err := b.drain(ctx, size); err != nil {
				return fmt.Errorf("drain %d: %w", size, err)
			}
		}
	case "lateness":
		if err := b.lateness(ctx); err != nil {
			return fmt.Errorf("lateness: %w", err)
		}
	case "waiting":
		if err := b.waiting(ctx); err != nil {
			return fmt.Errorf("waiting: %w", err)
		}
	}
	return nil
}
