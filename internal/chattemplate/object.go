package chattemplate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strings"
)

// Object is a map from strings that remembers the order in which its keys were
// first set, because the order of a tool's fields is part of the prompt. The
// zero Object is empty and ready. It is safe for concurrent reading only.
type Object struct {
	keys   []string
	values map[string]any
}

// NewObject makes an Object from alternating keys and values. It panics where
// a key is no string or the last value is missing: both are typing mistakes in
// the caller's source, never data.
func NewObject(pairs ...any) *Object {
	o := &Object{}
	for i := 0; i < len(pairs); i += 2 {
		o.Set(pairs[i].(string), pairs[i+1])
	}
	return o
}

// Set stores value under key; a key already there keeps its place.
func (o *Object) Set(key string, value any) {
	if o.values == nil {
		o.values = make(map[string]any)
	}
	if _, ok := o.values[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.values[key] = value
}

// Get returns the value under key and whether there is one.
func (o *Object) Get(key string) (any, bool) {
	if o == nil {
		return nil, false
	}
	v, ok := o.values[key]
	return v, ok
}

// Len returns the number of keys.
func (o *Object) Len() int {
	if o == nil {
		return 0
	}
	return len(o.keys)
}

// All yields the pairs in order.
func (o *Object) All() func(yield func(string, any) bool) {
	return func(yield func(string, any) bool) {
		if o == nil {
			return
		}
		for _, k := range o.keys {
			if !yield(k, o.values[k]) {
				return
			}
		}
	}
}

// Trusted is a string that comes from the model's own files (its BOS and EOS
// text), so that special tokens in it stay special. See [Template.RenderSpans].
type Trusted string

// maxDecodeDepth bounds the nesting of JSON; deeper data is no chat.
const maxDecodeDepth = 200

// maxIntDigits is CPython's own bound on the conversion of text to integers.
const maxIntDigits = 4300

// Decode reads one JSON value. Objects become *[Object] in the order of their
// keys, arrays []any, integers int64 (or *[big.Int] beyond its range), other
// numbers float64, and null nil: the distinctions that Python's json makes and
// that templates print. Trailing data, nesting beyond 200 levels and integers
// beyond 4300 digits are errors.
func Decode(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return nil, fmt.Errorf("chattemplate: JSON near byte %d: %w", d.InputOffset(), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("chattemplate: JSON near byte %d: more data after the value", d.InputOffset())
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDecodeDepth {
		return nil, &LimitError{What: "nesting", Limit: maxDecodeDepth}
	}
	t, err := d.Token()
	if errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			return decodeArray(d, depth)
		}
		return decodeObject(d, depth)
	case json.Number:
		return decodeNumber(t.String())
	default:
		return t, nil // string, bool, nil
	}
}

func decodeArray(d *json.Decoder, depth int) (any, error) {
	items := []any{}
	for d.More() {
		v, err := decodeValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	_, err := d.Token()
	return items, err
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	o := &Object{}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := decodeValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		o.Set(k.(string), v) // the decoder admits only strings here
	}
	_, err := d.Token()
	return o, err
}

func decodeNumber(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := json.Number(s).Float64()
		if err != nil && !math.IsInf(f, 0) {
			return nil, err
		}
		return f, nil // out of range is infinite, as in Python
	}
	if i, err := json.Number(s).Int64(); err == nil {
		return i, nil
	}
	if len(s) > maxIntDigits {
		return nil, &LimitError{What: "digits in an integer", Limit: maxIntDigits}
	}
	b, _ := new(big.Int).SetString(s, 10) // the decoder has checked the digits
	return b, nil
}
