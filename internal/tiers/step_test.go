package tiers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/envelope"
)

// start is the present of most tests.
func start() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }

func h(name, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: name, Value: []byte(value)} }

// at renders an instant as a header does.
func at(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func parsed(headers ...kgo.RecordHeader) *envelope.Envelope {
	e := new(envelope.Envelope)
	e.Parse(headers)
	return e
}

func noRandom() float64 { panic("a random number was drawn without a jitter") }

func wantStep(t *testing.T, name string, got, want Step) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: step (-want +got):\n%s", name, diff)
	}
}

// life is the journey of one record that fails whenever it is delivered, as its waits and its end.
func life(t *testing.T, p *Policy, headers []kgo.RecordHeader) (waits []time.Duration, letter []kgo.RecordHeader) {
	t.Helper()
	now := start()
	for range 100 {
		// The consumer failed the record and hands it over; headers are those of the copy it got.
		e := parsed(headers...)
		step := p.FromInbox(e, now, now, noRandom)
		headers = e.Append(nil, headers, step.Kind())
		if step.To == ToDeadLetters {
			return waits, headers
		}
		waits = append(waits, 0)
		for hops := 0; step.To == ToTier; hops++ {
			if hops > 10 {
				t.Fatalf("the record goes round among the tiers")
			}
			e = parsed(headers...)
			arrived := now
			next := p.FromTier(step.Tier, e, arrived, now)
			now = next.Due
			waits[len(waits)-1] += now.Sub(arrived)
			headers = e.Append(nil, headers, next.Kind())
			step = next
		}
		if step.To == ToDeadLetters {
			return waits, headers
		}
	}
	t.Fatal("the record never dies")
	return nil, nil
}

func TestEachHopWaitsItsOwnTierDelay(t *testing.T) {
	t.Parallel()
	waits, _ := life(t, policy(t), nil)
	want := []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

func TestMaxAttemptsIsExactlyThatManyDeliveries(t *testing.T) {
	t.Parallel()
	for attempts := 1; attempts <= 9; attempts++ {
		p := policy(t, func(o *Options) { o.MaxAttempts = attempts })
		waits, letter := life(t, p, nil)
		// The consumer saw the first copy and one after each wait.
		if len(waits)+1 != attempts {
			t.Errorf("max attempts %d: %d deliveries", attempts, len(waits)+1)
		}
		e := parsed(letter...)
		if e.Attempt != attempts || e.Deliveries != attempts || e.Reason != envelope.ReasonExhausted {
			t.Errorf("max attempts %d: letter says attempt %d, deliveries %d, reason %q", attempts, e.Attempt, e.Deliveries, e.Reason)
		}
	}
}

func TestLadderIsCutOrItsLastTierRepeats(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int][]time.Duration{
		2: {10 * time.Second},
		6: {10 * time.Second, time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute},
	} {
		p := policy(t, func(o *Options) { o.MaxAttempts = attempts })
		if waits, _ := life(t, p, nil); !cmp.Equal(want, waits) {
			t.Errorf("max attempts %d: waits %v, want %v", attempts, waits, want)
		}
	}
}

func TestReplayStartsANewLadderAndKeepsTheCountOfDeliveries(t *testing.T) {
	t.Parallel()
	p := policy(t)
	_, letter := life(t, p, nil)
	e := parsed(letter...)
	e.SetAttempt(0)
	e.SetReplay("job", 1, "orders.dlt/0/0")
	waits, letter := life(t, p, e.Append(nil, letter, envelope.Return))
	if len(waits) != 3 {
		t.Errorf("after the replay the record waited %v", waits)
	}
	if e := parsed(letter...); e.Attempt != 4 || e.Deliveries != 8 {
		t.Errorf("attempt %d, deliveries %d", e.Attempt, e.Deliveries)
	}
}

func TestAttemptNeverFallsWhateverIsReadAgain(t *testing.T) {
	t.Parallel()
	// A member that moves reads a waiting record anew, any number of times: what it decides must not depend on that.
	p := policy(t)
	headers := []kgo.RecordHeader{h(envelope.HeaderAttempt, "2"), h(envelope.HeaderAvailableAt, at(start().Add(time.Minute)))}
	for range 184 {
		e := parsed(headers...)
		wantStep(t, "read again", p.FromTier(1, e, start(), start().Add(30*time.Second)),
			Step{Due: start().Add(time.Minute), AvailableAt: start().Add(time.Minute)})
		if e.Attempt != 2 {
			t.Fatalf("attempt %d", e.Attempt)
		}
	}
}

func TestFromInbox(t *testing.T) {
	t.Parallel()
	const (
		attemptHeader = envelope.HeaderAttempt
		topicHeader   = envelope.HeaderOriginalTopic
		retryAfter    = envelope.HeaderRetryAfter
		availableAt   = envelope.HeaderAvailableAt
		action        = envelope.HeaderAction
		reason        = envelope.HeaderReason
	)
	arrival := start()
	now := arrival.Add(3 * time.Second)
	toTier := func(tier int, wait time.Duration) Step {
		return Step{To: ToTier, Tier: tier, Due: now, AvailableAt: arrival.Add(wait)}
	}
	clamped := func(s Step) Step { s.Clamped = true; return s }
	inherited := func(s Step) Step { s.Inherited = true; return s }
	rejected := func(s Step) Step { s.Rejected = true; return s }
	dead := func(r envelope.Reason) Step { return Step{To: ToDeadLetters, Due: now, Reason: r} }

	for _, test := range []struct {
		name       string
		headers    []kgo.RecordHeader
		want       Step
		attempt    int
		deliveries int
	}{
		{"no header at all", nil, toTier(0, 10*time.Second), 1, 1},
		{"second failure", []kgo.RecordHeader{h(attemptHeader, "1"), h(envelope.HeaderDeliveries, "5")}, toTier(1, time.Minute), 2, 6},
		{"third failure", []kgo.RecordHeader{h(attemptHeader, "2")}, toTier(2, 10*time.Minute), 3, 1},
		{"last failure", []kgo.RecordHeader{h(attemptHeader, "3")}, dead(envelope.ReasonExhausted), 4, 1},
		{"forged attempt", []kgo.RecordHeader{h(attemptHeader, "1000000000")}, dead(envelope.ReasonExhausted), envelope.MaxCount, 1},
		{"unreadable attempt", []kgo.RecordHeader{h(attemptHeader, "9223372036854775807")}, rejected(toTier(0, 10*time.Second)), 1, 1},
		{"negative attempt", []kgo.RecordHeader{h(attemptHeader, "-5")}, rejected(toTier(0, 10*time.Second)), 1, 1},

		{"verdict dead", []kgo.RecordHeader{h(action, "dead")}, dead(envelope.ReasonPermanent), 1, 1},
		{"verdict poison", []kgo.RecordHeader{h(reason, "poison"), h(attemptHeader, "1")}, dead(envelope.ReasonPoison), 2, 1},
		{"unknown action", []kgo.RecordHeader{h(action, "explode")}, rejected(toTier(0, 10*time.Second)), 1, 1},
		{"outage", []kgo.RecordHeader{h(action, "outage")}, toTier(0, 10*time.Second), 0, 1},
		{"outage at the last attempt", []kgo.RecordHeader{h(action, "outage"), h(attemptHeader, "3")}, toTier(2, 10*time.Minute), 3, 1},

		{"own origin", []kgo.RecordHeader{h(topicHeader, "orders"), h(attemptHeader, "1")}, toTier(1, time.Minute), 2, 1},
		{"own return topic", []kgo.RecordHeader{h(topicHeader, "orders.billing"), h(attemptHeader, "1")}, toTier(1, time.Minute), 2, 1},
		{"inherited", []kgo.RecordHeader{h(topicHeader, "payments"), h(attemptHeader, "3")}, inherited(toTier(0, 10*time.Second)), 1, 1},
		{"inherited, unreadable", []kgo.RecordHeader{h(topicHeader, ""), h(attemptHeader, "3")}, rejected(inherited(toTier(0, 10*time.Second))), 1, 1},
		{"inherited, verdict", []kgo.RecordHeader{h(topicHeader, "payments"), h(reason, "poison")}, inherited(dead(envelope.ReasonPoison)), 1, 1},

		{"wish", []kgo.RecordHeader{h(retryAfter, "30s")}, toTier(1, 30*time.Second), 1, 1},
		{"wish in seconds", []kgo.RecordHeader{h(retryAfter, "5")}, toTier(0, 5*time.Second), 1, 1},
		{"wish for now", []kgo.RecordHeader{h(retryAfter, "0")}, toTier(0, 0), 1, 1},
		{"wish at the limit", []kgo.RecordHeader{h(retryAfter, "10m")}, toTier(2, 10*time.Minute), 1, 1},
		{"wish beyond the limit", []kgo.RecordHeader{h(retryAfter, "10m0.001s")}, clamped(toTier(2, 10*time.Minute)), 1, 1},
		{"wish for ever", []kgo.RecordHeader{h(retryAfter, "9223372036854775807")}, clamped(toTier(2, 10*time.Minute)), 1, 1},
		{"unreadable wish", []kgo.RecordHeader{h(retryAfter, "-5")}, rejected(clamped(toTier(0, 10*time.Second))), 1, 1},
		{"wish burns the attempt", []kgo.RecordHeader{h(retryAfter, "5"), h(attemptHeader, "3")}, dead(envelope.ReasonExhausted), 4, 1},
		{"future available-at", []kgo.RecordHeader{h(availableAt, at(arrival.Add(90*time.Second)))}, toTier(2, 90*time.Second), 1, 1},
		{"past available-at", []kgo.RecordHeader{h(availableAt, at(arrival.Add(-time.Hour)))}, toTier(0, 10*time.Second), 1, 1},
		{"far available-at", []kgo.RecordHeader{h(availableAt, "9999-12-31T23:59:59.999Z")}, clamped(toTier(2, 10*time.Minute)), 1, 1},
		{"unreadable available-at", []kgo.RecordHeader{h(availableAt, "NaN")}, rejected(clamped(toTier(0, 10*time.Second))), 1, 1},
		{
			"conflicting available-at",
			[]kgo.RecordHeader{h(availableAt, at(arrival)), h(availableAt, at(arrival.Add(time.Minute)))},
			rejected(clamped(toTier(0, 10*time.Second))), 1, 1,
		},
		{
			"the later of two wishes, the other way",
			[]kgo.RecordHeader{h(retryAfter, "90"), h(availableAt, at(arrival.Add(5*time.Second)))},
			toTier(2, 90*time.Second), 1, 1,
		},
		{
			"the later of two wishes",
			[]kgo.RecordHeader{h(retryAfter, "5"), h(availableAt, at(arrival.Add(90*time.Second)))},
			toTier(2, 90*time.Second), 1, 1,
		},
	} {
		e := parsed(test.headers...)
		p := policy(t, func(o *Options) { o.ReturnTo = "orders.billing" })
		wantStep(t, test.name, p.FromInbox(e, arrival, now, noRandom), test.want)
		if e.Attempt != test.attempt || e.Deliveries != test.deliveries {
			t.Errorf("%s: attempt %d, deliveries %d, want %d, %d", test.name, e.Attempt, e.Deliveries, test.attempt, test.deliveries)
		}
		if test.want.To == ToTier && string(e.Value(availableAt)) != at(test.want.AvailableAt) {
			t.Errorf("%s: the copy says %s", test.name, e.Value(availableAt))
		}
		if test.want.To == ToDeadLetters && string(e.Value(reason)) != string(test.want.Reason) {
			t.Errorf("%s: the letter says %s", test.name, e.Value(reason))
		}
	}
}

func TestWithoutTiersTheFirstFailureIsTheLast(t *testing.T) {
	t.Parallel()
	p := policy(t, func(o *Options) { o.Tiers = nil })
	for _, headers := range [][]kgo.RecordHeader{nil, {h(envelope.HeaderAction, "outage")}, {h(envelope.HeaderRetryAfter, "5")}} {
		step := p.FromInbox(parsed(headers...), start(), start(), noRandom)
		wantStep(t, "no tiers", step, Step{To: ToDeadLetters, Due: start(), Reason: envelope.ReasonExhausted})
	}
}

func TestJitterOnlyAdds(t *testing.T) {
	t.Parallel()
	p := policy(t, func(o *Options) { o.Tiers[0].Jitter = 5 * time.Second })
	for random, want := range map[float64]time.Duration{0: 10 * time.Second, 0.5: 12500 * time.Millisecond, 0.99: 14950 * time.Millisecond} {
		step := p.FromInbox(parsed(), start(), start(), func() float64 { return random })
		wantStep(t, "jitter", step, Step{To: ToTier, Due: start(), AvailableAt: start().Add(want)})
	}
	// A wish is what the consumer asked for, so that nothing is added to it.
	step := p.FromInbox(parsed(h(envelope.HeaderRetryAfter, "14s")), start(), start(), noRandom)
	wantStep(t, "wish", step, Step{To: ToTier, Tier: 0, Due: start(), AvailableAt: start().Add(14 * time.Second)})
}

func TestFromTier(t *testing.T) {
	t.Parallel()
	const availableAt = envelope.HeaderAvailableAt
	arrival := start()
	now := arrival.Add(3 * time.Second)
	back := func(due time.Duration) Step { return Step{Due: arrival.Add(due), AvailableAt: arrival.Add(due)} }
	clamped := func(s Step) Step { s.Clamped = true; return s }
	rejected := func(s Step) Step { s.Rejected = true; return s }
	dead := func(r envelope.Reason) Step { return Step{To: ToDeadLetters, Due: now, Reason: r} }
	due := func(d time.Duration) kgo.RecordHeader { return h(availableAt, at(arrival.Add(d))) }

	for _, test := range []struct {
		name    string
		tier    int
		headers []kgo.RecordHeader
		want    Step
		attempt int
	}{
		{"no header at all", 0, nil, back(10 * time.Second), 1},
		{"no header in the last tier", 2, nil, back(10 * time.Minute), 3},
		{"header", 0, []kgo.RecordHeader{due(7 * time.Second)}, back(7 * time.Second), 1},
		{"over between arrival and now", 0, []kgo.RecordHeader{due(time.Second)}, back(time.Second), 1},
		{"past", 0, []kgo.RecordHeader{due(-time.Hour)}, Step{Due: arrival, AvailableAt: arrival.Add(-time.Hour)}, 1},
		{"attempt of the writer", 0, []kgo.RecordHeader{h(envelope.HeaderAttempt, "7")}, back(10 * time.Second), 7},
		{"attempt 0 of an outage", 0, []kgo.RecordHeader{h(envelope.HeaderAttempt, "0")}, back(10 * time.Second), 0},
		{"unreadable attempt", 1, []kgo.RecordHeader{h(envelope.HeaderAttempt, "x")}, rejected(back(time.Minute)), 2},

		{"a clock a little off", 0, []kgo.RecordHeader{due(14 * time.Second)}, back(14 * time.Second), 1},
		{"shorter in a long tier", 2, []kgo.RecordHeader{due(5 * time.Second)}, back(5 * time.Second), 3},
		{
			"longer than this tier", 0,
			[]kgo.RecordHeader{due(40 * time.Second)},
			Step{To: ToTier, Tier: 1, Due: now, AvailableAt: arrival.Add(40 * time.Second)},
			1,
		},
		{
			"much longer than this tier", 0,
			[]kgo.RecordHeader{due(9 * time.Minute)},
			Step{To: ToTier, Tier: 2, Due: now, AvailableAt: arrival.Add(9 * time.Minute)},
			1,
		},
		{
			"longer than all tiers", 1,
			[]kgo.RecordHeader{due(50 * time.Minute)},
			Step{To: ToTier, Tier: 2, Due: now, AvailableAt: arrival.Add(50 * time.Minute)},
			2,
		},
		{
			"longer than all tiers, in the best of them", 2,
			[]kgo.RecordHeader{due(50 * time.Minute)},
			Step{To: ToTier, Tier: 2, Due: arrival.Add(11 * time.Minute), AvailableAt: arrival.Add(50 * time.Minute)},
			3,
		},

		{"beyond the limit", 0, []kgo.RecordHeader{due(2 * time.Hour)}, clamped(back(10 * time.Second)), 1},
		{"for ever", 1, []kgo.RecordHeader{h(availableAt, "9999-12-31T23:59:59.999Z")}, clamped(back(time.Minute)), 2},
		{"Long.MAX", 1, []kgo.RecordHeader{h(availableAt, "9223372036854775807")}, rejected(clamped(back(time.Minute))), 2},
		{"negative", 1, []kgo.RecordHeader{h(availableAt, "-1")}, rejected(clamped(back(time.Minute))), 2},
		{"no bytes", 1, []kgo.RecordHeader{h(availableAt, "")}, rejected(clamped(back(time.Minute))), 2},
		{"nil", 1, []kgo.RecordHeader{{Key: availableAt}}, rejected(clamped(back(time.Minute))), 2},
		{"nine bytes", 1, []kgo.RecordHeader{h(availableAt, "\x00\x00\x00\x00\x00\x00\x00\x00\x01")}, rejected(clamped(back(time.Minute))), 2},
		{"NaN", 1, []kgo.RecordHeader{h(availableAt, "NaN")}, rejected(clamped(back(time.Minute))), 2},
		{"different values", 1, []kgo.RecordHeader{due(0), due(time.Second)}, rejected(clamped(back(time.Minute))), 2},

		{"verdict dead", 0, []kgo.RecordHeader{h(envelope.HeaderAction, "dead")}, dead(envelope.ReasonPermanent), 1},
		{"verdict poison", 1, []kgo.RecordHeader{h(envelope.HeaderReason, "poison")}, dead(envelope.ReasonPoison), 2},
		{"verdict permanent", 2, []kgo.RecordHeader{h(envelope.HeaderReason, "permanent")}, dead(envelope.ReasonPermanent), 3},
		{"origin", 0, []kgo.RecordHeader{h(envelope.HeaderOriginalTopic, "orders")}, back(10 * time.Second), 1},
		{"return topic", 0, []kgo.RecordHeader{h(envelope.HeaderOriginalTopic, "orders.billing")}, back(10 * time.Second), 1},
		{"another topic", 0, []kgo.RecordHeader{h(envelope.HeaderOriginalTopic, "payments")}, dead(envelope.ReasonUnroutable), 1},
		{"no topic at all", 0, []kgo.RecordHeader{h(envelope.HeaderOriginalTopic, "\xff")}, rejected(dead(envelope.ReasonMalformed)), 1},
	} {
		p := policy(t, func(o *Options) { o.ReturnTo, o.MaxDelay = "orders.billing", time.Hour })
		e := parsed(test.headers...)
		wantStep(t, test.name, p.FromTier(test.tier, e, arrival, now), test.want)
		if e.Attempt != test.attempt {
			t.Errorf("%s: attempt %d, want %d", test.name, e.Attempt, test.attempt)
		}
		if test.want.To != ToDeadLetters && string(e.Value(availableAt)) != at(test.want.AvailableAt) {
			t.Errorf("%s: a copy to the tail would say %s", test.name, e.Value(availableAt))
		}
	}
}

func TestUnchangedDueTimeKeepsItsBytes(t *testing.T) {
	t.Parallel()
	headers := []kgo.RecordHeader{h(envelope.HeaderAvailableAt, "2026-03-04T06:08:00+01:00")}
	e := parsed(headers...)
	step := policy(t).FromTier(0, e, start(), start())
	if out := e.Append(nil, headers, step.Kind()); step.To != ToTier || string(out[0].Value) != "2026-03-04T06:08:00+01:00" {
		t.Errorf("%+v: %q", step, out[0].Value)
	}
}

func TestClampedDueTimeIsListedWithTheRejected(t *testing.T) {
	t.Parallel()
	headers := []kgo.RecordHeader{h(envelope.HeaderAvailableAt, "9999-12-31T23:59:59.999Z")}
	e := parsed(headers...)
	step := policy(t).FromTier(0, e, start(), start())
	if e.Rejections() != 1 || !step.Clamped {
		t.Errorf("%d rejections, step %+v", e.Rejections(), step)
	}
}

func TestHeadersChooseOnlyAmongTheTopicsOfThePolicy(t *testing.T) {
	t.Parallel()
	p := policy(t, func(o *Options) { o.ReturnTo = "orders.billing" })
	for step, want := range map[Step]string{
		{To: ToOrigin}: "orders.billing", {To: ToTier, Tier: 2}: "orders.retry.10m", {To: ToDeadLetters}: "orders.dlt",
	} {
		if got := p.Topic(step); got != want {
			t.Errorf("%v leads to %q", step, got)
		}
	}
}

func BenchmarkFromTierToOrigin(b *testing.B) {
	b.ReportAllocs()
	p := policy(b)
	headers := []kgo.RecordHeader{
		h(envelope.HeaderMessageID, "orders/3/123456"), h(envelope.HeaderOriginalTopic, "orders"), h(envelope.HeaderOriginalPartition, "3"),
		h(envelope.HeaderOriginalOffset, "123456"), h(envelope.HeaderOriginalTimestamp, at(start())), h(envelope.HeaderAttempt, "2"),
		h(envelope.HeaderDeliveries, "2"), h(envelope.HeaderAvailableAt, at(start().Add(time.Minute))),
	}
	var e envelope.Envelope
	dst := make([]kgo.RecordHeader, 0, 32)
	now := start().Add(time.Hour)
	for b.Loop() {
		e.Parse(headers)
		step := p.FromTier(1, &e, start(), now)
		dst = e.Append(dst[:0], headers, step.Kind())
	}
}

func BenchmarkFromInboxToTier(b *testing.B) {
	b.ReportAllocs()
	p := policy(b)
	headers := []kgo.RecordHeader{
		h(envelope.HeaderOriginalTopic, "orders"), h(envelope.HeaderOriginalPartition, "3"), h(envelope.HeaderOriginalOffset, "123456"),
		h(envelope.HeaderOriginalTimestamp, at(start())), h(envelope.HeaderErrorType, "Timeout"),
	}
	var e envelope.Envelope
	dst := make([]kgo.RecordHeader, 0, 32)
	for b.Loop() {
		e.Parse(headers)
		step := p.FromInbox(&e, start(), start(), noRandom)
		e.EnsureMessageID("orders.retry", 3, 42)
		dst = e.Append(dst[:0], headers, step.Kind())
	}
}
