package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

func (c *cli) jobsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Look at replays, and control them",
	}
	cmd.AddCommand(c.listJobsCommand(), c.showJobCommand(), c.itemsCommand(), c.watchCommand(), c.pauseCommand(), c.resumeCommand(), c.cancelCommand(), c.rateCommand())
	return cmd
}

func (c *cli) listJobsCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List replays, the newest first",
		Long: `list shows replays, the newest first.

Exit codes: 0 shown; 4 there are none; 2 usage; 5 no permission; 1 failure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			jobs, more, err := pages(cmd.Context(), limit, func(ctx context.Context, cursor *string, size int32) ([]client.Job, string, error) {
				answer, err := api.ListJobsWithResponse(ctx, &client.ListJobsParams{Cursor: cursor, Limit: &size})
				if err != nil {
					return nil, "", err
				}
				return answer.JSON200.Jobs, answer.JSON200.Next, nil
			})
			if err != nil {
				return fmt.Errorf("list jobs: %w", err)
			}
			if len(jobs) == 0 {
				c.Talk("there are no jobs\n")
				return errNothing
			}
			err = c.answerList(jobs, "JOB|STATE|TOTAL|DONE|FAILED|SKIPPED|LEFT|CREATED|ACTOR|REASON", func(rows *bytes.Buffer) {
				for i := range jobs {
					j := &jobs[i]
					fmt.Fprintf(rows, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", j.ID, j.State, j.Total, j.Done, j.Failed, j.Skipped, j.Left,
						stamp(j.CreatedAt), cell(j.Actor, 40), cell(j.Reason, 60))
				}
			})
			if err == nil && more {
				c.Talk("these are the newest %d, there are more: see --limit\n", len(jobs))
			}
			return err
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "`number` of jobs at most; 0 is all")
	return c.withHeaders(cmd)
}

func (c *cli) showJobCommand() *cobra.Command {
	return c.WithOutput(&cobra.Command{
		Use:   "show JOB",
		Short: "Show one replay and how far it is",
		Long: `show shows who wanted the replay and why, how far it is, and its first error.

Exit codes: 0 shown; 4 there is no such job; 2 usage; 5 no permission; 1 failure.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			job, err := getJob(cmd.Context(), api, args[0])
			if err != nil {
				return fmt.Errorf("show job: %w", err)
			}
			return c.printJob(job)
		},
	}, forms()...)
}

func getJob(ctx context.Context, api *client.ClientWithResponses, id string) (*client.Job, error) {
	return persist(ctx, func(ctx context.Context) (*client.Job, error) { return askJob(ctx, api, id) })
}

func askJob(ctx context.Context, api *client.ClientWithResponses, id string) (*client.Job, error) {
	answer, err := api.GetJobWithResponse(ctx, id)
	if err != nil {
		return nil, err
	}
	return answer.JSON200, nil
}

func (c *cli) printJob(j *client.Job) error {
	return c.answer(j, func(rows *bytes.Buffer) {
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(rows, "%s\t%s\n", name, command.Printable(value))
			}
		}
		line("job", j.ID)
		line("state", string(j.State))
		line("letters", tally(j))
		line("first error", j.FirstError)
		line("wanted by", fmt.Sprintf("%s (%s)", j.Actor, j.Source))
		line("reason", j.Reason)
		line("destination", j.Destination)
		if j.Rate > 0 {
			line("rate", fmt.Sprintf("%g letters a second at most", j.Rate))
		}
		line("pace", speed(j))
		if j.Force {
			line("forced", "yes")
		}
		if j.Edited {
			line("edited", "yes")
		}
		line("created", stamp(j.CreatedAt))
		for _, t := range []struct {
			name string
			at   *time.Time
		}{{"started", j.StartedAt}, {"ended", j.EndedAt}, {"reply written", j.RepliedAt}} {
			if t.at != nil {
				line(t.name, stamp(*t.at))
			}
		}
		line("works on it", j.Owner)
	})
}

func tally(j *client.Job) string {
	return fmt.Sprintf("%d: replayed %d, failed %d, skipped %d, left %d", j.Total, j.Done, j.Failed, j.Skipped, j.Left)
}

func speed(j *client.Job) string {
	if j.PerSecond == 0 {
		return ""
	}
	text := fmt.Sprintf("%.1f letters a second", j.PerSecond)
	if j.EtaSeconds != nil {
		text += fmt.Sprintf(", about %v to go", time.Duration(*j.EtaSeconds*float64(time.Second)).Round(time.Second))
	}
	return text
}

func (c *cli) itemsCommand() *cobra.Command {
	var (
		states []string
		limit  int
	)
	cmd := &cobra.Command{
		Use:   "items JOB",
		Short: "Show what became of each letter of a replay",
		Long: `items shows the letters of a replay in its order, and what became of each: open, done,
failed or skipped, and why.

Exit codes: 0 shown; 4 there is no such job, or no such letter in it; 2 usage; 5 no
permission; 1 failure.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			query := client.ListItemsParams{}
			for _, s := range states {
				query.State = append(query.State, client.ItemState(s))
			}
			items, more, err := pages(cmd.Context(), limit, func(ctx context.Context, cursor *string, size int32) ([]client.Item, string, error) {
				query.Cursor, query.Limit = cursor, &size
				answer, err := api.ListItemsWithResponse(ctx, args[0], &query)
				if err != nil {
					return nil, "", err
				}
				return answer.JSON200.Items, answer.JSON200.Next, nil
			})
			if err != nil {
				return fmt.Errorf("items: %w", err)
			}
			if len(items) == 0 {
				c.Talk("nothing matched\n")
				return errNothing
			}
			err = c.answerList(items, "SEQ|LETTER|STATE|KEY|MESSAGE ID|COPY|ERROR", func(rows *bytes.Buffer) {
				for i := range items {
					item := &items[i]
					lies := "-"
					if item.Copy != nil {
						lies = fmt.Sprintf("%s/%d/%d", item.Copy.Topic, item.Copy.Partition, item.Copy.Offset)
					}
					fmt.Fprintf(rows, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", item.Seq, item.Letter, item.State, cell(keyText(item.Key), 40), cell(item.MessageID, 100), lies, cell(item.Error, 120))
				}
			})
			if err == nil && more {
				c.Talk("these are the first %d, there are more: see --limit\n", len(items))
			}
			return err
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "`state`: open, done, failed or skipped; may be repeated")
	cmd.Flags().IntVar(&limit, "limit", 100, "`number` of letters at most; 0 is all")
	return c.withHeaders(cmd)
}

func (c *cli) watchCommand() *cobra.Command {
	return c.WithOutput(&cobra.Command{
		Use:   "watch JOB",
		Short: "Wait for the end of a replay",
		Long: `watch shows how far a replay is until it ends, and then what became of it. An
interrupt ends the watching and not the replay.

Exit codes: 0 all letters were replayed; 3 some were not; 4 there is no such job;
2 usage; 5 no permission; 1 failure; 130 interrupted, and the replay goes on.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			return c.watch(cmd.Context(), api, args[0])
		},
	}, forms()...)
}

// control is a command that changes one job.
func (c *cli) control(cmd *cobra.Command, act func(ctx context.Context, api *client.ClientWithResponses, id string, reason *string) (*client.Job, error)) *cobra.Command {
	var reason string
	name := cmd.Name()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := c.connect()
		if err != nil {
			return command.Usage(cmd, err)
		}
		job, err := bounded(cmd.Context(), func(ctx context.Context) (*client.Job, error) { return act(ctx, api, args[0], text(reason)) })
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return c.printJob(job)
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit trail")
	return c.WithOutput(cmd, forms()...)
}

func (c *cli) pauseCommand() *cobra.Command {
	return c.control(&cobra.Command{
		Use:   "pause JOB",
		Short: "Stop a replay for a while",
		Long: `pause stops a replay: what is sent already is still marked, the rest waits for
dlt-replayer jobs resume.

Exit codes: 0 done; 4 there is no such job; 5 its state does not allow it, or no
permission; 2 usage; 1 failure.`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, api *client.ClientWithResponses, id string, reason *string) (*client.Job, error) {
		answer, err := api.PauseJobWithResponse(ctx, id, client.ControlRequest{Reason: reason})
		if err != nil {
			return nil, err
		}
		return answer.JSON200, nil
	})
}

func (c *cli) resumeCommand() *cobra.Command {
	return c.control(&cobra.Command{
		Use:   "resume JOB",
		Short: "Go on with a replay that was paused or cancelled",
		Long: `resume goes on with what a paused or cancelled replay did not send.

Exit codes: 0 done; 4 there is no such job; 5 its state does not allow it, or no
permission; 2 usage; 1 failure.`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, api *client.ClientWithResponses, id string, reason *string) (*client.Job, error) {
		answer, err := api.ResumeJobWithResponse(ctx, id, client.ControlRequest{Reason: reason})
		if err != nil {
			return nil, err
		}
		return answer.JSON200, nil
	})
}

func (c *cli) cancelCommand() *cobra.Command {
	return c.control(&cobra.Command{
		Use:   "cancel JOB",
		Short: "End a replay",
		Long: `cancel ends a replay: what it did not send is dead as before. dlt-replayer jobs
resume goes on with it nevertheless.

Exit codes: 0 done; 4 there is no such job; 5 its state does not allow it, or no
permission; 2 usage; 1 failure.`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, api *client.ClientWithResponses, id string, reason *string) (*client.Job, error) {
		answer, err := api.CancelJobWithResponse(ctx, id, client.ControlRequest{Reason: reason})
		if err != nil {
			return nil, err
		}
		return answer.JSON200, nil
	})
}

func (c *cli) rateCommand() *cobra.Command {
	var rate float64
	cmd := c.control(&cobra.Command{
		Use:   "rate JOB --to RATE",
		Short: "Change how fast a replay goes",
		Long: `rate changes how many letters a second a replay sends at most. It holds within a
second or two.

Exit codes: 0 done; 4 there is no such job; 5 its state does not allow it, or no
permission; 2 usage; 1 failure.`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, api *client.ClientWithResponses, id string, reason *string) (*client.Job, error) {
		answer, err := api.RateJobWithResponse(ctx, id, client.RateRequest{Rate: rate, Reason: reason})
		if err != nil {
			return nil, err
		}
		return answer.JSON200, nil
	})
	cmd.Flags().Float64Var(&rate, "to", 0, "`number` of letters a second (required)")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if rate <= 0 {
			return command.Usage(cmd, errors.New("--to is required: letters a second, above 0"))
		}
		return run(cmd, args)
	}
	return cmd
}
