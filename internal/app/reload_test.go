package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/forwarder"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

// reloading is a process in virtual time: a real file and the real loader, a
// cluster and forwarders that the test chooses.
type reloading struct {
	*course
	path     string
	hangup   chan struct{}
	level    *slog.LevelVar
	reloader *reloader
	log      *strings.Builder
	loads    atomic.Int32
	plans    atomic.Int32
	problems []kafka.Problem // of the cluster, guarded by mu
	silent   error           // of the brokers, guarded by mu
	before   func()          // runs once before a load, guarded by mu
	done     chan struct{}   // closed when the reloader has ended
}

const (
	head   = "kafka: {brokers: [b1:9092]}\n"
	orders = "topics:\n  - {origin: orders, tiers: [1m, 10m]}\n"
)

// startReloading runs a process with the file.
func startReloading(t *testing.T, text string) *reloading {
	t.Helper()
	r := &reloading{
		path:   filepath.Join(t.TempDir(), "topics.yaml"),
		hangup: make(chan struct{}, 1),
		level:  &slog.LevelVar{},
		log:    &strings.Builder{},
		done:   make(chan struct{}),
	}
	r.course = startCourse(t)
	r.write(text)
	cfg, err := config.Load(config.Source{Path: r.path})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	own := &notices{}
	inspect := &inspector{
		log: log, notices: own,
		plan: func(context.Context, *config.Config, *kafka.Survey) (*kafka.Plan, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.plans.Add(1)
			return &kafka.Plan{Others: slices.Clone(r.problems)}, r.silent
		},
	}
	inspect.adopt(t.Context(), cfg, &kafka.Plan{})
	r.reloader = &reloader{
		log: log, hangup: r.hangup, level: r.level, inspector: inspect, runner: r.runner, notices: own, current: cfg,
		load: func() (*config.Config, error) {
			r.loads.Add(1)
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.before != nil {
				r.before()
				r.before = nil
			}
			return config.Load(config.Source{Path: r.path})
		},
		fingerprint: func() (string, error) { return contentOf(r.path) },
		interval:    time.Duration(cfg.Forwarder.ReloadInterval),
		options: func(cfg *config.Config) (forwarder.Options, error) {
			return forwarder.Options{Group: tiersOf(cfg)}, nil
		},
		metrics: newReloadMetrics(prometheus.NewRegistry(), cfg),
	}
	go func() {
		defer close(r.done)
		r.reloader.run(r.ctx)
	}()
	return r
}

// tiersOf stands for the topics of a configuration.
func tiersOf(cfg *config.Config) string {
	var names []string
	for _, t := range cfg.Topics {
		for _, tier := range t.Tiers {
			names = append(names, tier.Topic)
		}
	}
	return strings.Join(names, " ")
}

func (r *reloading) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// expectIssue compares the issues of the process itself: "code: detail".
func (r *reloading) expectIssue(want ...string) {
	r.t.Helper()
	synctest.Wait()
	var got []string
	for _, f := range r.reloader.notices.findings() {
		got = append(got, strings.ReplaceAll(string(f.Code)+": "+f.Detail, r.path, "topics.yaml"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("issues (-want +got):\n%s", diff)
	}
	successful := 1.0
	if slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(w, "reload-failed") }) {
		successful = 0
	}
	if got := testutil.ToFloat64(r.reloader.metrics.successful); got != successful {
		r.t.Errorf("redrive_config_reload_successful is %v, want %v", got, successful)
	}
}

// pass lets the time go by in which a change of the file is seen.
func (r *reloading) pass() {
	time.Sleep(15 * time.Second)
	synctest.Wait()
}

func (r *reloading) hup() {
	r.hangup <- struct{}{}
	synctest.Wait()
}

func TestOtherTopicsAreTakenUpByAnotherForwarder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders)
		r.pass()
		r.expect(1, "first")
		hash := testutil.ToFloat64(r.reloader.metrics.hash)
		r.write(head + "topics:\n  - {origin: orders, tiers: [1m, 5m]}\n")
		r.pass()
		r.expect(2, "orders.retry.1m orders.retry.5m")
		r.expectIssue()
		if got := testutil.ToFloat64(r.reloader.metrics.hash); got == hash {
			t.Error("the hash of other topics is the same")
		}
		if at := testutil.ToFloat64(r.reloader.metrics.at); time.Since(time.Unix(int64(at), 0)) > 15*time.Second {
			t.Errorf("the time of the last reload is %v", at)
		}
		r.write(head + "topics:\n  - {origin: payments, tiers: [1m]}\n  - {origin: orders, tiers: [1m, 5m]}\n")
		r.pass()
		r.expect(3, "payments.retry.1m orders.retry.1m orders.retry.5m")
		r.write(head + "topics:\n  - {origin: orders, tiers: [1m, 5m]}\n  - {origin: payments, tiers: [1m]}\n")
		r.pass()
		r.expect(3, "payments.retry.1m orders.retry.1m orders.retry.5m") // Their order means nothing.
	})
}

func TestPauseAndRateLimitChangeWhileTheForwarderRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders)
		for _, test := range []struct {
			keys string
			want forwarder.Pace
		}{
			{", paused: true", forwarder.Pace{Paused: true}},
			{", rateLimit: 12.5", forwarder.Pace{RateLimit: 12.5}},
			{"", forwarder.Pace{}},
		} {
			r.write(head + strings.Replace(orders, "}", test.keys+"}", 1))
			r.pass()
			f := r.expect(1, "first")
			if diff := cmp.Diff(map[string]forwarder.Pace{"orders.retry": test.want}, f.paced); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.keys, diff)
			}
			r.expectIssue()
		}
		if r.plans.Load() != 0 {
			t.Error("a pace waits for what the brokers say about topics")
		}
	})
}

func TestAFileThatIsWrongLeavesTheLastGoodOneInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders)
		r.write(head + "topics:\n  - {origin: orders, teirs: [1m], maxDelay: x}\n")
		r.pass()
		r.expect(1, "first")
		r.expectIssue(`reload-failed: topics.yaml:3:22: topics[0].teirs: unknown key (did you mean tiers?) (and 1 more)`)
		if n := strings.Count(r.log.String(), "level=ERROR"); n != 2 {
			t.Errorf("%d errors for two problems\n%s", n, r.log)
		}
		loads := r.loads.Load()
		r.pass()
		if r.loads.Load() != loads {
			t.Error("a file that was wrong is loaded again without a change")
		}
		r.write(head + orders)
		r.pass()
		r.expect(1, "first")
		r.expectIssue()
	})
}

func TestAHangupReloadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+"forwarder: {reloadInterval: 0s}\n"+orders)
		r.write(head + "forwarder: {reloadInterval: 0s}\ntopics:\n  - {origin: orders, tiers: [2m]}\n")
		time.Sleep(time.Hour)
		r.expect(1, "first") // 0s: the file alone says nothing.
		r.hup()
		r.expect(2, "orders.retry.2m")
		r.write("nonsense")
		r.hup()
		r.hup()
		if n := strings.Count(r.log.String(), "level=ERROR"); n < 2 {
			t.Errorf("who asks twice is told %d times", n)
		}
	})
}

// Half a file may be a valid one.
func TestAFileThatIsBeingWrittenIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders+"  - {origin: payments, tiers: [1m]}\n")
		r.pass()
		for i := range 50 {
			r.write(head + orders + strings.Repeat("#", i) + "\n")
			time.Sleep(300 * time.Millisecond)
		}
		r.expect(1, "first")
		r.write(head + orders + "  - {origin: payments, tiers: [2m]}\n")
		r.pass()
		r.expect(2, "orders.retry.1m orders.retry.10m payments.retry.2m")
		r.expectIssue()
	})
}

func TestAFileThatIsAwayForAMomentIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders)
		r.pass()
		loads := r.loads.Load()
		if err := os.Remove(r.path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second)
		r.expectIssue()
		r.write(head + orders)
		r.pass()
		if r.loads.Load() != loads {
			t.Error("the same content is loaded again")
		}

		if err := os.Remove(r.path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.expectIssue("reload-failed: open topics.yaml: no such file or directory")
		r.expect(1, "first")
		r.write(head + orders)
		r.pass()
		r.expectIssue()
		r.expect(1, "first")
	})
}

// The moment may be the one between the look and the load.
func TestAFileThatMovesUnderTheLoadIsLeftToTheNextLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders)
		r.pass()
		r.set(func() {
			r.before = func() {
				if err := os.Remove(r.path); err != nil {
					t.Error(err)
				}
			}
		})
		text := head + "topics:\n  - {origin: orders, tiers: [2m]}\n"
		r.write(text)
		r.pass()
		r.expect(1, "first")
		r.expectIssue()
		r.write(text)
		r.pass()
		r.expect(2, "orders.retry.2m")
		r.expectIssue()
	})
}

func TestAConfigMapIsFollowedThroughItsLinks(t *testing.T) {
	dir := t.TempDir()
	link := func(target, name string) {
		t.Helper()
		fresh := filepath.Join(dir, "fresh")
		if err := errors.Join(os.Symlink(target, fresh), os.Rename(fresh, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	for i, text := range []string{"one", "two"} {
		version := fmt.Sprint("..version", i)
		if err := errors.Join(
			os.Mkdir(filepath.Join(dir, version), 0o700),
			os.WriteFile(filepath.Join(dir, version, "topics.yaml"), []byte(text), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "topics.yaml")
	link("..version0", "..data")
	link("..data/topics.yaml", "topics.yaml")
	before, err := contentOf(path)
	if err != nil {
		t.Fatal(err)
	}
	link("..version1", "..data")
	after, err := contentOf(path)
	if err != nil || after == before {
		t.Errorf("after the swap: changed %v, %v", after != before, err)
	}
	link("..version0", "..data")
	if again, err := contentOf(path); err != nil || again != before {
		t.Errorf("swapped back: the same %v, %v", again == before, err)
	}
}

// The cluster may come to fit the file without a change of the file.
func TestTopicsThatWouldLoseRecordsAreRefusedUntilTheyAreFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders)
		r.set(func() {
			r.problems = []kafka.Problem{problem(issue.RetentionBelowDelay, "orders.retry.2d"), problem(issue.MinISR, "orders.retry")}
		})
		r.write(head + "topics:\n  - {origin: orders, tiers: [2d]}\n")
		r.pass()
		r.expect(1, "first")
		r.expectIssue("reload-failed: orders.retry.2d: retention-below-delay: As it is. Remedy: Do something.")
		time.Sleep(2 * time.Minute)
		r.expect(1, "first")
		if n := strings.Count(r.log.String(), "level=ERROR"); n != 1 {
			t.Errorf("told %d times\n%s", n, r.log)
		}
		r.set(func() { r.problems = r.problems[1:] })
		time.Sleep(time.Minute)
		r.expect(2, "orders.retry.2d")
		r.expectIssue("min-isr: As it is.")
	})
}

func TestTopicsAreNotTakenUpWhileNoBrokerSaysWhatTheyAreLike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders)
		r.set(func() { r.silent = errors.New("no answer") })
		r.write(head + "topics:\n  - {origin: orders, tiers: [2m]}\n")
		r.pass()
		r.expect(1, "first")
		r.expectIssue("reload-failed: no answer")
		r.set(func() { r.silent = nil })
		time.Sleep(time.Minute)
		r.expect(2, "orders.retry.2m")
		r.expectIssue()
	})
}

func TestSettingsThatNeedARestartAreNamedAndStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders)
		r.write("kafka: {brokers: [b2:9092], sasl: {enabled: true, username: me, password: hidden}}\n" +
			"forwarder: {maxHeldBytesPerPartition: 1MiB, admin: {pprof: true}}\nlogging: {level: debug, format: json}\n" + orders)
		r.pass()
		r.expect(1, "first")
		r.expectIssue("restart-required: changed and not in force: kafka.brokers, kafka.sasl.enabled, kafka.sasl.username, kafka.sasl.password, " +
			"forwarder.maxHeldBytesPerPartition, forwarder.admin.pprof, logging.format")
		if r.level.Level() != slog.LevelDebug {
			t.Errorf("the level is %v", r.level.Level())
		}
		if strings.Contains(r.log.String(), "hidden") {
			t.Errorf("a secret in the log:\n%s", r.log)
		}
		if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
			t.Errorf("warned %d times\n%s", n, r.log)
		}
		r.write(head + orders)
		r.pass()
		r.expectIssue()
		if r.level.Level() != slog.LevelInfo {
			t.Errorf("the level is %v", r.level.Level())
		}
	})
}

// A forwarder that can not be made is replaced by one as before, at the pace of now.
func TestAForwarderThatTakesOverAgainKeepsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders)
		paused := strings.Replace(orders, "}", ", paused: true}", 1)
		r.write(head + paused)
		r.pass()
		r.set(func() { r.refuse = errors.New("no such file") })
		r.write(head + strings.Replace(paused, "10m", "20m", 1))
		r.pass()
		f := r.expect(2, "first")
		r.expectIssue("reload-failed: make the forwarder: no such file")
		if !f.paced["orders.retry"].Paused {
			t.Errorf("pace %+v", f.paced)
		}
		r.set(func() { r.refuse = nil })
		time.Sleep(time.Minute)
		r.expect(3, "orders.retry.1m orders.retry.20m")
		r.expectIssue()
	})
}

func TestAStopWhileAReloadIsUnderWayIsGraceful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReloading(t, head+orders)
		r.engines[0].drain = time.Second
		r.write(head + "topics:\n  - {origin: orders, tiers: [2m]}\n")
		r.hup()
		r.stop()
		began := time.Now()
		<-r.done
		if err := <-r.ended; err != nil || time.Since(began) != time.Second || len(r.engines) != 1 {
			t.Errorf("stop: %v after %v, %d forwarders", err, time.Since(began), len(r.engines))
		}
	})
}

func TestTheTopicsAreLookedAtEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu     sync.Mutex // guards the following
			known  []*kafka.Survey
			plan   = &kafka.Plan{Survey: &kafka.Survey{}}
			silent error
		)
		log := &strings.Builder{}
		i := &inspector{
			log: slog.New(slog.NewTextHandler(log, nil)), notices: &notices{},
			plan: func(_ context.Context, _ *config.Config, s *kafka.Survey) (*kafka.Plan, error) {
				mu.Lock()
				defer mu.Unlock()
				known = append(known, s)
				return plan, silent
			},
		}
		set := func(problems []kafka.Problem, err error) {
			mu.Lock()
			defer mu.Unlock()
			plan, silent = &kafka.Plan{Survey: &kafka.Survey{}, Others: problems}, err
		}
		expect := func(after time.Duration, findings int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := len(i.notices.findings()); got != findings {
				t.Errorf("%d findings, want %d", got, findings)
			}
		}
		i.adopt(t.Context(), &config.Config{}, plan)
		go i.run(t.Context())
		expect(59*time.Minute+time.Second, 0)
		looks := func() []*kafka.Survey {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(known)
		}
		if n := len(looks()); n != 59 || slices.Contains(looks(), nil) {
			t.Errorf("%d looks, with everything asked anew: %v", n, slices.Contains(looks(), nil))
		}
		expect(time.Minute, 0)
		if looks()[59] != nil {
			t.Error("the survey of an hour ago is taken for that of now")
		}
		set([]kafka.Problem{problem(issue.ClockSkew, "")}, nil)
		expect(10*time.Minute, 1)
		set(nil, errors.New("refused"))
		expect(10*time.Minute, 1) // Nothing new is known.
		set(nil, nil)
		expect(10*time.Minute, 0)
		if n := strings.Count(log.String(), "\n"); n != 4 {
			t.Errorf("%d lines for a problem that comes and goes and a fault that does:\n%s", n, log)
		}
	})
}

// A look at topics that are not in force any more must not speak for those that are.
func TestALookAtTheTopicsOfBeforeIsThrownAway(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	i := &inspector{log: log, notices: &notices{}}
	i.plan = func(ctx context.Context, _ *config.Config, _ *kafka.Survey) (*kafka.Plan, error) {
		i.adopt(ctx, &config.Config{}, &kafka.Plan{})
		return &kafka.Plan{Others: []kafka.Problem{problem(issue.MinISR, "gone.retry")}}, nil
	}
	i.adopt(t.Context(), &config.Config{}, &kafka.Plan{})
	if err := i.inspect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := i.notices.findings(); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
}
