package api

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The tokens of the rig, named as their holders.
const (
	alice = "alice-secret" // admin
	bob   = "bob-secret"   // operator
	carol = "carol-secret" // viewer
	dave  = "dave-secret"  // operator of orders.dlt
)

func token(name, secret string, role Role, topics ...string) Token {
	return Token{Name: name, Role: role, SHA256: sha256.Sum256([]byte(secret)), Topics: topics}
}

func allTokens() []Token {
	return []Token{
		token("alice", alice, RoleAdmin), token("bob", bob, RoleOperator), token("carol", carol, RoleViewer),
		token("dave", dave, RoleOperator, "orders.dlt"),
	}
}

// rig is a server without a network. Every answer is held against the document.
type rig struct {
	ledger   *fakeLedger
	replayer *fakeReplayer
	radar    *fakeRadar
	registry *prometheus.Registry
	handler  *handler
	contract *contract
}

func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{ledger: newFakeLedger(), replayer: newFakeReplayer(), radar: &fakeRadar{}, registry: prometheus.NewPedanticRegistry(), contract: theContract(t)}
	log := testkit.Logger(t)
	options := Options{
		Ledger: r.ledger, Replayer: r.replayer, Radar: r.radar, Topics: []string{"orders.dlt", "payments.dlt"}, Tokens: allTokens(),
		MaxBody: 4096, BulkLimit: 2, Version: "1.2.3", Logger: log,
	}
	for _, c := range change {
		c(&options)
	}
	var err error
	if r.handler, err = newHandler(options); err != nil {
		t.Fatal(err)
	}
	if err := r.handler.metrics.register(r.registry); err != nil {
		t.Fatal(err)
	}
	return r
}

// fresh gives the rig a ledger and a replayer that nothing has been done to.
func (r *rig) fresh() {
	r.ledger, r.replayer = newFakeLedger(), newFakeReplayer()
	r.handler.operations.ledger, r.handler.operations.replayer = r.ledger, r.replayer
}

// open is a rig without tokens.
func open(o *Options) { o.Tokens = nil }

// quiet is for fuzz targets, which would log without end.
func quiet(o *Options) { o.Logger = slog.New(slog.DiscardHandler) }

// answer is what came back.
type answer struct {
	*http.Response
	body []byte
}

// into reads the body.
func into[T any](t testing.TB, a *answer) T {
	t.Helper()
	var out T
	if err := json.Unmarshal(a.body, &out); err != nil {
		t.Fatalf("read %s: %v", a.body, err)
	}
	return out
}

// request is one to a path below /api/v1.
func request(t testing.TB, method, path, secret, body string) *http.Request {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:9402"+basePath+path, strings.NewReader(body))
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// do sends a request and checks the answer against the document.
func (r *rig) do(t testing.TB, req *http.Request) *answer {
	t.Helper()
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, req)
	a := &answer{Response: rec.Result()}
	a.body, _ = io.ReadAll(a.Body)
	r.contract.check(t, req, a)
	return a
}

func (r *rig) call(t testing.TB, method, path, secret, body string) *answer {
	t.Helper()
	return r.do(t, request(t, method, path, secret, body))
}

// refused sends a request, and wants that problem.
func (r *rig) refused(t *testing.T, method, path, secret, body string, status int, code string) Problem {
	t.Helper()
	a := r.call(t, method, path, secret, body)
	return isProblem(t, a, status, code)
}

func isProblem(t *testing.T, a *answer, status int, code string) Problem {
	t.Helper()
	if a.StatusCode != status {
		t.Fatalf("status %d with %s, want %d %s", a.StatusCode, a.body, status, code)
	}
	p := into[Problem](t, a)
	if p.Code != code {
		t.Fatalf("problem %s, want %s", a.body, code)
	}
	return p
}

// reporter is what a test and a property have in common.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// contract is openapi.yaml as a check of answers. Schemas are made strict: what is not written down must not be there.
type contract struct {
	paths    map[string]map[string]any
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema
	seen     map[string]bool // operation and status
}

// sharedContract is made once: it is the dearest part of a rig.
var sharedContract struct {
	once sync.Once
	c    *contract
}

// theContract is the contract, which has seen nothing yet. Tests of this package do not run side by side.
func theContract(t testing.TB) *contract {
	t.Helper()
	sharedContract.once.Do(func() { sharedContract.c = newContract(t) })
	sharedContract.c.seen = map[string]bool{}
	return sharedContract.c
}

const schemaURL = "https://redrive.invalid/openapi.json"

func newContract(t testing.TB) *contract {
	t.Helper()
	doc, err := readDocument(documentYAML)
	if err != nil {
		t.Fatal(err)
	}
	content, err := jsonschema.UnmarshalJSON(strings.NewReader(string(doc.json)))
	if err != nil {
		t.Fatal(err)
	}
	top := content.(map[string]any)
	for _, s := range top["components"].(map[string]any)["schemas"].(map[string]any) {
		schema := s.(map[string]any)
		if _, given := schema["additionalProperties"]; schema["properties"] != nil && !given {
			schema["additionalProperties"] = false
		}
	}
	c := &contract{
		paths: map[string]map[string]any{}, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, seen: map[string]bool{},
	}
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource(schemaURL, content); err != nil {
		t.Fatal(err)
	}
	for path, methods := range top["paths"].(map[string]any) {
		c.paths[path] = methods.(map[string]any)
	}
	return c
}

// operation finds the operation that a request is of, and the path that the document has for it.
func (c *contract) operation(req *http.Request) (path string, op map[string]any) {
	method := strings.ToLower(req.Method)
	if method == "head" {
		method = "get"
	}
	got := strings.Split(strings.TrimPrefix(req.URL.EscapedPath(), basePath), "/")
	for path, methods := range c.paths {
		want := strings.Split(path, "/")
		if len(want) != len(got) || methods[method] == nil {
			continue
		}
		if !slices.ContainsFunc(want, func(part string) bool {
			i := slices.Index(want, part)
			return part != got[i] && (!strings.HasPrefix(part, "{") || got[i] == "")
		}) {
			return path, methods[method].(map[string]any)
		}
	}
	return "", nil
}

// check holds an answer against the document: the status, the type, the schema, and what all answers have.
func (c *contract) check(t reporter, req *http.Request, a *answer) {
	t.Helper()
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Access-Control-Allow-Origin": "",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s %s: header %s is %q, want %q", req.Method, req.URL, name, got, want)
		}
	}
	at := schemaURL + "#/components/responses/ProblemAnswer"
	kinds := map[string]any{"application/problem+json": nil}
	if path, op := c.operation(req); op != nil && a.StatusCode < 300 {
		response, ok := op["responses"].(map[string]any)[strconv.Itoa(a.StatusCode)].(map[string]any)
		if !ok {
			t.Errorf("%s %s: status %d is not in the document", req.Method, path, a.StatusCode)
			return
		}
		c.seen[op["operationId"].(string)+" "+strconv.Itoa(a.StatusCode)] = true
		escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(path)
		at = schemaURL + "#/paths/" + escaped + "/" + strings.ToLower(req.Method) + "/responses/" + strconv.Itoa(a.StatusCode)
		if ref, ok := response["$ref"].(string); ok {
			at = schemaURL + ref
			kinds = map[string]any{"application/json": nil}
		} else {
			kinds, _ = response["content"].(map[string]any)
		}
	} else if a.StatusCode < 300 {
		t.Errorf("%s %s: status %d of an operation that is not in the document", req.Method, req.URL, a.StatusCode)
		return
	}
	if len(kinds) == 0 {
		if len(a.body) > 0 {
			t.Errorf("%s %s: a body where the document has none: %q", req.Method, req.URL, a.body)
		}
		return
	}
	kind := a.Header.Get("Content-Type")
	if _, ok := kinds[kind]; !ok {
		t.Errorf("%s %s: status %d with Content-Type %q, which is not in the document: %s", req.Method, req.URL, a.StatusCode, kind, a.body)
		return
	}
	if req.Method == http.MethodHead {
		return
	}
	at += "/content/" + strings.ReplaceAll(kind, "/", "~1") + "/schema"
	switch kind {
	case "application/json", "application/problem+json":
		c.validate(t, req, at, a.body)
	case "application/jsonl":
		for line := range strings.Lines(string(a.body)) {
			c.validate(t, req, schemaURL+"#/components/schemas/Letter", []byte(line))
		}
	}
}

func (c *contract) validate(t reporter, req *http.Request, at string, body []byte) {
	t.Helper()
	schema := c.schemas[at]
	if schema == nil {
		var err error
		if schema, err = c.compiler.Compile(at); err != nil {
			t.Fatal(err)
		}
		c.schemas[at] = schema
	}
	content, err := jsonschema.UnmarshalJSON(strings.NewReader(string(body)))
	if err == nil {
		err = schema.Validate(content)
	}
	if err != nil {
		t.Errorf("%s %s: %v\n%s", req.Method, req.URL, err, body)
	}
}

// newContractSchemas are the schemas of the document by name.
func newContractSchemas(t testing.TB) map[string]any {
	t.Helper()
	doc, err := readDocument(documentYAML)
	if err != nil {
		t.Fatal(err)
	}
	var content struct {
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(doc.json, &content); err != nil {
		t.Fatal(err)
	}
	return content.Components.Schemas
}

// readAll counts the bytes of an answer.
func readAll(a *http.Response) (int, error) {
	body, err := io.ReadAll(a.Body)
	return len(body), err
}

func keysOf[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
