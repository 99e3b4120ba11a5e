package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/command"
)

// consent is how a command is allowed to have its effect.
type consent struct {
	yes    bool
	count  int64
	reason string
}

func (a *consent) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&a.yes, "yes", false, "do not ask")
	flags.Int64Var(&a.count, "count", 0, "`number` of letters that is expected; another is refused")
	flags.StringVar(&a.reason, "reason", "", "`why`, for the audit trail (required)")
}

// check reports what is missing before anybody is asked.
func (a *consent) check(cmd *cobra.Command) error {
	if strings.TrimSpace(a.reason) == "" {
		return command.Usage(cmd, errors.New("--reason is required: it stands in the audit trail"))
	}
	if cmd.Flags().Changed("count") && a.count < 1 {
		return command.Usage(cmd, errors.New("--count: want 1 or more"))
	}
	return nil
}

// confirm shows how many letters it is about and has that agreed to: by a person at
// a terminal; elsewhere by --count, or by --yes up to the limit of the server. One
// letter that was named needs no more.
func (c *cli) confirm(cmd *cobra.Command, a *consent, what string, count, limit int64, byName bool) error {
	switch {
	case a.count > 0 && a.count != count:
		return &refusedError{fmt.Errorf("it is about %d letters, and --count says %d", count, a.count)}
	case a.count > 0, byName && count == 1:
		return nil
	case a.yes && (limit == 0 || count <= limit):
		return nil
	case a.yes:
		return command.Usage(cmd, fmt.Errorf("it is about %d letters, which is more than %d: say --count %d if that is meant", count, limit, count))
	case !command.IsTerminal(c.Stdin) || !command.IsTerminal(c.Stderr):
		return command.Usage(cmd, fmt.Errorf("it is about %d letters, and there is nobody to ask: say --count %d, or --yes", count, count))
	}
	c.Talk("%s %d letters? [y/N] ", what, count)
	answer, err := bufio.NewReader(c.Stdin).ReadString('\n')
	if err != nil {
		c.Talk("\n")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &refusedError{errors.New("nothing was done")}
}
