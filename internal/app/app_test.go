package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/internal/wait"
)

// options are those of a file with one origin and one tier.
func options(t *testing.T, brokers []string) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topics.yaml")
	text := fmt.Sprintf("kafka: {brokers: [%q]}\nforwarder: {admin: {address: \"127.0.0.1:0\"}}\ntopics:\n  - {origin: orders, tiers: [1m]}\n", brokers[0])
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return Options{Config: cfg, ConfigPath: "topics.yaml", Build: ReadBuild("1.2.3", "", ""), Logger: testkit.Logger(t)}
}

func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func create(t *testing.T, c *kfake.Cluster, settings map[string]string, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		if err := c.CreateTopic(topic, 2, settings); err != nil {
			t.Fatal(err)
		}
	}
}

// fit are settings with which a tier of a minute loses nothing.
func fit() map[string]string {
	return map[string]string{"cleanup.policy": "delete", "retention.ms": "604800000"}
}

// start runs an app until the stop that is returned, or the end of the test.
func start(t *testing.T, opts Options) (a *App, stop func() error) {
	t.Helper()
	a, err := New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return a, stop
}

func fetch(ctx context.Context, a *App, path string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.AdminAddress()+path, nil)
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func awaitReady(t *testing.T, a *App) {
	t.Helper()
	testkit.WaitFor(t, 20*time.Second, "readiness", func(ctx context.Context) error {
		code, body, err := fetch(ctx, a, "/readyz")
		if err == nil && code != http.StatusOK {
			err = errors.New(body)
		}
		return err
	})
}

func TestStartIsRefusedWhereRecordsWouldBeLost(t *testing.T) {
	c := cluster(t)
	create(t, c, nil, "orders", "orders.dlt")
	create(t, c, map[string]string{"cleanup.policy": "compact"}, "orders.retry")
	create(t, c, map[string]string{"retention.ms": "60000"}, "orders.retry.1m")
	a, err := New(t.Context(), options(t, c.ListenAddrs()))
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if err := a.Run(t.Context()); !errors.As(err, &refused) {
		t.Fatalf("run: %v", err)
	}
	var got []string
	for _, p := range refused.Problems {
		got = append(got, p.Topic+" "+string(p.Code))
	}
	if diff := cmp.Diff([]string{"orders.retry compacted", "orders.retry.1m retention-below-delay"}, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if info := c.GroupInfo("redrive-forwarder"); info != nil {
		t.Error("the forwarder joined its group all the same")
	}
	lines := strings.Split(refused.Error(), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[2], "Remedy: forwarder topics apply -c topics.yaml") {
		t.Errorf("not one line for each problem with its remedy:\n%v", refused)
	}
}

func TestAMissingOriginDoesNotRefuseTheStart(t *testing.T) {
	c := cluster(t)
	create(t, c, fit(), "orders.retry", "orders.retry.1m", "orders.dlt")
	a, stop := start(t, options(t, c.ListenAddrs()))
	awaitReady(t, a)
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestStartWaitsForABroker(t *testing.T) {
	port := testkit.FreePort(t)
	a, stop := start(t, options(t, []string{fmt.Sprint("127.0.0.1:", port)}))
	testkit.WaitFor(t, 10*time.Second, "the first try", func(ctx context.Context) error {
		code, body, err := fetch(ctx, a, "/readyz")
		if err != nil {
			return err
		}
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "[-]loop: starting: waiting for a broker") || !strings.Contains(body, "refused") {
			return errors.New(body)
		}
		return nil
	})
	if code, _, err := fetch(t.Context(), a, "/livez"); code != http.StatusOK || err != nil {
		t.Errorf("livez without a broker: %d, %v", code, err)
	}
	c := cluster(t, kfake.Ports(port))
	create(t, c, fit(), "orders", "orders.retry", "orders.retry.1m", "orders.dlt")
	awaitReady(t, a)

	c.Close()
	testkit.WaitFor(t, 20*time.Second, "503 after the death of the only broker", func(ctx context.Context) error {
		code, body, err := fetch(ctx, a, "/readyz")
		if err == nil && code != http.StatusServiceUnavailable {
			err = errors.New(body)
		}
		return err
	})
	if code, _, err := fetch(t.Context(), a, "/livez"); code != http.StatusOK || err != nil {
		t.Errorf("livez after the death of the only broker: %d, %v", code, err)
	}
	began := time.Now()
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

func TestStopWhileWaitingForABrokerIsAtOnce(t *testing.T) {
	a, stop := start(t, options(t, []string{fmt.Sprint("127.0.0.1:", testkit.FreePort(t))}))
	testkit.WaitFor(t, 10*time.Second, "the server", func(ctx context.Context) error {
		_, _, err := fetch(ctx, a, "/livez")
		return err
	})
	began := time.Now()
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the stop took %v", took)
	}
	if _, _, err := fetch(t.Context(), a, "/livez"); err == nil {
		t.Error("the server answers after the stop")
	}
}

func TestNewLeavesNothingBehindWhenItFails(t *testing.T) {
	var config net.ListenConfig
	taken, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	opts := options(t, []string{"127.0.0.1:1"})
	opts.Config.Forwarder.Admin.Address = taken.Addr().String()
	_, err = New(t.Context(), opts) // goleak looks for the client.
	var unusable *ConfigError
	if err == nil || errors.As(err, &unusable) {
		t.Errorf("an address that is taken: %v", err)
	}

	opts = options(t, []string{"127.0.0.1:1"})
	opts.Config.Kafka.TLS = missingCA("/does/not/exist.pem")
	if _, err = New(t.Context(), opts); !errors.As(err, &unusable) {
		t.Errorf("a certificate that is not there: %v", err)
	}
}

func missingCA(ca string) config.TLS { return config.TLS{Enabled: true, CAFilepath: ca} }

func TestTeardownRunsInReverseAndNeverTwice(t *testing.T) {
	var undo teardown
	var got []string
	for _, name := range []string{"first", "second", "third"} {
		undo.push(name, func() error {
			got = append(got, name)
			if name == "second" {
				return errors.New("stuck")
			}
			return nil
		})
	}
	err := undo.run(slog.New(slog.DiscardHandler))
	if diff := cmp.Diff([]string{"third", "second", "first"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if err == nil || err.Error() != "close second: stuck" {
		t.Errorf("error: %v", err)
	}
	if err := undo.run(slog.New(slog.DiscardHandler)); err != nil || len(got) != 3 {
		t.Errorf("a second run: %v, %v", got, err)
	}
}

func TestLogsAreTextOnATerminalAndJSONElsewhere(t *testing.T) {
	for _, test := range []struct {
		format   string
		terminal bool
		json     bool
	}{
		{"auto", true, false}, {"auto", false, true}, {"json", true, true}, {"text", false, false},
	} {
		var out bytes.Buffer
		log, level, err := NewLogger(&out, config.Logging{Level: "warn", Format: test.format}, test.terminal)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("not wanted")
		log.Warn("wanted", "count", 1)
		var line struct{ Level, Msg string }
		isJSON := json.Unmarshal(out.Bytes(), &line) == nil
		if isJSON != test.json || strings.Contains(out.String(), "not wanted") {
			t.Errorf("%+v: %s", test, &out)
		}
		out.Reset()
		level.Set(slog.LevelInfo)
		if log.Info("wanted now"); !strings.Contains(out.String(), "wanted now") {
			t.Errorf("%+v: the level can not be changed", test)
		}
		if isJSON && (line.Level != "warn" || line.Msg != "wanted") {
			t.Errorf("%+v: %s", test, &out)
		}
	}
}

func TestEverySettingReachesItsOption(t *testing.T) {
	opts := options(t, []string{"b1:9092"})
	cfg := opts.Config
	cfg.Kafka = config.Kafka{
		Brokers: []string{"b1:9092"}, ClientID: "id", RackID: "rack",
		TLS:  config.TLS{Enabled: true, CAFilepath: "ca", CertFilepath: "cert", KeyFilepath: "key", InsecureSkipTLSVerify: true, ServerName: "name"},
		SASL: config.SASL{Enabled: true, Mechanism: "PLAIN", Username: "user", Password: "secret", PasswordFilepath: "file"},
	}
	got := KafkaOptions(opts)
	got.Logger = nil
	want := kafka.Options{
		Brokers: []string{"b1:9092"}, ClientID: "id", Version: "1.2.3",
		TLS:  &kafka.TLSOptions{CAFile: "ca", CertFile: "cert", KeyFile: "key", InsecureSkipVerify: true, ServerName: "name"},
		SASL: &kafka.SASLOptions{Mechanism: "PLAIN", Username: "user", Password: "secret", PasswordFile: "file"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kafka (-want +got):\n%s", diff)
	}
	if p := preflight(cfg); p.Group != cfg.Forwarder.Group || p.Principal != "User:user" {
		t.Errorf("preflight: %+v", p)
	}
	cfg.Kafka.SASL = config.SASL{
		Enabled: true, Mechanism: "OAUTHBEARER",
		OAuth: config.OAuth{
			Token: "token", TokenFilepath: "tokenfile", TokenEndpoint: "endpoint", ClientID: "client", ClientSecret: "hidden",
			ClientSecretFilepath: "secretfile", Scope: "scope", Extensions: []config.Extension{{Key: "k", Value: "v"}},
		},
		AWSMSKIAM: config.AWSMSKIAM{AccessKey: "access", SecretKey: "hidden too", SessionToken: "session", Region: "region", UserAgent: "agent"},
	}
	wantSASL := &kafka.SASLOptions{
		Mechanism: "OAUTHBEARER",
		OAuth: kafka.OAuthOptions{
			Token: "token", TokenFile: "tokenfile", TokenEndpoint: "endpoint", ClientID: "client", ClientSecret: "hidden",
			ClientSecretFile: "secretfile", Scope: "scope", Extensions: map[string]string{"k": "v"},
		},
		AWS: kafka.AWSOptions{AccessKey: "access", SecretKey: "hidden too", SessionToken: "session", Region: "region", UserAgent: "agent"},
	}
	if diff := cmp.Diff(wantSASL, KafkaOptions(opts).SASL); diff != "" {
		t.Errorf("sasl (-want +got):\n%s", diff)
	}
	if p := preflight(cfg).Principal; p != "" {
		t.Errorf("the principal of a token is the brokers' to say, not %q", p)
	}

	cfg.Forwarder = config.Forwarder{
		Group: "g", InstanceID: "i", SessionTimeout: 1, ShutdownTimeout: 2, CommitInterval: 3, MaxUncommitted: 4,
		MaxHeldBytes: 5, MaxHeldBytesPerPartition: 6, GroupProtocol: "consumer",
	}
	topic := &cfg.Topics[0]
	topic.MaxAttempts, topic.MaxDelay, topic.MaxHeldBytesPerPartition = 7, config.Duration(time.Hour), 8
	topic.MaxDeliveries, topic.Paused, topic.RateLimit, topic.Partitioner = 9, true, 2.5, "crc32"
	topic.Group = "billing"
	topic.Tiers[0].Jitter = config.Duration(time.Second)
	f, err := forwarderOptions(opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Group != "g" || f.InstanceID != "i" || f.SessionTimeout != 1 || f.ShutdownTimeout != 2 || f.CommitInterval != 3 ||
		f.GroupProtocol != "consumer" || f.RackID != "rack" || !f.Topics[0].Paused || f.Topics[0].RateLimit != 2.5 || f.Topics[0].Group != "billing" ||
		f.MaxUncommitted != 4 || f.MaxHeldBytes != 5 || f.MaxHeldBytesPerPartition != 6 || f.Topics[0].MaxHeldBytesPerPartition != 8 {
		t.Errorf("forwarder: %+v", f)
	}
	policy := f.Topics[0].Policy
	if policy.MaxAttempts() != 7 || policy.MaxDeliveries() != 9 || policy.MaxDelay() != time.Hour || policy.Tier(0).Delay != time.Minute || policy.Tier(0).Jitter != time.Second ||
		policy.Tier(0).Topic != "orders.retry.1m" || policy.Inbox() != "orders.retry" || policy.DeadLetters() != "orders.dlt" || policy.ReturnTo() != "orders" {
		t.Errorf("policy: %+v", policy)
	}
	ladder := ladders(cfg)[0]
	wantLadder := kafka.Ladder{
		Origin: "orders", ReturnTo: "orders", Inbox: "orders.retry", DeadLetters: "orders.dlt",
		Tiers:       []kafka.Tier{{Name: "1m", Topic: "orders.retry.1m", Delay: time.Minute, Jitter: time.Second}},
		Partitioner: kafka.CRC32,

		ReplayTrigger: "orders.dlt.replay", ReplayTo: []string{}, ReplyTo: []string{},
	}
	if diff := cmp.Diff(wantLadder, ladder); diff != "" {
		t.Errorf("ladder (-want +got):\n%s", diff)
	}
}

func TestApplyLeavesNothingToDoAndTellsWhatItDid(t *testing.T) {
	c := cluster(t)
	create(t, c, nil, "orders")
	opts := options(t, c.ListenAddrs())
	var acts []string
	left, err := Apply(t.Context(), opts, func(a kafka.Act) { acts = append(acts, a.Topic+" "+a.What) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"orders.retry create", "orders.retry.1m create", "orders.dlt create", "orders.dlt.replay create"}, acts); diff != "" {
		t.Errorf("acts (-want +got):\n%s", diff)
	}
	if left.Changed() {
		t.Errorf("left: %+v", left)
	}
}

func TestRemediesNameTheFileAsAShellReadsIt(t *testing.T) {
	for path, want := range map[string]string{"my/topics.yaml": "my/topics.yaml", "my topics.yaml": `"my topics.yaml"`} {
		plan := &kafka.Plan{Topics: []kafka.TopicPlan{{Problems: []kafka.Problem{{Remedy: "forwarder topics apply"}}}}}
		completeRemedies(plan, path)
		wantText(t, plan.Topics[0].Problems[0].Remedy, "forwarder topics apply -c "+want)
	}
}

// reloadable is an app whose file is looked at ten times a second.
func reloadable(t *testing.T, c *kfake.Cluster) (opts Options, write func(topics string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topics.yaml")
	write = func(topics string) {
		t.Helper()
		text := fmt.Sprintf("kafka: {brokers: [%q]}\nforwarder: {reloadInterval: 100ms, admin: {address: \"127.0.0.1:0\"}}\ntopics:\n%s\n", c.ListenAddrs()[0], topics)
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("  - {origin: orders, tiers: [1m]}")
	load := func() (*config.Config, error) { return config.Load(config.Source{Path: path}) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Config: cfg, ConfigPath: path, Build: ReadBuild("1.2.3", "", ""), Logger: testkit.Logger(t), Reload: load}, write
}

// awaitMetrics waits until all lines are among the metrics.
func awaitMetrics(t *testing.T, a *App, lines ...string) {
	t.Helper()
	testkit.WaitFor(t, 20*time.Second, strings.Join(lines, " and "), func(ctx context.Context) error {
		_, body, err := fetch(ctx, a, "/metrics")
		for _, line := range lines {
			if err == nil && !strings.Contains(body, line+"\n") {
				err = errors.New("no " + line)
			}
		}
		return err
	})
}

func TestAChangedFileIsTakenUpInTheSameProcess(t *testing.T) {
	c := cluster(t)
	create(t, c, fit(), "orders", "orders.retry", "orders.retry.1m", "orders.retry.2m", "orders.dlt")
	opts, write := reloadable(t, c)
	a, stop := start(t, opts)
	awaitReady(t, a)
	awaitMetrics(t, a, `redrive_assigned_partitions{topic="orders.retry.1m"} 2`, "redrive_config_reload_successful 1")

	write("  - {origin: orders, tiers: [2m]}")
	awaitMetrics(t, a, `redrive_assigned_partitions{topic="orders.retry.2m"} 2`, `redrive_assigned_partitions{topic="orders.retry"} 2`)
	write("  - {origin: orders, tiers: [3m]}")
	awaitMetrics(t, a, "redrive_config_reload_successful 0", `redrive_issue{code="reload-failed",topic=""} 1`, `redrive_assigned_partitions{topic="orders.retry.2m"} 2`)
	write("  - {origin: orders, tiers: [2m], paused: true}")
	awaitMetrics(t, a, "redrive_config_reload_successful 1", `redrive_assigned_partitions{topic="orders.retry.2m"} 2`)
	if code, body, err := fetch(t.Context(), a, "/readyz"); code != http.StatusOK || err != nil {
		t.Errorf("readyz: %d %s %v", code, body, err)
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// The request to stop may come at any moment of a reload.
func TestAStopDuringAReloadIsGraceful(t *testing.T) {
	c := cluster(t)
	create(t, c, fit(), "orders", "orders.retry", "orders.retry.1m", "orders.retry.2m", "orders.dlt")
	for _, after := range []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond} {
		opts, write := reloadable(t, c)
		hangup := make(chan struct{}, 1)
		opts.Hangup = hangup
		a, stop := start(t, opts)
		awaitReady(t, a)
		write("  - {origin: orders, tiers: [2m]}")
		hangup <- struct{}{}
		wait.For(t.Context(), after)
		began := time.Now()
		if err := stop(); err != nil {
			t.Errorf("after %v: stop: %v", after, err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("after %v: the stop took %v", after, took)
		}
	}
}
