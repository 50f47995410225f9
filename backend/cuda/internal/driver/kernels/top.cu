// The greatest values of rows and their indices, as graph.TopK defines them: blocks of threads find
// those of pieces of a row, and one joins them.
#include "gpu.h"

enum { KEYS = 2048 };

// A key is greater for a greater value, and for equal ones if the index is lower; 0 is no value.
FN uint64_t top_key(float v, int index) {
  if (v == -__builtin_inff()) return 0;
  uint32_t u = as_uint(v + 0.f); // -0 becomes 0
  uint32_t order = v != v ? 0xffffffffu : u >> 31 ? ~u : u | 0x80000000u;
  return (uint64_t)order << 32 | (uint32_t)~index;
}

// order_keys leaves the k greatest of the keys at their front, in descending order.
FN void order_keys(uint64_t *keys, int k) {
  if (k == 1) {
    NO_UNROLL for (int n = KEYS / 2; n; n >>= 1) {
      for (int i = tid_x(); i < n; i += bdim_x()) if (keys[i + n] > keys[i]) keys[i] = keys[i + n];
      block_sync();
    }
    return;
  }
  // Batcher's bitonic sort.
  NO_UNROLL for (int size = 2; size <= KEYS; size <<= 1) {
    NO_UNROLL for (int step = size / 2; step; step >>= 1) {
      for (int i = tid_x(); i < KEYS / 2; i += bdim_x()) {
        int a = 2 * i - (i & (step - 1)), b = a + step;
        uint64_t x = keys[a], y = keys[b];
        if ((x < y) == ((a & size) == 0)) { keys[a] = y; keys[b] = x; }
      }
      block_sync();
    }
  }
}

// top_parts: block x is the row, block y the piece.
KERNEL(256, top_parts, uint64_t *parts, const float *x, int width, int among, int k) {
  SHARED(uint64_t, keys);
  for (int i = tid_x(); i < KEYS; i += bdim_x()) {
    int at = bid_y() * KEYS + i;
    keys[i] = at < among ? top_key(x[(int64_t)bid_x() * width + at], at) : 0;
  }
  block_sync();
  order_keys(keys, k);
  for (int i = tid_x(); i < k; i += bdim_x()) parts[((int64_t)bid_x() * gdim_y() + bid_y()) * k + i] = keys[i];
}

// top_join goes through the n keys of a row, of which it keeps k and takes in as many others as
// there is room for.
KERNEL(256, top_join, float *y, const float *x, const uint64_t *parts, int width, int n, int k) {
  SHARED(uint64_t, keys);
  int64_t row = bid_x();
  for (int from = 0, kept = 0; from < n; from += KEYS - kept, kept = k) {
    for (int i = tid_x(); i < KEYS - kept; i += bdim_x()) keys[kept + i] = from + i < n ? parts[row * n + from + i] : 0;
    block_sync();
    order_keys(keys, k);
  }
  for (int i = tid_x(); i < k; i += bdim_x()) {
    int at = keys[i] ? (int)~(uint32_t)keys[i] : -1;
    y[row * 2 * k + i] = at < 0 ? -__builtin_inff() : x[row * width + at];
    y[row * 2 * k + k + i] = (float)at;
  }
}
