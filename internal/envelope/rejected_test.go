package envelope

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// rejectedOf returns the entries of redrive-rejected, which must be JSON within the limit.
func rejectedOf(t *testing.T, headers []kgo.RecordHeader) (entries []rejectedEntry) {
	t.Helper()
	var value string
	for _, h := range headers {
		if h.Key == HeaderRejected {
			value = string(h.Value)
		}
	}
	if value == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(value), &entries); err != nil || len(value) > MaxRejected {
		t.Fatalf("%d bytes of redrive-rejected: %v", len(value), err)
	}
	return entries
}

func TestRejectedValuesAreListedOnHopsAndLettersOnly(t *testing.T) {
	t.Parallel()
	in := []kgo.RecordHeader{h(HeaderAttempt, "-1"), {Key: HeaderAction}, h(HeaderReason, "")}
	const want = `[{"name":"redrive-attempt","value":"LTE="},{"name":"redrive-action"},{"name":"redrive-reason","value":""}]`
	wantHeaders(t, appended(Hop, in...), h(HeaderRejected, want))
	wantHeaders(t, appended(Letter, in...), h(HeaderRejected, want))
	wantHeaders(t, appended(Return, in...))
}

func TestRejectedListGrowsOverHops(t *testing.T) {
	t.Parallel()
	in := []kgo.RecordHeader{h(HeaderRejected, `[{"name":"redrive-attempt","value":"LTE="}]`), h("a", "1"), h(HeaderAction, "explode")}
	wantHeaders(
		t, appended(Hop, in...),
		h(HeaderRejected, `[{"name":"redrive-attempt","value":"LTE="},{"name":"redrive-action","value":"ZXhwbG9kZQ=="}]`), h("a", "1"),
	)
}

func TestForgedRejectedListIsAnEntryItself(t *testing.T) {
	t.Parallel()
	for _, forged := range []string{"", "x", "null", "{}", `"x"`, `[1]`, `[{"name":1}]`, "[\"\xff\"]", "[" + strings.Repeat(" ", MaxRejected) + "]"} {
		entries := rejectedOf(t, appended(Hop, h(HeaderRejected, forged)))
		if len(entries) != 1 || entries[0].Name != HeaderRejected {
			t.Errorf("%q became %v", forged, entries)
		}
	}
}

func TestRejectedListStaysWithinItsLimitAndCountsWhatItOmits(t *testing.T) {
	t.Parallel()
	var in []kgo.RecordHeader
	for i := range 500 {
		in = append(in, h(HeaderMessageID, fmt.Sprintf("id-%d-%s", i, strings.Repeat("x", 300))))
	}
	e := parsed(in...)
	if e.Rejections() != 499 {
		t.Fatalf("%d rejections", e.Rejections())
	}
	entries := rejectedOf(t, e.Append(nil, in, Letter))
	last := entries[len(entries)-1]
	if entries[0].Size != 305 || last.Name != "" || last.Omitted+len(entries)-1 != 499 {
		t.Errorf("entries %+v", entries)
	}
	// Whatever the lengths are, the count of what is left out still finds room.
	for size := 1; size < 300; size += 7 {
		in = in[:0]
		for i := range 90 {
			in = append(in, h(HeaderAttempt, strings.Repeat("x", size)+fmt.Sprint(i)))
		}
		entries := rejectedOf(t, appended(Hop, in...))
		if last := entries[len(entries)-1]; last.Omitted+len(entries)-1 != 90 {
			t.Errorf("values of %d bytes: %d entries, the last is %+v", size, len(entries), last)
		}
	}
	// A forged count must not wrap.
	entries = rejectedOf(t, appended(Hop, h(HeaderRejected, `[{"omitted":9223372036854775807},{"omitted":-5},{"omitted":7}]`), h(HeaderAction, "explode")))
	if want := []rejectedEntry{{Name: HeaderAction, Value: entries[0].Value}, {Omitted: MaxCount}}; !cmp.Equal(want, entries) {
		t.Errorf("entries %+v", entries)
	}
}

func TestInheritedHeadersAreGoneAndListed(t *testing.T) {
	t.Parallel()
	in := []kgo.RecordHeader{h("a", "1")}
	for _, row := range contract() {
		if row.header.Key != HeaderRejected {
			in = append(in, row.header)
		}
	}
	e := parsed(in...)
	e.Inherit()
	if e.MessageID != nil || e.OriginalTopic != nil || e.OriginalPartition != -1 || e.OriginalOffset != -1 || !e.OriginalTimestamp.IsZero() ||
		e.OriginalPartitions != 0 || e.Attempt != 0 || e.AttemptState != Absent || e.ReplayCount != 0 || e.LaneOffset != -1 {
		t.Errorf("something is inherited: %+v", e)
	}
	// The loop guard counts on over the topics of a loop.
	if e.Deliveries != 5 {
		t.Errorf("deliveries %d, want those that came in, 5", e.Deliveries)
	}
	e.SetAttempt(1)
	e.EnsureMessageID("orders.retry", 0, 7)
	wantHeaders(
		t, e.Append(nil, in, Return),
		h("a", "1"), h(HeaderMessageID, "orders.retry/0/7"), h(HeaderAttempt, "1"), h(HeaderDeliveries, "5"), h(HeaderGroup, "billing"),
	)

	entries := rejectedOf(t, e.Append(nil, in, Hop))
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name)
	}
	want := []string{
		HeaderMessageID, HeaderOriginalTopic, HeaderOriginalPartition, HeaderOriginalOffset, HeaderOriginalTimestamp, HeaderOriginalPartitions,
		HeaderAttempt, HeaderReplayID, HeaderReplayCount, HeaderReplayedFrom, HeaderParentID, HeaderLaneOffset,
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

func TestAvailableAtThatTheCallerRefusesIsListed(t *testing.T) {
	t.Parallel()
	in := []kgo.RecordHeader{h(HeaderAvailableAt, "9999-01-01T00:00:00.000Z")}
	e := parsed(in...)
	e.RejectAvailableAt()
	if e.AvailableAtState != Unreadable || !e.AvailableAt.IsZero() {
		t.Errorf("state %v, %v", e.AvailableAtState, e.AvailableAt)
	}
	entries := rejectedOf(t, e.Append(nil, in, Hop))
	if len(entries) != 1 || entries[0].Name != HeaderAvailableAt {
		t.Errorf("entries %+v", entries)
	}
}
