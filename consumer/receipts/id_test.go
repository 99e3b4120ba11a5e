package receipts

import (
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func headersFor(pairs ...string) iter.Seq2[string, []byte] {
	var all []kgo.RecordHeader
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, kgo.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return HeadersOf(all, func(h kgo.RecordHeader) (string, []byte) { return h.Key, h.Value })
}

func TestTheFirstDeliveryAndItsCopiesHaveOneID(t *testing.T) {
	at := time.Date(2026, 1, 5, 3, 0, 0, 7_000_000, time.UTC)
	later := at.Add(time.Hour)
	want := ID{Message: "orders/2/4711", Original: at}
	original := []string{
		"redrive-original-topic", "orders", "redrive-original-partition", "2",
		"redrive-original-offset", "4711", "redrive-original-timestamp", "2026-01-05T03:00:00.007Z",
	}
	own := append([]string{"redrive-message-id", "orders/2/4711", "redrive-attempt", "1"}, original...)
	for name, r := range map[string]Record{
		"the first delivery":     {Topic: "orders", Partition: 2, Offset: 4711, Timestamp: at},
		"a copy":                 {Topic: "orders", Partition: 2, Offset: 9000, Timestamp: later, Headers: headersFor(own...)},
		"a copy after a resize":  {Topic: "orders", Partition: 5, Offset: 1, Timestamp: later, Headers: headersFor(own...)},
		"on the return topic":    {Topic: "orders.billing", Partition: 2, Offset: 3, Timestamp: later, Headers: headersFor(own...), Origin: "orders"},
		"without an id":          {Topic: "orders", Partition: 2, Offset: 9000, Timestamp: later, Headers: headersFor(original...)},
		"said again, in another": {Topic: "orders", Partition: 2, Offset: 9000, Timestamp: later, Headers: headersFor(append(own, "redrive-message-id", "other")...)},
		"another zone": {
			Topic: "orders", Partition: 2, Offset: 9000, Timestamp: later,
			Headers: headersFor("redrive-message-id", "orders/2/4711", "redrive-original-timestamp", "2026-01-05T04:00:00.0079+01:00"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := IDOf(r)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatTheContractDoesNotAcceptNamesNothing(t *testing.T) {
	at := time.Date(2026, 1, 5, 3, 0, 0, 0, time.UTC)
	own := ID{Message: "orders/0/1", Original: at}
	for name, test := range map[string]struct {
		headers []string
		want    ID
	}{
		"an empty id":            {[]string{"redrive-message-id", ""}, own},
		"an id that is not text": {[]string{"redrive-message-id", "\xff"}, own},
		"an id that is too long": {[]string{"redrive-message-id", strings.Repeat("x", 1025)}, own},
		"a second id that is accepted": {
			[]string{"redrive-message-id", "\xff", "redrive-message-id", "order-17"},
			ID{"order-17", at},
		},
		"a signed offset": {
			[]string{"redrive-original-topic", "orders", "redrive-original-partition", "0", "redrive-original-offset", "+5"}, own,
		},
		"a partition out of range": {
			[]string{"redrive-original-topic", "orders", "redrive-original-partition", "2147483648", "redrive-original-offset", "5"}, own,
		},
		// All copies have the same id, though it is not that of the first delivery.
		"a copy without its time":           {[]string{"redrive-message-id", "order-17", "redrive-attempt", "1"}, ID{Message: "order-17"}},
		"a replay with an unreadable time":  {[]string{"redrive-message-id", "order-17", "redrive-replay-id", "j", "redrive-original-timestamp", "noon"}, ID{Message: "order-17"}},
		"an id that the producer gave":      {[]string{"redrive-message-id", "order-17"}, ID{"order-17", at}},
		"headers of a processor's input":    {[]string{"redrive-message-id", "carts/1/1", "redrive-attempt", "2", "redrive-original-topic", "carts", "redrive-original-timestamp", "2020-01-01T00:00:00Z"}, own},
		"headers of others are not touched": {[]string{"id", "17", "Redrive-Message-Id", "17"}, own},
	} {
		t.Run(name, func(t *testing.T) {
			got := IDOf(Record{Topic: "orders", Partition: 0, Offset: 1, Timestamp: at, Headers: headersFor(test.headers...)})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := IDOf(Record{Topic: "orders", Partition: 3, Offset: 9, Timestamp: at}); got.Message != "orders/3/9" {
		t.Errorf("without headers the id is %v", got)
	}
}

// Headers come from anyone who can produce. Whatever they say, every database takes the id, and it is the same each time.
func FuzzIDsOfForgedHeadersCanBeStored(f *testing.F) {
	f.Add("redrive-message-id", []byte("a\x00b"), "redrive-original-timestamp", []byte("9999-12-31T23:59:59.999+23:59"))
	f.Add("redrive-original-topic", []byte("orders"), "redrive-original-offset", []byte("9223372036854775808"))
	f.Fuzz(func(t *testing.T, name1 string, value1 []byte, name2 string, value2 []byte) {
		r := Record{Topic: "orders", Offset: 1, Headers: headersFor(name1, string(value1), name2, string(value2))}
		id := IDOf(r)
		message, _, err := id.columns()
		if err != nil || message == "" || len(message) > maxText || !storable(message) {
			t.Errorf("%q, %v", message, err)
		}
		if again := IDOf(r); again != id {
			t.Errorf("%v, then %v", id, again)
		}
	})
}
