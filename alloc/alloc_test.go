package alloc_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/graphtest"
)

func decoder(t *testing.T, device string, p graph.Params, layers int) (*graph.Graph, *alloc.Plan) {
	t.Helper()
	g, err := graphtest.Decoder(p, layers)
	if err != nil {
		t.Fatal(err)
	}
	return g, planOn(t, g, device)
}

// planOn puts all nodes of a graph on a device and plans it.
func planOn(t *testing.T, g *graph.Graph, device string) *alloc.Plan {
	t.Helper()
	for i := range g.Nodes {
		g.Nodes[i].Device = device
	}
	p, err := alloc.NewPlan(g)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func bind(t *testing.T, a *alloc.Allocator, g *graph.Graph, p *alloc.Plan) *alloc.Binding {
	t.Helper()
	b, err := a.Bind(g, p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	decode  = graph.Params{Tokens: 1, Outputs: 1, Phase: graph.Decode, Cells: 32}
	prefill = graph.Params{Tokens: 20, Outputs: 1, Cells: 32}
)

func TestGraphsShareOneArenaThatGrows(t *testing.T) {
	d := null.New("a", null.Everything())
	a := alloc.New([]backend.Backend{d})
	small, smallPlan := decoder(t, "a", decode, 2)
	large, largePlan := decoder(t, "a", prefill, 2)

	b1 := bind(t, a, small, smallPlan)
	first := b1.Operand(small.Outputs[0]).Buffer
	generation := a.Generation()
	b2 := bind(t, a, large, largePlan)
	if a.Generation() == generation || !b1.Stale() || b2.Stale() {
		t.Fatalf("generation %d after %d, stale %v and %v", a.Generation(), generation, b1.Stale(), b2.Stale())
	}
	if err := b1.Refresh(); err != nil {
		t.Fatal(err)
	}
	second := b1.Operand(small.Outputs[0]).Buffer
	if second.ID == first.ID || second.ID != b2.Operand(large.Outputs[0]).Buffer.ID {
		t.Errorf("output moved from %+v to %+v", first, second)
	}
	if got, want := a.Stats().Devices[0].Arena, int64(largePlan.Arena("a")); got != want {
		t.Errorf("arena of %d bytes, want %d", got, want)
	}
	// Now that it is large enough, nothing moves any more.
	generation = a.Generation()
	bind(t, a, small, smallPlan)
	if a.Generation() != generation {
		t.Error("a smaller graph moved the arena")
	}
	if n := testing.AllocsPerRun(20, func() {
		if err := b1.Refresh(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Refresh makes %v allocations", n)
	}
}

func TestRefreshMakesNoGarbage(t *testing.T) {
	d := null.New("a", null.Everything())
	a := alloc.New([]backend.Backend{d})
	g, p := decoder(t, "a", decode, 4)
	b := bind(t, a, g, p)
	cells := 32
	n := testing.AllocsPerRun(5, func() {
		cells += backend.KVBlock
		if err := a.GrowKV(cells); err != nil {
			t.Fatal(err)
		}
	})
	m := testing.AllocsPerRun(5, func() {
		cells += backend.KVBlock
		if err := a.GrowKV(cells); err != nil {
			t.Fatal(err)
		}
		if !b.Stale() {
			t.Fatal("not stale after the regions moved")
		}
		if err := b.Refresh(); err != nil {
			t.Fatal(err)
		}
	})
	// The null device itself allocates as it grows its table, so a little more or less.
	if m > n+1 {
		t.Errorf("growing makes %v allocations, growing and refreshing %v", n, m)
	}
}

func TestRegionsSurviveReplanning(t *testing.T) {
	d := null.New("a", null.Everything())
	a := alloc.New([]backend.Backend{d})
	if _, ok := a.KVPair(0); ok {
		t.Fatal("regions before any graph")
	}
	g, p := decoder(t, "a", decode, 2)
	bind(t, a, g, p)
	kv, ok := a.KVPair(1)
	if !ok || kv.Width != 8 || kv.Cells != 32 || kv.Type != graph.F32 || kv.K.Size != 32*8*4 || kv.V.Size != 32*8*4 || kv.K.ID == kv.V.ID {
		t.Fatalf("regions %+v", kv)
	}
	before := *kv
	g2, p2 := decoder(t, "a", prefill, 2)
	bind(t, a, g2, p2)
	again, _ := a.KVPair(1)
	if again != kv || *again != before {
		t.Errorf("regions moved from %+v to %+v", before, *again)
	}
	if dev, _ := a.KVDevice(1); dev != "a" {
		t.Errorf("on device %q", dev)
	}
}

func TestRegionsOfAnotherKindAreRefused(t *testing.T) {
	a := alloc.New([]backend.Backend{null.New("a", null.Everything()), null.New("b", null.Everything())})
	g, p := decoder(t, "a", decode, 1)
	bind(t, a, g, p)
	half := decode
	half.KVType = graph.F16
	tests := []struct {
		device string
		params graph.Params
		want   string
	}{
		{"b", decode, `alloc: regions of layer 0 with 32 cells of 8 F32 on device "b" were asked for, but there are regions of layer 0 with 32 cells of 8 F32 on device "a": key and value region`},
		{"a", half, `alloc: regions of layer 0 with 32 cells of 8 F16 on device "a" were asked for, but there are regions of layer 0 with 32 cells of 8 F32 on device "a": key and value region`},
	}
	for _, tt := range tests {
		g, p := decoder(t, tt.device, tt.params, 1)
		if _, err := a.Bind(g, p); !errors.Is(err, alloc.ErrRegion) || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
	elsewhere, p2 := decoder(t, "c", decode, 1)
	if _, err := a.Bind(elsewhere, p2); !errors.Is(err, alloc.ErrPlan) {
		t.Errorf("unknown device: %v", err)
	}
}

func fill(a *alloc.Allocator, t *testing.T, layer, cells int, seed byte) (k, v []byte) {
	t.Helper()
	kv, _ := a.KVPair(layer)
	n := cells / backend.KVBlock * alloc.BlockBytes(kv)
	var pattern [251]byte // of a length that no chunk is a multiple of
	for i := range pattern {
		pattern[i] = seed + byte(i*7)
	}
	k = bytes.Repeat(pattern[:], n/len(pattern)+1)[:n]
	v = bytes.Repeat(pattern[1:], n/(len(pattern)-1)+1)[:n]
	if err := a.WriteKV(layer, 0, cells, k, v); err != nil {
		t.Fatal(err)
	}
	return k, v
}

func checkKV(a *alloc.Allocator, t *testing.T, layer, cells int, wantK, wantV []byte) {
	t.Helper()
	k, v := make([]byte, len(wantK)), make([]byte, len(wantV))
	if err := a.ReadKV(layer, 0, cells, k, v); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(k, wantK) || !bytes.Equal(v, wantV) {
		t.Errorf("layer %d holds something else than was written", layer)
	}
}

// Wide enough that a region moves in more than one chunk.
func wideGraph(t *testing.T, device string) (*graph.Graph, *alloc.Plan) {
	t.Helper()
	const width = 8448
	b := graph.NewBuilder(graph.Params{Tokens: 1, Outputs: 1, Cells: 32})
	x, n := b.Input("x", graph.F32, width), b.Input("n", graph.I32, 1)
	for layer := range 2 {
		stored := b.KVStore(fmt.Sprintf("s%d", layer), layer, x, x, n)
		kv := b.KVLoad(fmt.Sprintf("kv%d", layer), layer, stored)
		x = b.Attention(fmt.Sprintf("a%d", layer), x, kv, n, graph.None, graph.Attention{Layer: layer, Heads: 1, KVHeads: 1, HeadDim: width, Scale: 1})
	}
	b.Output(x)
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return g, planOn(t, g, device)
}

func TestGrowKVKeepsContents(t *testing.T) {
	d := null.New("a", null.Everything())
	a := alloc.New([]backend.Backend{d})
	g, p := wideGraph(t, "a")
	bind(t, a, g, p)
	k0, v0 := fill(a, t, 0, 32, 1)
	k1, v1 := fill(a, t, 1, 32, 99)
	kv, _ := a.KVPair(0)
	if err := a.GrowKV(50); err != nil {
		t.Fatal(err)
	}
	if kv.Cells != 64 || a.Cells() != 64 || a.Stats().Cells != 64 {
		t.Fatalf("%d and %d cells, want 64: whole blocks", kv.Cells, a.Cells())
	}
	checkKV(a, t, 0, 32, k0, v0)
	checkKV(a, t, 1, 32, k1, v1)
	fresh := make([]byte, alloc.BlockBytes(kv))
	if err := a.ReadKV(0, 48, 16, fresh, make([]byte, len(fresh))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(fresh, make([]byte, len(fresh))) {
		t.Error("new cells are not zero")
	}
	if got, want := d.PoolStats().Buffers, 1+4; got != want {
		t.Errorf("%d buffers, want %d: the old regions are to be freed", got, want)
	}
	if err := a.GrowKV(16); err != nil || a.Cells() != 64 {
		t.Errorf("shrinking: %v, %d cells", err, a.Cells())
	}
	if err := a.GrowKV(-1); !errors.Is(err, alloc.ErrRegion) {
		t.Errorf("negative: %v", err)
	}
	// Regions of 8448 features are not those of a model with 8.
	g2, p2 := decoder(t, "a", decode, 1)
	if _, err := a.Bind(g2, p2); !errors.Is(err, alloc.ErrRegion) {
		t.Errorf("other width: %v", err)
	}
}

// A graph that wants more cells makes all regions grow; one that wants fewer gets the
// larger ones, for new layers too.
func TestRegionsAreAllAsLarge(t *testing.T) {
	a := alloc.New([]backend.Backend{null.New("a", null.Everything())})
	g, p := decoder(t, "a", decode, 1)
	bind(t, a, g, p)
	k, v := fill(a, t, 0, 32, 5)
	more := decode
	more.Cells = 40
	g, p = decoder(t, "a", more, 2)
	bind(t, a, g, p)
	g, p = decoder(t, "a", decode, 3)
	bind(t, a, g, p)
	for layer := range 3 {
		if kv, ok := a.KVPair(layer); !ok || kv.Cells != 48 {
			t.Errorf("layer %d: %+v, want 48 cells", layer, kv)
		}
	}
	checkKV(a, t, 0, 32, k, v)
}

func TestGrowKVFaultsLoseNothing(t *testing.T) {
	boom := errors.New("boom")
	for _, m := range []null.Method{null.AllocFresh, null.ReadHost, null.WriteHost} {
		for nth := 1; nth <= 4; nth++ {
			d := null.New("a", null.Everything())
			a := alloc.New([]backend.Backend{d})
			g, p := wideGraph(t, "a")
			bind(t, a, g, p)
			k0, v0 := fill(a, t, 0, 32, 1)
			k1, v1 := fill(a, t, 1, 32, 99)
			d.FailOn(m, nth, boom)
			if err := a.GrowKV(64); !errors.Is(err, boom) {
				t.Fatalf("%v %d: %v", m, nth, err)
			}
			if a.Cells() != 32 {
				t.Fatalf("%v %d: %d cells after a failure", m, nth, a.Cells())
			}
			checkKV(a, t, 0, 32, k0, v0)
			checkKV(a, t, 1, 32, k1, v1)
			if err := a.GrowKV(64); err != nil {
				t.Fatalf("%v %d: second try: %v", m, nth, err)
			}
			checkKV(a, t, 0, 32, k0, v0)
			checkKV(a, t, 1, 32, k1, v1)
			if got := d.PoolStats().Buffers; got != 5 {
				t.Fatalf("%v %d: %d buffers, want 5", m, nth, got)
			}
		}
	}
}

func TestTransfersOutsideOfRegions(t *testing.T) {
	a := alloc.New([]backend.Backend{null.New("a", null.Everything())})
	g, p := decoder(t, "a", decode, 1)
	bind(t, a, g, p)
	kv, _ := a.KVPair(0)
	block := make([]byte, alloc.BlockBytes(kv))
	tests := []struct {
		layer, first, cells int
		k, v                []byte
	}{
		{1, 0, 16, block, block},
		{0, 8, 16, block, block},
		{0, 0, 8, block, block},
		{0, 32, 16, block, block},
		{0, -16, 16, block, block},
		{0, 0, math.MaxInt / 16 * 16, block, block},
		{0, 0, 16, block[1:], block},
		{0, 0, 16, block, nil},
	}
	for _, tt := range tests {
		if err := a.ReadKV(tt.layer, tt.first, tt.cells, tt.k, tt.v); !errors.Is(err, alloc.ErrRegion) {
			t.Errorf("read of layer %d, %d cells from %d: %v", tt.layer, tt.cells, tt.first, err)
		}
		if err := a.WriteKV(tt.layer, tt.first, tt.cells, tt.k, tt.v); !errors.Is(err, alloc.ErrRegion) {
			t.Errorf("write of layer %d, %d cells from %d: %v", tt.layer, tt.cells, tt.first, err)
		}
	}
}

func stagedGraph(t *testing.T) (*graph.Graph, *alloc.Plan) {
	return plan(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @a
%1 = Scale(%0) {Factor=2} "y" F32 [16] @a
%2 = Silu(%1) "on_b" F32 [16] @b
%3 = Add(%2 %2) "z" F32 [16] @b
output %3
`)
}

func TestStagingIsApartAndReleased(t *testing.T) {
	d, e := null.New("a", null.Everything()), null.New("b", null.Everything())
	a := alloc.New([]backend.Backend{d, e})
	g, p := stagedGraph(t)
	b := bind(t, a, g, p)
	staged := b.Staged(0)
	if staged.Buffer.ID == b.Operand(3).Buffer.ID || staged.Buffer.Size != 64 || staged.Shape != graph.ShapeOf(16) {
		t.Errorf("copy is %+v", staged)
	}
	c := bind(t, a, g, p)
	if c.Staged(0).Buffer.ID == staged.Buffer.ID {
		t.Error("two graphs share the memory of a copy")
	}
	if got := a.Stats(); got.Staging != 128 || got.Bindings != 2 {
		t.Errorf("stats %+v", got)
	}
	b.Release()
	b.Release()
	if got := a.Stats(); got.Staging != 64 || got.Bindings != 1 || e.PoolStats().Buffers != 2 {
		t.Errorf("after release: %+v, %d buffers", got, e.PoolStats().Buffers)
	}
	if err := b.Refresh(); err == nil {
		t.Error("a released binding can be refreshed")
	}
}

func TestBindFaultsLeakNothing(t *testing.T) {
	boom := errors.New("boom")
	d, e := null.New("a", null.Everything()), null.New("b", null.Everything())
	a := alloc.New([]backend.Backend{d, e})
	g, p := stagedGraph(t)
	e.FailOn(null.AllocFresh, 1, boom)
	if _, err := a.Bind(g, p); !errors.Is(err, boom) {
		t.Fatalf("copy: %v", err)
	}
	e.FailOn(null.Alloc, 1, boom)
	if _, err := a.Bind(g, p); !errors.Is(err, boom) {
		t.Fatalf("arena: %v", err)
	}
	if s := a.Stats(); s.Staging != 0 || s.Bindings != 0 || e.PoolStats().Buffers != 0 {
		t.Errorf("left behind: %+v, %d buffers", s, e.PoolStats().Buffers)
	}
	bind(t, a, g, p)
}

// An arena that cannot grow leaves the graphs that fitted in order.
func TestArenaThatCannotGrow(t *testing.T) {
	small, smallPlan := decoder(t, "a", decode, 1)
	large, largePlan := decoder(t, "a", prefill, 1)
	regions := int64(2 * 32 * 8 * 4)
	d := null.New("a", null.Everything(), null.Limit(regions+int64(largePlan.Arena("a"))-1))
	a := alloc.New([]backend.Backend{d})
	b := bind(t, a, small, smallPlan)
	if _, err := a.Bind(large, largePlan); !errors.Is(err, null.ErrMemory) {
		t.Fatalf("too large: %v", err)
	}
	if err := b.Refresh(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Bytes(b.Operand(small.Outputs[0]).Buffer); err != nil {
		t.Error(err)
	}
	// Even when the old size was not to be had again, the next refresh gets it.
	d.FailOn(null.Alloc, 2, errors.New("fragmented"))
	if _, err := a.Bind(large, largePlan); err == nil {
		t.Fatal("no error")
	}
	if err := b.Refresh(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Bytes(b.Operand(small.Outputs[0]).Buffer); err != nil {
		t.Error(err)
	}
}

func TestCloseFreesEverything(t *testing.T) {
	d, e := null.New("a", null.Everything()), null.New("b", null.Everything())
	a := alloc.New([]backend.Backend{d, e})
	g, p := stagedGraph(t)
	b := bind(t, a, g, p)
	g2, p2 := decoder(t, "b", decode, 2)
	bind(t, a, g2, p2)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b.Release()
	for _, dev := range []*null.Device{d, e} {
		if s := dev.PoolStats(); s.Buffers != 0 || s.BufferBytes != 0 {
			t.Errorf("%s still holds %+v", dev.Name(), s)
		}
	}
	for _, err := range []error{b.Refresh(), a.GrowKV(64), a.ReadKV(0, 0, 0, nil, nil)} {
		if !errors.Is(err, alloc.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if _, err := a.Bind(g, p); !errors.Is(err, alloc.ErrClosed) {
		t.Errorf("Bind after Close: %v", err)
	}
	if _, ok := a.KVPair(0); ok {
		t.Error("regions after Close")
	}
}
