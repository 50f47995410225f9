// Products with weights of one quantised format, FORMAT. The format's name is part of each
// kernel's name. Here are those for a few tokens; tensor.cu has the one for many.
//
// The canonical order: for each super-block of 256 values a sum of its own, groups in ascending
// order; then the sums of the super-blocks, in ascending order; then the bias. A group adds
// fma(dot, scale*d, sum), where dot is an exact integer, and, if it has a minimum,
// fma(min, d*(sum of quants), sum). All kernels, and those of tensor.cu, keep it, so that a row of a product is the same in whichever of
// them it was computed.
#include "activations.h"
#include "formats.h"

#define NAME3(a, b) a##_##b
#define NAME2(a, b) NAME3(a, b)
#define NAME(a) NAME2(a, FORMAT)

#ifndef MATMUL_ONCE
#define MATMUL_ONCE

// add_group adds a group's products to the sum.
template <class F> FN float add_group(float sum, int dot, float scale, float min, float d, int quants) {
  sum = fma_((float)dot, scale * d, sum);
  return F::MIN ? fma_(min, d * (float)quants, sum) : sum;
}

// super_block returns the sums of a row's super-block for NT tokens, whose activations begin
// at q and m and lie a row of them apart.
template <class F, int NT> FN void super_block(const F &r, const int8_t *q, const Meta *m, const int64_t *token, int nsb, float sum[NT]) {
  UNROLL for (int t = 0; t < NT; t++) sum[t] = 0;
  UNROLL for (int b = 0; b < 8; b++) {
    uint32_t w[8];
    UNROLL for (int i = 0; i < 8; i++) w[i] = r.q(b, i);
    UNROLL for (int t = 0; t < NT; t++) {
      const u32x4 *x = (const u32x4 *)(q + token[t] * nsb * 256 + b * 32);
      u32x4 lo = x[0], hi = x[1];
      Meta a = m[token[t] * nsb * 8 + b];
      int d0 = 0, d1 = 0;
      UNROLL for (int i = 0; i < 4; i++) { d0 = dp4a((int)w[i], (int)lo[i], d0); d1 = dp4a((int)w[4 + i], (int)hi[i], d1); }
      if (F::GROUP == 32) {
        sum[t] = add_group<F>(sum[t], d0 + d1, r.scale(b), r.min(b), a.d, sum_low(a) + sum_high(a));
      } else {
        sum[t] = add_group<F>(sum[t], d0, r.scale(2 * b), r.min(2 * b), a.d, sum_low(a));
        sum[t] = add_group<F>(sum[t], d1, r.scale(2 * b + 1), r.min(2 * b + 1), a.d, sum_high(a));
      }
    }
  }
}

// row_sums leaves the sums of each super-block of a group of rows in part[nsb][NT][32]. Warps
// take super-blocks in turn; lanes are rows.
template <class F, int NT> FN void row_sums(float *part, const unsigned char *group, const int8_t *q, const Meta *m, int base, int tokens, int nsb) {
  int lane = tid_x() & 31;
  int64_t token[NT];
  UNROLL for (int t = 0; t < NT; t++) token[t] = min_(base + t, tokens - 1);
  NO_UNROLL for (int sb = tid_x() >> 5; sb < nsb; sb += bdim_x() >> 5) {
    F r;
    r.load(group + (int64_t)sb * 32 * F::BYTES, lane);
    float sum[NT];
    super_block<F, NT>(r, q + sb * 256, m + sb * 8, token, nsb, sum);
    UNROLL for (int t = 0; t < NT; t++) part[(sb * NT + t) * 32 + lane] = sum[t];
  }
}

// total adds up what row_sums left for the lane's row and token t.
FN float total(const float *part, int nt, int t, int nsb, const float *bias, int row) {
  float v = 0;
  for (int sb = 0; sb < nsb; sb++) v += part[(sb * nt + t) * 32 + (tid_x() & 31)];
  return bias ? v + bias[row] : v;
}

// Part is one of up to three weights that are multiplied with the same activations.
struct Part { const unsigned char *w; const float *bias; float *y; int rows; };

// product computes group bid_x of the rows of up to three weights, counted through, for tokens
// from NT*bid_y on.
template <class F, int NT> FN void product(Part p, Part p1, Part p2, const int8_t *q, const Meta *m, int nsb, int tokens) {
  SHARED(float, part);
  int g = bid_x(), n = (p.rows + 31) >> 5;
  if (g >= n) {
    g -= n; p = p1; n = (p.rows + 31) >> 5;
    if (g >= n) { g -= n; p = p2; }
  }
  row_sums<F, NT>(part, p.w + (int64_t)g * nsb * 32 * F::BYTES, q, m, NT * bid_y(), tokens, nsb);
  block_sync();
  int row = 32 * g + (tid_x() & 31);
  for (int t = tid_x() >> 5; t < NT; t += bdim_x() >> 5) {
    int64_t token = NT * bid_y() + t;
    if (token < tokens && row < p.rows) p.y[token * p.rows + row] = total(part, NT, t, nsb, p.bias, row);
  }
}



// gate_up is silu(gate)*up for a group of rows and NT tokens, and its quants besides if out_q
// is not null. Gate and up have the same format.
template <class F, int NT> FN void gate_up(const unsigned char *gate, const unsigned char *up, const float *gate_bias, const float *up_bias, float *y, int rows,
                                           const int8_t *q, const Meta *m, int nsb, int tokens, int8_t *out_q, Meta *out_m, int out_nsb) {
  SHARED(float, part);
  int64_t at = (int64_t)bid_x() * nsb * 32 * F::BYTES;
  float *part_up = part + nsb * NT * 32;
  NO_UNROLL for (int i = 0; i < 2; i++) row_sums<F, NT>(i ? part_up : part, (i ? up : gate) + at, q, m, NT * bid_y(), tokens, nsb);
  block_sync();
  int row = 32 * bid_x() + (tid_x() & 31);
  for (int t = tid_x() >> 5; t < NT; t += bdim_x() >> 5) {
    int64_t token = NT * bid_y() + t;
    if (token >= tokens) continue;
    float v = 0;
    if (row < rows) {
      v = silu_(total(part, NT, t, nsb, gate_bias, row)) * total(part_up, NT, t, nsb, up_bias, row);
      y[token * rows + row] = v;
    }
    if (out_q) quantize32(v, out_q + token * out_nsb * 256 + 32 * bid_x(), out_m + token * out_nsb * 8 + bid_x());
  }
}

// embed_row writes super-block sb of a row. Unpacking is unrolled and writing is not, so the
// quants lie in local memory in between, which is of no weight for a row or two.
template <class F> FN void embed_row(float *y, const unsigned char *weights, int row, int sb, int nsb, int n) {
  F r;
  r.load(weights + ((int64_t)(row >> 5) * nsb + sb) * 32 * F::BYTES, row & 31);
  uint32_t words[64];
  float scale[256 / F::GROUP], min[256 / F::GROUP];
  UNROLL for (int i = 0; i < 64; i++) words[i] = r.q(i >> 3, i & 7);
  UNROLL for (int g = 0; g < 256 / F::GROUP; g++) { scale[g] = r.scale(g); min[g] = r.min(g); }
  int left = min_(256, n - 256 * sb);
  NO_UNROLL for (int i = 0; i < left; i++) {
    float v = scale[i / F::GROUP] * (float)(int8_t)(words[i >> 2] >> (8 * (i & 3)));
    y[256 * sb + i] = F::MIN ? v + min[i / F::GROUP] : v;
  }
}
#endif

#define PRODUCT(name, NT)                                                                                        \
  KERNEL(512, name, const unsigned char *w0, const float *bias0, float *y0, int rows0,                           \
         const unsigned char *w1, const float *bias1, float *y1, int rows1,                                      \
         const unsigned char *w2, const float *bias2, float *y2, int rows2,                                      \
         const int8_t *q, const Meta *m, int nsb, int tokens) {                                                  \
    product<FORMAT, NT>(Part{w0, bias0, y0, rows0}, Part{w1, bias1, y1, rows1}, Part{w2, bias2, y2, rows2}, q, m, nsb, tokens); \
  }
PRODUCT(NAME(matvec1), 1)
PRODUCT(NAME(matvec4), 4)
#undef PRODUCT

KERNEL(512, NAME(gate_up1), const unsigned char *gate, const unsigned char *up, const float *gate_bias, const float *up_bias, float *y, int rows,
       const int8_t *q, const Meta *m, int nsb, int tokens, int8_t *out_q, Meta *out_m, int out_nsb) {
  gate_up<FORMAT, 1>(gate, up, gate_bias, up_bias, y, rows, q, m, nsb, tokens, out_q, out_m, out_nsb);
}

// A row for each id; thread sb of the row's block of threads writes super-block sb.
KERNEL(256, NAME(embed), const unsigned char *w, const int *ids, float *y, int n, int nsb, int vocab, Fault *fault, int site) {
  int id = ids[bid_x()];
  bool good = id >= 0 && id < vocab;
  if (!good && tid_x() == 0) report(fault, site, kId, bid_x(), id, vocab);
  for (int sb = tid_x(); sb < nsb && good; sb += bdim_x()) embed_row<FORMAT>(y + (int64_t)bid_x() * n, w, id, sb, nsb, n);
}

#undef NAME3
#undef NAME2
#undef NAME
