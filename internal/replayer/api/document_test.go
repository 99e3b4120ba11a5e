package api

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// called is one request of each operation that is answered with success, by operationId.
func called() map[string]struct {
	method, path, body string
	status             int
} {
	type call = struct {
		method, path, body string
		status             int
	}
	get := func(path string) call { return call{http.MethodGet, path, "", http.StatusOK} }
	post := func(path, body string, status int) call { return call{http.MethodPost, path, body, status} }
	return map[string]call{
		"listLetters":      get("/letters?state=dead&limit=2"),
		"countLetters":     get("/count?topic=orders.dlt"),
		"exportLetters":    get("/export?payload=true"),
		"groupLetters":     get("/groups?by=reason"),
		"getLetter":        get("/letters/1"),
		"getPayload":       get("/letters/1/payload"),
		"getValue":         get("/letters/1/value"),
		"getLetterHistory": get("/letters/3/history"),
		"getHistory":       get("/history?messageId=m1"),
		"getStats":         get("/stats"),
		"getProgress":      get("/progress"),
		"createPlan":       post("/plans", `{"filter":{"state":["dead"],"topic":["orders.dlt"]}}`, http.StatusOK),
		"listJobs":         get("/jobs"),
		"createJob":        post("/jobs", `{"filter":{"id":[1]},"reason":"repaired"}`, http.StatusCreated),
		"getJob":           get("/jobs/" + jobOfBob),
		"listItems":        get("/jobs/" + jobOfAlice + "/items?state=done"),
		"pauseJob":         post("/jobs/"+jobOfBob+"/pause", "", http.StatusOK),
		"resumeJob":        post("/jobs/"+jobOfBob+"/resume", `{"reason":"calm again"}`, http.StatusOK),
		"cancelJob":        post("/jobs/"+jobOfBob+"/cancel", `{}`, http.StatusOK),
		"rateJob":          post("/jobs/"+jobOfBob+"/rate", `{"rate":5}`, http.StatusOK),
		"discardLetters":   post("/discards", `{"filter":{"id":[1]},"reason":"old"}`, http.StatusOK),
		"undiscardLetters": post("/undiscards", `{"filter":{"id":[5]},"reason":"needed"}`, http.StatusOK),
		"purgeLetters":     post("/purges", `{"filter":{"state":["replayed"]},"all":true,"reason":"old"}`, http.StatusOK),
		"listExpiring":     get("/expiring?within=3d&topic=orders.dlt&outlook=true"),
		"rescueLetters":    post("/rescues", `{"filter":{"id":[1]},"reason":"retention is near"}`, http.StatusOK),
		"listAudit":        get("/audit"),
		"whoAmI":           get("/whoami"),
		"getVersion":       get("/version"),
		"getDocumentYaml":  get("/openapi.yaml"),
		"getDocumentJson":  get("/openapi.json"),
	}
}

func TestEveryOperationAnswersAsTheDocumentSays(t *testing.T) {
	r := newRig(t)
	var missing []string
	for _, methods := range r.contract.paths {
		for _, op := range methods {
			if id := op.(map[string]any)["operationId"].(string); called()[id].path == "" {
				missing = append(missing, id)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("operations without a request here: %v", missing)
	}
	for id, c := range called() {
		t.Run(id, func(t *testing.T) {
			r.fresh()
			if a := r.call(t, c.method, c.path, alice, c.body); a.StatusCode != c.status {
				t.Fatalf("status %d, want %d: %s", a.StatusCode, c.status, a.body)
			}
			if !slices.ContainsFunc([]string{"200", "201"}, func(s string) bool { return r.contract.seen[id+" "+s] }) {
				t.Errorf("the request is not of this operation, but of %v", r.contract.seen)
			}
		})
	}
}

// routes notes what is registered.
type routes struct{ patterns []string }

func (r *routes) HandleFunc(pattern string, _ func(http.ResponseWriter, *http.Request)) {
	r.patterns = append(r.patterns, pattern)
}
func (r *routes) ServeHTTP(http.ResponseWriter, *http.Request) {}

func TestTheRoutesAreThoseOfTheDocument(t *testing.T) {
	doc, err := readDocument(documentYAML)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for pattern := range doc.operations {
		want = append(want, pattern)
	}
	served := &routes{}
	HandlerWithOptions(&operations{}, StdHTTPServerOptions{BaseURL: basePath, BaseRouter: served})
	slices.Sort(want)
	slices.Sort(served.patterns)
	if diff := cmp.Diff(want, served.patterns); diff != "" {
		t.Errorf("in the document (-) and served (+):\n%s", diff)
	}
}

func TestADocumentThatGivesNoRoleIsRefused(t *testing.T) {
	without := strings.Replace(string(documentYAML), "x-redrive-role: admin", "x-redrive-role: chief", 1)
	if _, err := readDocument([]byte(without)); err == nil || !strings.Contains(err.Error(), "/purges") {
		t.Errorf("got %v, want an error that names /purges", err)
	}
}

// Filters of the query and of a body are read by one function, which goes by these names.
func TestAFilterHasTheSameNamesInAQueryAndInABody(t *testing.T) {
	doc, err := readDocument(documentYAML)
	if err != nil {
		t.Fatal(err)
	}
	query := slices.Sorted(slices.Values(doc.operations["GET "+basePath+"/count"].query))
	var body []string
	for name := range newContractSchemas(t)["Filter"].(map[string]any)["properties"].(map[string]any) {
		body = append(body, name)
	}
	slices.Sort(body)
	if diff := cmp.Diff(body, query); diff != "" {
		t.Errorf("in the body (-) and the query (+):\n%s", diff)
	}
	for _, path := range []string{"/letters", "/export", "/groups"} {
		for _, name := range query {
			if !slices.Contains(doc.operations["GET "+basePath+path].query, name) {
				t.Errorf("%s does not filter by %s", path, name)
			}
		}
	}
}

// The statuses of codes are promised in the document, and decided in aboutCode.
func TestEveryCodeOfAProblemIsInTheDocumentWithItsStatus(t *testing.T) {
	text := newContractSchemas(t)["Problem"].(map[string]any)["properties"].(map[string]any)["code"].(map[string]any)["description"].(string)
	documented := map[string]int{}
	for part := range strings.SplitSeq(text, "* ") {
		status, codes, ok := strings.Cut(part, ":")
		number, err := strconv.Atoi(status)
		if !ok || err != nil {
			continue
		}
		for code := range strings.SplitSeq(codes, ",") {
			documented[strings.TrimSpace(code)] = number
		}
	}
	source, err := os.ReadFile("problem.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`(?m)^\tcode[A-Z]\w+ += "([a-z_]+)"$`).FindAllSubmatch(source, -1)
	if len(codes) < 25 {
		t.Fatalf("%d codes found in the source", len(codes))
	}
	for _, c := range codes {
		if code := string(c[1]); documented[code] == 0 {
			t.Errorf("%s is not in the document", code)
		}
	}
	for code, status := range documented {
		if got := aboutCode(code).status; got != status {
			t.Errorf("%s is %d, and %d in the document", code, got, status)
		}
	}
}
