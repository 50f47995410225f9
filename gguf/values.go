package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/minfer/minfer/internal/mmap"
	"golang.org/x/exp/slices"
)

// Keys lists the metadata keys in file order.
func (f *File) Keys() []string {
	entries := f.parts[0].entries
	keys := make([]string, len(entries))
	for i := range entries {
		keys[i] = entries[i].key
	}
	return keys
}

// Has says whether the file has the key.
func (f *File) Has(key string) bool {
	_, ok := f.parts[0].find(key)
	return ok
}

// KindOf is the kind of the key's value.
func (f *File) KindOf(key string) (ValueKind, bool) {
	e, ok := f.parts[0].find(key)
	if !ok {
		return 0, false
	}
	return e.kind, true
}

// ElemKindOf is the kind of the elements of the key's array; false if the key is
// missing or holds no array.
func (f *File) ElemKindOf(key string) (ValueKind, bool) {
	e, ok := f.parts[0].find(key)
	if !ok || e.kind != KindArray {
		return 0, false
	}
	return e.elem, true
}

// form describes a value for an error.
func (e *entry) form() string {
	if e.kind == KindArray {
		return "array of " + e.elem.String()
	}
	return e.kind.String()
}

// access finds a key whose value fits, and its bytes. From a mapped file the
// bytes are the mapping itself, so they are used only inside use.
func (f *File) access(key, want string, fits func(*entry) bool, use func(*entry, []byte) error) error {
	e, ok := f.parts[0].find(key)
	if !ok {
		return &KeyError{Key: key, Want: want, Err: ErrMissingKey}
	}
	if !fits(e) {
		return &KeyError{Key: key, Want: want, Have: e.form(), Err: ErrWrongKind}
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return &KeyError{Key: key, Want: want, Err: ErrClosed}
	}
	b, err := f.parts[0].extent(e)
	if err != nil {
		return &KeyError{Key: key, Want: want, Err: err}
	}
	err = mmap.Guard(func() error { return use(e, b) })
	if errors.Is(err, ErrFault) {
		return &KeyError{Key: key, Want: want, Err: err}
	}
	return err
}

// extent returns the bytes of a value: a slice of the file where it lies in
// memory, freshly read otherwise.
func (p *part) extent(e *entry) ([]byte, error) {
	if p.r == nil {
		return p.mem[e.off : e.off+e.n], nil
	}
	if e.n > math.MaxInt {
		return nil, fmt.Errorf("%d bytes do not fit in memory: %w", e.n, ErrTooLarge)
	}
	b := make([]byte, e.n) // Open found this many bytes in the file
	return b, p.readAt(b, e.off)
}

func isKind(k ValueKind) func(*entry) bool { return func(e *entry) bool { return e.kind == k } }

func isInteger(e *entry) bool { return e.kind.IsInteger() }

func isFloat(e *entry) bool { return e.kind == KindFloat32 || e.kind == KindFloat64 }

func isArrayOf(fits func(ValueKind) bool) func(*entry) bool {
	return func(e *entry) bool { return e.kind == KindArray && fits(e.elem) }
}

// integer decodes an integer of any kind to its two's complement in 64 bits.
func integer(k ValueKind, b []byte) (v uint64, negative bool) {
	switch k {
	case KindUint8:
		return uint64(b[0]), false
	case KindUint16:
		return uint64(binary.LittleEndian.Uint16(b)), false
	case KindUint32:
		return uint64(binary.LittleEndian.Uint32(b)), false
	case KindUint64:
		return binary.LittleEndian.Uint64(b), false
	}
	var s int64
	switch k {
	case KindInt8:
		s = int64(int8(b[0]))
	case KindInt16:
		s = int64(int16(binary.LittleEndian.Uint16(b)))
	case KindInt32:
		s = int64(int32(binary.LittleEndian.Uint32(b)))
	case KindInt64:
		s = int64(binary.LittleEndian.Uint64(b))
	}
	return uint64(s), s < 0
}

// float decodes a float of either kind.
func float(k ValueKind, b []byte) float64 {
	if k == KindFloat32 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// toInteger converts the result of integer to T; ok is false when it does not fit.
func toInteger[T int | int32 | int64 | uint32 | uint64](v uint64, negative bool) (t T, ok bool) {
	t = T(v)
	return t, uint64(t) == v && (t < 0) == negative
}

// toFloat32 rounds a float64; ok is false when a finite value overflows.
func toFloat32(v float64) (float32, bool) {
	f := float32(v)
	return f, !math.IsInf(float64(f), 0) || math.IsInf(v, 0)
}

func decimal(v uint64, negative bool) string {
	if negative {
		return fmt.Sprint(int64(v))
	}
	return fmt.Sprint(v)
}

func getInteger[T int | int32 | int64 | uint32 | uint64](f *File, key, want string) (value T, err error) {
	err = f.access(key, want, isInteger, func(e *entry, b []byte) error {
		v, negative := integer(e.kind, b)
		var ok bool
		if value, ok = toInteger[T](v, negative); !ok {
			value = 0
			return &KeyError{Key: key, Want: want, Have: e.form() + " " + decimal(v, negative), Err: ErrOutOfRange}
		}
		return nil
	})
	return value, err
}

// Uint32 returns the value of an integer key of any kind that fits a uint32.
// This and all accessors below return a *KeyError: ErrMissingKey, ErrWrongKind,
// ErrOutOfRange, ErrClosed, or what reading the file gave.
func (f *File) Uint32(key string) (uint32, error) { return getInteger[uint32](f, key, "uint32") }

// Uint64 returns the value of an integer key of any kind that is not negative.
func (f *File) Uint64(key string) (uint64, error) { return getInteger[uint64](f, key, "uint64") }

// Int32 returns the value of an integer key of any kind that fits an int32.
func (f *File) Int32(key string) (int32, error) { return getInteger[int32](f, key, "int32") }

// Int64 returns the value of an integer key of any kind that fits an int64.
func (f *File) Int64(key string) (int64, error) { return getInteger[int64](f, key, "int64") }

// Int returns the value of an integer key of any kind that fits this platform's int.
func (f *File) Int(key string) (int, error) { return getInteger[int](f, key, "int") }

// Float64 returns the value of a float32 or float64 key.
func (f *File) Float64(key string) (value float64, err error) {
	err = f.access(key, "float64", isFloat, func(e *entry, b []byte) error {
		value = float(e.kind, b)
		return nil
	})
	return value, err
}

// Float32 returns the value of a float32 key, or of a float64 key rounded.
func (f *File) Float32(key string) (value float32, err error) {
	err = f.access(key, "float32", isFloat, func(e *entry, b []byte) error {
		v := float(e.kind, b)
		var ok bool
		if value, ok = toFloat32(v); !ok {
			value = 0
			return &KeyError{Key: key, Want: "float32", Have: fmt.Sprint(e.form(), " ", v), Err: ErrOutOfRange}
		}
		return nil
	})
	return value, err
}

// Bool returns the value of a bool key.
func (f *File) Bool(key string) (value bool, err error) {
	err = f.access(key, "bool", isKind(KindBool), func(e *entry, b []byte) error {
		value = b[0] != 0
		return nil
	})
	return value, err
}

// String returns the value of a string key. The bytes are as in the file; they
// need not be valid UTF-8.
func (f *File) String(key string) (value string, err error) {
	err = f.access(key, "string", isKind(KindString), func(e *entry, b []byte) error {
		value = string(b)
		return nil
	})
	return value, err
}

// Architecture returns general.architecture, the name under which a model
// definition is registered.
func (f *File) Architecture() (string, error) { return f.String("general.architecture") }

// ArrayLen returns the number of elements of an array key, without reading them.
func (f *File) ArrayLen(key string) (int, error) {
	const want = "array"
	e, ok := f.parts[0].find(key)
	switch {
	case !ok:
		return 0, &KeyError{Key: key, Want: want, Err: ErrMissingKey}
	case e.kind != KindArray:
		return 0, &KeyError{Key: key, Want: want, Have: e.form(), Err: ErrWrongKind}
	case e.count > math.MaxInt:
		return 0, &KeyError{Key: key, Want: want, Have: fmt.Sprintf("%s of length %d", e.form(), e.count), Err: ErrOutOfRange}
	}
	return int(e.count), nil
}

// getArray decodes an array of fixed-size elements one by one.
func getArray[T any](f *File, key, want string, fits func(ValueKind) bool, decode func(ValueKind, []byte) (T, bool)) (values []T, err error) {
	err = f.access(key, want, isArrayOf(fits), func(e *entry, b []byte) error {
		size := kinds[e.elem].size
		values = make([]T, 0, len(b)/size)
		for at := 0; at < len(b); at += size {
			v, ok := decode(e.elem, b[at:at+size])
			if !ok {
				values = nil
				return &KeyError{Key: key, Want: want, Have: fmt.Sprintf("%s, element %d", e.form(), at/size), Err: ErrOutOfRange}
			}
			values = append(values, v)
		}
		return nil
	})
	return values, err
}

func getIntegers[T int | int32 | int64 | uint32 | uint64](f *File, key, want string) ([]T, error) {
	return getArray(f, key, want, ValueKind.IsInteger, func(k ValueKind, b []byte) (T, bool) {
		return toInteger[T](integer(k, b))
	})
}

// Int32s returns an array of integers of any kind, each of which fits an int32.
// It and the accessors below decode anew at each call: keep the result.
func (f *File) Int32s(key string) ([]int32, error) {
	return getIntegers[int32](f, key, "array of int32")
}

// Uint32s returns an array of integers of any kind, each of which fits a uint32.
func (f *File) Uint32s(key string) ([]uint32, error) {
	return getIntegers[uint32](f, key, "array of uint32")
}

// Uints returns an array of integers of any kind, none of them negative.
func (f *File) Uints(key string) ([]uint64, error) {
	return getIntegers[uint64](f, key, "array of uint64")
}

// Ints returns an array of integers of any kind, each of which fits an int.
func (f *File) Ints(key string) ([]int, error) {
	return getIntegers[int](f, key, "array of int")
}

// Float32s returns an array of float32, or of float64 rounded.
func (f *File) Float32s(key string) ([]float32, error) {
	fits := func(k ValueKind) bool { return k == KindFloat32 || k == KindFloat64 }
	return getArray(f, key, "array of float32", fits, func(k ValueKind, b []byte) (float32, bool) {
		return toFloat32(float(k, b))
	})
}

// Bools returns an array of bools.
func (f *File) Bools(key string) ([]bool, error) {
	fits := func(k ValueKind) bool { return k == KindBool }
	return getArray(f, key, "array of bool", fits, func(_ ValueKind, b []byte) (bool, bool) {
		return b[0] != 0, true
	})
}

// Strings returns an array of strings. All of them share one allocation, so
// that a vocabulary does not cost one object per token.
func (f *File) Strings(key string) (values []string, err error) {
	fits := func(k ValueKind) bool { return k == KindString }
	err = f.access(key, "array of string", isArrayOf(fits), func(e *entry, b []byte) error {
		var bad error
		if values, bad = decodeStrings(b, e.count); bad != nil {
			return &KeyError{Key: key, Want: "array of string", Err: bad}
		}
		return nil
	})
	return values, err
}

// decodeStrings decodes count strings. The text behind them is one copy of b,
// lengths included. Open walked the same bytes before, but the file may have
// been written to since, so nothing is taken on trust.
func decodeStrings(b []byte, count uint64) ([]string, error) {
	text := string(b)
	values := make([]string, 0, min(count, uint64(len(b)/8)))
	for range count {
		if len(text) < 8 {
			return nil, ErrChanged
		}
		n := uint64FromText(text)
		text = text[8:]
		if n > uint64(len(text)) {
			return nil, ErrChanged
		}
		values = append(values, text[:n])
		text = text[n:]
	}
	return values, nil
}

// uint64FromText is written out so that it compiles to one load.
func uint64FromText(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// Value decodes a value of any kind, for listings: uint8 ... float64, bool,
// string, or a slice of one of these ([]any for nested arrays). It is false for
// a missing key, and for a file that is closed or can no longer be read.
func (f *File) Value(key string) (any, bool) {
	var value any
	always := func(*entry) bool { return true }
	err := f.access(key, "any value", always, func(e *entry, b []byte) (err error) {
		switch {
		case e.kind == KindString:
			value = string(b)
		case e.kind == KindArray && e.elem == KindString:
			value, err = decodeStrings(b, e.count)
		case e.kind == KindArray && e.elem == KindArray:
			value, err = decodeNested(b, e.count)
		case e.kind == KindArray:
			value, _ = decodeArray(e.elem, e.count, b)
		default:
			value = decodeScalar(e.kind, b)
		}
		return err
	})
	if err != nil {
		return nil, false
	}
	return value, true
}

func decodeScalar(k ValueKind, b []byte) any {
	switch k {
	case KindFloat32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	case KindFloat64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case KindBool:
		return b[0] != 0
	}
	v, _ := integer(k, b)
	switch k {
	case KindUint8:
		return uint8(v)
	case KindInt8:
		return int8(v)
	case KindUint16:
		return uint16(v)
	case KindInt16:
		return int16(v)
	case KindUint32:
		return uint32(v)
	case KindInt32:
		return int32(v)
	case KindInt64:
		return int64(v)
	}
	return v
}

// decodeNested decodes an array of arrays. It walks a private copy once more
// before it trusts the lengths inside: the file may have been written to.
func decodeNested(b []byte, count uint64) (any, error) {
	b = slices.Clone(b)
	c := (&part{mem: b, size: int64(len(b))}).cursor()
	if c.elements(KindArray, count, 1) != nil {
		return nil, ErrChanged
	}
	v, _ := decodeArray(KindArray, count, b)
	return v, nil
}

// decodeArray decodes an array whose lengths are known to be right, and returns
// the bytes behind it.
func decodeArray(elem ValueKind, count uint64, b []byte) (any, []byte) {
	switch elem {
	case KindUint8:
		return decodeSlice[uint8](elem, count, b)
	case KindInt8:
		return decodeSlice[int8](elem, count, b)
	case KindUint16:
		return decodeSlice[uint16](elem, count, b)
	case KindInt16:
		return decodeSlice[int16](elem, count, b)
	case KindUint32:
		return decodeSlice[uint32](elem, count, b)
	case KindInt32:
		return decodeSlice[int32](elem, count, b)
	case KindUint64:
		return decodeSlice[uint64](elem, count, b)
	case KindInt64:
		return decodeSlice[int64](elem, count, b)
	case KindFloat32:
		return decodeSlice[float32](elem, count, b)
	case KindFloat64:
		return decodeSlice[float64](elem, count, b)
	case KindBool:
		return decodeSlice[bool](elem, count, b)
	case KindString:
		n := stringsLen(count, b)
		values, _ := decodeStrings(b[:n], count)
		return values, b[n:]
	}
	values := make([]any, 0, count)
	for range count {
		inner := ValueKind(binary.LittleEndian.Uint32(b))
		n := binary.LittleEndian.Uint64(b[4:])
		var v any
		v, b = decodeArray(inner, n, b[12:])
		values = append(values, v)
	}
	return values, b
}

func decodeSlice[T any](elem ValueKind, count uint64, b []byte) (any, []byte) {
	size := kinds[elem].size
	values := make([]T, count)
	for i := range values {
		values[i] = decodeScalar(elem, b[i*size:]).(T)
	}
	return values, b[int(count)*size:]
}

// stringsLen is the number of bytes that count strings take.
func stringsLen(count uint64, b []byte) int {
	n := 0
	for range count {
		n += 8 + int(binary.LittleEndian.Uint64(b[n:]))
	}
	return n
}
