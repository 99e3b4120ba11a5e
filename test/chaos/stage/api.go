package stage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// API talks to the HTTP API of the dlt-replayer as any program does that has read its OpenAPI document: nothing of the product is in
// it. With several addresses it asks one after the other until one answers. It is safe for concurrent use.
type API struct {
	bases  []string
	client *http.Client
}

// NewAPI returns a client of the replicas at these addresses. Close ends its connections.
func NewAPI(addresses ...string) *API {
	a := &API{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	for _, address := range addresses {
		a.bases = append(a.bases, "http://"+address+"/api/v1")
	}
	return a
}

// Close ends the connections that are idle.
func (a *API) Close() { a.client.CloseIdleConnections() }

// Letter is one letter, as far as the stories look at it.
type Letter struct {
	ID              int64     `json:"id"`
	Topic           string    `json:"topic"`
	TopicID         string    `json:"topicId"`
	Partition       int32     `json:"partition"`
	Offset          int64     `json:"offset"`
	MessageID       string    `json:"messageId"`
	Key             *Bytes    `json:"key"`
	Origin          string    `json:"origin"`
	OriginPartition int32     `json:"originPartition"`
	OriginOffset    int64     `json:"originOffset"`
	Group           string    `json:"group"`
	Reason          string    `json:"reason"`
	ErrorType       string    `json:"errorType"`
	ErrorText       string    `json:"errorText"`
	Attempt         int       `json:"attempt"`
	Deliveries      int       `json:"deliveries"`
	ReplayID        string    `json:"replayId"`
	ReplayCount     int       `json:"replayCount"`
	Size            int64     `json:"size"`
	Digest          string    `json:"digest"`
	State           string    `json:"state"`
	StateAt         time.Time `json:"stateAt"`
	Note            string    `json:"note"`
	Claim           *struct {
		Owner string `json:"owner"`
		Fence string `json:"fence"`
		Job   string `json:"job"`
	} `json:"claim"`
	Copy *Target `json:"copy"`
}

// Bytes are bytes of a record; a nil pointer is no bytes at all.
type Bytes struct {
	Base64 []byte `json:"base64"`
}

// Target is where a copy lies.
type Target struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Job is a replay job.
type Job struct {
	ID         string     `json:"id"`
	State      string     `json:"state"`
	Actor      string     `json:"actor"`
	Source     string     `json:"source"`
	Total      int64      `json:"total"`
	Done       int64      `json:"done"`
	Failed     int64      `json:"failed"`
	Skipped    int64      `json:"skipped"`
	Left       int64      `json:"left"`
	FirstError string     `json:"firstError"`
	Owner      string     `json:"owner"`
	StartedAt  *time.Time `json:"startedAt"`
	EndedAt    *time.Time `json:"endedAt"`
}

// Progress is how far a partition is indexed.
type Progress struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topicId"`
	Partition int32  `json:"partition"`
	Next      int64  `json:"next"`
	Lost      int64  `json:"lost"`
}

// Unlimited is a rate that nothing reaches.
const Unlimited = 1e9

// Replay asks for a job.
type Replay struct {
	Filter Filter   `json:"filter"`
	Reason string   `json:"reason"`
	Rate   *float64 `json:"rate,omitempty"`
	Expect int64    `json:"expect,omitempty"`
	// OutOfOrder replays letters although older ones of their key stay dead.
	OutOfOrder bool `json:"outOfOrder,omitempty"`
	Force      bool `json:"force,omitempty"`
	// All confirms that a filter which leaves nothing out is meant.
	All bool `json:"all,omitempty"`
}

// Filter selects letters.
type Filter struct {
	ID        []int64  `json:"id,omitempty"`
	MessageID []string `json:"messageId,omitempty"`
	Key       *string  `json:"key,omitempty"`
	Topic     []string `json:"topic,omitempty"`
	ErrorType []string `json:"errorType,omitempty"`
	State     []string `json:"state,omitempty"`
}

// Problem is an answer that refuses.
type Problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Error says what was refused.
func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

// errNobody is a call that no replica has answered, or none that could.
var errNobody = errors.New("no replica answers")

// Get asks for one object.
func (a *API) Get(ctx context.Context, path string, query url.Values, answer any) error {
	return a.call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, nil, answer)
}

// Count is how many letters a query selects.
func (a *API) Count(ctx context.Context, query url.Values) (int64, error) {
	var answer struct {
		Count int64 `json:"count"`
	}
	err := a.Get(ctx, "/count", query, &answer)
	return answer.Count, err
}

// Letters is the first page that a query selects.
func (a *API) Letters(ctx context.Context, query url.Values) ([]Letter, error) {
	var answer struct {
		Letters []Letter `json:"letters"`
	}
	err := a.Get(ctx, "/letters", query, &answer)
	return answer.Letters, err
}

// Progress is how far all partitions are.
func (a *API) Progress(ctx context.Context) ([]Progress, error) {
	var answer struct {
		Partitions []Progress `json:"partitions"`
	}
	err := a.Get(ctx, "/progress", nil, &answer)
	return answer.Partitions, err
}

// Job is the job of that id.
func (a *API) Job(ctx context.Context, id string) (Job, error) {
	var job Job
	err := a.Get(ctx, "/jobs/"+url.PathEscape(id), nil, &job)
	return job, err
}

// CreateJob creates a job; with the same request it creates none and returns the one of before.
func (a *API) CreateJob(ctx context.Context, request string, replay Replay) (Job, error) {
	var job Job
	header := http.Header{}
	if request != "" {
		header.Set("Idempotency-Key", request)
	}
	err := a.call(ctx, http.MethodPost, "/jobs", header, replay, &job)
	return job, err
}

// Control changes a job: pause, resume or cancel.
func (a *API) Control(ctx context.Context, id, action string) error {
	return a.call(ctx, http.MethodPost, "/jobs/"+url.PathEscape(id)+"/"+action, nil, map[string]string{"reason": "test"}, nil)
}

// Change is discards, undiscards or purges of what a filter selects; it returns how many letters that were.
func (a *API) Change(ctx context.Context, what string, filter Filter, expect int64) (int64, error) {
	var answer struct {
		Count int64 `json:"count"`
	}
	body := map[string]any{"filter": filter, "reason": "test"}
	if expect > 0 {
		body["expect"] = expect
	}
	err := a.call(ctx, http.MethodPost, "/"+what, nil, body, &answer)
	return answer.Count, err
}

// Export calls each with all letters that a query selects. A stream that breaks off is an error, and then some letters were seen.
func (a *API) Export(ctx context.Context, query url.Values, each func(*Letter) error) error {
	answer, err := a.open(ctx, http.MethodGet, "/export?"+query.Encode(), nil, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // Only read.
	lines := bufio.NewReaderSize(answer.Body, 1<<20)
	for decoder := json.NewDecoder(lines); ; {
		var letter Letter
		if err := decoder.Decode(&letter); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an export: %w", err)
		}
		if err := each(&letter); err != nil {
			return err
		}
	}
}

// Insist repeats a call until a replica has answered it, be it with a problem of the caller's own. Nothing that is not idempotent should
// be handed to it.
func (a *API) Insist(ctx context.Context, limit time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var refused error
	err := testkit.Await(ctx, func(ctx context.Context) error {
		err := call(ctx)
		var problem *Problem
		if errors.As(err, &problem) && problem.Status < http.StatusInternalServerError && problem.Status != http.StatusTooManyRequests {
			refused = err
			return nil
		}
		return err
	})
	return errors.Join(refused, err)
}

// call makes a request with a JSON body and reads a JSON answer.
func (a *API) call(ctx context.Context, method, path string, header http.Header, body, answer any) error {
	response, err := a.open(ctx, method, path, header, body)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // Only read.
	if answer == nil {
		_, err = io.Copy(io.Discard, response.Body)
	} else {
		err = json.NewDecoder(response.Body).Decode(answer)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// callLimit bounds how long one replica may take to begin its answer: one that is stopped answers never.
const callLimit = 20 * time.Second

// open makes a request of the first replica that answers. Its errors of the kind "not me, not now" lead to the next.
func (a *API) open(ctx context.Context, method, path string, header http.Header, body any) (*http.Response, error) {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	failed := errNobody
	for _, base := range a.bases {
		response, err := a.ask(ctx, method, base+path, header, content)
		if err != nil {
			failed = fmt.Errorf("%w: %w", errNobody, err)
			continue
		}
		if response.StatusCode < 400 {
			return response, nil
		}
		problem := &Problem{Status: response.StatusCode}
		err = json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(problem)
		_ = response.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("%s %s: status %d with a body that is no problem: %w", method, path, response.StatusCode, err)
		}
		failed = problem
		if problem.Status < http.StatusInternalServerError {
			break
		}
	}
	return nil, failed
}

func (a *API) ask(ctx context.Context, method, address string, header http.Header, content []byte) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(callLimit, cancel)
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(content))
	if err != nil {
		cancel()
		return nil, err
	}
	maps.Copy(request.Header, header)
	if content != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := a.client.Do(request)
	if err != nil {
		cancel()
		return nil, err
	}
	timer.Stop()
	response.Body = closing{response.Body, cancel}
	return response, nil
}

// closing ends the context of a request when its answer is closed.
type closing struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c closing) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}
