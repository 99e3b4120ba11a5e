package main

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/forwarder"
)

func (c *cli) offsetsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "offsets",
		Short: "Show where the group stands, and set it where it is lost",
	}
	cmd.AddCommand(c.listOffsetsCommand(), c.setOffsetsCommand())
	return cmd
}

// listed is the answer of offsets list.
type listed struct {
	Group      string                       `json:"group"`
	Partitions []forwarder.PartitionOffsets `json:"partitions"`
}

func (c *cli) listOffsetsCommand() *cobra.Command {
	var topic string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show where the group stands in each partition",
		Long: `list shows for each partition of the inboxes and the tiers the oldest offset, the
commit of the group, the end, how many offsets are still to do (LAG), how many
above the commit are finished, and the state: ok; new, where a forwarder begins at
the start; offset-missing and offset-out-of-range, where it waits for
forwarder offsets set; topic-missing. It changes nothing.

Exit codes: 0 shown, whatever the states are; 2 usage or configuration; 1 failure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := c.Options()
			if err != nil {
				return err
			}
			rows, err := app.ListOffsets(cmd.Context(), opts, topic)
			if argument, ok := errors.AsType[*app.ArgumentError](err); ok {
				return command.Usage(cmd, argument)
			}
			if err != nil {
				return fmt.Errorf("list offsets: %w", err)
			}
			if c.Output == "json" {
				return c.PrintJSON(listed{opts.Config.Forwarder.Group, rows})
			}
			return c.printOffsets(rows)
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "inbox or tier `topic`; all if it is not given")
	return c.WithOutput(cmd)
}

func (c *cli) printOffsets(partitions []forwarder.PartitionOffsets) error {
	var rows, details bytes.Buffer
	rows.WriteString("TOPIC\tPARTITION\tSTART\tCOMMIT\tEND\tLAG\tFINISHED ABOVE\tSTATE\n")
	for i := range partitions {
		p := &partitions[i]
		if p.Partition < 0 {
			fmt.Fprintf(&rows, "%s\t-\t-\t-\t-\t-\t-\t%s\n", p.Topic, p.State)
			continue
		}
		commit, state := "-", p.State
		if p.Commit >= 0 {
			commit = fmt.Sprint(p.Commit)
		}
		if p.Retired {
			state += " (retired topic)"
		}
		fmt.Fprintf(&rows, "%s\t%d\t%d\t%s\t%d\t%d\t%d\t%s\n", p.Topic, p.Partition, p.Start, commit, p.End, p.Lag, p.Finished, state)
		if p.Detail != "" {
			fmt.Fprintf(&details, "\n%s: %s\n", p, p.Detail)
		}
	}
	text, err := command.Table(rows.Bytes())
	if err != nil {
		return err
	}
	return c.Print(append(text, details.Bytes()...))
}

// set is the answer of offsets set.
type set struct {
	Changes []forwarder.OffsetChange `json:"changes"`
}

// maxPatience keeps the wait well within the time that a decision lasts.
const maxPatience = 30 * time.Minute

func (c *cli) setOffsetsCommand() *cobra.Command {
	var (
		request app.OffsetRequest
		to      string
		yes     bool
	)
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Decide where a partition is read on",
		Long: `set decides for the partitions that a forwarder does not read, because their
commit is missing or out of range, where it reads on. --to is earliest, latest, an
offset (with one --partition), or a time such as 2026-01-31T10:00:00Z, which is
the first record that is not older.

Forwarders that run take the decision within seconds and go on; a partition that
they read is left alone, and the command says so. Without a running forwarder the
commit is set at once, also that of a healthy partition named with --partition.

What is passed is never forwarded: that is counted, and wants --yes.

Exit codes: 0 all are set; 1 some are not, or none waits for a decision; 2 usage
or configuration, nothing was done.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&request.Topic, "topic", "", "inbox or tier `topic` (required)")
	flags.Int32SliceVar(&request.Partitions, "partition", nil, "partition `number`, may be repeated; those that wait for a decision if it is not given")
	flags.StringVar(&to, "to", "", "`where` to read on: earliest, latest, an offset or a time (required)")
	flags.DurationVar(&request.Patience, "timeout", time.Minute, "`duration` that running forwarders have to take the decision, 30m at most")
	flags.BoolVar(&yes, "yes", false, "pass records that may not have been forwarded")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		usage := func(err error) error { return command.Usage(cmd, err) }
		if request.Topic == "" || to == "" {
			return usage(errors.New("--topic and --to are required"))
		}
		var err error
		if request.To, err = forwarder.ParsePosition(to); err != nil {
			return usage(fmt.Errorf("--to %w", err))
		}
		if request.To.OneOffset() && len(request.Partitions) != 1 {
			return usage(errors.New("--to with an offset needs one --partition: an offset is another record in each"))
		}
		if request.Patience < time.Second || request.Patience > maxPatience {
			return usage(fmt.Errorf("--timeout %v: want 1s to %v", request.Patience, maxPatience))
		}
		opts, err := c.Options()
		if err != nil {
			return err
		}
		approve := func(changes []forwarder.OffsetChange) error {
			skipped := int64(0)
			for i := range changes {
				c.Talk("%s\n", changes[i].Describe())
				skipped += changes[i].Skipped
			}
			if skipped > 0 && !yes {
				return usage(fmt.Errorf("this passes %d records that may not have been forwarded, and nothing brings them back: add --yes if that is meant", skipped))
			}
			return nil
		}
		last := time.Now()
		changes, err := app.SetOffsets(cmd.Context(), opts, request, approve, func(left int) {
			if time.Since(last) >= progressInterval {
				last = time.Now()
				c.Talk("waiting for the forwarder of %d partitions\n", left)
			}
		})
		if argument, ok := errors.AsType[*app.ArgumentError](err); ok {
			return usage(argument)
		}
		if changes == nil {
			return explainNothing(err)
		}
		if printErr := c.printSet(changes); printErr != nil {
			return printErr
		}
		if err != nil {
			return fmt.Errorf("set offsets: %w", err)
		}
		return nil
	}
	return c.WithOutput(cmd)
}

// explainNothing says what to do where no partition needs a decision.
func explainNothing(err error) error {
	if errors.Is(err, forwarder.ErrNothingToSet) {
		return fmt.Errorf("set offsets: %w; to move a partition that is well, stop all forwarders and name it with --partition", err)
	}
	return err
}

func (c *cli) printSet(changes []forwarder.OffsetChange) error {
	if c.Output == "json" {
		return c.PrintJSON(set{changes})
	}
	var b bytes.Buffer
	for _, change := range changes {
		if change.Done {
			fmt.Fprintf(&b, "%s/%d: is read on from offset %d\n", change.Topic, change.Partition, change.To)
		}
	}
	return c.Print(b.Bytes())
}
