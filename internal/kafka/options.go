package kafka

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"

	"github.com/twmb/franz-go/pkg/kgo"
)

const softwareName = "redrive"

// Options says how to reach a cluster. The zero value of every field but Brokers
// is safe: no TLS, no SASL, no logging.
type Options struct {
	// Brokers are the seed addresses, host:port; the port defaults to 9092. At
	// least one is required (bootstrap.servers).
	Brokers []string
	// ClientID names this process in the logs, metrics and quotas of the brokers
	// (client.id). Empty: "redrive".
	ClientID string
	// Version is the version of the running build, told to the brokers beside the
	// software name. Empty, or not of the form the brokers accept: "unknown".
	Version string
	// TLS, if not nil, encrypts every connection. Nil: plain text.
	TLS *TLSOptions
	// SASL, if not nil, authenticates every connection. Nil: none.
	SASL *SASLOptions
	// Dialer, if not nil, opens the connections below TLS: tests use it to stay on
	// a virtual network. Nil: TCP.
	Dialer func(ctx context.Context, network, host string) (net.Conn, error)
	// Logger receives what the client library has to say, from warnings up (all
	// of it if the logger is enabled for debug). Nil: nothing.
	Logger *slog.Logger
}

// ClientOpts returns the connection options that every client of this cluster
// starts from. It reads each file once, so that a missing or unreadable one is an
// error here and not a connection that is retried for ever. It opens no connection:
// a token, or the keys of a role, are asked for when the first broker is reached.
// Clients that are made from the result of one call share the token.
func (o Options) ClientOpts() ([]kgo.Opt, error) {
	if len(o.Brokers) == 0 {
		return nil, errors.New("kafka brokers: at least one is required")
	}
	clientID := o.ClientID
	if clientID == "" {
		clientID = softwareName
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.ClientID(clientID),
		kgo.SoftwareNameAndVersion(softwareName, softwareVersion(o.Version)),
	}

	if o.TLS != nil {
		if _, err := o.TLS.config(); err != nil {
			return nil, err
		}
	}
	opts = append(opts, kgo.Dialer(dialer(o.Dialer, o.TLS)))

	if o.SASL != nil {
		mechanism, err := o.SASL.mechanism(o)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(mechanism))
	}
	if o.Logger != nil {
		opts = append(opts, kgo.WithLogger(newClientLogger(o.Logger)))
	}
	return opts, nil
}

// softwareVersion returns version if a broker accepts it (KIP-511 refuses the
// connection handshake otherwise), else a neutral word.
func softwareVersion(version string) string {
	if len(version) > 256 || !regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?$`).MatchString(version) {
		return "unknown"
	}
	return version
}
