package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/kafka-redrive/redrive/internal/spelling"
)

// maxReason is how long the reason of an operator can be.
const maxReason = 1024

// decode reads the body of a request. A field that does not exist is an error: a filter with a slip in a name would select
// everything. With optional a request without a body leaves into as it is.
func (o *operations) decode(r *http.Request, into any, optional bool) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return newProblem(codeBodyTooLarge, "the body is larger than %d bytes, which replayer.api.maxBody sets", tooLarge.Limit)
		}
		return newProblem(codeBadBody, "the body could not be read to its end")
	}
	if optional && len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return newProblem(codeBadContentType, "the Content-Type must be application/json")
	}
	if !utf8.Valid(body) {
		return newProblem(codeBadBody, "the body is not valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return badBody(err, into)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return newProblem(codeBadBody, "something follows the JSON object")
	}
	return nil
}

// badBody says what is wrong with a body.
func badBody(err error, into any) *problem {
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		p := newProblem(codeUnknownField, "there is no field %q", name)
		p.parameter, p.nearest = name, spelling.Nearest(name, fieldNames(reflect.TypeOf(into), map[reflect.Type]bool{}))
		return p
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		p := newProblem(codeBadBody, "%s can not be %s", wrong.Field, wrong.Value)
		p.parameter = wrong.Field
		return p
	}
	if errors.Is(err, io.EOF) {
		return newProblem(codeBadBody, "the body is empty")
	}
	return newProblem(codeBadBody, "the body can not be read as JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// fieldNames are the names of all fields of a type and of those it is made of.
func fieldNames(t reflect.Type, seen map[reflect.Type]bool) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	var names []string
	for field := range t.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
			names = append(names, fieldNames(field.Type, seen)...)
		}
	}
	return names
}

// checkReason refuses an effect that nobody says why of.
func checkReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		p := newProblem(codeReasonMissing, "say why, in reason: it stands in the audit trail")
		p.parameter = "reason"
		return p
	}
	return checkText("reason", reason, maxReason)
}
