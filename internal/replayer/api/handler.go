package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kafka-redrive/redrive/internal/spelling"
	"github.com/kafka-redrive/redrive/internal/tracing"
)

// handler does what all operations have in common, in this order: headers, host, caller, route, role, origin, parameters,
// limits; and then the operation.
type handler struct {
	operations *operations
	mux        *http.ServeMux
	origins    *http.CrossOriginProtection
	tokens     tokenList
	metrics    *metrics
}

func newHandler(options Options) (*handler, error) {
	doc, err := readDocument(documentYAML)
	if err != nil {
		return nil, err
	}
	maxBody := options.MaxBody
	if maxBody == 0 {
		maxBody = defaultMaxBody
	}
	h := &handler{
		operations: &operations{
			ledger: options.Ledger, replayer: options.Replayer, radar: options.Radar, document: doc, topics: slices.Clone(options.Topics),
			bulkLimit: options.BulkLimit, maxBody: maxBody, version: options.Version,
			log: options.Logger.With("component", "api"),
		},
		mux:     http.NewServeMux(),
		origins: http.NewCrossOriginProtection(),
		metrics: newMetrics(),
	}
	tokens := slices.Clone(options.Tokens)
	h.tokens.Store(&tokens)
	HandlerWithOptions(h.operations, StdHTTPServerOptions{BaseURL: basePath, BaseRouter: h.mux, ErrorHandlerFunc: h.badParameter})
	return h, nil
}

// recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader is that of http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write is that of http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach what is below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// otherRoute is the label of what no route is for.
const otherRoute = "other"

// clean tells whether a path has no part that is empty, . or .. in it.
func clean(u *url.URL) bool { return path.Clean(u.EscapedPath()) == u.EscapedPath() }

// ServeHTTP is that of http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	rec := &recorder{ResponseWriter: w}
	_, route := h.mux.Handler(r)
	// The mux would redirect what is not clean, to where nobody asked to go.
	if _, ok := h.operations.document.operations[route]; !ok || !clean(r.URL) {
		route = otherRoute
	} else {
		tracing.Route(r.Context(), route)
	}
	defer h.end(r, rec, route, began)
	headers := rec.Header()
	headers.Set("Cache-Control", "no-store")
	headers.Set("X-Content-Type-Options", "nosniff")
	headers.Set("X-Frame-Options", "DENY")
	headers.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	headers.Set("Cross-Origin-Resource-Policy", "same-origin")
	headers.Set("Referrer-Policy", "no-referrer")
	h.serve(rec, r, route)
}

// end counts a request. It must be deferred itself: one that panicked ends with its connection, because whoever reads a part of
// an answer must not take it for the whole.
func (h *handler) end(r *http.Request, rec *recorder, route string, began time.Time) {
	fault := recover()
	status := rec.status
	if fault != nil {
		status = http.StatusInternalServerError
		if err, ok := fault.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			h.operations.log.ErrorContext(r.Context(), "request panicked", "route", route, "panic", fault)
		}
	}
	h.metrics.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	h.metrics.seconds.WithLabelValues(route).Observe(time.Since(began).Seconds())
	if fault != nil {
		panic(http.ErrAbortHandler)
	}
}

// serve checks a request and hands it to its operation.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, route string) {
	tokens := *h.tokens.Load()
	if len(tokens) == 0 && !loopbackHost(r.Host) {
		h.metrics.refused.WithLabelValues("host").Inc()
		newProblem(codeWrongHost, "without tokens the server answers under localhost and loopback addresses only").write(w)
		return
	}
	op, known := h.operations.document.operations[route]
	if !known || !op.public {
		who, why := authenticate(tokens, r)
		if who == nil {
			h.metrics.refused.WithLabelValues(why).Inc()
			newProblem(codeUnauthenticated, "send the token as Authorization: Bearer; what came with the request is %s", why).write(w)
			return
		}
		r = r.WithContext(withCaller(r.Context(), who))
	}
	if !known {
		h.noRoute(w, r)
		return
	}
	if c := callerOf(r); !op.public && !c.may(op.role) {
		h.metrics.refused.WithLabelValues("role").Inc()
		forbidden(c, op.role, "this operation").write(w)
		return
	}
	if err := h.origins.Check(r); err != nil {
		h.metrics.refused.WithLabelValues("origin").Inc()
		newProblem(codeCrossOrigin, "the request comes from a page of another site").write(w)
		return
	}
	if p := checkQuery(r.URL, op.query); p != nil {
		p.write(w)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, h.operations.maxBody)
	if limit := timeLimit(r.Method, route); limit > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		r = r.WithContext(ctx)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit + writeTimeout)) // Not all writers have one.
	}
	h.mux.ServeHTTP(w, r)
}

// timeLimit is how long an operation may take; 0 is no limit.
func timeLimit(method, route string) time.Duration {
	switch {
	case strings.HasSuffix(route, "/export"):
		return 0 // It ends when all is told, or when the reader takes nothing any more.
	case method == http.MethodPost:
		return effectTimeout
	default:
		return requestTimeout
	}
}

// forbidden is about a caller that is known and may not.
func forbidden(c *caller, role Role, what string) *problem {
	return newProblem(codeForbidden, "%s needs the role %s, and %q has %s", what, role, c.name, c.role)
}

// noRoute answers where no operation is: with the methods that there are, or with the address that was probably meant.
func (h *handler) noRoute(w http.ResponseWriter, r *http.Request) {
	var methods []string
	for _, method := range pathMethods() {
		other := r.Clone(r.Context())
		other.Method = method
		if _, route := h.mux.Handler(other); route != "" && clean(r.URL) {
			methods = append(methods, method)
		}
	}
	if len(methods) > 0 {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		p := newProblem(codeMethodNotAllowed, "the methods here are %s", strings.Join(methods, ", "))
		p.allowed = methods
		p.write(w)
		return
	}
	p := newProblem(codeNoRoute, "the operations are described at %s/openapi.yaml", basePath)
	var paths []string
	for route := range h.operations.document.operations {
		_, address, _ := strings.Cut(route, " ")
		paths = append(paths, address)
	}
	slices.Sort(paths) // A map has no order, and the answer shall be the same each time.
	p.nearest = spelling.Nearest(r.URL.Path, paths)
	p.write(w)
}

// checkQuery refuses a query that can not be read as it was meant.
func checkQuery(u *url.URL, names []string) *problem {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return newProblem(codeBadRequest, "the query can not be read")
	}
	for name, values := range query {
		if !slices.Contains(names, name) {
			p := newProblem(codeUnknownParameter, "there is no query parameter %q here", strings.ToValidUTF8(name, "\uFFFD"))
			p.parameter, p.nearest = strings.ToValidUTF8(name, "\uFFFD"), spelling.Nearest(name, names)
			return p
		}
		for _, v := range values {
			if !utf8.ValidString(v) {
				return badParameter(name, "%s is not valid UTF-8", name)
			}
		}
	}
	return nil
}

// badParameter answers where the generated code could not read a parameter.
func (h *handler) badParameter(w http.ResponseWriter, r *http.Request, err error) {
	if invalid, ok := errors.AsType[*InvalidParamFormatError](err); ok {
		if invalid.ParamName == "letter" {
			newProblem(codeUnknown, "a letter has a number, such as 42").write(w)
			return
		}
		badParameter(invalid.ParamName, "%s has a value that can not be read, or stands twice", invalid.ParamName).write(w)
		return
	}
	if missing, ok := errors.AsType[*RequiredParamError](err); ok {
		p := newProblem(codeMissingParameter, "%s must be given", missing.ParamName)
		p.parameter = missing.ParamName
		p.write(w)
		return
	}
	if many, ok := errors.AsType[*TooManyValuesForParamError](err); ok {
		badParameter(many.ParamName, "%s stands %d times", many.ParamName, many.Count).write(w)
		return
	}
	newProblem(codeBadRequest, "a parameter can not be read").write(w)
}

// answer sends a JSON object.
func (o *operations) answer(w http.ResponseWriter, r *http.Request, status int, body any) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		o.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // A reader that is gone needs no answer.
}

// GetDocumentYaml answers GET /openapi.yaml.
func (o *operations) GetDocumentYaml(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(documentYAML) // A reader that is gone needs no answer.
}

// GetDocumentJSON answers GET /openapi.json.
func (o *operations) GetDocumentJSON(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(o.document.json) // A reader that is gone needs no answer.
}
