package kvcells

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/exp/slices"
)

const (
	testBlock   = 4
	testMaxRuns = 3
)

// world is a pool with memory: what every cell holds, as the caller of the package
// would keep it. A cell's content is the name of the prefix that ends there.
type world struct {
	pool   *Pool
	memory []int
	live   []*naive
	names  int
}

// naive is a sequence as a plain list of contents.
type naive struct {
	cells *Sequence
	want  []int
}

func newWorld(blocks int) *world {
	return &world{
		pool:   NewPool(blocks*testBlock, testBlock, testMaxRuns),
		memory: make([]int, blocks*testBlock),
	}
}

func (w *world) open() *naive {
	s := &naive{cells: w.pool.New()}
	w.live = append(w.live, s)
	return s
}

func (w *world) copy(copies []Copy) {
	for _, c := range copies {
		copy(w.memory[c.To:c.To+testBlock], slices.Clone(w.memory[c.From:c.From+testBlock]))
	}
}

// append gives the sequence n more tokens and reports whether there was room.
func (w *world) append(t testing.TB, s *naive, n int) bool {
	t.Helper()
	before := s.cells.Len()
	copies, err := s.cells.Append(n, nil)
	w.copy(copies)
	if errors.Is(err, ErrScattered) {
		if err := w.compact(math.MaxInt); err != nil {
			t.Fatal(err)
		}
		copies, err = s.cells.Append(n, nil)
		w.copy(copies)
		if errors.Is(err, ErrScattered) && !w.shared() {
			t.Fatalf("after Compact, Append(%d) = %v", n, err)
		}
	}
	if err != nil {
		if !errors.Is(err, ErrFull) && !errors.Is(err, ErrScattered) {
			t.Fatalf("Append(%d) = %v, want ErrFull or ErrScattered", n, err)
		}
		if s.cells.Len() != before {
			t.Fatalf("after ErrFull the length is %d, want %d", s.cells.Len(), before)
		}
		return false
	}
	if runs := s.cells.Runs(); len(runs) > testMaxRuns {
		t.Fatalf("%d runs, want at most %d: %v", len(runs), testMaxRuns, runs)
	}
	for i := range n {
		w.names++
		w.memory[s.cells.Cell(before+i)] = w.names
		s.want = append(s.want, w.names)
	}
	return true
}

// compact compacts the pool; the copy after so many fails.
func (w *world) compact(copies int) error {
	return w.pool.Compact(func(c Copy) error {
		if copies--; copies < 0 {
			return errCopy
		}
		w.copy([]Copy{c})
		return nil
	})
}

var errCopy = errors.New("no copy is made")

// shared reports whether any block is in several sequences.
func (w *world) shared() bool {
	return slices.IndexFunc(w.pool.refs, func(r int32) bool { return r > 1 }) >= 0
}

func (w *world) fork(s *naive) *naive {
	f := &naive{cells: s.cells.Fork(), want: slices.Clone(s.want)}
	w.live = append(w.live, f)
	return f
}

func (w *world) truncate(s *naive, n int) {
	s.cells.Truncate(n)
	s.want = s.want[:min(n, len(s.want))]
}

func (w *world) close(i int) {
	w.truncate(w.live[i], 0)
	w.live = slices.Delete(w.live, i, i+1)
}

func (w *world) grow(blocks int) {
	w.pool.Grow(w.pool.Cells() + blocks*testBlock)
	w.memory = append(w.memory, make([]int, w.pool.Cells()-len(w.memory))...)
}

// check holds the pool and every sequence to what the package promises.
func (w *world) check(t testing.TB) {
	t.Helper()
	refs := make([]int32, w.pool.Cells()/testBlock)
	for _, s := range w.live {
		w.checkSequence(t, s)
		s.cells.eachBlock(func(b int) { refs[b]++ })
	}
	if !slices.Equal(refs, w.pool.refs) {
		t.Fatalf("references are %v, want %v", w.pool.refs, refs)
	}
	free := 0
	for _, r := range refs {
		if r == 0 {
			free += testBlock
		}
	}
	if w.pool.Free() != free {
		t.Fatalf("%d cells are free, want %d", w.pool.Free(), free)
	}
}

func (w *world) checkSequence(t testing.TB, s *naive) {
	t.Helper()
	if s.cells.Len() != len(s.want) {
		t.Fatalf("length is %d, want %d", s.cells.Len(), len(s.want))
	}
	runs := s.cells.Runs()
	var cells []int
	for i, r := range runs {
		if r.Start%testBlock != 0 || r.Length <= 0 || i < len(runs)-1 && r.Length%testBlock != 0 {
			t.Fatalf("run %d of %v is not made of whole blocks", i, runs)
		}
		for c := range r.Length {
			cells = append(cells, r.Start+c)
		}
	}
	for i, want := range s.want {
		if got := s.cells.Cell(i); got != cells[i] {
			t.Fatalf("position %d is in cell %d, want %d by the runs", i, got, cells[i])
		}
		if got := w.memory[cells[i]]; got != want {
			t.Fatalf("position %d holds %d, want %d: %v", i, got, want, runs)
		}
	}
	contiguous := true
	for i, c := range cells {
		contiguous = contiguous && i == c
	}
	if s.cells.Contiguous() != contiguous {
		t.Fatalf("Contiguous() is %v, want %v: %v", s.cells.Contiguous(), contiguous, runs)
	}
}

// TestAgainstNaive does at random what sessions do, and compares with plain lists.
func TestAgainstNaive(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(1 + rng.IntN(24))
		w.open()
		for range 150 {
			w.step(t, rng)
			w.check(t)
		}
		for len(w.live) > 0 {
			w.close(0)
		}
		w.check(t)
		if w.pool.Free() != w.pool.Cells() {
			t.Fatalf("seed %d: %d of %d cells are free at the end", seed, w.pool.Free(), w.pool.Cells())
		}
	}
}

func (w *world) step(t testing.TB, rng *rand.Rand) {
	if len(w.live) == 0 {
		w.open()
	}
	i := rng.IntN(len(w.live))
	s := w.live[i]
	switch rng.IntN(12) {
	case 0:
		w.open()
	case 1, 2:
		w.fork(s)
	case 3:
		w.truncate(s, rng.IntN(s.cells.Len()+2))
	case 4:
		w.close(i)
	case 5:
		switch rng.IntN(8) {
		case 0:
			w.grow(1 + rng.IntN(4))
		case 1:
			if err := w.compact(rng.IntN(20)); err != nil && !errors.Is(err, errCopy) {
				t.Fatal(err)
			}
		}
	case 6, 7:
		w.append(t, s, 1+rng.IntN(4*testBlock))
	default:
		w.append(t, s, 1)
	}
}

func FuzzSequences(f *testing.F) {
	f.Add([]byte{9, 6, 6, 6, 1, 8, 1, 8, 3, 7})
	f.Add([]byte{3, 1, 1, 1, 8, 8, 8, 8, 8, 8, 4, 4, 7})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) < 2 {
			return
		}
		rng := rand.New(rand.NewPCG(uint64(steps[0]), uint64(steps[1])))
		w := newWorld(1 + int(steps[0]%24))
		for _, b := range steps[1:min(len(steps), 300)] {
			if len(w.live) == 0 {
				w.open()
			}
			s := w.live[rng.IntN(len(w.live))]
			switch b % 5 {
			case 0:
				w.open()
			case 1:
				w.fork(s)
			case 2:
				w.truncate(s, int(b)/5)
			case 3:
				if b%3 == 0 {
					w.compact(int(b) / 15)
				}
				w.append(t, s, 1+int(b)/5)
			default:
				w.append(t, s, 1+int(b)/5)
			}
			w.check(t)
		}
	})
}

// TestUnsharingKeepsTheLimitOfRuns forks a sequence that has as many runs as it may and
// whose last one is longer than the block that has to be copied.
func TestUnsharingKeepsTheLimitOfRuns(t *testing.T) {
	w := newWorld(64)
	s := w.open()
	s.cells.runs = []Run{{0, testBlock}, {2 * testBlock, testBlock}, {4 * testBlock, testBlock + 1}}
	for _, b := range []int{0, 2, 4, 5} {
		w.pool.take(b, 1)
	}
	s.cells.length = 3*testBlock + 1
	for i := range s.cells.length {
		w.memory[s.cells.Cell(i)] = 1000 + i
		s.want = append(s.want, 1000+i)
	}
	w.check(t)
	f := w.fork(s)
	for range 3 * testBlock {
		if !w.append(t, f, 1) || !w.append(t, s, 1) {
			t.Fatal("no room in a pool that has it")
		}
		w.check(t)
	}
}

// TestAnyFreeCell takes the free cells of a pool whose blocks belong to many sequences in turn: as
// long as there are any, they can be had.
func TestAnyFreeCell(t *testing.T) {
	const blocks = 40
	w := newWorld(blocks)
	for range blocks {
		w.append(t, w.open(), 1+len(w.live)%testBlock)
	}
	for i := range w.live {
		if i%2 == 1 {
			w.truncate(w.live[i], 0)
		}
	}
	// Every other block is free, and one sequence gets all of them.
	s := w.live[0]
	for w.pool.Free() > 0 {
		if !w.append(t, s, testBlock) {
			t.Fatalf("no cells, but %d are free", w.pool.Free())
		}
		w.check(t)
	}
	if got := len(s.want); got < blocks/2*testBlock {
		t.Errorf("the sequence has %d cells", got)
	}
}

// TestCompactFails fails at every copy. Nothing is lost, and the next attempt succeeds.
func TestCompactFails(t *testing.T) {
	for copies := range 60 {
		w := newWorld(24)
		rng := rand.New(rand.NewPCG(uint64(copies), 3))
		for range 60 {
			w.step(t, rng)
		}
		err := w.compact(copies)
		w.check(t)
		if err == nil {
			continue
		}
		if err := w.compact(math.MaxInt); err != nil {
			t.Fatal(err)
		}
		w.check(t)
		for _, s := range w.live {
			if s.cells.Len() > 0 && !w.shared() && len(s.cells.Runs()) != 1 {
				t.Errorf("alone on its blocks, a sequence lies in %v", s.cells.Runs())
			}
		}
	}
}

func TestFullLeavesTheRest(t *testing.T) {
	w := newWorld(4)
	a, b := w.open(), w.open()
	if !w.append(t, a, 9) {
		t.Fatal("9 cells of 16 do not fit")
	}
	if w.append(t, b, 5) {
		t.Fatal("5 cells fit where 4 are free")
	}
	w.check(t)
	if !w.append(t, b, 4) {
		t.Fatal("4 cells of 4 do not fit")
	}
	if !w.append(t, a, 3) {
		t.Fatal("the rest of a block does not fit")
	}
	w.check(t)
	f := w.fork(a)
	if w.append(t, f, 1) {
		t.Fatal("a fork of a full pool gets another cell")
	}
	w.close(0)
	w.check(t)
}

// TestAppendNothing is no reason to copy or to take anything.
func TestAppendNothing(t *testing.T) {
	w := newWorld(4)
	s := w.open()
	w.append(t, s, 3)
	w.fork(s)
	copies, err := s.cells.Append(0, nil)
	if err != nil || len(copies) != 0 || s.cells.Len() != 3 {
		t.Errorf("Append(0) = %v, %v, length %d, want nothing", copies, err, s.cells.Len())
	}
	w.check(t)
}

func TestAloneIsContiguous(t *testing.T) {
	p := NewPool(1024, testBlock, testMaxRuns)
	s := p.New()
	for range 200 {
		if _, err := s.Append(3, nil); err != nil {
			t.Fatal(err)
		}
		if !s.Contiguous() {
			t.Fatalf("a sequence alone lies in %v", s.Runs())
		}
	}
	s.Truncate(0)
	if _, err := s.Append(1, nil); err != nil || !s.Contiguous() {
		t.Errorf("after it was emptied it lies in %v, %v", s.Runs(), err)
	}
}
