package sqlquery

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
)

var dialect = Dialect{
	Placeholder: func(n int) string { return "$" + strconv.Itoa(n) },
	AnyOf:       func(column, placeholder string) string { return column + " = ANY(" + placeholder + ")" },
	Strings:     func(values []string) any { return values },
	Numbers:     func(values []int64) any { return values },
	TopicID:     "id",
	Time:        func(t time.Time) any { return t },
	Like:        "ILIKE",
}

func TestEachFieldIsACondition(t *testing.T) {
	at := time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)
	for _, c := range []struct {
		filter deadletter.Filter
		where  string
		args   []any
	}{
		{deadletter.Filter{}, "1 = 1", nil},
		{deadletter.Filter{IDs: []int64{1, 2}}, "id = ANY($1)", []any{[]int64{1, 2}}},
		{deadletter.Filter{MessageIDs: []string{"m"}}, "message_id = $1", []any{"m"}},
		{deadletter.Filter{HasKey: true}, "key_hash = $1 AND record_key IS NULL", []any{int64(0)}},
		{deadletter.Filter{HasKey: true, Key: []byte("k")}, "key_hash = $1 AND coalesce(record_key = $2, false)", []any{KeyHash([]byte("k")), []byte("k")}},
		{deadletter.Filter{Topics: []string{"a", "b"}}, "topic IN (SELECT no FROM topics WHERE name = ANY($1))", []any{[]string{"a", "b"}}},
		{deadletter.Filter{Origins: []string{"a", "b"}, Groups: []string{""}}, "origin = ANY($1) AND consumer_group = $2", []any{[]string{"a", "b"}, ""}},
		{deadletter.Filter{Reasons: []envelope.Reason{envelope.ReasonPoison}}, "reason = $1", []any{"poison"}},
		{deadletter.Filter{ErrorTypes: []string{"E"}, Labels: []string{"l"}, Fingerprints: []string{"f"}}, "error_type = $1 AND fingerprint = $2 AND label = $3", []any{"E", "f", "l"}},
		{deadletter.Filter{States: []deadletter.State{deadletter.Dead, deadletter.Claimed}}, "state = ANY($1)", []any{[]string{"dead", "claimed"}}},
		{deadletter.Filter{ErrorText: `1_0%\`}, `error_text ILIKE $1 ESCAPE '\'`, []any{`%1\_0\%\\%`}},
		{deadletter.Filter{Job: "j"}, "id IN (SELECT letter FROM items WHERE job = $1) AND job = $1", []any{"j"}},
		{deadletter.Filter{Partition: new(int32(3)), Offset: new(int64(0))}, "record_partition = $1 AND record_offset = $2", []any{int64(3), int64(0)}},
		{deadletter.Filter{DeadFrom: at, DeadTo: at.Add(1)}, "dead_at >= $1 AND dead_at < $2", []any{at, at.Add(1)}},
		{deadletter.Filter{MinAttempt: 1, MaxAttempt: 2, MinDeliveries: 3, UpTo: 4}, "attempt >= $1 AND attempt <= $2 AND deliveries >= $3 AND id <= $4", []any{int64(1), int64(2), int64(3), int64(4)}},
		{deadletter.Filter{Unkept: true}, "NOT kept", nil},
		{
			deadletter.Filter{Expiring: []deadletter.Cut{{TopicID: deadletter.TopicID{7}, Topic: "t", Before: at}}},
			"NOT kept AND state IN ('dead', 'claimed') AND topic = (SELECT no FROM topics WHERE id = $1 AND name = $2) AND dead_at < $3",
			[]any{slices.Concat([]byte{7}, make([]byte, 15)), "t", at},
		},
		{
			deadletter.Filter{Expiring: []deadletter.Cut{{Topic: "t", Before: at}, {Topic: "u", Before: at}}},
			"NOT kept AND state IN ('dead', 'claimed') AND (topic = (SELECT no FROM topics WHERE id = $1 AND name = $2) AND dead_at < $3 OR " +
				"topic = (SELECT no FROM topics WHERE id = $4 AND name = $5) AND dead_at < $6)",
			[]any{make([]byte, 16), "t", at, make([]byte, 16), "u", at},
		},
		{deadletter.Filter{MinAttempt: math.MaxInt}, "attempt >= $1", []any{int64(math.MaxInt32)}}, // more than the column can hold
	} {
		q := dialect.New()
		q.Filter(c.filter)
		if diff := cmp.Diff(c.where, q.Where()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", Text(c.filter), diff)
		}
		if diff := cmp.Diff(c.args, q.Args(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("arguments of %s (-want +got):\n%s", Text(c.filter), diff)
		}
	}
}

// FuzzNoValueIsPartOfTheStatement holds the text of a statement to be the same whatever the values are.
func FuzzNoValueIsPartOfTheStatement(f *testing.F) {
	f.Add("'; DROP TABLE letters; --", "$1", []byte("k"), int64(7))
	f.Fuzz(func(t *testing.T, a, b string, key []byte, n int64) {
		statement := func(a, b string, key []byte, n int64) (string, int) {
			filter := deadletter.Filter{
				IDs: []int64{n}, MessageIDs: []string{a}, HasKey: true, Key: append([]byte{}, key...), Topics: []string{a, b}, Origins: []string{a, b}, Groups: []string{b},
				Reasons: []envelope.Reason{envelope.Reason(a)}, ErrorTypes: []string{a}, ErrorText: "x" + a, Fingerprints: []string{a}, Labels: []string{b, a},
				States: []deadletter.State{deadletter.State(b)}, Job: "x" + b, Offset: &n, UpTo: 1 + n&0xffff,
			}
			page, err := NewPage(filter, deadletter.Page{Order: deadletter.ReplayOrder})
			if err != nil {
				t.Fatal(err)
			}
			letters, err := (Page{Order: page.Order, Limit: 1, stamp: page.stamp}).Cut([]deadletter.Letter{{ID: n, Origin: a}, {}})
			if err != nil {
				t.Fatal(err)
			}
			if page, err = NewPage(filter, deadletter.Page{Order: deadletter.ReplayOrder, After: letters.Next}); err != nil {
				t.Fatal(err)
			}
			q := dialect.New()
			q.Filter(filter)
			page.After(q)
			return q.Where() + OrderBy(page.Order), len(q.Args())
		}
		plain, count := statement("a", "b", []byte("c"), 1)
		if text, args := statement(a, b, key, n); text != plain || args != count {
			t.Errorf("the statement is %s with %d arguments, want %s with %d", text, args, plain, count)
		}
	})
}

func TestCursorIsOfItsFilterAndOrder(t *testing.T) {
	filter := deadletter.Filter{Origins: []string{"orders"}, DeadFrom: time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC)}
	last := deadletter.Letter{ID: 7, DeadAt: time.Date(2026, 3, 14, 9, 26, 53, 589000, time.UTC), Origin: "orders", OriginPartition: 2, OriginOffset: 9}
	for _, c := range []struct {
		order deadletter.Order
		where string
		args  []any
	}{
		{deadletter.Newest, "(dead_at, id) < ($1, $2)", []any{last.DeadAt, int64(7)}},
		{deadletter.Oldest, "(dead_at, id) > ($1, $2)", []any{last.DeadAt, int64(7)}},
		{deadletter.ReplayOrder, "(" + replayKeys + ") > ($1, $2, $3, $4, $5)", []any{int64(0), "orders", int64(2), int64(9), int64(7)}},
	} {
		page, err := NewPage(filter, deadletter.Page{Order: c.order, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		letters, err := page.Cut([]deadletter.Letter{last, {ID: 6}})
		if err != nil || len(letters.Letters) != 1 || letters.Next == "" {
			t.Fatalf("%+v, %v", letters, err)
		}
		// The same instant in another zone is the same filter.
		same := filter
		same.DeadFrom = filter.DeadFrom.In(time.FixedZone("", 3600))
		next, err := NewPage(same, deadletter.Page{Order: c.order, After: letters.Next})
		if err != nil {
			t.Fatal(err)
		}
		q := dialect.New()
		next.After(q)
		if diff := cmp.Diff(c.where, q.Where()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.order, diff)
		}
		if diff := cmp.Diff(c.args, q.Args(), cmp.Comparer(time.Time.Equal)); diff != "" {
			t.Errorf("arguments of %s (-want +got):\n%s", c.order, diff)
		}
		for _, order := range []deadletter.Order{deadletter.Newest, deadletter.Oldest, deadletter.ReplayOrder} {
			if _, err := NewPage(filter, deadletter.Page{Order: order, After: letters.Next}); (err == nil) != (order == c.order) {
				t.Errorf("a cursor of %s for %s: %v", c.order, order, err)
			}
		}
		for i := range letters.Next {
			garbled := []byte(letters.Next)
			garbled[i] ^= 1
			if _, err := NewPage(filter, deadletter.Page{Order: c.order, After: string(garbled)}); err != nil && !errors.Is(err, deadletter.ErrCursor) {
				t.Errorf("a garbled cursor: %v", err)
			}
		}
	}
}

func TestAnyTimeCanBeAskedFor(t *testing.T) {
	filter := deadletter.Filter{DeadFrom: time.UnixMilli(math.MinInt64), DeadTo: time.UnixMilli(math.MaxInt64)}
	if _, err := NewPage(filter, deadletter.Page{}); err != nil {
		t.Error(err)
	}
}

func TestPageHasItsLimits(t *testing.T) {
	for limit, want := range map[int]int{-1: DefaultLimit, 0: DefaultLimit, 1: 1, MaxLimit: MaxLimit, MaxLimit + 1: MaxLimit} {
		page, err := NewPage(deadletter.Filter{}, deadletter.Page{Limit: limit})
		if err != nil || page.Limit != want || page.Order != deadletter.Newest {
			t.Errorf("limit %d is %d in order %s, %v", limit, page.Limit, page.Order, err)
		}
	}
}

func TestFilterIsReadableInTheAuditTrail(t *testing.T) {
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, c := range []struct {
		filter deadletter.Filter
		text   string
	}{
		{deadletter.Filter{}, "all"},
		{deadletter.Filter{IDs: []int64{3, 4}, States: []deadletter.State{deadletter.Dead}}, "ids=3,4 states=dead"},
		{deadletter.Filter{HasKey: true, Job: "j"}, "key=null job=j"},
		{deadletter.Filter{HasKey: true, Key: []byte("k\x00")}, "key=awA="},
		{deadletter.Filter{ErrorTypes: []string{"a b", "", "c,d", "e\nf"}}, `errorTypes="a b","","c,d","e\nf"`},
		{deadletter.Filter{DeadFrom: time.Date(2026, 3, 14, 1, 2, 3, 0, time.FixedZone("", 3600)), MinAttempt: 2, UpTo: 9}, "from=2026-03-14T00:02:03Z minAttempt=2 upTo=9"},
		{deadletter.Filter{MessageIDs: many}, "messageIds=" + strings.Join(many[:20], ",") + ",... (30 in all)"},
	} {
		if got := Text(c.filter); got != c.text {
			t.Errorf("text %s, want %s", got, c.text)
		}
	}
}

func TestKeysOfNilAndEmptyDiffer(t *testing.T) {
	if KeyHash(nil) == KeyHash([]byte{}) {
		t.Error("they have one hash")
	}
}

func FuzzStoredHeadersAreReadBack(f *testing.F) {
	f.Add("a", []byte("1"), true, []byte{3, 'a'})
	f.Add("", []byte{}, false, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, key string, value []byte, isNil bool, garbage []byte) {
		headers := []deadletter.Header{{Key: key, Value: append([]byte{}, value...)}, {Key: key}, {Key: "x", Value: []byte{}}}
		if isNil {
			headers[0].Value = nil
		}
		got, err := ParseHeaders(AppendHeaders(nil, headers))
		if diff := cmp.Diff(headers, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if got, err := ParseHeaders(garbage); err == nil {
			if again, err := ParseHeaders(AppendHeaders(nil, got)); err != nil || !cmp.Equal(got, again) {
				t.Errorf("%q is read as %v and then as %v, %v", garbage, got, again, err)
			}
		}
	})
}
