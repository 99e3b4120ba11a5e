// Package config answers what the forwarder is to do: it makes one checked value of topics.yaml, the environment and the flags.
//
// The layers are the defaults, the file, the REDRIVE_* variables and the flags; the later ones win. The file is read through its syntax
// tree, so that every value keeps its place. The types in types.go are the format: the keys, the kinds, the JSON Schema, the names of
// the variables and the reference in docs/configuration.md are all taken from them and their comments. The list of topics is set in the
// file only; after Load its names are expanded and its defaults filled.
//
// Load ignores nothing and reports everything: unknown keys and variables, repeated keys, values of the wrong kind or out of bounds,
// values that contradict each other, and topics that would have two uses, all at once and each with its place. No error, no log line and
// no printed configuration shows a secret. Load does not ask the brokers and does not open the files that a configuration names; whether
// topics exist and certificates can be read is for those who use them.
//
// Nothing here starts a goroutine or keeps state between calls. A Config is not written after Load and may be shared.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"

	"github.com/kafka-redrive/redrive/internal/spelling"
)

// The environment variables by which the commands of dlt-replayer find the API.
const (
	EnvURL       = envPrefix + "URL"
	EnvToken     = envPrefix + "TOKEN"
	EnvTokenFile = envPrefix + "TOKEN_FILE"
)

// The File of a problem that is not in a file.
const (
	inEnvironment = "environment"
	inFlags       = "flags"
)

// Source says where the layers of the configuration come from. The later ones win: defaults, file, environment, flags.
type Source struct {
	// Path is the file, usually topics.yaml. It also is the file name in problems.
	Path string
	// Environ is the environment as NAME=value, as os.Environ gives it. Only names that start with REDRIVE_ are looked at.
	Environ []string
	// Flags are the values given on the command line by the path of their key, as in "forwarder.group".
	Flags map[string]string
}

// Load reads the file and lays the environment and the flags over it.
// The error is an *Errors with every problem there is, in the order of their positions.
func Load(src Source) (*Config, error) {
	loaded, err := load(src)
	if err != nil {
		return nil, err
	}
	return &loaded.config, nil
}

// load reads the file of src and joins the layers.
func load(src Source) (*layers, error) {
	data, err := readFile(src.Path)
	if err != nil {
		p := Problem{File: src.Path, Message: err.Error()}
		if errors.Is(err, fs.ErrNotExist) {
			p.Hint = "name the file with --config"
		}
		return nil, &Errors{Problems: []Problem{p}}
	}
	return assemble(src, data)
}

// readFile reads no more of a file than it takes to refuse it. The error does not repeat the path.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, plainPathError(err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	return data, errors.Join(plainPathError(err), f.Close())
}

func plainPathError(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("can not be read: %w", pathErr.Err)
	}
	return err
}

// origin is where a value comes from. The zero value means the default.
type origin struct {
	file string // The file's name, or inEnvironment, or inFlags.
	at   position
	name string // The environment variable or the flag's path.
}

// layers is a configuration while it is put together, and where each of its values comes from.
type layers struct {
	config   Config
	origins  map[string]origin // By path, of every key that a layer sets, and of every section and list item of the file.
	file     string
	problems []Problem
}

// assemble joins the layers over the bytes of the file, fills what is left and checks the whole.
func assemble(src Source, data []byte) (*layers, error) {
	f := decode(src.Path, data)
	if !f.usable {
		return nil, sorted(f.problems, src.Path)
	}
	l := &layers{file: src.Path, problems: f.problems, origins: make(map[string]origin, len(f.at))}
	for path, at := range f.at {
		l.origins[path] = origin{file: src.Path, at: at}
	}
	if err := l.join(f, src); err != nil {
		l.problems = append(l.problems, Problem{File: src.Path, Line: 1, Column: 1, Message: err.Error()})
		return nil, sorted(l.problems, src.Path)
	}
	for i := range l.config.Topics {
		l.fillTopic(i)
	}
	for i := range l.config.Replayer.API.Tokens {
		if t := &l.config.Replayer.API.Tokens[i]; t.Topics == nil {
			t.Topics = []string{}
		}
	}
	l.check()
	if len(l.problems) > 0 {
		return nil, sorted(l.problems, src.Path)
	}
	return l, nil
}

// join lays the values of the layers over each other. Each layer holds values of their final types, by path. The list of topics goes
// around it: the file alone sets it.
func (l *layers) join(f *file, src Source) error {
	base, own := make(map[string]any), make(map[string]any)
	d := defaults()
	for path, leaf := range settable(reflect.ValueOf(d)) {
		base[path] = leaf.value.Interface()
	}
	for path, leaf := range settable(reflect.ValueOf(f.config)) {
		if _, ok := f.at[path]; ok {
			own[path] = leaf.value.Interface()
		}
	}
	environ := env.Provider(".", env.Opt{
		Prefix:        envPrefix,
		TransformFunc: l.envValue,
		EnvironFunc:   func() []string { return src.Environ },
	})
	k := koanf.New(".")
	for _, layer := range []func() koanf.Provider{
		func() koanf.Provider { return confmap.Provider(base, ".") },
		func() koanf.Provider { return confmap.Provider(own, ".") },
		func() koanf.Provider { return environ },
		// Read in its turn and not before, since the last to set a key is noted as where it comes from.
		func() koanf.Provider { return confmap.Provider(l.flagValues(src.Flags), ".") },
	} {
		if err := k.Load(layer(), nil); err != nil {
			return fmt.Errorf("join the layers: %w", err)
		}
	}
	if err := k.UnmarshalWithConf("", &l.config, koanf.UnmarshalConf{Tag: "json"}); err != nil {
		return fmt.Errorf("join the layers: %w", err)
	}
	l.config.Topics = f.config.Topics
	return nil
}

// envValue gives the path and the value of an environment variable, and no path where there is nothing to set.
func (l *layers) envValue(name, text string) (string, any) {
	keys := settable(reflect.ValueOf(Config{}))
	var names []string
	for path, leaf := range keys {
		if leaf.env() == name {
			return l.setLeaf(path, leaf, text, origin{file: inEnvironment, name: name})
		}
		names = append(names, leaf.env())
	}
	if isServiceLink(name) || ofTheClient(name) {
		return "", nil
	}
	slices.Sort(names) // The nearest of two equally near must not depend on the order of a map.
	p := Problem{File: inEnvironment, Path: name, Message: "unknown variable"}
	if near := spelling.Nearest(name, names); near != "" {
		p.Hint = "did you mean " + near + "?"
	}
	if name == envPrefix+"TOPICS" || strings.HasPrefix(name, envPrefix+"TOPICS_") {
		p.Hint = "topics are set in the file only"
	}
	l.problems = append(l.problems, p)
	return "", nil
}

// ofTheClient tells the variables that the commands of dlt-replayer find the API by. They set no key.
func ofTheClient(name string) bool { return name == EnvURL || name == EnvToken || name == EnvTokenFile }

// isServiceLink tells the variables that Kubernetes gives every pod for a service whose name starts with "redrive".
func isServiceLink(name string) bool {
	if strings.HasSuffix(name, "_SERVICE_HOST") || strings.HasSuffix(name, "_SERVICE_PORT") || strings.HasSuffix(name, "_PORT") {
		return true
	}
	if strings.Contains(name, "_SERVICE_PORT_") {
		return true
	}
	_, rest, ok := strings.Cut(name, "_PORT_") // As in X_PORT_8080_TCP_ADDR.
	if !ok {
		return false
	}
	digits := strings.TrimLeft(rest, "0123456789")
	return len(digits) < len(rest) && (strings.HasPrefix(digits, "_TCP") || strings.HasPrefix(digits, "_UDP") || strings.HasPrefix(digits, "_SCTP"))
}

// flagValues gives the values of the flags by path.
func (l *layers) flagValues(flags map[string]string) map[string]any {
	keys := settable(reflect.ValueOf(Config{}))
	out := make(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		leaf, ok := keys[name]
		if !ok {
			p := Problem{File: inFlags, Path: name, Message: "unknown key"}
			if near := spelling.Nearest(name, slices.Sorted(maps.Keys(keys))); near != "" {
				p.Hint = "did you mean " + near + "?"
			}
			l.problems = append(l.problems, p)
			continue
		}
		if path, value := l.setLeaf(name, leaf, flags[name], origin{file: inFlags, name: name}); path != "" {
			out[path] = value
		}
	}
	return out
}

// setLeaf reads the text that a layer above the file gives a key.
func (l *layers) setLeaf(path string, leaf leaf, text string, from origin) (string, any) {
	for p := range l.origins {
		if strings.HasPrefix(p, path+"[") { // The items of a list in the file, which is replaced as a whole.
			delete(l.origins, p)
		}
	}
	l.origins[path] = from
	v := reflect.New(leaf.field.typ).Elem()
	if err := setText(v, leaf.field, text); err != nil {
		l.problem(path, err.Error(), enumHint(leaf.field, text))
		return "", nil
	}
	return path, v.Interface()
}

// fillTopic gives an entry of topics the defaults of the keys it does not set, and expands its names. What is broken stays as it is.
func (l *layers) fillTopic(i int) {
	t, d, base := &l.config.Topics[i], defaultTopic(), topicPath(i)
	unset := func(key string) bool {
		_, ok := l.origins[base+"."+key]
		return !ok
	}
	fill := func(key string, value, def *string) {
		if unset(key) {
			*value = *def
		}
	}
	fill("names.inbox", &t.Names.Inbox, &d.Names.Inbox)
	fill("names.tier", &t.Names.Tier, &d.Names.Tier)
	fill("names.deadLetters", &t.Names.DeadLetters, &d.Names.DeadLetters)
	fill("names.replayTrigger", &t.Names.ReplayTrigger, &d.Names.ReplayTrigger)
	fill("partitioner", &t.Partitioner, &d.Partitioner)
	if unset("maxDeliveries") {
		t.MaxDeliveries = d.MaxDeliveries
	}
	if unset("ordering") {
		t.Ordering = d.Ordering
	}
	if unset("tiers") {
		t.Tiers = d.Tiers
	}
	if unset("replayTo") {
		t.ReplayTo = d.ReplayTo
	}
	if unset("replyTo") {
		t.ReplyTo = d.ReplyTo
	}
	var longest Duration
	for j := range t.Tiers {
		tier, path := &t.Tiers[j], fmt.Sprintf("%s.tiers[%d]", base, j)
		if tier.Name == "" {
			tier.Name = tier.Delay.String()
			delete(l.origins, path+".name")
		}
		if tier.Topic == "" {
			tier.Topic = t.Names.Tier
			delete(l.origins, path+".topic")
		}
		longest = max(longest, tier.Delay+tier.Jitter)
	}
	if unset("maxAttempts") {
		t.MaxAttempts = len(t.Tiers) + 1
	}
	if unset("maxDelay") {
		t.MaxDelay = longest
	}
	if unset("maxHeldBytesPerPartition") {
		t.MaxHeldBytesPerPartition = l.config.Forwarder.MaxHeldBytesPerPartition
	}
}

func topicPath(i int) string { return fmt.Sprintf("topics[%d]", i) }
