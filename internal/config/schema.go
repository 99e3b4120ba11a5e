package config

import (
	_ "embed" // The comments of the types are the descriptions of the keys.
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
)

// typesSource is the source of the types, for its comments: one text serves the reader of the code, of the documentation and of the
// editor's tooltips.
//
//go:embed types.go
var typesSource string

const (
	durationPattern = `^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$`
	bytesPattern    = `^[0-9]+(B|KiB|MiB|GiB|TiB)?$`
)

// The schema in schemas/ and the tables of docs/configuration.md are written by the tests that compare them.
//go:generate go test -count=1 -run TestSchemaFileIsUpToDate|TestConfigurationPageListsEveryKey . -update

// Schema is the JSON Schema (draft 7) of the file, made from the types.
func Schema() ([]byte, error) {
	comments, err := keyComments()
	if err != nil {
		return nil, err
	}
	r := jsonschema.Reflector{
		Anonymous:                  true,
		DoNotReference:             true,
		RequiredFromJSONSchemaTags: true,
		LookupComment: func(t reflect.Type, name string) string {
			return comments[t.Name()+"."+name]
		},
	}
	s := r.ReflectFromType(reflect.TypeFor[Config]())
	s.Version = "http://json-schema.org/draft-07/schema#"
	s.Title = "Redrive topics.yaml"
	for _, k := range allKeys() {
		setDefault(s, k)
	}
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	return append(out, '\n'), nil
}

// setDefault writes the default of a key into the schema. A key that is derived from others has none there.
func setDefault(s *jsonschema.Schema, k documented) {
	if k.field.required || isSection(k.field.typ) || k.derived() {
		return
	}
	at := s
	for name := range strings.SplitSeq(k.path, ".") {
		name, isList := strings.CutSuffix(name, "[]")
		if len(at.OneOf) > 0 {
			at = at.OneOf[len(at.OneOf)-1] // The long form of a tier.
		}
		next, ok := at.Properties.Get(name)
		if !ok {
			return
		}
		at = next
		if isList {
			at = at.Items
		}
	}
	if tiers, ok := reflect.TypeAssert[[]Tier](k.def); ok {
		delays := make([]Duration, len(tiers))
		for i, tier := range tiers {
			delays[i] = tier.Delay
		}
		at.Default = delays
		return
	}
	at.Default = k.def.Interface()
}

// derived tells the keys whose default depends on other keys.
func (k documented) derived() bool {
	switch k.path {
	case "kafka.brokers", "topics", "topics[].maxAttempts", "topics[].maxDelay", "topics[].maxHeldBytesPerPartition",
		"topics[].tiers[].name", "topics[].tiers[].topic":
		return true
	default:
		return false
	}
}

// keyComments are the comments of the types' fields, by "Type.Field", and of the types, by "Type.". The name that a comment starts with
// is the key's instead of the field's.
func keyComments() (map[string]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "types.go", typesSource, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("read the comments of the types: %w", err)
	}
	comments := make(map[string]string)
	for _, decl := range f.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		for _, spec := range gen.Specs {
			typ, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			comments[typ.Name.Name+"."] = oneLine(gen.Doc.Text())
			body, ok := typ.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, fd := range body.Fields.List {
				name, tag := fd.Names[0].Name, reflect.StructTag(strings.Trim(fd.Tag.Value, "`"))
				text := strings.TrimPrefix(oneLine(fd.Doc.Text()), name)
				comments[typ.Name.Name+"."+name] = tag.Get("json") + text
			}
		}
	}
	return comments, nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// JSONSchema is the form of a duration in the file.
func (Duration) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
		{Type: "string", Pattern: durationPattern, MinLength: new(uint64(1))},
		{Enum: []any{0, "0"}},
	}}
}

// JSONSchema is the form of a number of bytes in the file.
func (Bytes) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
		{Type: "string", Pattern: bytesPattern},
		{Type: "integer", Minimum: "0"},
	}}
}

// JSONSchema is the form of a secret in the file.
func (Secret) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", WriteOnly: true}
}

// JSONSchema lists the orderings of this version.
func (Ordering) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Enum: []any{string(OrderingNone)}}
}

// JSONSchemaExtend adds the short form of a tier: its delay alone.
func (Tier) JSONSchemaExtend(s *jsonschema.Schema) {
	long := *s
	*s = jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string", Pattern: durationPattern, MinLength: new(uint64(1))}, &long}}
}
