package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/app"
)

func (c *cli) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Move records until stopped",
		Long: `run moves records until SIGTERM or SIGINT, then finishes what is in flight,
commits and leaves the group, within forwarder.shutdownTimeout. A second signal
ends it at once: what was in flight may be sent again by the next run.

It waits while no broker answers. It does not start while topics are missing, or
kept in a way that loses records: forwarder topics plan shows how they differ. It
looks at them again every minute.

It loads the configuration anew on SIGHUP and when the file has changed, and tells
what needs a restart. One that is wrong changes nothing.

Probes and metrics are at forwarder.admin.address: /livez, /readyz?verbose,
/metrics. Logs go to standard error.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := c.Service()
			if err != nil {
				return err
			}
			tuneMemory(int64(opts.Config.Forwarder.MaxHeldBytes), os.Getenv)
			a, err := app.New(cmd.Context(), opts)
			if err != nil {
				return fmt.Errorf("start: %w", err)
			}
			return a.Run(cmd.Context())
		},
	}
}
