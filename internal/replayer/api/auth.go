package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// Token is who may do what. Only the hash of the secret is known here.
type Token struct {
	// Name stands in the audit trail.
	Name string
	Role Role
	// SHA256 is of the token's text.
	SHA256 [sha256.Size]byte
	// Topics are the dead-letter topics it is narrowed to; empty is all.
	Topics []string
}

// maxName bounds the name of a token, which the replayer takes as the actor.
const maxName = 200

// tokenPrefix lets a scanner for secrets find tokens.
const tokenPrefix = "rdr_"

// NewToken makes a random token, and the hash that the configuration has.
func NewToken() (token string, sum [sha256.Size]byte) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // It never fails.
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	return token, sha256.Sum256([]byte(token))
}

// local is who asks where there are no tokens: whoever is on this machine.
const local = "local"

// caller is who asks.
type caller struct {
	name          string
	role          Role
	topics        []string // empty: all
	authenticated bool
}

// rank orders the roles.
func (r Role) rank() int {
	return slices.Index([]Role{RoleViewer, RoleOperator, RoleAdmin}, r)
}

// may tells whether the caller has at least that role.
func (c *caller) may(role Role) bool { return c.role.rank() >= role.rank() }

// sees tells whether letters of that dead-letter topic exist for the caller.
func (c *caller) sees(topic string) bool {
	return len(c.topics) == 0 || slices.Contains(c.topics, topic)
}

// seesAll tells whether the caller is not narrowed to topics.
func (c *caller) seesAll() bool { return len(c.topics) == 0 }

// narrow takes what the caller does not see out of a filter. It reports false if nothing is left to select.
func (c *caller) narrow(filter *deadletter.Filter) bool {
	switch {
	case c.seesAll():
	case len(filter.Topics) == 0:
		filter.Topics = slices.Clone(c.topics)
	default:
		filter.Topics = slices.DeleteFunc(slices.Clone(filter.Topics), func(t string) bool { return !c.sees(t) })
		return len(filter.Topics) > 0
	}
	return true
}

type callerKey struct{}

func withCaller(ctx context.Context, c *caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf is who asks. Every operation that is not public has one.
func callerOf(r *http.Request) *caller {
	c, _ := r.Context().Value(callerKey{}).(*caller)
	if c == nil {
		return &caller{topics: []string{""}} // Nobody, who may nothing: a topic has a name.
	}
	return c
}

// checkTokens says what is wrong with a list of tokens.
func checkTokens(tokens []Token) error {
	var problems []error
	names, sums := map[string]bool{}, map[[sha256.Size]byte]bool{}
	for i, t := range tokens {
		switch {
		case t.Name == "" || t.Name == local:
			problems = append(problems, fmt.Errorf("token %d: a name other than %q is needed, for the audit trail", i+1, local))
		case checkText("name", t.Name, maxName) != nil:
			problems = append(problems, fmt.Errorf("token %d: the name is longer than %d bytes, or no text", i+1, maxName))
		case !t.Role.Valid():
			problems = append(problems, fmt.Errorf("token %q: role %q is none of viewer, operator and admin", t.Name, t.Role))
		case t.SHA256 == [sha256.Size]byte{} || t.SHA256 == sha256.Sum256(nil):
			problems = append(problems, fmt.Errorf("token %q: no sha256 of a token", t.Name))
		case slices.Contains(t.Topics, ""):
			problems = append(problems, fmt.Errorf("token %q: a topic has a name", t.Name))
		case names[t.Name]:
			problems = append(problems, fmt.Errorf("token %q: there are two of that name", t.Name))
		case sums[t.SHA256]:
			problems = append(problems, fmt.Errorf("token %q: another one has the same sha256", t.Name))
		}
		names[t.Name], sums[t.SHA256] = true, true
	}
	return errors.Join(problems...)
}

// authenticate says who asks. The second result says why nobody: for the metric, from a closed list.
func authenticate(tokens []Token, r *http.Request) (*caller, string) {
	if len(tokens) == 0 {
		return &caller{name: local, role: RoleAdmin}, ""
	}
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return nil, "missing"
	}
	scheme, secret, ok := strings.Cut(values[0], " ")
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") {
		return nil, "malformed"
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(secret)))
	var found *caller
	// All are compared, so that the time tells nothing about which one it was.
	for i := range tokens {
		if subtle.ConstantTimeCompare(sum[:], tokens[i].SHA256[:]) == 1 {
			found = &caller{name: tokens[i].Name, role: tokens[i].Role, topics: tokens[i].Topics, authenticated: true}
		}
	}
	if found == nil {
		return nil, "wrong"
	}
	return found, ""
}

// loopbackHost tells whether a Host header names this machine. Where there are no tokens a page of any site could have its
// own name resolve to 127.0.0.1 and ask from a browser here; the name gives that away.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
