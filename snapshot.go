package minfer

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// A saved session is, little-endian:
//
//	magic "MINFSESS", u32 version
//	32 bytes fingerprint of the model
//	u8 element type of keys and values, u32 layers, u32 features of a row
//	u64 tokens, u64 of them evaluated
//	the tokens, i32 each
//	for each layer, if any token is evaluated: u16 0xffff, then the keys and the values block by
//	block, rows of cells; or the ID of a device that does not know that order, and its own
//	u32 CRC-32C of all that
//
// Only whole blocks are saved: the rest of a block that is partly in use may hold what
// another session left there. The tokens in it are evaluated again, to the same bits.
const (
	snapshotMagic   = "MINFSESS"
	snapshotVersion = 1
)

// SnapshotError says why a saved session cannot be restored.
type SnapshotError struct {
	Reason string
	Err    error // what reading met, or nil
}

// Error returns the reason.
func (e *SnapshotError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("minfer: saved session cannot be restored: %s: %v", e.Reason, e.Err)
	}
	return "minfer: saved session cannot be restored: " + e.Reason
}

// Unwrap returns ErrSnapshot and the cause.
func (e *SnapshotError) Unwrap() []error { return []error{ErrSnapshot, e.Err} }

func snapshotErrorf(format string, args ...any) error {
	return &SnapshotError{Reason: fmt.Sprintf(format, args...)}
}

// Save writes the session, so that Model.Restore makes one that continues with the same
// bits.
func (s *Session) Save(w io.Writer) error {
	return s.using("saving the session", func() error { return s.save(w) })
}

func (s *Session) save(w io.Writer) error {
	s.settle()
	buffered := bufio.NewWriterSize(hostWriter{s, w}, 1<<16)
	e := snapshotWriter{w: buffered, sum: crc32.New(crc32.MakeTable(crc32.Castagnoli))}
	e.session(s)
	if e.err == nil {
		e.uint32(e.sum.Sum32())
	}
	if e.err == nil {
		e.err = buffered.Flush()
	}
	if e.err != nil {
		return fmt.Errorf("minfer: saving the session: %w", e.err)
	}
	return nil
}

// hostWriter is a writer of the host.
type hostWriter struct {
	session *Session
	w       io.Writer
}

func (h hostWriter) Write(p []byte) (n int, err error) {
	h.session.callHost(func() { n, err = h.w.Write(p) })
	return n, err
}

// SaveFile writes the session to a file. A file of that name is replaced only when the
// new one is complete.
func (s *Session) SaveFile(path string) error { return saveFile(path, "the session", s.Save) }

// saveFile has save write what to a file, and puts that in its place when it is complete.
func saveFile(path, what string, save func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return fmt.Errorf("minfer: saving %s: %w", what, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := save(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("minfer: saving %s: %w", what, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("minfer: saving %s: %w", what, err)
	}
	return nil
}

// snapshotWriter writes and sums up; after the first error it does nothing.
type snapshotWriter struct {
	w       io.Writer
	sum     hash.Hash32
	err     error
	scratch [8]byte
}

func (e *snapshotWriter) bytes(b []byte) {
	if e.err == nil {
		e.sum.Write(b)
		_, e.err = e.w.Write(b)
	}
}

func (e *snapshotWriter) uint32(v uint32) {
	binary.LittleEndian.PutUint32(e.scratch[:], v)
	e.bytes(e.scratch[:4])
}

func (e *snapshotWriter) uint64(v uint64) {
	binary.LittleEndian.PutUint64(e.scratch[:], v)
	e.bytes(e.scratch[:])
}

func (e *snapshotWriter) session(s *Session) {
	h := s.model.hyper
	e.bytes([]byte(snapshotMagic))
	e.uint32(snapshotVersion)
	print, err := s.model.identity()
	if err != nil {
		e.err = err
		return
	}
	e.bytes(print[:])
	e.bytes([]byte{byte(s.model.engine.kvType)})
	e.uint32(uint32(h.Layers))
	e.uint32(uint32(h.KVWidth()))
	saved := s.cells.Len() / backend.KVBlock * backend.KVBlock
	e.uint64(uint64(len(s.tokens)))
	e.uint64(uint64(saved))
	for _, t := range s.tokens {
		e.uint32(uint32(t))
	}
	if saved == 0 {
		return
	}
	for layer := range h.Layers {
		e.layer(s, layer, saved)
	}
}

func (e *snapshotWriter) layer(s *Session, layer, saved int) {
	if e.err != nil {
		return
	}
	id, order, err := s.model.kvOrder(layer)
	if err != nil {
		e.err = err
		return
	}
	e.bytes([]byte{byte(id), byte(id >> 8)})
	err = s.eachBlock(layer, saved, func(at int, k, v []byte) error {
		err := s.withCells(func() error {
			err := s.cache.alloc.ReadKV(layer, s.cells.Cell(at), backend.KVBlock, k, v)
			if kv, ok := s.cache.alloc.KVPair(layer); err == nil && ok && order != nil {
				err = order.KVToRows(kv, k, v)
			}
			return err
		})
		if err != nil {
			return err
		}
		e.bytes(k)
		e.bytes(v)
		return e.err
	})
	if err != nil {
		e.err = err
	}
}

// inRows stands for a device ID where a layer is saved in the order of backend.KVOrder.
const inRows backend.ID = 0xffff

// kvOrder returns what says in a snapshot how a layer's regions are ordered: inRows, and what brings
// them into that order, or the ID of the kind of device that holds them.
func (m *Model) kvOrder(layer int) (backend.ID, backend.KVOrder, error) {
	name, ok := m.engine.layers[layer]
	if !ok {
		return 0, nil, fmt.Errorf("minfer: layer %d has no keys and values", layer)
	}
	if order, ok := m.engine.devices[m.engine.deviceIndex(name)].(backend.KVOrder); ok {
		return inRows, order, nil
	}
	entry, _, err := backend.Lookup(name)
	if err != nil {
		return 0, nil, fmt.Errorf("minfer: %w", err)
	}
	return entry.ID, nil, nil
}

// eachBlock calls f with the first position of every block of the session's first tokens, and
// with room for its keys and values. The cells of a position can change between turns.
func (s *Session) eachBlock(layer, tokens int, f func(at int, k, v []byte) error) error {
	var n int
	err := s.withCells(func() error {
		kv, ok := s.cache.alloc.KVPair(layer)
		if !ok {
			return fmt.Errorf("minfer: layer %d has no keys and values", layer)
		}
		n = alloc.BlockBytes(kv)
		return nil
	})
	if err != nil {
		return err
	}
	k, v := make([]byte, n), make([]byte, n)
	for at := 0; at < tokens; at += backend.KVBlock {
		if err := f(at, k, v); err != nil {
			return err
		}
	}
	return nil
}

// withCells runs f when it is the session's turn at the devices. Turns are short, so that
// a slow reader or writer of snapshots keeps nobody else waiting.
func (s *Session) withCells(f func() error) (err error) {
	if err := s.model.engine.enter(context.Background()); err != nil {
		return err
	}
	defer s.model.engine.leave()
	if s.isClosed() {
		return ErrClosed
	}
	defer func() { err = s.model.engine.note(err) }()
	defer recovered(&err, "copying keys and values")
	return f()
}

// identity returns the model's fingerprint.
func (m *Model) identity() ([sha256.Size]byte, error) {
	if err := m.engine.enter(context.Background()); err != nil {
		return [sha256.Size]byte{}, err
	}
	defer m.engine.leave() // keeps the file open
	return m.fingerprint()
}

// Restore makes a session from one that was saved with Session.Save, on the same model
// and the same kinds of device, or any others that implement
// backend.KVOrder, as the CPU, CUDA and Metal do; on another kind, what follows is the same up to rounding.
// The context of the options has to hold its tokens. More
// of r may be read than the session takes.
//
// An error that wraps ErrSnapshot says what does not fit or is damaged.
func (m *Model) Restore(r io.Reader, opts ...SessionOption) (*Session, error) {
	s, err := m.NewSession(opts...)
	if err != nil {
		return nil, err
	}
	if err := s.restore(r); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// RestoreFile is Restore from a file.
func (m *Model) RestoreFile(path string, opts ...SessionOption) (*Session, error) {
	if m.devices().isClosed() {
		return nil, ErrClosed
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	defer f.Close() // it was only read
	return m.Restore(f, opts...)
}

func (s *Session) restore(r io.Reader) (err error) {
	defer recovered(&err, "restoring a session")
	d := snapshotReader{r: bufio.NewReaderSize(r, 1<<16), sum: crc32.New(crc32.MakeTable(crc32.Castagnoli))}
	evaluated, err := d.head(s)
	if err != nil {
		return err
	}
	if evaluated > 0 {
		if err := d.layers(s, evaluated); err != nil {
			return err
		}
	}
	sum := d.sum.Sum32()
	if d.uint32() != sum && d.err == nil {
		return snapshotErrorf("its checksum is wrong, so it is damaged")
	}
	return d.failure()
}

// snapshotReader is the inverse of snapshotWriter.
type snapshotReader struct {
	r       io.Reader
	sum     hash.Hash32
	err     error
	scratch [8]byte
}

func (d *snapshotReader) bytes(b []byte) {
	if d.err != nil {
		clear(b)
		return
	}
	if _, d.err = io.ReadFull(d.r, b); d.err == nil {
		d.sum.Write(b)
	}
}

func (d *snapshotReader) uint32() uint32 {
	d.bytes(d.scratch[:4])
	return binary.LittleEndian.Uint32(d.scratch[:4])
}

func (d *snapshotReader) uint64() uint64 {
	d.bytes(d.scratch[:])
	return binary.LittleEndian.Uint64(d.scratch[:])
}

// failure returns what went wrong with reading.
func (d *snapshotReader) failure() error {
	if d.err == nil {
		return nil
	}
	return readFailure(d.err)
}

// readFailure is the error of a saved session or chat that cannot be read.
func readFailure(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SnapshotError{Reason: "it ends early", Err: io.ErrUnexpectedEOF}
	}
	return &SnapshotError{Reason: "reading failed", Err: err}
}

// head reads up to the tokens, which it gives to the session, and returns how many of
// them are evaluated.
func (d *snapshotReader) head(s *Session) (evaluated int, err error) {
	m := s.model
	magic := make([]byte, len(snapshotMagic))
	if d.bytes(magic); d.err == nil && string(magic) != snapshotMagic {
		return 0, snapshotErrorf("it is no saved session")
	}
	if v := d.uint32(); d.err == nil && v != snapshotVersion {
		return 0, snapshotErrorf("it has version %d, want %d", v, snapshotVersion)
	}
	want, err := m.identity()
	if err != nil {
		return 0, err
	}
	var print [sha256.Size]byte
	if d.bytes(print[:]); d.err == nil && print != want {
		return 0, snapshotErrorf("it belongs to another model")
	}
	kvType := d.scratch[:1]
	if d.bytes(kvType); d.err == nil && graph.DType(kvType[0]) != m.engine.kvType {
		return 0, snapshotErrorf("its keys and values are %v, and those of this model %v", graph.DType(kvType[0]), m.engine.kvType)
	}
	if layers, width := d.uint32(), d.uint32(); d.err == nil && (int64(layers) != int64(m.hyper.Layers) || int64(width) != int64(m.hyper.KVWidth())) {
		return 0, snapshotErrorf("it has %d layers of %d features, want %d of %d", layers, width, m.hyper.Layers, m.hyper.KVWidth())
	}
	tokens, done := d.uint64(), d.uint64()
	if err := d.failure(); err != nil {
		return 0, err
	}
	if tokens > uint64(s.context) || done > tokens || done%backend.KVBlock != 0 {
		return 0, snapshotErrorf("it holds %d tokens, %d of them evaluated, for a context of %d", tokens, done, s.context)
	}
	for range tokens {
		t := Token(d.uint32())
		if d.err != nil {
			break
		}
		if t < 0 || int(t) >= m.tokenizer.VocabSize() {
			return 0, snapshotErrorf("token %d is not one of the model's", t)
		}
		s.tokens = append(s.tokens, t)
	}
	return int(done), d.failure()
}

func (d *snapshotReader) layers(s *Session, evaluated int) error {
	c := s.cache
	err := s.withCells(func() error {
		// Regions come into being with the first graph; this is one that will be needed.
		if _, err := c.program(s.model.engine.params(1, 1, c.pool.Cells())); err != nil {
			return err
		}
		return c.reserve(&job{cells: s.cells, tokens: s.tokens[:evaluated]})
	})
	if err != nil {
		return err
	}
	for layer := range s.model.hyper.Layers {
		id, order, err := s.model.kvOrder(layer)
		if err != nil {
			return err
		}
		d.bytes(d.scratch[:2])
		saved := backend.ID(binary.LittleEndian.Uint16(d.scratch[:2]))
		if d.err == nil && saved != id {
			return snapshotErrorf("layer %d was saved by a device of another kind", layer)
		}
		err = s.eachBlock(layer, evaluated, func(at int, k, v []byte) error {
			d.bytes(k)
			d.bytes(v)
			if d.err != nil {
				return d.failure()
			}
			return s.withCells(func() error {
				if kv, ok := c.alloc.KVPair(layer); ok && order != nil {
					if err := order.KVFromRows(kv, k, v); err != nil {
						return err
					}
				}
				return c.alloc.WriteKV(layer, s.cells.Cell(at), backend.KVBlock, k, v)
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
