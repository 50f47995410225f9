// The words of CUDA that the kernels use, for two compilers:
//
//   clang -x cuda --cuda-device-only    makes PTX, without a CUDA SDK
//   g++ -DGPU_EMU                       makes the kernels of the emulated driver (emu/device.h)
//
// Floats are never contracted (-ffp-contract=off for both), so that fma_ is the only fused
// multiply-add and results do not depend on the compiler.
#pragma once
#include <stdint.h>

#if defined(GPU_EMU)
#include "../emu/device.h"
#else // ---- clang for NVPTX ----
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef float f32x2 __attribute__((vector_size(8)));

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define FN static __device__ inline __attribute__((always_inline))
#define FN_MEMBER __device__ inline __attribute__((always_inline))
#define KERNEL(threads, name, ...) extern "C" __global__ __attribute__((launch_bounds(threads))) void name(__VA_ARGS__)
#define SHARED(T, v) extern __shared__ __attribute__((aligned(16))) unsigned char gpu_shared[]; T *v = (T *)gpu_shared
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_4 _Pragma("clang loop unroll_count(4)")
#define UNROLL_2 _Pragma("clang loop unroll_count(2)")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")

#define tid_x() ((int)__nvvm_read_ptx_sreg_tid_x())
#define bid_x() ((int)__nvvm_read_ptx_sreg_ctaid_x())
#define bid_y() ((int)__nvvm_read_ptx_sreg_ctaid_y())
#define bid_z() ((int)__nvvm_read_ptx_sreg_ctaid_z())
#define bdim_x() ((int)__nvvm_read_ptx_sreg_ntid_x())
#define gdim_x() ((int)__nvvm_read_ptx_sreg_nctaid_x())
#define gdim_y() ((int)__nvvm_read_ptx_sreg_nctaid_y())
FN void block_sync() { __syncthreads(); }
FN void warp_sync() { __nvvm_bar_warp_sync(0xffffffffu); }
FN float shfl_xor(float v, int m) { return __nvvm_shfl_sync_bfly_f32(0xffffffffu, v, m, 0x1f); }
FN int shfl_xor(int v, int m) { return __nvvm_shfl_sync_bfly_i32(0xffffffffu, v, m, 0x1f); }
FN float shfl(float v, int lane) { return __nvvm_shfl_sync_idx_f32(0xffffffffu, v, lane, 0x1f); }
FN float half2float(uint16_t h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
FN uint16_t float2half(float f) { uint16_t h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
FN int dp4a(int a, int b, int c) { int d; asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
FN uint32_t prmt(uint32_t a, uint32_t b, uint32_t s) { return (uint32_t)__nvvm_prmt((int)a, (int)b, (int)s); }
FN float exp2_(float x) { return __nvvm_ex2_approx_ftz_f(x); } // below 2^-126 it is 0
FN float sqrt_(float x) { return __nvvm_sqrt_rn_f(x); }
FN float fabs_(float x) { return __nvvm_fabs_f(x); }
FN float max_(float a, float b) { return __nvvm_fmax_f(a, b); }
FN float fma_(float a, float b, float c) { return __nvvm_fma_rn_f(a, b, c); }
FN float div_(float a, float b) { return __nvvm_div_rn_f(a, b); }
FN int round_(float x) { int i; asm("cvt.rni.s32.f32 %0, %1;" : "=r"(i) : "f"(x)); return i; }
FN double fma_(double a, double b, double c) { return __nvvm_fma_rn_d(a, b, c); }
FN double round_d(double x) { double r; asm("cvt.rni.f64.f64 %0, %1;" : "=d"(r) : "d"(x)); return r; }
FN int atomic_cas(int *p, int old, int v) { return __nvvm_atom_cas_gen_i(p, old, v); }
FN float as_float(uint32_t u) { return __builtin_bit_cast(float, u); }
FN uint32_t as_uint(float f) { return __builtin_bit_cast(uint32_t, f); }

// ld_weights reads 16 or 4 bytes that no kernel of the step writes.
FN u32x4 ld_weights(const u32x4 *p) {
  uint32_t a, b, c, d;
  asm("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(p));
  return u32x4{a, b, c, d};
}
FN uint32_t ld_weights(const uint32_t *p) { uint32_t a; asm("ld.global.nc.u32 %0, [%1];" : "=r"(a) : "l"(p)); return a; }

#if __CUDA_ARCH__ >= 800
// cp_async begins a copy of 16 bytes to shared memory; it is done for the thread after cp_async_wait, and
// for others after a barrier that follows.
FN void cp_async(void *to, const void *from) {
  asm volatile("{ .reg .u64 p; cvta.to.shared.u64 p, %0; cp.async.cg.shared.global [p], [%1], 16; }" : : "l"(to), "l"(from) : "memory");
}
FN void cp_async_wait() { asm volatile("cp.async.wait_all;" : : : "memory"); }
#endif

// ld_shared2 loads two floats of shared memory at once.
FN f32x2 ld_shared2(const float *p) {
  float a, b;
  asm volatile("{ .reg .u64 p; cvta.to.shared.u64 p, %2; ld.shared.v2.f32 {%0,%1}, [p]; }" : "=f"(a), "=f"(b) : "l"(p) : "memory");
  return f32x2{a, b};
}

// ldmatrix loads four matrices of 8 rows of 16 bytes from shared memory. Lane 8i+j says where row j of
// matrix i begins; the lane with g = lane/4 and t = lane%4 gets bytes 4t to 4t+3 of row g of each.
// ldmatrix_turned takes columns of halves for rows: the lane gets column g of rows 2t and 2t+1. Addresses are of shared
// memory, to which bytes can be added.
typedef uint32_t shared_at;
FN shared_at at_shared(const void *p) {
  shared_at a;
  asm("{ .reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p; }" : "=r"(a) : "l"(p));
  return a;
}
FN void ldmatrix(uint32_t r[4], shared_at row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
FN void ldmatrix_turned(uint32_t r[4], shared_at row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

// Tensor cores: D(16x8) = A(16xk) * B(kx8) + C of signed bytes, sums in 32-bit integers. The lane
// with g = lane/4 and t = lane%4 has, four values of k to a word,
//   a[0] = A[g][4t..]  a[1] = A[g+8][4t..]  a[2], a[3] the same 16 further along k
//   b[0] = B[4t..][g]  b[1] 16 further along k
//   d[0], d[1] = D[g][2t], D[g][2t+1]  d[2], d[3] the same in row g+8, and c like d
#if __CUDA_ARCH__ >= 800
// The same of halves, two to a word, and sums in floats: a[0] = A[g][2t..], a[1] = A[g+8][2t..], a[2] and a[3]
// 8 further along k; b[0] = B[2t..][g], b[1] 8 further. pack_f16 and pack_bf16 make a word, a in its lower half.
FN void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
FN void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
FN uint32_t pack_f16(float a, float b) { uint32_t w; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(b), "f"(a)); return w; }
FN uint32_t pack_bf16(float a, float b) { uint32_t w; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(b), "f"(a)); return w; }
FN void mma_k32(int d[4], const uint32_t a[4], const uint32_t b[2], const int c[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}
FN void mma_k16(int d[4], uint32_t a0, uint32_t a1, uint32_t b, const int c[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%7,%8,%9,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a0), "r"(a1), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}
#else
FN void mma_8x8(int &d0, int &d1, uint32_t a, uint32_t b, int c0, int c1) {
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1},{%2},{%3},{%4,%5};" : "=r"(d0), "=r"(d1) : "r"(a), "r"(b), "r"(c0), "r"(c1));
}
FN void mma_k16(int d[4], uint32_t a0, uint32_t a1, uint32_t b, const int c[4]) {
  mma_8x8(d[0], d[1], a0, b, c[0], c[1]);
  mma_8x8(d[2], d[3], a1, b, c[2], c[3]);
}
FN void mma_k32(int d[4], const uint32_t a[4], const uint32_t b[2], const int c[4]) {
  mma_k16(d, a[0], a[1], b[0], c);
  mma_k16(d, a[2], a[3], b[1], d);
}
#endif
#endif

FN int min_(int a, int b) { return a < b ? a : b; }
FN int max_(int a, int b) { return a > b ? a : b; }

// exp_ is e^x: 2^n times 2 to a power within half of 0, whose argument is exact to the last
// bit or two. Below -126*ln 2 it is 0, and above 88 it grows to infinity.
FN float exp_(float x) {
  float t = x * 1.44269504f;
  if (!(t > -126.f)) return t != t ? t : 0.f;
  if (t >= 128.f) return as_float(0x7f800000u);
  int n = round_(t);
  float f = fma_(x, 1.44269502f, -(float)n);
  f = fma_(x, 1.92596299e-8f, f);
  // 2^127 is the largest power of two, so 2^128 goes in two steps.
  int h = n >> 1;
  return exp2_(f) * as_float((uint32_t)(h + 127) << 23) * as_float((uint32_t)(n - h + 127) << 23);
}

FN float silu_(float x) { return div_(x, 1.f + exp_(-x)); }

FN float warp_sum(float v) { for (int m = 16; m; m >>= 1) v += shfl_xor(v, m); return v; }
FN int warp_sum(int v) { for (int m = 16; m; m >>= 1) v += shfl_xor(v, m); return v; }
FN float warp_max(float v) { for (int m = 16; m; m >>= 1) v = max_(v, shfl_xor(v, m)); return v; }

// Fault is where kernels report an index that is out of range; the first one stays until the
// host has read it.
struct Fault { int code, site, token, value, limit; };
enum { kId = 1, kRow, kPosition, kCell, kSpan, kLength };

FN void report(Fault *f, int site, int code, int token, int value, int limit) {
  if (atomic_cas(&f->code, 0, code) == 0) { f->site = site; f->token = token; f->value = value; f->limit = limit; }
}
