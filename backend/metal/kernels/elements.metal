// Operations on elements: one thread for each.

struct ElementArgs {
  uint n;
  float factor;
};

inline float silu_of(float x) { return x / (1.0f + precise::exp(-x)); }

struct Sum {
  static float of(float x, float y, float) { return x + y; }
};
struct Product {
  static float of(float x, float y, float) { return x * y; }
};
struct Gated {
  static float of(float x, float y, float) { return silu_of(x) * y; }
};
struct Scaled {
  static float of(float x, float, float factor) { return x * factor; }
};
struct SiluOf {
  static float of(float x, float, float) { return silu_of(x); }
};
struct GeluOf {
  // 0.797... is the square root of 2/pi.
  static float of(float x, float, float) {
    return 0.5f * x * (1.0f + precise::tanh(0.7978845608028654f * fma(0.044715f * x * x, x, x)));
  }
};

// The result may be the memory of x or of y. A function of one argument is given x twice.
template <typename F>
kernel void elements(device const float *x [[buffer(0)]],
                     device const float *y [[buffer(1)]],
                     device float *out [[buffer(2)]],
                     constant ElementArgs &a [[buffer(3)]],
                     uint i [[thread_position_in_grid]]) {
  if (i < a.n) out[i] = F::of(x[i], y[i], a.factor);
}

template [[host_name("add")]] kernel decltype(elements<Sum>) elements<Sum>;
template [[host_name("mul")]] kernel decltype(elements<Product>) elements<Product>;
template [[host_name("swiglu")]] kernel decltype(elements<Gated>) elements<Gated>;
template [[host_name("scale")]] kernel decltype(elements<Scaled>) elements<Scaled>;
template [[host_name("silu")]] kernel decltype(elements<SiluOf>) elements<SiluOf>;
template [[host_name("gelu")]] kernel decltype(elements<GeluOf>) elements<GeluOf>;

struct RowsArgs {
  uint width;
  uint rows;
};

// get_rows copies rows of four-byte elements, whatever they mean.
kernel void get_rows(device const uint *x [[buffer(0)]],
                     device const int *ids [[buffer(1)]],
                     device uint *out [[buffer(2)]],
                     constant RowsArgs &a [[buffer(3)]],
                     uint2 at [[thread_position_in_grid]]) {
  if (at.x < a.width) out[(ulong)at.y * a.width + at.x] = x[(ulong)ids[at.y] * a.width + at.x];
}

struct PermuteArgs {
  uint n;
  uint shape[3];  // of the result, but for the slowest dimension
  uint stride[4]; // in the source, for each dimension of the result
};

kernel void permute(device const uint *x [[buffer(0)]],
                    device uint *out [[buffer(1)]],
                    constant PermuteArgs &a [[buffer(2)]],
                    uint i [[thread_position_in_grid]]) {
  if (i >= a.n) return;
  uint rest = i, from = 0;
  for (int d = 0; d < 3; d++) {
    from += rest % a.shape[d] * a.stride[d];
    rest /= a.shape[d];
  }
  out[i] = x[from + rest * a.stride[3]];
}
