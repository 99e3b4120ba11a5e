// Command faults lets happen to the forwarder what production does to it, one fault after the other on real Kafka, and
// prints one line for each: what showed it while it lasted, what became of the records, and how long the forwarder took
// to recover. The faults and the rules by which they are judged are those of the package fault.
//
// It exits 0 only if for every fault no record is lost, no commit is ahead of a copy, none is early, no more come twice
// than that fault may repeat, the state was to be seen in /readyz or a metric, and the same process recovered. Progress
// goes to standard error, the lines to standard output, and one JSON object for each figure to a file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/test/faults/fault"
)

// Exit codes.
const (
	exitOK        = 0
	exitViolation = 1 // A rule was broken.
	exitFailed    = 2 // A fault could not be played to its end, or the program was called wrongly.
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

func execute(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	code := exitFailed
	if err == nil {
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer cancel()
		code, err = playAll(ctx, o, stdout, stderr)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "faults:", err)
	}
	return code
}

// options are what the command line says.
type options struct {
	faults    []fault.Fault
	forwarder string
	out       string
	quick     bool
	keep      bool
	list      bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{faults: fault.All()}
	f := flag.NewFlagSet("faults", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.forwarder, "forwarder", "bin/forwarder", "the forwarder's binary")
	only := f.String("only", "", "names of faults, with commas between them; all without it")
	f.StringVar(&o.out, "out", "out/faults.json", "file for the figures")
	f.BoolVar(&o.quick, "quick", false, "few records and rounds, as the stories of test/e2e")
	f.BoolVar(&o.keep, "keep", false, "keep the working folder: configurations and logs")
	f.BoolVar(&o.list, "list", false, "print the names of the faults and what happens in each")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var err error
	if *only != "" {
		o.faults, err = fault.Named(strings.Split(*only, ",")...)
	}
	return o, err
}

// playAll plays the faults one after the other.
func playAll(ctx context.Context, o options, stdout, stderr io.Writer) (code int, err error) {
	if o.list {
		for _, f := range o.faults {
			_, _ = fmt.Fprintf(stdout, "%-20s %s\n", f.Name, f.What)
		}
		return exitOK, nil
	}
	if err := os.Remove(o.out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return exitFailed, err // Old figures must not pass for those of this run.
	}
	binary, err := filepath.Abs(o.forwarder)
	if err == nil {
		_, err = os.Stat(binary)
	}
	if err != nil {
		return exitFailed, fmt.Errorf("the forwarder is not built (make build): %w", err)
	}
	dir, err := os.MkdirTemp("", "redrive-faults-")
	if err != nil {
		return exitFailed, err
	}
	clusters := &clusters{}
	began := time.Now()
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(stderr, "faults %6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	defer func() {
		err = errors.Join(err, clusters.close())
		if o.keep || code != exitOK {
			say("configurations and logs are in %s", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()

	r := &report{}
	for _, f := range o.faults {
		kafka, err := clusters.get(ctx, f.Cluster)
		if err != nil {
			return exitFailed, err
		}
		say("%s: %s", f.Name, f.What)
		result, err := f.Run(ctx, &fault.Site{Kafka: kafka, Binary: binary, Dir: dir, Say: say, Quick: o.quick})
		if ctx.Err() != nil {
			return exitFailed, ctx.Err()
		}
		r.add(&result, err)
		r.print(stdout, &result, err)
	}
	r.sum(stdout)
	return r.code, r.write(o.out)
}

// clusters are those that run. One at a time: the machine may not have room for more.
type clusters struct {
	kind  fault.Cluster
	kafka *testkit.Kafka
}

// get returns a cluster of the kind with all its brokers up.
func (c *clusters) get(ctx context.Context, kind fault.Cluster) (*testkit.Kafka, error) {
	if c.kafka != nil && c.kind == kind {
		return c.kafka, c.kafka.Start(ctx)
	}
	if err := c.close(); err != nil {
		return nil, err
	}
	var options testkit.KafkaOptions
	switch kind {
	case fault.One:
	case fault.Three:
		options.Brokers = 3
	case fault.Guarded:
		options = fault.GuardedOptions()
	}
	kafka, err := testkit.StartKafka(ctx, options)
	if err != nil {
		return nil, err
	}
	c.kind, c.kafka = kind, kafka
	return kafka, nil
}

func (c *clusters) close() error {
	if c.kafka == nil {
		return nil
	}
	kafka := c.kafka
	c.kafka = nil
	return kafka.Close()
}
