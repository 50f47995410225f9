// Products with weights of one quantised format, FORMAT. The format's name is part of each
// kernel's name.
//
// The canonical order: for each super-block of 256 values a sum of its own, groups in ascending
// order; then the sums of the super-blocks, in ascending order; then the bias. A group adds
// fma(dot, scale*d, sum), where dot is an exact integer, and, if it has a minimum,
// fma(min, d*(sum of quants), sum). All kernels keep it, so that a row of a product is the same
// in whichever of them it was computed.
#include "activations.h"
#include "formats.h"

#define NAME3(a, b) a##_##b
#define NAME2(a, b) NAME3(a, b)
#define NAME(a) NAME2(a, FORMAT)

#ifndef MINFER_MATMUL_ONCE
#define MINFER_MATMUL_ONCE

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



// Tile of the product on tensor cores: ROWS x TOKENS sums by 8 warps, 32 x 32 each.
enum { ROWS = 128, TOKENS = 64, STRIDE = 256 + 16 };

// Tile is the tile's shared memory: a super-block of its weights and activations. Rows of
// bytes are 16 longer than they need be, so that the lanes of a warp read from different banks.
template <int GROUPS> struct Tile {
  unsigned char a[ROWS][STRIDE];
  unsigned char b[TOKENS][STRIDE];
  float scale[GROUPS][ROWS], min[GROUPS][ROWS];
  float d[8][TOKENS], sum[GROUPS][TOKENS];
};

// fill_rows unpacks blocks B to B+3 of the lane's row.
template <class F, int B> FN void fill_rows(Tile<256 / F::GROUP> *s, const F &r, int row) {
  const int per = 32 / F::GROUP;
  UNROLL for (int b = B; b < B + 4; b++) {
    UNROLL for (int h = 0; h < 2; h++)
      *(u32x4 *)&s->a[row][32 * b + 16 * h] = u32x4{r.q(b, 4 * h), r.q(b, 4 * h + 1), r.q(b, 4 * h + 2), r.q(b, 4 * h + 3)};
    UNROLL for (int g = per * b; g < per * (b + 1); g++) {
      s->scale[g][row] = r.scale(g);
      if (F::MIN) s->min[g][row] = r.min(g);
    }
  }
}

template <class F> FN void clear_rows(Tile<256 / F::GROUP> *s, int row, int b) {
  const int per = 32 / F::GROUP;
  for (int i = 0; i < 8; i++) *(u32x4 *)&s->a[row][32 * b + 16 * i] = u32x4{0, 0, 0, 0};
  for (int g = per * b; g < per * (b + 4); g++) s->scale[g][row] = s->min[g][row] = 0;
}

// fill brings super-block sb into shared memory. The weights of row group w%4 are unpacked by
// two warps, w and w+4.
template <class F> FN void fill(Tile<256 / F::GROUP> *s, const unsigned char *weights, const int8_t *q, const Meta *m, int sb, int nsb, int rows, int tokens) {
  int lane = tid_x() & 31, warp = tid_x() >> 5;
  int group = bid_x() * (ROWS / 32) + (warp & 3), row = 32 * (warp & 3) + lane;
  if (32 * group < rows) {
    F r;
    r.load(weights + ((int64_t)group * nsb + sb) * 32 * F::BYTES, lane);
    if (warp < 4) fill_rows<F, 0>(s, r, row); else fill_rows<F, 4>(s, r, row);
  } else {
    clear_rows<F>(s, row, warp < 4 ? 0 : 4);
  }
  int first = bid_y() * TOKENS;
  UNROLL for (int k = 0; k < TOKENS * 16; k += 256) {
    int t = (k + tid_x()) >> 4, piece = (k + tid_x()) & 15;
    u32x4 v = {0, 0, 0, 0};
    if (first + t < tokens) v = *(const u32x4 *)(q + ((int64_t)(first + t) * nsb + sb) * 256 + 16 * piece);
    *(u32x4 *)&s->b[t][16 * piece] = v;
  }
  UNROLL for (int k = 0; k < TOKENS * 8; k += 256) {
    int t = (k + tid_x()) >> 3, b = (k + tid_x()) & 7;
    Meta a = {0, 0};
    if (first + t < tokens) a = m[((int64_t)(first + t) * nsb + sb) * 8 + b];
    s->d[b][t] = a.d;
    if (!F::MIN) continue;
    if (F::GROUP == 32) {
      s->sum[b][t] = a.d * (float)(sum_low(a) + sum_high(a));
    } else {
      s->sum[2 * b][t] = a.d * (float)sum_low(a);
      s->sum[2 * b + 1][t] = a.d * (float)sum_high(a);
    }
  }
}

FN uint32_t word_at(const unsigned char *p) { return *(const uint32_t *)p; }

// add_products adds a group's 16 x 8 integer sums of one product of tensor cores to the sums.
template <class F> FN void add_products(float sum[4], const int dot[4], const float scale[2], const float min[2], const float d[2], const float quants[2]) {
  UNROLL for (int i = 0; i < 4; i++) {
    sum[i] = fma_((float)dot[i], scale[i >> 1] * d[i & 1], sum[i]);
    if (F::MIN) sum[i] = fma_(min[i >> 1], quants[i & 1], sum[i]);
  }
}

// tile_sums adds the super-block in shared memory to the warp's 32 x 32 sums.
template <class F> FN void tile_sums(const Tile<256 / F::GROUP> *s, float sum[2][4][4]) {
  const int per = 32 / F::GROUP;
  int lane = tid_x() & 31, warp = tid_x() >> 5, g = lane >> 2, t = lane & 3;
  int row = 32 * (warp & 3) + g, col = 32 * (warp >> 2);
  NO_UNROLL for (int b = 0; b < 8; b++) {
    uint32_t x[4][2];
    float d[4][2];
    UNROLL for (int n = 0; n < 4; n++) {
      UNROLL for (int k = 0; k < 2; k++) {
        x[n][k] = word_at(&s->b[col + 8 * n + g][32 * b + 16 * k + 4 * t]);
        d[n][k] = s->d[b][col + 8 * n + 2 * t + k];
      }
    }
    UNROLL for (int i = 0; i < 2; i++) {
      uint32_t a[4];
      UNROLL for (int k = 0; k < 4; k++) a[k] = word_at(&s->a[row + 16 * i + 8 * (k & 1)][32 * b + 16 * (k >> 1) + 4 * t]);
      UNROLL for (int h = 0; h < per; h++) {
        int group = per * b + h;
        float scale[2], min[2];
        UNROLL for (int k = 0; k < 2; k++) {
          scale[k] = s->scale[group][row + 16 * i + 8 * k];
          min[k] = F::MIN ? s->min[group][row + 16 * i + 8 * k] : 0;
        }
        UNROLL for (int n = 0; n < 4; n++) {
          int dot[4] = {0, 0, 0, 0};
          if (F::GROUP == 32) mma_k32(dot, a, x[n]); else mma_k16(dot, a[2 * h], a[2 * h + 1], x[n][h]);
          float quants[2];
          UNROLL for (int k = 0; k < 2; k++) quants[k] = F::MIN ? s->sum[group][col + 8 * n + 2 * t + k] : 0;
          add_products<F>(sum[i][n], dot, scale, min, d[n], quants);
        }
      }
    }
  }
}

template <class F> FN void tensor_product(const unsigned char *w, const float *bias, float *y, int rows, const int8_t *q, const Meta *m, int nsb, int tokens) {
  SHARED(Tile<256 / F::GROUP>, s);
  float all[2][4][4];
  UNROLL for (int i = 0; i < 2; i++) UNROLL for (int n = 0; n < 4; n++) UNROLL for (int k = 0; k < 4; k++) all[i][n][k] = 0;
  NO_UNROLL for (int sb = 0; sb < nsb; sb++) {
    fill<F>(s, w, q, m, sb, nsb, rows, tokens);
    block_sync();
    float sum[2][4][4];
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int n = 0; n < 4; n++) UNROLL for (int k = 0; k < 4; k++) sum[i][n][k] = 0;
    tile_sums<F>(s, sum);
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int n = 0; n < 4; n++) UNROLL for (int k = 0; k < 4; k++) all[i][n][k] += sum[i][n][k];
    block_sync();
  }
  int lane = tid_x() & 31, warp = tid_x() >> 5;
  UNROLL for (int i = 0; i < 2; i++) UNROLL for (int n = 0; n < 4; n++) UNROLL for (int k = 0; k < 4; k++) {
    int row = bid_x() * ROWS + 32 * (warp & 3) + 16 * i + (lane >> 2) + 8 * (k >> 1);
    int token = bid_y() * TOKENS + 32 * (warp >> 2) + 8 * n + 2 * (lane & 3) + (k & 1);
    if (row < rows && token < tokens) y[(int64_t)token * rows + row] = bias ? all[i][n][k] + bias[row] : all[i][n][k];
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
  KERNEL(256, name, const unsigned char *w0, const float *bias0, float *y0, int rows0,                           \
         const unsigned char *w1, const float *bias1, float *y1, int rows1,                                      \
         const unsigned char *w2, const float *bias2, float *y2, int rows2,                                      \
         const int8_t *q, const Meta *m, int nsb, int tokens) {                                                  \
    product<FORMAT, NT>(Part{w0, bias0, y0, rows0}, Part{w1, bias1, y1, rows1}, Part{w2, bias2, y2, rows2}, q, m, nsb, tokens); \
  }
PRODUCT(NAME(matvec1), 1)
PRODUCT(NAME(matvec4), 4)
#undef PRODUCT

KERNEL(256, NAME(gate_up1), const unsigned char *gate, const unsigned char *up, const float *gate_bias, const float *up_bias, float *y, int rows,
       const int8_t *q, const Meta *m, int nsb, int tokens, int8_t *out_q, Meta *out_m, int out_nsb) {
  gate_up<FORMAT, 1>(gate, up, gate_bias, up_bias, y, rows, q, m, nsb, tokens, out_q, out_m, out_nsb);
}

KERNEL(256, NAME(matmul), const unsigned char *w, const float *bias, float *y, int rows, const int8_t *q, const Meta *m, int nsb, int tokens) {
  tensor_product<FORMAT>(w, bias, y, rows, q, m, nsb, tokens);
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
