package minfer

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/exp/maps"
	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
)

// DevicePlacement is what one device runs.
type DevicePlacement struct {
	Device      string
	Layers      []int     // layers whose keys and values it holds, and whose attention it computes
	Prefill     []OpCount // operations in the graph of a prompt
	Decode      []OpCount // operations in the graph of one token
	Tensors     int       // weights that it has
	WeightBytes int64     // their size, in the form in which it has them
}

// OpCount is an operation and how many nodes of a graph are one.
type OpCount struct {
	Op    string
	Nodes int
}

// Placement says which device runs what, by device in the order of preference. A device that
// runs nothing is listed all the same.
type Placement []DevicePlacement

// String returns a line for each device, and one for each phase below it.
func (p Placement) String() string {
	var b strings.Builder
	for _, d := range p {
		fmt.Fprintf(&b, "%s: %d layers (%s), %d tensors, %.1f MB\n", d.Device, len(d.Layers), ranges(d.Layers), d.Tensors, float64(d.WeightBytes)/1e6)
		for _, phase := range []struct {
			name string
			ops  []OpCount
		}{{"prefill", d.Prefill}, {"decode", d.Decode}} {
			fmt.Fprintf(&b, "  %s:", phase.name)
			for _, c := range phase.ops {
				fmt.Fprintf(&b, " %d %s", c.Nodes, c.Op)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// ranges writes ascending numbers as "0-3 5", and none as "none".
func ranges(numbers []int) string {
	if len(numbers) == 0 {
		return "none"
	}
	var b strings.Builder
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprint(&b, numbers[i])
		if last > i {
			fmt.Fprintf(&b, "-%d", numbers[last])
		}
		i = last + 1
	}
	return b.String()
}

// Placement reports which device runs what. It waits for the evaluation under way, and returns
// ErrClosed after Close.
func (m *Model) Placement() (Placement, error) {
	e := m.devices()
	if !e.enterToFree() {
		return nil, ErrClosed
	}
	defer e.leave()
	return e.placement()
}

func (e *engine) placement() (Placement, error) {
	p := make(Placement, len(e.devices))
	for i, d := range e.devices {
		p[i] = DevicePlacement{Device: e.assign[i].Name, Tensors: e.tensors[i], WeightBytes: d.PoolStats().WeightBytes}
	}
	layers := maps.Keys(e.layers)
	slices.Sort(layers)
	for _, layer := range layers {
		d := &p[e.deviceIndex(e.layers[layer])]
		d.Layers = append(d.Layers, layer)
	}
	for tokens, counts := range map[int]func(*DevicePlacement) *[]OpCount{
		1: func(d *DevicePlacement) *[]OpCount { return &d.Decode },
		2: func(d *DevicePlacement) *[]OpCount { return &d.Prefill },
	} {
		params := e.params(tokens, 1, backend.KVBlock)
		if tokens == 1 {
			params.Top = e.topFor(maxTop) // as steps of an answer with common settings
		}
		g, err := e.build(params)
		if err != nil {
			return nil, err
		}
		live := g.Live()
		for i := range g.Nodes {
			if n := &g.Nodes[i]; live[i] && graph.Computed(n.Op) {
				count(counts(&p[e.deviceIndex(n.Device)]), n.Op.Kind().String())
			}
		}
	}
	return p, nil
}

// count adds a node to its operation's, which are in the order of their first appearance.
func count(counts *[]OpCount, op string) {
	for i := range *counts {
		if c := &(*counts)[i]; c.Op == op {
			c.Nodes++
			return
		}
	}
	*counts = append(*counts, OpCount{op, 1})
}

// logOpened tells the log of an open model. The error is a panic of the log's handler.
func (m *Model) logOpened(took time.Duration) (err error) {
	defer recovered(&err, "logging")
	if !m.engine.log.Enabled(context.Background(), slog.LevelInfo) {
		return nil
	}
	i := &m.info
	m.engine.log.Info("model opened", "name", i.Name, "architecture", i.Architecture, "parameters", i.Parameters,
		"bytes", i.Bytes, "layers", i.Layers, "context", i.ContextLength, "devices", m.engine.names, "took", took)
	placement, err := m.engine.placement()
	if err != nil {
		m.engine.log.Warn("no report of the placement", "error", err)
		return nil
	}
	for _, d := range placement {
		m.engine.log.Info("device", "device", d.Device, "layers", ranges(d.Layers), "tensors", d.Tensors, "bytes", d.WeightBytes)
	}
	return nil
}

// logBuilt tells the log of a graph that was built and got memory.
func (e *engine) logBuilt(g *graph.Graph, took time.Duration) {
	if e.log.Enabled(context.Background(), slog.LevelDebug) {
		p := g.Params
		e.log.Debug("graph built", "graph", g.UID, "phase", p.Phase.String(), "tokens", p.Tokens, "outputs", p.Outputs, "result", p.Result.String(),
			"cells", p.Cells, "nodes", len(g.Nodes), "splits", len(sched.Splits(g)), "took", took)
	}
}
