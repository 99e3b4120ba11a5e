package main

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

func (c *cli) topicsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "Compare and create the topics of the configuration",
	}
	cmd.AddCommand(c.planCommand(), c.applyCommand())
	return cmd
}

func (c *cli) planCommand() *cobra.Command {
	return c.WithOutput(&cobra.Command{
		Use:   "plan",
		Short: "Show what apply would do",
		Long: `plan compares the topics of the cluster with what the file needs and shows what
apply would do, and what it would leave to you. It changes nothing.

Exit codes: 0 nothing to do, warnings at most; 3 there are changes to make, or
errors that apply leaves alone; 1 no broker answered.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := c.Options()
			if err != nil {
				return err
			}
			plan, err := app.Plan(cmd.Context(), opts)
			if err != nil {
				return err
			}
			if c.Output == "json" {
				err = c.PrintJSON(plan)
			} else {
				err = c.printPlan(plan)
			}
			if err != nil {
				return err
			}
			if plan.Changed() || hasErrors(plan.Problems()) {
				return errDrift
			}
			return nil
		},
	})
}

// act is one act of apply, as JSON.
type act struct {
	Topic string `json:"topic"`
	What  string `json:"what"`
	Error string `json:"error,omitempty"`
}

// applied is the answer of apply.
type applied struct {
	Acts []act `json:"acts"`
	// Problems are those that are left.
	Problems []kafka.Problem `json:"problems"`
}

func (c *cli) applyCommand() *cobra.Command {
	return c.WithOutput(&cobra.Command{
		Use:   "apply",
		Short: "Create missing topics and raise what is too low",
		Long: `apply creates the topics that are missing, with the partitions and the
replication of their origin, and raises partitions, retention and record size
where they are too low. It never deletes or shrinks anything and never touches an
origin. What it leaves alone it names, with the command to run.

Exit codes: 0 done, warnings at most are left; 1 something failed, or an origin
is missing; 3 errors are left that need a decision of yours.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := c.Options()
			if err != nil {
				return err
			}
			answer := applied{Acts: []act{}, Problems: []kafka.Problem{}}
			plan, err := app.Apply(cmd.Context(), opts, func(a kafka.Act) {
				done := act{Topic: a.Topic, What: a.What}
				if a.Err != nil {
					done.Error = a.Err.Error()
				}
				answer.Acts = append(answer.Acts, done)
			})
			if plan == nil {
				return err
			}
			// Who applies is seldom the user of the forwarder, whose rights plan asks for.
			left := slices.DeleteFunc(plan.Problems(), func(p kafka.Problem) bool { return p.Code == issue.ACLMissing })
			answer.Problems = append(answer.Problems, left...)
			if printErr := c.printApplied(answer, len(plan.Topics)); printErr != nil {
				return printErr
			}
			if err == nil && hasErrors(left) {
				return errDrift
			}
			return err
		},
	})
}

func (c *cli) printApplied(answer applied, topics int) error {
	if c.Output == "json" {
		return c.PrintJSON(answer)
	}
	var b bytes.Buffer
	for _, a := range answer.Acts {
		if a.Error == "" {
			fmt.Fprintf(&b, "%s: %s\n", a.Topic, past(a.What))
		}
	}
	switch {
	case len(answer.Acts) > 0:
	case len(answer.Problems) == 0:
		fmt.Fprintf(&b, "Nothing to do: %d topics are as they must be.\n", topics)
	default:
		fmt.Fprintf(&b, "Nothing that apply can do for %d topics.\n", topics)
	}
	for _, p := range answer.Problems {
		b.WriteString("\n" + p.Text())
	}
	return c.Print(b.Bytes())
}

func past(what string) string {
	if what == "create" {
		return "created"
	}
	return what
}

func (c *cli) printPlan(plan *kafka.Plan) error {
	var b bytes.Buffer
	if err := plan.WriteText(&b); err != nil {
		return err
	}
	return c.Print(b.Bytes())
}

func hasErrors(problems []kafka.Problem) bool {
	return slices.ContainsFunc(problems, func(p kafka.Problem) bool { return p.Severity == issue.SeverityError })
}
