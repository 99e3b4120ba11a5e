package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

const (
	// A lease is renewed at a third of it. With a shorter one a single slow answer of the database would end a replay.
	shortestLease = Duration(3 * time.Second)
	// Whatever a replica held when it died waits as long as this.
	longestLease = Duration(10 * time.Minute)

	// A claim is one statement: more letters in it would lock others out for long.
	largestBatch = 10000

	// What a request may hold beyond its filter are ids and one edited value.
	smallestBody = Bytes(4 << 10)
	largestBody  = Bytes(64 << 20)
)

func (c checker) ledger(l Ledger) {
	const base = "ledger."
	c.exclusive(base+"url", l.URL != "", base+"urlFilepath", l.URLFilepath != "")
	kind, wrong := ledgerKind(l.URL.Reveal())
	c.report(base+"url", wrong)
	if l.URL != "" || l.URLFilepath != "" {
		if l.URLFilepath == "" && kind == "sqlite" && !l.Migrate {
			c.problem(base+"migrate", "has no effect on SQLite, which is migrated when it is opened", "remove it, or name a database of Postgres with ledger.url")
		}
		return
	}
	if l.DataDir == "" && c.readable(base+"dataDir") {
		c.problem(base+"dataDir", "is empty, and no ledger.url is set", "name a directory, or a database with ledger.url")
	}
	if !l.Migrate && c.readable(base+"migrate") {
		c.problem(base+"migrate", "has no effect on SQLite, which is migrated when it is opened", "remove it, or name a database of Postgres with ledger.url")
	}
}

// ledgerKind tells what is at the URL of a ledger, postgres or sqlite, and what is wrong with it. It never shows the URL, which may hold
// a password. No URL is SQLite.
func ledgerKind(text string) (kind string, wrong complaint) {
	const hint = "write it as postgres://user@host:5432/name, sqlite:///absolute/path or sqlite://relative/path"
	if text == "" {
		return "sqlite", complaint{}
	}
	scheme, rest, ok := strings.Cut(text, "://")
	switch {
	case !ok:
		return "", complaint{"is not a URL", hint}
	case scheme == "sqlite":
		switch {
		case rest == "" || strings.HasSuffix(rest, "/"):
			return "", complaint{"names no file", hint}
		case strings.ContainsAny(rest, "?#"):
			return "", complaint{"a URL of SQLite is a path and nothing else", hint}
		}
		return "sqlite", complaint{}
	case scheme != "postgres" && scheme != "postgresql":
		return "", complaint{"is the URL of neither Postgres nor SQLite", hint}
	}
	if u, err := url.Parse(text); err != nil || u.Path == "" || u.Path == "/" {
		return "", complaint{"is not the URL of a database", hint}
	}
	return "postgres", complaint{}
}

// LedgerFile is the path of the file if the URL of a ledger is one of SQLite. The error says what is wrong with the URL, and does not
// show it.
func LedgerFile(url string) (path string, sqlite bool, err error) {
	kind, wrong := ledgerKind(url)
	if wrong.message != "" {
		return "", false, errors.New(wrong.message + ": " + wrong.hint)
	}
	if kind != "sqlite" {
		return "", false, nil
	}
	return strings.TrimPrefix(url, "sqlite://"), true, nil
}

func (c checker) replayer(r Replayer) {
	const base = "replayer."
	c.member(base, r.Group, r.InstanceID, r.SessionTimeout, bounded{"shutdownTimeout", r.ShutdownTimeout})
	if r.Group != "" && r.Group == c.config.Forwarder.Group && c.readable(base+"group", "forwarder.group") {
		c.problem(base+"group", "is the forwarder's group", "give each of the two processes a group of its own")
	}
	if path := base + "lease"; c.readable(path) && (r.Lease < shortestLease || r.Lease > longestLease) {
		c.problem(path, fmt.Sprintf("%s is not between %s and %s", r.Lease, shortestLease, longestLease), "a replica that died is replaced after one lease")
	}
	if path := base + "batch"; c.readable(path) && r.Batch > largestBatch {
		c.problem(path, fmt.Sprintf("%d is above %d", r.Batch, largestBatch), "")
	}
	if r.RateLimit != 0 {
		c.rate(base+"rateLimit", r.RateLimit, "letters", "0 stands for no limit")
	}
	c.rate(base+"defaultRate", r.DefaultRate, "letters", "a replay may say a rate of its own")
	if strings.ContainsFunc(r.LabelHeader, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		c.problem(base+"labelHeader", "holds a control character", "")
	}
	c.reloadInterval(base+"reloadInterval", r.ReloadInterval)
	if path := base + "expiry.within"; c.readable(path) && r.Expiry.Within <= 0 {
		c.problem(path, fmt.Sprintf("%s is not a time ahead", r.Expiry.Within), "a letter counts as expiring for this long before retention may take it")
	}
	if c.readable(base + "admin.address") {
		c.report(base+"admin.address", checkListenAddress(r.Admin.Address, "9401"))
	}
	c.api(r)
}

// rate reports a rate that nobody can have meant: a slower one keeps records longer than anybody would wait, a faster one is a slip.
func (c checker) rate(path string, rate float64, what, hint string) {
	const slowest, fastest = 0.001, 1e9
	if (rate < slowest || rate > fastest) && c.readable(path) {
		c.problem(path, fmt.Sprintf("is not between %v and %.0f %s a second", slowest, fastest, what), hint)
	}
}

func (c checker) api(r Replayer) {
	const base = "replayer.api."
	a := r.API
	addressOK := c.readable(base+"address") && !c.report(base+"address", checkListenAddress(a.Address, "9402"))
	if addressOK && a.Address == r.Admin.Address && !strings.HasSuffix(a.Address, ":0") {
		c.problem(base+"address", "is replayer.admin.address as well, "+c.where("replayer.admin.address"), "give each of the two a port of its own")
	}
	if addressOK && !OnLoopback(a.Address) && len(a.Tokens) == 0 && a.TokensFilepath == "" && c.readable(base+"tokens", base+"tokensFilepath") {
		c.problem(base+"address", fmt.Sprintf("%q is reached from other machines, and no tokens are set", cut(a.Address)),
			"make one with dlt-replayer token and put it into replayer.api.tokens or replayer.api.tokensFilepath, or listen on 127.0.0.1:9402")
	}
	if c.readable(base+"maxBody") && (a.MaxBody < smallestBody || a.MaxBody > largestBody) {
		c.problem(base+"maxBody", fmt.Sprintf("%s is not between %s and %s", a.MaxBody, smallestBody, largestBody), "")
	}
	c.tokens(base+"tokens", a.Tokens)
}

// tokens reports what is wrong with a list of tokens.
func (c checker) tokens(base string, tokens []Token) {
	names, sums := make(map[string]string), make(map[string]string)
	for i, t := range tokens {
		path := fmt.Sprintf("%s[%d]", base, i)
		if !c.readable(path) {
			continue
		}
		switch first := names[t.Name]; {
		case t.Name == "":
			c.problem(path+".name", "is empty", "")
		case c.report(path+".name", checkCharacters("token name", t.Name)):
		case len(t.Name) > 100:
			c.problem(path+".name", fmt.Sprintf("is %d characters long", len(t.Name)), "100 are allowed")
		case first != "":
			c.problem(path+".name", fmt.Sprintf("a second token %q", cut(t.Name)), "first in "+c.where(first))
		default:
			names[t.Name] = path
		}
		sum, err := hex.DecodeString(t.SHA256)
		switch first := sums[strings.ToLower(t.SHA256)]; {
		case err != nil || len(sum) != 32:
			// Not shown: it may be the token itself.
			c.problem(path+".sha256", "is not the SHA-256 of a token, 64 hexadecimal digits", "dlt-replayer token prints the token and this sum of it")
		case first != "":
			c.problem(path+".sha256", "is the sum of another token as well", "first in "+c.where(first))
		default:
			sums[strings.ToLower(t.SHA256)] = path
		}
		for j, topic := range t.Topics {
			c.report(fmt.Sprintf("%s.topics[%d]", path, j), checkTopicName(topic))
		}
	}
}

// OnLoopback tells whether only this machine reaches an address to listen on.
func OnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// LoadTokens reads the file of replayer.api.tokensFilepath: a list of tokens, as replayer.api.tokens has it. None of its names and sums
// may be among the tokens of the configuration. The error is an *Errors with every problem there is.
func LoadTokens(path string, among []Token) ([]Token, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, &Errors{Problems: []Problem{{File: path, Message: err.Error(), Hint: "it is named by replayer.api.tokensFilepath"}}}
	}
	var tokens []Token
	f := newFile(path)
	root := f.parse(data)
	if root != nil {
		ast.Walk(anchorVisitor{f}, root)
		f.value(root, reflect.ValueOf(&tokens).Elem(), field{}, "tokens")
	}
	l := &layers{file: path, problems: f.problems, origins: make(map[string]origin, len(f.at))}
	for path, at := range f.at {
		l.origins[path] = origin{file: l.file, at: at}
	}
	if len(l.problems) == 0 {
		checker{layers: l}.tokens("tokens", tokens)
	}
	for i, t := range tokens {
		for _, other := range among {
			switch path := fmt.Sprintf("tokens[%d]", i); {
			case t.Name == other.Name:
				l.problem(path+".name", fmt.Sprintf("token %q is in replayer.api.tokens as well", cut(t.Name)), "keep one of the two")
			case strings.EqualFold(t.SHA256, other.SHA256):
				l.problem(path+".sha256", "is the sum of a token in replayer.api.tokens as well", "keep one of the two")
			}
		}
	}
	if len(l.problems) > 0 {
		return nil, sorted(l.problems, path)
	}
	return tokens, nil
}
