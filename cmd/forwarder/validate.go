package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/kafka"
)

// verdict is the answer of validate.
type verdict struct {
	Valid bool `json:"valid"`
	// Problems are those of the configuration.
	Problems []config.Problem `json:"problems"`
	// Topics are compared with --kafka only.
	Topics []kafka.TopicPlan `json:"topics,omitempty"`
}

func (c *cli) validateCommand() *cobra.Command {
	var kafkaToo bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration, and with --kafka the topics",
		Long: `validate checks the file, the environment and the flags, and tells everything
that is wrong with line and column. With --kafka it asks the brokers as well and
compares the topics with what the file needs. It changes nothing.

Exit codes: 0 valid; 2 the configuration is wrong; 3 with --kafka, a topic has a
problem, warnings included; 1 no broker answered.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := c.options()
			var invalid *config.Errors
			if errors.As(err, &invalid) && c.output == "json" {
				return errors.Join(c.printJSON(verdict{Problems: c.flagNames(invalid.Problems)}), err)
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
			if len(plan.Problems()) > 0 {
				return errDrift
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&kafkaToo, "kafka", false, "compare the topics of the cluster as well")
	return c.withOutput(cmd)
}

// printValid tells that the configuration is valid and what the topics are like.
func (c *cli) printValid(opts app.Options, plan *kafka.Plan) error {
	if c.output == "json" {
		v := verdict{Valid: true, Problems: []config.Problem{}}
		if plan != nil {
			v.Topics = plan.Topics
		}
		return c.printJSON(v)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s is valid.\n", opts.ConfigPath)
	if plan != nil {
		b.WriteByte('\n')
		if err := plan.WriteText(&b); err != nil {
			return err
		}
	}
	return c.print(b.Bytes())
}
