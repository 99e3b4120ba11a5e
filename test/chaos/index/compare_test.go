package index

import (
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// letters are what a topic holds, and rows are what a ledger without fault says of them.
func letters(t *testing.T) (*expected, []*stage.Letter) {
	t.Helper()
	topics := []stage.Topic{{Origin: "many", Partitions: 3}, {Origin: "few", Partitions: 1}}
	w := &writer{random: rand.New(rand.NewPCG(1, 2)), stage: &stage.Stage{Options: stage.Options{Topics: topics}}}
	want := &expected{partitions: map[place]*partition{}, ids: map[string]string{"many.dlt": "01", "few.dlt": "02"}}
	origins := map[string]string{"many.dlt": "many", "few.dlt": "few"}
	var rows []*stage.Letter
	next := map[place]int64{}
	for range 500 {
		r := w.letter()
		at := place{r.Topic, r.Partition}
		r.Offset = next[at]
		next[at] += 1 + int64(w.random.IntN(2)) // With holes.
		want.add(origins[r.Topic], r)
		rows = append(rows, rowOf(t, r, origins[r.Topic], want.ids[r.Topic]))
	}
	return want, rows
}

func rowOf(t *testing.T, r *kgo.Record, origin, topicID string) *stage.Letter {
	t.Helper()
	text := func(name, missing string) string {
		if v, ok := stage.Header(r, name); ok {
			return v
		}
		return missing
	}
	number := func(name string, missing int) int {
		n, err := strconv.Atoi(text(name, strconv.Itoa(missing)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	digest := stage.Digest(r)
	l := &stage.Letter{
		Topic: r.Topic, TopicID: topicID, Partition: r.Partition, Offset: r.Offset, State: "dead", Digest: hex.EncodeToString(digest[:]),
		MessageID: text("redrive-message-id", r.Topic+"/"+strconv.Itoa(int(r.Partition))+"/"+strconv.FormatInt(r.Offset, 10)),
		Origin:    text("redrive-original-topic", origin), OriginPartition: int32(number("redrive-original-partition", -1)),
		OriginOffset: int64(number("redrive-original-offset", -1)), Reason: text("redrive-reason", ""),
		ErrorType: text("redrive-error-type", ""), ErrorText: text("redrive-error-message", ""), Group: text("redrive-group", ""),
		Attempt: number("redrive-attempt", 0), Deliveries: number("redrive-deliveries", 0), Size: int64(len(r.Key) + len(r.Value)),
	}
	if r.Key != nil {
		l.Key = &stage.Bytes{Base64: r.Key}
	}
	for _, h := range r.Headers {
		l.Size += int64(len(h.Key) + len(h.Value))
	}
	return l
}

func TestEachDifferenceIsFound(t *testing.T) {
	type counts struct{ missing, duplicate, phantom, differs int }
	for _, test := range []struct {
		name  string
		spoil func(rows []*stage.Letter) []*stage.Letter
		want  counts
	}{
		{"none", func(rows []*stage.Letter) []*stage.Letter { return rows }, counts{}},
		{"a row too few", func(rows []*stage.Letter) []*stage.Letter { return rows[1:] }, counts{missing: 1}},
		{"a row too many", func(rows []*stage.Letter) []*stage.Letter { return append(rows, rows[3]) }, counts{duplicate: 1}},
		{"a row of no record", func(rows []*stage.Letter) []*stage.Letter {
			l := *rows[3]
			l.Offset = 1 << 40
			return append(rows, &l)
		}, counts{phantom: 1}},
		{"a row of another topic with that name", func(rows []*stage.Letter) []*stage.Letter {
			rows[3].TopicID = "03"
			return rows
		}, counts{missing: 1, phantom: 1}},
		{"a digest", func(rows []*stage.Letter) []*stage.Letter {
			rows[3].Digest = rows[4].Digest
			return rows
		}, counts{differs: 1}},
		{"a message id", func(rows []*stage.Letter) []*stage.Letter {
			rows[3].MessageID += "x"
			return rows
		}, counts{differs: 1}},
		{"an empty key for none", func(rows []*stage.Letter) []*stage.Letter {
			for _, l := range rows {
				if l.Key == nil {
					l.Key = &stage.Bytes{Base64: []byte{}}
					break
				}
			}
			return rows
		}, counts{differs: 1}},
		{"a state", func(rows []*stage.Letter) []*stage.Letter {
			rows[3].State = "expired"
			return rows
		}, counts{differs: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want, rows := letters(t)
			f := &findings{want: want}
			for _, l := range test.spoil(rows) {
				if err := f.row(l); err != nil {
					t.Fatal(err)
				}
			}
			f.end()
			if got := (counts{f.missing, f.duplicate, f.phantom, f.differs}); got != test.want {
				t.Errorf("%+v, want %+v: %q", got, test.want, f.details.Lines())
			}
		})
	}
}
