package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

// shown is the answer of show.
type shown struct {
	MessageID string `json:"messageId"`
	// Letters are all of the message, the oldest first, each with its replays.
	Letters []client.HistoryEntry `json:"letters"`
	// OlderCount is how many letters of the key lie before the one that was asked for
	// and are still dead; Oldest is the first of them.
	OlderCount int64           `json:"olderCount"`
	Oldest     *client.Letter  `json:"oldest,omitempty"`
	Payload    *client.Payload `json:"payload,omitempty"`
}

func (c *cli) showCommand() *cobra.Command {
	var (
		messageID, payload string
		raw                bool
		maxBytes           int32
	)
	cmd := &cobra.Command{
		Use:   "show [NUMBER]",
		Short: "Show all there is to know of one message",
		Long: `show shows every letter of the message of a letter, or of --message-id: where it came
from, why it died, every replay and its result. With --payload it shows the record
as well, as JSON, text or hex, whichever its bytes allow, or the one that is named.
--raw writes the exact bytes of the value, and nothing else.

Exit codes: 0 shown; 4 there is no such letter or message; 2 usage; 5 no permission;
1 failure.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			usage := func(text string) error { return command.Usage(cmd, errors.New(text)) }
			switch {
			case (len(args) == 1) == (messageID != ""):
				return usage("want the number of a letter or --message-id, one of them")
			case !slices.Contains([]string{"", "auto", "json", "text", "hex"}, payload):
				return usage("--payload " + payload + ": want auto, json, text or hex")
			case raw && payload != "":
				return usage("--raw writes the bytes as they are: it excludes --payload")
			}
			var id int64
			if len(args) == 1 {
				var err error
				if id, err = letterNumber(args[0]); err != nil {
					return command.Usage(cmd, err)
				}
			}
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			ctx := cmd.Context()
			answer := shown{}
			if err := answer.learn(ctx, api, id, messageID); err != nil {
				return fmt.Errorf("show: %w", err)
			}
			if len(answer.Letters) == 0 {
				c.Talk("nothing matched\n")
				return errNothing
			}
			if id == 0 {
				id = answer.Letters[len(answer.Letters)-1].Letter.ID // The newest.
			}
			if raw {
				return c.printValue(ctx, api, id)
			}
			if payload != "" {
				query := client.GetPayloadParams{MaxBytes: of(maxBytes > 0, maxBytes)}
				if payload != "auto" {
					query.As = new(client.Form(payload))
				}
				got, err := persist(ctx, func(ctx context.Context) (*client.GetPayloadResponse, error) {
					return api.GetPayloadWithResponse(ctx, id, &query)
				})
				if err != nil {
					return fmt.Errorf("show the payload of letter %d: %w", id, err)
				}
				answer.Payload = got.JSON200
			}
			return c.answer(answer, answer.write)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&messageID, "message-id", "", "`id` of the message")
	flags.StringVar(&payload, "payload", "", "show the record as well, in this `form`: auto, json, text or hex")
	flags.Lookup("payload").NoOptDefVal = "auto"
	flags.Int32Var(&maxBytes, "max-bytes", 0, "`number` of bytes of key, value and each header that are shown; 0 is what the server chooses")
	flags.BoolVar(&raw, "raw", false, "write the exact bytes of the value")
	return c.WithOutput(cmd, forms()...)
}

// learn asks for all that is known of a letter or a message.
func (s *shown) learn(ctx context.Context, api *client.ClientWithResponses, id int64, messageID string) error {
	if id == 0 {
		answer, err := persist(ctx, func(ctx context.Context) (*client.GetHistoryResponse, error) {
			return api.GetHistoryWithResponse(ctx, &client.GetHistoryParams{MessageID: messageID})
		})
		if err != nil {
			return err
		}
		s.MessageID, s.Letters = answer.JSON200.MessageID, answer.JSON200.Entries
		return nil
	}
	detail, err := persist(ctx, func(ctx context.Context) (*client.GetLetterResponse, error) {
		return api.GetLetterWithResponse(ctx, id)
	})
	if err != nil {
		return err
	}
	history, err := persist(ctx, func(ctx context.Context) (*client.GetLetterHistoryResponse, error) {
		return api.GetLetterHistoryWithResponse(ctx, id)
	})
	if err != nil {
		return err
	}
	s.MessageID, s.Letters = history.JSON200.MessageID, history.JSON200.Entries
	s.OlderCount, s.Oldest = detail.JSON200.OlderCount, detail.JSON200.Oldest
	return nil
}

// printValue writes the bytes of the value. A record without a value is nothing that
// could be told from an empty one, and said on the other channel.
func (c *cli) printValue(ctx context.Context, api *client.ClientWithResponses, id int64) error {
	response, err := api.GetValue(ctx, id)
	if err != nil {
		return fmt.Errorf("show the value of letter %d: %w", id, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusNoContent {
		c.Talk("letter %d has no value: it is a tombstone\n", id)
		return nil
	}
	if _, err := io.Copy(c.Stdout, response.Body); err != nil {
		return fmt.Errorf("show the value of letter %d: it is not whole: %w", id, err)
	}
	return nil
}

// write writes it for people.
func (s *shown) write(rows *bytes.Buffer) {
	fmt.Fprintf(rows, "message\t%s\n", command.Printable(s.MessageID))
	for i := range s.Letters {
		rows.WriteByte('\n')
		writeLetter(rows, &s.Letters[i].Letter)
		for j := range s.Letters[i].Replays {
			writeReplay(rows, &s.Letters[i].Replays[j])
		}
	}
	if s.OlderCount > 0 && s.Oldest != nil {
		fmt.Fprintf(rows, "\nolder\t%d letters of its key lie before it and are not replayed, the first is letter %d\n", s.OlderCount, s.Oldest.ID)
	}
	if s.Payload != nil {
		rows.WriteByte('\n')
		writePayload(rows, s.Payload)
	}
}

func writeLetter(rows *bytes.Buffer, l *client.Letter) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(rows, "%s\t%s\n", name, command.Printable(value))
		}
	}
	line("letter", fmt.Sprintf("%d, %s since %s%s", l.ID, l.State, stamp(l.StateAt), suffix(": ", l.Note)))
	line("lies at", l.Place)
	line("dead since", stamp(l.DeadAt))
	fmt.Fprintf(rows, "key\t%s\n", keyText(l.Key))
	origin := l.Origin
	if l.OriginPartition >= 0 && l.OriginOffset >= 0 {
		origin += fmt.Sprintf("/%d/%d", l.OriginPartition, l.OriginOffset)
	}
	line("came from", origin)
	line("group", l.Group)
	line("reason", l.Reason)
	line("error", l.ErrorType)
	line("", "")
	if l.ErrorText != "" {
		fmt.Fprintf(rows, "error text\t%s\n", cell(l.ErrorText, 1024))
	}
	line("fingerprint", l.Fingerprint)
	line("label", l.Label)
	line("attempts", fmt.Sprintf("%d, %d deliveries over all replays", l.Attempt, l.Deliveries))
	if l.ReplayID != "" {
		line("came back", fmt.Sprintf("from replay %d, job %s", l.ReplayCount, l.ReplayID))
	}
	size := fmt.Sprintf("%d bytes", l.Size)
	switch {
	case l.Pointer:
		size += ", which never fitted the topic: it can not be replayed"
	case l.Kept:
		size += ", kept in the ledger as well"
	}
	line("size", size)
	if l.State == client.StateClaimed && l.Claim != nil {
		line("claimed", fmt.Sprintf("by %s for job %s until %s", l.Claim.Owner, l.Claim.Job, stamp(l.Claim.Until)))
	}
}

func writeReplay(rows *bytes.Buffer, i *client.Item) {
	text := fmt.Sprintf("%s: %s, job %s", stamp(i.At), i.State, i.Job)
	if i.Copy != nil {
		text += fmt.Sprintf(", replay %d lies at %s/%d/%d", i.ReplayCount, i.Copy.Topic, i.Copy.Partition, i.Copy.Offset)
	}
	fmt.Fprintf(rows, "replay\t%s%s\n", text, suffix(": ", i.Error))
}

func writePayload(rows *bytes.Buffer, p *client.Payload) {
	view := func(name string, v *client.View) {
		if v == nil {
			fmt.Fprintf(rows, "%s\tnone\n", name)
			return
		}
		more := ""
		if v.Truncated {
			more = ", the beginning"
		}
		content := v.Content
		if v.Form == client.FormText {
			content = command.Printable(content)
		}
		fmt.Fprintf(rows, "%s\t(%s, %d bytes%s) %s\n", name, v.Form, v.Size, more, content)
	}
	view("key", p.Key)
	view("value", p.Value)
	for _, h := range p.Headers {
		view("header "+command.Printable(h.Name), h.Value)
	}
}
