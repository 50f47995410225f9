package sched_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/fusion"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/graphtest"
	"github.com/minfer/minfer/sched"
)

func devicesOf(backends ...backend.Backend) []sched.Device {
	var list []sched.Device
	for _, b := range backends {
		list = append(list, sched.Device{Name: b.Name(), Capabilities: b.Capabilities()})
	}
	return list
}

func prepare(t testing.TB, g *graph.Graph, a *alloc.Allocator, opts ...sched.Option) *sched.Program {
	t.Helper()
	p, err := sched.Prepare(g, a, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// writeInputs fills every input with numbers that fit their use, from a seed.
func writeInputs(t testing.TB, p *sched.Program, seed uint64) {
	t.Helper()
	r := graphtest.NewRand(seed)
	g := p.Graph()
	for _, id := range g.Inputs {
		n := g.Node(id)
		var err error
		if n.Type == graph.F32 {
			data := make([]float32, n.Shape.Elements())
			for i := range data {
				data[i] = float32(r.IntN(65)-32) / 16
			}
			err = p.WriteInputF32(n.Name, data)
		} else {
			data := make([]int32, n.Shape.Elements())
			for i := range data {
				data[i] = int32(i) // a row, a position and a cell alike
			}
			err = p.WriteInput(n.Name, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func outputs(t testing.TB, p *sched.Program) [][]float32 {
	t.Helper()
	var all [][]float32
	for i, id := range p.Graph().Outputs {
		out := make([]float32, p.Graph().Node(id).Shape.Elements())
		if err := p.ReadOutput(i, 0, out); err != nil {
			t.Fatal(err)
		}
		all = append(all, out)
	}
	return all
}

func execute(t testing.TB, p *sched.Program, seed uint64) [][]float32 {
	t.Helper()
	writeInputs(t, p, seed)
	if err := p.Execute(context.Background()); err != nil {
		t.Fatal(err)
	}
	return outputs(t, p)
}

// same compares bits, so that a NaN is equal to itself.
func same(a, b [][]float32) error {
	for i := range a {
		for j := range a[i] {
			if math.Float32bits(a[i][j]) != math.Float32bits(b[i][j]) {
				return fmt.Errorf("output %d, element %d: %v and %v", i, j, a[i][j], b[i][j])
			}
		}
	}
	return nil
}

// scatter places computed nodes at random, a layer's together, and leaves the rest to
// Assign.
func scatter(g *graph.Graph, r *rand.Rand, devices ...string) {
	layers := make(map[int]string)
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if !graph.Computed(n.Op) {
			continue
		}
		n.Device = devices[r.IntN(len(devices))]
		if layer, ok := graph.LayerOf(n.Op); ok {
			if layers[layer] == "" {
				layers[layer] = n.Device
			}
			n.Device = layers[layer]
		}
	}
}

// Whatever the placement, whether copies are early or late, and however often a program
// has run, outputs are those of one device alone.
func TestMixedPlacementsEqualOneDevice(t *testing.T) {
	for seed := range uint64(120) {
		r := graphtest.NewRand(seed)
		g := graphtest.Random(r, 10+r.IntN(60), graphtest.Among(toyKinds...))

		alone := g.Clone()
		one := newToy("a", null.Everything())
		if err := sched.Assign(alone, devicesOf(one)); err != nil {
			t.Fatal(err)
		}
		reference := prepare(t, alone, alloc.New([]backend.Backend{one}))
		if got := reference.Splits(); len(got) > 1 {
			t.Fatalf("seed %d: one device, %d splits", seed, len(got))
		}
		want := [][][]float32{execute(t, reference, 1), execute(t, reference, 2)}

		for variant := range 4 {
			mixed := g.Clone()
			scatter(mixed, r, "a", "b", "c")
			var opts []null.Option
			if variant%2 == 1 {
				opts = append(opts, null.Async())
			}
			devices := []backend.Backend{newToy("a", null.Everything(), opts...), newToy("b", null.Everything(), opts...), newToy("c", null.Everything(), opts...)}
			if err := sched.Assign(mixed, devicesOf(devices...)); err != nil {
				t.Fatal(err)
			}
			if variant >= 2 {
				mixed.Params.Fusion.SwiGLU = true
				if _, err := fusion.Run(mixed, func(string) *backend.Capabilities { return null.Everything() }); err != nil {
					t.Fatal(err)
				}
			}
			p := prepare(t, mixed, alloc.New(devices))
			for _, run := range []uint64{1, 2, 1, 1} {
				if err := same(want[run-1], execute(t, p, run)); err != nil {
					t.Fatalf("seed %d, variant %d, inputs %d: %v\n%v", seed, variant, run, err, mixed)
				}
			}
		}
	}
}

func TestDecoderOverPrefillAndDecode(t *testing.T) {
	// Tokens 0 to 5 at once, and 0 to 3 followed by one at a time, on two devices.
	want := decodeLogits(t, false, 6)
	if err := same(want, decodeLogits(t, true, 4, 1, 1)); err != nil {
		t.Error(err)
	}
}

// decodeLogits evaluates tokens in chunks of the given sizes and returns the last logits.
func decodeLogits(t *testing.T, mixed bool, chunks ...int) [][]float32 {
	t.Helper()
	a, b := newToy("a", null.Everything()), newToy("b", null.Everything(), null.Async())
	owner := alloc.New([]backend.Backend{a, b})
	var last [][]float32
	at := 0
	for _, n := range chunks {
		g, err := graphtest.Decoder(graph.Params{Tokens: n, Outputs: 1, Cells: 16}, 3)
		if err != nil {
			t.Fatal(err)
		}
		if mixed {
			for i := range g.Nodes {
				n := &g.Nodes[i]
				if layer, ok := graph.LayerOf(n.Op); ok && layer == 1 || n.Op.Kind() == graph.KindSilu {
					n.Device = "b"
				}
			}
		}
		if err := sched.Assign(g, devicesOf(a, b)); err != nil {
			t.Fatal(err)
		}
		p := prepare(t, g, owner)
		where := make([]int32, n)
		ids := make([]int32, n)
		for i := range n {
			where[i], ids[i] = int32(at+i), int32((at+i)*7%48)
		}
		inputs := map[string][]int32{"token_ids": ids, "positions": where, "cells": where}
		if n > 1 {
			inputs["tail_ids"] = []int32{int32(n - 1)}
		}
		for name, data := range inputs {
			if err := p.WriteInput(name, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Execute(context.Background()); err != nil {
			t.Fatal(err)
		}
		last = outputs(t, p)
		p.Release()
		at += n
	}
	return last
}

const forked = `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @a
%1 = Scale(%0) {Factor=2} "y" F32 [16] @a
%2 = Silu(%1) "on_b" F32 [16] @b
%3 = Add(%2 %1) "again_b" F32 [16] @b
%4 = Scale(%1) {Factor=3} "on_a" F32 [16] @a
%5 = Add(%3 %1) "third_b" F32 [16] @b
%6 = Silu(%1) "on_c" F32 [16] @c
%7 = Add(%4 %5) "sum" F32 [16] @a
output %6 %7
`

func parse(t testing.TB, text string) *graph.Graph {
	t.Helper()
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func nulls(opts ...null.Option) (a, b, c *null.Device, owner *alloc.Allocator) {
	a, b, c = null.New("a", null.Everything(), opts...), null.New("b", null.Everything(), opts...), null.New("c", null.Everything(), opts...)
	return a, b, c, alloc.New([]backend.Backend{a, b, c})
}

// A value for two devices is copied once to each, and waited for once, right before
// its first reader.
func TestCopiesOfOneExecution(t *testing.T) {
	a, b, c, owner := nulls(null.Async(), null.Logged())
	p := prepare(t, parse(t, forked), owner)
	a.ClearLog()
	for range 2 {
		if err := p.Execute(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := a.Calls(null.CopyAcross), 2*2; got != want {
		t.Errorf("%d copies from a, want %d", got, want)
	}
	if got, want := a.Calls(null.WaitCopy), 2*2; got != want {
		t.Errorf("%d waits on a, want %d", got, want)
	}
	if got, want := b.Calls(null.CopyAcross), 2; got != want {
		t.Errorf("%d copies from b, want %d", got, want)
	}
	if c.Calls(null.CopyAcross) != 0 || a.Pending()+b.Pending()+c.Pending() != 0 {
		t.Error("copies from c, or copies that nobody waited for")
	}
	want := []sched.Split{
		{Device: "a", First: 1, Last: 1, Outputs: []graph.NodeID{1}},
		{Device: "b", First: 2, Last: 3, Inputs: []graph.NodeID{1}},
		{Device: "a", First: 4, Last: 4},
		{Device: "b", First: 5, Last: 5, Outputs: []graph.NodeID{5}},
		{Device: "c", First: 6, Last: 6, Inputs: []graph.NodeID{1}},
		{Device: "a", First: 7, Last: 7, Inputs: []graph.NodeID{5}},
	}
	if got := p.Splits(); !reflect.DeepEqual(got, want) {
		t.Errorf("splits\n%+v, want\n%+v", got, want)
	}
}

// The wait is at the first node that reads the copy, not at the start of the split.
func TestWaitIsAtTheFirstReader(t *testing.T) {
	a, _, _, owner := nulls(null.Async())
	g := parse(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @a
%1 = Input() "z" F32 [16] @b
%2 = Scale(%0) {Factor=2} "y" F32 [16] @a
%3 = Silu(%1) "busy" F32 [16] @b
%4 = Silu(%3) "busier" F32 [16] @b
%5 = Add(%4 %2) "sum" F32 [16] @b
output %5
`)
	pending := make(map[string]int)
	p := prepare(t, g, owner, sched.WithObserver(beforeFunc(func(s *sched.Step) { pending[s.Node().Name] = a.Pending() })))
	if err := p.Execute(context.Background()); err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{"y": 0, "busy": 1, "busier": 1, "sum": 0}; !reflect.DeepEqual(pending, want) {
		t.Errorf("copies under way before each node: %v, want %v", pending, want)
	}
}

type beforeFunc func(*sched.Step)

func (f beforeFunc) Before(s *sched.Step)      { f(s) }
func (f beforeFunc) After(s *sched.Step) error { return nil }

func TestExecuteAllocatesNothing(t *testing.T) {
	for name, opts := range map[string][]null.Option{"direct": nil, "async": {null.Async()}} {
		t.Run(name, func(t *testing.T) {
			_, _, _, owner := nulls(opts...)
			p := prepare(t, parse(t, forked), owner)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			x, out := make([]float32, 16), make([]float32, 16)
			if n := testing.AllocsPerRun(50, func() {
				if p.WriteInputF32("x", x) != nil || p.Execute(ctx) != nil || p.ReadOutput(1, 0, out) != nil {
					t.Fatal("failed")
				}
			}); n != 0 {
				t.Errorf("a step makes %v allocations", n)
			}
		})
	}
}

// After another graph has made the arena grow, a program goes on where the memory is.
func TestProgramFollowsItsMemory(t *testing.T) {
	d := newToy("a", null.Everything())
	owner := alloc.New([]backend.Backend{d})
	small := parse(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @a
%1 = Scale(%0) {Factor=2} "y" F32 [16] @a
output %1
`)
	p := prepare(t, small, owner)
	want := execute(t, p, 3)
	large, err := graphtest.Decoder(graph.Params{Tokens: 8, Outputs: 8, Cells: 16}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := sched.Assign(large, devicesOf(d)); err != nil {
		t.Fatal(err)
	}
	generation := owner.Generation()
	q := prepare(t, large, owner)
	if owner.Generation() == generation {
		t.Fatal("the arena did not move; the test tests nothing")
	}
	logits := execute(t, q, 1)
	if err := same(want, execute(t, p, 3)); err != nil {
		t.Error(err)
	}
	if err := owner.GrowKV(64); err != nil {
		t.Fatal(err)
	}
	if err := same(logits, execute(t, q, 1)); err != nil {
		t.Error(err)
	}
}

func TestErrorsLeaveTheProgramExecutable(t *testing.T) {
	boom := errors.New("boom")
	methods := []null.Method{null.Execute, null.CopyAcross, null.WaitCopy, null.Synchronize, null.WriteHost}
	for _, m := range methods {
		for nth := 1; nth <= 3; nth++ {
			for _, panics := range []bool{false, true} {
				a := newToy("a", null.Everything(), null.Async())
				b := newToy("b", null.Everything(), null.Async())
				c := newToy("c", null.Everything(), null.Async())
				p := prepare(t, parse(t, forked), alloc.New([]backend.Backend{a, b, c}))
				want := execute(t, p, 1)
				writeInputs(t, p, 1)
				victim := a
				if m == null.WriteHost {
					victim = b // where copies arrive
				}
				if panics {
					victim.PanicOn(m, nth, boom)
				} else {
					victim.FailOn(m, nth, boom)
				}
				before := victim.Calls(m)
				err := p.Execute(context.Background())
				if victim.Calls(m) < before+nth {
					continue // the method is not called as often
				}
				label := fmt.Sprintf("%v %d (panic %v)", m, nth, panics)
				if !errors.Is(err, boom) {
					t.Fatalf("%s: %v", label, err)
				}
				var pe *sched.PanicError
				if errors.As(err, &pe) != panics {
					t.Fatalf("%s: %v", label, err)
				}
				if panics && !strings.Contains(string(pe.Stack), "null.(*Device).enter") {
					t.Fatalf("%s: stack\n%s", label, pe.Stack)
				}
				if n := a.Pending() + b.Pending() + c.Pending(); n != 0 {
					// A failed Synchronize may have left some; the next one takes them.
					if m != null.Synchronize {
						t.Fatalf("%s: %d copies under way", label, n)
					}
				}
				if err := same(want, execute(t, p, 1)); err != nil {
					t.Fatalf("%s: afterwards: %v", label, err)
				}
			}
		}
	}
}

func TestNodeErrorsNameTheNode(t *testing.T) {
	boom := errors.New("boom")
	a, b, _, owner := nulls()
	p := prepare(t, parse(t, forked), owner)
	b.FailOn(null.Execute, 2, boom)
	err := p.Execute(context.Background())
	var ne *backend.NodeError
	if !errors.As(err, &ne) || !errors.Is(err, boom) || *ne != (backend.NodeError{Device: "b", Node: "again_b", Op: "Add", Err: boom}) {
		t.Errorf("%v", err)
	}
	a.PanicOn(null.Execute, 2, "out of cheese")
	err = p.Execute(context.Background())
	var pe *sched.PanicError
	if !errors.As(err, &pe) || pe.Node != "on_a" || pe.Device != "a" || pe.Value != "out of cheese" {
		t.Errorf("%v", err)
	}
	if got, want := err.Error(), `sched: panic in node "on_a" on a: out of cheese`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestCancellationBetweenNodes(t *testing.T) {
	a, b, c := newToy("a", null.Everything(), null.Async()), newToy("b", null.Everything(), null.Async()), newToy("c", null.Everything(), null.Async())
	p := prepare(t, parse(t, forked), alloc.New([]backend.Backend{a, b, c}))
	want := execute(t, p, 1)
	for stop := range 7 {
		ctx, cancel := context.WithCancel(context.Background())
		seen := 0
		p.SetObserver(beforeFunc(func(*sched.Step) {
			if seen++; seen == stop {
				cancel()
			}
		}))
		if stop == 0 {
			cancel()
		}
		err := p.Execute(ctx)
		cancel()
		if !errors.Is(err, context.Canceled) || seen != stop {
			t.Fatalf("stop at %d: %d nodes, %v", stop, seen, err)
		}
		if a.Pending()+b.Pending()+c.Pending() != 0 {
			t.Fatalf("stop at %d: copies under way", stop)
		}
		p.SetObserver(nil)
		if err := same(want, execute(t, p, 1)); err != nil {
			t.Fatalf("stop at %d: afterwards: %v", stop, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Execute(ctx); err == nil || err.Error() != `sched: stopped before node "y": context canceled` {
		t.Errorf("%v", err)
	}
}

// reader keeps the values that it sees.
type reader struct {
	values  map[string][]byte
	sources map[string][]byte
	fail    string
}

func (r *reader) Before(s *sched.Step) {
	if len(s.Node().Sources()) > 0 && s.Node().Op.Kind() != graph.KindEmbed {
		raw := make([]byte, 4)
		if s.ReadSource(0, 0, raw) == nil {
			r.sources[s.Node().Name] = raw
		}
	}
}

func (r *reader) After(s *sched.Step) error {
	if s.Node().Name == r.fail {
		return errors.New("seen enough")
	}
	raw := make([]byte, s.Bytes())
	if err := errors.Join(s.Wait(), s.Read(0, raw[:8]), s.Read(8, raw[8:])); err != nil {
		return err
	}
	r.values[s.Device()+"/"+s.Node().Name] = raw
	return s.ReadSource(9, 0, nil)
}

func TestObserver(t *testing.T) {
	a, b, c := newToy("a", null.Everything()), newToy("b", null.Everything()), newToy("c", null.Everything())
	p := prepare(t, parse(t, forked), alloc.New([]backend.Backend{a, b, c}))
	writeInputs(t, p, 1)
	r := &reader{values: map[string][]byte{}, sources: map[string][]byte{}}
	p.SetObserver(r)
	if err := p.Execute(context.Background()); !errors.Is(err, sched.ErrOutput) || !strings.Contains(err.Error(), `"y"`) {
		t.Fatalf("a source that is not there: %v", err)
	}
	if got := r.values["a/y"]; len(got) != 64 {
		t.Errorf("%d bytes of y", len(got))
	}
	r.fail = "y"
	if err := p.Execute(context.Background()); err == nil || err.Error() != `sched: observer at node "y": seen enough` {
		t.Errorf("%v", err)
	}
}

// replaying records runs as a device with captured graphs would.
type replaying struct {
	*null.Device
	recorded map[[3]uint64]bool
	replays  int
	capture  []bool
}

func (d *replaying) Replay(uid uint64, first, last int) (bool, error) {
	key := [3]uint64{uid, uint64(first), uint64(last)}
	if d.recorded[key] {
		d.replays++
		return true, nil
	}
	d.recorded[key] = true
	return false, nil
}

func (d *replaying) Capture(on bool) { d.capture = append(d.capture, on) }

func TestReplay(t *testing.T) {
	d := &replaying{Device: null.New("a", null.Everything()), recorded: map[[3]uint64]bool{}}
	owner := alloc.New([]backend.Backend{d})
	g := parse(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @a
%1 = Scale(%0) {Factor=2} "y" F32 [16] @a
%2 = Silu(%1) "z" F32 [16] @a
output %2
`)
	p := prepare(t, g, owner)
	run := func() {
		t.Helper()
		if err := p.Execute(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, executed, replays int) {
		t.Helper()
		if got := d.Calls(null.Execute); got != executed || d.replays != replays {
			t.Errorf("%s: %d nodes executed and %d replays, want %d and %d", what, got, d.replays, executed, replays)
		}
	}
	run()
	expect("first run", 2, 0)
	run()
	run()
	expect("later runs", 2, 2)

	p.SetObserver(beforeFunc(func(*sched.Step) {}))
	run()
	p.SetObserver(nil)
	expect("observed", 4, 2)
	if want := []bool{true, false}; !reflect.DeepEqual(d.capture, want) {
		t.Errorf("capture switched %v, want %v", d.capture, want)
	}
	if got := p.Captured(); !reflect.DeepEqual(got, []string{"a"}) {
		t.Errorf("%q are captured", got)
	}
	run()
	expect("not observed any more", 4, 3)

	// A recording is of no use once the memory has moved.
	large := parse(t, strings.ReplaceAll(g.String(), "[16]", "[64]"))
	prepare(t, large, owner)
	run()
	expect("after the memory moved", 6, 3)
	run()
	expect("and again", 6, 4)

	// Nor is one of a run that was given up.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Execute(ctx); err == nil {
		t.Fatal("no error")
	}
	run()
	expect("after a cancelled run", 8, 4)

	q := prepare(t, g.Clone(), owner, sched.WithReplay(false))
	for range 2 {
		if err := q.Execute(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	expect("replay off", 12, 4)
}

func TestInputsAndOutputsThatDoNotFit(t *testing.T) {
	_, _, _, owner := nulls()
	p := prepare(t, parse(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [4 3] @a
%1 = Input() "ids" I32 [2] @a
%2 = Input() "unused" I32 [2]
%3 = GetRows(%0 %1) "rows" F32 [4 2] @a
%4 = Silu(%0) "s" F32 [4 3] @a
output %3 %1
`), owner)
	tests := []struct {
		err  error
		want string
	}{
		{p.WriteInput("y", nil), `sched: the graph has no input "y": input does not fit`},
		{p.WriteInput("x", make([]int32, 12)), `sched: input "x" takes 12 values of F32, given 12 of I32: input does not fit`},
		{p.WriteInput("ids", make([]int32, 3)), `sched: input "ids" takes 2 values of I32, given 3 of I32: input does not fit`},
		{p.WriteInputF32("ids", make([]float32, 2)), `sched: input "ids" takes 2 values of I32, given 2 of F32: input does not fit`},
		{p.ReadOutput(2, 0, nil), `sched: output 2 of 2: output does not fit`},
		{p.ReadOutput(1, 0, nil), `sched: output "ids" is no value of F32: output does not fit`},
		{p.ReadOutput(0, 0, make([]float32, 5)), `sched: output "rows" has 2 rows of 4 values, asked for 5 values from row 0 on: output does not fit`},
		{p.ReadOutput(0, 1, make([]float32, 8)), `sched: output "rows" has 2 rows of 4 values, asked for 8 values from row 1 on: output does not fit`},
		{p.ReadOutput(0, -1, make([]float32, 4)), `sched: output "rows" has 2 rows of 4 values, asked for 4 values from row -1 on: output does not fit`},
	}
	for _, tt := range tests {
		if tt.err == nil || tt.err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", tt.err, tt.want)
		}
		if !errors.Is(tt.err, sched.ErrInput) && !errors.Is(tt.err, sched.ErrOutput) {
			t.Errorf("%v is neither ErrInput nor ErrOutput", tt.err)
		}
	}
	if err := p.WriteInput("unused", make([]int32, 2)); err != nil {
		t.Errorf("an input that nobody reads: %v", err)
	}
	if err := p.ReadOutput(0, 1, make([]float32, 4)); err != nil {
		t.Error(err)
	}
}

func TestReadOutputRows(t *testing.T) {
	d := newToy("a", null.Everything())
	p := prepare(t, parse(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [2 3] @a
%1 = Scale(%0) {Factor=2} "y" F32 [2 3] @a
output %1
`), alloc.New([]backend.Backend{d}))
	if err := p.WriteInputF32("x", []float32{1, 2, 3, 4, 5, 6}); err != nil {
		t.Fatal(err)
	}
	if err := p.Execute(context.Background()); err != nil {
		t.Fatal(err)
	}
	out := make([]float32, 4)
	if err := p.ReadOutput(0, 1, out); err != nil {
		t.Fatal(err)
	}
	if want := []float32{6, 8, 10, 12}; !reflect.DeepEqual(out, want) {
		t.Errorf("rows 1 and 2 are %v, want %v", out, want)
	}
}

func TestReleasedProgram(t *testing.T) {
	_, b, _, owner := nulls()
	p := prepare(t, parse(t, forked), owner)
	if owner.Stats().Staging == 0 {
		t.Fatal("no copies")
	}
	before := b.PoolStats().Buffers
	p.Release()
	p.Release()
	if owner.Stats().Staging != 0 || b.PoolStats().Buffers != before-1 {
		t.Errorf("still %+v", owner.Stats())
	}
	for _, err := range []error{p.Execute(context.Background()), p.WriteInputF32("x", nil), p.ReadOutput(0, 0, nil)} {
		if !errors.Is(err, sched.ErrReleased) {
			t.Errorf("after Release: %v", err)
		}
	}
}

func TestPrepareRefusesAnUnassignedGraph(t *testing.T) {
	_, _, _, owner := nulls()
	g := parse(t, strings.ReplaceAll(forked, " @b", ""))
	if _, err := sched.Prepare(g, owner); !errors.Is(err, alloc.ErrPlan) {
		t.Errorf("%v", err)
	}
}
