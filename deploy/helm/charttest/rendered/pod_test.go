package rendered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

const (
	// look is how often the probes are asked: far more often than the pod says, so that nothing is missed.
	look = 200 * time.Millisecond
	// backOff is how long the kubelet waits before it starts a program again.
	backOff = time.Second
)

// pod is a pod that runs: as a kubelet does, a goroutine of it starts its programs and another asks its probes.
type pod struct {
	t    *testing.T
	at   *place
	main core.Container
	log  *testkit.Buffer
	stop context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex // guards the following
	running  *exec.Cmd  // the program; nil: it does not run
	ended    chan error // how the program that was told to stop has ended
	stopping bool
	restarts int
	first    int  // how often a container that runs first was started
	started  bool // by the startup probe, since the program was last started
	ready    bool // by the readiness probe
	unready  int  // how often it has become not ready
	refused  int  // how often in a row the liveness probe could not connect
}

// start starts a pod of a workload and does not wait for anything.
func (c *cluster) start(workload, name string) *pod {
	c.t.Helper()
	spec := c.podOf(workload)
	if len(spec.Spec.Containers) != 1 {
		c.t.Fatalf("%s has %d containers, want the program alone", workload, len(spec.Spec.Containers))
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &pod{t: c.t, at: c.find(spec, name), main: spec.Spec.Containers[0], log: &testkit.Buffer{}, stop: cancel, ended: make(chan error, 1)}
	c.running = append(c.running, p)
	var before []*exec.Cmd
	for _, container := range spec.Spec.InitContainers {
		before = append(before, p.at.command(container))
	}
	program := p.at.command(p.main)
	p.work.Go(func() { p.run(ctx, before, program) })
	p.work.Go(func() { p.watch(ctx) })
	c.t.Cleanup(func() {
		p.kill()
		if c.t.Failed() {
			text := p.log.String()
			c.t.Logf("log of %s ends\n%s", name, text[max(0, len(text)-32<<10):])
		}
	})
	return p
}

// run runs what comes first until each has succeeded, and then the program, again whenever it has ended.
func (p *pod) run(ctx context.Context, before []*exec.Cmd, program *exec.Cmd) {
	for _, cmd := range before {
		for {
			p.mu.Lock()
			p.first++
			p.mu.Unlock()
			err := p.once(ctx, cmd, false)
			if err == nil {
				break
			}
			p.logf("what runs first has ended: %v", err)
			if !pause(ctx) {
				return
			}
		}
	}
	for {
		err := p.once(ctx, program, true)
		p.mu.Lock()
		stopping := p.stopping
		p.mu.Unlock()
		if stopping {
			p.ended <- err
			return
		}
		p.logf("the program has ended: %v", err)
		if !pause(ctx) {
			return
		}
		p.mu.Lock()
		p.restarts++
		p.mu.Unlock()
	}
}

// once runs a command to its end. With the end of ctx it is killed.
func (p *pod) once(ctx context.Context, like *exec.Cmd, program bool) error {
	cmd := exec.Command(like.Path, like.Args[1:]...)
	cmd.Dir, cmd.Env = like.Dir, like.Env
	cmd.Stdout, cmd.Stderr = p.log, p.log
	ended := make(chan error, 1)
	p.mu.Lock()
	err := testkit.StartChild(cmd, func(err error) { ended <- err })
	if err == nil && program {
		p.running, p.started, p.ready, p.refused = cmd, false, false, 0
	}
	p.mu.Unlock()
	if err != nil {
		p.t.Errorf("start %s: %v", cmd.Path, err)
		return err
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Kill() // It may be gone.
		err = <-ended
	}
	if program {
		p.mu.Lock()
		p.running, p.started = nil, false
		p.mu.Unlock()
	}
	return err
}

func pause(ctx context.Context) bool {
	timer := time.NewTimer(backOff)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (p *pod) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.log, "== "+format+"\n", args...) // A buffer takes everything.
}

// watch asks the probes. Once the startup probe has succeeded the liveness probe must succeed as long as the process
// runs: a kubelet would forgive some failures, and this one does not.
func (p *pod) watch(ctx context.Context) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var began time.Time // of the program that runs
	var of *exec.Cmd
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p.mu.Lock()
		cmd, started, stopping := p.running, p.started, p.stopping
		p.mu.Unlock()
		if cmd == nil || stopping {
			continue
		}
		if cmd != of {
			of, began = cmd, time.Now()
		}
		switch {
		case !started:
			err := p.probe(ctx, p.main.StartupProbe)
			p.mu.Lock()
			if p.running == cmd {
				p.started = err == nil
			}
			p.mu.Unlock()
			if limit := allowed(p.main.StartupProbe); err != nil && time.Since(began) > limit && ctx.Err() == nil {
				p.t.Errorf("%s: the startup probe has failed for %v: the kubelet would restart it: %v", p.at.name, limit, err)
				return
			}
		default:
			live := p.probe(ctx, p.main.LivenessProbe)
			ready := p.probe(ctx, p.main.ReadinessProbe)
			p.note(ctx, cmd, live, ready)
		}
	}
}

// note keeps what the probes of a program have said, unless it is another one by now.
func (p *pod) note(ctx context.Context, of *exec.Cmd, live, ready error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != of || p.stopping || ctx.Err() != nil {
		return
	}
	// A program that ends refuses connections a moment before it is known to have ended.
	if live != nil && errors.Is(live, syscall.ECONNREFUSED) && p.refused < 10 {
		p.refused++
		return
	}
	p.refused = 0
	if live != nil {
		p.t.Errorf("%s: the liveness probe failed: %v", p.at.name, live)
	}
	if p.ready && ready != nil {
		p.unready++
	}
	p.ready = ready == nil
}

// allowed is how long a probe may fail.
func allowed(probe *core.Probe) time.Duration {
	if probe == nil {
		return 0
	}
	return time.Duration(probe.InitialDelaySeconds+max(1, probe.PeriodSeconds)*max(1, probe.FailureThreshold)) * time.Second
}

// probe asks one probe as the pod says it: path, port, headers and time limit. No probe at all is one that succeeds.
func (p *pod) probe(ctx context.Context, probe *core.Probe) error {
	if probe == nil {
		return nil
	}
	get := probe.HTTPGet
	if get == nil {
		return errors.New("only probes by HTTP are known here")
	}
	number := get.Port.IntVal
	if get.Port.Type == intstr.String {
		number, _ = p.at.pod.Port(get.Port.StrVal) // 0, which has no place: it is asked in vain.
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(1, probe.TimeoutSeconds))*time.Second)
	defer cancel()
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	_, err := p.get(ctx, scheme+"://"+p.address(number)+get.Path, get.HTTPHeaders)
	return err
}

func (p *pod) get(ctx context.Context, url string, headers []core.HTTPHeader) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for _, h := range headers {
		request.Header.Set(h.Name, h.Value)
	}
	request.Close = true // No idle connection is left over.
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // Only read.
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode < 200 || response.StatusCode >= 400) {
		err = &refusal{response.StatusCode, string(body)}
	}
	return body, err
}

// refusal is an answer that fails a probe.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %s", r.code, r.text) }

// address is where a port of the pod is.
func (p *pod) address(port int32) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.at.ports[port]))
}

// state is what the kubelet knows of the pod.
type state struct {
	started, ready           bool
	restarts, unready, first int
}

func (p *pod) state() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return state{p.started, p.ready, p.restarts, p.unready, p.first}
}

// await waits until the pod is in a state.
func (p *pod) await(what string, is func(state) bool) state {
	p.t.Helper()
	testkit.WaitFor(p.t, patience, p.at.name+": "+what, func(context.Context) error {
		if s := p.state(); !is(s) {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	return p.state()
}

func (p *pod) awaitStarted() state {
	p.t.Helper()
	return p.await("started", func(s state) bool { return s.started })
}

func (p *pod) awaitReady() state {
	p.t.Helper()
	return p.await("ready", func(s state) bool { return s.started && s.ready })
}

// awaitUnready waits until the readiness probe fails. It must do so by an answer that says why, in which this stands.
func (p *pod) awaitUnready(why string) state {
	p.t.Helper()
	s := p.await("not ready", func(s state) bool { return s.started && !s.ready })
	testkit.WaitFor(p.t, patience, p.at.name+" says why it is not ready", func(ctx context.Context) error {
		err := p.probe(ctx, p.main.ReadinessProbe)
		if r, ok := errors.AsType[*refusal](err); !ok || r.code != http.StatusServiceUnavailable || !strings.Contains(r.text, why) {
			return fmt.Errorf("want status 503 with %q, got: %w", why, err)
		}
		return nil
	})
	return s
}

// assigned is how many partitions the program owns.
func (p *pod) assigned(ctx context.Context) (int, error) {
	port, _ := p.at.pod.Port("metrics") // The rendered probes have been asked there.
	body, err := p.get(ctx, "http://"+p.address(port)+"/readyz?format=json", nil)
	if err != nil {
		return 0, err
	}
	var r struct {
		Assigned int `json:"assigned"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return 0, fmt.Errorf("readyz: %w", err)
	}
	return r.Assigned, nil
}

// term ends the pod as a kubelet does, and returns how long that took. It must not be ready any more at once, answer to the
// liveness probe until it is gone, and end with exit code 0 before it would be killed.
func (p *pod) term() time.Duration {
	p.t.Helper()
	grace := time.Duration(*p.at.pod.Spec.TerminationGracePeriodSeconds) * time.Second
	if l := p.main.Lifecycle; l != nil && l.PreStop != nil {
		p.t.Fatalf("%s: a preStop hook is not known here", p.at.name)
	}
	p.mu.Lock()
	p.stopping = true
	cmd := p.running
	p.mu.Unlock()
	if cmd == nil {
		p.t.Fatalf("%s does not run", p.at.name)
	}
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	off := time.Duration(0) // when it was first not ready
	for {
		select {
		case err := <-p.ended:
			took := time.Since(began)
			if err != nil {
				p.t.Errorf("%s ended with %v after SIGTERM, want exit code 0", p.at.name, err)
			}
			return took
		case <-timer.C:
			p.kill()
			p.t.Fatalf("%s had not ended within its grace period of %v", p.at.name, grace)
		case <-ticker.C:
		}
		asked := time.Since(began)
		ready, live := p.probe(p.t.Context(), p.main.ReadinessProbe), p.probe(p.t.Context(), p.main.LivenessProbe)
		switch {
		case ready != nil && off == 0:
			off = time.Since(began)
		case ready == nil && (off > 0 || asked > time.Second):
			p.t.Errorf("%s was ready %v after SIGTERM", p.at.name, asked)
		}
		if _, refused := errors.AsType[*refusal](live); refused {
			p.t.Errorf("%s: the liveness probe failed while it stopped: %v", p.at.name, live)
		}
	}
}

// kill ends the pod at once, with all that watches it.
func (p *pod) kill() {
	p.stop()
	p.work.Wait()
}

// client runs the program of the pod with other arguments, as kubectl exec does, or whoever has it on another machine.
func (p *pod) client(env []string, args ...string) (string, error) {
	p.t.Helper()
	cmd := exec.Command(image(p.main.Image), args...)
	cmd.Dir, cmd.Env = p.at.dir, append([]string{"HOME=" + os.TempDir()}, env...)
	return run(p.t, cmd)
}
