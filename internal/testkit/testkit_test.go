package testkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestVirtualClusterKeepsAGroupMemberThroughTwoHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := Virtual(t)
		c := v.Client(t)
		c.CreateTopic("orders", 2, nil)

		member, err := kgo.NewClient(kgo.SeedBrokers(v.Brokers()...), kgo.Dialer(v.Dial), kgo.ConsumerGroup("group"),
			kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(), kgo.FetchMaxWait(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		defer member.Close()
		began := time.Now()
		timer := time.AfterFunc(2*time.Hour, func() {
			if err := c.Client.Produce(t.Context(), numbered("orders", 0, 1)...); err != nil {
				t.Error(err)
			}
		})
		defer timer.Stop()
		fetches := member.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 2*time.Hour || waited > 2*time.Hour+time.Minute {
			t.Errorf("the record came after %v, want two hours", waited)
		}
		if err := member.CommitRecords(t.Context(), fetches.Records()...); err != nil {
			t.Errorf("the member lost its place: %v", err)
		}
		r := fetches.Records()[0]
		if offset, ok := c.CommittedOffsets("group").Lookup("orders", r.Partition); !ok || offset.At != 1 {
			t.Errorf("committed %+v, %v; want offset 1", offset, ok)
		}
		if diff := cmp.Diff([]string{"0"}, values(c.ReadAll("orders", kgo.ReadUncommitted()))); diff != "" {
			t.Errorf("ReadAll (-want +got):\n%s", diff)
		}
	})
}

func TestAwaitReturnsTheLastErrorAndTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls := 0
		err := Await(ctx, func(context.Context) error {
			calls++
			return fmt.Errorf("state %d", calls)
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprintf("state %d", calls)) {
			t.Errorf("error %v after %d calls", err, calls)
		}
		if calls < 600 || calls > 620 {
			t.Errorf("%d calls in a minute, want about one each 100 ms", calls)
		}
		if err := Await(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestLoggerDropsWhatComesAfterTheTest(t *testing.T) {
	var logger *slog.Logger
	t.Run("inner", func(t *testing.T) { logger = Logger(t) })
	logger.Info("too late") // would panic
}

func TestReservedPortsDiffer(t *testing.T) {
	seen := make(map[int]bool)
	for range 50 {
		port := FreePort(t)
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		seen[port] = true
	}
}

// fakeMaven puts a program called mvn, alone, in PATH: a shell script that ends in body and counts its runs in the file it
// returns. The cache is a folder of the test.
func fakeMaven(t *testing.T, body string) (runs, cache string) {
	t.Helper()
	bin := t.TempDir()
	runs, cache = filepath.Join(bin, "runs"), t.TempDir()
	script := "#!/bin/sh\n" + `for a in "$@"; do case $a in -DoutputDirectory=*) out=${a#*=};; -Dkafka.version=*) version=${a#*=};; esac; done
echo run >> ` + runs + "\n" + body + "\n"
	if err := os.WriteFile(filepath.Join(bin, "mvn"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("REDRIVE_TEST_KAFKA", "9.8.7")
	return runs, cache
}

func TestFetchRunsMavenOnceForAllWhoAsk(t *testing.T) {
	runs, cache := fakeMaven(t, `echo "$version" > "$out/broker.jar"`)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			jars, err := FetchKafka(t.Context())
			if want := filepath.Join(cache, "redrive", "kafka", "9.8.7"); err != nil || jars != want {
				t.Errorf("FetchKafka = %q, %v; want %q", jars, err, want)
				return
			}
			if jar, err := os.ReadFile(filepath.Join(jars, "broker.jar")); err != nil || string(jar) != "9.8.7\n" {
				t.Errorf("the jar holds %q, %v", jar, err)
			}
		})
	}
	wait.Wait()
	if got, err := os.ReadFile(runs); err != nil || string(got) != "run\n" {
		t.Errorf("maven ran: %q, %v; want once", got, err)
	}
}

func TestBrokenFetchIsNotTakenForAComplete(t *testing.T) {
	_, cache := fakeMaven(t, `echo half > "$out/broker.jar"; echo "no route to the repository" >&2; exit 1`)
	_, err := FetchKafka(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no route to the repository") {
		t.Errorf("FetchKafka: %v; want what maven said", err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "redrive", "kafka", "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "9.8.7.lock" {
		t.Errorf("left in the cache: %q, %v; want the lock alone", left, err)
	}
}

func TestMissingToolsNameTheirPackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := StartKafka(t.Context(), KafkaOptions{})
	wantHint(t, err, "apt-get install default-jre-headless")
	_, err = FetchKafka(t.Context())
	wantHint(t, err, "apt-get install maven")
	_, err = RunKcat(t.Context(), nil, "-V")
	wantHint(t, err, "apt-get install kcat")
}

func wantHint(t *testing.T, err error, hint string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), hint) {
		t.Errorf("error %v, want the hint %q", err, hint)
	}
}

func TestVersionsAreComparedByTheirNumbers(t *testing.T) {
	for _, c := range []struct {
		have, want string
		atLeast    bool
	}{
		{"", DefaultKafkaVersion, true},
		{"4.3.1", "4.0", true},
		{"4.0.0", "4.0", true},
		{"3.9.2", "4.0", false},
		{"3.10.0", "3.9", true},
		{"4.4.0", "4.4.1", false},
	} {
		t.Setenv("REDRIVE_TEST_KAFKA", c.have)
		if got := KafkaAtLeast(c.want); got != c.atLeast {
			t.Errorf("%q at least %s: %v", c.have, c.want, got)
		}
	}
}

func TestVersionIsChecked(t *testing.T) {
	t.Setenv("REDRIVE_TEST_KAFKA", "../4.3.1")
	if _, err := FetchKafka(t.Context()); err == nil {
		t.Error("a version that leaves the cache was accepted")
	}
}
