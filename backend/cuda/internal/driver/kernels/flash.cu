// Attention over regions of F16 on tensor cores, from compute capability 8.0 on, for heads of a multiple of 16
// features. attention.cu has it for others, and joins the parts of both.
//
// A row is a head of a token. Its query goes in as two halves, under a scale of its own (halves.h), and so do the
// weights, which are made up to 2^14 instead of up to 1. The canonical order, for each row and each chunk of
// positions: scores, 16 features at a time, with hi and then with lo, in the order in which tensor cores add up; their
// maximum m; weights p = 2^(score-m+14); o, the sums of values times p, 16 positions at a time, with hi and then
// with lo; and l, the same sums with 1 for the value. Chunks are joined in ascending order, as in attention.cu.
// An element of a product of tensor cores depends on its row and column alone, so that it makes no difference which
// other rows a tile has, and whether a warp has a tile for itself (flash_rows, for prompts) or four share one
// (flash_parts, when there are few tokens).
//
// Positions that a row does not attend to have the weight 0. The values at them are multiplied all the same, which shows
// if one is not finite: such rows are computed again, a token at a time, where those are zeros.
#include "attending.h"
#include "halves.h"

enum { MAX_WARPS = 4, MAX_ROWS = 16 * MAX_WARPS };

// Chunk is a chunk of keys and values of heads of up to D features, in shared memory. Rows are 16 bytes longer than they need be, so
// that the lanes of a warp read from different banks.
template <int D> struct Chunk {
  enum { POSITIONS = D <= 128 ? 64 : 32, STRIDE = D + 8, BYTES = 2 * STRIDE, STEPS = POSITIONS / 16 };
  typedef uint16_t Row[STRIDE];
  Row k[POSITIONS], v[POSITIONS];
  int cell[2][POSITIONS]; // of this chunk and of the next, in turn; -1 where nobody attends
};

// Visible is the positions that a row attends to.
struct Visible { int start, length; };
FN Visible visible(const Attending &a, int length) { return Visible{a.window > 0 && length > a.window ? length - a.window : 0, length}; }

// find_cells finds the cells of the chunk that begins at a position.
template <int D> FN void find_cells(Chunk<D> &c, int turn, const int *runs, int from, Visible any) {
  for (int j = tid_x(); j < Chunk<D>::POSITIONS; j += bdim_x())
    c.cell[turn][j] = from + j >= any.start && from + j < any.length ? cell_at(runs, from + j) : -1;
}

// begin has the chunk's rows of a region copied, from the feature on. Where there is no cell or no feature, it puts zeros.
template <int D> FN void begin(typename Chunk<D>::Row *to, const int *cell, const void *region, const Attending &a, int feature) {
  int width = a.kv_heads * a.head_dim;
  NO_UNROLL for (int i = tid_x(); i < Chunk<D>::POSITIONS * D / 8; i += bdim_x()) {
    int j = i / (D / 8), d = i % (D / 8) * 8;
    if (cell[j] >= 0 && d < a.head_dim)
      cp_async(&to[j][d], (const uint16_t *)region + (int64_t)cell[j] * width + feature + d);
    else
      *(u32x4 *)&to[j][d] = u32x4{0, 0, 0, 0};
  }
}

// load_query has the warp bring a row's query, and returns what its scores are to be multiplied by.
template <int D> FN float load_query(uint16_t *hi, uint16_t *lo, const float *q, const Attending &a) {
  int lane = tid_x() & 31;
  float x[D / 64][2];
  uint32_t most = 0;
  UNROLL for (int i = 0; i < D / 64; i++) UNROLL for (int k = 0; k < 2; k++) {
    int d = 64 * i + 2 * lane + k;
    x[i][k] = d < a.head_dim ? q[d] : 0.f;
    most = greater(most, magnitude(x[i][k]));
  }
  for (int m = 16; m; m >>= 1) most = greater(most, (uint32_t)shfl_xor((int)most, m));
  Scale s = scale_for(most);
  UNROLL for (int i = 0; i < D / 64; i++) {
    Pair p = halve<F16>(x[i][0] * s.up, x[i][1] * s.up);
    *(uint32_t *)&hi[64 * i + 2 * lane] = p.hi;
    *(uint32_t *)&lo[64 * i + 2 * lane] = p.lo;
  }
  return s.down * a.scale;
}

// products_with_keys leaves the products of the 16 rows at q, hi and then lo, with 8*N keys.
template <int D, int N> FN void products_with_keys(float s[N][4], const typename Chunk<D>::Row *q, const typename Chunk<D>::Row *k) {
  enum { BYTES = Chunk<D>::BYTES };
  int matrix = (tid_x() & 31) >> 3, j = tid_x() & 7;
  // Matrices of queries are rows 0 and 8 of the first 8 features and then of the next; of keys, both of the first and then keys 8.
  shared_at q_row = at_shared(q[8 * (matrix & 1) + j] + 8 * (matrix >> 1));
  shared_at k_row = at_shared(k[8 * (matrix >> 1) + j] + 8 * (matrix & 1));
  UNROLL for (int n = 0; n < N; n++) UNROLL for (int i = 0; i < 4; i++) s[n][i] = 0;
  UNROLL for (int d = 0; d < D; d += 16) {
    uint32_t hi[4], lo[4], key[N][2];
    ldmatrix(hi, q_row + 2 * d);
    UNROLL for (int n = 0; n < N; n += 2) ldmatrix(key[n], k_row + 8 * n * BYTES + 2 * d);
    ldmatrix(lo, q_row + 16 * BYTES + 2 * d);
    UNROLL for (int n = 0; n < N; n++) mma_f16(s[n], hi, key[n]);
    UNROLL for (int n = 0; n < N; n++) mma_f16(s[n], lo, key[n]);
  }
}

// Two is of rows g and g+8, which the lane has with three others.
struct Two { float v[2]; };

// scale_products makes scores of products with the positions from 'from' on, and returns the maxima.
template <int N> FN Two scale_products(float s[N][4], const float *unit, const Visible see[2], bool whole, int from) {
  int g = (tid_x() & 31) >> 2, t = tid_x() & 3;
  UNROLL for (int n = 0; n < N; n++) UNROLL for (int i = 0; i < 4; i++) s[n][i] *= unit[g + 8 * (i >> 1)];
  if (!whole) {
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int i = 0; i < 4; i++) {
      int at = from + 8 * n + 2 * t + (i & 1);
      if (at < see[i >> 1].start || at >= see[i >> 1].length) s[n][i] = -__builtin_inff();
    }
  }
  Two most;
  UNROLL for (int r = 0; r < 2; r++) {
    float m = -__builtin_inff();
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int k = 0; k < 2; k++) m = max_(m, s[n][2 * r + k]);
    UNROLL for (int x = 1; x < 4; x <<= 1) m = max_(m, shfl_xor(m, x));
    most.v[r] = m;
  }
  return most;
}

// weigh makes weights of the scores of two neighbouring positions.
FN Pair weigh(const float s[2], float most) {
  float base = most == -__builtin_inff() ? 0.f : most - 14.f;
  return halve<F16>(exp2_(s[0] - base), exp2_(s[1] - base));
}

// Weights are those of 16 rows, as tensor cores take them.
template <int D> struct Weights { uint32_t hi[Chunk<D>::STEPS][4], lo[Chunk<D>::STEPS][4]; };

// products_with_values leaves the products of weights with 8*N features, of which v is the first.
template <int D, int N> FN void products_with_values(float o[N][4], const Weights<D> &w, const uint16_t *v) {
  enum { STRIDE = Chunk<D>::STRIDE, BYTES = Chunk<D>::BYTES };
  int matrix = (tid_x() & 31) >> 3, j = tid_x() & 7;
  // Matrices are positions 0 and 8 of the first 8 features and then of the next.
  shared_at v_row = at_shared(v + (8 * (matrix & 1) + j) * STRIDE + 8 * (matrix >> 1));
  UNROLL for (int n = 0; n < N; n++) UNROLL for (int i = 0; i < 4; i++) o[n][i] = 0;
  UNROLL for (int k = 0; k < Chunk<D>::STEPS; k++) {
    uint32_t value[N][2];
    UNROLL for (int n = 0; n < N; n += 2) ldmatrix_turned(value[n], v_row + 16 * k * BYTES + 16 * n);
    UNROLL for (int n = 0; n < N; n++) mma_f16(o[n], w.hi[k], value[n]);
    UNROLL for (int n = 0; n < N; n++) mma_f16(o[n], w.lo[k], value[n]);
  }
}

// sum_of leaves the sums of the weights of rows g and g+8 in l[0] and l[2].
template <int D> FN void sum_of(float l[4], const Weights<D> &w) {
  const uint32_t ones[2] = {0x3c003c00u, 0x3c003c00u};
  UNROLL for (int i = 0; i < 4; i++) l[i] = 0;
  UNROLL for (int k = 0; k < Chunk<D>::STEPS; k++) {
    mma_f16(l, w.hi[k], ones);
    mma_f16(l, w.lo[k], ones);
  }
}

// Prompt is the shared memory of flash_rows. A warp has 32 rows of q: those of hi, and those of lo.
template <int D> struct Prompt {
  Chunk<D> c;
  float unit[MAX_ROWS];
  Visible see[MAX_ROWS]; // of tokens; length -1 of those that attend to other cells than the first
  int infinite[4];       // the first says whether a result is not finite
  typename Chunk<D>::Row q[1];
};

// Tile is the rows of a block, which are of tokens that attend to the same cells; warp w has rows 16w to 16w+15.
struct Tile {
  Rows rows;
  Visible any, all; // what some of them and all of them attend to
  int last;         // row

  // token and head of a row, and where its query and result are. In the place of rows that there are not is the last.
  FN_MEMBER int token(int row) const { return min_(row, last) / rows.group; }
  FN_MEMBER int64_t at(int row, const Attending &a) const {
    return ((int64_t)(rows.first + token(row)) * a.heads + rows.head + min_(row, last) % rows.group) * a.head_dim;
  }
};

// tile_of makes a tile of tokens from the first on, as many of n as attend to the same cells.
template <int D> FN Tile tile_of(Prompt<D> *s, const Attending &a, int first, int n, Fault *fault, int site) {
  for (int i = tid_x(); i < n; i += bdim_x())
    s->see[i] = same_runs(a.spans, first, first + i) ? visible(a, attended(a, first + i, bid_y() == 0, fault, site)) : Visible{0, -1};
  block_sync();
  Tile t = {block_rows(a.heads, a.kv_heads, bdim_x() / 2, first, 0), {0x7fffffff, 0}, {0, 0x7fffffff}, 0};
  for (; t.rows.count < n && s->see[t.rows.count].length >= 0; t.rows.count++) {
    Visible v = s->see[t.rows.count];
    t.any = Visible{min_(t.any.start, v.start), max_(t.any.length, v.length)};
    t.all = Visible{max_(t.all.start, v.start), min_(t.all.length, v.length)};
  }
  t.last = t.rows.count * t.rows.group - 1;
  return t;
}

// Totals are m, l and o of all chunks so far, of the warp's rows g and g+8.
template <int D> struct Totals { float most[2], sum[2], o[D / 8][4]; };
template <int D> FN void clear(Totals<D> &t) {
  UNROLL for (int r = 0; r < 2; r++) t.most[r] = t.sum[r] = 0;
  UNROLL for (int d = 0; d < D / 8; d++) UNROLL for (int i = 0; i < 4; i++) t.o[d][i] = 0;
}

// add_chunk joins a chunk with the scores s to the totals.
template <int D> FN void add_chunk(Totals<D> &t, const float s[][4], const Two &most, const Chunk<D> &c) {
  enum { N = 4 };
  Weights<D> w;
  UNROLL for (int k = 0; k < Chunk<D>::STEPS; k++) UNROLL for (int i = 0; i < 4; i++) {
    Pair p = weigh(s[2 * k + (i >> 1)] + 2 * (i & 1), most.v[i & 1]);
    w.hi[k][i] = p.hi;
    w.lo[k][i] = p.lo;
  }
  float l[4];
  sum_of<D>(l, w);
  Factors f[2];
  UNROLL for (int r = 0; r < 2; r++) {
    f[r] = join(t.most[r], t.sum[r], most.v[r], l[2 * r]);
    t.most[r] = f[r].most;
    t.sum[r] = fma_(t.sum[r], f[r].a, l[2 * r] * f[r].b);
  }
  UNROLL for (int d = 0; d < D / 8; d += N) {
    float o[N][4];
    products_with_values<D, N>(o, w, c.v[0] + 8 * d);
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int i = 0; i < 4; i++) t.o[d + n][i] = fma_(t.o[d + n][i], f[i >> 1].a, o[n][i] * f[i >> 1].b);
  }
}

// store_totals stores the results of the warp's rows, unless the tile has several tokens and results that are not
// finite: then it returns false.
template <int D> FN bool store_totals(Prompt<D> *s, Totals<D> &t, const Visible see[2], const Tile &tile, const Attending &a, float *y) {
  int lane = tid_x() & 31, row = 16 * (tid_x() >> 5) + (lane >> 2);
  bool infinite = false;
  UNROLL for (int d = 0; d < D / 8; d++) UNROLL for (int i = 0; i < 4; i++) {
    float v = div_(t.o[d][i], t.sum[i >> 1]);
    infinite = infinite || (row + 8 * (i >> 1) <= tile.last && !(v - v == 0));
    t.o[d][i] = v;
  }
  if (tile.rows.count > 1) {
    if (infinite) s->infinite[0] = 1;
    block_sync();
    if (s->infinite[0]) return false;
  }
  UNROLL for (int r = 0; r < 2; r++) {
    if (row + 8 * r > tile.last || see[r].length == 0) continue;
    float *to = y + tile.at(row + 8 * r, a);
    UNROLL for (int d = 0; d < D / 8; d++) UNROLL for (int k = 0; k < 2; k++) {
      int feature = 8 * d + 2 * (lane & 3) + k;
      if (feature < a.head_dim) to[feature] = t.o[d][2 * r + k];
    }
  }
  return true;
}

// attend_tile computes the rows of a tile, and reports whether it has stored them.
template <int D> FN bool attend_tile(Prompt<D> *s, const Attending &a, const Tile &tile, float *y) {
  enum { POSITIONS = Chunk<D>::POSITIONS };
  Chunk<D> &c = s->c;
  int lane = tid_x() & 31, row = 16 * (tid_x() >> 5), feature = tile.rows.kv_head * a.head_dim;
  typename Chunk<D>::Row *q = s->q + 2 * row;
  const int *runs = a.spans ? a.spans + (int64_t)tile.rows.first * 2 * RUNS : 0;
  int from = tile.any.start / POSITIONS * POSITIONS;
  find_cells<D>(c, 0, runs, from, tile.any);
  if (tid_x() == 0) s->infinite[0] = 0;
  Visible see[2];
  UNROLL for (int r = 0; r < 2; r++) see[r] = s->see[tile.token(row + (lane >> 2) + 8 * r)];
  block_sync(); // what tokens see is not read after this: other tokens may take their place
  begin<D>(c.k, c.cell[0], a.keys, a, feature);
  NO_UNROLL for (int r = 0; r < 16 && row <= tile.last; r++) {
    float unit = load_query<D>(q[r], q[16 + r], a.q + tile.at(row + r, a), a);
    if (lane == 0) s->unit[row + r] = unit;
  }
  Totals<D> t;
  clear(t);
  NO_UNROLL for (int turn = 0; from < tile.any.length; from += POSITIONS, turn ^= 1) {
    cp_async_wait();
    block_sync(); // the keys are there, and nobody reads the last values any more
    begin<D>(c.v, c.cell[turn], a.values, a, feature);
    find_cells<D>(c, turn ^ 1, runs, from + POSITIONS, tile.any);
    float scores[POSITIONS / 8][4];
    Two most;
    if (row <= tile.last) {
      products_with_keys<D, POSITIONS / 8>(scores, q, c.k);
      most = scale_products<POSITIONS / 8>(scores, s->unit + row, see, from >= tile.all.start && from + POSITIONS <= tile.all.length, from);
    }
    cp_async_wait();
    block_sync(); // the values are there, and nobody reads the keys any more
    if (from + POSITIONS < tile.any.length) begin<D>(c.k, c.cell[turn ^ 1], a.keys, a, feature);
    if (row <= tile.last) add_chunk<D>(t, scores, most, c);
  }
  return store_totals<D>(s, t, see, tile, a, y);
}

// flash_rows: block x has 'per' tokens, or what is left of them, the last ones first, since they have most to do; block y some of the
// heads.
template <int D> FN void flash_rows(float *y, const Attending &a, int tokens, int per, Fault *fault, int site) {
  SHARED(Prompt<D>, s);
  int first = (gdim_x() - 1 - bid_x()) * per, last = min_(first + per, tokens);
  while (first < last) {
    Tile tile = tile_of<D>(s, a, first, min_(per, last - first), fault, site);
    if (attend_tile<D>(s, a, tile, y)) first += tile.rows.count; else per = 1;
  }
}

// Step is the shared memory of flash_parts.
template <int D> struct Step {
  Chunk<D> c;
  float unit[16], most[MAX_WARPS][16];
  typename Chunk<D>::Row q[32]; // rows of hi and then of lo
  uint16_t p[32][Chunk<D>::POSITIONS + 8]; // weights likewise
};

// flash_parts: block x takes every gdim_x-th chunk, block y some of the heads, block z the token. Each of four warps has
// 16 of the positions, and then a quarter of the features.
template <int D> FN void flash_parts(float *parts, const Attending &a, int chunks, Fault *fault, int site) {
  enum { POSITIONS = Chunk<D>::POSITIONS, STEPS = Chunk<D>::STEPS, BLOCKS = D / 8 / MAX_WARPS, N = BLOCKS < 4 ? BLOCKS : 4 };
  SHARED(Step<D>, s);
  Chunk<D> &c = s->c;
  int lane = tid_x() & 31, warp = tid_x() >> 5, g = lane >> 2, t = lane & 3, token = bid_z();
  Rows rows = block_rows(a.heads, a.kv_heads, 16, token, 1);
  Visible v = visible(a, attended(a, token, bid_x() == 0 && bid_y() == 0 && tid_x() == 0, fault, site));
  const Visible see[2] = {v, v};
  const int *runs = a.spans ? a.spans + (int64_t)token * 2 * RUNS : 0;
  int feature = rows.kv_head * a.head_dim, step = POSITIONS * gdim_x(), from = v.start / POSITIONS * POSITIONS + POSITIONS * bid_x();
  find_cells<D>(c, 0, runs, from, v);
  block_sync();
  begin<D>(c.k, c.cell[0], a.keys, a, feature);
  NO_UNROLL for (int r = warp; r < 16; r += MAX_WARPS) {
    float unit = load_query<D>(s->q[r], s->q[16 + r], a.q + ((int64_t)token * a.heads + rows.head + min_(r, rows.group - 1)) * a.head_dim, a);
    if (lane == 0) s->unit[r] = unit;
  }
  shared_at p_row = at_shared(s->p[lane & 15] + 8 * (lane >> 4)); // of the matrices as of queries
  NO_UNROLL for (int turn = 0; from < v.length; from += step, turn ^= 1) {
    cp_async_wait();
    block_sync(); // the keys are there, and nobody reads the last values and weights any more
    begin<D>(c.v, c.cell[turn], a.values, a, feature);
    find_cells<D>(c, turn ^ 1, runs, from + step, v);
    float scores[2][4];
    if (warp < STEPS) {
      products_with_keys<D, 2>(scores, s->q, c.k + 16 * warp);
      Two most = scale_products<2>(scores, s->unit, see, false, from + 16 * warp);
      if (t == 0) UNROLL for (int r = 0; r < 2; r++) s->most[warp][g + 8 * r] = most.v[r];
    }
    block_sync();
    Two most;
    UNROLL for (int r = 0; r < 2; r++) {
      most.v[r] = s->most[0][g + 8 * r];
      UNROLL for (int w = 1; w < STEPS; w++) most.v[r] = max_(most.v[r], s->most[w][g + 8 * r]);
    }
    if (warp < STEPS) UNROLL for (int i = 0; i < 4; i++) {
      Pair p = weigh(scores[i >> 1] + 2 * (i & 1), most.v[i & 1]);
      int row = g + 8 * (i & 1), at = 16 * warp + 8 * (i >> 1) + 2 * t;
      *(uint32_t *)&s->p[row][at] = p.hi;
      *(uint32_t *)&s->p[16 + row][at] = p.lo;
    }
    cp_async_wait();
    block_sync(); // values and weights are there, and nobody reads the keys any more
    if (from + step < v.length) begin<D>(c.k, c.cell[turn ^ 1], a.keys, a, feature);
    Weights<D> w;
    UNROLL for (int k = 0; k < STEPS; k++) {
      ldmatrix(w.hi[k], p_row + 32 * k);
      ldmatrix(w.lo[k], p_row + 16 * (int)sizeof s->p[0] + 32 * k);
    }
    float *to[2];
    UNROLL for (int r = 0; r < 2; r++) to[r] = parts + part_at(token, rows.head + g + 8 * r, from / POSITIONS, a.heads, chunks, a.head_dim);
    if (warp == 0) {
      float l[4];
      sum_of<D>(l, w);
      UNROLL for (int r = 0; r < 2; r++) if (t == 0 && g + 8 * r < rows.group) { to[r][0] = most.v[r]; to[r][1] = l[2 * r]; }
    }
    NO_UNROLL for (int d = BLOCKS * warp; d < BLOCKS * (warp + 1); d += N) {
      float o[N][4];
      products_with_values<D, N>(o, w, c.v[0] + 8 * d);
      UNROLL for (int n = 0; n < N; n++) UNROLL for (int i = 0; i < 4; i++) {
        int at = 8 * (d + n) + 2 * t + (i & 1);
        if (g + 8 * (i >> 1) < rows.group && at < a.head_dim) to[i >> 1][2 + at] = o[n][i];
      }
    }
  }
}

#define FLASH(D)                                                                                                                \
  KERNEL(128, flash_rows_##D, float *y, ATTENDING, int tokens, int per, Fault *fault, int site) {                               \
    flash_rows<D>(y, THE_ATTENDING, tokens, per, fault, site);                                                                  \
  }                                                                                                                             \
  KERNEL(128, flash_parts_##D, float *parts, ATTENDING, int chunks, Fault *fault, int site) {                                   \
    flash_parts<D>(parts, THE_ATTENDING, chunks, fault, site);                                                                  \
  }
FLASH(64)
FLASH(128)
FLASH(256)
