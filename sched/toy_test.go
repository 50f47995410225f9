package sched_test

import (
	"encoding/binary"
	"hash/fnv"
	"math"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
)

// toyKinds are what the toy device computes.
var toyKinds = []graph.Kind{
	graph.KindEmbed, graph.KindGetRows, graph.KindAdd, graph.KindMul, graph.KindScale, graph.KindSilu,
	graph.KindSwiGLU, graph.KindRMSNorm, graph.KindMatMul, graph.KindRoPE, graph.KindKVStore, graph.KindKVLoad,
	graph.KindAttention, graph.KindView, graph.KindReshape, graph.KindPermute,
}

// toy is a device that computes, simply and in float32, with weights that are functions
// of their names. The null device below it checks every call.
type toy struct {
	*null.Device
}

func newToy(name string, caps *backend.Capabilities, opts ...null.Option) *toy {
	return &toy{null.New(name, caps, opts...)}
}

// weight is an element of the weight of a name.
func weight(name string, i int) float32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	h.Write([]byte{byte(i), byte(i >> 8)})
	return float32(int32(h.Sum32()%201)-100) / 128
}

func (d *toy) floats(b backend.Buffer) []float32 {
	raw, err := d.Bytes(b)
	if err != nil {
		panic(err)
	}
	f := make([]float32, len(raw)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return f
}

func (d *toy) ints(b backend.Buffer) []int {
	raw, err := d.Bytes(b)
	if err != nil {
		panic(err)
	}
	n := make([]int, len(raw)/4)
	for i := range n {
		n[i] = int(int32(binary.LittleEndian.Uint32(raw[4*i:])))
	}
	return n
}

func (d *toy) store(b backend.Buffer, f []float32) {
	raw, err := d.Bytes(b)
	if err != nil {
		panic(err)
	}
	for i, v := range f {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
	}
}

func silu(x float32) float32 { return x / (1 + float32(math.Exp(-float64(x)))) }

func (d *toy) Execute(n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	if err := d.Device.Execute(n, in, out, kv); err != nil {
		return err
	}
	if n.Op.Kind() == graph.KindKVStore {
		d.storeKV(in, kv)
		return nil
	}
	var x, y []float32
	width, rows := 0, 0
	if len(in) > 0 && in[0].Type == graph.F32 {
		x = d.floats(in[0].Buffer)
		width, rows = in[0].Shape[0], in[0].Shape.Rows()
	}
	if len(in) > 1 && in[1].Type == graph.F32 && n.Op.Kind() != graph.KindAttention {
		y = d.floats(in[1].Buffer)
	}
	f := make([]float32, n.Shape.Elements())
	switch op := n.Op.(type) {
	case graph.Embed:
		for t, id := range d.ints(in[0].Buffer) {
			for i := range op.Dim {
				f[t*op.Dim+i] = weight(op.Weight, id*op.Dim+i)
			}
		}
	case graph.GetRows:
		for t, id := range d.ints(in[1].Buffer) {
			copy(f[t*width:(t+1)*width], x[id*width:])
		}
	case graph.Add:
		for i := range f {
			f[i] = x[i] + y[i]
		}
	case graph.Mul:
		for i := range f {
			f[i] = x[i] * y[i]
		}
	case graph.Scale:
		for i := range f {
			f[i] = x[i] * op.Factor
		}
	case graph.Silu:
		for i := range f {
			f[i] = silu(x[i])
		}
	case graph.SwiGLU:
		for i := range f {
			f[i] = silu(x[i]) * y[i]
		}
	case graph.RMSNorm:
		for r := range rows {
			var sum float32
			for i := range width {
				sum += float32(x[r*width+i] * x[r*width+i])
			}
			inv := 1 / float32(math.Sqrt(float64(sum/float32(width)+op.Eps)))
			for i := range width {
				f[r*width+i] = x[r*width+i] * inv * (1 + weight(op.Weight, i))
			}
		}
	case graph.MatMul:
		for r := range rows {
			for o := range op.Out {
				var sum float32
				for i := range op.In {
					sum += float32(x[r*op.In+i] * weight(op.Weight, o*op.In+i))
				}
				f[r*op.Out+o] = sum
			}
		}
	case graph.RoPE:
		for t, p := range d.ints(in[1].Buffer) {
			for i := 0; i+1 < width; i += 2 {
				s, c := math.Sincos(float64(p) / float64(1+i%op.Dim))
				a, b := x[t*width+i], x[t*width+i+1]
				f[t*width+i] = float32(a*float32(c)) - float32(b*float32(s))
				f[t*width+i+1] = float32(a*float32(s)) + float32(b*float32(c))
			}
		}
	case graph.Permute:
		permute(f, x, in[0].Shape, op.Dims)
	case graph.Attention:
		d.attend(f, op, x, d.ints(in[2].Buffer), kv)
	default:
		return backend.NewNodeError(d.Name(), n, backend.ErrUnsupported)
	}
	d.store(out.Buffer, f)
	return nil
}

func permute(dst, src []float32, shape graph.Shape, dims [4]int) {
	strides := [4]int{1, shape[0], shape[0] * shape[1], shape[0] * shape[1] * shape[2]}
	i := 0
	for d3 := range shape[dims[3]] {
		for d2 := range shape[dims[2]] {
			for d1 := range shape[dims[1]] {
				for d0 := range shape[dims[0]] {
					dst[i] = src[d0*strides[dims[0]]+d1*strides[dims[1]]+d2*strides[dims[2]]+d3*strides[dims[3]]]
					i++
				}
			}
		}
	}
}

func (d *toy) storeKV(in []backend.Operand, kv *backend.KV) {
	k, v := d.floats(in[0].Buffer), d.floats(in[1].Buffer)
	for t, cell := range d.ints(in[2].Buffer) {
		d.store(kv.K.Slice(4*cell*kv.Width, 4*kv.Width), k[t*kv.Width:(t+1)*kv.Width])
		d.store(kv.V.Slice(4*cell*kv.Width, 4*kv.Width), v[t*kv.Width:(t+1)*kv.Width])
	}
}

// attend attends with the weights 1/(1+(q.k)^2), unnormalised: any function of the right
// values will do.
func (d *toy) attend(f []float32, op graph.Attention, q []float32, positions []int, kv *backend.KV) {
	k, v := d.floats(kv.K), d.floats(kv.V)
	group := op.Heads / op.KVHeads
	for t, p := range positions {
		for h := range op.Heads {
			base := h / group * op.HeadDim
			out := f[(t*op.Heads+h)*op.HeadDim:][:op.HeadDim]
			for cell := range p + 1 {
				var dot float32
				for i := range op.HeadDim {
					dot += float32(q[(t*op.Heads+h)*op.HeadDim+i] * k[cell*kv.Width+base+i])
				}
				w := 1 / (1 + float32(dot*dot))
				for i := range out {
					out[i] += float32(w * v[cell*kv.Width+base+i])
				}
			}
		}
	}
}
