package backendtest_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/backendtest"
	_ "github.com/minfer/minfer/backend/cpu"
	"github.com/minfer/minfer/graph"
)

// fault is what can be wrong with a device, and the test of the suite that has to find it.
type fault struct {
	name string
	test string
	// execute replaces Execute; it may call the CPU's.
	execute func(*broken, *graph.Node, []backend.Operand, backend.Operand, *backend.KV) error
	// with changes other methods.
	with func(backend.Backend) backend.Backend
}

// broken is the CPU device with a fault.
type broken struct {
	backend.Backend
	fault *fault
	calls int
}

func (b *broken) Execute(n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	b.calls++
	if b.fault.execute != nil {
		return b.fault.execute(b, n, in, out, kv)
	}
	return b.Backend.Execute(n, in, out, kv)
}

// CopyAcross sees through the fault of the other device.
func (b *broken) CopyAcross(dst backend.Backend, to, from backend.Buffer) (backend.Fence, error) {
	if d, ok := dst.(*broken); ok {
		dst = d.Backend
	}
	return b.Backend.CopyAcross(dst, to, from)
}

// spoil runs nodes of a kind, and changes the last bit of the element at an index from
// the end of the result if wrong says so.
func spoil(kind graph.Kind, fromEnd int, wrong func(b *broken, n *graph.Node, in []backend.Operand, out backend.Operand) bool) func(*broken, *graph.Node, []backend.Operand, backend.Operand, *backend.KV) error {
	return func(b *broken, n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
		err := b.Backend.Execute(n, in, out, kv)
		if err != nil || n.Op.Kind() != kind || !wrong(b, n, in, out) {
			return err
		}
		at := out.Buffer.Slice(4*(out.Shape.Elements()-fromEnd), 4)
		raw := make([]byte, 4)
		if err := b.ReadHost(raw, at); err != nil {
			return err
		}
		raw[0] ^= 1
		return b.WriteHost(at, raw)
	}
}

// instead runs nodes with another operation.
func instead(change func(graph.Op) graph.Op) func(*broken, *graph.Node, []backend.Operand, backend.Operand, *backend.KV) error {
	return func(b *broken, n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
		c := *n
		c.Op = change(c.Op)
		return b.Backend.Execute(&c, in, out, kv)
	}
}

// quiet drops the errors of nodes of a kind.
func quiet(kind graph.Kind) func(*broken, *graph.Node, []backend.Operand, backend.Operand, *backend.KV) error {
	return func(b *broken, n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
		err := b.Backend.Execute(n, in, out, kv)
		if n.Op.Kind() == kind {
			return nil
		}
		return err
	}
}

func always(*broken, *graph.Node, []backend.Operand, backend.Operand) bool { return true }

func inPlace(_ *broken, _ *graph.Node, in []backend.Operand, out backend.Operand) bool {
	return in[0].Buffer == out.Buffer
}

var faults = []fault{
	{name: "none"},
	{name: "sum is off by a bit", test: "Elements", execute: spoil(graph.KindAdd, 1, always)},
	{name: "silu in place", test: "Elements", execute: spoil(graph.KindSilu, 1, inPlace)},
	{name: "norm in place", test: "Rows", execute: spoil(graph.KindRMSNorm, 1, inPlace)},
	{name: "writes beyond the result", test: "Elements", execute: func(b *broken, n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
		if err := b.Backend.Execute(n, in, out, kv); err != nil {
			return err
		}
		return b.WriteHost(backend.Buffer{ID: out.Buffer.ID, Offset: out.Buffer.Offset + out.Buffer.Size, Size: 1}, []byte{0})
	}},
	{name: "last element is not written", test: "Shapes", execute: func(b *broken, n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
		at := out.Buffer.Slice(max(0, out.Buffer.Size-4), min(4, out.Buffer.Size))
		before := make([]byte, at.Size)
		if err := b.ReadHost(before, at); err != nil {
			return b.Backend.Execute(n, in, out, kv)
		}
		if err := b.Backend.Execute(n, in, out, kv); err != nil {
			return err
		}
		return b.WriteHost(at, before)
	}},
	{name: "embedding is off by a bit", test: "Embed", execute: spoil(graph.KindEmbed, 1, always)},
	{name: "product is off by a bit", test: "MatMul", execute: spoil(graph.KindMatMul, 1, always)},
	{name: "product depends on the batch", test: "MatMulBatch", execute: spoil(graph.KindMatMul, 1,
		func(_ *broken, _ *graph.Node, _ []backend.Operand, out backend.Operand) bool {
			return out.Shape.Rows() == 7
		})},
	{name: "wrong pairs", test: "RoPE", execute: instead(func(op graph.Op) graph.Op {
		if r, ok := op.(graph.RoPE); ok {
			r.Style = graph.RoPEHalves
			return r
		}
		return op
	})},
	{name: "no window", test: "Attention", execute: instead(func(op graph.Op) graph.Op {
		if a, ok := op.(graph.Attention); ok {
			a.Window = 0
			return a
		}
		return op
	})},
	{name: "spans change a bit", test: "AttentionSpans", execute: spoil(graph.KindAttention, 1,
		func(_ *broken, n *graph.Node, _ []backend.Operand, _ backend.Operand) bool {
			return n.Op.(graph.Attention).ExplicitSpan
		})},
	{name: "attention depends on the batch", test: "AttentionBatch", execute: spoil(graph.KindAttention, 1,
		func(_ *broken, _ *graph.Node, _ []backend.Operand, out backend.Operand) bool {
			return out.Shape.Rows() == 16
		})},
	{name: "stores elsewhere", test: "KV", execute: func(b *broken, n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
		if n.Op.Kind() == graph.KindKVStore && b.calls%2 == 1 {
			c := *kv
			c.K, c.V = c.V, c.K
			kv = &c
		}
		return b.Backend.Execute(n, in, out, kv)
	}},
	{name: "fused queries are off by a bit", test: "Fused", execute: spoil(graph.KindFusedQKVNorm, 1, always)},
	{name: "fused FFN is off by a bit", test: "Fused", execute: spoil(graph.KindFusedFFN, 1, always)},
	{name: "fused FFN with its last product is off by a bit", test: "Fused", execute: spoil(graph.KindFusedFFNDown, 1, always)},
	{name: "another result now and then", test: "RepeatedRuns", execute: spoil(graph.KindMatMul, 1,
		func(b *broken, _ *graph.Node, _ []backend.Operand, _ backend.Operand) bool { return b.calls%3 == 2 })},
	{name: "ids are not checked", test: "WrongCalls", execute: quiet(graph.KindEmbed)},
	{name: "cells are not checked", test: "WrongCalls", execute: quiet(graph.KindKVStore)},
	{name: "operands are not checked", test: "WrongCalls", execute: quiet(graph.KindAdd)},
	{name: "freed memory stays alive", test: "Memory", with: func(b backend.Backend) backend.Backend { return keepsMemory{b} }},
	{name: "fresh memory is not zero", test: "Memory", with: func(b backend.Backend) backend.Backend { return dirtyMemory{b} }},
	{name: "copies too little", test: "CopyAcross", with: func(b backend.Backend) backend.Backend { return shortCopy{b} }},
	{name: "does not close", test: "Close", with: func(b backend.Backend) backend.Backend { return keepsOpen{b} }},
	{name: "counts weights that are loaded again", test: "Weights", with: func(b backend.Backend) backend.Backend { return doubling{b, new(int64)} }},
}

type keepsMemory struct{ backend.Backend }

func (keepsMemory) Free(backend.Buffer) {}

type dirtyMemory struct{ backend.Backend }

func (d dirtyMemory) AllocFresh(n int) (backend.Buffer, error) {
	b, err := d.Backend.AllocFresh(n)
	if err == nil {
		err = d.WriteHost(b, []byte{1})
	}
	return b, err
}

type shortCopy struct{ backend.Backend }

func (d shortCopy) CopyAcross(dst backend.Backend, to, from backend.Buffer) (backend.Fence, error) {
	n := max(0, min(to.Size, from.Size)-1)
	if other, ok := dst.(shortCopy); ok {
		dst = other.Backend
	}
	return d.Backend.CopyAcross(dst, to.Slice(0, n), from.Slice(0, n))
}

type keepsOpen struct{ backend.Backend }

func (keepsOpen) Close() error { return nil }

// doubling counts weights again when they are loaded again.
type doubling struct {
	backend.Backend
	loads *int64
}

func (d doubling) PoolStats() backend.PoolStats {
	s := d.Backend.PoolStats()
	*d.loads++
	s.WeightBytes += *d.loads
	return s
}

const envFault = "MINFER_TEST_FAULT"

// TestFaultsAreFound runs the suite in a process of its own for each fault, and wants
// it to fail in the test that is meant to find it.
func TestFaultsAreFound(t *testing.T) {
	if name := os.Getenv(envFault); name != "" {
		for i := range faults {
			if faults[i].name == name {
				backendtest.Run(t, func(t *testing.T) backend.Backend { return openBroken(t, &faults[i]) }, backendtest.Exact())
			}
		}
		return
	}
	if runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("no processes on this system")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			cmd := exec.Command(self, "-test.run=^TestFaultsAreFound$/^"+f.test)
			cmd.Env = append(os.Environ(), envFault+"="+f.name)
			out, err := cmd.CombinedOutput()
			switch {
			case f.test == "":
				if err != nil {
					t.Errorf("the suite fails without a fault: %v\n%s", err, out)
				}
			case err == nil:
				t.Error("the suite did not find the fault")
			case !strings.Contains(string(out), "--- FAIL: TestFaultsAreFound/"+f.test) || strings.Contains(string(out), "panic:"):
				t.Errorf("the suite failed in another way: %v\n%s", err, out)
			}
		})
	}
}

func openBroken(t *testing.T, f *fault) backend.Backend {
	b, err := backend.Open("cpu", backend.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if f.with != nil {
		b = f.with(b)
	}
	return &broken{Backend: b, fault: f}
}
