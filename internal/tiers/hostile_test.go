package tiers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// A record that failed as often as any record may is dead, wherever it is found and whatever its attempt says.
func TestTheLoopGuardHoldsInTheInboxAndInEveryTier(t *testing.T) {
	t.Parallel()
	const deliveries, attempt = envelope.HeaderDeliveries, envelope.HeaderAttempt
	for _, test := range []struct {
		name        string
		headers     []kgo.RecordHeader
		inbox, tier bool // dead there
		rejected    bool
	}{
		{"none", nil, false, false, false},
		{"two below the cap", []kgo.RecordHeader{h(deliveries, "18")}, false, false, false},
		{"one below the cap, and this failure", []kgo.RecordHeader{h(deliveries, "19")}, true, false, false},
		{"at the cap", []kgo.RecordHeader{h(deliveries, "20")}, true, true, false},
		{"above the cap", []kgo.RecordHeader{h(deliveries, "21")}, true, true, false},
		{"the largest count", []kgo.RecordHeader{h(deliveries, "1000000000")}, true, true, false},
		{"beyond the largest count", []kgo.RecordHeader{h(deliveries, "1000000001")}, true, true, true},
		{"Long.MAX", []kgo.RecordHeader{h(deliveries, "9223372036854775807")}, true, true, true},
		{"500,000 digits", []kgo.RecordHeader{h(deliveries, strings.Repeat("9", 500_000))}, true, true, true},
		{"negative", []kgo.RecordHeader{h(deliveries, "-1")}, false, false, true},
		{"no number", []kgo.RecordHeader{h(deliveries, "\xff\xfe")}, false, false, true},
		{"no number, then the cap", []kgo.RecordHeader{h(deliveries, ""), h(deliveries, "20")}, true, true, true},
		{"an outage counts no attempt and is a delivery", []kgo.RecordHeader{h(deliveries, "19"), h(envelope.HeaderAction, "outage")}, true, false, false},
		{"a writer of tiers that counts attempts only", []kgo.RecordHeader{h(attempt, "20"), h(envelope.HeaderAction, "outage")}, true, true, false},
		{"another topic's headers", []kgo.RecordHeader{h(deliveries, "19"), h(envelope.HeaderOriginalTopic, "\xff")}, true, false, true},
	} {
		p := policy(t, func(o *Options) { o.MaxDeliveries = 20 })
		e := parsed(test.headers...)
		step := p.FromInbox(e, start(), start(), noRandom)
		checkGuard(t, test.name+", from the inbox", step, e, test.inbox, test.rejected)
		if test.name == "another topic's headers" {
			continue // An unreadable origin is dead in a tier for its own reason.
		}
		for tier := range p.Tiers() {
			e := parsed(test.headers...)
			step := p.FromTier(tier, e, start(), start())
			checkGuard(t, fmt.Sprint(test.name, ", from tier ", tier), step, e, test.tier, test.rejected)
		}
	}
}

func checkGuard(t *testing.T, name string, step Step, e *envelope.Envelope, dead, rejected bool) {
	t.Helper()
	want := Step{To: step.To, Tier: step.Tier, Due: step.Due, AvailableAt: step.AvailableAt, Rejected: rejected, Inherited: step.Inherited}
	if dead {
		want = Step{To: ToDeadLetters, Due: start(), Reason: envelope.ReasonExhausted, LoopGuard: true, Rejected: rejected, Inherited: step.Inherited}
	}
	wantStep(t, name, step, want)
	if !dead && step.To == ToDeadLetters {
		t.Errorf("%s: dead of %s", name, step.Reason)
	}
	if e.Deliveries < 0 || e.Deliveries > envelope.MaxCount {
		t.Errorf("%s: deliveries %d", name, e.Deliveries)
	}
}

func TestTheLoopGuardCountsOnlyWhatNothingElseEnds(t *testing.T) {
	t.Parallel()
	p := policy(t, func(o *Options) { o.MaxDeliveries = 4 })
	for name, headers := range map[string][]kgo.RecordHeader{
		"the ladder is used up as well": {h(envelope.HeaderAttempt, "3"), h(envelope.HeaderDeliveries, "3")},
		"a verdict":                     {h(envelope.HeaderReason, "poison"), h(envelope.HeaderDeliveries, "99")},
	} {
		if step := p.FromInbox(parsed(headers...), start(), start(), noRandom); step.To != ToDeadLetters || step.LoopGuard {
			t.Errorf("%s: %+v", name, step)
		}
	}
	headers := []kgo.RecordHeader{h(envelope.HeaderDeliveries, "99"), h(envelope.HeaderOriginalTopic, "payments")}
	if step := p.FromTier(0, parsed(headers...), start(), start()); step.Reason != envelope.ReasonUnroutable || step.LoopGuard {
		t.Errorf("another topic: %+v", step)
	}
}

// A loop that no ladder ends, since something sets the attempt back after each letter, or sends the record through another
// topic: it ends at the cap, with exactly so many deliveries.
func TestALoopOverReplaysAndTopicsEndsAtTheCap(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(letter []kgo.RecordHeader) []kgo.RecordHeader{
		"replayed": func(letter []kgo.RecordHeader) []kgo.RecordHeader {
			e := parsed(letter...)
			e.SetAttempt(0)
			e.SetReplay("job", e.ReplayCount+1, "orders.dlt/0/0")
			return e.Append(nil, letter, envelope.Return)
		},
		"from another topic": func(letter []kgo.RecordHeader) []kgo.RecordHeader {
			e := parsed(letter...)
			e.SetOriginal("payments", 0, 0, start())
			return e.Append(nil, letter, envelope.Return)
		},
	} {
		p := policy(t, func(o *Options) { o.MaxDeliveries = 50 })
		var headers []kgo.RecordHeader
		for range 100 {
			_, letter := life(t, p, headers)
			e := parsed(letter...)
			if e.Reason != envelope.ReasonExhausted {
				t.Fatalf("%s: reason %q", name, e.Reason)
			}
			if e.Deliveries > 50 {
				break
			}
			headers = again(letter)
		}
		// The last one came back although its count was at the cap, and was not let in once more.
		if e := parsed(headers...); e.Deliveries != 50 {
			t.Errorf("%s: the last delivery was number %d", name, e.Deliveries+1)
		}
		step := p.FromInbox(parsed(headers...), start(), start(), noRandom)
		if step.To != ToDeadLetters || !step.LoopGuard {
			t.Errorf("%s: %+v", name, step)
		}
	}
}

func TestAValueThatIsNotAcceptedIsCounted(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		envelope.HeaderMessageID:          "",
		envelope.HeaderOriginalPartition:  "-1",
		envelope.HeaderOriginalOffset:     "9223372036854775808",
		envelope.HeaderOriginalTimestamp:  "yesterday",
		envelope.HeaderOriginalPartitions: "0",
		envelope.HeaderAttempt:            "1000000001",
		envelope.HeaderDeliveries:         "NaN",
		envelope.HeaderAvailableAt:        "0",
		envelope.HeaderFailedAt:           "",
		envelope.HeaderGroup:              "\xff",
		envelope.HeaderAction:             "Dead",
		envelope.HeaderReason:             "because",
		envelope.HeaderReplayID:           "\xff",
		envelope.HeaderReplayCount:        "-1",
		envelope.HeaderReplayedFrom:       strings.Repeat("x", envelope.MaxText+1),
		envelope.HeaderLaneOffset:         "-1",
	} {
		p := policy(t)
		if step := p.FromInbox(parsed(h(name, value)), start(), start(), noRandom); !step.Rejected {
			t.Errorf("%s in the inbox: %+v", name, step)
		}
		if step := p.FromTier(0, parsed(h(name, value)), start(), start()); !step.Rejected {
			t.Errorf("%s in a tier: %+v", name, step)
		}
		// Once: the next hop has only what was accepted, and the list.
		e := parsed(h(name, value))
		step := p.FromInbox(e, start(), start(), noRandom)
		if step := p.FromTier(step.Tier, parsed(e.Append(nil, []kgo.RecordHeader{h(name, value)}, envelope.Hop)...), start(), start()); step.Rejected {
			t.Errorf("%s is counted again in the tier", name)
		}
	}
	if step := policy(t).FromInbox(parsed(h(envelope.HeaderAttempt, "1"), h("redrive-future", "\xff")), start(), start(), noRandom); step.Rejected {
		t.Errorf("a good value is counted: %+v", step)
	}
}

// A fatal verdict ends the record at once from the inbox and from every tier, of a ladder of one tier too, whatever else its
// headers say.
func TestAFatalVerdictInAnyTierGoesToTheDeadLetters(t *testing.T) {
	t.Parallel()
	for tiers := 1; tiers <= 3; tiers++ {
		p := policy(t, func(o *Options) { o.Tiers = o.Tiers[:tiers] })
		for _, verdict := range []struct {
			header kgo.RecordHeader
			reason envelope.Reason
		}{
			{h(envelope.HeaderReason, "poison"), envelope.ReasonPoison},
			{h(envelope.HeaderReason, "permanent"), envelope.ReasonPermanent},
			{h(envelope.HeaderAction, "dead"), envelope.ReasonPermanent},
		} {
			want := Step{To: ToDeadLetters, Due: start(), Reason: verdict.reason}
			headers := []kgo.RecordHeader{
				h(envelope.HeaderAttempt, "1"), verdict.header, h(envelope.HeaderAvailableAt, at(start().Add(time.Minute))), h(envelope.HeaderRetryAfter, "1m"),
			}
			wantStep(t, "verdict in the inbox", p.FromInbox(parsed(headers...), start(), start(), noRandom), want)
			headers = append(headers, h(envelope.HeaderOriginalTopic, "payments"))
			for tier := range p.Tiers() {
				wantStep(t, fmt.Sprint("verdict in tier ", tier, " of ", tiers), p.FromTier(tier, parsed(headers...), start(), start()), want)
			}
		}
	}
}

// failer is a test, a fuzz target or a property.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// entry is a record with headers that anybody may have written, where it is found and when.
type entry struct {
	inbox   bool
	tier    int // if not inbox
	arrival time.Time
	now     time.Time
	headers []kgo.RecordHeader
}

// checkJourney follows a record until it leaves the tiers and holds every step against the promises of the package.
func checkJourney(t failer, p *Policy, in entry, random func() float64) {
	t.Helper()
	longest := p.MaxDelay()
	for i := range p.Tiers() {
		longest = max(longest, p.Tier(i).hold())
	}
	// A plausible due time may be obeyed with its slack, and be clamped once it is in a shorter tier.
	bound := longest + slack(longest) + longest

	headers, now := in.headers, in.now
	e := parsed(headers...)
	var step Step
	if in.inbox {
		step = p.FromInbox(e, in.arrival, now, random)
		checkFromInbox(t, p, in, step)
	} else {
		step = p.FromTier(in.tier, e, in.arrival, now)
		checkFromTier(t, p, in, step)
	}
	stamped := step.AvailableAt
	for hops := 0; ; hops++ {
		// However short the tiers are, a record that waits is copied at most once a second.
		if hops > 3+int(now.Sub(in.now)/time.Second) {
			t.Fatalf("goes round among the tiers: %q %+v", headers, step)
		}
		if step.Due.Sub(now) > bound || step.Due.Sub(in.now) > bound {
			t.Fatalf("waits until %v: %+v", step.Due, step)
		}
		checkStep(t, p, e, step)
		if step.Due.After(now) {
			now = step.Due
		}
		headers = e.Append(nil, headers, step.Kind())
		switch step.To {
		case ToDeadLetters:
			return
		case ToOrigin:
			// Whatever the last hop decided, the instant that was stamped on the way in has come.
			if !step.Clamped && now.Before(stamped) {
				t.Fatalf("early: left at %v, due %v", now, stamped)
			}
			return
		case ToTier:
			tier := step.Tier
			e.Parse(headers)
			if step = p.FromTier(tier, e, now, now); step.Clamped || step.Rejected || step.LoopGuard || step.Inherited {
				t.Fatalf("the forwarder does not believe itself: %q %+v", headers, step)
			}
		}
	}
}

// checkStep holds what is true of every step.
func checkStep(t failer, p *Policy, e *envelope.Envelope, step Step) {
	t.Helper()
	allowed := map[string]bool{p.ReturnTo(): step.To == ToOrigin, p.DeadLetters(): step.To == ToDeadLetters}
	for i := range p.Tiers() {
		allowed[p.Tier(i).Topic] = step.To == ToTier
	}
	if step.To == ToTier && (step.Tier < 0 || step.Tier >= p.Tiers()) || !allowed[p.Topic(step)] {
		t.Fatalf("leads to %+v", step)
	}
	dead := step.To == ToDeadLetters
	if dead != (step.Reason != "") || dead && string(e.Value(envelope.HeaderReason)) != string(step.Reason) {
		t.Fatalf("dead of %q: %+v", e.Value(envelope.HeaderReason), step)
	}
	if step.LoopGuard && step.Reason != envelope.ReasonExhausted {
		t.Fatalf("the loop guard gives the reason %q", step.Reason)
	}
	if !dead && max(e.Attempt, e.Deliveries) >= p.MaxDeliveries() {
		t.Fatalf("attempt %d, deliveries %d of %d and not dead: %+v", e.Attempt, e.Deliveries, p.MaxDeliveries(), step)
	}
	if e.Attempt < 0 || e.Attempt > envelope.MaxCount || e.Deliveries < 0 || e.Deliveries > envelope.MaxCount || len(e.MessageID) > envelope.MaxText {
		t.Fatalf("attempt %d, deliveries %d, an id of %d bytes", e.Attempt, e.Deliveries, len(e.MessageID))
	}
}

func checkFromInbox(t failer, p *Policy, in entry, step Step) {
	t.Helper()
	e := parsed(in.headers...)
	if !step.Due.Equal(in.now) || step.To == ToOrigin {
		t.Fatalf("from the inbox: %+v", step)
	}
	if step.Rejected != (e.Rejections() > 0) {
		t.Fatalf("%d rejections: %+v", e.Rejections(), step)
	}
	if step.To != ToTier {
		return
	}
	least, most := p.Tier(step.Tier).Delay, p.Tier(step.Tier).hold()
	wish := time.Duration(-1)
	if e.RetryAfterState == envelope.Valid {
		wish = e.RetryAfter
	}
	if d := e.AvailableAt.Sub(in.arrival); e.AvailableAtState == envelope.Valid && d > 0 {
		wish = max(wish, d)
	}
	if wish >= 0 {
		least = min(wish, p.MaxDelay())
		most = least
	}
	// What is written is rounded up to milliseconds.
	if wait := step.AvailableAt.Sub(in.arrival); wait < least || wait > most+time.Millisecond {
		t.Fatalf("waits %v, want %v to %v: %+v", wait, least, most, step)
	}
}

func checkFromTier(t failer, p *Policy, in entry, step Step) {
	t.Helper()
	e := parsed(in.headers...)
	tier := p.Tier(in.tier)
	limit := max(p.MaxDelay(), tier.hold())
	switch {
	case step.To == ToDeadLetters:
		if !step.Due.Equal(in.now) {
			t.Fatalf("a dead letter waits: %+v", step)
		}
	case e.AvailableAtState == envelope.Valid && !step.Clamped:
		if step.To == ToOrigin && (step.Due.Before(e.AvailableAt) || step.Due.Before(in.arrival)) {
			t.Fatalf("early: due %v, arrived %v, available at %v", step.Due, in.arrival, e.AvailableAt)
		}
		if wait := step.Due.Sub(in.now); wait > limit+slack(limit) {
			t.Fatalf("waits %v, at most %v are allowed", wait, limit+slack(limit))
		}
		if !step.AvailableAt.Equal(e.AvailableAt) {
			t.Fatalf("available at %v became %v", e.AvailableAt, step.AvailableAt)
		}
	default:
		// No time of its own, or none that is allowed.
		if wait := step.Due.Sub(in.arrival); step.To != ToOrigin || wait < tier.Delay || wait > tier.Delay+time.Millisecond {
			t.Fatalf("waits %v in a tier of %v: %+v", wait, tier.Delay, step)
		}
	}
}

// names of control headers as an enemy would choose them: those that decide most often, all now and then.
func names() []string {
	return []string{
		envelope.HeaderAvailableAt, envelope.HeaderAvailableAt, envelope.HeaderAvailableAt, envelope.HeaderRetryAfter, envelope.HeaderRetryAfter,
		envelope.HeaderAttempt, envelope.HeaderAttempt, envelope.HeaderDeliveries, envelope.HeaderDeliveries, envelope.HeaderAction,
		envelope.HeaderReason, envelope.HeaderOriginalTopic, envelope.HeaderMessageID, envelope.HeaderOriginalPartition,
		envelope.HeaderOriginalOffset, envelope.HeaderOriginalTimestamp, envelope.HeaderOriginalPartitions, envelope.HeaderReplayCount,
		envelope.HeaderReplayID, envelope.HeaderLaneOffset, envelope.HeaderKey, envelope.HeaderValueNull, envelope.HeaderHeld,
		envelope.HeaderRejected, envelope.HeaderErrorMessage, "redrive-future",
	}
}

func values() []string {
	return []string{
		"", "0", "1", "3", "4", "-1", "90", "10s", "2d", "999999h", "9223372036854775807", "99999999999999999999", "NaN", "dead", "outage", "retry",
		"poison", "orders", "orders.retry.10s", "__consumer_offsets", "0000-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z",
		"\x00\x00\x00\x00\x00\x00\x00\x00\x01", "\xff\xfe", "999", "1000", "1000000000", "1000000001", "-9223372036854775808", "0001-01-01T00:00:00Z",
		"2026-03-04T05:06:07.000+99:00", "1e9", " 1", "0x10", strings.Repeat("9", 2000),
	}
}

func drawHeaders(t *rapid.T) []kgo.RecordHeader {
	name := rapid.SampledFrom(names())
	value := rapid.OneOf(
		rapid.SampledFrom(values()),
		rapid.Map(rapid.Int64Range(-10_000_000, 10_000_000), func(ms int64) string { return at(start().Add(time.Duration(ms) * time.Millisecond)) }),
		rapid.Map(rapid.Int64Range(0, 10_000_000), func(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }),
	)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kgo.RecordHeader {
		return h(name.Draw(t, "name"), value.Draw(t, "value"))
	}), 0, 6).Draw(t, "headers")
}

func drawPolicy(t *rapid.T) *Policy {
	o := Options{Origin: "orders", Inbox: "orders.retry", DeadLetters: "orders.dlt"}
	for i := range rapid.IntRange(1, 4).Draw(t, "tiers") {
		o.Tiers = append(o.Tiers, Tier{
			Name: fmt.Sprint(i), Topic: fmt.Sprint("tier", i),
			Delay:  time.Duration(rapid.Int64Range(1, 3_600_000).Draw(t, "delay")) * time.Millisecond,
			Jitter: time.Duration(rapid.SampledFrom([]int64{0, 0, 5_000_000_000}).Draw(t, "jitter")),
		})
	}
	o.MaxAttempts = rapid.IntRange(1, 8).Draw(t, "attempts")
	o.MaxDelay = time.Duration(rapid.SampledFrom([]int64{0, int64(time.Minute), int64(3 * time.Hour)}).Draw(t, "max delay"))
	o.MaxDeliveries = rapid.SampledFrom([]int{0, 8, 9, 1000}).Draw(t, "max deliveries")
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNoHeaderMakesARecordEarlyOrWaitForEverOrLeaveItsTopics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		in := entry{
			headers: drawHeaders(t),
			inbox:   rapid.Bool().Draw(t, "inbox"),
			tier:    rapid.IntRange(0, p.Tiers()-1).Draw(t, "tier"),
			now:     start(),
		}
		in.arrival = in.now.Add(-time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "lag ms")) * time.Millisecond)
		checkJourney(t, p, in, func() float64 { return rapid.Float64Range(0, 0.999).Draw(t, "random") })
	})
}

// FuzzDecide gives the policies headers of any bytes. The first byte is where the record is found, the second how long
// ago it came in seconds; a header is a byte for its name, one for the length of its value, and the value.
func FuzzDecide(f *testing.F) {
	add := func(where, lag byte, headers ...kgo.RecordHeader) {
		data := []byte{where, lag}
		for _, header := range headers {
			for i, name := range names() {
				if name == header.Key {
					v := header.Value[:min(len(header.Value), 255)]
					data = append(append(data, byte(i), byte(len(v))), v...)
					break
				}
			}
		}
		f.Add(data)
	}
	add(0, 0)
	for i, name := range names() {
		for j, value := range values() {
			add(byte(i+j), byte(j), h(name, value))
		}
	}
	add(1, 9, h(envelope.HeaderAvailableAt, at(start())), h(envelope.HeaderAvailableAt, at(start().Add(time.Hour))))
	add(2, 9, h(envelope.HeaderAttempt, "1000000000"), h(envelope.HeaderAction, "outage"))
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() int {
			if len(data) == 0 {
				return 0
			}
			n := int(data[0])
			data = data[1:]
			return n
		}
		o := options()
		where := next()
		if where&16 > 0 {
			o.MaxDelay, o.MaxAttempts, o.MaxDeliveries = time.Hour, 9, 50
		}
		if where&32 > 0 {
			o.Tiers[0].Jitter = time.Minute
		}
		p, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		in := entry{inbox: where%4 == 0, tier: max(0, where%4-1), now: start()}
		in.arrival = in.now.Add(-time.Duration(next()) * time.Second)
		for len(data) > 0 {
			name := names()[next()%len(names())]
			n := min(next(), len(data))
			in.headers = append(in.headers, kgo.RecordHeader{Key: name, Value: data[:n:n]})
			data = data[n:]
		}
		checkJourney(t, p, in, func() float64 { return 0.5 })
	})
}

func TestAttemptRisesByOneOrStaysForAnOutage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		headers := drawHeaders(t)
		before := parsed(headers...)
		e := parsed(headers...)
		step := p.FromInbox(e, start(), start(), func() float64 { return 0 })
		incoming := before.Attempt
		if step.Inherited {
			incoming = 0
		}
		want := incoming + 1
		if before.Action == envelope.ActionOutage && before.Verdict() == "" {
			want = incoming
		}
		if want = min(want, envelope.MaxCount); e.Attempt != want {
			t.Fatalf("attempt %d, want %d", e.Attempt, want)
		}
		if step.To == ToTier && e.Attempt >= p.MaxAttempts() && before.Action != envelope.ActionOutage {
			t.Fatalf("attempt %d of %d is tried again", e.Attempt, p.MaxAttempts())
		}
	})
}
