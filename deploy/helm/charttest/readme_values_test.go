package charttest

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// documentedValue is a key of values.yaml with a comment that starts with two dashes. What is below it needs none.
type documentedValue struct {
	path     string // As kafka.tls.enabled.
	comment  string
	standard string // The default, as JSON.
}

// documentedValues reads values.yaml: the values in their order, and by section the comment that stands above it. It fails
// for a value without a comment. The file is of one form: two blanks for each level, and a comment is one line above its key.
func documentedValues(t *testing.T) (values []documentedValue, leads map[string]string) {
	t.Helper()
	text, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	leads = map[string]string{}
	var (
		key       = regexp.MustCompile(`^( *)([A-Za-z][A-Za-z0-9]*):`)
		path      []string
		comment   string
		described string // The value that what follows is a part of.
	)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if after, ok := strings.CutPrefix(strings.TrimSpace(line), "# "); ok {
			comment = after
			continue
		}
		found := key.FindStringSubmatch(line)
		if found == nil {
			comment = ""
			continue
		}
		path = append(path[:min(len(found[1])/2, len(path))], found[2])
		at := strings.Join(path, ".")
		value := valueAt(t, all, path)
		text, isValue := strings.CutPrefix(comment, "-- ")
		section, isSection := value.(map[string]any)
		switch {
		case described != "" && strings.HasPrefix(at, described+"."):
		case isValue:
			described = at
			values = append(values, documentedValue{at, text, standard(t, value)})
		case isSection && len(section) > 0:
			if comment != "" {
				leads[at] = comment
			}
		default:
			t.Errorf("values.yaml: %s has no comment that starts with # --", at)
		}
		comment = ""
	}
	return values, leads
}

func valueAt(t *testing.T, values map[string]any, path []string) any {
	t.Helper()
	var at any = values
	for _, name := range path {
		section, ok := at.(map[string]any)
		if !ok {
			// A key below an item of a list: the value of the list stands for it.
			return at
		}
		if at, ok = section[name]; !ok {
			t.Fatalf("values.yaml: %s is not read as it is written", strings.Join(path, "."))
		}
	}
	return at
}

func standard(t *testing.T, value any) string {
	t.Helper()
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

// The schema knows every value, with the same words, and no other; below a value it says what it wants. So a key that is misspelt
// is refused, whatever section it is in.
func TestSchemaKnowsEveryValueAndNoOther(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chartDir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	values, _ := documentedValues(t)
	wanted := map[string]string{}
	for _, v := range values {
		wanted[v.path] = v.comment
	}
	var walk func(at map[string]any, path string)
	walk = func(at map[string]any, path string) {
		if comment, ok := wanted[path]; ok {
			if at["description"] != comment {
				t.Errorf("values.schema.json: %s is described as %q, in values.yaml as %q", path, at["description"], comment)
			}
			delete(wanted, path)
			return
		}
		properties, ok := at["properties"].(map[string]any)
		if !ok {
			t.Errorf("values.schema.json: %s is not in values.yaml", path)
			return
		}
		// Charts around this one put values of their own into global.
		if path != "global" && at["additionalProperties"] != false {
			t.Errorf("values.schema.json: %s takes unknown keys", path)
		}
		for name, below := range properties {
			walk(below.(map[string]any), strings.TrimPrefix(path+"."+name, ".")) //nolint:forcetypeassert // A schema of anything else does not load.
		}
	}
	walk(schema, "")
	for path := range wanted {
		t.Errorf("values.schema.json: %s is missing", path)
	}
}

// A topic, and a token, of the values is what the product takes for one.
func TestSchemaTakesTheProductsOwnWord(t *testing.T) {
	t.Parallel()
	read := func(file string) map[string]any {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var schema map[string]any
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		return schema
	}
	of := func(schema map[string]any, path ...string) any {
		for _, name := range path {
			below, ok := schema[name].(map[string]any)
			if !ok {
				t.Fatalf("%s: there is no %s", strings.Join(path, "."), name)
			}
			schema = below
		}
		return schema
	}
	chart, product := read(chartDir+"/values.schema.json"), read("../../../schemas/topics.schema.json")
	for _, pair := range [][2]any{
		{of(chart, "properties", "topics", "items"), of(product, "properties", "topics", "items")},
		{
			of(chart, "properties", "replayer", "properties", "auth", "properties", "tokens", "items"),
			of(product, "properties", "replayer", "properties", "api", "properties", "tokens", "items"),
		},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Error("values.schema.json differs from schemas/topics.schema.json: copy the items of topics and of tokens from there")
		}
	}
}
