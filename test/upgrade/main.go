// Command upgrade exchanges a running Redrive for another build of it, replica by replica, and back, under load on real Kafka and
// Postgres, and then counts what became of each record. What it does and by which rules it judges is told by the package rolling.
//
// It exits 0 only if nothing was lost, early, out of order or there twice. Progress goes to standard error, the figures to
// standard output and, one JSON object for each, to a file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/test/chaos/stage"
	"github.com/kafka-redrive/redrive/test/upgrade/rolling"
)

// Exit codes.
const (
	exitOK        = 0
	exitViolation = 1 // A rule was broken.
	exitFailed    = 2 // The run did not come to its end, or was called wrongly.
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// options are what the command line says.
type options struct {
	rate    int
	hold    time.Duration
	brokers int
	seed    uint64
	out     string
	keep    bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("upgrade", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rate, "rate", 500, "new records a second")
	flags.DurationVar(&o.hold, "hold", 10*time.Second, "how long the load goes on after each exchange")
	flags.IntVar(&o.brokers, "brokers", 3, "1 or 3")
	flags.Uint64Var(&o.seed, "seed", 0, "of the records; 0 picks one")
	flags.StringVar(&o.out, "out", "out/upgrade.json", "file for the figures")
	flags.BoolVar(&o.keep, "keep", false, "keep the working folder: logs")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.rate < 1 || o.hold < 0 || (o.brokers != 1 && o.brokers != 3) {
		err := fmt.Errorf("bad arguments: %q", args)
		_, _ = fmt.Fprintln(stderr, err)
		return o, err
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 16
	}
	return o, nil
}

func execute(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		return exitFailed
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	code, err := upgrade(ctx, o, stdout, stderr)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "upgrade: %v\nupgrade: seed %d\n", err, o.seed)
		return exitFailed
	}
	return code
}

// upgrade tells the story of both orders.
func upgrade(ctx context.Context, o options, stdout, stderr io.Writer) (code int, err error) {
	code = exitFailed
	if err := os.Remove(o.out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return code, err // Old figures must not pass for those of this run.
	}
	dir, err := os.MkdirTemp("", "redrive-upgrade-")
	if err != nil {
		return code, err
	}
	began := time.Now()
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(stderr, "upgrade %6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	defer func() {
		if o.keep || code != exitOK {
			say("logs are in %s", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	say("seed %d; previous is commit %s", o.seed, rolling.PreviousCommit)

	var (
		previous, next rolling.Build
		kafka          *testkit.Kafka
		postgres       *testkit.Postgres
	)
	defer func() {
		if postgres != nil {
			err = errors.Join(err, postgres.Close())
		}
		if kafka != nil {
			err = errors.Join(err, kafka.Close())
		}
	}()
	builds, err := folders(dir, "previous", "next", "forwarders", "replayers")
	if err != nil {
		return code, err
	}
	steps, stepCtx := errgroup.WithContext(ctx)
	steps.Go(func() (err error) {
		previous, err = rolling.BuildPrevious(stepCtx, builds["previous"])
		return err
	})
	steps.Go(func() (err error) {
		next, err = rolling.BuildNext(stepCtx, builds["next"])
		return err
	})
	steps.Go(func() (err error) {
		kafka, err = testkit.StartKafka(stepCtx, testkit.KafkaOptions{Brokers: o.brokers})
		return err
	})
	steps.Go(func() (err error) {
		postgres, err = testkit.StartPostgres(stepCtx, testkit.PostgresOptions{})
		return err
	})
	if err := steps.Wait(); err != nil {
		return code, err
	}

	var all stage.Report
	for _, order := range []rolling.Order{rolling.ForwardersFirst, rolling.ReplayersFirst} {
		database, err := postgres.CreateDatabase(ctx, string(order))
		if err != nil {
			return code, err
		}
		report, err := rolling.Run(ctx, rolling.Options{
			Previous: previous, Next: next, Order: order, Rate: o.rate, Hold: o.hold, Brokers: kafka.Brokers(), Database: database,
			Seed: o.seed, Dir: builds[string(order)], Say: say,
		})
		if err != nil {
			return code, fmt.Errorf("%s first: %w", order, err)
		}
		all.Figures = append(all.Figures, report.Figures...)
		all.Details = append(all.Details, report.Details...)
		all.Violations = append(all.Violations, report.Violations...)
	}
	if err := all.Write(o.out); err != nil {
		return code, err
	}
	all.Print(stdout)
	if len(all.Violations) > 0 {
		_, _ = fmt.Fprintf(stdout, "seed %d\n", o.seed)
		return exitViolation, nil
	}
	return exitOK, nil
}

// folders makes folders in a folder.
func folders(dir string, names ...string) (map[string]string, error) {
	all := map[string]string{}
	for _, name := range names {
		all[name] = filepath.Join(dir, name)
		if err := os.Mkdir(all[name], 0o755); err != nil {
			return nil, err
		}
	}
	return all, nil
}
