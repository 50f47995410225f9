"""Makes the reference vectors of this folder with ggml's gguf Python package.

Usage, in an environment with numpy and gguf (PYTHONPATH may name a source tree):

    python generate.py        # writes next to this file

NAME.dec: random blocks of a format, then their values as float32.
NAME.enc: float32 values, then their encoding. All numbers are little-endian.
"""
import os

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(20240607)

# Byte offsets of the half-precision fields of each block.
HALVES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
    T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [],
}
# Zeros, the smallest and largest subnormals, the smallest and largest normals,
# infinity and NaN; the blocks after these have ordinary scales.
EDGES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0x7E00]
E8M0_EDGES = [0, 1, 2, 3, 126, 127, 128, 254, 255]
BLOCKS = 12


def blocks(t):
    out = rng.integers(0, 256, (BLOCKS, GGML_QUANT_SIZES[t][1]), dtype=np.uint8)
    for k, at in enumerate(HALVES[t]):
        half = (rng.normal(0, 0.02, BLOCKS)).astype(np.float16).view(np.uint16)
        edges = EDGES if k == 0 else EDGES[3:] + EDGES[:3]
        half[:len(edges)] = edges
        out[:, at:at + 2] = half.view(np.uint8).reshape(-1, 2)
    if t == T.MXFP4:
        out[:len(E8M0_EDGES), 0] = E8M0_EDGES
    return out


def values_to_encode():
    rows = []
    for scale in [1, 0.02, 300, 4e5, 1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-20, 1e-36]:
        rows += [rng.normal(0, scale / 4, 32).clip(-scale, scale) for _ in range(4)]
    rows.append(np.zeros(32))
    rows.append(-np.zeros(32))
    rows.append(np.full(32, 0.75))
    rows.append(np.full(32, -3.0))
    for sign in (1, -1):
        one = np.zeros(32)
        one[17] = sign * 2.5
        rows.append(one)
        # A step of exactly 1 in Q8_0 and in Q4_0, values half-way between steps.
        for top in (127, 8):
            ties = np.arange(32) / 2 - 7.5
            ties[5] = sign * top
            rows.append(ties)
        # The magnitude is shared: the first of the two decides the sign.
        both = np.linspace(-1, 1, 32) * sign
        rows.append(both)
    return np.array(rows, dtype=np.float32)


def floats_to_encode():
    bits = rng.integers(0, 2**32, 300, dtype=np.uint32)
    near = rng.integers(0, 0x7C00, 150, dtype=np.uint32).astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    # Halves, the ties between two of them, and the neighbours of both.
    near = np.concatenate([near, near + 1, near - 1, near + 0x1000, near + 0x1001, near + 0xFFF])
    exponents = np.arange(0, 0x10000, 128, dtype=np.uint32) << 16
    edges = np.array([0, 1, 0x80000001, 0x33000000, 0x33000001, 0x387FFFFF, 0x477FEFFF, 0x477FF000, 0x7F7FFFFF, 0x7F800000,
                      0xFF800000, 0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0x7F7F7FFF, 0x7F7F8000], dtype=np.uint32)
    return np.concatenate([bits, near, exponents, edges]).view(np.float32)


def save(name, *parts):
    with open(os.path.join(HERE, name), "wb") as f:
        for part in parts:
            f.write(np.ascontiguousarray(part).tobytes())


with np.errstate(all="ignore"):
    for t in HALVES:
        b = blocks(t)
        save(t.name + ".dec", b, dequantize(b, t).astype("<f4"))
    x = values_to_encode()
    for t in (T.Q8_0, T.Q4_0):
        save(t.name + ".enc", x, quantize(x, t))
    x = floats_to_encode()
    for t in (T.F16, T.BF16):
        save(t.name + ".enc", x, quantize(x.reshape(-1, 1), t).view(np.uint8))
