package fetch

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// A batch larger than what is asked of its partition comes for the first partition of a request only, and the others are no
// trouble: they are asked for more.
func TestLargeBatchesOfManyPartitionsAreNoTrouble(t *testing.T) {
	k := testkit.RealKafka(t, 1)
	const partitions, letters = 6, 400
	topic := testkit.UniqueName("orders.dlt")
	client := k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Second), kgo.ProducerBatchCompression(kgo.NoCompression()))
	client.CreateTopic(topic, partitions, nil)
	var records []*kgo.Record
	for p := range int32(partitions) {
		for i := range letters {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: bytes.Repeat(fmt.Append(nil, i), 400)})
		}
	}
	client.Produce(records...)
	var said bytes.Buffer
	f, err := New(Options{Kafka: kafka.Options{Brokers: k.Brokers()}, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	topics, err := f.Topics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var places []deadletter.Place
	var want [][]byte
	for _, rec := range records {
		if rec.Offset%100 == 42 {
			places = append(places, deadletter.Place{TopicID: topics[topic].ID, Topic: topic, Partition: rec.Partition, Offset: rec.Offset})
			want = append(want, rec.Value)
		}
	}
	results, err := f.Fetch(t.Context(), places)
	if err != nil {
		t.Fatal(err)
	}
	for i, result := range results {
		if result.Err != nil || !bytes.Equal(result.Payload.Value, want[i]) {
			t.Errorf("%s: %d bytes, %v", places[i], len(result.Payload.Value), result.Err)
		}
	}
	if said.Len() != 0 {
		t.Errorf("trouble: %s", said.Bytes())
	}
}
