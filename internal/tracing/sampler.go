package tracing

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// The variables of the sampler.
const (
	envSampler    = "OTEL_TRACES_SAMPLER"
	envSamplerArg = "OTEL_TRACES_SAMPLER_ARG"
)

// decidedKey marks the context of a span that is sampled already: see Follow.
type decidedKey struct{}

// sampler decides what is sampled, as the samplers of the library do, and for a root that is linked to something by what it is
// linked to.
type sampler struct {
	name string
	// parentBased makes the flag of a parent count, and the ratio only where there is no parent.
	parentBased bool
	// below is the ratio, of 1<<63.
	below uint64
}

const whole = uint64(1) << 63

// samplerOf understands the two variables. What it does not understand is an error: to sample everything instead, as the library
// does, can cost more than not to start.
func samplerOf(name, arg string) (sampler, error) {
	name, arg = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(arg)
	if name == "" {
		name = "parentbased_always_on"
	}
	s := sampler{name: name}
	kind, parentBased := strings.CutPrefix(name, "parentbased_")
	s.parentBased = parentBased
	switch kind {
	case "always_on":
		s.below = whole
	case "always_off":
	case "traceidratio":
		ratio := 1.0
		if arg != "" {
			var err error
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				return s, fmt.Errorf("%s=%q is not a ratio from 0 to 1", envSamplerArg, arg)
			}
		}
		s.name += "{" + strconv.FormatFloat(ratio, 'g', -1, 64) + "}"
		s.below = uint64(ratio * float64(whole))
	default:
		return s, fmt.Errorf("%s=%q is none of always_on, always_off, traceidratio and these with parentbased_ before them", envSampler, name)
	}
	return s, nil
}

// takes decides by a random number, as that in a trace id.
func (s sampler) takes(random uint64) bool { return random>>1 < s.below }

// follows decides about a part of the trace that c is of.
func (s sampler) follows(c trace.SpanContext) bool {
	if s.parentBased {
		return c.IsSampled()
	}
	return s.takesTrace(c.TraceID())
}

// takesTrace decides by the id of a trace, as the library and other services do.
func (s sampler) takesTrace(id trace.TraceID) bool { return s.takes(binary.BigEndian.Uint64(id[8:16])) }

// ShouldSample implements the interface of the library.
func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	before := parent
	if !before.IsValid() && len(p.Links) > 0 {
		before = p.Links[0].SpanContext
	}
	var yes bool
	switch {
	case p.ParentContext.Value(decidedKey{}) != nil:
		yes = true
	case before.IsValid():
		yes = s.follows(before)
	default:
		yes = s.takesTrace(p.TraceID)
	}
	result := sdktrace.SamplingResult{Decision: sdktrace.Drop, Tracestate: parent.TraceState()}
	if yes {
		result.Decision = sdktrace.RecordAndSample
	}
	return result
}

// Description implements the interface of the library.
func (s sampler) Description() string { return s.name }
