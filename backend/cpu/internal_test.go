package cpu

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/mmap"
)

// countTask counts how often each item was worked on.
type countTask struct {
	hits  []atomic.Int32
	panic int // the item to panic at, or -1
	slow  bool
}

func (c *countTask) run(_ *kernels.Scratch, lo, hi int) {
	for i := lo; i < hi; i++ {
		if i == c.panic {
			panic("item reached")
		}
		c.hits[i].Add(1)
	}
	if c.slow {
		time.Sleep(50 * time.Microsecond)
	}
}

// TestPoolDoesEveryItemOnce runs many jobs of many sizes, some after a pause that
// sends the workers to sleep, and has threads read ahead after some.
func TestPoolDoesEveryItemOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8, 33} {
		p := newPool(threads, kernels.Generic)
		r := rand.New(rand.NewPCG(1, 2))
		for job := range 300 {
			c := &countTask{hits: make([]atomic.Int32, 1+r.IntN(200)), panic: -1, slow: job%50 == 7}
			cost := []int{1, shareCost, shareCost / 7}[job%3]
			err := p.run(c, len(c.hits), cost)
			if job%2 == 1 {
				c.hits = make([]atomic.Int32, len(c.hits))
				err = errors.Join(err, p.stream(c, len(c.hits), cost, [][]byte{nil, make([]byte, r.IntN(3*aheadStep))}))
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.hits {
				if n := c.hits[i].Load(); n != 1 {
					t.Fatalf("%d threads, job %d: item %d of %d was done %d times", threads, job, i, len(c.hits), n)
				}
			}
			if job%100 == 99 {
				waitForSleep(t, p)
			}
		}
		p.close()
	}
}

// waitForSleep returns when every worker sleeps: an idle device costs nothing.
func waitForSleep(t *testing.T, p *pool) {
	t.Helper()
	for range 10000 {
		if int(p.sleepers.Load()) == p.threads-1 || !p.started {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%d of %d workers sleep", p.sleepers.Load(), p.threads-1)
}

func TestGrains(t *testing.T) {
	for _, c := range []struct{ items, cost, threads, grain, grains int }{
		{1000, 1 << 20, 1, 1000, 1}, // alone
		{1000, 1 << 20, 4, 1, 1000},
		{1, 1 << 20, 4, 1, 1},
		{shareCost, 1, 4, shareCost, 1}, // not worth it
		{shareCost + 1, 1, 4, grainCost, 5},
		{10, shareCost, 8, 1, 10},
		{20, shareCost / 10, 8, 2, 10},
		{10, 0, 8, 10, 1},
		{10, -5, 8, 10, 1}, // a cost that has wrapped
		{math.MaxInt, 1 << 20, 2, max(1, math.MaxInt>>30), (math.MaxInt-1)/max(1, math.MaxInt>>30) + 1},
	} {
		if grain, grains := grainsOf(c.items, c.cost, c.threads); grain != c.grain || grains != c.grains {
			t.Errorf("grainsOf(%d, %d, %d) is %d, %d, want %d, %d", c.items, c.cost, c.threads, grain, grains, c.grain, c.grains)
		}
	}
}

// TestShare has an owner and two others empty a share at once.
func TestShare(t *testing.T) {
	const grains = 100_000
	var s share
	s.set(7, 7+grains)
	taken := make([]atomic.Int32, grains)
	var done sync.WaitGroup
	for i := range 3 {
		done.Go(func() {
			for {
				lo, hi := s.take(1, i == 0)
				if lo == hi {
					return
				}
				for j := lo; j < hi; j++ {
					taken[j-7].Add(1)
				}
			}
		})
	}
	done.Wait()
	for i := range taken {
		if n := taken[i].Load(); n != 1 {
			t.Fatalf("grain %d was taken %d times", i, n)
		}
	}
	s.set(0, 10)
	if lo, hi := s.take(3, true); lo != 0 || hi != 5 {
		t.Errorf("the owner took %d to %d of 10, want the first half", lo, hi)
	}
	if lo, hi := s.take(3, false); lo != 7 || hi != 10 {
		t.Errorf("another took %d to %d of 5 to 10, want the last 3", lo, hi)
	}
}

func TestPanicBecomesAnError(t *testing.T) {
	for _, threads := range []int{1, 4} {
		opened, err := open(backend.Config{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		d := opened.(*device)
		buffer, err := d.Alloc(256)
		if err != nil {
			t.Fatal(err)
		}
		// A table whose bytes are gone: what a kernel meets when a file shrinks.
		err = d.LoadWeights(t.Context(), []backend.Weight{{Name: "w", Type: "F32", In: 4, Out: 2, Data: make([]byte, 32), Table: true}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d.weights["w"].matrix.Data = nil
		node := &graph.Node{Name: "embed", Op: graph.Embed{Weight: "w", Type: "F32", Dim: 4, Vocab: 2}}
		ids := backend.Operand{Buffer: buffer.Slice(0, 4), Shape: graph.ShapeOf(1), Type: graph.I32}
		out := backend.Operand{Buffer: buffer.Slice(64, 16), Shape: graph.ShapeOf(4), Type: graph.F32}
		if err := d.WriteHost(ids.Buffer, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		err = d.Execute(node, []backend.Operand{ids}, out, nil)
		var internal *backend.PanicError
		if !errors.As(err, &internal) || !strings.Contains(string(internal.Stack), "GetRow") || !strings.Contains(err.Error(), "embed") {
			t.Fatalf("Execute returned %v", err)
		}
		var runtimeErr runtime.Error
		if !errors.As(err, &runtimeErr) {
			t.Errorf("the panic is not among the reasons of %v", err)
		}
		if _, err := d.Alloc(64); !errors.As(err, &internal) {
			t.Errorf("Alloc afterwards returned %v", err)
		}
		if err := d.Synchronize(); !errors.As(err, &internal) {
			t.Errorf("Synchronize afterwards returned %v", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// TestFirstReads compares with the row blocks that the shares begin with.
func TestFirstReads(t *testing.T) {
	const in, out, threads = 1024, 64 * kernels.PackedRows, 4
	size, err := kernels.PackedSize(rounded, in, out)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := kernels.NewPacked(rounded, in, out, make([]byte, size))
	if err != nil {
		t.Fatal(err)
	}
	matrix := &kernels.Weight{Format: rounded, In: in, Out: out}
	d := &device{pool: newPool(threads, kernels.Generic)}
	first := projection{weight: &weight{matrix: matrix, packed: packed}}
	firsts := d.firstReads(128, shareCost, []projection{first, {weight: &weight{matrix: matrix}}})
	for i, at := range []int{0, size / 2} {
		want := packed.Data[at:][:min(size-at, aheadMost)]
		if got := firsts[i]; len(got) != len(want) || &got[0] != &want[0] {
			t.Errorf("thread %d reads %d bytes first, want %d from byte %d on", i, len(got), len(want), at)
		}
	}
	for i, got := range firsts[2:] {
		if got != nil {
			t.Errorf("thread %d reads %d bytes of a weight that is not packed", 2+i, len(got))
		}
	}
}

func TestPanicInWorker(t *testing.T) {
	p := newPool(4, kernels.Generic)
	defer p.close()
	for item := 0; item < 64; item += 9 {
		c := &countTask{hits: make([]atomic.Int32, 64), panic: item, slow: true}
		var internal *backend.PanicError
		if err := p.run(c, 64, shareCost); !errors.As(err, &internal) || internal.Value != "item reached" {
			t.Fatalf("panic at item %d: %v", item, err)
		}
	}
}

func TestMemoryReuse(t *testing.T) {
	var m memory
	get := func(n int) backend.Buffer {
		t.Helper()
		b, err := m.alloc(n, false)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	at := func(b backend.Buffer) *byte {
		bytes, err := m.view(b, 1)
		if err != nil {
			t.Fatal(err)
		}
		return &bytes[0]
	}
	small, large := get(1100), get(1900)
	pSmall, pLarge := at(small), at(large)
	m.release(small)
	m.release(large)
	if m.freeBytes != 1152+1920 || m.used != 0 || m.buffers != 0 {
		t.Errorf("after two releases: %+v", m)
	}
	if b := get(1200); at(b) != pLarge {
		t.Error("1200 bytes did not reuse the 1920")
	}
	if b := get(1060); at(b) != pSmall {
		t.Error("1060 bytes did not reuse the 1152")
	}
	if b := get(1060); at(b) == pSmall || at(b) == pLarge {
		t.Error("memory in use was given out")
	}
	if m.freeBytes != 0 {
		t.Errorf("%d bytes are still free", m.freeBytes)
	}
	// The smaller of two that fit is taken; other classes are left alone.
	a, b, c := get(1500), get(1300), get(4096)
	pb := at(b)
	m.release(a)
	m.release(b)
	m.release(c)
	if got := get(1280); at(got) != pb {
		t.Error("the best fit was not taken")
	}
	if got := get(64); uintptr(unsafe.Pointer(at(got)))%backend.Alignment != 0 {
		t.Error("memory is not aligned")
	}
}

// TestSparseMemory: fresh pieces smaller than a huge page share memory, one after the other, without sharing a byte, and keep
// what is in them when huge pages are made of it.
func TestSparseMemory(t *testing.T) {
	m := memory{makeHuge: mmap.MakeHuge}
	const size = 768 << 10
	var pieces []backend.Buffer
	for i := range 2*shelfSize/size + 1 {
		b, err := m.alloc(size, true)
		if err != nil {
			t.Fatal(err)
		}
		bytes, err := m.view(b, size)
		if err != nil {
			t.Fatal(err)
		}
		if uintptr(unsafe.Pointer(&bytes[0]))%backend.Alignment != 0 {
			t.Fatal("memory is not aligned")
		}
		for j := range bytes {
			if bytes[j] != 0 {
				t.Fatalf("piece %d is not zero", i)
			}
			bytes[j] = byte(i + 1)
		}
		pieces = append(pieces, b)
	}
	first, _ := m.view(pieces[0], size)
	second, _ := m.view(pieces[1], size)
	if unsafe.Add(unsafe.Pointer(&first[0]), size) != unsafe.Pointer(&second[0]) {
		t.Error("the second piece does not follow the first")
	}
	for _, b := range pieces {
		m.inHugePages(b, size/3)
		m.inHugePages(b, 2*size)
		m.inHugePages(b, size) // changes nothing
	}
	m.inHugePages(backend.Buffer{}, size)
	for i, b := range pieces {
		bytes, _ := m.view(b, size)
		for _, v := range bytes {
			if v != byte(i+1) {
				t.Fatalf("piece %d has changed", i)
			}
		}
	}
}

// FuzzMemory hands out and takes back at random, and checks that buffers in use never
// overlap, that what is kept is bounded, and that old handles stay dead.
func FuzzMemory(f *testing.F) {
	f.Add([]byte{1, 200, 3, 0, 7, 255, 128, 64, 32, 16})
	f.Add([]byte("the quick brown fox jumps over the lazy dog"))
	f.Add([]byte{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 300 {
			return
		}
		var m memory
		type piece struct {
			b    backend.Buffer
			mark byte
		}
		var live []piece
		var dead []backend.Buffer
		for i, op := range script {
			if op%3 == 0 && len(live) > 0 {
				j := int(op/3) % len(live)
				m.release(live[j].b)
				m.release(live[j].b) // once more changes nothing
				dead = append(dead, live[j].b)
				live = append(live[:j], live[j+1:]...)
			} else {
				size := 1 + int(op)*int(op)
				b, err := m.alloc(size, op%7 == 0)
				if err != nil {
					t.Fatal(err)
				}
				bytes, err := m.view(b, size)
				if err != nil {
					t.Fatal(err)
				}
				for k := range bytes {
					if op%7 == 0 && bytes[k] != 0 {
						t.Fatal("fresh memory is not zero")
					}
					bytes[k] = byte(i)
				}
				live = append(live, piece{b, byte(i)})
			}
			if m.used+m.freeBytes > m.peak || m.buffers != len(live) {
				t.Fatalf("with %d buffers: %d bytes in use, %d free, peak %d", m.buffers, m.used, m.freeBytes, m.peak)
			}
		}
		for _, p := range live {
			bytes, err := m.view(p.b, p.b.Size)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range bytes {
				if v != p.mark {
					t.Fatal("buffers overlap")
				}
			}
		}
		for _, b := range dead {
			if _, err := m.view(b, 1); !errors.Is(err, ErrBuffer) {
				t.Fatalf("a freed handle: %v", err)
			}
		}
	})
}

// TestEnlarge: regions, here a device's first, get huge pages with the token that fills an eighth of them, whole huge pages at a time,
// and no call repeats it.
func TestEnlarge(t *testing.T) {
	const page, shift = mmap.HugePage, 64 << 10
	type call struct{ last, from, to int } // the last cell in use, and the bytes of each region that huge pages are made of
	for _, test := range []struct {
		cells, width, shift int // regions begin shift bytes after a huge page does
		calls               []call
	}{
		{160, 256, 0, []call{{18, 0, 0}, {19, 0, 160 * 256}, {19, 0, 0}, {159, 0, 0}}},
		{160, 16, 0, []call{{159, 0, 0}}}, // few pages
		{1 << 15, 256, 0, []call{{1<<12 - 2, 0, 0}, {1<<12 - 1, 0, page}, {page/256 - 1, 0, 0}, {page / 256, page, 2 * page}, {1 << 12, 0, 0}, {1<<15 - 1, 2 * page, 4 * page}}},
		{1 << 15, 256, shift, []call{{1 << 12, 0, page - shift}, {(page-shift)/256 - 1, 0, 0}, {page/256 - 1, page - shift, 2*page - shift}, {1<<15 - 1, 2*page - shift, 4 * page}}},
	} {
		var made [][]byte
		d := device{memory: memory{makeHuge: func(b []byte) { made = append(made, b) }}}
		var regions [2][]byte
		var list [2]backend.Buffer
		for i := range list {
			size := test.cells * test.width
			var err error
			if list[i], err = d.memory.alloc(size, true); err != nil {
				t.Fatal(err)
			}
			regions[i] = mmap.Aligned(test.shift + size)[test.shift:]
			d.memory.find(list[i].ID).bytes = regions[i]
		}
		kv := &backend.KV{K: list[0], V: list[1], Cells: test.cells}
		for _, c := range test.calls {
			made = nil
			d.enlarge(kv, []int32{0, int32(c.last), 1})
			var want [][]byte
			if c.to > 0 {
				want = [][]byte{regions[0][c.from:c.to], regions[1][c.from:c.to]}
			}
			if !slices.EqualFunc(made, want, func(a, b []byte) bool { return &a[0] == &b[0] && len(a) == len(b) }) {
				t.Errorf("%d cells of %d bytes, %d after a page: cell %d made huge pages of other bytes than %d to %d", test.cells, test.width, test.shift, c.last, c.from, c.to)
			}
		}
	}
}

// TestLayersTakeTurns: no token makes huge pages of two layers' regions, and when a quarter is in use all have them.
func TestLayersTakeTurns(t *testing.T) {
	const layers, cells, width = 10, 128, 256
	const size = cells * width
	regions := mmap.Aligned(2 * layers * size) // in one huge page, so that each region is made huge at once
	made := 0
	d := device{memory: memory{makeHuge: func([]byte) { made++ }}}
	var list [layers]backend.KV
	for i := range list {
		list[i].Cells = cells
		for _, b := range []*backend.Buffer{&list[i].K, &list[i].V} {
			var err error
			if *b, err = d.memory.alloc(size, true); err != nil {
				t.Fatal(err)
			}
			d.memory.find(b.ID).bytes, regions = regions[:size], regions[size:]
		}
	}
	for cell := range int32(cells) {
		before := made
		for i := range list {
			d.enlarge(&list[i], []int32{cell})
		}
		if made > before+2 {
			t.Errorf("cell %d made huge pages of %d regions", cell, made-before)
		}
		if most := cell+1 >= cells/4; most && made != 2*layers || cell+1 < cells/8 && made > 0 {
			t.Errorf("cell %d of %d: %d of %d regions have huge pages", cell, cells, made, 2*layers)
		}
	}
}

// TestStoresEnlarge: whichever operation stores, regions have no huge pages before an eighth of them is in use, and have them with a quarter.
func TestStoresEnlarge(t *testing.T) {
	const cells, width = 80, 128
	for _, op := range []graph.Op{
		graph.KVStore{},
		graph.QKVBiasRopeStore{RoPE: graph.RoPE{Base: 10000, Scale: 1, Dim: width, Heads: 1, HeadDim: width}, KVHeads: 1},
	} {
		opened, err := open(backend.Config{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		d := opened.(*device)
		made, makeHuge := 0, d.memory.makeHuge
		d.memory.makeHuge = func(b []byte) {
			made += len(b)
			makeHuge(b)
		}
		alloc := func(size int) backend.Buffer {
			b, err := d.AllocFresh(size)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		operand := func(t graph.DType, n int) backend.Operand {
			return backend.Operand{Buffer: alloc(t.Bytes(n)), Shape: graph.ShapeOf(n), Type: t}
		}
		q, k, v, out := operand(graph.F32, width), operand(graph.F32, width), operand(graph.F32, width), operand(graph.F32, width)
		position, cell := operand(graph.I32, 1), operand(graph.I32, 1)
		in := []backend.Operand{k, v, cell}
		if op.Kind() == graph.KindQKVBiasRopeStore {
			in = []backend.Operand{q, k, v, position, cell}
		}
		size := graph.F16.Bytes(cells * width)
		kv := &backend.KV{K: alloc(size), V: alloc(size), Width: width, Cells: cells, Type: graph.F16}
		for _, at := range []byte{8, 19} {
			if err := d.WriteHost(cell.Buffer, []byte{at, 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
			if err := d.Execute(&graph.Node{Name: "store", Op: op}, in, out, kv); err != nil {
				t.Fatal(err)
			}
			if want := at == 19; made > 0 != want {
				t.Errorf("%v to cell %d of %d: %d bytes in huge pages, want some: %v", op.Kind(), at, cells, made, want)
			}
		}
	}
}
