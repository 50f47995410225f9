// Floats as two halves: hi, which is one rounded, and lo, which is what is left of it, rounded again. Together they
// have 22 bits, or 16 for BF16. Halves of F16 are scaled beforehand by a power of two that makes the largest of them
// about 2^15, so that none is too large for a half or loses bits for being small.
#pragma once
#include "gpu.h"

// F16 and BF16 say how floats become halves, two at a time, and what tensor cores do with them.
struct F16 {
  static const bool SCALED = true;
  static FN_MEMBER uint32_t pack(float a, float b) { return pack_f16(a, b); }
  static FN_MEMBER float low(uint32_t w) { return half2float((uint16_t)w); }
  static FN_MEMBER float high(uint32_t w) { return half2float((uint16_t)(w >> 16)); }
  static FN_MEMBER void mma(float d[4], const uint32_t a[4], const uint32_t b[2]) { mma_f16(d, a, b); }
};
struct BF16 {
  static const bool SCALED = false;
  static FN_MEMBER uint32_t pack(float a, float b) { return pack_bf16(a, b); }
  static FN_MEMBER float low(uint32_t w) { return as_float(w << 16); }
  static FN_MEMBER float high(uint32_t w) { return as_float(w & 0xffff0000u); }
  static FN_MEMBER void mma(float d[4], const uint32_t a[4], const uint32_t b[2]) { mma_bf16(d, a, b); }
};

// Pair is two floats: their halves hi in one word, and lo in another.
struct Pair { uint32_t hi, lo; };
template <class F> FN Pair halve(float x, float y) {
  uint32_t w = F::pack(x, y);
  return Pair{w, F::pack(x - F::low(w), y - F::high(w))};
}

FN uint32_t magnitude(float v) { return as_uint(v) & 0x7fffffffu; } // as integers, magnitudes order like numbers
FN uint32_t greater(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Scale is a power of two and its inverse.
struct Scale { float up, down; };

// scale_for is the scale of numbers of which the largest has the magnitude.
FN Scale scale_for(uint32_t most) {
  int e = max_(15, min_(254, (int)(most >> 23)));
  return Scale{as_float((uint32_t)(268 - e) << 23), as_float((uint32_t)(e - 14) << 23)};
}
