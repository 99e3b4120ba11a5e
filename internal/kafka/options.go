package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// The SASL mechanisms that [SASLOptions] knows, by the names Kafka gives them.
const (
	MechanismPlain       = "PLAIN"
	MechanismScramSHA256 = "SCRAM-SHA-256"
	MechanismScramSHA512 = "SCRAM-SHA-512"
)

const (
	softwareName = "redrive"

	// dialTimeout bounds one connection attempt, TLS handshake included. It is the
	// default of kgo, which applies its own only to the dialer it makes itself.
	dialTimeout = 10 * time.Second
)

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

// TLSOptions says how connections are encrypted. All files are PEM and are read
// again for every connection, so that certificates can be rotated in place.
type TLSOptions struct {
	// CAFile holds the authorities that may have signed a broker's certificate.
	// Empty: those of the system.
	CAFile string
	// CertFile and KeyFile are the client's certificate and its key, for mutual
	// TLS. Both or neither.
	CertFile, KeyFile string
	// ServerName is the name the broker's certificate must carry. Empty: the host
	// name that was dialled.
	ServerName string
	// InsecureSkipVerify accepts any certificate. It leaves the connection open to
	// anyone on the path and is for trials only.
	InsecureSkipVerify bool
}

// SASLOptions says how connections authenticate.
type SASLOptions struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	Mechanism string
	// Username is required.
	Username string
	// Password is used when PasswordFile is empty. Exactly one of the two is
	// required.
	Password string
	// PasswordFile holds the password; line ends at its end are no part of it. It
	// is read again for every authentication, so that the secret can be rotated in
	// place.
	PasswordFile string
}

// ClientOpts returns the connection options that every client of this cluster
// starts from. It reads each file once, so that a missing or unreadable one is an
// error here and not a connection that is retried for ever.
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

	dial := o.Dialer
	if o.TLS != nil {
		if _, err := o.TLS.config(); err != nil {
			return nil, err
		}
		dial = o.TLS.dialer(dial)
	}
	if dial != nil {
		opts = append(opts, kgo.Dialer(dial))
	}

	if o.SASL != nil {
		mechanism, err := o.SASL.mechanism()
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

// config reads the files and builds the configuration of one connection.
func (t *TLSOptions) config() (*tls.Config, error) {
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // The operator asked for it by name.
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls ca file: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls ca file: no PEM certificate in %s", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("tls client certificate: cert file and key file must be given together")
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls client certificate %s with key %s: %w", t.CertFile, t.KeyFile, err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// dialer returns a function that opens a connection with base (nil: TCP) and
// speaks TLS over it, by the files as they are at that moment.
func (t *TLSOptions) dialer(base func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	if base == nil {
		base = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, host string) (net.Conn, error) {
		cfg, err := t.config()
		if err != nil {
			return nil, dialError(network, err)
		}
		if cfg.ServerName == "" {
			name, _, err := net.SplitHostPort(host)
			if err != nil {
				name = host
			}
			cfg.ServerName = name
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		raw, err := base(ctx, network, host)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, cfg)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // The handshake error is the one that matters.
			return nil, dialError(network, fmt.Errorf("tls handshake with %s: %w", host, err))
		}
		return conn, nil
	}
}

// dialError makes err what kgo takes as "this broker cannot be reached now". With
// an error of any other type it would fail every buffered record for what may be a
// certificate half way through its rotation.
func dialError(network string, err error) error {
	return &net.OpError{Op: "dial", Net: network, Err: err}
}

// mechanism returns the kgo mechanism, which asks for the password anew for each
// authentication.
func (s *SASLOptions) mechanism() (sasl.Mechanism, error) {
	if s.Username == "" {
		return nil, errors.New("sasl username: required")
	}
	if (s.Password == "") == (s.PasswordFile == "") {
		return nil, errors.New("sasl password: exactly one of password and password file is required")
	}
	if _, err := s.password(); err != nil {
		return nil, err
	}
	scramAuth := func(context.Context) (scram.Auth, error) {
		password, err := s.password()
		return scram.Auth{User: s.Username, Pass: password}, err
	}
	switch s.Mechanism {
	case MechanismPlain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := s.password()
			return plain.Auth{User: s.Username, Pass: password}, err
		}), nil
	case MechanismScramSHA256:
		return scram.Sha256(scramAuth), nil
	case MechanismScramSHA512:
		return scram.Sha512(scramAuth), nil
	default:
		return nil, fmt.Errorf("sasl mechanism %q: want %s, %s or %s", s.Mechanism, MechanismPlain, MechanismScramSHA256, MechanismScramSHA512)
	}
}

func (s *SASLOptions) password() (string, error) {
	if s.PasswordFile == "" {
		return s.Password, nil
	}
	content, err := os.ReadFile(s.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("sasl password file: %w", err)
	}
	password := bytes.TrimRight(content, "\r\n")
	if len(password) == 0 {
		return "", fmt.Errorf("sasl password file: %s is empty", s.PasswordFile)
	}
	return string(password), nil
}
