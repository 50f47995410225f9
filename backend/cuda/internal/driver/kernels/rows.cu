// Operations on elements and on rows, rotary embedding, and the store of keys and values.
#include "activations.h"


// tanh(u) = 1 - 2/(e^2u + 1)
FN float gelu_(float x) {
  float u = 0.797884561f * x * (1.f + 0.044715f * x * x);
  return 0.5f * x * (2.f - div_(2.f, exp_(2.f * u) + 1.f));
}
FN int64_t thread_index() { return (int64_t)bid_x() * bdim_x() + tid_x(); }

KERNEL(256, add, float *y, const float *a, const float *b, int64_t n) { int64_t i = thread_index(); if (i < n) y[i] = a[i] + b[i]; }
KERNEL(256, mul, float *y, const float *a, const float *b, int64_t n) { int64_t i = thread_index(); if (i < n) y[i] = a[i] * b[i]; }
KERNEL(256, scale, float *y, const float *a, float f, int64_t n) { int64_t i = thread_index(); if (i < n) y[i] = a[i] * f; }
KERNEL(256, silu, float *y, const float *a, int64_t n) { int64_t i = thread_index(); if (i < n) y[i] = silu_(a[i]); }
KERNEL(256, gelu, float *y, const float *a, int64_t n) { int64_t i = thread_index(); if (i < n) y[i] = gelu_(a[i]); }

// Blocks of 32 of padded rows of nsb super-blocks, one for each warp of the grid: quants of what
// a row has, and zeros beyond.
FN void quantize_block(float v, int8_t *q, Meta *m, int64_t block) { quantize32(v, q + 32 * block, m + block); }

KERNEL(256, quantize, const float *x, int8_t *q, Meta *m, int n, int nsb, int tokens) {
  int64_t block = thread_index() >> 5;
  if (block >= (int64_t)tokens * nsb * 8) return; // whole warps
  int64_t token = block / (nsb * 8);
  int at = 32 * (int)(block % (nsb * 8)) + (tid_x() & 31);
  quantize_block(at < n ? x[token * n + at] : 0.f, q, m, block);
}

// swiglu makes the quants of its result besides, if q is not null.
KERNEL(256, swiglu, float *y, const float *gate, const float *up, int n, int tokens, int8_t *q, Meta *m, int nsb) {
  int64_t block = thread_index() >> 5;
  int blocks = nsb * 8;
  if (block >= (int64_t)tokens * blocks) return;
  int64_t token = block / blocks;
  int at = 32 * (int)(block % blocks) + (tid_x() & 31);
  float v = 0;
  if (at < n) { v = silu_(gate[token * n + at]) * up[token * n + at]; y[token * n + at] = v; }
  if (q) quantize_block(v, q, m, block);
}

// block_sum and block_max reduce over a block of whole warps; red has 32 floats. A kernel that wants
// both takes the maximum first.
FN float block_sum(float v, float *red) {
  int lane = tid_x() & 31, warps = bdim_x() >> 5;
  v = warp_sum(v);
  block_sync(); // red may still be read from the last call
  if (lane == 0) red[tid_x() >> 5] = v;
  block_sync();
  return warp_sum(lane < warps ? red[lane] : 0.f);
}
FN float block_max(float v, float *red) {
  int lane = tid_x() & 31, warps = bdim_x() >> 5;
  v = warp_max(v);
  if (lane == 0) red[tid_x() >> 5] = v;
  block_sync();
  return warp_max(lane < warps ? red[lane] : red[0]);
}

FN float inverse_root(float squares, int n, float eps) { return div_(1.f, sqrt_(div_(squares, (float)n) + eps)); }

// norm_wide normalises a row for each block of threads, and makes its quants besides if q is
// not null. With b, the row is the sum of x and b, which goes to sum.
KERNEL(512, norm_wide, float *y, const float *x, const float *b, float *sum, const float *w, int n, float eps, int8_t *q, Meta *m, int nsb) {
  SHARED(float, red);
  int64_t row = (int64_t)bid_x() * n;
  float s = 0;
  for (int i = tid_x(); i < n; i += bdim_x()) {
    float v = x[row + i];
    if (b) { v += b[row + i]; sum[row + i] = v; }
    s = fma_(v, v, s);
  }
  s = inverse_root(block_sum(s, red), n, eps);
  const float *from = b ? sum : x;
  int blocks = nsb * 8;
  for (int i = tid_x(); i < (q ? 32 * blocks : n); i += bdim_x()) {
    float v = 0;
    if (i < n) {
      v = from[row + i] * s;
      if (w) v *= w[i];
      y[row + i] = v;
    }
    if (q) quantize_block(v, q, m, (int64_t)bid_x() * blocks + (i >> 5));
  }
}

// warp_scale is what normalises n values, of which the lane has those at lane, lane+32 and so on.
FN float warp_scale(const float *x, int n, float eps) {
  float s = 0;
  for (int i = tid_x() & 31; i < n; i += 32) s = fma_(x[i], x[i], s);
  return inverse_root(warp_sum(s), n, eps);
}

// norm_narrow normalises pieces of n values, one for each warp of the grid.
KERNEL(256, norm_narrow, float *y, const float *x, const float *w, int n, float eps, int pieces) {
  int64_t piece = thread_index() >> 5;
  if (piece >= pieces) return;
  x += piece * n; y += piece * n;
  float s = warp_scale(x, n, eps);
  for (int i = tid_x() & 31; i < n; i += 32) { float v = x[i] * s; y[i] = w ? v * w[i] : v; }
}

// softmax computes a row for each block of threads.
KERNEL(256, softmax, float *y, const float *x, int n) {
  SHARED(float, red);
  int64_t row = (int64_t)bid_x() * n;
  float most = x[row], sum = 0;
  for (int i = tid_x(); i < n; i += bdim_x()) most = max_(most, x[row + i]);
  most = block_max(most, red);
  for (int i = tid_x(); i < n; i += bdim_x()) { float e = exp_(x[row + i] - most); y[row + i] = e; sum += e; }
  sum = block_sum(sum, red);
  for (int i = tid_x(); i < n; i += bdim_x()) y[row + i] = div_(y[row + i], sum);
}

// get_rows copies rows of 4-byte elements by their ids.
KERNEL(256, get_rows, uint32_t *y, const uint32_t *x, const int *ids, int n, int rows, Fault *fault, int site) {
  int id = ids[bid_x()];
  if (id < 0 || id >= rows) {
    if (tid_x() == 0) report(fault, site, kRow, bid_x(), id, rows);
    return;
  }
  for (int i = tid_x(); i < n; i += bdim_x()) y[(int64_t)bid_x() * n + i] = x[(int64_t)id * n + i];
}

// permute reads the elements of y, of shape n0 n1 n2 .., at distances s0 to s3 in x.
KERNEL(256, permute, float *y, const float *x, int64_t n, int n0, int n1, int n2, int64_t s0, int64_t s1, int64_t s2, int64_t s3) {
  int64_t i = thread_index();
  if (i >= n) return;
  int64_t j = i / n0, k = j / n1;
  y[i] = x[i % n0 * s0 + j % n1 * s1 + k % n2 * s2 + k / n2 * s3];
}

// sincos_ of |x| below 2^20, to the last bits of a float: reduced by multiples of pi/2 in two
// parts, then Taylor's series.
FN void sincos_(double x, float scale, float *sin, float *cos) {
  double n = round_d(x * 0.63661977236758134308);
  double r = fma_(n, -1.57079632679489655800e+00, x);
  r = fma_(n, -6.12323399573676603587e-17, r);
  double z = r * r;
  double p = fma_(z, -1. / 39916800, 1. / 362880), q = fma_(z, 1. / 479001600, -1. / 3628800);
  p = fma_(z, p, -1. / 5040); q = fma_(z, q, 1. / 40320);
  p = fma_(z, p, 1. / 120); q = fma_(z, q, -1. / 720);
  p = fma_(z, p, -1. / 6); q = fma_(z, q, 1. / 24);
  q = fma_(z, q, -1. / 2);
  float s = (float)fma_(r * z, p, r), c = (float)fma_(z, q, 1.);
  int turn = (int)n & 3;
  float a = turn & 1 ? c : s, b = turn & 1 ? s : c;
  *sin = (turn & 2 ? -a : a) * scale;
  *cos = ((turn + 1) & 2 ? -b : b) * scale;
}

// angles writes the cosine and, pairs floats on, the sine of each pair's angle for each token.
KERNEL(256, angles, float *y, const int *positions, const double *freq, float scale, int pairs, int tokens, int limit, Fault *fault, int site) {
  int64_t i = thread_index();
  if (i >= (int64_t)tokens * pairs) return;
  int token = (int)(i / pairs), pair = (int)(i % pairs), p = positions[token];
  if (p < 0 || p >= limit) {
    if (pair == 0) report(fault, site, kPosition, token, p, limit);
    p = 0;
  }
  sincos_((double)p * freq[pair], scale, &y[(2 * (int64_t)token + 1) * pairs + pair], &y[2 * (int64_t)token * pairs + pair]);
}

// rotate turns pair i of x, and writes it to y; halves says that its features lie pairs apart.
// For i from pairs on it copies a feature that is not rotated.
FN void rotate(float *y, const float *x, const float *angles, int pairs, int halves, int i) {
  if (i >= pairs) { y[pairs + i] = x[pairs + i]; return; }
  int a = halves ? i : 2 * i, b = halves ? i + pairs : 2 * i + 1;
  float c = angles[i], s = angles[pairs + i], x0 = x[a], x1 = x[b];
  y[a] = fma_(x0, c, -(x1 * s));
  y[b] = fma_(x0, s, x1 * c);
}

KERNEL(256, rope, float *y, const float *x, const float *angles, int heads, int head_dim, int pairs, int halves, int tokens) {
  int64_t i = thread_index();
  int per = head_dim - pairs;
  int64_t head = i / per;
  if (head >= (int64_t)tokens * heads) return;
  rotate(y + head * head_dim, x + head * head_dim, angles + head / heads * 2 * pairs, pairs, halves, (int)(i % per));
}

// store writes element i of a region of halves or floats.
FN void store(void *region, int half, int64_t i, float v) {
  if (half) ((uint16_t *)region)[i] = float2half(v); else ((float *)region)[i] = v;
}

// good_cell reports a cell that is out of range.
FN bool good_cell(int cell, int cells, int token, bool speaks, Fault *fault, int site) {
  if (cell >= 0 && cell < cells) return true;
  if (speaks) report(fault, site, kCell, token, cell, cells);
  return false;
}

KERNEL(256, kv_store, const float *k, const float *v, const int *cell_of, void *keys, void *values, int half, int width, int cells, Fault *fault, int site) {
  int cell = cell_of[bid_x()];
  if (!good_cell(cell, cells, bid_x(), tid_x() == 0, fault, site)) return;
  for (int i = tid_x(); i < width; i += bdim_x()) {
    store(keys, half, (int64_t)cell * width + i, k[(int64_t)bid_x() * width + i]);
    store(values, half, (int64_t)cell * width + i, v[(int64_t)bid_x() * width + i]);
  }
}

// finish_qkv adds biases to queries, keys and values, normalises and rotates queries and keys,
// and stores keys and values. Each warp does a head of a token; what it works on lies in shared
// memory. Null biases and norms are left out.
KERNEL(128, finish_qkv, float *q_out, const float *q, const float *k, const float *v, const float *q_bias, const float *k_bias, const float *v_bias,
       const float *q_norm, const float *k_norm, int normed, float eps, const float *angles, const int *cell_of, void *keys, void *values,
       int half_cells, int heads, int kv_heads, int head_dim, int pairs_halves, Fault *fault, int site) {
  SHARED(float, all);
  int cells = half_cells >> 1, half = half_cells & 1, pairs = pairs_halves >> 1, halves = pairs_halves & 1;
  int warp = tid_x() >> 5, lane = tid_x() & 31, token = bid_y(), head = bid_x() * 4 + warp;
  float *x = all + warp * head_dim;
  int kind = head < heads ? 0 : head < heads + kv_heads ? 1 : 2;
  if (head >= heads + 2 * kv_heads) return; // whole warps, and no barrier of the block follows
  head -= kind == 0 ? 0 : kind == 1 ? heads : heads + kv_heads;
  const float *from = kind == 0 ? q : kind == 1 ? k : v, *bias = kind == 0 ? q_bias : kind == 1 ? k_bias : v_bias;
  const float *norm = kind == 0 ? q_norm : k_norm;
  int width = (kind == 0 ? heads : kv_heads) * head_dim;
  int64_t at = (int64_t)token * width + head * head_dim;
  for (int i = lane; i < head_dim; i += 32) x[i] = bias ? from[at + i] + bias[head * head_dim + i] : from[at + i];
  if (normed && kind < 2) {
    float s = warp_scale(x, head_dim, eps);
    for (int i = lane; i < head_dim; i += 32) { float n = x[i] * s; x[i] = norm ? n * norm[i] : n; }
  }
  warp_sync();
  if (kind < 2) {
    for (int i = lane; i < head_dim - pairs; i += 32) rotate(x, x, angles + (int64_t)token * 2 * pairs, pairs, halves, i);
    warp_sync();
  }
  if (kind == 0) {
    for (int i = lane; i < head_dim; i += 32) q_out[at + i] = x[i];
    return;
  }
  int cell = cell_of[token];
  if (!good_cell(cell, cells, token, kind == 1 && head == 0 && lane == 0, fault, site)) return;
  for (int i = lane; i < head_dim; i += 32) store(kind == 1 ? keys : values, half, (int64_t)cell * width + head * head_dim + i, x[i]);
}


// spread makes a weight of one row, as formats.h and floats.cu lay it out, from a vector. Bytes of other
// rows stay as they are.
KERNEL(256, spread, float *y, const float *x, int n) { int64_t i = thread_index(); if (i < n) y[i / 4 * 128 + i % 4] = x[i]; }
