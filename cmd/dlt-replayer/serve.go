package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/command"
)

func (c *cli) serveCommand() *cobra.Command {
	return c.WithConfig(&cobra.Command{
		Use:   "serve",
		Short: "Index dead letters and replay them until stopped",
		Long: `serve indexes every topic of dead letters in topics.yaml, runs replays, and
answers the API, until SIGTERM or SIGINT. Then it takes no request any more, waits
for what it has sent to be acknowledged and marks that, leaves its replays to
another replica or to its next start, and ends, within replayer.shutdownTimeout. A
second signal ends it at once: what it sent and did not mark is looked for at the
place it was sent to before anything is sent again.

It waits while neither the ledger nor a broker answers, and tells so at
replayer.admin.address: /livez, /readyz?verbose, /metrics. Any number of replicas
may share a ledger in Postgres; a file of SQLite belongs to one process.

It loads the log level and the tokens anew on SIGHUP and when their files have
changed, and tells what needs a restart. Logs go to standard error.

Exit codes: 0 stopped as asked; 1 failure, such as a ledger that another process
has; 2 usage or configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := c.Service()
			if err != nil {
				return err
			}
			r, err := app.NewReplayer(cmd.Context(), opts)
			if err != nil {
				return fmt.Errorf("start: %w", err)
			}
			return r.Run(cmd.Context())
		},
	})
}

func (c *cli) migrateCommand() *cobra.Command {
	var restored bool
	cmd := c.WithConfig(&cobra.Command{
		Use:   "migrate",
		Short: "Bring the tables of the ledger to this version",
		Long: `migrate brings the tables of the ledger to the version of this program, and does
nothing else. Versions only add, so that replicas of the version before go on
meanwhile. Many may call it at once.

With --restored it begins a new life of the ledger as well: needed where a database
was put back to an older state in a way that the server does not show, as from a
dump. Claims of before are void then, and can not be taken for later ones.

Exit codes: 0 done, or nothing to do; 1 failure; 2 usage or configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := c.Options()
			if err != nil {
				return err
			}
			m, err := app.MigrateLedger(cmd.Context(), opts, restored)
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return c.PrintJSON(m)
			}
			text := fmt.Sprintf("The ledger is at version %d.\n", m.To)
			if m.From != m.To {
				text = fmt.Sprintf("The ledger was brought from version %d to %d.\n", m.From, m.To)
			}
			if m.Epoch != 0 {
				text += fmt.Sprintf("Its life number %d has begun.\n", m.Epoch)
			}
			return c.Print([]byte(text))
		},
	})
	cmd.Flags().BoolVar(&restored, "restored", false, "the database was put back to an older state")
	return c.WithOutput(cmd)
}

const (
	adminAddress       = "127.0.0.1:9401"
	adminVariable      = "REDRIVE_REPLAYER_ADMIN_ADDRESS"
	healthcheckTimeout = 5 * time.Second
)

func (c *cli) healthcheckCommand() *cobra.Command {
	var (
		address string
		live    bool
	)
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running serve whether it is ready",
		Long: `healthcheck asks the probes of a dlt-replayer on this machine, for containers that
have no other way to. It writes what they say where they are not content.

Exit codes: 0 ready; 1 not ready, or no answer; 2 usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at := address
			if at == "" {
				at = c.variable(adminVariable)
			}
			if at == "" {
				at = adminAddress
			}
			host, port, err := net.SplitHostPort(at)
			if err != nil {
				return command.Usage(cmd, fmt.Errorf("--address %s: want host:port", at))
			}
			switch host {
			case "", "0.0.0.0", "::":
				host = "127.0.0.1"
			}
			probe := "readyz?verbose"
			if live {
				probe = "livez?verbose"
			}
			return c.probe(cmd.Context(), "http://"+net.JoinHostPort(host, port)+"/"+probe)
		},
	}
	cmd.Flags().StringVar(&address, "address", "", "`host:port` of the probes ("+adminVariable+", else "+adminAddress+")")
	cmd.Flags().BoolVar(&live, "live", false, "ask whether it is alive, and not whether it is ready")
	return cmd
}

func (c *cli) probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(body)))
	}
	return nil
}

// variable is a variable of the environment.
func (c *cli) variable(name string) string {
	for _, pair := range c.Environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// fileText is the content of a file without the white space around it.
func fileText(path string) (string, error) {
	data, err := os.ReadFile(path)
	return strings.TrimSpace(string(data)), err
}
