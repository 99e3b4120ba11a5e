package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files and the generated files anew")

const threeLines = "kafka: {brokers: [localhost:9092]}\ntopics:\n  - origin: orders\n"

// golden compares got with the file, or writes the file with -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./internal/config -update writes it", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-file +now); go test ./internal/config -update writes it:\n%s", path, diff)
	}
}

// write puts a configuration into a file named topics.yaml.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topics.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return paths
}

func mustLoad(t *testing.T, src Source) *Config {
	t.Helper()
	c, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func problems(t *testing.T, src Source) []Problem {
	t.Helper()
	_, err := Load(src)
	var all *Errors
	if !errors.As(err, &all) {
		t.Fatalf("got %v, want an *Errors", err)
	}
	return all.Problems
}

func TestThreeLinesAreEnough(t *testing.T) {
	c := mustLoad(t, Source{Path: write(t, threeLines)})
	tier := func(delay time.Duration, name string) Tier {
		return Tier{Name: name, Delay: Duration(delay), Topic: "orders.retry." + name}
	}
	want := &Config{
		Kafka: Kafka{
			Brokers:  []string{"localhost:9092"},
			ClientID: "redrive-forwarder",
			SASL:     SASL{Mechanism: "PLAIN", OAuth: OAuth{Extensions: []Extension{}}},
		},
		Forwarder: Forwarder{
			Group:                    "redrive-forwarder",
			GroupProtocol:            "classic",
			SessionTimeout:           Duration(45 * time.Second),
			ShutdownTimeout:          Duration(5 * time.Second),
			CommitInterval:           Duration(100 * time.Millisecond),
			MaxUncommitted:           10000,
			MaxHeldBytes:             64 << 20,
			MaxHeldBytesPerPartition: 8 << 20,
			ReloadInterval:           Duration(10 * time.Second),
			Admin:                    Admin{Address: "127.0.0.1:9400"},
		},
		Ledger: Ledger{DataDir: "data", MaxConnections: 8, Migrate: true},
		Replayer: Replayer{
			Group:           "redrive-dlt-replayer",
			SessionTimeout:  Duration(45 * time.Second),
			ShutdownTimeout: Duration(10 * time.Second),
			Lease:           Duration(30 * time.Second),
			InFlight:        256,
			Batch:           500,
			DefaultRate:     100,
			BulkLimit:       1000,
			ReloadInterval:  Duration(10 * time.Second),
			Expiry:          Expiry{Within: Duration(72 * time.Hour)},
			Admin:           Admin{Address: "127.0.0.1:9401"},
			API:             API{Address: "127.0.0.1:9402", Tokens: []Token{}, MaxBody: 1 << 20},
		},
		Logging: Logging{Level: "info", Format: "auto"},
		Topics: []Topic{{
			Origin:                   "orders",
			Tiers:                    []Tier{tier(10*time.Second, "10s"), tier(time.Minute, "1m"), tier(10*time.Minute, "10m")},
			Names:                    Names{Inbox: "orders.retry", Tier: "{origin}.retry.{tier}", DeadLetters: "orders.dlt", ReplayTrigger: "orders.dlt.replay"},
			ReplayTo:                 []string{},
			ReplyTo:                  []string{},
			MaxAttempts:              4,
			MaxDeliveries:            1000,
			MaxDelay:                 Duration(10 * time.Minute),
			Ordering:                 OrderingNone,
			Partitioner:              "murmur2",
			MaxHeldBytesPerPartition: 8 << 20,
		}},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	topic := c.Topics[0]
	got := []string{topic.Inbox(), topic.DeadLetters(), topic.ReplayTrigger(), topic.ReturnTopic()}
	if diff := cmp.Diff([]string{"orders.retry", "orders.dlt", "orders.dlt.replay", "orders"}, got); diff != "" {
		t.Fatalf("names (-want +got):\n%s", diff)
	}
}

// The worked example shows every key with its default, so it must mean the same as the three lines.
func TestWorkedExampleShowsEveryKeyWithItsDefault(t *testing.T) {
	const path = "../../topics.yaml"
	want, got := mustLoad(t, Source{Path: write(t, threeLines)}), mustLoad(t, Source{Path: path})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-three lines +worked example):\n%s", diff)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(string(data), "\n"); first != "# yaml-language-server: $schema=./schemas/topics.schema.json" {
		t.Errorf("the first line is %q", first)
	}
	shown := make(map[string]bool)
	for path := range decode(path, data).at {
		shown[withoutIndexes(path)] = true
	}
	for _, k := range allKeys() {
		if strings.HasPrefix(k.path, "kafka.sasl.oauth.extensions[].") || strings.HasPrefix(k.path, "replayer.api.tokens[].") {
			continue // The list is empty by default. A comment shows an item.
		}
		if !shown[k.path] {
			t.Errorf("%s is not shown", k.path)
		}
	}
}

// withoutIndexes makes topics[0].origin into topics[].origin.
func withoutIndexes(path string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, path)
}

func TestGoodFilesLoad(t *testing.T) {
	for _, path := range files(t, "testdata/good/*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			out, err := Effective(Source{Path: path}, "yaml")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".golden", out)
		})
	}
}

func TestBadFilesGiveEveryProblemAtItsPlace(t *testing.T) {
	for _, path := range files(t, "testdata/bad/*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, err := Load(Source{Path: path})
			if err == nil {
				t.Fatal("the file loads")
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("the error shows a secret")
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".golden", []byte(err.Error()+"\n"))
		})
	}
}

func TestLaterLayersWin(t *testing.T) {
	src := Source{
		Path:    write(t, "kafka: {brokers: [file:1], clientId: file}\nforwarder: {group: file, maxUncommitted: 5}\n"+"topics: [{origin: orders}]\n"),
		Environ: []string{"PATH=/bin", "REDRIVE_FORWARDER_GROUP=env", "REDRIVE_KAFKA_CLIENTID=env", "REDRIVE_KAFKA_BROKERS=env1:1, env2:2"},
		Flags:   map[string]string{"forwarder.group": "flag", "logging.level": "debug"},
	}
	c := mustLoad(t, src)
	got := []any{c.Forwarder.Group, c.Kafka.ClientID, c.Kafka.Brokers, c.Forwarder.MaxUncommitted, c.Logging.Level, c.Logging.Format}
	want := []any{"flag", "env", []string{"env1:1", "env2:2"}, 5, "debug", "auto"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryKeyOutsideTopicsHasAnEnvironmentVariable(t *testing.T) {
	texts := map[string]string{
		"kafka.brokers": "a:1", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.oauth.extensions": "a=b", "forwarder.groupProtocol": "consumer",
		"forwarder.maxUncommitted": "7", "logging.level": "warn", "logging.format": "text", "replayer.api.tokens": "alice:viewer:00",
	}
	for path, leaf := range settable(reflect.ValueOf(Config{})) {
		text, ok := texts[path]
		if !ok {
			switch leaf.value.Interface().(type) {
			case bool:
				text = "true"
			case Duration:
				text = "2s"
			case Bytes:
				text = "1KiB"
			case int, float64:
				text = "7"
			default:
				text = "text"
			}
		}
		l := &layers{origins: make(map[string]origin)}
		gotPath, value := l.envValue(leaf.env(), text)
		if len(l.problems) > 0 || gotPath != path || value == nil {
			t.Errorf("%s=%s: %q, %v, %v", leaf.env(), text, gotPath, value, l.problems)
		}
	}
}

func TestEnvironmentAndFlagsAreStrict(t *testing.T) {
	_, err := Load(Source{
		Path: write(t, threeLines),
		Environ: []string{
			"REDRIVE_KAFKA_BROKER=a:1", "REDRIVE_KAFKA_CLIENT_ID=x", "REDRIVE_TOPICS_0_ORIGIN=x", "REDRIVE_ZZZ=1",
			"REDRIVE_FORWARDER_SESSIONTIMEOUT=45", "REDRIVE_LOGGING_LEVEL=wran", "REDRIVE_KAFKA_TLS_ENABLED=1", "REDRIVE_FORWARDER_ADMIN_ADDRESS=x",
			"REDRIVE_FORWARDER_SHUTDOWNTIMEOUT=1h", "REDRIVE_KAFKA_SASL_OAUTH_EXTENSIONS=hunter2", "REDRIVE_FORWARDER_GROUPPROTOCOL=conusmer", "REDRIVE_KAFKA_BROKERS=", "REDRIVE_KAFKA_SASL_PASSWORD=hunter2",
		},
		Flags: map[string]string{"forwarder.grup": "x", "forwarder.maxUncommitted": "many", "topics": "x", "forwarder.maxHeldBytes": "0"},
	})
	if err == nil {
		t.Fatal("it loads")
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("the error shows a secret")
	}
	golden(t, "testdata/environment.golden", []byte(err.Error()+"\n"))
}

func TestExtensionsOfATokenCanBeSetInTheEnvironment(t *testing.T) {
	path := write(t, threeLines)
	load := func(extensions string) []Extension {
		return mustLoad(t, Source{Path: path, Environ: []string{
			"REDRIVE_KAFKA_SASL_ENABLED=true", "REDRIVE_KAFKA_SASL_MECHANISM=OAUTHBEARER", "REDRIVE_KAFKA_SASL_OAUTH_TOKENFILEPATH=/run/token",
			"REDRIVE_KAFKA_SASL_OAUTH_EXTENSIONS=" + extensions,
		}}).Kafka.SASL.OAuth.Extensions
	}
	want := []Extension{{"logicalCluster", "lkc-1"}, {"identityPoolId", "pool=1"}}
	if diff := cmp.Diff(want, load("logicalCluster=lkc-1, identityPoolId=pool=1")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Extension{}, load("")); diff != "" {
		t.Errorf("of an empty variable (-want +got):\n%s", diff)
	}
}

func TestServiceLinksOfKubernetesAreIgnored(t *testing.T) {
	mustLoad(t, Source{Path: write(t, threeLines), Environ: []string{
		"REDRIVE_FORWARDER_SERVICE_HOST=10.0.0.1", "REDRIVE_FORWARDER_SERVICE_PORT=80", "REDRIVE_FORWARDER_SERVICE_PORT_METRICS=9400",
		"REDRIVE_FORWARDER_PORT=tcp://10.0.0.1:80", "REDRIVE_PORT_9400_TCP=tcp://10.0.0.1:80", "REDRIVE_PORT_9400_TCP_ADDR=10.0.0.1",
		"REDRIVE_PORT_9400_TCP_PORT=80", "REDRIVE_PORT_53_UDP_PROTO=udp",
	}})
}

func TestMissingFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	got := problems(t, Source{Path: path})
	want := []Problem{{File: path, Message: "can not be read: no such file or directory", Hint: "name the file with --config"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestByteOrderMarkIsNoPartOfTheFirstKey(t *testing.T) {
	mustLoad(t, Source{Path: write(t, "\ufeff"+threeLines)})
}

func TestLargeFileIsRefused(t *testing.T) {
	got := problems(t, Source{Path: write(t, threeLines+strings.Repeat("#\n", maxFileBytes/2))})
	if len(got) != 1 || got[0].Message != "the file is larger than 1MiB" {
		t.Errorf("got %v", got)
	}
}

func TestAliasesCanNotBlowUpTheConfiguration(t *testing.T) {
	text := "kafka: {brokers: [localhost:9092]}\ntopics:\n  - {origin: o, tiers: &t [" + strings.Repeat("1s,", 1000) + "1s]}\n" +
		strings.Repeat("  - {origin: o, tiers: *t}\n", maxValues/1000)
	for _, p := range problems(t, Source{Path: write(t, text)}) {
		if strings.HasSuffix(p.Message, "aliases counted each time") {
			return
		}
	}
	t.Error("nothing bounds the aliases")
}

// A colon without a space after it is part of a plain scalar, whatever brackets are around it.
func TestAddressIsTextInEveryNotation(t *testing.T) {
	for _, kafka := range []string{
		"{brokers: [b1:9092, b2:9092]}",
		"{brokers: [b1:9092,b2:9092]}",
		"{brokers: ['b1:9092', \"b2:9092\"]}",
		"{brokers: [b1:9092\n   , b2:9092 ]}",
		"\n  brokers: [b1:9092, b2:9092]",
		"\n  brokers:\n    - b1:9092\n    - b2:9092",
	} {
		c := mustLoad(t, Source{Path: write(t, "kafka: "+kafka+"\ntopics: [{origin: orders}]\n")})
		if diff := cmp.Diff([]string{"b1:9092", "b2:9092"}, c.Kafka.Brokers); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kafka, diff)
		}
	}
	for _, kafka := range []string{"{brokers: [b1: 9092]}", "{brokers: [{b1:9092}]}", "{brokers: ['b1':9092]}"} {
		problems(t, Source{Path: write(t, "kafka: "+kafka+"\ntopics: [{origin: orders}]\n")})
	}
}
