// Attention, in the order that all batches share: a row, that is a head of a token, goes through tiles of positions that begin at multiples of
// the tile's width. A tile yields its largest score m, the sum l of its weights exp(score-m), and the values o weighted by
// them; tiles are merged one after the other, in ascending order. One kernel computes tiles and merges them (prompts), or
// leaves the tiles in memory for another to merge (decode, where a single token would keep but few threads busy).
//
// A row's results do not depend on the rows beside it: scores and values come from the matrix units, which compute each
// element from its row and its column alone; positions that a row does not attend to have the weight 0; a tile
// without any position for the row is not merged; and values that are not finite, which a weight of 0 does not make 0, are
// added apart, to the rows that attend to them.

struct AttendArgs {
  uint heads;
  uint kv_heads;
  uint head_dim;
  uint window; // 0: none
  uint full;
  uint spans;  // positions lie in the cells that spans list, not in cells of their own number
  uint pieces; // 0: merge at once; else the number of pieces that the tiles are dealt to
  uint tiles;  // of a piece
  uint slots;  // tiles for which a row has room in the partials: pieces * tiles
  uint width;  // of a tile, in positions
  float scale;
};

constant constexpr uint max_runs = 8;

// A stretch of rows that attend to the same span. Rows are counted head by head of each token: row r of a key head is head
// r%(heads/kv_heads) of its group, of token r/(heads/kv_heads).
struct RowTile {
  uint first; // row
  uint count; // rows
};

// attended is the range of positions that a token attends to.
inline uint2 attended(uint token, device const int *positions, device const int *spans, constant AttendArgs &a) {
  uint n = (uint)positions[token] + 1;
  if (a.full) {
    n = 0;
    for (uint i = 0; i < max_runs; i++) n += (uint)spans[token * 2 * max_runs + 2 * i + 1];
  }
  return uint2(a.window > 0 && a.window < n ? n - a.window : 0, n);
}

// cell_of is where a position lies.
inline uint cell_of(uint position, uint token, device const int *spans, constant AttendArgs &a) {
  if (!a.spans) return position;
  device const int *runs = spans + token * 2 * max_runs;
  uint i = 0;
  for (; i < max_runs - 1 && position >= (uint)runs[2 * i + 1]; i++) position -= (uint)runs[2 * i + 1];
  return (uint)runs[2 * i] + position;
}

// head_of is the place of a row of a key head among the heads of all tokens.
inline ulong head_of(uint row, uint kv_head, constant AttendArgs &a) {
  const uint per_token = a.heads / a.kv_heads;
  return (ulong)(row / per_token) * a.heads + kv_head * per_token + row % per_token;
}

// merged adds a tile to what a row has: value o of the tile to value total, with the factors for both.
inline float merged(float total, float o, float keep, float take) { return fma(total, keep, o * take); }

// attend: Dim is the width of a head, rounded up; Groups the number of simdgroups, each with 8 rows, and 8*Groups the width
// of a tile of positions. Grid [row tiles, key heads, pieces or 1].
template <typename T, uint Dim, uint Groups>
kernel void attend(device const float *q [[buffer(0)]],
                   device const T *keys [[buffer(1)]],
                   device const T *values [[buffer(2)]],
                   device const int *positions [[buffer(3)]],
                   device const int *spans [[buffer(4)]],
                   device const RowTile *row_tiles [[buffer(5)]],
                   device float *out [[buffer(6)]],
                   device float *partials [[buffer(7)]],
                   constant AttendArgs &a [[buffer(8)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   ushort tid [[thread_index_in_threadgroup]],
                   ushort lane [[thread_index_in_simdgroup]],
                   ushort sg [[simdgroup_index_in_threadgroup]]) {
  constexpr uint width = 8 * Groups, threads = 32 * Groups; // a tile has as many positions as rows
  threadgroup float tile[width * Dim];     // queries; then keys or values, [position][feature]; then the results
  threadgroup float scores[width * width]; // [row][position]
  threadgroup uint cells[width];
  threadgroup uint2 ranges[width]; // what each row attends to
  threadgroup float broken[Groups]; // for each simdgroup, whether it brought values that are not finite
  const uint first_row = row_tiles[group.x].first, row_count = row_tiles[group.x].count;
  const uint per_token = a.heads / a.kv_heads, n = a.head_dim;
  const ulong kv_width = (ulong)a.kv_heads * n, kv_at = (ulong)group.y * n;
  const uint first_token = first_row / per_token; // any token of the tile has the tile's span

  for (uint i = tid; i < width * Dim; i += threads) {
    const uint r = i / Dim, f = i % Dim;
    tile[i] = r < row_count && f < n ? q[head_of(first_row + r, group.y, a) * n + f] : 0.0f;
  }
  if (tid < width) {
    ranges[tid] = tid < row_count ? attended((first_row + tid) / per_token, positions, spans, a) : uint2(0, 0);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 query[Dim / 8];
#pragma unroll
  for (uint d = 0; d < Dim / 8; d++) simdgroup_load(query[d], tile + sg * 8 * Dim + 8 * d, Dim);
  uint lo = 0xffffffffu, hi = 0;
  for (uint i = 0; i < row_count; i++) {
    lo = min(lo, ranges[i].x);
    hi = max(hi, ranges[i].y);
  }

  // In the softmax a row has four lanes, each with a quarter of the positions; in the merge each lane has every 32nd value
  // of the simdgroup's eight rows, one row after the other.
  const uint row = sg * 8 + lane / 4, quarter = lane % 4 * (width / 4);
  const uint2 range = ranges[row];
  float total_m = -INFINITY, total_l = 0.0f;
  float total[Dim / 4];
#pragma unroll
  for (uint i = 0; i < Dim / 4; i++) total[i] = 0.0f;

  uint begin = lo / width, end = (hi + width - 1) / width;
  if (a.pieces > 0) {
    begin += group.z * a.tiles;
    end = min(end, begin + a.tiles);
  }
  for (uint t = begin; t < end; t++) {
    const uint base = t * width;
    if (tid < width) {
      const uint p = base + tid;
      cells[tid] = p >= lo && p < hi ? cell_of(p, first_token, spans, a) : 0xffffffffu;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // cells are there, and the tile has been used
    for (uint i = tid; i < width * Dim; i += threads) {
      const uint cell = cells[i / Dim], f = i % Dim;
      tile[i] = cell != 0xffffffffu && f < n ? float(keys[cell * kv_width + kv_at + f]) : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint p = 0; p < width; p += 8) {
      simdgroup_float8x8 s = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#pragma unroll
      for (uint d = 0; d < Dim / 8; d++) {
        simdgroup_float8x8 k;
        simdgroup_load(k, tile + p * Dim + 8 * d, Dim, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(s, query[d], k, s);
      }
      simdgroup_store(s, scores + sg * 8 * width + p, width);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // the keys have been used, and scores are there
    float odd = 0.0f;
    for (uint i = tid; i < width * Dim; i += threads) {
      const uint cell = cells[i / Dim], f = i % Dim;
      const float v = cell != 0xffffffffu && f < n ? float(values[cell * kv_width + kv_at + f]) : 0.0f;
      const bool finite = v - v == 0.0f;
      tile[i] = finite ? v : 0.0f;
      odd = finite ? odd : 1.0f;
    }
    odd = lane_sum(odd);
    if (lane == 0) broken[sg] = odd;
    threadgroup float *mine = scores + row * width + quarter;
    float m = -INFINITY;
    for (uint i = 0; i < width / 4; i++) {
      const uint p = base + quarter + i;
      const float s = p >= range.x && p < range.y ? mine[i] * a.scale : -INFINITY;
      mine[i] = s;
      m = max(m, s);
    }
    m = max(m, simd_shuffle_xor(m, 1));
    m = max(m, simd_shuffle_xor(m, 2));
    float l = 0.0f;
    for (uint i = 0; i < width / 4; i++) {
      const uint p = base + quarter + i;
      const float e = p >= range.x && p < range.y ? precise::exp(mine[i] - m) : 0.0f;
      mine[i] = e;
      l += e;
    }
    l += simd_shuffle_xor(l, 1);
    l += simd_shuffle_xor(l, 2);
    threadgroup_barrier(mem_flags::mem_threadgroup); // values and weights are there
    simdgroup_float8x8 o[Dim / 8];
#pragma unroll
    for (uint d = 0; d < Dim / 8; d++) o[d] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint p = 0; p < width; p += 8) {
      simdgroup_float8x8 w;
      simdgroup_load(w, scores + sg * 8 * width + p, width);
#pragma unroll
      for (uint d = 0; d < Dim / 8; d++) {
        simdgroup_float8x8 v;
        simdgroup_load(v, tile + p * Dim + 8 * d, Dim);
        simdgroup_multiply_accumulate(o[d], w, v, o[d]);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // the values have been used
    threadgroup float *result = tile + sg * 8 * Dim;
#pragma unroll
    for (uint d = 0; d < Dim / 8; d++) simdgroup_store(o[d], result + 8 * d, Dim);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    odd = 0.0f;
    for (uint i = 0; i < Groups; i++) odd += broken[i];
    if (odd > 0.0f) {
      for (uint i = lane; i < 8 * Dim; i += 32) { // each lane those that it reads below
        const uint at = sg * 8 + i / Dim, f = i % Dim;
        const uint2 sees = ranges[at];
        for (uint p = max(sees.x, base); p < min(sees.y, base + width) && f < n; p++) {
          const float v = float(values[cell_of(p, first_token, spans, a) * kv_width + kv_at + f]);
          if (!(v - v == 0.0f)) result[i] += scores[at * width + p - base] * v;
        }
      }
    }

    const bool any = range.x < min(range.y, base + width) && range.y > base; // the row attends to some of the tile
    if (a.pieces > 0) {
      // [row of the head][slot]: m, l and the values
      const uint slot = t - lo / width;
      for (ushort r = 0; r < 8; r++) {
        const uint at = sg * 8 + r;
        const float row_m = simd_shuffle(m, 4 * r), row_l = simd_shuffle(l, 4 * r);
        const bool row_any = simd_shuffle(ushort(any), 4 * r);
        if (at >= row_count) continue;
        device float *to = partials + (head_of(first_row + at, group.y, a) * a.slots + slot) * (n + 2);
        for (uint f = lane; f < n; f += 32) to[2 + f] = result[r * Dim + f];
        if (lane == 0) {
          to[0] = row_any ? row_m : -INFINITY;
          to[1] = row_l;
        }
      }
      continue;
    }
    const float most = max(total_m, m), keep = any ? precise::exp(total_m - most) : 1.0f, take = any ? precise::exp(m - most) : 0.0f;
    if (any) {
      total_l = merged(total_l, l, keep, take);
      total_m = most;
    }
#pragma unroll
    for (uint i = 0; i < Dim / 4; i++) {
      const ushort r = i * 32 / Dim;
      const float row_keep = simd_shuffle(keep, 4 * r), row_take = simd_shuffle(take, 4 * r);
      const float v = merged(total[i], result[i * 32 + lane], row_keep, row_take);
      total[i] = simd_shuffle(ushort(any), 4 * r) ? v : total[i];
    }
  }
  if (a.pieces > 0) return;
#pragma unroll
  for (uint i = 0; i < Dim / 4; i++) {
    const ushort r = i * 32 / Dim;
    const float row_l = simd_shuffle(total_l, 4 * r);
    const uint f = i * 32 % Dim + lane;
    // Adding 0 makes -0 into 0, which is all that weights of 0 for positions unattended could change.
    if (sg * 8 + r < row_count && f < n) out[head_of(first_row + sg * 8 + r, group.y, a) * n + f] = total[i] / row_l + 0.0f;
  }
}

template [[host_name("attend_f16_32")]] kernel decltype(attend<half, 32, 4>) attend<half, 32, 4>;
template [[host_name("attend_f16_64")]] kernel decltype(attend<half, 64, 4>) attend<half, 64, 4>;
template [[host_name("attend_f16_128")]] kernel decltype(attend<half, 128, 4>) attend<half, 128, 4>;
template [[host_name("attend_f16_256")]] kernel decltype(attend<half, 256, 2>) attend<half, 256, 2>;
template [[host_name("attend_f32_32")]] kernel decltype(attend<float, 32, 4>) attend<float, 32, 4>;
template [[host_name("attend_f32_64")]] kernel decltype(attend<float, 64, 4>) attend<float, 64, 4>;
template [[host_name("attend_f32_128")]] kernel decltype(attend<float, 128, 4>) attend<float, 128, 4>;
template [[host_name("attend_f32_256")]] kernel decltype(attend<float, 256, 2>) attend<float, 256, 2>;

// merge joins the tiles of a row: one threadgroup for each [head, token], one thread for every 32nd value.
kernel void merge(device const float *partials [[buffer(0)]],
                  device const int *positions [[buffer(1)]],
                  device const int *spans [[buffer(2)]],
                  device float *out [[buffer(3)]],
                  constant AttendArgs &a [[buffer(4)]],
                  uint3 group [[threadgroup_position_in_grid]],
                  ushort tid [[thread_index_in_threadgroup]],
                  ushort3 threads [[threads_per_threadgroup]]) {
  const uint n = a.head_dim;
  const ulong row = (ulong)group.y * a.heads + group.x;
  const uint2 range = attended(group.y, positions, spans, a);
  const uint slots = (range.y + a.width - 1) / a.width - range.x / a.width;
  for (uint f = tid; f < n; f += threads.x) {
    float total_m = -INFINITY, total_l = 0.0f, total = 0.0f;
    for (uint s = 0; s < slots; s++) {
      device const float *p = partials + (row * a.slots + s) * (n + 2);
      const float m = p[0], most = max(total_m, m), keep = precise::exp(total_m - most), take = precise::exp(m - most);
      total_l = merged(total_l, p[1], keep, take);
      total = merged(total, p[2 + f], keep, take);
      total_m = most;
    }
    out[row * n + f] = total / total_l + 0.0f;
  }
}
