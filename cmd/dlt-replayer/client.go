package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

const (
	defaultURL = "http://127.0.0.1:9402"

	// requestTimeout bounds one answer of the API. A plan of millions of letters
	// takes the longest.
	requestTimeout = 5 * time.Minute

	// A request that nothing answers is made three times within a second: a server
	// that is not there is told of soon. One that creates a replay, and one about a
	// replay that is watched, is made for longer, so that a server may be restarted
	// meanwhile. What has an effect carries a key by which it is known again.
	quick, patient = 3, 60
	shortPause     = 500 * time.Millisecond
	longPause      = time.Second
)

// forms are the forms of an answer.
func forms() []string { return []string{"table", "json", "jsonl", "yaml"} }

// connect makes a client of the API.
func (c *cli) connect() (*client.ClientWithResponses, error) {
	url := c.url
	if url == "" {
		url = c.variable(config.EnvURL)
	}
	if url == "" {
		url = defaultURL
	}
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{URL: url, Token: token, UserAgent: "dlt-replayer/" + c.Build.Version})
}

// token is what the API is asked with; "" is none. A flag wins over the environment.
func (c *cli) token() (string, error) {
	path, from := c.tokenFile, "--token-file"
	if path == "" {
		if token := c.variable(config.EnvToken); token != "" {
			return token, nil
		}
		path, from = c.variable(config.EnvTokenFile), config.EnvTokenFile
	}
	if path == "" {
		return "", nil
	}
	token, err := fileText(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", from, err)
	}
	return token, nil
}

// persist makes a request until the server answers, and gives up soon or with ctx.
func persist[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	return repeat(ctx, quick, shortPause, ask)
}

// repeat makes a request until the server answers, so many times at most. An answer
// that the ledger or Kafka is to be waited for is none.
func repeat[T any](ctx context.Context, times int, pause time.Duration, ask func(context.Context) (T, error)) (answer T, err error) {
	for try := 1; ; try++ {
		answer, err = bounded(ctx, ask)
		var answered *client.Error
		if err == nil || try == times || ctx.Err() != nil || errors.As(err, &answered) && answered.RetryAfter == 0 {
			return answer, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return answer, err
		case <-timer.C:
		}
	}
}

func bounded[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return ask(ctx)
}

// params copies a filter into the parameters of a request: the fields have the same
// names, by the document that both are made from.
func params(filter client.Filter, into any) error {
	text, err := json.Marshal(filter)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// answer writes one value in the form that was asked for. Table writes the rows of
// it, with cells separated by tabs.
func (c *cli) answer(value any, table func(*bytes.Buffer)) error {
	switch c.Output {
	case "json":
		return c.PrintJSON(value)
	case "jsonl":
		return c.lines(reflect.ValueOf([]any{value}))
	case "yaml":
		return c.yaml(value)
	}
	var rows bytes.Buffer
	table(&rows)
	text, err := command.Table(rows.Bytes())
	if err != nil {
		return err
	}
	return c.Print(text)
}

// answerList writes a list in the form that was asked for; jsonl has a line for each
// of its items. Header is the first line of the table.
func (c *cli) answerList(list any, header string, table func(*bytes.Buffer)) error {
	if c.Output == "jsonl" {
		return c.lines(reflect.ValueOf(list))
	}
	return c.answer(list, func(rows *bytes.Buffer) {
		if !c.noHeaders {
			rows.WriteString(strings.ReplaceAll(header, "|", "\t") + "\n")
		}
		table(rows)
	})
}

func (c *cli) lines(list reflect.Value) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	for i := range list.Len() {
		if err := encoder.Encode(list.Index(i).Interface()); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
	}
	return c.Print(b.Bytes())
}

// yaml writes the same fields as json does.
func (c *cli) yaml(value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return c.Print(text)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// stampOf is a time that there may not be.
func stampOf(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return stamp(*t)
}

// suffix is text with what joins it to the text before, and nothing if it is empty.
func suffix(joint, text string) string {
	if text == "" {
		return ""
	}
	return joint + command.Printable(text)
}

// cell is text in a table: never empty, never more than a line, never too wide.
func cell(text string, widest int) string {
	if text == "" {
		return "-"
	}
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > widest {
		text = string(runes[:widest-3]) + "..."
	}
	return command.Printable(text)
}

// keyText is a key in a table.
func keyText(key *client.Bytes) string {
	switch {
	case key == nil:
		return "-"
	case key.Text != nil:
		if *key.Text == "" {
			return `""`
		}
		return command.Printable(*key.Text)
	default:
		return "base64:" + key.Base64
	}
}
