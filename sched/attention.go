package sched

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// AttentionWeights computes what each query head of each row of an attention node gives to
// each of some cells: dst[(row*heads+head)*len(cells)+i] is the weight of cells[i], 0 for one
// that the row does not attend to. It is of use within Observer.After. Of a node that is no
// attention, or if dst has not that length, the error wraps ErrOutput.
//
// A device never has these numbers in one place, and may lay keys out as it likes. But
// attention is linear in the values: over values of which each is 1 in one feature and 0 in
// all others, its result is the weights. So the node is run again by the same device, over
// the same keys and such values, for as many cells at a time as a head has features.
func (s *Step) AttentionWeights(cells []int32, dst []float32) (err error) {
	op, ok := s.node.Op.(graph.Attention)
	rows := s.out.Shape[1]
	if !ok || len(dst) != rows*op.Heads*len(cells) {
		return fmt.Errorf("sched: weights of %d cells by node %q (%s) into %d values: %w", len(cells), s.node.Name, graph.OpString(s.node.Op), len(dst), ErrOutput)
	}
	if len(cells) == 0 {
		return nil
	}
	probe := &probe{step: s, op: op, cells: cells}
	defer probe.free()
	if err := probe.alloc(); err != nil {
		return fmt.Errorf("sched: memory for the weights of node %q: %w", s.node.Name, err)
	}
	for first := 0; first < len(cells); first += op.HeadDim {
		if err := probe.run(first, dst); err != nil {
			return fmt.Errorf("sched: weights of node %q: %w", s.node.Name, err)
		}
	}
	return nil
}

// probe is the memory and the nodes by which attention is asked for its weights.
type probe struct {
	step    *Step
	op      graph.Attention
	cells   []int32
	buffers []backend.Buffer // to be freed

	regions backend.KV      // what the unit values are stored to; its keys are of no use
	values  backend.Operand // a row for each cell
	at      backend.Operand // the cells
	out     backend.Operand // the result of the attention
	raw     []byte
}

func (p *probe) take(size int) (b backend.Buffer, err error) {
	if b, err = p.step.device.AllocFresh(size); err == nil {
		p.buffers = append(p.buffers, b)
	}
	return b, err
}

func (p *probe) free() {
	for _, b := range p.buffers {
		p.step.device.Free(b)
	}
}

func (p *probe) alloc() (err error) {
	kv := p.step.kv
	p.regions = *kv
	p.values = backend.Operand{Shape: graph.ShapeOf(kv.Width, len(p.cells)), Type: graph.F32}
	p.at = backend.Operand{Shape: graph.ShapeOf(len(p.cells)), Type: graph.I32}
	p.out = p.step.out
	for _, want := range []struct {
		buffer *backend.Buffer
		size   int
	}{
		{&p.regions.K, kv.K.Size}, {&p.regions.V, kv.V.Size},
		{&p.values.Buffer, 4 * kv.Width * len(p.cells)}, {&p.at.Buffer, 4 * len(p.cells)},
		{&p.out.Buffer, p.step.out.Buffer.Size},
	} {
		if *want.buffer, err = p.take(want.size); err != nil {
			return err
		}
	}
	raw := make([]byte, 4*len(p.cells))
	for i, c := range p.cells {
		binary.LittleEndian.PutUint32(raw[4*i:], uint32(c))
	}
	p.raw = make([]byte, max(p.values.Buffer.Size, p.out.Buffer.Size))
	return p.step.device.WriteHost(p.at.Buffer, raw)
}

// run finds the weights of as many cells as a head has features, from the one of index first on.
func (p *probe) run(first int, dst []float32) error {
	s, d := p.step, p.step.device
	width, n := p.regions.Width, min(p.op.HeadDim, len(p.cells)-first)
	unit := p.raw[:p.values.Buffer.Size]
	clear(unit)
	for i := range n {
		for head := range p.op.KVHeads {
			binary.LittleEndian.PutUint32(unit[4*((first+i)*width+head*p.op.HeadDim+i):], math.Float32bits(1))
		}
	}
	if err := d.WriteHost(p.values.Buffer, unit); err != nil {
		return err
	}
	store := graph.Node{Name: s.node.Name + ".unit_values", Op: graph.KVStore{Layer: p.op.Layer}, Shape: graph.ShapeOf(width, p.regions.Cells), Type: p.regions.Type, Device: s.node.Device}
	if err := store.SetSources(0, 1, 2); err != nil {
		return err
	}
	in := []backend.Operand{p.values, p.values, p.at}
	if err := d.Execute(&store, in, backend.Operand{Shape: store.Shape, Type: store.Type}, &p.regions); err != nil {
		return err
	}
	kv := backend.KV{K: s.kv.K, V: p.regions.V, Width: width, Cells: s.kv.Cells, Type: s.kv.Type}
	if err := d.Execute(s.node, s.in, p.out, &kv); err != nil {
		return err
	}
	result := p.raw[:p.out.Buffer.Size]
	if err := d.ReadHost(result, p.out.Buffer); err != nil {
		return err
	}
	for r := range p.out.Shape[1] * p.op.Heads {
		from := result[4*r*p.op.HeadDim:]
		for i := range n {
			dst[r*len(p.cells)+first+i] = math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:]))
		}
	}
	return nil
}
