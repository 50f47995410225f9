// The end of products with few tokens.
#pragma once
#include "gpu.h"

// join_sums adds up, in ascending order, the sums of super-blocks of the block's 32 rows and NT tokens, which lie in part[nsb][NT][32].
template <int NT> FN void join_sums(const float *part, const float *bias, float *y, int rows, int nsb, int tokens) {
  int lane = tid_x() & 31, row = 32 * bid_x() + lane;
  for (int t = tid_x() >> 5; t < NT; t += bdim_x() >> 5) {
    int64_t token = NT * bid_y() + t;
    float v = 0;
    for (int sb = 0; sb < nsb; sb++) v += part[(sb * NT + t) * 32 + lane];
    if (token < tokens && row < rows) y[token * rows + row] = bias ? v + bias[row] : v;
  }
}
