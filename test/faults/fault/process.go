package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// process is one forwarder.
type process struct {
	s       *scene
	cmd     *exec.Cmd
	logFile string
	address string // of probes and metrics; learned from the log
	done    chan struct{}
	err     error // of Wait, valid once done is closed
	mayEnd  bool  // it is no failure if it ends by itself
}

// launch starts a forwarder and returns when it serves its probes.
func (s *scene) launch() *process {
	p := &process{s: s, done: make(chan struct{}), logFile: filepath.Join(s.dir, fmt.Sprintf("forwarder-%d.log", len(s.processes)+1))}
	log, err := os.Create(p.logFile)
	s.check(err)
	defer log.Close() //nolint:errcheck // The child has its own descriptor; nothing is written here.
	// Not with a context: it ends by kill or stop.
	p.cmd = exec.Command(s.site.Binary, "run", "-c", s.config)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Dir, p.cmd.Env = s.dir, testkit.Environment()
	err = testkit.StartChild(p.cmd, func(err error) {
		p.err = err
		close(p.done)
	})
	if err != nil {
		s.failf("start a forwarder: %w", err)
	}
	s.processes = append(s.processes, p)
	s.await("the probes of a forwarder", func(context.Context) error {
		p.mustRun()
		if at := regexp.MustCompile(`admin_address=(\S+)`).FindStringSubmatch(p.log()); at != nil {
			p.address = at[1]
			return nil
		}
		return errors.New("it has not said where they are")
	})
	return p
}

// start launches a forwarder and returns when it owns all partitions of the scene.
func (s *scene) start() *process {
	p := s.launch()
	p.awaitOwned(s.owned())
	return p
}

// running tells whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// mustRun ends the scene if the process has ended.
func (p *process) mustRun() {
	if !p.running() {
		p.s.failf("a forwarder ended by itself: %v; its log ends\n%s", p.err, tail(p.log()))
	}
}

func (p *process) signal(sig syscall.Signal) {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.s.failf("signal a forwarder: %w", err)
	}
}

// kill ends the process with SIGKILL and returns when it is gone.
func (p *process) kill() {
	p.mayEnd = true
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // It is gone, or goes.
	<-p.done
}

// stop ends the process with SIGTERM. The exit code must be 0.
func (p *process) stop() {
	p.mayEnd = true
	p.signal(syscall.SIGTERM)
	if !p.awaitEnd(30 * time.Second) {
		p.signal(syscall.SIGQUIT) // The stacks stand at the end of the log.
		<-p.done
		p.s.failf("a forwarder did not stop within 30s; its log ends\n%s", tail(p.log()))
	}
	if p.err != nil {
		p.s.wrongf("a forwarder that was stopped: %v", p.err)
	}
}

// awaitEnd waits until the process has ended.
func (p *process) awaitEnd(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

func (p *process) log() string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

// readiness is what /readyz?format=json says, as far as scenes ask.
type readiness struct {
	OK       bool    `json:"ok"`
	Assigned int     `json:"assigned"`
	Issues   []issue `json:"issues"`
}

type issue struct {
	Issue     string `json:"issue"`
	Code      string `json:"code"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

func (i issue) code() string { return i.Issue + i.Code }

func (i issue) String() string {
	switch {
	case i.Topic == "":
		return i.code()
	case i.Partition < 0:
		return i.code() + " of " + i.Topic
	default:
		return fmt.Sprintf("%s of %s/%d", i.code(), i.Topic, i.Partition)
	}
}

// ready asks the process how it is.
func (p *process) ready(ctx context.Context) (readiness, error) {
	var r readiness
	body, err := p.get(ctx, "/readyz?format=json")
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("readyz: %w", err)
	}
	return r, nil
}

// awaitOwned waits until the process is ready and owns so many partitions.
func (p *process) awaitOwned(partitions int) {
	p.s.await(fmt.Sprintf("a forwarder that owns %d partitions", partitions), func(ctx context.Context) error {
		p.mustRun()
		r, err := p.ready(ctx)
		if err == nil && (!r.OK || r.Assigned != partitions) {
			err = fmt.Errorf("readyz: %+v", r)
		}
		return err
	})
}

// get asks the admin endpoint.
func (p *process) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Close = true // No idle connection is left over.
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // Only read.
	return io.ReadAll(response.Body)
}

// metric is the sum of the samples of a metric that have all these labels, each written as in name="value"; 0 if there is none.
func (p *process) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	body, err := p.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	return testkit.Metric(string(body), name, labels...)
}

// reading is metric for a scene that must have it.
func (p *process) reading(name string, labels ...string) float64 {
	value := 0.0
	p.s.await(name, func(ctx context.Context) (err error) {
		p.mustRun()
		value, err = p.metric(ctx, name, labels...)
		return err
	})
	return value
}

// awaitMetric waits until a metric has the value.
func (p *process) awaitMetric(want float64, name string, labels ...string) {
	p.s.await(fmt.Sprintf("%s %v = %v", name, labels, want), func(ctx context.Context) error {
		p.mustRun()
		got, err := p.metric(ctx, name, labels...)
		if err == nil && got != want {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
}

// awaitHeld waits until so many records of a topic are in memory.
func (p *process) awaitHeld(topic string, n int) {
	p.awaitMetric(float64(n), "redrive_held_records", label("topic", topic))
}

func label(name, value string) string { return fmt.Sprintf("%s=%q", name, value) }

// sign is something that shows a fault: it returns what was seen of it, or "".
type sign struct {
	what string
	look func(ctx context.Context, p *process) (string, error)
}

// issues is the sign that one of the codes stands in /readyz, for the topic, or, with "", for any.
func issues(topic string, codes ...string) sign {
	return sign{"issue " + strings.Join(codes, " or "), func(ctx context.Context, p *process) (string, error) {
		r, err := p.ready(ctx)
		if err != nil {
			return "", err
		}
		for _, i := range r.Issues {
			if slices.Contains(codes, i.code()) && (topic == "" || i.Topic == topic) {
				return p.s.short(i.String()), nil
			}
		}
		return "", nil
	}}
}

// atLeast is the sign that a metric has a value or more.
func atLeast(least float64, name string, labels ...string) sign {
	return sign{fmt.Sprintf("%s of %v", name, least), func(ctx context.Context, p *process) (string, error) {
		value, err := p.metric(ctx, name, labels...)
		if err != nil || value < least {
			return "", err
		}
		return fmt.Sprintf("%s %s", name, strconv.FormatFloat(value, 'f', -1, 64)), nil
	}}
}

// rises is the sign that a counter is above what it is now.
func (p *process) rises(name string, labels ...string) sign {
	return atLeast(p.reading(name, labels...)+1, name, labels...)
}

// slowCommits is the sign that another commit takes longer than a second.
func (p *process) slowCommits() sign {
	const name = "redrive_commit_duration_seconds"
	slow := func(ctx context.Context, p *process) (float64, error) {
		body, err := p.get(ctx, "/metrics")
		if err != nil {
			return 0, err
		}
		all, err := testkit.Metric(string(body), name+"_count")
		if err != nil {
			return 0, err
		}
		fast, err := testkit.Metric(string(body), name+"_bucket", label("le", "1"))
		return all - fast, err
	}
	before := 0.0
	p.s.await(name, func(ctx context.Context) (err error) {
		before, err = slow(ctx, p)
		return err
	})
	return sign{name + " above 1", func(ctx context.Context, p *process) (string, error) {
		now, err := slow(ctx, p)
		if err != nil || now <= before {
			return "", err
		}
		return fmt.Sprintf("%s above 1: %v times", name, now-before), nil
	}}
}

// seeLimit is how long a fault may last before it must show.
const seeLimit = 40 * time.Second

// see waits until one of the signs is there, and notes it. That none comes is noted as well, and the scene goes on: what
// else becomes of it is worth knowing.
func (p *process) see(signs ...sign) { p.seeWithin(seeLimit, signs...) }

func (p *process) seeWithin(limit time.Duration, signs ...sign) {
	var wanted []string
	for _, sign := range signs {
		wanted = append(wanted, sign.what)
	}
	ctx, cancel := context.WithTimeout(p.s.ctx, limit)
	defer cancel()
	seen := ""
	err := await(ctx, func(ctx context.Context) error {
		if !p.running() {
			return nil
		}
		var failed error
		for _, sign := range signs {
			text, err := sign.look(ctx, p)
			if failed = errors.Join(failed, err); text != "" {
				seen = text
				return nil
			}
		}
		return errors.Join(failed, errors.New("no such thing"))
	})
	p.mustRun()
	if seen != "" {
		p.s.seen(seen)
		return
	}
	what := strings.Join(wanted, ", or ")
	p.s.say("not to be seen: %s: %v", what, err)
	if r, err := p.ready(p.s.ctx); err == nil {
		p.s.say("what is to be seen: %+v", r)
	}
	p.s.result.Unseen = append(p.s.result.Unseen, what)
}

// during looks for the signs until what it returns is called, which notes what was seen of each.
func (p *process) during(signs ...sign) (end func()) {
	ctx, cancel := context.WithCancel(p.s.ctx)
	seen := make([]string, len(signs))
	done := make(chan struct{})
	p.s.background.Go(func() {
		defer close(done)
		pace := time.NewTicker(100 * time.Millisecond)
		defer pace.Stop()
		for ctx.Err() == nil {
			for i, sign := range signs {
				if seen[i] == "" {
					seen[i], _ = sign.look(ctx, p)
				}
			}
			select {
			case <-ctx.Done():
			case <-pace.C:
			}
		}
	})
	return func() {
		cancel()
		<-done
		var wanted []string
		before := len(p.s.result.Seen)
		for i, text := range seen {
			wanted = append(wanted, signs[i].what)
			if text != "" {
				p.s.seen(text)
			}
		}
		if len(p.s.result.Seen) == before {
			p.s.result.Unseen = append(p.s.result.Unseen, strings.Join(wanted, ", or "))
		}
	}
}

// command runs the forwarder with arguments and returns its exit code and output.
func (s *scene) command(arguments ...string) (code int, output string) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.site.Binary, arguments...)
	cmd.Dir, cmd.Env = s.dir, testkit.Environment()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		s.failf("forwarder %q: %w\n%s", arguments, errors.Join(err, ctx.Err()), out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// must runs a command that must succeed.
func (s *scene) must(arguments ...string) {
	if code, out := s.command(arguments...); code != 0 {
		s.failf("forwarder %q: exit code %d\n%s", arguments, code, out)
	}
}
