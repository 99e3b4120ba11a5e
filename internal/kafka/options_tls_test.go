package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// tlsServer is a fake cluster with the certificate, which asks clients for none.
func tlsServer(t *testing.T, certificate issued) string {
	t.Helper()
	return fakeCluster(t, kfake.TLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate.pair(t)}})).ListenAddrs()[0]
}

// server answers each connection with the same bytes, after it has read some, and
// ends it.
func server(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 4))
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// expectRemedy returns what Explain says of the error that a client with these options
// meets, and fails the test unless that is one line with a remedy.
func expectRemedy(t *testing.T, o Options) (string, error) {
	t.Helper()
	err := ping(t, newClient(t, o))
	line := Explain(err)
	if err == nil || strings.Count(line, "Remedy: ") != 1 || strings.ContainsAny(line, "\r\n") {
		t.Fatalf("Explain(%v) = %q, want one line with one remedy", err, line)
	}
	if class := Classify(err); class != Transient {
		t.Errorf("Classify(%v) = %v: what an operator mends must be waited for", err, class)
	}
	return line, err
}

func TestEachFaultOfTLSIsToldInOneLineWithItsRemedy(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	now := time.Now()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		replace(t, path, content)
		return path
	}
	ca := file("ca.pem", ours.pem)
	client := func(name string, i issued) TLSOptions {
		return TLSOptions{CAFile: ca, ServerName: "kafka.example", CertFile: file(name+".pem", i.cert), KeyFile: file(name+".key", i.key)}
	}
	good := tlsServer(t, ours.issue(t, "kafka.example"))
	mutual := fakeCluster(t, kfake.TLS(mutualConfig(t, ours))).ListenAddrs()[0]
	// Before 1.3 the verdict about a client comes within the handshake.
	older := mutualConfig(t, ours)
	older.MaxVersion = tls.VersionTLS12
	mutual12 := fakeCluster(t, kfake.TLS(older)).ListenAddrs()[0]
	expired := now.Add(-time.Minute).Truncate(time.Second)

	tests := []struct {
		name   string
		broker string
		tls    *TLSOptions
		want   []string
	}{
		{
			"the broker's certificate has expired",
			tlsServer(t, ours.issueFor(t, "kafka.example", now.Add(-time.Hour), expired)),
			&TLSOptions{CAFile: ca, ServerName: "kafka.example"},
			[]string{"CN=kafka.example", "expired at " + instant(expired), "renew the certificate of the broker"},
		},
		{
			"the broker's certificate is not valid yet",
			tlsServer(t, ours.issueFor(t, "kafka.example", now.Add(time.Hour), now.Add(2*time.Hour))),
			&TLSOptions{CAFile: ca, ServerName: "kafka.example"},
			[]string{"CN=kafka.example", "is not valid before", "clock"},
		},
		{"unknown authority, none named", good, &TLSOptions{ServerName: "kafka.example"}, []string{"unknown authority", "kafka.tls.caFilepath"}},
		{
			"unknown authority, another one named", good,
			&TLSOptions{CAFile: file("theirs.pem", theirs.pem), ServerName: "kafka.example"},
			[]string{"unknown authority", filepath.Join(dir, "theirs.pem")},
		},
		{"host name", good, &TLSOptions{CAFile: ca}, []string{"127.0.0.1", "kafka.tls.serverName", "advertised.listeners"}},
		{"server name", good, &TLSOptions{CAFile: ca, ServerName: "elsewhere"}, []string{"valid for kafka.example, not elsewhere", "kafka.tls.serverName"}},
		{
			"no client certificate", mutual, &TLSOptions{CAFile: ca, ServerName: "kafka.example"},
			[]string{"client certificate and none is set", "kafka.tls.certFilepath and kafka.tls.keyFilepath"},
		},
		{
			"no client certificate, TLS 1.2", mutual12, &TLSOptions{CAFile: ca, ServerName: "kafka.example"},
			[]string{"client certificate and none is set", "kafka.tls.certFilepath and kafka.tls.keyFilepath"},
		},
		{
			"our certificate has expired", mutual,
			new(client("expired", ours.issueFor(t, "forwarder", now.Add(-time.Hour), expired))),
			[]string{"client certificate " + filepath.Join(dir, "expired.pem") + " expired at " + instant(expired), "renew it in place"},
		},
		{
			"our certificate has expired, TLS 1.2", mutual12,
			new(client("expired12", ours.issueFor(t, "forwarder", now.Add(-time.Hour), expired))),
			[]string{"client certificate " + filepath.Join(dir, "expired12.pem") + " expired at " + instant(expired), "renew it in place"},
		},
		{
			"our certificate is of another authority", mutual, new(client("foreign", theirs.issue(t, "forwarder"))),
			[]string{"does not accept the client certificate " + filepath.Join(dir, "foreign.pem"), "truststore"},
		},
		{"plain text to a TLS listener that hangs up", good, nil, []string{"most likely it expects TLS", "kafka.tls.enabled: true"}},
		{"plain text to a TLS listener that sends an alert", server(t, "\x15\x03\x03\x00\x02\x02\x50"), nil, []string{"expects TLS", "kafka.tls.enabled: true"}},
		{"TLS to a plain text listener", server(t, ""), &TLSOptions{CAFile: ca}, []string{"does not speak TLS", "kafka.tls.enabled: false"}},
		{"TLS to something that answers in plain text", server(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), &TLSOptions{CAFile: ca}, []string{"does not speak TLS", "kafka.tls.enabled: false"}},
		{"a web server", server(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), nil, []string{"is an HTTP server", "kafka.brokers"}},
		{"nothing listens", closedPort(t), nil, []string{"nothing listens on 127.0.0.1:", "kafka.brokers"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			line, err := expectRemedy(t, Options{Brokers: []string{tt.broker}, TLS: tt.tls})
			if dial, ok := errors.AsType[*net.OpError](err); !ok || dial.Op != "dial" {
				t.Errorf("%#v is not what the client takes for a broker that is away: it would fail what it has buffered", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(line, want) {
					t.Errorf("%q is not in\n%s", want, line)
				}
			}
			t.Log(line)
		})
	}
}

// closedPort is the address of nobody.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

// TestACertificateThatExpiresIsRenewedWithoutARestart also shows that a connection
// that is open outlives the certificate it was opened with.
func TestACertificateThatExpiresIsRenewedWithoutARestart(t *testing.T) {
	ours := newAuthority(t)
	cluster := fakeCluster(t, kfake.TLS(mutualConfig(t, ours)))
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(i issued) {
		replace(t, cert, i.cert)
		replace(t, key, i.key)
	}
	replace(t, ca, ours.pem)
	write(ours.issue(t, "forwarder"))
	o := Options{Brokers: cluster.ListenAddrs(), TLS: &TLSOptions{CAFile: ca, CertFile: cert, KeyFile: key, ServerName: "kafka.example"}}
	client := newClient(t, o)
	if err := ping(t, client); err != nil {
		t.Fatal(err)
	}
	write(ours.issueFor(t, "forwarder", time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)))
	if err := ping(t, client); err != nil {
		t.Errorf("a connection that was open: %v", err)
	}
	second := newClient(t, o)
	if line := Explain(ping(t, second)); !strings.Contains(line, "expired at") {
		t.Errorf("a new connection: %q", line)
	}
	write(ours.issue(t, "forwarder"))
	if err := ping(t, second); err != nil {
		t.Errorf("the client did not take the renewed certificate: %v", err)
	}
}

// mutualConfig is that of a broker that wants a certificate of the authority.
func mutualConfig(t *testing.T, a *authority) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{a.issue(t, "kafka.example").pair(t)},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}
}

// TestWhatALaterReadMeetsIsLeftAsItIs shows that only the start of a connection is
// explained: later the same errors mean that a broker has gone away.
func TestWhatALaterReadMeetsIsLeftAsItIs(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close() //nolint:errcheck // Of a pipe.
	h := &handshake{host: "broker:9092"}
	conn := &firstRead{Conn: near, network: "tcp", fault: h.refusedPlain, looksWrong: h.notKafka}
	go func() {
		_, _ = far.Write([]byte{0, 0, 0, 1, 7})
		_ = far.Close()
	}()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "\x00\x00\x00\x01\x07" {
		t.Errorf("read %q, %v; want the bytes and a plain end", got, err)
	}
}
