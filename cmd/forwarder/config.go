package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/config"
)

func (c *cli) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration or its schema",
	}
	cmd.AddCommand(c.printCommand(), c.schemaCommand())
	return cmd
}

func (c *cli) printCommand() *cobra.Command {
	var effective bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print every setting as it is in force, and where it comes from",
		Long: `print writes every setting as it is in force, with defaults filled and names
expanded, and where each value comes from: a line of the file, the environment, a
flag or the default. Secrets are written as ***.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !effective {
				return &usageError{errors.New("--effective=false: there is no other form"), cmd.CommandPath()}
			}
			form := "yaml"
			if c.output == "json" {
				form = "json"
			}
			text, err := config.Effective(c.source(), form)
			if err != nil {
				return err
			}
			return c.print(text)
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", true, "as it is in force; the only form")
	return c.withOutput(cmd)
}

func (c *cli) schemaCommand() *cobra.Command {
	return c.withOutput(&cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the file",
		Long: `schema writes the JSON Schema (draft 7) of the file, for editors. It is JSON in
either form of the answer.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			schema, err := config.Schema()
			if err != nil {
				return err
			}
			return c.print(schema)
		},
	})
}
