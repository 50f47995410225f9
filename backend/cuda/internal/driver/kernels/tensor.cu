// The product of many tokens with weights of one quantised format, FORMAT, on tensor cores. It
// keeps the order of matmul.cu: the sums of a group are exact integers wherever they are computed.
#include "activations.h"
#include "formats.h"

#define NAME3(a, b) a##_##b
#define NAME2(a, b) NAME3(a, b)
#define NAME(a) NAME2(a, FORMAT)

#ifndef TENSOR_ONCE
#define TENSOR_ONCE

// Tile of the product on tensor cores: ROWS x TOKENS sums by 8 warps, 32 x 32 each.
enum { ROWS = 128, TOKENS = 64, STRIDE = 256 + 16 };

// Tile is the tile's shared memory: a super-block of its weights and activations. Rows of
// bytes are 16 longer than they need be, so that the lanes of a warp read from different banks.
template <class F> struct Tile {
  enum { GROUPS = 256 / F::GROUP, MINS = F::MIN ? GROUPS : 1 };
  unsigned char a[ROWS][STRIDE];
  unsigned char b[TOKENS][STRIDE];
  float scale[GROUPS][ROWS], min[MINS][ROWS];
  float d[8][TOKENS], sum[MINS][TOKENS];
};

// fill_rows unpacks blocks B to B+3 of the lane's row.
template <class F, int B> FN void fill_rows(Tile<F> *s, const F &r, int row) {
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

template <class F> FN void clear_rows(Tile<F> *s, int row, int b) {
  const int per = 32 / F::GROUP;
  for (int i = 0; i < 8; i++) *(u32x4 *)&s->a[row][32 * b + 16 * i] = u32x4{0, 0, 0, 0};
  for (int g = per * b; g < per * (b + 4); g++) {
    s->scale[g][row] = 0;
    if (F::MIN) s->min[g][row] = 0;
  }
}

// fill_scales brings the scale of block b of a token, and its sums if the format has minima.
template <class F> FN void fill_scales(Tile<F> *s, Meta a, int b, int t) {
  s->d[b][t] = a.d;
  if (!F::MIN) return;
  if (F::GROUP == 32) {
    s->sum[b][t] = a.d * (float)(sum_low(a) + sum_high(a));
  } else {
    s->sum[2 * b][t] = a.d * (float)sum_low(a);
    s->sum[2 * b + 1][t] = a.d * (float)sum_high(a);
  }
}

// fill brings super-block sb into shared memory. The weights of row group w%4 are unpacked by
// two warps, w and w+4.
template <class F> FN void fill(Tile<F> *s, const unsigned char *weights, const int8_t *q, const Meta *m, int sb, int nsb, int rows, int tokens) {
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
    fill_scales(s, a, b, t);
  }
}

// Integer sums begin at the bits of the float MAGIC, 1.5 * 2^23: added to these, one below 2^22 makes the
// bits of the float that is as much greater. So a subtraction makes a float of it, where a conversion
// would take four times as long or more.
enum { MAGIC_BITS = 0x4b400000 };
const float MAGIC = 12582912.f;

// add_products adds a group's 16 x 8 integer sums of one product of tensor cores to the sums.
template <class F> FN void add_products(float sum[4], const int dot[4], const float scale[2], const float min[2], f32x2 d, f32x2 quants) {
  UNROLL for (int i = 0; i < 4; i++) {
    sum[i] = fma_(as_float((uint32_t)dot[i]) - MAGIC, scale[i >> 1] * d[i & 1], sum[i]);
    if (F::MIN) sum[i] = fma_(min[i >> 1], quants[i & 1], sum[i]);
  }
}

// tile_sums adds the super-block in shared memory to the warp's 32 x 32 sums.
template <class F> FN void tile_sums(const Tile<F> *s, const unsigned char (*activations)[STRIDE], float sum[2][4][4]) {
  const int per = 32 / F::GROUP, magic[4] = {MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS};
  int lane = tid_x() & 31, warp = tid_x() >> 5, g = lane >> 2, t = lane & 3, matrix = lane >> 3;
  int row = 32 * (warp & 3) + g, col = 32 * (warp >> 2);
  // Rows that ldmatrix takes from the lane: of weights, matrices are rows 0 and 8 of the first 16 bytes and then of the
  // next; of activations, tokens 0 of both and then tokens 8.
  shared_at a_row = at_shared(s->a[32 * (warp & 3) + 8 * (matrix & 1) + (lane & 7)] + 16 * (matrix >> 1));
  shared_at b_row = at_shared(activations[col + 8 * (matrix >> 1) + (lane & 7)] + 16 * (matrix & 1));
  NO_UNROLL for (int b = 0; b < 8; b++) {
    uint32_t x[4][2];
    f32x2 d[4];
    ldmatrix(x[0], b_row + 32 * b);
    ldmatrix(x[2], b_row + 16 * STRIDE + 32 * b);
    UNROLL for (int n = 0; n < 4; n++) d[n] = ld_shared2(&s->d[b][col + 8 * n + 2 * t]);
    UNROLL for (int i = 0; i < 2; i++) {
      uint32_t a[4];
      ldmatrix(a, a_row + 16 * i * STRIDE + 32 * b);
      UNROLL for (int h = 0; h < per; h++) {
        int group = per * b + h;
        float scale[2], min[2];
        UNROLL for (int k = 0; k < 2; k++) {
          scale[k] = s->scale[group][row + 16 * i + 8 * k];
          min[k] = F::MIN ? s->min[group][row + 16 * i + 8 * k] : 0;
        }
        UNROLL for (int n = 0; n < 4; n++) {
          int dot[4];
          if (F::GROUP == 32) mma_k32(dot, a, x[n], magic); else mma_k16(dot, a[2 * h], a[2 * h + 1], x[n][h], magic);
          f32x2 quants = {0, 0};
          if (F::MIN) quants = ld_shared2(&s->sum[group][col + 8 * n + 2 * t]);
          add_products<F>(sum[i][n], dot, scale, min, d[n], quants);
        }
      }
    }
  }
}

// Totals are a warp's 32 x 32 sums of all super-blocks so far.
struct Totals { float v[2][4][4]; };
FN void clear(Totals &all) { UNROLL for (int i = 0; i < 2; i++) UNROLL for (int n = 0; n < 4; n++) UNROLL for (int k = 0; k < 4; k++) all.v[i][n][k] = 0; }

// add_tile adds the super-block in shared memory.
template <class F> FN void add_tile(Totals &all, const Tile<F> *s, const unsigned char (*activations)[STRIDE]) {
  Totals sum;
  clear(sum);
  tile_sums<F>(s, activations, sum.v);
  UNROLL for (int i = 0; i < 2; i++) UNROLL for (int n = 0; n < 4; n++) UNROLL for (int k = 0; k < 4; k++) all.v[i][n][k] += sum.v[i][n][k];
}

FN void store_tile(const Totals &all, const float *bias, float *y, int rows, int tokens) {
  int lane = tid_x() & 31, warp = tid_x() >> 5;
  UNROLL for (int i = 0; i < 2; i++) UNROLL for (int n = 0; n < 4; n++) UNROLL for (int k = 0; k < 4; k++) {
    int row = bid_x() * ROWS + 32 * (warp & 3) + 16 * i + (lane >> 2) + 8 * (k >> 1);
    int token = bid_y() * TOKENS + 32 * (warp >> 2) + 8 * n + 2 * (lane & 3) + (k & 1);
    if (row < rows && token < tokens) y[(int64_t)token * rows + row] = bias ? all.v[i][n][k] + bias[row] : all.v[i][n][k];
  }
}

template <class F> FN void tensor_product(const unsigned char *w, const float *bias, float *y, int rows, const int8_t *q, const Meta *m, int nsb, int tokens) {
  SHARED(Tile<F>, s);
  Totals all;
  clear(all);
  NO_UNROLL for (int sb = 0; sb < nsb; sb++) {
    fill<F>(s, w, q, m, sb, nsb, rows, tokens);
    block_sync();
    add_tile<F>(all, s, s->b);
    block_sync();
  }
  store_tile(all, bias, y, rows, tokens);
}

#if defined(GPU_EMU) || __CUDA_ARCH__ >= 800
// AheadTile is a tile while the next super-block is on its way: its weights as they lie in memory, and its
// activations in the one of two places that is not in use. Where there are no rows or tokens, others are
// brought in their place, whose sums are not stored.
template <class F> struct AheadTile {
  Tile<F> now; // now.b is one place for activations
  unsigned char b[TOKENS][STRIDE];
  unsigned char weights[ROWS * F::BYTES];
  Meta meta[TOKENS][8];
};

// begin has the super-block sb copied, its activations to b.
template <class F> FN void begin(AheadTile<F> *s, unsigned char (*b)[STRIDE], const unsigned char *weights, const int8_t *q, const Meta *m, int sb, int nsb, int rows, int tokens) {
  const int bytes = 32 * F::BYTES; // of a group of rows
  NO_UNROLL for (int at = 16 * tid_x(); at < ROWS * F::BYTES; at += 16 * 256) {
    int group = min_(bid_x() * (ROWS / 32) + at / bytes, (rows - 1) / 32);
    cp_async(s->weights + at, weights + ((int64_t)group * nsb + sb) * bytes + at % bytes);
  }
  UNROLL for (int k = 0; k < TOKENS * 16; k += 256) {
    int t = (k + tid_x()) >> 4, piece = (k + tid_x()) & 15;
    cp_async(&b[t][16 * piece], q + ((int64_t)min_(bid_y() * TOKENS + t, tokens - 1) * nsb + sb) * 256 + 16 * piece);
  }
  int t = tid_x() >> 2, pair = 2 * (tid_x() & 3);
  cp_async(&s->meta[t][pair], m + ((int64_t)min_(bid_y() * TOKENS + t, tokens - 1) * nsb + sb) * 8 + pair);
}

// unpack makes a tile of what has been copied.
template <class F> FN void unpack(AheadTile<F> *s) {
  int lane = tid_x() & 31, warp = tid_x() >> 5, row = 32 * (warp & 3) + lane;
  F r;
  r.take(s->weights + (warp & 3) * 32 * F::BYTES, lane);
  if (warp < 4) fill_rows<F, 0>(&s->now, r, row); else fill_rows<F, 4>(&s->now, r, row);
  UNROLL for (int k = 0; k < TOKENS * 8; k += 256) {
    int t = (k + tid_x()) >> 3, b = (k + tid_x()) & 7;
    fill_scales(&s->now, s->meta[t][b], b, t);
  }
}

template <class F> FN void tensor_product_ahead(const unsigned char *w, const float *bias, float *y, int rows, const int8_t *q, const Meta *m, int nsb, int tokens) {
  SHARED(AheadTile<F>, s);
  Totals all;
  clear(all);
  begin<F>(s, s->now.b, w, q, m, 0, nsb, rows, tokens);
  NO_UNROLL for (int sb = 0; sb < nsb; sb++) {
    cp_async_wait();
    block_sync(); // and nobody reads the last tile any more
    unpack<F>(s);
    block_sync();
    if (sb + 1 < nsb) begin<F>(s, sb & 1 ? s->now.b : s->b, w, q, m, sb + 1, nsb, rows, tokens);
    add_tile<F>(all, &s->now, sb & 1 ? s->b : s->now.b);
  }
  store_tile(all, bias, y, rows, tokens);
}
#endif
#endif

// matmul_ahead brings the next super-block while it multiplies one. It takes copies that do not wait (cp.async), from
// compute capability 8.0 on, and more shared memory.
#if defined(GPU_EMU) || __CUDA_ARCH__ >= 800
KERNEL(256, NAME(matmul_ahead), const unsigned char *w, const float *bias, float *y, int rows, const int8_t *q, const Meta *m, int nsb, int tokens) {
  tensor_product_ahead<FORMAT>(w, bias, y, rows, q, m, nsb, tokens);
}
#endif
KERNEL(256, NAME(matmul), const unsigned char *w, const float *bias, float *y, int rows, const int8_t *q, const Meta *m, int nsb, int tokens) {
  tensor_product<FORMAT>(w, bias, y, rows, q, m, nsb, tokens);
}

#undef NAME3
#undef NAME2
#undef NAME
