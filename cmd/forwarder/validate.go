package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

// verdict is the answer of validate.
type verdict struct {
	Valid bool `json:"valid"`
	// Problems are those of the configuration.
	Problems []config.Problem `json:"problems"`
	// The following are compared with --kafka only: the topics, each with its
	// problems, problems of no topic, and which partitioner the keys fit.
	Topics  []kafka.TopicPlan `json:"topics,omitempty"`
	Others  []kafka.Problem   `json:"others,omitempty"`
	Samples []kafka.Sample    `json:"samples,omitempty"`
}

func (c *cli) validateCommand() *cobra.Command {
	var kafkaToo bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration, and with --kafka the topics",
		Long: `validate checks the file, the environment and the flags, and tells everything
that is wrong with line and column. With --kafka it asks the brokers as well and
holds topics, groups, rights and clocks against what the file needs, by the rules
of run. It changes nothing, and writes nothing to find out.

Exit codes: 0 valid; 2 the configuration is wrong; 3 with --kafka, there is a
problem, warnings included; 1 no broker answered.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := c.Options()
			var invalid *config.Errors
			if errors.As(err, &invalid) && c.Output == "json" {
				return errors.Join(c.PrintJSON(verdict{Problems: c.FlagNames(invalid.Problems)}), err)
			}
			if err != nil {
				return err
			}
			if !kafkaToo {
				return c.printValid(opts, nil)
			}
			plan, err := app.Plan(cmd.Context(), opts)
			if err != nil {
				return err
			}
			if err := c.printValid(opts, plan); err != nil {
				return err
			}
			if slices.ContainsFunc(plan.Problems(), isProblem) {
				return errDrift
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&kafkaToo, "kafka", false, "hold the cluster against the configuration as well")
	return c.WithOutput(cmd)
}

// isProblem tells what wants a look from what is only worth knowing.
func isProblem(p kafka.Problem) bool { return p.Severity != issue.SeverityInfo }

// printValid tells that the configuration is valid and what the topics are like.
func (c *cli) printValid(opts app.Options, plan *kafka.Plan) error {
	if c.Output == "json" {
		v := verdict{Valid: true, Problems: []config.Problem{}}
		if plan != nil {
			v.Topics, v.Others, v.Samples = plan.Topics, plan.Others, plan.Samples
		}
		return c.PrintJSON(v)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s is valid.\n", opts.ConfigPath)
	if plan != nil {
		b.WriteByte('\n')
		if err := plan.WriteText(&b); err != nil {
			return err
		}
	}
	return c.Print(b.Bytes())
}
