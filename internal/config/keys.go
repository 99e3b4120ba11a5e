package config

import (
	"encoding"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// envPrefix starts the name of every environment variable that sets a key.
const envPrefix = "REDRIVE_"

// defaults are the values a file of three lines gets. Topics are filled one by one: see defaultTopic and fill.
func defaults() Config {
	return Config{
		Kafka: Kafka{
			ClientID: "redrive-forwarder",
			SASL:     SASL{Mechanism: "PLAIN", OAuth: OAuth{Extensions: []Extension{}}},
		},
		Forwarder: Forwarder{
			Group:                    "redrive-forwarder",
			GroupProtocol:            "classic",
			SessionTimeout:           Duration(45 * time.Second),
			ShutdownTimeout:          Duration(5 * time.Second),
			CommitInterval:           Duration(100 * time.Millisecond),
			MaxUncommitted:           10000,
			MaxHeldBytes:             64 << 20,
			MaxHeldBytesPerPartition: 8 << 20,
			ReloadInterval:           Duration(10 * time.Second),
			Admin:                    Admin{Address: "127.0.0.1:9400"},
		},
		Ledger: Ledger{DataDir: "data", MaxConnections: 8, Migrate: true},
		Replayer: Replayer{
			Group:           "redrive-dlt-replayer",
			SessionTimeout:  Duration(45 * time.Second),
			ShutdownTimeout: Duration(10 * time.Second),
			Lease:           Duration(30 * time.Second),
			InFlight:        256,
			Batch:           500,
			DefaultRate:     100,
			BulkLimit:       1000,
			ReloadInterval:  Duration(10 * time.Second),
			Expiry:          Expiry{Within: Duration(72 * time.Hour)},
			Admin:           Admin{Address: "127.0.0.1:9401"},
			API:             API{Address: "127.0.0.1:9402", Tokens: []Token{}, MaxBody: 1 << 20},
		},
		Logging: Logging{Level: "info", Format: "auto"},
	}
}

// defaultTopic is an entry of topics before its own keys. The zero fields are derived from the others by fill.
func defaultTopic() Topic {
	return Topic{
		Tiers: []Tier{
			{Delay: Duration(10 * time.Second)},
			{Delay: Duration(time.Minute)},
			{Delay: Duration(10 * time.Minute)},
		},
		Names: Names{
			Inbox: "{origin}.retry", Tier: "{origin}.retry.{tier}", DeadLetters: "{origin}.dlt", ReplayTrigger: "{deadLetters}.replay",
		},
		ReplayTo:      []string{},
		ReplyTo:       []string{},
		MaxDeliveries: 1000,
		Ordering:      OrderingNone,
		Partitioner:   "murmur2",
	}
}

// field is one key of a section, as its struct field describes it.
type field struct {
	name     string // The key in the file.
	goName   string
	index    int
	typ      reflect.Type
	required bool
	enum     []string
	least    int  // The smallest number that is allowed.
	nonEmpty bool // The list has at least one item.
}

// fields are the keys of a section in the order they are declared. The tags are those the JSON Schema is made from, so the two
// can not disagree.
func fields(t reflect.Type) []field {
	out := make([]field, 0, t.NumField())
	for i := range t.NumField() {
		sf := t.Field(i)
		f := field{name: sf.Tag.Get("json"), goName: sf.Name, index: i, typ: sf.Type}
		for word := range strings.SplitSeq(sf.Tag.Get("jsonschema"), ",") {
			switch name, value, _ := strings.Cut(word, "="); name {
			case "required":
				f.required = true
			case "enum":
				f.enum = append(f.enum, value)
			case "minimum":
				f.least, _ = strconv.Atoi(value)
			case "minItems":
				f.nonEmpty = true
			}
		}
		out = append(out, f)
	}
	return out
}

// isSection tells a mapping of keys from a value. A list of mappings is a value here.
func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct }

// holdsKeys tells sections and lists of sections from values.
func holdsKeys(t reflect.Type) bool {
	return isSection(t) || t.Kind() == reflect.Slice && isSection(t.Elem())
}

// isText tells whether a value of the type is read from text by its own method.
func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// leaf is a key with a value, outside of lists of mappings.
type leaf struct {
	path  string
	field field
	value reflect.Value // Of the struct that was walked.
}

// env is the environment variable of the key: the path in capitals, one underscore for each level.
func (l leaf) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(l.path, ".", "_"))
}

// leaves are the keys below v, which is a struct, in the order they are declared.
func leaves(v reflect.Value, prefix string) []leaf {
	var out []leaf
	for _, f := range fields(v.Type()) {
		path := join(prefix, f.name)
		if isSection(f.typ) {
			out = append(out, leaves(v.Field(f.index), path)...)
			continue
		}
		out = append(out, leaf{path: path, field: f, value: v.Field(f.index)})
	}
	return out
}

// settable are the keys of v, a Config, that the environment and the flags can set: all but the list of topics, by path.
func settable(v reflect.Value) map[string]leaf {
	out := make(map[string]leaf)
	for _, l := range leaves(v, "") {
		if l.path != "topics" {
			out[l.path] = l
		}
	}
	return out
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// documented is a key as the documentation and the hints speak of it.
type documented struct {
	path  string // List items stand as [], as in topics[].tiers[].delay.
	field field
	owner reflect.Type  // The struct that declares the field.
	def   reflect.Value // The default; of a key that is derived from others the zero value.
}

// allKeys are all keys there are, sections and lists before what they hold.
func allKeys() []documented {
	var out []documented
	var walk func(v reflect.Value, prefix string)
	walk = func(v reflect.Value, prefix string) {
		for _, f := range fields(v.Type()) {
			k := documented{path: join(prefix, f.name), field: f, owner: v.Type(), def: v.Field(f.index)}
			out = append(out, k)
			switch {
			case isSection(f.typ):
				walk(k.def, k.path)
			case f.typ == reflect.TypeFor[[]Topic]():
				walk(reflect.ValueOf(defaultTopic()), k.path+"[]")
			case holdsKeys(f.typ):
				walk(reflect.Zero(f.typ.Elem()), k.path+"[]")
			}
		}
	}
	walk(reflect.ValueOf(defaults()), "")
	return out
}
