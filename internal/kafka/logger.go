package kafka

import (
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kslog"
)

// repeatAfter is how long a message of the client library is not repeated.
const repeatAfter = 10 * time.Second

// clientLogger hands the client library's messages to slog. The library writes a
// line at info for every metadata change and rebalance step, which Redrive logs
// in its own words; and what it calls an error it goes on to retry, while an error
// of Redrive is a call for a human. So info is left out and error becomes warn.
// While a broker is down it says so many times a second; a message is repeated
// after a while only, with the number of those left out. Errors are written as
// [Explain] puts them, with their remedy.
type clientLogger struct {
	*kslog.Logger

	mu   sync.Mutex
	said map[string]said // by message; the library's messages are constants
}

type said struct {
	at   time.Time
	more int
}

func newClientLogger(logger *slog.Logger) *clientLogger {
	return &clientLogger{
		Logger: kslog.New(logger.With("component", "kafka_client")),
		said:   map[string]said{},
	}
}

// Level implements kgo.Logger.
func (l *clientLogger) Level() kgo.LogLevel {
	switch level := l.Logger.Level(); level {
	case kgo.LogLevelInfo:
		return kgo.LogLevelWarn
	case kgo.LogLevelError:
		return kgo.LogLevelNone // Its errors arrive as warnings, which this logger does not want.
	default:
		return level
	}
}

// Log implements kgo.Logger.
func (l *clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if level == kgo.LogLevelError {
		level = kgo.LogLevelWarn
	}
	if level == kgo.LogLevelWarn {
		left, ok := l.due(msg)
		if !ok {
			return
		}
		if left > 0 {
			keyvals = append(keyvals, "left_out", left)
		}
	}
	for i, value := range keyvals {
		if err, ok := value.(error); ok {
			keyvals[i] = Explain(err)
		}
	}
	l.Logger.Log(level, msg, keyvals...)
}

// due reports whether a message is to be written, and how often it was not since
// it was last.
func (l *clientLogger) due(msg string) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, last := time.Now(), l.said[msg]
	if !last.at.IsZero() && now.Sub(last.at) < repeatAfter {
		last.more++
		l.said[msg] = last
		return 0, false
	}
	l.said[msg] = said{at: now}
	return last.more, true
}
