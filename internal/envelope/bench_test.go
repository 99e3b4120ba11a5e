package envelope

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ownHeaders is what a record of a tier carries after the forwarder routed it, foreign headers aside.
func ownHeaders() []kgo.RecordHeader {
	return []kgo.RecordHeader{
		{Key: HeaderMessageID, Value: []byte("orders/3/123456")},
		{Key: HeaderOriginalTopic, Value: []byte("orders")},
		{Key: HeaderOriginalPartition, Value: []byte("3")},
		{Key: HeaderOriginalOffset, Value: []byte("123456")},
		{Key: HeaderOriginalTimestamp, Value: []byte("2026-03-04T05:06:07.089Z")},
		{Key: HeaderAttempt, Value: []byte("2")},
		{Key: HeaderDeliveries, Value: []byte("2")},
		{Key: HeaderAvailableAt, Value: []byte("2026-03-04T05:16:07.089Z")},
	}
}

func BenchmarkParseAppendReturn(b *testing.B) {
	foreign := []kgo.RecordHeader{
		{Key: "content-type", Value: []byte("application/json")},
		{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")},
	}
	failure := []kgo.RecordHeader{
		{Key: HeaderOriginalPartitions, Value: []byte("8")},
		{Key: HeaderFailedAt, Value: []byte("2026-03-04T05:06:08.000Z")},
		{Key: HeaderErrorType, Value: []byte("java.net.SocketTimeoutException")},
		{Key: HeaderErrorMessage, Value: []byte("read timed out after 5000 ms while calling the payment provider")},
		{Key: HeaderConsumer, Value: []byte("orders-7c9f-2")},
		{Key: HeaderGroup, Value: []byte("orders")},
	}
	for name, headers := range map[string][]kgo.RecordHeader{
		"none":        nil,
		"own":         ownHeaders(),
		"own+foreign": append(ownHeaders(), foreign...),
		"all":         append(append(ownHeaders(), foreign...), failure...),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var e Envelope
			dst := make([]kgo.RecordHeader, 0, 32)
			for b.Loop() {
				e.Parse(headers)
				dst = e.Append(dst[:0], headers, Return)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	var e Envelope
	headers := ownHeaders()
	for b.Loop() {
		e.Parse(headers)
	}
}

func BenchmarkParseAppendHopWithNewValues(b *testing.B) {
	b.ReportAllocs()
	var e Envelope
	headers := ownHeaders()
	dst := make([]kgo.RecordHeader, 0, 32)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for b.Loop() {
		e.Parse(headers)
		e.SetAttempt(3)
		e.SetDeliveries(3)
		e.SetAvailableAt(at)
		dst = e.Append(dst[:0], headers, Hop)
	}
}

func BenchmarkParseAppendLetterWithRejections(b *testing.B) {
	b.ReportAllocs()
	var e Envelope
	headers := append(ownHeaders(), kgo.RecordHeader{Key: HeaderAction, Value: []byte("explode")})
	dst := make([]kgo.RecordHeader, 0, 32)
	for b.Loop() {
		e.Parse(headers)
		e.SetReason(ReasonExhausted)
		dst = e.Append(dst[:0], headers, Letter)
	}
}
