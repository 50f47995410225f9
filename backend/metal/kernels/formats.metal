// The storage formats of weights. Each has a struct with
//
//	read(row, u, unit)   unit u of a row: 32 values as integers, with scales and minima
//	unit_groups          how many groups of a unit have a scale of their own, 1 or 2
//	minima               whether groups have minima
//
// A value is q*s + m with the s and m of its group. The first 16 values of a unit use s.x and m.x, the others s.y and m.y;
// formats with one group fill both in. Blocks begin at even addresses in all formats but MXFP4.

struct Unit {
  char q[32];
  float2 s;
  float2 m;
};

inline float half_at(device const uchar *p) { return float(*(device const half *)p); }
inline ushort word_at(device const uchar *p) { return *(device const ushort *)p; }

// nibbles reads 16 bytes whose low nibbles are the values 0 to 15 and whose high nibbles are 16 to 31.
inline void nibbles(device const uchar *p, thread Unit &u, char zero) {
  for (ushort i = 0; i < 8; i++) {
    const ushort w = word_at(p + 2 * i);
    u.q[2 * i] = char(w & 15) - zero;
    u.q[2 * i + 1] = char(w >> 8 & 15) - zero;
    u.q[16 + 2 * i] = char(w >> 4 & 15) - zero;
    u.q[16 + 2 * i + 1] = char(w >> 12) - zero;
  }
}

// fifth adds bit i of the 32 at p to value i, as 16.
inline void fifth(device const uchar *p, thread Unit &u) {
  const uint bits = word_at(p) | (uint)word_at(p + 2) << 16;
  for (ushort i = 0; i < 32; i++) u.q[i] += char((bits >> i & 1) << 4);
}

struct Q4_0 {
  constant static constexpr int unit_groups = 1;
  constant static constexpr bool minima = false;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i * 18;
    u.s = float2(half_at(b));
    nibbles(b + 2, u, 8);
  }
};

struct Q4_1 {
  constant static constexpr int unit_groups = 1;
  constant static constexpr bool minima = true;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i * 20;
    u.s = float2(half_at(b));
    u.m = float2(half_at(b + 2));
    nibbles(b + 4, u, 0);
  }
};

struct Q5_0 {
  constant static constexpr int unit_groups = 1;
  constant static constexpr bool minima = false;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i * 22;
    u.s = float2(half_at(b));
    nibbles(b + 6, u, 16);
    fifth(b + 2, u);
  }
};

struct Q5_1 {
  constant static constexpr int unit_groups = 1;
  constant static constexpr bool minima = true;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i * 24;
    u.s = float2(half_at(b));
    u.m = float2(half_at(b + 2));
    nibbles(b + 8, u, 0);
    fifth(b + 4, u);
  }
};

struct Q8_0 {
  constant static constexpr int unit_groups = 1;
  constant static constexpr bool minima = false;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i * 34;
    u.s = float2(half_at(b));
    for (ushort j = 0; j < 16; j++) {
      const ushort w = word_at(b + 2 + 2 * j);
      u.q[2 * j] = char(w & 255);
      u.q[2 * j + 1] = char(w >> 8);
    }
  }
};

// The K formats and IQ4_XS have blocks of eight units.

// pairs2 reads 32 bit pairs, of each byte the pair at shift.
inline void pairs2(device const uchar *p, ushort shift, thread Unit &u) {
  for (ushort j = 0; j < 16; j++) {
    const ushort w = word_at(p + 2 * j) >> shift;
    u.q[2 * j] = char(w & 3);
    u.q[2 * j + 1] = char(w >> 8 & 3);
  }
}

// half_nibbles reads 32 nibbles, of each byte the one at shift.
inline void half_nibbles(device const uchar *p, ushort shift, thread Unit &u) {
  for (ushort j = 0; j < 16; j++) {
    const ushort w = word_at(p + 2 * j) >> shift;
    u.q[2 * j] = char(w & 15);
    u.q[2 * j + 1] = char(w >> 8 & 15);
  }
}

struct Q2_K {
  constant static constexpr int unit_groups = 2;
  constant static constexpr bool minima = true;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i / 8 * 84;
    const ushort part = i % 8;
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    const uchar c0 = b[2 * part], c1 = b[2 * part + 1];
    u.s = float2(d * float(c0 & 15), d * float(c1 & 15));
    u.m = float2(-(dmin * float(c0 >> 4)), -(dmin * float(c1 >> 4)));
    pairs2(b + 16 + part / 4 * 32, part % 4 * 2, u);
  }
};

struct Q3_K {
  constant static constexpr int unit_groups = 2;
  constant static constexpr bool minima = false;
  static float scale(device const uchar *packed, ushort i) {
    const int low = packed[i & 7] >> (i / 8 * 4) & 15, high = packed[8 + (i & 3)] >> (i / 4 * 2) & 3;
    return float((low | high << 4) - 32);
  }
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i / 8 * 110;
    const ushort part = i % 8;
    const float d = half_at(b + 108);
    u.s = float2(d * scale(b + 96, 2 * part), d * scale(b + 96, 2 * part + 1));
    pairs2(b + 32 + part / 4 * 32, part % 4 * 2, u);
    for (ushort j = 0; j < 32; j++) u.q[j] += (b[j] >> part & 1) ? 0 : -4;
  }
};

// scales4 reads the head that Q4_K and Q5_K share.
inline void scales4(device const uchar *b, ushort part, thread Unit &u) {
  device const uchar *p = b + 4;
  uchar sc, mn;
  if (part < 4) {
    sc = p[part] & 63;
    mn = p[4 + part] & 63;
  } else {
    sc = (p[4 + part] & 15) | (p[part - 4] >> 6) << 4;
    mn = p[4 + part] >> 4 | (p[part] >> 6) << 4;
  }
  u.s = float2(half_at(b) * float(sc));
  u.m = float2(-(half_at(b + 2) * float(mn)));
}

struct Q4_K {
  constant static constexpr int unit_groups = 1;
  constant static constexpr bool minima = true;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i / 8 * 144;
    const ushort part = i % 8;
    scales4(b, part, u);
    half_nibbles(b + 16 + part / 2 * 32, part % 2 * 4, u);
  }
};

struct Q5_K {
  constant static constexpr int unit_groups = 1;
  constant static constexpr bool minima = true;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i / 8 * 176;
    const ushort part = i % 8;
    scales4(b, part, u);
    half_nibbles(b + 48 + part / 2 * 32, part % 2 * 4, u);
    for (ushort j = 0; j < 32; j++) u.q[j] += char((b[16 + j] >> part & 1) << 4);
  }
};

struct Q6_K {
  constant static constexpr int unit_groups = 2;
  constant static constexpr bool minima = false;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i / 8 * 210;
    const ushort part = i % 8, k = part % 4;
    const float d = half_at(b + 208);
    u.s = float2(d * float(char(b[192 + 2 * part])), d * float(char(b[192 + 2 * part + 1])));
    half_nibbles(b + part / 4 * 64 + k % 2 * 32, k / 2 * 4, u);
    device const uchar *high = b + 128 + part / 4 * 32;
    for (ushort j = 0; j < 16; j++) {
      const ushort w = word_at(high + 2 * j) >> 2 * k;
      u.q[2 * j] += char((w & 3) << 4) - 32;
      u.q[2 * j + 1] += char((w >> 8 & 3) << 4) - 32;
    }
  }
};

constant char levels_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constant char levels_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; // doubled

inline void lookup(device const uchar *p, constant char *levels, thread Unit &u) {
  for (ushort j = 0; j < 16; j++) {
    u.q[j] = levels[p[j] & 15];
    u.q[16 + j] = levels[p[j] >> 4];
  }
}

struct IQ4_NL {
  constant static constexpr int unit_groups = 1;
  constant static constexpr bool minima = false;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i * 18;
    u.s = float2(half_at(b));
    lookup(b + 2, levels_nl, u);
  }
};

struct IQ4_XS {
  constant static constexpr int unit_groups = 1;
  constant static constexpr bool minima = false;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i / 8 * 136;
    const ushort part = i % 8;
    const int sc = (b[4 + part / 2] >> (part % 2 * 4) & 15) | (word_at(b + 2) >> 2 * part & 3) << 4;
    u.s = float2(half_at(b) * float(sc - 32));
    lookup(b + 8 + 16 * part, levels_nl, u);
  }
};

struct MXFP4 {
  constant static constexpr int unit_groups = 1;
  constant static constexpr bool minima = false;
  static void read(device const uchar *row, uint i, thread Unit &u) {
    device const uchar *b = row + i * 17;
    // Half of 2^(e-127), since the levels are doubled; the two smallest are subnormal.
    u.s = float2(as_type<float>(b[0] < 2 ? 0x00200000u << b[0] : (uint)(b[0] - 1) << 23));
    lookup(b + 1, levels_e2m1, u);
  }
};

// The float formats have single values.

struct F32 {
  constant static constexpr uint bytes = 4;
  static float at(device const uchar *row, uint i) { return ((device const float *)row)[i]; }
};

struct F16 {
  constant static constexpr uint bytes = 2;
  static float at(device const uchar *row, uint i) { return float(((device const half *)row)[i]); }
};

struct BF16 {
  constant static constexpr uint bytes = 2;
  static float at(device const uchar *row, uint i) { return as_type<float>((uint)((device const ushort *)row)[i] << 16); }
};

struct EmbedArgs {
  uint dim;
  uint row_bytes;
};

// embed_units decodes rows of a table; grid [units of 32 values, tokens].
template <typename F>
kernel void embed_units(device const uchar *table [[buffer(0)]],
                        device const int *ids [[buffer(1)]],
                        device float *out [[buffer(2)]],
                        constant EmbedArgs &a [[buffer(3)]],
                        uint2 at [[thread_position_in_grid]]) {
  if (at.x >= a.dim / 32) return;
  Unit u;
  F::read(table + (ulong)ids[at.y] * a.row_bytes, at.x, u);
  device float *y = out + (ulong)at.y * a.dim + at.x * 32;
  for (ushort i = 0; i < 32; i++) {
    const float v = float(u.q[i]) * (i < 16 ? u.s.x : u.s.y);
    y[i] = F::minima ? v + (i < 16 ? u.m.x : u.m.y) : v;
  }
}

// embed_floats is the same for formats of single values; grid [values, tokens].
template <typename F>
kernel void embed_floats(device const uchar *table [[buffer(0)]],
                         device const int *ids [[buffer(1)]],
                         device float *out [[buffer(2)]],
                         constant EmbedArgs &a [[buffer(3)]],
                         uint2 at [[thread_position_in_grid]]) {
  if (at.x < a.dim) out[(ulong)at.y * a.dim + at.x] = F::at(table + (ulong)ids[at.y] * a.row_bytes, at.x);
}

template [[host_name("embed_f32")]] kernel decltype(embed_floats<F32>) embed_floats<F32>;
template [[host_name("embed_f16")]] kernel decltype(embed_floats<F16>) embed_floats<F16>;
template [[host_name("embed_bf16")]] kernel decltype(embed_floats<BF16>) embed_floats<BF16>;
template [[host_name("embed_q4_0")]] kernel decltype(embed_units<Q4_0>) embed_units<Q4_0>;
template [[host_name("embed_q4_1")]] kernel decltype(embed_units<Q4_1>) embed_units<Q4_1>;
template [[host_name("embed_q5_0")]] kernel decltype(embed_units<Q5_0>) embed_units<Q5_0>;
template [[host_name("embed_q5_1")]] kernel decltype(embed_units<Q5_1>) embed_units<Q5_1>;
template [[host_name("embed_q8_0")]] kernel decltype(embed_units<Q8_0>) embed_units<Q8_0>;
template [[host_name("embed_q2_k")]] kernel decltype(embed_units<Q2_K>) embed_units<Q2_K>;
template [[host_name("embed_q3_k")]] kernel decltype(embed_units<Q3_K>) embed_units<Q3_K>;
template [[host_name("embed_q4_k")]] kernel decltype(embed_units<Q4_K>) embed_units<Q4_K>;
template [[host_name("embed_q5_k")]] kernel decltype(embed_units<Q5_K>) embed_units<Q5_K>;
template [[host_name("embed_q6_k")]] kernel decltype(embed_units<Q6_K>) embed_units<Q6_K>;
template [[host_name("embed_iq4_nl")]] kernel decltype(embed_units<IQ4_NL>) embed_units<IQ4_NL>;
template [[host_name("embed_iq4_xs")]] kernel decltype(embed_units<IQ4_XS>) embed_units<IQ4_XS>;
template [[host_name("embed_mxfp4")]] kernel decltype(embed_units<MXFP4>) embed_units<MXFP4>;
