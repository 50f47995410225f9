package minfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/fusion"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
)

// engine is the devices with the weights on them, and what builds graphs for them. Devices
// serve one caller at a time: whoever uses them is between enter and leave.
type engine struct {
	def     arch.Definition
	devices []backend.Backend // in the order of preference
	assign  []sched.Device
	names   string // of the devices, separated by commas
	kvType  graph.DType
	vocab   int          // tokens that can be chosen: the first logits; 0 until that is known
	top     bool         // a device finds the greatest logits
	fusion  graph.Fusion // what is wanted and the preferred device has
	layers  sched.Layers // where keys and values lie
	kept    int          // layers that the preferred device gets
	trace   io.Writer
	log     *slog.Logger
	tensors []int // weights of each device

	observers observers

	turn    chan struct{} // holds one element while somebody uses the devices
	closing chan struct{} // closed by close
	closed  atomic.Bool
	fault   error // a panic or ErrFault, after which the devices are not to be trusted; guarded by turn
}

func newEngine(ctx context.Context, f *gguf.File, def arch.Definition, c *config) (*engine, error) {
	e, err := openEngine(f, def, c)
	if err != nil {
		return nil, err
	}
	if err := e.loadWeights(ctx, f, c.progress); err != nil {
		return nil, errors.Join(err, e.closeDevices())
	}
	return e, nil
}

// openEngine opens the devices and settles what runs where. No weights are loaded.
func openEngine(f *gguf.File, def arch.Definition, c *config) (*engine, error) {
	e := &engine{
		def: def, kvType: c.kvType, trace: c.graphTrace, log: c.log,
		kept: def.Hyperparameters().Layers,
		turn: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	err := e.openDevices(c)
	if err == nil {
		err = e.prepare(c)
	}
	if err == nil {
		err = e.settleLayers(f, c)
	}
	if err != nil {
		return nil, errors.Join(err, e.closeDevices())
	}
	return e, nil
}

func (e *engine) openDevices(c *config) error {
	names := c.backends
	if len(names) == 0 {
		names = backend.DefaultNames()
	}
	if len(names) == 0 {
		return optionErrorf("WithBackends", "no device is named and none of this build is usable here")
	}
	seen := make(map[string]bool)
	for _, name := range names {
		if seen[name] {
			return optionErrorf("WithBackends", "%q is named twice", name)
		}
		seen[name] = true
		d, err := backend.Open(name, backend.Config{
			Threads: c.threads, Instructions: c.instructions, InPlace: c.inPlace, RoundFloats: c.roundFloats,
		})
		if err != nil {
			return fmt.Errorf("minfer: %w", err)
		}
		e.devices = append(e.devices, d)
		e.assign = append(e.assign, sched.Device{Name: name, Capabilities: d.Capabilities()})
	}
	e.names = strings.Join(names, ",")
	return nil
}

// prepare settles which rewrites are on and where keys and values lie.
func (e *engine) prepare(c *config) (err error) {
	defer recovered(&err, "preparing the model")
	prefill, err := e.construct(e.params(2, 1, backend.KVBlock))
	if err != nil {
		return err
	}
	if err := e.checkTensors(prefill); err != nil {
		return err
	}
	e.top = e.supported(graph.TopK{K: maxTop, Among: e.def.Hyperparameters().Vocab}, graph.F32)
	if err := e.settleFusion(c.fusion); err != nil {
		return err
	}
	e.layers, err = e.placeLayers(e.fusion)
	return err
}

// checkTensors names the first tensor whose storage type no device can use. If a
// device would have the operation for no type at all, the tensor is not to blame, and
// the assignment of the graph says what is.
func (e *engine) checkTensors(g *graph.Graph) error {
	for i := range g.Nodes {
		n := &g.Nodes[i]
		plain, stored := storedAs(n.Op, "F32")
		if stored && !e.supported(n.Op, n.Type) && e.supported(plain, n.Type) {
			use := graph.Weights(n.Op)[0]
			return &TensorError{Tensor: use.Name, Type: use.Type}
		}
	}
	return nil
}

// storedAs returns the operation for a weight of another storage type, if it has one
// that may be of several.
func storedAs(op graph.Op, storage string) (graph.Op, bool) {
	switch op := op.(type) {
	case graph.MatMul:
		op.Type = storage
		return op, true
	case graph.Embed:
		op.Type = storage
		return op, true
	}
	return op, false
}

func (e *engine) supported(op graph.Op, t graph.DType) bool {
	for _, d := range e.devices {
		if d.Capabilities().Supports(op, t) {
			return true
		}
	}
	return false
}

// placeLayers finds devices for the keys and values that can run what any graph of a
// session does with them: for one token and for many, and once a fork has scattered a
// sequence over the cells, with explicit spans.
func (e *engine) placeLayers(f graph.Fusion) (sched.Layers, error) {
	var graphs []*graph.Graph
	for _, tokens := range []int{2, 1} {
		for _, spans := range []bool{false, true} {
			p := e.params(tokens, 1, backend.KVBlock)
			p.ExplicitSpan = spans
			if tokens == 1 {
				p.Fusion = f
			}
			g, err := e.construct(p)
			if err != nil {
				return nil, err
			}
			graphs = append(graphs, g)
		}
	}
	layers, err := sched.PlaceLayers(e.assign, graphs...)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	if !e.splitsLayers() {
		return layers, nil
	}
	rest, err := sched.PlaceLayers(e.assign[1:], graphs...)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	for layer := range layers {
		if layer >= e.kept {
			layers[layer] = rest[layer]
		}
	}
	return layers, nil
}

// settleFusion keeps a switch on if the preferred device supports every node that
// it leads to, and a layer with these nodes runs on one device.
func (e *engine) settleFusion(want graph.Fusion) error {
	e.fusion.SwiGLU, e.fusion.FFNDown = want.SwiGLU, want.FFNDown // by rewriting, node by node
	for _, s := range []struct {
		want bool
		on   func(*graph.Fusion) *bool
		kind graph.Kind
	}{
		{want.QKV, func(f *graph.Fusion) *bool { return &f.QKV }, graph.KindFusedQKV},
		{want.QKVNorm, func(f *graph.Fusion) *bool { return &f.QKVNorm }, graph.KindFusedQKVNorm},
		{want.QKVBiasRopeStore, func(f *graph.Fusion) *bool { return &f.QKVBiasRopeStore }, graph.KindQKVBiasRopeStore},
		{want.FFN, func(f *graph.Fusion) *bool { return &f.FFN }, graph.KindFusedFFN},
	} {
		if !s.want {
			continue
		}
		p := e.params(1, 1, backend.KVBlock)
		p.Fusion = graph.Fusion{}
		*s.on(&p.Fusion) = true
		g, err := e.construct(p)
		if err != nil {
			return err
		}
		if e.preferredHas(g, s.kind) {
			_, err := e.placeLayers(p.Fusion)
			*s.on(&e.fusion) = err == nil
		}
	}
	return nil
}

func (e *engine) preferredHas(g *graph.Graph, kind graph.Kind) bool {
	found := false
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Op.Kind() == kind {
			found = true
			if !e.devices[0].Capabilities().Supports(n.Op, n.Type) {
				return false
			}
		}
	}
	return found
}

// loadWeights gives each device its weights.
func (e *engine) loadWeights(ctx context.Context, f *gguf.File, progress func(Progress)) (err error) {
	defer recovered(&err, "preparing the model")
	lists, err := e.listWeights(f)
	if err != nil {
		return err
	}
	for _, list := range lists {
		e.tensors = append(e.tensors, len(list))
	}
	return e.giveWeights(ctx, lists, progress)
}

// listWeights builds the graphs of both phases and lists for each device the weights that
// its nodes name.
func (e *engine) listWeights(f *gguf.File) ([][]backend.Weight, error) {
	lists := make([][]backend.Weight, len(e.devices))
	places := make([]map[string]int, len(e.devices)) // of each weight in its device's list
	for i := range places {
		places[i] = make(map[string]int)
	}
	for _, tokens := range []int{2, 1} {
		g, err := e.build(e.params(tokens, 1, backend.KVBlock))
		if err != nil {
			return nil, err
		}
		for i := range g.Nodes {
			n := &g.Nodes[i]
			d := e.deviceIndex(n.Device)
			for _, use := range graph.Weights(n.Op) {
				at, listed := places[d][use.Name]
				if !listed {
					w, err := readWeight(f, use.Name)
					if err != nil {
						return nil, err
					}
					at = len(lists[d])
					places[d][use.Name] = at
					lists[d] = append(lists[d], w)
				}
				if n.Op.Kind() != graph.KindEmbed {
					lists[d][at].Table = false
				}
			}
		}
	}
	return lists, nil
}

func (e *engine) giveWeights(ctx context.Context, lists [][]backend.Weight, progress func(Progress)) error {
	var total, before int64
	for _, list := range lists {
		for _, w := range list {
			total += int64(len(w.Data))
		}
	}
	for d, list := range lists {
		var report func(done, of int64)
		if progress != nil {
			report = func(done, _ int64) { progress(Progress{Done: before + done, Total: total}) }
		}
		if err := e.devices[d].LoadWeights(ctx, list, report); err != nil {
			return fmt.Errorf("minfer: loading weights: %w", asPanic(err))
		}
		for _, w := range list {
			before += int64(len(w.Data))
		}
	}
	return nil
}

// readWeight describes a tensor to a device, as a table until a product names it.
func readWeight(f *gguf.File, name string) (backend.Weight, error) {
	t, ok := f.Tensor(name)
	if !ok {
		return backend.Weight{}, fmt.Errorf("minfer: the definition names tensor %q, which the file does not have: %w", name, ErrInvalidModel)
	}
	data, err := f.Data(t)
	if err != nil {
		return backend.Weight{}, fmt.Errorf("minfer: %w", err)
	}
	shape := t.Shape()
	return backend.Weight{
		Name: name, Type: t.Type.String(), In: shape[0], Out: shape[1] * shape[2] * shape[3],
		Data: data, Table: true, Release: func() { f.Release(t) },
	}, nil
}

// deviceIndex finds an assigned node's device. Assignment only uses names it was given.
func (e *engine) deviceIndex(name string) int {
	for i, d := range e.assign {
		if d.Name == name {
			return i
		}
	}
	return 0
}

func (e *engine) deviceNames() []string { return strings.Split(e.names, ",") }

// params returns the parameters of a forward pass over so many tokens.
func (e *engine) params(tokens, outputs, cells int) graph.Params {
	p := graph.Params{
		Tokens: tokens, Outputs: min(outputs, tokens), Phase: graph.Prefill,
		Cells:   wholeBlocks(max(cells, 1)),
		KVType:  e.kvType,
		Devices: e.names,
		Fusion:  graph.Fusion{SwiGLU: e.fusion.SwiGLU, FFNDown: e.fusion.FFNDown},
	}
	if tokens == 1 {
		p.Phase = graph.Decode
	}
	if tokens == 1 || e.assign[0].Name == "cpu" {
		// The CPU's fused operations take any number of tokens, and quantise what their projections read only once.
		p.Fusion = e.fusion
	}
	// One token's activations are in the cache anyway.
	p.Fusion.FFNDown = p.Fusion.FFNDown && tokens > 1
	return p
}

// maxTop is the number of the greatest logits that devices are asked for.
const maxTop = 64

// topFor returns how many of the greatest logits are to be found for a choice among n of them, or 0
// if all are to be read. There is one number for greedy choice and one for all else, so that there
// are few graphs.
func (e *engine) topFor(n int) int {
	switch {
	case !e.top || n > maxTop:
		return 0
	case n > 1:
		return maxTop
	}
	return n
}

// chosen is how many of the logits belong to tokens that can be chosen.
func (e *engine) chosen() int {
	if e.vocab == 0 {
		return e.def.Hyperparameters().Vocab
	}
	return e.vocab
}

// wholeBlocks rounds cells up to whole blocks.
func wholeBlocks(cells int) int {
	return (cells + backend.KVBlock - 1) / backend.KVBlock * backend.KVBlock
}

// construct has the definition build a graph.
func (e *engine) construct(p graph.Params) (g *graph.Graph, err error) {
	defer recovered(&err, "building the graph")
	b := graph.NewBuilder(p)
	if err := e.def.Build(b, p); err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	if p.Top > 0 && len(b.Outputs()) > 0 {
		logits := b.Outputs()[0]
		b.Output(b.TopK("top_logits", logits, p.Top, min(e.chosen(), b.Shape(logits)[0])))
	}
	if g, err = b.Build(); err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	if want := e.def.Hyperparameters().Embedding; p.Result == graph.Hidden && g.Node(g.Outputs[0]).Shape[0] != want {
		return nil, fmt.Errorf("%w: its definition gives rows of %d and not the %d activations that were asked for", ErrNoEmbedding, g.Node(g.Outputs[0]).Shape[0], want)
	}
	return g, nil
}

// build returns the graph as it will run: assigned to devices and rewritten.
func (e *engine) build(p graph.Params) (*graph.Graph, error) {
	g, err := e.construct(p)
	if err != nil {
		return nil, err
	}
	e.layers.Pin(g)
	e.placeRest(g)
	if err := sched.Assign(g, e.assign); err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	if _, err := fusion.Run(g, e.capabilities); err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	if e.trace != nil {
		if err := sched.WriteTrace(e.trace, g); err != nil {
			return nil, fmt.Errorf("minfer: writing the graph trace: %w", err)
		}
	}
	return g, nil
}

func (e *engine) capabilities(device string) *backend.Capabilities {
	return e.assign[e.deviceIndex(device)].Capabilities
}

// enter waits for the caller's turn to use the devices.
func (e *engine) enter(ctx context.Context) error {
	_, err := e.enterUnless(ctx, nil)
	return err
}

// enterUnless is enter that gives up, without an error, once done can be received from.
func (e *engine) enterUnless(ctx context.Context, done <-chan struct{}) (gaveUp bool, err error) {
	if e == nil {
		return false, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	select {
	case <-done:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-e.closing:
		return false, ErrClosed
	case e.turn <- struct{}{}:
	}
	if err := e.usable(); err != nil {
		e.leave()
		return false, err
	}
	return false, nil
}

func (e *engine) usable() error {
	if e.closed.Load() {
		return ErrClosed
	}
	return e.fault
}

// enterToFree waits for a turn to give memory back, which is right even after a fault.
// It reports false if the model is closed, which has freed everything.
func (e *engine) enterToFree() bool {
	if e == nil {
		return false
	}
	select {
	case <-e.closing:
		return false
	case e.turn <- struct{}{}:
	}
	if e.closed.Load() {
		e.leave()
		return false
	}
	return true
}

// note has the model refuse all further work if err is a panic, which it returns as
// a *PanicError, or of memory that is gone. A panic of an observer leaves the devices in order. The caller has the turn.
func (e *engine) note(err error) error {
	if err == nil {
		return nil
	}
	err = asPanic(err)
	var panicked *PanicError
	if errors.As(err, &panicked) && panicked.During != observing || errors.Is(err, ErrFault) {
		e.fault = err
	}
	return err
}

// asPanic puts the panics that devices and the scheduler caught in the library's own terms.
func asPanic(err error) error {
	var scheduled *sched.PanicError
	var caught *backend.PanicError
	var at *backend.NodeError
	switch {
	case errors.As(err, &scheduled):
		return &PanicError{During: "running node " + scheduled.Node + " on " + scheduled.Device, Value: scheduled.Value, Stack: scheduled.Stack}
	case !errors.As(err, &caught):
		return err
	}
	during := "using a device"
	if errors.As(err, &at) {
		during = "running node " + at.Node + " on " + at.Device
	}
	return &PanicError{During: during, Value: caught.Value, Stack: caught.Stack}
}

// leave ends the caller's turn.
func (e *engine) leave() { <-e.turn }

// isClosed reports whether the devices are gone, or never were there.
func (e *engine) isClosed() bool { return e == nil || e.closed.Load() }

// close has whoever uses the devices stop, and frees them.
func (e *engine) close() error {
	e.closed.Store(true)
	close(e.closing)
	e.turn <- struct{}{}
	defer e.leave()
	return e.closeDevices()
}

func (e *engine) closeDevices() error {
	var errs []error
	for _, d := range e.devices {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// runContext is the context of an execution: the caller's, which also ends when the
// model is closed. The scheduler asks only for Err, between nodes.
type runContext struct {
	context.Context
	engine        *engine
	sessionClosed func() bool // nil in a batch of several sessions
}

// Err returns ErrClosed once the model or the session is closing.
func (c *runContext) Err() error {
	if c.engine.closed.Load() || c.sessionClosed != nil && c.sessionClosed() {
		return ErrClosed
	}
	return c.Context.Err()
}
