package command

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/config"
)

// ConfigCommand is config, with what is below it.
func (l *Line) ConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration or its schema",
	}
	cmd.AddCommand(l.printCommand(), l.schemaCommand())
	return cmd
}

func (l *Line) printCommand() *cobra.Command {
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
				return Usage(cmd, errors.New("--effective=false: there is no other form"))
			}
			form := "yaml"
			if l.Output == "json" {
				form = "json"
			}
			text, err := config.Effective(l.Source(), form)
			if err != nil {
				return err
			}
			return l.Print(text)
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", true, "as it is in force; the only form")
	return l.WithOutput(cmd)
}

func (l *Line) schemaCommand() *cobra.Command {
	return l.WithOutput(&cobra.Command{
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
			return l.Print(schema)
		},
	})
}
