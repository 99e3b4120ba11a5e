// Command chaos kills the forwarder, or the dlt-replayer, and what they depend on
// again and again under load, and then counts what became of each record.
//
// The model of the forwarder: this program is never killed. It starts three real brokers and two
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
//
// With -target index or replay it is the dlt-replayer that is killed, and its
// ledger and brokers with it: see the packages index and replay.
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
	"slices"
	"syscall"
	"time"

	"github.com/kafka-redrive/redrive/test/chaos/index"
	"github.com/kafka-redrive/redrive/test/chaos/replay"
	"github.com/kafka-redrive/redrive/test/chaos/stage"
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

// The targets: whom the kills are for.
const (
	targetForwarder = "forwarder"
	targetIndex     = "index"
	targetReplay    = "replay"
)

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.target, "target", targetForwarder, "whose work is disturbed: forwarder, index or replay")
	flags.IntVar(&o.kills, "kills", 0, "SIGKILLs of a replica, or of both (forwarder: 20, index and replay: 30)")
	flags.IntVar(&o.brokerKills, "broker-kills", 3, "SIGKILLs of a broker")
	flags.IntVar(&o.rate, "rate", 0, "new records a second (forwarder: 2000, where those that fail again come on top; index: 20000)")
	flags.Uint64Var(&o.seed, "seed", 0, "of the records and the kills; 0 picks one")
	flags.StringVar(&o.out, "out", "", "file for the figures; empty: out/chaos.json, for index and replay out/chaos-index.json and so on")
	flags.BoolVar(&o.keep, "keep", false, "keep the working folder: logs and the brokers' data")

	flags.IntVar(&o.graceful, "graceful", 20, "forwarder: SIGTERMs of a forwarder, or of both, after the kills")
	flags.IntVar(&o.records, "records", 0, "forwarder: new records at least; the load goes on until they are sent")
	flags.StringVar(&o.waits, "waits", "both", "forwarder: plain: each tier waits its delay; mixed: jitter and waits that records ask for; both: half of the records each")
	flags.DurationVar(&o.longest, "longest", 4*time.Second, "forwarder: delay of the longest tier; with mixed waits, long ones make copies to the tail of a tier")

	flags.StringVar(&o.ledger, "ledger", stage.Postgres, "index, replay: postgres or sqlite")
	flags.IntVar(&o.databaseKills, "database-kills", 3, "index, replay: SIGKILLs of Postgres")
	flags.IntVar(&o.letters, "letters", 0, "index, replay: dead letters (index: 1000000, replay: 50000)")
	flags.IntVar(&o.keys, "keys", 1000, "replay: keys of the dead letters")
	flags.IntVar(&o.freezes, "freezes", 3, "replay: SIGSTOPs of a replica for longer than its lease; none with sqlite")
	flags.IntVar(&o.brokers, "brokers", 3, "index, replay: 1 or 3")
	flags.StringVar(&o.binary, "binary", "", "index, replay: a dlt-replayer that was built with the tag crashpoints; empty builds one")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	o.fill(given)
	if err := o.check(); err != nil || flags.NArg() > 0 {
		err := fmt.Errorf("bad arguments: %q", args)
		_, _ = fmt.Fprintln(stderr, err)
		flags.Usage()
		return o, err
	}
	return o, nil
}

// fill sets what depends on the target and was not given.
func (o *options) fill(given map[string]bool) {
	set := func(value *int, name string, byTarget map[string]int) {
		if !given[name] {
			*value = byTarget[o.target]
		}
	}
	set(&o.kills, "kills", map[string]int{targetForwarder: 20, targetIndex: 30, targetReplay: 30})
	set(&o.rate, "rate", map[string]int{targetForwarder: 2000, targetIndex: 20_000, targetReplay: 1})
	set(&o.letters, "letters", map[string]int{targetIndex: 1_000_000, targetReplay: 50_000})
	if o.out == "" {
		o.out = "out/chaos.json"
		if o.target != targetForwarder {
			o.out = "out/chaos-" + o.target + ".json"
		}
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 16
	}
}

func (o *options) check() error {
	_, err := ladders(o.waits, o.longest)
	switch {
	case err != nil:
		return err
	case !slices.Contains([]string{targetForwarder, targetIndex, targetReplay}, o.target):
		return fmt.Errorf("unknown target %q", o.target)
	case o.ledger != stage.Postgres && o.ledger != stage.SQLite:
		return fmt.Errorf("unknown ledger %q", o.ledger)
	case o.brokers != 1 && o.brokers != 3:
		return fmt.Errorf("%d brokers", o.brokers)
	case min(o.kills, o.brokerKills, o.graceful, o.databaseKills, o.letters, o.freezes) < 0 || o.rate < 1 || o.keys < 1 || o.longest < 2*time.Second:
		return errors.New("a number is too small")
	}
	return nil
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
			dir = filepath.Join(dir, "kafka")
		}
		_ = os.RemoveAll(dir)
	}()
	r.say("seed %d", opts.seed)
	result, err := r.tell(ctx)
	if err != nil {
		return exitFailed, err
	}
	if err := result.Write(opts.out); err != nil {
		return exitFailed, err
	}
	result.Print(stdout)
	if len(result.Violations) > 0 {
		_, _ = fmt.Fprintf(stdout, "seed %d\n", opts.seed)
		return exitViolation, nil
	}
	return exitOK, nil
}

// tell tells the story of the target.
func (r *run) tell(ctx context.Context) (*stage.Report, error) {
	switch r.target {
	case targetIndex:
		return index.Run(ctx, index.Options{
			Letters: r.letters, Rate: r.rate, Kills: r.kills, BrokerKills: r.brokerKills, DatabaseKills: r.databaseKills,
			Ledger: r.ledger, Brokers: r.brokers, Seed: r.seed, Dir: r.dir, Binary: r.binary, Say: r.say,
		})
	case targetReplay:
		return replay.Run(ctx, replay.Options{
			Letters: r.letters, Keys: r.keys, Kills: r.kills, BrokerKills: r.brokerKills, DatabaseKills: r.databaseKills, Freezes: r.freezes,
			Ledger: r.ledger, Brokers: r.brokers, Seed: r.seed, Dir: r.dir, Binary: r.binary, Say: r.say,
		})
	default:
		h, err := r.execute(ctx)
		if err != nil {
			return nil, err
		}
		return makeReport(h, check(h), r.slowestStop), nil
	}
}
