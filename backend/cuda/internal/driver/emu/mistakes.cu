// Kernels with mistakes, for the test that the emulated driver finds them. Each turns the n values
// of x round, twice: through shared memory and, within warps, by shuffles.
#include "../kernels/gpu.h"

enum {
  kNone,
  kNoBarrierAfterWrite,  // shared memory is read before all have written
  kNoBarrierBeforeWrite, // and written again before all have read
  kBarrierAfterReturn,   // one thread has left
  kHalfWarp,             // half of a warp is at a shuffle
  kBeyondBuffer,         // one value too many
  kBeyondShared,         // likewise in shared memory
  kLastMissing,          // the last value is not written
  kWrongLane,            // a shuffle from the wrong lane
};

KERNEL(64, turn, float *y, const float *x, int n, int mistake) {
  SHARED(float, s);
  int i = tid_x();
  if (mistake == kBarrierAfterReturn && i == n - 1) return;
  s[mistake == kBeyondShared ? i + 64 : i] = x[i];
  if (mistake != kNoBarrierAfterWrite) block_sync();
  float v = s[n - 1 - i];
  if (mistake != kNoBarrierBeforeWrite) block_sync();
  s[i] = v;
  block_sync();
  v = s[n - 1 - i]; // as it was
  if (mistake == kHalfWarp) {
    if (i & 16) v = shfl_xor(v, 8);
  } else {
    for (int m = 1; m < 32; m <<= 1) v = shfl_xor(v, mistake == kWrongLane && m == 4 ? 2 : m);
  }
  // Each warp has turned its values round by itself.
  int to = i ^ 32;
  if (mistake == kLastMissing && to == n - 1) return;
  if (mistake == kBeyondBuffer && to == n - 1) y[n] = v;
  y[to] = v;
}
