package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is a JSON document with its objects in order.
type value struct {
	kind    byte // one of "onasbz": object, number, array, string, boolean, null
	text    string
	truth   bool
	keys    []string // of an object
	members []*value // of an object or array
	index   map[string]int
}

// parseDocument reads a JSON document. Its errors are *SchemaError or *LimitError.
func parseDocument(source []byte) (*value, error) {
	if len(source) > maxSource {
		return nil, &LimitError{"bytes of source", maxSource}
	}
	if !utf8.Valid(source) {
		return nil, &SchemaError{Reason: "this is not UTF-8"}
	}
	d := json.NewDecoder(bytes.NewReader(source))
	d.UseNumber()
	v, err := parseValue(d, "", 0)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = &SchemaError{Reason: "something follows the JSON document"}
		}
	}
	return v, err
}

func parseValue(d *json.Decoder, pointer string, depth int) (*value, error) {
	if depth > maxNesting {
		return nil, &LimitError{"levels of nesting", maxNesting}
	}
	token, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, &SchemaError{Pointer: pointer, Reason: "this is not JSON: " + err.Error(), Err: err}
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return parseObject(d, pointer, depth)
		}
		return parseArray(d, pointer, depth)
	case string:
		return &value{kind: 's', text: token}, nil
	case json.Number:
		return &value{kind: 'n', text: token.String()}, nil
	case bool:
		return &value{kind: 'b', truth: token}, nil
	}
	return &value{kind: 'z'}, nil
}

func parseObject(d *json.Decoder, pointer string, depth int) (*value, error) {
	v := &value{kind: 'o', index: make(map[string]int)}
	for d.More() {
		token, err := d.Token()
		key, ok := token.(string)
		if err != nil || !ok {
			return nil, &SchemaError{Pointer: pointer, Reason: "this is not JSON: an object's key is missing"}
		}
		if _, twice := v.index[key]; twice {
			return nil, &SchemaError{Pointer: join(pointer, key), Reason: "the key is there twice"}
		}
		v.index[key] = len(v.keys)
		member, err := parseValue(d, join(pointer, key), depth+1)
		if err != nil {
			return nil, err
		}
		v.keys = append(v.keys, key)
		v.members = append(v.members, member)
	}
	return v, parseEnd(d, pointer)
}

func parseArray(d *json.Decoder, pointer string, depth int) (*value, error) {
	v := &value{kind: 'a'}
	for d.More() {
		member, err := parseValue(d, join(pointer, strconv.Itoa(len(v.members))), depth+1)
		if err != nil {
			return nil, err
		}
		v.members = append(v.members, member)
	}
	return v, parseEnd(d, pointer)
}

func parseEnd(d *json.Decoder, pointer string) error {
	if _, err := d.Token(); err != nil {
		return &SchemaError{Pointer: pointer, Reason: "this is not JSON: " + err.Error(), Err: err}
	}
	return nil
}

// join appends a step to a JSON pointer.
func join(pointer, step string) string {
	return pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step)
}

// get returns a member of an object, or nil.
func (v *value) get(key string) *value {
	if i, ok := v.index[key]; ok {
		return v.members[i]
	}
	return nil
}

// json is the document without space.
func (v *value) json() string {
	var out strings.Builder
	v.write(&out, false)
	return out.String()
}

// canonical is equal for equal values: keys are in order, numbers in one form.
func (v *value) canonical() string {
	var out strings.Builder
	v.write(&out, true)
	return out.String()
}

func (v *value) write(out *strings.Builder, canonical bool) {
	switch v.kind {
	case 'o':
		order := make([]int, len(v.keys))
		for i := range order {
			order[i] = i
		}
		if canonical {
			slices.SortFunc(order, func(a, b int) int { return strings.Compare(v.keys[a], v.keys[b]) })
		}
		out.WriteByte('{')
		for k, i := range order {
			if k > 0 {
				out.WriteByte(',')
			}
			out.WriteString(quote(v.keys[i]))
			out.WriteByte(':')
			v.members[i].write(out, canonical)
		}
		out.WriteByte('}')
	case 'a':
		out.WriteByte('[')
		for i, member := range v.members {
			if i > 0 {
				out.WriteByte(',')
			}
			member.write(out, canonical)
		}
		out.WriteByte(']')
	case 's':
		out.WriteString(quote(v.text))
	case 'n':
		if d, err := parseDecimal(v.text); canonical && err == nil {
			out.WriteString(d.rat().RatString())
		} else {
			out.WriteString(v.text)
		}
	case 'b':
		out.WriteString(strconv.FormatBool(v.truth))
	case 'z':
		out.WriteString("null")
	}
}

// quote writes a JSON string, with the escapes that must be.
func quote(text string) string {
	out := []byte{'"'}
	for _, r := range text {
		if jsonPlain.contains(r) {
			out = utf8.AppendRune(out, r)
		} else {
			out = append(out, jsonEscape(r)...)
		}
	}
	return string(append(out, '"'))
}

// integral reports whether a number is an integer, however it is written.
func (v *value) integral() bool {
	d, err := parseDecimal(v.text)
	return v.kind == 'n' && err == nil && d.part == ""
}
