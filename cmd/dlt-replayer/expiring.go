package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

// within is the flag that says how far ahead a command looks; the server has a
// default.
type within string

func (w *within) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(w), "within", "", "`duration` ahead, such as 72h or 3d; by default replayer.expiry.within of the server")
}

func (w *within) value(cmd *cobra.Command) (*string, error) {
	if *w == "" && !cmd.Flags().Changed("within") {
		return nil, nil //nolint:nilnil // None was given.
	}
	if d, err := model.ParseDuration(string(*w)); err != nil || d <= 0 {
		return nil, command.Usage(cmd, fmt.Errorf("--within %q: want a duration such as 72h or 3d", string(*w)))
	}
	return new(string(*w)), nil
}

func (c *cli) expiringCommand() *cobra.Command {
	var (
		ahead  within
		topics []string
		limit  int
	)
	cmd := &cobra.Command{
		Use:   "expiring",
		Short: "List what retention is about to take",
		Long: `expiring shows the letters that retention may take within a time: dead or claimed, and
without a copy of their bytes in the ledger; the oldest first. No letter goes by age
before the moment that is shown; Kafka removes whole segments, which is later. It
shows as well which records still wait in an inbox or a tier although they are due, or
can not be waited for, and may be taken within the time.

Exit codes: 0 shown; 4 nothing expires; 2 usage; 5 no permission; 1 failure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return command.Usage(cmd, errors.New("--limit: want a number, or 0 for all"))
			}
			text, err := ahead.value(cmd)
			if err != nil {
				return err
			}
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			var all client.ExpiringList
			letters, more, err := pages(cmd.Context(), limit, func(ctx context.Context, cursor *string, size int32) ([]client.ExpiringLetter, string, error) {
				answer, err := api.ListExpiringWithResponse(ctx, &client.ListExpiringParams{Within: text, Outlook: new(cursor == nil), Topic: topics, Cursor: cursor, Limit: &size})
				if err != nil {
					return nil, "", err
				}
				if cursor == nil {
					all = *answer.JSON200
				}
				return answer.JSON200.Letters, answer.JSON200.Next, nil
			})
			if err != nil {
				return fmt.Errorf("expiring: %w", err)
			}
			all.Letters, all.Next = letters, ""
			c.remark(&all)
			if len(all.Letters)+len(all.Waiting) == 0 {
				c.Talk("nothing expires\n")
				return errNothing
			}
			if err := c.printExpiring(&all); err != nil {
				return err
			}
			if more {
				c.Talk("these are the first %d, there are more: see --limit\n", len(letters))
			}
			return nil
		},
	}
	ahead.flag(cmd)
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "`topic` of dead letters, may be repeated")
	cmd.Flags().IntVar(&limit, "limit", 100, "`number` of letters at most; 0 is all")
	return c.withHeaders(cmd)
}

// remark says what the letters do not: how many there are, and what is not known.
func (c *cli) remark(list *client.ExpiringList) {
	ahead := time.Duration(list.WithinSeconds * float64(time.Second))
	for _, t := range list.Topics {
		switch {
		case t.Unknown != nil:
			c.Talk("%s: not known: %s\n", t.Topic, command.Printable(*t.Unknown))
		case t.Count > 0:
			c.Talk("%s: %d letters within %s, the first from %s on\n", t.Topic, t.Count, model.Duration(ahead), stampOf(t.Soonest))
		}
		if t.RetentionBytes != nil && *t.RetentionBytes >= 0 {
			c.Talk("%s: retention.bytes is %d: when a partition grows beyond it its oldest letters go, whatever their age\n", t.Topic, *t.RetentionBytes)
		}
	}
	for _, what := range list.Unknown {
		c.Talk("records that wait: not known: %s\n", command.Printable(what))
	}
}

func (c *cli) printExpiring(list *client.ExpiringList) error {
	if c.Output == "jsonl" {
		return c.answerList(list.Letters, "", nil)
	}
	heading := func(rows *bytes.Buffer, header string) {
		if !c.noHeaders {
			rows.WriteString(header)
		}
	}
	if c.Output != "table" || len(list.Letters) > 0 {
		err := c.answer(list, func(rows *bytes.Buffer) {
			heading(rows, "NOT BEFORE\tID\tSTATE\tDEAD SINCE\tTOPIC\tREASON\tERROR TYPE\tKEY\tMESSAGE ID\n")
			for i := range list.Letters {
				l := &list.Letters[i].Letter
				fmt.Fprintf(rows, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", stamp(list.Letters[i].ExpiresAt), l.ID, l.State, stamp(l.DeadAt), l.Topic,
					cell(l.Reason, 20), cell(l.ErrorType, 40), cell(keyText(l.Key), 40), cell(l.MessageID, 100))
			}
		})
		if err != nil || c.Output != "table" {
			return err
		}
	}
	if len(list.Waiting) == 0 {
		return nil
	}
	return c.answer(list, func(rows *bytes.Buffer) {
		heading(rows, "WAITING IN\tPARTITION\tFROM OFFSET\tRECORDS\tWAIT\tRETENTION\n")
		for _, w := range list.Waiting {
			fmt.Fprintf(rows, "%s\t%d\t%d\t%d\t%s\t%s\n", w.Topic, w.Partition, w.From, w.To-w.From,
				time.Duration(w.WaitSeconds*float64(time.Second)), time.Duration(w.RetentionMs)*time.Millisecond)
		}
	})
}

func (c *cli) rescueCommand() *cobra.Command {
	var (
		f      filter
		a      consent
		ahead  within
		dryRun bool
		all    bool
	)
	cmd := &cobra.Command{
		Use:   "rescue [NUMBER...]",
		Short: "Copy the bytes of letters into the ledger, before retention takes them",
		Long: `rescue copies the bytes of letters from their topics into the ledger, so that they can
be replayed when retention has taken the records: those that are named or that the
flags select, with --within those that retention may take within that time, and with
nothing at all those that expiring shows. Letters that the ledger has a copy of are
left as they are: repeat it after whatever has stopped it.

Letters whose bytes are gone, or are others than were indexed, are named.

Exit codes: 0 all are kept; 3 some are gone or changed; 4 nothing matched; 5 refused,
or no permission; 2 usage; 1 failure; 130 interrupted, the rest is as before.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, err := f.filter(cmd, args, time.Now())
			if err != nil {
				return err
			}
			request := client.RescueRequest{All: of(all, true)}
			if request.Within, err = ahead.value(cmd); err != nil {
				return err
			}
			if len(args) > 0 || given(cmd) || all {
				request.Filter = &selected
			}
			if dryRun && a.reason == "" {
				a.reason = "dry run"
			}
			if err := a.check(cmd); err != nil {
				return err
			}
			request.Reason = a.reason
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			return c.rescue(cmd, api, request, &a, dryRun, named(selected))
		},
	}
	f.flags(cmd)
	a.flags(cmd)
	ahead.flag(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only count")
	cmd.Flags().BoolVar(&all, "all", false, "all letters, where nothing else selects")
	return c.WithOutput(cmd)
}

// rescue counts, has that agreed to, and keeps the letters part by part.
func (c *cli) rescue(cmd *cobra.Command, api *client.ClientWithResponses, request client.RescueRequest, a *consent, dryRun, byName bool) error {
	ctx := cmd.Context()
	ask := func(request client.RescueRequest) (*client.RescueResult, error) {
		// A repetition leaves what the first has kept.
		answer, err := persist(ctx, func(ctx context.Context) (*client.RescueLettersResponse, error) {
			return api.RescueLettersWithResponse(ctx, request)
		})
		if err != nil {
			return nil, fmt.Errorf("rescue: %w", err)
		}
		return answer.JSON200, nil
	}
	request.DryRun = new(true)
	would, err := ask(request)
	if err != nil {
		return err
	}
	count := *would.Count
	if count == 0 {
		c.Talk("nothing matched\n")
		return errNothing
	}
	if dryRun {
		if c.Output == "json" {
			return c.PrintJSON(would)
		}
		return c.Printf("would be kept: %d letters\n", count)
	}
	limit, err := bulkLimit(ctx, api)
	if err != nil {
		return fmt.Errorf("rescue: %w", err)
	}
	if err := c.confirm(cmd, a, "Keep", count, limit, byName); err != nil {
		return err
	}
	request.DryRun, request.Expect = nil, &count
	sum := client.RescueResult{Count: &count, Failed: []client.RescueFailure{}}
	for {
		part, err := ask(request)
		if err != nil {
			if ctx.Err() != nil {
				c.Talk("%d letters are kept, the others are as before\n", sum.Kept)
				return errInterrupted
			}
			return err
		}
		sum.Kept, sum.Bytes, sum.Gone, sum.Changed = sum.Kept+part.Kept, sum.Bytes+part.Bytes, sum.Gone+part.Gone, sum.Changed+part.Changed
		sum.Failed = append(sum.Failed, part.Failed...)
		if part.Next == "" {
			break
		}
		c.Talk("%d of %d letters\n", sum.Kept+sum.Gone+sum.Changed, count)
		request.Cursor, request.Expect = &part.Next, nil
	}
	return c.printRescue(&sum)
}

func (c *cli) printRescue(sum *client.RescueResult) error {
	if c.Output == "json" {
		if err := c.PrintJSON(sum); err != nil {
			return err
		}
	} else {
		for _, f := range sum.Failed {
			if err := c.Printf("%s: letter %d at %s, message %s\n", f.Code, f.Letter, f.Place, command.Printable(f.MessageID)); err != nil {
				return err
			}
		}
		if err := c.Printf("kept: %d letters, %d bytes\n", sum.Kept, sum.Bytes); err != nil {
			return err
		}
	}
	if len(sum.Failed) > 0 {
		c.Talk("%d letters have no bytes any more, %d have others in their place\n", sum.Gone, sum.Changed)
		return errPartial
	}
	return nil
}
