// How weights lie on the device, and how they become integers.
//
// 32 rows are a group. Of each super-block of 256 values along a row, the 32 rows' bytes lie
// together: N16 pieces of 16 bytes and N4 words of 4, each piece 32 times, once for each row.
// So a warp whose lanes are rows reads 512 bytes in a row, and every lane decodes its row by
// itself. Rows and super-blocks that the weight does not have are zeros. Within a row's part of
// a super-block the bytes are those of the file's format; where that has blocks of 32, the
// eight blocks' scales come first, and then their quants (package cuda packs them).
//
// A format says: q(b), the 32 signed quants of block b, four to a word; and scale and min of
// each of its groups of GROUP values. A value is scale*q + min. See package quant for the
// formulas.
#pragma once
#include "gpu.h"

// Rec is a row's part of a super-block. Pieces that a caller does not use are never loaded.
template <int N16, int N4> struct Rec {
  u32x4 c[N16];
  uint32_t t[N4 ? N4 : 1];
  static const int BYTES = 16 * N16 + 4 * N4; // of a row
  FN_MEMBER void load(const unsigned char *group, int lane) {
    UNROLL for (int i = 0; i < N16; i++) c[i] = ld_weights((const u32x4 *)(group + 512 * i + 16 * lane));
    UNROLL for (int i = 0; i < N4; i++) t[i] = ld_weights((const uint32_t *)(group + 512 * N16 + 128 * i + 4 * lane));
  }
  // take is load from a copy in shared memory.
  FN_MEMBER void take(const unsigned char *group, int lane) {
    UNROLL for (int i = 0; i < N16; i++) c[i] = *(const u32x4 *)(group + 512 * i + 16 * lane);
    UNROLL for (int i = 0; i < N4; i++) t[i] = *(const uint32_t *)(group + 512 * N16 + 128 * i + 4 * lane);
  }
  FN_MEMBER uint32_t word(int piece, int i) const { return c[piece + (i >> 2)][i & 3]; }
  FN_MEMBER uint32_t byte(int piece, int i) const { return word(piece, i >> 2) >> (8 * (i & 3)) & 0xff; }
  FN_MEMBER float half(int piece, int i) const { return half2float((uint16_t)(word(piece, i >> 1) >> (16 * (i & 1)))); }
};

// minus subtracts n from each byte of w; both are below 128.
FN uint32_t minus(uint32_t w, uint32_t n) { return ((w | 0x80808080u) - n * 0x01010101u) ^ 0x80808080u; }

// lookup replaces the four bytes of w, which are below 16, by those of a table of 16 bytes.
FN uint32_t lookup(uint32_t w, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3) {
  uint32_t s = (w | w >> 4) & 0x00ff00ffu;
  s = (s | s >> 8) & 0x7777u;
  uint32_t upper = (w >> 3 & 0x01010101u) * 0xffu;
  return (prmt(t0, t1, s) & ~upper) | (prmt(t2, t3, s) & upper);
}

// nibbles32 has the quants of a block whose low nibbles are values 0 to 15 and whose high ones
// 16 to 31.
template <class R> FN uint32_t nibbles32(const R &r, int piece, int w) {
  return r.word(piece, w & 3) >> (w & 4) & 0x0f0f0f0fu;
}

// spread4 moves the four low bits of v to bit 4 of four bytes.
FN uint32_t spread4(uint32_t v) { return (v << 4 & 0x10u) | (v << 11 & 0x1000u) | (v << 18 & 0x100000u) | (v << 25 & 0x10000000u); }

struct Q4_0 : Rec<9, 0> {
  static const int GROUP = 32; static const bool MIN = false;
  FN_MEMBER uint32_t q(int b, int w) const { return minus(nibbles32(*this, 1 + b, w), 8); }
  FN_MEMBER float scale(int g) const { return half(0, g); }
  FN_MEMBER float min(int) const { return 0; }
};

struct Q4_1 : Rec<10, 0> {
  static const int GROUP = 32; static const bool MIN = true;
  FN_MEMBER uint32_t q(int b, int w) const { return nibbles32(*this, 2 + b, w); }
  FN_MEMBER float scale(int g) const { return half(0, g); }
  FN_MEMBER float min(int g) const { return half(1, g); }
};

struct Q5_0 : Rec<11, 0> {
  static const int GROUP = 32; static const bool MIN = false;
  FN_MEMBER uint32_t q(int b, int w) const { return minus(nibbles32(*this, 3 + b, w) | spread4(word(1, b) >> (4 * w)), 16); }
  FN_MEMBER float scale(int g) const { return half(0, g); }
  FN_MEMBER float min(int) const { return 0; }
};

struct Q5_1 : Rec<12, 0> {
  static const int GROUP = 32; static const bool MIN = true;
  FN_MEMBER uint32_t q(int b, int w) const { return nibbles32(*this, 4 + b, w) | spread4(word(2, b) >> (4 * w)); }
  FN_MEMBER float scale(int g) const { return half(0, g); }
  FN_MEMBER float min(int g) const { return half(1, g); }
};

struct Q8_0 : Rec<17, 0> {
  static const int GROUP = 32; static const bool MIN = false;
  FN_MEMBER uint32_t q(int b, int w) const { return word(1 + 2 * b, w); }
  FN_MEMBER float scale(int g) const { return half(0, g); }
  FN_MEMBER float min(int) const { return 0; }
};

struct IQ4_NL : Rec<9, 0> {
  static const int GROUP = 32; static const bool MIN = false;
  FN_MEMBER uint32_t q(int b, int w) const {
    return lookup(nibbles32(*this, 1 + b, w), 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
  }
  FN_MEMBER float scale(int g) const { return half(0, g); }
  FN_MEMBER float min(int) const { return 0; }
};

struct MXFP4 : Rec<8, 2> {
  static const int GROUP = 32; static const bool MIN = false;
  FN_MEMBER uint32_t q(int b, int w) const {
    return lookup(nibbles32(*this, b, w), 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
  }
  FN_MEMBER float scale(int g) const {
    uint32_t e = t[g >> 2] >> (8 * (g & 3)) & 0xff;
    return as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  }
  FN_MEMBER float min(int) const { return 0; }
};

struct Q2_K : Rec<5, 1> {
  static const int GROUP = 16; static const bool MIN = true;
  FN_MEMBER uint32_t q(int b, int w) const { return word(1, 8 * (b >> 2) + w) >> (2 * (b & 3)) & 0x03030303u; }
  FN_MEMBER float scale(int g) const { return half2float((uint16_t)t[0]) * (float)(int)(byte(0, g) & 15); }
  FN_MEMBER float min(int g) const { return -(half2float((uint16_t)(t[0] >> 16)) * (float)(int)(byte(0, g) >> 4)); }
};

struct Q3_K : Rec<6, 4> {
  static const int GROUP = 16; static const bool MIN = false;
  FN_MEMBER uint32_t q(int b, int w) const {
    uint32_t low = word(2, 8 * (b >> 2) + w) >> (2 * (b & 3)) & 0x03030303u;
    return minus(low | (word(0, w) >> b & 0x01010101u) << 2, 4);
  }
  FN_MEMBER uint32_t packed(int i) const { return t[i >> 2] >> (8 * (i & 3)) & 0xff; }
  FN_MEMBER float scale(int g) const {
    uint32_t low = packed(g & 7) >> (4 * (g >> 3)) & 15, high = packed(8 + (g & 3)) >> (2 * (g >> 2)) & 3;
    return half2float((uint16_t)t[3]) * (float)((int)(low | high << 4) - 32);
  }
  FN_MEMBER float min(int) const { return 0; }
};

// Head4K has the scales and minima that Q4_K and Q5_K keep in their first 16 bytes.
template <int N16> struct Head4K : Rec<N16, 0> {
  static const int GROUP = 32; static const bool MIN = true;
  FN_MEMBER uint32_t head(int i) const { return this->byte(0, 4 + i); }
  FN_MEMBER float scale(int g) const {
    uint32_t s = g < 4 ? head(g) & 63 : (head(4 + g) & 15) | head(g - 4) >> 6 << 4;
    return this->half(0, 0) * (float)(int)s;
  }
  FN_MEMBER float min(int g) const {
    uint32_t m = g < 4 ? head(4 + g) & 63 : head(4 + g) >> 4 | head(g) >> 6 << 4;
    return -(this->half(0, 1) * (float)(int)m);
  }
};

struct Q4_K : Head4K<9> {
  FN_MEMBER uint32_t q(int b, int w) const { return word(1, 8 * (b >> 1) + w) >> (4 * (b & 1)) & 0x0f0f0f0fu; }
};

struct Q5_K : Head4K<11> {
  FN_MEMBER uint32_t q(int b, int w) const {
    return (word(3, 8 * (b >> 1) + w) >> (4 * (b & 1)) & 0x0f0f0f0fu) | (word(1, w) >> b & 0x01010101u) << 4;
  }
};

struct Q6_K : Rec<13, 1> {
  static const int GROUP = 16; static const bool MIN = false;
  FN_MEMBER uint32_t q(int b, int w) const {
    int h = b >> 2, j = b & 3;
    uint32_t low = word(0, 16 * h + 8 * (j & 1) + w) >> (4 * (j >> 1)) & 0x0f0f0f0fu;
    return minus(low | (word(8, 8 * h + w) >> (2 * j) & 0x03030303u) << 4, 32);
  }
  FN_MEMBER float scale(int g) const { return half2float((uint16_t)t[0]) * (float)(int8_t)byte(12, g); }
  FN_MEMBER float min(int) const { return 0; }
};

struct IQ4_XS : Rec<8, 2> {
  static const int GROUP = 32; static const bool MIN = false;
  FN_MEMBER uint32_t q(int b, int w) const {
    return lookup(nibbles32(*this, b, w), 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
  }
  FN_MEMBER float scale(int g) const {
    uint32_t low = t[1] >> (4 * g) & 15, high = t[0] >> (16 + 2 * g) & 3;
    return half2float((uint16_t)t[0]) * (float)((int)(low | high << 4) - 32);
  }
  FN_MEMBER float min(int) const { return 0; }
};
