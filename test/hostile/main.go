// Command hostile sends records with forged control headers through the real forwarder on real Kafka, and then counts
// what became of each.
//
// The model: two origins with their ladders, and decoys: topics that the headers name and nobody may write, on a broker
// that would create a topic for whoever asks. The content of a record follows from the seed and the record's number. The
// control headers of most are forged: huge, negative, repeated, contradicting, no UTF-8, of the year 9999, of no bytes, of
// 500 KB, ten thousand of them, some names all but right. They go to the inboxes and straight to the tiers. What must become
// of a record is decided by a second reading of the wire contract, written down here on its own, so that a mistake in the
// product's reading is not the checker's as well. When the forwarder has worked everything off, every topic is read from
// its start:
//
//   - escaped: a copy in a topic where the record may not be: a decoy, another origin's topic, an inbox; the origin, if the
//     record must be dead; a topic that nobody made. Also a dead letter that should have gone back, or of another reason.
//   - crashed: how often the forwarder ended by itself. It is started again, so that the rest can be counted.
//   - stuck: partitions that were not worked off when nothing had moved for a minute.
//   - lost: records of which no copy is where records end.
//   - early: copies that came back before their wait was over, by LogAppendTime. All clocks are those of one machine; one
//     millisecond is allowed for rounding.
//   - corrupt: a key, a value or a foreign header that is not what was sent, null against empty included; a control header
//     that is there twice, too long, not kept by this kind of copy, or says something else than the contract.
//
// forged is how many records were sent. It promises to exit 0 only if all the others are 0; each violation is printed with
// its place and the seed. Copies that came twice are counted and shown, and are no violation: at-least-once allows them.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
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

func execute(args []string, stdout, stderr io.Writer) int {
	opts, err := parse(args, stderr)
	if err != nil {
		return exitFailed
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	code, err := hostile(ctx, opts, stdout, stderr)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "hostile: %v\nhostile: seed %d\n", err, opts.seed)
		return exitFailed
	}
	return code
}

// options are what the command line says.
type options struct {
	records int
	seed    uint64
	binary  string
	out     string
	keep    bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("hostile", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.records, "records", 1_000_000, "records to send")
	flags.Uint64Var(&o.seed, "seed", 0, "of the records; 0 picks one")
	flags.StringVar(&o.binary, "forwarder", "", "the forwarder; built from this tree if it is not given")
	flags.StringVar(&o.out, "out", "out/hostile.json", "file for the figures")
	flags.BoolVar(&o.keep, "keep", false, "keep the working folder: logs and the broker's data")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.records < 1 || o.records > maxRecords {
		err := fmt.Errorf("bad arguments: %q", args)
		_, _ = fmt.Fprintln(stderr, err)
		flags.Usage()
		return o, err
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 16
	}
	return o, nil
}

// maxRecords bounds what is remembered of a run.
const maxRecords = 100_000_000

// hostile does one run and reports on it.
func hostile(ctx context.Context, opts options, stdout, stderr io.Writer) (code int, err error) {
	dir, err := os.MkdirTemp("", "redrive-hostile-")
	if err != nil {
		return exitFailed, err
	}
	r := &run{options: opts, progress: stderr, dir: dir, began: time.Now(), forge: newForge(opts.seed)}
	defer func() {
		if opts.keep || code != exitOK {
			// The broker's data stays only if it was asked for.
			r.say("logs are in %s", dir)
			if opts.keep {
				return
			}
			dir += "/kafka"
		}
		_ = os.RemoveAll(dir)
	}()
	r.say("seed %d", opts.seed)
	found, err := r.execute(ctx)
	if err != nil {
		return exitFailed, err
	}
	result := makeReport(found)
	if err := result.write(opts.out); err != nil {
		return exitFailed, err
	}
	result.print(stdout)
	if len(result.violations) > 0 {
		_, _ = fmt.Fprintf(stdout, "seed %d\n", opts.seed)
		return exitViolation, nil
	}
	return exitOK, nil
}
