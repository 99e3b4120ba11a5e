package kafka

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestOptionsNameWhatIsMissingOrUnreadable(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	absent := filepath.Join(dir, "absent")
	text := write("text", "no certificate")
	empty := write("empty", "\n")
	tests := []struct {
		name string
		opts Options
		want []string
	}{
		{"no brokers", Options{}, []string{"brokers"}},
		{"ca absent", Options{TLS: &TLSOptions{CAFile: absent}}, []string{"tls ca file", absent}},
		{"ca without certificate", Options{TLS: &TLSOptions{CAFile: text}}, []string{"tls ca file", "no PEM certificate", text}},
		{"cert without key", Options{TLS: &TLSOptions{CertFile: text}}, []string{"tls client certificate", "together"}},
		{"key without cert", Options{TLS: &TLSOptions{KeyFile: text}}, []string{"tls client certificate", "together"}},
		{"cert absent", Options{TLS: &TLSOptions{CertFile: absent, KeyFile: text}}, []string{"tls client certificate", absent}},
		{"cert unreadable", Options{TLS: &TLSOptions{CertFile: text, KeyFile: text}}, []string{"tls client certificate", text}},
		{"unknown mechanism", Options{SASL: &SASLOptions{Mechanism: "GSSAPI", Username: "u", Password: "p"}}, []string{`"GSSAPI"`, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM"}},
		{"no user", Options{SASL: &SASLOptions{Mechanism: "PLAIN", Password: "p"}}, []string{"sasl username"}},
		{"no password", Options{SASL: &SASLOptions{Mechanism: "PLAIN", Username: "u"}}, []string{"sasl password", "exactly one"}},
		{"two passwords", Options{SASL: &SASLOptions{Mechanism: "PLAIN", Username: "u", Password: "p", PasswordFile: text}}, []string{"sasl password", "exactly one"}},
		{"password absent", Options{SASL: &SASLOptions{Mechanism: "PLAIN", Username: "u", PasswordFile: absent}}, []string{"sasl password file", absent}},
		{"password empty", Options{SASL: &SASLOptions{Mechanism: "PLAIN", Username: "u", PasswordFile: empty}}, []string{"sasl password file", empty, "empty"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.opts.TLS != nil || tt.opts.SASL != nil {
				tt.opts.Brokers = []string{"localhost:9092"}
			}
			_, err := tt.opts.ClientOpts()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestClientTellsItsNameAndVersion(t *testing.T) {
	for version, want := range map[string]string{"1.2.3": "1.2.3", "v0.0.0-dev": "v0.0.0-dev", "": "unknown", "(devel)": "unknown", "1.2.3+dirty": "unknown"} {
		client := newClient(t, Options{Brokers: []string{"localhost:9092"}, Version: version})
		if got := client.OptValues(kgo.SoftwareNameAndVersion); got[0] != "redrive" || got[1] != want {
			t.Errorf("version %q: told as %v, want %q", version, got, want)
		}
		if got := client.OptValue(kgo.ClientID); got != "redrive" {
			t.Errorf("client id = %v", got)
		}
	}
}

func TestEachMechanismAuthenticates(t *testing.T) {
	for _, mechanism := range []string{MechanismPlain, MechanismScramSHA256, MechanismScramSHA512} {
		t.Run(mechanism, func(t *testing.T) {
			cluster := fakeCluster(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "forwarder", "secret"))
			o := Options{Brokers: cluster.ListenAddrs(), SASL: &SASLOptions{Mechanism: mechanism, Username: "forwarder", Password: "secret"}}
			if err := ping(t, newClient(t, o)); err != nil {
				t.Errorf("right password: %v", err)
			}
			o.SASL.Password = "wrong"
			if err := ping(t, newClient(t, o)); err == nil {
				t.Error("wrong password: no error")
			}
		})
	}
}

func TestPasswordFileIsReadForEveryConnection(t *testing.T) {
	for _, mechanism := range []string{MechanismPlain, MechanismScramSHA512} {
		t.Run(mechanism, func(t *testing.T) {
			cluster := fakeCluster(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "forwarder", "new secret"))
			file := filepath.Join(t.TempDir(), "password")
			replace(t, file, []byte("old secret\n"))
			client := newClient(t, Options{
				Brokers: cluster.ListenAddrs(),
				SASL:    &SASLOptions{Mechanism: mechanism, Username: "forwarder", PasswordFile: file},
			})
			if err := ping(t, client); err == nil {
				t.Fatal("the old password was accepted")
			}
			replace(t, file, []byte("new secret\r\n"))
			if err := ping(t, client); err != nil {
				t.Errorf("the client did not take the new password: %v", err)
			}
		})
	}
}

func TestTLSFilesAreReadForEveryConnection(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	clients := x509.NewCertPool()
	clients.AddCert(ours.cert)
	cluster := fakeCluster(t, kfake.TLS(&tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{ours.issue(t, "kafka.example").pair(t)},
		ClientCAs:    clients,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}))
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	good, bad := ours.issue(t, "forwarder"), theirs.issue(t, "forwarder")
	replace(t, ca, theirs.pem)
	replace(t, cert, good.cert)
	replace(t, key, good.key)

	o := Options{
		Brokers: cluster.ListenAddrs(),
		TLS:     &TLSOptions{CAFile: ca, CertFile: cert, KeyFile: key, ServerName: "kafka.example"},
	}
	client := newClient(t, o)
	if err := ping(t, client); Classify(err) != Transient || Code(err) != "connection" || !strings.Contains(err.Error(), "unknown authority") {
		t.Fatalf("a broker of an unknown authority: %v is %v, %s", err, Classify(err), Code(err))
	}
	replace(t, ca, ours.pem)
	if err := ping(t, client); err != nil {
		t.Fatalf("the client did not take the new authority: %v", err)
	}

	o.TLS.ServerName = ""
	if err := ping(t, newClient(t, o)); err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("without a server name the host that is dialled must count, got %v", err)
	}
	o.TLS.InsecureSkipVerify = true
	if err := ping(t, newClient(t, o)); err != nil {
		t.Errorf("insecure: %v", err)
	}

	o.TLS.InsecureSkipVerify, o.TLS.ServerName = false, "kafka.example"
	second := newClient(t, o)
	replace(t, cert, bad.cert)
	if err := ping(t, second); Classify(err) != Transient || Code(err) != "connection" {
		t.Errorf("certificate and key that do not fit: %v is %v, %s", err, Classify(err), Code(err))
	}
	replace(t, key, bad.key)
	if err := ping(t, second); err == nil {
		t.Error("the broker took a client of an unknown authority")
	}
	replace(t, cert, good.cert)
	replace(t, key, good.key)
	if err := ping(t, second); err != nil {
		t.Errorf("the client did not take the new certificate: %v", err)
	}
}

func TestTLSGoesOverTheGivenDialer(t *testing.T) {
	authority := newAuthority(t)
	cluster := fakeCluster(t, kfake.TLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{authority.issue(t, "kafka.example").pair(t)}}))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	replace(t, ca, authority.pem)
	dialled := make(chan string, 100)
	client := newClient(t, Options{
		Brokers: cluster.ListenAddrs(),
		TLS:     &TLSOptions{CAFile: ca, ServerName: "kafka.example"},
		Dialer: func(ctx context.Context, network, host string) (net.Conn, error) {
			dialled <- host
			return (&net.Dialer{}).DialContext(ctx, network, host)
		},
	})
	if err := ping(t, client); err != nil {
		t.Fatal(err)
	}
	if len(dialled) == 0 {
		t.Error("the dialer was not used")
	}
}

func TestClientLogsFromWarningsUpAndNeverAsErrors(t *testing.T) {
	tests := []struct {
		level slog.Level
		want  kgo.LogLevel
	}{
		{slog.LevelDebug, kgo.LogLevelDebug},
		{slog.LevelInfo, kgo.LogLevelWarn},
		{slog.LevelWarn, kgo.LogLevelWarn},
		{slog.LevelError, kgo.LogLevelNone},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		logger := newClientLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: tt.level})))
		if got := logger.Level(); got != tt.want {
			t.Errorf("with slog at %v the client logs at %v, want %v", tt.level, got, tt.want)
		}
		logger.Log(kgo.LogLevelError, "unable to write", "broker", 1)
		if logged := strings.Contains(out.String(), "level=WARN"); logged != (tt.level <= slog.LevelWarn) {
			t.Errorf("with slog at %v an error of the client gives %q", tt.level, out.String())
		}
	}
}

func ping(t *testing.T, client *kgo.Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return client.Ping(ctx)
}

func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// authority signs certificates for one test.
type authority struct {
	cert *x509.Certificate
	pem  []byte
	key  *ecdsa.PrivateKey
}

type issued struct{ cert, key []byte }

func (i issued) pair(t *testing.T) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(i.cert, i.key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) issue(t *testing.T, name string) issued {
	t.Helper()
	return a.issueFor(t, name, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

func (a *authority) issueFor(t *testing.T, name string, notBefore, notAfter time.Time) issued {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    notBefore,
		NotAfter:     notAfter,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return issued{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
