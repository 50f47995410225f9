// Products with weights of floats, and the look-up of their rows. The order of sums is that of
// matmul.cu: a sum for each 256 values, one fused multiply-add after the other, then the sums of
// these, then the bias.
#include "sums.h"

// F32, F16 and BF16 say how many values 16 bytes hold, and what they are.
struct F32 { enum { PER = 4 }; static FN_MEMBER float at(const u32x4 &v, int i) { return as_float(v[i]); } };
struct F16 { enum { PER = 8 }; static FN_MEMBER float at(const u32x4 &v, int i) { return half2float((uint16_t)(v[i >> 1] >> (16 * (i & 1)))); } };
struct BF16 { enum { PER = 8 }; static FN_MEMBER float at(const u32x4 &v, int i) { return as_float(v[i >> 1] >> (16 * (i & 1)) << 16); } };

// add_piece adds the products of a piece of weights with the n or fewer values of each token from k on.
template <class F, int NT> FN void add_piece(float sum[NT], u32x4 w, const float *const row[NT], int k, int n) {
  UNROLL for (int i = 0; i < F::PER; i++) {
    if (i >= n) break;
    float f = F::at(w, i);
    UNROLL for (int t = 0; t < NT; t++) sum[t] = fma_(f, row[t][k + i], sum[t]);
  }
}

// float_sums leaves the sums of a group of 32 rows in part[nsb][NT][32].
template <class F, int NT> FN void float_sums(float *part, const unsigned char *group, const float *x, int base, int tokens, int n, int nsb) {
  const int pieces = 256 / F::PER;
  int lane = tid_x() & 31;
  const float *row[NT];
  UNROLL for (int t = 0; t < NT; t++) row[t] = x + (int64_t)min_(base + t, tokens - 1) * n;
  NO_UNROLL for (int sb = tid_x() >> 5; sb < nsb; sb += bdim_x() >> 5) {
    const u32x4 *w = (const u32x4 *)(group + (int64_t)sb * pieces * 512) + lane;
    int left = min_(256, n - 256 * sb);
    float sum[NT];
    UNROLL for (int t = 0; t < NT; t++) sum[t] = 0;
    if (left == 256) {
      UNROLL_4 for (int i = 0; i < pieces; i++) add_piece<F, NT>(sum, ld_weights(w + 32 * i), row, 256 * sb + i * F::PER, F::PER);
    } else {
      NO_UNROLL for (int i = 0; i * F::PER < left; i++) add_piece<F, NT>(sum, ld_weights(w + 32 * i), row, 256 * sb + i * F::PER, left - i * F::PER);
    }
    UNROLL for (int t = 0; t < NT; t++) part[(sb * NT + t) * 32 + lane] = sum[t];
  }
}

template <class F, int NT> FN void float_product(const unsigned char *w, const float *bias, float *y, int rows, const float *x, int n, int nsb, int tokens) {
  SHARED(float, part);
  float_sums<F, NT>(part, w + (int64_t)bid_x() * nsb * (256 / F::PER) * 512, x, NT * bid_y(), tokens, n, nsb);
  block_sync();
  join_sums<NT>(part, bias, y, rows, nsb, tokens);
}

template <class F> FN void float_embed(const unsigned char *w, const int *ids, float *y, int n, int nsb, int vocab, Fault *fault, int site) {
  const int pieces = 256 / F::PER;
  int id = ids[bid_x()];
  if (id < 0 || id >= vocab) {
    if (tid_x() == 0) report(fault, site, kId, bid_x(), id, vocab);
    return;
  }
  const u32x4 *from = (const u32x4 *)(w + (int64_t)(id >> 5) * nsb * pieces * 512) + (id & 31);
  for (int i = tid_x(); i < nsb * pieces; i += bdim_x()) {
    u32x4 v = ld_weights(from + 32 * i);
    UNROLL for (int k = 0; k < F::PER; k++)
      if (i * F::PER + k < n) y[(int64_t)bid_x() * n + i * F::PER + k] = F::at(v, k);
  }
}

#define FLOATS(F)                                                                                                                            \
  KERNEL(512, matvec1_##F, const unsigned char *w, const float *bias, float *y, int rows, const float *x, int n, int nsb, int tokens) {      \
    float_product<F, 1>(w, bias, y, rows, x, n, nsb, tokens);                                                                                \
  }                                                                                                                                          \
  KERNEL(512, matvec8_##F, const unsigned char *w, const float *bias, float *y, int rows, const float *x, int n, int nsb, int tokens) {      \
    float_product<F, 8>(w, bias, y, rows, x, n, nsb, tokens);                                                                                \
  }                                                                                                                                          \
  KERNEL(256, embed_##F, const unsigned char *w, const int *ids, float *y, int n, int nsb, int vocab, Fault *fault, int site) {              \
    float_embed<F>(w, ids, y, n, nsb, vocab, fault, site);                                                                                   \
  }
FLOATS(F32)
FLOATS(F16)
FLOATS(BF16)
