// Activations of products with quantised weights: 32 values are a block of signed bytes with
// a scale, as in the numerics contract of package kernels. Rows are padded with zeros to whole
// super-blocks of 256.
#pragma once
#include "gpu.h"

struct Meta {
  float d;      // scale
  uint32_t sum; // of the first 16 quants and, shifted by 16, of the last
};
FN int sum_low(Meta m) { return (int16_t)m.sum; }
FN int sum_high(Meta m) { return (int16_t)(m.sum >> 16); }

// quantize32 makes a block of the warp's values: q has room for 32, and lane 0 writes m.
FN void quantize32(float v, int8_t *q, Meta *m) {
  int lane = tid_x() & 31;
  uint32_t bits = as_uint(v) & 0x7fffffffu; // as integers, magnitudes order like numbers
  for (int s = 16; s; s >>= 1) { uint32_t o = (uint32_t)shfl_xor((int)bits, s); bits = o > bits ? o : bits; }
  float amax = as_float(bits);
  if (bits >= 0x7f800000u || amax < 1.5281427e-36f) { // 130 * 2^-126
    q[lane] = 0;
    if (lane == 0) *m = Meta{bits >= 0x7f800000u ? as_float(0x7fc00000u) : 0.f, 0};
    return;
  }
  float r = v * div_(127.f, amax);
  int n = max_(-127, min_(127, round_(r)));
  q[lane] = (int8_t)n;
  // 16 lanes, each of the values lane and lane+16, and a tree.
  float far = shfl_xor(r, 16);
  int far_n = shfl_xor(n, 16);
  float s = fma_(far, (float)far_n, r * (float)n);
  int half = n;
  for (int k = 8; k; k >>= 1) { s += shfl_xor(s, k); half += shfl_xor(half, k); }
  int squares = warp_sum(n * n);
  int other = shfl_xor(half, 16);
  if (lane == 0) *m = Meta{div_(amax, 127.f) * div_(s, (float)squares), (uint32_t)(uint16_t)half | (uint32_t)other << 16};
}
