package deadletter

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// What the error texts of real programs become.
var normalized = []struct{ name, text, want string }{
	{"empty", "", ""},
	{"words only", "Connection refused", "Connection refused"},
	{"java exception with an id", "java.lang.IllegalStateException: Order 4711 not found", "java.lang.IllegalStateException: Order <n> not found"},
	{"java object", "Cannot handle com.acme.Order@1a2b3c4d", "Cannot handle com.acme.Order@<n>"},
	{"java object whose hash has no digit", "Cannot handle com.acme.Order@abcdefa", "Cannot handle com.acme.Order@<n>"},
	{"java stack", "\tat com.acme.shop.OrderService.ship(OrderService.java:142)\n\tat com.acme.Main$1.run(Main.java:7)", "\tat com.acme.shop.OrderService.ship(OrderService.java:<n>)\n\tat com.acme.Main$<n>.run(Main.java:<n>)"},
	{"jackson", `Unrecognized field "custmer_id" (class com.acme.Order), not marked as ignorable (3 known properties: "id", "lines"]) at [Source: (byte[])"{"id":12}"; line: 1, column: 15]`, `Unrecognized field <s> (class com.acme.Order), not marked as ignorable (<n> known properties: <s>, <s>]) at [Source: (byte[])<s>id<s>; line: <n>, column: <n>]`},
	{"java connect", "Connection to node -1 (localhost/127.0.0.1:9092) could not be established", "Connection to node <n> (localhost/<addr>) could not be established"},
	{"java timeout", "Timeout of 60000ms expired before successfully committing offsets {orders-3=OffsetAndMetadata{offset=123456789, leaderEpoch=null}}", "Timeout of <n>ms expired before successfully committing offsets {orders-<n>=OffsetAndMetadata{offset=<n>, leaderEpoch=null}}"},
	{"sql state", "ERROR: duplicate key value violates unique constraint \"orders_pkey\"\n  Detail: Key (id)=(550e8400-e29b-41d4-a716-446655440000) already exists.", "ERROR: duplicate key value violates unique constraint <s>\n  Detail: Key (id)=(<uuid>) already exists."},
	{"class with a number", "org.apache.http2.Http2Exception: stream 17 reset", "org.apache.http<n>.Http<n>Exception: stream <n> reset"},
	{"go open", "open /var/lib/app/data-12/file.json: no such file or directory", "open <path>: no such file or directory"},
	{"go dial", "dial tcp 10.1.2.3:5432: connect: connection refused", "dial tcp <addr>: connect: connection refused"},
	{"go dial ipv6", "dial tcp [2001:db8::1]:5432: i/o timeout after 1m30s", "dial tcp [<addr>]:<n>: i/o timeout after <n>"},
	{"go pointer", "runtime error: invalid memory address 0xc000123abc in goroutine 17 [running]", "runtime error: invalid memory address <n> in goroutine <n> [running]"},
	{"go time", "context deadline exceeded (at 2026-11-30T22:10:00.123456Z) after 1.5s", "context deadline exceeded (at <time>) after <n>s"},
	{"go log date", "2026/11/30 22:10:00 handler failed", "<time> <time> handler failed"},
	{"go json", "json: cannot unmarshal string into Go struct field Order.amount of type int64", "json: cannot unmarshal string into Go struct field Order.amount of type int<n>"},
	{"go url", `Get "https://api.example.com/v1/orders/42?x=1&y=a,b": EOF`, "Get <s>: EOF"},
	{"url bare", "GET https://api.example.com/v1/orders/42?x=1&y=a,b, then gave up.", "GET <path>, then gave up."},
	{"python key", "KeyError: 'customer_id'", "KeyError: <s>"},
	{"python apostrophe", "can't find 'x' in the user's list", "can't find <s> in the user's list"},
	{"python value", "ValueError: invalid literal for int() with base 10: '12x'", "ValueError: invalid literal for int() with base <n>: <s>"},
	{"python traceback", "  File \"/srv/app/handler.py\", line 33, in handle", "  File <s>, line <n>, in handle"},
	{"python object", "<Order object at 0x7f3a2c1d>", "<Order object at <n>>"},
	{"python date", "datetime 2026-11-30 22:10:00,123 out of range", "datetime <time> <time> out of range"},
	{"windows path", `cannot read C:\data\orders\17.csv.`, `cannot read <path>.`},
	{"relative path", "cannot read ./conf/app.yaml", "cannot read <path>"},
	{"two alternatives are no path", "read/write of text/plain failed", "read/write of text/plain failed"},
	{"root path", "cannot read /etc", "cannot read <path>"},
	{"mail", "no mailbox joe.doe+x@mail.example.com here", "no mailbox <addr> here"},
	{"mac", "host 0a:1b:2c:3d:4e:5f is gone", "host <addr> is gone"},
	{"sha", "commit 3f785a1 and deadbeefdeadbeef", "commit <n> and <n>"},
	{"object id", "document 507f1f77bcf86cd799439011", "document <n>"},
	{"prefixed id", "order ORD-20261130-77 of user_42", "order ORD-<n>-<n> of user_<n>"},
	{"uuid in a name", "tmp-550e8400-e29b-41d4-a716-44665544abcd.json", "tmp-<uuid>.json"},
	{"uuid without digits", "id abcdefab-abcd-abcd-abcd-abcdefabcdef", "id <uuid>"},
	{"sign and share", "balance -50, was 50, is 10%", "balance <n>, was <n>, is <n>%"},
	{"thousands and versions", "1,234,567 rows with 4.3.1", "<n> rows with <n>"},
	{"unicode", "Bestellung \u00fcber 12 \u20ac f\u00fcr M\u00fcller", "Bestellung \u00fcber <n> \u20ac f\u00fcr M\u00fcller"},
	{"quote that is not closed", "it said \"no 7\nand \"yes 8\"", "it said \"no <n>\nand <s>"},
	{"kafka place", "orders-3@4711: too old", "orders-<n>@<n>: too old"},
}

func TestNormalizeMasksWhatDiffers(t *testing.T) {
	for _, c := range normalized {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Normalize(c.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFingerprintIsThatOfTheFailureAndNotOfTheRecord(t *testing.T) {
	same := [][2]string{
		{"Order 1 of 'a' not found at 10.0.0.1:99", "Order 4711 of 'somebody else' not found at 192.168.17.200:5432"},
		{"id 550e8400-e29b-41d4-a716-446655440000", "id abcdefab-abcd-abcd-abcd-abcdefabcdef"},
		{"took 12ms in /a/b", "took 4ms in /usr/lib/x.so"},
	}
	for _, c := range same {
		if Fingerprint("E", c[0]) != Fingerprint("E", c[1]) {
			t.Errorf("%q and %q differ: %q, %q", c[0], c[1], Normalize(c[0]), Normalize(c[1]))
		}
	}
	if Fingerprint("E", "took 12ms") == Fingerprint("E", "took 12s") || Fingerprint("E", "x") == Fingerprint("F", "x") || Fingerprint("a", "b") == Fingerprint("ab", "") {
		t.Error("failures that differ have one fingerprint")
	}
	// Where a long text was cut depends on its values.
	long := func(id string) string { return strings.Repeat("field "+id+" is wrong; ", 100)[:MaxErrorText] }
	if Fingerprint("E", long("1")) != Fingerprint("E", long("123456789")) {
		t.Error("the cut of a long text shows in its fingerprint")
	}
	// Ledgers hold these.
	if got := Fingerprint("java.lang.IllegalStateException", "Order 4711 not found"); got != "b7115fccfcd7d2d0" {
		t.Errorf("the fingerprint has changed: %s", got)
	}
	if got := Fingerprint("", ""); got != "6e340b9cffb37a98" {
		t.Errorf("the fingerprint of nothing has changed: %s", got)
	}
}

func TestNormalizeTakesTimeInProportionToTheText(t *testing.T) {
	hostile := []string{"a:", "'", "\"a ", "`", "@a", "1.1.1.1.", "::", "0a:", "/", "a@b", "1,", "-", "2026-11-30T", "<n>", "x://", "f", "ffffffff-", "'a\n"}
	for _, unit := range hostile {
		cost := func(n int) time.Duration {
			text := strings.Repeat(unit, n/len(unit))
			best := time.Hour
			for range 5 {
				began := time.Now()
				Normalize(text)
				best = min(best, time.Since(began))
			}
			return best
		}
		short, long := cost(16<<10), cost(256<<10)
		// Quadratic would be 256 times as long.
		if long > 100*short+10*time.Millisecond {
			t.Errorf("%q: %v for 16 KiB, %v for 256 KiB", unit, short, long)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	for _, c := range normalized {
		f.Add(c.text)
	}
	f.Add("'abc'12 x'/usr/lib 12/foo 2026/11/30/a/b/c -5/x a@b1@ex.com")
	f.Fuzz(func(t *testing.T, text string) {
		once := Normalize(text)
		if twice := Normalize(once); twice != once {
			t.Fatalf("%q becomes %q and then %q", text, once, twice)
		}
		if utf8.ValidString(text) && !utf8.ValidString(once) {
			t.Fatalf("%q becomes %q, which is no text", text, once)
		}
		if len(once) > 8*len(text)+8 {
			t.Fatalf("%d bytes become %d", len(text), len(once))
		}
		if len(Fingerprint("E", text)) != 16 {
			t.Fatal("the fingerprint is not 16 digits")
		}
	})
}
