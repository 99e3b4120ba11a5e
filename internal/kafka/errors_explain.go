package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"unicode"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// explainLimit bounds an explanation in bytes. Part of it may be text of a broker.
const explainLimit = 1000

// advice is an error whose remedy is known where it arises.
type advice struct {
	err    error
	remedy string
}

// Error is the text of the error alone.
func (a *advice) Error() string { return a.err.Error() }

// Unwrap is the error.
func (a *advice) Unwrap() error { return a.err }

// saying replaces the text of an error that would mislead, and stays one to
// errors.Is and errors.As.
type saying struct {
	text string
	err  error
}

// Error is the text.
func (s *saying) Error() string { return s.text }

// Unwrap is the error whose text was replaced.
func (s *saying) Unwrap() error { return s.err }

// Explain returns one line that says what went wrong between this side and the
// brokers and, after "Remedy: ", what to do about it. For an error of which no
// remedy is known it is the text of the error on one line, for nil it is "". It is
// for people: nothing may depend on its words. It holds no secret.
func Explain(err error) string {
	if err == nil {
		return ""
	}
	what, remedy := cause(err)
	what = strings.TrimRight(oneLine(what), ".")
	if remedy == "" {
		return what
	}
	return what + ". Remedy: " + oneLine(remedy)
}

// cause is what Explain says, in two parts; the remedy may be empty.
func cause(err error) (what, remedy string) {
	if known, ok := errors.AsType[*advice](err); ok {
		return known.Error(), known.remedy
	}
	if answer, ok := errors.AsType[*kerr.Error](err); ok {
		return err.Error(), remedyOf(answer.Code)
	}
	if _, ok := errors.AsType[*kgo.ErrFirstReadEOF](err); ok {
		// An end before the first answer was explained by the connection. So there
		// was one, and it was no login, as none is configured.
		return "the broker answered and then closed the connection; most likely it wants a login",
			"set kafka.sasl.enabled: true with the user of this process, or name the port of a listener without a login in kafka.brokers"
	}
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
		return fmt.Sprintf("the host name %q is not known here", unknown.Name),
			"correct kafka.brokers; if the name is not there, it comes from advertised.listeners of a broker and must be known here"
	}
	dial, _ := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens on " + addressOf(dial) + " (connection refused)", "check kafka.brokers, and that the broker runs"
	case errors.Is(err, context.DeadlineExceeded), dial != nil && dial.Timeout():
		return "no answer in time: " + err.Error(), "check kafka.brokers, and that no firewall stands between"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "the broker closed the connection: " + err.Error(),
			"none if it passes; else look at the log of the broker, which may not accept the user, the password or the mechanism under kafka.sasl"
	}
	return err.Error(), ""
}

func addressOf(dial *net.OpError) string {
	if dial == nil || dial.Addr == nil {
		return "the address"
	}
	return dial.Addr.String()
}

// remedyOf is what to do about an answer of the brokers that waiting alone does not
// end; "" for all others.
func remedyOf(code int16) string {
	const acls = "grant the rights that docs/security.md lists for this command, with kafka-acls.sh --add"
	switch code {
	case kerr.SaslAuthenticationFailed.Code:
		return "check the mechanism, the user, and the password or token under kafka.sasl, and that the user exists for this mechanism (AWS_MSK_IAM: that its policy allows kafka-cluster:Connect)"
	case kerr.UnsupportedSaslMechanism.Code:
		return "set kafka.sasl.mechanism to one of the listener's sasl.enabled.mechanisms"
	case kerr.IllegalSaslState.Code:
		return "set kafka.sasl.enabled: false, or name the port of a listener with a login in kafka.brokers"
	case kerr.SecurityDisabled.Code:
		return "configure an authorizer at the brokers, or leave out what needs one"
	case kerr.TopicAuthorizationFailed.Code:
		return acls
	case kerr.GroupAuthorizationFailed.Code:
		return acls + "; here READ on the group (forwarder.group)"
	case kerr.ClusterAuthorizationFailed.Code:
		return acls + "; a producer needs WRITE on a topic, and with brokers before 2.8 IDEMPOTENT_WRITE on the cluster"
	case kerr.TransactionalIDAuthorizationFailed.Code:
		return acls + "; here WRITE on the transactional id"
	default:
		return ""
	}
}

// oneLine keeps a text of somebody else from looking like lines of ours, or from
// steering a terminal.
func oneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(s) > explainLimit {
		s = strings.ToValidUTF8(s[:explainLimit], "") + "..."
	}
	return s
}
