package graph

import "fmt"

// Builder appends nodes to a graph. It assigns ids, infers and checks shapes and
// wires sources; it computes and allocates nothing.
//
// The first fault sticks: later calls do nothing and return ids that are safe to
// pass on, and Build reports it. So a definition reads as a list of operations,
// without a check after each. The zero Builder is not ready; use NewBuilder.
type Builder struct {
	graph Graph
	names map[string]bool
	err   error
}

// NewBuilder returns an empty builder for a graph with the given parameters.
func NewBuilder(p Params) *Builder {
	return &Builder{graph: Graph{Params: p}, names: make(map[string]bool)}
}

// Params returns the parameters that the graph is built for.
func (b *Builder) Params() Params { return b.graph.Params }

// Err returns the first fault so far.
func (b *Builder) Err() error { return b.err }

// Fail makes Build report err, unless an earlier fault sticks already.
func (b *Builder) Fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Shape returns the shape of a node built earlier.
func (b *Builder) Shape(id NodeID) Shape {
	if b.err != nil || id < 0 || int(id) >= len(b.graph.Nodes) {
		return ShapeOf()
	}
	return b.graph.Nodes[id].Shape
}

// Node appends an operation on earlier nodes and returns its id. The named methods
// below call it.
func (b *Builder) Node(name string, op Op, sources ...NodeID) NodeID {
	return b.append(Node{Name: name, Op: op}, sources)
}

func (b *Builder) append(n Node, sources []NodeID) NodeID {
	if b.err != nil {
		return None
	}
	n.ID = NodeID(len(b.graph.Nodes))
	if err := b.check(&n, sources); err != nil {
		b.err = err
		return None
	}
	b.names[n.Name] = true
	b.graph.Nodes = append(b.graph.Nodes, n)
	if n.Op.Kind() == KindInput {
		b.graph.Inputs = append(b.graph.Inputs, n.ID)
	}
	return n.ID
}

func (b *Builder) check(n *Node, sources []NodeID) error {
	if n.Op == nil {
		return n.errorf("no operation given")
	}
	if n.Name == "" || b.names[n.Name] {
		return n.errorf("name is empty or taken")
	}
	if err := n.SetSources(sources...); err != nil {
		return n.errorf("%d sources", len(sources))
	}
	if err := b.graph.verifySources(n); err != nil {
		return err
	}
	shape, dtype, err := infer(n, b.graph.sourceNodes(n))
	if err != nil {
		return err
	}
	n.Shape, n.Type = shape, dtype
	return nil
}

// Output marks a node as a result that the host reads.
func (b *Builder) Output(id NodeID) {
	if b.err != nil {
		return
	}
	if id < 0 || int(id) >= len(b.graph.Nodes) {
		b.err = fmt.Errorf("graph: output %d is no node: %w", id, ErrInvalid)
		return
	}
	b.graph.Outputs = append(b.graph.Outputs, id)
}

// Outputs returns the nodes that were marked as results, which must not be changed.
func (b *Builder) Outputs() []NodeID { return b.graph.Outputs }

// Build returns the graph, or the first fault that any call met. The builder must
// not be used afterwards.
func (b *Builder) Build() (*Graph, error) {
	if b.err != nil {
		return nil, b.err
	}
	if len(b.graph.Outputs) == 0 {
		return nil, fmt.Errorf("graph: no output was marked: %w", ErrInvalid)
	}
	return &b.graph, nil
}

// Input declares a value that the host fills before every execution.
func (b *Builder) Input(name string, t DType, dims ...int) NodeID {
	if len(dims) > 4 {
		b.Fail(&Error{Node: name, Op: "Input", Reason: fmt.Sprintf("%d dimensions, at most 4 are possible", len(dims))})
		return None
	}
	return b.append(Node{Name: name, Op: Input{}, Shape: ShapeOf(dims...), Type: t}, nil)
}

// Embed looks ids [n] up in the table w and yields [w.In n].
func (b *Builder) Embed(name string, ids NodeID, w Weight) NodeID {
	return b.Node(name, Embed{Weight: w.Name, Type: w.Type, Dim: w.In, Vocab: w.Out}, ids)
}

// GetRows selects rows of x [d m] by ids [n] and yields [d n].
func (b *Builder) GetRows(name string, x, ids NodeID) NodeID {
	return b.Node(name, GetRows{}, x, ids)
}

// Add adds two values of one shape.
func (b *Builder) Add(name string, x, y NodeID) NodeID { return b.Node(name, Add{}, x, y) }

// Mul multiplies two values of one shape.
func (b *Builder) Mul(name string, x, y NodeID) NodeID { return b.Node(name, Mul{}, x, y) }

// Scale multiplies x by a constant.
func (b *Builder) Scale(name string, x NodeID, factor float32) NodeID {
	return b.Node(name, Scale{Factor: factor}, x)
}

// Silu applies x / (1 + exp(-x)).
func (b *Builder) Silu(name string, x NodeID) NodeID { return b.Node(name, Silu{}, x) }

// Gelu applies the Gaussian error linear unit.
func (b *Builder) Gelu(name string, x NodeID) NodeID { return b.Node(name, Gelu{}, x) }

// Softmax normalises exp(x) along the first dimension.
func (b *Builder) Softmax(name string, x NodeID) NodeID { return b.Node(name, Softmax{}, x) }

// RMSNorm normalises the rows of x [d n] with the weight vector w [d]; a zero
// Weight leaves the multiplication out.
func (b *Builder) RMSNorm(name string, x NodeID, w Weight, eps float32) NodeID {
	if w.Name != "" && b.err == nil && w.In != b.Shape(x)[0] {
		b.Fail(&Error{Node: name, Op: "RMSNorm", Reason: fmt.Sprintf("weight %q has %d values for rows %v", w.Name, w.In, b.Shape(x))})
	}
	return b.Node(name, RMSNorm{Weight: w.Name, Eps: eps}, x)
}

// QKNorm normalises each head of x [heads*w.In n] by itself with the weight vector w.
func (b *Builder) QKNorm(name string, x NodeID, w Weight, heads int, eps float32) NodeID {
	return b.Node(name, QKNorm{Weight: w.Name, Eps: eps, Heads: heads, HeadDim: w.In}, x)
}

// MatMul multiplies x [w.In n] by the weight w and yields [w.Out n], plus the bias
// vector unless bias is the zero Weight.
func (b *Builder) MatMul(name string, x NodeID, w, bias Weight) NodeID {
	if bias.Name != "" && bias.In != w.Out {
		b.Fail(&Error{Node: name, Op: "MatMul", Reason: fmt.Sprintf("bias %q has %d values for %d outputs", bias.Name, bias.In, w.Out)})
	}
	return b.Node(name, Projection(w, bias), x)
}

// Projection returns the operation of MatMul, for the payload of a fused one.
func Projection(w, bias Weight) MatMul {
	return MatMul{Weight: w.Name, Bias: bias.Name, Type: w.Type, In: w.In, Out: w.Out}
}

// RoPE rotates x [heads*headDim n] by the positions [n].
func (b *Builder) RoPE(name string, x, positions NodeID, op RoPE) NodeID {
	return b.Node(name, op, x, positions)
}

// KVStore writes keys and values [d n] into the layer's regions at the cells [n].
func (b *Builder) KVStore(name string, layer int, k, v, cells NodeID) NodeID {
	return b.Node(name, KVStore{Layer: layer}, k, v, cells)
}

// KVLoad yields the regions of the layer that the node stored writes: Params.Cells
// rows of Params.KVType.
func (b *Builder) KVLoad(name string, layer int, stored NodeID) NodeID {
	if b.err != nil {
		return None
	}
	p := b.graph.Params
	width := 0
	if stored >= 0 && int(stored) < len(b.graph.Nodes) {
		_, width, _ = StoreOf(&b.graph.Nodes[stored])
	}
	return b.append(Node{Name: name, Op: KVLoad{Layer: layer}, Shape: ShapeOf(width, p.Cells), Type: p.KVType}, []NodeID{stored})
}

// Attention attends from the queries q to the regions kv. The spans are read if
// the operation says ExplicitSpan, and are None otherwise.
func (b *Builder) Attention(name string, q, kv, positions, spans NodeID, op Attention) NodeID {
	if op.ExplicitSpan {
		return b.Node(name, op, q, kv, positions, spans)
	}
	return b.Node(name, op, q, kv, positions)
}

// TopK yields the k greatest of the first among values of each row of x, with their indices.
func (b *Builder) TopK(name string, x NodeID, k, among int) NodeID {
	return b.Node(name, TopK{K: k, Among: among}, x)
}

// View yields the elements of x from offset on, with the given extents.
func (b *Builder) View(name string, x NodeID, offset int, shape Shape) NodeID {
	return b.Node(name, View{Offset: offset, Shape: shape}, x)
}

// Reshape yields x with other extents.
func (b *Builder) Reshape(name string, x NodeID, shape Shape) NodeID {
	return b.Node(name, Reshape{Shape: shape}, x)
}

// Permute reorders dimensions: dimension i of the result is dimension dims[i] of x.
func (b *Builder) Permute(name string, x NodeID, dims [4]int) NodeID {
	return b.Node(name, Permute{Dims: dims}, x)
}
