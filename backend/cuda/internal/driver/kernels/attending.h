// What the kernels of attention have in common: who attends to which cells, and how chunks are joined.
#pragma once
#include "gpu.h"

enum { RUNS = 8 };

// cell_at is where a position of a sequence lies: in the cell of its number, or in the runs.
FN int cell_at(const int *runs, int position) {
  if (!runs) return position;
  for (int r = 0; r < RUNS; r++) {
    if (position < runs[2 * r + 1]) return runs[2 * r] + position;
    position -= runs[2 * r + 1];
  }
  return 0;
}

// Attending is what the kernels are given.
struct Attending {
  const float *q;
  const void *keys, *values;
  const int *positions, *spans; // spans may be null
  int half, heads, kv_heads, head_dim, cells, full, window;
  float scale; // times log2(e): weights are powers of two
};

// length is how many positions a token attends to, its window apart, or 0 if that cannot be.
FN int attended(const Attending &a, int token, bool speaks, Fault *fault, int site) {
  int listed = a.cells;
  if (a.spans) {
    listed = 0;
    for (int r = 0; r < RUNS; r++) {
      int first = a.spans[(token * RUNS + r) * 2], n = a.spans[(token * RUNS + r) * 2 + 1];
      if (n < 0 || (n > 0 && (first < 0 || first >= a.cells || n > a.cells - first))) {
        if (speaks) report(fault, site, kSpan, token, first, a.cells);
        return 0;
      }
      listed = n > a.cells - min_(listed, a.cells) ? a.cells : listed + n;
    }
  }
  int p = a.positions[token];
  if (p < 0) {
    if (speaks) report(fault, site, kPosition, token, p, listed);
    return 0;
  }
  int n = a.full ? listed : p < listed ? p + 1 : 0;
  if (n < 1 && speaks) report(fault, site, kLength, token, p, listed);
  return n;
}

// Rows says which rows a block has: row r is head head + r%group of token first + r/group.
struct Rows { int first, count, group, head, kv_head; };

// block_rows chooses the rows of block y: up to 'most' heads of those that share a key head,
// of count tokens.
FN Rows block_rows(int heads, int kv_heads, int most, int first, int count) {
  int all = heads / kv_heads, pieces = (all + most - 1) / most;
  int kv_head = bid_y() / pieces, done = bid_y() % pieces * most;
  return Rows{first, count, min_(most, all - done), kv_head * all + done, kv_head};
}

FN int chunk_of(int dim) { return dim <= 128 ? 64 : 32; }

// A part is m, l and o of a chunk: dim+2 floats.
FN int64_t part_at(int token, int head, int chunk, int heads, int chunks, int dim) {
  return (((int64_t)token * heads + head) * chunks + chunk) * (dim + 2);
}

// Factors join a chunk to those before it: sum = sum*a + l*b, and likewise o.
struct Factors { float a, b, most; };
FN Factors join(float most, float sum, float m, float l) {
  if (l == 0) return Factors{1, 0, most};
  if (sum == 0) return Factors{0, 1, m};
  float top = max_(most, m);
  return Factors{exp2_(most - top), exp2_(m - top), top};
}

FN int same_runs(const int *spans, int t, int u) {
  if (!spans) return 1;
  for (int i = 0; i < 2 * RUNS; i++) if (spans[t * 2 * RUNS + i] != spans[u * 2 * RUNS + i]) return 0;
  return 1;
}

#define ATTENDING const float *q, const void *keys, const void *values, const int *positions, const int *spans, int half, int heads, int kv_heads, \
                  int head_dim, int cells, int full, int window, float scale
#define THE_ATTENDING Attending{q, keys, values, positions, spans, half, heads, kv_heads, head_dim, cells, full, window, scale}
