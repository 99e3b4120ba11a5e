package main

import (
	"strings"
	"testing"

	"github.com/kafka-redrive/redrive/internal/command"
)

func TestWhatExpiresIsShownAndRescuedAndWhatIsGoneIsNamed(t *testing.T) {
	st := newStage(t, 1, "")
	st.bury(t, "a", "b", "c", "d")
	s := serve(t, st.config)
	s.eventually("orders/0/3", "list")
	// The cluster keeps records for a week.
	if got := s.want(exitNothing, "expiring"); !strings.HasSuffix(got.stderr, "nothing expires\n") {
		t.Error(got)
	}
	got := s.want(command.ExitOK, "expiring", "--within", "8d", "--limit", "2")
	if lines := strings.Split(got.stdout, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], "NOT BEFORE") || !strings.Contains(lines[1], "orders/0/0") {
		t.Error(got)
	}
	for _, want := range []string{"orders.dlt: 4 letters within 8d, the first from 2", "these are the first 2, there are more"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("no %q: %v", want, got)
		}
	}
	if got := s.want(command.ExitOK, "expiring", "--within", "8d", "-o", "jsonl"); strings.Count(got.stdout, "\n") != 4 {
		t.Error(got)
	}
	if got := s.want(command.ExitOK, "expiring", "--within", "8d", "-o", "yaml"); !strings.HasPrefix(got.stdout, "letters:\n") && !strings.Contains(got.stdout, "\nwithinSeconds: 691200") {
		t.Error(got)
	}

	if err := st.client.DeleteRecords(t.Context(), "orders.dlt", map[int32]int64{0: 1}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"rescue"},
		{"rescue", "--within", "soon", "--reason", "x"},
		{"rescue", "--within", "8d", "--reason", "x"}, // There is nobody to ask.
		{"expiring", "--within", "-1h"},
		{"expiring", "--limit", "-1"},
	} {
		s.want(command.ExitUsage, args...)
	}
	if got := s.want(command.ExitOK, "rescue", "--within", "8d", "--dry-run"); got.stdout != "would be kept: 4 letters\n" {
		t.Error(got)
	}
	s.want(exitRefused, "rescue", "--within", "8d", "--reason", "x", "--count", "3")
	got = s.want(exitPartial, "rescue", "--within", "8d", "--reason", "retention is near", "--yes")
	if !strings.Contains(got.stdout, "gone: letter 1 at orders.dlt/0/0, message orders/0/0\nkept: 3 letters, ") || !strings.Contains(got.stderr, "1 letters have no bytes any more, 0 have others") {
		t.Error(got)
	}
	if got := s.want(command.ExitOK, "audit"); !strings.Contains(got.stdout, "retention is near") {
		t.Error(got)
	}
	s.want(exitNothing, "rescue", "2", "3", "4", "--reason", "again")
	if got := s.want(exitPartial, "rescue", "--key", "a", "--reason", "again", "--count", "1", "-o", "json"); !strings.Contains(got.stdout, `"gone": 1`) {
		t.Error(got)
	}
	if err := st.client.DeleteRecords(t.Context(), "orders.dlt", map[int32]int64{0: 4}); err != nil {
		t.Fatal(err)
	}
	s.want(command.ExitOK, "replay", "2", "3", "4", "--reason", "they were kept", "--yes")
	st.arrived(t, 3)
}
