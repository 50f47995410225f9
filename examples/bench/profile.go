package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched/trace"
)

// profile is an observer that adds up where the time of generation goes, by operation.
type profile struct {
	trace.Nothing
	weights map[string]int64
	kinds   map[graph.Kind]*share
	passes  int
	whole   time.Duration

	begun, node time.Time
	counts      bool // the pass is of one token
}

// share is the part of an operation.
type share struct {
	kind  graph.Kind
	nodes int
	took  time.Duration
	bytes int64 // of weights
}

func newProfile(m *minfer.Model) *profile {
	return &profile{weights: m.TraceModel().Weights, kinds: make(map[graph.Kind]*share)}
}

func (p *profile) BeginPass(_ context.Context, pass *minfer.Pass) error {
	p.counts, p.begun = len(pass.Tokens) == 1, time.Now()
	return nil
}

func (p *profile) Before(*minfer.Step) { p.node = time.Now() }

func (p *profile) After(s *minfer.Step) error {
	took := time.Since(p.node)
	if !p.counts {
		return nil
	}
	kind := s.Node().Op.Kind()
	k := p.kinds[kind]
	if k == nil {
		k = &share{kind: kind}
		p.kinds[kind] = k
	}
	k.nodes++
	k.took += took
	if kind == graph.KindEmbed {
		return nil // reads a row, not the matrix
	}
	for _, use := range graph.Weights(s.Node().Op) {
		k.bytes += p.weights[use.Name]
	}
	return nil
}

func (p *profile) EndPass(_ *minfer.Pass, err error) error {
	if p.counts && err == nil {
		p.passes++
		p.whole += time.Since(p.begun)
	}
	return nil
}

// write prints a line for each operation, what takes longest first, and one for what is between them.
func (p *profile) write(w io.Writer) {
	if p.passes == 0 {
		return
	}
	var list []*share
	rest := p.whole
	for _, k := range p.kinds {
		list = append(list, k)
		rest -= k.took
	}
	slices.SortFunc(list, func(a, b *share) int { return int(b.took - a.took) })
	fmt.Fprintf(w, "%-20s %10s %14s %8s %8s\n", "a generated token", "nodes", "microseconds", "share", "GB/s")
	line := func(name string, nodes int, took time.Duration, bytes int64) {
		rate := ""
		if bytes > 0 {
			rate = fmt.Sprintf("%.1f", float64(bytes)/float64(took.Nanoseconds()))
		}
		fmt.Fprintf(w, "%-20s %10d %14.1f %7.1f%% %8s\n", name, nodes/p.passes, float64(took.Nanoseconds())/1e3/float64(p.passes),
			100*took.Seconds()/p.whole.Seconds(), rate)
	}
	for _, k := range list {
		line(k.kind.String(), k.nodes, k.took, k.bytes)
	}
	line("between them", 0, rest, 0)
}
