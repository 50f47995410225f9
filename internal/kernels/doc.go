// Package kernels defines what every computation of the CPU device yields, to
// the last bit.
//
// The functions here are plain Go and always compiled. They are the definition:
// an assembly kernel that joins later must return the same bits, and its tests
// compare it with these functions for equality. So the order of operations below
// is a contract, chosen such that a SIMD lane is an output row, a key or a
// feature and the canonical order costs a vector unit nothing.
//
// # Rounding
//
// Everything is float32 with round-to-nearest-even. "fma" below rounds once (see
// FMA); every other product, sum and quotient rounds on its own. Go may fuse
// x*y+z on some architectures, so a product that meets an addition is always
// wrapped in an explicit conversion. Nothing is flushed to zero. That a value is
// NaN is part of the contract; the payload and sign of a NaN are not.
//
// A sum "in 16 lanes" means: element i is added to lane i mod 16, in ascending
// order, and at the end lane j takes lane j+8, then j+4, j+2, j+1. (That tree pairs
// lanes by their distance modulo 16, so it does not matter which lane comes first.)
//
// # Integer matrix product
//
// Activations are quantised per 32 values (see QActs). For weight row r and token t
//
//	acc = 0
//	for each group g of the row, ascending:
//	    acc = fma(float32(isum), Scale[g]*D[block of g], acc)
//	    acc = fma(Min[g], D[block of g]*float32(sum of the quants in g), acc)   formats with a minimum
//	out = acc, or acc + bias[r]
//
// isum is the exact int32 dot product of the group. One accumulator per output:
// the result does not depend on how rows or tokens are split.
//
// # Float matrix product
//
// acc = fma(w[k], x[k], acc) for k ascending from acc = 0, one accumulator per
// output, weights widened to float32 (F32, F16 and BF16 widen exactly).
//
// # Norms, activations, softmax
//
// See RMSNorm, Exp, Silu, SwiGLU, Gelu, Softmax: each states its formula, and the
// formula's order of operations is the contract.
//
// # Rotary positions
//
// Angles and their sines and cosines are computed in float64 from basic
// operations only, then rounded to float32 (see RoPE); the rotation is
//
//	x0' = fma(x0, cos, -(x1*sin))
//	x1' = fma(x0, sin, x1*cos)
//
// # Attention
//
// One query head against positions first..n-1 (see Attend):
//
//	q'    = q*scale
//	s[i]  = fma chain of q'[d]*k[i][d], d ascending from 0
//
// Positions are cut into chunks at multiples of 128. Per chunk, over its
// positions that are not masked: m_c = max s, p[i] = Exp(s[i]-m_c), l_c = sum of
// p in 16 lanes by position mod 16, a_c[d] = fma chain of p[i]*v[i][d], i
// ascending from 0. Chunks are merged in ascending order, from m = -Inf, l = 0,
// a[d] = 0:
//
//	m' = max(m, m_c);  f = Exp(m-m');  g = Exp(m_c-m')
//	l = fma(l_c, g, l*f);  a[d] = fma(a_c[d], g, a[d]*f)
//
// and out[d] = a[d] * (1/l). A masked position is skipped, not weighted with 0: it
// enters neither the maximum, nor a lane, nor a chain, so that what lies in its
// cell, were it infinite, cannot leak. Masked positions are always a prefix
// (sliding window) or a suffix (causality), so a vector kernel skips them by its
// loop bounds. A chunk that is wholly masked takes no part in the merge. The
// maximum ignores NaN; a NaN score makes its own weight NaN and so the output.
//
// # Use
//
// Shapes are the caller's responsibility: the graph has checked them before a
// kernel runs; NewWeight and NewRoPE check what comes from a file, Attention.Check
// what comes from the host. A slice that is shorter than documented panics, as
// indexing does. No kernel starts a
// goroutine or allocates once its buffers have grown; callers split rows, tokens
// and heads among workers, with one Scratch for each.
package kernels
