// What all kernels share. The files of this folder are one source: common.metal comes first.
//
// Rounding is part of the contract: a result must not depend on the batch it is computed in, nor on which of two kernels
// computed it. So sums have a written order, products that are to be fused are written as fma, and the compiler may
// not fuse others.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
#pragma METAL fp contract(off)

// lane_sum adds up a value of each lane, in the same order always; every lane gets the sum.
inline float lane_sum(float v) {
  for (ushort m = 16; m > 0; m >>= 1) v += simd_shuffle_xor(v, m);
  return v;
}

// group_sum adds up a value of each thread. Shared has a float for each simdgroup.
inline float group_sum(float v, threadgroup float *shared, ushort lane, ushort sg, ushort groups) {
  v = lane_sum(v);
  threadgroup_barrier(mem_flags::mem_threadgroup); // somebody may still read what the last call left
  if (lane == 0) shared[sg] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  v = shared[0];
  for (ushort i = 1; i < groups; i++) v += shared[i];
  return v;
}

// group_max is the largest of a value of each thread.
inline float group_max(float v, threadgroup float *shared, ushort lane, ushort sg, ushort groups) {
  for (ushort m = 16; m > 0; m >>= 1) v = max(v, simd_shuffle_xor(v, m));
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) shared[sg] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  v = shared[0];
  for (ushort i = 1; i < groups; i++) v = max(v, shared[i]);
  return v;
}
