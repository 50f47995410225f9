package minfer

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Generate asks a model for a value: it says the prompt and has the answer be the JSON of a T, as
// SchemaOf describes it. c is a *Chat, or a *Session for a raw prompt.
//
// What the members of a T are called is all that the model is told unasked. A prompt that says what is
// wanted gets better answers than one that leaves it to the form.
//
// An answer that ended before the JSON did is an *IncompleteError; MaxTokens and the context can
// cause that.
func Generate[T any](ctx context.Context, c Conversation, prompt string, opts ...GenerateOption) (T, error) {
	var none T
	if c == nil {
		return none, ErrClosed
	}
	schema, err := SchemaOf[T]()
	if err != nil {
		return none, err
	}
	var text strings.Builder
	finish := NotFinished
	for p, err := range c.ask(ctx, prompt, append(opts[:len(opts):len(opts)], WithJSONSchema(schema))) {
		if err != nil {
			return none, err
		}
		text.WriteString(p.Text)
		finish = p.Finish
	}
	if finish != FinishedTurn && finish != FinishedGrammar {
		return none, &IncompleteError{Text: text.String(), Finish: finish}
	}
	v, err := decodeStrictly[T]([]byte(text.String()))
	if err != nil {
		return none, fmt.Errorf("minfer: the answer %q: %w", text.String(), err)
	}
	return v, nil
}

// Conversation is what Generate can ask: a *Chat or a *Session.
type Conversation interface {
	ask(ctx context.Context, prompt string, opts []GenerateOption) iter.Seq2[Piece, error]
}

func (c *Chat) ask(ctx context.Context, prompt string, opts []GenerateOption) iter.Seq2[Piece, error] {
	return c.Say(ctx, prompt, opts...)
}

func (s *Session) ask(ctx context.Context, prompt string, opts []GenerateOption) iter.Seq2[Piece, error] {
	return s.Generate(ctx, prompt, opts...)
}

// ErrIncomplete: an answer ended before it had the form that was asked for; an *IncompleteError.
var ErrIncomplete = errors.New("minfer: the answer is incomplete")

// IncompleteError holds the beginning of an answer and says what ended it.
type IncompleteError struct {
	Text   string
	Finish FinishReason
}

// Error says what ended the answer, and where.
func (e *IncompleteError) Error() string {
	return fmt.Sprintf("minfer: the answer is incomplete: it ended for %q after %d bytes", e.Finish, len(e.Text))
}

// Unwrap returns ErrIncomplete.
func (e *IncompleteError) Unwrap() error { return ErrIncomplete }

// decodeStrictly reads JSON that has nothing but what a T has.
func decodeStrictly[T any](text []byte) (T, error) {
	var v T
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("more follows the value")
	}
	return v, nil
}

// JSONSchemer is a type that has a JSON schema of its own for SchemaOf. It is how a type says that
// it is an enumeration, or what its UnmarshalJSON accepts.
type JSONSchemer interface {
	JSONSchema() json.RawMessage
}

// ErrType: a type that SchemaOf cannot describe; a *TypeError.
var ErrType = errors.New("minfer: type has no JSON schema")

// TypeError says which part of a type SchemaOf cannot describe, and why.
type TypeError struct {
	Path   string // such as "Person.Friends[].Age"
	Type   reflect.Type
	Reason string
}

// Error returns the path, the type and the reason.
func (e *TypeError) Error() string {
	return fmt.Sprintf("minfer: %s (%v) has no JSON schema: %s", e.Path, e.Type, e.Reason)
}

// Unwrap returns ErrType.
func (e *TypeError) Unwrap() error { return ErrType }

// SchemaOf describes the JSON of a type by a JSON schema (2020-12) that WithJSONSchema holds to, and
// that package encoding/json decodes into the type.
//
// It knows booleans, numbers, strings, structs, slices, arrays, maps with strings as keys, time.Time,
// json.Number, json.RawMessage (any JSON) and every JSONSchemer. Members of structs have the names of their json
// tags, in the order of the fields, and are required unless they are pointers or omitempty. Types
// may contain themselves. These tags of a field say more, as the keywords of JSON Schema do:
//
//	description:"where the city is"
//	enum:"red,green,blue"                      of strings or numbers; for a slice, of its elements
//	minimum:"0" maximum:"150"
//	minLength:"1" maxLength:"40" pattern:"^[a-z]+$" format:"email"
//	minItems:"1" maxItems:"5"
//
// Everything else is a *TypeError.
func SchemaOf[T any]() (json.RawMessage, error) {
	t := reflect.TypeFor[T]()
	d := describer{open: map[reflect.Type]bool{}, names: map[reflect.Type]string{}}
	root, err := d.describe(t, typeName(t))
	if err != nil {
		return nil, err
	}
	if len(d.definitions) > 0 {
		root = append(root, member{"$defs", d.definitions})
	}
	return marshal(root), nil
}

func typeName(t reflect.Type) string {
	if name := t.Name(); name != "" {
		return name
	}
	return "value"
}

// object is a JSON object whose members stay in order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the members.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, marshal(m.name)...), ':'), marshal(m.value)...)
	}
	return append(b, '}'), nil
}

// describer describes one type and those within it.
type describer struct {
	open        map[reflect.Type]bool   // structs being described
	names       map[reflect.Type]string // of structs that contain themselves, in $defs
	definitions object
}

var (
	schemerType         = reflect.TypeFor[JSONSchemer]()
	unmarshalerType     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	timeType            = reflect.TypeFor[time.Time]()
	numberType          = reflect.TypeFor[json.Number]()
	rawType             = reflect.TypeFor[json.RawMessage]()
)

func (d *describer) describe(t reflect.Type, path string) (object, error) {
	fail := func(reason string) (object, error) { return nil, &TypeError{path, t, reason} }
	if has(t, schemerType) {
		return ownSchema(t, path)
	}
	switch {
	case t == timeType:
		return object{{"type", "string"}, {"format", "date-time"}}, nil
	case t == numberType:
		return object{{"type", "number"}}, nil
	case t == rawType:
		return object{}, nil
	case t.Kind() != reflect.Pointer && (has(t, unmarshalerType) || has(t, textUnmarshalerType)):
		return fail("it decodes itself; a method JSONSchema could say from what")
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{{"type", "boolean"}}, nil
	case reflect.String:
		return object{{"type", "string"}}, nil
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int:
		return integer(t.Bits(), true), nil
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint:
		return integer(t.Bits(), false), nil
	case reflect.Int64:
		return object{{"type", "integer"}}, nil
	case reflect.Uint64:
		return object{{"type", "integer"}, {"minimum", 0}}, nil
	case reflect.Float32:
		return object{{"type", "number"}, {"minimum", -1e38}, {"maximum", 1e38}}, nil
	case reflect.Float64:
		return object{{"type", "number"}}, nil
	case reflect.Pointer:
		return d.describe(t.Elem(), path)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return fail("bytes are base64 in JSON, which models do not write")
		}
		items, err := d.describe(t.Elem(), path+"[]")
		return object{{"type", "array"}, {"items", items}}, err
	case reflect.Array:
		items, err := d.describe(t.Elem(), path+"[]")
		return object{{"type", "array"}, {"items", items}, {"minItems", t.Len()}, {"maxItems", t.Len()}}, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String || has(t.Key(), textUnmarshalerType) {
			return fail("keys of maps have to be strings")
		}
		values, err := d.describe(t.Elem(), path+"{}")
		return object{{"type", "object"}, {"additionalProperties", values}}, err
	case reflect.Struct:
		return d.describeStruct(t, path)
	}
	return fail("no JSON can be decoded into it")
}

// has reports whether a type or a pointer to it has an interface's methods.
func has(t, methods reflect.Type) bool {
	return t.Kind() != reflect.Interface && (t.Implements(methods) || reflect.PointerTo(t).Implements(methods))
}

// integer describes integers with bits bits. Those with 64 have room for all that is generated.
func integer(bits int, signed bool) object {
	o := object{{"type", "integer"}}
	switch {
	case signed && bits < 64:
		return append(o, member{"minimum", int64(-1) << (bits - 1)}, member{"maximum", int64(1)<<(bits-1) - 1})
	case !signed && bits < 64:
		return append(o, member{"minimum", 0}, member{"maximum", uint64(1)<<bits - 1})
	case !signed:
		return append(o, member{"minimum", 0})
	}
	return o
}

func ownSchema(t reflect.Type, path string) (object, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem() // of which a value can be made
	}
	schema := reflect.New(t).Interface().(JSONSchemer).JSONSchema()
	members := json.NewDecoder(bytes.NewReader(schema))
	if start, err := members.Token(); err != nil || start != json.Delim('{') || !json.Valid(schema) {
		return nil, &TypeError{path, t, "its own is no JSON object"}
	}
	var o object
	for members.More() {
		name, err := members.Token()
		if err != nil {
			return nil, &TypeError{path, t, err.Error()}
		}
		var value json.RawMessage
		if err := members.Decode(&value); err != nil {
			return nil, &TypeError{path, t, err.Error()}
		}
		o = append(o, member{fmt.Sprint(name), value})
	}
	return o, nil
}

// describeStruct describes a struct where it is, or refers to it if it contains itself.
func (d *describer) describeStruct(t reflect.Type, path string) (object, error) {
	if d.open[t] && d.names[t] == "" {
		d.names[t] = "type" + strconv.Itoa(len(d.names)+1)
	}
	if name := d.names[t]; name != "" {
		return object{{"$ref", "#/$defs/" + name}}, nil
	}
	d.open[t] = true
	defer delete(d.open, t)
	var properties object
	required := []string{}
	if err := d.addFields(t, path, &properties, &required); err != nil {
		return nil, err
	}
	o := object{{"type", "object"}, {"properties", properties}}
	if len(required) > 0 {
		o = append(o, member{"required", required})
	}
	if name := d.names[t]; name != "" {
		d.definitions = append(d.definitions, member{name, o})
		return object{{"$ref", "#/$defs/" + name}}, nil
	}
	return o, nil
}

func (d *describer) addFields(t reflect.Type, path string, properties *object, required *[]string) error {
	for i := range t.NumField() {
		f := t.Field(i)
		at := path + "." + f.Name
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct && f.Type != timeType && !has(f.Type, schemerType) {
			// The fields of an embedded struct are its own.
			if err := d.addFields(f.Type, at, properties, required); err != nil {
				return err
			}
			continue
		}
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Pointer {
			return &TypeError{at, f.Type, "pointers cannot be embedded; give the field a name"}
		}
		if !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		for _, p := range *properties {
			if p.name == name {
				return &TypeError{at, f.Type, fmt.Sprintf("another field is called %q, too", name)}
			}
		}
		optional := f.Type.Kind() == reflect.Pointer
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "omitempty", "omitzero":
				optional = true
			case "string":
				return &TypeError{at, f.Type, "the option string of json tags is not supported"}
			}
		}
		o, err := d.describe(f.Type, at)
		if err != nil {
			return err
		}
		if o, err = addTags(o, f, at); err != nil {
			return err
		}
		*properties = append(*properties, member{name, o})
		if !optional {
			*required = append(*required, name)
		}
	}
	return nil
}

// addTags adds what the tags of a field say to its schema.
func addTags(o object, f reflect.StructField, path string) (object, error) {
	kind := f.Type
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	for _, key := range [...]string{"description", "pattern", "format"} {
		if text, ok := f.Tag.Lookup(key); ok {
			o = o.with(key, text)
		}
	}
	for _, key := range [...]string{"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"} {
		text, ok := f.Tag.Lookup(key)
		if !ok {
			continue
		}
		if _, err := strconv.ParseFloat(text, 64); err != nil || !json.Valid([]byte(text)) {
			return nil, &TypeError{path, f.Type, fmt.Sprintf("the tag %s is %q, want a number", key, text)}
		}
		o = o.with(key, json.RawMessage(text))
	}
	list, ok := f.Tag.Lookup("enum")
	if !ok {
		return o, nil
	}
	if kind.Kind() == reflect.Slice || kind.Kind() == reflect.Array {
		values, err := enumeration(list, kind.Elem(), path)
		for i := range o {
			if o[i].name == "items" {
				o[i].value = object{{"enum", values}}
			}
		}
		return o, err
	}
	values, err := enumeration(list, kind, path)
	return o.with("enum", values), err
}

// with sets a member.
func (o object) with(name string, value any) object {
	for i := range o {
		if o[i].name == name {
			o[i].value = value
			return o
		}
	}
	return append(o, member{name, value})
}

// enumeration reads the values of an enum tag, which have to be values of the type.
func enumeration(list string, t reflect.Type, path string) ([]json.RawMessage, error) {
	var values []json.RawMessage
	for text := range strings.SplitSeq(list, ",") {
		value := json.RawMessage(text)
		if t.Kind() == reflect.String {
			value = marshal(text)
		}
		if err := json.Unmarshal(value, reflect.New(t).Interface()); err != nil {
			return nil, &TypeError{path, t, fmt.Sprintf("%q of the tag enum is none of its values", text)}
		}
		values = append(values, value)
	}
	return values, nil
}
