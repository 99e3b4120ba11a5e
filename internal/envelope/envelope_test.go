package envelope

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func h(name, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: name, Value: []byte(value)} }

func parsed(headers ...kgo.RecordHeader) *Envelope {
	e := new(Envelope)
	e.Parse(headers)
	return e
}

func appended(kind Kind, headers ...kgo.RecordHeader) []kgo.RecordHeader {
	return parsed(headers...).Append(nil, headers, kind)
}

// show renders headers so that nil and empty values differ and bytes can be read.
func show(headers []kgo.RecordHeader) []string {
	out := []string{}
	for _, h := range headers {
		if h.Value == nil {
			out = append(out, fmt.Sprintf("%q nil", h.Key))
			continue
		}
		out = append(out, fmt.Sprintf("%q = %q", h.Key, h.Value))
	}
	return out
}

func wantHeaders(t *testing.T, got []kgo.RecordHeader, want ...kgo.RecordHeader) {
	t.Helper()
	if diff := cmp.Diff(show(want), show(got)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// contract is the table of the wire contract: an accepted value of every own header, and the kinds that keep it.
func contract() []struct {
	header            kgo.RecordHeader
	back, hop, letter bool
} {
	type row = struct {
		header            kgo.RecordHeader
		back, hop, letter bool
	}
	return []row{
		{h(HeaderMessageID, "orders/3/42"), true, true, true},
		{h(HeaderOriginalTopic, "orders"), true, true, true},
		{h(HeaderOriginalPartition, "3"), true, true, true},
		{h(HeaderOriginalOffset, "42"), true, true, true},
		{h(HeaderOriginalTimestamp, "2026-03-04T05:06:07.089Z"), true, true, true},
		{h(HeaderOriginalPartitions, "8"), true, true, true},
		{h(HeaderAttempt, "2"), true, true, true},
		{h(HeaderDeliveries, "5"), true, true, true},
		{h(HeaderAvailableAt, "2026-03-04T05:16:07.089Z"), false, true, false},
		{h(HeaderFailedAt, "2026-03-04T05:06:08Z"), false, true, true},
		{h(HeaderErrorType, "Timeout"), false, true, true},
		{h(HeaderErrorMessage, "read timed out"), false, true, true},
		{h(HeaderConsumer, "orders-0"), false, true, true},
		{h(HeaderGroup, "billing"), true, true, true},
		{h(HeaderAction, "outage"), false, false, false},
		{h(HeaderRetryAfter, "90s"), false, false, false},
		{h(HeaderReason, "poison"), false, false, true},
		{h(HeaderReplayID, "job-7"), true, true, true},
		{h(HeaderReplayCount, "1"), true, true, true},
		{h(HeaderReplayedFrom, "orders.dlt/0/9"), true, true, true},
		{h(HeaderParentID, "orders/3/41"), true, true, true},
		{h(HeaderLaneOffset, "77"), true, true, true},
		{h(HeaderKey, "a2V5"), false, false, false},
		{h(HeaderValueNull, "1"), false, false, false},
		{h(HeaderHeld, "orders.dlt/0/9"), false, false, false},
		{h(HeaderLetterSource, "orders.retry/0/9"), false, false, false},
		{h(HeaderLetterDigest, "sha256:00"), false, false, false},
		{h(HeaderLetterBytes, "1048577"), false, false, false},
		{h(HeaderRejected, `[{"name":"redrive-attempt","value":"eA=="}]`), false, true, true},
	}
}

func TestEveryOwnHeaderIsKeptByExactlyTheKindsOfTheContract(t *testing.T) {
	t.Parallel()
	rows := contract()
	if len(rows) != int(headerCount) {
		t.Fatalf("the table has %d headers, the package knows %d", len(rows), headerCount)
	}
	var all []kgo.RecordHeader
	want := map[Kind][]kgo.RecordHeader{}
	for _, row := range rows {
		all = append(all, row.header)
		for kind, kept := range map[Kind]bool{Return: row.back, Hop: row.hop, Letter: row.letter} {
			alone := appended(kind, row.header)
			if kept {
				want[kind] = append(want[kind], row.header)
				wantHeaders(t, alone, row.header)
			} else {
				wantHeaders(t, alone)
			}
		}
	}
	for _, kind := range []Kind{Return, Hop, Letter} {
		wantHeaders(t, appended(kind, all...), want[kind]...)
	}
	if n := parsed(all...).Rejections(); n != 0 {
		t.Errorf("%d values of the table were not accepted", n)
	}
}

func TestParseReadsEveryHeaderThatDecides(t *testing.T) {
	t.Parallel()
	var all []kgo.RecordHeader
	for _, row := range contract() {
		all = append(all, row.header)
	}
	e := parsed(all...)
	got := fmt.Sprintf("%s %s %v %d %d %v %d | %d %v %d | %v %v | %v %v | %v %v %s | %d %d",
		e.MessageID, e.OriginalTopic, e.OriginalTopicState, e.OriginalPartition, e.OriginalOffset, e.OriginalTimestamp, e.OriginalPartitions,
		e.Attempt, e.AttemptState, e.Deliveries, e.AvailableAt, e.AvailableAtState, e.RetryAfter, e.RetryAfterState,
		e.Action, e.ActionUnknown, e.Reason, e.ReplayCount, e.LaneOffset)
	want := "orders/3/42 orders 1 3 42 2026-03-04 05:06:07.089 +0000 UTC 8 | 2 1 5 | 2026-03-04 05:16:07.089 +0000 UTC 1 | 1m30s 1 | outage false poison | 1 77"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestParseForgetsTheRecordBefore(t *testing.T) {
	t.Parallel()
	var all []kgo.RecordHeader
	for _, row := range contract() {
		all = append(all, row.header)
	}
	e := new(Envelope)
	e.Parse(append(all, h(HeaderAttempt, "x"), h(HeaderAvailableAt, "never")))
	e.SetAttempt(9)
	e.SetReason(ReasonExpired)
	e.Parse(nil)
	wantHeaders(t, e.Append(nil, nil, Letter))
	if e.MessageID != nil || e.OriginalTopic != nil || e.OriginalTopicState != Absent || e.OriginalPartition != -1 || e.OriginalOffset != -1 ||
		!e.OriginalTimestamp.IsZero() || e.OriginalPartitions != 0 || e.Attempt != 0 || e.AttemptState != Absent || e.Deliveries != 0 ||
		!e.AvailableAt.IsZero() || e.AvailableAtState != Absent || e.RetryAfter != 0 || e.RetryAfterState != Absent ||
		e.Action != ActionRetry || e.ActionUnknown || e.Reason != "" || e.ReplayCount != 0 || e.LaneOffset != -1 || e.Rejections() != 0 {
		t.Errorf("something of the record before is left: %+v", e)
	}
}

func TestForeignHeadersStayUntouchedInPlaceAndOrder(t *testing.T) {
	t.Parallel()
	in := []kgo.RecordHeader{
		h("trace", "1"), h(HeaderAttempt, "1"), h("trace", "2"),
		{Key: "trace"},
		h("", ""), h("trace", "2"), h(HeaderFailedAt, "x"),
		h("redrive-", "a"), h("redrive-future", "b"), h("redrive-future", "b"), h("Redrive-Attempt", "c"), h("redrive-attempts", "d"),
		h("redrive", "e"), h("\xff\xfe", "\x00\xff"), h("kafka_originalTopic", "f"),
	}
	wantHeaders(t, appended(Return, in...), append(in[:6:6], in[7:]...)...)
}

func TestNilAndEmptyHeaderValuesSurvive(t *testing.T) {
	t.Parallel()
	in := []kgo.RecordHeader{
		{Key: "nil"},
		{Key: "empty", Value: []byte{}},
		{Key: "redrive-future"},
		{Key: "redrive-future", Value: []byte{}},
		{Key: HeaderErrorMessage},
		{Key: HeaderErrorType, Value: []byte{}},
		{Key: HeaderGroup},
		{Key: HeaderConsumer, Value: []byte{}},
	}
	for range 3 {
		wantHeaders(t, appended(Hop, in...), in...)
	}
}

func TestOwnHeadersAppearOnceAfterManyHops(t *testing.T) {
	t.Parallel()
	headers := []kgo.RecordHeader{h("a", "1"), h(HeaderAttempt, "1"), h(HeaderMessageID, "id"), h(HeaderAttempt, "1"), h("b", "2"), h(HeaderMessageID, "id")}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for hop := range 200 {
		e := parsed(headers...)
		if e.Attempt != hop+1 {
			t.Fatalf("hop %d: attempt %d", hop, e.Attempt)
		}
		e.SetAttempt(hop + 2)
		e.SetDeliveries(hop + 2)
		e.SetAvailableAt(at.Add(time.Duration(hop) * time.Minute))
		e.SetError("Boom", strings.Repeat("trace ", 10_000))
		headers = e.Append(nil, headers, Hop)
	}
	wantHeaders(
		t, headers,
		h("a", "1"), h(HeaderAttempt, "201"), h(HeaderMessageID, "id"), h("b", "2"), h(HeaderDeliveries, "201"),
		h(HeaderAvailableAt, "2026-01-02T06:23:05.000Z"), h(HeaderErrorType, "Boom"),
		h(HeaderErrorMessage, strings.Repeat("trace ", 10_000)[:MaxText]),
	)
}

func TestFirstWellFormedOfARepeatedHeaderCountsAndStandsAtTheFirstPlace(t *testing.T) {
	t.Parallel()
	in := []kgo.RecordHeader{
		h(HeaderAttempt, "-3"), h("a", "1"), h(HeaderAttempt, "2"), h(HeaderAttempt, "7"), h(HeaderMessageID, "first"), h(HeaderMessageID, "second"),
		h(HeaderOriginalTopic, ""), h("b", "2"), h(HeaderOriginalTopic, "orders"),
	}
	e := parsed(in...)
	if e.Attempt != 2 || e.AttemptState != Valid || string(e.MessageID) != "first" || string(e.OriginalTopic) != "orders" || e.OriginalTopicState != Valid {
		t.Errorf("attempt %d (%v), id %q, topic %q (%v)", e.Attempt, e.AttemptState, e.MessageID, e.OriginalTopic, e.OriginalTopicState)
	}
	wantHeaders(t, e.Append(nil, in, Return), h(HeaderAttempt, "2"), h("a", "1"), h(HeaderMessageID, "first"), h(HeaderOriginalTopic, "orders"), h("b", "2"))
	if e.Rejections() != 4 {
		t.Errorf("%d rejections, want 4", e.Rejections())
	}
}

func TestRepeatedAvailableAtWithDifferentValuesCountsForNothing(t *testing.T) {
	t.Parallel()
	const t1, t1Offset, t2 = "2026-03-04T05:06:07.000Z", "2026-03-04T06:06:07+01:00", "2026-03-04T05:06:08.000Z"
	for _, test := range []struct {
		values []string
		want   State
	}{
		{nil, Absent},
		{[]string{t1}, Valid},
		{[]string{t1, t1, t1}, Valid},
		{[]string{t1, t1Offset}, Valid},
		{[]string{t1, t2}, Conflicting},
		{[]string{t1, t2, t1, t1}, Conflicting},
		{[]string{t1, t1, t2}, Conflicting},
		{[]string{"soon", t1}, Conflicting},
		{[]string{t1, "soon"}, Conflicting},
		{[]string{"soon", "soon"}, Unreadable},
		{[]string{"soon", "later"}, Conflicting},
		{[]string{""}, Unreadable},
	} {
		in := []kgo.RecordHeader{}
		for _, v := range test.values {
			in = append(in, h(HeaderAvailableAt, v))
		}
		e := parsed(in...)
		if e.AvailableAtState != test.want {
			t.Errorf("%q: state %v, want %v", test.values, e.AvailableAtState, test.want)
		}
		out := e.Append(nil, in, Hop)
		if kept := len(out) > 0 && out[0].Key == HeaderAvailableAt; kept != (test.want == Valid) {
			t.Errorf("%q: came out as %v", test.values, show(out))
		}
		if test.want == Valid && !bytes.Equal(out[0].Value, []byte(t1)) {
			t.Errorf("%q: came out as %v", test.values, show(out))
		}
	}
}

func TestUntrustedValuesAreNotAccepted(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxText+1)
	for name, values := range map[string][]string{
		HeaderMessageID:          {"", long, "\xff"},
		HeaderOriginalTopic:      {"", strings.Repeat("x", 250), "\xff"},
		HeaderOriginalPartition:  {"", "-1", "2147483648", "NaN", "\x00\x00\x00\x03"},
		HeaderOriginalOffset:     {"", "-1", "9223372036854775808", "1.5", "\xff\xff\xff\xff\xff\xff\xff\xff\xff"},
		HeaderOriginalTimestamp:  {"", "0", "yesterday"},
		HeaderOriginalPartitions: {"", "0", "-8", "2147483648"},
		HeaderAttempt:            {"", "-1", "one", "1000000001", "9223372036854775807", "99999999999999999999999", "\x00\x00\x00\x01"},
		HeaderDeliveries:         {"", "-1", "+1000", "1e9", "many", "1000000000000000000000x"},
		HeaderAvailableAt:        {"", "0", "9223372036854775807", "NaN", "2026-02-31T00:00:00.000Z", "\x00"},
		HeaderFailedAt:           {"", "then"},
		HeaderGroup:              {long, "\xff"},
		HeaderAction:             {"", "Retry", "dead ", "explode"},
		HeaderRetryAfter:         {"", "-1", "NaN", "soon"},
		HeaderReason:             {"", "Poison", "because"},
		HeaderReplayID:           {long, "\xff"},
		HeaderReplayCount:        {"", "-1", "1000000001"},
		HeaderReplayedFrom:       {long},
		HeaderLaneOffset:         {"", "-1"},
	} {
		for _, value := range append(values, "<nil>") {
			in := h(name, value)
			if value == "<nil>" {
				if in.Value = nil; name == HeaderGroup || name == HeaderReplayID || name == HeaderReplayedFrom {
					continue
				}
			}
			e := parsed(in)
			if e.Rejections() != 1 || e.Value(name) != nil {
				t.Errorf("%s: %q was accepted", name, value)
			}
			wantHeaders(t, e.Append(nil, []kgo.RecordHeader{in}, Return))
			if e.OriginalPartition != -1 || e.OriginalOffset != -1 || e.Attempt != 0 || e.Deliveries != 0 || e.OriginalPartitions != 0 {
				t.Errorf("%s: %q changed a number", name, value)
			}
		}
	}
}

func TestVerdictOfActionAndReason(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		action, reason string
		want           Reason
	}{
		{"", "", ""},
		{"dead", "", ReasonPermanent},
		{"dead", "poison", ReasonPoison},
		{"dead", "permanent", ReasonPermanent},
		{"dead", "expired", ReasonExpired},
		{"dead", "because", ReasonPermanent},
		{"", "poison", ReasonPoison},
		{"", "permanent", ReasonPermanent},
		{"", "exhausted", ""},
		{"explode", "", ""},
		{"explode", "poison", ReasonPoison},
		{"retry", "poison", ""},
		{"outage", "permanent", ""},
	} {
		var in []kgo.RecordHeader
		if test.action != "" {
			in = append(in, h(HeaderAction, test.action))
		}
		if test.reason != "" {
			in = append(in, h(HeaderReason, test.reason))
		}
		e := parsed(in...)
		if got := e.Verdict(); got != test.want {
			t.Errorf("action %q, reason %q: verdict %q, want %q", test.action, test.reason, got, test.want)
		}
		if e.ActionUnknown != (test.action == "explode") {
			t.Errorf("action %q: unknown %v", test.action, e.ActionUnknown)
		}
	}
}

func TestMessageIDIsTheOriginPositionElseThePlaceWhereTheRecordWasRead(t *testing.T) {
	t.Parallel()
	origin := []kgo.RecordHeader{h(HeaderOriginalTopic, "orders"), h(HeaderOriginalPartition, "3"), h(HeaderOriginalOffset, "42")}
	for _, test := range []struct {
		name string
		in   []kgo.RecordHeader
		want string
	}{
		{"given", append([]kgo.RecordHeader{h(HeaderMessageID, "my-id")}, origin...), "my-id"},
		{"origin", origin, "orders/3/42"},
		{"no offset", origin[:2], "orders.retry/0/7"},
		{"no topic", origin[1:], "orders.retry/0/7"},
		{"nothing", nil, "orders.retry/0/7"},
		{"unreadable", append([]kgo.RecordHeader{h(HeaderMessageID, "")}, origin...), "orders/3/42"},
	} {
		e := parsed(test.in...)
		e.EnsureMessageID("orders.retry", 0, 7)
		if string(e.MessageID) != test.want || string(e.Value(HeaderMessageID)) != test.want {
			t.Errorf("%s: %q, want %q", test.name, e.MessageID, test.want)
		}
	}
}

func TestSetValuesAreWrittenInAFixedOrderAndReadBack(t *testing.T) {
	t.Parallel()
	e := parsed()
	at := time.Date(2026, 3, 4, 5, 6, 7, 89_000_001, time.UTC)
	e.SetLaneOffset(77)
	e.SetReplay("job-7", 1, "orders.dlt/0/9")
	e.SetParentID("orders/3/41")
	e.SetConsumer("orders-0", "billing")
	e.SetError("Timeout", "read timed out")
	e.SetFailedAt(at)
	e.SetReason(ReasonExpired)
	e.SetAction(ActionDead)
	e.SetRetryAfter(90 * time.Second)
	e.SetAvailableAt(at)
	e.SetDeliveries(5)
	e.SetAttempt(2)
	e.SetOriginalPartitions(8)
	e.SetOriginal("orders", 3, 42, at)
	e.SetMessageID("id")
	if want := time.Date(2026, 3, 4, 5, 6, 7, 90_000_000, time.UTC); !e.AvailableAt.Equal(want) {
		t.Errorf("available at %v, want it rounded up to %v", e.AvailableAt, want)
	}
	base := []kgo.RecordHeader{
		h(HeaderMessageID, "id"), h(HeaderOriginalTopic, "orders"), h(HeaderOriginalPartition, "3"), h(HeaderOriginalOffset, "42"),
		h(HeaderOriginalTimestamp, "2026-03-04T05:06:07.089Z"), h(HeaderOriginalPartitions, "8"), h(HeaderAttempt, "2"), h(HeaderDeliveries, "5"),
	}
	failure := []kgo.RecordHeader{
		h(HeaderFailedAt, "2026-03-04T05:06:07.089Z"), h(HeaderErrorType, "Timeout"), h(HeaderErrorMessage, "read timed out"), h(HeaderConsumer, "orders-0"),
	}
	groupHeader := h(HeaderGroup, "billing")
	replay := []kgo.RecordHeader{h(HeaderReplayID, "job-7"), h(HeaderReplayCount, "1"), h(HeaderReplayedFrom, "orders.dlt/0/9"), h(HeaderParentID, "orders/3/41"), h(HeaderLaneOffset, "77")}
	cat := func(parts ...[]kgo.RecordHeader) (all []kgo.RecordHeader) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	one := func(h kgo.RecordHeader) []kgo.RecordHeader { return []kgo.RecordHeader{h} }
	wantHeaders(t, e.Append(nil, nil, Return), cat(base, one(groupHeader), replay)...)
	wantHeaders(t, e.Append(nil, nil, Hop), cat(base, one(h(HeaderAvailableAt, "2026-03-04T05:06:07.090Z")), failure, one(groupHeader), replay)...)
	wantHeaders(t, e.Append(nil, nil, Letter), cat(base, failure, one(groupHeader), one(h(HeaderReason, "expired")), replay)...)

	letter := e.Append(nil, nil, Letter)
	if again := parsed(letter...); again.Rejections() != 0 {
		t.Errorf("of what was written %d values are not accepted", again.Rejections())
	}
	e.SetOriginal("orders", 3, 42, time.Time{})
	if e.Value(HeaderOriginalTimestamp) != nil {
		t.Error("a timestamp that is not known is written")
	}
}

// A replay begins a new run of attempts, but the loop guard counts on.
func TestAReplayedCopyKeepsDeliveriesAndForgetsAttempt(t *testing.T) {
	t.Parallel()
	in := []kgo.RecordHeader{h(HeaderAttempt, "4"), h("foreign", "x"), h(HeaderDeliveries, "9"), h(HeaderReplayID, "job-6"), h(HeaderReplayCount, "1")}
	e := parsed(in...)
	e.ResetAttempt()
	e.SetReplay("job-7", 2, "orders.dlt/0/9")
	e.SetParentID("parent")
	wantHeaders(t, e.Append(nil, in, Return), h("foreign", "x"), h(HeaderDeliveries, "9"), h(HeaderReplayID, "job-7"), h(HeaderReplayCount, "2"),
		h(HeaderReplayedFrom, "orders.dlt/0/9"), h(HeaderParentID, "parent"))
	if e.Attempt != 0 || e.AttemptState != Absent {
		t.Errorf("attempt %d, state %d", e.Attempt, e.AttemptState)
	}
}

func TestCountersStopAtTheirLimitInsteadOfWrapping(t *testing.T) {
	t.Parallel()
	e := parsed(h(HeaderAttempt, "1000000000"), h(HeaderDeliveries, "1000000000"))
	e.SetAttempt(e.Attempt + 1)
	e.SetDeliveries(e.Deliveries + 1)
	again := parsed(e.Append(nil, nil, Hop)...)
	if again.Attempt != MaxCount || again.Deliveries != MaxCount {
		t.Errorf("attempt %d, deliveries %d", again.Attempt, again.Deliveries)
	}
}

func TestADeliveriesCountBeyondAllBoundsIsTheLargestOne(t *testing.T) {
	t.Parallel()
	for _, huge := range []string{"1000000001", "9223372036854775807", "9223372036854775808", strings.Repeat("9", 500_000)} {
		in := []kgo.RecordHeader{h(HeaderDeliveries, huge)}
		e := parsed(in...)
		if e.Deliveries != MaxCount || e.Rejections() != 1 {
			t.Errorf("%d digits: deliveries %d, %d rejections", len(huge), e.Deliveries, e.Rejections())
		}
		wantHeaders(t, e.Append(nil, in, Return), h(HeaderDeliveries, "1000000000"))
	}
	// The first well-formed value counts, as of any header, and a huge number is one.
	if e := parsed(h(HeaderDeliveries, "many"), h(HeaderDeliveries, "9999999999"), h(HeaderDeliveries, "1")); e.Deliveries != MaxCount {
		t.Errorf("deliveries %d", e.Deliveries)
	}
	if e := parsed(h(HeaderDeliveries, "1000000000")); e.Deliveries != MaxCount || e.Rejections() != 0 {
		t.Errorf("the largest count itself: %d, %d rejections", e.Deliveries, e.Rejections())
	}
}

func TestShortenLeavesOutWhatOnlyPeopleRead(t *testing.T) {
	t.Parallel()
	in := []kgo.RecordHeader{
		h("a", "1"), h(HeaderErrorMessage, strings.Repeat("trace ", 10_000)), h(HeaderErrorType, "Boom"), h(HeaderConsumer, "orders-0"),
		h(HeaderGroup, "billing"), h(HeaderRejected, "[]"), h(HeaderAttempt, "-1"), h(HeaderMessageID, "id"),
	}
	e := parsed(in...)
	if !e.Shorten() {
		t.Error("nothing to leave out was found")
	}
	if e.Shorten() {
		t.Error("the second time there is nothing left")
	}
	for _, kind := range []Kind{Return, Hop, Letter} {
		wantHeaders(t, e.Append(nil, in, kind), h("a", "1"), h(HeaderGroup, "billing"), h(HeaderMessageID, "id"))
	}
	// What is set later is left out as well, or the copy would be too large again.
	e.SetError("RECORD_TOO_LARGE", "refused")
	wantHeaders(t, e.Append(nil, in, Letter), h("a", "1"), h(HeaderGroup, "billing"), h(HeaderMessageID, "id"))
	if v := e.Value(HeaderErrorMessage); v != nil {
		t.Errorf("the next copy would carry the message %q", v)
	}
	// The next record is not shortened.
	e.Parse(in[:3])
	wantHeaders(t, e.Append(nil, in[:3], Letter), h("a", "1"), h(HeaderErrorMessage, strings.Repeat("trace ", 10_000)[:MaxText]), h(HeaderErrorType, "Boom"))

	for _, small := range [][]kgo.RecordHeader{nil, {h("a", "1"), h(HeaderMessageID, "id"), h(HeaderAttempt, "1")}} {
		if parsed(small...).Shorten() {
			t.Errorf("%v becomes smaller", show(small))
		}
	}
	if !parsed(h(HeaderAttempt, "x")).Shorten() {
		t.Error("the list of rejected values is not counted")
	}
}

func TestTextsThatAreSetStayWithinTheirLimit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u20ac", MaxText) + "\xff"
	e := parsed()
	e.SetMessageID(long)
	e.SetConsumer(long, long)
	e.SetError(long, long)
	e.SetReplay(long, 1, long)
	out := e.Append(nil, nil, Letter)
	for _, h := range out {
		if len(h.Value) > MaxText {
			t.Errorf("%s has %d bytes", h.Key, len(h.Value))
		}
	}
	if again := parsed(out...); again.Rejections() != 0 || !bytes.Equal(again.MessageID, e.MessageID) {
		t.Errorf("%d of the values are not accepted, id %q", again.Rejections(), again.MessageID)
	}
}

// What our headers add to a record is bounded, however often it fails and is replayed and however long its traces are.
func TestHeadersStayBoundedOverFailuresAndReplaysWithLongTraces(t *testing.T) {
	t.Parallel()
	sizeOf := func(headers []kgo.RecordHeader) (n int) {
		for _, h := range headers {
			n += len(h.Key) + len(h.Value)
		}
		return n
	}
	const foreign = 200
	headers := []kgo.RecordHeader{h("payload", strings.Repeat("x", foreign-len("payload")))}
	trace := strings.Repeat("at com.example.Handler.handle(Handler.java:42)\n", 700)
	largest := map[Kind]int{}
	var e Envelope
	write := func(kind Kind) {
		headers = e.Append(nil, headers, kind)
		largest[kind] = max(largest[kind], sizeOf(headers)-foreign)
		e.Parse(headers)
	}
	for cycle := range 200 {
		// The consumer adds its headers without a look at those that are there.
		headers = append(headers,
			h(HeaderErrorType, trace), h(HeaderErrorMessage, trace), h(HeaderConsumer, trace), h(HeaderFailedAt, "2026-03-04T05:06:08.000Z"),
			h(HeaderAction, trace), h(HeaderOriginalTopic, "orders"), h(HeaderGroup, "billing"))
		e.Parse(headers)
		e.SetAttempt(e.Attempt + 1)
		e.SetDeliveries(e.Deliveries + 1)
		e.EnsureMessageID("orders.retry", 0, int64(cycle))
		e.SetAvailableAt(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
		write(Hop)
		write(Return)
		if cycle%4 == 3 {
			e.SetReason(ReasonExhausted)
			write(Letter)
			e.SetAttempt(0)
			e.SetReplay("job-7", cycle, "orders.dlt/0/9")
			write(Return)
		}
	}
	for kind, limit := range map[Kind]int{Return: 512, Hop: 3*MaxText + MaxRejected + 1024, Letter: 3*MaxText + MaxRejected + 1024} {
		if largest[kind] > limit {
			t.Errorf("kind %d: headers of %d bytes were added, want at most %d", kind, largest[kind], limit)
		}
	}
	// What is there when a copy does not fit: a few short names and numbers.
	e.SetError(trace, trace)
	e.SetConsumer(trace, "billing")
	e.Shorten()
	if n := sizeOf(e.Append(nil, headers, Letter)) - foreign; n > 640 {
		t.Errorf("a shortened letter has %d bytes of ours", n)
	}
}

func TestWrittenHeadersOutliveTheEnvelope(t *testing.T) {
	t.Parallel()
	// The copy is in flight while the Envelope already reads the next record.
	e := parsed()
	e.SetAttempt(1)
	e.SetAvailableAt(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	e.EnsureMessageID("orders.retry", 0, 7)
	first := e.Append(nil, nil, Hop)
	before := show(first)
	e.Parse(ownHeaders())
	e.SetAttempt(9)
	e.SetAvailableAt(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	e.Append(nil, ownHeaders(), Hop)
	if diff := cmp.Diff(before, show(first)); diff != "" {
		t.Errorf("an earlier copy changed:\n%s", diff)
	}
	// A value must not be able to grow into its neighbour.
	_ = append(first[1].Value, "garbage"...)
	if diff := cmp.Diff(before, show(first)); diff != "" {
		t.Errorf("values share their room:\n%s", diff)
	}
}

func TestWellFormedRecordCostsNoAllocation(t *testing.T) {
	headers := append(ownHeaders(), h(HeaderGroup, "billing"), h(HeaderErrorMessage, "boom"), h("foreign", "x"), h(HeaderReason, "exhausted"),
		h(HeaderAction, "retry"), h(HeaderReplayCount, "1"))
	var e Envelope
	dst := make([]kgo.RecordHeader, 0, 32)
	for _, kind := range []Kind{Return, Hop, Letter} {
		if n := testing.AllocsPerRun(100, func() {
			e.Parse(headers)
			dst = e.Append(dst[:0], headers, kind)
		}); n != 0 {
			t.Errorf("kind %d: %v allocations", kind, n)
		}
	}
}

func TestAppendLooksAgainAtHeadersThatWereNotTheOnesParsed(t *testing.T) {
	t.Parallel()
	in := []kgo.RecordHeader{h("a", "1"), h(HeaderAttempt, "2"), h(HeaderFailedAt, "2026-03-04T05:06:08Z")}
	e := parsed(in...)
	other := []kgo.RecordHeader{h(HeaderAttempt, "2"), h(HeaderFailedAt, "2026-03-04T05:06:08Z"), h("a", "1")}
	wantHeaders(t, e.Append(nil, other, Return), h(HeaderAttempt, "2"), h("a", "1"))
	// More headers than the Envelope remembers the names of.
	var many []kgo.RecordHeader
	for i := range 100 {
		many = append(many, h("foreign", fmt.Sprint(i)), h(HeaderAction, "retry"))
	}
	if got := appended(Return, many...); len(got) != 100 {
		t.Errorf("%d headers came out, want 100", len(got))
	}
}
