// Package quant reads and writes the block formats in which ggml files store
// weights. It is plain Go and it is the definition: the assembly kernels of the
// devices are tested for equality with it.
//
// # Formats
//
// A [Format] describes one storage format: how many values share a block, how
// many bytes the block takes, and how its values are scaled. [Lookup] finds one
// by ggml's name, [Formats] lists them. A row of n values occupies n/Block
// blocks, one after the other, without padding and without any alignment; all
// numbers inside a block are little-endian.
//
// # Two readings of a row
//
// [Format.Dequantize] gives float32 values. [Format.Unpack] gives the integer
// form, an [IntRow], which is what quantised products are computed from. It is
// canonical, part of the numerics contract of the library:
//
//   - Values come in groups of Format.Group: 32, or 16 for Q2_K, Q3_K and Q6_K.
//   - Q holds one int8 per value with the format's zero point already taken off:
//     Q4_0 nibble-8, Q5_0 q-16, Q3_K q-4, Q6_K q-32, Q8_0 as stored; Q4_1, Q5_1,
//     Q2_K, Q4_K, Q5_K keep the unsigned q, as they have a minimum instead;
//     IQ4_NL and IQ4_XS the value of their table; MXFP4 twice the E2M1 value.
//   - Scale holds one float32 per group: the block's f16 scale d; d*sc, one
//     multiplication in float32, where a block has sub-scales sc; half the
//     E8M0 power of two for MXFP4.
//   - Min holds one float32 per group, for formats with Format.Min only: the
//     f16 minimum of Q4_1 and Q5_1, -(dmin*m) for Q2_K, Q4_K and Q5_K.
//
// Value i of group g is Scale[g]*Q[i] + Min[g], and Dequantize computes just
// that: the product rounded to float32, then the sum rounded to float32. No
// fused multiply-add is involved, and none would change a bit: for every format
// the factors have so few significant bits (at most 23 together) that d*sc and
// Scale*Q are exact. A dequantised value is therefore the exact value of the
// format, rounded once where a minimum is added and not at all elsewhere.
//
// # Edges
//
// Infinite and NaN scales in a file are passed on as the formula has them.
// MXFP4's exponent 255, a NaN in the OCP text, is 2^128 as in ggml, so its larger
// values overflow to infinity. Scales below 2^-126, subnormal in float32, arise
// only from MXFP4's exponents 0 and 1 and are kept exactly; an f16 scale times
// an integer is never below 2^-24.
//
// # Errors and concurrency
//
// Errors that a file or a caller's data can cause are returned and wrap one of
// the Err values. Slices of the wrong length are mistakes inside the library and
// panic, as each comment says. Formats are immutable and everything here is safe
// for concurrent use, except that an IntRow belongs to one goroutine at a time.
//
// # Sources
//
// The layouts are those of ggml's block structures; the reference for values is
// the gguf Python package, with which testdata was made. E2M1 and E8M0 are from
// the OCP Microscaling Formats specification 1.0, half precision from IEEE 754.
package quant
