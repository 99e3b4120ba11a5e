package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Effective loads the configuration and writes it out whole, with every default filled and every name expanded, and says of each
// value whether it comes from the default, a line of the file, the environment or a flag. Secrets are written as ***.
//
// The format is "yaml", where the source is a comment, or "json", an object with the configuration under "config" and the sources
// by path under "sources". The error is an *Errors, as from Load, or says that the format is unknown.
func Effective(src Source, format string) ([]byte, error) {
	if format != "yaml" && format != "json" {
		return nil, fmt.Errorf("format %q is neither yaml nor json", format)
	}
	l, err := load(src)
	if err != nil {
		return nil, err
	}
	if format == "yaml" {
		return l.yaml(), nil
	}
	return l.json()
}

// source says where the value of a key comes from.
func (l *layers) source(path string) string {
	from, ok := l.origins[path]
	if !ok && strings.HasSuffix(path, ".delay") {
		from, ok = l.origins[parent(path)] // A tier may be written as its delay alone.
	}
	if !ok {
		from, _ = l.innermost(path)
		ok = from.name != "" // The environment or a flag sets a list as a whole.
	}
	switch {
	case !ok:
		return "default"
	case from.file == inEnvironment:
		return "env " + from.name
	case from.file == inFlags:
		return "flag " + from.name
	default:
		return fmt.Sprintf("%s:%d", plainFileName(from.file), from.at.line)
	}
}

// plainFileName keeps a line break in a file's name from breaking the comment it stands in.
func plainFileName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) || !utf8.ValidString(name) {
		return strconv.Quote(name)
	}
	return name
}

func (l *layers) json() ([]byte, error) {
	sources := make(map[string]string)
	l.walk(reflect.ValueOf(l.config), "", func(path, _ string, v reflect.Value, _ int) {
		if isValue(v) {
			sources[path] = l.source(path)
		}
	})
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		Config  *Config           `json:"config"`
		Sources map[string]string `json:"sources"`
	}{&l.config, sources})
	return out.Bytes(), err
}

func (l *layers) yaml() []byte {
	const widest = 60 // A longer value does not push the comments of the others away.
	type line struct{ text, comment string }
	var lines []line
	width := 0
	l.walk(reflect.ValueOf(l.config), "", func(path, lead string, v reflect.Value, depth int) {
		row := line{text: strings.Repeat("  ", depth) + lead}
		if isValue(v) {
			row.text += " " + yamlValue(v)
			row.comment = l.source(path)
			if n := utf8.RuneCountInString(row.text); n <= widest {
				width = max(width, n)
			}
		}
		lines = append(lines, row)
	})
	var out bytes.Buffer
	for _, row := range lines {
		out.WriteString(row.text)
		if row.comment != "" {
			gap := max(width-utf8.RuneCountInString(row.text), 0) + 2
			out.WriteString(strings.Repeat(" ", gap) + "# " + row.comment)
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// walk visits every key of v, a struct, in the order they are declared. What holds keys comes before them. The lead is "name:", with
// the dash of the list item before it for the first key of one.
func (l *layers) walk(v reflect.Value, prefix string, visit func(path, lead string, v reflect.Value, depth int)) {
	var section func(v reflect.Value, prefix string, depth int, item bool)
	section = func(v reflect.Value, prefix string, depth int, item bool) {
		for i, f := range fields(v.Type()) {
			path, lead, at := join(prefix, f.name), f.name+":", depth
			if item && i == 0 {
				lead, at = "- "+lead, depth-1
			}
			value := v.Field(f.index)
			visit(path, lead, value, at)
			switch {
			case isSection(f.typ):
				section(value, path, depth+1, false)
			case holdsKeys(f.typ):
				for j := range value.Len() {
					section(value.Index(j), path+"["+strconv.Itoa(j)+"]", depth+2, true)
				}
			}
		}
	}
	section(v, prefix, 0, false)
}

// isValue tells what stands on one line from what keys follow: a list of sections stands there if it is empty.
func isValue(v reflect.Value) bool {
	return !holdsKeys(v.Type()) || v.Kind() == reflect.Slice && v.Len() == 0
}

// yamlValue writes a value on one line.
func yamlValue(v reflect.Value) string {
	if m, ok := reflect.TypeAssert[encoding.TextMarshaler](v); ok {
		text, err := m.MarshalText()
		if err != nil {
			return strconv.Quote(err.Error())
		}
		return yamlText(string(text))
	}
	switch v.Kind() {
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = yamlValue(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case reflect.String:
		return yamlText(v.String())
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64) // Never 1e+06, which some readers take for text.
	default:
		return fmt.Sprint(v.Interface())
	}
}

// yamlText writes text plain where no reader can take it for anything else, and in double quotes otherwise.
func yamlText(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._/-", r)
	})
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		plain = false
	}
	if plain && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z') {
		return s
	}
	if plain && isQuantity(s) {
		return s
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		return strconv.Quote(s)
	}
	return string(quoted)
}

// isQuantity tells 10s and 64MiB, which no YAML reader takes for a number, from 10, 1e3 and 0x1F.
func isQuantity(s string) bool {
	unit := strings.TrimLeft(s, "0123456789")
	switch unit {
	case "ms", "s", "m", "h", "d", "B", "KiB", "MiB", "GiB", "TiB":
		return len(unit) < len(s)
	default:
		return false
	}
}
