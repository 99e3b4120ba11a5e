package api

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
	"github.com/kafka-redrive/redrive/internal/spelling"
)

// The codes of problems. They outlive releases: scripts hold them. Those of a refused replay are of package replay.
const (
	codeBadRequest         = "bad_request"
	codeUnknownParameter   = "unknown_parameter"
	codeBadParameter       = "bad_parameter"
	codeMissingParameter   = "missing_parameter"
	codeBadCursor          = "bad_cursor"
	codeBadBody            = "bad_body"
	codeUnknownField       = "unknown_field"
	codeReasonMissing      = "reason_missing"
	codeFilterEmpty        = "filter_empty"
	codeUnauthenticated    = "unauthenticated"
	codeForbidden          = "forbidden"
	codeCrossOrigin        = "cross_origin"
	codeNoRoute            = "no_route"
	codeUnknown            = "unknown"
	codeNothingSelected    = "nothing_selected"
	codeMethodNotAllowed   = "method_not_allowed"
	codeWrongState         = "wrong_state"
	codeCountChanged       = "count_changed"
	codeCountNeeded        = "count_needed"
	codeKeyReused          = "key_reused"
	codeBytesGone          = "bytes_gone"
	codeBytesChanged       = "bytes_changed"
	codeBodyTooLarge       = "body_too_large"
	codeBadContentType     = "bad_content_type"
	codeWrongHost          = "wrong_host"
	codeInternal           = "internal"
	codeLedgerUnavailable  = "ledger_unavailable"
	codeKafkaUnavailable   = "kafka_unavailable"
	codeClientGone         = "client_gone" // Nobody reads it; it is a label of the metric.
	statusClientGone       = 499
	retryAfterUnavailable  = 5 * time.Second
	ledgerQuestionDeadline = 2 * time.Second
)

// about is the status and the title of a code.
type about struct {
	status int
	title  string
}

func aboutCode(code string) about {
	switch code {
	case codeBadRequest:
		return about{http.StatusBadRequest, "The request can not be read"}
	case codeUnknownParameter:
		return about{http.StatusBadRequest, "There is no such query parameter"}
	case codeBadParameter:
		return about{http.StatusBadRequest, "A parameter has a value that is not possible"}
	case codeMissingParameter:
		return about{http.StatusBadRequest, "A parameter is missing"}
	case codeBadCursor:
		return about{http.StatusBadRequest, "The cursor is not of this list"}
	case codeBadBody:
		return about{http.StatusBadRequest, "The body is not what the operation takes"}
	case codeUnknownField:
		return about{http.StatusBadRequest, "The body has a field that does not exist"}
	case codeReasonMissing:
		return about{http.StatusBadRequest, "A reason is missing"}
	case codeFilterEmpty:
		return about{http.StatusBadRequest, "The filter selects everything"}
	case codeUnauthenticated:
		return about{http.StatusUnauthorized, "A valid token is needed"}
	case codeForbidden:
		return about{http.StatusForbidden, "The token does not allow it"}
	case codeCrossOrigin:
		return about{http.StatusForbidden, "Requests of other sites are refused"}
	case codeNoRoute:
		return about{http.StatusNotFound, "There is nothing at this address"}
	case codeUnknown:
		return about{http.StatusNotFound, "It is not in the ledger"}
	case codeNothingSelected:
		return about{http.StatusNotFound, "Nothing is selected"}
	case codeMethodNotAllowed:
		return about{http.StatusMethodNotAllowed, "The address has no such method"}
	case codeBodyTooLarge:
		return about{http.StatusRequestEntityTooLarge, "The body is too large"}
	case codeBadContentType:
		return about{http.StatusUnsupportedMediaType, "The body must be application/json"}
	case codeWrongHost:
		return about{http.StatusMisdirectedRequest, "The server does not answer under this host name"}
	case codeInternal:
		return about{http.StatusInternalServerError, "The server has a fault"}
	case codeLedgerUnavailable:
		return about{http.StatusServiceUnavailable, "The ledger does not answer"}
	case codeKafkaUnavailable:
		return about{http.StatusServiceUnavailable, "Kafka does not answer"}
	case codeWrongState:
		return about{http.StatusConflict, "Its state does not allow it"}
	case codeCountChanged:
		return about{http.StatusConflict, "The count is another one"}
	case codeCountNeeded:
		return about{http.StatusConflict, "So many need the count that is expected"}
	case string(replay.CodeInvalid):
		return about{http.StatusBadRequest, "The replay can not be asked for in this way"}
	case codeBytesGone:
		return about{http.StatusGone, "The bytes are gone"}
	case codeBytesChanged:
		return about{http.StatusGone, "Other bytes are in their place"}
	case codeKeyReused:
		return about{http.StatusConflict, "The Idempotency-Key is of another request"}
	default:
		return about{http.StatusConflict, "The replay is refused"}
	}
}

// problem is an error with all that its answer says.
type problem struct {
	code      string
	detail    string
	parameter string
	nearest   string
	allowed   []string
	letter    int64
	count     *int64
	history   []Item
}

func (p *problem) Error() string { return p.code + ": " + p.detail }

func newProblem(code, format string, args ...any) *problem {
	return &problem{code: code, detail: fmt.Sprintf(format, args...)}
}

// badParameter is about a parameter of the query or a field of the body.
func badParameter(name, format string, args ...any) *problem {
	p := newProblem(codeBadParameter, format, args...)
	p.parameter = name
	return p
}

// notOneOf is about a value that is none of a closed list.
func notOneOf(name, value string, allowed []string) *problem {
	p := badParameter(name, "%s must be one of %s", name, strings.Join(allowed, ", "))
	p.nearest, p.allowed = spelling.Nearest(value, allowed), allowed
	return p
}

// answer is the problem as it is sent.
func (p *problem) answer() Problem {
	a := aboutCode(p.code)
	answer := Problem{
		Type: "urn:redrive:problem:" + p.code, Title: a.title, Status: int32(a.status), Code: p.code, Detail: p.detail,
		Allowed: p.allowed, History: p.history, Count: p.count,
	}
	if p.parameter != "" {
		answer.Parameter = &p.parameter
	}
	if p.nearest != "" {
		answer.Nearest = &p.nearest
	}
	if p.letter != 0 {
		answer.Letter = &p.letter
	}
	return answer
}

// write sends the problem.
func (p *problem) write(w http.ResponseWriter) {
	status := aboutCode(p.code).status
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="redrive"`)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfterUnavailable.Seconds())))
	}
	body, err := json.Marshal(p.answer())
	if err != nil {
		body = []byte("{}") // It has only text and numbers.
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // A reader that is gone needs no answer.
}

// replayerError marks an error of the replayer, which talks to Kafka as well as to the ledger.
type replayerError struct{ err error }

func (e *replayerError) Error() string { return e.err.Error() }
func (e *replayerError) Unwrap() error { return e.err }

// ofReplayer marks an error as one of the replayer.
func ofReplayer(err error) error {
	if err == nil {
		return nil
	}
	return &replayerError{err}
}

// problemOf makes a problem of any error.
func (o *operations) problemOf(r *http.Request, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if refusal, ok := errors.AsType[*replay.Refusal](err); ok {
		return o.refused(r, refusal)
	}
	switch {
	case errors.Is(err, deadletter.ErrUnknown):
		return newProblem(codeUnknown, "%s", err)
	case errors.Is(err, deadletter.ErrState):
		return newProblem(codeWrongState, "%s", err)
	case errors.Is(err, deadletter.ErrCursor):
		p := newProblem(codeBadCursor, "the cursor belongs to another filter or order, or is no cursor")
		p.parameter = "cursor"
		return p
	case errors.Is(err, fetch.ErrGone):
		return newProblem(codeBytesGone, "%s", err)
	case errors.Is(err, replay.ErrChanged):
		return newProblem(codeBytesChanged, "%s", err)
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		return newProblem(codeClientGone, "the client is gone")
	case errors.Is(err, deadletter.ErrNewer), errors.Is(err, deadletter.ErrOlder):
		return newProblem(codeLedgerUnavailable, "%s", err)
	}
	// Whether it is down now says more than what the error looks like: a connection that broke in the middle has many faces.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), ledgerQuestionDeadline)
	defer cancel()
	down := o.ledger.Ping(ctx) != nil
	_, fromReplayer := errors.AsType[*replayerError](err)
	switch {
	case down:
		return newProblem(codeLedgerUnavailable, "the ledger does not answer; nothing is lost, and the request may be repeated")
	case unavailable(err) && fromReplayer:
		return newProblem(codeKafkaUnavailable, "Kafka does not answer in time; the request may be repeated")
	case unavailable(err):
		return newProblem(codeLedgerUnavailable, "the ledger did not answer in time; the request may be repeated")
	default:
		return newProblem(codeInternal, "the log of the server says more")
	}
}

// unavailable tells whether an error is about a server that was not reached, or not in time, and not about the request.
func unavailable(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	// Kafka's own errors are about brokers and topics, never about the words of a request.
	if kafka.Code(err) != "other" || kafka.Classify(err) == kafka.Canceled {
		return true
	}
	// Of Postgres: connection exceptions, too few resources, an operator's intervention, and conflicts that a repetition ends.
	if state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		code := state.SQLState()
		return len(code) == 5 && slices.Contains([]string{"08", "53", "57", "40"}, code[:2])
	}
	if trouble, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		return slices.Contains(sqliteTrouble(), trouble.Code()&0xff)
	}
	return false
}

// sqliteTrouble are the codes of SQLite about its file and disk: busy, locked, read-only, interrupted, input or output, full,
// can not be opened.
func sqliteTrouble() []int { return []int{5, 6, 8, 9, 10, 13, 14} }

// refused is a refusal of the replayer, with what was done with the letter before as far as the caller may see it.
func (o *operations) refused(r *http.Request, refusal *replay.Refusal) *problem {
	p := newProblem(string(refusal.Code), "%s", refusal.Detail)
	p.letter = refusal.Letter
	for i := range refusal.History {
		if item := &refusal.History[i]; callerOf(r).sees(item.Letter.Place.Topic) {
			p.history = append(p.history, itemOf(item))
		}
	}
	return p
}

// fail answers with the problem that an error is.
func (o *operations) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := o.problemOf(r, err)
	switch p.code {
	case codeClientGone:
		w.WriteHeader(statusClientGone)
		return
	case codeInternal:
		o.log.ErrorContext(r.Context(), "request failed", "route", r.Pattern, "err", err)
	case codeLedgerUnavailable, codeKafkaUnavailable:
		o.log.WarnContext(r.Context(), "request has to wait", "route", r.Pattern, "err", err)
	}
	p.write(w)
}
