package config

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("topics.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("topics.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if s.DraftVersion != 7 {
		t.Fatalf("draft %d, want 7", s.DraftVersion)
	}
	return s
}

// document reads YAML into the plain values that a schema is about.
func document(t *testing.T, text []byte) any {
	t.Helper()
	f := decode("topics.yaml", nil)
	root := f.parse(text)
	if root == nil {
		t.Fatalf("%v", f.problems)
	}
	var value any
	if err := yaml.NodeToValue(root, &value); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestSchemaFileIsUpToDate(t *testing.T) {
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "../../schemas/topics.schema.json", text)
}

func TestExamplesAreValidBySchema(t *testing.T) {
	s := compiledSchema(t)
	for _, path := range append(files(t, "testdata/good/*.yaml"), "../../topics.yaml") {
		data, err := readFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(document(t, data)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// An editor that goes by the schema and the loader must say the same about the form of a value.
func TestSchemaAndLoaderAgreeOnForm(t *testing.T) {
	s := compiledSchema(t)
	topic := func(keys string) string {
		return "{kafka: {brokers: ['b:1']}, topics: [{origin: o, " + keys + "}]}"
	}
	whole := func(keys string) string {
		return "{kafka: {brokers: ['b:1']}, topics: [{origin: o}], " + keys + "}"
	}
	oauth := func(keys string) string {
		return "{topics: [{origin: o}], kafka: {brokers: ['b:1'], sasl: {enabled: true, mechanism: OAUTHBEARER, oauth: {token: t, " + keys + "}}}}"
	}
	for text, want := range map[string]bool{
		whole("logging: {level: warn}"):                            true,
		whole("logging: {level: loud}"):                            false,
		whole("logging: {levels: warn}"):                           false,
		whole("logging: ~"):                                        false,
		whole("extra: 1"):                                          false,
		whole("forwarder: {maxUncommitted: 1}"):                    true,
		whole("forwarder: {maxUncommitted: 0}"):                    false,
		whole("forwarder: {maxUncommitted: '1'}"):                  false,
		whole("forwarder: {maxHeldBytes: 1GiB}"):                   true,
		whole("forwarder: {maxHeldBytes: 16777216}"):               true,
		whole("forwarder: {maxHeldBytes: 1GB}"):                    false,
		whole("forwarder: {maxHeldBytes: -1}"):                     false,
		whole("forwarder: {sessionTimeout: 1m30s}"):                true,
		whole("forwarder: {sessionTimeout: 60}"):                   false,
		whole("forwarder: {sessionTimeout: ''}"):                   false,
		whole("forwarder: {sessionTimeout: 1s1m}"):                 false,
		topic("tiers: [10s, {delay: 1m, jitter: 0}]"):              true,
		topic("tiers: [{delay: 1m, jitter: '0'}]"):                 true,
		topic("tiers: [{name: x}]"):                                false,
		topic("tiers: []"):                                         false,
		topic("tiers: 10s"):                                        false,
		topic("tiers: [10]"):                                       false,
		topic("ordering: none"):                                    true,
		topic("ordering: key"):                                     false,
		topic("partitioner: fnv1a"):                                true,
		topic("partitioner: fnv1"):                                 false,
		topic("group: 5"):                                          false,
		topic("maxAttempts: 2"):                                    true,
		topic("maxAttempts: 2.5"):                                  false,
		topic("maxDeliveries: 0"):                                  false,
		topic("rateLimit: 0"):                                      true,
		topic("rateLimit: 12.5"):                                   true,
		topic("rateLimit: 1.5e+3"):                                 true,
		topic("rateLimit: -1"):                                     false,
		topic("rateLimit: '5'"):                                    false,
		topic("paused: true"):                                      true,
		topic("paused: 'true'"):                                    false,
		whole("forwarder: {groupProtocol: consumer}"):              true,
		whole("forwarder: {groupProtocol: new}"):                   false,
		whole("forwarder: {reloadInterval: 0}"):                    true,
		oauth("extensions: []"):                                    true,
		oauth("extensions: [{key: a, value: b}]"):                  true,
		oauth("extensions: [{key: a}]"):                            false,
		oauth("extensions: ['a=b']"):                               false,
		oauth("extensions: 'a=b'"):                                 false,
		oauth("extensions: {a: b}"):                                false,
		"{topics: [{origin: o}], kafka: {brokers: 'b:1'}}":         false,
		"{topics: [{origin: o}], kafka: {brokers: []}}":            false,
		"{topics: [], kafka: {brokers: ['b:1']}}":                  false,
		"{kafka: {brokers: ['b:1']}}":                              false,
		"{topics: [{group: g}], kafka: {brokers: ['b:1']}}":        false,
		"{topics: [o], kafka: {brokers: ['b:1']}}":                 false,
		"{topics: [{origin: o}], kafka: {brokers: ['b:1', 9092]}}": false,
		"[]": false,
	} {
		_, loadErr := Load(Source{Path: write(t, text)})
		schemaErr := s.Validate(document(t, []byte(text)))
		if (loadErr == nil) != want || (schemaErr == nil) != want {
			t.Errorf("%s: want valid %t\n  loader: %v\n  schema: %v", text, want, loadErr, schemaErr)
		}
	}
}

func TestEveryKeyIsDescribed(t *testing.T) {
	comments, err := keyComments()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range allKeys() {
		if len(comments[k.owner.Name()+"."+k.field.goName]) <= len(k.field.name) {
			t.Errorf("%s has no description", k.path)
		}
	}
}
