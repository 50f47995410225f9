package kernels

import (
	"fmt"
	"testing"
)

// attentionShape is a model's attention.
type attentionShape struct {
	name                string
	heads, kvHeads, dim int
}

var attentionShapes = []attentionShape{{"qwen2-0.5b", 14, 2, 64}, {"qwen3-0.6b", 16, 8, 128}}

// layersOf is so many layers that their cells do not stay in caches.
func layersOf(s attentionShape, depth int) (keys, values []*KVRegion) {
	bytes := 4 * depth * s.kvHeads * s.dim
	n := max(2, 256<<20/bytes)
	for range n {
		k, v := NewKeys(depth, s.kvHeads*s.dim, false), NewValues(depth, s.kvHeads*s.dim, false)
		if len(keys) == 0 {
			k, v = randKV(depth, s.kvHeads*s.dim, false, 1)
		} else {
			copy(k.F16, keys[0].F16)
			copy(v.F16, values[0].F16)
		}
		keys, values = append(keys, k), append(values, v)
	}
	return keys, values
}

func tierNamed(t Tier) string {
	if t == Generic {
		return "go"
	}
	return "asm/tier=" + t.String()
}

// BenchmarkAttendDecode is one layer of one token at a depth, its cells not in any cache. The
// GB/s are those of the cells.
func BenchmarkAttendDecode(b *testing.B) {
	for _, shape := range attentionShapes {
		for _, depth := range []int{512, 2048, 8192} {
			keys, values := layersOf(shape, depth)
			for _, tier := range Tiers() {
				b.Run(fmt.Sprintf("%s/depth=%d/impl=%s", shape.name, depth, tierNamed(tier)), func(b *testing.B) {
					s := Scratch{Tier: tier}
					q, out := randFloats(shape.heads*shape.dim, 3), make([]float32, shape.heads*shape.dim)
					parts := make([]float32, depth/AttendChunk*PartialLen(shape.heads, shape.dim))
					layer := 0
					for b.Loop() {
						a := Attention{K: keys[layer], V: values[layer], HeadDim: shape.dim, Scale: 0.125, N: depth}
						AttendChunks(parts, q, &a, 0, depth/AttendChunk, &s)
						MergeChunks(out, parts, &a, 0, shape.heads, &s)
						layer = (layer + 1) % len(keys)
					}
					b.ReportMetric(float64(4*depth*shape.kvHeads*shape.dim)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
					reportMACs(b, 2*depth*shape.heads*shape.dim)
				})
			}
		}
	}
}

// BenchmarkAttendPrompt is one layer of a prompt of 512 tokens. The GMAC/s count what is not
// masked.
func BenchmarkAttendPrompt(b *testing.B) {
	const tokens = 512
	for _, shape := range attentionShapes {
		k, v := randKV(tokens, shape.kvHeads*shape.dim, false, 1)
		for _, tier := range Tiers() {
			b.Run(fmt.Sprintf("%s/impl=%s", shape.name, tierNamed(tier)), func(b *testing.B) {
				s := Scratch{Tier: tier}
				heads := shape.heads / shape.kvHeads
				group, stride := heads*shape.dim, shape.heads*shape.dim
				q, out := randFloats(tokens*stride, 3), make([]float32, tokens*stride)
				lengths := sequenceOf(1, tokens)
				for b.Loop() {
					for h := range shape.kvHeads {
						a := Attention{K: k, V: v, HeadDim: shape.dim, KVHead: h, Scale: 0.125}
						AttendTile(out[h*group:], q[h*group:], stride, group, &a, lengths, &s)
					}
				}
				reportMACs(b, 2*tokens*(tokens+1)/2*stride)
			})
		}
	}
}
