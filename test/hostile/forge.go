package main

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// numberHeader carries the number of a record. It is a foreign header to Redrive.
const numberHeader = "hostile-number"

// forge makes the records of a run. Number and seed decide what a record is; of its bytes only redrive-available-at depends
// on the time.
type forge struct {
	seed    uint64
	ladders []*ladder
	kinds   []kind
}

// kind is one way to forge headers.
type kind struct {
	name   string
	weight int
	add    func(*drawer)
}

// Long texts, of which each record takes a part.
var (
	letters = strings.Repeat("x", 500_000)
	nines   = strings.Repeat("9", 500_000)
	noText  = strings.Repeat("\xff", 500_000)
	euros   = strings.Repeat("\u20ac", 1000)
	trace   = strings.Repeat("at com.example.A.b(A.java:1)\n", 1100)
)

func newForge(seed uint64) *forge {
	return &forge{seed: seed, ladders: ladders(), kinds: kinds()}
}

// drawer is a record under construction.
type drawer struct {
	*rand.Rand

	ladder, other *ladder
	now           time.Time
	record        *kgo.Record
}

// record returns a record as it is sent.
func (f *forge) record(id uint32, now time.Time) *kgo.Record {
	r := rand.New(rand.NewPCG(f.seed, uint64(id)))
	which := r.IntN(len(f.ladders))
	d := &drawer{Rand: r, ladder: f.ladders[which], other: f.ladders[(which+1)%len(f.ladders)], now: now}
	d.record = &kgo.Record{Topic: d.ladder.inbox, Key: d.key(), Value: d.value()}
	if d.IntN(10) >= 6 {
		d.record.Topic = d.ladder.tiers[d.IntN(len(d.ladder.tiers))].topic
	}
	if d.IntN(20) == 0 {
		// The topics are stamped by the broker, so that this must not matter.
		d.record.Timestamp = time.UnixMilli(d.Int64N(4_000_000_000_000))
	}
	number := kgo.RecordHeader{Key: numberHeader, Value: binary.BigEndian.AppendUint32(nil, id)}
	d.record.Headers = append(d.record.Headers, number)
	for range d.IntN(4) {
		d.foreign()
	}
	total := 0
	for _, k := range f.kinds {
		total += k.weight
	}
	for range 1 + d.IntN(3) {
		at := d.IntN(total)
		for _, k := range f.kinds {
			if at -= k.weight; at < 0 {
				k.add(d)
				break
			}
		}
	}
	d.rare()
	headers := d.record.Headers
	d.Shuffle(len(headers), func(i, j int) { headers[i], headers[j] = headers[j], headers[i] })
	return d.record
}

// numberOf finds the number of a record in its headers.
func numberOf(headers []kgo.RecordHeader) (uint32, bool) {
	for i := range headers {
		if headers[i].Key == numberHeader && len(headers[i].Value) == 4 {
			return binary.BigEndian.Uint32(headers[i].Value), true
		}
	}
	return 0, false
}

func (d *drawer) add(name, value string) {
	h := kgo.RecordHeader{Key: name, Value: []byte(value)}
	if d.IntN(50) == 0 {
		h.Value = nil
	}
	d.record.Headers = append(d.record.Headers, h)
}

func (d *drawer) pick(values ...string) string { return values[d.IntN(len(values))] }

// put adds a header once or several times, with values that are accepted, values that are not, or some of each.
func (d *drawer) put(name string, good, bad func() string) {
	switch d.IntN(10) {
	case 0, 1, 2:
		d.add(name, good())
	case 3, 4, 5:
		d.add(name, bad())
	case 6:
		d.add(name, bad())
		d.add(name, good())
	case 7:
		d.add(name, good())
		d.add(name, bad())
		d.add(name, bad())
	case 8:
		d.add(name, good())
		d.add(name, good())
	default:
		v := good()
		for range 2 + d.IntN(60) {
			d.add(name, v)
		}
	}
}

// kinds are all ways to forge, with how often each is taken.
func kinds() []kind {
	return []kind{
		{"attempt", 8, func(d *drawer) {
			d.put("redrive-attempt", func() string {
				return d.pick("0", "1", "1", "2", "2", "3", "4", "007", "0000000000000000001", "49", "50", "999", "1000", "1000000000")
			}, d.badNumber)
		}},
		{"deliveries", 9, func(d *drawer) {
			d.put("redrive-deliveries", func() string {
				last := d.ladder.maxDeliveries
				return d.pick("0", "1", "2", "7", "00000000000000000012", strconv.Itoa(last-2), strconv.Itoa(last-1), strconv.Itoa(last), strconv.Itoa(last+1),
					"1000000000", "1000000001", "9223372036854775807", "9223372036854775808", nines[:2000])
			}, d.badNumber)
		}},
		{"wait in the inbox or a tier", 12, func(d *drawer) { d.put("redrive-available-at", d.goodTime, d.badTime) }},
		{"wish", 10, func(d *drawer) { d.put("redrive-retry-after", d.goodWait, d.badWait) }},
		{"verdict", 12, func(d *drawer) {
			d.put("redrive-action", func() string { return d.pick("retry", "dead", "outage", "outage") }, d.badWord)
		}},
		{"reason", 12, func(d *drawer) { d.put("redrive-reason", func() string { return d.pick(reasons()...) }, d.badWord) }},
		{"origin", 14, func(d *drawer) {
			d.put("redrive-original-topic", func() string {
				if d.IntN(2) == 0 {
					return d.wrongTopic()
				}
				return d.pick(d.ladder.origin, d.ladder.returnTo)
			}, func() string {
				return d.pick("", "\xff\xfe", letters[:maxTopic+1], "orders\x80", euros[:270])
			})
		}},
		{"position", 10, func(d *drawer) {
			d.put("redrive-original-topic", func() string { return d.ladder.origin }, func() string { return d.ladder.returnTo })
			d.put("redrive-original-partition", func() string { return d.pick("0", "1", "2", "3", "4", "99", "2147483647") }, d.badNumber)
			d.put("redrive-original-offset", func() string { return d.pick("0", "42", "9223372036854775807") }, d.badNumber)
			d.put("redrive-original-partitions", func() string { return d.pick("1", "4", "5", "2147483647") }, d.badNumber)
			d.put("redrive-original-timestamp", d.goodTime, d.badTime)
		}},
		{"name", 8, func(d *drawer) {
			d.put("redrive-message-id", func() string {
				return d.pick("id", "same for many", "../../etc/passwd", "a\x00b", "hostile-a/0/0", letters[:maxText], "\u202egnirts")
			}, func() string { return d.pick("", "\xff", letters[:maxText+1], letters[:9000]) })
		}},
		{"replay", 6, func(d *drawer) {
			d.put("redrive-replay-id", func() string { return d.pick("", "job", letters[:maxText]) }, func() string { return d.pick("\xff", letters[:2000]) })
			d.put("redrive-replay-count", func() string { return d.pick("0", "1", "1000000000") }, d.badNumber)
			d.put("redrive-replayed-from", func() string { return d.pick("", d.ladder.letters+"/0/0", "__decoy/0/0") }, func() string { return d.pick("\xff", letters[:2000]) })
			d.put("redrive-parent-id", func() string { return d.pick("id", letters[:maxText]) }, func() string { return d.pick("", "\xff", letters[:maxText+1]) })
		}},
		{"lane and letter", 6, func(d *drawer) {
			d.put("redrive-lane-offset", func() string { return d.pick("0", "42", "9223372036854775807") }, d.badNumber)
			for range 1 + d.IntN(3) {
				name := d.pick("redrive-key", "redrive-value-null", "redrive-held", "redrive-letter-source", "redrive-letter-digest", "redrive-letter-bytes")
				d.add(name, d.pick("", "1", "a2V5", "hostile-a.dlt/0/0", "\xff", letters[:2000]))
			}
		}},
		{"texts", 6, func(d *drawer) {
			for range 1 + d.IntN(6) {
				name := d.pick("redrive-error-type", "redrive-error-message", "redrive-consumer", "redrive-group", "redrive-failed-at")
				d.add(name, d.pick("", "x", "\xff\xfe", euros, trace[:1500+d.IntN(2000)], "2026-01-01T00:00:00Z"))
			}
		}},
		{"rejected", 4, func(d *drawer) {
			d.put("redrive-rejected", func() string {
				return d.pick("[]", `[{"name":"redrive-attempt","value":"eA=="}]`, `[{"omitted":9223372036854775807},{"omitted":-5}]`, `[{"name":"<&>","size":-1}]`)
			}, func() string {
				return d.pick("", "x", "null", "{}", "[1]", `[{"name":1}]`, "[\"\xff\"]", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "["+letters[:2000]+"]")
			})
		}},
		{"names all but right", 8, func(d *drawer) {
			for range 1 + d.IntN(4) {
				name := d.pick("Redrive-Attempt", "redrive-attempt ", " redrive-attempt", "redrive-attempt\x00", "redrive-", "redrive", "REDRIVE-AVAILABLE-AT",
					"redrive-available-at\n", "redrive-of-the-future", "redrive\xe2\x80\x90attempt", "redrive-original-topic\xff", "kafka_dlt-original-topic")
				d.add(name, d.pick("", "9223372036854775807", "__decoy", "dead", "9999-12-31T23:59:59.999Z"))
			}
		}},
	}
}

// rare adds what is large or many: a record in some thousands each.
func (d *drawer) rare() {
	switch d.IntN(8000) {
	case 0, 1, 2, 3: // 500 KB in one header.
		name := d.pick("redrive-error-message", "redrive-message-id", "redrive-original-topic", "redrive-available-at", "redrive-deliveries", "redrive-attempt",
			"redrive-action", "redrive-group", "redrive-rejected", "redrive-retry-after", "redrive-held", "trace")
		d.add(name, d.pick(letters, nines, noText))
	case 4, 5, 6: // 10,000 headers.
		names := []string{"x", "", "redrive-error-message", "redrive-lane-offset", "redrive-replay-count", "redrive-message-id", "redrive-attempt"}
		only := d.pick(names...)
		for i := range 10_000 {
			name := only
			if i%2 == 0 {
				name = names[i/2%len(names)]
			}
			d.record.Headers = append(d.record.Headers, kgo.RecordHeader{Key: name, Value: strconv.AppendInt(nil, int64(i%1000), 10)})
		}
	case 7: // A long trace in every text, as a consumer writes it.
		for _, name := range []string{"redrive-error-type", "redrive-error-message", "redrive-consumer"} {
			d.add(name, trace)
		}
	case 8: // As large as the origin allows, so that it is too large with our headers, or all but.
		d.record.Value = d.bytes(1_047_900 + d.IntN(600))
		d.record.Headers = d.record.Headers[:1]
	}
}

// nearLimit is the size of a value from which on a record may be too large for its origin on its return.
const nearLimit = 1_000_000

func (d *drawer) wrongTopic() string {
	tier := d.ladder.tiers[d.IntN(len(d.ladder.tiers))].topic
	return d.pick("__consumer_offsets", "__decoy", "__redrive", "__transaction_state", "decoy", "hostile-c", "hostile-c.retry", "hostile-created-by-a-header",
		d.other.origin, d.other.inbox, d.other.letters, d.other.returnTo, tier, d.ladder.inbox, d.ladder.letters, "*", ".", "..", " ", "HOSTILE-A",
		letters[:maxTopic], "hostile-a\x00", "hostile_a")
}

func (d *drawer) badNumber() string {
	return d.pick("", "-1", "-9223372036854775808", "1e3", "1.5", " 1", "1 ", "+1", "0x10", "NaN", "Infinity", "null", "\xff\xfe", "\x00",
		"\x00\x00\x00\x00\x00\x00\x00\x01", "\x00\x00\x00\x00\x00\x00\x00\x00\x01", "\u0661", "\uff11", "1_000", "1,000", letters[:2000], "1\n")
}

func (d *drawer) badWord() string {
	return d.pick("", "Dead", "DEAD", "dead ", "explode", "\x00", "\xff", "drop", "origin", letters[:4000], "__decoy")
}

// goodTime is an instant that can be read: soon, long over, or beyond what any maxDelay allows.
func (d *drawer) goodTime() string {
	soon := d.now.Add(time.Duration(d.Int64N(int64(d.ladder.maxDelay) * 8 / 10)))
	past := d.now.Add(-time.Duration(d.Int64N(int64(time.Hour))))
	far := d.now.Add(24*time.Hour + time.Duration(d.Int64N(int64(1000*time.Hour))))
	switch d.IntN(10) {
	case 0, 1, 2:
		return soon.UTC().Format("2006-01-02T15:04:05.000Z")
	case 3:
		return soon.In(time.FixedZone("", 19800)).Format(time.RFC3339Nano)
	case 4, 5:
		return past.UTC().Format("2006-01-02T15:04:05.000Z")
	case 6:
		return far.UTC().Format(time.RFC3339)
	case 7:
		return d.pick("0000-01-01T00:00:00.000Z", "0001-01-01T00:00:00Z", "1677-09-21T00:12:43Z", "1970-01-01T00:00:00.000Z", "0000-01-01T00:00:00+23:59")
	default:
		return d.pick("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59-23:59", "2262-04-11T23:47:17Z", "2500-01-01T00:00:00.000Z")
	}
}

func (d *drawer) badTime() string {
	return d.pick("", "0", "now", "never", "NaN", "9223372036854775807", "-1", "1767225600000", "2026-02-31T00:00:00.000Z", "2026-01-01 00:00:00Z",
		"+292278994-08-17T07:12:55.807Z", "\xff\xfe", "\x00\x00\x00\x00\x00\x00\x00\x00", "2026-01-01T00:00:00.000Z\x00", "10000-01-01T00:00:00.000Z",
		"2026-01-01T24:00:00Z", "2026-01-01T00:00:00.000", "2026-1-1T0:0:0Z", nines[:500], "9999-99-99T99:99:99.999Z")
}

func (d *drawer) goodWait() string {
	return d.pick("0", "0s", "1", "0.5", "2", "3.75", "1s", "500ms", "1.5s", "2s", "0.000000001", "000003", "1h", "2d", "1d12h", "9999h", "9223372036854775807",
		"99999999999999999999", "99999999d", "99999999999999999999999d")
}

func (d *drawer) badWait() string {
	return d.pick("", "-1", "+1", "-5s", "NaN", "1 s", " 1", "soon", "\xff", "P1D", "1e3", ".", "1.", ".5", "h", "1x", "1s-1h", "0x10", "d", "\x00", nines[:33])
}

func (d *drawer) key() []byte {
	switch d.IntN(10) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2, 3:
		return d.bytes(1 + d.IntN(24)) // Mostly no UTF-8.
	default:
		return strconv.AppendInt([]byte("key-"), int64(d.IntN(1000)), 10)
	}
}

func (d *drawer) value() []byte {
	switch d.IntN(20) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return d.bytes(500 + d.IntN(3000))
	default:
		return d.bytes(d.IntN(100))
	}
}

func (d *drawer) foreign() {
	h := kgo.RecordHeader{Key: d.pick("trace", "trace", "Trace", "", "\xff\xfe", "h\xc3(", "content-type", "__TypeId__", "x\x00y", "hostile-number")}
	if d.IntN(8) == 0 {
		h.Key = string(d.bytes(1 + d.IntN(12)))
	}
	switch d.IntN(5) {
	case 0:
	case 1:
		h.Value = []byte{}
	default:
		// A length that no number has.
		h.Value = d.bytes(5 + d.IntN(40))
	}
	d.record.Headers = append(d.record.Headers, h)
}

func (d *drawer) bytes(n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, d.Uint64())
	}
	return b[:n]
}
