// Command chaos kills the forwarder and the brokers again and again under load,
// and then counts what became of each record.
//
// The model: this program is never killed. It starts three real brokers and two
// replicas of the real forwarder, writes records with random content to the
// inboxes, plays the consumer that fails some of what comes back, and does the
// killing. Plan and content of a record follow from the seed and the record's
// number, so that nothing of it has to be remembered. At the end it reads every
// topic from its start and holds the whole history against the rules:
//
//   - lost: an acknowledged record without a copy where its plan ends, or a hop
//     without a copy in its next topic.
//   - early: a copy on the origin whose LogAppendTime is before the due time of
//     its tier copy, or a due time that is before the end of the wait. All clocks
//     are those of one machine; one millisecond is allowed for rounding.
//   - corrupt: a key, a value or a foreign header that is not what was sent, null
//     against empty included.
//   - commit_ahead: an offset that a commit covered, by its watermark or its
//     ranges, before a copy was written. The commits are read after each kill,
//     with both replicas dead in many cases, and four times a second in between;
//     LogAppendTime tells what was there at the time. A copy that a broker lost
//     by its death is written again later, and so counts as not there.
//   - duplicate: a copy more than there were records to copy. Each is put down to
//     the kill between the two copies, if no commit covered the source when the
//     dead left it; without such a kill it is duplicate_unexplained. A copy that
//     only moved within the tiers, its due time unchanged, is not one.
//   - id_changed: a copy with another redrive-message-id than the record has by
//     its plan, or by its first position.
//   - misrouted: a copy in a topic or partition where it does not belong, or a
//     dead letter with another reason than its plan's.
//   - graceful_*: the same for the phase of SIGTERMs, which begins once the
//     effects of all kills are over.
//
// It promises to exit 0 only if all of these are 0 and the bounds of what a kill
// may repeat hold; each violation is printed with its place and the seed. Of
// what a twin dropped in a tier it cannot tell which of the two was dropped, so
// that a duplicate of such a pair can be missed; a loss cannot.
//
// The moments of kills depend on the machine as well as on the seed: a seed
// repeats the records and the plan of the kills, not the run.
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
	code, err := chaos(ctx, opts, stdout, stderr)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "chaos: %v\nchaos: seed %d\n", err, opts.seed)
		return exitFailed
	}
	return code
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.kills, "kills", 20, "SIGKILLs of a forwarder, or of both")
	flags.IntVar(&o.brokerKills, "broker-kills", 3, "SIGKILLs of a broker")
	flags.IntVar(&o.graceful, "graceful", 20, "SIGTERMs of a forwarder, or of both, after the kills")
	flags.IntVar(&o.rate, "rate", 2000, "new records a second; those that fail again come on top")
	flags.IntVar(&o.records, "records", 0, "new records at least; the load goes on until they are sent")
	flags.Uint64Var(&o.seed, "seed", 0, "of the records and the kills; 0 picks one")
	flags.StringVar(&o.waits, "waits", "both", "plain: each tier waits its delay; mixed: jitter and waits that records ask for; both: half of the records each")
	flags.DurationVar(&o.longest, "longest", 4*time.Second, "delay of the longest tier; with mixed waits, long ones make copies to the tail of a tier")
	flags.StringVar(&o.out, "out", "out/chaos.json", "file for the figures")
	flags.BoolVar(&o.keep, "keep", false, "keep the working folder: logs and the brokers' data")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if _, err := ladders(o.waits, o.longest); err != nil || flags.NArg() > 0 || o.kills < 0 || o.brokerKills < 0 || o.graceful < 0 || o.rate < 1 || o.longest < 2*time.Second {
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

// chaos does one run and reports on it.
func chaos(ctx context.Context, opts options, stdout, stderr io.Writer) (code int, err error) {
	dir, err := os.MkdirTemp("", "redrive-chaos-")
	if err != nil {
		return exitFailed, err
	}
	r := &run{options: opts, progress: stderr, dir: dir, began: time.Now()}
	defer func() {
		if opts.keep || code != exitOK {
			// The brokers' data stays only if it was asked for.
			r.say("logs are in %s", dir)
			if opts.keep {
				return
			}
			dir += "/kafka"
		}
		_ = os.RemoveAll(dir)
	}()
	r.say("seed %d", opts.seed)
	h, err := r.execute(ctx)
	if err != nil {
		return exitFailed, err
	}
	result := makeReport(h, check(h), r.slowestStop)
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
