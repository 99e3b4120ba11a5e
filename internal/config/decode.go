package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/kafka-redrive/redrive/internal/spelling"
)

const (
	// maxFileBytes bounds a file: thousands of topics fit, and a wrong file (a core dump, a log) is refused at once.
	maxFileBytes = 1 << 20
	// maxNesting bounds brackets within brackets: the parser's time grows with the square of the depth. The format needs 5.
	maxNesting = 32
	// maxValues bounds what aliases can blow a small file up to. A thousand topics with all their keys are a tenth of it.
	maxValues = 1 << 18
)

// position is a place in the file, counted from 1.
type position struct{ line, column int }

// file is what the file says: the values it sets, and where.
type file struct {
	name     string
	config   Config              // Only the keys that the file sets.
	at       map[string]position // Every key and list item that the file sets, by path: the value, or of a section its key.
	problems []Problem
	usable   bool // The file as a whole could be read: it is a mapping.

	anchors map[string]ast.Node
	active  map[string]bool // The aliases being followed, against cycles.
	values  int
}

// decode reads the bytes of a file. What it can not read it reports and leaves out.
func decode(name string, data []byte) *file {
	f := newFile(name)
	root := f.parse(data)
	if root == nil {
		return f
	}
	ast.Walk(anchorVisitor{f}, root)
	f.section(root, reflect.ValueOf(&f.config).Elem(), "")
	return f
}

func newFile(name string) *file {
	return &file{name: name, at: make(map[string]position), anchors: make(map[string]ast.Node), active: make(map[string]bool)}
}

func (f *file) problem(at position, path, message, hint string) {
	f.problems = append(f.problems, Problem{File: f.name, Line: at.line, Column: at.column, Path: path, Message: message, Hint: hint})
}

// parse returns the one document of the file, or nil if there is a problem with the file as a whole.
func (f *file) parse(data []byte) ast.Node {
	start := position{1, 1}
	if len(data) > maxFileBytes {
		f.problem(start, "", fmt.Sprintf("the file is larger than %s", Bytes(maxFileBytes)), "")
		return nil
	}
	text := strings.TrimPrefix(string(data), "\ufeff") // Some editors put a byte order mark before the first key.
	if at, ok := firstUnreadable(text); ok {
		f.problem(at, "", "not YAML: a byte here is neither text in UTF-8 nor white space", "")
		return nil
	}
	tokens := lexer.Tokenize(text)
	if at, ok := tooDeep(tokens); ok {
		f.problem(at, "", fmt.Sprintf("more than %d levels of nesting", maxNesting), "")
		return nil
	}
	parsed, err := parseTokens(joinAddresses(tokens))
	if err != nil {
		at, message := start, "not YAML"
		if syntax, ok := errors.AsType[yaml.Error](err); ok {
			// Only the message: the error's own text quotes the lines around it, which may hold a secret.
			message += ": " + syntax.GetMessage()
			at = tokenPosition(syntax.GetToken())
		}
		f.problem(at, "", message, "")
		return nil
	}
	var root ast.Node
	for _, doc := range parsed.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.DirectiveType || doc.Body.Type() == ast.CommentType:
		case root != nil:
			f.problem(nodePosition(doc.Body), "", "a second YAML document", "one file holds one configuration")
			return nil
		default:
			root = doc.Body
		}
	}
	if root == nil {
		f.problem(start, "", "the file is empty", "kafka.brokers and one topics entry with an origin are enough")
	}
	return root
}

// joinAddresses puts together what the lexer takes apart. In a list within braces, as in {brokers: [localhost:9092]}, it reads the colon
// as that of a mapping, where YAML has one plain scalar, since no space follows the colon.
func joinAddresses(tokens token.Tokens) token.Tokens {
	var out token.Tokens
	var brackets []token.Type
	for _, tk := range tokens {
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets = append(brackets, tk.Type)
		case token.SequenceEndType, token.MappingEndType:
			brackets = brackets[:max(len(brackets)-1, 0)]
		default:
		}
		inList := len(brackets) > 0 && brackets[len(brackets)-1] == token.SequenceStartType
		if n := len(out); inList && n >= 2 && out[n-1].Type == token.MappingValueType && adjacent(out[n-2], out[n-1]) && adjacent(out[n-1], tk) {
			whole := out[n-2].Clone()
			whole.Type = token.StringType
			whole.Value += ":" + tk.Value
			whole.Origin += ":" + tk.Value
			out = out[:n-2]
			tk = whole
		}
		out.Add(tk)
	}
	return out
}

// adjacent tells whether nothing is between two tokens of one line, of which the scalars are plain.
func adjacent(left, right *token.Token) bool {
	for _, tk := range []*token.Token{left, right} {
		if tk.Type != token.MappingValueType && (tk.CharacterType != token.CharacterTypeMiscellaneous || tk.Indicator != token.NotIndicator) {
			return false
		}
	}
	from, to := tokenPosition(left), tokenPosition(right)
	return from.line == to.line && from.column+utf8.RuneCountInString(left.Value) == to.column
}

// parseTokens parses, and makes a panic of the parser an error: a file must never end the process without saying why.
func parseTokens(tokens token.Tokens) (parsed *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("the parser gave up")
		}
	}()
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// firstUnreadable finds the first byte that no YAML text holds.
func firstUnreadable(text string) (position, bool) {
	at := position{1, 1}
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"),
			r < ' ' && r != '\n' && r != '\r' && r != '\t', r == 0x7f, r == 0xfeff:
			return at, true
		case r == '\n':
			at = position{at.line + 1, 1}
		default:
			at.column++
		}
	}
	return at, false
}

// tooDeep finds the first token nested deeper than maxNesting in brackets or in list dashes of one line.
func tooDeep(tokens token.Tokens) (position, bool) {
	brackets, dashes, line := 0, 0, 0
	for _, tk := range tokens {
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			if at := tokenPosition(tk); at.line != line {
				dashes, line = 0, at.line
			}
			dashes++
		default:
		}
		if brackets > maxNesting || dashes > maxNesting {
			return tokenPosition(tk), true
		}
	}
	return position{}, false
}

// anchorVisitor notes every anchor of the file, also those under keys that are unknown.
type anchorVisitor struct{ f *file }

// Visit is called for each node in the order of the file.
func (v anchorVisitor) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		name := anchor.Name.GetToken().Value
		if _, ok := v.f.anchors[name]; ok {
			v.f.problem(nodePosition(anchor), "", fmt.Sprintf("a second anchor &%s", name), "use another name")
		}
		v.f.anchors[name] = anchor.Value
	}
	return v
}

// follow passes n's content to use: through anchors and aliases, and not at all if it can not be read.
func (f *file) follow(n ast.Node, path string, use func(ast.Node)) {
	if n == nil {
		f.problem(position{1, 1}, path, "has no value", "")
		return
	}
	f.values++
	if f.values > maxValues {
		f.usable = false
		if f.values == maxValues+1 {
			f.problem(nodePosition(n), path, fmt.Sprintf("more than %d values, aliases counted each time", maxValues), "")
		}
		return
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		f.follow(n.Value, path, use)
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		target, ok := f.anchors[name]
		switch {
		case !ok || target == nil:
			f.problem(nodePosition(n), path, fmt.Sprintf("no anchor &%s in this file", name), "")
		case f.active[name]:
			f.problem(nodePosition(n), path, fmt.Sprintf("the anchor &%s contains itself", name), "")
		default:
			f.active[name] = true
			f.follow(target, path, use)
			delete(f.active, name)
		}
	case *ast.TagNode:
		f.problem(nodePosition(n), path, "YAML tags are not supported", "write the value without "+n.Start.Value)
	default:
		use(n)
	}
}

// section reads a mapping into v, a struct.
func (f *file) section(n ast.Node, v reflect.Value, path string) {
	f.follow(n, path, func(n ast.Node) {
		entries, ok := n.(ast.MapNode)
		if !ok {
			f.wrongType(n, path, "a mapping of keys")
			return
		}
		f.usable = true // Nothing else is read before the root.
		f.entries(entries, v, path, nil)
		for _, fd := range fields(v.Type()) {
			if _, ok := f.at[join(path, fd.name)]; fd.required && !ok {
				f.problem(nodePosition(n), join(path, fd.name), "is missing", "")
			}
		}
	})
}

// entries reads the keys of one mapping. Keys in taken were set by a mapping that merges this one in, and win silently; below nil a
// repeated key is a problem.
func (f *file) entries(n ast.MapNode, v reflect.Value, path string, taken map[string]bool) {
	known := fields(v.Type())
	seen := make(map[string]position)
	var merges []ast.Node
	for it := n.MapRange(); it.Next(); {
		entry := it.KeyValue()
		at := nodePosition(entry.Key)
		if entry.Key.Type() == ast.MergeKeyType {
			merges = append(merges, entry.Value)
			continue
		}
		name, ok := keyName(entry.Key)
		if !ok {
			f.problem(at, path, "a key that is not a name", "")
			continue
		}
		if first, ok := seen[name]; ok {
			f.problem(at, join(path, name), "duplicate key", fmt.Sprintf("first set in line %d", first.line))
			continue
		}
		seen[name] = at
		if taken[name] {
			continue
		}
		fd, ok := findField(known, name)
		if !ok {
			f.problem(at, join(path, name), "unknown key", unknownKeyHint(name, known))
			continue
		}
		f.at[join(path, name)] = at
		f.value(entry.Value, v.Field(fd.index), fd, join(path, name))
	}
	for name := range taken {
		seen[name] = position{}
	}
	for _, merge := range merges {
		f.merge(merge, v, path, seen)
	}
}

// merge reads the mapping, or each mapping of the list, that a << key names.
func (f *file) merge(n ast.Node, v reflect.Value, path string, seen map[string]position) {
	taken := make(map[string]bool, len(seen))
	for name := range seen {
		taken[name] = true
	}
	f.follow(n, path, func(n ast.Node) {
		switch n := n.(type) {
		case ast.MapNode:
			f.entries(n, v, path, taken)
			for it := n.MapRange(); it.Next(); {
				if name, ok := keyName(it.Key()); ok {
					seen[name] = nodePosition(it.Key())
				}
			}
		case *ast.SequenceNode:
			for _, item := range n.Values {
				f.merge(item, v, path, seen)
			}
		default:
			f.wrongType(n, path, "a mapping to merge")
		}
	})
}

// value reads one value into v by its type.
func (f *file) value(n ast.Node, v reflect.Value, fd field, path string) {
	switch {
	case v.Type() == reflect.TypeFor[Tier]():
		f.tier(n, v, path)
	case isSection(v.Type()):
		f.section(n, v, path)
	case v.Kind() == reflect.Slice:
		f.list(n, v, fd, path)
	default:
		f.follow(n, path, func(n ast.Node) { f.scalar(n, v, fd, path) })
	}
}

// list reads a sequence. Every item is kept, with its zero value if it can not be read, so that the indexes stay those of the file.
func (f *file) list(n ast.Node, v reflect.Value, fd field, path string) {
	f.follow(n, path, func(n ast.Node) {
		items, ok := n.(*ast.SequenceNode)
		if !ok {
			f.wrongType(n, path, "a list")
			return
		}
		if len(items.Values) == 0 && fd.nonEmpty {
			f.problem(nodePosition(n), path, "is an empty list", "")
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(items.Values), len(items.Values)))
		for i, item := range items.Values {
			itemPath := path + "[" + strconv.Itoa(i) + "]"
			f.at[itemPath] = nodePosition(item)
			f.value(item, v.Index(i), field{typ: v.Type().Elem()}, itemPath)
		}
	})
}

// tier reads an entry of a ladder: its delay alone, or a mapping.
func (f *file) tier(n ast.Node, v reflect.Value, path string) {
	f.follow(n, path, func(n ast.Node) {
		if _, ok := n.(ast.MapNode); ok {
			f.section(n, v, path)
			return
		}
		if _, ok := n.(ast.ScalarNode); !ok || n.Type() == ast.NullType {
			f.wrongType(n, path, "a duration or a mapping with a delay")
			return
		}
		delay := v.FieldByName("Delay")
		f.scalar(n, delay, field{typ: delay.Type()}, path)
	})
}

// scalar reads a value without parts.
func (f *file) scalar(n ast.Node, v reflect.Value, fd field, path string) {
	text, ok := scalarText(n, v)
	if !ok {
		f.wrongType(n, path, expectation(v.Type()))
		return
	}
	f.at[path] = nodePosition(n)
	if err := setText(v, fd, text); err != nil {
		f.problem(nodePosition(n), path, err.Error(), enumHint(fd, text))
	}
}

// scalarText gives the text of a scalar of the kind that v takes. Kinds are not converted into each other: what YAML takes for a
// number or a boolean may not be what was meant (version: 1.10), so text must look like text.
func scalarText(n ast.Node, v reflect.Value) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, v.Kind() == reflect.String || isText(v.Type())
	case *ast.LiteralNode:
		return n.Value.Value, v.Kind() == reflect.String
	case *ast.IntegerNode:
		return n.GetToken().Value, v.Kind() != reflect.String && v.Kind() != reflect.Bool
	case *ast.FloatNode:
		return n.GetToken().Value, v.Kind() == reflect.Float64 || v.Kind() != reflect.String && isText(v.Type())
	case *ast.BoolNode:
		return n.GetToken().Value, v.Kind() == reflect.Bool
	default:
		return "", false
	}
}

// setText reads text into v, a value without parts or a list of text. The error does not name the path.
func setText(v reflect.Value, fd field, text string) error {
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		if len(fd.enum) > 0 && !slices.Contains(fd.enum, text) {
			return fmt.Errorf("%q is none of %s", text, strings.Join(fd.enum, ", "))
		}
		v.SetString(text)
	case reflect.Bool:
		switch text {
		case "true", "false":
			v.SetBool(text == "true")
		default:
			return fmt.Errorf("%q is neither true nor false", text)
		}
	case reflect.Int:
		number, err := strconv.ParseInt(text, 10, 32)
		if err != nil || text[0] == '+' || len(text) > 1 && text[0] == '0' {
			return fmt.Errorf("%q is not a whole number", text)
		}
		if number < int64(fd.least) {
			return fmt.Errorf("must be at least %d", fd.least)
		}
		v.SetInt(number)
	case reflect.Float64:
		number, err := parseNumber(text)
		if err != nil {
			return err
		}
		v.SetFloat(number)
	case reflect.Slice:
		return setList(v, text)
	default:
		panic("no way to read a " + v.Type().String())
	}
	return nil
}

// parseNumber reads a number that is not negative, with or without a fraction. It takes no form that YAML and JSON read differently, or
// not at all: hexadecimal, with underscores, infinite.
func parseNumber(text string) (float64, error) {
	if strings.HasPrefix(text, "-") {
		return 0, errors.New("must not be negative")
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || text[0] == '+' || strings.Trim(strings.ToLower(text), "0123456789.e+-") != "" {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	return number, nil
}

// setList reads items separated by commas into v. Empty text is an empty list.
func setList(v reflect.Value, text string) error {
	var items []string
	if strings.TrimSpace(text) != "" {
		items = strings.Split(text, ",")
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		if err := setText(v.Index(i), field{typ: v.Type().Elem()}, strings.TrimSpace(item)); err != nil {
			return err
		}
	}
	return nil
}

// wrongType reports a value of the wrong kind. It never shows the value, which may be a secret.
func (f *file) wrongType(n ast.Node, path, want string) {
	hint := ""
	switch n.Type() {
	case ast.NullType:
		hint = "remove the key for its default"
		if strings.HasSuffix(path, "]") {
			hint = ""
		}
		f.problem(nodePosition(n), path, "has no value; "+want+" is expected", hint)
		return
	case ast.IntegerType, ast.FloatType, ast.BoolType, ast.InfinityType, ast.NanType:
		if want == expectation(reflect.TypeFor[string]()) {
			hint = "put it in quotes"
		}
	case ast.StringType:
		if want == "a list" {
			hint = "put it in brackets"
		}
	default:
	}
	f.problem(nodePosition(n), path, fmt.Sprintf("must be %s, not %s", want, kindName(n)), hint)
}

func expectation(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Duration]():
		return "a duration"
	case t == reflect.TypeFor[Bytes]():
		return "a number of bytes"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	default:
		return "text"
	}
}

func kindName(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a mapping"
	case ast.SequenceType:
		return "a list"
	case ast.IntegerType:
		return "a number"
	case ast.FloatType:
		return "a decimal number"
	case ast.InfinityType:
		return "infinity"
	case ast.NanType:
		return "NaN"
	case ast.BoolType:
		return "true or false"
	case ast.StringType, ast.LiteralType:
		return "text"
	default:
		return "this"
	}
}

// keyName is the text of a key written as a plain or quoted name.
func keyName(key ast.MapKeyNode) (string, bool) {
	switch n := ast.Node(key).(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	case *ast.MappingKeyNode:
		if inner, ok := n.Value.(ast.MapKeyNode); ok {
			return keyName(inner)
		}
	}
	return "", false
}

func findField(known []field, name string) (field, bool) {
	for _, fd := range known {
		if fd.name == name {
			return fd, true
		}
	}
	return field{}, false
}

// unknownKeyHint names the nearest key of the section, else the section where a key of this name lives, else all the section's keys.
func unknownKeyHint(name string, known []field) string {
	names := make([]string, len(known))
	for i, fd := range known {
		names[i] = fd.name
	}
	if near := spelling.Nearest(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	for _, k := range allKeys() {
		if k.field.name == name {
			return "did you mean " + k.path + "?"
		}
	}
	return "known here: " + strings.Join(names, ", ")
}

// enumHint names the nearest value of an enumeration.
func enumHint(fd field, text string) string {
	if near := spelling.Nearest(text, fd.enum); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// nodePosition is where a reader sees the node start.
func nodePosition(n ast.Node) position {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return nodePosition(n.Values[0])
		}
	case *ast.MappingValueNode:
		return nodePosition(n.Key)
	case *ast.LiteralNode:
		return tokenPosition(n.Start)
	}
	return tokenPosition(n.GetToken())
}

// tokenPosition is where the token starts; a token without a place, which the parser makes up for what is not there, starts the file.
func tokenPosition(tk *token.Token) position {
	if tk == nil || tk.Position == nil {
		return position{1, 1}
	}
	return position{max(tk.Position.Line, 1), max(tk.Position.Column, 1)}
}
