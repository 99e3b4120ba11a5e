package tracing

import (
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// The headers of W3C Trace Context. Kafka's are a list: of a repeated one the first counts, as in other libraries.
const (
	parentHeader = "traceparent"
	stateHeader  = "tracestate"
)

// contextOf reads the context that a record brings along. One that is not well-formed is none.
func contextOf(headers []kgo.RecordHeader) trace.SpanContext {
	for i := range headers {
		if headers[i].Key == parentHeader {
			return parse(headers[i].Value)
		}
	}
	return trace.SpanContext{}
}

// parse reads a traceparent: version, trace id, span id and flags, in lower-case hexadecimal. Later versions may have more
// behind them.
func parse(b []byte) trace.SpanContext {
	const whole = 55
	none := trace.SpanContext{}
	if len(b) < whole || b[2] != '-' || b[35] != '-' || b[52] != '-' {
		return none
	}
	var version, flags [1]byte
	var c trace.SpanContextConfig
	if !unhex(version[:], b[:2]) || !unhex(c.TraceID[:], b[3:35]) || !unhex(c.SpanID[:], b[36:52]) || !unhex(flags[:], b[53:whole]) {
		return none
	}
	switch {
	case version[0] == 0xff,
		version[0] == 0 && len(b) != whole,
		len(b) > whole && b[whole] != '-':
		return none
	}
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0])&trace.FlagsSampled, true
	if !c.TraceID.IsValid() || !c.SpanID.IsValid() {
		return none
	}
	return trace.NewSpanContext(c)
}

// unhex reads two digits for each byte of to.
func unhex(to, from []byte) bool {
	for i := range to {
		high, low := digit(from[2*i]), digit(from[2*i+1])
		if high|low > 0xf {
			return false
		}
		to[i] = high<<4 | low
	}
	return true
}

// digit is the value of a digit, and above 0xf if it is none.
func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	default:
		return 0xff
	}
}

// stateOf reads the tracestate beside a traceparent. One that is not well-formed is empty.
func stateOf(headers []kgo.RecordHeader) trace.TraceState {
	for i := range headers {
		if headers[i].Key == stateHeader {
			state, err := trace.ParseTraceState(string(headers[i].Value))
			if err != nil {
				return trace.TraceState{}
			}
			return state
		}
	}
	return trace.TraceState{}
}

// maxText bounds a text that comes from a record.
const maxText = 256

// text is bytes of a record as an attribute can have them.
func text(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), maxText)]), "\uFFFD")
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// fail marks a span as failed.
func fail(span trace.Span, err error) { span.SetStatus(codes.Error, err.Error()) }
