package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	sumA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	sumB = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
)

func tokensFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokensOfAFileAreThoseOfTheConfiguration(t *testing.T) {
	path := tokensFile(t, "- {name: alice, role: admin, sha256: "+sumA+"}\n- name: ci\n  role: viewer\n  sha256: "+sumB+"\n  topics: [orders.dlt]\n")
	got, err := LoadTokens(path, []Token{{Name: "bob", SHA256: strings.Repeat("0", 64)}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Token{{Name: "alice", Role: "admin", SHA256: sumA}, {Name: "ci", Role: "viewer", SHA256: sumB, Topics: []string{"orders.dlt"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if none, err := LoadTokens(tokensFile(t, "[]\n"), nil); err != nil || len(none) != 0 {
		t.Errorf("of an empty list: %v, %v", none, err)
	}
}

func TestAWrongFileOfTokensIsRefusedWithEveryProblem(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"a mapping":      {"tokens: []\n", ":1:1: tokens: must be a list"},
		"a token itself": {"- {name: a, role: admin, sha256: hunter2}\n", ":1:34: tokens[0].sha256: is not the SHA-256 of a token"},
		"a role":         {"- {name: a, role: root, sha256: " + sumA + "}\n", `"root" is none of viewer, operator, admin`},
		"a missing sum":  {"- {name: a, role: admin}\n", "tokens[0].sha256: is missing"},
		"an unknown key": {"- {name: a, role: admin, sha: x, sha256: " + sumA + "}\n", "tokens[0].sha: unknown key"},
		"a name of before": {
			"- {name: bob, role: admin, sha256: " + sumA + "}\n", `token "bob" is in replayer.api.tokens as well`,
		},
		"a sum of before": {
			"- {name: a, role: admin, sha256: " + strings.ToUpper(sumB) + "}\n", "is the sum of a token in replayer.api.tokens as well",
		},
		"empty": {"", "the file is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadTokens(tokensFile(t, test.text), []Token{{Name: "bob", SHA256: sumB}})
			var all *Errors
			if !errors.As(err, &all) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	if _, err := LoadTokens(filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a file that is not there is taken for an empty one")
	}
}

func TestTokensCanBeSetInTheEnvironment(t *testing.T) {
	path := write(t, threeLines)
	got := mustLoad(t, Source{Path: path, Environ: []string{
		"REDRIVE_REPLAYER_API_ADDRESS=:9402",
		"REDRIVE_REPLAYER_API_TOKENS=alice:admin:" + sumA + ",ci:viewer:" + sumB + ":orders.dlt|refunds.dlt",
	}}).Replayer.API.Tokens
	want := []Token{{"alice", "admin", sumA, []string{}}, {"ci", "viewer", sumB, []string{"orders.dlt", "refunds.dlt"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{"hunter2", "alice:root:" + sumA} {
		_, err := Load(Source{Path: path, Environ: []string{"REDRIVE_REPLAYER_API_TOKENS=" + text}})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The commands of dlt-replayer and its serve may share an environment.
func TestVariablesOfTheClientSetNoKey(t *testing.T) {
	mustLoad(t, Source{Path: write(t, threeLines), Environ: []string{"REDRIVE_URL=http://127.0.0.1:9402", "REDRIVE_TOKEN=x", "REDRIVE_TOKEN_FILE=/run/token"}})
}

func TestAPIBeyondThisMachineNeedsTokens(t *testing.T) {
	for address, free := range map[string]bool{
		"127.0.0.1:9402": true, "localhost:9402": true, "[::1]:9402": true, "[::ffff:127.0.0.1]:9402": true, "127.1.2.3:0": true,
		":9402": false, "0.0.0.0:9402": false, "[::]:9402": false, "10.0.0.1:9402": false, "host.example:9402": false,
	} {
		path := write(t, threeLines)
		_, err := Load(Source{Path: path, Flags: map[string]string{"replayer.api.address": address}})
		if free != (err == nil) {
			t.Errorf("%s without tokens: %v", address, err)
		}
		if _, err := Load(Source{Path: path, Flags: map[string]string{"replayer.api.address": address, "replayer.api.tokensFilepath": "tokens.yaml"}}); err != nil {
			t.Errorf("%s with tokens: %v", address, err)
		}
	}
}

func TestURLOfSQLiteIsAPath(t *testing.T) {
	for url, want := range map[string]string{"sqlite:///var/lib/x.db": "/var/lib/x.db", "sqlite://x.db": "x.db", "sqlite://./a/x.db": "./a/x.db"} {
		if got, sqlite, err := LedgerFile(url); got != want || !sqlite || err != nil {
			t.Errorf("%s: %q, %v, %v", url, got, sqlite, err)
		}
	}
	for _, url := range []string{"postgres://u:p@db/x", "postgresql://db:5432/x?sslmode=require"} {
		if _, sqlite, err := LedgerFile(url); sqlite || err != nil {
			t.Errorf("%s: %v, %v", url, sqlite, err)
		}
	}
	for _, url := range []string{"mysql://u:hunter2@db/x", "hunter2", "sqlite://", "sqlite:///var/", "postgres://u:hunter2@db", "postgres://u:hunter2@db:port/x"} {
		if _, _, err := LedgerFile(url); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestALetterCountsAsExpiringForSomeTimeAhead(t *testing.T) {
	path := write(t, threeLines)
	if got := mustLoad(t, Source{Path: path, Environ: []string{"REDRIVE_REPLAYER_EXPIRY_WITHIN=14d"}}).Replayer.Expiry.Within; got != Duration(14*24*time.Hour) {
		t.Errorf("within is %s", got)
	}
	if _, err := Load(Source{Path: path, Flags: map[string]string{"replayer.expiry.within": "0s"}}); err == nil || !strings.Contains(err.Error(), "replayer.expiry.within") {
		t.Errorf("no time ahead: %v", err)
	}
}
