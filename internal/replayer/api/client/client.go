package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// basePath is where the API is below the URL of the server.
	basePath = "/api/v1"

	// maxProblem is how much of a failed answer is read.
	maxProblem = 1 << 20
)

// Options say which server is asked, and as whom.
type Options struct {
	// URL is the server's, such as http://127.0.0.1:9402. A path is kept, for a proxy that serves the API below one.
	URL string
	// Token is sent as bearer token; empty is none.
	Token string
	// UserAgent is sent if it is not empty.
	UserAgent string
	// HTTP sends the requests; nil is a client with no limit but the context of each call. Redirects are not followed.
	HTTP *http.Client
}

// New returns a client of that server. It sends nothing yet.
func New(options Options) (*ClientWithResponses, error) {
	u, err := url.Parse(options.URL)
	if err != nil {
		return nil, errors.New("the URL of the server can not be read") // The error would repeat a password in it.
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("the URL of the server must begin with http:// or https:// and a host: %q", u.Redacted())
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the URL of the server has no user, query or fragment: %q", u.Redacted())
	}
	if strings.ContainsFunc(options.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the token has characters that no token has")
	}
	sender := http.Client{}
	if options.HTTP != nil {
		sender = *options.HTTP
	}
	sender.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	d := &doer{client: &sender, server: u.Scheme + "://" + u.Host, token: options.Token, agent: options.UserAgent}
	return NewClientWithResponses(strings.TrimSuffix(u.String(), "/")+basePath, WithHTTPClient(d))
}

// Error is an answer that is not a success.
type Error struct {
	// Problem is what the server says about it. Its Code is empty where the answer was no problem, as from a proxy.
	Problem Problem
	// RetryAfter is how long the server asks to wait; 0 is no wish.
	RetryAfter time.Duration
}

// Error is the detail of the problem, with what was meant where the server has a guess.
func (e *Error) Error() string {
	text := e.Problem.Detail
	if text == "" {
		text = e.Problem.Title
	}
	if e.Problem.Parameter != nil && !strings.Contains(text, *e.Problem.Parameter) {
		text = *e.Problem.Parameter + ": " + text
	}
	if e.Problem.Nearest != nil {
		text += fmt.Sprintf(" (did you mean %q?)", *e.Problem.Nearest)
	}
	return text
}

// doer makes a failed answer an error.
type doer struct {
	client               *http.Client
	server, token, agent string
}

// Do is that of HttpRequestDoer.
func (d *doer) Do(r *http.Request) (*http.Response, error) {
	if d.token != "" {
		r.Header.Set("Authorization", "Bearer "+d.token)
	}
	if d.agent != "" {
		r.Header.Set("User-Agent", d.agent)
	}
	answer, err := d.client.Do(r)
	if err != nil {
		// What is inside names the method and the whole query, which nobody wants to read.
		if inner := new(url.Error); errors.As(err, &inner) {
			err = inner.Err
		}
		return nil, fmt.Errorf("ask %s: %w", d.server, err)
	}
	if answer.StatusCode == http.StatusNoContent || answer.StatusCode < http.StatusMultipleChoices && ours(answer) {
		return answer, nil
	}
	defer func() { _ = answer.Body.Close() }()
	return nil, d.failure(answer)
}

// ours tells whether the API answers with content of this type. A page of HTML is a login page or the like.
func ours(answer *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return kind == "application/json" || kind == "application/jsonl" || kind == "application/octet-stream"
}

// failure reads a problem, or makes one of an answer that has none.
func (d *doer) failure(answer *http.Response) error {
	failure := &Error{}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		failure.RetryAfter = time.Duration(seconds) * time.Second
	}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if kind == "application/problem+json" {
		body, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
		if err == nil && json.Unmarshal(body, &failure.Problem) == nil && failure.Problem.Code != "" {
			return failure
		}
	}
	failure.Problem = Problem{
		Status: int32(answer.StatusCode),
		Title:  http.StatusText(answer.StatusCode),
		Detail: fmt.Sprintf("%s answers %q, and does not look like a dlt-replayer", d.server, answer.Status),
	}
	return failure
}
