package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

// change is a command that changes the state of letters without a replay.
type change struct {
	use, short, long string
	// verb is what it asks for, done what it has done.
	verb, done string
	// from are the states that it changes, where the flags name none.
	from []client.State
	call func(context.Context, *client.ClientWithResponses, client.ChangeRequest) (*client.ChangeResult, error)
	// byState tells a command that must name states, which is enough to select by.
	byState bool
}

func (c *cli) changeCommand(ch change) *cobra.Command {
	var (
		f      filter
		a      consent
		dryRun bool
		all    bool
	)
	cmd := &cobra.Command{
		Use:   ch.use,
		Short: ch.short,
		Long:  ch.long,
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, err := f.filter(cmd, args, time.Now())
			if err != nil {
				return err
			}
			if len(args) == 0 && !given(cmd) && !all {
				return command.Usage(cmd, errors.New("nothing is selected: name letters or a filter, or say --all"))
			}
			if ch.byState && len(selected.State) == 0 {
				return command.Usage(cmd, errors.New("--state is required: which letters may go"))
			}
			if dryRun && a.reason == "" {
				a.reason = "dry run"
			}
			if err := a.check(cmd); err != nil {
				return err
			}
			byName := named(selected)
			if len(selected.State) == 0 {
				selected.State = ch.from
			}
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			request := client.ChangeRequest{Filter: selected, Reason: a.reason, All: of(all || ch.byState, true), DryRun: new(true)}
			ctx := cmd.Context()
			would, err := persist(ctx, func(ctx context.Context) (*client.ChangeResult, error) { return ch.call(ctx, api, request) })
			if err != nil {
				return fmt.Errorf("%s: %w", cmd.Name(), err)
			}
			if would.Count == 0 {
				c.Talk("nothing matched\n")
				return errNothing
			}
			if !dryRun {
				limit, err := bulkLimit(ctx, api)
				if err != nil {
					return fmt.Errorf("%s: %w", cmd.Name(), err)
				}
				if err := c.confirm(cmd, &a, ch.verb, would.Count, limit, byName); err != nil {
					return err
				}
				request.DryRun, request.Expect = nil, &would.Count
				// Once: it is not known of a repetition what the first had done.
				if would, err = bounded(ctx, func(ctx context.Context) (*client.ChangeResult, error) { return ch.call(ctx, api, request) }); err != nil {
					return fmt.Errorf("%s: %w", cmd.Name(), err)
				}
			}
			if c.Output == "json" {
				return c.PrintJSON(would)
			}
			if would.DryRun {
				return c.Printf("would be %s: %d letters\n", ch.done, would.Count)
			}
			return c.Printf("%s: %d letters\n", ch.done, would.Count)
		},
	}
	f.flags(cmd)
	a.flags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only count")
	if !ch.byState {
		cmd.Flags().BoolVar(&all, "all", false, "all letters, where nothing else selects")
	}
	return c.WithOutput(cmd)
}

// bulkLimit is how many letters may be changed without saying how many are expected.
func bulkLimit(ctx context.Context, api *client.ClientWithResponses) (int64, error) {
	answer, err := persist(ctx, func(ctx context.Context) (*client.GetVersionResponse, error) { return api.GetVersionWithResponse(ctx) })
	if err != nil {
		return 0, err
	}
	return answer.JSON200.BulkLimit, nil
}

func (c *cli) discardCommand() *cobra.Command {
	return c.changeCommand(change{
		use:   "discard [NUMBER...]",
		short: "Mark dead letters that nobody wants any more",
		long: `discard marks the dead letters that are named or that the flags select as not wanted
any more: no replay takes them then. dlt-replayer undiscard takes it back.

Exit codes: 0 done; 4 nothing matched; 5 refused, or no permission; 2 usage; 1
failure.`,
		verb: "Discard", done: "discarded", from: []client.State{client.StateDead},
		call: func(ctx context.Context, api *client.ClientWithResponses, request client.ChangeRequest) (*client.ChangeResult, error) {
			answer, err := api.DiscardLettersWithResponse(ctx, request)
			if err != nil {
				return nil, err
			}
			return answer.JSON200, nil
		},
	})
}

func (c *cli) undiscardCommand() *cobra.Command {
	return c.changeCommand(change{
		use:   "undiscard [NUMBER...]",
		short: "Make discarded letters dead again",
		long: `undiscard makes discarded letters that are named or that the flags select dead again,
so that they can be replayed.

Exit codes: 0 done; 4 nothing matched; 5 refused, or no permission; 2 usage; 1
failure.`,
		verb: "Undiscard", done: "dead again", from: []client.State{client.StateDiscarded},
		call: func(ctx context.Context, api *client.ClientWithResponses, request client.ChangeRequest) (*client.ChangeResult, error) {
			answer, err := api.UndiscardLettersWithResponse(ctx, request)
			if err != nil {
				return nil, err
			}
			return answer.JSON200, nil
		},
	})
}

func (c *cli) purgeCommand() *cobra.Command {
	return c.changeCommand(change{
		use:   "purge --state STATE",
		short: "Remove letters from the ledger",
		long: `purge removes what the ledger knows of letters, and the bytes that it kept of them.
--state must name which: a letter that is dead goes only if that is named, and one
that is claimed never. The records in Kafka and the audit trail stay.

  dlt-replayer purge --state succeeded,discarded --to 90d --reason 'older than 90 days'

Exit codes: 0 done; 4 nothing matched; 5 refused, or no permission; 2 usage; 1
failure.`,
		verb: "Remove", done: "removed", byState: true,
		call: func(ctx context.Context, api *client.ClientWithResponses, request client.ChangeRequest) (*client.ChangeResult, error) {
			answer, err := api.PurgeLettersWithResponse(ctx, request)
			if err != nil {
				return nil, err
			}
			return answer.JSON200, nil
		},
	})
}
