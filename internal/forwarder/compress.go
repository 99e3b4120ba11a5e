package forwarder

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kgo"
)

// sampled is a compressor that tries the beginning of a batch first and leaves
// one alone whose values do not compress, as those of encrypted or compressed
// payloads: the time would be spent in vain.
type sampled struct{ kgo.Compressor }

const (
	sampleBytes = 8 << 10
	// sampleGain is how much of the sample may be left for the rest to be worth
	// its time.
	sampleGain = sampleBytes * 3 / 4
)

// Compress implements kgo.Compressor.
func (s sampled) Compress(dst *bytes.Buffer, src []byte, flags ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	if len(src) > 2*sampleBytes {
		if out, _ := s.Compressor.Compress(dst, src[:sampleBytes], flags...); len(out) > sampleGain {
			return nil, kgo.CodecNone
		}
		dst.Reset()
	}
	return s.Compressor.Compress(dst, src, flags...)
}

// large is a compressor that leaves small batches alone, for which a limit never
// matters.
type large struct{ kgo.Compressor }

const largeBytes = 4 << 10

// Compress implements kgo.Compressor.
func (l large) Compress(dst *bytes.Buffer, src []byte, flags ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	if len(src) < largeBytes {
		return nil, kgo.CodecNone
	}
	return l.Compressor.Compress(dst, src, flags...)
}
