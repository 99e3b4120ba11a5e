package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Execute runs the command line below a root, and returns what the command did.
func (l *Line) Execute(ctx context.Context, root *cobra.Command) error {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return Usage(cmd, err) })
	for _, cmd := range append(root.Commands(), root) {
		strict(cmd)
	}
	root.SetArgs(l.Args)
	root.SetIn(l.Stdin)
	root.SetOut(l.Stdout)
	root.SetErr(l.Stderr)
	return root.ExecuteContext(ctx)
}

// strict makes a wrong command a usage error, on every level: cobra shows the help
// of a command with subcommands and calls that a success.
func strict(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, given []string) error {
			if err := args(cmd, given); err != nil {
				return Usage(cmd, err)
			}
			return nil
		}
	}
	if cmd.Runnable() || !cmd.HasSubCommands() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usage(cmd, errors.New("a command is missing: "+names(cmd)))
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += ", did you mean " + strings.Join(near, " or ") + "?"
		}
		return Usage(cmd, errors.New(text))
	}
}

func names(cmd *cobra.Command) string {
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return strings.Join(all, ", ")
}

// WithOutput gives a command the flag -o and runs it only with a form it knows. The
// first is the default; without any they are text and json.
func (l *Line) WithOutput(cmd *cobra.Command, forms ...string) *cobra.Command {
	if len(forms) == 0 {
		forms = []string{"text", "json"}
	}
	last := len(forms) - 1
	known := strings.Join(forms[:last], ", ") + " or " + forms[last]
	// Of its own, since each command may have another default.
	var output string
	cmd.Flags().StringVarP(&output, "output", "o", forms[0], "`form` of the answer: "+known)
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(forms, output) {
			return Usage(cmd, fmt.Errorf("--output %s: want %s", output, known))
		}
		l.Output = output
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
	return cmd
}
