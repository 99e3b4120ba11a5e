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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
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
	var got []figure
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		var line figure
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
