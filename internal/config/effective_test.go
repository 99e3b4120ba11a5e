package config

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func effectiveSource(t *testing.T) Source {
	t.Helper()
	t.Chdir(filepath.Dir(write(t, "kafka:\n  brokers: [localhost:9092]\n  sasl: {enabled: true, username: u, password: hunter2}\n"+
		"topics:\n  - origin: orders\n    tiers: [10s, {delay: 1h}]\n")))
	return Source{Path: "topics.yaml", Environ: []string{"REDRIVE_KAFKA_CLIENTID=x y", "REDRIVE_LOGGING_LEVEL=warn"}, Flags: map[string]string{"logging.level": "debug"}}
}

func TestEffectiveSaysWhereEachValueComesFrom(t *testing.T) {
	for _, format := range []string{"yaml", "json"} {
		here, err := filepath.Abs("testdata/effective." + format + ".golden")
		if err != nil {
			t.Fatal(err)
		}
		t.Run(format, func(t *testing.T) {
			out, err := Effective(effectiveSource(t), format)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(out), "hunter2") {
				t.Error("a secret is shown")
			}
			golden(t, here, out)
		})
	}
}

func TestEffectiveRefusesAnUnknownFormat(t *testing.T) {
	if _, err := Effective(effectiveSource(t), "toml"); err == nil {
		t.Error("toml is accepted")
	}
}

// What Effective prints is a configuration itself, and means what it was printed from.
func TestEffectiveLoadsAsTheSameConfiguration(t *testing.T) {
	for _, path := range append(files(t, "testdata/good/*.yaml"), "../../topics.yaml") {
		src := Source{Path: path}
		switch filepath.Base(path) { // The secrets are what is not printed.
		case "switched-off.yaml":
			src.Environ = []string{"REDRIVE_KAFKA_SASL_PASSWORD="}
		case "msk.yaml":
			src.Environ = []string{"REDRIVE_KAFKA_SASL_AWSMSKIAM_SECRETKEY=***", "REDRIVE_KAFKA_SASL_AWSMSKIAM_SESSIONTOKEN=***"}
		case "replayer.yaml":
			src.Environ = []string{"REDRIVE_LEDGER_URL=postgres://redrive@db:5432/redrive"}
		}
		out, err := Effective(src, "yaml")
		if err != nil {
			t.Fatal(err)
		}
		again := mustLoad(t, Source{Path: write(t, string(out)), Environ: src.Environ})
		if diff := cmp.Diff(mustLoad(t, src), again); diff != "" {
			t.Errorf("%s (-loaded +printed and loaded):\n%s", path, diff)
		}
	}
}

func TestPrintedTextReadsBackTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.String(),
			rapid.SampledFrom([]string{"", "true", "No", "10", "1e3", "0x1F", "1_0", "~", "null", "10s", "-", "a: b", "a #b", ".5", ".inf", "1d", "{x}", "\u2028\"\\"}),
		).Draw(t, "text")
		printed := yamlValue(reflect.ValueOf([]string{text}))
		var got []any
		if err := yaml.Unmarshal([]byte(printed), &got); err != nil {
			t.Fatalf("%q is printed as %s: %v", text, printed, err)
		}
		if want := []any{strings.ToValidUTF8(text, "\ufffd")}; !cmp.Equal(want, got) {
			t.Fatalf("%q is printed as %s and read as %q", text, printed, got)
		}
	})
}
