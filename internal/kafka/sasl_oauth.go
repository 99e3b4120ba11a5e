package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

const (
	// tokenTimeout bounds one question for a token, connection included.
	tokenTimeout = 10 * time.Second
	// tokenPause is how long a failed question stands for the next ones. A client
	// opens several connections at once, and each would ask and wait in its turn.
	tokenPause = time.Second
	// tokenDefaultLife is that of a token whose endpoint does not say: long enough
	// for the connections that are opened together.
	tokenDefaultLife = 10 * time.Second
	// tokenMaxLife keeps a number of the endpoint within what a duration can hold.
	tokenMaxLife = 365 * 24 * time.Hour
	// tokenMaxBytes bounds what is read of an answer.
	tokenMaxBytes = 1 << 20
)

// OAuthOptions says where the bearer token of OAUTHBEARER comes from: exactly one of
// Token, TokenFile and TokenEndpoint.
type OAuthOptions struct {
	// Token is shown as it is. It cannot be renewed: when it expires, connections
	// end.
	Token string
	// TokenFile holds the token; line ends at its end are no part of it. It is read
	// again for every authentication, so that somebody else can renew it in place.
	TokenFile string
	// TokenEndpoint is the URL to ask for a token with the client credentials grant
	// (RFC 6749, section 4.4). Its host may be signed for by the authorities of the
	// system and by those of TLSOptions.CAFile. A token is asked for again when a
	// fifth of its life is left.
	TokenEndpoint string
	// ClientID names this process to the token endpoint. Required with it.
	ClientID string
	// ClientSecret is used when ClientSecretFile is empty. Exactly one of the two
	// is required with TokenEndpoint.
	ClientSecret string
	// ClientSecretFile holds the client secret, like TokenFile; it is read again for
	// every token.
	ClientSecretFile string
	// Scope is what the token is asked for. Empty: what the endpoint gives.
	Scope string
	// Extensions are shown to the brokers beside the token (RFC 7628, section 3.1).
	Extensions map[string]string
}

// mechanism returns the kgo mechanism. Encryption, which may be nil, is that of the
// connections to the brokers.
func (o OAuthOptions) mechanism(encryption *TLSOptions) (sasl.Mechanism, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	token := func(context.Context) (string, error) {
		token, err := secretOf("sasl oauth token file", o.Token, o.TokenFile)
		if err == nil && !isToken(token) {
			err = &advice{errors.New("sasl oauth token: it holds characters that no bearer token has"), "give the token alone, on one line"}
		}
		return token, err
	}
	if o.TokenEndpoint != "" {
		token = newTokenCache((&tokenClient{options: o, encryption: encryption}).ask).get
	} else if _, err := token(context.Background()); err != nil {
		return nil, err
	}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := token(ctx)
		return oauth.Auth{Token: token, Extensions: o.Extensions}, withheld(err)
	}), nil
}

// check names what is missing or contradicts itself.
func (o OAuthOptions) check() error {
	sources := 0
	for _, source := range []string{o.Token, o.TokenFile, o.TokenEndpoint} {
		if source != "" {
			sources++
		}
	}
	if sources != 1 {
		return errors.New("sasl oauth: exactly one of token, token file and token endpoint is required")
	}
	for key, value := range o.Extensions {
		if !regexp.MustCompile(`^[A-Za-z]+$`).MatchString(key) || key == "auth" {
			return fmt.Errorf("sasl oauth extension %q: the key must be letters, and not auth", key)
		}
		if !regexp.MustCompile(`^[\x20-\x7e\t\r\n]*$`).MatchString(value) {
			return fmt.Errorf("sasl oauth extension %q: the value holds characters that are not allowed", key)
		}
	}
	if o.TokenEndpoint == "" {
		return nil
	}
	if _, err := o.endpoint(); err != nil {
		return err
	}
	if o.ClientID == "" {
		return errors.New("sasl oauth client id: required with a token endpoint")
	}
	if (o.ClientSecret == "") == (o.ClientSecretFile == "") {
		return errors.New("sasl oauth client secret: exactly one of client secret and client secret file is required")
	}
	_, err := o.clientSecret()
	return err
}

func (o OAuthOptions) clientSecret() (string, error) {
	return secretOf("sasl oauth client secret file", o.ClientSecret, o.ClientSecretFile)
}

// endpoint parses the URL. An error does not show it: somebody may have put a secret
// into it.
func (o OAuthOptions) endpoint() (*url.URL, error) {
	u, err := url.Parse(o.TokenEndpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("sasl oauth token endpoint: want a URL that starts with https:// or http://")
	}
	if u.User != nil {
		return nil, errors.New("sasl oauth token endpoint: no user and password in the URL: give client id and client secret")
	}
	return u, nil
}

// isToken reports whether s can be sent as a bearer token: visible ASCII only.
func isToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// tokenCache keeps a token for the better part of its life and lets one caller at a
// time ask for the next.
type tokenCache struct {
	ask func(context.Context) (token string, life time.Duration, err error)

	// turn has room for one: who has put something in may use the following.
	turn    chan struct{}
	token   string
	renew   time.Time // from then on a new one is asked for
	expires time.Time
	err     error // of the last question
	failed  time.Time
}

func newTokenCache(ask func(context.Context) (string, time.Duration, error)) *tokenCache {
	return &tokenCache{ask: ask, turn: make(chan struct{}, 1)}
}

// get returns a token that is good for a while. It blocks while one is asked for.
func (c *tokenCache) get(ctx context.Context) (string, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-c.turn }()

	if time.Now().Before(c.renew) {
		return c.token, nil
	}
	if c.err == nil || time.Since(c.failed) >= tokenPause {
		asked := time.Now() // The life of a token may count from before its answer.
		token, life, err := c.ask(ctx)
		if c.err = err; err == nil {
			c.token, c.renew, c.expires = token, asked.Add(life*4/5), asked.Add(life)
			return token, nil
		}
		c.failed = time.Now()
	}
	if time.Now().Before(c.expires) {
		return c.token, nil // The endpoint has until then to come back.
	}
	return "", c.err
}

// tokenClient asks the endpoint for tokens. One call at a time.
type tokenClient struct {
	options    OAuthOptions
	encryption *TLSOptions
	// inForm is set when the endpoint has taken the secret in the form and not in
	// the header.
	inForm bool
}

// ask makes one question. RFC 6749 has every endpoint take the client's secret in
// the header (section 2.3.1); some take it in the form alone, and say the client is
// unknown otherwise.
func (t *tokenClient) ask(ctx context.Context) (string, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	answer, err := t.post(ctx, t.inForm)
	if refused, ok := errors.AsType[*tokenRefused](err); ok && refused.isOfClient() {
		if other, otherErr := t.post(ctx, !t.inForm); otherErr == nil {
			t.inForm = !t.inForm
			answer, err = other, nil
		}
	}
	if err != nil {
		return "", 0, err
	}
	life := tokenDefaultLife
	if seconds, err := answer.ExpiresIn.Float64(); err == nil && seconds > 0 {
		life = time.Duration(math.Min(seconds, tokenMaxLife.Seconds()) * float64(time.Second))
	}
	return answer.AccessToken, life, nil
}

// tokenAnswer is a good answer, as far as it is of use.
type tokenAnswer struct {
	AccessToken string      `json:"access_token"`
	TokenType   string      `json:"token_type"`
	ExpiresIn   json.Number `json:"expires_in"` // Some write it as text.
}

// post sends the question. No error holds what was sent or what came back: both may
// be secrets.
func (t *tokenClient) post(ctx context.Context, inForm bool) (*tokenAnswer, error) {
	endpoint, err := t.options.endpoint()
	if err != nil {
		return nil, err
	}
	shown := endpoint.Scheme + "://" + endpoint.Host + endpoint.EscapedPath()
	secret, err := t.options.clientSecret()
	if err != nil {
		return nil, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if t.options.Scope != "" {
		form.Set("scope", t.options.Scope)
	}
	if inForm {
		form.Set("client_id", t.options.ClientID)
		form.Set("client_secret", secret)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("sasl oauth: no question can be made of the token endpoint %s", shown)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	if !inForm {
		request.SetBasicAuth(url.QueryEscape(t.options.ClientID), url.QueryEscape(secret))
	}
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // Without the URL, whose query may hold what is not to be shown.
		}
		return nil, &advice{
			fmt.Errorf("sasl oauth: the token endpoint %s does not answer: %w", shown, err),
			"check kafka.sasl.oauth.tokenEndpoint, and that it can be reached; its certificate may be of an authority of the system or of kafka.tls.caFilepath",
		}
	}
	defer response.Body.Close() //nolint:errcheck // Only read.
	body, err := io.ReadAll(io.LimitReader(response.Body, tokenMaxBytes))
	if err != nil {
		return nil, fmt.Errorf("sasl oauth: read the answer of the token endpoint %s: %w", shown, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, newTokenRefused(shown, response.StatusCode, body)
	}
	answer := &tokenAnswer{}
	if err := json.Unmarshal(body, answer); err != nil || !isToken(answer.AccessToken) || !isBearer(answer.TokenType) {
		return nil, &advice{
			fmt.Errorf("sasl oauth: the answer of the token endpoint %s holds no bearer token", shown),
			"check kafka.sasl.oauth.tokenEndpoint",
		}
	}
	return answer, nil
}

// isBearer allows for endpoints that do not say what kind of token they give.
func isBearer(kind string) bool { return kind == "" || strings.EqualFold(kind, "bearer") }

// client makes a client for one question: they are an hour apart, and the files may
// have changed. A redirect is not followed, as it would take the secret elsewhere.
func (t *tokenClient) client() (*http.Client, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.encryption != nil && t.encryption.CAFile != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool() // A small image may have none.
		}
		if err := t.encryption.addAuthorities(roots); err != nil {
			return nil, &advice{err, "mend the file; it is read again for the next token"}
		}
		cfg.RootCAs = roots
	}
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: cfg, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// tokenRefused is an answer of the endpoint that gives no token.
type tokenRefused struct {
	status int
	code   string // of RFC 6749, section 5.2; "" if there is none
	shown  string
}

// newTokenRefused takes the code of the error alone: what an endpoint says beside it
// may repeat what it was sent.
func newTokenRefused(shown string, status int, body []byte) error {
	var answer struct {
		Error string `json:"error"`
	}
	refused := &tokenRefused{status: status, shown: shown}
	if json.Unmarshal(body, &answer) == nil && regexp.MustCompile(`^[a-z_]{1,40}$`).MatchString(answer.Error) {
		refused.code = answer.Error
	}
	remedy := "check kafka.sasl.oauth, and look at the log of the token endpoint"
	switch {
	case refused.isOfClient():
		remedy = "check kafka.sasl.oauth.clientId and the client secret"
	case refused.code == "invalid_scope":
		remedy = "check kafka.sasl.oauth.scope"
	case status == http.StatusNotFound || status >= 300 && status < 400:
		remedy = "check kafka.sasl.oauth.tokenEndpoint"
	case status >= 500:
		remedy = "none if it passes; else look at the log of the token endpoint"
	}
	return &advice{refused, remedy}
}

// Error names the endpoint, the status and the code.
func (r *tokenRefused) Error() string {
	s := fmt.Sprintf("sasl oauth: the token endpoint %s gives no token: status %d", r.shown, r.status)
	if r.code != "" {
		s += " " + r.code
	}
	return s
}

// isOfClient reports whether the endpoint does not know the client, or not like this.
func (r *tokenRefused) isOfClient() bool {
	return r.status == http.StatusUnauthorized || r.code == "invalid_client" || r.code == "unauthorized_client"
}
