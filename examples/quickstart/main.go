// Command quickstart shows the life of a failed record in half a minute: a broker
// inside this process, a consumer that fails by script, the real forwarder with
// tiers of seconds, and the real dlt-replayer, by which the dead letters come back
// when the consumer is repaired. It prints what happens to each order as it
// happens, and exits with 0 only if each ended where it should.
//
//	make demo                          everything inside
//	make demo BROKERS=localhost:9092   on your own Kafka; what it makes it removes
//
// consumer.go is what an application needs, and meant to be copied.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// limit is when the demo gives up: it must end by itself.
const limit = 100 * time.Second

func main() { os.Exit(run()) }

func run() int {
	var d demo
	var brokers, output string
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.StringVar(&brokers, "brokers", os.Getenv("BROKERS"), "your own Kafka, `host:port,...`; the environment's BROKERS is the same")
	flags.StringVar(&d.prefix, "prefix", "redrive-demo-ID-", "`start` of the names of topics and groups on your own Kafka")
	flags.BoolVar(&d.keep, "keep", false, "leave topics and groups on your own Kafka")
	flags.StringVar(&output, "o", "text", "`form` of the output: text or json, one object a line")
	err := flags.Parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0 || output != "text" && output != "json":
		flags.Usage()
		return 2
	}
	if brokers != "" {
		d.brokers = strings.Split(brokers, ",")
		d.prefix = strings.ReplaceAll(d.prefix, "ID", fmt.Sprintf("%06x", rand.N(1<<24))) //nolint:gosec // A name, not a secret.
	} else {
		d.prefix = ""
	}
	d.print = newPrinter(os.Stdout, output == "json")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // A second Ctrl-C ends it at once.
	ok, err := d.run(ctx)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted")
		return 130
	case err != nil:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		return 1
	case !ok:
		return 1
	}
	return 0
}

// demo is one run.
type demo struct {
	brokers []string // none: embedded
	prefix  string
	keep    bool
	print   *printer
}

// run tells the whole story and cleans up, also when ctx ends. It reports whether
// every order ended where it should.
func (d *demo) run(ctx context.Context) (ok bool, err error) {
	dir, err := os.MkdirTemp("", "redrive-quickstart-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	forwarder, err := binary(ctx, dir, "forwarder")
	if err != nil {
		return false, err
	}
	replayer, err := binary(ctx, dir, "dlt-replayer")
	if err != nil {
		return false, err
	}
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	c, err := openCluster(ctx, d.brokers, d.prefix, dir)
	if err != nil {
		return false, err
	}
	defer c.shut()
	if !d.keep {
		defer func() {
			// Also after Ctrl-C.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			err = errors.Join(err, c.remove(ctx))
		}()
	}
	d.introduce(c)

	out, err := command(ctx, forwarder, c.environ, "topics", "apply", "--config", c.file).CombinedOutput()
	if err != nil {
		return false, fmt.Errorf("forwarder topics apply: %w\n%s", err, out)
	}
	d.print.note("\n%s\n%s", d.print.paint(bold, "$ forwarder topics apply"), indent(string(out)))

	s := newStory(script(), d.prefix, d.print.event)
	if err := d.play(ctx, c, s, forwarder, replayer); err != nil {
		return false, err
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return false, nil // Interrupted: there is nothing to sum up.
	}
	d.print.note("\n")
	return d.print.summary(s.results(), time.Since(started).Round(time.Millisecond).Seconds()), nil
}

func (d *demo) introduce(c *cluster) {
	where := "inside this process, at "
	if c.embedded == nil {
		where = "yours, at "
	}
	d.print.note("%s\n\n", d.print.paint(bold, "Redrive: what becomes of a record that fails"))
	d.print.note("  broker     %s%s\n", where, strings.Join(c.brokers, ", "))
	d.print.note("  consumer   group %s, fails by script\n", c.group)
	d.print.note("  forwarder  group %s\n", c.forwarderGroup)
	d.print.note("  replayer   group %s, its ledger is a file\n", c.replayerGroup)
	if d.prefix != "" {
		d.print.note("  names      all start with %s, left out of the events; removed at the end: %v\n", d.prefix, !d.keep)
	}
	d.print.note("\n%s\n%s", d.print.paint(bold, "$ cat topics.yaml"), indent(c.yaml(c.topic.Origin)))
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}

// play runs the forwarder and the consumer through both acts, or until ctx ends,
// and stops both.
func (d *demo) play(ctx context.Context, c *cluster, s *story, forwarderBinary, replayerBinary string) (err error) {
	// What is stopped here is stopped in order, so none of it ends with ctx itself.
	work := context.WithoutCancel(ctx)

	forwarderCtx, stopForwarder := context.WithCancel(work)
	defer stopForwarder()
	forwarder, err := startChild(forwarderCtx, forwarderBinary, c.environ, "run", "--config", c.file)
	if err != nil {
		return err
	}
	defer func() {
		stopForwarder()
		err = forwarder.ended(err)
	}()

	readCtx, stopReading := context.WithCancel(work)
	defer stopReading()
	failed := make(chan error, 2)
	go func() { failed <- c.watch(readCtx, s) }()
	consumer, err := newConsumer(c.connection, c.group, c.topic.Origin, c.topic.Inbox(), s.delivered)
	if err != nil {
		return err
	}
	consumed := make(chan struct{})
	go func() {
		defer close(consumed)
		failed <- consumer.run(readCtx)
	}()
	defer func() {
		stopReading()
		select {
		case <-consumed:
		case <-time.After(5 * time.Second): // No broker: there is nothing to finish.
		}
		consumer.close()
	}()

	admin, err := forwarder.awaitReady(ctx, partitions*(1+len(ladder())))
	if err != nil {
		return err
	}
	if err := c.awaitConsumer(ctx); err != nil {
		return err
	}
	d.print.note("\n%s\n  ready, http://%s/readyz?verbose\n", d.print.paint(bold, "$ forwarder run"), admin)
	d.print.heading()
	if err := s.produce(ctx, c.client, c.topic.Origin); err != nil {
		return err
	}
	on := stage{failed: failed, children: []*child{forwarder}}
	if err := on.await(ctx, s.ended); err != nil || !s.asScripted() {
		return ignoreEnd(ctx, err) // The results tell what is wrong or missing.
	}

	replayerCtx, stopReplayer := context.WithCancel(work)
	defer stopReplayer()
	replayer, err := startChild(replayerCtx, replayerBinary, c.environ, "serve", "--config", c.file)
	if err != nil {
		return err
	}
	defer func() {
		stopReplayer()
		err = replayer.ended(err)
	}()
	on.children = append(on.children, replayer)
	return ignoreEnd(ctx, d.replay(ctx, c, s, on, replayer, replayerBinary))
}

// stage is what must go on while something is waited for.
type stage struct {
	failed   <-chan error // of the consumer and the reader
	children []*child
}

// await returns when an act has ended. An order that comes back once too often
// is seen by then.
func (on stage) await(ctx context.Context, ended <-chan struct{}) error {
	exited := make([]<-chan struct{}, 2) // A nil channel never delivers.
	for i, c := range on.children {
		exited[i] = c.exited
	}
	select {
	case <-ended:
		return pause(ctx, 500*time.Millisecond)
	case <-ctx.Done():
		return ctx.Err()
	case err := <-on.failed:
		return err
	case <-exited[0]:
		return on.children[0].died()
	case <-exited[1]:
		return on.children[1].died()
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ignoreEnd leaves out that the time is over: the results tell what is missing.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
