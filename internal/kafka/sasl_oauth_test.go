package kafka

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/sasl"
)

// tokenEndpoint is a server that gives out tokens and remembers what it was asked.
type tokenEndpoint struct {
	*httptest.Server

	mu     sync.Mutex // guards the following
	asked  []question
	status int
	answer string
	check  func(question) bool // nil: every client is known
}

type question struct {
	method, uri, user, secret, body string
	basic                           bool
}

func newTokenEndpoint(t *testing.T) *tokenEndpoint {
	t.Helper()
	e := &tokenEndpoint{status: http.StatusOK, answer: `{"access_token":"token-1","token_type":"Bearer","expires_in":3600}`}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

// ServeHTTP implements http.Handler.
func (e *tokenEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q := question{method: r.Method, uri: r.RequestURI, body: string(body)}
	q.user, q.secret, q.basic = r.BasicAuth()
	e.mu.Lock()
	e.asked = append(e.asked, q)
	status, answer := e.status, e.answer
	if e.check != nil && !e.check(q) {
		status, answer = http.StatusUnauthorized, `{"error":"invalid_client"}`
	}
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if status >= 300 && status < 400 {
		w.Header().Set("Location", answer)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

func (e *tokenEndpoint) refuse(status int, answer string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status, e.answer = status, answer
}

func (e *tokenEndpoint) questions() []question {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked
}

// first returns the first message of a mechanism to a broker.
func first(t *testing.T, m sasl.Mechanism) (string, error) {
	t.Helper()
	_, message, err := m.Authenticate(t.Context(), "broker:9092")
	return string(message), err
}

func oauthMechanism(t *testing.T, o OAuthOptions, encryption *TLSOptions) sasl.Mechanism {
	t.Helper()
	m, err := (&SASLOptions{Mechanism: MechanismOAuthBearer, OAuth: o}).mechanism(Options{Brokers: []string{"broker:9092"}, TLS: encryption})
	if err != nil {
		t.Fatal(err)
	}
	if m.Name() != "OAUTHBEARER" {
		t.Errorf("the mechanism is called %s", m.Name())
	}
	return m
}

func TestOAuthNamesWhatIsMissingOrContradictsItself(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	full := OAuthOptions{TokenEndpoint: "https://login.example/token", ClientID: "c", ClientSecret: "s"}
	change := func(f func(*OAuthOptions)) OAuthOptions {
		o := full
		f(&o)
		return o
	}
	for _, tt := range []struct {
		name string
		o    OAuthOptions
		want string
	}{
		{"nothing", OAuthOptions{}, "exactly one of token, token file and token endpoint"},
		{"two", OAuthOptions{Token: "t", TokenFile: "f"}, "exactly one of token"},
		{"token file absent", OAuthOptions{TokenFile: absent}, absent},
		{"malformed token", OAuthOptions{Token: "a b"}, "characters that no bearer token has"},
		{"no url", change(func(o *OAuthOptions) { o.TokenEndpoint = "login.example" }), "https://"},
		{"other scheme", change(func(o *OAuthOptions) { o.TokenEndpoint = "ftp://login.example" }), "https://"},
		{"password in the url", change(func(o *OAuthOptions) { o.TokenEndpoint = "https://u:p@login.example" }), "no user and password"},
		{"no client", change(func(o *OAuthOptions) { o.ClientID = "" }), "client id"},
		{"no secret", change(func(o *OAuthOptions) { o.ClientSecret = "" }), "client secret"},
		{"two secrets", change(func(o *OAuthOptions) { o.ClientSecretFile = "f" }), "client secret"},
		{"secret file absent", change(func(o *OAuthOptions) { o.ClientSecret, o.ClientSecretFile = "", absent }), absent},
		{"extension", OAuthOptions{Token: "t", Extensions: map[string]string{"auth": "x"}}, `"auth"`},
		{"extension key", OAuthOptions{Token: "t", Extensions: map[string]string{"a b": "x"}}, `"a b"`},
		{"extension value", OAuthOptions{Token: "t", Extensions: map[string]string{"a": "x\x01auth=Bearer y"}}, "not allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Options{Brokers: []string{"broker:9092"}, SASL: &SASLOptions{Mechanism: MechanismOAuthBearer, OAuth: tt.o}}.ClientOpts()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestATokenAndItsExtensionsAreShownToTheBroker(t *testing.T) {
	m := oauthMechanism(t, OAuthOptions{Token: "abc.def", Extensions: map[string]string{"logicalCluster": "lkc-1", "identityPoolId": "p"}}, nil)
	got, err := first(t, m)
	if want := "n,,\x01auth=Bearer abc.def\x01identityPoolId=p\x01logicalCluster=lkc-1\x01\x01"; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestTheTokenFileIsReadForEveryLogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	replace(t, file, []byte("old\n"))
	m := oauthMechanism(t, OAuthOptions{TokenFile: file}, nil)
	for _, token := range []string{"old", "new"} {
		replace(t, file, []byte(token+"\r\n"))
		if got, err := first(t, m); err != nil || !strings.Contains(got, "Bearer "+token+"\x01") {
			t.Errorf("%q, %v; want the token %s", got, err, token)
		}
	}
	replace(t, file, []byte("two lines\nsecond"))
	if _, err := first(t, m); Classify(err) != Transient || Code(err) != "connection" || !strings.Contains(Explain(err), "Remedy: ") {
		t.Errorf("a file that is no token: %v is %v, %s: %s", err, Classify(err), Code(err), Explain(err))
	}
}

func TestTheEndpointIsAskedByPostWithNoSecretInTheURL(t *testing.T) {
	endpoint := newTokenEndpoint(t)
	secretFile := filepath.Join(t.TempDir(), "secret")
	replace(t, secretFile, []byte("s3cret/+&\n"))
	m := oauthMechanism(t, OAuthOptions{TokenEndpoint: endpoint.URL + "/token?tenant=a", ClientID: "forwarder", ClientSecretFile: secretFile, Scope: "kafka read"}, nil)
	got, err := first(t, m)
	if err != nil || !strings.Contains(got, "Bearer token-1\x01") {
		t.Fatalf("%q, %v", got, err)
	}
	want := []question{{
		method: "POST", uri: "/token?tenant=a", user: "forwarder", secret: url.QueryEscape("s3cret/+&"), basic: true,
		body: "grant_type=client_credentials&scope=kafka+read",
	}}
	if diff := cmp.Diff(want, endpoint.questions(), cmp.AllowUnexported(question{})); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if _, err := first(t, m); err != nil || len(endpoint.questions()) != 1 {
		t.Errorf("the second login: %v; the endpoint was asked %d times", err, len(endpoint.questions()))
	}
}

func TestAnEndpointThatWantsTheSecretInTheFormGetsItThere(t *testing.T) {
	endpoint := newTokenEndpoint(t)
	endpoint.check = func(q question) bool {
		return !q.basic && strings.Contains(q.body, "client_id=forwarder&client_secret=s3cret")
	}
	client := &tokenClient{options: OAuthOptions{TokenEndpoint: endpoint.URL, ClientID: "forwarder", ClientSecret: "s3cret"}}
	for range 2 {
		if token, life, err := client.ask(t.Context()); err != nil || token != "token-1" || life != time.Hour {
			t.Fatalf("%q, %v, %v", token, life, err)
		}
	}
	if n := len(endpoint.questions()); n != 3 {
		t.Errorf("asked %d times, want 3: what has worked is tried first", n)
	}
}

func TestTheEndpointMayBeOfTheAuthorityOfTheBrokers(t *testing.T) {
	endpoint := newTokenEndpoint(t)
	secured := httptest.NewUnstartedServer(endpoint)
	secured.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	secured.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secured.StartTLS()
	defer secured.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	replace(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secured.Certificate().Raw}))
	o := OAuthOptions{TokenEndpoint: secured.URL, ClientID: "forwarder", ClientSecret: "s3cret"}

	_, err := first(t, oauthMechanism(t, o, nil))
	if line := Explain(err); !strings.Contains(line, "unknown authority") || !strings.Contains(line, "kafka.tls.caFilepath") {
		t.Errorf("without the authority: %s", line)
	}
	if _, err := first(t, oauthMechanism(t, o, &TLSOptions{CAFile: ca})); err != nil {
		t.Errorf("with the authority: %v", err)
	}
	_, err = first(t, oauthMechanism(t, o, &TLSOptions{InsecureSkipVerify: true}))
	if err == nil {
		t.Error("what is not checked of brokers is checked of the endpoint, which gets the secret")
	}
}

func TestEachRefusalOfTheEndpointIsToldWithItsRemedy(t *testing.T) {
	elsewhere := newTokenEndpoint(t)
	for _, tt := range []struct {
		name   string
		status int
		answer string
		want   []string
	}{
		{"client", 401, `{"error":"invalid_client"}`, []string{"status 401 invalid_client", "kafka.sasl.oauth.clientId"}},
		{"scope", 400, `{"error":"invalid_scope","error_description":"no"}`, []string{"status 400 invalid_scope", "kafka.sasl.oauth.scope"}},
		{"path", 404, `<html>`, []string{"status 404", "kafka.sasl.oauth.tokenEndpoint"}},
		{"redirect", 307, elsewhere.URL, []string{"status 307", "kafka.sasl.oauth.tokenEndpoint"}},
		{"fault", 503, ``, []string{"status 503", "none if it passes"}},
		{"no json", 200, `token-1`, []string{"holds no bearer token"}},
		{"no token", 200, `{"expires_in":5}`, []string{"holds no bearer token"}},
		{"token of another kind", 200, `{"access_token":"t","token_type":"mac"}`, []string{"holds no bearer token"}},
		{"token that breaks the message", 200, `{"access_token":"t\u0001auth=Bearer x","token_type":"Bearer"}`, []string{"holds no bearer token"}},
		{"hostile code", 400, `{"error":"two words\nand a line"}`, []string{"status 400."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			endpoint := newTokenEndpoint(t)
			endpoint.refuse(tt.status, tt.answer)
			_, err := first(t, oauthMechanism(t, OAuthOptions{TokenEndpoint: endpoint.URL + "/token", ClientID: "forwarder", ClientSecret: "s3cret"}, nil))
			line := Explain(err)
			if Classify(err) != Transient || Code(err) != "connection" || strings.Count(line, "Remedy: ") != 1 {
				t.Errorf("%v is %v, %s: %s", err, Classify(err), Code(err), line)
			}
			for _, want := range append(tt.want, endpoint.URL+"/token") {
				if !strings.Contains(line, want) {
					t.Errorf("%q is not in\n%s", want, line)
				}
			}
		})
	}
	if n := len(elsewhere.questions()); n > 0 {
		t.Errorf("a redirect was followed %d times, and the secret went with it", n)
	}
}

func TestAnEndpointThatHangsIsGivenUp(t *testing.T) {
	hanging := make(chan struct{})
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
	}))
	defer endpoint.Close()
	defer close(hanging)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	client := &tokenClient{options: OAuthOptions{TokenEndpoint: endpoint.URL, ClientID: "forwarder", ClientSecret: "s3cret"}}
	if _, _, err := client.ask(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(Explain(err), "does not answer") {
		t.Errorf("error %v, want the end of the time", err)
	}
}

func TestTheLifeOfATokenIsReadInWhateverFormItComes(t *testing.T) {
	for form, want := range map[string]time.Duration{
		`3600`: time.Hour, `"3600"`: time.Hour, `3599.5`: 3599500 * time.Millisecond,
		`0`: tokenDefaultLife, `-5`: tokenDefaultLife, `1e300`: tokenMaxLife, `null`: tokenDefaultLife,
	} {
		endpoint := newTokenEndpoint(t)
		endpoint.refuse(200, fmt.Sprintf(`{"access_token":"t","expires_in":%s}`, form))
		client := &tokenClient{options: OAuthOptions{TokenEndpoint: endpoint.URL, ClientID: "forwarder", ClientSecret: "s3cret"}}
		if _, life, err := client.ask(t.Context()); err != nil || life != want {
			t.Errorf("expires_in %s: %v, %v; want %v", form, life, err, want)
		}
	}
}

// dispenser is an endpoint without a network.
type dispenser struct {
	asked int
	life  time.Duration
	takes time.Duration
	err   error
}

func (d *dispenser) ask(ctx context.Context) (string, time.Duration, error) {
	d.asked++
	select {
	case <-time.After(d.takes):
	case <-ctx.Done():
		return "", 0, ctx.Err()
	}
	return fmt.Sprintf("token-%d", d.asked), d.life, d.err
}

func TestATokenIsKeptForFourFifthsOfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dispenser{life: 100 * time.Second, takes: time.Second}
		cache := newTokenCache(d.ask)
		expect := func(want string) {
			t.Helper()
			if got, err := cache.get(t.Context()); err != nil || got != want {
				t.Errorf("%s, %v; want %s", got, err, want)
			}
		}
		expect("token-1")
		time.Sleep(78 * time.Second) // The life began with the question, a second ago.
		expect("token-1")
		time.Sleep(time.Second)
		expect("token-2")
	})
}

func TestTheOldTokenServesWhileTheEndpointIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dispenser{life: 100 * time.Second}
		cache := newTokenCache(d.ask)
		if _, err := cache.get(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.err = errors.New("away")
		time.Sleep(99 * time.Second)
		if got, err := cache.get(t.Context()); err != nil || got != "token-1" {
			t.Errorf("before its end: %s, %v", got, err)
		}
		time.Sleep(time.Second)
		if got, err := cache.get(t.Context()); err == nil {
			t.Errorf("after its end: %s", got)
		}
		d.err = nil
		time.Sleep(tokenPause)
		if got, err := cache.get(t.Context()); err != nil || got == "token-1" {
			t.Errorf("when the endpoint is back: %s, %v", got, err)
		}
	})
}

func TestConnectionsThatOpenTogetherAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dispenser{life: 100 * time.Second, takes: 5 * time.Second, err: errors.New("away")}
		cache := newTokenCache(d.ask)
		together := func() time.Duration {
			began := time.Now()
			var wait sync.WaitGroup
			for range 5 {
				wait.Go(func() { _, _ = cache.get(t.Context()) })
			}
			wait.Wait()
			return time.Since(began)
		}
		if took := together(); d.asked != 1 || took != 5*time.Second {
			t.Errorf("a refusal: asked %d times in %v", d.asked, took)
		}
		time.Sleep(tokenPause)
		d.err = nil
		if took := together(); d.asked != 2 || took != 5*time.Second {
			t.Errorf("a token: asked %d times in %v", d.asked, took)
		}
	})
}

func TestWhoWaitsForATokenCanGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dispenser{life: time.Minute, takes: time.Hour}
		cache := newTokenCache(d.ask)
		ctx, cancel := context.WithCancel(t.Context())
		asking := make(chan struct{})
		go func() {
			defer close(asking)
			_, _ = cache.get(ctx)
		}()
		synctest.Wait()
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := cache.get(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		cancel()
		<-asking
	})
}
