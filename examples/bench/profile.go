package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched/trace"
)

// profile is an observer that adds up where the time of generation goes: by operation, and by what weights
// it is with, those of all layers together.
type profile struct {
	trace.Nothing
	weights map[string]int64
	shares  map[use]*share
	passes  int
	whole   time.Duration

	begun, node time.Time
	counts      bool // the pass is of one token
}

type use struct {
	kind   graph.Kind
	weight string // the first, without the layer
}

// useOf tells what a node is counted as.
func useOf(op graph.Op) use {
	u := use{kind: op.Kind()}
	if list := graph.Weights(op); len(list) > 0 {
		u.weight = strings.TrimSuffix(list[0].Name, ".weight")
		if layer, rest, ok := strings.Cut(strings.TrimPrefix(u.weight, "blk."), "."); ok && strings.Trim(layer, "0123456789") == "" {
			u.weight = rest
		}
	}
	return u
}

func (u use) String() string { return strings.TrimSpace(u.kind.String() + " " + u.weight) }

// share is the part of a use.
type share struct {
	use   use
	nodes int
	took  time.Duration
	bytes int64 // of weights
}

func newProfile(m *minfer.Model) *profile {
	return &profile{weights: m.TraceModel().Weights, shares: make(map[use]*share)}
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
	u := useOf(s.Node().Op)
	k := p.shares[u]
	if k == nil {
		k = &share{use: u}
		p.shares[u] = k
	}
	k.nodes++
	k.took += took
	if u.kind == graph.KindEmbed {
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

// write prints a line for each use, what takes longest first, and one for what is between them.
func (p *profile) write(w io.Writer) {
	if p.passes == 0 {
		return
	}
	var list []*share
	rest := p.whole
	for _, k := range p.shares {
		list = append(list, k)
		rest -= k.took
	}
	slices.SortFunc(list, func(a, b *share) int { return int(b.took - a.took) })
	fmt.Fprintf(w, "%-28s %10s %14s %8s %8s\n", "a generated token", "nodes", "microseconds", "share", "GB/s")
	line := func(name string, nodes int, took time.Duration, bytes int64) {
		rate := ""
		if bytes > 0 {
			rate = fmt.Sprintf("%.1f", float64(bytes)/float64(took.Nanoseconds()))
		}
		fmt.Fprintf(w, "%-28s %10d %14.1f %7.1f%% %8s\n", name, nodes/p.passes, float64(took.Nanoseconds())/1e3/float64(p.passes),
			100*took.Seconds()/p.whole.Seconds(), rate)
	}
	for _, k := range list {
		line(k.use.String(), k.nodes, k.took, k.bytes)
	}
	line("between them", 0, rest, 0)
}
