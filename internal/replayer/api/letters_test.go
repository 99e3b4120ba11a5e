package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
)

func TestEveryFilterReachesTheLedgerFromAQueryAndFromABody(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		query, body string
		want        deadletter.Filter
	}{
		{"id=1&id=2", `"id":[1,2]`, deadletter.Filter{IDs: []int64{1, 2}}},
		{"messageId=orders/1/2&messageId=b", `"messageId":["orders/1/2","b"]`, deadletter.Filter{MessageIDs: []string{"orders/1/2", "b"}}},
		{"key=a%26b%00", `"key":"a&b\u0000"`, deadletter.Filter{Key: []byte("a&b\x00"), HasKey: true}},
		{"key=", `"key":""`, deadletter.Filter{Key: []byte{}, HasKey: true}},
		{"keyBase64=_wA", `"keyBase64":"/wA="`, deadletter.Filter{Key: []byte{0xff, 0}, HasKey: true}},
		{"noKey=true", `"noKey":true`, deadletter.Filter{HasKey: true}},
		{"topic=a&topic=b", `"topic":["a","b"]`, deadletter.Filter{Topics: []string{"a", "b"}}},
		{"origin=a", `"origin":["a"]`, deadletter.Filter{Origins: []string{"a"}}},
		{"group=a&group=", `"group":["a",""]`, deadletter.Filter{Groups: []string{"a", ""}}},
		{"reason=poison&reason=too_large", `"reason":["poison","too_large"]`, deadletter.Filter{Reasons: []envelope.Reason{"poison", "too_large"}}},
		{"errorType=java.lang.X", `"errorType":["java.lang.X"]`, deadletter.Filter{ErrorTypes: []string{"java.lang.X"}}},
		{"errorText=50%25%20off", `"errorText":"50% off"`, deadletter.Filter{ErrorText: "50% off"}},
		{"fingerprint=f", `"fingerprint":["f"]`, deadletter.Filter{Fingerprints: []string{"f"}}},
		{"label=l", `"label":["l"]`, deadletter.Filter{Labels: []string{"l"}}},
		{"state=dead&state=expired", `"state":["dead","expired"]`, deadletter.Filter{States: []deadletter.State{"dead", "expired"}}},
		{"job=" + jobOfBob, `"job":"` + jobOfBob + `"`, deadletter.Filter{Job: jobOfBob}},
		{"partition=0&offset=0", `"partition":0,"offset":0`, deadletter.Filter{Partition: new(int32(0)), Offset: new(int64(0))}},
		{
			"from=2026-01-02T03:04:05Z&to=2026-01-02T04:04:05%2B01:00", "",
			deadletter.Filter{},
		},
		{
			"from=2026-01-02T03:04:05Z&to=2026-01-02T05:04:05.5%2B01:00", `"from":"2026-01-02T03:04:05Z","to":"2026-01-02T05:04:05.5+01:00"`,
			deadletter.Filter{
				DeadFrom: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), DeadTo: time.Date(2026, 1, 2, 4, 4, 5, 5e8, time.UTC),
			},
		},
		{"minAttempt=1&maxAttempt=2&minDeliveries=3", `"minAttempt":1,"maxAttempt":2,"minDeliveries":3`, deadletter.Filter{MinAttempt: 1, MaxAttempt: 2, MinDeliveries: 3}},
		{"upTo=9", `"upTo":9`, deadletter.Filter{UpTo: 9}},
	} {
		if c.body == "" {
			// An empty span of time: from is not before to.
			r.refused(t, http.MethodGet, "/letters?"+c.query, carol, "", http.StatusBadRequest, codeBadParameter)
			continue
		}
		for _, path := range []string{"/letters?", "/count?", "/groups?", "/export?"} {
			r.ledger.filter = deadletter.Filter{}
			if a := r.call(t, http.MethodGet, path+c.query, carol, ""); a.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d %s", c.query, a.StatusCode, a.body)
			}
			if diff := cmp.Diff(c.want, r.ledger.filter); diff != "" {
				t.Errorf("%s%s: want (-) got (+):\n%s", path, c.query, diff)
			}
		}
		if a := r.call(t, http.MethodPost, "/plans", carol, `{"all":true,"filter":{`+c.body+`}}`); a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", c.body, a.StatusCode, a.body)
		}
		if diff := cmp.Diff(c.want, r.replayer.request.Filter); diff != "" {
			t.Errorf("%s: want (-) got (+):\n%s", c.body, diff)
		}
	}
}

func TestAFilterThatCanNotBeMeantIsRefused(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ query, code, parameter, nearest string }{
		{"origni=orders", codeUnknownParameter, "origni", "origin"},
		{"error_type=x", codeUnknownParameter, "error_type", "errorType"},
		{"State=dead", codeUnknownParameter, "State", "state"},
		{"zzzzzzzzzzzz=1", codeUnknownParameter, "zzzzzzzzzzzz", ""},
		{"by=reason", codeUnknownParameter, "by", ""},
		{"state=deda", codeBadParameter, "state", "dead"},
		{"reason=too-large", codeBadParameter, "reason", "too_large"},
		{"order=new", codeBadParameter, "order", ""},
		{"id=x", codeBadParameter, "id", ""},
		{"id=0", codeBadParameter, "id", ""},
		{"id=99999999999999999999", codeBadParameter, "id", ""},
		{"partition=-1", codeBadParameter, "partition", ""},
		{"partition=2147483648", codeBadParameter, "partition", ""},
		{"offset=1e3", codeBadParameter, "offset", ""},
		{"upTo=0", codeBadParameter, "upTo", ""},
		{"maxAttempt=0", codeBadParameter, "maxAttempt", ""},
		{"limit=0", codeBadParameter, "limit", ""},
		{"limit=1001", codeBadParameter, "limit", ""},
		{"limit=1&limit=2", codeBadParameter, "limit", ""},
		{"from=yesterday", codeBadParameter, "from", ""},
		{"from=0001-01-01T00:00:00Z", codeBadParameter, "from", ""},
		{"key=a&noKey=true", codeBadParameter, "key", ""},
		{"keyBase64=%25", codeBadParameter, "keyBase64", ""},
		{"job=7", codeBadParameter, "job", ""},
		{"topic=a%00b", codeBadParameter, "topic", ""},
		{"messageId=%ff", codeBadParameter, "messageId", ""},
		{"cursor=", codeBadParameter, "cursor", ""},
		{"cursor=nonsense", codeBadCursor, "cursor", ""},
		{"a;b", codeBadRequest, "", ""},
		{"topic=%zz", codeBadRequest, "", ""},
	} {
		p := r.refused(t, http.MethodGet, "/letters?"+c.query, carol, "", http.StatusBadRequest, c.code)
		if value(p.Parameter) != c.parameter || value(p.Nearest) != c.nearest {
			t.Errorf("%s: parameter %q, nearest %q; want %q, %q", c.query, value(p.Parameter), value(p.Nearest), c.parameter, c.nearest)
		}
	}
}

func TestAPageLeadsToTheNext(t *testing.T) {
	r := newRig(t)
	var ids []int64
	for path := "/letters?limit=3"; path != ""; {
		list := into[LetterList](t, r.call(t, http.MethodGet, path, carol, ""))
		for _, l := range list.Letters {
			ids = append(ids, l.ID)
		}
		path = ""
		if list.Next != "" {
			path = "/letters?limit=3&cursor=" + url.QueryEscape(list.Next)
		}
	}
	if diff := cmp.Diff([]int64{1, 2, 3, 4, 5}, ids); diff != "" {
		t.Error(diff)
	}
	if list := into[JobList](t, r.call(t, http.MethodGet, "/jobs?limit=1", carol, "")); len(list.Jobs) != 1 || list.Next != jobOfBob {
		t.Errorf("jobs %+v", list)
	}
	if list := into[JobList](t, r.call(t, http.MethodGet, "/jobs?limit=1&cursor="+jobOfBob, carol, "")); list.Jobs[0].ID != jobOfAlice {
		t.Errorf("jobs %+v", list)
	}
	if list := into[AuditList](t, r.call(t, http.MethodGet, "/audit?limit=1", carol, "")); list.Entries[0].ID != 2 || list.Next != "2" {
		t.Errorf("audit %+v", list)
	}
	if list := into[AuditList](t, r.call(t, http.MethodGet, "/audit?limit=1&cursor=2", carol, "")); list.Entries[0].ID != 1 {
		t.Errorf("audit %+v", list)
	}
	for _, path := range []string{"/jobs?cursor=x", "/audit?cursor=-1", "/audit?cursor=x", "/jobs/" + jobOfBob + "/items?cursor=0"} {
		r.refused(t, http.MethodGet, path, carol, "", http.StatusBadRequest, codeBadCursor)
	}
}

func TestTheOrderAndTheGroupingThatAreAskedForReachTheLedger(t *testing.T) {
	r := newRig(t)
	for _, order := range []deadletter.Order{deadletter.Newest, deadletter.Oldest, deadletter.ReplayOrder} {
		r.call(t, http.MethodGet, "/letters?limit=7&order="+string(order), carol, "")
		if diff := cmp.Diff(deadletter.Page{Order: order, Limit: 7}, r.ledger.page); diff != "" {
			t.Error(diff)
		}
	}
	for _, by := range deadletter.GroupBys() {
		if got := into[GroupList](t, r.call(t, http.MethodGet, "/groups?by="+string(by), carol, "")); got.By != GroupBy(by) || r.ledger.groups != by {
			t.Errorf("by %s: %s, %s", by, got.By, r.ledger.groups)
		}
	}
	p := r.refused(t, http.MethodGet, "/groups?by=error", carol, "", http.StatusBadRequest, codeBadParameter)
	if len(p.Allowed) != len(deadletter.GroupBys()) {
		t.Errorf("allowed %v", p.Allowed)
	}
}

func TestKeysAreBytesAndMissingOnesAreTold(t *testing.T) {
	r := newRig(t)
	key := func(id string) *Bytes {
		return into[LetterDetail](t, r.call(t, http.MethodGet, "/letters/"+id, carol, "")).Letter.Key
	}
	for id, want := range map[string]*Bytes{
		"1": {Base64: "aw==", Text: new("k")},
		"2": nil,
		"4": {Base64: "/wA="},
		"5": {Base64: "", Text: new("")},
	} {
		if diff := cmp.Diff(want, key(id)); diff != "" {
			t.Errorf("letter %s: %s", id, diff)
		}
	}
}

func TestWhatDoesNotExistIsNotFound(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{
		"/letters/99", "/letters/0", "/letters/-1", "/letters/x", "/letters/1e3", "/letters/99999999999999999999",
		"/letters/99/payload", "/letters/99/value", "/letters/99/history", "/history?messageId=none",
		"/jobs/" + noJob, "/jobs/x", "/jobs/{" + jobOfBob + "}", "/jobs/..%2Fletters", "/jobs/" + noJob + "/items",
	} {
		r.refused(t, http.MethodGet, path, alice, "", http.StatusNotFound, codeUnknown)
	}
	for _, path := range []string{"/letter", "/letters/", "/letters//payload", "/jobs/../letters", "/letters/1/payload/x", "/.", "/%2e%2e/letters"} {
		r.refused(t, http.MethodGet, path, alice, "", http.StatusNotFound, codeNoRoute)
	}
	if p := r.refused(t, http.MethodGet, "/leters", alice, "", http.StatusNotFound, codeNoRoute); value(p.Nearest) != basePath+"/letters" {
		t.Errorf("nearest %q", value(p.Nearest))
	}
	a := r.call(t, http.MethodDelete, "/letters", alice, "")
	if p := isProblem(t, a, http.StatusMethodNotAllowed, codeMethodNotAllowed); a.Header.Get("Allow") != "GET" || len(p.Allowed) != 1 {
		t.Errorf("allowed %q, %v", a.Header.Get("Allow"), p.Allowed)
	}
}

func TestAValueComesBackByteForByte(t *testing.T) {
	for _, want := range [][]byte{{}, {0}, {0xff, 0xfe, '\r', '\n'}, []byte(strings.Repeat("x", 1<<20))} {
		r := newRig(t)
		r.replayer.payload.Value = want
		a := r.call(t, http.MethodGet, "/letters/1/value", bob, "")
		if a.StatusCode != http.StatusOK || string(a.body) != string(want) {
			t.Errorf("%d bytes come as %d %q", len(want), a.StatusCode, a.body[:min(len(a.body), 20)])
		}
		if a.Header.Get("Content-Disposition") == "" {
			t.Error("a browser would show it")
		}
	}
	r := newRig(t)
	r.replayer.payload.Value = nil
	if a := r.call(t, http.MethodGet, "/letters/1/value", bob, ""); a.StatusCode != http.StatusNoContent {
		t.Errorf("a tombstone comes as %d", a.StatusCode)
	}
}

func TestBytesAreShownInTheFormThatTheyAllow(t *testing.T) {
	for _, c := range []struct {
		value  string
		form   Form
		limit  int
		want   Form
		shown  string
		cut    bool
		reason string
	}{
		{`{"a":1}`, "", 100, FormJSON, "{\n  \"a\": 1\n}", false, "an object reads best as JSON"},
		{`12`, "", 100, FormText, "12", false, "a number alone is text"},
		{`12`, FormJSON, 100, FormJSON, "12", false, "unless JSON is asked for"},
		{`{"a":1}`, FormText, 100, FormText, `{"a":1}`, false, "text is as it is"},
		{`{"a":1}`, FormHex, 3, FormHex, "7b2261", true, "hex is cut by bytes"},
		{`{"a":1}`, FormJSON, 3, FormText, `{"a`, true, "a part of JSON is none"},
		{`{"a":`, FormJSON, 100, FormText, `{"a":`, false, "broken JSON is text"},
		{"\xff", FormJSON, 100, FormHex, "ff", false, "no text at all"},
		{"\xff", FormText, 100, FormHex, "ff", false, "no text at all"},
		{"a\u00e4b", FormText, 2, FormText, "a", true, "a character is not torn"},
		{"", "", 2, FormText, "", false, "empty is not missing"},
		{`{"big":12345678901234567890}`, "", 100, FormJSON, "{\n  \"big\": 12345678901234567890\n}", false, "digits are kept"},
	} {
		v := viewOf([]byte(c.value), c.form, c.limit)
		if v.Form != c.want || v.Content != c.shown || v.Truncated != c.cut || v.Size != int64(len(c.value)) {
			t.Errorf("%s: %q as %q comes as %+v", c.reason, c.value, c.form, v)
		}
	}
	if viewOf(nil, "", 10) != nil {
		t.Error("missing bytes are shown")
	}
	r := newRig(t)
	p := into[Payload](t, r.call(t, http.MethodGet, "/letters/1/payload?as=hex&maxBytes=2", bob, ""))
	if p.Value.Content != "7b22" || len(p.Headers) != 4 || p.Headers[1].Value != nil || p.Headers[2].Value == nil {
		t.Errorf("payload %+v", p)
	}
	r.refused(t, http.MethodGet, "/letters/1/payload?as=xml", bob, "", http.StatusBadRequest, codeBadParameter)
	r.refused(t, http.MethodGet, "/letters/1/payload?maxBytes=0", bob, "", http.StatusBadRequest, codeBadParameter)
}
