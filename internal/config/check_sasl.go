package config

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"
)

// The mechanisms that do not show a password.
const (
	oauthBearer = "OAUTHBEARER"
	awsMSKIAM   = "AWS_MSK_IAM"
)

// sasl checks that what is set is what the mechanism uses, and all that it needs.
func (c checker) sasl(s SASL) {
	const base = "kafka.sasl."
	for _, key := range leaves(reflect.ValueOf(s), "kafka.sasl") {
		if name := strings.TrimPrefix(key.path, base); name != "enabled" && name != "mechanism" {
			c.saslKey(s, key, name)
		}
	}
	c.exclusive(base+"password", s.Password != "", base+"passwordFilepath", s.PasswordFilepath != "")
	if !s.Enabled || !c.readable("kafka.sasl", base+"mechanism") {
		return // What can not be read would be reported a second time as missing.
	}
	switch s.Mechanism {
	case oauthBearer:
		c.oauth(s.OAuth)
	case awsMSKIAM:
		c.awsMSKIAM(s.AWSMSKIAM)
	default:
		if s.Username == "" {
			c.problem(base+"enabled", "needs kafka.sasl.username", "")
		}
		if s.Password == "" && s.PasswordFilepath == "" {
			c.problem(base+"enabled", "needs kafka.sasl.password or kafka.sasl.passwordFilepath", "")
		}
	}
}

// saslKey reports a key that is set and has no effect.
func (c checker) saslKey(s SASL, key leaf, name string) {
	used := !key.value.IsZero() && (key.value.Kind() != reflect.Slice || key.value.Len() > 0)
	c.needsEnabled("kafka.sasl.", name, used)
	if !used || !s.Enabled || !c.readable("kafka.sasl.mechanism") {
		return
	}
	section, _, nested := strings.Cut(name, ".")
	var effect bool
	switch {
	case !nested:
		effect = s.Mechanism != oauthBearer && s.Mechanism != awsMSKIAM
	case section == "oauth":
		effect = s.Mechanism == oauthBearer
	default:
		effect = s.Mechanism == awsMSKIAM
	}
	if !effect {
		from := "the default"
		if c.set("kafka.sasl.mechanism") {
			from = c.where("kafka.sasl.mechanism")
		}
		c.problem(key.path, fmt.Sprintf("has no effect with kafka.sasl.mechanism %s, %s", s.Mechanism, from), "remove it, or choose the mechanism it belongs to")
	}
}

// exclusive reports two keys of which one would never be looked at.
func (c checker) exclusive(first string, firstUsed bool, second string, secondUsed bool) {
	if firstUsed && secondUsed {
		c.problem(second, "contradicts "+first+", "+c.where(first), "keep one of the two")
	}
}

func (c checker) oauth(o OAuth) {
	const base = "kafka.sasl.oauth."
	c.exclusive(base+"token", o.Token != "", base+"tokenFilepath", o.TokenFilepath != "")
	c.exclusive(base+"token", o.Token != "", base+"tokenEndpoint", o.TokenEndpoint != "")
	c.exclusive(base+"tokenFilepath", o.TokenFilepath != "", base+"tokenEndpoint", o.TokenEndpoint != "")
	c.exclusive(base+"clientSecret", o.ClientSecret != "", base+"clientSecretFilepath", o.ClientSecretFilepath != "")
	switch {
	case o.TokenEndpoint != "":
		c.report(base+"tokenEndpoint", checkEndpoint(o.TokenEndpoint))
		if o.ClientID == "" {
			c.problem(base+"tokenEndpoint", "needs kafka.sasl.oauth.clientId", "")
		}
		if o.ClientSecret == "" && o.ClientSecretFilepath == "" {
			c.problem(base+"tokenEndpoint", "needs kafka.sasl.oauth.clientSecret or kafka.sasl.oauth.clientSecretFilepath", "")
		}
	case o.Token == "" && o.TokenFilepath == "":
		c.problem("kafka.sasl.mechanism", "needs kafka.sasl.oauth.token, kafka.sasl.oauth.tokenFilepath or kafka.sasl.oauth.tokenEndpoint", "")
	default:
		for _, key := range []struct {
			name string
			used bool
		}{
			{"clientId", o.ClientID != ""},
			{"clientSecret", o.ClientSecret != ""},
			{"clientSecretFilepath", o.ClientSecretFilepath != ""},
			{"scope", o.Scope != ""},
		} {
			if key.used {
				c.problem(base+key.name, "has no effect without kafka.sasl.oauth.tokenEndpoint", "")
			}
		}
	}
	c.extensions(o.Extensions)
}

// extensions reports what no broker would take for an extension (RFC 7628).
func (c checker) extensions(all []Extension) {
	seen := make(map[string]bool)
	for i, e := range all {
		path := fmt.Sprintf("kafka.sasl.oauth.extensions[%d]", i)
		switch {
		case e.Key == "" || strings.Trim(strings.ToLower(e.Key), "abcdefghijklmnopqrstuvwxyz") != "":
			c.problem(path+".key", fmt.Sprintf("%q is not the key of an extension", cut(e.Key)), "allowed are letters")
		case e.Key == "auth":
			c.problem(path+".key", "is the key of the token itself", "")
		case seen[e.Key]:
			c.problem(path+".key", fmt.Sprintf("a second extension %s", cut(e.Key)), "")
		}
		seen[e.Key] = true
		if strings.ContainsFunc(e.Value, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' && r != '\n' || r > '~' }) {
			c.problem(path+".value", "holds a character that is not ASCII", "")
		}
	}
}

func (c checker) awsMSKIAM(a AWSMSKIAM) {
	const base = "kafka.sasl.awsMskIam."
	switch {
	case a.AccessKey != "" && a.SecretKey == "":
		c.problem(base+"accessKey", "needs kafka.sasl.awsMskIam.secretKey", "set both, or none for the credentials of the AWS settings")
	case a.AccessKey == "" && a.SecretKey != "":
		c.problem(base+"secretKey", "needs kafka.sasl.awsMskIam.accessKey", "set both, or none for the credentials of the AWS settings")
	case a.AccessKey == "" && a.SessionToken != "":
		c.problem(base+"sessionToken", "needs kafka.sasl.awsMskIam.accessKey and kafka.sasl.awsMskIam.secretKey", "")
	}
}

// checkEndpoint finds what is wrong with the URL of a token endpoint. It never shows the URL, which may hold a secret.
func checkEndpoint(text string) complaint {
	const hint = "write it as https://login.example.com/oauth2/token"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return complaint{"is not the URL of an endpoint", hint}
	case u.User != nil:
		return complaint{"the URL holds a user", "the client goes into kafka.sasl.oauth.clientId and clientSecret"}
	case u.Fragment != "":
		return complaint{"the URL has a fragment", hint}
	}
	return complaint{}
}
