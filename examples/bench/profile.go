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

// profile is an observer that adds up where the time goes, of prompts and of generation: by operation, and by
// what weights it is with, those of all layers together.
type profile struct {
	trace.Nothing
	weights           map[string]int64
	prompt, generated phase

	now         *phase
	pairs       int // that the pass attends to
	begun, node time.Time
}

// phase is the passes of one kind.
type phase struct {
	shares map[use]*share
	passes int
	whole  time.Duration
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
	macs  int64
}

func newProfile(m *minfer.Model) *profile {
	p := &profile{weights: m.TraceModel().Weights}
	p.prompt.shares, p.generated.shares = make(map[use]*share), make(map[use]*share)
	return p
}

func (p *profile) BeginPass(_ context.Context, pass *minfer.Pass) error {
	p.now = &p.prompt
	if len(pass.Tokens) == 1 {
		p.now = &p.generated
	}
	p.pairs = 0
	for _, position := range pass.Positions {
		p.pairs += int(position) + 1
	}
	p.begun = time.Now()
	return nil
}

func (p *profile) Before(*minfer.Step) { p.node = time.Now() }

func (p *profile) After(s *minfer.Step) error {
	took := time.Since(p.node)
	u := useOf(s.Node().Op)
	k := p.now.shares[u]
	if k == nil {
		k = &share{use: u}
		p.now.shares[u] = k
	}
	k.nodes++
	k.took += took
	k.macs += graph.MultiplyAdds(s.Node(), p.pairs)
	if u.kind == graph.KindEmbed {
		return nil // reads rows, not the matrix
	}
	for _, use := range graph.Weights(s.Node().Op) {
		k.bytes += p.weights[use.Name]
	}
	return nil
}

func (p *profile) EndPass(_ *minfer.Pass, err error) error {
	if err == nil {
		p.now.passes++
		p.now.whole += time.Since(p.begun)
	}
	return nil
}

func (p *profile) write(w io.Writer) {
	p.prompt.write(w, "a prompt", "GMAC/s", func(s *share) int64 { return s.macs })
	p.generated.write(w, "a generated token", "GB/s", func(s *share) int64 { return s.bytes })
}

// write prints a line for each use, what takes longest first, and one for what is between them. Rates are those of
// what is counted.
func (p *phase) write(w io.Writer, title, unit string, count func(*share) int64) {
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
	fmt.Fprintf(w, "%-28s %10s %14s %8s %8s\n", title, "nodes", "microseconds", "share", unit)
	line := func(name string, nodes int, took time.Duration, counted int64) {
		rate := ""
		if counted > 0 {
			rate = fmt.Sprintf("%.1f", float64(counted)/float64(took.Nanoseconds()))
		}
		fmt.Fprintf(w, "%-28s %10d %14.1f %7.1f%% %8s\n", name, nodes/p.passes, float64(took.Nanoseconds())/1e3/float64(p.passes),
			100*took.Seconds()/p.whole.Seconds(), rate)
	}
	for _, k := range list {
		line(k.use.String(), k.nodes, k.took, count(k))
	}
	line("between them", 0, rest, 0)
}
