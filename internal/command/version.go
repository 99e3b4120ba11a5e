package command

import "github.com/spf13/cobra"

// VersionCommand is version.
func (l *Line) VersionCommand() *cobra.Command {
	return l.WithOutput(&cobra.Command{
		Use:   "version",
		Short: "Print the version and the build",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if l.Output == "json" {
				return l.PrintJSON(l.Build)
			}
			b := l.Build
			return l.Printf("%s %s (revision %s, date %s, %s, %s)\n", l.Program, b.Version, b.Revision, b.Date, b.Go, b.Platform)
		},
	})
}
