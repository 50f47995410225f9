// What the hardware can do at most, for comparison: reading memory, and products of signed bytes
// on tensor cores.
#include "gpu.h"

// roof_read reads n pieces of 16 bytes. That something is written hardly ever comes to pass, but
// keeps the reading from being left out.
KERNEL(256, roof_read, uint32_t *y, const u32x4 *x, int64_t n) {
  u32x4 sum = {0, 0, 0, 0};
  int64_t step = (int64_t)gdim_x() * 256;
  UNROLL_4 for (int64_t i = (int64_t)bid_x() * 256 + tid_x(); i < n; i += step) sum ^= ld_weights(x + i);
  if ((sum[0] ^ sum[1] ^ sum[2] ^ sum[3]) == 0x5eed5eedu) y[tid_x()] = sum[0];
}

// roof_tensor makes 8*n products of 16 x 8 x 32 in each warp.
KERNEL(256, roof_tensor, int *y, int n) {
  uint32_t a[4] = {1u * tid_x(), 2u * tid_x(), 3u * tid_x(), 5u * tid_x()}, b[2] = {7u * tid_x(), 11u * tid_x()};
  int d[8][4];
  UNROLL for (int i = 0; i < 8; i++) UNROLL for (int k = 0; k < 4; k++) d[i][k] = i + k;
  NO_UNROLL for (int i = 0; i < n; i++) UNROLL for (int k = 0; k < 8; k++) mma_k32(d[k], a, b, d[k]);
  int sum = 0;
  UNROLL for (int i = 0; i < 8; i++) UNROLL for (int k = 0; k < 4; k++) sum ^= d[i][k];
  if (sum == 0x5eed5eed) y[tid_x()] = sum;
}
