package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlite"
)

// refused fails the test unless the file is refused with that error, or any for nil, that names it and has all the words.
func refused(t *testing.T, path string, want error, words ...string) {
	t.Helper()
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err == nil {
		_ = l.Close()
		t.Fatal("the file is accepted")
	}
	for _, word := range append(words, path) {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
	if want != nil && !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

func TestSecondOpenerIsRefused(t *testing.T) {
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "ledger.db")
	l := open(t, path)
	refused(t, path, sqlite.ErrInUse, "one process", "PostgreSQL", "stop that one")
	// By another name it is the same file.
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), sqlite.Options{Path: link}); !errors.Is(err, sqlite.ErrInUse) {
		t.Errorf("a link to it: %v", err)
	}
	if err := l.Ping(t.Context()); err != nil {
		t.Errorf("the first opener: %v", err)
	}
}

func TestClosedFileMayBeOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a folder", "led%3Fger ?#.db")
	for range 2 {
		l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Record(t.Context(), deadletter.Entry{Actor: "ada"}); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := open(t, path).Audit(t.Context(), 0, 10)
	if err != nil || len(entries) != 2 {
		t.Errorf("%d rows of two openings: %v", len(entries), err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is open to others: %v, %v", info.Mode(), err)
	}
}

func TestForeignFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.txt")
	text := strings.Repeat("These are my notes. ", 100)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, path, nil, "not a ledger", "file of its own")
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("the file was changed: %v", err)
	}
}

func TestDatabaseOfAnotherProgramIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE songs (title TEXT)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, path, nil, "another program", "file of its own")
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed: %v", err)
	}
}

func TestDamagedFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 100; i < len(content); i++ { // All but the header of the file.
		content[i] = 0xaa
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, path, nil, "damaged", "migrate --restored")
}

func TestFolderThatCannotBeWrittenIsRefused(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, filepath.Join(blocked, "ledger.db"), nil)
	if _, err := sqlite.Open(t.Context(), sqlite.Options{}); err == nil {
		t.Error("no path is accepted")
	}
}

// edited changes the closed file of a ledger by SQL.
func edited(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), statement)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestNewerLedgerIsRefusedUnlessCompatible(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	from, to, err := sqlite.Migrate(t.Context(), sqlite.Options{Path: path})
	if err != nil || from != 0 || to < 1 {
		t.Fatalf("migrated from %d to %d: %v", from, to, err)
	}
	if from, again, err := sqlite.Migrate(t.Context(), sqlite.Options{Path: path}); err != nil || from != to || again != to {
		t.Errorf("migrated again from %d to %d: %v", from, again, err)
	}
	edited(t, path, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, 1)")
	// A newer program has added to the schema, and this one may go on.
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Record(t.Context(), deadletter.Entry{}); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	edited(t, path, "UPDATE meta SET compatible_from = 999")
	refused(t, path, deadletter.ErrNewer, "1000", "newer")
}

func TestRestoredLedgerGivesNoFenceAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	epochs := map[int64]bool{}
	note := func(epoch int64) {
		t.Helper()
		if epochs[epoch] {
			t.Errorf("epoch %d was there before", epoch)
		}
		epochs[epoch] = true
	}
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	first, err := l.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	note(first)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			// The same state is put back each time.
			if err := os.WriteFile(path, copied, 0o600); err != nil {
				t.Fatal(err)
			}
			epoch, err := sqlite.Restored(t.Context(), sqlite.Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			note(epoch)
			time.Sleep(time.Minute)
		}
		l := open(t, path)
		entries, err := l.Audit(t.Context(), 0, 10)
		if err != nil || len(entries) != 1 || entries[0].Action != "restored" {
			t.Errorf("the audit trail is %+v, %v", entries, err)
		}
		epoch, err := l.Epoch(t.Context())
		if err != nil || !epochs[epoch] {
			t.Errorf("the epoch is %d: %v", epoch, err)
		}
	})
}

// A lease of an hour runs out in a bubble as soon as everything waits for it, which shows that the clock is that of the
// process and that no goroutine of the ledger keeps the bubble busy.
func TestLeaseRunsOutInBubble(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Index(t.Context(), batch(t, l, 3)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.CreateJob(t.Context(), deadletter.JobSpec{}, deadletter.Filter{}); err != nil {
			t.Fatal(err)
		}
		first, err := l.LeaseJob(t.Context(), "first", time.Hour)
		if err != nil || first == nil {
			t.Fatal(first, err)
		}
		time.Sleep(time.Hour - time.Microsecond)
		if early, err := l.LeaseJob(t.Context(), "second", time.Hour); err != nil || early != nil {
			t.Errorf("leased before it has run out: %+v, %v", early, err)
		}
		time.Sleep(time.Microsecond)
		second, err := l.LeaseJob(t.Context(), "second", time.Hour)
		if err != nil || second == nil {
			t.Fatal(second, err)
		}
		if at := second.Until.Sub(began); at != 2*time.Hour {
			t.Errorf("the second lease ends after %s", at)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCancelledCallLeavesLedgerUsable(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "ledger.db"))
	b := batch(t, l, 2000)
	if err := l.Index(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{0, 50 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		n, err := l.Discard(ctx, deadletter.Filter{}, "ada", "test data")
		cancel()
		discarded, countErr := l.Count(t.Context(), deadletter.Filter{States: []deadletter.State{deadletter.Discarded}})
		if countErr != nil {
			t.Fatal(countErr)
		}
		if err != nil && discarded != 0 || err == nil && discarded != n {
			t.Errorf("after %s: %d discarded, %v, and %d are", after, n, err, discarded)
		}
		if _, err := l.Undiscard(t.Context(), deadletter.Filter{}, "ada", "again"); err != nil {
			t.Fatal(err)
		}
	}
}
