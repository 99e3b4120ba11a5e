package main

import "github.com/spf13/cobra"

func (c *cli) versionCommand() *cobra.Command {
	return c.withOutput(&cobra.Command{
		Use:   "version",
		Short: "Print the version and the build",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if c.output == "json" {
				return c.printJSON(c.build)
			}
			b := c.build
			return c.printf("forwarder %s (revision %s, %s, %s)\n", b.Version, b.Revision, b.Go, b.Platform)
		},
	})
}
