// Attention: softmax(q k^T * scale) v, in chunks of positions whose boundaries are fixed. The scale comes times log2(e), so that
// weights are powers of two. flash.cu has it on tensor cores.
//
// For each row (a head of a token) and each chunk: scores with the features in ascending order;
// their maximum m; weights p = 2^(score-m); their sum l, by a fixed tree; and o, the values
// times p with the positions in ascending order. Chunks are joined in ascending order. A
// chunk's m, l and o depend on nothing but the row and the chunk, and joining is the same
// arithmetic in both kernels, so it makes no difference whether one block of threads goes
// through all chunks (attend_rows, for prompts) or many share them (attend_parts and
// join_parts, when there are few tokens).
//
// A block of threads has THREADS threads and up to MAX_ROWS rows of one key head, of tokens
// that attend to the same cells.
#include "activations.h"
#include "attending.h"

enum { THREADS = 128, MAX_ROWS = 16, PAD = 4 };

FN float element(const void *region, int half, int64_t i) {
  return half ? half2float(((const uint16_t *)region)[i]) : ((const float *)region)[i];
}

// Work is a block's shared memory for rows of dim features and chunks of positions.
struct Work {
  float *q;     // [MAX_ROWS][dim]
  float *k;     // [chunk][dim+PAD]
  float *p;     // [MAX_ROWS][chunk]
  int *cell;    // [chunk]
  float *m, *l; // [MAX_ROWS] of the chunk
  float *a, *b; // [MAX_ROWS] factors for joining
  float *most, *sum; // [MAX_ROWS] of all chunks so far
};

FN Work layout(float *s, int dim, int chunk) {
  Work w;
  w.q = s; s += MAX_ROWS * dim;
  w.k = s; s += chunk * (dim + PAD);
  w.p = s; s += MAX_ROWS * chunk;
  w.cell = (int *)s; s += chunk;
  w.m = s; s += MAX_ROWS;
  w.l = s; s += MAX_ROWS;
  w.a = s; s += MAX_ROWS;
  w.b = s; s += MAX_ROWS;
  w.most = s; s += MAX_ROWS;
  w.sum = s;
  return w;
}

FN void load_queries(const Work &w, const Attending &a, Rows r) {
  int dim = a.head_dim, width = a.heads * dim;
  for (int i = tid_x(); i < r.count * r.group * dim; i += THREADS) {
    int row = i / dim;
    w.q[i] = a.q[(int64_t)(r.first + row / r.group) * width + (r.head + row % r.group) * dim + i % dim];
  }
}

typedef float f32x4 __attribute__((vector_size(16)));

// scores computes the scores of the rows for the n positions from 'from' on. A thread has one
// key and every few rows, so that what it reads of the key serves them all. The features of a key
// are padded so that the lanes of a warp read from different banks.
FN void scores(const Work &w, const Attending &a, int rows, int group, const int *length, const int *start, int from, int n) {
  enum { MOST = MAX_ROWS / 2 }; // rows of a thread: there are at least two threads for a key
  int dim = a.head_dim, chunk = chunk_of(dim), j = tid_x() % chunk, row0 = tid_x() / chunk, step = THREADS / chunk;
  if (j >= n) return;
  const float *k = w.k + j * (dim + PAD), *q = w.q + row0 * dim;
  float s[MOST];
  UNROLL for (int i = 0; i < MOST; i++) s[i] = 0;
  int d = 0;
  if (dim % 4 == 0) {
    NO_UNROLL for (; d < dim; d += 4) {
      f32x4 key = *(const f32x4 *)(k + d);
      UNROLL for (int i = 0; i < MOST; i++) {
        if (row0 + i * step >= rows) break;
        f32x4 x = *(const f32x4 *)(q + i * step * dim + d);
        UNROLL for (int e = 0; e < 4; e++) s[i] = fma_(x[e], key[e], s[i]);
      }
    }
  }
  for (; d < dim; d++) {
    UNROLL for (int i = 0; i < MOST; i++) {
      if (row0 + i * step >= rows) break;
      s[i] = fma_(q[i * step * dim + d], k[d], s[i]);
    }
  }
  UNROLL for (int i = 0; i < MOST; i++) {
    int row = row0 + i * step;
    if (row >= rows) break;
    int t = row / group;
    w.p[row * chunk + j] = from + j >= start[t] && from + j < length[t] ? s[i] * a.scale : -__builtin_inff();
  }
}

// chunk_sums computes m, l and p of the rows for the positions from 'from' on, and o of the thread's
// features. Lengths and first positions of the tokens are in length and start; a row to which no
// position of the chunk belongs has l = 0.
template <int PER> FN void chunk_sums(const Work &w, const Attending &a, Rows r, const int *runs, const int *length, const int *start, int longest, int from, float o[MAX_ROWS][PER]) {
  int dim = a.head_dim, chunk = chunk_of(dim), rows = r.count * r.group, kv_width = a.kv_heads * dim;
  int n = min_(chunk, longest - from);
  block_sync(); // what the last chunk left may still be read
  for (int j = tid_x(); j < n; j += THREADS) w.cell[j] = cell_at(runs, from + j);
  block_sync();
  for (int i = tid_x(); i < n * dim; i += THREADS) {
    int j = i / dim, d = i % dim;
    w.k[j * (dim + PAD) + d] = element(a.keys, a.half, (int64_t)w.cell[j] * kv_width + r.kv_head * dim + d);
  }
  block_sync();
  scores(w, a, rows, r.group, length, start, from, n);
  block_sync();
  int lane = tid_x() & 31;
  for (int row = tid_x() >> 5; row < rows; row += THREADS / 32) {
    float *p = w.p + row * chunk, most = -__builtin_inff(), sum = 0;
    for (int j = lane; j < n; j += 32) most = max_(most, p[j]);
    most = warp_max(most);
    for (int j = lane; j < chunk; j += 32) {
      float e = j < n && p[j] != -__builtin_inff() ? exp2_(p[j] - most) : 0.f;
      p[j] = e;
      sum += e;
    }
    sum = warp_sum(sum);
    if (lane == 0) { w.m[row] = most; w.l[row] = sum; }
  }
  block_sync();
  UNROLL for (int i = 0; i < PER; i++) {
    UNROLL for (int row = 0; row < MAX_ROWS; row++) o[row][i] = 0;
    int d = tid_x() + i * THREADS;
    if (d >= dim) continue;
    for (int j = 0; j < n; j++) {
      float v = element(a.values, a.half, (int64_t)w.cell[j] * kv_width + r.kv_head * dim + d);
      UNROLL for (int row = 0; row < MAX_ROWS; row++) {
        if (row >= rows) break;
        float p = w.p[row * chunk + j];
        o[row][i] = p != 0 ? fma_(p, v, o[row][i]) : o[row][i];
      }
    }
  }
}

// attend_tokens computes whole rows.
template <int PER> FN void attend_tokens(const Attending &a, Rows r, const int *length, float *y) {
  SHARED(float, shared);
  int dim = a.head_dim, chunk = chunk_of(dim), rows = r.count * r.group;
  Work w = layout(shared, dim, chunk);
  int start[MAX_ROWS], longest = 0, earliest = 0x7fffffff;
  for (int t = 0; t < r.count; t++) {
    start[t] = a.window > 0 && length[t] > a.window ? length[t] - a.window : 0;
    longest = max_(longest, length[t]);
    earliest = min_(earliest, start[t]);
  }
  block_sync();
  load_queries(w, a, r);
  for (int i = tid_x(); i < rows; i += THREADS) { w.most[i] = 0; w.sum[i] = 0; }
  float out[MAX_ROWS][PER], o[MAX_ROWS][PER];
  UNROLL for (int row = 0; row < MAX_ROWS; row++) UNROLL for (int i = 0; i < PER; i++) out[row][i] = 0;
  const int *runs = a.spans ? a.spans + (int64_t)r.first * 2 * RUNS : 0;
  for (int from = earliest / chunk * chunk; from < longest; from += chunk) {
    chunk_sums<PER>(w, a, r, runs, length, start, longest, from, o);
    for (int row = tid_x(); row < rows; row += THREADS) {
      Factors f = join(w.most[row], w.sum[row], w.m[row], w.l[row]);
      w.most[row] = f.most;
      w.sum[row] = fma_(w.sum[row], f.a, w.l[row] * f.b);
      w.a[row] = f.a;
      w.b[row] = f.b;
    }
    block_sync();
    UNROLL for (int row = 0; row < MAX_ROWS; row++) {
      if (row >= rows) break;
      UNROLL for (int i = 0; i < PER; i++) out[row][i] = fma_(out[row][i], w.a[row], o[row][i] * w.b[row]);
    }
  }
  UNROLL for (int row = 0; row < MAX_ROWS; row++) {
    if (row >= rows) break;
    int t = row / r.group;
    UNROLL for (int i = 0; i < PER; i++) {
      int d = tid_x() + i * THREADS;
      if (d < dim && length[t] > 0)
        y[((int64_t)(r.first + t) * a.heads + r.head + row % r.group) * dim + d] = div_(out[row][i], w.sum[row]);
    }
  }
}

// attend_rows: block x has 'per' tokens, or what is left of them; block y some of the heads.
KERNEL(128, attend_rows, float *y, ATTENDING, int tokens, int per, Fault *fault, int site) {
  Attending a = THE_ATTENDING;
  int first = bid_x() * per, last = min_(first + per, tokens), length[MAX_ROWS];
  while (first < last) {
    int n = 0;
    for (; first + n < last && same_runs(spans, first, first + n); n++)
      length[n] = attended(a, first + n, bid_y() == 0 && tid_x() == 0, fault, site);
    Rows r = block_rows(heads, kv_heads, MAX_ROWS, first, n);
    if (head_dim <= THREADS) attend_tokens<1>(a, r, length, y); else attend_tokens<2>(a, r, length, y);
    first += n;
  }
}

template <int PER> FN void attend_part(const Attending &a, int token, int length, float *parts, int chunks) {
  SHARED(float, shared);
  int dim = a.head_dim, chunk = chunk_of(dim);
  Work w = layout(shared, dim, chunk);
  Rows r = block_rows(a.heads, a.kv_heads, MAX_ROWS, token, 1);
  int start = a.window > 0 && length > a.window ? length - a.window : 0;
  const int *runs = a.spans ? a.spans + (int64_t)token * 2 * RUNS : 0;
  load_queries(w, a, r);
  for (int c = start / chunk + bid_x(); c * chunk < length; c += gdim_x()) {
    float o[MAX_ROWS][PER];
    chunk_sums<PER>(w, a, r, runs, &length, &start, length, c * chunk, o);
    UNROLL for (int row = 0; row < MAX_ROWS; row++) {
      if (row >= r.group) break;
      float *to = parts + part_at(token, r.head + row, c, a.heads, chunks, dim);
      if (tid_x() == 0) { to[0] = w.m[row]; to[1] = w.l[row]; }
      UNROLL for (int i = 0; i < PER; i++) {
        int d = tid_x() + i * THREADS;
        if (d < dim) to[2 + d] = o[row][i];
      }
    }
  }
}

// attend_parts: block x takes every gdim_x-th chunk, block y some of the heads, block z the
// token.
KERNEL(128, attend_parts, float *parts, ATTENDING, int chunks, Fault *fault, int site) {
  Attending a = THE_ATTENDING;
  int length = attended(a, bid_z(), bid_x() == 0 && bid_y() == 0 && tid_x() == 0, fault, site);
  if (head_dim <= THREADS) attend_part<1>(a, bid_z(), length, parts, chunks); else attend_part<2>(a, bid_z(), length, parts, chunks);
}

// join_parts: block x is the head, block y the token, a thread a feature. It makes the quants of
// the result besides if out_q is not null; head_dim is a multiple of 32 then.
KERNEL(256, join_parts, float *y, const float *parts, const int *positions, const int *spans, int heads, int head_dim, int cells, int full, int window, int chunks,
       int8_t *out_q, Meta *out_m, int nsb, Fault *fault, int site) {
  Attending a = {0, 0, 0, positions, spans, 0, heads, 1, head_dim, cells, full, window, 0};
  int token = bid_y(), head = bid_x(), d = tid_x(), chunk = chunk_of(head_dim);
  int length = attended(a, token, false, fault, site);
  int start = window > 0 && length > window ? length - window : 0;
  if (d >= head_dim) return;
  float most = 0, sum = 0, out = 0;
  for (int c = start / chunk; c * chunk < length; c++) {
    const float *p = parts + part_at(token, head, c, heads, chunks, head_dim);
    Factors f = join(most, sum, p[0], p[1]);
    most = f.most;
    sum = fma_(sum, f.a, p[1] * f.b);
    out = fma_(out, f.a, p[2 + d] * f.b);
  }
  float v = length > 0 ? div_(out, sum) : 0.f;
  int64_t at = (int64_t)head * head_dim + d;
  y[(int64_t)token * heads * head_dim + at] = v;
  if (!out_q) return;
  int64_t block = (int64_t)token * nsb * 8 + (at >> 5);
  quantize32(v, out_q + 32 * block, out_m + block);
}
