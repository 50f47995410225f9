// Products of weights and activations.
//
// The row of a weight is cut into units of 32 values, and the units are dealt to eight strands: unit u belongs to strand
// u%8. A strand adds up its units one after the other, and the strands are added up as ((0+1)+(2+3))+((4+5)+(6+7)). That
// is the order of every product of this file, so a result is the same in a matrix-vector and in a matrix-matrix kernel.
//
// For quantised weights the activations are quantised too, to eight bits with a scale for each unit. The dot product of
// a unit is a sum of integers below 2^24, which float arithmetic gets exactly in any order, that of the matrix units
// included. A strand adds it up as fma(dot, scale of the weight * scale of the activations, strand).
//
// For formats of single values both are floats, and a strand adds up its units in the matrix units, eight products at a time.
// In which order those come is the hardware's affair: all that is taken for granted is that it is the same for all
// elements of a matrix. So a token alone takes the matrix units too.

struct QuantArgs {
  uint units; // of a token
};

// What is kept of a unit of activations besides its quants: the scale, and the scale times the sums of all quants, of the
// first 16 and of the last.
typedef float4 UnitMeta;

// quantize: one simdgroup for each unit, one lane for each value. The scale is that of least squares for the quants.
kernel void quantize(device const float *x [[buffer(0)]],
                     device char *q [[buffer(1)]],
                     device UnitMeta *meta [[buffer(2)]],
                     constant QuantArgs &a [[buffer(3)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     ushort lane [[thread_index_in_simdgroup]],
                     ushort sg [[simdgroup_index_in_threadgroup]],
                     ushort groups [[simdgroups_per_threadgroup]]) {
  const uint unit = group.x * groups + sg;
  if (unit >= a.units) return;
  const float v = x[(ulong)unit * 32 + lane];
  float most = fabs(v);
  bool broken = !(most < INFINITY);
  for (ushort m = 16; m > 0; m >>= 1) {
    most = max(most, simd_shuffle_xor(most, m));
    broken = broken || simd_shuffle_xor(ushort(broken), m) != 0;
  }
  float r = 0.0f, n = 0.0f;
  if (most >= 1.17549435e-38f * 130.0f && !broken) {
    r = v * (127.0f / most);
    n = clamp(rint(r), -127.0f, 127.0f);
  }
  q[(ulong)unit * 32 + lane] = char(n);
  // Sums of 16 lanes, each of two values.
  const float far = simd_shuffle_xor(r, 16), far_n = simd_shuffle_xor(n, 16);
  float along = lane < 16 ? fma(far, far_n, r * n) : 0.0f, squares = n * n, sum = n;
  for (ushort m = 8; m > 0; m >>= 1) {
    along += simd_shuffle_xor(along, m);
    squares += simd_shuffle_xor(squares, m);
    sum += simd_shuffle_xor(sum, m);
  }
  squares += simd_shuffle_xor(squares, 16);
  const float last = simd_shuffle_xor(sum, 16);
  if (lane == 0) {
    const float d = broken ? NAN : squares > 0.0f ? most / 127.0f * (along / squares) : 0.0f;
    meta[unit] = UnitMeta(d, d * (sum + last), d * sum, d * last);
  }
}

// unit_step adds a unit to a strand.
template <typename F>
inline float unit_step(float strand, float dot0, float dot1, float2 s, float2 m, float4 meta) {
  if (F::unit_groups == 1) {
    strand = fma(dot0, s.x * meta.x, strand);
    return F::minima ? fma(m.x, meta.y, strand) : strand;
  }
  strand = fma(dot0, s.x * meta.x, strand);
  if (F::minima) strand = fma(m.x, meta.z, strand);
  strand = fma(dot1, s.y * meta.x, strand);
  return F::minima ? fma(m.y, meta.w, strand) : strand;
}

inline float dot16(thread const char *q, device const char4 *x) {
  float s = 0.0f;
  for (ushort j = 0; j < 4; j++) {
    const char4 v = x[j];
    s += float(q[4 * j]) * float(v.x) + float(q[4 * j + 1]) * float(v.y) + float(q[4 * j + 2]) * float(v.z) + float(q[4 * j + 3]) * float(v.w);
  }
  return s;
}

struct MatMulArgs {
  uint in;
  uint rows;
  uint row_bytes;
  uint tokens;
  uint biased;
};

// vector_strand is what strand has of the product of a row and a token.
template <typename F>
inline float vector_strand(device const uchar *row, device const char *xq, device const UnitMeta *meta, uint units, uint strand) {
  float sum = 0.0f;
  for (uint u = strand; u < units; u += 8) {
    Unit w;
    F::read(row, u, w);
    device const char4 *x = (device const char4 *)(xq + u * 32);
    const float lo = dot16(w.q, x), hi = dot16(w.q + 16, x + 4);
    sum = F::unit_groups == 1 ? unit_step<F>(sum, lo + hi, 0.0f, w.s, w.m, meta[u]) : unit_step<F>(sum, lo, hi, w.s, w.m, meta[u]);
  }
  return sum;
}

// strands_sum adds up the strands, which lie in eight lanes.
inline float strands_sum(float v) {
  v += simd_shuffle_xor(v, 1);
  v += simd_shuffle_xor(v, 2);
  return v + simd_shuffle_xor(v, 4);
}

// matvec: one row for eight lanes, so four for a simdgroup; grid [rows, tokens].
template <typename F>
kernel void matvec(device const uchar *w [[buffer(0)]],
                   device const char *xq [[buffer(1)]],
                   device const UnitMeta *meta [[buffer(2)]],
                   device const float *bias [[buffer(3)]],
                   device float *y [[buffer(4)]],
                   constant MatMulArgs &a [[buffer(5)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   ushort lane [[thread_index_in_simdgroup]],
                   ushort sg [[simdgroup_index_in_threadgroup]],
                   ushort groups [[simdgroups_per_threadgroup]]) {
  const uint row = (group.x * groups + sg) * 4 + lane / 8, units = a.in / 32;
  const ulong token = group.y;
  float v = 0.0f;
  if (row < a.rows) v = vector_strand<F>(w + (ulong)row * a.row_bytes, xq + token * a.in, meta + token * units, units, lane % 8);
  v = strands_sum(v);
  if (lane % 8 == 0 && row < a.rows) y[token * a.rows + row] = a.biased ? v + bias[row] : v;
}

// matvec_gated is silu(gate x) * (up x), of two weights of one format.
template <typename F>
kernel void matvec_gated(device const uchar *gate [[buffer(0)]],
                         device const uchar *up [[buffer(1)]],
                         device const char *xq [[buffer(2)]],
                         device const UnitMeta *meta [[buffer(3)]],
                         device float *y [[buffer(4)]],
                         constant MatMulArgs &a [[buffer(5)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         ushort lane [[thread_index_in_simdgroup]],
                         ushort sg [[simdgroup_index_in_threadgroup]],
                         ushort groups [[simdgroups_per_threadgroup]]) {
  const uint row = (group.x * groups + sg) * 4 + lane / 8, units = a.in / 32;
  const ulong token = group.y, at = (ulong)row * a.row_bytes;
  float g = 0.0f, v = 0.0f;
  if (row < a.rows) {
    g = vector_strand<F>(gate + at, xq + token * a.in, meta + token * units, units, lane % 8);
    v = vector_strand<F>(up + at, xq + token * a.in, meta + token * units, units, lane % 8);
  }
  g = strands_sum(g);
  v = strands_sum(v);
  if (lane % 8 == 0 && row < a.rows) y[token * a.rows + row] = silu_of(g) * v;
}

// strands_tree adds up the strands of an output that one thread has.
inline float strands_tree(thread const float *s) {
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

// The matrix-matrix kernels compute tiles of 32 rows by 32 tokens with 128 threads; grid [tiles of rows, tiles of tokens].

// multiply adds to c, which is Tiles by Tiles matrices, the products of 8*Tiles rows and as many tokens over width values.
template <typename T, ushort Tiles>
inline void multiply(thread simdgroup_float8x8 *c, threadgroup const T *rows, threadgroup const T *tokens, ushort stride, ushort width) {
  for (ushort at = 0; at < width; at += 8) {
    simdgroup_matrix<T, 8, 8> r[Tiles], t[Tiles];
#pragma unroll
    for (ushort i = 0; i < Tiles; i++) {
      simdgroup_load(r[i], rows + 8 * i * stride + at, stride);
      simdgroup_load(t[i], tokens + 8 * i * stride + at, stride, ulong2(0, 0), true);
    }
#pragma unroll
    for (ushort i = 0; i < Tiles * Tiles; i++) simdgroup_multiply_accumulate(c[i], r[i / Tiles], t[i % Tiles], c[i]);
  }
}

// spread has each lane find its share of 16 rows by 16 tokens, in memory of the simdgroup's: [row][token].
inline void spread(thread const simdgroup_float8x8 *c, threadgroup float *dots) {
  simdgroup_barrier(mem_flags::mem_threadgroup); // what was spread last has been read
#pragma unroll
  for (ushort i = 0; i < 4; i++) simdgroup_store(c[i], dots + i / 2 * 8 * 16 + i % 2 * 8, 16);
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Slab units are brought to threadgroup memory at once: one for each thread of the 32 rows, and one of the 32 tokens.
constant constexpr uint slab = 4;
constant constexpr uint slab_width = slab * 32 + 8; // and some, so that rows begin in other banks

template <typename F>
kernel void matmat(device const uchar *w [[buffer(0)]],
                   device const char *xq [[buffer(1)]],
                   device const UnitMeta *meta [[buffer(2)]],
                   device const float *bias [[buffer(3)]],
                   device float *y [[buffer(4)]],
                   constant MatMulArgs &a [[buffer(5)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   ushort tid [[thread_index_in_threadgroup]],
                   ushort lane [[thread_index_in_simdgroup]],
                   ushort sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup half rows[32 * slab_width];
  threadgroup half tokens[32 * slab_width];
  threadgroup float4 scales[32 * slab]; // s and m of rows
  threadgroup float4 metas[32 * slab];  // of tokens
  threadgroup float dots[4 * 16 * 16];
  const uint units = a.in / 32, first_row = group.x * 32, first_token = group.y * 32;
  // A simdgroup has 16 rows by 16 tokens, and a lane every other row of a column of them.
  const ushort row0 = sg / 2 * 16, token0 = sg % 2 * 16;
  threadgroup float *mine = dots + sg * 256;
  float strands[8][8];
#pragma unroll
  for (ushort j = 0; j < 8; j++) {
#pragma unroll
    for (ushort s = 0; s < 8; s++) strands[j][s] = 0.0f;
  }
  // Loops over strands are unrolled, so that strands are registers.
  for (uint base = 0; base < units; base += 8) {
#pragma unroll
    for (ushort part = 0; part < 8; part += slab) {
      if (base + part < units) { // for all threads alike
        threadgroup_barrier(mem_flags::mem_threadgroup); // the last slab has been read
        const ushort i = tid / slab;
        const uint u = base + part + tid % slab, row = first_row + i, token = first_token + i;
        if (u < units) {
          Unit unit;
          if (row < a.rows) {
            F::read(w + (ulong)row * a.row_bytes, u, unit);
          } else {
            for (ushort k = 0; k < 32; k++) unit.q[k] = 0;
            unit.s = float2(0.0f);
            unit.m = float2(0.0f);
          }
          threadgroup half *r = rows + i * slab_width + tid % slab * 32;
          for (ushort k = 0; k < 32; k++) r[k] = half(float(unit.q[k]));
          scales[tid] = float4(unit.s.x, unit.s.y, unit.m.x, unit.m.y);
          threadgroup half *t = tokens + i * slab_width + tid % slab * 32;
          if (token < a.tokens) {
            device const char *x = xq + (ulong)token * a.in + u * 32;
            for (ushort k = 0; k < 32; k++) t[k] = half(float(x[k]));
            metas[tid] = meta[(ulong)token * units + u];
          } else {
            for (ushort k = 0; k < 32; k++) t[k] = half(0.0f);
            metas[tid] = float4(0.0f);
          }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (ushort k = 0; k < slab; k++) {
          if (base + part + k < units) {
            const float4 meta_k = metas[(token0 + lane % 16) * slab + k];
            for (int g = 0; g < F::unit_groups; g++) {
              constexpr ushort width = 32 / F::unit_groups;
              const ushort from = k * 32 + g * width;
              simdgroup_float8x8 c[4];
#pragma unroll
              for (ushort i = 0; i < 4; i++) c[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
              multiply<half, 2>(c, rows + row0 * slab_width + from, tokens + token0 * slab_width + from, slab_width, width);
              spread(c, mine);
#pragma unroll
              for (ushort j = 0; j < 8; j++) {
                const ushort r = lane / 16 + 2 * j;
                const float4 sm = scales[(row0 + r) * slab + k];
                float v = fma(mine[r * 16 + lane % 16], (g == 0 ? sm.x : sm.y) * meta_k.x, strands[j][part + k]);
                if (F::minima) v = fma(g == 0 ? sm.z : sm.w, F::unit_groups == 1 ? meta_k.y : g == 0 ? meta_k.z : meta_k.w, v);
                strands[j][part + k] = v;
              }
            }
          }
        }
      }
    }
  }
  const uint token = first_token + token0 + lane % 16;
  if (token >= a.tokens) return;
#pragma unroll
  for (ushort j = 0; j < 8; j++) {
    const uint row = first_row + row0 + lane / 16 + 2 * j;
    const float v = strands_tree(strands[j]);
    if (row < a.rows) y[(ulong)token * a.rows + row] = a.biased ? v + bias[row] : v;
  }
}

// Formats of single values.

constant constexpr uint unit_width = 32 + 4; // of a unit in threadgroup memory, so that rows begin in other banks

template <typename F>
kernel void matmat_float(device const uchar *w [[buffer(0)]],
                         device const float *x [[buffer(1)]],
                         device const float *bias [[buffer(2)]],
                         device float *y [[buffer(3)]],
                         constant MatMulArgs &a [[buffer(4)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         ushort lane [[thread_index_in_simdgroup]],
                         ushort sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup float rows[32 * unit_width];
  threadgroup float tokens[32 * unit_width];
  threadgroup float dots[4 * 16 * 16];
  const uint first_row = group.x * 32, first_token = group.y * 32;
  const ushort row0 = sg / 2 * 16, token0 = sg % 2 * 16; // as in matmat
  threadgroup float *mine = dots + sg * 256;
  simdgroup_float8x8 strands[8][4];
#pragma unroll
  for (ushort s = 0; s < 8; s++) {
#pragma unroll
    for (ushort i = 0; i < 4; i++) strands[s][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  for (uint base = 0; base < a.in; base += 256) {
#pragma unroll
    for (ushort s = 0; s < 8; s++) {
      const uint from = base + 32 * s;
      if (from < a.in) { // for all threads alike
        const bool within = from + lane < a.in;
        threadgroup_barrier(mem_flags::mem_threadgroup); // the last unit has been read
        for (ushort i = sg; i < 32; i += 4) {
          const uint row = first_row + i, token = first_token + i;
          rows[i * unit_width + lane] = within && row < a.rows ? F::at(w + (ulong)row * a.row_bytes, from + lane) : 0.0f;
          tokens[i * unit_width + lane] = within && token < a.tokens ? x[(ulong)token * a.in + from + lane] : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        multiply<float, 2>(strands[s], rows + row0 * unit_width, tokens + token0 * unit_width, unit_width, 32);
      }
    }
  }
  float sums[8][8];
#pragma unroll
  for (ushort s = 0; s < 8; s++) {
    spread(strands[s], mine);
#pragma unroll
    for (ushort j = 0; j < 8; j++) sums[j][s] = mine[(lane / 16 + 2 * j) * 16 + lane % 16];
  }
  const uint token = first_token + token0 + lane % 16;
  if (token >= a.tokens) return;
#pragma unroll
  for (ushort j = 0; j < 8; j++) {
    const uint row = first_row + row0 + lane / 16 + 2 * j;
    const float v = strands_tree(sums[j]);
    if (row < a.rows) y[(ulong)token * a.rows + row] = a.biased ? v + bias[row] : v;
  }
}

// matvec_float computes 8 rows of up to 8 tokens, one strand in each of eight simdgroups; grid [tiles of rows].
template <typename F>
kernel void matvec_float(device const uchar *w [[buffer(0)]],
                         device const float *x [[buffer(1)]],
                         device const float *bias [[buffer(2)]],
                         device float *y [[buffer(3)]],
                         constant MatMulArgs &a [[buffer(4)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         ushort tid [[thread_index_in_threadgroup]],
                         ushort lane [[thread_index_in_simdgroup]],
                         ushort sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup float rows[8 * 8 * unit_width]; // [strand][row][value]
  threadgroup float tokens[8 * 8 * unit_width]; // arbitrary beyond a.tokens, as are the results
  threadgroup float strands[8 * 64]; // [strand][row][token]
  threadgroup float *r = rows + sg * 8 * unit_width, *t = tokens + sg * 8 * unit_width;
  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint from = sg * 32; from < a.in; from += 256) {
    const bool within = from + lane < a.in;
    simdgroup_barrier(mem_flags::mem_threadgroup); // the last unit has been read
    for (uint i = 0; i < 8; i++) {
      const uint row = group.x * 8 + i;
      r[i * unit_width + lane] = within && row < a.rows ? F::at(w + (ulong)row * a.row_bytes, from + lane) : 0.0f;
    }
    for (uint i = 0; i < a.tokens; i++) t[i * unit_width + lane] = within ? x[(ulong)i * a.in + from + lane] : 0.0f;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    multiply<float, 1>(&c, r, t, unit_width, 32);
  }
  simdgroup_store(c, strands + sg * 64, 8);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint row = group.x * 8 + tid / 8, token = tid % 8;
  if (tid >= 64 || row >= a.rows || token >= a.tokens) return;
  float sums[8];
  for (ushort s = 0; s < 8; s++) sums[s] = strands[s * 64 + tid];
  const float v = strands_tree(sums);
  y[(ulong)token * a.rows + row] = a.biased ? v + bias[row] : v;
}

template [[host_name("matvec_f32")]] kernel decltype(matvec_float<F32>) matvec_float<F32>;
template [[host_name("matvec_f16")]] kernel decltype(matvec_float<F16>) matvec_float<F16>;
template [[host_name("matvec_bf16")]] kernel decltype(matvec_float<BF16>) matvec_float<BF16>;
template [[host_name("matmat_f32")]] kernel decltype(matmat_float<F32>) matmat_float<F32>;
template [[host_name("matmat_f16")]] kernel decltype(matmat_float<F16>) matmat_float<F16>;
template [[host_name("matmat_bf16")]] kernel decltype(matmat_float<BF16>) matmat_float<BF16>;
template [[host_name("matvec_q4_0")]] kernel decltype(matvec<Q4_0>) matvec<Q4_0>;
template [[host_name("matvec_q4_1")]] kernel decltype(matvec<Q4_1>) matvec<Q4_1>;
template [[host_name("matvec_q5_0")]] kernel decltype(matvec<Q5_0>) matvec<Q5_0>;
template [[host_name("matvec_q5_1")]] kernel decltype(matvec<Q5_1>) matvec<Q5_1>;
template [[host_name("matvec_q8_0")]] kernel decltype(matvec<Q8_0>) matvec<Q8_0>;
template [[host_name("matvec_q2_k")]] kernel decltype(matvec<Q2_K>) matvec<Q2_K>;
template [[host_name("matvec_q3_k")]] kernel decltype(matvec<Q3_K>) matvec<Q3_K>;
template [[host_name("matvec_q4_k")]] kernel decltype(matvec<Q4_K>) matvec<Q4_K>;
template [[host_name("matvec_q5_k")]] kernel decltype(matvec<Q5_K>) matvec<Q5_K>;
template [[host_name("matvec_q6_k")]] kernel decltype(matvec<Q6_K>) matvec<Q6_K>;
template [[host_name("matvec_iq4_nl")]] kernel decltype(matvec<IQ4_NL>) matvec<IQ4_NL>;
template [[host_name("matvec_iq4_xs")]] kernel decltype(matvec<IQ4_XS>) matvec<IQ4_XS>;
template [[host_name("matvec_mxfp4")]] kernel decltype(matvec<MXFP4>) matvec<MXFP4>;
template [[host_name("matvec_gated_q4_0")]] kernel decltype(matvec_gated<Q4_0>) matvec_gated<Q4_0>;
template [[host_name("matvec_gated_q4_1")]] kernel decltype(matvec_gated<Q4_1>) matvec_gated<Q4_1>;
template [[host_name("matvec_gated_q5_0")]] kernel decltype(matvec_gated<Q5_0>) matvec_gated<Q5_0>;
template [[host_name("matvec_gated_q5_1")]] kernel decltype(matvec_gated<Q5_1>) matvec_gated<Q5_1>;
template [[host_name("matvec_gated_q8_0")]] kernel decltype(matvec_gated<Q8_0>) matvec_gated<Q8_0>;
template [[host_name("matvec_gated_q2_k")]] kernel decltype(matvec_gated<Q2_K>) matvec_gated<Q2_K>;
template [[host_name("matvec_gated_q3_k")]] kernel decltype(matvec_gated<Q3_K>) matvec_gated<Q3_K>;
template [[host_name("matvec_gated_q4_k")]] kernel decltype(matvec_gated<Q4_K>) matvec_gated<Q4_K>;
template [[host_name("matvec_gated_q5_k")]] kernel decltype(matvec_gated<Q5_K>) matvec_gated<Q5_K>;
template [[host_name("matvec_gated_q6_k")]] kernel decltype(matvec_gated<Q6_K>) matvec_gated<Q6_K>;
template [[host_name("matvec_gated_iq4_nl")]] kernel decltype(matvec_gated<IQ4_NL>) matvec_gated<IQ4_NL>;
template [[host_name("matvec_gated_iq4_xs")]] kernel decltype(matvec_gated<IQ4_XS>) matvec_gated<IQ4_XS>;
template [[host_name("matvec_gated_mxfp4")]] kernel decltype(matvec_gated<MXFP4>) matvec_gated<MXFP4>;
template [[host_name("matmat_q4_0")]] kernel decltype(matmat<Q4_0>) matmat<Q4_0>;
template [[host_name("matmat_q4_1")]] kernel decltype(matmat<Q4_1>) matmat<Q4_1>;
template [[host_name("matmat_q5_0")]] kernel decltype(matmat<Q5_0>) matmat<Q5_0>;
template [[host_name("matmat_q5_1")]] kernel decltype(matmat<Q5_1>) matmat<Q5_1>;
template [[host_name("matmat_q8_0")]] kernel decltype(matmat<Q8_0>) matmat<Q8_0>;
template [[host_name("matmat_q2_k")]] kernel decltype(matmat<Q2_K>) matmat<Q2_K>;
template [[host_name("matmat_q3_k")]] kernel decltype(matmat<Q3_K>) matmat<Q3_K>;
template [[host_name("matmat_q4_k")]] kernel decltype(matmat<Q4_K>) matmat<Q4_K>;
template [[host_name("matmat_q5_k")]] kernel decltype(matmat<Q5_K>) matmat<Q5_K>;
template [[host_name("matmat_q6_k")]] kernel decltype(matmat<Q6_K>) matmat<Q6_K>;
template [[host_name("matmat_iq4_nl")]] kernel decltype(matmat<IQ4_NL>) matmat<IQ4_NL>;
template [[host_name("matmat_iq4_xs")]] kernel decltype(matmat<IQ4_XS>) matmat<IQ4_XS>;
template [[host_name("matmat_mxfp4")]] kernel decltype(matmat<MXFP4>) matmat<MXFP4>;
