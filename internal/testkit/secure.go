package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Secure is a listener of all brokers beside the open one. Behind it nobody may do anything that no ACL allows. The open
// listener stays, for the test itself and between the brokers: who comes by it is the user ANONYMOUS, who may do all.
type Secure struct {
	// Protocol is SASL_SSL (also the default), SSL or SASL_PLAINTEXT.
	Protocol string
	// Authority signs the certificate of the brokers, which is for 127.0.0.1 and localhost. It is needed with TLS, and its clients
	// are those that ClientCertificates lets in.
	Authority *Authority
	// NotAfter is when the certificate of the brokers ends. Zero: in an hour. A moment that has passed makes an expired one.
	NotAfter time.Time
	// ClientCertificates has the brokers ask each client for a certificate. Without SASL its subject is the user.
	ClientCertificates bool
	// Users are the names and passwords of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. OAUTHBEARER takes every token that is an unsigned
	// JWT; its subject is the user.
	Users map[string]string
}

func (s *Secure) protocol() string {
	if s.Protocol == "" {
		return "SASL_SSL"
	}
	return s.Protocol
}

func (s *Secure) tls() bool { return strings.HasSuffix(s.protocol(), "SSL") }

func (s *Secure) check() error {
	if s != nil && s.tls() && s.Authority == nil {
		return errors.New("a listener with TLS needs an authority")
	}
	return nil
}

// formatArgs are the users that must be there before the first start.
func (s *Secure) formatArgs() []string {
	if s == nil {
		return nil
	}
	var args []string
	for _, name := range slices.Sorted(maps.Keys(s.Users)) {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, name, s.Users[name]))
		}
	}
	return args
}

// settings are those of the listener and of the authorizer.
func (s *Secure) settings(b *broker, set func(key string, value any)) {
	listener := "listener.name.secure."
	set("listeners", fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d,SECURE://127.0.0.1:%d", b.port, b.controllerPort, b.securePort))
	set("advertised.listeners", fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,SECURE://127.0.0.1:%d", b.port, b.securePort))
	set("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:"+s.protocol())
	set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
	set("super.users", "User:ANONYMOUS")
	if s.tls() {
		set(listener+"ssl.keystore.type", "PEM")
		set(listener+"ssl.keystore.location", filepath.Join(b.dir, keystoreFile))
		set(listener+"ssl.truststore.type", "PEM")
		set(listener+"ssl.truststore.location", s.Authority.CAFile())
		if s.ClientCertificates {
			set(listener+"ssl.client.auth", "required")
		}
	}
	if s.protocol() == "SSL" {
		return
	}
	const modules = "org.apache.kafka.common.security."
	var users strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.Users)) {
		fmt.Fprintf(&users, " user_%s=%q", name, s.Users[name])
	}
	set(listener+"sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER")
	set(listener+"plain.sasl.jaas.config", modules+"plain.PlainLoginModule required"+users.String()+";")
	set(listener+"scram-sha-256.sasl.jaas.config", modules+"scram.ScramLoginModule required;")
	set(listener+"scram-sha-512.sasl.jaas.config", modules+"scram.ScramLoginModule required;")
	set(listener+"oauthbearer.sasl.jaas.config", modules+"oauthbearer.OAuthBearerLoginModule required;")
}

// keystoreFile is in the folder of each broker.
const keystoreFile = "keystore.pem"

// writeFiles gives a broker its certificate.
func (s *Secure) writeFiles(dir string) error {
	if s == nil || !s.tls() {
		return nil
	}
	notAfter := s.NotAfter
	if notAfter.IsZero() {
		notAfter = time.Now().Add(time.Hour)
	}
	cert, key, err := s.Authority.sign("broker", notAfter)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, keystoreFile), append(key, cert...), 0o600)
}

// Authority signs certificates for one test.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that keeps its files in dir.
func NewAuthority(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serialNumber(),
		Subject:               pkix.Name{CommonName: "authority of a test"},
		NotBefore:             time.Now().Add(-24 * time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, cert: cert, key: key}
	return a, os.WriteFile(a.CAFile(), encodePEM("CERTIFICATE", der), 0o600)
}

// CAFile is the file with the certificate of the authority, in PEM.
func (a *Authority) CAFile() string { return filepath.Join(a.dir, "ca.pem") }

// Issue makes a certificate with that common name, for 127.0.0.1 and localhost, for servers and for clients. It writes over the
// files of a former one with the same name, so that a test can renew a certificate.
func (a *Authority) Issue(name string, notAfter time.Time) (certFile, keyFile string, err error) {
	cert, key, err := a.sign(name, notAfter)
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	return certFile, keyFile, errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, key, 0o600))
}

// sign makes a certificate and its key, in PEM. The key is in PKCS#8, the one form that Kafka reads.
func (a *Authority) sign(name string, notAfter time.Time) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serialNumber(),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return encodePEM("CERTIFICATE", der), encodePEM("PRIVATE KEY", secret), nil
}

func serialNumber() *big.Int {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return new(big.Int).SetBytes(id[:])
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
