package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/forwarder"
)

// progressInterval is how often a command that takes long says how far it is.
const progressInterval = 2 * time.Second

// searched is the answer of find.
type searched struct {
	MessageID   string `json:"messageId,omitempty"`
	Key         string `json:"key,omitempty"`
	KeyEncoding string `json:"keyEncoding,omitempty"`
	*forwarder.Found
}

func (c *cli) findCommand() *cobra.Command {
	var (
		query  forwarder.Query
		answer searched
	)
	cmd := &cobra.Command{
		Use:   "find",
		Short: "Find records that wait, by message id or key",
		Long: `find reads the inboxes and the tiers from where the group stands to their ends,
and shows the records with this message id or this key that are not finished:
where they are, until when they wait, and where they go then. Values are not
shown. It changes nothing and does not join the group. What was forwarded in the
last moments, and is not committed yet, is shown as well.

It reads all that waits: with long tiers that is minutes, and --topic makes it
less. Progress goes to standard error.

Exit codes: 0 found; 4 nothing found; 2 usage or configuration; 1 the search is
not complete, what was found by then is shown.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&answer.MessageID, "message-id", "", "`id` in redrive-message-id: by default topic/partition/offset of the origin position")
	flags.StringVar(&answer.Key, "key", "", "`key` of the record")
	flags.StringVar(&answer.KeyEncoding, "key-encoding", "text", "`form` of --key: text, base64 or hex")
	flags.StringVar(&query.Origin, "topic", "", "`origin` whose inbox and tiers are searched; all if it is not given")
	flags.IntVar(&query.Limit, "limit", 100, "`number` of records after which the search ends")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		usage := func(err error) error { return command.Usage(cmd, err) }
		byKey := flags.Changed("key")
		switch {
		case byKey == flags.Changed("message-id"):
			return usage(errors.New("want --message-id or --key, one of them"))
		case byKey:
			key, err := command.DecodeKey(answer.Key, answer.KeyEncoding)
			if err != nil {
				return usage(err)
			}
			query.Key = key
		case flags.Changed("key-encoding"):
			return usage(errors.New("--key-encoding is of --key only"))
		case answer.MessageID == "":
			return usage(errors.New("--message-id is empty"))
		default:
			query.MessageID, answer.KeyEncoding = answer.MessageID, ""
		}
		if query.Limit < 1 {
			return usage(errors.New("--limit: want 1 or more"))
		}
		return c.find(cmd.Context(), query, &answer, usage)
	}
	return c.WithOutput(cmd)
}

func (c *cli) find(ctx context.Context, query forwarder.Query, answer *searched, usage func(error) error) error {
	opts, err := c.Options()
	if err != nil {
		return err
	}
	last := time.Now()
	answer.Found, err = app.Find(ctx, opts, query, func(p forwarder.Progress) {
		if time.Since(last) >= progressInterval {
			last = time.Now()
			c.Talk("searched %d of %d records, found %d\n", p.Read, p.Total, p.Found)
		}
	})
	if argument, ok := errors.AsType[*app.ArgumentError](err); ok {
		return usage(argument)
	}
	if answer.Found == nil {
		return fmt.Errorf("find: %w", err)
	}
	for i := range answer.Undecided {
		p := &answer.Undecided[i]
		c.Talk("%s is not read by the forwarder (%s: %s); it was searched from offset %d\n", p, p.State, p.Detail, p.Start)
	}
	var printErr error
	if c.Output == "json" {
		printErr = c.PrintJSON(answer)
	} else if len(answer.Records) > 0 {
		printErr = c.printWaiting(answer.Records, time.Now())
	}
	switch {
	case printErr != nil:
		return printErr
	case err != nil:
		return fmt.Errorf("find: the search is not complete: %w", err)
	case len(answer.Records) == 0:
		c.Talk("nothing found among %d records\n", answer.Read)
		return errNothing
	case !answer.Complete:
		c.Talk("the search ended at %d records, there may be more: see --limit\n", len(answer.Records))
	}
	return nil
}

func (c *cli) printWaiting(records []forwarder.Waiting, now time.Time) error {
	var rows bytes.Buffer
	rows.WriteString("TOPIC\tPARTITION\tOFFSET\tWAITS UNTIL\tNEXT\tATTEMPT\tMESSAGE ID\tORIGINAL POSITION\n")
	for _, w := range records {
		next := w.Next
		switch {
		case w.Reason != "":
			next += " (" + string(w.Reason) + ")"
		case next == "":
			next = "none"
		}
		fmt.Fprintf(&rows, "%s\t%d\t%d\t%s\t%s\t%d\t%s\t%s\n", w.Topic, w.Partition, w.Offset,
			until(w.Until, now), next, w.Attempt, command.Printable(w.MessageID), position(w.Original))
	}
	text, err := command.Table(rows.Bytes())
	if err != nil {
		return err
	}
	return c.Print(text)
}

// until is an instant as one reads it: with how far away it is.
func until(t, now time.Time) string {
	if t.IsZero() {
		return "at once"
	}
	text := t.UTC().Format("2006-01-02T15:04:05.000Z")
	if left := t.Sub(now); left > 0 {
		return fmt.Sprintf("%s (in %v)", text, left.Round(time.Second))
	}
	return text + " (due)"
}

func position(p forwarder.Place) string {
	if p.Partition < 0 || p.Offset < 0 {
		return command.Printable(p.Topic)
	}
	return fmt.Sprintf("%s/%d/%d", command.Printable(p.Topic), p.Partition, p.Offset)
}
