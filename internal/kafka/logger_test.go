package kafka

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestARepeatedWarningOfTheClientIsWrittenOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		logger := newClientLogger(slog.New(slog.NewTextHandler(&out, nil)))
		for range 100 {
			logger.Log(kgo.LogLevelWarn, "unable to open connection to broker")
		}
		logger.Log(kgo.LogLevelError, "something else")
		time.Sleep(repeatAfter)
		logger.Log(kgo.LogLevelWarn, "unable to open connection to broker")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines, want 3:\n%s", len(lines), out.String())
		}
		if !strings.Contains(lines[2], "left_out=99") {
			t.Errorf("the last line does not say how many were left out: %s", lines[2])
		}
	})
}

func TestAnErrorOfTheClientIsWrittenWithItsRemedy(t *testing.T) {
	var out strings.Builder
	logger := newClientLogger(slog.New(slog.NewTextHandler(&out, nil)))
	logger.Log(kgo.LogLevelError, "unable to initialize sasl", "broker", "seed_0", "err", kerr.SaslAuthenticationFailed)
	if !strings.Contains(out.String(), "SASL_AUTHENTICATION_FAILED") || !strings.Contains(out.String(), "Remedy: ") {
		t.Errorf("written: %s", out.String())
	}
}
