// The greatest values of rows and their indices, as graph.TopK defines them: threadgroups find those of pieces of a row, and
// one joins them.

constant uint top_keys = 2048; // that a threadgroup has room for

struct TopArgs {
  uint width;
  uint among; // values of a row that count
  uint k;
  uint pieces; // of a row
};

// top_key makes a number of a value and its index. It is greater for a greater value, and for equal ones if the index is
// lower. 0 is no value.
inline ulong top_key(float v, uint index) {
  if (v == -INFINITY) return 0;
  const uint bits = as_type<uint>(v + 0.0f); // -0 becomes 0
  const uint order = v != v ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
  return (ulong)order << 32 | ~index;
}

// order_keys brings the k greatest keys to the front, in descending order. All threads call it.
inline void order_keys(threadgroup ulong *keys, uint k, ushort tid, ushort threads) {
  if (k == 1) {
    for (uint n = top_keys / 2; n > 0; n >>= 1) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (uint i = tid; i < n; i += threads) {
        if (keys[i + n] > keys[i]) keys[i] = keys[i + n];
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return;
  }
  // Batcher's bitonic sort.
  for (uint size = 2; size <= top_keys; size <<= 1) {
    for (uint step = size / 2; step > 0; step >>= 1) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (uint i = tid; i < top_keys / 2; i += threads) {
        const uint at = 2 * i - (i & (step - 1)), other = at + step;
        const ulong x = keys[at], y = keys[other];
        if ((x < y) == ((at & size) == 0)) {
          keys[at] = y;
          keys[other] = x;
        }
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// top_parts; grid [rows, pieces].
kernel void top_parts(device const float *x [[buffer(0)]],
                      device ulong *parts [[buffer(1)]],
                      constant TopArgs &a [[buffer(2)]],
                      threadgroup ulong *keys [[threadgroup(0)]],
                      uint3 group [[threadgroup_position_in_grid]],
                      ushort tid [[thread_index_in_threadgroup]],
                      ushort3 threads [[threads_per_threadgroup]]) {
  for (uint i = tid; i < top_keys; i += threads.x) {
    const uint at = group.y * top_keys + i;
    keys[i] = at < a.among ? top_key(x[(ulong)group.x * a.width + at], at) : 0;
  }
  order_keys(keys, a.k, tid, threads.x);
  for (uint i = tid; i < a.k; i += threads.x) parts[((ulong)group.x * a.pieces + group.y) * a.k + i] = keys[i];
}

// top_join goes through the keys that the pieces of a row gave. It keeps k, and takes in as many others as there is room for.
kernel void top_join(device const float *x [[buffer(0)]],
                     device const ulong *parts [[buffer(1)]],
                     device float *out [[buffer(2)]],
                     constant TopArgs &a [[buffer(3)]],
                     threadgroup ulong *keys [[threadgroup(0)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     ushort tid [[thread_index_in_threadgroup]],
                     ushort3 threads [[threads_per_threadgroup]]) {
  const uint n = a.pieces * a.k;
  uint kept = 0;
  for (uint from = 0; from < n; from += top_keys - kept, kept = a.k) {
    for (uint i = tid; i < top_keys - kept; i += threads.x) keys[kept + i] = from + i < n ? parts[(ulong)group.x * n + from + i] : 0;
    order_keys(keys, a.k, tid, threads.x);
  }
  device float *y = out + (ulong)group.x * 2 * a.k;
  for (uint i = tid; i < a.k; i += threads.x) {
    const uint at = ~(uint)keys[i];
    y[i] = keys[i] ? x[(ulong)group.x * a.width + at] : -INFINITY;
    y[a.k + i] = keys[i] ? (float)at : -1.0f;
  }
}
