package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlquery"
	"github.com/kafka-redrive/redrive/internal/envelope"
)

// openEmpty opens an empty ledger for the time of the test.
func openEmpty(t *testing.T) *Ledger {
	t.Helper()
	l, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// plan says how a statement is carried out.
func (l *Ledger) plan(t *testing.T, sql string, args []any) string {
	t.Helper()
	var plan []string
	err := each(t.Context(), l.read, "EXPLAIN QUERY PLAN "+sql, args, func(scan func(...any) error) error {
		var id, parent, unused int64
		var detail string
		err := scan(&id, &parent, &unused, &detail)
		plan = append(plan, detail)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

// What operators ask for most must not read the whole table, however large it is, nor sort it.
func TestListsUseIndexes(t *testing.T) {
	l := openEmpty(t)
	partition, at := int32(0), time.Unix(1_790_000_000, 0)
	cuts := []deadletter.Cut{{Topic: "t", Before: at}, {Topic: "u", Before: at}}
	for name, test := range map[string]struct {
		filter deadletter.Filter
		index  string
		sorted bool // without a sort of its own
	}{
		"all":               {deadletter.Filter{}, "letters_dead_at", true},
		"ids":               {deadletter.Filter{IDs: []int64{1, 2}}, "PRIMARY KEY", false},
		"message":           {deadletter.Filter{MessageIDs: []string{"m"}}, "letters_message", false},
		"messages":          {deadletter.Filter{MessageIDs: []string{"m", "n"}}, "letters_message", false},
		"key":               {deadletter.Filter{Key: []byte("k"), HasKey: true}, "letters_key", false},
		"state":             {deadletter.Filter{States: []deadletter.State{deadletter.Dead}}, "letters_state", true},
		"state and time":    {deadletter.Filter{States: []deadletter.State{deadletter.Dead}, DeadFrom: at, DeadTo: at.Add(time.Hour)}, "letters_state", true},
		"time":              {deadletter.Filter{DeadFrom: at, DeadTo: at.Add(time.Hour)}, "letters_dead_at", true},
		"error type":        {deadletter.Filter{ErrorTypes: []string{"E"}, DeadFrom: at}, "letters_error", true},
		"fingerprint":       {deadletter.Filter{Fingerprints: []string{"f00d"}, DeadFrom: at}, "letters_fingerprint", true},
		"origin and time":   {deadletter.Filter{Origins: []string{"orders"}, DeadFrom: at}, "letters_dead_at", true},
		"reasons and time":  {deadletter.Filter{Reasons: []envelope.Reason{envelope.ReasonPoison}, DeadFrom: at}, "letters_dead_at", true},
		"place":             {deadletter.Filter{Topics: []string{"t"}, Partition: &partition, Offset: new(int64(7))}, "letters_place", false},
		"expiring":          {deadletter.Filter{Expiring: cuts[:1]}, "letters_expiring", true},
		"expiring of two":   {deadletter.Filter{Expiring: cuts}, "letters_expiring", false},
		"job that replayed": {deadletter.Filter{Job: "j"}, "PRIMARY KEY", false},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := sqlquery.NewPage(test.filter, deadletter.Page{})
			if err != nil {
				t.Fatal(err)
			}
			where, args := listing(test.filter, page)
			text := l.plan(t, "SELECT "+letterColumns+" FROM "+letterTables+" WHERE "+where, args)
			if !strings.Contains(text, test.index) || test.sorted && strings.Contains(text, "TEMP B-TREE") {
				t.Errorf("the plan is\n%s\nwant %s, sorted by it: %t", text, test.index, test.sorted)
			}
		})
	}
}

func TestErrorGroupsAreLookedUpInAnIndex(t *testing.T) {
	l := openEmpty(t)
	if text := l.plan(t, seen, []any{"f00d"}); !strings.Contains(text, "SEARCH letters USING COVERING INDEX letters_fingerprint") {
		t.Errorf("the plan is\n%s", text)
	}
}
