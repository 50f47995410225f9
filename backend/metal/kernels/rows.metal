// Operations on rows and heads: one threadgroup for each.

struct NormArgs {
  uint n; // values of a piece
  float eps;
  uint weighted;
};

// norm_scale returns what a piece is multiplied by. All threads call it.
template <typename P>
inline float norm_scale(P x, uint n, float eps, threadgroup float *shared, ushort tid, ushort threads, ushort lane, ushort sg) {
  float s = 0.0f;
  for (uint i = tid; i < n; i += threads) s = fma(x[i], x[i], s);
  s = group_sum(s, shared, lane, sg, threads / 32);
  return 1.0f / precise::sqrt(s / float(n) + eps);
}

// norm normalises pieces: rows, or the heads of rows. The result may be the memory of x.
kernel void norm(device const float *x [[buffer(0)]],
                 device const float *w [[buffer(1)]],
                 device float *out [[buffer(2)]],
                 constant NormArgs &a [[buffer(3)]],
                 threadgroup float *shared [[threadgroup(0)]],
                 uint3 group [[threadgroup_position_in_grid]],
                 ushort tid [[thread_index_in_threadgroup]],
                 ushort3 threads [[threads_per_threadgroup]],
                 ushort lane [[thread_index_in_simdgroup]],
                 ushort sg [[simdgroup_index_in_threadgroup]]) {
  device const float *row = x + (ulong)group.x * a.n;
  device float *y = out + (ulong)group.x * a.n;
  const float scale = norm_scale(row, a.n, a.eps, shared, tid, threads.x, lane, sg);
  for (uint i = tid; i < a.n; i += threads.x) {
    const float v = row[i] * scale;
    y[i] = a.weighted ? v * w[i] : v;
  }
}

kernel void softmax(device const float *x [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    constant RowsArgs &a [[buffer(2)]],
                    threadgroup float *shared [[threadgroup(0)]],
                    uint3 group [[threadgroup_position_in_grid]],
                    ushort tid [[thread_index_in_threadgroup]],
                    ushort3 threads [[threads_per_threadgroup]],
                    ushort lane [[thread_index_in_simdgroup]],
                    ushort sg [[simdgroup_index_in_threadgroup]]) {
  device const float *row = x + (ulong)group.x * a.width;
  device float *y = out + (ulong)group.x * a.width;
  float m = -INFINITY;
  for (uint i = tid; i < a.width; i += threads.x) m = max(m, row[i]);
  m = group_max(m, shared, lane, sg, threads.x / 32);
  float s = 0.0f;
  for (uint i = tid; i < a.width; i += threads.x) s += precise::exp(row[i] - m);
  s = group_sum(s, shared, lane, sg, threads.x / 32);
  for (uint i = tid; i < a.width; i += threads.x) y[i] = precise::exp(row[i] - m) / s;
}

struct RopeArgs {
  uint head_dim;
  uint heads;
  uint pairs; // features rotated, by two
  uint halves;
};

// rotate turns the pair of features that thread j of a head has, or copies a feature beyond the pairs.
template <typename X, typename Y>
inline void rotate(X x, Y y, uint j, device const float *cosines, device const float *sines, uint pairs, uint halves) {
  if (j >= pairs) {
    y[pairs + j] = x[pairs + j];
    return;
  }
  const uint i0 = halves ? j : 2 * j, i1 = halves ? j + pairs : 2 * j + 1;
  const float x0 = x[i0], x1 = x[i1], c = cosines[j], s = sines[j];
  y[i0] = fma(x0, c, -(x1 * s));
  y[i1] = fma(x0, s, x1 * c);
}

// rope rotates heads; grid [pairs and single features, heads, tokens]. Angles are made by the host, which has the precision for
// far positions.
kernel void rope(device const float *x [[buffer(0)]],
                 device const float *cosines [[buffer(1)]],
                 device const float *sines [[buffer(2)]],
                 device float *out [[buffer(3)]],
                 constant RopeArgs &a [[buffer(4)]],
                 uint3 at [[thread_position_in_grid]]) {
  if (at.x >= a.head_dim - a.pairs) return;
  const ulong head = ((ulong)at.z * a.heads + at.y) * a.head_dim, angles = (ulong)at.z * a.pairs;
  rotate(x + head, out + head, at.x, cosines + angles, sines + angles, a.pairs, a.halves);
}

struct StoreArgs {
  uint width; // of a row of a region
};

// kv_store writes rows of keys and values to their cells; grid [features, tokens].
template <typename T>
kernel void kv_store(device const float *k [[buffer(0)]],
                     device const float *v [[buffer(1)]],
                     device const int *cells [[buffer(2)]],
                     device T *keys [[buffer(3)]],
                     device T *values [[buffer(4)]],
                     constant StoreArgs &a [[buffer(5)]],
                     uint2 at [[thread_position_in_grid]]) {
  if (at.x >= a.width) return;
  const ulong from = (ulong)at.y * a.width + at.x, to = (ulong)cells[at.y] * a.width + at.x;
  keys[to] = T(k[from]);
  values[to] = T(v[from]);
}

template [[host_name("kv_store_f16")]] kernel decltype(kv_store<half>) kv_store<half>;
template [[host_name("kv_store_f32")]] kernel decltype(kv_store<float>) kv_store<float>;

struct FinishArgs {
  uint head_dim;
  uint heads;
  uint kv_heads;
  uint pairs;
  uint halves;
  uint normed; // bit 0: norms at all; bits 1 and 2: with weights for queries, for keys
  uint biased; // bits 0 to 2: biases of queries, keys and values
  float eps;
};

// finish completes the projections of a token: biases, norms, rotation, and the store of keys and values. Grid [heads of
// queries, keys and values, tokens]; the result may be the memory of the queries. A head lies in threadgroup memory
// in between, where its features can be paired.
template <typename T>
kernel void finish(device const float *q [[buffer(0)]],
                   device const float *k [[buffer(1)]],
                   device const float *v [[buffer(2)]],
                   device const float *q_bias [[buffer(3)]],
                   device const float *k_bias [[buffer(4)]],
                   device const float *v_bias [[buffer(5)]],
                   device const float *q_norm [[buffer(6)]],
                   device const float *k_norm [[buffer(7)]],
                   device const float *cosines [[buffer(8)]],
                   device const float *sines [[buffer(9)]],
                   device const int *cells [[buffer(10)]],
                   device float *out [[buffer(11)]],
                   device T *keys [[buffer(12)]],
                   device T *values [[buffer(13)]],
                   constant FinishArgs &a [[buffer(14)]],
                   threadgroup float *shared [[threadgroup(0)]],
                   threadgroup float *features [[threadgroup(1)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   ushort tid [[thread_index_in_threadgroup]],
                   ushort3 threads [[threads_per_threadgroup]],
                   ushort lane [[thread_index_in_simdgroup]],
                   ushort sg [[simdgroup_index_in_threadgroup]]) {
  const uint token = group.y, n = a.head_dim;
  const ulong cell = (ulong)cells[token] * a.kv_heads * n;
  if (group.x >= a.heads + a.kv_heads) {
    const uint head = (group.x - a.heads - a.kv_heads) * n;
    const ulong from = (ulong)token * a.kv_heads * n + head;
    for (uint i = tid; i < n; i += threads.x) {
      const float x = v[from + i];
      values[cell + head + i] = T(a.biased & 4 ? x + v_bias[head + i] : x);
    }
    return;
  }
  const bool key = group.x >= a.heads;
  const uint head = (key ? group.x - a.heads : group.x) * n;
  const ulong from = (ulong)token * (key ? a.kv_heads : a.heads) * n + head;
  device const float *x = key ? k : q;
  device const float *bias = key ? k_bias : q_bias;
  const bool biased = a.biased & (key ? 2 : 1);
  for (uint i = tid; i < n; i += threads.x) features[i] = biased ? x[from + i] + bias[head + i] : x[from + i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (a.normed) {
    const float scale = norm_scale(features, n, a.eps, shared, tid, threads.x, lane, sg);
    device const float *w = key ? k_norm : q_norm;
    for (uint i = tid; i < n; i += threads.x) {
      const float y = features[i] * scale;
      features[i] = a.normed & (key ? 4 : 2) ? y * w[i] : y;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  const ulong angles = (ulong)token * a.pairs;
  for (uint j = tid; j < n - a.pairs; j += threads.x) {
    rotate(features, features, j, cosines + angles, sines + angles, a.pairs, a.halves);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = tid; i < n; i += threads.x) {
    if (key) keys[cell + head + i] = T(features[i]);
    else out[from + i] = features[i];
  }
}

template [[host_name("finish_f16")]] kernel decltype(finish<half>) finish<half>;
template [[host_name("finish_f32")]] kernel decltype(finish<float>) finish<float>;
