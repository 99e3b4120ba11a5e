package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/issue"
)

// stubborn is a ledger that answers every question with one error.
type stubborn struct {
	deadletter.Ledger
	err error
}

func (s *stubborn) Letter(context.Context, int64) (deadletter.Letter, error) {
	return deadletter.Letter{ID: 7}, s.err
}
func (s *stubborn) Ping(context.Context) error { return s.err }
func (s *stubborn) Close() error               { return nil }

func TestALedgerAnswersWithTheReasonUntilItIsOpen(t *testing.T) {
	l := newLedger(prometheus.NewRegistry())
	if _, err := l.Letter(t.Context(), 1); !errors.Is(err, errNotOpened) {
		t.Errorf("before it is opened: %v", err)
	}
	if f, wrong := l.finding(); wrong {
		t.Errorf("a ledger that was not tried yet is an issue: %+v", f)
	}
	refused := errors.New("connection refused")
	l.set(nil, refused)
	if _, err := l.Letter(t.Context(), 1); !errors.Is(err, refused) {
		t.Errorf("while it can not be opened: %v", err)
	}
	for fault, code := range map[error]issue.Code{
		refused: issue.LedgerDown, fmt.Errorf("open: %w", deadletter.ErrOlder): issue.LedgerOlder, fmt.Errorf("open: %w", deadletter.ErrNewer): issue.LedgerNewer,
	} {
		l.set(nil, fault)
		if f, _ := l.finding(); f.Code != code || f.Detail != fault.Error() {
			t.Errorf("%v: %+v", fault, f)
		}
	}
	l.set(&stubborn{}, nil)
	if letter, err := l.Letter(t.Context(), 1); letter.ID != 7 || err != nil {
		t.Errorf("when it is open: %+v, %v", letter, err)
	}
	if f, wrong := l.finding(); wrong {
		t.Errorf("an open ledger is an issue: %+v", f)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Letter(t.Context(), 1); err == nil {
		t.Error("it answers when it is closed")
	}
}

// An answer that is no is not a failure: an alert on failures would never be silent.
func TestOnlyFailuresOfTheLedgerAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	l := newLedger(registry)
	for _, err := range []error{
		nil, deadletter.ErrUnknown, fmt.Errorf("letter 1: %w", deadletter.ErrFenced), deadletter.ErrMoved, deadletter.ErrState, deadletter.ErrCursor,
		context.Canceled, errors.New("disk full"),
	} {
		l.set(&stubborn{err: err}, nil)
		_, _ = l.Letter(t.Context(), 1)
	}
	want := `
# HELP redrive_ledger_errors_total Calls of the ledger that failed. Answers such as that a letter is unknown are no failures.
# TYPE redrive_ledger_errors_total counter
redrive_ledger_errors_total{call="letter"} 1
# HELP redrive_ledger_up Is 1 while the database of the ledger answers, 0 while it does not or is not opened yet.
# TYPE redrive_ledger_up gauge
redrive_ledger_up 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "redrive_ledger_errors_total", "redrive_ledger_up"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(l.duration); n != 1 {
		t.Errorf("%d series of durations", n)
	}
}

func TestTheLedgerIsLocatedByItsURLOrItsDirectory(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "url")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	type place struct{ File, URL string }
	for name, test := range map[string]struct {
		settings config.Ledger
		want     place
	}{
		"directory":        {config.Ledger{DataDir: "data"}, place{File: "data/ledger.db"}},
		"absolute":         {config.Ledger{URL: "sqlite:///var/lib/x.db"}, place{File: "/var/lib/x.db"}},
		"relative":         {config.Ledger{URL: "sqlite://x.db"}, place{File: "x.db"}},
		"postgres":         {config.Ledger{URL: "postgres://u@h/d"}, place{URL: "postgres://u@h/d"}},
		"postgres, file":   {config.Ledger{URLFilepath: write(" postgresql://u@h/d\n")}, place{URL: "postgresql://u@h/d"}},
		"sqlite in a file": {config.Ledger{URLFilepath: write("sqlite:///x.db")}, place{File: "/x.db"}},
	} {
		at, err := locateLedger(test.settings, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, place{at.file, at.url}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, path := range map[string]string{"no file": "/does/not/exist", "empty": write("\n"), "no URL": write("mysql://u:hunter2@h/d")} {
		if _, err := locateLedger(config.Ledger{URLFilepath: path}, nil); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "ledger.urlFilepath") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnOptionThatIsNoneIsAnErrorOfTheConfiguration(t *testing.T) {
	for _, url := range []string{"postgres://u:hunter2@h/d?sslmode=sometimes", "postgres://u:hunter2@h/d?sslmode=verify-full&sslrootcert=/does/not/exist"} {
		if _, err := locateLedger(config.Ledger{URL: config.Secret(url)}, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestAFileIsMigratedAndItsLivesAreCounted(t *testing.T) {
	opts := Options{Config: &config.Config{Ledger: config.Ledger{DataDir: filepath.Join(t.TempDir(), "data"), Migrate: true}}}
	first, err := MigrateLedger(t.Context(), opts, false)
	if err != nil || first.From == first.To || first.Epoch != 0 {
		t.Errorf("a new one: %+v, %v", first, err)
	}
	again, err := MigrateLedger(t.Context(), opts, true)
	if err != nil || again.From != again.To || again.To != first.To || again.Epoch == 0 {
		t.Errorf("one that was put back: %+v, %v", again, err)
	}
	var unusable *ConfigError
	if _, err := MigrateLedger(t.Context(), Options{Config: &config.Config{Ledger: config.Ledger{URLFilepath: "/does/not/exist"}}}, false); !errors.As(err, &unusable) {
		t.Errorf("without a URL: %v", err)
	}
}
