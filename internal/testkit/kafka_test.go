package testkit

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) {
	if os.Getenv("REDRIVE_TESTKIT_CHILD") != "" {
		startAndHang()
		return
	}
	Main(m)
}

// TestFetchBringsTheBroker is also how make fills the cache before the tests.
func TestFetchBringsTheBroker(t *testing.T) {
	skipShort(t)
	jars, err := FetchKafka(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"kafka_2.13-*.jar", "kafka-server-[0-9]*.jar", "log4j-slf4j-impl-*.jar"} {
		if found, err := filepath.Glob(filepath.Join(jars, pattern)); err != nil || len(found) != 1 {
			t.Errorf("%s: %q, %v; want one file", pattern, found, err)
		}
	}
}

func TestOneBrokerKeepsAcknowledgedRecordsOverKill(t *testing.T) {
	k := RealKafka(t, 1)
	c := k.Client(t)
	topic := UniqueName("orders")
	c.CreateTopic(topic, 3, map[string]string{"retention.ms": "3600000"})
	if got := Kcat(t, []byte("a:1\nb:2\nc:3\n"), "-P", "-b", k.Brokers()[0], "-t", topic, "-K", ":"); len(got) > 0 {
		t.Errorf("kcat -P printed %q", got)
	}

	if err := k.Kill(1); err != nil {
		t.Fatal(err)
	}
	if k.Running(1) {
		t.Error("the broker runs after Kill")
	}
	if err := k.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}

	out := Kcat(t, nil, "-C", "-b", k.Brokers()[0], "-t", topic, "-o", "beginning", "-e", "-q", "-K", ":")
	lines := strings.Fields(string(out))
	want := map[string]bool{"a:1": true, "b:2": true, "c:3": true}
	got := make(map[string]bool)
	for _, line := range lines {
		got[line] = true
	}
	if diff := cmp.Diff(want, got); diff != "" || len(lines) != 3 {
		t.Errorf("kcat -C after the restart: %q, diff (-want +got):\n%s", lines, diff)
	}
	if records := c.ReadAll(topic, kgo.ReadCommitted()); len(records) != 3 {
		t.Errorf("ReadAll: %d records, want 3", len(records))
	}
}

func TestStoppedBrokerIsStartedForTheNextTest(t *testing.T) {
	k := RealKafka(t, 1)
	if err := k.Stop(1); err != nil {
		t.Fatal(err)
	}
	if again := RealKafka(t, 1); again != k || !again.Running(1) {
		t.Errorf("RealKafka gave the same cluster: %v, running: %v", again == k, again.Running(1))
	}
}

func TestThreeBrokersServeWithOneKilled(t *testing.T) {
	k := RealKafka(t, 3)
	c := k.Client(t)
	topic := UniqueName("orders")
	c.CreateTopic(topic, 3, nil)
	for n := 1; n <= 3; n++ {
		if got := metadataBrokers(t, k.Brokers()[n-1]); got != 3 {
			t.Errorf("broker %d knows %d brokers, want 3", n, got)
		}
	}
	c.Produce(numbered(topic, 0, 30)...)
	if err := k.Kill(2); err != nil {
		t.Fatal(err)
	}
	c.Produce(numbered(topic, 30, 60)...)
	if err := k.Start(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	records := c.WaitForRecords(time.Minute, topic, 60)
	seen := make(map[string]int)
	for _, r := range records {
		seen[string(r.Value)]++
	}
	if len(seen) != 60 || len(records) != 60 {
		t.Errorf("%d records, %d different; want 60 of each", len(records), len(seen))
	}
}

func TestReadAllEndsAtTransactionMarkersAndLeavesOutAborted(t *testing.T) {
	k := RealKafka(t, 1)
	c := k.Client(t, kgo.TransactionalID(UniqueName("txn")))
	topic := UniqueName("orders")
	c.CreateTopic(topic, 1, nil)
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := c.Kafka().BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		c.Produce(&kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(i))})
		if err := c.Kafka().EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		isolation kgo.IsolationLevel
		want      []string
	}{
		"committed":   {kgo.ReadCommitted(), []string{"0"}},
		"uncommitted": {kgo.ReadUncommitted(), []string{"0", "1"}},
	} {
		if diff := cmp.Diff(test.want, values(c.ReadAll(topic, test.isolation))); diff != "" {
			t.Errorf("read %s (-want +got):\n%s", name, diff)
		}
	}
	if ends := c.EndOffsets(topic); ends[0] != 4 {
		t.Errorf("end offset %d, want 4: two records and two markers", ends[0])
	}
}

func TestCommittedOffsetsHoldTheMetadata(t *testing.T) {
	k := RealKafka(t, 1)
	c := k.Client(t)
	topic, group := UniqueName("orders"), UniqueName("group")
	c.CreateTopic(topic, 1, nil)
	if got := c.CommittedOffsets(group); len(got) != 0 {
		t.Errorf("offsets of a group that does not exist: %v", got)
	}
	offsets := c.CommittedOffsets(group)
	offsets.AddOffset(topic, 0, 7, -1)
	commit := offsets[topic][0]
	commit.Metadata = "ranges"
	offsets[topic][0] = commit
	if err := c.Admin().CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
	got, ok := c.CommittedOffsets(group).Lookup(topic, 0)
	if !ok || got.At != 7 || got.Metadata != "ranges" {
		t.Errorf("committed %+v, %v; want offset 7 with its metadata", got, ok)
	}
}

func TestPropsWinAndDataIsGoneAfterClose(t *testing.T) {
	k := OwnKafka(t, KafkaOptions{Props: map[string]string{"num.partitions": "5"}})
	c := k.Client(t)
	topic := UniqueName("orders")
	if _, err := c.Admin().CreateTopic(t.Context(), -1, -1, nil, topic); err != nil {
		t.Fatal(err)
	}
	WaitFor(t, 10*time.Second, "five partitions", func(context.Context) error {
		if n := len(c.EndOffsets(topic)); n != 5 {
			return fmt.Errorf("%d partitions", n)
		}
		return nil
	})
	dir := k.brokers[0].dir
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data is still there: %v", err)
	}
}

func TestStartErrorShowsTheEndOfTheLog(t *testing.T) {
	skipShort(t)
	_, err := StartKafka(t.Context(), KafkaOptions{Props: map[string]string{"num.io.threads": "0"}})
	if err == nil || !strings.Contains(err.Error(), "num.io.threads") {
		t.Errorf("StartKafka: %v; want an error that shows the reason", err)
	}
	if _, err := StartKafka(t.Context(), KafkaOptions{Brokers: 2}); err == nil {
		t.Error("a cluster of two was accepted")
	}
}

// TestBrokersDieWithTheProcess kills a process of this test binary that has started a broker.
func TestBrokersDieWithTheProcess(t *testing.T) {
	skipShort(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "REDRIVE_TESTKIT_CHILD=1", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child started no broker: %v", err)
	}
	var pid, port int
	if _, err := fmt.Sscan(line, &pid, &port); err != nil {
		t.Fatalf("the child said %q: %v", line, err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the broker does not run: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
	WaitFor(t, 10*time.Second, "the broker to be gone", func(context.Context) error {
		if portOpen(port) {
			return fmt.Errorf("port %d is open", port)
		}
		return nil
	})
}

// startAndHang is the child of TestBrokersDieWithTheProcess: it tells the broker's process id and port, and waits to be killed.
func startAndHang() {
	k, err := StartKafka(context.Background(), KafkaOptions{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(k.brokers[0].current().cmd.Process.Pid, k.brokers[0].port)
	select {}
}

func portOpen(port int) bool {
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// metadataBrokers asks one broker, by kcat, how many there are.
func metadataBrokers(t *testing.T, broker string) int {
	t.Helper()
	return strings.Count(string(Kcat(t, nil, "-L", "-b", broker)), " at 127.0.0.1:")
}

func numbered(topic string, from, to int) []*kgo.Record {
	var records []*kgo.Record
	for i := from; i < to; i++ {
		text := []byte(strconv.Itoa(i))
		records = append(records, &kgo.Record{Topic: topic, Key: text, Value: text})
	}
	return records
}

func values(records []*kgo.Record) []string {
	var values []string
	for _, r := range records {
		values = append(values, string(r.Value))
	}
	return values
}
