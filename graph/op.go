package graph

// Op is an operation with its payload. The set is closed: a device switches on
// the type, and an operation it does not know is one it does not support.
//
// Every Op is comparable.
type Op interface {
	// Kind names the operation without its payload.
	Kind() Kind
}

// Kind identifies an operation and leads to its row in the table of operations.
type Kind uint8

// The kinds, one per operation type.
const (
	KindInput Kind = iota
	KindEmbed
	KindGetRows
	KindAdd
	KindMul
	KindScale
	KindSilu
	KindGelu
	KindSwiGLU
	KindSoftmax
	KindRMSNorm
	KindQKNorm
	KindMatMul
	KindRoPE
	KindKVStore
	KindKVLoad
	KindAttention
	KindView
	KindReshape
	KindPermute
	KindFusedQKV
	KindFusedQKVNorm
	KindQKVBiasRopeStore
	KindFusedFFN
	KindTopK
	KindFusedFFNDown
	numKinds
)

// Traits is a row of the table of operations.
type Traits struct {
	Name       string
	MinSources int
	MaxSources int
	// InPlace: the result may take over the memory of the first source, which has
	// the same size. A device must compute rightly when it does.
	InPlace bool
	// EitherSource: with InPlace, the second source will do as well.
	EitherSource bool
	// Alias: the result is the first source's memory, seen differently; no device
	// computes anything.
	Alias bool
	// Stores: the operation writes a key and value region, so it is never dead.
	Stores bool
	// Region: the value is a key and value region, which outlives the graph; no
	// buffer of the graph's own is made for it.
	Region bool
	// Fused: the operation stands for a chain of others, and runs only on a device
	// that says it has it.
	Fused bool

	zero Op // the operation with an empty payload, for the parser
}

var traits = [numKinds]Traits{
	KindInput:            {Name: "Input", zero: Input{}},
	KindEmbed:            {Name: "Embed", MinSources: 1, MaxSources: 1, zero: Embed{}},
	KindGetRows:          {Name: "GetRows", MinSources: 2, MaxSources: 2, zero: GetRows{}},
	KindAdd:              {Name: "Add", MinSources: 2, MaxSources: 2, InPlace: true, EitherSource: true, zero: Add{}},
	KindMul:              {Name: "Mul", MinSources: 2, MaxSources: 2, InPlace: true, EitherSource: true, zero: Mul{}},
	KindScale:            {Name: "Scale", MinSources: 1, MaxSources: 1, InPlace: true, zero: Scale{}},
	KindSilu:             {Name: "Silu", MinSources: 1, MaxSources: 1, InPlace: true, zero: Silu{}},
	KindGelu:             {Name: "Gelu", MinSources: 1, MaxSources: 1, InPlace: true, zero: Gelu{}},
	KindSwiGLU:           {Name: "SwiGLU", MinSources: 2, MaxSources: 2, InPlace: true, EitherSource: true, Fused: true, zero: SwiGLU{}},
	KindSoftmax:          {Name: "Softmax", MinSources: 1, MaxSources: 1, InPlace: true, zero: Softmax{}},
	KindRMSNorm:          {Name: "RMSNorm", MinSources: 1, MaxSources: 1, InPlace: true, zero: RMSNorm{}},
	KindQKNorm:           {Name: "QKNorm", MinSources: 1, MaxSources: 1, InPlace: true, zero: QKNorm{}},
	KindMatMul:           {Name: "MatMul", MinSources: 1, MaxSources: 1, zero: MatMul{}},
	KindRoPE:             {Name: "RoPE", MinSources: 2, MaxSources: 2, InPlace: true, zero: RoPE{}},
	KindKVStore:          {Name: "KVStore", MinSources: 3, MaxSources: 3, Stores: true, Region: true, zero: KVStore{}},
	KindKVLoad:           {Name: "KVLoad", MinSources: 1, MaxSources: 1, Region: true, zero: KVLoad{}},
	KindAttention:        {Name: "Attention", MinSources: 3, MaxSources: 4, zero: Attention{}},
	KindView:             {Name: "View", MinSources: 1, MaxSources: 1, Alias: true, zero: View{}},
	KindReshape:          {Name: "Reshape", MinSources: 1, MaxSources: 1, Alias: true, zero: Reshape{}},
	KindPermute:          {Name: "Permute", MinSources: 1, MaxSources: 1, zero: Permute{}},
	KindFusedQKV:         {Name: "FusedQKV", MinSources: 3, MaxSources: 3, Stores: true, Fused: true, zero: FusedQKV{}},
	KindFusedQKVNorm:     {Name: "FusedQKVNorm", MinSources: 3, MaxSources: 3, Stores: true, Fused: true, zero: FusedQKVNorm{}},
	KindQKVBiasRopeStore: {Name: "QKVBiasRopeStore", MinSources: 5, MaxSources: 5, InPlace: true, Stores: true, Fused: true, zero: QKVBiasRopeStore{}},
	KindFusedFFN:         {Name: "FusedFFN", MinSources: 1, MaxSources: 1, Fused: true, zero: FusedFFN{}},
	KindTopK:             {Name: "TopK", MinSources: 1, MaxSources: 1, zero: TopK{}},
	KindFusedFFNDown:     {Name: "FusedFFNDown", MinSources: 1, MaxSources: 1, Fused: true, zero: FusedFFNDown{}},
}

// MaxSources is the largest number of sources that any operation takes.
const MaxSources = 5

// unknown is the row of a kind that is not in the table. A node of such a kind is never
// part of a valid graph.
var unknown = Traits{Name: "unknown"}

// Traits returns the kind's row in the table of operations. It must not be changed.
func (k Kind) Traits() *Traits {
	if k < numKinds {
		return &traits[k]
	}
	return &unknown
}

// String returns the operation's name as it stands in the text form.
func (k Kind) String() string { return k.Traits().Name }

// Kinds lists every operation of the vocabulary with an empty payload.
func Kinds() []Op {
	ops := make([]Op, numKinds)
	for k := range traits {
		ops[k] = traits[k].zero
	}
	return ops
}

// Input is a leaf that the host fills before every execution.
type Input struct{}

// Embed looks token ids [n] up in a table of Vocab rows and yields [Dim n].
type Embed struct {
	Weight string // the table's name
	Type   string // its storage type
	Dim    int    // features of a row
	Vocab  int    // rows
}

// GetRows selects rows of its first source [d m] by the ids [n] of its second and
// yields [d n].
type GetRows struct{}

// Add adds two values of one shape.
type Add struct{}

// Mul multiplies two values of one shape, element by element.
type Mul struct{}

// Scale multiplies every element by Factor.
type Scale struct{ Factor float32 }

// Silu is x / (1 + exp(-x)).
type Silu struct{}

// Gelu is the Gaussian error linear unit in its tanh form (Hendrycks and Gimpel,
// 2016).
type Gelu struct{}

// SwiGLU is silu(gate) * up of its two sources (Shazeer, 2020): the rewrite of
// Mul(Silu(gate), up).
type SwiGLU struct{}

// Softmax is exp(x-max) over its sum, along the first dimension.
type Softmax struct{}

// RMSNorm divides each row by the root of its mean square plus Eps, and multiplies
// by the weight vector if one is named (Zhang and Sennrich, 2019).
type RMSNorm struct {
	Weight string
	Eps    float32
}

// QKNorm is RMSNorm over each of the Heads heads of a row by itself, with one
// weight vector of HeadDim values for all.
type QKNorm struct {
	Weight  string
	Eps     float32
	Heads   int
	HeadDim int
}

// MatMul multiplies [In n] by a weight of Out rows and yields [Out n], plus the
// bias vector if one is named.
type MatMul struct {
	Weight string
	Bias   string
	Type   string // the weight's storage type
	In     int
	Out    int
}

// RoPE rotates pairs of features by an angle that grows with the position (Su et
// al., 2021). Its sources are [Heads*HeadDim n] and the positions [n]. The first
// Dim features of each head are rotated.
//
// Pair i turns by position*Scale*Base^(-2i/Dim), divided by element i of the
// vector named by Factors if there is one (Llama 3.1). With ExtFactor above 0 the
// angles follow YaRN (Peng et al., 2023): between BetaFast and BetaSlow rotations
// in OrigContext positions they go over from unscaled to scaled, and the magnitude
// is corrected for the stretch. AttnFactor multiplies the magnitude; 0 means 1.
type RoPE struct {
	Style       RoPEStyle
	Base        float32
	Scale       float32
	Dim         int
	Heads       int
	HeadDim     int
	Factors     string
	ExtFactor   float32
	AttnFactor  float32
	BetaFast    float32
	BetaSlow    float32
	OrigContext int
}

// KVStore writes the keys and values of its first two sources [d n] into the
// layer's regions, at the rows named by its third, the cells [n].
type KVStore struct{ Layer int }

// KVLoad is the layer's key and value regions [d cells], after its source has
// written them.
type KVLoad struct{ Layer int }

// Attention is softmax(q k^T * Scale) v with Heads query heads, in groups that share one
// of KVHeads key and value heads (Vaswani et al., 2017; Ainslie et al., 2023). Its
// sources are the queries [Heads*HeadDim n], the regions, the positions [n] and,
// with ExplicitSpan, the spans [2*MaxRuns n].
//
// Token t at position p attends to the positions 0 to p of its sequence, or to the
// last Window of them if Window is not 0. Where position i lies: without ExplicitSpan
// in cell i; with it, in the runs of cells that the token's span lists in order, as
// pairs of first cell and length. Unused pairs have length 0.
type Attention struct {
	Layer        int
	Heads        int
	KVHeads      int
	HeadDim      int
	Scale        float32
	Mode         AttentionMode
	Window       int
	ExplicitSpan bool
}

// MaxRuns is the number of runs of cells that a span can list.
const MaxRuns = 8

// View is Shape elements of its source, from element Offset on.
type View struct {
	Offset int
	Shape  Shape
}

// Reshape is its source with other extents.
type Reshape struct{ Shape Shape }

// Permute reorders dimensions: dimension i of the result is dimension Dims[i] of
// the source.
type Permute struct{ Dims [4]int }

// FusedQKV is the query, key and value projections of one layer, RoPE on queries
// and keys, and the store of keys and values. Its sources are the normalised
// activations [d n], the positions and the cells; it yields the rotated queries.
// RoPE.Heads counts the query heads.
type FusedQKV struct {
	Layer   int
	Q, K, V MatMul
	RoPE    RoPE
	KVHeads int
}

// FusedQKVNorm is FusedQKV with QKNorm on queries and keys before the rotation.
type FusedQKVNorm struct {
	Layer        int
	Q, K, V      MatMul
	QNorm, KNorm string
	Eps          float32
	RoPE         RoPE
	KVHeads      int
}

// QKVBiasRopeStore adds the biases to projected queries, keys and values, rotates
// queries and keys, and stores keys and values. Its sources are q, k, v, the
// positions and the cells; it yields the rotated queries. Empty biases are left out.
type QKVBiasRopeStore struct {
	Layer               int
	QBias, KBias, VBias string
	RoPE                RoPE
	KVHeads             int
}

// FusedFFN is silu(gate x) * (up x).
type FusedFFN struct{ Gate, Up MatMul }

// FusedFFNDown is down (silu(gate x) * (up x)): a FusedFFN and the product that alone reads it, so
// that what is between them need not exist. It is what a rewrite makes of the two.
type FusedFFNDown struct{ Gate, Up, Down MatMul }

// TopK finds the K greatest of the first Among values of each row [d n]. It yields [2K n]: these
// values and then, as numbers, their indices. The greatest comes first, and of equal ones that with
// the lowest index; NaN is greater than any number. Values of -Inf are left out: where there are
// fewer than K others, the rest is -Inf with the index -1.
type TopK struct{ K, Among int }

// MaxAmong bounds the values that TopK chooses from: indices up to it are exact as floats.
const MaxAmong = 1 << 24

func (Input) Kind() Kind            { return KindInput }
func (Embed) Kind() Kind            { return KindEmbed }
func (GetRows) Kind() Kind          { return KindGetRows }
func (Add) Kind() Kind              { return KindAdd }
func (Mul) Kind() Kind              { return KindMul }
func (Scale) Kind() Kind            { return KindScale }
func (Silu) Kind() Kind             { return KindSilu }
func (Gelu) Kind() Kind             { return KindGelu }
func (SwiGLU) Kind() Kind           { return KindSwiGLU }
func (Softmax) Kind() Kind          { return KindSoftmax }
func (RMSNorm) Kind() Kind          { return KindRMSNorm }
func (QKNorm) Kind() Kind           { return KindQKNorm }
func (MatMul) Kind() Kind           { return KindMatMul }
func (RoPE) Kind() Kind             { return KindRoPE }
func (KVStore) Kind() Kind          { return KindKVStore }
func (KVLoad) Kind() Kind           { return KindKVLoad }
func (Attention) Kind() Kind        { return KindAttention }
func (View) Kind() Kind             { return KindView }
func (Reshape) Kind() Kind          { return KindReshape }
func (Permute) Kind() Kind          { return KindPermute }
func (FusedQKV) Kind() Kind         { return KindFusedQKV }
func (FusedQKVNorm) Kind() Kind     { return KindFusedQKVNorm }
func (QKVBiasRopeStore) Kind() Kind { return KindQKVBiasRopeStore }
func (FusedFFN) Kind() Kind         { return KindFusedFFN }
func (TopK) Kind() Kind             { return KindTopK }
func (FusedFFNDown) Kind() Kind     { return KindFusedFFNDown }

// Computed reports whether a device has to do anything for an operation. It has not
// for what only gives a name to memory: inputs, views and loaded regions.
func Computed(op Op) bool {
	k := op.Kind()
	t := k.Traits()
	return k != KindInput && !t.Alias && (!t.Region || t.Stores)
}

// LayerOf returns the layer whose key and value regions an operation writes or reads;
// ok is false for an operation that touches none.
func LayerOf(op Op) (layer int, ok bool) {
	switch op := op.(type) {
	case KVStore:
		return op.Layer, true
	case KVLoad:
		return op.Layer, true
	case Attention:
		return op.Layer, true
	case FusedQKV:
		return op.Layer, true
	case FusedQKVNorm:
		return op.Layer, true
	case QKVBiasRopeStore:
		return op.Layer, true
	}
	return 0, false
}

// WeightUse is one use of a weight by an operation.
type WeightUse struct {
	Name string
	Type string // storage type, "" for the float vectors of norms, biases and factors
	In   int    // values per row
	Out  int    // rows
}

// Weights lists the weights that an operation names, in the order of its payload.
// Vectors are reported with Out 1; In is 0 where the payload does not say it.
func Weights(op Op) []WeightUse {
	var uses []WeightUse
	vector := func(name string, n int) {
		if name != "" {
			uses = append(uses, WeightUse{Name: name, In: n, Out: 1})
		}
	}
	matmul := func(m MatMul) {
		uses = append(uses, WeightUse{m.Weight, m.Type, m.In, m.Out})
		vector(m.Bias, m.Out)
	}
	switch op := op.(type) {
	case Embed:
		uses = append(uses, WeightUse{op.Weight, op.Type, op.Dim, op.Vocab})
	case RMSNorm:
		vector(op.Weight, 0)
	case QKNorm:
		vector(op.Weight, op.HeadDim)
	case MatMul:
		matmul(op)
	case RoPE:
		vector(op.Factors, op.Dim/2)
	case FusedQKV:
		matmul(op.Q)
		matmul(op.K)
		matmul(op.V)
		vector(op.RoPE.Factors, op.RoPE.Dim/2)
	case FusedQKVNorm:
		matmul(op.Q)
		matmul(op.K)
		matmul(op.V)
		vector(op.QNorm, op.RoPE.HeadDim)
		vector(op.KNorm, op.RoPE.HeadDim)
		vector(op.RoPE.Factors, op.RoPE.Dim/2)
	case QKVBiasRopeStore:
		vector(op.QBias, op.RoPE.Heads*op.RoPE.HeadDim)
		vector(op.KBias, op.KVHeads*op.RoPE.HeadDim)
		vector(op.VBias, op.KVHeads*op.RoPE.HeadDim)
		vector(op.RoPE.Factors, op.RoPE.Dim/2)
	case FusedFFN:
		matmul(op.Gate)
		matmul(op.Up)
	case FusedFFNDown:
		matmul(op.Gate)
		matmul(op.Up)
		matmul(op.Down)
	}
	return uses
}

// MultiplyAdds counts the products that a node adds up: those of its matrix products and of
// attention, to which all else in a model is little. Pairs are what attention computes: for
// every row, the positions that it attends to, all rows together.
func MultiplyAdds(n *Node, pairs int) (count int64) {
	rows := int64(n.Shape.Rows())
	matmul := func(list ...MatMul) {
		for _, m := range list {
			count += rows * int64(m.In) * int64(m.Out)
		}
	}
	switch op := n.Op.(type) {
	case MatMul:
		matmul(op)
	case FusedQKV:
		matmul(op.Q, op.K, op.V)
	case FusedQKVNorm:
		matmul(op.Q, op.K, op.V)
	case FusedFFN:
		matmul(op.Gate, op.Up)
	case FusedFFNDown:
		matmul(op.Gate, op.Up, op.Down)
	case Attention:
		count = 2 * int64(pairs) * int64(op.Heads) * int64(op.HeadDim)
	}
	return count
}
