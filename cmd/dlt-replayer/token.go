package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api"
)

// made is the answer of token: the token, and the entry for the file of tokens.
type made struct {
	Token string `json:"token"`
	Entry entry  `json:"entry"`
}

type entry struct {
	Name   string   `json:"name"`
	Role   string   `json:"role"`
	SHA256 string   `json:"sha256"`
	Topics []string `json:"topics"`
}

func (c *cli) tokenCommand() *cobra.Command {
	e := entry{Topics: []string{}}
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token for the API",
		Long: `token makes a random token and prints it, once, with the entry for
replayer.api.tokens or the file of replayer.api.tokensFilepath. The entry holds its
SHA-256; the token itself is kept nowhere. A serve that runs takes a changed file by
itself.

Exit codes: 0 done; 2 usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case e.Name == "":
				return command.Usage(cmd, errors.New("--name is required: it stands in the audit trail"))
			case strings.Trim(e.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "":
				return command.Usage(cmd, fmt.Errorf("--name %q: allowed are letters, digits, '.', '_' and '-'", e.Name))
			case !slices.Contains([]string{"viewer", "operator", "admin"}, e.Role):
				return command.Usage(cmd, fmt.Errorf("--role %q: want viewer, operator or admin", e.Role))
			}
			token, sum := api.NewToken()
			e.SHA256 = hex.EncodeToString(sum[:])
			if c.Output == "json" {
				return c.PrintJSON(made{token, e})
			}
			text := fmt.Sprintf("# The token, which is shown this once: set REDRIVE_TOKEN to it.\n# %s\n\n- name: %s\n  role: %s\n  sha256: %s\n", token, e.Name, e.Role, e.SHA256)
			if len(e.Topics) > 0 {
				text += "  topics: [" + strings.Join(e.Topics, ", ") + "]\n"
			}
			return c.Print([]byte(text))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&e.Name, "name", "", "`name` of who gets it, as the audit trail says it (required)")
	flags.StringVar(&e.Role, "role", "viewer", "`role`: viewer, operator or admin")
	flags.StringSliceVar(&e.Topics, "topic", e.Topics, "`topic` of dead letters that it is for, may be repeated; all if it is not given")
	return c.WithOutput(cmd)
}
