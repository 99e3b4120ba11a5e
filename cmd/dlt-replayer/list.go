package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

// largestPage is the most that the API gives at once.
const largestPage = 1000

func (c *cli) withHeaders(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&c.noHeaders, "no-headers", false, "leave out the first line of a table")
	return c.WithOutput(cmd, forms()...)
}

func (c *cli) listCommand() *cobra.Command {
	var (
		f     filter
		order string
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list [NUMBER...]",
		Short: "List dead letters",
		Long: `list shows the letters that the flags select, and without any all. One flag given
several times means one of its values; different flags must all hold.

Exit codes: 0 shown; 4 nothing matched; 2 usage; 5 no permission; 1 failure.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, err := f.filter(cmd, args, time.Now())
			if err != nil {
				return err
			}
			if limit < 0 {
				return command.Usage(cmd, errors.New("--limit: want a number, or 0 for all"))
			}
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			letters, more, err := pages(cmd.Context(), limit, func(ctx context.Context, cursor *string, size int32) ([]client.Letter, string, error) {
				query := client.ListLettersParams{}
				if err := params(selected, &query); err != nil {
					return nil, "", err
				}
				query.Order, query.Cursor, query.Limit = new(client.Order(order)), cursor, &size
				answer, err := api.ListLettersWithResponse(ctx, &query)
				if err != nil {
					return nil, "", err
				}
				return answer.JSON200.Letters, answer.JSON200.Next, nil
			})
			if err != nil {
				return fmt.Errorf("list: %w", err)
			}
			if len(letters) == 0 {
				c.Talk("nothing matched\n")
				return errNothing
			}
			if err := c.printLetters(letters); err != nil {
				return err
			}
			if more {
				c.Talk("these are the first %d, there are more: see --limit\n", len(letters))
			}
			return nil
		},
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&order, "order", "newest", "`order`: newest, oldest, or that of a replay")
	cmd.Flags().IntVar(&limit, "limit", 100, "`number` of letters at most; 0 is all")
	return c.withHeaders(cmd)
}

// pages collects pages until there are limit items, or with a limit of 0 all. It
// tells whether there are more.
func pages[T any](ctx context.Context, limit int, page func(ctx context.Context, cursor *string, size int32) ([]T, string, error)) (all []T, more bool, err error) {
	var cursor *string
	for {
		size := largestPage
		if limit > 0 {
			size = min(size, limit-len(all))
		}
		type part struct {
			items []T
			next  string
		}
		got, err := persist(ctx, func(ctx context.Context) (part, error) {
			items, next, err := page(ctx, cursor, int32(size))
			return part{items, next}, err
		})
		if err != nil {
			return all, false, err
		}
		all = append(all, got.items...)
		if got.next == "" || limit > 0 && len(all) >= limit {
			return all, got.next != "", nil
		}
		cursor = &got.next
	}
}

func (c *cli) printLetters(letters []client.Letter) error {
	return c.answerList(letters, "ID|STATE|DEAD SINCE|ORIGIN|REASON|ERROR TYPE|ERROR|KEY|MESSAGE ID", func(rows *bytes.Buffer) {
		for i := range letters {
			l := &letters[i]
			fmt.Fprintf(rows, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, l.State, stamp(l.DeadAt), cell(l.Origin, 60), cell(l.Reason, 20),
				cell(l.ErrorType, 40), cell(l.ErrorText, 60), cell(keyText(l.Key), 40), cell(l.MessageID, 100))
		}
	})
}

func (c *cli) groupsCommand() *cobra.Command {
	var (
		f     filter
		by    string
		limit int32
	)
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Count letters that are alike",
		Long: `groups counts the letters that the flags select, the largest group first, with the
first and the last of each and its newest as an example. By fingerprint those are
alike that failed with the same error, whatever numbers, ids, hosts and paths stand
in its text.

Exit codes: 0 shown; 4 nothing matched; 2 usage; 5 no permission; 1 failure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, err := f.filter(cmd, args, time.Now())
			if err != nil {
				return err
			}
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			query := client.GroupLettersParams{}
			if err := params(selected, &query); err != nil {
				return err
			}
			query.By, query.Limit = new(client.GroupBy(by)), &limit
			answer, err := persist(cmd.Context(), func(ctx context.Context) (*client.GroupLettersResponse, error) {
				return api.GroupLettersWithResponse(ctx, &query)
			})
			if err != nil {
				return fmt.Errorf("groups: %w", err)
			}
			groups := answer.JSON200.Groups
			if len(groups) == 0 {
				c.Talk("nothing matched\n")
				return errNothing
			}
			return c.answerList(groups, "COUNT|"+groupHeader(by)+"|FIRST|LAST|NEWEST|EXAMPLE", func(rows *bytes.Buffer) {
				for i := range groups {
					g := &groups[i]
					fmt.Fprintf(rows, "%d\t%s\t%s\t%s\t%d\t%s\n", g.Count, cell(g.Value, 60), stamp(g.First), stamp(g.Last), g.Newest.ID,
						cell(g.Newest.ErrorType+" "+g.Newest.ErrorText, 80))
				}
			})
		},
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&by, "by", "fingerprint", "`what` they have in common: fingerprint, reason, errorType, origin, label, state, hour or day")
	cmd.Flags().Int32Var(&limit, "limit", 20, "`number` of groups at most")
	return c.withHeaders(cmd)
}

func groupHeader(by string) string {
	if by == "errorType" {
		return "ERROR TYPE"
	}
	return string(bytes.ToUpper([]byte(by)))
}

func (c *cli) statsCommand() *cobra.Command {
	var partitions bool
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count letters by topic and state",
		Long: `stats counts the letters of each topic of dead letters by their state: how many, how
many died within the last hour, and since when the oldest is dead. With --partitions
it shows how far each partition is indexed, and how many records retention took
before that.

Exit codes: 0 shown; 2 usage; 5 no permission; 1 failure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			if partitions {
				answer, err := persist(cmd.Context(), func(ctx context.Context) (*client.GetProgressResponse, error) {
					return api.GetProgressWithResponse(ctx)
				})
				if err != nil {
					return fmt.Errorf("stats: %w", err)
				}
				list := answer.JSON200.Partitions
				return c.answerList(list, "TOPIC|PARTITION|NEXT OFFSET|LOST", func(rows *bytes.Buffer) {
					for _, p := range list {
						fmt.Fprintf(rows, "%s\t%d\t%d\t%d\n", p.Topic, p.Partition, p.Next, p.Lost)
					}
				})
			}
			answer, err := persist(cmd.Context(), func(ctx context.Context) (*client.GetStatsResponse, error) { return api.GetStatsWithResponse(ctx) })
			if err != nil {
				return fmt.Errorf("stats: %w", err)
			}
			list := answer.JSON200.Stats
			return c.answerList(list, "TOPIC|ORIGIN|STATE|COUNT|LAST HOUR|OLDEST", func(rows *bytes.Buffer) {
				for _, s := range list {
					fmt.Fprintf(rows, "%s\t%s\t%s\t%d\t%d\t%s\n", s.Topic, s.Origin, s.State, s.Count, s.LastHour, stampOf(s.Oldest))
				}
			})
		},
	}
	cmd.Flags().BoolVar(&partitions, "partitions", false, "how far each partition is indexed")
	return c.withHeaders(cmd)
}

func (c *cli) exportCommand() *cobra.Command {
	var (
		f       filter
		order   string
		payload bool
	)
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write all letters that match, a line of JSON each",
		Long: `export writes all letters that the flags select, and without any all, as one JSON
object a line. With --payload each has its bytes in base64, or the reason why there
are none. dlt-replayer replay --from-file takes such a file.

Exit codes: 0 written whole; 4 nothing matched; 1 failure, and what was written is
a part; 2 usage; 5 no permission.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, err := f.filter(cmd, args, time.Now())
			if err != nil {
				return err
			}
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			query := client.ExportLettersParams{}
			if err := params(selected, &query); err != nil {
				return err
			}
			query.Order, query.Payload = new(client.Order(order)), &payload
			response, err := api.ExportLetters(cmd.Context(), &query)
			if err != nil {
				return fmt.Errorf("export: %w", err)
			}
			defer func() { _ = response.Body.Close() }()
			written, err := io.Copy(c.Stdout, response.Body)
			if err != nil {
				return fmt.Errorf("export: it is not whole: %w", err)
			}
			if written == 0 {
				c.Talk("nothing matched\n")
				return errNothing
			}
			return nil
		},
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&order, "order", "oldest", "`order`: newest, oldest, or that of a replay")
	cmd.Flags().BoolVar(&payload, "payload", false, "with the bytes of each record")
	return cmd
}

func (c *cli) auditCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what, and why",
		Long: `audit shows the audit trail, the newest first: replays, discards, purges, what was
done to jobs, what expired, and triggers that were refused.

Exit codes: 0 shown; 4 there is nothing; 2 usage; 5 no permission; 1 failure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return command.Usage(cmd, err)
			}
			entries, more, err := pages(cmd.Context(), limit, func(ctx context.Context, cursor *string, size int32) ([]client.AuditEntry, string, error) {
				answer, err := api.ListAuditWithResponse(ctx, &client.ListAuditParams{Cursor: cursor, Limit: &size})
				if err != nil {
					return nil, "", err
				}
				return answer.JSON200.Entries, answer.JSON200.Next, nil
			})
			if err != nil {
				return fmt.Errorf("audit: %w", err)
			}
			if len(entries) == 0 {
				c.Talk("nothing was done yet\n")
				return errNothing
			}
			err = c.answerList(entries, "ID|AT|ACTOR|ACTION|COUNT|OBJECT|REASON|DETAIL", func(rows *bytes.Buffer) {
				for _, e := range entries {
					fmt.Fprintf(rows, "%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", e.ID, stamp(e.At), cell(e.Actor, 40), cell(e.Action, 20), e.Count,
						cell(e.Object, 60), cell(e.Reason, 60), cell(e.Detail, 80))
				}
			})
			if err == nil && more {
				c.Talk("these are the newest %d, there are more: see --limit\n", len(entries))
			}
			return err
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "`number` of entries at most; 0 is all")
	return c.withHeaders(cmd)
}
