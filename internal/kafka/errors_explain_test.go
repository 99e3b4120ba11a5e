package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestEachErrorOfALoginOrARightIsToldWithItsRemedy(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 9092}, Err: syscall.ECONNREFUSED}
	unknown := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Name: "broker1", Err: "no such host", IsNotFound: true}}
	tests := []struct {
		name string
		err  error
		want []string
	}{
		{
			"wrong password", fmt.Errorf("%w: Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN", kerr.SaslAuthenticationFailed),
			[]string{"SASL_AUTHENTICATION_FAILED", "invalid credentials", "kafka.sasl"},
		},
		{"mechanism", kerr.UnsupportedSaslMechanism, []string{"UNSUPPORTED_SASL_MECHANISM", "kafka.sasl.mechanism", "sasl.enabled.mechanisms"}},
		{"a login that nobody wants", kerr.IllegalSaslState, []string{"ILLEGAL_SASL_STATE", "kafka.sasl.enabled: false"}},
		{"topic", fmt.Errorf("produce orders/0: %w", kerr.TopicAuthorizationFailed), []string{"produce orders/0", "TOPIC_AUTHORIZATION_FAILED", "docs/security.md", "kafka-acls.sh"}},
		{"group", kerr.GroupAuthorizationFailed, []string{"GROUP_AUTHORIZATION_FAILED", "READ on the group"}},
		{"cluster", kerr.ClusterAuthorizationFailed, []string{"CLUSTER_AUTHORIZATION_FAILED", "WRITE"}},
		{"no login", fmt.Errorf("ask: %w", &kgo.ErrFirstReadEOF{}), []string{"most likely it wants a login", "kafka.sasl.enabled: true"}},
		{"refused", fmt.Errorf("unable to dial: %w", refused), []string{"nothing listens on 10.0.0.1:9092", "kafka.brokers"}},
		{"host name", fmt.Errorf("unable to dial: %w", unknown), []string{`"broker1" is not known here`, "advertised.listeners"}},
		{"deadline", fmt.Errorf("ask: %w", context.DeadlineExceeded), []string{"no answer in time", "firewall"}},
		{"end of file", io.EOF, []string{"closed the connection", "kafka.sasl", "log of the broker"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			line := Explain(tt.err)
			if strings.Count(line, "Remedy: ") != 1 {
				t.Errorf("want one remedy: %s", line)
			}
			for _, want := range tt.want {
				if !strings.Contains(line, want) {
					t.Errorf("%q is not in\n%s", want, line)
				}
			}
		})
	}
}

func TestAnErrorWithoutAKnownRemedyIsItsOwnTextOnOneLine(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("disk full"), "disk full"},
		{errors.New("two\nlines\tand \x1b[31mred"), "two lines and [31mred"},
		{kerr.NotEnoughReplicas, "NOT_ENOUGH_REPLICAS: Messages are rejected since there are fewer in-sync replicas than required"},
	} {
		if got := Explain(tt.err); got != tt.want {
			t.Errorf("Explain(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
	if got := Explain(errors.New(strings.Repeat("\u00e9", 10000))); len(got) > explainLimit+len("...") {
		t.Errorf("a text of 20,000 bytes is told in %d", len(got))
	}
}

func TestAListenerWithoutALoginAndOneWithAreToldApart(t *testing.T) {
	cluster := fakeCluster(t, kfake.EnableSASL(), kfake.Superuser(MechanismPlain, "forwarder", "secret"))
	line, _ := expectRemedy(t, Options{Brokers: cluster.ListenAddrs()})
	if !strings.Contains(line, "login") && !strings.Contains(line, "kafka.sasl") {
		t.Errorf("no word of a login: %s", line)
	}
}

// TestNoSecretIsEverTold lets each login fail with the log open to its last detail,
// and looks for what must not be there.
func TestNoSecretIsEverTold(t *testing.T) {
	cluster := fakeCluster(t, kfake.EnableSASL(), kfake.Superuser(MechanismPlain, "forwarder", "another"))
	refuseTokens(cluster)
	const secret = "hunter2hunter2"
	file := filepath.Join(t.TempDir(), "secret")
	replace(t, file, []byte(secret+"\n"))
	endpoint := newTokenEndpoint(t)
	endpoint.refuse(401, `{"error":"invalid_client","error_description":"`+secret+` is not the secret"}`)
	isolateAWS(t)
	for name, sasl := range map[string]SASLOptions{
		"plain":           {Mechanism: MechanismPlain, Username: "forwarder", Password: secret},
		"plain file":      {Mechanism: MechanismPlain, Username: "forwarder", PasswordFile: file},
		"scram":           {Mechanism: MechanismScramSHA512, Username: "forwarder", Password: secret},
		"token":           {Mechanism: MechanismOAuthBearer, OAuth: OAuthOptions{Token: secret}},
		"malformed token": {Mechanism: MechanismOAuthBearer, OAuth: OAuthOptions{Token: secret + " " + secret}},
		"token file":      {Mechanism: MechanismOAuthBearer, OAuth: OAuthOptions{TokenFile: file}},
		"token endpoint":  {Mechanism: MechanismOAuthBearer, OAuth: OAuthOptions{TokenEndpoint: endpoint.URL + "?key=" + secret, ClientID: "forwarder", ClientSecretFile: file}},
		"no endpoint":     {Mechanism: MechanismOAuthBearer, OAuth: OAuthOptions{TokenEndpoint: "http://" + closedPort(t) + "/?key=" + secret, ClientID: "forwarder", ClientSecret: secret}},
		"endpoint of one": {Mechanism: MechanismOAuthBearer, OAuth: OAuthOptions{TokenEndpoint: "http://user:" + secret + "@127.0.0.1/", ClientID: "forwarder", ClientSecret: secret}},
		"no url":          {Mechanism: MechanismOAuthBearer, OAuth: OAuthOptions{TokenEndpoint: secret + "://\x7f", ClientID: "forwarder", ClientSecret: secret}},
		"aws":             {Mechanism: MechanismAWSMSKIAM, AWS: AWSOptions{AccessKey: "AKID", SecretKey: secret, SessionToken: secret, Region: "eu-west-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o := Options{
				Brokers: cluster.ListenAddrs(), SASL: &sasl,
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			}
			opts, err := o.ClientOpts()
			if err == nil {
				client, newErr := kgo.NewClient(opts...)
				if newErr != nil {
					t.Fatal(newErr)
				}
				err = ping(t, client)
				client.Close() // So that nobody writes to the log any more.
			}
			if err == nil {
				t.Fatal("the login went well, which proves nothing")
			}
			for where, text := range map[string]string{"error": err.Error(), "details": fmt.Sprintf("%+v", err), "explanation": Explain(err), "log": log.String()} {
				if strings.Contains(text, secret) {
					t.Errorf("the secret is in the %s:\n%s", where, text)
				}
			}
			t.Log(Explain(err))
		})
	}
}

// refuseTokens has a cluster, which knows passwords only, offer the other mechanisms
// as well and refuse everybody.
func refuseTokens(cluster *kfake.Cluster) {
	cluster.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request, ok := r.(*kmsg.SASLHandshakeRequest)
		return r.ResponseKind(), nil, ok && (request.Mechanism == MechanismOAuthBearer || request.Mechanism == MechanismAWSMSKIAM)
	})
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request, ok := r.(*kmsg.SASLAuthenticateRequest)
		if !ok || !bytes.Contains(request.SASLAuthBytes, []byte("auth=Bearer")) && !bytes.Contains(request.SASLAuthBytes, []byte("x-amz-signature")) {
			return nil, nil, false
		}
		response, ok := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		if ok {
			response.ErrorCode = kerr.SaslAuthenticationFailed.Code
			response.ErrorMessage = new("not today")
		}
		return response, nil, ok
	})
}
