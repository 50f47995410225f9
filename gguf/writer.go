package gguf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"golang.org/x/exp/slices"
)

// maxWrittenName is the longest tensor name that every ggml reader takes.
const maxWrittenName = 63

// Writer collects metadata and tensors and writes them as one GGUF file. Keys
// and tensors come out in the order in which they were set. The first mistake
// sticks: it is returned by Err and WriteTo, which then writes nothing. A Writer
// is not safe for concurrent use.
type Writer struct {
	version   uint32
	alignment uint32
	keys      map[string]bool
	names     map[string]bool
	metadata  []byte // the encoded key/value pairs
	tensors   []pending
	err       error
}

// pending is a tensor to be written.
type pending struct {
	name string
	typ  Type
	dims []uint64
	size uint64
	data io.Reader
	mem  []byte // instead of data
}

// WriterOption changes what a Writer writes.
type WriterOption func(*Writer)

// WithVersion sets the format version, 2 or 3 (the default).
func WithVersion(v uint32) WriterOption {
	return func(w *Writer) {
		if v != 2 && v != 3 {
			w.fail(fmt.Errorf("gguf: version %d not supported, want 2 or 3: %w", v, ErrVersion))
			return
		}
		w.version = v
	}
}

// WithAlignment sets general.alignment, a power of two from 8. Without it the
// alignment is DefaultAlignment and the key is not written.
func WithAlignment(bytes uint32) WriterOption {
	return func(w *Writer) { w.SetUint32(alignmentKey, bytes) }
}

// NewWriter returns an empty Writer.
func NewWriter(opts ...WriterOption) *Writer {
	w := &Writer{version: 3, alignment: DefaultAlignment, keys: map[string]bool{}, names: map[string]bool{}}
	for _, o := range opts {
		o(w)
	}
	return w
}

// Err is the first mistake so far.
func (w *Writer) Err() error { return w.err }

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return err
}

// Set sets a key to a value of one of the types that File.Value returns. The
// methods below do the same with their types checked by the compiler. They
// record a mistake (a key set twice, an empty or overlong key, a bad
// general.alignment) for Err and WriteTo.
func (w *Writer) Set(key string, value any) {
	if w.err != nil {
		return
	}
	if err := w.set(key, value); err != nil {
		w.fail(fmt.Errorf("gguf: key %q: %w", clip(key), err))
	}
}

func (w *Writer) set(key string, value any) error {
	switch {
	case key == "":
		return ErrName
	case len(key) > MaxKeyLen:
		return fmt.Errorf("%d bytes, at most %d are allowed: %w", len(key), MaxKeyLen, ErrTooLarge)
	case w.keys[key]:
		return ErrDuplicate
	case len(w.keys) == MaxKeys:
		return fmt.Errorf("more than %d keys: %w", MaxKeys, ErrTooLarge)
	}
	if key == alignmentKey {
		align, ok := value.(uint32)
		if !ok || !validAlignment(align) {
			return fmt.Errorf("is %v (%T), want a uint32 that is a power of two from 8: %w", value, value, ErrAlignment)
		}
		w.alignment = align
	}
	kind, payload, err := encode(value, 0)
	if err != nil {
		return err
	}
	w.keys[key] = true
	w.metadata = appendString(w.metadata, key)
	w.metadata = binary.LittleEndian.AppendUint32(w.metadata, uint32(kind))
	w.metadata = append(w.metadata, payload...)
	return nil
}

// SetUint8 sets a key to a uint8.
func (w *Writer) SetUint8(key string, v uint8) { w.Set(key, v) }

// SetInt8 sets a key to an int8.
func (w *Writer) SetInt8(key string, v int8) { w.Set(key, v) }

// SetUint16 sets a key to a uint16.
func (w *Writer) SetUint16(key string, v uint16) { w.Set(key, v) }

// SetInt16 sets a key to an int16.
func (w *Writer) SetInt16(key string, v int16) { w.Set(key, v) }

// SetUint32 sets a key to a uint32, the usual kind for counts and sizes.
func (w *Writer) SetUint32(key string, v uint32) { w.Set(key, v) }

// SetInt32 sets a key to an int32.
func (w *Writer) SetInt32(key string, v int32) { w.Set(key, v) }

// SetUint64 sets a key to a uint64.
func (w *Writer) SetUint64(key string, v uint64) { w.Set(key, v) }

// SetInt64 sets a key to an int64.
func (w *Writer) SetInt64(key string, v int64) { w.Set(key, v) }

// SetFloat32 sets a key to a float32, the usual kind for hyperparameters.
func (w *Writer) SetFloat32(key string, v float32) { w.Set(key, v) }

// SetFloat64 sets a key to a float64.
func (w *Writer) SetFloat64(key string, v float64) { w.Set(key, v) }

// SetBool sets a key to a bool.
func (w *Writer) SetBool(key string, v bool) { w.Set(key, v) }

// SetString sets a key to a string.
func (w *Writer) SetString(key, v string) { w.Set(key, v) }

// SetUint8s sets a key to an array of uint8.
func (w *Writer) SetUint8s(key string, v []uint8) { w.Set(key, v) }

// SetInt8s sets a key to an array of int8.
func (w *Writer) SetInt8s(key string, v []int8) { w.Set(key, v) }

// SetUint16s sets a key to an array of uint16.
func (w *Writer) SetUint16s(key string, v []uint16) { w.Set(key, v) }

// SetInt16s sets a key to an array of int16.
func (w *Writer) SetInt16s(key string, v []int16) { w.Set(key, v) }

// SetUint32s sets a key to an array of uint32.
func (w *Writer) SetUint32s(key string, v []uint32) { w.Set(key, v) }

// SetInt32s sets a key to an array of int32.
func (w *Writer) SetInt32s(key string, v []int32) { w.Set(key, v) }

// SetUint64s sets a key to an array of uint64.
func (w *Writer) SetUint64s(key string, v []uint64) { w.Set(key, v) }

// SetInt64s sets a key to an array of int64.
func (w *Writer) SetInt64s(key string, v []int64) { w.Set(key, v) }

// SetFloat32s sets a key to an array of float32.
func (w *Writer) SetFloat32s(key string, v []float32) { w.Set(key, v) }

// SetFloat64s sets a key to an array of float64.
func (w *Writer) SetFloat64s(key string, v []float64) { w.Set(key, v) }

// SetBools sets a key to an array of bool.
func (w *Writer) SetBools(key string, v []bool) { w.Set(key, v) }

// SetStrings sets a key to an array of strings.
func (w *Writer) SetStrings(key string, v []string) { w.Set(key, v) }

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

// encode gives the kind and the bytes of a value; depth counts the arrays around it.
func encode(value any, depth int) (ValueKind, []byte, error) {
	le := binary.LittleEndian
	switch v := value.(type) {
	case uint8:
		return KindUint8, []byte{v}, nil
	case int8:
		return KindInt8, []byte{byte(v)}, nil
	case uint16:
		return KindUint16, le.AppendUint16(nil, v), nil
	case int16:
		return KindInt16, le.AppendUint16(nil, uint16(v)), nil
	case uint32:
		return KindUint32, le.AppendUint32(nil, v), nil
	case int32:
		return KindInt32, le.AppendUint32(nil, uint32(v)), nil
	case uint64:
		return KindUint64, le.AppendUint64(nil, v), nil
	case int64:
		return KindInt64, le.AppendUint64(nil, uint64(v)), nil
	case float32:
		return KindFloat32, le.AppendUint32(nil, math.Float32bits(v)), nil
	case float64:
		return KindFloat64, le.AppendUint64(nil, math.Float64bits(v)), nil
	case bool:
		if v {
			return KindBool, []byte{1}, nil
		}
		return KindBool, []byte{0}, nil
	case string:
		return KindString, appendString(nil, v), nil
	}
	elem, count, elements, err := encodeElements(value, depth+1)
	if err != nil {
		return 0, nil, err
	}
	b := le.AppendUint32(make([]byte, 0, 12+len(elements)), uint32(elem))
	b = le.AppendUint64(b, uint64(count))
	return KindArray, append(b, elements...), nil
}

// encodeElements gives the element kind, number and bytes of an array.
func encodeElements(value any, depth int) (ValueKind, int, []byte, error) {
	if depth > MaxArrayDepth {
		return 0, 0, nil, fmt.Errorf("more than %d levels: %w", MaxArrayDepth, ErrNesting)
	}
	switch v := value.(type) {
	case []uint8:
		return KindUint8, len(v), v, nil
	case []int8:
		return fixed(KindInt8, v)
	case []uint16:
		return fixed(KindUint16, v)
	case []int16:
		return fixed(KindInt16, v)
	case []uint32:
		return fixed(KindUint32, v)
	case []int32:
		return fixed(KindInt32, v)
	case []uint64:
		return fixed(KindUint64, v)
	case []int64:
		return fixed(KindInt64, v)
	case []float32:
		return fixed(KindFloat32, v)
	case []float64:
		return fixed(KindFloat64, v)
	case []bool:
		return fixed(KindBool, v)
	case []string:
		var b []byte
		for _, s := range v {
			b = appendString(b, s)
		}
		return KindString, len(v), b, nil
	case []any:
		var b []byte
		for i, inner := range v {
			kind, payload, err := encode(inner, depth)
			if err != nil {
				return 0, 0, nil, err
			}
			if kind != KindArray {
				return 0, 0, nil, fmt.Errorf("element %d of a []any is a %T, want an array: %w", i, inner, ErrKind)
			}
			b = append(b, payload...)
		}
		return KindArray, len(v), b, nil
	}
	return 0, 0, nil, fmt.Errorf("cannot store a %T: %w", value, ErrKind)
}

func fixed[T any](kind ValueKind, v []T) (ValueKind, int, []byte, error) {
	b, err := binary.Append(make([]byte, 0, len(v)*kinds[kind].size), binary.LittleEndian, v)
	return kind, len(v), b, err
}

// AddTensor adds a tensor whose bytes are data, which must not change until
// WriteTo. dims has at most MaxDims dimensions, the fastest first. A removed or
// unknown type, rows that are not whole blocks, a name used before or longer
// than 63 bytes, and a data length that does not follow from type and dims are
// errors; an error is also kept for WriteTo.
func (w *Writer) AddTensor(name string, t Type, dims []uint64, data []byte) error {
	return w.add(pending{name: name, typ: t, dims: slices.Clone(dims), mem: data}, func(size uint64) error {
		if uint64(len(data)) != size {
			return fmt.Errorf("%d bytes of data, %s of shape %v takes %d: %w", len(data), t, dims, size, ErrShape)
		}
		return nil
	})
}

// AddTensorReader is AddTensor with bytes that WriteTo reads from r, once. r
// has to give exactly the bytes that type and dims ask for and then end.
func (w *Writer) AddTensorReader(name string, t Type, dims []uint64, r io.Reader) error {
	return w.add(pending{name: name, typ: t, dims: slices.Clone(dims), data: r}, func(uint64) error {
		if r == nil {
			return errors.New("no reader")
		}
		return nil
	})
}

func (w *Writer) add(p pending, checkData func(size uint64) error) error {
	if w.err != nil {
		return w.err
	}
	err := w.checkNew(&p)
	if err == nil {
		err = checkData(p.size)
	}
	if err != nil {
		return w.fail(&TensorError{p.name, p.typ, err})
	}
	w.names[p.name] = true
	w.tensors = append(w.tensors, p)
	return nil
}

// checkNew checks what does not concern the data, and finds the size.
func (w *Writer) checkNew(p *pending) (err error) {
	switch {
	case p.name == "":
		return ErrName
	case len(p.name) > maxWrittenName:
		return fmt.Errorf("name of %d bytes, at most %d are allowed: %w", len(p.name), maxWrittenName, ErrTooLarge)
	case w.names[p.name]:
		return ErrDuplicate
	case len(w.tensors) == MaxTensors:
		return fmt.Errorf("more than %d tensors: %w", MaxTensors, ErrTooLarge)
	case len(p.dims) > MaxDims:
		return fmt.Errorf("%d dimensions, at most %d are allowed: %w", len(p.dims), MaxDims, ErrShape)
	}
	if err := checkDims(p.dims); err != nil {
		return err
	}
	if err := (Tensor{Type: p.typ, Dims: p.dims}).check(); err != nil {
		return err
	}
	p.size, err = sizeOf(p.typ, p.dims)
	return err
}

// WriteTo writes the file and returns how many bytes it wrote. It implements
// io.WriterTo. With tensors from readers it works once.
func (w *Writer) WriteTo(dst io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	head, err := w.header()
	if err != nil {
		return 0, err
	}
	out := &counter{w: bufio.NewWriterSize(dst, 1<<16)}
	err = w.body(out, head)
	if flushed := out.w.Flush(); err == nil {
		err = flushed
	}
	return out.n - int64(out.w.Buffered()), err
}

// counter counts the bytes that went into a buffered writer.
type counter struct {
	w *bufio.Writer
	n int64
}

// Write follows io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// pad writes zeros up to the next multiple of align.
func (c *counter) pad(align int64) error {
	for rest := (align - c.n%align) % align; rest > 0; {
		n, err := c.Write(make([]byte, min(rest, 1<<12)))
		if err != nil {
			return err
		}
		rest -= int64(n)
	}
	return nil
}

// header encodes everything before the tensor data.
func (w *Writer) header() ([]byte, error) {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte(magic), w.version)
	b = le.AppendUint64(b, uint64(len(w.tensors)))
	b = le.AppendUint64(b, uint64(len(w.keys)))
	b = append(b, w.metadata...)
	var offset uint64
	for _, t := range w.tensors {
		b = appendString(b, t.name)
		b = le.AppendUint32(b, uint32(len(t.dims)))
		for _, d := range t.dims {
			b = le.AppendUint64(b, d)
		}
		b = le.AppendUint32(b, uint32(t.typ))
		b = le.AppendUint64(b, offset)
		offset = (offset + t.size + uint64(w.alignment) - 1) / uint64(w.alignment) * uint64(w.alignment)
		if offset > math.MaxInt64 {
			return nil, &TensorError{t.name, t.typ, fmt.Errorf("all tensors together take more than 2^63-1 bytes: %w", ErrTooLarge)}
		}
	}
	return b, nil
}

// body writes the header and each tensor, every one padded, the last one too:
// some readers expect the padding.
func (w *Writer) body(out *counter, head []byte) error {
	if _, err := out.Write(head); err != nil {
		return err
	}
	if len(w.tensors) == 0 {
		return nil
	}
	for _, t := range w.tensors {
		if err := out.pad(int64(w.alignment)); err != nil {
			return err
		}
		if err := t.copyTo(out); err != nil {
			return err
		}
	}
	return out.pad(int64(w.alignment))
}

// copyTo writes a tensor's bytes, exactly as many as it has.
func (t pending) copyTo(out *counter) error {
	r := t.data
	if r == nil {
		r = bytes.NewReader(t.mem)
	}
	n, err := io.CopyN(out, r, int64(t.size))
	if errors.Is(err, io.EOF) {
		return &TensorError{t.name, t.typ, fmt.Errorf("the reader gave %d bytes of %d: %w", n, t.size, io.ErrUnexpectedEOF)}
	}
	if err != nil {
		return &TensorError{t.name, t.typ, err}
	}
	if extra, err := io.ReadFull(r, make([]byte, 1)); extra != 0 {
		return &TensorError{t.name, t.typ, fmt.Errorf("the reader gives more than the %d bytes of the tensor: %w", t.size, ErrShape)}
	} else if !errors.Is(err, io.EOF) {
		return &TensorError{t.name, t.typ, err}
	}
	return nil
}
