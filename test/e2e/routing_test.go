package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// TestRecordsReturnToThePartitionTheirProducerUses has kcat produce to an origin with its own partitioner, which is not
// that of Kafka's Java client. Some come back by the position their consumer tells, some by nothing but their key.
func TestRecordsReturnToThePartitionTheirProducerUses(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{partitions: 12, tiers: []string{"500ms"}, topic: "partitioner: crc32"})
	s.start()
	broker := s.kafka.Brokers()[0]
	const n = 600
	var lines bytes.Buffer
	for i := range n {
		fmt.Fprintf(&lines, "key-%d\tfirst %d\n", i, i)
	}
	testkit.Kcat(t, lines.Bytes(), "-P", "-b", broker, "-t", s.origin, "-K", "\t")
	// Without a key only the position says where a record belongs.
	for partition := range s.partitions {
		testkit.Kcat(t, fmt.Append(nil, "first keyless ", partition), "-P", "-b", broker, "-t", s.origin, "-p", fmt.Sprint(partition))
	}
	where := map[string]int32{} // by key, or by value where there is none
	for _, r := range s.client.WaitForRecords(patience, s.origin, n+int(s.partitions)) {
		where[name(r)] = r.Partition
	}

	s.consume(func(r *kgo.Record) *kgo.Record {
		if _, retried := header(r, "redrive-attempt"); retried {
			return nil
		}
		return failed(r, "TimeoutError")
	})
	again := bytes.ReplaceAll(lines.Bytes(), []byte("first"), []byte("by hand"))
	testkit.Kcat(t, again, "-P", "-b", broker, "-t", s.inbox(), "-K", "\t")
	total := 2*(n+int(s.partitions)) + n
	s.awaitDrained(total)

	records := s.client.ReadAll(s.origin, kgo.ReadCommitted())
	if len(records) != total {
		t.Errorf("%d records on the origin, want %d", len(records), total)
	}
	used, strayed := map[int32]int{}, 0
	for _, r := range records {
		used[r.Partition]++
		if want := where[name(r)]; r.Partition != want {
			if strayed++; strayed <= 5 {
				t.Errorf("%q came to partition %d, its producer uses %d", r.Value, r.Partition, want)
			}
		}
	}
	if strayed > 0 || len(used) != int(s.partitions) {
		t.Errorf("%d records strayed, %d of %d partitions are used", strayed, len(used), s.partitions)
	}
}

// name is the key of a record, or its value where there is none.
func name(r *kgo.Record) string {
	if r.Key == nil {
		return strings.TrimSpace(string(r.Value))
	}
	return string(r.Key)
}
