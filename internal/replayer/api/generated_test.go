package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// generator makes requests from the document: most as it says, some with a value here and there that it forbids.
type generator struct {
	t          *rapid.T
	components map[string]map[string]any // by kind, such as schemas, and name
	jobs       []string
}

// oneIn is true once in so many times.
func (g *generator) oneIn(n int) bool { return rapid.IntRange(1, n).Draw(g.t, "one in") == n }

func (g *generator) resolve(node map[string]any) map[string]any {
	ref, ok := node["$ref"].(string)
	if !ok {
		return node
	}
	parts := strings.Split(ref, "/")
	return g.components[parts[2]][parts[3]].(map[string]any)
}

// text is what a client may well send, what it may not, and what an attacker does.
func (g *generator) text() string {
	if g.oneIn(2) {
		return rapid.SampledFrom(hostile()).Draw(g.t, "hostile")
	}
	return rapid.SampledFrom([]string{"orders.dlt", "orders.dlt/3", "orders", "f", "Timeout", "k"}).Draw(g.t, "known")
}

// value is one that a schema allows, or sometimes not.
func (g *generator) value(node map[string]any) any {
	if g.oneIn(25) {
		return rapid.SampledFrom([]any{nil, true, -1, 1e300, "", []any{}, map[string]any{}, []any{nil}, map[string]any{"x": 1}}).Draw(g.t, "wrong")
	}
	schema := g.resolve(node)
	if enum, ok := schema["enum"].([]any); ok {
		return rapid.SampledFrom(enum).Draw(g.t, "enum")
	}
	switch schema["type"] {
	case "boolean":
		return rapid.Bool().Draw(g.t, "boolean")
	case "integer":
		return rapid.SampledFrom([]any{0, 1, 2, 3, 20, 1000, int64(1) << 40}).Draw(g.t, "integer")
	case "number":
		return rapid.SampledFrom([]any{0.001, 1, 0.5, 1e9}).Draw(g.t, "number")
	case "array":
		list := make([]any, rapid.IntRange(0, 3).Draw(g.t, "length"))
		for i := range list {
			list[i] = g.value(schema["items"].(map[string]any))
		}
		return list
	case "object":
		return g.object(schema)
	default:
		if schema["format"] == "date-time" && !g.oneIn(10) {
			return rapid.SampledFrom([]any{"2026-03-04T05:06:07Z", "2026-03-05T05:06:07.123456789+02:00", "1970-01-01T00:00:00Z", "2199-01-01T00:00:00Z"}).Draw(g.t, "time")
		}
		return g.text()
	}
}

func (g *generator) object(schema map[string]any) any {
	out := map[string]any{}
	required, _ := schema["required"].([]any)
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range keysOf(properties) {
		if slices.Contains(required, any(name)) && !g.oneIn(25) || g.oneIn(4) {
			out[name] = g.value(properties[name].(map[string]any))
		}
	}
	if of, ok := schema["additionalProperties"].(map[string]any); ok && g.oneIn(2) {
		out[g.text()] = g.value(of)
	}
	return out
}

// request is one of an operation.
func (g *generator) request(t *testing.T, method, path string, op map[string]any) *http.Request {
	query, header := url.Values{}, http.Header{}
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		parameter := g.resolve(p.(map[string]any))
		name, schema := parameter["name"].(string), parameter["schema"].(map[string]any)
		switch parameter["in"] {
		case "path":
			text := fmt.Sprint(rapid.IntRange(1, 22).Draw(g.t, "letter"))
			if name == "job" {
				text = rapid.SampledFrom(g.jobs).Draw(g.t, "job")
			}
			if g.oneIn(8) {
				text = g.text()
			}
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(text))
		case "query":
			if parameter["required"] != true && !g.oneIn(5) {
				continue
			}
			values, ok := g.value(schema).([]any)
			if !ok {
				values = []any{g.value(schema)}
			}
			for _, v := range values {
				query.Add(name, fmt.Sprint(v))
			}
		case "header":
			header.Set(name, g.text())
		}
	}
	var body io.Reader
	if r, ok := op["requestBody"].(map[string]any); ok {
		schema := g.resolve(r)["content"].(map[string]any)["application/json"].(map[string]any)["schema"].(map[string]any)
		text, err := json.Marshal(g.value(schema))
		if err != nil {
			t.Fatal(err)
		}
		body = strings.NewReader(string(text))
		header.Set("Content-Type", "application/json")
	}
	req := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+basePath+path+"?"+query.Encode(), body)
	req.Header = header
	req.Header.Set("Authorization", "Bearer "+rapid.SampledFrom([]string{alice, alice, alice, bob, carol, dave}).Draw(g.t, "who"))
	return req
}

// Whatever a client makes of the document, the answer is as the document says, and blames the request if anything.
func TestEveryRequestMadeFromTheDocumentIsAnsweredAsItSays(t *testing.T) {
	onEachLedger(t, quiet, func(t *testing.T, r *rig) {
		job := into[Job](t, r.call(t, http.MethodPost, "/jobs", alice, `{"filter":{"origin":["orders"]},"reason":"r"}`))
		var content struct {
			Components map[string]map[string]any `json:"components"`
		}
		if err := json.Unmarshal(r.handler.operations.document.json, &content); err != nil {
			t.Fatal(err)
		}
		answered := map[bool]int{}
		rapid.Check(t, func(rt *rapid.T) {
			g := &generator{t: rt, components: content.Components, jobs: []string{job.ID, noJob}}
			for _, path := range keysOf(r.contract.paths) {
				for _, method := range keysOf(r.contract.paths[path]) {
					req := g.request(t, strings.ToUpper(method), path, r.contract.paths[path][method].(map[string]any))
					rec := httptest.NewRecorder()
					r.handler.ServeHTTP(rec, req)
					a := &answer{Response: rec.Result(), body: rec.Body.Bytes()}
					r.contract.check(rt, req, a)
					if a.StatusCode >= http.StatusInternalServerError {
						rt.Fatalf("%s %s: %d %s", req.Method, req.URL, a.StatusCode, a.body)
					}
					answered[a.StatusCode < http.StatusBadRequest]++
				}
			}
		})
		// A generator that is always refused would look at nothing behind the first check.
		if answered[true] < answered[false]/4 {
			t.Errorf("%d requests were answered and %d refused", answered[true], answered[false])
		}
		t.Logf("%d requests were answered and %d refused", answered[true], answered[false])
	})
}
