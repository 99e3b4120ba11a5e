package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/envelope"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMedianIsTheMiddleOfAnyOrder(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 100}, 3.5},
	} {
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v", got)
	}
}

func TestPercentileIsAValueThatWasMeasured(t *testing.T) {
	var values []time.Duration
	for i := 100; i >= 1; i-- {
		values = append(values, time.Duration(i))
	}
	for p, want := range map[float64]time.Duration{0: 1, 50: 50, 99: 99, 99.5: 100, 100: 100} {
		if got := percentile(values, p); got != want {
			t.Errorf("p%v = %d, want %d", p, got, want)
		}
	}
	if got := percentile([]time.Duration{7}, 99); got != 7 {
		t.Errorf("p99 of one value = %d", got)
	}
}

func TestRatioComparesRunsOfOneTurn(t *testing.T) {
	// The machine was twice as fast in the second turn.
	turns := []turn{
		{bare: run{perSecond: 100}, forwarder: run{perSecond: 90}},
		{bare: run{perSecond: 200}, forwarder: run{perSecond: 180}},
		{bare: run{perSecond: 100}, forwarder: run{perSecond: 50}},
	}
	if got := ratioOf(turns); math.Abs(got-0.9) > 1e-9 {
		t.Errorf("ratio = %v, want 0.9", got)
	}
}

func TestFieldsOfProcAreInBytes(t *testing.T) {
	const text = "Name:\tforwarder\nVmHWM:\t  2048 kB\nVmRSS:\t    1024 kB\nThreads:\t7\nrchar: 123\n"
	for name, want := range map[string]int64{"VmHWM:": 2 << 20, "VmRSS:": 1 << 20, "rchar:": 123} {
		if got, err := field(text, name); err != nil || got != want {
			t.Errorf("%s = %d, %v, want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"VmSwap:", "Name:"} {
		if got, err := field(text, name); err == nil {
			t.Errorf("%s = %d, want an error", name, got)
		}
	}
}

func TestProcessorTimeIsThatOfUserAndSystem(t *testing.T) {
	const stat = "4711 (a (strange) name) S 1 4711 4711 0 -1 4194560 900 0 0 0 250 50 7 8 20 0 12 0 99999 1 2\n"
	if got, err := cpuIn(stat); err != nil || got != 3*time.Second {
		t.Errorf("processor time = %v, %v, want 3s", got, err)
	}
	for _, text := range []string{"", "1 (short) S 1 2 3", strings.Replace(stat, "250", "x", 1)} {
		if got, err := cpuIn(text); err == nil {
			t.Errorf("%q: processor time = %v, want an error", text, got)
		}
	}
}

// TestReadBytesCountsWhatComesOverASocket keeps the ground that fetch_amplification stands on.
func TestReadBytesCountsWhatComesOverASocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux counts them")
	}
	const size = 8 * mebibyte
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write(make([]byte, size))
		_ = conn.Close()
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	before, err := readBytes(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// Without the type of the connection the copy can not bypass read.
	if n, err := io.Copy(io.Discard, struct{ io.Reader }{conn}); err != nil || n != size {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	after, err := readBytes(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got := after - before; got < size || got > size+64<<10 {
		t.Errorf("%d bytes were counted of %d", got, size)
	}
}

func TestLoadedRecordIsOneOfATier(t *testing.T) {
	l := loader{origin: "orders", tier: "orders.retry.10m", size: 100, random: newRandom()}
	due := time.Date(2024, 5, 1, 10, 0, 0, 123_456_789, time.UTC)
	for range 9 {
		l.record(due)
	}
	r := l.record(due) // The tenth: partition 9 mod 8.
	if r.Topic != l.tier || r.Partition != 1 || len(r.Value) != 100 || len(r.Key) == 0 {
		t.Errorf("record goes to %s/%d with %d bytes and the key %q", r.Topic, r.Partition, len(r.Value), r.Key)
	}
	got := map[string]string{}
	for _, h := range r.Headers {
		got[h.Key] = string(h.Value)
	}
	want := map[string]string{
		envelope.HeaderMessageID:          "orders/1/1",
		envelope.HeaderOriginalTopic:      "orders",
		envelope.HeaderOriginalPartition:  "1",
		envelope.HeaderOriginalOffset:     "1",
		envelope.HeaderOriginalTimestamp:  "2024-05-01T09:59:00.123Z",
		envelope.HeaderOriginalPartitions: "8",
		envelope.HeaderAttempt:            "1",
		envelope.HeaderDeliveries:         "1",
		envelope.HeaderAvailableAt:        "2024-05-01T10:00:00.123Z",
	}
	if diff := cmp.Diff(want, got); diff != "" || len(r.Headers) != len(want) {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	stamped, err := dueOf(r.Value)
	if err != nil || !stamped.Equal(due.Truncate(time.Millisecond)) {
		t.Errorf("the value says due %v, %v", stamped, err)
	}
}

func TestOneRecordInAHundredIsPoison(t *testing.T) {
	const n = 20_000
	l := loader{origin: "orders", tier: "orders.retry.10m", size: poisonSize, random: newRandom(), spoil: newPoisoner().spoil}
	due := time.Date(2024, 5, 1, 10, 0, 0, 0, time.UTC)
	var keyless, large [partitions]int
	for i := range n {
		r := l.record(due)
		if stamped, err := dueOf(r.Value); err != nil || !stamped.Equal(due) {
			t.Fatalf("the value of record %d says due %v, %v", i, stamped, err)
		}
		switch {
		case r.Key == nil && len(r.Value) == poisonSize:
			keyless[r.Partition]++
		case r.Key != nil && len(r.Value) == poisonLarge:
			large[r.Partition]++
		case r.Key == nil || len(r.Value) != poisonSize:
			t.Fatalf("record %d has %d bytes and the key %q", i, len(r.Value), r.Key)
		}
		if spoiled := r.Key == nil || len(r.Value) != poisonSize; spoiled != isPoison(r) {
			t.Fatalf("record %d: poison %v, want %v", i, isPoison(r), spoiled)
		}
	}
	for name, counts := range map[string][partitions]int{"without a key": keyless, "too large": large} {
		sum := 0
		for p, count := range counts {
			sum += count
			if count == 0 {
				t.Errorf("partition %d has no record %s", p, name)
			}
		}
		if sum != n/poisonShare/2 {
			t.Errorf("%d records are %s, want %d", sum, name, n/poisonShare/2)
		}
	}
}

func TestStreamKnowsItsLetters(t *testing.T) {
	for _, c := range []struct {
		stream       stream
		all, letters int64
	}{
		{stream{rate: 100, length: time.Second}, 300, 0},
		{stream{rate: 100, length: time.Second, poison: true}, 300, 3},
		{stream{rate: 33, length: time.Second, poison: true}, 0, 0}, // 99: not one whole hundred
		{stream{rate: 99, length: time.Second, poison: true}, 200, 2},
	} {
		if all, letters := c.stream.records(), c.stream.letters(); all != c.all || letters != c.letters {
			t.Errorf("%+v: %d records, %d letters, want %d and %d", c.stream, all, letters, c.all, c.letters)
		}
	}
}

func TestLatenessIsComparedTurnByTurn(t *testing.T) {
	runs := func(p99s ...int) []late {
		var all []late
		for _, p := range p99s {
			all = append(all, late{appended: []time.Duration{time.Duration(p) * time.Millisecond}})
		}
		return all
	}
	if got := latenessRatio(runs(10, 40, 30), runs(10, 20, 20)); got != 1.5 {
		t.Errorf("ratio = %v, want 1.5", got)
	}
	if got := latenessRatio(runs(0), runs(0)); got != 1 {
		t.Errorf("ratio of nothing to nothing = %v, want 1", got)
	}
}

func TestConfigurationIsOneThatTheForwarderTakes(t *testing.T) {
	r := &rig{dir: t.TempDir(), brokers: []string{"127.0.0.1:1", "127.0.0.1:2"}}
	path, err := r.configure("two", "g", entry{"orders", []string{"10s", "1m"}}, entry{"payments", []string{"2s"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.brokers, c.Kafka.Brokers); diff != "" || c.Forwarder.Group != "g" || len(c.Topics) != 2 {
		t.Errorf("brokers (-want +got):\n%s\ngroup %q, %d topics", diff, c.Forwarder.Group, len(c.Topics))
	}
	var topics []string
	for _, topic := range c.Topics {
		topics = append(topics, topic.DeadLetters())
		for _, tier := range topic.Tiers {
			topics = append(topics, tier.Topic)
		}
	}
	// The names that the measurements use.
	l := ladder{origin: "payments", delay: "2s", tier: "payments.retry.2s"}
	want := []string{"orders.dlt", "orders.retry.10s", "orders.retry.1m", l.deadLetters(), l.tier}
	if diff := cmp.Diff(want, topics); diff != "" {
		t.Errorf("topics (-want +got):\n%s", diff)
	}
}

func TestEveryMeasurementHasACluster(t *testing.T) {
	for _, m := range measurements {
		if !slices.Contains(clusters, m.brokers) {
			t.Errorf("%s takes %d brokers, and there are clusters of %v", m.name, m.brokers, clusters)
		}
	}
}

func TestDueNeedsRoomInTheValue(t *testing.T) {
	l := loader{size: dueBytes - 1, random: newRandom()}
	if _, err := dueOf(l.record(time.Now()).Value); err == nil {
		t.Error("a due time was read from a value that has none")
	}
}

func TestRateFollowsTheClock(t *testing.T) {
	for _, c := range []struct {
		rate   int
		passed time.Duration
		want   int64
	}{{100, 999 * time.Millisecond, 99}, {100, time.Minute, 6000}, {10000, 250 * time.Microsecond, 2}} {
		if got := inTime(c.rate, c.passed); got != c.want {
			t.Errorf("%d/s after %v = %d, want %d", c.rate, c.passed, got, c.want)
		}
	}
}

func TestFirstFailureStays(t *testing.T) {
	var f failure
	f.note(nil, nil)
	f.note(nil, io.EOF)
	f.note(nil, io.ErrUnexpectedEOF)
	if err := f.get(); !errors.Is(err, io.EOF) {
		t.Errorf("failure = %v, want %v", err, io.EOF)
	}
}

func TestFiguresAreOneObjectALine(t *testing.T) {
	var r report
	r.add("drain_ratio_1kb", 0.912, "ratio")
	r.add("drain_per_s_1kb", 204_123.4, "records/s")
	path := filepath.Join(t.TempDir(), "out", "bench.json")
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	var got []testkit.Figure
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		var line testkit.Figure
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(r.figures, got); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	var table strings.Builder
	if err := r.table(&table); err != nil {
		t.Fatal(err)
	}
	const want = "drain_ratio_1kb  0.912   ratio\ndrain_per_s_1kb  204123  records/s\n"
	if diff := cmp.Diff(want, table.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestSizesHaveTheNamesOfTheFigures(t *testing.T) {
	for size, want := range map[int]string{1024: "1kb", 100: "100b", 4096: "4kb", 1500: "1500b"} {
		if got := sizeName(size); got != want {
			t.Errorf("sizeName(%d) = %s, want %s", size, got, want)
		}
	}
}

func TestCommandLineIsChecked(t *testing.T) {
	for args, ok := range map[string]bool{
		"":                               true,
		"-only lateness -minutes 0.2":    true,
		"-only drain,waiting -values 10": true,
		"-only poison,idle,blocked":      true,
		"-only speed":                    false,
		"-values 1k":                     false,
		"-values 0":                      false,
		"-runs 0":                        false,
		"-records -1":                    false,
		"-minutes 0":                     false,
		"drain":                          false,
	} {
		if _, err := parse(strings.Fields(args)); (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestBareLoopTakesTheSettingsItIsGiven(t *testing.T) {
	want := ceilings[len(ceilings)-1]
	var b bare
	if err := b.flags("bare-drain").Parse(want.args()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // The client's maker changes it.
	b.brokers, b.group, b.from = "127.0.0.1:1", "g", "t"
	client, err := b.client()
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	if got, ok := client.OptValue(kgo.ProducerBatchCompression).([]kgo.CompressionCodec); !ok || len(got) != 1 {
		t.Errorf("the client compresses with %v", got)
	}
	b.settings.Compression = "best"
	if _, err := b.client(); err == nil {
		t.Error("an unknown compression was taken")
	}
}
