// The words of kernels/gpu.h for a build by g++. Each thread of CUDA is a fiber; barriers and
// collectives of a warp are the only points where another one runs.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef float f32x2 __attribute__((vector_size(8)));

// What kernels of a shared library (GPUEMU_KERNELS) find in the program.
#define EMU_EXPORTED __attribute__((visibility("default")))

namespace emu {
struct Block;
struct Thread {
  int tx, ty, tz, lane;
  Block *blk;
  void *sp;          // saved stack pointer while not running
  int state;         // 0 ready, 1 at block barrier, 2 at warp collective, 3 done
  uint32_t warp_gen; // collectives done
};
struct Block {
  int bx, by, bz, bdx, bdy, bdz, gdx, gdy, gdz;
  void *dyn;
};
extern EMU_EXPORTED Thread *cur;
EMU_EXPORTED void block_barrier(const char *file, int line);
// Every lane of the warp gives n bytes and gets all 32 lanes' bytes back, of which the last lane to come may make others.
EMU_EXPORTED const void *warp_gather(const void *in, size_t n, void (*make)(void *all) = 0);
// Copies of 16 bytes that the thread has begun. Until it waits, what they are to write is garbage.
EMU_EXPORTED void async_copy(void *to, const void *from);
EMU_EXPORTED void async_wait(const char *file, int line);

struct Kernel {
  const char *name;
  void (*fn)();
  void (*call)(void (*)(), void *const *args);
  int nparam;
  int threads; // of a block, at most
  unsigned char size[32];
  bool isptr[32];
  Kernel *next;
};
extern EMU_EXPORTED Kernel *kernels;
template <class T> struct is_ptr { static const bool v = false; };
template <class T> struct is_ptr<T *> { static const bool v = true; };
template <int... I> struct seq {};
template <int N, int... I> struct mk : mk<N - 1, N - 1, I...> {};
template <int... I> struct mk<0, I...> { typedef seq<I...> type; };
template <class... A> struct Tramp {
  template <int... I> static void go(void (*f)(), void *const *a, seq<I...>) { ((void (*)(A...))f)(*(A *)a[I]...); }
  static void call(void (*f)(), void *const *a) { go(f, a, typename mk<sizeof...(A)>::type()); }
};
struct Reg {
  Kernel k;
  template <class... A> Reg(const char *n, int threads, void (*f)(A...)) {
    const unsigned char s[] = {(unsigned char)sizeof(A)..., 0};
    const bool p[] = {is_ptr<A>::v..., false};
    k.name = n; k.threads = threads; k.fn = (void (*)())f; k.call = &Tramp<A...>::call; k.nparam = sizeof...(A);
    memcpy(k.size, s, sizeof...(A)); memcpy(k.isptr, p, sizeof...(A));
    k.next = kernels; kernels = &k;
  }
};
} // namespace emu

#define FN static inline
#define FN_MEMBER inline
#define KERNEL(threads, name, ...) EMU_KERNEL(threads, name, __VA_ARGS__)
#define EMU_KERNEL(threads, name, ...)                                  \
  static void name(__VA_ARGS__);                                        \
  static emu::Reg emu_reg_##name(#name, threads, name);                 \
  static void name(__VA_ARGS__)
#define SHARED(T, v) T *v = (T *)emu::cur->blk->dyn
#define UNROLL
#define UNROLL_4
#define UNROLL_2
#define NO_UNROLL

#define tid_x() (emu::cur->tx)
#define bid_x() (emu::cur->blk->bx)
#define bid_y() (emu::cur->blk->by)
#define bid_z() (emu::cur->blk->bz)
#define bdim_x() (emu::cur->blk->bdx)
#define gdim_x() (emu::cur->blk->gdx)
#define gdim_y() (emu::cur->blk->gdy)
#define block_sync() emu::block_barrier(__FILE__, __LINE__)
FN void warp_sync() { char c = 0; emu::warp_gather(&c, 1); }
template <class T> FN T shfl_xor(T v, int m) { return ((const T *)emu::warp_gather(&v, sizeof v))[(emu::cur->lane ^ m) & 31]; }
template <class T> FN T shfl(T v, int lane) { return ((const T *)emu::warp_gather(&v, sizeof v))[lane & 31]; }
FN float as_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
FN uint32_t as_uint(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
FN float half2float(uint16_t h) {
#if defined(__F16C__)
  return __builtin_ia32_vcvtph2ps((__attribute__((vector_size(16))) short){(short)h})[0];
#endif
  uint32_t s = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023;
  if (e == 31) return as_float(s | 0x7f800000u | (m << 13));
  if (e) return as_float(s | ((e + 112) << 23) | (m << 13));
  return as_float(s | as_uint(ldexpf((float)m, -24)));
}
FN uint16_t float2half(float f) { // to nearest even
#if defined(__F16C__)
  return (uint16_t)__builtin_ia32_vcvtps2ph((__attribute__((vector_size(16))) float){f}, 0)[0];
#endif
  uint32_t u = as_uint(f);
  uint16_t s = (u >> 16) & 0x8000;
  float a = fabsf(f);
  if (a != a) return s | 0x7fff;
  if (a >= 65520.f) return s | 0x7c00;
  if (a < 6.103515625e-05f) return s | (uint16_t)lrintf(ldexpf(a, 24));
  u &= 0x7fffffff;
  u += 0xfff + ((u >> 13) & 1);
  return s | (uint16_t)((u - 0x38000000u) >> 13);
}
FN int dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (int8_t)(a >> (8 * i)) * (int8_t)(b >> (8 * i));
  return c;
}
FN uint32_t prmt(uint32_t a, uint32_t b, uint32_t s) {
  uint64_t both = a | (uint64_t)b << 32;
  uint32_t r = 0;
  for (int i = 0; i < 4; i++) r |= (uint32_t)(both >> (8 * (s >> (4 * i) & 7)) & 0xff) << (8 * i);
  return r;
}
FN float exp2_(float x) { return x < -126.f ? 0.f : exp2f(x); }
FN float sqrt_(float x) { return sqrtf(x); }
FN float fabs_(float x) { return fabsf(x); }
FN float max_(float a, float b) { return fmaxf(a, b); }
FN float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
FN float div_(float a, float b) { return a / b; }
FN int round_(float x) { return (int)lrintf(x); }
FN double fma_(double a, double b, double c) { return __builtin_fma(a, b, c); }
FN double round_d(double x) { return nearbyint(x); }
FN int atomic_cas(int *p, int old, int v) { int was = *p; if (was == old) *p = v; return was; }
FN u32x4 ld_weights(const u32x4 *p) { return *p; }
FN uint32_t ld_weights(const uint32_t *p) { return *p; }

FN void cp_async(void *to, const void *from) { emu::async_copy(to, from); }
#define cp_async_wait() emu::async_wait(__FILE__, __LINE__)
FN f32x2 ld_shared2(const float *p) { return *(const f32x2 *)p; }
typedef const char *shared_at;
FN shared_at at_shared(const void *p) { return (shared_at)p; }
FN void ldmatrix(uint32_t r[4], shared_at row) {
  const shared_at *rows = (const shared_at *)emu::warp_gather(&row, sizeof row);
  for (int i = 0; i < 4; i++) memcpy(&r[i], rows[8 * i + (emu::cur->lane >> 2)] + 4 * (emu::cur->lane & 3), 4);
}
FN void ldmatrix_turned(uint32_t r[4], shared_at row) {
  const shared_at *rows = (const shared_at *)emu::warp_gather(&row, sizeof row);
  int g = emu::cur->lane >> 2, t = emu::cur->lane & 3;
  for (int i = 0; i < 4; i++) {
    uint16_t h[2];
    for (int k = 0; k < 2; k++) memcpy(&h[k], rows[8 * i + 2 * t + k] + 2 * g, 2);
    r[i] = h[0] | (uint32_t)h[1] << 16;
  }
}

// The fragments of tensor cores, as kernels/gpu.h describes them.
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef double f64x4 __attribute__((vector_size(32)));
template <int K> struct Bytes { uint32_t a[K / 8], b[K / 16]; int d[4]; };
template <int K> void multiply_bytes(void *all) {
  Bytes<K> *lanes = (Bytes<K> *)all;
  int8_t a[16][K], b[8][K];
  for (int l = 0; l < 32; l++)
    for (int k = 0; k < K / 16; k++) {
      memcpy(&a[l >> 2][16 * k + 4 * (l & 3)], &lanes[l].a[2 * k], 4);
      memcpy(&a[(l >> 2) + 8][16 * k + 4 * (l & 3)], &lanes[l].a[2 * k + 1], 4);
      memcpy(&b[l >> 2][16 * k + 4 * (l & 3)], &lanes[l].b[k], 4);
    }
  i32x8 columns[K];
  for (int k = 0; k < K; k++) for (int n = 0; n < 8; n++) columns[k][n] = b[n][k];
  for (int row = 0; row < 16; row++) {
    i32x8 sum = {};
    for (int k = 0; k < K; k++) sum += a[row][k] * columns[k];
    for (int n = 0; n < 8; n++) lanes[4 * (row & 7) + (n >> 1)].d[(row >> 3) * 2 + (n & 1)] += sum[n];
  }
}
FN void mma_k16(int d[4], uint32_t a0, uint32_t a1, uint32_t b, const int c[4]) {
  Bytes<16> in = {{a0, a1}, {b}, {c[0], c[1], c[2], c[3]}};
  memcpy(d, ((const Bytes<16> *)emu::warp_gather(&in, sizeof in, multiply_bytes<16>))[emu::cur->lane].d, 16);
}
FN void mma_k32(int d[4], const uint32_t a[4], const uint32_t b[2], const int c[4]) {
  Bytes<32> in = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {c[0], c[1], c[2], c[3]}};
  memcpy(d, ((const Bytes<32> *)emu::warp_gather(&in, sizeof in, multiply_bytes<32>))[emu::cur->lane].d, 16);
}
FN uint32_t pack_f16(float a, float b) { return float2half(a) | (uint32_t)float2half(b) << 16; }
FN uint32_t bf16_of(float f) { // to nearest even
  uint32_t u = as_uint(f);
  return f != f ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
FN uint32_t pack_bf16(float a, float b) { return bf16_of(a) | bf16_of(b) << 16; }
FN float low_f16(uint32_t w) { return half2float((uint16_t)w); }
FN float low_bf16(uint32_t w) { return as_float(w << 16); }
// How tensor cores add up is not documented. Here 16 products are added to the sum in ascending order
// and without rounding in between, as good as: in doubles.
struct Halves { uint32_t a[4], b[2]; float d[4]; };
template <float (*F)(uint32_t)> void multiply_halves(void *all) {
  Halves *lanes = (Halves *)all;
  double a[16][16];
  union { double at[8]; f64x4 row[2]; } b[16], sum;
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 8; i++) {
      int k = 8 * (i >> 2) + 2 * (l & 3) + (i & 1), row = (l >> 2) + 8 * (i >> 1 & 1);
      a[row][k] = F(lanes[l].a[i >> 1] >> (16 * (i & 1)));
      if (i < 4) b[8 * (i >> 1) + 2 * (l & 3) + (i & 1)].at[l >> 2] = F(lanes[l].b[i >> 1] >> (16 * (i & 1)));
    }
  for (int row = 0; row < 16; row++) {
    for (int n = 0; n < 8; n++) sum.at[n] = lanes[4 * (row & 7) + (n >> 1)].d[(row >> 3) * 2 + (n & 1)];
    for (int h = 0; h < 2; h++) {
      f64x4 s = sum.row[h];
      for (int k = 0; k < 16; k++) s += a[row][k] * b[k].row[h];
      sum.row[h] = s;
    }
    for (int n = 0; n < 8; n++) lanes[4 * (row & 7) + (n >> 1)].d[(row >> 3) * 2 + (n & 1)] = (float)sum.at[n];
  }
}
template <float (*F)(uint32_t)> FN void mma_halves(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  Halves in = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
  memcpy(d, ((const Halves *)emu::warp_gather(&in, sizeof in, multiply_halves<F>))[emu::cur->lane].d, 16);
}
FN void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) { mma_halves<low_f16>(d, a, b); }
FN void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) { mma_halves<low_bf16>(d, a, b); }
