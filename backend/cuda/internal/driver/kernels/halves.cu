// Products with weights of F16 and BF16 on tensor cores, from compute capability 8.0 on (floats.cu has
// those for older ones).
//
// Tensor cores multiply halves, so an activation goes in as two (halves.h). The scale of F16 is one for the 256
// activations of a super-block.
//
// The canonical order: for each super-block, its 256 products with hi, 16 at a time, in the order in which
// tensor cores add up, and likewise with lo; the two sums are added and the scale is undone. Then the
// sums of the super-blocks, in ascending order, then the bias. Both kernels keep it, and an element of a
// product of tensor cores depends on its row and column alone.
//
// So that a lane has what it needs in pieces of 16 bytes, products 0 to 15 of 32 are not those of features
// 0 to 15: the lane with t = lane%4 has features 8t to 8t+7, of which 0 to 3 go into the first 16 and the others into
// the second.
#include "halves.h"
#include "sums.h"

// Activations are 64 of the 256 of a super-block that begin at x, of which there are n: 8 of each 32 from
// 8t on. That they are whole, and lie so that four can be loaded at once, is the same for all lanes.
struct Activations { const float *x; int n, t; bool whole; };

// activations_at is super-block sb of a token's row; in the place of tokens that there are not is the last one.
FN Activations activations_at(const float *x, int token, int tokens, int sb, int n) {
  int left = n - 256 * sb;
  bool whole = left >= 256 && n % 4 == 0 && (uint64_t)x % 16 == 0;
  return Activations{x + (int64_t)min_(token, tokens - 1) * n + 256 * sb, left, tid_x() & 3, whole};
}

typedef float f32x4 __attribute__((vector_size(16)));

// load8 loads those of the j-th 32.
FN void load8(float v[8], const Activations &a, int j) {
  int at = 32 * j + 8 * a.t;
  if (a.whole) {
    UNROLL for (int i = 0; i < 2; i++) {
      f32x4 w = *(const f32x4 *)(a.x + at + 4 * i);
      UNROLL for (int k = 0; k < 4; k++) v[4 * i + k] = w[k];
    }
    return;
  }
  UNROLL for (int i = 0; i < 8; i++) v[i] = at + i < a.n ? a.x[at + i] : 0.f;
}

// scale_of agrees on the scale of a super-block among the four lanes that have it.
template <class F> FN Scale scale_of(const Activations &a) {
  if (!F::SCALED) return Scale{1, 1};
  uint32_t most = 0;
  UNROLL for (int j = 0; j < 8; j++) {
    float v[8];
    load8(v, a, j);
    UNROLL for (int i = 0; i < 8; i++) most = greater(most, magnitude(v[i]));
  }
  UNROLL for (int s = 1; s < 4; s <<= 1) most = greater(most, (uint32_t)shfl_xor((int)most, s));
  return scale_for(most);
}

// Halves are eight activations.
struct Halves { u32x4 hi, lo; };

template <class F> FN Halves halves(const Activations &a, Scale s, int j) {
  float v[8];
  load8(v, a, j);
  Halves h;
  UNROLL for (int i = 0; i < 4; i++) {
    Pair p = halve<F>(v[2 * i] * s.up, v[2 * i + 1] * s.up);
    h.hi[i] = p.hi;
    h.lo[i] = p.lo;
  }
  return h;
}

// Sums are a super-block's sums of 16 rows and 8 tokens.
struct Sums { float hi[4], lo[4]; };
FN void clear(Sums &s) { UNROLL for (int i = 0; i < 4; i++) s.hi[i] = s.lo[i] = 0; }

// add_products adds 32 products to the sums. A lane's weights are those of rows g and g+8.
template <class F> FN void add_products(Sums &s, u32x4 row0, u32x4 row8, const Halves &h) {
  UNROLL for (int k = 0; k < 4; k += 2) {
    uint32_t a[4] = {row0[k], row8[k], row0[k + 1], row8[k + 1]}, hi[2] = {h.hi[k], h.hi[k + 1]}, lo[2] = {h.lo[k], h.lo[k + 1]};
    F::mma(s.hi, a, hi);
    F::mma(s.lo, a, lo);
  }
}

// weights_at is where the lane's weights of a super-block begin, rows g, g+8, g+16 and g+24 lying 8 apart and each 32 features
// 128.
FN const u32x4 *weights_at(const unsigned char *group, int sb, int lane) {
  return (const u32x4 *)(group + (int64_t)sb * 32 * 512) + 32 * (lane & 3) + (lane >> 2);
}

// few_sums leaves the sums of each super-block of a group of 32 rows in part[nsb][NT][32]. Warps take
// super-blocks in turn.
template <class F, int NT> FN void few_sums(float *part, const unsigned char *group, const float *x, int base, int tokens, int n, int nsb) {
  int lane = tid_x() & 31, g = lane >> 2, t = lane & 3;
  NO_UNROLL for (int sb = tid_x() >> 5; sb < nsb; sb += bdim_x() >> 5) {
    Activations a = activations_at(x, base + (NT == 1 ? 0 : g), tokens, sb, n);
    Scale scale = scale_of<F>(a);
    const u32x4 *w = weights_at(group, sb, lane);
    Sums sum[2];
    clear(sum[0]); clear(sum[1]);
    UNROLL_4 for (int j = 0; j < 8; j++) {
      u32x4 r0 = ld_weights(w + 128 * j), r8 = ld_weights(w + 128 * j + 8), r16 = ld_weights(w + 128 * j + 16), r24 = ld_weights(w + 128 * j + 24);
      Halves h = halves<F>(a, scale, j);
      add_products<F>(sum[0], r0, r8, h);
      add_products<F>(sum[1], r16, r24, h);
    }
    UNROLL for (int i = 0; i < 4; i++) {
      int token = 2 * t + (i & 1);
      float down = shfl(scale.down, 4 * token);
      if (token >= NT) continue;
      UNROLL for (int m = 0; m < 2; m++) part[(sb * NT + token) * 32 + 16 * m + g + 8 * (i >> 1)] = (sum[m].hi[i] + sum[m].lo[i]) * down;
    }
  }
}

template <class F, int NT> FN void few(const unsigned char *w, const float *bias, float *y, int rows, const float *x, int n, int nsb, int tokens) {
  SHARED(float, part);
  few_sums<F, NT>(part, w + (int64_t)bid_x() * nsb * 32 * 512, x, NT * bid_y(), tokens, n, nsb);
  block_sync();
  join_sums<NT>(part, bias, y, rows, nsb, tokens);
}

// Tile of the product for many tokens: ROWS x TOKENS sums by 8 warps, 32 x 32 each. Weights come straight
// from memory; the activations of a super-block are in shared memory.
enum { ROWS = 128, TOKENS = 64 };
struct Tile { u32x4 hi[8][TOKENS][4], lo[8][TOKENS][4]; float down[TOKENS]; };

template <class F> FN void tile(const unsigned char *w, const float *bias, float *y, int rows, const float *x, int n, int nsb, int tokens) {
  SHARED(Tile, s);
  int lane = tid_x() & 31, warp = tid_x() >> 5, g = lane >> 2, t = lane & 3;
  int first = bid_y() * TOKENS, group = bid_x() * (ROWS / 32) + (warp & 3), col = 32 * (warp >> 2);
  bool there = 32 * group < rows;
  int filled = tid_x() >> 2; // the token that the thread brings, with three others
  float all[2][4][4];
  UNROLL for (int m = 0; m < 2; m++) UNROLL for (int c = 0; c < 4; c++) UNROLL for (int i = 0; i < 4; i++) all[m][c][i] = 0;
  NO_UNROLL for (int sb = 0; sb < nsb; sb++) {
    Activations a = activations_at(x, first + filled, tokens, sb, n);
    Scale scale = scale_of<F>(a);
    NO_UNROLL for (int j = 0; j < 8; j++) {
      Halves h = halves<F>(a, scale, j);
      s->hi[j][filled][t] = h.hi;
      s->lo[j][filled][t] = h.lo;
    }
    if (t == 0) s->down[filled] = scale.down;
    block_sync();
    Sums sum[2][4];
    UNROLL for (int m = 0; m < 2; m++) UNROLL for (int c = 0; c < 4; c++) clear(sum[m][c]);
    const u32x4 *at = weights_at(w + (int64_t)(there ? group : 0) * nsb * 32 * 512, sb, lane);
    UNROLL_2 for (int j = 0; j < 8; j++) {
      u32x4 r[4];
      UNROLL for (int i = 0; i < 4; i++) r[i] = ld_weights(at + 128 * j + 8 * i);
      UNROLL for (int c = 0; c < 4; c++) {
        Halves h = {s->hi[j][col + 8 * c + g][t], s->lo[j][col + 8 * c + g][t]};
        UNROLL for (int m = 0; m < 2; m++) add_products<F>(sum[m][c], r[2 * m], r[2 * m + 1], h);
      }
    }
    UNROLL for (int m = 0; m < 2; m++) UNROLL for (int c = 0; c < 4; c++) UNROLL for (int i = 0; i < 4; i++)
      all[m][c][i] += (sum[m][c].hi[i] + sum[m][c].lo[i]) * s->down[col + 8 * c + 2 * t + (i & 1)];
    block_sync();
  }
  if (!there) return;
  UNROLL for (int m = 0; m < 2; m++) UNROLL for (int c = 0; c < 4; c++) UNROLL for (int i = 0; i < 4; i++) {
    int to = 32 * group + 16 * m + g + 8 * (i >> 1), token = first + col + 8 * c + 2 * t + (i & 1);
    if (to < rows && token < tokens) y[(int64_t)token * rows + to] = bias ? all[m][c][i] + bias[to] : all[m][c][i];
  }
}

#define HALVES(F)                                                                                                                       \
  KERNEL(512, few1_##F, const unsigned char *w, const float *bias, float *y, int rows, const float *x, int n, int nsb, int tokens) {    \
    few<F, 1>(w, bias, y, rows, x, n, nsb, tokens);                                                                                     \
  }                                                                                                                                     \
  KERNEL(512, few8_##F, const unsigned char *w, const float *bias, float *y, int rows, const float *x, int n, int nsb, int tokens) {    \
    few<F, 8>(w, bias, y, rows, x, n, nsb, tokens);                                                                                     \
  }                                                                                                                                     \
  KERNEL(256, tile_##F, const unsigned char *w, const float *bias, float *y, int rows, const float *x, int n, int nsb, int tokens) {    \
    tile<F>(w, bias, y, rows, x, n, nsb, tokens);                                                                                       \
  }
HALVES(F16)
HALVES(BF16)
