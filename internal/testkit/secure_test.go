package testkit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// trusting is a client's TLS that knows the authority.
func trusting(t *testing.T, a *Authority) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(a.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("the file of the authority holds no certificate")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// produceAs writes one record by the secure listener.
func produceAs(t *testing.T, k *Kafka, topic string, options ...kgo.Opt) error {
	t.Helper()
	client, err := NewClient(k.SecureBrokers(), options...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return client.Produce(ctx, &kgo.Record{Topic: topic, Value: []byte("x")})
}

// allowWrite lets a user write to a topic.
func allowWrite(t *testing.T, c *TestClient, user, topic string) {
	t.Helper()
	acls := kadm.NewACLs().Allow("User:"+user).AllowHosts("*").Topics(topic).Operations(kadm.OpWrite, kadm.OpDescribe)
	results, err := c.Admin().CreateACLs(t.Context(), acls)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

func TestSecureListenerKnowsItsUsersAndWhatTheyMayDo(t *testing.T) {
	a := newAuthority(t)
	k := OwnKafka(t, KafkaOptions{Secure: &Secure{Authority: a, Users: map[string]string{"alice": "secret", "bob": "secret"}}})
	c := k.Client(t)
	topic := UniqueName("orders")
	c.CreateTopic(topic, 1, nil)
	c.Produce(&kgo.Record{Topic: topic, Value: []byte("x")}) // By the open listener all is allowed.
	for _, user := range []string{"alice", "token"} {
		allowWrite(t, c, user, topic)
	}
	segment := base64.RawURLEncoding.EncodeToString
	jwt := segment([]byte(`{"alg":"none"}`)) + "." +
		segment(fmt.Appendf(nil, `{"sub":"token","iat":%d,"exp":%d}`, time.Now().Unix(), time.Now().Add(time.Hour).Unix())) + "."
	for name, mechanism := range map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: "alice", Pass: "secret"}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: "alice", Pass: "secret"}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: "alice", Pass: "secret"}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: jwt}.AsMechanism(),
	} {
		if err := produceAs(t, k, topic, kgo.DialTLSConfig(trusting(t, a)), kgo.SASL(mechanism)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := produceAs(t, k, topic, kgo.DialTLSConfig(trusting(t, a)), kgo.SASL(scram.Auth{User: "bob", Pass: "secret"}.AsSha512Mechanism()))
	if !errors.Is(err, kerr.TopicAuthorizationFailed) && !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		t.Errorf("of a user that no ACL names: %v, want an authorization error", err)
	}
	err = produceAs(t, k, topic, kgo.DialTLSConfig(trusting(t, a)), kgo.SASL(plain.Auth{User: "alice", Pass: "wrong"}.AsMechanism()), kgo.RecordDeliveryTimeout(5*time.Second))
	if err == nil {
		t.Error("a wrong password is let in")
	}
}

func TestSecureListenerCanAskForCertificates(t *testing.T) {
	a := newAuthority(t)
	k := OwnKafka(t, KafkaOptions{Secure: &Secure{Protocol: "SSL", Authority: a, ClientCertificates: true}})
	c := k.Client(t)
	topic := UniqueName("orders")
	c.CreateTopic(topic, 1, nil)
	allowWrite(t, c, "CN=alice", topic)
	certFile, keyFile, err := a.Issue("alice", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	config := trusting(t, a)
	config.Certificates = []tls.Certificate{pair}
	if err := produceAs(t, k, topic, kgo.DialTLSConfig(config)); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := produceAs(t, k, topic, kgo.DialTLSConfig(trusting(t, a)), kgo.RecordDeliveryTimeout(5*time.Second)); err == nil {
		t.Error("who has no certificate is let in")
	}
	if _, err := StartKafka(t.Context(), KafkaOptions{Secure: &Secure{}}); err == nil {
		t.Error("TLS without an authority was accepted")
	}
}

// TestAFullDiskEndsTheBrokerAndLosesNothing is what a limit of the size of files does to a broker, and what it does not do.
func TestAFullDiskEndsTheBrokerAndLosesNothing(t *testing.T) {
	k := OwnKafka(t, KafkaOptions{})
	c := k.Client(t)
	topic := UniqueName("orders")
	c.CreateTopic(topic, 1, nil)
	c.Produce(numbered(topic, 0, 10)...)
	if err := k.LimitFiles(1, 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	// Else the client keeps what was on its way when the broker ended, until it is back.
	client, err := NewClient(k.Brokers(), kgo.RecordDeliveryTimeout(time.Second), kgo.AllowIdempotentProduceCancellation())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Produce(ctx, numbered(topic, 10, 11)...); err == nil {
		t.Error("a broker whose disk is full takes a record")
	}
	WaitFor(t, time.Minute, "the broker to end", func(context.Context) error {
		if k.Running(1) {
			return errors.New("it runs")
		}
		return nil
	})
	if err := k.LimitFiles(1, -1); err == nil {
		t.Error("a broker that does not run was limited")
	}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.WaitForRecords(time.Minute, topic, 10)
}

func TestPlaceholdersInSettingsAreOfEachBroker(t *testing.T) {
	brokers := []*broker{{node: 1, dir: "/data/one"}, {node: 2, dir: "/data/two"}}
	text := serverProperties(2, brokers, nil, map[string]string{"broker.rack": "zone-{node}", "x": "{dir}/x"})
	for _, want := range []string{"\nbroker.rack=zone-2\n", "\nx=/data/two/x\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
}
