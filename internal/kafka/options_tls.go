package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"
)

// dialTimeout bounds one connection attempt, TLS handshake included. It is the
// default of kgo, which applies its own only to the dialer it makes itself.
const dialTimeout = 10 * time.Second

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

// config reads the files and builds the configuration of one connection.
func (t *TLSOptions) config() (*tls.Config, error) {
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // The operator asked for it by name.
	}
	if t.CAFile != "" {
		cfg.RootCAs = x509.NewCertPool()
		if err := t.addAuthorities(cfg.RootCAs); err != nil {
			return nil, err
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

// addAuthorities adds what CAFile holds to a pool.
func (t *TLSOptions) addAuthorities(pool *x509.CertPool) error {
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return fmt.Errorf("tls ca file: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("tls ca file: no PEM certificate in %s", t.CAFile)
	}
	return nil
}

// dialer returns a function that opens a connection with base (nil: TCP) and, if
// encryption is not nil, speaks TLS over it, by the files as they are at that
// moment. A connection that comes to nothing says why, as far as this side can
// tell.
func dialer(base func(context.Context, string, string) (net.Conn, error), encryption *TLSOptions) func(context.Context, string, string) (net.Conn, error) {
	if base == nil {
		base = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, host string) (net.Conn, error) {
		h := &handshake{host: host, tls: encryption}
		var cfg *tls.Config
		if encryption != nil {
			var err error
			if cfg, err = h.prepare(); err != nil {
				return nil, unreachable(network, &advice{err, "mend the file; it is read again for the next connection"})
			}
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		raw, err := base(ctx, network, host)
		if err != nil {
			return nil, err
		}
		if cfg == nil {
			return &firstRead{Conn: raw, network: network, fault: h.refusedPlain, looksWrong: h.notKafka}, nil
		}
		conn := tls.Client(raw, cfg)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // The handshake error is the one that matters.
			return nil, unreachable(network, h.failed(err))
		}
		// With TLS 1.3 a broker's verdict about our certificate arrives after the
		// handshake, in place of its first answer.
		return &firstRead{Conn: conn, network: network, fault: h.refused}, nil
	}
}

// unreachable makes err what kgo takes as "this broker cannot be reached now". With
// an error of any other type it would fail every buffered record for what may be a
// certificate half way through its rotation.
func unreachable(network string, err error) error {
	return &net.OpError{Op: "dial", Net: network, Err: err}
}

// firstRead is a connection that tells what it means when it ends before a byte was
// read. Brokers do not say why they hang up, but how a connection was opened tells
// most of it.
type firstRead struct {
	net.Conn
	network string
	// fault explains an error.
	fault func(error) error
	// looksWrong, if not nil, explains first bytes that no Kafka broker sends; nil
	// for all others.
	looksWrong func(first []byte) error

	// done is set after the first byte or error. Only the goroutine that reads uses
	// it; of those kgo has one at a time.
	done bool
}

// Read implements net.Conn.
func (c *firstRead) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.done || n == 0 && err == nil {
		return n, err
	}
	c.done = true
	switch {
	case n > 0 && c.looksWrong != nil:
		if wrong := c.looksWrong(p[:n]); wrong != nil {
			return 0, unreachable(c.network, wrong)
		}
	case n > 0:
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed):
		// This side gave up.
	default:
		return 0, unreachable(c.network, c.fault(err))
	}
	return n, err
}

// handshake is what is known of one connection while it is opened.
type handshake struct {
	host string
	tls  *TLSOptions // nil: plain text
	// ours is the client certificate; nil if there is none.
	ours *tls.Certificate
	// asked is set when the broker wants a client certificate.
	asked bool
}

// prepare returns the TLS configuration.
func (h *handshake) prepare() (*tls.Config, error) {
	cfg, err := h.tls.config()
	if err != nil {
		return nil, err
	}
	if cfg.ServerName == "" {
		cfg.ServerName = hostName(h.host)
	}
	if len(cfg.Certificates) > 0 {
		h.ours = &cfg.Certificates[0]
	}
	// Shown whatever authorities the broker names. To keep it back when they do not
	// fit would only turn "unknown authority" into "no certificate".
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		h.asked = true
		if h.ours == nil {
			return &tls.Certificate{}, nil
		}
		return h.ours, nil
	}
	return cfg, nil
}

func hostName(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return host
	}
	return name
}

// failed explains an error of the TLS handshake.
func (h *handshake) failed(err error) error {
	var (
		name      x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		header    tls.RecordHeaderError
	)
	told := fmt.Errorf("tls handshake with %s: %w", h.host, err)
	switch {
	case errors.As(err, &name):
		return &advice{told, "name the brokers as their certificates do, in kafka.brokers and in advertised.listeners, or set kafka.tls.serverName"}
	case errors.As(err, &authority):
		where := "name a file with the authority that signed it in kafka.tls.caFilepath"
		if h.tls.CAFile != "" {
			where = "add the authority that signed it to " + h.tls.CAFile
		}
		return &advice{told, where}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return h.outOfDate(invalid.Cert, err)
	case errors.As(err, &header):
		return &advice{
			&saying{fmt.Sprintf("%s does not speak TLS", h.host), err},
			"name the port of a TLS listener in kafka.brokers, or set kafka.tls.enabled: false for plain text",
		}
	case isHangUp(err):
		return &advice{
			&saying{fmt.Sprintf("%s closed the connection during the TLS handshake; most likely it does not speak TLS on this port", h.host), err},
			"name the port of a TLS listener in kafka.brokers, or set kafka.tls.enabled: false for plain text",
		}
	}
	if alert := h.alerted(err); alert != nil {
		return alert
	}
	return told
}

// outOfDate explains a certificate of the broker, or of its authority.
func (h *handshake) outOfDate(cert *x509.Certificate, err error) error {
	whose, remedy := "the certificate", "renew the certificate of the broker"
	if cert.IsCA {
		whose, remedy = "the certificate of the authority", "renew the certificate of the authority, at the broker and in kafka.tls.caFilepath"
	}
	what := fmt.Sprintf("%s %q that %s shows expired at %s", whose, cert.Subject, h.host, instant(cert.NotAfter))
	if time.Now().Before(cert.NotBefore) {
		what = fmt.Sprintf("%s %q that %s shows is not valid before %s", whose, cert.Subject, h.host, instant(cert.NotBefore))
		remedy = "set the clock of this machine, or wait"
	}
	return &advice{&saying{what, err}, remedy}
}

// refused explains the end of a connection whose handshake seemed to go well.
func (h *handshake) refused(err error) error {
	if alert := h.alerted(err); alert != nil {
		return alert
	}
	if what, remedy, ok := h.ourCertificate(); ok {
		return &advice{&saying{fmt.Sprintf("%s closed the connection after the TLS handshake; most likely because %s", h.host, what), err}, remedy}
	}
	return &advice{
		&saying{fmt.Sprintf("%s closed the connection after the TLS handshake, without a word", h.host), err},
		"look at the log of the broker",
	}
}

// The alerts of RFC 8446, section 6.2, that are told apart here.
const (
	alertHandshakeFailure    = 40 // the first of those that may concern our certificate
	alertDecryptError        = 51 // the last of them but one
	alertProtocolVersion     = 70
	alertUnrecognizedName    = 112
	alertCertificateRequired = 116
)

// alerted explains an alert of the broker; nil if err is none.
func (h *handshake) alerted(err error) error {
	remote, ok := errors.AsType[*net.OpError](err)
	if !ok || remote.Op != "remote error" {
		return nil
	}
	what, remedy := "its log says why", "look at the log of the broker"
	switch alert := alertNumber(remote.Err); {
	case alert == alertProtocolVersion:
		what, remedy = "it speaks no version of TLS that this side does", "allow TLS 1.2 or 1.3 in the broker's ssl.enabled.protocols"
	case alert == alertUnrecognizedName:
		what, remedy = "it does not know the name it was called by", "set kafka.tls.serverName to a name of the broker's certificate"
	case alert > alertDecryptError && alert != alertCertificateRequired:
		// Nothing that this side could mend.
	default:
		if ours, mend, ok := h.ourCertificate(); ok {
			what, remedy = ours, mend
		} else if alert == alertHandshakeFailure {
			what, remedy = "the two sides have no cipher in common", "look at the broker's ssl.cipher.suites"
		}
	}
	return &advice{&saying{fmt.Sprintf("%s refused the connection (%v): %s", h.host, remote.Err, what), err}, remedy}
}

// ourCertificate says what is wrong with the certificate of this side when a broker
// that asked for one hangs up. It reports false if none was asked for.
func (h *handshake) ourCertificate() (what, remedy string, ok bool) {
	switch {
	case !h.asked:
		return "", "", false
	case h.ours == nil:
		return "it wants a client certificate and none is set", "set kafka.tls.certFilepath and kafka.tls.keyFilepath", true
	case time.Now().After(h.ours.Leaf.NotAfter):
		return fmt.Sprintf("the client certificate %s expired at %s", h.tls.CertFile, instant(h.ours.Leaf.NotAfter)),
			"renew it in place; it is read again for the next connection", true
	case time.Now().Before(h.ours.Leaf.NotBefore):
		return fmt.Sprintf("the client certificate %s is not valid before %s", h.tls.CertFile, instant(h.ours.Leaf.NotBefore)),
			"set the clock of this machine, or wait", true
	default:
		return fmt.Sprintf("it does not accept the client certificate %s, signed by %q", h.tls.CertFile, h.ours.Leaf.Issuer),
			"have it signed by an authority of the broker's truststore, or add its authority there", true
	}
}

// alertNumber returns the number of a TLS alert, or 0. The type of the standard
// library has no name outside of it; its kind is all there is, short of its text.
func alertNumber(err error) uint64 {
	if v := reflect.ValueOf(err); v.IsValid() && v.Kind() == reflect.Uint8 {
		return v.Uint()
	}
	return 0
}

// refusedPlain explains the end of a plain text connection before the first answer.
func (h *handshake) refusedPlain(err error) error {
	return &advice{
		&saying{fmt.Sprintf("%s closed the connection before its first answer; most likely it expects TLS", h.host), err},
		"set kafka.tls.enabled: true, or name the port of a plain text listener in kafka.brokers",
	}
}

// notKafka explains first bytes that do not begin an answer of a broker: one of this
// size would be above every limit.
func (h *handshake) notKafka(first []byte) error {
	const tlsAlert, tlsMajor = 21, 3
	switch {
	case len(first) >= 2 && first[0] == tlsAlert && first[1] == tlsMajor:
		return &advice{
			fmt.Errorf("%s expects TLS and was spoken to in plain text", h.host),
			"set kafka.tls.enabled: true, or name the port of a plain text listener in kafka.brokers",
		}
	case strings.HasPrefix(string(first), "HTTP"):
		return &advice{
			fmt.Errorf("%s is an HTTP server and not a Kafka broker", h.host),
			"name the port of a Kafka listener in kafka.brokers",
		}
	default:
		return nil
	}
}

// isHangUp reports whether the other side ended the connection without a word.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }
