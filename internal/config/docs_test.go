package config

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// The tables of docs/configuration.md stand between these lines and are written by -update.
const (
	tablesBegin = "<!-- The tables below are generated from internal/config/types.go: go test ./internal/config -update -->\n"
	tablesEnd   = "<!-- End of the generated tables. -->\n"
)

func TestConfigurationPageListsEveryKey(t *testing.T) {
	const path = "../../docs/configuration.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), tablesBegin)
	_, tail, ok2 := strings.Cut(rest, tablesEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lost the lines around its tables", path)
	}
	golden(t, path, []byte(head+tablesBegin+tables(t)+tablesEnd+tail))
}

// tables writes one table for each section, in the order of the file.
func tables(t *testing.T) string {
	t.Helper()
	comments, err := keyComments()
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	intro, rows := make(map[string]string), make(map[string][]string)
	for _, k := range allKeys() {
		comment := comments[k.owner.Name()+"."+k.field.goName]
		if holdsKeys(k.field.typ) {
			section := k.path
			if !isSection(k.field.typ) {
				section += "[]"
			}
			order = append(order, section)
			intro[section] = comments[typeOf(k).Name()+"."]
		}
		if k.path == "topics" || isSection(k.field.typ) {
			continue
		}
		section := k.path[:strings.LastIndex(k.path, ".")]
		rows[section] = append(rows[section], row(k, comment))
	}
	var out bytes.Buffer
	for _, section := range order {
		_, text, _ := strings.Cut(intro[section], " ") // Without the name of the Go type.
		fmt.Fprintf(&out, "\n### `%s`\n\n%s%s\n", section, strings.ToUpper(text[:1]), text[1:])
		inFile := strings.Contains(section, "[]")
		switch {
		case len(rows[section]) == 0:
		case inFile:
			out.WriteString("\n| Key | Default | Meaning |\n|---|---|---|\n")
		default:
			out.WriteString("\n| Key and variable | Default | Meaning |\n|---|---|---|\n")
		}
		out.WriteString(strings.Join(rows[section], ""))
	}
	out.WriteString("\n")
	return out.String()
}

func typeOf(k documented) reflect.Type {
	if k.field.typ.Kind() == reflect.Slice {
		return k.field.typ.Elem()
	}
	return k.field.typ
}

// row is the line of one key.
func row(k documented, comment string) string {
	name := "`" + k.field.name + "`"
	if !strings.Contains(k.path, "[]") {
		name += "<br>`" + leaf{path: k.path}.env() + "`"
	}
	def := "see the meaning"
	switch {
	case k.field.required || k.path == "kafka.brokers":
		def = "required"
	case !k.derived():
		def = "`" + defaultText(k) + "`"
	}
	text := strings.TrimPrefix(comment, k.field.name+" ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "is "), "are ")
	text = strings.ToUpper(text[:1]) + text[1:]
	if len(k.field.enum) > 0 {
		text += " One of `" + strings.Join(k.field.enum, "`, `") + "`."
	}
	return fmt.Sprintf("| %s | %s | %s |\n", name, def, strings.ReplaceAll(text, "|", "\\|"))
}

func defaultText(k documented) string {
	if tiers, ok := reflect.TypeAssert[[]Tier](k.def); ok {
		delays := make([]string, len(tiers))
		for i, tier := range tiers {
			delays[i] = tier.Delay.String()
		}
		return "[" + strings.Join(delays, ", ") + "]"
	}
	return yamlValue(k.def)
}
